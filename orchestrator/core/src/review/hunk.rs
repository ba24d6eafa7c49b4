//! The hunks of a review with what decides their order: risk, and whether they are mechanical.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use studio_git::hunks::{self, DiffHunk, FilePatch, LineOrigin};

use crate::review::mechanical::MechanicalChange;
use crate::review::risk::Risk;

/// A hunk in a review.
#[derive(Clone, Debug, PartialEq)]
pub struct ReviewHunk {
    /// The index of its file in [`crate::review::Review::files`].
    pub file: usize,
    /// The lines.
    pub hunk: DiffHunk,
    /// How much attention it needs.
    pub risk: Risk,
    /// Why it needs no attention, if it does not.
    pub mechanical: Option<MechanicalChange>,
    /// The lines, by index, that other sessions change too, with those sessions.
    pub shared_lines: BTreeMap<usize, Vec<String>>,
    /// The user's decision.
    pub decision: HunkDecision,
    /// Whether it was returned in a message that was sent.
    pub is_sent: bool,
}

/// What the user decided about a hunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HunkDecision {
    /// Nothing yet.
    #[default]
    Undecided,
    /// It may land.
    Accepted,
    /// The agent gets it back.
    Returned,
}

impl HunkDecision {
    /// Returns the name, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            HunkDecision::Undecided => "undecided",
            HunkDecision::Accepted => "accepted",
            HunkDecision::Returned => "returned",
        }
    }
}

/// Which file a line number refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DiffSide {
    /// The file before the change.
    Old,
    /// The file after it.
    New,
}

impl DiffSide {
    /// Returns the name, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            DiffSide::Old => "old",
            DiffSide::New => "new",
        }
    }
}

/// Returns a path for display; bytes that are not UTF-8 are replaced.
pub fn path_text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Returns the name of a file for display: `old -> new` after a rename.
pub fn file_name(file: &FilePatch) -> String {
    match &file.old_path {
        Some(old) if file.is_renamed() => format!("{} -> {}", old.display(), file.path.display()),
        Some(_) | None => path_text(&file.path),
    }
}

/// Describes a change of a file that its lines do not show: new, deleted, renamed, of another mode.
pub fn file_note(file: &FilePatch) -> Option<String> {
    let has_lines = file.hunks.iter().any(|hunk| !hunk.lines.is_empty());
    if !has_lines {
        return Some(hunks::describe_whole_file(file));
    }
    match (file.old, file.new) {
        (None, _) => Some("new file".to_owned()),
        (_, None) => Some("deleted file".to_owned()),
        (Some(old), Some(new)) if old.mode != new.mode => {
            Some(format!("mode {:o} becomes {:o}", old.mode, new.mode))
        }
        (Some(_), Some(_)) => None,
    }
}

/// Returns the side and the number by which a line is known: in the new file, unless it was
/// removed.
pub fn line_place(line: &studio_git::hunks::DiffLine) -> (DiffSide, u32) {
    match line.origin {
        LineOrigin::Removed => (DiffSide::Old, line.old.unwrap_or_default()),
        LineOrigin::Added | LineOrigin::Context => (DiffSide::New, line.new.unwrap_or_default()),
    }
}
