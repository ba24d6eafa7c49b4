//! Worktrees in which merged work is checked: made like a session's, without a branch, used again
//! and again so that ignored caches stay warm.

use base::failure::{Failure, OrFail, Result};
use base::git::Git;
use base::id::Id;
use base::lock::Lock;
use base::process::Limits;

use crate::git::inside::Dir;
use crate::git::names::{BranchName, BranchTemplate, WorktreeTemplate};
use crate::git::private::{self, Originals, Place};
use crate::git::repo::Repository;
use crate::git::{include, worktree};

/// How many may be in use at the same time.
const MOST: u32 = 64;

/// A check worktree that is ours until this is dropped.
#[derive(Debug)]
pub struct CheckWorktree {
    /// Where its parts are; id and branch belong to no session.
    pub place: Place,
    _lock: Lock,
}

/// A free check worktree with exactly the files of a commit, beside what is ignored and what
/// `.worktreeinclude` names. The commit must be in the repository.
pub fn prepare(
    repository: &Repository,
    worktrees: &WorktreeTemplate,
    branches: &BranchTemplate,
    commit: &str,
) -> Result<CheckWorktree> {
    let (slot, lock) = free_slot(repository)?;
    let place = Place {
        id: Id::parse(&format!("check-{slot}")).or_fail(cannot)?,
        worktree: worktrees.parent(repository).join(".checks").join(slot.to_string()),
        git_dir: repository.studio_dir()?.join(format!("checks/{slot}/git")),
        branch: BranchName::parse("studio-check")?,
        base: commit.to_owned(),
    };
    std::fs::create_dir_all(&place.worktree).or_fail(cannot)?;
    let real = place.worktree.canonicalize().or_fail(cannot)?;
    if real != place.worktree {
        return Err(Failure::refused(format!("{} leads elsewhere", place.worktree.display()))
            .because(format!("it is a symlink to {}", real.display())));
    }
    let originals = Originals::for_place(repository, &place)?;
    private::make(repository, &place, &originals, branches)?;
    let reset = || -> std::io::Result<()> {
        let top = Dir::open(&place.git_dir)?;
        top.write("HEAD", format!("{commit}\n").as_bytes())?;
        top.remove_all("index.lock")?;
        let tree = Dir::open(&place.worktree)?;
        tree.write(".git", &originals.pointer)
    };
    reset().or_fail(cannot)?;
    let clean = || -> Result<()> {
        worktree::check_out(&place, commit)?;
        let door = Git::at(&place.git_dir).with_work_tree(&place.worktree);
        let args = ["clean", "-ffdq"];
        let output = door.job(args).output(Limits::seconds(600)).or_fail(cannot)?;
        base::git::checked(&args, output).or_fail(cannot)?;
        Ok(())
    };
    match &repository.main_checkout {
        Some(checkout) => {
            let list = place.git_dir.with_file_name("included");
            include::copy_again(checkout, &place.worktree, &list, clean)?;
        }
        None => clean()?,
    }
    Ok(CheckWorktree { place, _lock: lock })
}

fn free_slot(repository: &Repository) -> Result<(u32, Lock)> {
    for slot in 1..=MOST {
        let dir = repository.studio_dir()?.join(format!("checks/{slot}"));
        std::fs::create_dir_all(&dir).or_fail(cannot)?;
        if let Some(lock) = Lock::try_take(&dir.join("lock")).or_fail(cannot)? {
            return Ok((slot, lock));
        }
    }
    Err(Failure::refused(format!("{MOST} checks are running at the same time")).next("try again"))
}

fn cannot() -> &'static str {
    "cannot prepare the worktree for the checks"
}
