//! Rules about README and the pages of `docs/`: standard vocabulary, and valid links.

use std::path::{Path, PathBuf};

use crate::source::{read, root};

/// Words that do not occur in the manuals of git and cargo.
const UNUSUAL: &[&str] = &["nobody", "whoever", "anew", "once more", "meanwhile"];

/// Returns README and every page below `docs/`.
fn pages() -> Vec<String> {
    let mut pages = vec!["README.md".to_owned()];
    let mut directories = vec![PathBuf::from("docs")];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(root().join(&directory)).expect("docs can be read") {
            let entry = entry.expect("docs can be read");
            let path = directory.join(entry.file_name());
            match entry.file_type().expect("docs can be read").is_dir() {
                true => directories.push(path),
                false => pages.push(path.to_string_lossy().into_owned()),
            }
        }
    }
    pages.retain(|page| page.ends_with(".md"));
    pages
}

/// Returns the text without code: without fenced blocks and words in backticks.
fn prose(text: &str) -> String {
    let mut in_fence = false;
    let lines = text.lines().filter(|line| {
        let is_fence = line.trim_start().starts_with("```");
        in_fence ^= is_fence;
        !in_fence && !is_fence
    });
    let lines = lines.map(|line| line.split('`').step_by(2).collect::<Vec<_>>().join(" "));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn documents_use_the_words_of_a_manual() {
    let pages = pages();
    assert!(pages.len() > 30, "{pages:?}");
    let mut found = Vec::new();
    for page in pages {
        let lower = prose(&read(&page)).to_lowercase();
        let words: Vec<&str> = lower.split(|c: char| !c.is_alphanumeric()).collect();
        let spaced = format!(" {} ", words.join(" "));
        let unusual = UNUSUAL.iter().filter(|word| spaced.contains(&format!(" {word} ")));
        found.extend(unusual.map(|word| format!("{page}: {word}")));
    }
    assert!(found.is_empty(), "write plain English in: {found:#?}");
}

/// Returns the anchors of a page's headings, as git hosts generate them.
fn anchors(text: &str) -> Vec<String> {
    let mut in_fence = false;
    let headings = text.lines().filter(|line| {
        in_fence ^= line.starts_with("```");
        !in_fence && line.starts_with('#')
    });
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, '-' | '_' | ' ');
    headings
        .map(|line| line.trim_start_matches('#').trim().to_lowercase())
        .map(|title| title.chars().filter(kept).collect::<String>().replace(' ', "-"))
        .collect()
}

/// Returns the targets of the links in a text that are not URLs.
fn local_links(text: &str) -> Vec<String> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.filter(|target| !target.contains("://")).map(str::to_owned).collect()
}

#[test]
fn links_of_documents_refer_to_existing_files_and_headings() {
    let mut wrong = Vec::new();
    for page in pages() {
        let directory = Path::new(&page).parent().expect("a page is in a directory").to_owned();
        for link in local_links(&prose(&read(&page))) {
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = match file {
                "" => root().join(&page),
                file => root().join(&directory).join(file),
            };
            let text = std::fs::read_to_string(&target);
            let is_there = target.exists();
            let has_anchor = || text.is_ok_and(|text| anchors(&text).iter().any(|a| a == anchor));
            if !is_there || !anchor.is_empty() && !has_anchor() {
                wrong.push(format!("{page}: {link}"));
            }
        }
    }
    assert!(wrong.is_empty(), "links that lead nowhere: {wrong:#?}");
}

#[test]
fn code_is_excluded_from_prose() {
    let text = "Run `nobody` it.\n```\nanew\n```\nDone.";
    assert_eq!(prose(text), "Run   it.\nDone.");
}
