//! Interactive runs: the user works with g3 on the terminal, in the session's worktree and sandbox.
//! Afterwards the work is collected and checked like that of any other run.

use std::path::Path;
use std::time::SystemTime;

use base::failure::{Failure, OrFail, Result};
use base::id::Id;
use base::lock::Lock;

use crate::exec::build_caches::BuildCaches;
use crate::project::Project;
use crate::session::journal::{JournalEntry, JournalWriter, SessionOutcome, WorkSummary};
use crate::session::store::SessionStore;
use crate::session_view::SessionView;
use crate::supervisor::run::SupervisorConfig;
use crate::supervisor::step::Input;
use crate::supervisor::tasks;
use crate::supervisor_process::supervisor_config;

/// The prompt that the journal shows for an interactive turn.
const TURN_TEXT: &str = "(interactive)";

/// Runs g3 for the user in a session whose lock the caller holds, until the user leaves it.
pub fn run(project: &Project, view: &SessionView, lock: &Lock) -> Result<()> {
    let (id, summary) = (&view.record.id, &view.facts.summary);
    let config = supervisor_config(project, &view.record)?;
    let argv = command(&config, summary.conversation_id.as_deref())?;
    let runtime = base::runtime::current_thread().or_fail(|| "cannot start the runtime")?;
    let mut journal = project.store.writer(id, project.clock)?;
    write(&mut journal, JournalEntry::Spawned { pid: std::process::id() })?;
    let making = tasks::make_worktree(&config, project.interrupt.token(), |_| ());
    match runtime.block_on(making) {
        Input::WorktreeReady { note } => {
            if let Some(text) = note {
                write(&mut journal, JournalEntry::Note { text })?;
            }
        }
        Input::CannotStart { reason } => {
            end(&mut journal, SessionOutcome::Failed { why: reason.clone() })?;
            return Err(Failure::failed(format!("session `{id}` cannot start")).because(reason));
        }
        Input::SetupCancelled => {
            end(&mut journal, SessionOutcome::Stopped)?;
            // Filters and copies that were cancelled end with this process.
            lock.hold_until_exit().or_fail(|| "cannot hold the lock")?;
            runtime.shutdown_background();
            project.interrupt.check()?;
            return Err(Failure::failed("the setup was cancelled"));
        }
        _ => return Err(Failure::failed("the worktree was not prepared")),
    }
    if !summary.has_worktree {
        write(&mut journal, JournalEntry::Worktree)?;
    }
    write(&mut journal, JournalEntry::Agent { conversation_id: None })?;
    let n = summary.turns + 1;
    let turn = JournalEntry::Turn { n, text: TURN_TEXT.to_owned(), log_bytes: None };
    write(&mut journal, turn)?;
    journal.sync().or_fail(cannot_write)?;
    let shell_lock = project.open_shell(id)?;
    let result = config.runner.enter(&argv, &shell_lock);
    drop(shell_lock);
    if let Some(conversation) = newest_conversation(project, id) {
        write(&mut journal, JournalEntry::Agent { conversation_id: Some(conversation) })?;
    }
    let reason = result.as_ref().err().map(ToString::to_string);
    write(&mut journal, JournalEntry::TurnEnd { n, why: reason.clone() })?;
    let outcome = match reason {
        Some(why) => SessionOutcome::Failed { why: format!("cannot start g3: {why}") },
        None => collect_and_check(&config, &runtime, &mut journal)?,
    };
    end(&mut journal, outcome)?;
    BuildCaches::of(&project.repository, id).remove_checks();
    Ok(())
}

/// Returns the command line of the interactive g3: that of its row without the protocol.
fn command(config: &SupervisorConfig, conversation: Option<&str>) -> Result<Vec<String>> {
    let row = &config.row.command;
    if config.record.agent != "g3" || row.get(1).is_none_or(|argument| argument != "acp") {
        let agent = &config.record.agent;
        return Err(Failure::usage(format!("agent `{agent}` has no interactive mode in studio"))
            .because("only g3 is started interactively")
            .hint(format!("studio shell {}    then start it yourself", config.record.id)));
    }
    let mut argv = row.clone();
    argv.remove(1);
    if let Some(conversation) = conversation {
        argv.extend(["--resume".to_owned(), conversation.to_owned()]);
    }
    Ok(argv)
}

/// Collects the work and runs the checks; returns the outcome of the run.
fn collect_and_check(
    config: &SupervisorConfig,
    runtime: &tokio::runtime::Runtime,
    journal: &mut JournalWriter,
) -> Result<SessionOutcome> {
    let work: WorkSummary = match runtime.block_on(tasks::collect_work(config)) {
        Input::Imported { work } => work,
        Input::CannotImport { reason } => return Ok(SessionOutcome::Failed { why: reason }),
        _ => return Err(Failure::failed("the work was not collected")),
    };
    write(journal, JournalEntry::Work(work.clone()))?;
    let conflicts = runtime.block_on(tasks::compare(config));
    let store = SessionStore::new(&config.repository.common_dir);
    let summary = store.summary(&config.record.id)?;
    for conflict in conflicts {
        let files = summary.new_conflicts_with(&conflict.id, &conflict.files);
        if !files.is_empty() {
            write(journal, JournalEntry::SameLines { id: conflict.id, files })?;
        }
    }
    if !work.is_changed() {
        return Ok(SessionOutcome::Empty);
    }
    if config.record.checks.is_empty() {
        return Ok(SessionOutcome::Ready);
    }
    write(journal, JournalEntry::Checking)?;
    let Input::Checked { results } = runtime.block_on(tasks::check(config, Some(&work))) else {
        return Err(Failure::failed("the checks did not run"));
    };
    let failed = results
        .iter()
        .find(|result| !result.ok)
        .map(|result| format!("check `{}` failed with exit code {}", result.command, result.exit));
    write(journal, JournalEntry::Checked { results })?;
    Ok(failed.map_or(SessionOutcome::Ready, |why| SessionOutcome::Failed { why }))
}

/// Returns the conversation that g3 wrote last.
fn newest_conversation(project: &Project, id: &Id) -> Option<String> {
    let directory = project.store.file(id, "agent-state/sessions");
    let changed_at = |path: &Path| -> SystemTime {
        let journal = path.join("session.jsonl").symlink_metadata();
        journal.and_then(|metadata| metadata.modified()).unwrap_or(SystemTime::UNIX_EPOCH)
    };
    let entries = std::fs::read_dir(directory).ok()?.flatten();
    let newest = entries.max_by_key(|entry| changed_at(&entry.path()))?;
    newest.file_name().into_string().ok()
}

fn end(journal: &mut JournalWriter, outcome: SessionOutcome) -> Result<()> {
    write(journal, JournalEntry::Exit { outcome, ms: None })?;
    journal.sync().or_fail(cannot_write)
}

fn write(journal: &mut JournalWriter, entry: JournalEntry) -> Result<()> {
    journal.write(entry).or_fail(cannot_write)
}

fn cannot_write() -> &'static str {
    "cannot write the journal"
}
