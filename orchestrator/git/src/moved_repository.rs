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
pub fn place_now(common_dir: &Path, place: &SessionRepo) -> SessionRepo {
    let now = common_dir.join("studio/sessions").join(place.id.as_str()).join("git");
    let Some(old_common) = place.git_dir.ancestors().nth(4) else { return place.clone() };
    if now == place.git_dir {
        return place.clone();
    }
    let worktree = match stays(old_common, common_dir, &[&place.worktree]) {
        true => place.worktree.clone(),
        false => moved(old_common, common_dir, &place.worktree),
    };
    SessionRepo { worktree, git_dir: now, ..place.clone() }
}

/// Returns whether files stayed at their paths when the repository was moved: worktrees beside it
/// are separate directories. In a copy of a repository they belong to the original.
fn stays(old: &Path, new: &Path, paths: &[&Path]) -> bool {
    let is_there = |path: &Path| path.symlink_metadata().is_ok();
    !is_there(&old.join("studio"))
        && !paths.iter().any(|path| is_there(&moved(old, new, path)))
        && paths.iter().any(|path| is_there(path))
}

/// Updates an operation to the current location of the repository.
pub fn intent_now(common_dir: &Path, intent: &mut Intent) {
    let old = intent.sessions.first().and_then(|place| place.git_dir.ancestors().nth(4));
    let Some(old) = old.map(Path::to_owned).filter(|old| old != common_dir) else { return };
    let relocate = |path: &mut PathBuf| *path = moved(&old, common_dir, path);
    let moves = intent.moves.clone();
    for place in &mut intent.sessions {
        let own = moves.iter().find(|it| it.from == place.worktree || it.to == place.worktree);
        let stays = own.is_some_and(|own| stays(&old, common_dir, &[&own.from, &own.to]));
        let worktree = stays.then(|| place.worktree.clone());
        *place = place_now(common_dir, place);
        place.worktree = worktree.unwrap_or_else(|| place.worktree.clone());
    }
    for moving in &mut intent.moves {
        if !stays(&old, common_dir, &[&moving.from, &moving.to]) {
            relocate(&mut moving.from);
            relocate(&mut moving.to);
        }
    }
    for checkout in intent.landing.iter_mut().flat_map(|landing| &mut landing.checkouts) {
        relocate(&mut checkout.worktree);
        relocate(&mut checkout.git_dir);
    }
}

/// Converts a path near the old directory to the same path near the new one.
fn moved(old: &Path, new: &Path, path: &Path) -> PathBuf {
    let inside = |old: &Path, new: &Path| path.strip_prefix(old).ok().map(|rest| new.join(rest));
    // The parent of a `.git` directory is its checkout; the parent of a bare repository is
    // unrelated.
    let above = || inside(old.parent().filter(|_| old.ends_with(".git"))?, new.parent()?);
    let beside = || {
        // `<checkout>.worktrees`, or `<bare>.worktrees`
        let is_bare = !old.ends_with(".git");
        let (old, new) = if is_bare { (old, new) } else { (old.parent()?, new.parent()?) };
        let text = path.to_str()?.strip_prefix(old.to_str()?)?;
        text.starts_with(".worktrees/").then(|| PathBuf::from(format!("{}{text}", new.display())))
    };
    inside(old, new).or_else(beside).or_else(above).unwrap_or_else(|| path.to_owned())
}

/// Repairs a session's registration and `.git` file, for `studio doctor`: after a move of the
/// repository, or after `git worktree repair` or `prune` removed them. Returns what was done, one
/// sentence each. A `.git` file that an agent changed is not modified.
pub fn repair(repository: &Repository, place: &SessionRepo) -> Result<Vec<String>> {
    let mut did = Vec::new();
    if !place.worktree.is_dir() || !place.git_dir.is_dir() {
        return Ok(did);
    }
    let pointer = place.worktree.join(".git");
    let leads_to_registration = worktree::pointer_in(&place.worktree).is_some_and(|text| {
        let registrations = repository.common_dir.join("worktrees");
        let target = text.trim_ascii_end().strip_prefix(b"gitdir: ").unwrap_or_default();
        !target.is_empty() && Path::new(OsStr::from_bytes(target)).starts_with(registrations)
    });
    repoint(place, &pointer, &mut did)?;
    if leads_to_registration {
        let original = Originals::load(&place.git_dir)?.pointer;
        base::files::replace_with_mode(&pointer, &original, 0o644)
            .or_fail(|| format!("cannot write {}", pointer.display()))?;
        did.push(format!("{} points to the session's git directory again", pointer.display()));
    }
    let _lock = worktree::lock(repository)?;
    if worktree::admin_dir_of(repository, &place.worktree)?.is_some() {
        return Ok(did);
    }
    let stale = worktree::registration_of(repository, place)?;
    let admin = match stale {
        Some(admin) => admin,
        None => worktree::free_admin_dir(repository, &place.id),
    };
    worktree::write_registration(&admin, place)?;
    did.push(format!("{} is registered again", place.worktree.display()));
    Ok(did)
}

/// Rewrites the `.git` file of a worktree that did not move with its repository, and so refers to a
/// missing directory.
fn repoint(place: &SessionRepo, pointer: &Path, did: &mut Vec<String>) -> Result<()> {
    let mut originals = Originals::load(&place.git_dir)?;
    let wanted = session_repo::pointer(place);
    if originals.pointer == wanted || target_of(place, &originals.pointer).is_some() {
        return Ok(());
    }
    let was = std::mem::replace(&mut originals.pointer, wanted);
    // The record comes last: until it is updated, the next call starts over.
    if worktree::pointer_in(&place.worktree).is_some_and(|found| found == was) {
        base::files::replace_with_mode(pointer, &originals.pointer, 0o644)
            .or_fail(|| format!("cannot write {}", pointer.display()))?;
        did.push(format!("{} points to the moved repository", pointer.display()));
    }
    step("mend.pointer");
    originals.save(&place.git_dir)?;
    step("mend.saved");
    Ok(())
}

/// Returns the target directory of a `.git` file, if it exists.
pub(crate) fn target_of(place: &SessionRepo, pointer: &[u8]) -> Option<PathBuf> {
    let target = pointer.trim_ascii_end().strip_prefix(b"gitdir: ")?;
    place.worktree.join(OsStr::from_bytes(target)).canonicalize().ok()
}

/// Refuses (3) to move the worktree of another repository's session: in a copy of a repository,
/// worktrees outside it still belong to the original.
pub(crate) fn refuse_another(place: &SessionRepo) -> Result<()> {
    let pointer = worktree::pointer_in(&place.worktree).unwrap_or_default();
    let ours = place.git_dir.canonicalize().ok();
    let Some(target) = target_of(place, &pointer).filter(|to| Some(to) != ours.as_ref()) else {
        return Ok(());
    };
    let session = Path::new("studio/sessions").join(place.id.as_str()).join("git");
    if !target.ends_with(session) {
        return Ok(());
    }
    let what = format!("{} belongs to another repository", place.worktree.display());
    Err(Failure::refused(what)
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
        let way = |old, new, path| moved(Path::new(old), Path::new(new), Path::new(path));
        assert_eq!(way("/a/.git", "/b/.git", "/a/.worktrees/x"), Path::new("/b/.worktrees/x"));
        assert_eq!(
            way("/r/a/.git", "/s/b/.git", "/r/a.worktrees/x"),
            Path::new("/s/b.worktrees/x")
        );
        assert_eq!(way("/a.git", "/b.git", "/a.git.worktrees/x"), Path::new("/b.git.worktrees/x"));
        assert_eq!(way("/r/a/.git", "/r/b/.git", "/srv/x"), Path::new("/srv/x"));
        assert_eq!(way("/r/a.git", "/s/b.git", "/r/linked"), Path::new("/r/linked"));
    }
}
