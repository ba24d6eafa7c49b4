//! Hunks of a session that landed alone. The session's ref `refs/studio/hunks/ID` names a commit
//! with the base of the session plus these hunks: what the rest of the work is compared with and
//! merged from. It moves together with the target branch, so that a landing, an undo and the
//! recovery after a crash change both or neither.

use base::failure::{Failure, OrFail, Result};
use base::id::Id;

use crate::hunks::{self, DiffHunk, FilePatch};
use crate::object_quarantine::{self, KeepFiles, Quarantine};
use crate::refs::{self, RefChange};
use crate::repo::Repository;
use crate::session_repo::SessionRepo;

/// Chosen hunks on a session's base.
#[derive(Debug)]
pub struct ChosenHunks {
    /// The commit that the hunks were compared with; the parent of `commit`.
    pub base: String,
    /// A commit with the chosen hunks only.
    pub commit: String,
    /// The merge base of the session and its target.
    pub merge_base: String,
    /// Protects the objects from `git gc` while this value exists.
    pub keep_files: KeepFiles,
}

/// The move of the session's base in a landing of chosen hunks.
#[derive(Debug)]
pub struct BaseUpdate {
    /// The change of the session's ref.
    pub change: RefChange,
    /// Protects the objects from `git gc` while this value exists.
    pub keep_files: KeepFiles,
}

/// Returns the ref of a session.
pub(crate) fn ref_name(id: &Id) -> String {
    format!("refs/studio/hunks/{id}")
}

/// Returns the commit with which a session's work is compared instead of `merge_base`, because
/// hunks of it landed on a branch with this tip; `None` if none did, if the branch no longer has
/// them, or if the session merged the branch since.
pub fn landed_base(
    repository: &Repository,
    id: &Id,
    merge_base: &str,
    tip: &str,
) -> Result<Option<String>> {
    let repo = repository.open()?;
    let Some(base) = refs::read(&repo, &ref_name(id))? else { return Ok(None) };
    let commit = repo.find_commit(refs::oid(&base)?).or_fail(cannot)?;
    let (Ok(origin), Ok(landed)) = (commit.parent_id(0), commit.parent_id(1)) else {
        return Ok(None);
    };
    let tip = refs::oid(tip)?;
    let is_landed = tip == landed || repo.graph_descendant_of(tip, landed).or_fail(cannot)?;
    Ok((is_landed && origin.to_string() == merge_base).then_some(base))
}

/// Commits chosen hunks on the commit that they were compared with. No ref moves.
pub fn commit(
    repository: &Repository,
    session_repo: &SessionRepo,
    (merge_base, base): (&str, &str),
    files: &[FilePatch],
    is_chosen: &dyn Fn(&DiffHunk) -> bool,
    now: jiff::Timestamp,
) -> Result<ChosenHunks> {
    let scratch = Quarantine::open(repository)?;
    let repo = &scratch.repo;
    let base_commit = repo.find_commit(refs::oid(base)?).or_fail(cannot)?;
    let base_tree = base_commit.tree().or_fail(cannot)?;
    let tree = hunks::apply(repo, &base_tree, files, is_chosen)?;
    if tree == base_tree.id() {
        return Err(Failure::refused("the chosen hunks change nothing"));
    }
    let commit = write_commit(repo, tree, &[&base_commit], &session_repo.id, now)?;
    let commits = [commit.clone()];
    let keep_files = import(repository, &scratch, &commits, &[base.to_owned()], session_repo)?;
    let (base, merge_base) = (base.to_owned(), merge_base.to_owned());
    Ok(ChosenHunks { base, commit, merge_base, keep_files })
}

/// Creates the commit that the session's ref names after `landed` is on the target.
pub fn update_base(
    repository: &Repository,
    session_repo: &SessionRepo,
    chosen: &ChosenHunks,
    landed: &str,
    now: jiff::Timestamp,
) -> Result<BaseUpdate> {
    let scratch = Quarantine::open(repository)?;
    let repo = &scratch.repo;
    let find = |id: &str| repo.find_commit(refs::oid(id)?).or_fail(cannot);
    let name = ref_name(&session_repo.id);
    let previous = refs::read(&*repository.open()?, &name)?;
    // The previous one is a parent, so that an undo finds it after `git gc`.
    let mut parents = vec![find(&chosen.merge_base)?, find(landed)?];
    parents.extend(previous.as_deref().map(find).transpose()?);
    let tree = find(&chosen.commit)?.tree_id();
    let parent_refs: Vec<&git2::Commit<'_>> = parents.iter().collect();
    let commit = write_commit(repo, tree, &parent_refs, &session_repo.id, now)?;
    let commits = [commit.clone()];
    let mut existing = vec![chosen.commit.clone(), chosen.merge_base.clone(), landed.to_owned()];
    existing.extend(previous.clone());
    let keep_files = import(repository, &scratch, &commits, &existing, session_repo)?;
    Ok(BaseUpdate { change: RefChange::new(name, previous, Some(commit)), keep_files })
}

fn import(
    repository: &Repository,
    scratch: &Quarantine,
    commits: &[String],
    existing: &[String],
    session_repo: &SessionRepo,
) -> Result<KeepFiles> {
    let objects = [scratch.objects()];
    object_quarantine::import_objects(repository, &objects, commits, existing, &session_repo.id)
}

fn write_commit(
    repo: &git2::Repository,
    tree: git2::Oid,
    parents: &[&git2::Commit<'_>],
    id: &Id,
    now: jiff::Timestamp,
) -> Result<String> {
    let create = || -> std::result::Result<git2::Oid, git2::Error> {
        let time = git2::Time::new(now.as_second(), 0);
        let signature = git2::Signature::new("studio", "studio@studio.invalid", &time)?;
        let message = format!("Accepted hunks of {id}\n");
        repo.commit(None, &signature, &signature, &message, &repo.find_tree(tree)?, parents)
    };
    create().map(|id| id.to_string()).or_fail(cannot)
}

fn cannot() -> &'static str {
    "cannot commit the chosen hunks"
}
