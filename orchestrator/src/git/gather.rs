//! What changed in a worktree since its index, put into an index in memory, within limits.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use base::failure::{Failure, OrFail, Result};

use crate::git::index;
use crate::git::snapshot::{LeftOut, Limits, Why};

/// What a worktree holds that its index does not.
#[derive(Default)]
struct Changes {
    gone: Vec<PathBuf>,
    changed: Vec<PathBuf>,
    untracked: Vec<PathBuf>,
    repositories: Vec<PathBuf>,
}

/// Puts changed, deleted and untracked (not ignored) files into the index, which is not written.
/// Gives what was left out.
pub fn add_changes(
    repo: &git2::Repository,
    index: &mut git2::Index,
    worktree: &Path,
    limits: &Limits,
) -> Result<Vec<LeftOut>> {
    index::unhide(index, worktree)?;
    let mut changes = list(repo, index)?;
    set_repositories_apart(&mut changes, worktree);
    let mut left_out = Vec::new();
    let mut leave = |path: &Path, why| {
        left_out.push(LeftOut { path: path.to_string_lossy().into_owned(), why });
    };
    for path in &changes.repositories {
        leave(path, Why::Repository);
    }
    for path in changes.gone {
        index.remove_path(&path).or_fail(cannot)?;
    }
    for path in &changes.changed {
        if let Some(why) = add(index, worktree, path, limits)? {
            leave(path, why);
        }
    }
    for (n, path) in changes.untracked.iter().enumerate() {
        let refused = match n < limits.untracked || limits.include.contains(path) {
            true => add(index, worktree, path, limits)?,
            false => Some(Why::TooMany),
        };
        if let Some(why) = refused {
            leave(path, why);
        }
    }
    Ok(left_out)
}

fn list(repo: &git2::Repository, index: &git2::Index) -> Result<Changes> {
    let mut options = git2::DiffOptions::new();
    options
        .include_untracked(true)
        .recurse_untracked_dirs(true)
        .include_typechange(true)
        .include_unreadable(true)
        .ignore_submodules(true);
    let diff = repo.diff_index_to_workdir(Some(index), Some(&mut options)).or_fail(cannot)?;
    let mut changes = Changes::default();
    for delta in diff.deltas() {
        let file = delta.new_file();
        let Some(bytes) = file.path_bytes().or_else(|| delta.old_file().path_bytes()) else {
            continue;
        };
        let path = PathBuf::from(OsStr::from_bytes(bytes));
        if is_g3s_own(&path) {
            continue;
        }
        let list = match delta.status() {
            git2::Delta::Deleted => &mut changes.gone,
            git2::Delta::Untracked if bytes.ends_with(b"/") => &mut changes.repositories,
            git2::Delta::Untracked => &mut changes.untracked,
            _ => &mut changes.changed,
        };
        list.push(path);
    }
    Ok(changes)
}

/// g3's working files: never counted, snapshotted or landed. Project skills are the exception.
pub fn is_g3s_own(path: &Path) -> bool {
    path.starts_with(".g3") && !path.starts_with(".g3/skills")
}

/// An untracked directory that git would take for a repository is one, whatever its name.
fn set_repositories_apart(changes: &mut Changes, worktree: &Path) {
    let heads = changes.untracked.iter().filter(|path| path.file_name() == Some("HEAD".as_ref()));
    let bare: BTreeSet<PathBuf> = heads
        .filter_map(|head| head.parent().map(Path::to_owned))
        .filter(|dir| {
            let at = worktree.join(dir);
            at.join("config").is_file() && at.join("objects").is_dir()
        })
        .collect();
    if !bare.is_empty() {
        changes.untracked.retain(|path| !path.ancestors().any(|dir| bare.contains(dir)));
        changes.repositories.extend(bare);
    }
}

/// Puts one file into the index; gives why not.
fn add(
    index: &mut git2::Index,
    worktree: &Path,
    path: &Path,
    limits: &Limits,
) -> Result<Option<Why>> {
    let Ok(found) = worktree.join(path).symlink_metadata() else {
        // It went away since it was listed.
        index.remove_path(path).or_fail(cannot)?;
        return Ok(None);
    };
    let is_symlink = found.file_type().is_symlink();
    if !is_symlink && !found.is_file() {
        let is_link_to_repository = found.is_dir();
        return Ok((!is_link_to_repository).then_some(Why::Unreadable));
    }
    let asked_for = limits.include.iter().any(|wanted| wanted == path);
    if !is_symlink && found.len() > limits.file_bytes && !asked_for {
        return Ok(Some(Why::TooLarge));
    }
    if index.conflict_get(path).is_ok() {
        index.conflict_remove(path).or_fail(cannot)?;
    }
    match index.add_path(path) {
        Ok(()) => Ok(None),
        Err(_) if !is_symlink && std::fs::File::open(worktree.join(path)).is_err() => {
            Ok(Some(Why::Unreadable))
        }
        Err(why) => Err(Failure::failed(cannot())
            .because(format!("{}: {}", path.display(), why.message()))
            .next("check the disk space (`df .`), then try again")),
    }
}

fn cannot() -> &'static str {
    "cannot read the worktree"
}
