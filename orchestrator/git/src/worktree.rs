//! Creates a session's worktree: registered with the repository, with its own git directory, files
//! checked out. Only the registration is serialized.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use base::failure::{Failure, OrFail, Result};
use base::files::step;
use base::git::Git;
use base::id::Id;
use base::lock::Lock;
use base::process::OutputLimits;
use serde::{Deserialize, Serialize};

use crate::names::{self, BranchTemplate, WorktreeTemplate};
use crate::refs::{self, RefChange};
use crate::repo::{Base, Repository};
use crate::safe_open::read_file;
use crate::session_repo::{self, Originals, SessionRepo};
use crate::{keepalive_refs, worktreeinclude};

/// Maximum size of a `.git` file that is read, in bytes: one line with a path.
const POINTER_BYTES: u64 = 8192;

/// The lines that studio adds to the repository's `info/exclude`, wherever worktrees are.
const EXCLUDED: &[&str] = &[".g3/*", "!.g3/skills/"];

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
    pub place: SessionRepo,
    /// The registration in the repository (`.git/worktrees/<name>`).
    pub admin_dir: PathBuf,
    /// Untracked files that were copied because `.worktreeinclude` names them, as relative paths.
    pub included: Vec<PathBuf>,
}

impl WorktreeSpec {
    /// Returns the paths; creates nothing.
    pub fn place(&self, repository: &Repository) -> Result<SessionRepo> {
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
/// an incomplete worktree, which [`unmake`] removes.
pub fn make(repository: &Repository, order: &WorktreeSpec) -> Result<NewWorktree> {
    make_at(repository, &order.place(repository)?, &order.branch)
}

/// Like [`make`], with given paths.
pub fn make_at(
    repository: &Repository,
    place: &SessionRepo,
    branches: &BranchTemplate,
) -> Result<NewWorktree> {
    let place = place.clone();
    let finished = finished_mark(&place);
    if finished.exists() || place.git_dir.exists() {
        return Err(Failure::refused(format!("session `{}` already has a worktree", place.id))
            .because(place.worktree.display().to_string())
            .hint("studio list"));
    }
    let admin_dir = register(repository, &place)?;
    match equip(repository, branches, &place) {
        Ok(included) => Ok(NewWorktree { place, admin_dir, included }),
        Err(failure) => {
            unmake(repository, &place)?;
            Err(failure)
        }
    }
}

/// Removes the remains of an interrupted [`make`]. Refuses a finished worktree: that is discarded
/// by an operation, which can be undone.
pub fn unmake(repository: &Repository, place: &SessionRepo) -> Result<()> {
    if finished_mark(place).exists() {
        return Err(Failure::refused(format!("the worktree of `{}` is in use", place.id))
            .hint(format!("studio discard {}", place.id)));
    }
    let _lock = lock(repository)?;
    let admin = admin_dir_of(repository, &place.worktree)?;
    if admin.is_some() || place.git_dir.exists() {
        remove_dir(&place.worktree)?;
    }
    remove_dir(&place.git_dir)?;
    if let Some(admin) = admin {
        remove_dir(&admin)?;
    }
    let repo = repository.open()?;
    let drop = |name: String| -> Result<Option<RefChange>> {
        let held = refs::read(&repo, &name)?;
        Ok(held.map(|held| RefChange::new(name, Some(held), None)))
    };
    let mut changes = Vec::new();
    changes.extend(drop(keepalive_refs::name(&place.id))?);
    if refs::read(&repo, &place.branch.full())?.is_some_and(|tip| tip == place.base) {
        changes.extend(drop(place.branch.full())?);
    }
    refs::update_own(repository, &changes, "studio: undo a half-made worktree")
}

/// Returns whether a worktree was finished: from then on it may contain work.
pub fn is_finished(place: &SessionRepo) -> bool {
    finished_mark(place).exists()
}

/// Takes the lock for registrations, which is held for milliseconds.
pub(crate) fn lock(repository: &Repository) -> Result<Lock> {
    let path = repository.studio_dir()?.join("lock");
    Lock::take(&path).or_fail(|| format!("cannot lock {}", path.display()))
}

/// Returns the registration of a worktree: the `.git/worktrees/<name>` that names it.
pub fn admin_dir_of(repository: &Repository, worktree: &Path) -> Result<Option<PathBuf>> {
    let wanted = worktree.join(".git");
    for admin in admin_dirs(repository)? {
        let named = std::fs::read_to_string(admin.join("gitdir")).unwrap_or_default();
        if Path::new(named.trim_end_matches('\n')) == wanted {
            return Ok(Some(admin));
        }
    }
    Ok(None)
}

/// Returns the registration of a session: the one that names its worktree, else, after a move, the
/// one on its branch whose worktree does not point back.
pub(crate) fn registration_of(
    repository: &Repository,
    place: &SessionRepo,
) -> Result<Option<PathBuf>> {
    if let Some(admin) = admin_dir_of(repository, &place.worktree)? {
        return Ok(Some(admin));
    }
    let wanted = format!("ref: {}", place.branch.full());
    let on_branch = |admin: &PathBuf| {
        std::fs::read_to_string(admin.join("HEAD")).is_ok_and(|head| head.trim() == wanted)
    };
    let mut found = admin_dirs(repository)?.into_iter();
    Ok(found.find(|admin| on_branch(admin) && !is_lived_in(admin)))
}

/// Returns whether the worktree that a registration names points back to it, as a user's own does.
fn is_lived_in(admin: &Path) -> bool {
    leads_to(admin).is_some_and(|target| admin.canonicalize().is_ok_and(|own| own == target))
}

/// Returns the worktree that a registration names; its path is relative since git 2.48, if the user
/// configured that.
pub fn named_by(admin: &Path) -> PathBuf {
    let named = std::fs::read(admin.join("gitdir")).unwrap_or_default();
    let pointer = admin.join(OsStr::from_bytes(named.trim_ascii_end()));
    pointer.parent().unwrap_or(admin).to_owned()
}

/// Returns the target of the `.git` file in the worktree that a registration names: the
/// registration, for a user's worktree; a private directory, for a session's, of this repository
/// or, in a copy, of the original.
pub(crate) fn leads_to(admin: &Path) -> Option<PathBuf> {
    let worktree = named_by(admin);
    let text = pointer_in(&worktree)?;
    let target = text.trim_ascii_end().strip_prefix(b"gitdir: ")?;
    worktree.join(OsStr::from_bytes(target)).canonicalize().ok()
}

/// Returns the content of a worktree's `.git` file, which an agent may have replaced; `None` if it
/// is not a small regular file.
pub(crate) fn pointer_in(worktree: &Path) -> Option<Vec<u8>> {
    read_file(&worktree.join(".git"), POINTER_BYTES).ok().flatten()
}

/// Returns all registrations.
pub fn admin_dirs(repository: &Repository) -> Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(repository.common_dir.join("worktrees")) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(Failure::failed("cannot list the worktrees").because(e)),
    };
    let mut found: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    found.sort();
    Ok(found)
}

fn finished_mark(place: &SessionRepo) -> PathBuf {
    place.git_dir.parent().unwrap_or(&place.git_dir).join("originals/finished")
}

/// Creates the branch and the registration, which is serialized.
fn register(repository: &Repository, place: &SessionRepo) -> Result<PathBuf> {
    let parent = place.worktree.parent().unwrap_or(&place.worktree).to_owned();
    refuse_symlink(&parent)?;
    let _lock = lock(repository)?;
    exclude(repository, place)?;
    std::fs::DirBuilder::new().recursive(true).mode(0o755).create(&parent).or_fail(cannot_make)?;
    let real = parent.canonicalize().or_fail(cannot_make)?;
    if names::is_for_worktrees(repository, &parent) && real != parent {
        return Err(leads_away(&parent));
    }
    let repo = repository.open()?;
    refuse_blocked_branch(&repo, place)?;
    let branch = RefChange::new(place.branch.full(), None, Some(place.base.clone()));
    refs::update_own(repository, &[branch], "studio: start a session")?;
    step("create.branch");
    let added = repository.door().run(&[
        "-c".as_ref(),
        "worktree.useRelativePaths=false".as_ref(),
        "worktree".as_ref(),
        "add".as_ref(),
        "--no-checkout".as_ref(),
        place.worktree.as_os_str(),
        place.branch.as_str().as_ref(),
    ]);
    if let Err(why) = added {
        let undo = RefChange::new(place.branch.full(), Some(place.base.clone()), None);
        refs::update_own(repository, &[undo], "studio: undo a half-made worktree")?;
        return Err(Failure::failed("git cannot register the worktree").because(why));
    }
    step("create.registered");
    let admin = admin_dir_of(repository, &place.worktree)?
        .ok_or_else(|| Failure::failed("cannot find the worktree that git registered"))?;
    let _ = std::fs::remove_file(admin.join("index"));
    let _ = std::fs::remove_dir_all(admin.join("logs"));
    Ok(admin)
}

/// Creates the git directory, the `.git` file and the files, in parallel with other sessions.
fn equip(
    repository: &Repository,
    branches: &BranchTemplate,
    place: &SessionRepo,
) -> Result<Vec<PathBuf>> {
    let originals = Originals::for_place(repository, place)?;
    let tips = session_repo::make(repository, place, &originals, branches)?;
    step("create.private");
    keepalive_refs::start(repository, place, &tips)?;
    step("create.pinned");
    base::files::replace_with_mode(&place.worktree.join(".git"), &originals.pointer, 0o644)
        .or_fail(cannot_make)?;
    step("create.pointer");
    check_out(place, "HEAD")?;
    step("create.files");
    let included = match &repository.main_checkout {
        Some(checkout) => worktreeinclude::copy(checkout, &place.worktree)?.copied,
        None => Vec::new(),
    };
    worktreeinclude::ignore(place, &included)?;
    base::files::replace(&finished_mark(place), b"").or_fail(cannot_make)?;
    step("create.finished");
    Ok(included)
}

/// Writes a commit's files and the index through the private directory. Attributes apply (line
/// endings), drivers do not run.
pub(crate) fn check_out(place: &SessionRepo, commit: &str) -> Result<()> {
    let door = Git::at(&place.git_dir).with_work_tree(&place.worktree);
    let workers = std::thread::available_parallelism().map_or(2, usize::from);
    let workers = format!("checkout.workers={workers}");
    let args = ["-c", &workers, "-c", "checkout.thresholdForParallelism=0"];
    let args = args.into_iter().chain(["reset", "-q", "--hard", commit]);
    let output =
        door.job(args).output(OutputLimits::seconds(3600)).or_fail(|| "cannot start git")?;
    if output.ok() {
        return Ok(());
    }
    Err(Failure::failed(format!("cannot check files out into {}", place.worktree.display()))
        .because(output.error_text())
        .hint("check the disk space (`df .`), then try again"))
}

/// Adds g3's files, and worktrees in the main checkout, to `info/exclude` without touching the
/// user's `.gitignore`.
fn exclude(repository: &Repository, place: &SessionRepo) -> Result<()> {
    let path = repository.common_dir.join("info/exclude");
    let mut text = std::fs::read(&path).unwrap_or_default();
    let lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
    let mut wanted: Vec<String> = inside(repository, &place.worktree);
    wanted.extend(EXCLUDED.iter().map(|line| (*line).to_owned()));
    let missing: Vec<String> =
        wanted.into_iter().filter(|line| !lines.contains(&line.as_bytes())).collect();
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
fn inside(repository: &Repository, worktree: &Path) -> Vec<String> {
    let checkout = repository.main_checkout.as_deref();
    let Some(path) = checkout.and_then(|top| worktree.strip_prefix(top).ok()) else {
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
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(leads_away(parent)),
        Err(_) => Ok(()),
    }
}

fn leads_away(parent: &Path) -> Failure {
    Failure::refused(format!("{} is not a directory of this repository", parent.display()))
        .because("it is a file or a symlink; worktrees would be written somewhere else")
        .hint(format!("remove it, or set `[studio] worktree`; see: ls -ld '{}'", parent.display()))
}

/// Refuses (2) a branch name that git cannot create: a branch named `studio` blocks `studio/<id>`.
pub fn refuse_blocked_branch(repo: &git2::Repository, place: &SessionRepo) -> Result<()> {
    let full = place.branch.full();
    let above = full.match_indices('/').map(|(at, _)| &full[..at]);
    for name in above.filter(|name| name.len() > "refs/heads/".len()) {
        if refs::read(repo, name)?.is_some() {
            let short = name.trim_start_matches("refs/heads/");
            return Err(Failure::usage(format!("the branch `{short}` blocks `{}`", place.branch))
                .because("git cannot have a branch and branches below its name")
                .hint(format!("git branch -m {short} {short}-old"))
                .hint("or set `[studio] branch`, e.g. to \"agents/{id}\""));
        }
    }
    Ok(())
}

fn remove_dir(path: &Path) -> Result<()> {
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
    let mut free = names.map(|name| dir.join(name)).filter(|path| !path.exists());
    free.next().expect("numbers do not end")
}

/// Writes a registration as git does: branch, repository and worktree.
pub(crate) fn write_registration(admin: &Path, place: &SessionRepo) -> Result<()> {
    let write = || -> std::io::Result<()> {
        std::fs::create_dir_all(admin)?;
        std::fs::write(admin.join("HEAD"), format!("ref: {}\n", place.branch.full()))?;
        std::fs::write(admin.join("commondir"), "../..\n")?;
        let pointer = place.worktree.join(".git");
        std::fs::write(admin.join("gitdir"), format!("{}\n", pointer.display()))
    };
    write().or_fail(|| format!("cannot register {}", place.worktree.display()))
}
