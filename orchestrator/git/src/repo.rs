//! The repository: its discovery, whether studio supports it, and the base of a session.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Once;

use base::failure::{Failure, OrFail, Result};
use base::git::Git;
use base::git_version::{self, REFTABLE_VERSION};
use base::id::Id;
use serde::{Deserialize, Serialize};

use crate::handle;
use crate::names::BranchName;
use crate::partial_clone::{self, PartialClone};
use crate::refs;

/// The file with the path of a main checkout that is not discoverable otherwise.
const CHECKOUT_FILE: &str = "checkout";

/// A supported repository. Plain data: absolute paths with symlinks resolved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repository {
    /// The git common directory: objects, refs, and studio's data.
    pub common_dir: PathBuf,
    /// The user's main checkout; `None` for a bare repository.
    pub main_checkout: Option<PathBuf>,
    /// The git directory of the checkout in which the search started: its HEAD is the default base.
    #[serde(rename = "here")]
    pub checkout_git_dir: PathBuf,
    /// The session in whose worktree the search started.
    pub session: Option<Id>,
}

/// The base of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Base {
    /// The branch that work lands on by default; `None` for a detached base.
    pub branch: Option<BranchName>,
    /// The commit, as 40 or, in a SHA-256 repository, 64 hex digits.
    pub commit: String,
}

impl Repository {
    /// Discovers the repository of a directory: also from a subdirectory, a linked worktree, a bare
    /// repository, or a session's worktree (which belongs to its session's repository). Refuses
    /// unsupported repositories by name: exit code 5 if there is none, 2 if its kind is not
    /// supported.
    pub fn discover(from: &Path) -> Result<Repository> {
        // To ask git takes a process: the repository is read at the same time.
        let (version, found) = std::thread::scope(|scope| {
            let version = scope.spawn(base::git_version::detect);
            let found = Repository::find(from);
            (version.join(), found)
        });
        version.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        found
    }

    /// Like [`Repository::discover`], with any version of git.
    fn find(from: &Path) -> Result<Repository> {
        let git_dir = find_git_dir(from)?;
        let (git_dir, session) = match split_session_path(&git_dir) {
            Some((common_dir, id)) => (common_dir, Some(id)),
            None => (git_dir, None),
        };
        let common_dir = common_dir_of(&git_dir)?;
        if common_dir.to_str().is_none() {
            return Err(Failure::usage("the path of this repository is not UTF-8")
                .hint("rename the directory, or bind-mount it under another name"));
        }
        refuse_formats(&common_dir)?;
        let repo = open_owned(&common_dir)?;
        let main_checkout = main_checkout(&repo, &common_dir, &git_dir, from)?;
        if git_dir != common_dir {
            open_owned(&git_dir)?;
        }
        Ok(Repository { common_dir, main_checkout, checkout_git_dir: git_dir, session })
    }

    /// Returns the repository as seen from a directory of the user: another checkout of it; unchanged
    /// if the directory is not in one.
    pub fn seen_from(&self, directory: Option<&Path>) -> Repository {
        let discovered = directory.and_then(|directory| Repository::discover(directory).ok());
        let is_same = |found: &Repository| found.common_dir == self.common_dir;
        discovered.filter(is_same).unwrap_or_else(|| self.clone())
    }

    /// Returns the working tree of the checkout in which the search started; `None` for a bare
    /// repository.
    pub(crate) fn current_checkout(&self) -> Option<PathBuf> {
        if self.checkout_git_dir == self.common_dir {
            return self.main_checkout.clone();
        }
        let pointer = std::fs::read_to_string(self.checkout_git_dir.join("gitdir")).ok()?;
        self.checkout_git_dir.join(pointer.trim_end()).parent().map(Path::to_owned)
    }

    /// Opens the repository with libgit2, for objects and refs, with an empty index: libgit2 would
    /// read the user's index for every comparison, and cannot read every index. In an operation that
    /// keeps handles ([`handle::keep_open`]) the handle is shared: add nothing to it, see
    /// [`Repository::open_own`].
    pub fn open(&self) -> Result<Rc<git2::Repository>> {
        handle::get(&self.common_dir, || self.open_own())
    }

    /// Like [`Repository::open`], as a handle of the caller's own, which may get other objects.
    pub(crate) fn open_own(&self) -> Result<git2::Repository> {
        let repo = open_without_index(&self.common_dir)?;
        partial_clone::allow_missing_files(&repo)?;
        Ok(repo)
    }

    /// Like [`Repository::open`], for the checkout in which the search started.
    fn open_checkout(&self) -> Result<Rc<git2::Repository>> {
        handle::get(&self.checkout_git_dir, || open_without_index(&self.checkout_git_dir))
    }

    /// Returns a handle for running git, without a working tree.
    pub(crate) fn git(&self) -> Git {
        Git::at(&self.common_dir)
    }

    /// Returns the name of the repository: the name of its directory.
    pub fn name(&self) -> String {
        let dir = self.main_checkout.as_deref().unwrap_or(&self.common_dir);
        let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.strip_suffix(".git").map(str::to_owned).unwrap_or(name)
    }

    /// Returns the directory of studio's data; creates it if it is missing.
    pub fn studio_dir(&self) -> Result<PathBuf> {
        let dir = self.common_dir.join("studio");
        std::fs::create_dir_all(&dir).or_fail(|| {
            format!("cannot write in {}: is it read-only?", self.common_dir.display())
        })?;
        Ok(dir)
    }

    /// Records the path of the main checkout if the git directory does not imply it: supervisors
    /// have no other source.
    pub fn remember_checkout(&self) -> Result<()> {
        let Some(checkout) = &self.main_checkout else { return Ok(()) };
        if self.common_dir.parent() == Some(checkout) {
            return Ok(());
        }
        let path = self.studio_dir()?.join(CHECKOUT_FILE);
        base::files::replace(&path, checkout.as_os_str().as_bytes())
            .or_fail(|| format!("cannot write {}", path.display()))
    }

    /// Returns the directory of a session. Ids are safe as names.
    pub fn session_dir(&self, id: &Id) -> PathBuf {
        self.common_dir.join("studio/sessions").join(id.as_str())
    }

    /// Resolves the base of a session: the given branch, tag or commit, else HEAD of the checkout
    /// in which the search started. Exit code 5 for an unknown name, 3 for a repository without
    /// commits.
    pub fn base(&self, name: Option<&str>) -> Result<Base> {
        match name {
            Some(name) if name != "HEAD" => self.named_base(name),
            Some(_) | None => self.head(),
        }
    }

    fn head(&self) -> Result<Base> {
        let repo = self.open_checkout()?;
        let head = refs::head(&repo)?;
        let Some(id) = head.id else {
            return Err(no_commit(&head.name, !self.branches()?.is_empty()));
        };
        let object = repo.find_object(id, None).and_then(|object| object.peel_to_commit());
        let commit = object.or_fail(|| "HEAD is not a commit")?.id().to_string();
        let branch = head.name.strip_prefix("refs/heads/").map(BranchName::parse).transpose()?;
        Ok(Base { branch, commit })
    }

    fn named_base(&self, name: &str) -> Result<Base> {
        let repo = self.open_checkout()?;
        let short_name = name.strip_prefix("refs/heads/").unwrap_or(name);
        if let Ok(branch) = BranchName::parse(short_name)
            && let Some(id) = refs::read(&repo, &branch.full())?
        {
            let commit = repo.find_commit(refs::oid(&id)?);
            let commit = commit.or_fail(|| format!("cannot read {name}"))?.id().to_string();
            return Ok(Base { branch: Some(branch), commit });
        }
        match refs::find_commit(&repo, name) {
            Ok(commit) => Ok(Base { branch: None, commit: commit.id().to_string() }),
            Err(error) => {
                let printable_name = base::text::printable(name);
                let failure = Failure::not_found(format!(
                    "no such branch, tag or commit: `{printable_name}`"
                ))
                .hint("git branch --all");
                Err(match error.code() {
                    git2::ErrorCode::NotFound => failure,
                    _ => failure.because(error.message()),
                })
            }
        }
    }

    /// Returns the names of the local branches.
    pub fn branches(&self) -> Result<Vec<String>> {
        let prefix = "refs/heads/";
        let branches = refs::list(&*self.open()?, prefix)?.into_keys();
        Ok(branches.filter_map(|name| name.strip_prefix(prefix).map(str::to_owned)).collect())
    }

    /// Returns the tip of a branch; `None` if it does not exist.
    pub fn tip(&self, branch: &BranchName) -> Result<Option<String>> {
        refs::read(&*self.open()?, &branch.full())
    }
}

fn find_git_dir(from: &Path) -> Result<PathBuf> {
    let ceilings: [&Path; 0] = [];
    let git_dir = git2::Repository::discover_path(from, ceilings).map_err(|error| {
        let failure = Failure::not_found(format!("{} is not in a git repository", from.display()));
        match error.code() {
            git2::ErrorCode::NotFound if std::env::var_os("GIT_DIR").is_some() => {
                failure.because("studio does not read GIT_DIR")
            }
            git2::ErrorCode::NotFound => failure,
            _ => failure.because(error.message()),
        }
        .hint("git init && git commit --allow-empty -m start")
        .hint("studio -C DIR …")
        .hint("studio list --all-repositories    lists the sessions of all repositories")
    })?;
    canonical(&git_dir)
}

/// Splits `<common>/studio/sessions/<id>/git` into the common directory and the id.
fn split_session_path(git_dir: &Path) -> Option<(PathBuf, Id)> {
    let session = git_dir.strip_prefix(git_dir.ancestors().nth(4)?).ok()?;
    let mut parts = session.iter().map(|part| part.to_str());
    let (studio, sessions) = (parts.next()??, parts.next()??);
    let (id, git) = (parts.next()??, parts.next()??);
    let is_session_path = studio == "studio" && sessions == "sessions" && git == "git";
    let common_dir = git_dir.ancestors().nth(4)?;
    let is_repository = common_dir.join("HEAD").exists() && common_dir.join("objects").is_dir();
    (is_session_path && is_repository).then_some((common_dir.to_owned(), Id::parse(id).ok()?))
}

fn common_dir_of(git_dir: &Path) -> Result<PathBuf> {
    match std::fs::read_to_string(git_dir.join("commondir")) {
        Ok(text) => canonical(&git_dir.join(text.trim_end_matches('\n'))),
        Err(_) => Ok(git_dir.to_owned()),
    }
}

fn canonical(path: &Path) -> Result<PathBuf> {
    path.canonicalize().or_fail(|| format!("cannot find {}", path.display()))
}

/// Opens a repository with libgit2, which knows the refs of another format as little as its own
/// functions for refs do: [`crate::refs`] has those for all formats.
#[expect(clippy::disallowed_methods, reason = "the one place")]
pub(crate) fn open_any(path: &Path) -> std::result::Result<git2::Repository, git2::Error> {
    static ALLOWED: Once = Once::new();
    ALLOWED.call_once(allow_reftables);
    git2::Repository::open(path)
}

/// Makes libgit2 open repositories with reftables, for their objects and settings.
#[allow(unsafe_code)] // The bindings say so of every global setting.
fn allow_reftables() {
    // SAFETY: it is called once, before the first repository is opened, which reads the setting.
    let allowed = unsafe { git2::opts::set_extensions(&["refstorage"]) };
    debug_assert!(allowed.is_ok(), "libgit2 accepts the names of extensions");
}

/// Opens a repository that the user owns or has allowed.
fn open_owned(path: &Path) -> Result<git2::Repository> {
    open_any(path).map_err(|error| {
        let printable_path = path.display();
        if error.code() == git2::ErrorCode::Owner {
            let checkout =
                if path.ends_with(".git") { path.parent().unwrap_or(path) } else { path };
            return Failure::usage(format!("{printable_path} belongs to another user"))
                .because("git and studio do not read such repositories unless you allow it")
                .hint(format!(
                    "git config --global --add safe.directory '{}'",
                    checkout.display()
                ));
        }
        Failure::usage(format!("cannot open the repository {printable_path}"))
            .because(error.message())
    })
}

/// Like [`open_owned`], with an empty index.
fn open_without_index(path: &Path) -> Result<git2::Repository> {
    let repo = open_owned(path)?;
    let mut empty_index =
        git2::Index::new_ext(repo.object_format()).or_fail(|| "cannot make an index")?;
    repo.set_index(&mut empty_index).or_fail(|| "cannot make an index")?;
    Ok(repo)
}

/// Refuses unsupported formats by name, because libgit2's own error would be cryptic.
fn refuse_formats(common_dir: &Path) -> Result<()> {
    let config = git2::Config::open(&common_dir.join("config"))
        .or_fail(|| "cannot read the configuration of the repository")?;
    if let Ok(format) = config.get_string("extensions.refstorage") {
        refuse_ref_format(&format)?;
    }
    if let Ok(remote) = config.get_string("extensions.partialclone") {
        let remote = base::text::printable(&remote);
        let feature = "a partial clone in the form of git before 2.22";
        return Err(unsupported_failure(feature, "libgit2 does not open it")
            .hint(format!("git config remote.{remote}.promisor true    then the next"))
            .hint("git config --unset extensions.partialClone"));
    }
    match PartialClone::read(&config) {
        Some(partial_clone) => partial_clone.refuse_unsupported(),
        None => Ok(()),
    }
}

fn refuse_ref_format(format: &str) -> Result<()> {
    if format.eq_ignore_ascii_case("reftable") {
        let version = git_version::detect()?;
        if version >= REFTABLE_VERSION {
            return Ok(());
        }
        return Err(Failure::usage(format!(
            "git {version} does not read the refs of this repository"
        ))
        .because(format!("they are reftables, which need git {REFTABLE_VERSION}"))
        .hint(format!("install git {REFTABLE_VERSION} or later, first in PATH")));
    }
    if format.eq_ignore_ascii_case("files") {
        return Ok(());
    }
    let format = base::text::printable(format);
    let feature = format!("a repository with the ref format `{format}`");
    Err(unsupported_failure(&feature, "studio does not know it")
        .hint("git refs migrate --ref-format=files"))
}

fn unsupported_failure(feature: &str, reason: &str) -> Failure {
    Failure::usage(format!("{feature} is not supported yet")).because(reason)
}

fn no_commit(branch: &str, has_others: bool) -> Failure {
    let branch = branch.strip_prefix("refs/heads/").unwrap_or(branch);
    let failure = Failure::refused(format!("the branch `{branch}` has no commit yet"))
        .because("a session starts from a commit")
        .hint("git commit --allow-empty -m start");
    if has_others { failure.hint("studio run --base BRANCH 'your task'") } else { failure }
}

/// Returns the user's main checkout. A bare repository has none; with a separate git directory it
/// is known only if the search starts there, or from [`Repository::remember_checkout`].
fn main_checkout(
    repo: &git2::Repository,
    common_dir: &Path,
    git_dir: &Path,
    from: &Path,
) -> Result<Option<PathBuf>> {
    if repo.is_bare() {
        return Ok(None);
    }
    let belongs_here =
        |directory: &Path| find_git_dir(directory).is_ok_and(|dir| dir == common_dir);
    if let Some(checkout) = repo.workdir().filter(|workdir| belongs_here(workdir)) {
        return canonical(checkout).map(Some);
    }
    if git_dir == common_dir
        && let Some(checkout) = from
            .ancestors()
            .find(|directory| directory.join(".git").exists() && belongs_here(directory))
    {
        return canonical(checkout).map(Some);
    }
    let recorded = std::fs::read(common_dir.join("studio").join(CHECKOUT_FILE)).unwrap_or_default();
    let recorded = Path::new(std::ffi::OsStr::from_bytes(&recorded));
    if recorded.is_absolute() && belongs_here(recorded) {
        return canonical(recorded).map(Some);
    }
    Err(Failure::usage("cannot find the main checkout of this repository")
        .because(format!("{} is not inside it", common_dir.display()))
        .hint("run studio in the main checkout"))
}

/// Returns the author of studio's commits: the user, by the repository's configuration, at this time
/// in UTC. The configuration of scratch directories always has a name.
pub(crate) fn signature(
    repo: &git2::Repository,
    now: jiff::Timestamp,
) -> std::result::Result<git2::Signature<'static>, git2::Error> {
    let config = repo.config()?.snapshot()?;
    let time = git2::Time::new(now.as_second(), 0);
    git2::Signature::new(config.get_str("user.name")?, config.get_str("user.email")?, &time)
}
