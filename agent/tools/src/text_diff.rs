//! Differences between two texts, as unified diffs.

use std::time::Duration;

/// The difference between two texts.
#[derive(Debug, PartialEq, Eq)]
pub struct Difference {
    /// A unified diff with three lines of context, without file names.
    pub unified: String,
    /// Number of added lines.
    pub additions: usize,
    /// Number of removed lines.
    pub deletions: usize,
}

/// Time limit for finding the shortest diff; after that a longer one is accepted.
const DIFF_TIME: Duration = Duration::from_secs(1);

/// Compares two texts.
pub fn difference(old: &str, new: &str) -> Difference {
    // A lone carriage return is content, as in the edit tools.
    let lines = |text| str::split_inclusive(text, '\n').collect::<Vec<_>>();
    let (old, new) = (lines(old), lines(new));
    let mut config = similar::TextDiff::configure();
    let diff = config.timeout(DIFF_TIME).newline_terminated(true).diff_slices(&old, &new);
    let count = |tag| diff.iter_all_changes().filter(|change| change.tag() == tag).count();
    Difference {
        unified: diff.unified_diff().context_radius(3).to_string(),
        additions: count(similar::ChangeTag::Insert),
        deletions: count(similar::ChangeTag::Delete),
    }
}

/// Maximum size in bytes of a file for which a diff is made for people.
const DIFF_BYTES: usize = 1 << 20;

/// Returns the change of a file as a unified diff with its name. For binary or very large files,
/// only names the file.
pub(crate) fn unified(name: &str, before: Option<&[u8]>, after: Option<&[u8]>) -> String {
    let from = before.map_or("/dev/null".to_owned(), |_| format!("a/{name}"));
    let to = after.map_or("/dev/null".to_owned(), |_| format!("b/{name}"));
    let (before, after) = (before.unwrap_or_default(), after.unwrap_or_default());
    let body = match (std::str::from_utf8(before), std::str::from_utf8(after)) {
        _ if before.len().max(after.len()) > DIFF_BYTES => {
            format!("too large to show: {} bytes become {}\n", before.len(), after.len())
        }
        (Ok(before), Ok(after)) => difference(before, after).unified,
        (Err(_), _) | (_, Err(_)) => {
            format!("not text: {} bytes become {}\n", before.len(), after.len())
        }
    };
    format!("--- {from}\n+++ {to}\n{body}")
}
