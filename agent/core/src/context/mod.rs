//! The conversation: the one thing that changes while an agent works.

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

/// Where a conversation is written down. A line is on disk before its effect is shown.
pub(crate) trait ConversationLog: Send {
    /// Appends one entry.
    fn note(&mut self, entry: &ConversationEntry) -> std::io::Result<()>;
    /// Makes all entries durable; called once a turn.
    fn sync(&mut self) -> std::io::Result<()>;
    /// Writes a text into a file of its own, for the model to read again, and says where.
    fn set_aside(&mut self, folder: &str, name: &str, text: &str) -> std::io::Result<PathBuf>;
}

/// Words that reach the agent while it works.
pub(crate) trait Inbox: Send + Sync {
    /// Those that wait: a name and the words, in the order in which they are to be heard.
    fn waiting(&self) -> Vec<(String, String)>;
    /// These were heard.
    fn heard(&self, name: &str);
}

/// One line of a session's journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "snake_case")]
pub enum ConversationEntry {
    /// The session was begun or taken up again.
    Opened {
        /// RFC 3339.
        time: String,
        /// Its working directory.
        cwd: PathBuf,
        /// `type.name`.
        provider: String,
        /// As sent.
        model: String,
        /// The persona that works, if any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        agent: Option<String>,
    },
    /// What the user asked.
    Request {
        /// The message.
        message: Message,
    },
    /// What g3 itself put in, e.g. "go on".
    Prompt {
        /// The message.
        message: Message,
    },
    /// What the user said while the agent worked.
    Steered {
        /// Its name in the inbox; it is heard once.
        letter: String,
        /// The message.
        message: Message,
    },
    /// What the model replied.
    Reply {
        /// The message.
        message: Message,
        /// Tokens and money.
        usage: Usage,
        /// Why it stopped.
        stop: StopReason,
    },
    /// What came of one call; in the order in which the calls ended.
    Result {
        /// The result.
        result: ToolResult,
    },
    /// What old calls said and got was replaced by pointers to files.
    Thinned {
        /// Call id and new text.
        results: Vec<(String, String)>,
        /// Call id and new arguments.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        args: Vec<(String, Value)>,
    },
    /// The conversation was replaced by a summary.
    Compacted {
        /// The whole new conversation.
        messages: Vec<Message>,
        /// What the summary cost.
        usage: Usage,
    },
    /// A finished turn was moved into a file.
    Dehydrated {
        /// The index of its first message.
        from: usize,
        /// The file's id.
        fragment: String,
        /// What stands in its place.
        messages: Vec<Message>,
    },
    /// A turn was put back in its place.
    Rehydrated {
        /// The file's id.
        fragment: String,
        /// The turn.
        messages: Vec<Message>,
    },
    /// The user went back to before a turn, counted from 1; see [`turns::effective`].
    Rewound {
        /// The first turn that is gone.
        before: usize,
    },
    /// A model was asked beside the conversation: for notes, or for a part of the work.
    Noted {
        /// What that cost.
        #[serde(flatten)]
        bill: SideUsage,
    },
    /// The user dropped the conversation.
    Cleared,
    /// A run ended.
    Ended {
        /// As in the event `end`.
        status: String,
    },
}

/// The day on which a session began, as its journal has it.
pub(crate) fn begun_on(entries: &[ConversationEntry]) -> Option<String> {
    let opened = entries.iter().filter_map(|entry| {
        let ConversationEntry::Opened { time, .. } = entry else { return None };
        time.get(..10)
    });
    opened.map(str::to_owned).next()
}

/// The conversation so far, and what it cost.
pub struct Conversation {
    messages: Vec<Message>,
    results: Vec<ToolResult>,
    request: String,
    requests: usize,
    turns: u32,
    usage: Usage,
    /// How full the model's context is.
    pub window: ContextWindow,
    thinned_at: u64,
    /// How many messages lie before the turn that may be moved into a file next.
    settled: usize,
    stubs: Vec<Stub>,
    /// Names of letters that were heard.
    letters: Vec<String>,
    record: Box<dyn ConversationLog>,
}

impl Conversation {
    /// An empty conversation.
    pub(crate) fn new(window: ContextWindow, record: Box<dyn ConversationLog>) -> Conversation {
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
            letters: Vec::new(),
            record,
        }
    }

    /// Plays back what a journal holds, so that a conversation goes on where it was left. Calls
    /// that were not answered when the process ended are answered as interrupted.
    pub(crate) fn replay(&mut self, entries: Vec<ConversationEntry>) -> Result<()> {
        let kept = turns::effective(entries);
        for entry in kept.entries {
            self.apply(entry);
        }
        self.usage = self.usage.plus(kept.usage);
        self.turns += kept.replies;
        let unanswered = self.unanswered();
        for (call_id, name) in unanswered {
            let text = "interrupted: g3 ended before this call did; it may have had effects, \
                        so look before you repeat it"
                .to_owned();
            self.answer(ToolResult {
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
            // Going back takes effect when the journal is played back.
            ConversationEntry::Opened { .. }
            | ConversationEntry::Rewound { .. }
            | ConversationEntry::Ended { .. } => {}
            ConversationEntry::Steered { letter, message } => {
                self.letters.push(letter);
                self.request.push_str(&format!("\n\n{}", message.words()));
                self.push(message);
            }
            ConversationEntry::Request { message } => {
                self.request = message.words();
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
                self.begin_anew();
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
                self.begin_anew();
            }
        }
    }

    /// The user asks something.
    pub(crate) fn ask(&mut self, message: Message) -> Result<()> {
        self.note(ConversationEntry::Request { message })
    }

    /// g3 itself says something to the model.
    pub fn prompt(&mut self, text: impl Into<String>) -> Result<()> {
        let message = Message::note(NotePurpose::Context, text);
        self.note(ConversationEntry::Prompt { message })
    }

    /// g3 tells a small model that its task is not done.
    pub(crate) fn remind(&mut self, text: impl Into<String>) -> Result<()> {
        let message = Message::note(NotePurpose::Reminder, text);
        self.note(ConversationEntry::Prompt { message })
    }

    /// The user says something while the agent works; false when it was heard before.
    pub(crate) fn steer(&mut self, letter: &str, text: &str) -> Result<bool> {
        if self.letters.iter().any(|heard| heard == letter) {
            return Ok(false);
        }
        let message = Message::text(MessageRole::User, text);
        self.note(ConversationEntry::Steered { letter: letter.to_owned(), message })?;
        Ok(true)
    }

    /// Takes back every turn from this one on, counted from 1, at the next opening.
    pub fn rewind(&mut self, before: usize) -> Result<()> {
        self.note(ConversationEntry::Rewound { before })?;
        self.record.sync().or_fail(|| "cannot write the session's journal")
    }

    /// The model replied. Made durable, since what follows acts on it.
    pub(crate) fn hear(&mut self, reply: &Reply) -> Result<()> {
        let Reply { message, usage, stop } = reply.clone();
        self.note(ConversationEntry::Reply { message, usage, stop })?;
        self.record.sync().or_fail(|| "cannot write the session's journal")
    }

    /// The session was begun or taken up again.
    pub(crate) fn opened(&mut self, entry: ConversationEntry) -> Result<()> {
        self.note(entry)
    }

    /// A model was asked something beside the conversation.
    pub(crate) fn noted(&mut self, bill: SideUsage) -> Result<()> {
        self.note(ConversationEntry::Noted { bill })
    }

    /// A run ended.
    pub(crate) fn ended(&mut self, status: &str) -> Result<()> {
        self.note(ConversationEntry::Ended { status: status.to_owned() })?;
        self.record.sync().or_fail(|| "cannot write the session's journal")
    }

    /// A call was answered.
    pub(crate) fn answer(&mut self, result: ToolResult) -> Result<()> {
        self.note(ConversationEntry::Result { result })
    }

    /// All calls of the last reply were answered: their results become one message, in the order
    /// of the calls.
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

    /// Writes one entry down, then lets it take effect.
    fn note(&mut self, entry: ConversationEntry) -> Result<()> {
        self.record.note(&entry).or_fail(|| "cannot write the session's journal")?;
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

    /// Calls of the last reply that have no result yet: id and name.
    fn unanswered(&self) -> Vec<(String, String)> {
        let Some(last) = self.messages.last().filter(|m| m.role == MessageRole::Assistant) else {
            return Vec::new();
        };
        let answered = |id: &str| self.results.iter().any(|result| result.call_id == id);
        let open = last.calls().filter(|call| !answered(&call.id));
        open.map(|call| (call.id.clone(), call.name.clone())).collect()
    }

    fn begin_anew(&mut self) {
        self.window.restart(&self.messages);
        self.thinned_at = 0;
        self.settled = self.messages.len();
        self.stubs.clear();
    }

    /// Drops the conversation; its cost still counts towards the session total.
    pub fn clear(&mut self) -> Result<()> {
        self.note(ConversationEntry::Cleared)
    }

    /// Oldest first.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// What the user asked last.
    pub fn request(&self) -> &str {
        &self.request
    }

    /// Turns of the user so far.
    pub fn requests(&self) -> usize {
        self.requests
    }

    /// Replies so far.
    pub fn turns(&self) -> u32 {
        self.turns
    }

    /// Tokens and money so far.
    pub fn usage(&self) -> Usage {
        self.usage
    }
}
