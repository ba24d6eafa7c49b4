//! The notes of a workspace: new ones are merged in by heading, what stands there already is
//! dropped, and every byte that is not ours stays.

pub mod parts;

use parts::{Entry, Section};

/// Characters that the notes may have: all of them are in every prompt.
pub const MOST: usize = 32_000;

const TITLE: &str = "# Workspace Memory";
const UPDATED: &str = "> Updated:";
/// The heading of notes that have none.
const LOOSE: &str = "### Notes";

/// What a merge makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merged {
    /// The whole new file.
    pub text: String,
    /// Entries that are new.
    pub added: usize,
    /// Entries that stood there already.
    pub dropped: usize,
    /// What is new, as heading and text.
    pub news: Vec<(String, String)>,
}

impl Merged {
    /// The size as the file and the messages tell it.
    pub fn size(&self) -> String {
        size(&self.text)
    }
}

/// `1.2k chars`.
pub fn size(text: &str) -> String {
    format!("{:.1}k chars", text.chars().count() as f64 / 1e3)
}

/// Merges notes into the text of the file. `now` is the time for the header.
pub fn merge(before: &str, notes: &str, now: &str) -> Merged {
    let (_, old) = header(before);
    let (_, new) = header(notes);
    let known = parts::sections(old);
    let mut inserts: Vec<(usize, bool, String)> = Vec::new();
    let (mut added, mut dropped, mut news) = (0, 0, Vec::new());
    let mut fresh: Vec<Entry> = Vec::new();
    for section in parts::sections(new) {
        let entries = section.entries(new);
        let (count, first) = (entries.len(), fresh.len());
        let place = parts::same(&known, &section);
        for entry in entries {
            let there = |other: &Entry| other.is_same(&entry);
            let near = |other: &Entry| other.is_near(&entry);
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
        // A paragraph needs a blank line before it, or it would run into the one above.
        let gap = |entry: &Entry| if entry.is_bullet() { "" } else { "\n" };
        let text: String =
            kept.iter().map(|entry| format!("{}{}\n", gap(entry), entry.text)).collect();
        let heading = section.heading(new).unwrap_or(LOOSE).to_owned();
        let bare = text.trim_start_matches('\n');
        news.push((heading.trim_start_matches('#').trim().to_owned(), bare.to_owned()));
        inserts.push(match place {
            Some(place) => (place.end_of_text(old), false, text),
            None => (old.len(), true, format!("\n{heading}\n{bare}")),
        });
    }
    Merged { text: with_header(&inserted(old, inserts), before, now), added, dropped, news }
}

/// Puts texts at their places: what belongs to the last section stands before new sections.
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

/// The body below a new header. A title that stands there stays; a file without one gets ours.
fn with_header(body: &str, before: &str, now: &str) -> String {
    let (title, old) = header(before);
    let title = title.unwrap_or(TITLE).trim_end_matches(['\n', '\r']);
    let gap = match header(before).0 {
        Some(_) if old.is_empty() || old.starts_with(['\n', '\r']) => "",
        Some(_) | None => "\n",
    };
    let gap = if old.is_empty() { "\n" } else { gap };
    let put = |size: &str| format!("{title}\n{UPDATED} {now} | Size: {size}\n{gap}{body}");
    // The size of the size does not change with its digits.
    put(&size(&put("0.0k chars")))
}

/// Our title and the lines of ours below it, and what follows.
fn header(text: &str) -> (Option<&str>, &str) {
    let mut lines = text.split_inclusive('\n');
    let Some(first) = lines.next().filter(|line| line.trim_end() == TITLE) else {
        return (None, text);
    };
    let mut at = first.len();
    // A merge of two branches by union leaves two of them.
    for line in lines.take_while(|line| line.starts_with(UPDATED)) {
        at += line.len();
    }
    (Some(first), &text[at..])
}

/// The section where notes without a heading go.
pub(crate) fn loose() -> Vec<String> {
    vec![parts::normal(LOOSE.trim_start_matches('#'))]
}

impl Section {
    /// The line of its heading.
    fn heading<'a>(&self, text: &'a str) -> Option<&'a str> {
        let line = text[self.start..self.end].lines().next()?;
        (self.level > 0).then_some(line.trim_end())
    }
}

#[cfg(test)]
mod tests;
