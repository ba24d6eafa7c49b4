//! Where a session starts, other than at a commit: at the uncommitted work of another session or of
//! a worktree of the user, at an existing branch, or at a pull request.

use std::path::{Path, PathBuf};

use base::failure::{Failure, OrFail, Result};
use base::git::Git;
use base::id::Id;
use serde::{Deserialize, Serialize};

use crate::checkout::{self, Checkout};
use crate::names::BranchName;
use crate::object_quarantine::{self, KeepFiles, Quarantine};
use crate::refs::{self, RefChange};
use crate::repo::{Base, Repository};
use crate::session_repo::{Originals, SessionRepo};
use crate::snapshot::{self, SnapshotLimits, WorktreeContent};
use crate::{confined_thread, filters, index, sparse, worktree};

/// Timeout of reading a worktree.
const READ_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(1800);
/// Timeout of fetching a pull request, in seconds.
const FETCH_SECONDS: u64 = 600;

/// Uncommitted work with which a worktree starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartPoint {
    /// The commit with all files; its first parent is the commit that the session starts from.
    pub work: String,
    /// The commit with the staged files; the start commit when absent.
    pub staged: Option<String>,
}

/// Uncommitted work in the repository. It must be pinned before this value is dropped.
#[derive(Debug)]
pub struct CapturedWork {
    /// The commit of HEAD.
    pub head: String,
    /// The work.
    pub start: StartPoint,
    /// Excluded files, by path.
    pub omitted: Vec<String>,
    _keep_files: KeepFiles,
}

impl CapturedWork {
    /// Returns work that is kept by refs of the repository.
    pub fn of_commits(head: String, start: StartPoint) -> CapturedWork {
        CapturedWork { head, start, omitted: Vec::new(), _keep_files: KeepFiles::none() }
    }
}

/// The prefix of the refs of starts; the id of the session follows.
pub(crate) const REF_PREFIX: &str = "refs/studio/starts/";

/// Returns the ref that keeps the start of a session.
pub(crate) fn ref_name(id: &Id) -> String {
    format!("{REF_PREFIX}{id}")
}

/// Keeps the start of a session from `git gc`. Returns `false` if the id has one: another process is
/// creating that session, or was killed while it did.
pub fn pin(repository: &Repository, id: &Id, start: &StartPoint) -> Result<bool> {
    if refs::read(&*repository.open()?, &ref_name(id))?.is_some() {
        return Ok(false);
    }
    let change = RefChange::new(ref_name(id), None, Some(start.work.clone()));
    refs::update_or_fail(repository, &[change], "studio: keep the start of a session")?;
    Ok(true)
}

/// Reverts [`pin`], for a session that was not created.
pub fn unpin(repository: &Repository, id: &Id, start: &StartPoint) -> Result<()> {
    let change = RefChange::new(ref_name(id), Some(start.work.clone()), None);
    refs::update_or_fail(repository, &[change], "studio: the session was not created")
}

/// Brings the current work of a session into the repository, as a commit without a ref. The session
/// is not changed.
pub fn capture_session(
    repository: &Repository,
    session_repo: &SessionRepo,
    head: &str,
    content: &WorktreeContent,
    now: jiff::Timestamp,
) -> Result<CapturedWork> {
    let object_dirs = [content.scratch.objects(), session_repo.git_dir.join("objects")];
    capture(repository, session_repo, (head, &session_repo.base), content, &object_dirs, now)
}

/// Reads the uncommitted work of a worktree of the user, which is not changed, and brings it into
/// the repository. Returns it with the base: the branch and the commit of its HEAD.
pub fn capture_checkout(
    repository: &Repository,
    path: &Path,
    limits: &SnapshotLimits,
    now: jiff::Timestamp,
) -> Result<(Base, CapturedWork)> {
    let place = Repository::discover(path)?;
    if place.common_dir != repository.common_dir {
        return Err(Failure::usage(format!("{} is in another repository", path.display()))
            .because(format!("its git directory is {}", place.common_dir.display()))
            .hint("git worktree list"));
    }
    if let Some(session) = &place.session {
        return Err(Failure::usage(format!("{} belongs to a session", path.display()))
            .hint(format!("studio fork {session}")));
    }
    let checkout = checkout::current(&place)?;
    let base = place.base(None)?;
    let content = read_checkout(repository, &checkout, &base.commit, limits)?;
    // Only its paths are used: a session that does not exist names what studio creates.
    let names = SessionRepo {
        id: Id::parse("start").or_fail(cannot)?,
        worktree: checkout.worktree.clone(),
        git_dir: checkout.git_dir,
        branch: BranchName::parse("start")?,
        base: base.commit.clone(),
    };
    let object_dirs = [content.scratch.objects()];
    let heads = (base.commit.as_str(), base.commit.as_str());
    let captured = capture(repository, &names, heads, &content, &object_dirs, now)?;
    Ok((base, captured))
}

fn capture(
    repository: &Repository,
    session_repo: &SessionRepo,
    (head, existing): (&str, &str),
    content: &WorktreeContent,
    object_dirs: &[PathBuf],
    now: jiff::Timestamp,
) -> Result<CapturedWork> {
    let work = snapshot::commit_content(&content.scratch.repo, head, content, now)?;
    let commit = content.scratch.repo.find_commit(work).or_fail(cannot)?;
    let staged = commit.parent_id(1).ok().map(|id| id.to_string());
    let work = work.to_string();
    let commits = [work.clone()];
    let existing = [existing.to_owned()];
    let keep_files = object_quarantine::import_objects(
        repository,
        object_dirs,
        &commits,
        &existing,
        &session_repo.id,
    )?;
    let omitted = content.omissions.iter();
    Ok(CapturedWork {
        head: head.to_owned(),
        start: StartPoint { work, staged },
        omitted: omitted
            .map(|omission| format!("{}: {}", omission.path, omission.why.sentence()))
            .collect(),
        _keep_files: keep_files,
    })
}

/// Reads the files and the index of a checkout; nothing there is written.
fn read_checkout(
    repository: &Repository,
    checkout: &Checkout,
    head: &str,
    limits: &SnapshotLimits,
) -> Result<WorktreeContent> {
    let scratch = Quarantine::open(repository)?;
    scratch.copy_attributes(&*repository.open()?)?;
    scratch.write_info(&Originals::for_repository(repository)?)?;
    index::copy(&scratch, &checkout.git_dir)?;
    let objects = repository.common_dir.join("objects");
    let mut read = confined_thread::object_directories(&repository.common_dir);
    read.push(checkout.worktree.clone());
    let rules = confined_thread::rules(read, vec![scratch.path().to_owned()]);
    let head = refs::oid(head)?;
    let (worktree, limits) = (checkout.worktree.clone(), limits.clone());
    confined_thread::run(rules, READ_TIMEOUT, cannot(), move || {
        let objects = object_quarantine::alternates(&[objects]);
        snapshot::read_files(scratch, &objects, head, &worktree, &limits)
    })
}

/// Writes the files and the index of a start point into a new worktree.
pub(crate) fn check_out(session_repo: &SessionRepo, start: &StartPoint) -> Result<()> {
    let git = Git::at(&session_repo.git_dir).with_work_tree(&session_repo.worktree);
    let staged = start.staged.as_deref().unwrap_or("HEAD");
    let index = session_repo.git_dir.join("index");
    sparse::read_trees(&git, &start.work, staged, || {
        filters::smudge_files(&session_repo.git_dir, &session_repo.worktree, &index)
    })
}

/// Resolves an existing branch by its name. A branch that only a remote has is created, as `git
/// switch` does.
pub fn branch(repository: &Repository, name: &str) -> Result<Base> {
    let short_name = name.strip_prefix("refs/heads/").unwrap_or(name);
    let branch = BranchName::parse(short_name)?;
    if let Some(commit) = repository.tip(&branch)? {
        refuse_session_branch(repository, &branch)?;
        return Ok(Base { branch: Some(branch), commit });
    }
    let repo = repository.open()?;
    let suffix = format!("/{short_name}");
    let remotes = refs::list(&repo, "refs/remotes/")?;
    let candidates: Vec<&str> = remotes
        .keys()
        .filter_map(|full| full.strip_prefix("refs/remotes/"))
        .filter(|remote_branch| remote_branch.ends_with(&suffix))
        .filter(|remote_branch| {
            let remote = &remote_branch[..remote_branch.len() - suffix.len()];
            repo.find_remote(remote).is_ok()
        })
        .collect();
    match candidates.as_slice() {
        [remote_branch] => {
            let args = ["branch", "--track", short_name, remote_branch];
            repository.git().run(&args).or_fail(|| format!("cannot create `{branch}`"))?;
            let commit = repository.tip(&branch)?.ok_or("git did not create it");
            let commit = commit.or_fail(|| format!("cannot create `{branch}`"))?;
            Ok(Base { branch: Some(branch), commit })
        }
        [] => Err(Failure::not_found(format!("no such branch: `{branch}`"))
            .because("neither here nor as a remote branch")
            .hint("git branch --all")
            .hint("studio run --base REF    starts from a tag or a commit")),
        many => Err(Failure::usage(format!("several remotes have a branch `{branch}`"))
            .because(many.join(", "))
            .hint(format!("git branch --track {branch} {}", many[0]))),
    }
}

/// Refuses the branch of a session: its own agent works there.
fn refuse_session_branch(repository: &Repository, branch: &BranchName) -> Result<()> {
    let sessions = repository.common_dir.join("studio/sessions");
    for admin_dir in worktree::admin_dirs(repository)? {
        let target = worktree::pointer_target(&admin_dir);
        let session = target.as_deref().and_then(|dir| dir.strip_prefix(&sessions).ok());
        if let Some(id) = session.and_then(|path| path.iter().next())
            && checkout::is_head_on(&admin_dir, branch)
        {
            let id = id.to_string_lossy();
            return Err(Failure::refused(format!("`{branch}` belongs to session `{id}`"))
                .because("its agent works on it")
                .hint(format!("studio fork {id}"))
                .hint(format!("studio send {id} 'what to do'")));
        }
    }
    Ok(())
}

/// Fetches the head of a pull request (GitHub) or merge request (GitLab), and returns the local
/// branch `pr-N`, which is created or fast-forwarded.
pub fn pull_request(repository: &Repository, remote: &str, number: u32) -> Result<Base> {
    let repo = repository.open()?;
    if repo.find_remote(remote).is_err() {
        return Err(Failure::not_found(format!("no such remote: `{remote}`"))
            .hint("git remote -v")
            .hint("studio run --pr N --remote NAME"));
    }
    let fetched = format!("refs/studio/pulls/{remote}/{number}");
    let mut errors = Vec::new();
    for source in ["pull", "merge-requests"] {
        let refspec = format!("+refs/{source}/{number}/head:{fetched}");
        match repository.git().fetch(remote, &refspec, FETCH_SECONDS) {
            Ok(()) => {
                errors.clear();
                break;
            }
            Err(error) => errors.push(error.to_string()),
        }
    }
    if !errors.is_empty() {
        return Err(Failure::failed(format!("cannot fetch pull request {number} from `{remote}`"))
            .because(errors.join("\n"))
            .hint(format!(
                "git fetch {remote} pull/{number}/head:pr-{number} && studio run --branch \
                 pr-{number} 'your task'"
            )));
    }
    let commit = refs::read(&*repository.open()?, &fetched)?.ok_or("git did not create the ref");
    let commit = commit.or_fail(|| format!("cannot fetch pull request {number}"))?;
    let branch = BranchName::parse(&format!("pr-{number}"))?;
    update_branch(repository, &branch, &commit)?;
    let commit = repository.tip(&branch)?.unwrap_or(commit);
    Ok(Base { branch: Some(branch), commit })
}

/// Creates a branch, or fast-forwards it where no checkout has it. A branch with commits of its own
/// on top stays as it is.
fn update_branch(repository: &Repository, branch: &BranchName, commit: &str) -> Result<()> {
    let current = repository.tip(branch)?;
    if let Some(tip) = &current {
        let repo = repository.open()?;
        let (old, new) = (refs::oid(tip)?, refs::oid(commit)?);
        let contains = |descendant, ancestor| {
            repo.graph_descendant_of(descendant, ancestor).or_fail(|| "cannot compare commits")
        };
        if old == new || contains(old, new)? {
            return Ok(());
        }
        if !contains(new, old)? {
            return Err(Failure::refused(format!("`{branch}` and the pull request have diverged"))
                .because(format!("`{branch}` is at {tip}, the pull request at {commit}"))
                .hint(format!("studio run --branch {branch} 'your task'    continues yours"))
                .hint(format!("git branch -m {branch} {branch}-old    then try again")));
        }
        if let [checkout, ..] = checkout::of_branch(repository, branch)?.as_slice() {
            let worktree = checkout.worktree.display();
            return Err(Failure::refused(format!(
                "the pull request has newer commits than `{branch}`"
            ))
            .because(format!("`{branch}` is checked out in {worktree}"))
            .hint(format!("git -C '{worktree}' merge --ff-only {commit}")));
        }
    }
    let change = RefChange::new(branch.full(), current, Some(commit.to_owned()));
    refs::update_or_fail(repository, &[change], "studio: pull request")
}

fn cannot() -> &'static str {
    "cannot read the worktree"
}
