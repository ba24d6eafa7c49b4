//! Files of one commit laid over the files of another one: tests of one attempt on the code of
//! another one.

use std::path::PathBuf;

use base::failure::{OrFail, Result};

use crate::object_quarantine::{self, KeepFiles, Quarantine};
use crate::repo::Repository;
use crate::session_repo::SessionRepo;
use crate::{entry_mode, refs};

/// Files to lay over others.
#[derive(Clone, Copy, Debug)]
pub struct Overlay<'a> {
    /// The commit whose files are below.
    pub below: &'a str,
    /// The commit whose files are above.
    pub above: &'a str,
    /// The files above, as relative paths.
    pub paths: &'a [PathBuf],
}

/// A commit with the files of both.
#[derive(Debug)]
pub struct OverlaidCommit {
    /// The commit. No ref names it.
    pub commit: String,
    /// Its tree.
    pub tree: String,
    /// Protects its objects from `git gc` while this value exists.
    pub keep_files: KeepFiles,
}

/// Commits the files of an overlay. No ref moves.
pub fn commit(
    repository: &Repository,
    session_repo: &SessionRepo,
    overlay: Overlay<'_>,
    now: jiff::Timestamp,
) -> Result<OverlaidCommit> {
    let scratch = Quarantine::open(repository)?;
    let repo = &scratch.repo;
    let (below, above) = (refs::oid(overlay.below)?, refs::oid(overlay.above)?);
    let build = || -> std::result::Result<(git2::Oid, git2::Oid), git2::Error> {
        let below = repo.find_commit(below)?;
        let above = repo.find_commit(above)?.tree()?;
        let mut update = git2::build::TreeUpdateBuilder::new();
        for path in overlay.paths {
            let entry = above.get_path(path)?;
            update.upsert(
                path,
                entry.id(),
                entry_mode::for_libgit2(entry.filemode().cast_unsigned()),
            );
        }
        let tree = update.create_updated(repo, &below.tree()?)?;
        let signature = crate::repo::signature(repo, now)?;
        let commit = repo.commit(
            None,
            &signature,
            &signature,
            "Tests of another attempt\n",
            &repo.find_tree(tree)?,
            &[&below],
        )?;
        Ok((commit, tree))
    };
    let (commit, tree) =
        build().or_fail(|| "cannot lay the files of one commit over another one")?;
    let commit = commit.to_string();
    let existing = [overlay.below.to_owned(), overlay.above.to_owned()];
    let keep_files = object_quarantine::import_objects(
        repository,
        &[scratch.objects()],
        std::slice::from_ref(&commit),
        &existing,
        &session_repo.id,
    )?;
    Ok(OverlaidCommit { commit, tree: tree.to_string(), keep_files })
}
