//! Answers prompts of programs on a terminal so that they continue.

use std::sync::LazyLock;

use regex::Regex;

/// The reaction to the end of a command's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AutoAnswer {
    /// A question: type this.
    Answer(&'static str),
    /// An editor or pager waits: close its input.
    Close,
}

/// Prompts and answers; the first match wins.
const PROMPTS: [(&str, &str); 14] = [
    (r"\[Y/n\]\s*$", "Y\n"),
    (r"\[y/N\]\s*$", "y\n"),
    (r"(?i)\(y/n\)\s*[?:]?\s*$", "y\n"),
    (r"(?i)\(yes/no\)\s*[?:]?\s*$", "yes\n"),
    (r"(?i)do you (want|wish) to continue\s*\??\s*$", "y\n"),
    (r"(?i)are you sure\s*\??\s*$", "y\n"),
    (r"(?i)continue\?\s*$", "y\n"),
    (r"(?i)press (enter|any key|return)[^\n]*$", "\n"),
    (r"(?i)ok to proceed\? \(y\)\s*$", "y\n"),
    (r"(?i)proceed\? \(y(/N)?\)\s*$", "y\n"),
    (r"(?i)proceed \(Y/n\)\s*[?:]?\s*$", "Y\n"),
    (r#"(?i)type ['"]?yes['"]? to confirm"#, "yes\n"),
    (r"(?i)overwrite[^\n]*\? \[y/N\]\s*$", "y\n"),
    (r"(?i)already exists[^\n]*overwrite\s*\??\s*$", "y\n"),
];

/// An editor's empty line, `less`, `more`, `git log`.
const PAGERS: [&str; 5] =
    [r"~\s*$", r"(?m)^:\s*$", r"\(END\)", r"--More--", r"lines \d+-\d+(/\d+)?"];

static PATTERNS: LazyLock<Vec<(Regex, AutoAnswer)>> = LazyLock::new(|| {
    let regex = |text: &str| Regex::new(text).expect("the table is constant, and a test reads it");
    let prompts = PROMPTS.iter().map(|(text, answer)| (regex(text), AutoAnswer::Answer(answer)));
    let pagers = PAGERS.iter().map(|text| (regex(text), AutoAnswer::Close));
    prompts.chain(pagers).collect()
});

/// Returns the reaction to the end of the output, if it is a known prompt.
pub(crate) fn find_prompt(tail: &str) -> Option<AutoAnswer> {
    PATTERNS.iter().find(|(regex, _)| regex.is_match(tail)).map(|(_, answer)| *answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_prompt_is_answered() {
        let cases = [
            ("Install? [Y/n] ", "Y\n"),
            ("Remove? [y/N] ", "y\n"),
            ("Go (Y/N)?", "y\n"),
            ("Trust this host (yes/no)? ", "yes\n"),
            ("Do you wish to continue?", "y\n"),
            ("ARE YOU SURE", "y\n"),
            ("continue? ", "y\n"),
            ("Press ENTER to go on", "\n"),
            ("Press any key...", "\n"),
            ("Ok to proceed? (y) ", "y\n"),
            ("Proceed? (y/N) ", "y\n"),
            ("Proceed (Y/n)? ", "y\n"),
            ("Type 'yes' to confirm deletion: ", "yes\n"),
            ("overwrite a.txt? [y/N] ", "y\n"),
            ("a.txt already exists. Overwrite? ", "y\n"),
        ];
        for (tail, answer) in cases {
            assert_eq!(find_prompt(tail), Some(AutoAnswer::Answer(answer)), "{tail}");
        }
    }

    #[test]
    fn pagers_and_editors_are_closed_and_other_output_is_ignored() {
        for tail in ["a\n~\n~", "text\n:", "(END)", "--More--", "lines 1-23/40"] {
            assert_eq!(find_prompt(tail), Some(AutoAnswer::Close), "{tail}");
        }
        for tail in ["done\n", "[y/n]x", "continuing", "a: b\n", "are you sure about it? yes\n"] {
            assert_eq!(find_prompt(tail), None, "{tail}");
        }
    }
}
