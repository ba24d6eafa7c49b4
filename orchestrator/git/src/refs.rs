//! Refs: read with libgit2, or from git's reftables, which it does not know, and moved by
//! compare-and-swap in one transaction.
#![expect(
    clippy::disallowed_methods,
    reason = "where the functions that know one format are called"
)]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};

use base::failure::{Failure, OrFail, Result};
use base::git::Git;
use base::id::Id;
use base::lock::Lock;
use base::process::{Output, OutputLimits};
use rustix::event::Timespec;
use serde::{Deserialize, Serialize};

use crate::reftable::{RefTables, RefValue};
use crate::repo::Repository;
use crate::safe_open::read_file;
use crate::{object_format, reftable};

/// The descriptor by which git holds the lock of an operation.
const LOCK_FD: i32 = 3;
/// The time after which a lock of a ref counts as left by a killed process.
const MAX_LOCK_TIME: Timespec = Timespec { tv_sec: 3, tv_nsec: 0 };
/// Maximum size of a `packed-refs` that is read before a ref is changed; git changes it otherwise.
const MAX_PACKED_BYTES: u64 = 256 << 10;

/// The change of one ref; `None` if the ref does not exist before or after.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefChange {
    /// The full name.
    pub name: String,
    /// The value before; the change is applied only if it matches.
    pub before: Option<String>,
    /// The value after.
    pub after: Option<String>,
}

/// The result of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SwapResult {
    /// All refs moved.
    Done,
    /// No ref moved, because this one has another value.
    Lost {
        /// The full name.
        name: String,
        /// The actual value.
        actual: Option<String>,
    },
}

impl RefChange {
    /// Creates a change of one ref.
    pub(crate) fn new(
        name: impl Into<String>,
        before: Option<String>,
        after: Option<String>,
    ) -> RefChange {
        RefChange { name: name.into(), before, after }
    }

    /// Returns the reverse change.
    pub(crate) fn reversed(&self) -> RefChange {
        RefChange::new(&self.name, self.after.clone(), self.before.clone())
    }
}

/// Moves all refs or none. Hooks do not run. Changes without effect are skipped.
pub(crate) fn update(
    repository: &Repository,
    changes: &[RefChange],
    reason: &str,
) -> Result<SwapResult> {
    update_with(repository, None, &[], changes, reason)
}

/// Like [`update`], in an operation that holds this lock. The git that moves the refs holds it too: if
/// only this process is killed, no other one takes the lock before that git has ended.
pub(crate) fn update_in_operation(
    repository: &Repository,
    lock: &Lock,
    changes: &[RefChange],
    reason: &str,
) -> Result<SwapResult> {
    update_with(repository, Some(lock), &[], changes, reason)
}

/// Like [`update_in_operation`]; the refs are durable when this returns (git 2.36 and later:
/// `core.fsync`).
pub(crate) fn update_on_disk(
    repository: &Repository,
    lock: &Lock,
    changes: &[RefChange],
    reason: &str,
) -> Result<SwapResult> {
    update_with(repository, Some(lock), &["-c", "core.fsync=committed"], changes, reason)
}

fn update_with(
    repository: &Repository,
    lock: Option<&Lock>,
    settings: &[&str],
    changes: &[RefChange],
    reason: &str,
) -> Result<SwapResult> {
    let effective: Vec<&RefChange> =
        changes.iter().filter(|change| change.before != change.after).collect();
    if effective.is_empty() {
        return Ok(SwapResult::Done);
    }
    if let ([change], []) = (effective.as_slice(), settings)
        && !reftable::is_used(&repository.common_dir)
        && !may_be_packed(repository, &change.name)
        && let Some(result) = update_one(&*repository.open()?, change, reason)?
    {
        return Ok(result);
    }
    let mut input = Vec::new();
    for change in &effective {
        let line = match (&change.before, &change.after) {
            (None, Some(after)) => format!("create {}\0{after}\0", change.name),
            (Some(before), Some(after)) => format!("update {}\0{after}\0{before}\0", change.name),
            (Some(before), None) => format!("delete {}\0{before}\0", change.name),
            (None, None) => continue,
        };
        input.extend_from_slice(line.as_bytes());
    }
    let run = || {
        let args = settings.iter().copied().chain(["update-ref", "-m", reason, "--stdin", "-z"]);
        let mut command = repository.git().command(args).input(input.clone());
        if let Some(lock) = lock {
            command = command.descriptor(lock.share().or_fail(|| "cannot start git")?, LOCK_FD);
        }
        command.output(OutputLimits::seconds(120)).or_fail(|| "cannot start git")
    };
    // A git that is killed has moved either all or none.
    let is_done = |output: &Output| {
        if output.status.signal().is_none() {
            return Ok(output.ok());
        }
        let actual = read_all(repository, &effective)?;
        Ok(effective.iter().zip(&actual).all(|(change, actual)| change.after == *actual))
    };
    let mut output = run()?;
    if !is_done(&output)? && output.status.signal().is_some() && !output.timed_out {
        output = run()?;
    }
    if !is_done(&output)? && remove_dead_locks(repository, &effective) {
        output = run()?;
    }
    if is_done(&output)? {
        return Ok(SwapResult::Done);
    }
    let actual = read_all(repository, &effective)?;
    let mut pairs = effective.iter().zip(&actual);
    if let Some((change, actual)) = pairs.find(|(change, actual)| **actual != change.before) {
        return Ok(SwapResult::Lost { name: change.name.clone(), actual: actual.clone() });
    }
    let failure = Failure::failed("cannot move refs").because(output.error_text());
    let locks = git_locks(repository, &effective).into_iter();
    Err(locks.fold(failure, |failure, path| {
        failure.hint(format!("if no git is running: rm '{}'", path.display()))
    }))
}

/// Returns the present values of refs that are to change.
fn read_all(repository: &Repository, changes: &[&RefChange]) -> Result<Vec<Option<String>>> {
    let repo = repository.open()?;
    changes.iter().map(|change| read(&repo, &change.name)).collect()
}

/// Returns the locks that stop git from moving refs. One that a killed git left stops every git.
fn git_locks(repository: &Repository, changes: &[&RefChange]) -> Vec<PathBuf> {
    let of_refs = changes.iter().map(|change| format!("{}.lock", change.name));
    let shared = ["packed-refs.lock", reftable::LOCK_FILE].map(str::to_owned);
    let paths = shared.into_iter().chain(of_refs).map(|name| repository.common_dir.join(name));
    paths.filter(|path| path.exists()).collect()
}

/// Returns whether a ref may be in `packed-refs`. Git writes that file: its lock, left by a killed
/// studio, would stop the user's git.
fn may_be_packed(repository: &Repository, name: &str) -> bool {
    let packed = read_file(&repository.common_dir.join("packed-refs"), MAX_PACKED_BYTES);
    match packed {
        Ok(None) => false,
        Ok(Some(text)) => {
            text.split(|byte| byte.is_ascii_whitespace()).any(|word| word == name.as_bytes())
        }
        Err(_) => true,
    }
}

/// Removes the locks of studio's own refs that a killed process left: those that stay the same for a
/// time for which no process holds one. Returns whether there were locks.
fn remove_dead_locks(repository: &Repository, changes: &[&RefChange]) -> bool {
    let identity = |path: &Path| {
        let metadata = path.symlink_metadata().ok()?;
        Some((metadata.dev(), metadata.ino(), metadata.ctime(), metadata.ctime_nsec()))
    };
    let own = changes.iter().filter(|change| is_own(repository, &change.name));
    let locks = own.map(|change| repository.common_dir.join(format!("{}.lock", change.name)));
    let locks: Vec<_> = locks.filter_map(|path| Some((identity(&path)?, path))).collect();
    if locks.is_empty() {
        return false;
    }
    let _ = rustix::event::poll(&mut [], Some(&MAX_LOCK_TIME));
    for (found, path) in &locks {
        if identity(path).as_ref() == Some(found) {
            let _ = fs::remove_file(path);
        }
    }
    true
}

/// Returns whether a ref is studio's alone: in its namespace, or the branch of a session.
fn is_own(repository: &Repository, name: &str) -> bool {
    let is_session =
        |part: &str| Id::parse(part).is_ok_and(|id| repository.session_dir(&id).exists());
    name.starts_with("refs/studio/")
        || name.strip_prefix("refs/heads/").is_some_and(|it| it.split('/').any(is_session))
}

/// Moves one ref with libgit2, which saves a process; `None` if git must do it: it waits for other
/// processes, and says what is wrong.
fn update_one(
    repo: &git2::Repository,
    change: &RefChange,
    reason: &str,
) -> Result<Option<SwapResult>> {
    let name = change.name.as_str();
    let existing = match repo.find_reference(name) {
        Ok(reference) if reference.kind() == Some(git2::ReferenceType::Direct) => Some(reference),
        Err(e) if e.code() == git2::ErrorCode::NotFound => None,
        Ok(_) | Err(_) => return Ok(None),
    };
    let actual = existing.as_ref().and_then(git2::Reference::target);
    if actual.map(|id| id.to_string()) != change.before {
        let actual = actual.map(|id| id.to_string());
        return Ok(Some(SwapResult::Lost { name: change.name.clone(), actual }));
    }
    let after = change.after.as_deref().map(oid).transpose()?;
    let result = match (existing, after) {
        (None, Some(after)) => repo.reference(name, after, false, reason).map(drop),
        (Some(_), Some(after)) => {
            let before = actual.unwrap_or(git2::Oid::ZERO_SHA1);
            repo.reference_matching(name, after, true, before, reason).map(drop)
        }
        // Fails if its value has changed since it was read.
        (Some(mut reference), None) => reference.delete(),
        (None, None) => Ok(()),
    };
    Ok(result.is_ok().then_some(SwapResult::Done))
}

/// Like [`update`], for studio's own refs: a failed swap means that another process changes them.
pub(crate) fn update_or_fail(
    repository: &Repository,
    changes: &[RefChange],
    reason: &str,
) -> Result<()> {
    refuse_lost(update(repository, changes, reason)?)
}

/// Fails if the refs did not move.
pub(crate) fn refuse_lost(result: SwapResult) -> Result<()> {
    match result {
        SwapResult::Done => Ok(()),
        SwapResult::Lost { name, actual } => {
            let actual = actual.unwrap_or_else(|| "nothing".to_owned());
            Err(Failure::refused(format!("{name} was changed by someone else"))
                .because(format!("it holds {actual}"))
                .hint("studio doctor"))
        }
    }
}

/// Returns the value of a ref.
pub fn read(repo: &git2::Repository, name: &str) -> Result<Option<String>> {
    let fail = || format!("cannot read {name}");
    if let Some(tables) = RefTables::of(repo).or_fail(fail)? {
        let (_, id) = tables.resolve(name).or_fail(fail)?;
        return Ok(id.map(|id| id.to_string()));
    }
    match repo.refname_to_id(name) {
        Ok(id) => Ok(Some(id.to_string())),
        Err(e) if e.code() == git2::ErrorCode::NotFound => Ok(None),
        Err(e) => Err(Failure::failed(fail()).because(e.message())),
    }
}

/// Returns all refs with a prefix, e.g. `refs/studio/kept/`, and their values; no symbolic ones.
pub(crate) fn list(repo: &git2::Repository, prefix: &str) -> Result<BTreeMap<String, String>> {
    let fail = || "cannot list refs";
    if let Some(tables) = RefTables::of(repo).or_fail(fail)? {
        let listed = tables.list(prefix).or_fail(fail)?.into_iter();
        let direct = listed.filter_map(|(name, value)| match value {
            RefValue::Direct(id) => Some((name, id.to_string())),
            RefValue::Symbolic(_) => None,
        });
        return Ok(direct.collect());
    }
    let references = repo.references_glob(&format!("{prefix}*")).or_fail(fail)?;
    let mut refs = BTreeMap::new();
    for reference in references {
        let reference = reference.or_fail(fail)?;
        if let (Ok(name), Some(target)) = (reference.name(), reference.target()) {
            refs.insert(name.to_owned(), target.to_string());
        }
    }
    Ok(refs)
}

/// Returns the file that changes with a ref, unless it is in `packed-refs`.
pub fn file_of(common_dir: &Path, name: &str) -> PathBuf {
    match reftable::is_used(common_dir) {
        true => reftable::list_file(common_dir),
        false => common_dir.join(name),
    }
}

/// The ref that HEAD of a checkout leads to, and its object.
pub(crate) struct Head {
    /// The full name; `HEAD` for a detached one.
    pub name: String,
    /// The object; `None` for an unborn branch.
    pub id: Option<git2::Oid>,
}

/// Reads HEAD of the checkout for which a repository was opened.
pub(crate) fn head(repo: &git2::Repository) -> Result<Head> {
    let fail = || "cannot read HEAD";
    if is_head_in_table(repo.path())
        && let Some(tables) = RefTables::of(repo).or_fail(fail)?
    {
        let (name, id) = tables.resolve("HEAD").or_fail(fail)?;
        return Ok(Head { name, id });
    }
    match repo.head() {
        Ok(head) => {
            let name = head.name().or_fail(|| "HEAD is not UTF-8")?.to_owned();
            Ok(Head { name, id: head.target() })
        }
        Err(error) => match error.code() {
            git2::ErrorCode::UnbornBranch | git2::ErrorCode::NotFound => {
                let head = repo.find_reference("HEAD").or_fail(fail)?;
                let name = head.symbolic_target().ok().flatten().unwrap_or("HEAD").to_owned();
                Ok(Head { name, id: None })
            }
            _ => Err(error).or_fail(fail),
        },
    }
}

/// Returns the full name of the branch that HEAD of a git directory names; `None` for a detached
/// HEAD.
pub(crate) fn head_branch(git_dir: &Path) -> Option<String> {
    let text = fs::read_to_string(git_dir.join("HEAD")).ok()?;
    match text.strip_prefix("ref:")?.trim() {
        reftable::HEAD_ELSEWHERE => match reftable::own_ref(git_dir, "HEAD").ok()?? {
            RefValue::Symbolic(name) => Some(name),
            RefValue::Direct(_) => None,
        },
        name => Some(name.to_owned()),
    }
}

/// Returns whether HEAD of a git directory is in a reftable.
pub(crate) fn is_head_in_table(git_dir: &Path) -> bool {
    let text = fs::read_to_string(git_dir.join("HEAD")).unwrap_or_default();
    text.strip_prefix("ref:").map(str::trim) == Some(reftable::HEAD_ELSEWHERE)
}

/// Returns whether the git directory of a checkout has a ref such as `CHERRY_PICK_HEAD`.
pub(crate) fn has_own_ref(git_dir: &Path, name: &str) -> bool {
    git_dir.join(name).exists() || matches!(reftable::own_ref(git_dir, name), Ok(Some(_)))
}

/// Returns the commit that a revision names, such as `HEAD~2`, a tag or the start of an id.
pub(crate) fn find_commit<'repo>(
    repo: &'repo git2::Repository,
    revision: &str,
) -> std::result::Result<git2::Commit<'repo>, git2::Error> {
    if !reftable::is_used(repo.commondir()) {
        return repo.revparse_single(revision)?.peel_to_commit();
    }
    // git says of an unknown name that it "needed a single revision".
    let not_found = || {
        let message = format!("no commit has the name {}", base::text::printable(revision));
        git2::Error::new(git2::ErrorCode::NotFound, git2::ErrorClass::Reference, message)
    };
    let revision = format!("{revision}^{{commit}}");
    let output = Git::at(repo.path())
        .command(["rev-parse", "--verify", "--quiet", "--end-of-options", &revision])
        .output(OutputLimits::seconds(60))
        .map_err(|error| git2::Error::from_str(&error.to_string()))?;
    if !output.ok() {
        return Err(not_found());
    }
    repo.find_commit(object_format::parse_id(output.text().trim())?)
}

/// Returns the input of `git rev-list --stdin`, and of commands like it, for what is reachable from
/// `commits` and not from `existing`. Of the latter, those count that the repository has.
pub(crate) fn range_input(
    repo: &git2::Repository,
    commits: &[String],
    existing: &[String],
) -> Result<String> {
    let odb = repo.odb().or_fail(|| "cannot open the objects")?;
    let has = |commit: &&String| oid(commit).is_ok_and(|id| odb.exists(id));
    let wanted = commits.iter().map(|commit| format!("{commit}\n"));
    let excluded = existing.iter().filter(has).map(|commit| format!("^{commit}\n"));
    Ok(wanted.chain(excluded).collect())
}

/// Parses an object id that studio wrote.
pub fn oid(text: &str) -> Result<git2::Oid> {
    object_format::parse_id(text).or_fail(|| format!("`{text}` is not an object id"))
}
