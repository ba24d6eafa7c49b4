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
    let mut sections = vec![Section { path: Vec::new(), level: 0, start: 0, end: 0 }];
    let mut headings: Vec<(usize, String)> = Vec::new();
    let mut fence = Fence::default();
    let mut offset = 0;
    for line in text.split_inclusive('\n') {
        let is_fenced = fence.update(line);
        if let Some((level, heading)) = heading(line).filter(|_| !is_fenced) {
            headings.retain(|(level_above, _)| *level_above < level);
            headings.push((level, normalize(heading)));
            let path = headings.iter().map(|(_, heading)| heading.clone()).collect();
            sections.push(Section { path, level, start: offset, end: offset });
        }
        offset += line.len();
        if let Some(last) = sections.last_mut() {
            last.end = offset;
        }
    }
    sections
}

/// Returns the section of a file that corresponds to a section of notes: the one with the same path
/// of headings, else the only one with the same heading.
pub(crate) fn find_matching<'a>(known: &'a [Section], section: &Section) -> Option<&'a Section> {
    let path = if section.level == 0 { super::default_path() } else { section.path.clone() };
    let mut headed = known.iter().filter(|section| section.level > 0);
    if let Some(exact) = headed.clone().find(|section| section.path == path) {
        return Some(exact);
    }
    headed.by_ref().find(|section| section.path.last() == path.last()).filter(|first| {
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
        let mut is_start = true;
        let lines = text[self.start..self.end].lines().skip(usize::from(self.level > 0));
        for line in lines {
            let is_fenced = fence.update(line);
            let is_blank = line.trim().is_empty();
            let is_indented = line.starts_with([' ', '\t']);
            let starts_entry = !is_fenced && !is_indented && (is_start || is_bullet(line));
            match entries.last_mut() {
                _ if starts_entry && !is_blank => entries.push(NoteEntry { text: line.to_owned() }),
                Some(last) => {
                    last.text.push('\n');
                    last.text.push_str(line);
                }
                // Indented text without a preceding entry is an entry of its own.
                None if !is_blank => entries.push(NoteEntry { text: line.trim_start().to_owned() }),
                None => {}
            }
            is_start = is_blank && !is_fenced;
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
        self.start + content.len() + rest.find('\n').map_or(rest.len(), |offset| offset + 1)
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
        let (own_words, other_words) = (self.words(), other.words());
        if own_words.is_empty() || other_words.is_empty() {
            return self.is_same(other);
        }
        let text = |words: &[String]| words.join(" ").to_lowercase();
        if text(&own_words) == text(&other_words) {
            return true;
        }
        significant_words(&own_words) == significant_words(&other_words)
            && strsim::normalized_levenshtein(&text(&own_words), &text(&other_words)) >= 0.92
    }

    /// Whether it is a list item.
    pub(crate) fn is_bullet(&self) -> bool {
        is_bullet(&self.text)
    }

    /// Returns its words without filler words and punctuation.
    fn words(&self) -> Vec<String> {
        let is_edge = |c: char| c.is_ascii_punctuation() && !"/_#@$".contains(c);
        let words = self.text.split_whitespace().map(|word| word.trim_matches(is_edge));
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
fn significant_words(words: &[String]) -> Vec<&String> {
    let is_significant = |word: &&String| {
        word.chars().any(|c| !c.is_alphabetic())
            || word.chars().skip(1).any(char::is_uppercase)
            || NEGATIONS.contains(&word.to_lowercase().as_str())
            || word.ends_with("n't")
    };
    words.iter().filter(is_significant).collect()
}

/// Normalizes a heading: without marks, ignoring whitespace and case.
pub(crate) fn normalize(heading: &str) -> String {
    let words: Vec<&str> = heading.trim().trim_end_matches('#').split_whitespace().collect();
    words.join(" ").to_lowercase()
}

/// Returns the level and text of a heading.
fn heading(line: &str) -> Option<(usize, &str)> {
    let level = line.chars().take_while(|c| *c == '#').count();
    let rest = &line[level..];
    let is_heading =
        (1..=6).contains(&level) && rest.starts_with([' ', '\t']) && !rest.trim().is_empty();
    is_heading.then(|| (level, rest.trim()))
}

fn is_bullet(line: &str) -> bool {
    let after_number = line.trim_start_matches(|c: char| c.is_ascii_digit());
    ["- ", "* ", "+ "].iter().any(|marker| line.starts_with(marker))
        || after_number.len() < line.len()
            && (after_number.starts_with(". ") || after_number.starts_with(") "))
}

/// Tracks code fences, inside which nothing is a heading.
#[derive(Default)]
struct Fence {
    open: Option<String>,
}

impl Fence {
    fn update(&mut self, line: &str) -> bool {
        let line = line.trim_start();
        let marker = ['`', '~'].into_iter().find_map(|c| {
            let count = line.chars().take_while(|x| *x == c).count();
            (count >= 3).then(|| c.to_string().repeat(count))
        });
        match (&self.open, marker) {
            (None, Some(marker)) => {
                self.open = Some(marker);
                true
            }
            (Some(open), Some(marker)) if marker.starts_with(open.as_str()) => {
                self.open = None;
                true
            }
            (open, _) => open.is_some(),
        }
    }
}
