//! Build directories (`node_modules`, and what the configuration names) that a new session takes over
//! from the user's main checkout, or from the last passed check of what it starts from, if both have the
//! same lock file: real copies, so that no session can change the user's files or those of another one.

use std::cell::LazyCell;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use base::failure::{OrFail, Result};
use base::git::Git;
use base::process::OutputLimits;
use base::text::printable;
use studio_git::check_worktree::{self, PassedWorktree};
use studio_git::repo::Repository;
use studio_git::session_repo::SessionRepo;
use studio_git::{commit_list, gc};

/// The lock files, and the directories that are taken over by default where one is at the top of the
/// repository. Not `target`: cargo compiles everything again in another directory, because its
/// fingerprints contain the paths of the sources.
const LOCK_FILES: &[(&str, &str)] = &[
    ("package-lock.json", "node_modules"),
    ("npm-shrinkwrap.json", "node_modules"),
    ("pnpm-lock.yaml", "node_modules"),
    ("yarn.lock", "node_modules"),
    ("bun.lock", "node_modules"),
];
/// Lock files of directories that are taken over only where the configuration names them.
const OTHER_LOCK_FILES: &[&str] = &[
    "Cargo.lock",
    "uv.lock",
    "poetry.lock",
    "requirements.txt",
    "go.sum",
    "Gemfile.lock",
    "composer.lock",
];
/// The file that makes a directory a virtual environment of Python, whose programs contain its path.
const VENV_FILE: &str = "pyvenv.cfg";
/// Names that are not copied: compiled parts that only their own worktree can use, repositories.
const NOT_COPIED: &[&str] = &["incremental", ".git"];
/// Maximum size of a directory that is copied because the configuration names it.
const MAX_SIZE: TreeSize = TreeSize { files: 200_000, bytes: 4 << 30 };
/// Maximum size of a directory that is copied by default: many sessions may start at once, on a file
/// system that cannot share data.
const MAX_DEFAULT_SIZE: TreeSize = TreeSize { files: 50_000, bytes: 512 << 20 };
/// Number of commits of a history, newest first, whose passed checks count.
const MAX_COMMITS: usize = 50;
/// Maximum size of a lock file, in bytes.
const MAX_LOCK_FILE_BYTES: u64 = 64 << 20;
/// Maximum depth of a directory that is copied.
const MAX_DEPTH: usize = 200;

/// The number of files in a directory, and their size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct TreeSize {
    files: u64,
    bytes: u64,
}

/// Where a build directory may come from.
#[derive(Clone, Copy, Debug)]
struct Source<'a> {
    root: &'a Path,
    name: &'static str,
}

impl<'a> Source<'a> {
    fn main_checkout(root: &'a Path) -> Self {
        Source { root, name: "your main checkout" }
    }

    fn check(root: &'a Path) -> Self {
        Source { root, name: "the last passed check" }
    }
}

/// Copies the directories that fit into a new worktree. `configured` is the value of `[studio]
/// caches`; the lock files decide when absent. A configured directory that the main checkout does not
/// have as the session needs it comes from the check worktree in which a commit that the session starts
/// from passed last. Returns notes about what was copied, and about what the configuration names and
/// was not.
pub(crate) fn copy(
    repository: &Repository,
    session_repo: &SessionRepo,
    configured: Option<&[PathBuf]>,
    disk_floor: Option<u64>,
) -> Vec<String> {
    let defaults = || default_directories(repository.main_checkout.as_deref());
    let max_size = if configured.is_some() { MAX_SIZE } else { MAX_DEFAULT_SIZE };
    let copier = Copier { session_repo, max_size, disk_floor };
    let passed = LazyCell::new(|| last_passed(repository, &session_repo.base));
    let mut notes = Vec::new();
    for path in configured.map_or_else(defaults, <[PathBuf]>::to_vec) {
        let name = printable(&path.to_string_lossy());
        let own = repository.main_checkout.as_deref().map(Source::main_checkout);
        let own = own.ok_or_else(|| "the repository has no main checkout".to_owned());
        let copied = own.and_then(|own| copier.copy(own, &path));
        let copied = copied.or_else(|reason| match configured.and_then(|_| passed.as_ref()) {
            Some(passed) => copier.copy(Source::check(&passed.worktree), &path).map_err(|_| reason),
            None => Err(reason),
        });
        match copied {
            Ok(source) => notes.push(format!("{name} is a copy of that of {source}")),
            Err(reason) if configured.is_some() => {
                notes.push(format!("{name} was not copied: {reason}"));
            }
            Err(_) => {}
        }
    }
    notes
}

/// Returns the directories that the lock files of the main checkout name.
fn default_directories(checkout: Option<&Path>) -> Vec<PathBuf> {
    let has = |lock: &str| checkout.is_some_and(|checkout| checkout.join(lock).is_file());
    let named = LOCK_FILES.iter().filter(|(lock, _)| has(lock));
    let mut directories: Vec<PathBuf> = named.map(|(_, directory)| directory.into()).collect();
    directories.dedup();
    directories
}

/// Returns the check worktree in which the newest state of a commit's history passed, among those that
/// passed lately.
pub(crate) fn last_passed(repository: &Repository, commit: &str) -> Option<PassedWorktree> {
    let trees = commit_list::trees(repository, commit, MAX_COMMITS).ok()?;
    check_worktree::passed(repository, &trees)
}

/// Copies directories into a new worktree.
struct Copier<'a> {
    session_repo: &'a SessionRepo,
    max_size: TreeSize,
    disk_floor: Option<u64>,
}

impl Copier<'_> {
    /// Copies one directory, and returns the name of its source, or why it does not fit.
    fn copy(&self, source: Source<'_>, path: &Path) -> std::result::Result<&'static str, String> {
        let copied = self.copy_if_it_fits(source, path);
        copied.unwrap_or_else(|failure| Err(failure.sentence())).map(|()| source.name)
    }

    fn copy_if_it_fits(
        &self,
        source: Source<'_>,
        path: &Path,
    ) -> Result<std::result::Result<(), String>> {
        let fail = || "it cannot be read";
        let refuse = |reason: String| Ok(Err(reason));
        let missing = || Ok(Err(format!("{} has no such directory", source.name)));
        let worktree = &self.session_repo.worktree;
        let (Ok(root), target) = (source.root.canonicalize(), worktree.join(path)) else {
            return missing();
        };
        let from = root.join(path);
        if !from.canonicalize().is_ok_and(|canonical| canonical == from) || !from.is_dir() {
            return missing();
        }
        let parent = target.parent().unwrap_or(worktree);
        let has_parent = parent.canonicalize().is_ok_and(|canonical| canonical == parent);
        if !has_parent || target.symlink_metadata().is_ok() {
            return refuse("the worktree has something at its path".into());
        }
        if from.join(VENV_FILE).exists() {
            return refuse(
                "a virtual environment contains its own path; let `[studio] setup` make it, e.g. \
                 `uv sync`"
                    .into(),
            );
        }
        if let Some(lock) = differing_lock_file(&from, &target) {
            return refuse(format!("{lock} is another one than in {}", source.name));
        }
        if !is_ignored(self.session_repo, path)? {
            return refuse("git does not ignore it".into());
        }
        let max = self.max_size;
        let size = match measure(&from, 0).or_fail(fail)? {
            Some(size) if size.files <= max.files && size.bytes <= max.bytes => size,
            Some(_) => return refuse("it has more than 4 GiB or 200,000 files".into()),
            None => return refuse("it has a symlink with an absolute path".into()),
        };
        let disk = rustix::fs::statvfs(worktree).or_fail(fail)?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        if free < size.bytes.saturating_add(self.disk_floor.unwrap_or(0)) {
            return refuse("there is not enough free disk space".into());
        }
        let copied = copy_tree(&from, &target);
        if copied.is_err() {
            gc::remove(&target);
        }
        copied.or_fail(|| "it cannot be copied").map(Ok)
    }
}

/// Returns a lock file beside the directories that differs.
fn differing_lock_file(source: &Path, target: &Path) -> Option<&'static str> {
    let read = |directory: &Path, name: &str| {
        let file = directory.with_file_name(name);
        base::files::read_bounded(&file, MAX_LOCK_FILE_BYTES).ok()
    };
    let names = LOCK_FILES.iter().map(|(lock, _)| *lock).chain(OTHER_LOCK_FILES.iter().copied());
    names.into_iter().find(|name| read(source, name) != read(target, name))
}

/// Returns whether the session's git ignores a directory, which is not there yet.
fn is_ignored(session_repo: &SessionRepo, path: &Path) -> Result<bool> {
    let git = Git::at(&session_repo.git_dir).with_work_tree(&session_repo.worktree);
    let directory = format!("{}/", path.to_string_lossy());
    let command = git.command(["check-ignore", "-q", "--", &directory]);
    let output = command.output(OutputLimits::seconds(60)).or_fail(|| "cannot start git")?;
    Ok(output.ok())
}

/// Returns the size of what is copied; `None` if a symlink has an absolute path, which would lead
/// back to the main checkout.
fn measure(directory: &Path, depth: usize) -> io::Result<Option<TreeSize>> {
    let mut size = TreeSize::default();
    if depth > MAX_DEPTH {
        return Ok(Some(TreeSize { files: u64::MAX, bytes: u64::MAX }));
    }
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if is_left_out(&entry) {
            continue;
        }
        if kind.is_dir() {
            let Some(below) = measure(&entry.path(), depth + 1)? else { return Ok(None) };
            size.files = size.files.saturating_add(below.files);
            size.bytes = size.bytes.saturating_add(below.bytes);
        } else if kind.is_symlink() {
            if fs::read_link(entry.path())?.is_absolute() {
                return Ok(None);
            }
            size.files = size.files.saturating_add(1);
        } else if kind.is_file() {
            size.files = size.files.saturating_add(1);
            size.bytes = size.bytes.saturating_add(entry.metadata()?.len());
        }
        if size.files > MAX_SIZE.files || size.bytes > MAX_SIZE.bytes {
            break;
        }
    }
    Ok(Some(size))
}

fn is_left_out(entry: &fs::DirEntry) -> bool {
    NOT_COPIED.iter().any(|name| entry.file_name() == *name)
}

/// Copies a directory with the times of its files, by which build tools know what is built. Shares
/// the data on file systems that support it, and never the file. Files that a build
/// removes during the copy are left out.
fn copy_tree(source: &Path, target: &Path) -> io::Result<()> {
    fs::create_dir(target)?;
    for entry in fs::read_dir(source)? {
        let entry = entry?;
        let (kind, from, to) = (entry.file_type()?, entry.path(), target.join(entry.file_name()));
        if is_left_out(&entry) {
            continue;
        }
        let copied = if kind.is_dir() {
            copy_tree(&from, &to)
        } else if kind.is_symlink() {
            fs::read_link(&from).and_then(|link| std::os::unix::fs::symlink(link, &to))
        } else if kind.is_file() {
            copy_file(&from, &to)
        } else {
            Ok(())
        };
        match copied {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            copied => copied?,
        }
    }
    Ok(())
}

fn copy_file(from: &Path, to: &Path) -> io::Result<()> {
    let modified = fs::metadata(from)?.modified()?;
    fs::copy(from, to)?;
    let times = rustix::fs::Timestamps {
        last_access: timespec(modified),
        last_modification: timespec(modified),
    };
    Ok(rustix::fs::utimensat(rustix::fs::CWD, to, &times, rustix::fs::AtFlags::SYMLINK_NOFOLLOW)?)
}

fn timespec(time: std::time::SystemTime) -> rustix::fs::Timespec {
    let since = time.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    rustix::fs::Timespec {
        tv_sec: i64::try_from(since.as_secs()).unwrap_or_default(),
        tv_nsec: i64::from(since.subsec_nanos()),
    }
}
