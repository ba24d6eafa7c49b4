//! `studio logs`: prints the journal of a session, optionally while it grows.

use base::config::studio::{AgentOutput, AgentProtocol};
use base::failure::{OrFail, Result};
use base::id::Id;
use futures_util::FutureExt;
use serde_json::json;

use crate::commands::changes::DirectoryWatcher;
use crate::commands::context::{CommandContext, CommonArgs};
use crate::report;
use crate::report::journal;
use studio_core::launch::log::RawTail;
use studio_core::launch::registry;
use studio_core::seen;
use studio_core::session::journal::{JournalEntry, JournalTail};

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

    /// Prints the journal, and the text of an agent with the protocol `command` during its turn.
    async fn journal(self) -> Result<u8> {
        let mut changes = self.changes();
        let mut tail = JournalTail::from_start(self.context.store.file(self.id, "journal.jsonl"));
        let mut output =
            Output::of(RawTail::from_start(self.context.store.file(self.id, "agent.log")));
        let mut reader = journal::JournalReader::default();
        let is_streaming = self.follow && !self.context.json && self.is_command()?;
        loop {
            // Read before the journal, so that the last lines of a run are not missed.
            let view = self.context.view(self.id)?;
            let settled = view.state.is_settled();
            let fail = || format!("cannot read the journal of `{}`", self.id);
            for line in tail.read_new().or_fail(fail)? {
                if self.context.json {
                    report::json_line(&json!(line));
                    continue;
                }
                match &line.entry {
                    JournalEntry::Turn { log_bytes, .. } => {
                        output.begin_turn(log_bytes.unwrap_or(0))
                    }
                    JournalEntry::Event { .. } if output.open => output.show()?,
                    JournalEntry::TurnEnd { .. } => output.end_turn(),
                    _ => {}
                }
                // The last message of a turn repeats output that was already shown.
                if !(output.is_written && journal::is_text(&line)) {
                    reader.text(&line).iter().for_each(|text| report::out(text));
                }
            }
            if is_streaming && view.facts.summary.in_turn {
                output.open = true;
                output.show()?;
            }
            if !self.follow || settled {
                return Ok(0);
            }
            changes.next().await;
        }
    }

    fn is_command(&self) -> Result<bool> {
        let record = self.context.store.load(self.id)?;
        let row = registry::row(&self.context.config, &record.agent);
        Ok(row.is_ok_and(|row| {
            row.protocol == AgentProtocol::Command && row.output == AgentOutput::Text
        }))
    }
}

/// The output of the running turn, shown as it arrives.
struct Output {
    tail: RawTail,
    /// The incomplete last line.
    rest: String,
    /// Whether the turn is running and its output is shown.
    open: bool,
    /// Whether any output was shown.
    is_written: bool,
}

impl Output {
    fn of(tail: RawTail) -> Output {
        Output { tail, rest: String::new(), open: false, is_written: false }
    }

    fn begin_turn(&mut self, offset: u64) {
        self.tail.skip_to(offset);
        self.clear();
    }

    fn show(&mut self) -> Result<()> {
        self.rest.push_str(&self.tail.read_more().or_fail(|| "cannot read the agent's output")?);
        let complete = self.rest.rfind('\n').map_or(0, |offset| offset + 1);
        for line in self.rest[..complete].lines() {
            self.is_written = true;
            report::out(&journal::output(line));
        }
        self.rest.drain(..complete);
        Ok(())
    }

    fn end_turn(&mut self) {
        if self.open && !self.rest.is_empty() {
            report::out(&journal::output(&self.rest));
        }
        self.clear();
    }

    fn clear(&mut self) {
        (self.open, self.is_written) = (false, false);
        self.rest.clear();
    }
}
