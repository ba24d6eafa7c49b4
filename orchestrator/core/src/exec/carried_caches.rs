//! Build directories (`node_modules`, and what the configuration names) that a new session takes over
//! from the user's main checkout, or from the last passed check of what it starts from, if both have the
//! same lock file: real copies, so that no session can change the user's files or those of another one.

use std::cell::LazyCell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use base::config::studio::{ShellLines, StudioConfig};
use base::failure::{OrFail, Result};
use base::files::step;
use base::git::Git;
use base::process::OutputLimits;
use base::text::printable;
use studio_git::check_worktree::{self, PassedWorktree};
use studio_git::repo::Repository;
use studio_git::session_repo::SessionRepo;
use studio_git::{commit_list, gc};

use crate::exec::cargo_target::{self, CompiledDependencies};

/// The directory of a session or a check, beside its git directory, for copies that are being made.
const STAGING: &str = "carried";
/// The lock files, and the directories that are taken over by default where one is at the top of the
/// repository.
const LOCK_FILES: &[(&str, &str)] = &[
    (cargo_target::LOCK_FILE, CARGO_DIRECTORY),
    ("package-lock.json", "node_modules"),
    ("npm-shrinkwrap.json", "node_modules"),
    ("pnpm-lock.yaml", "node_modules"),
    ("yarn.lock", "node_modules"),
    ("bun.lock", "node_modules"),
];
const CARGO_DIRECTORY: &str = "target";
/// Lock files of directories that are taken over only where the configuration names them.
const OTHER_LOCK_FILES: &[&str] =
    &["uv.lock", "poetry.lock", "requirements.txt", "go.sum", "Gemfile.lock", "composer.lock"];
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

/// Records that a new worktree has to get its copies, until [`copy`] has made them: a kill in between
/// shows in [`is_incomplete`].
pub(crate) fn begin(
    repository: &Repository,
    session_repo: &SessionRepo,
    configured: Option<&[PathBuf]>,
) -> Result<()> {
    if !directories(repository, configured).is_empty() {
        let staging = staging(session_repo);
        fs::create_dir_all(staging).or_fail(|| "cannot prepare the copies of build directories")?;
        step("carry.begin");
    }
    Ok(())
}

/// Returns whether a worktree has not got all of its copies.
pub(crate) fn is_incomplete(session_repo: &SessionRepo) -> bool {
    staging(session_repo).exists()
}

/// Returns the directory in which a copy is made before it moves to its path in the worktree, so that
/// what a kill leaves there is complete.
fn staging(session_repo: &SessionRepo) -> PathBuf {
    session_repo.git_dir.with_file_name(STAGING)
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
    let (is_configured, part) = (configured.is_some(), Part::Everything);
    let copier = Copier { session_repo, is_configured, part, disk_floor };
    let passed = LazyCell::new(|| last_passed(repository, &session_repo.base));
    let mut notes = Vec::new();
    for path in directories(repository, configured) {
        let name = printable(&path.to_string_lossy());
        let copied = copier.copy_own(repository, &path);
        let copied = copied.or_else(|reason| match configured.and_then(|_| passed.as_ref()) {
            Some(passed) => copier.copy(Source::check(&passed.worktree), &path).map_err(|_| reason),
            None => Err(reason),
        });
        match copied {
            Ok(copied) => notes.push(format!("{name} {copied}")),
            Err(reason) if configured.is_some() => {
                notes.push(format!("{name} was not copied: {reason}"));
            }
            Err(_) => {}
        }
    }
    gc::remove(&staging(session_repo));
    notes
}

/// Copies the dependencies that the user's cargo compiled in the main checkout into a new check
/// worktree, as [`copy`] does for a session.
pub(crate) fn copy_dependencies(
    repository: &Repository,
    session_repo: &SessionRepo,
    configured: Option<&[PathBuf]>,
    disk_floor: Option<u64>,
) {
    let (is_configured, part) = (configured.is_some(), Part::Dependencies);
    let copier = Copier { session_repo, is_configured, part, disk_floor };
    for path in directories(repository, configured) {
        // Without the copy, the checks take longer.
        let _ = copier.copy_own(repository, &path);
    }
    gc::remove(&staging(session_repo));
}

/// Returns the value of `[studio] caches`.
pub(crate) fn configured(settings: &StudioConfig) -> Result<Option<Vec<PathBuf>>> {
    let parse = |lines: &ShellLines| check_worktree::parse_kept_paths("caches", &lines.list());
    settings.caches.as_ref().map(parse).transpose()
}

fn directories(repository: &Repository, configured: Option<&[PathBuf]>) -> Vec<PathBuf> {
    let defaults = || default_directories(repository.main_checkout.as_deref());
    configured.map_or_else(defaults, <[PathBuf]>::to_vec)
}

/// Returns the directories that the lock files of the main checkout name. Cargo uses a copy only if it
/// sees its downloads at the path of the user's.
fn default_directories(checkout: Option<&Path>) -> Vec<PathBuf> {
    let has = |lock: &str| checkout.is_some_and(|checkout| checkout.join(lock).is_file());
    let is_usable =
        |lock: &str| lock != cargo_target::LOCK_FILE || base::sandbox::namespaces_are_possible();
    let named = LOCK_FILES.iter().filter(|(lock, _)| has(lock) && is_usable(lock));
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

/// What is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Everything,
    /// Dependencies that cargo compiled.
    Dependencies,
}

/// Copies directories into a new worktree.
struct Copier<'a> {
    session_repo: &'a SessionRepo,
    is_configured: bool,
    part: Part,
    disk_floor: Option<u64>,
}

impl Copier<'_> {
    /// Copies a directory of the main checkout.
    fn copy_own(
        &self,
        repository: &Repository,
        path: &Path,
    ) -> std::result::Result<String, String> {
        let own = repository.main_checkout.as_deref().map(Source::main_checkout);
        let own = own.ok_or_else(|| "the repository has no main checkout".to_owned());
        own.and_then(|own| self.copy(own, path))
    }

    /// Copies one directory, and returns in words what the session has, or why it does not fit.
    fn copy(&self, source: Source<'_>, path: &Path) -> std::result::Result<String, String> {
        let copied = self.copy_if_it_fits(source, path);
        copied.unwrap_or_else(|failure| Err(failure.sentence()))
    }

    fn copy_if_it_fits(
        &self,
        source: Source<'_>,
        path: &Path,
    ) -> Result<std::result::Result<String, String>> {
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
        let dependencies = CompiledDependencies::find(&from);
        let is_default = !self.is_configured && path == Path::new(CARGO_DIRECTORY);
        if dependencies.is_none() && (is_default || self.part == Part::Dependencies) {
            return refuse("cargo compiled nothing in it".into());
        }
        // Cargo itself uses only what the session's lock file names.
        let has_lock_file = target.with_file_name(cargo_target::LOCK_FILE).is_file();
        if !(dependencies.is_some() && has_lock_file)
            && let Some(lock) = differing_lock_file(&from, &target)
        {
            return refuse(format!("{lock} is another one than in {}", source.name));
        }
        if !is_ignored(self.session_repo, path)? {
            return refuse("git does not ignore it".into());
        }
        let max = if self.is_configured { MAX_SIZE } else { MAX_DEFAULT_SIZE };
        let mut tree = BuildTree { dependencies, copied: HashMap::new() };
        let size = match tree.measure(&from, 0).or_fail(fail)? {
            Some(size) if size.files <= max.files && size.bytes <= max.bytes => size,
            Some(_) => return refuse("it has more than 4 GiB or 200,000 files".into()),
            None => return refuse("it has a symlink with an absolute path".into()),
        };
        let disk = rustix::fs::statvfs(worktree).or_fail(fail)?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        if free < size.bytes.saturating_add(self.disk_floor.unwrap_or(0)) {
            return refuse("there is not enough free disk space".into());
        }
        let staging = staging(self.session_repo);
        gc::remove(&staging);
        tree.copy_by_way_of(&staging, &from, &target).or_fail(|| "it cannot be copied")?;
        Ok(Ok(match tree.dependencies {
            Some(_) => format!("has copies of the dependencies that {} compiled", source.name),
            None => format!("is a copy of that of {}", source.name),
        }))
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

/// A directory that is measured, and then copied.
struct BuildTree {
    /// Of cargo's `target`, what is copied.
    dependencies: Option<CompiledDependencies>,
    /// The files with several names (device and number), and the first path of each.
    copied: HashMap<(u64, u64), PathBuf>,
}

impl BuildTree {
    /// Returns the size of what is copied; `None` if a symlink has an absolute path, which would lead
    /// back to the main checkout.
    fn measure(&mut self, directory: &Path, depth: usize) -> io::Result<Option<TreeSize>> {
        let mut size = TreeSize::default();
        if depth > MAX_DEPTH {
            return Ok(Some(TreeSize { files: u64::MAX, bytes: u64::MAX }));
        }
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if self.leaves_out(directory, &entry.file_name()) {
                continue;
            }
            if kind.is_dir() {
                let Some(below) = self.measure(&entry.path(), depth + 1)? else { return Ok(None) };
                size.files = size.files.saturating_add(below.files);
                size.bytes = size.bytes.saturating_add(below.bytes);
            } else if kind.is_symlink() {
                if fs::read_link(entry.path())?.is_absolute() {
                    return Ok(None);
                }
                size.files = size.files.saturating_add(1);
            } else if kind.is_file() {
                let metadata = entry.metadata()?;
                if self.first_path(&metadata, &entry.path()).is_none() {
                    size.files = size.files.saturating_add(1);
                    size.bytes = size.bytes.saturating_add(metadata.len());
                }
            }
            if size.files > MAX_SIZE.files || size.bytes > MAX_SIZE.bytes {
                break;
            }
        }
        Ok(Some(size))
    }

    fn leaves_out(&self, directory: &Path, name: &OsStr) -> bool {
        let name = name.to_string_lossy();
        let dependencies = self.dependencies.as_ref();
        NOT_COPIED.contains(&&*name)
            || dependencies.is_some_and(|dependencies| dependencies.leaves_out(directory, &name))
    }

    /// Copies a directory to a new path, at which it is complete from the beginning where a file system
    /// contains both.
    fn copy_by_way_of(&mut self, staging: &Path, source: &Path, target: &Path) -> io::Result<()> {
        fs::create_dir_all(staging)?;
        let staged = staging.join("copy");
        self.copied.clear();
        let copied = self.copy(source, &staged).and_then(|()| fs::rename(&staged, target));
        match copied {
            Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
                gc::remove(&staged);
                self.copied.clear();
                self.copy(source, target).inspect_err(|_| gc::remove(target))
            }
            copied => copied,
        }?;
        step("carry.copied");
        Ok(())
    }

    /// Copies a directory with the times of its files, by which build tools know what is built. Shares
    /// the data on file systems that support it, and never the file. Files that a build removes during
    /// the copy are left out.
    fn copy(&mut self, source: &Path, target: &Path) -> io::Result<()> {
        fs::create_dir(target)?;
        let mut entries = fs::read_dir(source)?.collect::<io::Result<Vec<_>>>()?;
        // Cargo's `.fingerprint` comes first: what it records was complete before.
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let (kind, from, to) =
                (entry.file_type()?, entry.path(), target.join(entry.file_name()));
            if self.leaves_out(source, &entry.file_name()) {
                continue;
            }
            let copied = if kind.is_dir() {
                self.copy(&from, &to)
            } else if kind.is_symlink() {
                fs::read_link(&from).and_then(|link| std::os::unix::fs::symlink(link, &to))
            } else if kind.is_file() {
                self.copy_file(&from, &to)
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

    /// Copies a file, or links it to its copy: cargo has two names for each build script.
    fn copy_file(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        step("carry.file");
        match self.first_path(&fs::symlink_metadata(from)?, to) {
            Some(first) => fs::hard_link(first, to),
            None => copy_file(from, to),
        }
    }

    /// Returns the path that was given for another name of the same file before.
    fn first_path(&mut self, metadata: &fs::Metadata, path: &Path) -> Option<PathBuf> {
        if metadata.nlink() < 2 {
            return None;
        }
        match self.copied.entry((metadata.dev(), metadata.ino())) {
            Entry::Occupied(first) => Some(first.get().clone()),
            Entry::Vacant(vacant) => {
                vacant.insert(path.to_owned());
                None
            }
        }
    }
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
