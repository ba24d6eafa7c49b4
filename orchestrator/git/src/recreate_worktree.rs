//! Recreates a deleted worktree of a session: the files of the newest snapshot, on the session's
//! own commits.

use std::path::{Path, PathBuf};

use base::failure::{Failure, OrFail, Result};
use base::files::step;
use base::git::Git;
use base::process::OutputLimits;

use crate::import;
use crate::repo::Repository;
use crate::safe_open::SafeDir;
use crate::session_repo::{Originals, SessionRepo};
use crate::snapshot::LastSeen;
use crate::{moved_repository, snapshot, worktree, worktreeinclude};

/// The prefix of the name of an incomplete worktree; the session's id follows.
const DESK: &str = ".new-";

/// Removes the remains of an interrupted [`if_gone`] for these sessions, whose locks the caller
/// holds.
pub fn remove_leftovers(places: &[SessionRepo]) -> Result<Vec<String>> {
    let mut removed = Vec::new();
    for desk in places.iter().map(desk_of).filter(|desk| desk.symlink_metadata().is_ok()) {
        std::fs::remove_dir_all(&desk).or_fail(cannot)?;
        removed.push(format!("removed the incomplete {}", desk.display()));
    }
    Ok(removed)
}

/// Returns the directory in which a session's worktree is created before it is renamed to its final
/// path.
fn desk_of(place: &SessionRepo) -> PathBuf {
    place.worktree.with_file_name(format!("{DESK}{}", place.id))
}

/// Whether a worktree was recreated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recreated {
    /// It exists.
    No,
    /// It was missing.
    Yes {
        /// A note for the user.
        note: Option<String>,
    },
}

/// Recreates the worktree of a session if it is missing, and registers it if it is not registered,
/// after a prune or a crash between the two. Ignored files are lost, except those that
/// `.worktreeinclude` names.
pub fn if_gone(repository: &Repository, place: &SessionRepo) -> Result<Recreated> {
    if !worktree::is_finished(place) {
        return Ok(Recreated::No);
    }
    if place.worktree.symlink_metadata().is_ok() {
        moved_repository::refuse_another(place)?;
        moved_repository::repair(repository, place)?;
        return Ok(Recreated::No);
    }
    let home = import::import(repository, place)?;
    let head = || home.head.clone();
    let (work, staged, note) = match snapshot::last_seen(repository, place, &home)? {
        LastSeen::Committed => (head(), head(), None),
        LastSeen::Snapshot { work, staged, .. } => (work, staged.unwrap_or_else(head), None),
        LastSeen::Older { name } => (head(), head(), Some(not_taken(place, &name))),
    };
    let parent = place.worktree.parent().unwrap_or(&place.worktree);
    std::fs::create_dir_all(parent).or_fail(cannot)?;
    // Created beside its path and renamed: an incomplete worktree would look like one with deleted
    // files.
    let desk = desk_of(place);
    let _ = std::fs::remove_dir_all(&desk);
    std::fs::create_dir(&desk).or_fail(cannot)?;
    let filled =
        fill(place, &desk, &work, &staged).and_then(|()| match &repository.main_checkout {
            Some(checkout) => {
                worktreeinclude::ignore(place, &worktreeinclude::copy(checkout, &desk)?.copied)
            }
            None => Ok(()),
        });
    if let Err(failure) = filled {
        let _ = std::fs::remove_dir_all(&desk);
        return Err(failure);
    }
    step("remake.filled");
    std::fs::rename(&desk, &place.worktree).or_fail(cannot)?;
    base::files::sync_dir(parent).or_fail(cannot)?;
    step("remake.renamed");
    moved_repository::repair(repository, place)?;
    Ok(Recreated::Yes { note })
}

fn not_taken(place: &SessionRepo, snapshot: &str) -> String {
    format!(
        "the worktree was recreated from the last commit; {snapshot} is older and was not \
         used: git diff {} {snapshot} shows the difference",
        place.branch
    )
}

/// Writes files, index and `.git` file.
fn fill(place: &SessionRepo, desk: &Path, work: &str, staged: &str) -> Result<()> {
    let top = SafeDir::open(&place.git_dir).or_fail(cannot)?;
    for name in ["index", "index.lock"] {
        top.remove_all(name).or_fail(cannot)?;
    }
    let door = Git::at(&place.git_dir).with_work_tree(desk);
    for args in [["read-tree", "--reset", "-u", work].as_slice(), &["read-tree", "--reset", staged]]
    {
        let output =
            door.job(args).output(OutputLimits::seconds(3600)).or_fail(|| "cannot start git")?;
        if !output.ok() {
            return Err(Failure::failed(cannot())
                .because(output.error_text())
                .hint("check the disk space (`df .`), then try again"));
        }
    }
    let pointer = Originals::load(&place.git_dir)?.pointer;
    base::files::replace_with_mode(&desk.join(".git"), &pointer, 0o644).or_fail(cannot)
}

fn cannot() -> &'static str {
    "cannot recreate the worktree"
}
