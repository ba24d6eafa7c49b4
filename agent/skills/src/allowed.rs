//! `allowed-tools`: tool names with an optional pattern in parentheses.

use globset::{GlobBuilder, GlobMatcher};

/// An entry of `allowed-tools`.
#[derive(Clone, Debug)]
pub struct AllowedTool {
    /// The text as written.
    pub text: String,
    /// The tool name, as used by any agent.
    pub name: String,
    pattern: Option<Pattern>,
}

/// A pattern for the subject of a call.
#[derive(Clone, Debug)]
enum Pattern {
    /// `git add:*`: commands that start with these words.
    Begins(Vec<String>),
    /// A glob over the command or the path.
    Glob(GlobMatcher),
}

impl PartialEq for AllowedTool {
    fn eq(&self, other: &AllowedTool) -> bool {
        self.text == other.text
    }
}

/// Splits a text into names at spaces and commas outside of parentheses.
pub(crate) fn split_names(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut depth = 0usize;
    for c in text.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        match words.last_mut() {
            Some(word) if depth > 0 || !(c.is_whitespace() || c == ',') => word.push(c),
            Some(word) if word.is_empty() => {}
            Some(_) | None => words.push(String::new()),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

impl AllowedTool {
    /// Parses an entry. The error says what is wrong with it.
    pub(crate) fn parse(text: String) -> Result<AllowedTool, String> {
        let invalid = |reason: &str| format!("`{text}` in `allowed-tools` {reason}");
        let (name, inner) = match text.split_once('(') {
            None => (text.as_str(), None),
            Some((name, rest)) => match rest.strip_suffix(')') {
                Some(inner) => (name, Some(inner.trim())),
                None => return Err(invalid("lacks its closing parenthesis")),
            },
        };
        let is_name_char = |c: char| c.is_ascii_alphanumeric() || "_-.*".contains(c);
        if name.is_empty() || !name.chars().all(is_name_char) {
            return Err(invalid("is not a tool name"));
        }
        let pattern = match inner {
            None | Some("" | "*") => None,
            Some(inner) => Some(Pattern::parse(inner).map_err(|error| invalid(&error))?),
        };
        Ok(AllowedTool { name: name.to_owned(), pattern, text })
    }

    /// Whether it has a pattern.
    pub fn has_pattern(&self) -> bool {
        self.pattern.is_some()
    }

    /// Whether the pattern matches a command, given as words.
    pub fn matches_command(&self, words: &[String]) -> bool {
        match &self.pattern {
            None => true,
            Some(Pattern::Begins(prefix)) => words.starts_with(prefix),
            Some(Pattern::Glob(glob)) => glob.is_match(words.join(" ")),
        }
    }

    /// Whether the pattern matches a path, absolute or relative to the root.
    pub fn matches_path(&self, path: &str) -> bool {
        match &self.pattern {
            None => true,
            Some(Pattern::Begins(_)) => false,
            Some(Pattern::Glob(glob)) => glob.is_match(path),
        }
    }

    /// Whether the pattern matches a host: `domain:HOST`, or a glob over hosts.
    pub fn matches_host(&self, host: &str) -> bool {
        match &self.pattern {
            None => true,
            Some(Pattern::Begins(_)) => false,
            Some(Pattern::Glob(glob)) => {
                glob.is_match(host) || glob.is_match(format!("domain:{host}"))
            }
        }
    }
}

impl Pattern {
    fn parse(inner: &str) -> Result<Pattern, String> {
        if let Some(prefix) = inner.strip_suffix(":*") {
            return Ok(Pattern::Begins(prefix.split_whitespace().map(str::to_owned).collect()));
        }
        let glob = GlobBuilder::new(inner).literal_separator(false).build();
        glob.map(|glob| Pattern::Glob(glob.compile_matcher())).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_split_at_spaces_and_commas_outside_of_parentheses() {
        assert_eq!(split_names("Read, Bash(git add:*)  Grep"), ["Read", "Bash(git add:*)", "Grep"]);
        assert!(split_names(" , ").is_empty());
    }

    #[test]
    fn a_pattern_matches_the_first_words_or_is_a_glob() {
        let entry = |text: &str| AllowedTool::parse(text.to_owned()).unwrap();
        let line = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert!(entry("Bash(git add:*)").matches_command(&line("git add -A")));
        assert!(!entry("Bash(git add:*)").matches_command(&line("git push")));
        assert!(!entry("Bash(git:*)").matches_command(&line("gitk")));
        assert!(entry("shell(npm run *)").matches_command(&line("npm run test")));
        assert!(entry("Bash(*)").matches_command(&line("anything")));
        assert!(entry("Read(src/**)").matches_path("src/a/b.rs"));
        assert!(!entry("Read(src/**)").matches_path("etc/b.rs"));
        let fetch = entry("WebFetch(domain:*.rs)");
        assert!(fetch.matches_host("docs.rs") && !fetch.matches_host("docs.rs.evil"));
        assert!(entry("WebFetch(docs.rs)").matches_host("docs.rs"));
        for wrong in ["Bash(git", "a b", "(x)", "Read([)"] {
            assert!(AllowedTool::parse(wrong.to_owned()).is_err(), "{wrong}");
        }
    }
}
