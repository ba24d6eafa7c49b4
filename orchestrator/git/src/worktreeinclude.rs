//! Copies the untracked files that `.worktreeinclude` names (`.env`, local settings) to a new
//! worktree.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use base::config::trust;
use base::failure::{Failure, OrFail, Result};
use ignore::WalkBuilder;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use crate::checkout::{self, Checkout};
use crate::session_repo::{Originals, SessionRepo};

/// The file with the patterns (as in `.gitignore`), at the root of the main checkout.
const LIST_FILE: &str = ".worktreeinclude";

/// The result of copying; relative paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct IncludedFiles {
    /// Copied files.
    pub copied: Vec<PathBuf>,
    /// Files that were not copied because they look like secrets and the list is not trusted.
    pub not_copied: Vec<PathBuf>,
}

/// Copies the untracked files of the checkout that the list names. Never copies tracked files,
/// follows symlinks, or overwrites files. A list that came with the repository copies files that
/// look like secrets only if the user trusts exactly that list.
pub(crate) fn copy(checkout: &Path, worktree: &Path) -> Result<IncludedFiles> {
    let mut included = IncludedFiles::default();
    for path in list_files(checkout, worktree, &mut included.not_copied)? {
        let result = copy_one(&checkout.join(&path), worktree, &path);
        if result.or_fail(|| format!("cannot copy {} into the worktree", path.display()))? {
            included.copied.push(path);
        }
    }
    included.copied.sort();
    Ok(included)
}

/// Returns the files that would be withheld from this worktree.
pub(crate) fn list_withheld(checkout: &Path, worktree: &Path) -> Result<Vec<PathBuf>> {
    let mut not_copied = Vec::new();
    list_files(checkout, worktree, &mut not_copied)?;
    Ok(not_copied)
}

/// Returns the notice about withheld files; `None` if there are none.
pub fn notice(not_copied: &[PathBuf]) -> Option<String> {
    (!not_copied.is_empty()).then(|| {
        format!(
            "`{LIST_FILE}` is not trusted, so these are not copied: {}; to trust it: g3 trust --file \
             {LIST_FILE}",
            joined(not_copied)
        )
    })
}

/// Returns the notice about the files that a session on another machine does not get; `None` if there are
/// none.
pub(crate) fn notice_for_places(checkout: &Path, worktree: &Path) -> Result<Option<String>> {
    let mut withheld = Vec::new();
    let mut paths = list_files(checkout, worktree, &mut withheld)?;
    paths.extend(withheld);
    paths.sort();
    Ok((!paths.is_empty()).then(|| {
        format!(
            "files of `{LIST_FILE}` stay on this machine, without a copy at the place: {}",
            joined(&paths)
        )
    }))
}

/// Returns the first paths of a list, and how many more there are.
fn joined(paths: &[PathBuf]) -> String {
    const MAX_PATHS: usize = 5;
    let printable_paths: Vec<String> = paths
        .iter()
        .take(MAX_PATHS)
        .map(|path| base::text::printable(&path.to_string_lossy()))
        .collect();
    let suffix = match paths.len().saturating_sub(MAX_PATHS) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{}{suffix}", printable_paths.join(", "))
}

/// Returns the files that may be copied; adds the others to `not_copied`.
fn list_files(
    checkout: &Path,
    worktree: &Path,
    not_copied: &mut Vec<PathBuf>,
) -> Result<Vec<PathBuf>> {
    let Some(patterns) = patterns(checkout)? else { return Ok(Vec::new()) };
    let index = checkout::open_index(&Checkout::at(checkout)?)?;
    // An untracked list is the user's own.
    let is_untracked = index.get_path(Path::new(LIST_FILE), 0).is_none();
    let may_copy_secrets = is_untracked || is_trusted(checkout);
    let mut paths = Vec::new();
    for entry in walk(checkout, worktree) {
        let Ok(entry) = entry else { continue };
        let Ok(path) = entry.path().strip_prefix(checkout) else { continue };
        let kind = entry.file_type();
        let is_file = kind.is_some_and(|kind| kind.is_file() || kind.is_symlink());
        let is_listed = is_file && patterns.matched_path_or_any_parents(path, false).is_ignore();
        if !is_listed || index.get_path(path, 0).is_some() {
            continue;
        }
        match may_copy_secrets || !base::sandbox::home::looks_like_a_secret(path) {
            true => paths.push(path.to_owned()),
            false => not_copied.push(path.to_owned()),
        }
    }
    not_copied.sort();
    Ok(paths)
}

/// Returns whether the user accepted exactly this list (`g3 trust --file .worktreeinclude`).
fn is_trusted(checkout: &Path) -> bool {
    let file = checkout.join(LIST_FILE);
    let store = base::config::ConfigSources::from_env(checkout).trust_store();
    let content = base::files::read(&file).ok();
    store.zip(content).is_some_and(|(store, content)| trust::is_trusted(&store, &file, &content))
}

/// Makes the session's git ignore the copied files: they are the user's, not the session's work.
pub(crate) fn ignore(session_repo: &SessionRepo, copied: &[PathBuf]) -> Result<()> {
    let mut originals = Originals::load(&session_repo.git_dir)?;
    let previous_length = originals.exclude.len();
    for path in copied {
        let line = literal(path);
        if !originals.exclude.split(|byte| *byte == b'\n').any(|existing| existing == line) {
            originals.exclude.extend(line);
            originals.exclude.push(b'\n');
        }
    }
    if originals.exclude.len() == previous_length {
        return Ok(());
    }
    originals.save(&session_repo.git_dir)?;
    originals.restore(&session_repo.git_dir)
}

/// Returns a pattern that matches only this path. A newline, which no pattern can contain, becomes
/// a wildcard for one character.
fn literal(path: &Path) -> Vec<u8> {
    let mut line = vec![b'/'];
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'\n' => line.push(b'?'),
            b'*' | b'?' | b'[' | b'\\' | b' ' => line.extend([b'\\', *byte]),
            _ => line.push(*byte),
        }
    }
    line
}

fn patterns(checkout: &Path) -> Result<Option<Gitignore>> {
    let list_file = checkout.join(LIST_FILE);
    if !list_file.is_file() {
        return Ok(None);
    }
    let mut builder = GitignoreBuilder::new(checkout);
    if let Some(reason) = builder.add(&list_file) {
        return Err(Failure::usage(format!("cannot read {}", list_file.display())).because(reason));
    }
    builder.build().map(Some).or_fail(|| format!("cannot read {}", list_file.display()))
}

fn walk(checkout: &Path, worktree: &Path) -> ignore::Walk {
    let sessions = worktree.parent().unwrap_or(worktree).to_owned();
    let mut builder = WalkBuilder::new(checkout);
    builder.standard_filters(false).follow_links(false);
    builder.filter_entry(move |entry| {
        let is_nested_repository = entry.depth() > 0 && entry.path().join(".git").exists();
        entry.file_name() != ".git" && entry.path() != sessions && !is_nested_repository
    });
    builder.build()
}

/// Copies one file or symlink; returns `false` if the target exists or a symlink is in the way.
fn copy_one(source_path: &Path, worktree: &Path, path: &Path) -> io::Result<bool> {
    let target_path = worktree.join(path);
    if !make_parents(worktree, path)? || target_path.symlink_metadata().is_ok() {
        return Ok(false);
    }
    if source_path.symlink_metadata()?.file_type().is_symlink() {
        std::os::unix::fs::symlink(fs::read_link(source_path)?, target_path)?;
        return Ok(true);
    }
    let mut source = File::open(source_path)?;
    let mode = source.metadata()?.permissions().mode();
    let mut target =
        OpenOptions::new().write(true).create_new(true).mode(mode).open(&target_path)?;
    #[cfg(target_os = "linux")]
    if rustix::fs::ioctl_ficlone(&target, &source).is_ok() {
        return Ok(true);
    }
    io::copy(&mut source, &mut target)?;
    Ok(true)
}

/// Creates the parent directories of a path; returns `false` if one of them is a symlink.
fn make_parents(worktree: &Path, path: &Path) -> io::Result<bool> {
    let mut current = worktree.to_owned();
    for part in path.parent().unwrap_or(Path::new("")).components() {
        current.push(part);
        match current.symlink_metadata() {
            Ok(metadata) if metadata.is_dir() => {}
            Ok(_) => return Ok(false),
            Err(_) => fs::create_dir(&current)?,
        }
    }
    Ok(true)
}
