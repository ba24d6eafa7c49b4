//! Lands a session: collects its work, merges, checks the merged tree, writes the message, updates
//! the branch.

pub mod check_changes;
mod conflict;
mod elsewhere;
mod hooks;
pub mod hunk_selection;
mod last_look;
pub mod merge_checks;
pub(crate) mod message;
pub mod queue;
pub mod stack;
pub mod syntax_merges;
pub(crate) mod target;

use base::config::studio::SecretsSetting;
use base::failure::{Failure, OrFail, Result};
use base::id::Id;
use base::lock::Lock;
use serde::Serialize;
use serde_json::{Value, json};

use crate::check_files::CheckFile;
use crate::coach_json;
use crate::commit_message::{self, WrittenMessage};
use crate::exec::hidden_trees::writable_trees;
use crate::landing::hooks::LandingHooks;
use crate::landing::hunk_selection::{HunkSelection, LandedHunks};
use crate::landing::target::LandingTarget;
use crate::project::Project;
use crate::project::pause;
use crate::session::collect;
use crate::session::journal::CheckResult;
use crate::session::record::SessionRecord;
use crate::session::state::SessionState;
use crate::session_view::{SessionView, checks_json};
use studio_git::compat;
use studio_git::land::{self, LandResult};
use studio_git::landed_work::LandedWork;
use studio_git::landing_history;
use studio_git::merge::{self, Candidate, LandingCommit, MergeStrategy, PreparedMerge};
use studio_git::names::BranchName;
use studio_git::secrets::{self, FoundSecret};
use studio_git::session_repo::SessionRepo;
use studio_git::signing::{self, CommitSigner};
use studio_git::snapshot::{self, Snapshot};
use studio_git::submodules;

/// Maximum number of lines with secrets in a message.
const SECRETS_SHOWN: usize = 20;
/// How often the target may move during a landing.
pub(crate) const MAX_ATTEMPTS: u32 = 5;
/// The note for work that lands without checks.
const UNCHECKED: &str = "no checks were run (--no-checks); recorded in the receipt";

/// The options of a landing.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent flags of a command line")]
pub struct LandingOptions {
    /// The merge strategy.
    pub strategy: MergeStrategy,
    /// The target branch, if not the base.
    pub onto: Option<String>,
    /// The commit message.
    pub message: Option<String>,
    /// Whether the user edits the message.
    pub edit: bool,
    /// Whether to only report what would be done.
    pub dry_run: bool,
    /// Whether to land a session that is not ready.
    pub force: bool,
    /// Whether to skip the checks.
    pub no_checks: bool,
    /// Whether to merge conflicting files by syntax, if that resolves all conflicts.
    pub merge_by_syntax: bool,
    /// Large files to land nevertheless, as relative paths.
    pub include: Vec<std::path::PathBuf>,
    /// Whether to land text that looks like a private key or a token.
    pub allow_secrets: bool,
    /// Whether to land changes of files that decide what the checks say without confirmation.
    pub allow_check_changes: bool,
    /// Whether to land work that changed since the user last looked at it without confirmation.
    pub yes: bool,
    /// The tree that the work must have.
    pub match_tree: Option<String>,
    /// The hunks to land; all if empty. The session stays open with the rest.
    pub hunks: Vec<String>,
    /// Sessions that are discarded in the same operation; the caller holds their locks.
    pub dropped: Vec<SessionRepo>,
}

/// A session that landed.
#[derive(Clone, Debug)]
pub struct Landed {
    /// The operation; `None` for a dry run.
    pub operation: Option<String>,
    /// The session.
    pub id: Id,
    /// The commit on the target; `None` for a dry run.
    pub commit: Option<String>,
    /// The target branch.
    pub target: BranchName,
    /// The merge strategy.
    pub strategy: MergeStrategy,
    /// The author of the message: `model`, `plain` or `user`.
    pub message_by: &'static str,
    /// The results of the checks.
    pub checks: Vec<CheckResult>,
    /// The changed files that decide what the checks say.
    pub check_files: Vec<CheckFile>,
    /// The files that were merged by syntax.
    pub merged_by_syntax: Vec<String>,
    /// The hooks that ran.
    pub hooks: Vec<&'static str>,
    /// Notes for the user.
    pub notes: Vec<String>,
    /// The hunks, if only some landed.
    pub hunks: Option<LandedHunks>,
    /// How the target had the work already, if nothing was left to land.
    pub elsewhere: Option<LandedWork>,
    /// The sessions that were discarded in the same operation.
    pub dropped: Vec<base::id::Id>,
}

/// The rejection of a landing.
#[derive(Debug)]
pub struct Rejection {
    /// The reason.
    pub failure: Failure,
    /// The conflicting files.
    pub files: Box<ConflictingFiles>,
    /// The prompt with which the agent can solve it, if it can.
    pub agent_prompt: Option<Box<str>>,
    /// What lands it if the user confirms it.
    pub confirmation: Option<Box<Confirmation>>,
    /// The session together with which its checks fail, if they pass without that one.
    pub fails_with: Option<Box<Id>>,
}

/// The files in which work conflicts with its target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConflictingFiles {
    /// Their paths.
    pub paths: Vec<String>,
    /// Whether a merge by syntax resolves all conflicts.
    pub merges_by_syntax: bool,
}

/// The command line with which the user confirms a landing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Confirmation {
    /// The flag of `accept`.
    pub flag: &'static str,
    /// The tree that the user was asked about, for `--match-tree`.
    pub tree: String,
}

impl From<Failure> for Rejection {
    fn from(failure: Failure) -> Rejection {
        Rejection {
            failure,
            files: Box::default(),
            agent_prompt: None,
            confirmation: None,
            fails_with: None,
        }
    }
}

impl Rejection {
    /// Returns the rejection of work that lands if the user confirms it with a flag.
    fn to_confirm(failure: Failure, flag: &'static str, tree: &str) -> Rejection {
        let confirmation = Some(Box::new(Confirmation { flag, tree: tree.to_owned() }));
        Rejection { confirmation, ..Rejection::from(failure) }
    }
}

impl Landed {
    /// Returns the result of a landing before it is carried out.
    pub(crate) fn not_yet(id: Id, candidate: &Candidate) -> Landed {
        Landed {
            operation: None,
            id,
            commit: None,
            target: candidate.target.clone(),
            strategy: candidate.strategy,
            message_by: "plain",
            checks: Vec::new(),
            check_files: Vec::new(),
            merged_by_syntax: candidate.merged_by_syntax.clone(),
            notes: Vec::new(),
            hooks: Vec::new(),
            elsewhere: None,
            hunks: None,
            dropped: Vec::new(),
        }
    }

    /// Returns one object of `landed` in `accept --json`.
    pub fn json(&self) -> Value {
        let mut landed = json!({
            "id": self.id, "commit": self.commit, "target": self.target,
            "strategy": self.strategy, "message_by": self.message_by,
            "checks": checks_json(&self.checks), "check_files": self.check_files,
            "merged_by_syntax": self.merged_by_syntax,
            "elsewhere": self.elsewhere,
            "dropped": self.dropped,
        });
        if let Some(hunks) = &self.hunks {
            landed["hunks"] = json!(hunks.ids);
            landed["remaining_hunks"] = json!(hunks.remaining);
        }
        landed
    }
}

/// Takes the lock of a session to land it; refuses (3) a session that is in use.
pub fn lock(project: &Project, id: &Id) -> Result<Lock> {
    if let Some(lock) = project.lock_with_timeout(id)? {
        return Ok(lock);
    }
    let state = project.view(id)?.state;
    let what = format!("session `{id}` is {}", state.name());
    Err(match state.is_active() || state == SessionState::Queued {
        true => Failure::refused(what)
            .because("its agent is still running")
            .hint(format!("studio logs {id} -f"))
            .hint(format!("studio stop {id}")),
        false => Failure::refused(format!("session `{id}` is in use"))
            .because("another command is landing, discarding or reading it")
            .hint(format!("wait for it, then: studio status {id}")),
    })
}

/// What a landing must be, because it was examined and checked before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected<'a> {
    /// The tree of the work.
    pub work_tree: &'a str,
    /// The merged tree.
    pub merged_tree: &'a str,
    /// The commit message, if a model is to write it.
    pub message: Option<&'a WrittenMessage>,
}

/// Lands a session whose lock the caller holds.
pub fn land(
    project: &Project,
    view: &SessionView,
    options: &LandingOptions,
    lock: &Lock,
) -> std::result::Result<Landed, Rejection> {
    let landed = land_expected(project, view, options, None, lock)?;
    landed.ok_or_else(|| Failure::refused("the target kept changing").into())
}

/// Like [`land`]. Lands only what is expected, if that is given; `None` if the work or its
/// target has changed since.
pub(crate) fn land_expected(
    project: &Project,
    view: &SessionView,
    options: &LandingOptions,
    expected: Option<Expected<'_>>,
    _lock: &Lock,
) -> std::result::Result<Option<Landed>, Rejection> {
    // A session that was empty when its agent ended may have been changed by hand.
    let view = &project.refresh(&view.record.id)?;
    refuse_state(view, options)?;
    let lock_shell = || project.lock_shell(&view.record.id);
    let _shell_lock = (!options.dry_run).then(lock_shell).transpose()?;
    let landing_lock = (!options.dry_run).then(|| take_landing_lock(project)).transpose()?;
    let signer = signer(project, &view.record)?;
    let mut run = LandingRun {
        project,
        view,
        options,
        landing_lock,
        signer,
        edited_message: None,
        secrets_allowed: false,
        check_changes_shown: expected.is_some(),
        tree: String::new(),
        expected,
    };
    let record = &view.record;
    let limits =
        snapshot::SnapshotLimits { include: options.include.clone(), ..Default::default() };
    let (collected, snapshot) = collect::fetch(&project.repository, record, &limits)?;
    run.tree = landing_history::resolve(&project.repository, &snapshot.work)?.1;
    last_look::refuse_other_tree(record, &run.tree, options)?;
    if expected.is_some_and(|expected| expected.work_tree != run.tree) {
        return Ok(None);
    }
    let LandingTarget { branch: target, base: stack_base } =
        target::resolve(project, record, options)?;
    let selection = hunk_selection::select(project, record, &snapshot, &target, options)?;
    let mut change_note = None;
    if selection.is_none() {
        snapshot::refuse_omissions(&snapshot, &record.session_repo.worktree)?;
        change_note = last_look::confirm(project, record, &run.tree, options)?;
    }
    if selection.is_none() && expected.is_none() && !options.force {
        let closed = elsewhere::close(project, record, &snapshot, &target, options)?;
        if closed.is_some() {
            return Ok(closed);
        }
    }
    for _ in 0..MAX_ATTEMPTS {
        project.interrupt.check()?;
        let candidate = match &selection {
            Some(selection) => {
                let (snapshot, base) = (selection.snapshot(), Some(selection.base()));
                candidate(project, view, &snapshot, &target, options, base)?
            }
            None => {
                let repo = project.repository.open()?;
                let (repository, head) = (&project.repository, &snapshot.head);
                let base = collect::base_for(&repo, repository, record, head, Some(&target))?;
                let base = base.landed.as_deref().or(stack_base.as_deref());
                candidate(project, view, &snapshot, &target, options, base)?
            }
        };
        if expected.is_some_and(|expected| expected.merged_tree != candidate.tree) {
            return Ok(None);
        }
        if let Some(mut landed) = run.attempt(candidate, selection.as_ref())? {
            if selection.is_some() && landed.commit.is_some() {
                hunk_selection::record_work(project, record);
            }
            let notes = collected.notes.into_iter().chain(change_note);
            // The queue has shown them already.
            landed.notes.splice(0..0, notes.filter(|_| expected.is_none()));
            return Ok(Some(landed));
        }
        if expected.is_some() {
            return Ok(None);
        }
    }
    let message = format!("`{target}` kept changing; gave up after {MAX_ATTEMPTS} attempts");
    let failure = Failure::refused(message);
    Err(failure.hint(format!("studio accept {}", record.id)).into())
}

/// Takes the landing lock: merged work is checked against the current tip, so parallel landings
/// would invalidate each other.
fn take_landing_lock(project: &Project) -> Result<Lock> {
    let path = project.repository.studio_dir()?.join("landing.lock");
    let fail = || format!("cannot lock {}", path.display());
    if let Some(lock) = Lock::try_take(&path).or_fail(fail)? {
        return Ok(lock);
    }
    project.console.note("waiting for another `studio accept` in this repository to finish");
    loop {
        project.interrupt.check()?;
        if let Some(lock) = Lock::try_take(&path).or_fail(fail)? {
            return Ok(lock);
        }
        pause();
    }
}

/// Returns how the user signs commits, if `[studio] sign` is set. The program comes from outside of
/// the repository, its worktrees and studio's data.
pub(crate) fn signer(project: &Project, record: &SessionRecord) -> Result<Option<CommitSigner>> {
    if !project.config.studio.sign {
        return Ok(None);
    }
    let trees = writable_trees(&project.repository, &record.session_repo);
    CommitSigner::of_user(&project.repository, &trees).map(Some)
}

/// The state of one landing.
struct LandingRun<'a> {
    project: &'a Project,
    view: &'a SessionView,
    options: &'a LandingOptions,
    /// The landing lock; `None` for a dry run.
    landing_lock: Option<Lock>,
    /// How commits are signed, if they are.
    signer: Option<CommitSigner>,
    /// The message that the user edited in an earlier attempt.
    edited_message: Option<WrittenMessage>,
    /// Whether the user confirmed landing a possible secret.
    secrets_allowed: bool,
    /// Whether the user was told about changed files of the checks.
    check_changes_shown: bool,
    /// The tree of the work.
    tree: String,
    /// What it must be, if it was examined before.
    expected: Option<Expected<'a>>,
}

/// Refuses a session in a state that cannot land.
pub(crate) fn refuse_state(view: &SessionView, options: &LandingOptions) -> Result<()> {
    let id = &view.record.id;
    let force = options.force;
    let has_failed_check = view.facts.summary.failed_check().is_some();
    let refuse = |reason: String, hint: String| {
        let message = format!("session `{id}` is {}", view.state.name());
        Err(Failure::refused(message).because(reason).hint(hint))
    };
    let reason = view.reason().unwrap_or_default();
    match &view.state {
        SessionState::Ready => Ok(()),
        SessionState::Stopped | SessionState::Failed { .. } | SessionState::Crashed if force => {
            Ok(())
        }
        SessionState::Failed { .. } if has_failed_check && options.no_checks => Ok(()),
        SessionState::Empty if force || !options.include.is_empty() => Ok(()),
        // Landing runs the checks again, so `--force` would fail at the same check.
        SessionState::Failed { .. } if has_failed_check => {
            refuse(reason, format!("studio check {id}")).map_err(|it| {
                it.hint(format!("studio send {id} 'make the check pass'"))
                    .hint(format!("studio edit {id} --check 'another command'"))
                    .hint(format!("studio accept {id} --no-checks    lands it without checks"))
            })
        }
        SessionState::Stopped if view.facts.summary.unchecked.is_some() => {
            refuse(reason, format!("studio check {id}")).map_err(|failure| {
                failure.hint(format!("or land it as it is: studio accept --force {id}"))
            })
        }
        SessionState::Stopped | SessionState::Failed { .. } | SessionState::Crashed => {
            refuse(reason, format!("studio resume {id}")).map_err(|failure| {
                failure.hint(format!("or land it as it is: studio accept --force {id}"))
            })
        }
        SessionState::Empty => {
            let left_out = view.work().and_then(|work| work.omitted.first());
            let include = left_out.map(|file| format!("studio accept {id} --include '{file}'"));
            refuse(reason, include.unwrap_or_else(|| format!("studio send {id} 'what to do'")))
        }
        SessionState::Accepted | SessionState::Discarded => Err(Project::already_ended(view)),
        SessionState::Landing => refuse(reason, "studio doctor".into()),
        SessionState::Queued
        | SessionState::Starting
        | SessionState::Working
        | SessionState::Waiting { .. }
        | SessionState::Checking => {
            refuse("its agent is not done".into(), format!("studio logs {id} -f"))
                .map_err(|failure| failure.hint(format!("studio stop {id}")))
        }
    }
}

/// Examines merged work as its landing will, on the current tip of its target. Returns the options
/// with what the user has confirmed.
pub(crate) fn examine(
    project: &Project,
    view: &SessionView,
    options: &LandingOptions,
    tree: &str,
    (candidate, tip): (&Candidate, &str),
) -> std::result::Result<LandingOptions, Rejection> {
    let mut run = LandingRun {
        project,
        view,
        options,
        landing_lock: None,
        signer: signer(project, &view.record)?,
        edited_message: None,
        secrets_allowed: false,
        check_changes_shown: false,
        tree: tree.to_owned(),
        expected: None,
    };
    run.examine(candidate, tip)?;
    Ok(LandingOptions {
        allow_secrets: options.allow_secrets || run.secrets_allowed,
        allow_check_changes: true,
        ..options.clone()
    })
}

/// Merges the work with the current tip of its target.
fn candidate(
    project: &Project,
    view: &SessionView,
    snapshot: &Snapshot,
    target: &BranchName,
    options: &LandingOptions,
    base: Option<&str>,
) -> std::result::Result<Candidate, Rejection> {
    let session_repo = &view.record.session_repo;
    let method = syntax_merges::method(project, &view.record, options);
    let now = project.clock.now();
    let repository = &project.repository;
    match merge::prepare_from(repository, session_repo, snapshot, target, method, base, now)? {
        PreparedMerge::Ready(candidate) => Ok(*candidate),
        PreparedMerge::Nothing => Err(nothing_to_land(project, view, snapshot, target)?),
        PreparedMerge::Conflicts(conflicts) => {
            Err(conflict::rejection(project, view, target, &conflicts))
        }
    }
}

/// Returns the rejection of a session whose work the target has.
pub(crate) fn nothing_to_land(
    project: &Project,
    view: &SessionView,
    snapshot: &Snapshot,
    target: &BranchName,
) -> Result<Rejection> {
    let session_repo = &view.record.session_repo;
    let (id, worktree) = (&session_repo.id, session_repo.worktree.display());
    let failure = Failure::refused(format!("session `{id}` has nothing to land"));
    let failure = match is_reverted_in_worktree(project, view, snapshot)? {
        true => failure
            .because("its worktree no longer has the changes of its commits")
            .hint(format!("git -C '{worktree}' status"))
            .hint(format!("git -C '{worktree}' checkout -- .    restores them")),
        false => failure.because(format!("`{target}` already has all of it")),
    };
    Ok(failure.hint(format!("studio discard {id}")).into())
}

/// Returns whether the session committed changes that its current worktree reverts.
fn is_reverted_in_worktree(
    project: &Project,
    view: &SessionView,
    snapshot: &Snapshot,
) -> Result<bool> {
    let tree =
        |commit: &str| landing_history::resolve(&project.repository, commit).map(|(_, tree)| tree);
    let (base, head) = (tree(&view.record.base.commit)?, tree(&snapshot.head)?);
    Ok(head != base && tree(&snapshot.work)? == base)
}

/// Something in merged work that the user has to know before it lands.
struct Examination {
    secrets: Vec<FoundSecret>,
    check_files: Vec<CheckFile>,
}

impl LandingRun<'_> {
    /// Refuses merged work that cannot land, and asks about what the user has to confirm.
    fn examine(
        &mut self,
        candidate: &Candidate,
        tip: &str,
    ) -> std::result::Result<Examination, Rejection> {
        let (project, record) = (self.project, &self.view.record);
        let repository = &project.repository;
        land::preflight_from(repository, candidate, tip)?;
        if self.signer.is_some() {
            signing::refuse_unsigned(repository, candidate)?;
        }
        let allowed = &project.config.studio.secrets_allowed;
        let secrets = secrets::find_added(repository, candidate, allowed)?;
        self.refuse_secrets(&secrets)?;
        let check_files = check_changes::find(project, record, candidate)?;
        if !self.check_changes_shown {
            let shown = check_changes::show(project, record, &check_files, self.options);
            let tree = &self.tree;
            shown
                .map_err(|failure| Rejection::to_confirm(failure, "--allow-check-changes", tree))?;
            self.check_changes_shown = true;
        }
        Ok(Examination { secrets, check_files })
    }

    /// Makes one attempt; returns `None` if the target moved during it.
    fn attempt(
        &mut self,
        candidate: Candidate,
        selection: Option<&HunkSelection>,
    ) -> std::result::Result<Option<Landed>, Rejection> {
        let (project, record) = (self.project, &self.view.record);
        let repository = &project.repository;
        syntax_merges::require_checks(project, record, &candidate, self.options)?;
        let Examination { secrets, check_files } =
            self.examine(&candidate, &candidate.target_tip)?;
        let checks = match self.options.no_checks {
            true => Vec::new(),
            false => {
                merge_checks::check_merged(project, record, &candidate).map_err(|failure| {
                    let files = &candidate.merged_by_syntax;
                    syntax_merges::explain_failure(failure, &record.id, files)
                })?
            }
        };
        let mut landed = Landed {
            notes: merge_checks::flaky_notes(&checks).collect(),
            checks,
            check_files,
            hunks: selection.map(HunkSelection::landed),
            ..Landed::not_yet(record.id.clone(), &candidate)
        };
        if self.options.no_checks {
            landed.notes.push(UNCHECKED.to_owned());
        }
        let mut hooks = LandingHooks::read(project)?;
        landed.notes.append(&mut hooks.notes);
        hooks.run_pre_commit(project, record, &candidate)?;
        landed.hooks = hooks.names();
        if self.options.dry_run {
            return Ok(Some(landed));
        }
        let written_message = self.checked_message(&candidate, &mut hooks)?;
        landed.message_by = written_message.author;
        landed.notes.extend(written_message.note.clone());
        let time = project.clock.now();
        landed.notes.extend(secrets.iter().map(FoundSecret::sentence));
        let receipt = receipt(self.view, &candidate, &landed, self.options, &secrets);
        project.interrupt.check()?;
        let session_repo = &record.session_repo;
        let landing_commit = self.commit(&candidate, &written_message, &receipt, time)?;
        let (previous_tip, commit) = (candidate.target_tip.clone(), landing_commit.commit.clone());
        let base_update = selection
            .map(|selection| selection.base_update(repository, session_repo, &commit, time))
            .transpose()?;
        let request = land::LandRequest {
            session_repo: session_repo.clone(),
            candidate,
            landing_commit,
            receipt: Some(receipt),
            time: project.clock.stamp(),
            dropped: self.options.dropped.clone(),
            base_update,
        };
        match land::accept(repository, &request)? {
            LandResult::TargetMoved => Ok(None),
            LandResult::Landed { operation, .. } => {
                let candidate = &request.candidate;
                let note = hooks.run_post_commit(project, record, candidate, &commit);
                landed.notes.extend(note);
                landed.notes.extend(compat::unfiltered_note(
                    &project.repository,
                    &previous_tip,
                    &commit,
                ));
                let repository = &project.repository;
                landed.notes.extend(submodules::moved_note(repository, &previous_tip, &commit));
                landed.operation = Some(operation);
                let dropped = self.options.dropped.iter();
                landed.dropped = dropped.map(|session_repo| session_repo.id.clone()).collect();
                landed.commit = Some(commit);
                Ok(Some(landed))
            }
        }
    }

    /// Refuses (3) possible private keys and tokens, unless the user confirms them.
    fn refuse_secrets(&mut self, secrets: &[FoundSecret]) -> Result<()> {
        let options = self.options;
        let is_lenient = self.project.config.studio.secrets == SecretsSetting::Warn;
        let secrets: Vec<&FoundSecret> = secrets.iter().filter(|it| !it.is_marked).collect();
        if secrets.is_empty() || is_lenient || options.allow_secrets || self.secrets_allowed {
            return Ok(());
        }
        let id = &self.view.record.id;
        let mut lines: Vec<String> =
            secrets.iter().take(SECRETS_SHOWN).map(|secret| secret.sentence()).collect();
        if secrets.len() > lines.len() {
            lines.push(format!("and {} more", secrets.len() - lines.len()));
        }
        let may_ask = !options.dry_run;
        let question = format!("{}\nland it anyway?", lines.join("\n"));
        if may_ask && self.project.console.confirm(&question) == Some(true) {
            self.secrets_allowed = true;
            return Ok(());
        }
        Err(Failure::refused("the work adds a possible secret")
            .because(lines.join("\n"))
            .hint(format!("take it out in {}", self.view.record.session_repo.worktree.display()))
            .hint(format!("or land it anyway: studio accept {id} --allow-secrets")))
    }

    /// Returns the commit message after the hook `commit-msg`.
    fn checked_message(
        &mut self,
        candidate: &Candidate,
        hooks: &mut LandingHooks,
    ) -> Result<WrittenMessage> {
        let written = self.commit_message(candidate)?;
        let record = &self.view.record;
        let message = hooks.run_commit_msg(self.project, record, candidate, &written.message);
        let message = message.map_err(|failure| self.keep_message(failure))?;
        Ok(WrittenMessage { message, ..written })
    }

    /// Creates the commit to land, signed if the user wants that.
    fn commit(
        &self,
        candidate: &Candidate,
        written: &WrittenMessage,
        receipt: &str,
        now: jiff::Timestamp,
    ) -> Result<LandingCommit> {
        let (project, record) = (self.project, &self.view.record);
        let signer = self.signer.as_ref();
        let _step = signer.map(|_| project.console.step(&record.id, "signing the commit"));
        let (repository, session_repo) = (&project.repository, &record.session_repo);
        let (message, receipt) = (&written.message, Some(receipt));
        merge::commit(repository, session_repo, candidate, message, receipt, signer, now)
            .map_err(|failure| self.keep_message(failure))
    }

    /// Keeps the message that the user edited, so that a landing that fails loses no text.
    fn keep_message(&self, failure: Failure) -> Failure {
        let Some(edited) = &self.edited_message else { return failure };
        let id = &self.view.record.id;
        let file = self.project.store.dir(id).join("edited-message");
        match base::files::replace(&file, edited.message.text.as_bytes()) {
            Ok(()) => failure.hint(format!(
                "studio accept {id} -m \"$(cat '{}')\"    uses the message that you wrote",
                file.display()
            )),
            Err(_) => failure,
        }
    }

    /// Returns the commit message: the user's, the model's or a plain one.
    fn commit_message(&mut self, candidate: &Candidate) -> Result<WrittenMessage> {
        let record = &self.view.record;
        if let Some(text) = &self.options.message {
            return Ok(commit_message::from_user(record, text));
        }
        if let Some(edited) = &self.edited_message {
            return Ok(edited.clone());
        }
        if let Some(written) = self.expected.and_then(|expected| expected.message) {
            return Ok(written.clone());
        }
        let written_message = message::for_candidate(self.project, record, candidate)?;
        if !self.options.edit {
            return Ok(written_message);
        }
        // Editing takes time: other sessions may land during it.
        self.landing_lock = None;
        let edited = {
            let repository = &self.project.repository;
            let directory = repository.main_checkout.as_ref().unwrap_or(&repository.common_dir);
            self.project.console.edit(
                directory,
                &self.project.interrupt,
                &written_message.message.text,
            )?
        };
        self.landing_lock = Some(take_landing_lock(self.project)?);
        Ok(self.edited_message.insert(commit_message::from_user(record, &edited)).clone())
    }
}

/// Returns the receipt, which is stored as a note of the landed commit.
fn receipt(
    view: &SessionView,
    candidate: &Candidate,
    landed: &Landed,
    options: &LandingOptions,
    secrets: &[FoundSecret],
) -> String {
    let record = &view.record;
    let mut receipt = json!({
        "session": record.id,
        "task": base::text::head(&record.task, 4000),
        "agent": record.agent,
        "base": record.base.commit,
        "tree": candidate.tree,
        "strategy": candidate.strategy,
        "message_by": landed.message_by,
        "checks": checks_json(&landed.checks),
        "usage": view.facts.summary.usage,
        "requirements": record.plan_ref.requirements,
    });
    if !secrets.is_empty() {
        receipt["secrets_allowed"] = json!(secrets);
    }
    if !landed.hooks.is_empty() {
        receipt["hooks"] = json!(landed.hooks);
    }
    if !landed.merged_by_syntax.is_empty() {
        receipt["merged_by_syntax"] = json!(landed.merged_by_syntax);
    }
    if !landed.check_files.is_empty() {
        receipt["check_files"] = json!(landed.check_files);
    }
    if let Some(hunks) = &landed.hunks {
        // A part of the work does not prove a requirement.
        receipt["hunks"] = json!(hunks.ids);
        receipt["requirements"] = json!([]);
    }
    let coach = coach_json::receipt_fields(&view.facts.summary, &candidate.work, &landed.checks);
    if let (Value::Object(receipt), Value::Object(coach)) = (&mut receipt, coach) {
        receipt.extend(coach);
        if options.no_checks {
            receipt.insert("no_checks".to_owned(), Value::Bool(true));
        }
    }
    format!("{receipt:#}\n")
}
