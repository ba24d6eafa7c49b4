//! `studio try`: puts a session's work into the user's checkout, follows it, and puts the user's
//! files back.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use base::failure::{Failure, OrFail, Result};
use serde_json::json;
use studio_core::project::Project;
use studio_core::session_view::SessionView;
use studio_core::trial as core_trial;
use studio_git::trial::{self, ChangedFiles, Trial, TriedFiles};

use crate::commands::changes::DirectoryWatcher;
use crate::commands::context::{CommandContext, CommonArgs};
use crate::commands::watch::TerminationSignals;
use crate::report;
use crate::report::table;

/// The minimum time between two looks at a worktree.
const READ_INTERVAL: Duration = Duration::from_secs(1);
/// The time after which the worktree of a working agent is read although it reported nothing.
const SILENT_INTERVAL: Duration = Duration::from_secs(5);

/// The command line of `try`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Session to try (without ID: show what is being tried)
    #[arg(value_name = "ID", conflicts_with = "end")]
    pub id: Option<String>,
    /// Do not follow the session (default without a terminal)
    #[arg(long, requires = "id")]
    pub once: bool,
    /// End the trial in this checkout and put your files back
    #[arg(long)]
    pub end: bool,
    /// Leave files that you changed during the trial as they are
    #[arg(long, requires = "end")]
    pub keep: bool,
}

/// Runs the command.
pub(crate) fn run(common: &CommonArgs, args: &Args) -> Result<u8> {
    let context = CommandContext::open(common)?;
    if args.end {
        return end(&context, if args.keep { ChangedFiles::Keep } else { ChangedFiles::Refuse });
    }
    let Some(id) = &args.id else { return show(&context) };
    let view = context.find(Some(id), |state| !state.is_over())?;
    if view.state.is_over() {
        return Err(Project::already_ended(&view));
    }
    let is_terminal = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    let follows = is_terminal && !args.once && !context.json;
    let (trial, fingerprint) = start(&context, &view, follows)?;
    match follows {
        true => Follower { context: &context, trial, fingerprint, last_failure: None }.follow(),
        false => Ok(0),
    }
}

/// Starts the trial, or updates it if the session is being tried in this checkout already.
fn start(context: &CommandContext, view: &SessionView, follows: bool) -> Result<(Trial, String)> {
    let repository = &context.repository;
    let current = core_trial::current_work(repository, view)?;
    let existing = core_trial::find_in_checkout(repository)?
        .filter(|trial| trial.session_repo.id == view.record.id);
    let started = match existing {
        Some(trial) => {
            let tried = trial::update(repository, &trial, &current.work)?;
            tried.map(|tried| (trial, tried))
        }
        None => None,
    };
    let (trial, tried) = match started {
        Some(started) => started,
        None => {
            let time = context.clock.stamp();
            trial::start(repository, &view.record.session_repo, &current.work, &time)?
        }
    };
    let id = &view.record.id;
    if context.json {
        report::json_line(&json!({
            "schema": 1, "operation": trial.operation, "id": id,
            "checkout": trial.checkout.worktree, "files": tried.files, "skipped": tried.skipped,
        }));
        return Ok((trial, current.fingerprint));
    }
    report::out(&format!("{id}: {} in {}", files(&tried), trial.checkout.worktree.display()));
    for path in &tried.skipped {
        report::say(&format!("note: the submodule {} stays as it is", path.display()));
    }
    current.notes.iter().for_each(|note| report::say(&format!("note: {note}")));
    if follows {
        report::say("following the session; Ctrl-C stops following and leaves the files");
    }
    report::say("your files come back with: studio try --end");
    Ok((trial, current.fingerprint))
}

/// Ends the trial of this checkout.
fn end(context: &CommandContext, changed: ChangedFiles) -> Result<u8> {
    let repository = &context.repository;
    let notes = studio_git::transaction::recover(repository)?;
    notes.iter().for_each(|note| report::say(note));
    let Some(trial) = core_trial::find_in_checkout(repository)? else {
        if !notes.is_empty() {
            // The trial was interrupted, and its files are put back now.
            return Ok(0);
        }
        return Err(core_trial::none_here(&trial::active(repository)?));
    };
    let id = &trial.session_repo.id;
    let ended = trial::end(repository, &trial, changed, &context.clock.stamp())?;
    if context.json {
        report::json_line(&json!({
            "schema": 1, "operation": ended.operation, "ended": trial.operation, "id": id,
            "kept": ended.kept,
        }));
        return Ok(0);
    }
    report::out(&format!(
        "the try of {id} has ended: your files are back in {}",
        trial.checkout.worktree.display()
    ));
    for path in &ended.kept {
        report::say(&format!("{} stays as you changed it", path.display()));
    }
    Ok(0)
}

/// Shows the trials of all checkouts.
fn show(context: &CommandContext) -> Result<u8> {
    let trials = trial::active(&context.repository)?;
    if context.json {
        report::json_line(&core_trial::json(&trials));
        return Ok(0);
    }
    if trials.is_empty() {
        report::say("no session is being tried; start: studio try ID");
    }
    let now = context.clock.now();
    for trial in &trials {
        report::out(&format!(
            "{} in {} since {} ago: studio -C '{}' try --end",
            trial.session_repo.id,
            trial.checkout.worktree.display(),
            table::age(&trial.time, now),
            trial.checkout.worktree.display(),
        ));
    }
    Ok(0)
}

fn files(tried: &TriedFiles) -> String {
    match tried.files {
        0 => "no changes yet".to_owned(),
        files => base::text::count(files as u64, "changed file"),
    }
}

/// Brings the newer work of a session into the checkout.
struct Follower<'d> {
    context: &'d CommandContext,
    trial: Trial,
    /// The work that was seen last.
    fingerprint: String,
    /// The last failure, which is not reported twice.
    last_failure: Option<String>,
}

impl Follower<'_> {
    /// Follows until Ctrl-C, or until the session or the trial ends.
    fn follow(mut self) -> Result<u8> {
        let runtime = base::runtime::current_thread().or_fail(|| "cannot start the runtime")?;
        runtime.block_on(async {
            let mut signals = TerminationSignals::listen()?;
            let mut changes = DirectoryWatcher::start();
            changes.add(&self.context.store.dir(&self.trial.session_repo.id));
            changes.add(self.context.store.root());
            let (mut last_size, mut last_read) = (self.journal_size(), Instant::now());
            loop {
                tokio::select! {
                    () = changes.next() => {}
                    () = signals.recv() => {
                        report::say("\nthe files stay; yours come back with: studio try --end");
                        return Ok(0);
                    }
                }
                let size = self.journal_size();
                let elapsed = last_read.elapsed();
                let view = self.context.view(&self.trial.session_repo.id)?;
                let is_changed = size != last_size && elapsed >= READ_INTERVAL;
                let is_silent = view.state.is_active() && elapsed >= SILENT_INTERVAL;
                if is_changed || is_silent {
                    (last_size, last_read) = (size, Instant::now());
                    self.update(&view);
                }
                if !self.is_active()? {
                    report::say("the trial has ended");
                    return Ok(0);
                }
                if view.state.is_over() {
                    let state = view.state.name();
                    let id = &view.record.id;
                    report::say(&format!("{id} is {state}; end the trial: studio try --end"));
                    return Ok(0);
                }
            }
        })
    }

    fn is_active(&self) -> Result<bool> {
        let trials = trial::active(&self.context.repository)?;
        Ok(trials.iter().any(|trial| trial.operation == self.trial.operation))
    }

    /// Returns the sizes of the files that grow while the agent works.
    fn journal_size(&self) -> [u64; 2] {
        ["journal.jsonl", "agent.log"].map(|name| {
            let path = self.context.store.file(&self.trial.session_repo.id, name);
            std::fs::metadata(path).map_or(0, |metadata| metadata.len())
        })
    }

    /// Brings newer work into the checkout. A failure is reported once; the next change of the
    /// session tries again.
    fn update(&mut self, view: &SessionView) {
        match self.try_update(view) {
            Ok(Some(tried)) => {
                self.last_failure = None;
                report::out(&format!("updated: {}", files(&tried)));
            }
            Ok(None) => {}
            Err(failure) => {
                let text = failure.to_string();
                if self.last_failure.as_ref() != Some(&text) {
                    report::say(&text);
                    self.last_failure = Some(text);
                }
            }
        }
    }

    fn try_update(
        &mut self,
        view: &SessionView,
    ) -> std::result::Result<Option<TriedFiles>, Failure> {
        let repository = &self.context.repository;
        let current = core_trial::current_work(repository, view)?;
        if current.fingerprint == self.fingerprint {
            return Ok(None);
        }
        let tried = trial::update(repository, &self.trial, &current.work)?;
        self.fingerprint = current.fingerprint;
        Ok(tried)
    }
}
