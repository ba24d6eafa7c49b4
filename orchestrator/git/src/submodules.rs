//! Submodules of a session, at any depth: each one that the user's checkout has is copied from
//! `.git/modules` into the session's private directory, where its agent commits. Only objects are
//! copied; nothing is fetched, and no configuration of a submodule is read. What the agent commits
//! there is brought into the user's `.git/modules` with its other work.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use base::failure::{Failure, OrFail, Result};
use base::git::Git;
use base::id::Id;
use base::process::OutputLimits;
use serde::{Deserialize, Serialize};

use crate::checkout::FileChange;
use crate::object_quarantine::{self, Quarantine};
use crate::refs::{self, RefChange};
use crate::repo::Repository;
use crate::safe_open::SafeDir;
use crate::session_repo::{self, Originals, SessionRepo};
use crate::snapshot::SnapshotLimits;
use crate::{confined_thread, entry_mode, head, index, partial_clone, snapshot, worktree};

/// The record of the copied submodules, beside the originals.
const RECORD_FILE: &str = "originals/submodules";
/// Timeout of reading a submodule's files.
const READ_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(600);

/// A submodule of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Submodule {
    /// The path of its git directory below `modules`: its name in `.gitmodules`, after that of the
    /// submodule that contains it (`NAME/modules/NAME`).
    pub name: String,
    /// Its directory in the worktree.
    pub path: PathBuf,
    /// The commit with which the session started.
    pub commit: String,
    /// The directory of the submodule that contains it, in the worktree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<PathBuf>,
}

impl Submodule {
    /// Returns the user's git directory of the submodule, if there is one. No part of its path is a
    /// symlink.
    pub(crate) fn of_user(&self, repository: &Repository) -> Option<PathBuf> {
        let directory = repository.common_dir.join("modules").join(&self.name);
        let is_plain = directory.canonicalize().is_ok_and(|canonical| canonical == directory);
        let is_repository = || directory.join("HEAD").is_file() && !borrows_objects(&directory);
        (is_plain && is_repository()).then_some(directory)
    }

    /// Returns the submodules that one of its commits has. `user` is the user's git directory of it.
    fn nested(&self, repository: &Repository, user: &Path, commit: &str) -> Result<Vec<Submodule>> {
        // The configuration of the submodule is not read.
        let objects = object_quarantine::alternates(&[user.join("objects")]);
        let git = repository.git().with_objects(objects);
        let nested = of_tree(&git, &*repository_at(user).open()?, commit)?.into_iter();
        let within = |it: Submodule| Submodule {
            name: format!("{}/modules/{}", self.name, it.name),
            path: self.path.join(it.path),
            commit: it.commit,
            parent: Some(self.path.clone()),
        };
        Ok(nested.map(within).collect())
    }

    /// Returns its path in the submodule that contains it, or in the repository.
    fn path_in_parent(&self) -> &Path {
        let parent = self.parent.as_deref();
        parent.and_then(|parent| self.path.strip_prefix(parent).ok()).unwrap_or(&self.path)
    }

    /// Returns its private git directory in a session.
    fn git_dir(&self, session_repo: &SessionRepo) -> PathBuf {
        session_repo.git_dir.join("modules").join(&self.name)
    }

    fn worktree(&self, session_repo: &SessionRepo) -> PathBuf {
        session_repo.worktree.join(&self.path)
    }

    /// Returns the content of its `.git` file.
    fn pointer(&self, session_repo: &SessionRepo) -> Vec<u8> {
        let (from, to) = (self.worktree(session_repo), self.git_dir(session_repo));
        format!("gitdir: {}\n", session_repo::relative(&from, &to).display()).into_bytes()
    }

    /// Returns whether the worktree has a directory for it that no symlink leads to.
    fn has_directory(&self, session_repo: &SessionRepo) -> bool {
        self.open_directory(session_repo).is_ok_and(|directory| directory.is_some())
    }

    fn open_directory(&self, session_repo: &SessionRepo) -> io::Result<Option<SafeDir>> {
        open_below(&session_repo.worktree, &self.path)
    }

    /// Opens its private git directory in a session. Returns `None` if it does not exist or its path
    /// contains a symlink, because the agent can write the directories above it.
    fn open_git_dir(&self, session_repo: &SessionRepo) -> io::Result<Option<SafeDir>> {
        open_below(&session_repo.git_dir, &Path::new("modules").join(&self.name))
    }
}

/// Opens a directory below a known one; `None` if it is missing, or if a symlink leads to it.
fn open_below(root: &Path, path: &Path) -> io::Result<Option<SafeDir>> {
    let mut directory = SafeDir::open(root)?;
    for part in path {
        let Some(next) = directory.open_existing(&part.to_string_lossy())? else {
            return Ok(None);
        };
        directory = next;
    }
    Ok(Some(directory))
}

/// Returns whether a repository has objects elsewhere, so that a copy of it would be incomplete.
fn borrows_objects(git_dir: &Path) -> bool {
    git_dir.join("objects/info/alternates").symlink_metadata().is_ok()
}

/// Returns the prefix of the refs in the user's submodules that keep the commits of a session; a
/// commit follows.
pub(crate) fn work_ref_prefix(id: &Id) -> String {
    format!("refs/studio/work/{id}/")
}

/// Opens a git directory of a submodule as a repository of its own.
pub(crate) fn repository_at(git_dir: &Path) -> Repository {
    let git_dir = git_dir.to_owned();
    let (common_dir, checkout_git_dir) = (git_dir.clone(), git_dir);
    Repository { common_dir, main_checkout: None, checkout_git_dir, session: None }
}

/// Returns the submodules that `.gitmodules` of a commit names. Those with a name or a path that
/// leads elsewhere are left out.
fn of_commit(repository: &Repository, commit: &str) -> Result<Vec<Submodule>> {
    of_tree(&repository.git(), &*repository.open()?, commit)
}

fn of_tree(git: &Git, repo: &git2::Repository, commit: &str) -> Result<Vec<Submodule>> {
    let fail = || "cannot read the submodules";
    let tree = repo.find_commit(refs::oid(commit)?).and_then(|it| it.tree()).or_fail(fail)?;
    if tree.get_name(".gitmodules").is_none() {
        return Ok(Vec::new());
    }
    let blob = format!("{commit}:.gitmodules");
    let pattern = r"^submodule\..*\.path$";
    let args = ["config", "--blob", &blob, "-z", "--get-regexp", pattern];
    let output = git.command(args).output(OutputLimits::seconds(60)).or_fail(fail)?;
    let text = output.text();
    let submodule_of = |line: &str| {
        let (key, path) = line.split_once('\n')?;
        let name = key.strip_prefix("submodule.")?.strip_suffix(".path")?;
        let entry = tree.get_path(Path::new(path)).ok()?;
        let is_gitlink = u32::try_from(entry.filemode()) == Ok(entry_mode::GITLINK);
        (is_gitlink && is_plain_path(name) && is_plain_path(path)).then(|| Submodule {
            name: name.to_owned(),
            path: PathBuf::from(path),
            commit: entry.id().to_string(),
            parent: None,
        })
    };
    Ok(text.split('\0').filter_map(submodule_of).collect())
}

fn is_git_name(name: &str) -> bool {
    name.get(..4).is_some_and(|start| start.eq_ignore_ascii_case(".git"))
}

/// Returns whether a text is a relative path whose parts are plain names.
fn is_plain_path(text: &str) -> bool {
    let is_plain = |part: Component<'_>| matches!(part, Component::Normal(name) if !is_git_name(&name.to_string_lossy()));
    let has_only = |c: char| !c.is_control() && !matches!(c, '"' | '\\');
    !text.is_empty()
        && !text.contains("//")
        && !text.ends_with('/')
        && text.chars().all(has_only)
        && Path::new(text).components().all(is_plain)
}

/// The submodules of a commit, at any depth.
#[derive(Default)]
struct SubmoduleTree {
    /// Those that the user's `.git/modules` has, with their git directories there; each one is
    /// after the one that contains it.
    available: Vec<(Submodule, PathBuf)>,
    /// The paths of the others.
    missing: Vec<PathBuf>,
}

impl SubmoduleTree {
    fn of_commit(repository: &Repository, commit: &str) -> Result<SubmoduleTree> {
        let mut tree = SubmoduleTree::default();
        let mut remaining = VecDeque::from(of_commit(repository, commit)?);
        while let Some(submodule) = remaining.pop_front() {
            let user = submodule.of_user(repository);
            match user.filter(|directory| has_commit(directory, &submodule.commit)) {
                Some(user) => {
                    remaining.extend(submodule.nested(repository, &user, &submodule.commit)?);
                    tree.available.push((submodule, user));
                }
                None => tree.missing.push(submodule.path),
            }
        }
        Ok(tree)
    }
}

/// Returns the paths of a commit's submodules that sessions cannot have.
pub(crate) fn unavailable(repository: &Repository, commit: &str) -> Result<Vec<PathBuf>> {
    Ok(SubmoduleTree::of_commit(repository, commit)?.missing)
}

fn has_commit(git_dir: &Path, commit: &str) -> bool {
    let repo = crate::repo::open_any(git_dir);
    repo.is_ok_and(|repo| refs::oid(commit).is_ok_and(|commit| repo.find_commit(commit).is_ok()))
}

/// Copies the submodules of the base of a new worktree, whose files are checked out.
pub(crate) fn populate(repository: &Repository, session_repo: &SessionRepo) -> Result<()> {
    let mut populated: Vec<Submodule> = Vec::new();
    let tree = SubmoduleTree::of_commit(repository, &session_repo.base)?;
    for (submodule, source) in tree.available {
        // One whose parent was not copied has no directory.
        let target = submodule.git_dir(session_repo);
        if target.symlink_metadata().is_ok() || !submodule.has_directory(session_repo) {
            continue;
        }
        copy(repository, session_repo, &submodule, &source)
            .or_fail(|| format!("cannot copy the submodule {}", submodule.path.display()))?;
        populated.push(submodule);
    }
    let file = record_file(session_repo);
    let text = serde_json::to_vec(&populated).or_fail(|| "cannot record the submodules")?;
    let write = || match populated.is_empty() && !file.exists() {
        true => Ok(()),
        false => base::files::replace(&file, &text),
    };
    write().or_fail(|| format!("cannot write {}", file.display()))
}

/// Returns the submodules that were copied for a session.
pub(crate) fn recorded(session_repo: &SessionRepo) -> Vec<Submodule> {
    let text = fs::read(record_file(session_repo)).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

fn record_file(session_repo: &SessionRepo) -> PathBuf {
    session_repo.git_dir.parent().unwrap_or(&session_repo.git_dir).join(RECORD_FILE)
}

/// Returns the paths of a session's submodules that an agent must not change: their `.git` files,
/// and what git obeys.
pub(crate) fn protected_paths(worktree: &Path, git_dir: &Path) -> Vec<PathBuf> {
    let text = fs::read(git_dir.parent().unwrap_or(git_dir).join(RECORD_FILE)).unwrap_or_default();
    let submodules: Vec<Submodule> = serde_json::from_slice(&text).unwrap_or_default();
    let paths = submodules.iter().flat_map(|submodule| {
        let module = git_dir.join("modules").join(&submodule.name);
        let obeyed = ["config", "hooks", "info"].map(|name| module.join(name));
        obeyed.into_iter().chain([worktree.join(&submodule.path).join(".git")])
    });
    paths.filter(|path| path.symlink_metadata().is_ok()).collect()
}

/// Copies objects and branches, and checks the files out.
fn copy(
    repository: &Repository,
    session_repo: &SessionRepo,
    submodule: &Submodule,
    source: &Path,
) -> Result<()> {
    let fail = || "cannot write its git directory";
    let target = submodule.git_dir(session_repo);
    partial_clone::fetch_checkout(&repository_at(source), &submodule.commit, None)?;
    fs::create_dir_all(target.join("objects")).or_fail(fail)?;
    copy_objects(&source.join("objects"), &target.join("objects"), 0).or_fail(fail)?;
    let git_dir = submodule.open_git_dir(session_repo).or_fail(fail)?;
    let git_dir = git_dir.ok_or_else(|| Failure::refused(fail()))?;
    restore(repository, &git_dir)?;
    let write = || -> io::Result<()> {
        git_dir.open_or_create("refs")?.open_or_create("heads")?;
        git_dir.write("HEAD", format!("{}\n", submodule.commit).as_bytes())?;
        fs::write(submodule.worktree(session_repo).join(".git"), submodule.pointer(session_repo))
    };
    write().or_fail(fail)?;
    let place = SessionRepo {
        worktree: submodule.worktree(session_repo),
        git_dir: target.clone(),
        ..session_repo.clone()
    };
    worktree::check_out(&repository_at(&target), &place, &submodule.commit)
}

/// Writes what git obeys in a private git directory of a submodule, whatever an agent changed.
fn restore(repository: &Repository, git_dir: &SafeDir) -> Result<()> {
    let originals = Originals::for_repository(repository)?;
    let write = || -> io::Result<()> {
        git_dir.write("config", &originals.config)?;
        git_dir.remove_all("config.worktree")?;
        git_dir.remove_all("commondir")?;
        git_dir.open_or_create("hooks")?.remove_entries()?;
        let info = git_dir.open_or_create("info")?;
        info.remove_entries()?;
        info.write("exclude", &originals.exclude)?;
        let objects = git_dir.open_or_create("objects")?;
        objects.remove_unreadable(2)?;
        objects.open_or_create("info")?.remove_all("alternates")
    };
    write().or_fail(|| "cannot restore the configuration of a submodule")
}

/// Copies loose objects and packs: never a link, because the session can write the copies.
fn copy_objects(from: &Path, to: &Path, depth: u32) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (kind, name) = (entry.file_type()?, entry.file_name());
        let (source, target) = (entry.path(), to.join(&name));
        let is_objects = name.len() == 2 || name == "pack";
        if kind.is_dir() && depth == 0 && is_objects {
            fs::create_dir_all(&target)?;
            copy_objects(&source, &target, depth + 1)?;
        } else if kind.is_file() && depth == 1 && !name.as_bytes().starts_with(b"tmp_") {
            match fs::copy(&source, &target) {
                // git has packed the object since the directory was read; a missing commit is
                // reported later.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                copied => drop(copied?),
            }
        }
    }
    Ok(())
}

/// Writes the files of the submodules into a worktree that is made again at `worktree`.
pub(crate) fn recreate(
    repository: &Repository,
    session_repo: &SessionRepo,
    worktree: &Path,
) -> Result<()> {
    for submodule in recorded(session_repo) {
        let fail = || "cannot write the files of a submodule";
        let private = submodule.open_git_dir(session_repo).or_fail(fail)?;
        // The work may have a symlink in its place.
        let directory = open_below(worktree, &submodule.path).or_fail(fail)?;
        let (Some(private), Some(directory)) = (private, directory) else { continue };
        let (git_dir, path) = (submodule.git_dir(session_repo), worktree.join(&submodule.path));
        let Some(commit) = head::read(&git_dir).ok().and_then(|head| head.commit) else { continue };
        restore(repository, &private)?;
        let write = || -> io::Result<()> {
            private.remove_all("index.lock")?;
            private.remove_all("index")?;
            directory.write(".git", &submodule.pointer(session_repo))
        };
        write().or_fail(fail)?;
        let place =
            SessionRepo { worktree: path, git_dir: git_dir.clone(), ..session_repo.clone() };
        worktree::check_out(&repository_at(&git_dir), &place, &commit)?;
    }
    Ok(())
}

/// Writes the `.git` files of the submodules again after a move of the repository.
pub(crate) fn repair(session_repo: &SessionRepo) -> Result<()> {
    for submodule in recorded(session_repo) {
        let Ok(Some(directory)) = submodule.open_directory(session_repo) else { continue };
        let pointer = submodule.pointer(session_repo);
        let current = directory.read(".git", 8192).ok().flatten();
        if current.is_some_and(|current| current != pointer) {
            let write = directory.write(".git", &pointer);
            write.or_fail(|| format!("cannot write in {}", submodule.path.display()))?;
        }
    }
    Ok(())
}

/// Brings the commits of a session's submodules into the user's `.git/modules`, verified, each under
/// a ref of its own. The repository has the commit of the session's HEAD.
pub(crate) fn import(
    repository: &Repository,
    session_repo: &SessionRepo,
    head_commit: &str,
) -> Result<()> {
    // The commits that can name submodules, by the path of what contains these: the session itself
    // (the empty path), or a submodule.
    let session = (repository.clone(), vec![head_commit.to_owned()]);
    let mut containers = BTreeMap::from([(PathBuf::new(), session)]);
    for submodule in recorded(session_repo) {
        let private = submodule.open_git_dir(session_repo);
        let private = private.or_fail(|| "cannot read a submodule")?;
        let (Some(user), Some(private)) = (submodule.of_user(repository), private) else {
            continue;
        };
        let git_dir = submodule.git_dir(session_repo);
        restore(repository, &private)?;
        let own = head::read(&git_dir).ok().and_then(|head| head.commit);
        let container = containers.get(&submodule.parent.clone().unwrap_or_default());
        let linked = container.into_iter().flat_map(|(container, commits)| {
            let path = submodule.path_in_parent();
            commits.iter().filter_map(move |commit| gitlink(container, commit, path))
        });
        let wanted: Vec<String> =
            own.into_iter().chain(linked).filter(|commit| *commit != submodule.commit).collect();
        let module = repository_at(&user);
        for commit in &wanted {
            let name = format!("{}{commit}", work_ref_prefix(&session_repo.id));
            if refs::read(&*module.open()?, &name)?.is_some() || has_commit(&user, commit) {
                continue;
            }
            let private = vec![git_dir.join("objects")];
            let (commits, existing) = ([commit.clone()], [submodule.commit.clone()]);
            let id = &session_repo.id;
            let kept =
                object_quarantine::import_objects(&module, &private, &commits, &existing, id)
                    .or_fail(|| {
                        format!("cannot import the submodule {}", submodule.path.display())
                    })?;
            base::files::step("import.submodule");
            let change = RefChange::new(name, None, Some(commit.clone()));
            refs::update_or_fail(&module, &[change], "studio: work of a session")?;
            kept.release();
        }
        containers.insert(submodule.path, (module, wanted));
    }
    Ok(())
}

/// Returns the commit of a submodule that a commit of its container records.
fn gitlink(container: &Repository, commit: &str, path: &Path) -> Option<String> {
    let repo = container.open().ok()?;
    let commit = repo.find_commit(refs::oid(commit).ok()?).ok()?;
    gitlink_in(&commit.tree().ok()?, path)
}

fn gitlink_in(tree: &git2::Tree<'_>, path: &Path) -> Option<String> {
    let entry = tree.get_path(path).ok()?;
    (u32::try_from(entry.filemode()) == Ok(entry_mode::GITLINK)).then(|| entry.id().to_string())
}

/// The state of a session's submodule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SubmoduleState {
    /// The submodule.
    pub submodule: Submodule,
    /// The commit of its HEAD; `None` if it cannot be read.
    pub head: Option<String>,
    /// Whether it has changes that are not committed, also if only the commit of a submodule in it
    /// changed.
    pub is_dirty: bool,
}

/// What a submodule's HEAD and its files say.
#[derive(Default)]
struct SubmoduleContent {
    is_dirty: bool,
    /// The commits of submodules in it that its HEAD records, by their paths in the worktree.
    gitlinks: BTreeMap<PathBuf, String>,
}

/// Reads the submodules of a session, without touching them.
pub(crate) fn read(repository: &Repository, session_repo: &SessionRepo) -> Vec<SubmoduleState> {
    let all = recorded(session_repo);
    let mut states: Vec<SubmoduleState> = Vec::new();
    let mut gitlinks: BTreeMap<PathBuf, String> = BTreeMap::new();
    for submodule in all.iter().filter(|submodule| submodule.has_directory(session_repo)) {
        let is_private = submodule.open_git_dir(session_repo).is_ok_and(|it| it.is_some());
        let git_dir = submodule.git_dir(session_repo);
        let head = || head::read(&git_dir).ok().and_then(|head| head.commit);
        let head = is_private.then(head).flatten();
        let content = head.as_deref().map(|head| {
            read_content(repository, session_repo, (submodule, head), &all).unwrap_or_else(|_| {
                SubmoduleContent { is_dirty: true, ..SubmoduleContent::default() }
            })
        });
        // A submodule that HEAD of its parent does not contain, as after `git rm`, is left out.
        if let (Some(parent), Some(head)) = (&submodule.parent, &head)
            && gitlinks.get(&submodule.path).is_some_and(|linked| linked != head)
            && *head != submodule.commit
            && let Some(parent) = states.iter_mut().find(|it| it.submodule.path == *parent)
        {
            parent.is_dirty = true;
        }
        let is_dirty = content.as_ref().is_none_or(|content| content.is_dirty);
        gitlinks.extend(content.into_iter().flat_map(|content| content.gitlinks));
        states.push(SubmoduleState { submodule: submodule.clone(), head, is_dirty });
    }
    states
}

fn read_content(
    repository: &Repository,
    session_repo: &SessionRepo,
    (submodule, head): (&Submodule, &str),
    all: &[Submodule],
) -> Result<SubmoduleContent> {
    let is_emptied = fs::read_dir(submodule.worktree(session_repo))
        .is_ok_and(|mut entries| entries.next().is_none());
    if is_emptied {
        // As after `git submodule deinit`.
        return Ok(SubmoduleContent::default());
    }
    let git_dir = submodule.git_dir(session_repo);
    let scratch = Quarantine::open(repository)?;
    scratch.copy_attributes(&*repository.open()?)?;
    scratch.write_info(&Originals::for_repository(repository)?)?;
    scratch.add_objects(&git_dir.join("objects"))?;
    index::copy(&scratch, &git_dir)?;
    let objects = object_quarantine::alternates(&[git_dir.join("objects")]);
    let worktree = submodule.worktree(session_repo);
    let mut read = confined_thread::object_directories(&repository.common_dir);
    read.extend([git_dir.join("objects"), worktree.clone()]);
    let rules = confined_thread::rules(read, vec![scratch.path().to_owned()]);
    let head = refs::oid(head)?;
    let limits = SnapshotLimits::default();
    let is_nested = |it: &&Submodule| it.parent.as_ref() == Some(&submodule.path);
    let nested: Vec<Submodule> = all.iter().filter(is_nested).cloned().collect();
    confined_thread::run(rules, READ_TIMEOUT, "cannot read a submodule", move || {
        let content = snapshot::read_files(scratch, &objects, head, &worktree, &limits)?;
        let repo = &content.scratch.repo;
        let commit = repo.find_commit(head).or_fail(|| "cannot read a submodule")?;
        let tree = commit.tree().or_fail(|| "cannot read a submodule")?;
        let gitlinks = nested.into_iter().filter_map(|nested| {
            let linked = gitlink_in(&tree, nested.path_in_parent())?;
            Some((nested.path, linked))
        });
        Ok(SubmoduleContent {
            is_dirty: content.tree != commit.tree_id() || !content.omissions.is_empty(),
            gitlinks: gitlinks.collect(),
        })
    })
}

/// Returns the paths of a session's submodules with work that its last commit or snapshot does not
/// have: files that are not committed, and commits that the user's submodule does not have.
pub fn with_own_work(repository: &Repository, session_repo: &SessionRepo) -> Vec<PathBuf> {
    let has_own_work = |state: &SubmoduleState| {
        let user = state.submodule.of_user(repository);
        let is_known = |head: &String| {
            *head == state.submodule.commit
                || user.as_ref().is_some_and(|user| has_commit(user, head))
        };
        state.is_dirty || !state.head.as_ref().is_some_and(is_known)
    };
    let states = read(repository, session_repo).into_iter().filter(has_own_work);
    states.map(|state| state.submodule.path).collect()
}

/// Refuses (3) work that moves a submodule of the user to a commit that it does not have.
pub(crate) fn refuse_missing(
    repository: &Repository,
    changes: &[FileChange],
    commit: &str,
) -> Result<()> {
    let is_moved =
        |change: &FileChange| change.after.is_some_and(|after| after.mode == entry_mode::GITLINK);
    if !changes.iter().any(is_moved) {
        return Ok(());
    }
    for submodule in of_commit(repository, commit)? {
        let is_changed = |change: &&FileChange| is_moved(change) && change.path == submodule.path;
        let Some(change) = changes.iter().find(is_changed) else { continue };
        let before = change.before.filter(|before| before.mode == entry_mode::GITLINK);
        refuse_unknown(repository, &submodule, before.map(|before| before.id.to_string()))?;
    }
    Ok(())
}

/// Refuses (3) a commit that the user's submodule does not have, and those of submodules in it that
/// differ from the commit `before`.
fn refuse_unknown(
    repository: &Repository,
    submodule: &Submodule,
    before: Option<String>,
) -> Result<()> {
    let Some(user) = submodule.of_user(repository) else { return Ok(()) };
    let (path, commit) = (submodule.path.display(), &submodule.commit);
    if !has_commit(&user, commit) {
        return Err(Failure::refused(format!(
            "the submodule {path} would be at an unknown commit"
        ))
        .because(format!("{commit} is not in {}", user.display()))
        .hint(format!("git -C '{path}' fetch"))
        .hint("or let the agent commit in the submodule of its session, then `git add` it"));
    }
    let before = before.filter(|before| has_commit(&user, before));
    let before = before.map(|before| submodule.nested(repository, &user, &before)).transpose()?;
    let before: BTreeMap<PathBuf, String> =
        before.into_iter().flatten().map(|it| (it.path, it.commit)).collect();
    for nested in submodule.nested(repository, &user, commit)? {
        let before = before.get(&nested.path);
        if before != Some(&nested.commit) {
            refuse_unknown(repository, &nested, before.cloned())?;
        }
    }
    Ok(())
}

/// Returns the note about submodules that a landing moved: their files stay as they are, as after
/// `git merge`.
pub fn moved_note(repository: &Repository, before: &str, after: &str) -> Option<String> {
    let changes = crate::checkout::changes(&*repository.open().ok()?, before, after).ok()?;
    let is_moved =
        |change: &FileChange| change.after.is_some_and(|after| after.mode == entry_mode::GITLINK);
    let moved: Vec<String> = changes
        .into_iter()
        .filter(is_moved)
        .map(|change| base::text::printable(&change.path.to_string_lossy()))
        .collect();
    let paths = moved.join(" ");
    let recursive = if has_nested(repository, after) { "--recursive " } else { "" };
    (!moved.is_empty()).then(|| {
        format!(
            "the commits of submodules landed, their files are as before: \
             git submodule update {recursive}{paths}; push their commits before yours"
        )
    })
}

/// Returns whether the user has a submodule of a submodule of a commit.
fn has_nested(repository: &Repository, commit: &str) -> bool {
    let is_nested = |(submodule, _): &(Submodule, PathBuf)| submodule.parent.is_some();
    SubmoduleTree::of_commit(repository, commit)
        .is_ok_and(|tree| tree.available.iter().any(is_nested))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_paths_that_lead_elsewhere_are_left_out() {
        for plain in ["part", "libs/a b", "vendor/lib.c"] {
            assert!(is_plain_path(plain), "{plain}");
        }
        for hostile in
            ["", "../x", "a/../../x", "/x", "a//b", ".git", "a/.git", "a\"b", "a\nb", "a/"]
        {
            assert!(!is_plain_path(hostile), "{hostile}");
        }
    }
}
