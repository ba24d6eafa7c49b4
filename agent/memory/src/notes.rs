//! The notes of a workspace. New notes are merged by heading, duplicates are dropped, and every
//! other byte of the file is unchanged.

pub mod parts;

use parts::{NoteEntry, Section};

/// Maximum number of characters of the notes, since all of them are in every prompt.
pub const MOST: usize = 32_000;

const TITLE: &str = "# Workspace Memory";
const UPDATED: &str = "> Updated:";
/// The heading for notes without one.
const LOOSE: &str = "### Notes";

/// The result of a merge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergedNotes {
    /// The complete new file.
    pub text: String,
    /// Number of new entries.
    pub added: usize,
    /// Number of entries that already existed.
    pub dropped: usize,
    /// The topics with new entries.
    pub touched: Vec<String>,
}

impl MergedNotes {
    /// Returns the size as shown in the file and in messages.
    pub fn size(&self) -> String {
        size(&self.text)
    }
}

/// Formats a size: `1.2k chars`.
fn size(text: &str) -> String {
    format!("{:.1}k chars", text.chars().count() as f64 / 1e3)
}

/// Merges notes into the text of the file. `now` is the time for the header.
pub fn merge(before: &str, notes: &str, now: &str) -> MergedNotes {
    let (_, old) = header(before);
    let (_, new) = header(notes);
    let known = parts::sections(old);
    let mut inserts: Vec<(usize, bool, String)> = Vec::new();
    let (mut added, mut dropped) = (0, 0);
    let mut fresh: Vec<NoteEntry> = Vec::new();
    for section in parts::sections(new) {
        let entries = section.entries(new);
        let (count, first) = (entries.len(), fresh.len());
        let place = parts::same(&known, &section);
        for entry in entries {
            let there = |other: &NoteEntry| other.is_same(&entry);
            let near = |other: &NoteEntry| other.is_near(&entry);
            let is_known = known.iter().any(|one| one.entries(old).iter().any(there))
                || place.is_some_and(|place| place.entries(old).iter().any(near))
                || fresh.iter().any(there);
            if !is_known {
                fresh.push(entry);
            }
        }
        let kept = &fresh[first..];
        added += kept.len();
        dropped += count - kept.len();
        if kept.is_empty() {
            continue;
        }
        // A paragraph needs a preceding blank line, or it would be joined to the one above.
        let gap = |entry: &NoteEntry| if entry.is_bullet() { "" } else { "\n" };
        let text: String =
            kept.iter().map(|entry| format!("{}{}\n", gap(entry), entry.text)).collect();
        let heading = section.heading(new).unwrap_or(LOOSE).to_owned();
        let bare = text.trim_start_matches('\n');
        inserts.push(match place {
            Some(place) => (place.end_of_text(old), false, text),
            None => (old.len(), true, format!("\n{heading}\n{bare}")),
        });
    }
    let text = with_header(&inserted(old, inserts), before, now);
    let (was, is) = (topics(before), topics(&text));
    let is_new = |topic: &&(String, String)| !was.contains(topic);
    let touched = is.iter().filter(is_new).map(|(topic, _)| topic.clone()).collect();
    MergedNotes { text, added, dropped, touched }
}

/// Inserts texts at their offsets. Additions to the last section come before new sections.
fn inserted(old: &str, mut inserts: Vec<(usize, bool, String)>) -> String {
    inserts.sort_by_key(|(at, is_new, _)| (*at, *is_new));
    let mut text = String::with_capacity(old.len() + 1_000);
    let mut done = 0;
    for (at, is_new, new) in inserts {
        text.push_str(&old[done..at]);
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        let blank = text.is_empty() || text.ends_with("\n\n");
        text.push_str(if is_new && blank { new.trim_start_matches('\n') } else { &new });
        done = at;
    }
    text.push_str(&old[done..]);
    text
}

/// Puts a new header above the body. An existing title is kept; a file without one gets the default
/// title.
fn with_header(body: &str, before: &str, now: &str) -> String {
    let (title, old) = header(before);
    let title = title.unwrap_or(TITLE).trim_end_matches(['\n', '\r']);
    let gap = match header(before).0 {
        Some(_) if old.is_empty() || old.starts_with(['\n', '\r']) => "",
        Some(_) | None => "\n",
    };
    let gap = if old.is_empty() { "\n" } else { gap };
    let put = |size: &str| format!("{title}\n{UPDATED} {now} | Size: {size}\n{gap}{body}");
    // The length of the size does not depend on its digits.
    put(&size(&put("0.0k chars")))
}

/// Splits off the title and the generated lines below it.
fn header(text: &str) -> (Option<&str>, &str) {
    let mut lines = text.split_inclusive('\n');
    let Some(first) = lines.next().filter(|line| line.trim_end() == TITLE) else {
        return (None, text);
    };
    let mut at = first.len();
    // A union merge of two branches leaves two of them.
    for line in lines.take_while(|line| line.starts_with(UPDATED)) {
        at += line.len();
    }
    (Some(first), &text[at..])
}

/// Returns the notes as topics and texts, in the order of the file. A topic is a heading, or the
/// path of headings if several sections have the same heading.
pub(crate) fn topics(text: &str) -> Vec<(String, String)> {
    let (_, body) = header(text);
    let sections = parts::sections(body);
    let mut open: Vec<(usize, String)> = Vec::new();
    let mut topics = Vec::new();
    for section in &sections {
        let heading = section.heading(body).map(|line| line.trim_start_matches('#').trim());
        if let Some(heading) = heading {
            open.retain(|(level, _)| *level < section.level);
            open.push((section.level, heading.to_owned()));
        }
        let content = section.content(body);
        if content.is_empty() {
            continue;
        }
        let is_double = sections
            .iter()
            .any(|other| other.path.last() == section.path.last() && other.path != section.path);
        let topic = match heading {
            None => LOOSE.trim_start_matches('#').trim().to_owned(),
            Some(_) if is_double => {
                open.iter().map(|(_, heading)| heading.as_str()).collect::<Vec<_>>().join(" / ")
            }
            Some(heading) => heading.to_owned(),
        };
        topics.push((topic, format!("{content}\n")));
    }
    topics
}

/// Returns the section for notes without a heading.
pub(crate) fn loose() -> Vec<String> {
    vec![parts::normal(LOOSE.trim_start_matches('#'))]
}

impl Section {
    /// Returns the line of its heading.
    fn heading<'a>(&self, text: &'a str) -> Option<&'a str> {
        let line = text[self.start..self.end].lines().next()?;
        (self.level > 0).then_some(line.trim_end())
    }

    /// Returns the text below its heading.
    fn content<'a>(&self, text: &'a str) -> &'a str {
        let all = &text[self.start..self.end];
        let heading = if self.level > 0 { all.lines().next().unwrap_or_default().len() } else { 0 };
        all[heading..].trim_matches(['\n', '\r']).trim_end()
    }
}

#[cfg(test)]
mod tests;
