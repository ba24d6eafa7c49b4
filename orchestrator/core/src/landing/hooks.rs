//! Git hooks in landings: those whose exact content the user approved run in the sandbox of checks,
//! on the merged tree.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base::config::{ConfigSources, trust};
use base::failure::{Failure, OrFail, Result};
use base::text::{printable_output, tail};
use studio_git::diff;
use studio_git::merge::{Candidate, CommitMessage};
use studio_git::safe_open::SafeDir;

use crate::exec::runner::CommandOutput;
use crate::project::Project;
use crate::session::record::SessionRecord;
use crate::tree_checks::{self, CheckEnvironment};

/// Maximum size of a hook in bytes.
const MAX_HOOK_BYTES: u64 = 1 << 20;
/// Maximum size of a commit message in bytes.
const MAX_MESSAGE_BYTES: u64 = 1 << 20;
/// Maximum size of a difference that is shown, in bytes.
const MAX_DIFFERENCE_BYTES: usize = 4_000;
/// The file with the message, as git names it.
const MESSAGE_FILE: &str = "COMMIT_EDITMSG";
/// The directory of the hooks' copies, below the temporary directory of the checks.
const COPIES: &str = "studio-hooks";

/// A hook that landings run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HookName {
    PreCommit,
    CommitMsg,
    PostCommit,
}

impl HookName {
    const ALL: [HookName; 3] = [HookName::PreCommit, HookName::CommitMsg, HookName::PostCommit];

    fn as_str(self) -> &'static str {
        match self {
            HookName::PreCommit => "pre-commit",
            HookName::CommitMsg => "commit-msg",
            HookName::PostCommit => "post-commit",
        }
    }
}

/// The approved hooks of a landing, and the environment in which they run.
pub(super) struct LandingHooks {
    approved: Vec<(HookName, Vec<u8>)>,
    environment: Option<CheckEnvironment>,
    /// One sentence for each hook that is not approved.
    pub notes: Vec<String>,
}

impl LandingHooks {
    /// Reads the hooks of the repository if `[studio] hooks` is set. The approved bytes are kept: a
    /// file that changes during the landing has no effect on it.
    pub(super) fn read(project: &Project) -> Result<LandingHooks> {
        let mut hooks = LandingHooks { approved: Vec::new(), environment: None, notes: Vec::new() };
        if !project.config.studio.hooks {
            return Ok(hooks);
        }
        let directory = hooks_directory(project)?;
        let store = ConfigSources::from_env(&directory).trust_store();
        for name in HookName::ALL {
            let file = directory.join(name.as_str());
            if !base::process::is_executable(&file) {
                continue;
            }
            let read = base::files::read_bounded(&file, MAX_HOOK_BYTES);
            let content = read.or_fail(|| format!("cannot read {}", file.display()))?;
            let is_trusted =
                store.as_ref().is_some_and(|store| trust::is_trusted(store, &file, &content));
            match is_trusted {
                true => hooks.approved.push((name, content)),
                false => {
                    hooks.notes.push(unapproved_note(store.as_deref(), name, &file, &content)?)
                }
            }
        }
        Ok(hooks)
    }

    /// Returns the names of the hooks that run, for the receipt.
    pub(super) fn names(&self) -> Vec<&'static str> {
        self.approved.iter().map(|(name, _)| name.as_str()).collect()
    }

    /// Runs `pre-commit` with the landing's changes staged. Fails (1) if it fails.
    pub(super) fn run_pre_commit(
        &mut self,
        project: &Project,
        record: &SessionRecord,
        candidate: &Candidate,
    ) -> Result<()> {
        let (name, tip) = (HookName::PreCommit, &candidate.target_tip);
        let Some(output) = self.run(project, record, candidate, name, &[], tip)? else {
            return Ok(());
        };
        refuse_failed(record, HookName::PreCommit, &output)
    }

    /// Runs `commit-msg` and returns the message that it leaves. Fails (1) if it fails.
    pub(super) fn run_commit_msg(
        &mut self,
        project: &Project,
        record: &SessionRecord,
        candidate: &Candidate,
        message: &CommitMessage,
    ) -> Result<CommitMessage> {
        let is_approved = self.approved.iter().any(|(name, _)| *name == HookName::CommitMsg);
        if !is_approved || !candidate.needs_message {
            return Ok(message.clone());
        }
        let directory = self.environment(project, record, candidate)?.worktree.temporary.clone();
        std::fs::create_dir_all(&directory).or_fail(cannot)?;
        let file = directory.join(MESSAGE_FILE);
        base::files::replace(&file, message.format()?.as_bytes()).or_fail(cannot)?;
        let argument = file.to_string_lossy().into_owned();
        let (name, tip) = (HookName::CommitMsg, &candidate.target_tip);
        if let Some(output) = self.run(project, record, candidate, name, &[argument], tip)? {
            refuse_failed(record, HookName::CommitMsg, &output)?;
        }
        // The hook may have put a link or a pipe in its place.
        let read =
            SafeDir::open(&directory).and_then(|dir| dir.read(MESSAGE_FILE, MAX_MESSAGE_BYTES));
        let edited = read.or_fail(|| "cannot read the message of hook `commit-msg`")?;
        let text = edited.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let text = text.filter(|text| !text.trim().is_empty()).ok_or_else(|| {
            Failure::failed("hook `commit-msg` left no commit message")
                .hint(format!("studio accept {} -m 'what the commit does'", record.id))
        })?;
        Ok(CommitMessage { text, trailers: Vec::new() })
    }

    /// Runs `post-commit` on the landed commit. Returns a note if it fails.
    pub(super) fn run_post_commit(
        &mut self,
        project: &Project,
        record: &SessionRecord,
        candidate: &Candidate,
        commit: &str,
    ) -> Option<String> {
        let run = self.run(project, record, candidate, HookName::PostCommit, &[], commit);
        match run {
            Ok(Some(output)) if output.exit != 0 => {
                let reason = printable_output(tail(output.tail.trim_end(), 1500));
                Some(format!("hook `post-commit` failed with exit code {}: {reason}", output.exit))
            }
            Ok(_) => None,
            Err(failure) => Some(format!("hook `post-commit` did not run: {failure}")),
        }
    }

    /// Runs an approved hook with HEAD at a commit; `None` if it is not approved.
    fn run(
        &mut self,
        project: &Project,
        record: &SessionRecord,
        candidate: &Candidate,
        name: HookName,
        args: &[String],
        head: &str,
    ) -> Result<Option<CommandOutput>> {
        let Some(content) =
            self.approved.iter().find(|(approved, _)| *approved == name).map(|(_, it)| it.clone())
        else {
            return Ok(None);
        };
        let environment = self.environment(project, record, candidate)?;
        let directory = environment.worktree.temporary.join(COPIES);
        std::fs::create_dir_all(&directory).or_fail(cannot)?;
        let copy = directory.join(name.as_str());
        base::files::replace_with_mode(&copy, &content, 0o755).or_fail(cannot)?;
        let _step = project.console.step(&record.id, &format!("running hook `{}`", name.as_str()));
        // As git: HEAD is the parent, the index has the new tree, and a script without a first line
        // is one of `sh`.
        let line = "git update-ref --no-deref HEAD \"$1\" && shift && \"$0\" \"$@\"";
        let mut argv = vec!["sh".to_owned(), "-c".to_owned(), line.to_owned()];
        argv.extend([copy.to_string_lossy().into_owned(), head.to_owned()]);
        argv.extend_from_slice(args);
        let timeout = Duration::from_secs(tree_checks::check_seconds(project));
        let runner = &environment.runner;
        tree_checks::block_on(project, runner, runner.run_program(&argv, timeout)).map(Some)
    }

    /// Returns the check worktree with the merged tree, set up as for checks.
    fn environment(
        &mut self,
        project: &Project,
        record: &SessionRecord,
        candidate: &Candidate,
    ) -> Result<&CheckEnvironment> {
        let environment = match self.environment.take() {
            Some(environment) => environment,
            None => {
                let commit = &candidate.merged_commit;
                let environment = tree_checks::environment(project, &record.templates, commit)?;
                tree_checks::set_up_for_hooks(project, &environment)?;
                environment
            }
        };
        Ok(self.environment.insert(environment))
    }
}

/// Returns the directory of the hooks, as git finds it.
fn hooks_directory(project: &Project) -> Result<PathBuf> {
    let repository = &project.repository;
    let repo = repository.open()?;
    let config = repo.config().or_fail(|| "cannot read the configuration of the repository")?;
    let checkout = repository.main_checkout.as_ref().unwrap_or(&repository.common_dir);
    Ok(match config.get_path("core.hooksPath") {
        Ok(path) if !path.as_os_str().is_empty() => checkout.join(path),
        Ok(_) | Err(_) => repository.common_dir.join("hooks"),
    })
}

/// Returns the note for a hook that does not run: its difference from the approved content, or its
/// name.
fn unapproved_note(
    store: Option<&Path>,
    name: HookName,
    file: &Path,
    content: &[u8],
) -> Result<String> {
    let name = name.as_str();
    let earlier = store.map(|store| trust::last(store, file)).transpose()?.flatten();
    let command = format!("g3 trust --file '{}'", file.display());
    let Some(earlier) = earlier else {
        return Ok(format!("hook `{name}` is not trusted and was not run; to trust it: {command}"));
    };
    let difference = match earlier.content.as_deref().map(str::as_bytes) {
        Some(earlier) if earlier == content => "a program that it names changed".to_owned(),
        Some(earlier) => {
            let difference =
                diff::between(file.file_name().unwrap_or_default().as_bytes(), earlier, content)?;
            printable_output(base::text::head(&difference, MAX_DIFFERENCE_BYTES))
        }
        None => "its earlier content was too large to keep".to_owned(),
    };
    Ok(format!(
        "hook `{name}` changed since you trusted it and was not run; to trust it: {command}\n{difference}"
    ))
}

fn refuse_failed(record: &SessionRecord, name: HookName, output: &CommandOutput) -> Result<()> {
    if output.exit == 0 {
        return Ok(());
    }
    let id = &record.id;
    let name = name.as_str();
    let reason = printable_output(tail(output.tail.trim_end(), 1500));
    let reason = match (&output.limit, reason.trim()) {
        (Some(limit), _) => limit.clone(),
        (None, "") => "no output".to_owned(),
        (None, reason) => reason.to_owned(),
    };
    Err(Failure::failed(format!("hook `{name}` fails with exit code {}", output.exit))
        .because(reason)
        .hint(format!("studio send {id} 'make the hook {name} pass'"))
        .hint("or land without hooks: `[studio] hooks = false`"))
}

fn cannot() -> &'static str {
    "cannot run the hook"
}
