//! A report about a codebase for the model that refines requirements: its languages, its layout,
//! its build files and the names that its files define.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ignore::WalkBuilder;

/// Maximum number of files examined.
const FILES: usize = 5_000;
/// Approximate maximum size of a report in bytes.
const ROOM: usize = 40_000;
/// Maximum number of bytes read of a source file.
const READ: usize = 200_000;
/// Maximum number of lines shown of a build file.
const LINES: usize = 60;

/// A language: its name, the extensions of its files, and the starts of lines that define a name.
type Language = (&'static str, &'static [&'static str], &'static [&'static str]);

const LANGUAGES: &[Language] = &[
    (
        "Rust",
        &["rs"],
        &[
            "pub fn ",
            "fn ",
            "pub async fn ",
            "async fn ",
            "pub struct ",
            "struct ",
            "pub enum ",
            "enum ",
            "pub trait ",
            "trait ",
            "impl ",
            "pub mod ",
            "mod ",
            "macro_rules! ",
        ],
    ),
    ("Java", &["java"], &["public ", "class ", "interface ", "enum ", "record "]),
    (
        "Kotlin",
        &["kt", "kts"],
        &["fun ", "class ", "object ", "interface ", "data class ", "sealed "],
    ),
    (
        "Swift",
        &["swift"],
        &["func ", "class ", "struct ", "enum ", "protocol ", "extension ", "public "],
    ),
    ("Go", &["go"], &["func ", "type ", "package "]),
    ("Python", &["py"], &["def ", "class ", "async def "]),
    (
        "TypeScript",
        &["ts", "tsx"],
        &["export ", "function ", "class ", "interface ", "type ", "enum "],
    ),
    (
        "JavaScript",
        &["js", "jsx", "mjs", "cjs"],
        &["export ", "function ", "class ", "module.exports"],
    ),
    (
        "C and C++",
        &["c", "h", "cc", "cpp", "hpp"],
        &["class ", "struct ", "enum ", "namespace ", "typedef ", "template", "#define "],
    ),
    ("Ruby", &["rb"], &["class ", "module ", "def "]),
    ("SQL", &["sql"], &["create ", "CREATE ", "alter ", "ALTER "]),
    ("Markdown", &["md"], &["# ", "## "]),
    ("YAML", &["yml", "yaml"], &[]),
];

/// Files that describe a project and how it is built.
const BUILDS: &[&str] = &[
    "Cargo.toml",
    "package.json",
    "pyproject.toml",
    "setup.py",
    "requirements.txt",
    "go.mod",
    "pom.xml",
    "build.gradle",
    "build.gradle.kts",
    "Package.swift",
    "CMakeLists.txt",
    "Makefile",
    "Gemfile",
    "README.md",
    "AGENTS.md",
];

/// Returns the report about a directory, about 40 kB at most. Files that `.gitignore` matches are
/// left out.
pub(crate) fn report(code: &Path) -> String {
    let files = files(code);
    let mut text = String::new();
    let mut part = |title: &str, lines: Vec<String>, room: usize| {
        if lines.is_empty() || text.len() >= ROOM {
            return;
        }
        text += &format!("## {title}\n");
        let end = text.len() + room.min(ROOM - text.len());
        let count = lines.len();
        for (index, line) in lines.into_iter().enumerate() {
            if text.len() + line.len() > end {
                text += &format!("[{} more lines]\n", count - index);
                break;
            }
            text += &line;
            text.push('\n');
        }
        text.push('\n');
    };
    part("Languages", languages(&files), 2_000);
    part("Directories", directories(&files), 6_000);
    for name in BUILDS {
        if let Some(file) = files.iter().find(|file| file.as_path() == Path::new(name)) {
            let lines = read(code, file).lines().take(LINES).map(str::to_owned).collect();
            part(&format!("{name} (its beginning)"), lines, 4_000);
        }
    }
    part("What the files define", definitions(code, &files), ROOM);
    text
}

fn files(code: &Path) -> Vec<PathBuf> {
    let mut walk = WalkBuilder::new(code);
    walk.require_git(false).follow_links(false).sort_by_file_path(Path::cmp);
    walk.filter_entry(|entry| entry.file_name() != "g3-plan");
    let files = walk.build().flatten().filter(|it| it.file_type().is_some_and(|it| it.is_file()));
    files.filter_map(|it| Some(it.path().strip_prefix(code).ok()?.to_owned())).take(FILES).collect()
}

fn language(file: &Path) -> Option<&'static Language> {
    let ending = file.extension()?.to_str()?;
    LANGUAGES.iter().find(|(_, endings, _)| endings.contains(&ending))
}

fn languages(files: &[PathBuf]) -> Vec<String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (name, ..) in files.iter().filter_map(|file| language(file)) {
        *counts.entry(name).or_default() += 1;
    }
    let mut counts: Vec<(&str, usize)> = counts.into_iter().collect();
    counts.sort_by_key(|(name, count)| (std::cmp::Reverse(*count), *name));
    counts.into_iter().map(|(name, count)| format!("{name}: {count} files")).collect()
}

fn directories(files: &[PathBuf]) -> Vec<String> {
    let mut names: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in files {
        let dir = file.parent().unwrap_or(Path::new("")).to_string_lossy().into_owned();
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        names.entry(dir).or_default().push(name);
    }
    let line = |(dir, names): (String, Vec<String>)| {
        let some = names.iter().take(12).map(String::as_str).collect::<Vec<_>>().join(" ");
        let more =
            if names.len() > 12 { format!(" … ({} files)", names.len()) } else { String::new() };
        format!("{}/: {some}{more}", if dir.is_empty() { "." } else { &dir })
    };
    names.into_iter().map(line).collect()
}

fn definitions(code: &Path, files: &[PathBuf]) -> Vec<String> {
    let mut lines = Vec::new();
    for file in files {
        let Some((name, _, begins)) = language(file) else { continue };
        if *name == "Markdown" || begins.is_empty() {
            continue;
        }
        let text = read(code, file);
        let defines: Vec<String> = text
            .lines()
            .filter(|line| begins.iter().any(|begin| line.starts_with(begin)))
            .map(|line| line.trim_end_matches(['{', ' ', ':']).chars().take(100).collect())
            .take(25)
            .collect();
        if !defines.is_empty() {
            lines.push(format!("{}: {}", file.display(), defines.join("; ")));
        }
    }
    lines
}

fn read(code: &Path, file: &Path) -> String {
    let bytes = base::files::read(&code.join(file)).unwrap_or_default();
    String::from_utf8_lossy(&bytes[..bytes.len().min(READ)]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_contains_languages_layout_build_files_and_names() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let file = dir.path().join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        };
        write("Cargo.toml", "[package]\nname = \"shop\"\n");
        write("src/lib.rs", "pub fn open() {\n    fn hidden() {}\n}\nstruct Door {\n}\n");
        write("web/app.ts", "export class Cart {}\n");
        write("target/x.rs", "pub fn built() {}\n");
        write(".gitignore", "target\n");
        let report = report(dir.path());
        for words in [
            "Rust: 1 files",
            "src/: lib.rs",
            "name = \"shop\"",
            "src/lib.rs: pub fn open(); struct Door",
            "export class Cart",
        ] {
            assert!(report.contains(words), "no `{words}` in\n{report}");
        }
        assert!(!report.contains("built") && !report.contains("hidden"), "{report}");
    }

    #[test]
    fn the_report_of_a_large_tree_is_cut_and_says_so() {
        let dir = tempfile::tempdir().unwrap();
        for n in 0..900 {
            std::fs::create_dir_all(dir.path().join(format!("d{n}"))).unwrap();
            let text = format!("fn {}() {{}}\n", "x".repeat(90));
            std::fs::write(dir.path().join(format!("d{n}/a.rs")), text).unwrap();
        }
        let report = report(dir.path());
        assert!(report.len() < ROOM + 2_000 && report.contains(" more lines]"), "{}", report.len());
    }
}
