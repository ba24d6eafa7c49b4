//! Pins: a commit per session whose ancestors are all that the session borrows from the
//! repository, so that nobody's `git gc` takes it away.

use base::failure::{OrFail, Result};
use base::id::Id;

use crate::object_quarantine::{self, Quarantine};
use crate::refs::{self, RefChange};
use crate::repo::Repository;
use crate::session_repo::SessionRepo;

/// Returns the ref that holds a session's pins.
pub(crate) fn name(id: &Id) -> String {
    format!("refs/studio/pins/{id}")
}

/// Pins what a new session borrows: its base and the copied tips.
pub(crate) fn start(repository: &Repository, place: &SessionRepo, tips: &[String]) -> Result<()> {
    let scratch = Quarantine::open(repository)?;
    let mut parents = vec![place.base.clone()];
    parents.extend(tips.iter().filter(|tip| **tip != place.base).cloned());
    let pin = commit(&scratch.repo, &parents)?;
    let wanted = [pin.clone()];
    let kept =
        object_quarantine::bring(repository, &[scratch.objects()], &wanted, &parents, &place.id)?;
    let held = refs::read(&repository.open()?, &name(&place.id))?;
    let change = RefChange::new(name(&place.id), held, Some(pin));
    refs::update_own(repository, &[change], "studio: pin what the session borrows")?;
    kept.release();
    Ok(())
}

/// Returns whether a session's pins end in this very commit: then it was pinned last, by an import
/// that a crash interrupted.
pub(crate) fn end_in(repo: &git2::Repository, pinned: &str, head: &str) -> bool {
    let last = || -> std::result::Result<git2::Oid, git2::Error> {
        let commit = repo.find_commit(git2::Oid::from_str(pinned)?)?;
        commit.parent_id(commit.parent_count().saturating_sub(1))
    };
    last().is_ok_and(|last| last.to_string() == head)
}

/// Returns a commit whose parents are pinned by it. It says nothing else. The parents need not be
/// there yet, and are not read.
pub(crate) fn commit(repo: &git2::Repository, parents: &[String]) -> Result<String> {
    let make = || -> std::result::Result<git2::Oid, git2::Error> {
        let mut text = format!("tree {}\n", repo.treebuilder(None)?.write()?);
        for parent in parents {
            text.push_str(&format!("parent {}\n", git2::Oid::from_str(parent)?));
        }
        text.push_str("author studio <studio@studio.invalid> 0 +0000\n");
        text.push_str("committer studio <studio@studio.invalid> 0 +0000\n\n");
        text.push_str("Pins of a studio session\n");
        repo.odb()?.write(git2::ObjectType::Commit, text.as_bytes())
    };
    make().map(|id| id.to_string()).or_fail(|| "cannot pin what the session borrows")
}
