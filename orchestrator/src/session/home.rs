//! Bringing a session's work home, and what it amounts to compared with its base.

use base::clock::Clock;
use base::failure::{OrFail, Result};

use crate::git;
use crate::git::import::{self, Home};
use crate::git::refs;
use crate::git::repo::Repository;
use crate::git::snapshot::{self, Limits, Snapshot};
use crate::session::journal::Work;
use crate::session::record::Record;

/// Work that came home.
#[derive(Clone, Debug)]
pub struct Brought {
    /// The commits.
    pub home: Home,
    /// What is not committed.
    pub snapshot: Snapshot,
    /// The sum of it.
    pub work: Work,
}

/// Imports the session's commits, takes a snapshot of the rest, and sums it up.
pub fn bring(repository: &Repository, record: &Record, limits: &Limits) -> Result<Brought> {
    let home = import::bring_home(repository, &record.place)?;
    let now = Clock::from_env().now();
    let snapshot = snapshot::take(repository, &record.place, &home, limits, now)?;
    let work = sum(repository, record, &home, &snapshot)?;
    Ok(Brought { home, snapshot, work })
}

fn sum(repository: &Repository, record: &Record, home: &Home, snapshot: &Snapshot) -> Result<Work> {
    let fail = || "cannot compare the work with its base";
    let repo = repository.open()?;
    let stats = diff_of(&repo, record, &snapshot.work)?.stats().or_fail(fail)?;
    let mut walk = repo.revwalk().or_fail(fail)?;
    walk.push(refs::oid(&home.head)?).or_fail(fail)?;
    walk.hide(refs::oid(&record.base.commit)?).or_fail(fail)?;
    let mut notes = home.notes.clone();
    let left = snapshot.left_out.iter().take(20);
    notes.extend(left.map(|left| format!("left out: {}: {}", left.path, left.why.sentence())));
    Ok(Work {
        head: home.head.clone(),
        snapshot: snapshot.is_dirty().then(|| snapshot.work.clone()),
        commits: walk.count() as u64,
        files_changed: stats.files_changed() as u64,
        insertions: stats.insertions() as u64,
        deletions: stats.deletions() as u64,
        dirty: snapshot.is_dirty(),
        notes,
    })
}

/// How the work stands to the branch that it would land on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Commits that the branch does not have.
    pub ahead: usize,
    /// Commits of the branch that the work does not have.
    pub behind: usize,
    /// Files that both changed in ways that do not fit.
    pub conflicts: Vec<String>,
}

/// How the work stands to its base branch now; none without one. Nothing is written.
pub fn standing(repository: &Repository, record: &Record, work: &Work) -> Result<Option<Standing>> {
    let Some(branch) = &record.base.branch else { return Ok(None) };
    let Some(tip) = repository.tip(branch)? else { return Ok(None) };
    let apart = git::diff::apart(repository, &work.head, &tip)?;
    let repo = repository.open()?;
    let fail = || "cannot compare the work with its branch";
    let commit = |id: &str| repo.find_commit(refs::oid(id)?).or_fail(fail);
    let (ours, theirs) = (commit(&tip)?, commit(work.snapshot.as_ref().unwrap_or(&work.head))?);
    let mut index = repo.merge_commits(&ours, &theirs, None).or_fail(fail)?;
    let conflicts = git::conflict::settle(&repo, &mut index)?;
    Ok(Some(Standing {
        ahead: apart.ahead,
        behind: apart.behind,
        conflicts: conflicts.into_iter().map(|conflict| conflict.path).collect(),
    }))
}

/// The difference between the base and a commit.
fn diff_of<'r>(
    repo: &'r git2::Repository,
    record: &Record,
    commit: &str,
) -> Result<git2::Diff<'r>> {
    let tree = |id: &str| -> Result<git2::Tree<'r>> {
        let fail = || format!("cannot read the commit {id}");
        repo.find_commit(refs::oid(id)?).and_then(|commit| commit.tree()).or_fail(fail)
    };
    let mut options = git2::DiffOptions::new();
    options.skip_binary_check(false).context_lines(3);
    let (old, new) = (tree(&record.base.commit)?, tree(commit)?);
    let mut diff = repo
        .diff_tree_to_tree(Some(&old), Some(&new), Some(&mut options))
        .or_fail(|| "cannot compare the work with its base")?;
    diff.find_similar(None).or_fail(|| "cannot compare the work with its base")?;
    Ok(diff)
}

/// The session's changes against its base as a patch, uncommitted ones included, as they were
/// brought home last.
pub fn diff(repository: &Repository, record: &Record, work: &Work) -> Result<String> {
    let repo = repository.open()?;
    let commit = work.snapshot.as_ref().unwrap_or(&work.head);
    let diff = diff_of(&repo, record, commit)?;
    let mut text = Vec::new();
    diff.print(git2::DiffFormat::Patch, |_, _, line| {
        if matches!(line.origin(), '+' | '-' | ' ') {
            text.push(line.origin() as u8);
        }
        text.extend_from_slice(line.content());
        true
    })
    .or_fail(|| "cannot print the difference")?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// One line per changed file, as `git diff --stat` has it.
pub fn stat(repository: &Repository, record: &Record, work: &Work, width: usize) -> Result<String> {
    let repo = repository.open()?;
    let commit = work.snapshot.as_ref().unwrap_or(&work.head);
    let stats = diff_of(&repo, record, commit)?.stats();
    let stats = stats.or_fail(|| "cannot compare the work with its base")?;
    let text = stats.to_buf(git2::DiffStatsFormat::FULL, width);
    let text = text.or_fail(|| "cannot print the difference")?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}
