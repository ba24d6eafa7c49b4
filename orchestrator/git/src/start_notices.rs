//! Notices at the start of sessions: the parts of the main checkout that a worktree does not
//! contain, and where the worktree is if it is not at its default location.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use base::failure::{OrFail, Result};
use base::git::Git;
use base::process::OutputLimits;

use crate::checkout::{self, Checkout};
use crate::names::WorktreeTemplate;
use crate::repo::Repository;
use crate::stored_index::StoredIndex;
use crate::{filters, object_format, submodules, untracked, worktreeinclude};

/// Maximum number of paths that are named.
const MAX_PATHS: usize = 3;

/// Returns the notice about the place of the worktrees. A place that exists is known, so this must be
/// asked before a session makes it.
pub fn place_notice(repository: &Repository, worktrees: &WorktreeTemplate) -> Option<String> {
    let parent = worktrees.parent(repository);
    if let Some(checkout) =
        repository.main_checkout.as_deref().filter(|checkout| parent.starts_with(checkout))
    {
        Some(format!(
            "warning: the worktrees are inside the main checkout ({}): programs that search the \
             directories above find its files, so checks may pass or fail because of {}",
            parent.display(),
            checkout.display(),
        ))
    } else if worktrees.is_default() && !parent.exists() && !is_beside(repository, &parent) {
        Some(format!(
            "the worktrees are in {}: the directory of the main checkout cannot be written",
            parent.display()
        ))
    } else {
        None
    }
}

/// Returns the notices about what sessions from this commit do not contain. `is_head` is whether it is
/// checked out.
pub fn omission_notices(
    repository: &Repository,
    commit: &str,
    is_head: bool,
) -> Result<Vec<String>> {
    let mut notices = Vec::new();
    if is_head {
        notices.extend(uncommitted_notice(repository, commit)?);
    }
    notices.extend(submodules_notice(repository, commit)?);
    Ok(notices)
}

/// Returns the notice about files of `.worktreeinclude` that sessions do not get, on this machine or at a
/// place.
pub fn include_notice(
    repository: &Repository,
    worktrees: &WorktreeTemplate,
    is_here: bool,
) -> Result<Option<String>> {
    let Some(checkout) = &repository.main_checkout else { return Ok(None) };
    let worktree = worktrees.parent(repository).join("id");
    match is_here {
        true => Ok(worktreeinclude::notice(&worktreeinclude::list_withheld(checkout, &worktree)?)),
        false => worktreeinclude::notice_for_places(checkout, &worktree),
    }
}

fn is_beside(repository: &Repository, parent: &std::path::Path) -> bool {
    let root = repository.main_checkout.as_deref().unwrap_or(&repository.common_dir);
    parent.parent() == root.parent()
}

/// Returns the notice about uncommitted changes in the current checkout, whose `HEAD` is this commit.
fn uncommitted_notice(repository: &Repository, commit: &str) -> Result<Option<String>> {
    let current = repository.current_checkout();
    let Some(checkout) = current else { return Ok(None) };
    if contains_only(repository, &checkout, commit) == Some(true) {
        return Ok(None);
    }
    let git = Git::at(&repository.checkout_git_dir).with_work_tree(&checkout);
    let args = ["status", "--porcelain", "-z", "--untracked-files=normal", "--no-renames"];
    let fail = || "cannot look for uncommitted changes";
    let output = git.command(args).output(OutputLimits::seconds(60)).or_fail(fail)?;
    if !output.ok() {
        // This is only a notice, so a failure is ignored.
        return Ok(None);
    }
    let entries = output.stdout.split(|byte| *byte == 0).filter(|entry| entry.len() > 3);
    let entries = entries.filter(|entry| !is_unchanged(&checkout, entry));
    let paths: Vec<PathBuf> =
        entries.map(|entry| String::from_utf8_lossy(&entry[3..]).into_owned().into()).collect();
    Ok((!paths.is_empty()).then(|| {
        let (count, plural) = (paths.len(), if paths.len() == 1 { "" } else { "s" });
        format!(
            "sessions start from the last commit, without {count} uncommitted change{plural}: {}",
            join_paths(&paths)
        )
    }))
}

/// Returns whether a checkout and its index have the files of this commit and no others, if that can be
/// said without git, which takes longer.
fn contains_only(repository: &Repository, checkout: &Path, commit: &str) -> Option<bool> {
    let repo = repository.open().ok()?;
    let index = repository.checkout_git_dir.join("index");
    let stored = StoredIndex::read(&index, repo.object_format()).ok()??;
    let tree = repo.find_commit(object_format::parse_id(commit).ok()?).ok()?.tree_id();
    let is_same = stored.tree()? == tree
        && untracked::has_none(checkout, &stored).ok()?
        && stored.possible_changes(checkout).ok()?.is_empty();
    Some(is_same)
}

/// Returns whether a file is only different for a git that does not run its filter.
fn is_unchanged(checkout: &Path, entry: &[u8]) -> bool {
    let Some(path) = entry.strip_prefix(b" M ") else { return false };
    let path = Path::new(OsStr::from_bytes(path));
    filters::are_trusted()
        && Checkout::at(checkout).and_then(|it| checkout::open(&it)).is_ok_and(|repo| {
            filters::applies(&repo, path)
                && repo.status_file(path).is_ok_and(|status| status == git2::Status::CURRENT)
        })
}

/// Returns the notice about submodules that the user's checkout does not have either.
fn submodules_notice(repository: &Repository, commit: &str) -> Result<Option<String>> {
    let paths = submodules::unavailable(repository, commit)?;
    Ok((!paths.is_empty()).then(|| {
        format!(
            "sessions start without the files of submodules: {}; your checkout does not have them: \
             git submodule update --init --recursive",
            join_paths(&paths)
        )
    }))
}

fn join_paths(paths: &[PathBuf]) -> String {
    let printable_paths: Vec<String> = paths
        .iter()
        .take(MAX_PATHS)
        .map(|it| base::text::printable(&it.to_string_lossy()))
        .collect();
    let hidden_count = paths.len().saturating_sub(MAX_PATHS);
    match hidden_count {
        0 => printable_paths.join(", "),
        _ => format!("{} and {hidden_count} more", printable_paths.join(", ")),
    }
}
