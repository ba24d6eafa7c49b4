//! What the other open sessions change, compared with the hunks of a review.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;

use base::failure::Result;
use studio_git::hunks::{self, DiffHunk, FilePatch, LineOrigin};
use studio_git::repo::Repository;

use crate::session_view::SessionView;

/// Maximum number of other sessions that are compared.
const MAX_SESSIONS: usize = 100;

/// The changes of other sessions in the files of a review.
#[derive(Debug, Default)]
pub struct Overlaps {
    /// By the path before the change.
    by_path: BTreeMap<PathBuf, Vec<OtherChange>>,
}

/// The change of a file by another session.
#[derive(Debug)]
struct OtherChange {
    session: String,
    /// The blob before the change: line numbers are only comparable in the same one.
    old: Option<git2::Oid>,
    /// The changed lines before the change; an insertion has an empty range.
    lines: Vec<Range<u32>>,
}

impl Overlaps {
    /// Compares the collected work of other sessions with these files. Sessions that cannot be read
    /// are skipped.
    pub fn of(repository: &Repository, files: &[FilePatch], others: &[SessionView]) -> Overlaps {
        let mut overlaps = Overlaps::default();
        let is_changed = |view: &&SessionView| {
            !view.state.is_over() && view.work().is_some_and(|it| it.is_changed())
        };
        for view in others.iter().filter(is_changed).take(MAX_SESSIONS) {
            let _ = overlaps.add(repository, files, view);
        }
        overlaps
    }

    fn add(
        &mut self,
        repository: &Repository,
        files: &[FilePatch],
        view: &SessionView,
    ) -> Result<()> {
        let Some(work) = view.work() else { return Ok(()) };
        let base = work.base.as_ref().unwrap_or(&view.record.base.commit);
        let paths: Vec<&PathBuf> = files.iter().filter_map(|file| file.old_path.as_ref()).collect();
        let repo = repository.open()?;
        for file in hunks::read_paths(&repo, base, work.commit(), &paths)? {
            let Some(path) = file.old_path.clone() else { continue };
            let lines = file.hunks.iter().flat_map(changed_lines).collect();
            let session = view.record.id.to_string();
            let change = OtherChange { session, old: file.old.map(|old| old.id), lines };
            self.by_path.entry(path).or_default().push(change);
        }
        Ok(())
    }

    fn changes(&self, file: &FilePatch) -> &[OtherChange] {
        let path = file.old_path.as_ref();
        path.and_then(|path| self.by_path.get(path)).map(Vec::as_slice).unwrap_or_default()
    }

    /// Returns the sessions that change lines of this hunk.
    pub fn same_lines(&self, file: &FilePatch, hunk: &DiffHunk) -> Vec<String> {
        let own = changed_lines(hunk);
        let touches = |change: &&OtherChange| {
            change.old == file.old.map(|old| old.id)
                && change.lines.iter().any(|other| own.iter().any(|own| overlap(own, other)))
        };
        self.changes(file).iter().filter(touches).map(|change| change.session.clone()).collect()
    }

    /// Returns the sessions that change this file.
    pub fn same_file(&self, file: &FilePatch) -> Vec<String> {
        self.changes(file).iter().map(|change| change.session.clone()).collect()
    }
}

/// Returns whether two changes would conflict: they share a line, or one inserts at the edge of the
/// other.
fn overlap(a: &Range<u32>, b: &Range<u32>) -> bool {
    a.start <= b.end && b.start <= a.end
}

/// Returns the changed lines of a hunk before the change.
fn changed_lines(hunk: &DiffHunk) -> Vec<Range<u32>> {
    let mut ranges: Vec<Range<u32>> = Vec::new();
    let mut next = hunk.old.range().start as u32;
    let mut was_context = true;
    for line in &hunk.lines {
        if line.origin == LineOrigin::Context {
            (next, was_context) = (next + 1, true);
            continue;
        }
        let end = next + u32::from(line.origin == LineOrigin::Removed);
        match ranges.last_mut() {
            Some(last) if !was_context => last.end = end,
            Some(_) | None => ranges.push(next..end),
        }
        (next, was_context) = (end, false);
    }
    ranges
}
