//! `session.json`: a small readable summary of a session, for people and for `g3 sessions`.

use std::collections::BTreeMap;
use std::path::Path;

use base::event::Usage;
use base::lock::Lock;
use serde::{Deserialize, Serialize};

use crate::context::ConversationEntry;

/// Maximum number of bytes kept of the task and of the last reply.
const MAX_TEXT: usize = 2_000;

/// The snapshot of a session; rebuilt from the journal if it is missing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SessionSnapshot {
    /// The session's id.
    pub id: String,
    /// The user's first request.
    pub task: String,
    /// `running`; `interrupted` if it was running and no g3 process owns the session; or the status
    /// of the last run.
    pub status: String,
    /// RFC 3339.
    pub created_at: String,
    /// RFC 3339.
    pub updated_at: String,
    /// The working directory.
    pub cwd: String,
    /// `type.name`.
    pub provider: String,
    /// The model's name as sent.
    pub model: String,
    /// The active persona, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Number of replies so far.
    pub turns: u32,
    /// Tokens and cost.
    pub usage: Usage,
    /// Usage of each model, by name.
    pub by_model: BTreeMap<String, ModelUsage>,
    /// The model's last text.
    pub last_words: String,
}

/// The requests to one model and their cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ModelUsage {
    /// Number of requests.
    pub calls: u32,
    /// Number of requests that were partly served from the provider's cache.
    pub calls_with_cache: u32,
    /// Tokens and cost.
    pub usage: Usage,
}

impl SessionSnapshot {
    /// Creates an empty snapshot.
    pub fn new(id: &str) -> SessionSnapshot {
        SessionSnapshot { id: id.to_owned(), ..SessionSnapshot::default() }
    }

    /// Adds an entry of the journal, with its time if known.
    pub fn apply(&mut self, entry: &ConversationEntry, time: Option<String>) {
        if let Some(time) = time {
            self.updated_at = time;
        }
        match entry {
            ConversationEntry::Opened { time, cwd, provider, model, agent } => {
                if self.created_at.is_empty() {
                    self.created_at.clone_from(time);
                }
                self.updated_at.clone_from(time);
                self.cwd = cwd.display().to_string();
                self.provider.clone_from(provider);
                self.model.clone_from(model);
                self.agent.clone_from(agent);
            }
            ConversationEntry::Request { message } => {
                self.status = "running".to_owned();
                if self.task.is_empty() {
                    self.task = truncate(&message.user_text());
                }
            }
            ConversationEntry::Reply { message, usage, .. } => {
                self.turns += 1;
                self.add_usage(*usage);
                let text = truncate(&message.full_text());
                if !text.trim().is_empty() {
                    self.last_words = text;
                }
            }
            ConversationEntry::Compacted { usage, .. } => self.add_usage(*usage),
            ConversationEntry::Noted { bill } => {
                let model = bill.model.as_ref().unwrap_or(&self.model).clone();
                self.add(model, bill.calls, bill.usage);
            }
            ConversationEntry::Ended { status } => self.status.clone_from(status),
            ConversationEntry::Prompt { .. }
            | ConversationEntry::Steered { .. }
            | ConversationEntry::Result { .. } => {}
            ConversationEntry::Thinned { .. }
            | ConversationEntry::Dehydrated { .. }
            | ConversationEntry::Rehydrated { .. } => {}
            ConversationEntry::Rewound { .. } | ConversationEntry::Cleared => {}
        }
    }

    fn add_usage(&mut self, usage: Usage) {
        self.add(self.model.clone(), 1, usage);
    }

    fn add(&mut self, model: String, calls: u32, usage: Usage) {
        self.usage = self.usage.plus(usage);
        let model_usage = self.by_model.entry(model).or_default();
        model_usage.calls += calls;
        model_usage.calls_with_cache += u32::from(usage.cache_read > 0);
        model_usage.usage = model_usage.usage.plus(usage);
    }

    /// Reads the snapshot in a session's directory.
    pub fn read(dir: &Path, id: &str) -> SessionSnapshot {
        let file = base::files::read(&dir.join("session.json")).ok();
        let snapshot =
            file.and_then(|bytes| serde_json::from_slice::<SessionSnapshot>(&bytes).ok());
        let mut snapshot = snapshot.filter(|snapshot| snapshot.id == id).unwrap_or_else(|| {
            let mut snapshot = SessionSnapshot::new(id);
            let entries: Vec<ConversationEntry> =
                base::files::read_journal(&dir.join("session.jsonl")).unwrap_or_default();
            entries.iter().for_each(|entry| snapshot.apply(entry, None));
            snapshot
        });
        let is_held = Lock::is_held(&dir.join("lock")).unwrap_or(true);
        if snapshot.status == "running" && !is_held {
            snapshot.status = "interrupted".to_owned();
        }
        snapshot
    }
}

fn truncate(text: &str) -> String {
    base::text::head(text.trim(), MAX_TEXT).to_owned()
}
