//! Stages the changes of a worktree since its index in an in-memory index, within limits.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base::failure::{Failure, OrFail, Result};
use base::git::Git;
use git2::{AttrCheckFlags, AttrValue};

use crate::object_quarantine::Quarantine;
use crate::safe_open::read_file;
use crate::snapshot::{Omission, OmissionReason, SnapshotLimits};
use crate::stored_index::StoredIndex;
use crate::submodules::SubmoduleState;
use crate::{endless_patterns, entry_mode, filters, index, object_format, untracked};

/// Timeout of listing the changes with git.
const LIST_TIMEOUT: Duration = Duration::from_secs(300);
/// Maximum size of a list of paths in bytes.
const MAX_LIST_BYTES: usize = 256 << 20;
/// Maximum size in bytes of a `.gitattributes` that is checked; git itself reads no larger ones.
const MAX_PATTERN_FILE_BYTES: u64 = 100 << 20;
/// Maximum number of paths that a git command is given: more are not faster than all.
const MAX_NAMED_PATHS: usize = 100;
/// How often a file is read if it changes while it is read.
const MAX_ATTEMPTS: u32 = 3;
/// Maximum size in bytes of a file that a filter reads.
const MAX_FILTERED_BYTES: u64 = 1 << 30;
/// The attributes with which a blob differs from a file without carriage returns.
const CONVERTING_ATTRIBUTES: [&str; 2] = ["filter", "ident"];

/// The differences of a worktree from its index.
#[derive(Default)]
struct Changes {
    deleted: Vec<PathBuf>,
    changed: Vec<PathBuf>,
    untracked: Vec<PathBuf>,
    repositories: Vec<PathBuf>,
    unreadable: Vec<PathBuf>,
}

/// What git says about a worktree and its index.
pub(crate) struct Listing {
    differing: Vec<PathBuf>,
    untracked: Vec<PathBuf>,
    /// The errors of git.
    stderr: String,
}

impl Listing {
    /// Returns the tracked paths that differ from the index.
    pub(crate) fn differing(&self) -> impl Iterator<Item = &Path> {
        self.differing.iter().map(PathBuf::as_path)
    }
}

/// Lists the changes of a worktree with git: its matching of ignore patterns terminates, and its
/// process can be ended. git compares only the files that may have changed, and looks for untracked ones
/// only if a name is unknown. `git` uses a git directory of studio, whose index is `stored`, and the
/// worktree.
pub(crate) fn list(git: &Git, stored: Option<&StoredIndex>, worktree: &Path) -> Result<Listing> {
    let (differing, untracked) = std::thread::scope(|scope| {
        let untracked = scope.spawn(move || list_untracked(git, stored, worktree));
        let differing = list_differing(git, stored, worktree);
        (differing, untracked.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    let (untracked, stderr) = untracked?;
    Ok(Listing { differing: differing?, untracked, stderr })
}

/// Stages changed, deleted and untracked (not ignored) files in the index, which is not written to
/// disk. Returns what was left out. Must be called on a confined thread, because files are read by
/// name.
pub(crate) fn add_changes(
    listing: Listing,
    index: &mut git2::Index,
    worktree: &Path,
    limits: &SnapshotLimits,
    scratch: &Quarantine,
) -> Result<Vec<Omission>> {
    let _keep_alive = filters::keep_alive();
    let unhidden = index::unhide(index, worktree)?;
    let mut changes = changes_of(listing, index, worktree, unhidden);
    separate_repositories(&mut changes, worktree);
    refuse_endless_attributes(&changes, worktree)?;
    let mut omissions = Vec::new();
    let mut omit = |path: &Path, reason| {
        omissions.push(Omission { path: path.to_string_lossy().into_owned(), why: reason });
    };
    for path in &changes.repositories {
        omit(path, OmissionReason::Repository);
    }
    for path in &changes.unreadable {
        omit(path, OmissionReason::Unreadable);
    }
    for path in changes.deleted {
        index.remove_path(&path).or_fail(cannot)?;
    }
    let stager = Stager::new(scratch, worktree, limits);
    for path in &changes.changed {
        if let Some(reason) = stager.add(index, path)? {
            omit(path, reason);
        }
    }
    for (n, path) in changes.untracked.iter().enumerate() {
        let omission = match n < limits.untracked || limits.include.contains(path) {
            true => stager.add(index, path)?,
            false => Some(OmissionReason::TooMany),
        };
        if let Some(reason) = omission {
            omit(path, reason);
        }
    }
    Ok(omissions)
}

/// Sorts the changes by what they are now.
fn changes_of(
    listing: Listing,
    index: &git2::Index,
    worktree: &Path,
    unhidden: Vec<PathBuf>,
) -> Changes {
    let mut changes = Changes::default();
    let Listing { differing, untracked, stderr } = listing;
    for path in differing.into_iter().chain(unhidden).collect::<BTreeSet<_>>() {
        if is_g3s_own(&path) {
            continue;
        }
        match worktree.join(&path).symlink_metadata() {
            Ok(metadata) if metadata.is_dir() => {
                let is_submodule =
                    index.get_path(&path, 0).is_some_and(|it| it.mode == entry_mode::GITLINK);
                if !is_submodule {
                    changes.deleted.push(path);
                }
            }
            Ok(_) => changes.changed.push(path),
            Err(_) => changes.deleted.push(path),
        }
    }
    for path in untracked.into_iter().filter(|path| !is_g3s_own(path)) {
        match path.as_os_str().as_bytes().ends_with(b"/") {
            true => changes.repositories.push(path),
            false => changes.untracked.push(path),
        }
    }
    changes.unreadable = stderr.lines().filter_map(unreadable_directory).collect();
    changes
}

/// Lists the untracked files that are not ignored. Returns the warnings of git too.
fn list_untracked(
    git: &Git,
    stored: Option<&StoredIndex>,
    worktree: &Path,
) -> Result<(Vec<PathBuf>, String)> {
    if stored.is_some_and(|stored| untracked::has_none(worktree, stored).unwrap_or(false)) {
        return Ok((Vec::new(), String::new()));
    }
    run_list(git, &["ls-files", "--others", "--exclude-standard"], &[])
}

/// Lists the tracked files that differ from the index.
fn list_differing(
    git: &Git,
    stored: Option<&StoredIndex>,
    worktree: &Path,
) -> Result<Vec<PathBuf>> {
    let possible = stored.and_then(|stored| stored.possible_changes(worktree).ok());
    let paths = match &possible {
        Some(paths) if paths.is_empty() => return Ok(Vec::new()),
        Some(paths) if paths.len() <= MAX_NAMED_PATHS => paths.as_slice(),
        Some(_) | None => &[],
    };
    let args = ["diff-files", "--name-only", "--ignore-submodules=all"];
    Ok(run_list(git, &args, paths)?.0)
}

/// Returns the paths that a git command prints, limited to these if any are given, and its stderr.
fn run_list(git: &Git, args: &[&str], paths: &[PathBuf]) -> Result<(Vec<PathBuf>, String)> {
    let (command, rest) = args.split_first().expect("a command is named");
    let args = [command, "-z"].into_iter().chain(rest.iter().copied()).chain(["--"]);
    let args = args.map(OsStr::new).chain(paths.iter().map(|path| path.as_os_str()));
    let git_command = git.command(args).env("GIT_LITERAL_PATHSPECS", "1");
    let limits = base::process::OutputLimits { time: Some(LIST_TIMEOUT), bytes: MAX_LIST_BYTES };
    let output = git_command.output(limits).or_fail(|| "cannot start git")?;
    if output.timed_out {
        return Err(Failure::failed(cannot())
            .because(format!("`git {command}` took longer than {} s", LIST_TIMEOUT.as_secs()))
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
    let mut checked = BTreeSet::new();
    for path in changes.changed.iter().chain(&changes.untracked) {
        for dir in path.ancestors().skip(1) {
            if !checked.insert(dir) {
                break;
            }
            let file = dir.join(".gitattributes");
            let Ok(Some(text)) = read_file(&worktree.join(&file), MAX_PATTERN_FILE_BYTES) else {
                continue;
            };
            if let Some(line) = endless_patterns::find_first(&text) {
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

/// Stages the commit to which the agent moved a submodule, as `git add` does, unless the session
/// moved it elsewhere too; a submodule of a submodule has its commit in that one. Returns the
/// submodule if it has work that stays behind.
pub(crate) fn add_submodule(
    index: &mut git2::Index,
    state: &SubmoduleState,
) -> Result<Option<Omission>> {
    let SubmoduleState { submodule, head, is_dirty } = state;
    let omission = || Omission {
        path: submodule.path.to_string_lossy().into_owned(),
        why: OmissionReason::Submodule,
    };
    let gitlink =
        |path: &Path| index.get_path(path, 0).filter(|entry| entry.mode == entry_mode::GITLINK);
    if submodule.parent.is_some() {
        let has_container = || submodule.path.ancestors().skip(1).any(|it| gitlink(it).is_some());
        return Ok((*is_dirty && has_container()).then(omission));
    }
    let Some(mut entry) = gitlink(&submodule.path) else { return Ok(None) };
    let (linked, started) = (entry.id.to_string(), &submodule.commit);
    let mut stays_behind = *is_dirty;
    match head {
        Some(head) if *head != linked && head != started => {
            if linked == *started {
                entry.id = object_format::parse_id(head).or_fail(cannot)?;
                index.add(&entry).or_fail(cannot)?;
            } else {
                stays_behind = true;
            }
        }
        Some(_) => {}
        None => stays_behind = true,
    }
    Ok(stays_behind.then(omission))
}

/// g3's working files: never counted, snapshotted or landed. Project skills are the exception.
pub(crate) fn is_g3s_own(path: &Path) -> bool {
    path.starts_with(".g3") && !path.starts_with(".g3/skills")
}

/// Moves untracked directories that git would take for a bare repository from the files to the
/// repositories, whatever their names are.
fn separate_repositories(changes: &mut Changes, worktree: &Path) {
    let head_files =
        changes.untracked.iter().filter(|path| path.file_name() == Some("HEAD".as_ref()));
    let bare: BTreeSet<PathBuf> = head_files
        .filter_map(|head| head.parent().map(Path::to_owned))
        .filter(|dir| {
            let path = worktree.join(dir);
            path.join("config").is_file() && path.join("objects").is_dir()
        })
        .collect();
    if !bare.is_empty() {
        changes.untracked.retain(|path| !path.ancestors().any(|dir| bare.contains(dir)));
        changes.repositories.extend(bare);
    }
}

/// Stages files of a worktree.
struct Stager<'a> {
    scratch: &'a Quarantine,
    /// The objects of the user's repository.
    imported: Option<git2::Odb<'static>>,
    worktree: &'a Path,
    limits: &'a SnapshotLimits,
    /// Whether only the listed attributes convert a file without carriage returns.
    has_plain_files: bool,
    /// Whether the file system says which files are executable (`core.filemode`).
    has_modes: bool,
    /// Whether it has symlinks (`core.symlinks`).
    has_symlinks: bool,
}

impl<'a> Stager<'a> {
    fn new(scratch: &'a Quarantine, worktree: &'a Path, limits: &'a SnapshotLimits) -> Self {
        let (config, imported) = (scratch.repo.config().ok(), scratch.imported_objects());
        let setting = |key| config.as_ref().and_then(|config| config.get_string(key).ok());
        let is_off = |key| setting(key).is_some_and(|it| git2::Config::parse_bool(it) == Ok(false));
        let has_plain_files = setting("core.safecrlf").is_none() || is_off("core.safecrlf");
        let (has_modes, has_symlinks) = (!is_off("core.filemode"), !is_off("core.symlinks"));
        Stager { scratch, imported, worktree, limits, has_plain_files, has_modes, has_symlinks }
    }

    /// Stages one file, or returns why it was left out. Where the file system lacks modes or symlinks,
    /// a file keeps the mode of its entry, and a new one is not executable, as with `git add`.
    fn add(&self, index: &mut git2::Index, path: &Path) -> Result<Option<OmissionReason>> {
        let before = index.get_path(path, 0).map(|entry| entry.mode);
        let omission = self.add_as_is(index, path)?;
        let Some(mut entry) = index.get_path(path, 0) else { return Ok(omission) };
        let is_file = entry_mode::is_file(entry.mode);
        let mode = match before {
            Some(entry_mode::SYMLINK) if !self.has_symlinks => entry_mode::SYMLINK,
            Some(mode) if entry_mode::is_file(mode) && !self.has_modes => mode,
            Some(_) | None if !self.has_modes => entry_mode::FILE,
            Some(_) | None => entry.mode,
        };
        if is_file && omission.is_none() && mode != entry.mode {
            entry.mode = mode;
            index.add(&entry).or_fail(cannot)?;
        }
        Ok(omission)
    }

    /// Stages one file, or returns why it was left out. The file may change, disappear or become
    /// something else at any time.
    fn add_as_is(&self, index: &mut git2::Index, path: &Path) -> Result<Option<OmissionReason>> {
        let (worktree, limits) = (self.worktree, self.limits);
        let mut attempts = 1;
        loop {
            let Ok(metadata) = worktree.join(path).symlink_metadata() else {
                // It was removed after it was listed.
                index.remove_path(path).or_fail(cannot)?;
                return Ok(None);
            };
            let is_symlink = metadata.file_type().is_symlink();
            if !is_symlink && !metadata.is_file() {
                let is_link_to_repository = metadata.is_dir();
                return Ok((!is_link_to_repository).then_some(OmissionReason::Unreadable));
            }
            let is_included = limits.include.iter().any(|included| included == path);
            let is_large = metadata.len() > limits.file_bytes;
            if !is_symlink && is_large && !is_included {
                // Filters as Git LFS make a small blob of a large file.
                let is_filtered = metadata.len() <= MAX_FILTERED_BYTES
                    && filters::applies(&self.scratch.repo, path);
                if !is_filtered {
                    return Ok(Some(OmissionReason::TooLarge));
                }
            }
            if index.conflict_get(path).is_ok() {
                index.conflict_remove(path).or_fail(cannot)?;
            }
            if self.has_plain_files
                && !is_symlink
                && !is_large
                && self.add_plain(index, path, &metadata).unwrap_or(false)
            {
                return Ok(None);
            }
            match index.add_path(path) {
                Ok(()) => return Ok(None),
                Err(_) if !is_symlink && std::fs::File::open(worktree.join(path)).is_err() => {
                    return Ok(Some(OmissionReason::Unreadable));
                }
                Err(error) if error.class() == git2::ErrorClass::Filter => {
                    return Err(filters::failure(cannot().to_owned(), &error));
                }
                Err(_) if attempts < MAX_ATTEMPTS => attempts += 1,
                Err(error) => {
                    return Err(Failure::failed(cannot())
                        .because(format!("{}: {}", path.display(), error.message()))
                        .hint("check the disk space (`df .`), then try again"));
                }
            }
        }
    }

    /// Stages a file whose blob has its bytes, and returns `false` for any other. Unlike libgit2, which
    /// compresses each file before it looks for its blob, writes nothing if the blob exists: a snapshot
    /// reads the files of the one before again.
    fn add_plain(&self, index: &mut git2::Index, path: &Path, metadata: &Metadata) -> Option<bool> {
        for name in CONVERTING_ATTRIBUTES {
            let value =
                self.scratch.repo.get_attr(path, name, AttrCheckFlags::FILE_THEN_INDEX).ok()?;
            match AttrValue::from_string(value) {
                AttrValue::Unspecified | AttrValue::False => {}
                AttrValue::True | AttrValue::String(_) | AttrValue::Bytes(_) => return Some(false),
            }
        }
        let content = read_file(&self.worktree.join(path), self.limits.file_bytes).ok()??;
        if content.contains(&b'\r') {
            return Some(false);
        }
        let mut id = object_format::hash_blob(&content, self.scratch.repo.object_format()).ok()?;
        if !self.imported.as_ref().is_some_and(|imported| imported.exists(id)) {
            id = self.scratch.repo.blob(&content).ok()?;
        }
        let is_executable = metadata.permissions().mode() & 0o100 != 0;
        let mode = if is_executable { entry_mode::EXECUTABLE } else { entry_mode::FILE };
        let entry = index::entry(path.as_os_str().as_bytes().to_vec(), id, mode);
        index.add(&entry).ok().map(|()| true)
    }
}

fn cannot() -> &'static str {
    "cannot read the worktree"
}
