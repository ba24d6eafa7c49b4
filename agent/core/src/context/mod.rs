//! The conversation: the only state that changes during a turn.

pub mod compact;
pub mod dehydrate;
pub mod thin;
pub mod turns;
pub mod window;

use std::path::PathBuf;

use base::event::Usage;
use base::failure::{OrFail, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use dehydrate::Stub;
use provider::message::{
    ContentPart, Message, MessageRole, NotePurpose, Reply, SideUsage, StopReason, ToolResult,
};
use window::ContextWindow;

/// The log of a conversation. An entry is on disk before its effect is shown.
pub(crate) trait ConversationLog: Send {
    /// Appends an entry.
    fn append(&mut self, entry: &ConversationEntry) -> std::io::Result<()>;
    /// Flushes all entries to disk; called once per turn.
    fn sync(&mut self) -> std::io::Result<()>;
    /// Writes a text to a separate file that the model can read later. Returns its path.
    fn write_file(&mut self, folder: &str, name: &str, text: &str) -> std::io::Result<PathBuf>;
}

/// Messages of the user that arrive during a turn.
pub(crate) trait Inbox: Send + Sync {
    /// Returns the queued messages in order, as name and text.
    fn queued(&self) -> Vec<(String, String)>;
    /// Removes a message that was delivered.
    fn remove(&self, name: &str);
}

/// An entry of a session's journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "snake_case")]
pub enum ConversationEntry {
    /// The session was started or resumed.
    Opened {
        /// RFC 3339.
        time: String,
        /// The working directory.
        cwd: PathBuf,
        /// `type.name`.
        provider: String,
        /// The model's name as sent.
        model: String,
        /// The active persona, if any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        agent: Option<String>,
    },
    /// A request of the user.
    Request {
        /// The message.
        message: Message,
    },
    /// A message that g3 added, e.g. "go on".
    Prompt {
        /// The message.
        message: Message,
    },
    /// A message that the user sent during a turn.
    Steered {
        /// Its name in the inbox; each name is delivered once.
        letter: String,
        /// The message.
        message: Message,
    },
    /// A reply of the model.
    Reply {
        /// The message.
        message: Message,
        /// Tokens and cost.
        usage: Usage,
        /// Why the model stopped.
        stop: StopReason,
    },
    /// The result of a call, in the order in which the calls finished.
    Result {
        /// The result.
        result: ToolResult,
    },
    /// Large arguments and results of old calls were replaced by references to files.
    Thinned {
        /// Call id and new text.
        results: Vec<(String, String)>,
        /// Call id and new arguments.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        args: Vec<(String, Value)>,
    },
    /// The conversation was replaced by a summary.
    Compacted {
        /// The complete new conversation.
        messages: Vec<Message>,
        /// The cost of the summary.
        usage: Usage,
    },
    /// A finished turn was moved into a file.
    Dehydrated {
        /// The index of its first message.
        from: usize,
        /// The file's id.
        fragment: String,
        /// The placeholder messages.
        messages: Vec<Message>,
    },
    /// A turn was restored from its file.
    Rehydrated {
        /// The file's id.
        fragment: String,
        /// The messages of the turn.
        messages: Vec<Message>,
    },
    /// The user rewound to before a turn, counted from 1; see [`turns::effective`].
    Rewound {
        /// The first turn that was dropped.
        before: usize,
    },
    /// A model request outside the conversation: for notes, or by a subagent.
    Noted {
        /// Its cost.
        #[serde(flatten)]
        bill: SideUsage,
    },
    /// The user cleared the conversation.
    Cleared,
    /// A run ended.
    Ended {
        /// The status, as in the event `end`.
        status: String,
    },
}

/// Returns the day on which a session was started, from its journal.
pub(crate) fn start_date(entries: &[ConversationEntry]) -> Option<String> {
    let opened = entries.iter().filter_map(|entry| {
        let ConversationEntry::Opened { time, .. } = entry else { return None };
        time.get(..10)
    });
    opened.map(str::to_owned).next()
}

/// The conversation so far, and its cost.
pub struct Conversation {
    messages: Vec<Message>,
    results: Vec<ToolResult>,
    request: String,
    requests: usize,
    turns: u32,
    usage: Usage,
    /// The usage of the model's context window.
    pub window: ContextWindow,
    thinned_at: u64,
    /// Number of messages before the turn that may be moved into a file next.
    settled: usize,
    stubs: Vec<Stub>,
    /// Names of the delivered inbox messages.
    delivered: Vec<String>,
    log: Box<dyn ConversationLog>,
}

impl Conversation {
    /// Creates an empty conversation.
    pub(crate) fn new(window: ContextWindow, log: Box<dyn ConversationLog>) -> Conversation {
        Conversation {
            messages: Vec::new(),
            results: Vec::new(),
            request: String::new(),
            requests: 0,
            turns: 0,
            usage: Usage::default(),
            window,
            thinned_at: 0,
            settled: 0,
            stubs: Vec::new(),
            delivered: Vec::new(),
            log,
        }
    }

    /// Replays the entries of a journal to restore the conversation. Calls without a result get the
    /// result that they were interrupted.
    pub(crate) fn replay(&mut self, entries: Vec<ConversationEntry>) -> Result<()> {
        let effective = turns::effective(entries);
        for entry in effective.entries {
            self.apply(entry);
        }
        self.usage = self.usage.plus(effective.usage);
        self.turns += effective.replies;
        let unanswered = self.unanswered();
        for (call_id, name) in unanswered {
            let text = "interrupted: g3 ended before this call did; it may have had effects, \
                        so look before you repeat it"
                .to_owned();
            self.add_result(ToolResult {
                call_id,
                name,
                ok: false,
                text,
                images: Vec::new(),
                not_run: false,
            })?;
        }
        self.close_results();
        Ok(())
    }

    fn apply(&mut self, entry: ConversationEntry) {
        if !matches!(entry, ConversationEntry::Result { .. } | ConversationEntry::Thinned { .. }) {
            self.close_results();
        }
        match entry {
            // A rewind takes effect when the journal is replayed.
            ConversationEntry::Opened { .. }
            | ConversationEntry::Rewound { .. }
            | ConversationEntry::Ended { .. } => {}
            ConversationEntry::Steered { letter, message } => {
                self.delivered.push(letter);
                self.request.push_str(&format!("\n\n{}", message.full_text()));
                self.push(message);
            }
            ConversationEntry::Request { message } => {
                self.request = message.full_text();
                self.requests += 1;
                self.push(message);
            }
            ConversationEntry::Prompt { message } => self.push(message),
            ConversationEntry::Reply { message, usage, .. } => self.push_reply(message, usage),
            ConversationEntry::Result { result } => self.results.push(result),
            ConversationEntry::Thinned { results, args } => {
                let freed = thin::apply(&mut self.messages, &results, &args);
                self.window.remove(freed);
            }
            ConversationEntry::Compacted { messages, usage } => {
                self.messages = messages;
                self.usage = self.usage.plus(usage);
                self.reset();
            }
            ConversationEntry::Dehydrated { from, fragment, messages } => {
                self.apply_dehydrated(from, fragment, messages);
            }
            ConversationEntry::Rehydrated { fragment, messages } => {
                self.apply_rehydrated(&fragment, messages)
            }
            ConversationEntry::Noted { bill } => self.usage = self.usage.plus(bill.usage),
            ConversationEntry::Cleared => {
                self.messages.clear();
                self.request.clear();
                self.reset();
            }
        }
    }

    /// Adds a request of the user.
    pub(crate) fn add_request(&mut self, message: Message) -> Result<()> {
        self.append(ConversationEntry::Request { message })
    }

    /// Adds a message of g3 for the model.
    pub fn prompt(&mut self, text: impl Into<String>) -> Result<()> {
        let message = Message::note(NotePurpose::Context, text);
        self.append(ConversationEntry::Prompt { message })
    }

    /// Adds a reminder to a small model that its task is not done.
    pub(crate) fn remind(&mut self, text: impl Into<String>) -> Result<()> {
        let message = Message::note(NotePurpose::Reminder, text);
        self.append(ConversationEntry::Prompt { message })
    }

    /// Adds a message that the user sent during a turn. Returns false if it was already delivered.
    pub(crate) fn steer(&mut self, letter: &str, text: &str) -> Result<bool> {
        if self.delivered.iter().any(|known| known == letter) {
            return Ok(false);
        }
        let message = Message::text(MessageRole::User, text);
        self.append(ConversationEntry::Steered { letter: letter.to_owned(), message })?;
        Ok(true)
    }

    /// Rewinds to before this turn, counted from 1. Takes effect the next time the session is
    /// opened.
    pub fn rewind(&mut self, before: usize) -> Result<()> {
        self.append(ConversationEntry::Rewound { before })?;
        self.log.sync().or_fail(|| "cannot write the session's journal")
    }

    /// Adds a reply of the model. Flushes it to disk, since tools act on it next.
    pub(crate) fn add_reply(&mut self, reply: &Reply) -> Result<()> {
        let Reply { message, usage, stop } = reply.clone();
        self.append(ConversationEntry::Reply { message, usage, stop })?;
        self.log.sync().or_fail(|| "cannot write the session's journal")
    }

    /// Adds an entry for the start or resumption of the session.
    pub(crate) fn add_opened(&mut self, entry: ConversationEntry) -> Result<()> {
        self.append(entry)
    }

    /// Adds the cost of a model request outside the conversation.
    pub(crate) fn add_side_usage(&mut self, bill: SideUsage) -> Result<()> {
        self.append(ConversationEntry::Noted { bill })
    }

    /// Adds the end of a run.
    pub(crate) fn add_ended(&mut self, status: &str) -> Result<()> {
        self.append(ConversationEntry::Ended { status: status.to_owned() })?;
        self.log.sync().or_fail(|| "cannot write the session's journal")
    }

    /// Adds the result of a call.
    pub(crate) fn add_result(&mut self, result: ToolResult) -> Result<()> {
        self.append(ConversationEntry::Result { result })
    }

    /// Collects the results of the last reply into one message, in the order of the calls. Called
    /// when all calls have results.
    pub(crate) fn close_results(&mut self) {
        if self.results.is_empty() {
            return;
        }
        let order: Vec<String> = self
            .messages
            .last()
            .map(|message| message.calls().map(|call| call.id.clone()).collect())
            .unwrap_or_default();
        let mut results = std::mem::take(&mut self.results);
        results.sort_by_key(|result| order.iter().position(|id| *id == result.call_id));
        self.push(Message {
            role: MessageRole::User,
            parts: results.into_iter().map(ContentPart::Result).collect(),
        });
    }

    /// Writes an entry to the log, then applies it.
    fn append(&mut self, entry: ConversationEntry) -> Result<()> {
        self.log.append(&entry).or_fail(|| "cannot write the session's journal")?;
        self.apply(entry);
        Ok(())
    }

    fn push(&mut self, message: Message) {
        self.window.add(&message);
        self.messages.push(message);
    }

    fn push_reply(&mut self, message: Message, usage: Usage) {
        self.window.report(usage, &message);
        self.turns += 1;
        self.usage = self.usage.plus(usage);
        self.messages.push(message);
    }

    /// Returns the id and name of the calls of the last reply that have no result yet.
    fn unanswered(&self) -> Vec<(String, String)> {
        let Some(last) = self.messages.last().filter(|m| m.role == MessageRole::Assistant) else {
            return Vec::new();
        };
        let is_answered = |id: &str| self.results.iter().any(|result| result.call_id == id);
        let open = last.calls().filter(|call| !is_answered(&call.id));
        open.map(|call| (call.id.clone(), call.name.clone())).collect()
    }

    fn reset(&mut self) {
        self.window.restart(&self.messages);
        self.thinned_at = 0;
        self.settled = self.messages.len();
        self.stubs.clear();
    }

    /// Clears the conversation; its cost still counts towards the session total.
    pub fn clear(&mut self) -> Result<()> {
        self.append(ConversationEntry::Cleared)
    }

    /// Returns the messages, oldest first.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Returns the user's last request.
    pub fn request(&self) -> &str {
        &self.request
    }

    /// Returns the number of user turns so far.
    pub fn requests(&self) -> usize {
        self.requests
    }

    /// Returns the number of replies so far.
    pub fn turns(&self) -> u32 {
        self.turns
    }

    /// Returns the tokens and cost so far.
    pub fn usage(&self) -> Usage {
        self.usage
    }
}
