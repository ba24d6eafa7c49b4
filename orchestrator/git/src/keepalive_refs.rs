//! Keepalive refs ("pins"): one commit per session whose history has all objects that the session
//! borrows from the repository, so that no `git gc` removes them.

use base::failure::{OrFail, Result};
use base::id::Id;

use crate::object_format;
use crate::object_quarantine::{self, Quarantine};
use crate::refs::{self, RefChange};
use crate::repo::Repository;
use crate::session_repo::SessionRepo;

/// Returns the keepalive ref of a session.
pub(crate) fn ref_name(id: &Id) -> String {
    format!("refs/studio/pins/{id}")
}

/// Pins what a new session borrows: its base and the copied branch tips.
pub(crate) fn pin_start(
    repository: &Repository,
    session_repo: &SessionRepo,
    tips: &[String],
) -> Result<()> {
    let (base, id) = (&session_repo.base, &session_repo.id);
    let pin = |pin: String| {
        let current = refs::read(&*repository.open()?, &ref_name(id))?;
        let change = RefChange::new(ref_name(id), current, Some(pin));
        refs::update_or_fail(repository, &[change], "studio: pin what the session borrows")
    };
    let others: Vec<&String> = tips.iter().filter(|tip| *tip != base).collect();
    if others.is_empty() {
        return pin(base.clone());
    }
    let scratch = Quarantine::open(repository)?;
    let parents: Vec<String> = [base].into_iter().chain(others).cloned().collect();
    let commit = create_commit(&scratch.repo, &parents, id)?;
    let commits = [commit.clone()];
    let imported_pack =
        object_quarantine::import_created(repository, &scratch, &commits, &parents, id)?;
    pin(commit)?;
    imported_pack.release();
    Ok(())
}

/// Returns whether a pin ends in this commit: then an interrupted import has pinned it.
pub(crate) fn ends_with(repo: &git2::Repository, pinned: &str, head: &str) -> bool {
    let last_parent = || -> std::result::Result<git2::Oid, git2::Error> {
        let commit = repo.find_commit(object_format::parse_id(pinned)?)?;
        commit.parent_id(commit.parent_count().saturating_sub(1))
    };
    last_parent().is_ok_and(|last| last.to_string() == head)
}

/// Creates a commit that pins its parents for a session. The parents need not exist yet, and are not
/// read. It names the session, because one that another session has made, and that may lose its ref at
/// any time, would have to be packed again by git.
pub(crate) fn create_commit(
    repo: &git2::Repository,
    parents: &[String],
    id: &Id,
) -> Result<String> {
    let write_commit = || -> std::result::Result<git2::Oid, git2::Error> {
        let mut text = format!("tree {}\n", repo.treebuilder(None)?.write()?);
        for parent in parents {
            text.push_str(&format!("parent {}\n", object_format::parse_id(parent)?));
        }
        text.push_str("author studio <studio@studio.invalid> 0 +0000\n");
        text.push_str("committer studio <studio@studio.invalid> 0 +0000\n\n");
        text.push_str(&format!("Pins of the studio session {id}\n"));
        repo.odb()?.write(git2::ObjectType::Commit, text.as_bytes())
    };
    write_commit().map(|id| id.to_string()).or_fail(|| "cannot pin what the session borrows")
}
