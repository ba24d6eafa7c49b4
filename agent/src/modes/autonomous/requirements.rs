//! The source of a run's requirements: the flag, or `requirements.md`.

use std::fs;
use std::path::Path;

use base::failure::{Failure, Result};
use planner::document;
use planner::requirement::{AmbiguousRequirements, Requirement, read};

/// The file that is read without the flag.
const FILE: &str = "requirements.md";
/// Maximum size of the requirements in bytes.
const MOST: u64 = 1 << 20;

/// Returns the text of the requirements: the content of the file that the flag names, or the flag
/// itself. Without a flag, returns the content of `requirements.md`.
pub(crate) fn text(flag: Option<&str>, cwd: &Path) -> Result<String> {
    let Some(flag) = flag else {
        let file = cwd.join(FILE);
        return match file.is_file() {
            true => text_of(&file),
            false => Err(missing(&file)),
        };
    };
    // A text of several lines, or a long one, is not a file name and must not be tried as one.
    let path = cwd.join(flag);
    let names_file = !flag.contains('\n') && flag.len() < 1_000 && path.is_file();
    let text = if names_file { text_of(&path)? } else { flag.to_owned() };
    let looks_like_file = !flag.contains(char::is_whitespace)
        && [".md", ".txt"].iter().any(|ending| flag.ends_with(ending));
    match looks_like_file && !names_file {
        true => Err(missing(&path)),
        false => Ok(text),
    }
}

/// Parses the requirements of a text: of its marked section, or of all of it without one.
pub(crate) fn of(text: &str) -> Result<Vec<Requirement>> {
    read(section(text)).map_err(|unclear| match unclear {
        AmbiguousRequirements::Empty => Failure::usage("the requirements are empty")
            .hint("write them as a list to requirements.md, one per line"),
        AmbiguousRequirements::Twice(id) => {
            Failure::usage(format!("two requirements have the id {id}"))
                .hint("change one of the ids")
        }
    })
}

/// Returns the part of a text that contains the requirements.
pub(crate) fn section(text: &str) -> &str {
    document::current(text).unwrap_or(text)
}

fn missing(file: &Path) -> Failure {
    Failure::usage("no requirements")
        .because(format!("no such file: {}", file.display()))
        .hint("write them to requirements.md, one item per line")
        .hint("g3 --autonomous --requirements \"what must hold\"")
}

fn text_of(file: &Path) -> Result<String> {
    let cannot = |reason: String| {
        Failure::usage(format!("cannot read the requirements in {}", file.display()))
            .because(reason)
    };
    let size = fs::metadata(file).map_err(|error| cannot(error.to_string()))?.len();
    if size > MOST {
        return Err(cannot(format!("it has {size} bytes, more than {MOST}")));
    }
    let bytes = base::files::read(file).map_err(|error| cannot(error.to_string()))?;
    String::from_utf8(bytes).map_err(|_| cannot("it is not UTF-8".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_is_a_file_or_the_text_itself() {
        let dir = tempfile::tempdir().unwrap();
        let cwd = dir.path();
        assert_eq!(text(None, cwd).unwrap_err().exit_code(), 2);
        fs::write(cwd.join("requirements.md"), "- from the file").unwrap();
        fs::write(cwd.join("other.md"), "- from another").unwrap();
        assert_eq!(text(None, cwd).unwrap(), "- from the file");
        assert_eq!(text(Some("other.md"), cwd).unwrap(), "- from another");
        assert_eq!(text(Some("make it so"), cwd).unwrap(), "make it so");
        assert_eq!(text(Some("1. a\n2. b"), cwd).unwrap(), "1. a\n2. b");
        assert!(text(Some("nowhere.md"), cwd).unwrap_err().to_string().contains("nowhere.md"));
        assert_eq!(of(" \n").unwrap_err().exit_code(), 2);
    }

    #[test]
    fn text_outside_the_marked_section_is_not_a_requirement() {
        let text = format!("- the task\n\n{}\n\n- R4: this\n", document::CURRENT);
        let all = of(&format!("{text}{}\n- wished\n", document::ORIGINAL)).unwrap();
        assert_eq!(all.iter().map(|it| it.id.as_str()).collect::<Vec<_>>(), ["R4"]);
    }
}
