//! Session ids: a slug of the task and four characters, e.g. `fix-login-7k3f`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The id of a session: lower-case letters, digits and single hyphens, so that it is safe as a file
/// name, in a ref and on a command line. It is created by `new` and `parse` only.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Id(String);

/// The error for a text that is not an id.
#[derive(Debug, thiserror::Error)]
#[error("invalid session id `{0}` (lower-case letters, digits and single hyphens, 64 at most)")]
pub struct BadId(String);

const ALPHABET: &[u8] = b"abcdefghjkmnpqrstuvwxyz23456789";
const SLUG_CHARS: usize = 24;
const TAIL_CHARS: usize = 4;
/// Suffixes of the conversations within a session, before their number.
const CHILD_SUFFIXES: [&str; 2] = ["-coach", "-task"];

impl Id {
    /// Creates an id from a task and four random bytes.
    pub fn new(task: &str, random: [u8; 4]) -> Self {
        let tail: String = random
            .iter()
            .map(|byte| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()]))
            .collect();
        Self(format!("{}-{tail}", slug(task)))
    }

    /// Parses an id.
    pub fn parse(text: &str) -> Result<Self, BadId> {
        let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let is_valid = !text.is_empty()
            && text.len() <= 64
            && text.chars().all(is_allowed)
            && !text.starts_with('-')
            && !text.ends_with('-')
            && !text.contains("--");
        if is_valid { Ok(Self(text.to_owned())) } else { Err(BadId(text.to_owned())) }
    }

    /// Returns the id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Returns the last part of an id, which is distinctive and contains no words of the task: `7k3f`,
/// or `7k3f-coach-2` or `7k3f-task-1` for a conversation within a session.
pub fn tail(id: &str) -> &str {
    let is_count =
        |part: &str| part.len() < TAIL_CHARS && part.bytes().all(|byte| byte.is_ascii_digit());
    let mut rest = id;
    loop {
        let mut without_count = rest;
        while let Some((before, _)) = without_count.rsplit_once('-').filter(|(_, it)| is_count(it))
        {
            without_count = before;
        }
        let outer = CHILD_SUFFIXES.iter().find_map(|name| without_count.strip_suffix(name));
        match outer.filter(|_| without_count.len() < rest.len()) {
            Some(outer) => rest = outer,
            None => return &id[rest.rfind('-').map_or(0, |index| index + 1)..],
        }
    }
}

/// Returns the first words of a task as ASCII letters, digits and hyphens, with other scripts
/// transliterated; `task` if the result is empty.
fn slug(task: &str) -> String {
    let mut out = String::new();
    let beginning: String = task.trim_start().chars().take(8 * SLUG_CHARS).collect();
    for c in deunicode::deunicode(&beginning).chars() {
        if c.is_ascii_alphanumeric() {
            out.push(c.to_ascii_lowercase());
        } else if !out.is_empty() && !out.ends_with('-') {
            out.push('-');
        }
        if out.len() > SLUG_CHARS {
            break;
        }
    }
    if out.len() > SLUG_CHARS {
        let end = out[..SLUG_CHARS].rfind('-').filter(|index| *index >= 8).unwrap_or(SLUG_CHARS);
        out.truncate(end);
    }
    let slug = out.trim_matches('-');
    if slug.is_empty() { "task".to_owned() } else { slug.to_owned() }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Id {
    type Err = BadId;
    fn from_str(text: &str) -> Result<Self, BadId> {
        Self::parse(text)
    }
}

impl TryFrom<String> for Id {
    type Error = BadId;
    fn try_from(text: String) -> Result<Self, BadId> {
        Self::parse(&text)
    }
}

impl From<Id> for String {
    fn from(id: Id) -> String {
        id.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_contains_no_words_of_the_task() {
        assert_eq!(tail("fix-login-7k3f"), "7k3f");
        assert_eq!(tail("be-a-coach-2345"), "2345");
        assert_eq!(tail("fix-the-7k3f-coach-2"), "7k3f-coach-2");
        assert_eq!(tail("fix-the-7k3f-coach-12-3"), "7k3f-coach-12-3");
        assert_eq!(tail("a-task-7k3f-task-1-task-2"), "7k3f-task-1-task-2");
        assert_eq!(tail("a-task-7k3f"), "7k3f");
        assert_eq!(tail("count-to-10-ab2d"), "ab2d");
        assert_eq!(tail("complete"), "complete");
    }

    #[test]
    fn an_id_is_a_slug_of_the_task_and_four_characters() {
        assert_eq!(Id::new("Fix login!", [0, 1, 2, 3]).as_str(), "fix-login-abcd");
        assert_eq!(Id::new("$(touch x); ../..", [0; 4]).as_str(), "touch-x-aaaa");
        assert_eq!(Id::new("привет, мир", [0; 4]).as_str(), "privet-mir-aaaa");
        assert_eq!(Id::new("Überprüfe die Größe", [0; 4]).as_str(), "uberprufe-die-grosse-aaaa");
        assert_eq!(Id::new("修复登录", [0; 4]).as_str(), "xiu-fu-deng-lu-aaaa");
        assert_eq!(Id::new("--- ...", [0; 4]).as_str(), "task-aaaa");
        let long = Id::new("rename the variable everywhere in the program", [0; 4]);
        assert_eq!(long.as_str(), "rename-the-variable-aaaa");
    }

    #[test]
    fn an_invalid_id_is_rejected() {
        for bad in ["", "-a", "a-", "a--b", "A", "a/b", "..", "a b", "é", &"a".repeat(65)] {
            assert!(Id::parse(bad).is_err(), "{bad:?} was accepted");
        }
    }
}
