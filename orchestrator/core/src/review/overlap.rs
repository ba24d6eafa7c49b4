//! What the other open sessions change, compared with the hunks of a review.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::PathBuf;

use base::failure::Result;
use studio_git::hunks::{self, DiffHunk, FilePatch, LineOrigin};
use studio_git::repo::Repository;

use crate::radar::{self, RadarSession};
use crate::session_view::SessionView;

/// Maximum number of other sessions that are compared.
const MAX_SESSIONS: usize = 100;

/// The changes of other sessions in the files of a review.
#[derive(Debug, Default)]
pub struct Overlaps {
    /// By the path before the change.
    by_path: BTreeMap<PathBuf, Vec<OtherChange>>,
    /// The sessions and files that conflict with the reviewed session, merged as they are.
    conflicts: BTreeSet<(String, PathBuf)>,
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
    /// Compares the collected work of other sessions with these files of a session. Sessions that
    /// cannot be read, and other attempts at its task, are skipped.
    pub fn of(
        repository: &Repository,
        own: &SessionView,
        files: &[FilePatch],
        others: &[SessionView],
    ) -> Overlaps {
        let mut overlaps = Overlaps::default();
        let is_changed = |view: &&SessionView| {
            !view.state.is_over()
                && !own.record.is_other_attempt(&view.record)
                && view.work().is_some_and(|it| it.is_changed())
        };
        overlaps.add_conflicts(repository, own, others);
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

    /// Adds what the conflict radar says, which also compares sessions that started elsewhere.
    fn add_conflicts(
        &mut self,
        repository: &Repository,
        own: &SessionView,
        others: &[SessionView],
    ) {
        let of_view =
            |view: &SessionView| RadarSession::of(&view.record, &view.facts.summary, &view.state);
        let Some(own) = of_view(own) else { return };
        let mut sessions = vec![own];
        sessions.extend(others.iter().filter_map(of_view));
        let Ok(conflicts) = radar::conflicts_of_first(repository, &sessions, MAX_SESSIONS) else {
            return;
        };
        for conflict in conflicts {
            let files = conflict.files.into_iter().map(PathBuf::from);
            self.conflicts.extend(files.map(|file| (conflict.id.to_string(), file)));
        }
    }

    fn changes(&self, file: &FilePatch) -> &[OtherChange] {
        let path = file.old_path.as_ref();
        path.and_then(|path| self.by_path.get(path)).map(Vec::as_slice).unwrap_or_default()
    }

    /// Returns the sessions that change lines of this hunk.
    pub fn same_lines(&self, file: &FilePatch, hunk: &DiffHunk) -> Vec<String> {
        let own = changed_lines(hunk);
        let touches = |change: &&OtherChange| match change.old == file.old.map(|old| old.id) {
            true => change.lines.iter().any(|other| own.iter().any(|own| overlap(own, other))),
            false => self.conflicts.contains(&(change.session.clone(), file.path.clone())),
        };
        self.changes(file).iter().filter(touches).map(|change| change.session.clone()).collect()
    }

    /// Returns the changed lines of this hunk, by index, that other sessions change, with those
    /// sessions. Work that started from another state of the file has no comparable lines.
    pub fn shared_lines(&self, file: &FilePatch, hunk: &DiffHunk) -> BTreeMap<usize, Vec<String>> {
        let mut shared: BTreeMap<usize, Vec<String>> = BTreeMap::new();
        for (range, indexes) in changed_ranges(hunk) {
            for change in self.changes(file) {
                if change.old != file.old.map(|old| old.id)
                    || !change.lines.iter().any(|other| overlap(&range, other))
                {
                    continue;
                }
                for index in indexes.clone() {
                    shared.entry(index).or_default().push(change.session.clone());
                }
            }
        }
        shared
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
    changed_ranges(hunk).into_iter().map(|(range, _)| range).collect()
}

/// Returns the changed parts of a hunk: the lines before the change, and the indexes in the hunk.
fn changed_ranges(hunk: &DiffHunk) -> Vec<(Range<u32>, Range<usize>)> {
    let mut ranges: Vec<(Range<u32>, Range<usize>)> = Vec::new();
    let mut next = hunk.old.range().start as u32;
    let mut was_context = true;
    for (index, line) in hunk.lines.iter().enumerate() {
        if line.origin == LineOrigin::Context {
            (next, was_context) = (next + 1, true);
            continue;
        }
        let end = next + u32::from(line.origin == LineOrigin::Removed);
        match ranges.last_mut() {
            Some((lines, indexes)) if !was_context => (lines.end, indexes.end) = (end, index + 1),
            Some(_) | None => ranges.push((next..end, index..index + 1)),
        }
        (next, was_context) = (end, false);
    }
    ranges
}
