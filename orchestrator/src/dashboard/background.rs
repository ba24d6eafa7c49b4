//! What the dashboard does beside drawing: commands, diffs and comparisons, each on a thread, with
//! its result on a channel.

use base::failure::{Failure, Result};
use base::id::Id;
use serde_json::Value;
use studio_core::session_view::SessionView;
use studio_core::standing;
use studio_git::import;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

use crate::commands::context::{CommandContext, CommonArgs};
use crate::commands::subcommand::SubcommandRunner;
use crate::dashboard::actions::{self, BackgroundCommand, CommandError};

/// The result of a task.
pub(crate) enum Finished {
    /// A command ended.
    Command(BackgroundCommand, std::result::Result<Value, CommandError>),
    /// The diff of a session was read.
    Diff(Id, std::result::Result<String, String>),
    /// Sessions were compared with their branches; `true` if more remain to be compared.
    Compared(Vec<SessionView>, bool),
}

/// Starts tasks and receives their results.
pub(crate) struct BackgroundTasks {
    common: CommonArgs,
    runner: SubcommandRunner,
    tx: UnboundedSender<Finished>,
    rx: UnboundedReceiver<Finished>,
}

impl BackgroundTasks {
    /// Creates tasks for the command's repository.
    pub(crate) fn new(common: &CommonArgs) -> Result<BackgroundTasks> {
        let (tx, rx) = mpsc::unbounded_channel();
        // Notes on stderr would appear on the screen.
        let common = CommonArgs { json: true, ..common.clone() };
        Ok(BackgroundTasks { runner: SubcommandRunner::new(&common)?, common, tx, rx })
    }

    /// Returns the runner of commands.
    pub(crate) fn runner(&self) -> &SubcommandRunner {
        &self.runner
    }

    /// Waits for the next result.
    pub(crate) async fn next(&mut self) -> Finished {
        match self.rx.recv().await {
            Some(finished) => finished,
            // This value holds a sender, so the channel stays open.
            None => std::future::pending().await,
        }
    }

    fn spawn(&self, task: impl FnOnce() -> Finished + Send + 'static) {
        let tx = self.tx.clone();
        std::thread::spawn(move || {
            let _ = tx.send(task());
        });
    }

    /// Runs a command. It continues when the dashboard ends.
    pub(crate) fn run(&self, command: BackgroundCommand) {
        let runner = self.runner.clone();
        self.spawn(move || {
            let output = runner.run(&command.words, command.input.as_deref());
            let output = output.map_err(CommandError::from);
            let result = output.and_then(|output| match output.ok {
                true => Ok(output.json().clone()),
                false => Err(CommandError {
                    failure: actions::failure(output.json(), &output.stderr),
                    question: command.question(output.json()).map(Box::new),
                }),
            });
            Finished::Command(command, result)
        });
    }

    /// Reads the diff of a session.
    pub(crate) fn diff(&self, id: &Id) {
        let (runner, id) = (self.runner.clone(), id.clone());
        self.spawn(move || {
            let words = ["diff".to_owned(), id.as_str().to_owned()];
            let result = runner.run(&words, None).and_then(|output| match output.ok {
                true => Ok(output.json()["patch"].as_str().unwrap_or_default().to_owned()),
                false => Err(actions::failure(output.json(), &output.stderr)),
            });
            Finished::Diff(id, result.map_err(|failure| failure.to_string()))
        });
    }

    /// Compares sessions with their branches, collects the work of crashed ones, and looks for
    /// changes that plain git would obey.
    pub(crate) fn compare(&self, views: Vec<SessionView>) {
        let common = self.common.clone();
        self.spawn(move || match compare(&common, views) {
            Ok((views, has_more)) => Finished::Compared(views, has_more),
            // Without a comparison, sessions are shown without conflicts.
            Err(_) => Finished::Compared(Vec::new(), false),
        });
    }
}

fn compare(
    common: &CommonArgs,
    views: Vec<SessionView>,
) -> std::result::Result<(Vec<SessionView>, bool), Failure> {
    let context = CommandContext::open(common)?;
    let mut views: Vec<SessionView> = views.into_iter().map(|view| context.salvage(view)).collect();
    let has_more = standing::compare(&context.repository, &context.store, &mut views);
    for view in &mut views {
        view.tampered = import::tampering_warning(&view.record.session_repo);
    }
    Ok((views, has_more))
}
