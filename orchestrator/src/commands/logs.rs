//! `studio logs`: prints the journal of a session, optionally while it grows.

use base::failure::{OrFail, Result};
use base::id::Id;
use futures_util::FutureExt;
use serde_json::json;

use crate::commands::changes::DirectoryWatcher;
use crate::commands::context::{CommandContext, CommonArgs};
use crate::commands::journal_follower::JournalFollower;
use crate::report;
use studio_core::launch::log::RawTail;
use studio_core::seen;
use studio_core::session::journal::JournalTail;

/// The command line of `logs`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Session (default: the only open one)
    #[arg(value_name = "ID")]
    pub id: Option<String>,
    /// Follow the log until the session finishes
    #[arg(short, long)]
    pub follow: bool,
    /// Print the raw output of the agent instead
    #[arg(long)]
    pub raw: bool,
}

/// Runs the command.
pub(crate) fn run(common: &CommonArgs, args: &Args) -> Result<u8> {
    let context = CommandContext::open(common)?;
    let view = context.find(args.id.as_deref(), |state| !state.is_over())?;
    let id = &view.record.id;
    let printer = LogPrinter { context: &context, id, follow: args.follow };
    let runtime = base::runtime::current_thread();
    let runtime = runtime.or_fail(|| "cannot start the runtime")?;
    let code = runtime.block_on(if args.raw {
        printer.raw().boxed_local()
    } else {
        printer.journal().boxed_local()
    })?;
    if !context.json {
        seen::mark(&context.repository, &context.view(id)?);
    }
    Ok(code)
}

/// The logs of one session.
struct LogPrinter<'d> {
    context: &'d CommandContext,
    id: &'d Id,
    follow: bool,
}

impl LogPrinter<'_> {
    fn changes(&self) -> DirectoryWatcher {
        let changes = DirectoryWatcher::start();
        changes.add(&self.context.store.dir(self.id));
        changes.add(self.context.store.root());
        changes
    }

    /// Prints the raw output of the agent.
    async fn raw(self) -> Result<u8> {
        let mut changes = self.changes();
        let mut output = RawTail::from_start(self.context.store.file(self.id, "agent.log"));
        loop {
            // Read before the output, so that its end is not missed.
            let settled = self.context.view(self.id)?.state.is_settled();
            let text = output.read_more().or_fail(|| "cannot read the agent's output")?;
            report::out_raw(&base::text::printable_output(&text));
            if !self.follow || settled {
                return Ok(0);
            }
            changes.next().await;
        }
    }

    /// Prints the timeline, or the lines of the journal as JSON.
    async fn journal(self) -> Result<u8> {
        let mut changes = self.changes();
        let mut tail = JournalTail::from_start(self.context.store.file(self.id, "journal.jsonl"));
        let mut timeline = JournalFollower::of(self.context, self.id, self.follow)?;
        loop {
            // Read before the journal, so that the last lines of a run are not missed.
            let view = self.context.view(self.id)?;
            if self.context.json {
                let fail = || format!("cannot read the journal of `{}`", self.id);
                tail.read_new().or_fail(fail)?.iter().for_each(|it| report::json_line(&json!(it)));
            } else {
                timeline.read_new(&view)?.iter().for_each(|text| report::out(text));
            }
            if !self.follow || view.state.is_settled() {
                return Ok(0);
            }
            changes.next().await;
        }
    }
}
