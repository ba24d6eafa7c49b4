//! Finds the sessions of a repository that was moved or renamed.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use base::failure::{Failure, OrFail, Result};
use base::files::step;

use crate::oplog::Intent;
use crate::repo::Repository;
use crate::session_repo::{self, Originals, SessionRepo};
use crate::worktree;

/// Returns the current paths of a session. A record has absolute paths; if the repository was
/// moved, everything in or beside it moved, too.
pub fn current_paths(common_dir: &Path, session_repo: &SessionRepo) -> SessionRepo {
    let git_dir = common_dir.join("studio/sessions").join(session_repo.id.as_str()).join("git");
    let Some(old_common_dir) = session_repo.git_dir.ancestors().nth(4) else {
        return session_repo.clone();
    };
    if git_dir == session_repo.git_dir {
        return session_repo.clone();
    }
    let worktree = match stayed_in_place(old_common_dir, common_dir, &[&session_repo.worktree]) {
        true => session_repo.worktree.clone(),
        false => relocate_path(old_common_dir, common_dir, &session_repo.worktree),
    };
    SessionRepo { worktree, git_dir, ..session_repo.clone() }
}

/// Returns whether files stayed at their paths when the repository was moved: worktrees beside it
/// are separate directories. In a copy of a repository they belong to the original.
fn stayed_in_place(old: &Path, new: &Path, paths: &[&Path]) -> bool {
    let exists = |path: &Path| path.symlink_metadata().is_ok();
    !exists(&old.join("studio"))
        && !paths.iter().any(|path| exists(&relocate_path(old, new, path)))
        && paths.iter().any(|path| exists(path))
}

/// Returns the earlier location of the repository in an operation; `None` if it was not moved.
fn earlier_common_dir<'a>(common_dir: &Path, intent: &'a Intent) -> Option<&'a Path> {
    let session_repo = intent.sessions.first()?;
    session_repo.git_dir.ancestors().nth(4).filter(|earlier| *earlier != common_dir)
}

/// Returns whether the repository has been moved since an operation.
pub(crate) fn is_elsewhere(common_dir: &Path, intent: &Intent) -> bool {
    earlier_common_dir(common_dir, intent).is_some()
}

/// Updates an operation to the current location of the repository.
pub(crate) fn update_intent(common_dir: &Path, intent: &mut Intent) {
    let Some(old_common_dir) = earlier_common_dir(common_dir, intent).map(Path::to_owned) else {
        return;
    };
    let relocate = |path: &mut PathBuf| *path = relocate_path(&old_common_dir, common_dir, path);
    let moves = intent.moves.clone();
    for session_repo in &mut intent.sessions {
        let own_move = moves
            .iter()
            .find(|it| it.from == session_repo.worktree || it.to == session_repo.worktree);
        let stayed = own_move.is_some_and(|directory_move| {
            stayed_in_place(
                &old_common_dir,
                common_dir,
                &[&directory_move.from, &directory_move.to],
            )
        });
        let worktree = stayed.then(|| session_repo.worktree.clone());
        *session_repo = current_paths(common_dir, session_repo);
        session_repo.worktree = worktree.unwrap_or_else(|| session_repo.worktree.clone());
    }
    for directory_move in &mut intent.moves {
        if !stayed_in_place(
            &old_common_dir,
            common_dir,
            &[&directory_move.from, &directory_move.to],
        ) {
            relocate(&mut directory_move.from);
            relocate(&mut directory_move.to);
        }
    }
    let landing_checkouts = intent.landing.iter_mut().flat_map(|landing| &mut landing.checkouts);
    let trial_checkout = intent.trial.iter_mut().map(|target| &mut target.checkout);
    for checkout in landing_checkouts.chain(trial_checkout) {
        relocate(&mut checkout.worktree);
        relocate(&mut checkout.git_dir);
    }
}

/// Converts a path near the old directory to the same path near the new one.
fn relocate_path(old: &Path, new: &Path, path: &Path) -> PathBuf {
    let rebase = |old: &Path, new: &Path| path.strip_prefix(old).ok().map(|rest| new.join(rest));
    // The parent of a `.git` directory is its checkout; the parent of a bare repository is
    // unrelated.
    let in_parent = || rebase(old.parent().filter(|_| old.ends_with(".git"))?, new.parent()?);
    let in_worktrees_dir = || {
        // `<checkout>.worktrees`, or `<bare>.worktrees`
        let is_bare = !old.ends_with(".git");
        let (old, new) = if is_bare { (old, new) } else { (old.parent()?, new.parent()?) };
        let text = path.to_str()?.strip_prefix(old.to_str()?)?;
        text.starts_with(".worktrees/").then(|| PathBuf::from(format!("{}{text}", new.display())))
    };
    rebase(old, new).or_else(in_worktrees_dir).or_else(in_parent).unwrap_or_else(|| path.to_owned())
}

/// Repairs a session's registration and `.git` file, for `studio doctor`: after a move of the
/// repository, or after `git worktree repair` or `prune` removed them. Returns what was done, one
/// sentence each. A `.git` file that an agent changed is not modified.
pub fn repair(repository: &Repository, session_repo: &SessionRepo) -> Result<Vec<String>> {
    let mut repairs = Vec::new();
    if !session_repo.worktree.is_dir() || !session_repo.git_dir.is_dir() {
        return Ok(repairs);
    }
    let pointer = session_repo.worktree.join(".git");
    let points_to_registration = worktree::pointer_in(&session_repo.worktree).is_some_and(|text| {
        let registrations = repository.common_dir.join("worktrees");
        let target = text.trim_ascii_end().strip_prefix(b"gitdir: ").unwrap_or_default();
        !target.is_empty() && Path::new(OsStr::from_bytes(target)).starts_with(registrations)
    });
    repoint(session_repo, &pointer, &mut repairs)?;
    update_alternates(repository, session_repo, &mut repairs)?;
    if points_to_registration {
        let original = Originals::load(&session_repo.git_dir)?.pointer;
        base::files::replace_with_mode(&pointer, &original, 0o644)
            .or_fail(|| format!("cannot write {}", pointer.display()))?;
        repairs.push(format!("{} points to the session's git directory again", pointer.display()));
    }
    let _lock = worktree::lock(repository)?;
    if worktree::admin_dir_of(repository, &session_repo.worktree)?.is_some() {
        return Ok(repairs);
    }
    let stale = worktree::registration_of(repository, session_repo)?;
    let admin_dir = match stale {
        Some(admin_dir) => admin_dir,
        None => worktree::free_admin_dir(repository, &session_repo.id),
    };
    worktree::write_registration(repository, &admin_dir, session_repo)?;
    repairs.push(format!("{} is registered again", session_repo.worktree.display()));
    Ok(repairs)
}

/// Rewrites the `.git` file of a worktree that did not move with its repository, and so refers to a
/// missing directory.
fn repoint(session_repo: &SessionRepo, pointer: &Path, repairs: &mut Vec<String>) -> Result<()> {
    let mut originals = Originals::load(&session_repo.git_dir)?;
    let expected = session_repo::pointer(session_repo);
    if originals.pointer == expected || pointer_target(session_repo, &originals.pointer).is_some() {
        return Ok(());
    }
    let previous = std::mem::replace(&mut originals.pointer, expected);
    // The record comes last: until it is updated, the next call starts over.
    if worktree::pointer_in(&session_repo.worktree).is_some_and(|pointer| pointer == previous) {
        base::files::replace_with_mode(pointer, &originals.pointer, 0o644)
            .or_fail(|| format!("cannot write {}", pointer.display()))?;
        repairs.push(format!("{} points to the moved repository", pointer.display()));
    }
    step("mend.pointer");
    originals.save(&session_repo.git_dir)?;
    step("mend.saved");
    Ok(())
}

/// Rewrites the path of the repository's objects in a private git directory that moved with its
/// repository: git reports a missing one.
fn update_alternates(
    repository: &Repository,
    session_repo: &SessionRepo,
    repairs: &mut Vec<String>,
) -> Result<()> {
    let mut originals = Originals::load(&session_repo.git_dir)?;
    let expected = session_repo::alternates(repository, session_repo);
    // The worktree of a copy belongs to the original.
    if originals.alternates == expected || refuse_foreign(session_repo).is_err() {
        return Ok(());
    }
    originals.alternates = expected;
    originals.restore(&session_repo.git_dir)?;
    step("mend.alternates");
    // The record comes last: until it is updated, the next call starts over.
    originals.save(&session_repo.git_dir)?;
    repairs.push(format!("the git directory of `{}` uses the moved objects", session_repo.id));
    Ok(())
}

/// Returns the target directory of a `.git` file, if it exists.
pub(crate) fn pointer_target(session_repo: &SessionRepo, pointer: &[u8]) -> Option<PathBuf> {
    let target = pointer.trim_ascii_end().strip_prefix(b"gitdir: ")?;
    session_repo.worktree.join(OsStr::from_bytes(target)).canonicalize().ok()
}

/// Refuses (3) to move the worktree of another repository's session: in a copy of a repository,
/// worktrees outside it still belong to the original.
pub(crate) fn refuse_foreign(session_repo: &SessionRepo) -> Result<()> {
    let pointer = worktree::pointer_in(&session_repo.worktree).unwrap_or_default();
    let own_git_dir = session_repo.git_dir.canonicalize().ok();
    let Some(target) =
        pointer_target(session_repo, &pointer).filter(|to| Some(to) != own_git_dir.as_ref())
    else {
        return Ok(());
    };
    let session = Path::new("studio/sessions").join(session_repo.id.as_str()).join("git");
    if !target.ends_with(session) {
        return Ok(());
    }
    let message = format!("{} belongs to another repository", session_repo.worktree.display());
    Err(Failure::refused(message)
        .because(format!("it points to {}; is this a copy?", target.display()))
        .hint(format!(
            "studio -C '{}' list",
            target.ancestors().nth(4).unwrap_or(&target).display()
        )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_move_with_their_repository() {
        let relocate =
            |old, new, path| relocate_path(Path::new(old), Path::new(new), Path::new(path));
        assert_eq!(relocate("/a/.git", "/b/.git", "/a/.worktrees/x"), Path::new("/b/.worktrees/x"));
        assert_eq!(
            relocate("/r/a/.git", "/s/b/.git", "/r/a.worktrees/x"),
            Path::new("/s/b.worktrees/x")
        );
        assert_eq!(
            relocate("/a.git", "/b.git", "/a.git.worktrees/x"),
            Path::new("/b.git.worktrees/x")
        );
        assert_eq!(relocate("/r/a/.git", "/r/b/.git", "/srv/x"), Path::new("/srv/x"));
        assert_eq!(relocate("/r/a.git", "/s/b.git", "/r/linked"), Path::new("/r/linked"));
    }
}
