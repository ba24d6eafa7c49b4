//! Follows a session as text: its journal, and the output of an agent with the protocol
//! `command` during its turn.

use base::config::studio::{AgentOutput, AgentProtocol};
use base::failure::{OrFail, Result};
use base::id::Id;

use crate::commands::context::CommandContext;
use crate::report::journal;
use studio_core::launch::log::RawTail;
use studio_core::launch::registry;
use studio_core::session::journal::{JournalEntry, JournalTail};
use studio_core::session_view::SessionView;

/// The text of one session, from its beginning.
pub(crate) struct JournalFollower {
    id: Id,
    tail: JournalTail,
    output: TurnOutput,
    reader: journal::JournalReader,
    /// Whether the output of a running turn is shown as it arrives.
    streams: bool,
    /// The beginning of the message that the agent is writing, if it was shown.
    shown_text: String,
    /// The last complete message, and those that were new at the last reading.
    last_message: String,
    new_messages: Vec<String>,
}

impl JournalFollower {
    /// Starts at the beginning of a session. When it is followed, the text has the output of a running turn.
    pub(crate) fn of(context: &CommandContext, id: &Id, follow: bool) -> Result<JournalFollower> {
        let record = context.store.load(id)?;
        let row = registry::row(&context.config, &record.agent);
        let is_command = row.is_ok_and(|row| {
            row.protocol == AgentProtocol::Command && row.output == AgentOutput::Text
        });
        Ok(JournalFollower {
            id: id.clone(),
            tail: JournalTail::from_start(context.store.file(id, "journal.jsonl")),
            output: TurnOutput::of(RawTail::from_start(context.store.file(id, "agent.log"))),
            reader: journal::JournalReader::default(),
            streams: follow && is_command,
            shown_text: String::new(),
            last_message: String::new(),
            new_messages: Vec::new(),
        })
    }

    /// Notes that this beginning of the next message was shown.
    pub(crate) fn mark_shown(&mut self, text: &str) {
        text.clone_into(&mut self.shown_text);
    }

    /// Returns the last complete message.
    pub(crate) fn last_message(&self) -> &str {
        &self.last_message
    }

    /// Whether a message with this beginning was new at the last reading.
    pub(crate) fn has_new_message(&self, beginning: &str) -> bool {
        self.new_messages.iter().any(|message| message.starts_with(beginning))
    }

    /// Whether a message has been shown in part, and its end has not arrived.
    pub(crate) fn has_partial_message(&self) -> bool {
        !self.shown_text.is_empty()
    }

    /// Returns the new lines. `view` was read before, so that the last lines of a run are not
    /// missed.
    pub(crate) fn read_new(&mut self, view: &SessionView) -> Result<Vec<String>> {
        let mut lines = Vec::new();
        self.new_messages.clear();
        let fail = || format!("cannot read the journal of `{}`", self.id);
        for line in self.tail.read_new().or_fail(fail)? {
            match &line.entry {
                JournalEntry::Turn { log_bytes, .. } => {
                    self.output.begin_turn(log_bytes.unwrap_or(0))
                }
                JournalEntry::Event { .. } if self.output.open => self.output.read(&mut lines)?,
                JournalEntry::TurnEnd { .. } => self.output.end_turn(&mut lines),
                _ => {}
            }
            // The last message of a turn repeats output that was already shown.
            let message = journal::message_text(&line);
            if let Some(text) = message {
                text.clone_into(&mut self.last_message);
                self.new_messages.push(text.to_owned());
            }
            let shown_text = match message {
                Some(_) => std::mem::take(&mut self.shown_text),
                None => String::new(),
            };
            match message.and_then(|text| text.strip_prefix(shown_text.as_str())) {
                Some(_) if self.output.is_written => {}
                Some(rest) if !shown_text.is_empty() => {
                    let rest = rest.trim_start_matches([' ', '\n']);
                    lines.extend((!rest.is_empty()).then(|| journal::continued(rest)));
                }
                Some(_) | None => lines.extend(self.reader.text(&line)),
            }
        }
        if self.streams && view.facts.summary.in_turn {
            self.output.open = true;
            self.output.read(&mut lines)?;
        }
        Ok(lines)
    }
}

/// The output of the running turn, shown as it arrives.
struct TurnOutput {
    tail: RawTail,
    /// The incomplete last line.
    rest: String,
    /// Whether the turn is running and its output is shown.
    open: bool,
    /// Whether any output was shown.
    is_written: bool,
}

impl TurnOutput {
    fn of(tail: RawTail) -> TurnOutput {
        TurnOutput { tail, rest: String::new(), open: false, is_written: false }
    }

    fn begin_turn(&mut self, offset: u64) {
        self.tail.skip_to(offset);
        self.clear();
    }

    fn read(&mut self, lines: &mut Vec<String>) -> Result<()> {
        self.rest.push_str(&self.tail.read_more().or_fail(|| "cannot read the agent's output")?);
        let complete = self.rest.rfind('\n').map_or(0, |offset| offset + 1);
        for line in self.rest[..complete].lines() {
            self.is_written = true;
            lines.push(journal::output(line));
        }
        self.rest.drain(..complete);
        Ok(())
    }

    fn end_turn(&mut self, lines: &mut Vec<String>) {
        if self.open && !self.rest.is_empty() {
            lines.push(journal::output(&self.rest));
        }
        self.clear();
    }

    fn clear(&mut self) {
        (self.open, self.is_written) = (false, false);
        self.rest.clear();
    }
}
