//! Parses Markdown notes: sections by heading, their entries, and duplicate entries.

/// A heading and the text below it, up to the next heading of any level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Section {
    /// The path of headings; empty for the text before the first one.
    pub path: Vec<String>,
    /// The level of the heading; 0 for the text before the first one.
    pub level: usize,
    /// Start offset in bytes.
    pub start: usize,
    /// End offset in bytes.
    pub end: usize,
}

/// A bullet with the indented text below it, or a paragraph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NoteEntry {
    /// The text, without the trailing newline.
    pub text: String,
}

/// Returns the contiguous sections of a text.
pub(crate) fn sections(text: &str) -> Vec<Section> {
    let mut found = vec![Section { path: Vec::new(), level: 0, start: 0, end: 0 }];
    let mut open: Vec<(usize, String)> = Vec::new();
    let mut fence = Fence::default();
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let inside = fence.holds(line);
        if let Some((level, heading)) = heading(line).filter(|_| !inside) {
            open.retain(|(above, _)| *above < level);
            open.push((level, normal(heading)));
            let path = open.iter().map(|(_, heading)| heading.clone()).collect();
            found.push(Section { path, level, start: at, end: at });
        }
        at += line.len();
        if let Some(last) = found.last_mut() {
            last.end = at;
        }
    }
    found
}

/// Returns the section of a file that corresponds to a section of notes: the one with the same path
/// of headings, else the only one with the same heading.
pub(crate) fn same<'a>(known: &'a [Section], wanted: &Section) -> Option<&'a Section> {
    let path = if wanted.level == 0 { super::loose() } else { wanted.path.clone() };
    let mut named = known.iter().filter(|section| section.level > 0);
    if let Some(exact) = named.clone().find(|section| section.path == path) {
        return Some(exact);
    }
    named.by_ref().find(|section| section.path.last() == path.last()).filter(|first| {
        !known.iter().any(|other| other != *first && other.path.last() == path.last())
    })
}

/// Returns the entries of a text, without headings.
pub(crate) fn entries(text: &str) -> Vec<NoteEntry> {
    sections(text).iter().flat_map(|section| section.entries(text)).collect()
}

impl Section {
    /// Returns its entries.
    pub(crate) fn entries(&self, text: &str) -> Vec<NoteEntry> {
        let mut entries: Vec<NoteEntry> = Vec::new();
        let mut fence = Fence::default();
        let mut begin = true;
        let lines = text[self.start..self.end].lines().skip(usize::from(self.level > 0));
        for line in lines {
            let inside = fence.holds(line);
            let blank = line.trim().is_empty();
            let indented = line.starts_with([' ', '\t']);
            let starts = !inside && !indented && (begin || is_bullet(line));
            match entries.last_mut() {
                _ if starts && !blank => entries.push(NoteEntry { text: line.to_owned() }),
                Some(last) => {
                    last.text.push('\n');
                    last.text.push_str(line);
                }
                // Indented text without a preceding entry is an entry of its own.
                None if !blank => entries.push(NoteEntry { text: line.trim_start().to_owned() }),
                None => {}
            }
            begin = blank && !inside;
        }
        for entry in &mut entries {
            entry.text.truncate(entry.text.trim_end().len());
        }
        entries
    }

    /// Returns the end of its last non-empty line.
    pub(crate) fn end_of_text(&self, text: &str) -> usize {
        let content = text[self.start..self.end].trim_end();
        let rest = &text[self.start + content.len()..self.end];
        self.start + content.len() + rest.find('\n').map_or(rest.len(), |at| at + 1)
    }
}

impl NoteEntry {
    /// Whether both are equal except for whitespace.
    pub(crate) fn is_same(&self, other: &NoteEntry) -> bool {
        self.text.split_whitespace().eq(other.text.split_whitespace())
    }

    /// Whether both say the same in nearly the same words: the significant words are equal, or
    /// differ in a few letters while names, numbers and negations are equal.
    pub(crate) fn is_near(&self, other: &NoteEntry) -> bool {
        let (ours, theirs) = (self.words(), other.words());
        if ours.is_empty() || theirs.is_empty() {
            return self.is_same(other);
        }
        let text = |words: &[String]| words.join(" ").to_lowercase();
        if text(&ours) == text(&theirs) {
            return true;
        }
        telling(&ours) == telling(&theirs)
            && strsim::normalized_levenshtein(&text(&ours), &text(&theirs)) >= 0.92
    }

    /// Whether it is a list item.
    pub(crate) fn is_bullet(&self) -> bool {
        is_bullet(&self.text)
    }

    /// Returns its words without filler words and punctuation.
    fn words(&self) -> Vec<String> {
        let edges = |c: char| c.is_ascii_punctuation() && !"/_#@$".contains(c);
        let words = self.text.split_whitespace().map(|word| word.trim_matches(edges));
        let words = words.filter(|word| !word.is_empty());
        words
            .filter(|word| !FILLER.contains(&word.to_lowercase().as_str()))
            .map(str::to_owned)
            .collect()
    }
}

/// Words that do not change the meaning of a sentence.
const FILLER: &[&str] = &[
    "a", "an", "and", "are", "at", "be", "for", "in", "is", "it", "its", "of", "on", "that", "the",
    "there", "this", "to", "which", "with",
];

/// Words that negate a sentence.
const NEGATIONS: &[&str] = &[
    "cannot", "except", "neither", "never", "no", "none", "nor", "not", "only", "unless", "without",
];

/// Returns the words that must be equal: names, numbers and negations.
fn telling(words: &[String]) -> Vec<&String> {
    let tells = |word: &&String| {
        word.chars().any(|c| !c.is_alphabetic())
            || word.chars().skip(1).any(char::is_uppercase)
            || NEGATIONS.contains(&word.to_lowercase().as_str())
            || word.ends_with("n't")
    };
    words.iter().filter(tells).collect()
}

/// Normalizes a heading: without marks, ignoring whitespace and case.
pub(crate) fn normal(heading: &str) -> String {
    let words: Vec<&str> = heading.trim().trim_end_matches('#').split_whitespace().collect();
    words.join(" ").to_lowercase()
}

/// Returns the level and text of a heading.
fn heading(line: &str) -> Option<(usize, &str)> {
    let level = line.chars().take_while(|c| *c == '#').count();
    let rest = &line[level..];
    let fits = (1..=6).contains(&level) && rest.starts_with([' ', '\t']) && !rest.trim().is_empty();
    fits.then(|| (level, rest.trim()))
}

fn is_bullet(line: &str) -> bool {
    let after_number = line.trim_start_matches(|c: char| c.is_ascii_digit());
    ["- ", "* ", "+ "].iter().any(|mark| line.starts_with(mark))
        || after_number.len() < line.len()
            && (after_number.starts_with(". ") || after_number.starts_with(") "))
}

/// Tracks code fences, inside which nothing is a heading.
#[derive(Default)]
struct Fence {
    open: Option<String>,
}

impl Fence {
    fn holds(&mut self, line: &str) -> bool {
        let line = line.trim_start();
        let mark = ['`', '~'].into_iter().find_map(|c| {
            let count = line.chars().take_while(|x| *x == c).count();
            (count >= 3).then(|| c.to_string().repeat(count))
        });
        match (&self.open, mark) {
            (None, Some(mark)) => {
                self.open = Some(mark);
                true
            }
            (Some(open), Some(mark)) if mark.starts_with(open.as_str()) => {
                self.open = None;
                true
            }
            (open, _) => open.is_some(),
        }
    }
}
