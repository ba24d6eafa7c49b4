//! Creates a session's worktree: registered with the repository, with its own git directory, files
//! checked out. Only the registration is serialized.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use base::failure::{Failure, OrFail, Result};
use base::files::{PendingSync, step};
use base::git::Git;
use base::id::Id;
use base::lock::Lock;
use base::process::OutputLimits;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use crate::names::{self, BranchTemplate, WorktreeTemplate};
use crate::parallel_checkout::{self, WriteResult, WriteTarget};
use crate::pool::{self, Claimed};
use crate::refs::{self, RefChange};
use crate::repo::{Base, Repository};
use crate::safe_open::read_file;
use crate::session_repo::{self, Originals, SessionRepo};
use crate::sparse::SparsePatterns;
use crate::start_point::{self, StartPoint};
use crate::{
    checkout, filters, keepalive_refs, partial_clone, reftable, submodules, worktreeinclude,
};

/// Maximum size of a `.git` file that is read, in bytes: one line with a path.
const MAX_POINTER_BYTES: u64 = 8192;

/// The lines that studio adds to the repository's `info/exclude`, wherever worktrees are.
const EXCLUDE_PATTERNS: &[&str] = &[".g3/*", "!.g3/skills/"];

/// The specification of a worktree.
#[derive(Clone, Debug)]
pub struct WorktreeSpec {
    /// The session.
    pub id: Id,
    /// The base.
    pub base: Base,
    /// The template of the branch.
    pub branch: BranchTemplate,
    /// The template of the worktree's path.
    pub worktree: WorktreeTemplate,
}

/// A new worktree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewWorktree {
    /// Its paths.
    #[serde(rename = "place")]
    pub session_repo: SessionRepo,
    /// The registration in the repository (`.git/worktrees/<name>`).
    pub admin_dir: PathBuf,
    /// Untracked files that were copied because `.worktreeinclude` names them, as relative paths.
    pub included: Vec<PathBuf>,
}

impl WorktreeSpec {
    /// Returns the paths; creates nothing.
    pub fn session_repo(&self, repository: &Repository) -> Result<SessionRepo> {
        Ok(SessionRepo {
            id: self.id.clone(),
            worktree: self.worktree.worktree(repository, &self.id),
            git_dir: repository.session_dir(&self.id).join("git"),
            branch: self.branch.branch(&self.id)?,
            base: self.base.commit.clone(),
        })
    }
}

/// Creates a session's worktree. If a step fails, everything before it is removed; a crash leaves
/// an incomplete worktree, which [`remove_incomplete`] removes.
pub fn create(repository: &Repository, spec: &WorktreeSpec) -> Result<NewWorktree> {
    create_at(repository, &spec.session_repo(repository)?, &spec.branch, None)
}

/// Like [`create`], with given paths, and with uncommitted work to start with.
pub fn create_at(
    repository: &Repository,
    session_repo: &SessionRepo,
    branches: &BranchTemplate,
    start: Option<&StartPoint>,
) -> Result<NewWorktree> {
    let session_repo = session_repo.clone();
    let marker = finished_marker(&session_repo);
    if marker.exists() || session_repo.git_dir.exists() {
        return Err(Failure::refused(format!(
            "session `{}` already has a worktree",
            session_repo.id
        ))
        .because(session_repo.worktree.display().to_string())
        .hint("studio list"));
    }
    let originals = Originals::for_session_repo(repository, &session_repo)?;
    let (admin_dir, claimed) = register(repository, &session_repo, &originals, Prepared::Used)?;
    let files = (start, claimed.as_ref());
    match populate(repository, branches, &session_repo, &originals, files) {
        Ok(included) => Ok(NewWorktree { session_repo, admin_dir, included }),
        Err(failure) => {
            remove_incomplete(repository, &session_repo)?;
            Err(failure)
        }
    }
}

/// Creates a session's branch and private git directory without a worktree, for work that comes from
/// another machine: the worktree counts as deleted, and is recreated when it is needed.
pub(crate) fn create_without_files(
    repository: &Repository,
    session_repo: &SessionRepo,
    branches: &BranchTemplate,
) -> Result<()> {
    if is_finished(session_repo) {
        return Ok(());
    }
    remove_incomplete(repository, session_repo)?;
    let originals = Originals::for_session_repo(repository, session_repo)?;
    let create = || -> Result<()> {
        register(repository, session_repo, &originals, Prepared::Unused)?;
        let private = session_repo::create(repository, session_repo, &originals, branches)?;
        step("create.private");
        keepalive_refs::pin_start(repository, session_repo, &private.tips)?;
        step("create.pinned");
        private.originals.wait().or_fail(cannot_make)?;
        finish(repository, session_repo)?;
        remove_dir(&session_repo.worktree)
    };
    create().inspect_err(|_| {
        let _ = remove_incomplete(repository, session_repo);
    })
}

/// Removes the remains of an interrupted [`create`]. Refuses a finished worktree: that is discarded
/// by an operation, which can be undone.
pub fn remove_incomplete(repository: &Repository, session_repo: &SessionRepo) -> Result<()> {
    let _lock = lock(repository)?;
    if finished_marker(session_repo).exists() {
        return Err(Failure::refused(format!("the worktree of `{}` is in use", session_repo.id))
            .hint(format!("studio discard {}", session_repo.id)));
    }
    let admin_dir = admin_dir_of(repository, &session_repo.worktree)?;
    if admin_dir.is_some() || session_repo.git_dir.exists() {
        remove_dir(&session_repo.worktree)?;
    }
    remove_dir(&session_repo.git_dir)?;
    if let Some(admin_dir) = admin_dir {
        remove_dir(&admin_dir)?;
    }
    let repo = repository.open()?;
    let deletion = |name: String| -> Result<Option<RefChange>> {
        let current = refs::read(&repo, &name)?;
        Ok(current.map(|commit| RefChange::new(name, Some(commit), None)))
    };
    let mut changes = Vec::new();
    changes.extend(deletion(keepalive_refs::ref_name(&session_repo.id))?);
    if refs::read(&repo, &session_repo.branch.full())?.is_some_and(|tip| tip == session_repo.base) {
        changes.extend(deletion(session_repo.branch.full())?);
    }
    refs::update_or_fail(repository, &changes, "studio: undo a half-made worktree")
}

/// Returns whether a worktree was finished: from then on it may contain work.
pub fn is_finished(session_repo: &SessionRepo) -> bool {
    finished_marker(session_repo).exists()
}

/// Takes the lock for registrations, which is held for milliseconds.
pub(crate) fn lock(repository: &Repository) -> Result<Lock> {
    let path = repository.studio_dir()?.join("lock");
    Lock::take(&path).or_fail(|| format!("cannot lock {}", path.display()))
}

/// Returns the registration of a worktree: the `.git/worktrees/<name>` that names it.
pub fn admin_dir_of(repository: &Repository, worktree: &Path) -> Result<Option<PathBuf>> {
    let pointer = worktree.join(".git");
    for admin_dir in admin_dirs(repository)? {
        let recorded = std::fs::read_to_string(admin_dir.join("gitdir")).unwrap_or_default();
        if Path::new(recorded.trim_end_matches('\n')) == pointer {
            return Ok(Some(admin_dir));
        }
    }
    Ok(None)
}

/// Removes the registration of a session's worktree.
pub(crate) fn unregister(repository: &Repository, session_repo: &SessionRepo) -> Result<()> {
    let _lock = lock(repository)?;
    match registration_of(repository, session_repo)? {
        Some(admin_dir) => remove_dir(&admin_dir),
        None => Ok(()),
    }
}

/// Returns the registration of a session: the one that names its worktree, else, after a move, the
/// one on its branch whose worktree does not point back.
pub(crate) fn registration_of(
    repository: &Repository,
    session_repo: &SessionRepo,
) -> Result<Option<PathBuf>> {
    if let Some(admin_dir) = admin_dir_of(repository, &session_repo.worktree)? {
        return Ok(Some(admin_dir));
    }
    let is_on_branch = |admin_dir: &PathBuf| checkout::is_head_on(admin_dir, &session_repo.branch);
    let mut candidates = admin_dirs(repository)?.into_iter();
    Ok(candidates.find(|admin_dir| is_on_branch(admin_dir) && !is_linked(admin_dir)))
}

/// Returns whether the worktree that a registration names points back to it, as a user's own does.
fn is_linked(admin_dir: &Path) -> bool {
    pointer_target(admin_dir)
        .is_some_and(|target| admin_dir.canonicalize().is_ok_and(|canonical| canonical == target))
}

/// Returns the worktree that a registration names; its path is relative since git 2.48, if the user
/// configured that.
pub fn worktree_of(admin_dir: &Path) -> PathBuf {
    let recorded = std::fs::read(admin_dir.join("gitdir")).unwrap_or_default();
    let pointer = admin_dir.join(OsStr::from_bytes(recorded.trim_ascii_end()));
    pointer.parent().unwrap_or(admin_dir).to_owned()
}

/// Returns the target of the `.git` file in the worktree that a registration names: the
/// registration, for a user's worktree; a private directory, for a session's, of this repository
/// or, in a copy, of the original.
pub(crate) fn pointer_target(admin_dir: &Path) -> Option<PathBuf> {
    let worktree = worktree_of(admin_dir);
    let text = pointer_in(&worktree)?;
    let target = text.trim_ascii_end().strip_prefix(b"gitdir: ")?;
    worktree.join(OsStr::from_bytes(target)).canonicalize().ok()
}

/// Returns the content of a worktree's `.git` file, which an agent may have replaced; `None` if it
/// is not a small regular file.
pub(crate) fn pointer_in(worktree: &Path) -> Option<Vec<u8>> {
    read_file(&worktree.join(".git"), MAX_POINTER_BYTES).ok().flatten()
}

/// Returns all registrations.
pub fn admin_dirs(repository: &Repository) -> Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(repository.common_dir.join("worktrees")) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(Failure::failed("cannot list the worktrees").because(e)),
    };
    let mut directories: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    directories.sort();
    Ok(directories)
}

fn finished_marker(session_repo: &SessionRepo) -> PathBuf {
    session_repo.git_dir.parent().unwrap_or(&session_repo.git_dir).join("originals/finished")
}

/// Whether a prepared worktree is used.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Prepared {
    Used,
    Unused,
}

/// Creates the branch and the registration, which is serialized.
fn register(
    repository: &Repository,
    session_repo: &SessionRepo,
    originals: &Originals,
    prepared: Prepared,
) -> Result<(PathBuf, Option<Claimed>)> {
    let parent = session_repo.worktree.parent().unwrap_or(&session_repo.worktree).to_owned();
    refuse_symlink(&parent)?;
    // The disk takes a few milliseconds, in which the branch is created.
    let registration = NewRegistration::write(repository, session_repo)?;
    let _lock = lock(repository)?;
    exclude(repository, session_repo)?;
    std::fs::DirBuilder::new().recursive(true).mode(0o755).create(&parent).or_fail(cannot_make)?;
    let canonical = parent.canonicalize().or_fail(cannot_make)?;
    if names::is_for_worktrees(repository, &parent) && canonical != parent {
        return Err(not_a_directory(&parent));
    }
    let repo = repository.open()?;
    refuse_blocked_branch(&repo, session_repo)?;
    refuse_occupied(&session_repo.worktree)?;
    let branch = RefChange::new(session_repo.branch.full(), None, Some(session_repo.base.clone()));
    refs::update_or_fail(repository, &[branch], "studio: start a session")?;
    step("create.branch");
    let result = register_directory(repository, session_repo, originals, registration, prepared);
    if result.is_err() {
        let undo =
            RefChange::new(session_repo.branch.full(), Some(session_repo.base.clone()), None);
        refs::update_or_fail(repository, &[undo], "studio: undo a half-made worktree")?;
    }
    step("create.registered");
    result
}

/// Refuses (3) a path at which something exists, except an empty directory.
fn refuse_occupied(worktree: &Path) -> Result<()> {
    let is_empty = |mut entries: std::fs::ReadDir| entries.next().is_none();
    match worktree.symlink_metadata() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Ok(metadata) if metadata.is_dir() && std::fs::read_dir(worktree).is_ok_and(is_empty) => {
            Ok(())
        }
        Ok(_) | Err(_) => Err(Failure::refused(format!("{} exists", worktree.display()))
            .because("the worktree of a session would be there")
            .hint("move it away, or set `[studio] worktree`")),
    }
}

/// Creates the directory with its `.git` file, then the registration, as `git worktree add
/// --no-checkout` does: git prunes a registration whose worktree does not exist. The private
/// directory comes first, because it shows that an incomplete worktree is studio's.
fn register_directory(
    repository: &Repository,
    session_repo: &SessionRepo,
    originals: &Originals,
    registration: NewRegistration,
    prepared: Prepared,
) -> Result<(PathBuf, Option<Claimed>)> {
    let worktree = &session_repo.worktree;
    let mut claimed = None;
    let mut create = || -> std::io::Result<()> {
        std::fs::create_dir_all(&session_repo.git_dir)?;
        // Prepared worktrees have all files.
        if originals.sparse.is_none() && prepared == Prepared::Used {
            claimed = pool::claim(repository, session_repo);
        }
        std::fs::create_dir_all(worktree)?;
        std::fs::write(worktree.join(".git"), &originals.pointer)?;
        std::fs::set_permissions(worktree.join(".git"), std::fs::Permissions::from_mode(0o644))
    };
    let registered = create().or_fail(cannot_make).and_then(|()| {
        let admin_dir = free_admin_dir(repository, &session_repo.id);
        registration
            .publish(&admin_dir)
            .or_fail(|| cannot_register(session_repo))
            .map(|()| admin_dir)
    });
    if registered.is_err() {
        let _ = std::fs::remove_file(worktree.join(".git"));
        match &claimed {
            Some(_) => remove_dir(worktree)?,
            None => drop(std::fs::remove_dir(worktree)),
        }
        remove_dir(&session_repo.git_dir)?;
    }
    registered.map(|admin_dir| (admin_dir, claimed))
}

/// Creates the git directory, the `.git` file and the files, in parallel with other sessions.
fn populate(
    repository: &Repository,
    branches: &BranchTemplate,
    session_repo: &SessionRepo,
    originals: &Originals,
    (start, claimed): (Option<&StartPoint>, Option<&Claimed>),
) -> Result<Vec<PathBuf>> {
    let _keep_alive = filters::keep_alive();
    let private = session_repo::create(repository, session_repo, originals, branches)?;
    step("create.private");
    keepalive_refs::pin_start(repository, session_repo, &private.tips)?;
    step("create.pinned");
    match claimed {
        Some(claimed) => check_out_from(repository, session_repo, &claimed.commit)?,
        None => check_out(repository, session_repo, &session_repo.base)?,
    }
    if let Some(start) = start {
        start_point::check_out(session_repo, start)?;
    }
    submodules::populate(repository, session_repo)?;
    step("create.files");
    let included = match &repository.main_checkout {
        Some(checkout) => worktreeinclude::copy(checkout, &session_repo.worktree)?.copied,
        None => Vec::new(),
    };
    worktreeinclude::ignore(session_repo, &included)?;
    private.originals.wait().or_fail(cannot_make)?;
    finish(repository, session_repo)?;
    step("create.finished");
    Ok(included)
}

/// Marks the worktree as finished, unless another process, which has lost the session's lock as well,
/// has removed it as incomplete.
fn finish(repository: &Repository, session_repo: &SessionRepo) -> Result<()> {
    let _lock = lock(repository)?;
    if !session_repo.git_dir.join("HEAD").exists() || !session_repo.worktree.join(".git").exists() {
        return Err(Failure::failed(cannot_make())
            .because(format!("another process removed {}", session_repo.worktree.display())));
    }
    // It has no content to make durable. Its name becomes durable while the agent starts.
    let marker = finished_marker(session_repo);
    base::files::replace_cache(&marker, b"").or_fail(cannot_make)?;
    if let Some(originals) = marker.parent() {
        drop(base::files::start_sync_dir(originals.to_owned()));
    }
    Ok(())
}

/// Writes a commit's files and the index through the private directory. Attributes apply (line
/// endings), drivers do not run.
pub(crate) fn check_out(
    repository: &Repository,
    session_repo: &SessionRepo,
    commit: &str,
) -> Result<()> {
    let patterns = SparsePatterns::of_checkout(&session_repo.git_dir)?;
    partial_clone::fetch_checkout(repository, commit, patterns.as_ref())?;
    let target = WriteTarget {
        git_dir: &session_repo.git_dir,
        worktree: &session_repo.worktree,
        index: &session_repo.git_dir.join("index"),
    };
    if parallel_checkout::write(repository, &target, commit)? != WriteResult::Written {
        reset(session_repo, commit)?;
    }
    filters::smudge_files(target.git_dir, target.worktree, target.index)
}

/// Writes the files of a session's base that differ from a commit with the same attributes, whose files
/// and index are there.
fn check_out_from(repository: &Repository, session_repo: &SessionRepo, commit: &str) -> Result<()> {
    if commit == session_repo.base {
        return Ok(());
    }
    let changes = checkout::changes(&*repository.open()?, commit, &session_repo.base)?;
    let changed: BTreeSet<&Path> = changes.iter().map(|change| change.path.as_path()).collect();
    reset(session_repo, &session_repo.base)?;
    let (git_dir, worktree) = (&session_repo.git_dir, &session_repo.worktree);
    filters::smudge_selected_files(git_dir, worktree, &git_dir.join("index"), |path| {
        changed.contains(path)
    })
}

/// Writes the files of a commit that are missing or different, with git.
fn reset(session_repo: &SessionRepo, commit: &str) -> Result<()> {
    let git = Git::at(&session_repo.git_dir).with_work_tree(&session_repo.worktree);
    let workers = std::thread::available_parallelism().map_or(2, usize::from);
    let workers = format!("checkout.workers={workers}");
    let args = ["-c", &workers, "-c", "checkout.thresholdForParallelism=0"];
    let args = args.into_iter().chain(["reset", "-q", "--hard", commit]);
    let output =
        git.command(args).output(OutputLimits::seconds(3600)).or_fail(|| "cannot start git")?;
    if output.ok() {
        return Ok(());
    }
    Err(Failure::failed(format!("cannot check files out into {}", session_repo.worktree.display()))
        .because(output.error_text())
        .hint("check the disk space (`df .`), then try again"))
}

/// Adds g3's files, and worktrees in the main checkout, to `info/exclude` without touching the
/// user's `.gitignore`.
fn exclude(repository: &Repository, session_repo: &SessionRepo) -> Result<()> {
    let path = repository.common_dir.join("info/exclude");
    let mut text = std::fs::read(&path).unwrap_or_default();
    let lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
    let mut patterns: Vec<String> = checkout_patterns(repository, &session_repo.worktree);
    patterns.extend(EXCLUDE_PATTERNS.iter().map(|line| (*line).to_owned()));
    let missing: Vec<String> =
        patterns.into_iter().filter(|line| !lines.contains(&line.as_bytes())).collect();
    if missing.is_empty() {
        return Ok(());
    }
    if text.last().is_some_and(|last| *last != b'\n') {
        text.push(b'\n');
    }
    for line in missing {
        text.extend_from_slice(line.as_bytes());
        text.push(b'\n');
    }
    let write = || -> std::io::Result<()> {
        std::fs::create_dir_all(repository.common_dir.join("info"))?;
        base::files::replace_with_mode(&path, &text, 0o644)
    };
    write().or_fail(|| format!("cannot write {}", path.display()))
}

/// Returns the patterns that hide a worktree in the main checkout from the user's `git status`;
/// none for a worktree outside.
fn checkout_patterns(repository: &Repository, worktree: &Path) -> Vec<String> {
    let checkout = repository.main_checkout.as_deref();
    let Some(path) = checkout.and_then(|checkout| worktree.strip_prefix(checkout).ok()) else {
        return Vec::new();
    };
    match path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        Some(parent) if parent == Path::new(".worktrees") => vec![".worktrees/".to_owned()],
        Some(parent) => vec![format!("/{}/", parent.display())],
        None => vec![format!("/{}/", path.display()), "/.studio-trash/".to_owned()],
    }
}

/// Refuses (3) a studio directory whose path is a symlink or a file: a commit of the repository may
/// contain one, and files would be written to another location.
pub(crate) fn refuse_symlink(parent: &Path) -> Result<()> {
    match parent.symlink_metadata() {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        Ok(_) => Err(not_a_directory(parent)),
        Err(_) => Ok(()),
    }
}

fn not_a_directory(parent: &Path) -> Failure {
    Failure::refused(format!("{} is not a directory of this repository", parent.display()))
        .because("it is a file or a symlink; worktrees would be written somewhere else")
        .hint(format!("remove it, or set `[studio] worktree`; see: ls -ld '{}'", parent.display()))
}

/// Refuses (2) a branch name that git cannot create: a branch named `studio` blocks `studio/<id>`.
pub fn refuse_blocked_branch(repo: &git2::Repository, session_repo: &SessionRepo) -> Result<()> {
    let full = session_repo.branch.full();
    let parents = full.match_indices('/').map(|(index, _)| &full[..index]);
    for name in parents.filter(|name| name.len() > "refs/heads/".len()) {
        if refs::read(repo, name)?.is_some() {
            let short_name = name.trim_start_matches("refs/heads/");
            return Err(Failure::usage(format!(
                "the branch `{short_name}` blocks `{}`",
                session_repo.branch
            ))
            .because("git cannot have a branch and branches below its name")
            .hint(format!("git branch -m {short_name} {short_name}-old"))
            .hint("or set `[studio] branch`, e.g. to \"agents/{id}\""));
        }
    }
    Ok(())
}

pub(crate) fn remove_dir(path: &Path) -> Result<()> {
    match std::fs::remove_dir_all(path) {
        Ok(()) => Ok(()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(Failure::failed(format!("cannot remove {}", path.display())).because(e)),
    }
}

fn cannot_make() -> &'static str {
    "cannot make the worktree"
}

/// Returns an unused name for a registration, generated as git does: the id, then digits.
pub(crate) fn free_admin_dir(repository: &Repository, id: &Id) -> PathBuf {
    let dir = repository.common_dir.join("worktrees");
    let names = std::iter::once(id.to_string()).chain((1..).map(|n| format!("{id}{n}")));
    let mut free_names = names.map(|name| dir.join(name)).filter(|path| !path.exists());
    free_names.next().expect("numbers do not end")
}

/// A registration that git does not read yet: it rejects a repository with an incomplete one.
struct NewRegistration {
    directory: TempDir,
    files: PendingSync,
}

impl NewRegistration {
    /// Writes the files beside the registrations, not among them, because git reads every entry there.
    fn write(repository: &Repository, session_repo: &SessionRepo) -> Result<NewRegistration> {
        let studio_dir = repository.studio_dir()?;
        let write = || -> std::io::Result<NewRegistration> {
            let directory = tempfile::Builder::new().prefix(".new-").tempdir_in(studio_dir)?;
            let files = registration_files(repository, session_repo);
            let files = files.each_ref().map(|(name, text)| (*name, text.as_bytes()));
            let files = base::files::write_new(directory.path(), &files, 0o644)?.start_sync();
            std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755))?;
            Ok(NewRegistration { directory, files })
        };
        let written = write().or_fail(|| cannot_register(session_repo))?;
        write_head_table(repository, written.directory.path(), session_repo)?;
        Ok(written)
    }

    /// Makes it appear, durable and complete.
    fn publish(self, admin_dir: &Path) -> std::io::Result<()> {
        self.files.wait()?;
        std::fs::create_dir_all(admin_dir.parent().unwrap_or(admin_dir))?;
        std::fs::rename(self.directory.path(), admin_dir)
    }
}

/// Writes a registration; one that exists is replaced.
pub(crate) fn write_registration(
    repository: &Repository,
    admin_dir: &Path,
    session_repo: &SessionRepo,
) -> Result<()> {
    let written = if admin_dir.exists() {
        write_head_table(repository, admin_dir, session_repo)?;
        registration_files(repository, session_repo).iter().try_for_each(|(name, text)| {
            base::files::replace_with_mode(&admin_dir.join(name), text.as_bytes(), 0o644)
        })
    } else {
        NewRegistration::write(repository, session_repo)?.publish(admin_dir)
    };
    written.or_fail(|| cannot_register(session_repo))
}

/// Returns the files of a registration, as git writes them: branch, repository and worktree.
fn registration_files(
    repository: &Repository,
    session_repo: &SessionRepo,
) -> [(&'static str, String); 3] {
    let pointer = session_repo.worktree.join(".git");
    let head = match reftable::is_used(&repository.common_dir) {
        true => reftable::HEAD_ELSEWHERE.to_owned(),
        false => session_repo.branch.full(),
    };
    [
        ("HEAD", format!("ref: {head}\n")),
        ("commondir", "../..\n".to_owned()),
        ("gitdir", format!("{}\n", pointer.display())),
    ]
}

/// Writes the branch of a registration where the repository's refs are in tables.
fn write_head_table(
    repository: &Repository,
    admin_dir: &Path,
    session_repo: &SessionRepo,
) -> Result<()> {
    if !reftable::is_used(&repository.common_dir) {
        return Ok(());
    }
    let fail = || cannot_register(session_repo);
    reftable::prepare(admin_dir).or_fail(fail)?;
    let args = ["-c", "core.fsync=committed", "symbolic-ref", "HEAD", &session_repo.branch.full()];
    let output =
        Git::at(admin_dir).command(args).output(OutputLimits::seconds(60)).or_fail(fail)?;
    match output.ok() {
        true => Ok(()),
        false => Err(Failure::failed(fail()).because(output.error_text())),
    }
}

fn cannot_register(session_repo: &SessionRepo) -> String {
    format!("cannot register {}", session_repo.worktree.display())
}
