//! Stages the changes of a worktree since its index in an in-memory index, within limits.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base::failure::{Failure, OrFail, Result};
use base::git::Git;

use crate::endless_patterns;
use crate::index;
use crate::safe_open::read_file;
use crate::snapshot::{Omission, OmissionReason, SnapshotLimits};

/// Timeout of listing the changes with git.
const LONGEST: Duration = Duration::from_secs(300);
/// Maximum size of a list of paths in bytes.
const LIST_BYTES: usize = 256 << 20;
/// Maximum size in bytes of a `.gitattributes` that is checked; git itself reads no larger ones.
const PATTERN_FILE_BYTES: u64 = 100 << 20;
/// How often a file is read if it changes while it is read.
const TRIES: u32 = 3;
/// The mode of a submodule's entry.
const GITLINK: u32 = 0o160_000;

/// The differences of a worktree from its index.
#[derive(Default)]
struct Changes {
    gone: Vec<PathBuf>,
    changed: Vec<PathBuf>,
    untracked: Vec<PathBuf>,
    repositories: Vec<PathBuf>,
    unreadable: Vec<PathBuf>,
}

/// Stages changed, deleted and untracked (not ignored) files in the index, which is not written to
/// disk. Returns what was left out. `git` uses a git directory of studio whose index file equals
/// `index`, and the worktree. Must be called on a confined thread, because files are read by name.
pub(crate) fn add_changes(
    git: &Git,
    index: &mut git2::Index,
    worktree: &Path,
    limits: &SnapshotLimits,
) -> Result<Vec<Omission>> {
    let hidden = index::unhide(index, worktree)?;
    let mut changes = list(git, index, worktree, hidden)?;
    separate_repositories(&mut changes, worktree);
    refuse_endless_attributes(&changes, worktree)?;
    let mut left_out = Vec::new();
    let mut leave = |path: &Path, why| {
        left_out.push(Omission { path: path.to_string_lossy().into_owned(), why });
    };
    for path in &changes.repositories {
        leave(path, OmissionReason::Repository);
    }
    for path in &changes.unreadable {
        leave(path, OmissionReason::Unreadable);
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
            false => Some(OmissionReason::TooMany),
        };
        if let Some(why) = refused {
            leave(path, why);
        }
    }
    Ok(left_out)
}

/// Lists the changes with git: its matching of ignore patterns terminates, and its process can be
/// ended.
fn list(git: &Git, index: &git2::Index, worktree: &Path, hidden: Vec<PathBuf>) -> Result<Changes> {
    let mut changes = Changes::default();
    let (differing, _) = listed(git, &["diff-files", "--name-only", "--ignore-submodules=all"])?;
    for path in differing.into_iter().chain(hidden).collect::<BTreeSet<_>>() {
        if is_g3s_own(&path) {
            continue;
        }
        match worktree.join(&path).symlink_metadata() {
            Ok(found) if found.is_dir() => {
                let is_submodule = index.get_path(&path, 0).is_some_and(|it| it.mode == GITLINK);
                if !is_submodule {
                    changes.gone.push(path);
                }
            }
            Ok(_) => changes.changed.push(path),
            Err(_) => changes.gone.push(path),
        }
    }
    let (untracked, stderr) = listed(git, &["ls-files", "--others", "--exclude-standard"])?;
    for path in untracked.into_iter().filter(|path| !is_g3s_own(path)) {
        match path.as_os_str().as_bytes().ends_with(b"/") {
            true => changes.repositories.push(path),
            false => changes.untracked.push(path),
        }
    }
    changes.unreadable = stderr.lines().filter_map(unreadable_directory).collect();
    Ok(changes)
}

/// Returns the paths that a git command prints, and its stderr.
fn listed(git: &Git, args: &[&str]) -> Result<(Vec<PathBuf>, String)> {
    let (command, rest) = args.split_first().expect("a command is named");
    let job = git.job([command, "-z"].into_iter().chain(rest.iter().copied()));
    let limits = base::process::OutputLimits { time: Some(LONGEST), bytes: LIST_BYTES };
    let output = job.output(limits).or_fail(|| "cannot start git")?;
    if output.timed_out {
        return Err(Failure::failed(cannot())
            .because(format!("`git {command}` took longer than {} s", LONGEST.as_secs()))
            .hint("look for a pattern with many `*` in its .gitignore files"));
    }
    let stderr = output.error_text();
    if !output.ok() {
        return Err(Failure::failed(cannot()).because(stderr));
    }
    if output.stdout.last().is_some_and(|last| *last != 0) {
        return Err(Failure::failed(cannot()).because("the list of its files is too long"));
    }
    let names = output.stdout.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    Ok((names.map(|name| PathBuf::from(OsStr::from_bytes(name))).collect(), stderr))
}

/// Returns the directory in git's warning that it could not open one.
fn unreadable_directory(line: &str) -> Option<PathBuf> {
    let rest = line.strip_prefix("warning: could not open directory '")?;
    rest.rsplit_once("': ").map(|(path, _)| PathBuf::from(path))
}

/// Refuses attribute patterns that libgit2, which applies them to the staged files, would take
/// practically forever to match.
fn refuse_endless_attributes(changes: &Changes, worktree: &Path) -> Result<()> {
    let mut seen = BTreeSet::new();
    for path in changes.changed.iter().chain(&changes.untracked) {
        for dir in path.ancestors().skip(1) {
            if !seen.insert(dir) {
                break;
            }
            let file = dir.join(".gitattributes");
            let Ok(Some(text)) = read_file(&worktree.join(&file), PATTERN_FILE_BYTES) else {
                continue;
            };
            if let Some(line) = endless_patterns::first(&text) {
                return Err(Failure::refused(cannot())
                    .because(format!(
                        "{}:{line}: the pattern has too many `*` to be matched",
                        file.display()
                    ))
                    .hint(format!("change it in {}", worktree.display())));
            }
        }
    }
    Ok(())
}

/// g3's working files: never counted, snapshotted or landed. Project skills are the exception.
pub(crate) fn is_g3s_own(path: &Path) -> bool {
    path.starts_with(".g3") && !path.starts_with(".g3/skills")
}

/// Moves untracked directories that git would take for a bare repository from the files to the
/// repositories, whatever their names are.
fn separate_repositories(changes: &mut Changes, worktree: &Path) {
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

/// Stages one file, or returns why it was left out. The file may change, disappear or become
/// something else at any time.
fn add(
    index: &mut git2::Index,
    worktree: &Path,
    path: &Path,
    limits: &SnapshotLimits,
) -> Result<Option<OmissionReason>> {
    let mut tries = 1;
    loop {
        let Ok(found) = worktree.join(path).symlink_metadata() else {
            // It was removed after it was listed.
            index.remove_path(path).or_fail(cannot)?;
            return Ok(None);
        };
        let is_symlink = found.file_type().is_symlink();
        if !is_symlink && !found.is_file() {
            let is_link_to_repository = found.is_dir();
            return Ok((!is_link_to_repository).then_some(OmissionReason::Unreadable));
        }
        let asked_for = limits.include.iter().any(|wanted| wanted == path);
        if !is_symlink && found.len() > limits.file_bytes && !asked_for {
            return Ok(Some(OmissionReason::TooLarge));
        }
        if index.conflict_get(path).is_ok() {
            index.conflict_remove(path).or_fail(cannot)?;
        }
        match index.add_path(path) {
            Ok(()) => return Ok(None),
            Err(_) if !is_symlink && std::fs::File::open(worktree.join(path)).is_err() => {
                return Ok(Some(OmissionReason::Unreadable));
            }
            Err(_) if tries < TRIES => tries += 1,
            Err(why) => {
                return Err(Failure::failed(cannot())
                    .because(format!("{}: {}", path.display(), why.message()))
                    .hint("check the disk space (`df .`), then try again"));
            }
        }
    }
}

fn cannot() -> &'static str {
    "cannot read the worktree"
}
