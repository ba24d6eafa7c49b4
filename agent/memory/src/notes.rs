//! The notes of a workspace. New notes are merged by heading, duplicates are dropped, and every
//! other byte of the file is unchanged.

pub mod parts;

use parts::{NoteEntry, Section};

/// Maximum number of characters of the notes, since all of them are in every prompt.
pub const MAX_CHARS: usize = 32_000;

const TITLE: &str = "# Workspace Memory";
const UPDATED: &str = "> Updated:";
/// The heading for notes without one.
const DEFAULT_HEADING: &str = "### Notes";

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
    pub changed_topics: Vec<String>,
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
    let mut added_entries: Vec<NoteEntry> = Vec::new();
    for section in parts::sections(new) {
        let entries = section.entries(new);
        let (count, first) = (entries.len(), added_entries.len());
        let target = parts::find_matching(&known, &section);
        for entry in entries {
            let is_same = |other: &NoteEntry| other.is_same(&entry);
            let is_near = |other: &NoteEntry| other.is_near(&entry);
            let is_known = known.iter().any(|one| one.entries(old).iter().any(is_same))
                || target.is_some_and(|target| target.entries(old).iter().any(is_near))
                || added_entries.iter().any(is_same);
            if !is_known {
                added_entries.push(entry);
            }
        }
        let new_entries = &added_entries[first..];
        added += new_entries.len();
        dropped += count - new_entries.len();
        if new_entries.is_empty() {
            continue;
        }
        // A paragraph needs a preceding blank line, or it would be joined to the one above.
        let separator = |entry: &NoteEntry| if entry.is_bullet() { "" } else { "\n" };
        let text: String = new_entries
            .iter()
            .map(|entry| format!("{}{}\n", separator(entry), entry.text))
            .collect();
        let heading = section.heading(new).unwrap_or(DEFAULT_HEADING).to_owned();
        let trimmed = text.trim_start_matches('\n');
        inserts.push(match target {
            Some(target) => (target.end_of_text(old), false, text),
            None => (old.len(), true, format!("\n{heading}\n{trimmed}")),
        });
    }
    let text = with_header(&insert_texts(old, inserts), before, now);
    let (old_topics, new_topics) = (topics(before), topics(&text));
    let is_new = |topic: &&(String, String)| !old_topics.contains(topic);
    let changed_topics = new_topics.iter().filter(is_new).map(|(topic, _)| topic.clone()).collect();
    MergedNotes { text, added, dropped, changed_topics }
}

/// Inserts texts at their offsets. Additions to the last section come before new sections.
fn insert_texts(old: &str, mut inserts: Vec<(usize, bool, String)>) -> String {
    inserts.sort_by_key(|(offset, is_new, _)| (*offset, *is_new));
    let mut text = String::with_capacity(old.len() + 1_000);
    let mut copied = 0;
    for (offset, is_new, new) in inserts {
        text.push_str(&old[copied..offset]);
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        let blank = text.is_empty() || text.ends_with("\n\n");
        text.push_str(if is_new && blank { new.trim_start_matches('\n') } else { &new });
        copied = offset;
    }
    text.push_str(&old[copied..]);
    text
}

/// Puts a new header above the body. An existing title is kept; a file without one gets the default
/// title.
fn with_header(body: &str, before: &str, now: &str) -> String {
    let (title, old) = header(before);
    let title = title.unwrap_or(TITLE).trim_end_matches(['\n', '\r']);
    let separator = match header(before).0 {
        Some(_) if old.is_empty() || old.starts_with(['\n', '\r']) => "",
        Some(_) | None => "\n",
    };
    let separator = if old.is_empty() { "\n" } else { separator };
    let format_header =
        |size: &str| format!("{title}\n{UPDATED} {now} | Size: {size}\n{separator}{body}");
    // The length of the size does not depend on its digits.
    format_header(&size(&format_header("0.0k chars")))
}

/// Splits off the title and the generated lines below it.
fn header(text: &str) -> (Option<&str>, &str) {
    let mut lines = text.split_inclusive('\n');
    let Some(first) = lines.next().filter(|line| line.trim_end() == TITLE) else {
        return (None, text);
    };
    let mut offset = first.len();
    // A union merge of two branches leaves two of them.
    for line in lines.take_while(|line| line.starts_with(UPDATED)) {
        offset += line.len();
    }
    (Some(first), &text[offset..])
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
            None => DEFAULT_HEADING.trim_start_matches('#').trim().to_owned(),
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
pub(crate) fn default_path() -> Vec<String> {
    vec![parts::normalize(DEFAULT_HEADING.trim_start_matches('#'))]
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
