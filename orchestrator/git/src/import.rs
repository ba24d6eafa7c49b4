//! Imports an agent's commits from its private git directory, which the agent may have changed in
//! any way, into the repository's branch. Idempotent: the next call completes an import that was
//! interrupted by a crash.

use base::failure::{Failure, OrFail, Result};
use base::files::step;
use serde::{Deserialize, Serialize};

use crate::head::{self, HeadState};
use crate::object_quarantine::{self, Quarantine};
use crate::refs::{self, RefChange, SwapResult};
use crate::repo::Repository;
use crate::safe_open::SafeDir;
use crate::session_repo::{Originals, SessionRepo};
use crate::{keepalive_refs, lfs_objects, moved_repository, session_repo, submodules, worktree};

/// The result of an import.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportedWork {
    /// The commit of the agent's HEAD, which is now the session's branch.
    pub head: String,
    /// Whether the branch moved.
    #[serde(rename = "moved")]
    pub branch_moved: bool,
    /// The agent's branch; `None` if its HEAD is detached.
    #[serde(rename = "on")]
    pub branch: Option<String>,
    /// The operation in progress in the worktree: a rebase, a merge.
    #[serde(rename = "busy")]
    pub operation: Option<String>,
    /// Notes for the user, one sentence each.
    pub notes: Vec<String>,
}

/// Imports the agent's commits. Refuses (3) if the worktree's `.git` file was changed, because it
/// may then lead to any repository.
pub fn import(repository: &Repository, session_repo: &SessionRepo) -> Result<ImportedWork> {
    let originals = Originals::load(&session_repo.git_dir)?;
    let mut notes = Vec::new();
    if !check_pointer(session_repo)? {
        notes.push(missing_worktree_note(session_repo));
    }
    originals.restore(&session_repo.git_dir)?;
    step("import.restored");
    let head_state = head::read(&session_repo.git_dir)?;
    let repo = repository.open()?;
    let tip = refs::read(&repo, &session_repo.branch.full())?;
    let previous = tip.clone().unwrap_or_else(|| session_repo.base.clone());
    let head = head_state.commit.clone().unwrap_or_else(|| previous.clone());
    notes.extend(head_notes(session_repo, &head_state));
    let branch_moved = tip.as_deref() != Some(head.as_str());
    lfs_objects::import(repository, session_repo)?;
    if branch_moved {
        import_objects(repository, session_repo, &head, tip)?;
    }
    submodules::import(repository, session_repo, &head)?;
    for name in session_repo::remove_dead_refs(repository, session_repo)? {
        notes.push(format!("{name} is gone from the repository and was dropped from the session"));
    }
    Ok(ImportedWork {
        head,
        branch_moved,
        branch: head_state.branch,
        operation: head_state.operation,
        notes,
    })
}

/// Returns the note about a worktree that does not exist.
pub fn missing_worktree_note(session_repo: &SessionRepo) -> String {
    format!("the worktree {} is missing", session_repo.worktree.display())
}

/// Imports the objects and pins them, then moves the branch.
fn import_objects(
    repository: &Repository,
    session_repo: &SessionRepo,
    head: &str,
    tip: Option<String>,
) -> Result<()> {
    let repo = repository.open()?;
    let name = keepalive_refs::ref_name(&session_repo.id);
    let pinned = refs::read(&repo, &name)?;
    let scratch = Quarantine::open(repository)?;
    let base = pinned.clone().unwrap_or_else(|| session_repo.base.clone());
    let pin = match &pinned {
        Some(pinned) if keepalive_refs::ends_with(&repo, pinned, head) => pinned.clone(),
        Some(_) | None => {
            let parents = [base.clone(), head.to_owned()];
            keepalive_refs::create_commit(&scratch.repo, &parents, &session_repo.id)?
        }
    };
    let mut existing = vec![base];
    existing.extend(tip.clone());
    let object_dirs = [scratch.objects(), session_repo.git_dir.join("objects")];
    let commits = [head.to_owned(), pin.clone()];
    let imported_pack = object_quarantine::import_objects(
        repository,
        &object_dirs,
        &commits,
        &existing,
        &session_repo.id,
    )?;
    step("import.objects");
    let change = RefChange::new(name, pinned, Some(pin));
    refs::update_or_fail(repository, &[change], "studio: pin what the session made")?;
    step("import.pinned");
    let branch = RefChange::new(session_repo.branch.full(), tip, Some(head.to_owned()));
    match refs::update(repository, &[branch], "studio: bring the session's work home")? {
        SwapResult::Done => {}
        SwapResult::Lost { actual, .. } => {
            let actual = actual.unwrap_or_else(|| "nothing".to_owned());
            return Err(Failure::refused(format!(
                "the branch `{}` was moved",
                session_repo.branch
            ))
            .because(format!("it holds {actual}, while the session's work was imported"))
            .hint("try again"));
        }
    }
    step("import.moved");
    imported_pack.release();
    Ok(())
}

/// Returns whether the worktree exists. Refuses (3) if its `.git` file was changed.
pub fn check_pointer(session_repo: &SessionRepo) -> Result<bool> {
    let originals = Originals::load(&session_repo.git_dir)?;
    if session_repo.worktree.symlink_metadata().is_err() {
        return Ok(false);
    }
    let worktree = SafeDir::open(&session_repo.worktree).map_err(|error| {
        Failure::refused(format!(
            "{} is not the session's worktree",
            session_repo.worktree.display()
        ))
        .because(error)
        .hint("move away what is there, then try again")
    })?;
    let path = session_repo.worktree.join(".git");
    let pointer = worktree.read(".git", 4096).unwrap_or(None);
    if pointer.as_deref() == Some(originals.pointer.as_slice()) {
        moved_repository::refuse_foreign(session_repo)?;
        if moved_repository::pointer_target(session_repo, &originals.pointer).is_none() {
            return Err(Failure::refused(format!(
                "{} points to a missing directory",
                path.display()
            ))
            .because("the repository was moved since the session began")
            .hint("studio doctor    repairs it"));
        }
        return Ok(true);
    }
    if worktree.names().is_ok_and(|names| names.is_empty()) {
        return Err(Failure::refused(format!("{} was changed", session_repo.worktree.display()))
            .because("it was emptied; its commits and its newest snapshot are safe")
            .hint(format!("rmdir '{}'    then it counts as gone", session_repo.worktree.display()))
            .hint(format!("studio resume {}    then recreates it", session_repo.id)));
    }
    let expected = String::from_utf8_lossy(&originals.pointer).trim_end().to_owned();
    Err(Failure::refused(format!("{} was changed", path.display()))
        .because("it pointed to the session's git directory; it now points elsewhere, so nothing in the worktree is read")
        .hint(format!("look at it; to continue: echo '{expected}' > '{}'", path.display()))
        .hint(format!("or drop the session, which can be undone: studio discard {}", session_repo.id)))
}

/// Returns a warning for a user who runs plain git in a session's worktree: the `.git` file, or the
/// configuration, hooks and attributes behind it, differ from what studio wrote, so git would run
/// what the agent put there. `None` if nothing was changed or the worktree is missing.
pub fn tampering_warning(session_repo: &SessionRepo) -> Option<String> {
    if Originals::are_unchanged(session_repo) {
        return None;
    }
    session_repo.worktree.symlink_metadata().ok()?;
    let originals = Originals::load(&session_repo.git_dir).ok()?;
    if worktree::pointer_in(&session_repo.worktree).as_deref() != Some(originals.pointer.as_slice())
    {
        return Some(format!("{} was changed", session_repo.worktree.join(".git").display()));
    }
    let changed = originals
        .changed_files(&session_repo.git_dir)
        .unwrap_or_else(|_| vec!["config".to_owned()]);
    (!changed.is_empty())
        .then(|| format!("the agent changed {} in its git directory", changed.join(", ")))
}

fn head_notes(session_repo: &SessionRepo, head: &HeadState) -> Vec<String> {
    let mut notes = Vec::new();
    match (&head.branch, &head.commit) {
        (Some(branch), None) => {
            notes.push(format!("the agent is on `{branch}`, which has no commit yet"));
        }
        (Some(branch), Some(_)) if branch != session_repo.branch.as_str() => {
            notes.push(format!("the agent is on `{branch}`, not on `{}`", session_repo.branch));
        }
        (Some(_), Some(_)) => {}
        (None, _) => notes.push("the agent's HEAD is detached".to_owned()),
    }
    notes.extend(
        head.operation
            .iter()
            .map(|operation| format!("a {operation} is in progress in the worktree")),
    );
    notes
}

/// Removes the scratch directories and `.keep` files of killed imports. Only called by `studio
/// doctor` under the operation lock, while no import runs.
pub fn remove_leftovers(repository: &Repository) -> Result<Vec<String>> {
    let scratch = object_quarantine::remove_leftovers(repository)?;
    let mut removed: Vec<String> =
        scratch.iter().map(|path| format!("removed {}", path.display())).collect();
    let packs = repository.common_dir.join("objects/pack");
    for entry in std::fs::read_dir(&packs).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_keep = path.extension().is_some_and(|ext| ext == "keep");
        let is_ours =
            is_keep && std::fs::read_to_string(&path).is_ok_and(|text| text.starts_with("studio-"));
        if is_ours {
            std::fs::remove_file(&path).or_fail(|| "cannot remove a .keep file")?;
            removed.push(format!("removed {}", path.display()));
        }
    }
    Ok(removed)
}
