//! Formats the conflicts among sessions, and the order in which to land them.

use base::id::Id;
use base::text::printable;
use serde_json::{Value, json};
use studio_core::radar::LandingStep;
use studio_git::conflict::Conflict;

/// A conflict of a session with another one or with its branch.
pub(crate) struct ShownConflict {
    /// The session.
    pub id: Id,
    /// The other session, or the branch.
    pub other: String,
    /// The conflicting files, each with its hunks if they were read.
    pub files: Vec<(String, Option<Conflict>)>,
}

impl ShownConflict {
    /// Joins the conflicting files with the hunks that were read.
    pub(crate) fn new(
        id: &Id,
        other: String,
        files: &[String],
        hunks: Vec<Conflict>,
    ) -> ShownConflict {
        let hunks_of = |path: &String| hunks.iter().find(|hunks| hunks.path == *path).cloned();
        let files = files.iter().map(|path| (path.clone(), hunks_of(path))).collect();
        ShownConflict { id: id.clone(), other, files }
    }

    /// Returns the files as JSON.
    pub(crate) fn files_json(&self) -> Value {
        let file = |(path, conflict): &(String, Option<Conflict>)| {
            let conflict = conflict.as_ref();
            json!({
                "path": path,
                "hunks": conflict.map(|conflict| &conflict.hunks),
                "merges_by_syntax": conflict.map(|conflict| conflict.merges_by_syntax),
            })
        };
        self.files.iter().map(file).collect()
    }

    fn lines(&self) -> Vec<String> {
        let names: Vec<&str> = self.files.iter().map(|(path, _)| path.as_str()).collect();
        let mut lines = vec![format!("{} and {}: {}", self.id, self.other, names.join(", "))];
        for (path, conflict) in &self.files {
            if let Some(Conflict { hunks, merges_by_syntax, .. }) = conflict {
                let note = if *merges_by_syntax { "    can be merged by syntax" } else { "" };
                lines.push(format!("  {path}{note}"));
                lines.extend(hunks.lines().map(|line| format!("    {line}")));
            }
        }
        lines
    }
}

/// Formats conflicts, one per line, then the landing order.
pub(crate) fn page(conflicts: &[ShownConflict], order: &[LandingStep]) -> String {
    let mut lines: Vec<String> = conflicts.iter().flat_map(ShownConflict::lines).collect();
    lines.push(String::new());
    lines.push("landing order:".to_owned());
    for (n, step) in (1..).zip(order) {
        let others: Vec<&str> = step.conflicts_with.iter().map(Id::as_str).collect();
        let conflicts = match others.is_empty() {
            true => String::new(),
            false => format!("    conflicts with {}", others.join(", ")),
        };
        lines.push(format!("  {n}. {}{conflicts}", step.id));
    }
    printable(&lines.join("\n"))
}
