//! Detects destructive commands by their words alone; `git mv` and `grep kill` match as well.

use std::sync::LazyLock;

use base::failure::Result;
use regex::Regex;

use super::{pattern, rows};

/// The words that are searched for.
#[derive(Debug)]
pub(crate) struct Destructive {
    verbs: Vec<String>,
    phrases: Vec<String>,
    /// The configured verbs and the fixed ones, each as a whole word.
    words: Regex,
}

/// An encoded PowerShell command, which cannot be read.
static ENCODED_POWERSHELL: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?i)\b(?:powershell|pwsh)(?:\.exe)?\b.*\s-(?:EncodedCommand|e|ec)\b")
        .expect("a constant; a test matches it")
});

/// Destructive constructs besides the listed words: options of `find` and `git clean`, `unlink`,
/// and a redirection without a command, which empties a file.
static OTHER_DESTRUCTIVE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"(?i)\bfind\b.*\s-delete\b|\bgit\b.*\bclean\b.*\s-\w*[fdx]|\bunlink\b|(?:^|[;&|])\s*>[^>&]",
    )
    .expect("a constant; a test matches it")
});

/// A command substitution.
static SUBSTITUTION: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"\$\(([^)]+)\)|`([^`]+)`").expect("a constant; a test matches it")
});

impl Destructive {
    /// Compiles these words and phrases, and those that always count.
    pub(crate) fn new(configured: &[String]) -> Result<Destructive> {
        let lower = configured.iter().map(|text| text.to_lowercase());
        let (phrases, verbs): (Vec<String>, Vec<String>) =
            lower.partition(|text| text.contains(' '));
        let always_destructive = rows::ALWAYS_DESTRUCTIVE.iter().map(|word| (*word).to_owned());
        let all: Vec<String> = verbs
            .iter()
            .cloned()
            .chain(always_destructive)
            .map(|word| regex::escape(&word))
            .collect();
        let words = pattern("destructive", &format!(r"(?i)\b(?:{})\b", all.join("|")))?;
        Ok(Destructive { verbs, phrases, words })
    }

    /// Whether the command, or one joined with it or nested in it, may be destructive.
    pub(crate) fn matches(&self, line: &str) -> bool {
        // A shell reads `r'm'` as `rm`.
        let unquoted = line.replace(['\'', '"', '\\'], "");
        OTHER_DESTRUCTIVE.is_match(&unquoted)
            || self.matches_plain(line)
            || unquoted != line && self.matches_plain(&unquoted)
    }

    fn matches_plain(&self, line: &str) -> bool {
        let nested = SUBSTITUTION
            .captures_iter(line)
            .filter_map(|captures| captures.get(1).or(captures.get(2)));
        let parts = line.split(['|', ';', '&']).chain(nested.map(|captures| captures.as_str()));
        ENCODED_POWERSHELL.is_match(line)
            || parts.into_iter().any(|part| self.matches_command(part))
    }

    fn matches_command(&self, part: &str) -> bool {
        let lower = part.to_lowercase();
        command_name(&lower)
            .is_some_and(|verb| self.verbs.iter().any(|configured| configured == verb))
            || self.words.is_match(part)
            || self.phrases.iter().any(|phrase| lower.contains(phrase))
    }
}

/// Returns the command name without its directory, after prefixes such as `sudo`. A prefix alone is
/// the command.
fn command_name(part: &str) -> Option<&str> {
    let base = |word: &'_ str| word.rfind(['/', '\\']).map_or(0, |index| index + 1);
    let mut words = part.split_whitespace().map(|word| &word[base(word)..]).peekable();
    loop {
        let word = words.next()?;
        if words.peek().is_none() || !rows::PREFIXES.contains(&word) {
            return Some(word);
        }
    }
}
