//! Copies the work of a session between two repositories on different machines: its commits and
//! snapshots, as packs and refs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;

use base::failure::{Failure, OrFail, Result};
use base::files::step;
use base::git::Git;
use base::id::Id;
use base::process::{OutputLimits, Stream};
use serde::{Deserialize, Serialize};

use crate::import;
use crate::names::BranchTemplate;
use crate::object_quarantine;
use crate::refs::{self, RefChange};
use crate::repo::Repository;
use crate::session_repo::SessionRepo;
use crate::start_point::StartPoint;
use crate::{keepalive_refs, partial_clone, snapshot, worktree};

/// Timeout of packing, in seconds.
const PACK_SECONDS: u64 = 1800;
/// Maximum number of commits that a repository names as known.
const MAX_KNOWN_COMMITS: usize = 5_000;
/// Maximum number of snapshots of one session that are accepted from another machine.
const MAX_SNAPSHOTS: usize = 100;

/// The commits of a session's work.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkRefs {
    /// The tip of its branch.
    pub head: String,
    /// Its snapshots with their numbers, the oldest first.
    pub snapshots: Vec<(u64, String)>,
}

impl WorkRefs {
    /// Returns all commits.
    pub fn commits(&self) -> Vec<String> {
        let snapshots = self.snapshots.iter().map(|(_, commit)| commit);
        [&self.head].into_iter().chain(snapshots).cloned().collect()
    }

    /// Refuses what are not ids of commits, because they come from another machine.
    fn validate(&self) -> Result<()> {
        if self.snapshots.len() > MAX_SNAPSHOTS {
            return Err(Failure::failed("the other machine names too many snapshots"));
        }
        self.commits().iter().try_for_each(|commit| refs::oid(commit).map(|_| ()))
    }
}

/// Returns the commits of a session's work; `None` if its branch does not exist.
pub fn work_refs(repository: &Repository, session_repo: &SessionRepo) -> Result<Option<WorkRefs>> {
    let repo = repository.open()?;
    let Some(head) = refs::read(&repo, &session_repo.branch.full())? else { return Ok(None) };
    let snapshots = snapshot::list_snapshots(&repo, &session_repo.id)?;
    Ok(Some(WorkRefs { head, snapshots }))
}

/// Returns whether a repository has a commit.
pub fn has_commit(repository: &Repository, commit: &str) -> bool {
    repository.open().is_ok_and(|repo| refuse_missing(&repo, commit).is_ok())
}

/// Returns whether a commit has submodules.
pub fn has_submodules(repository: &Repository, commit: &str) -> Result<bool> {
    let repo = repository.open()?;
    let commit = repo.find_commit(refs::oid(commit)?).and_then(|commit| commit.tree());
    Ok(commit.or_fail(|| "cannot read the base")?.get_name(".gitmodules").is_some())
}

/// Returns commits of a repository that a pack for it need not contain.
pub fn known_commits(repository: &Repository) -> Result<Vec<String>> {
    let repo = repository.open()?;
    let mut commits: Vec<String> = Vec::new();
    for prefix in ["refs/studio/base/", "refs/heads/"] {
        commits.extend(refs::list(&repo, prefix)?.into_values());
    }
    commits.sort();
    commits.dedup();
    commits.truncate(MAX_KNOWN_COMMITS);
    Ok(commits)
}

/// Packs everything reachable from `commits` and not from `existing`, those of it that this repository
/// has. The pack refers to objects that the receiver has.
pub fn pack(repository: &Repository, commits: &[String], existing: &[String]) -> Result<File> {
    let input = refs::range_input(&*repository.open()?, commits, existing)?;
    let pack = tempfile::tempfile().or_fail(base::files::cannot_make_temporary)?;
    let copy = pack.try_clone().or_fail(base::files::cannot_make_temporary)?;
    let output = Git::at(&repository.common_dir)
        .without_user_config()
        .command(["--no-replace-objects", "pack-objects", "--revs", "--thin", "--stdout", "-q"])
        .input(input)
        .stdout(Stream::File(copy))
        .output(OutputLimits::seconds(PACK_SECONDS))
        .or_fail(|| "cannot start git")?;
    if output.ok() {
        return Ok(pack);
    }
    let failure = Failure::failed("cannot pack the work of a session");
    let is_partial = partial_clone::is_partial(&*repository.open()?)?;
    Err(failure.because(output.error_text()).hint(match is_partial {
        true => "git fetch --refetch --no-filter    fetches what this partial clone lacks",
        false => "git fsck",
    }))
}

/// Takes a pack whose commits nothing refers to yet, and keeps them by a ref.
pub fn take_base(repository: &Repository, id: &Id, commits: &[String], pack: File) -> Result<()> {
    let kept = object_quarantine::import_pack(repository, pack, id)?;
    let repo = repository.open()?;
    let mut changes = Vec::new();
    for (number, commit) in commits.iter().enumerate() {
        refuse_missing(&repo, commit)?;
        let name = format!("{}{number}", base_prefix(id));
        changes.push(RefChange::new(name.clone(), refs::read(&repo, &name)?, Some(commit.clone())));
    }
    refs::update_or_fail(repository, &changes, "studio: work from another machine")?;
    kept.release();
    Ok(())
}

/// Creates the session's branch and private git directory, unless they exist. Its worktree counts as
/// deleted. The uncommitted work that it starts with becomes its first snapshot.
pub fn create(
    repository: &Repository,
    session_repo: &SessionRepo,
    branches: &BranchTemplate,
    start: Option<&StartPoint>,
) -> Result<()> {
    worktree::create_without_files(repository, session_repo, branches)?;
    let Some(start) = start.filter(|start| start.work != session_repo.base) else { return Ok(()) };
    let work = work_refs(repository, session_repo)?.unwrap_or_default();
    if work.head != session_repo.base || !work.snapshots.is_empty() {
        return Ok(());
    }
    let name = format!("{}1", snapshot::prefix(&session_repo.id));
    let change = RefChange::new(name, None, Some(start.work.clone()));
    refs::update_or_fail(repository, &[change], "studio: the start of a session")
}

/// Takes the work of a session from another machine: its objects, then its snapshots, then its branch.
/// The same work twice changes nothing.
pub fn take(
    repository: &Repository,
    session_repo: &SessionRepo,
    work: &WorkRefs,
    pack: Option<File>,
) -> Result<()> {
    work.validate()?;
    let kept = match pack {
        Some(pack) => Some(object_quarantine::import_pack(repository, pack, &session_repo.id)?),
        None => None,
    };
    step("replica.objects");
    let repo = repository.open()?;
    for commit in work.commits() {
        refuse_missing(&repo, &commit)?;
    }
    let branch = session_repo.git_dir.join(session_repo.branch.full());
    base::files::replace(&branch, format!("{}\n", work.head).as_bytes())
        .or_fail(|| format!("cannot write {}", branch.display()))?;
    import::import(repository, session_repo)?;
    step("replica.branch");
    let known: BTreeMap<u64, String> =
        snapshot::list_snapshots(&repo, &session_repo.id)?.into_iter().collect();
    let taken: BTreeMap<u64, String> = work.snapshots.iter().cloned().collect();
    let prefix = snapshot::prefix(&session_repo.id);
    let numbers: BTreeSet<&u64> = known.keys().chain(taken.keys()).collect();
    let changes: Vec<RefChange> = numbers
        .into_iter()
        .filter(|number| known.get(number) != taken.get(number))
        .map(|number| {
            let (old, new) = (known.get(number).cloned(), taken.get(number).cloned());
            RefChange::new(format!("{prefix}{number}"), old, new)
        })
        .collect();
    refs::update_or_fail(repository, &changes, "studio: snapshots from another machine")?;
    step("replica.snapshots");
    if let Some(kept) = kept {
        kept.release();
    }
    Ok(())
}

fn refuse_missing(repo: &git2::Repository, commit: &str) -> Result<()> {
    let is_there = refs::oid(commit).is_ok_and(|id| repo.find_commit(id).is_ok());
    match is_there {
        true => Ok(()),
        false => Err(Failure::failed("the other machine did not send a commit that it names")
            .because(base::text::printable(commit))),
    }
}

/// Keeps the work of a session by refs of another name, and forgets its branch, snapshots and
/// registration, so that it can be created again. Its files stay.
pub fn keep_aside(repository: &Repository, session_repo: &SessionRepo, name: &str) -> Result<()> {
    let id = &session_repo.id;
    let mut changes = Vec::new();
    if let Some(work) = work_refs(repository, session_repo)? {
        for (number, commit) in work.commits().into_iter().enumerate() {
            let kept = format!("refs/studio/kept/{id}/{name}/{number}");
            changes.push(RefChange::new(kept, None, Some(commit)));
        }
    }
    changes.extend(deletions(repository, session_repo)?);
    refs::update_or_fail(repository, &changes, "studio: a later delivery of the session")?;
    worktree::unregister(repository, session_repo)
}

/// Deletes a session: its files, branch, snapshots and registration.
pub fn delete(repository: &Repository, session_repo: &SessionRepo) -> Result<()> {
    worktree::unregister(repository, session_repo)?;
    worktree::remove_dir(&session_repo.worktree)?;
    let mut changes = deletions(repository, session_repo)?;
    let bases = refs::list(&*repository.open()?, &base_prefix(&session_repo.id))?;
    changes.extend(bases.into_iter().map(|(name, id)| RefChange::new(name, Some(id), None)));
    refs::update_or_fail(repository, &changes, "studio: home no longer has the session")
}

/// Returns the prefix of the refs that keep what home delivered; a number follows.
fn base_prefix(id: &Id) -> String {
    format!("refs/studio/base/{id}/")
}

/// Returns the deletions of the refs of a session's own work.
fn deletions(repository: &Repository, session_repo: &SessionRepo) -> Result<Vec<RefChange>> {
    let (repo, id) = (repository.open()?, &session_repo.id);
    let mut names = refs::list(&repo, &snapshot::prefix(id))?;
    for name in [session_repo.branch.full(), keepalive_refs::ref_name(id)] {
        if let Some(commit) = refs::read(&repo, &name)? {
            names.insert(name, commit);
        }
    }
    Ok(names.into_iter().map(|(name, commit)| RefChange::new(name, Some(commit), None)).collect())
}
