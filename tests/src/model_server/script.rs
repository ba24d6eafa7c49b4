//! The script of the model: a list of replies, or a function of the request.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use serde::Deserialize;
use serde_json::Value;

use super::reply::ScriptedReply;
use super::request::ReceivedRequest;

type Answer = dyn Fn(&ReceivedRequest) -> ScriptedReply + Send + Sync;

/// The script of the model.
pub struct Script {
    source: Source,
    commit_message: Option<String>,
}

enum Source {
    InOrder(Mutex<VecDeque<ScriptedReply>>),
    By(Box<Answer>),
}

impl Script {
    /// Creates a script with one reply per request, in order; further requests get a 500.
    pub fn new(replies: impl IntoIterator<Item = ScriptedReply>) -> Script {
        let replies = Mutex::new(replies.into_iter().collect());
        Script { source: Source::InOrder(replies), commit_message: None }
    }

    /// Creates a script that derives the reply from each request, for many conversations at once.
    pub fn by(
        answer: impl Fn(&ReceivedRequest) -> ScriptedReply + Send + Sync + 'static,
    ) -> Script {
        Script { source: Source::By(Box::new(answer)), commit_message: None }
    }

    /// Creates a script for several conversations, distinguished by a text in their first user
    /// message; each has its own replies, indexed by the model's turns in it.
    pub fn by_task(tasks: impl IntoIterator<Item = (String, Vec<ScriptedReply>)>) -> Script {
        let tasks: Vec<_> = tasks.into_iter().collect();
        Script::by(move |request| {
            let first = request.first_user();
            let Some((_, replies)) = tasks.iter().find(|(text, _)| first.contains(text)) else {
                return ScriptedReply::exhausted(
                    "no task of the script is in the first user message",
                );
            };
            let turn = request.assistant_messages();
            replies.get(turn).cloned().unwrap_or_else(|| {
                ScriptedReply::exhausted(&format!(
                    "the script has {} replies for this task",
                    replies.len()
                ))
            })
        })
    }

    /// Answers every request for a commit message with this text, independently of the other
    /// replies.
    #[must_use]
    pub fn commit_message(mut self, text: impl Into<String>) -> Script {
        self.commit_message = Some(text.into());
        self
    }

    /// Parses a script from JSON: `{"replies": [REPLY…], "tasks": [{"contains": TEXT, "replies":
    /// [REPLY…]}], "commit_message": TEXT}`, where REPLY is `{"thinks", "says", "calls": [{"name",
    /// "args"}], "status", "retry_after", "delay_ms", "input_tokens", "output_tokens"}`, all
    /// optional.
    pub fn from_json(text: &str) -> Result<Script, serde_json::Error> {
        let file: File = serde_json::from_str(text)?;
        let mut script = if file.tasks.is_empty() {
            Script::new(file.replies.into_iter().map(Line::reply))
        } else {
            let replies = |task: Task| task.replies.into_iter().map(Line::reply).collect();
            Script::by_task(file.tasks.into_iter().map(|t| (t.contains.clone(), replies(t))))
        };
        script.commit_message = file.commit_message;
        Ok(script)
    }

    /// Returns the reply to a request.
    pub fn answer(&self, request: &ReceivedRequest) -> ScriptedReply {
        if let Some(text) =
            self.commit_message.as_ref().filter(|_| request.asks_for_commit_message())
        {
            return ScriptedReply::says(text.clone());
        }
        match &self.source {
            Source::By(answer) => answer(request),
            Source::InOrder(replies) => {
                let next = replies.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                next.unwrap_or_else(|| ScriptedReply::exhausted("the script has no reply left"))
            }
        }
    }
}

impl<const N: usize> From<[ScriptedReply; N]> for Script {
    fn from(replies: [ScriptedReply; N]) -> Script {
        Script::new(replies)
    }
}

impl From<Vec<ScriptedReply>> for Script {
    fn from(replies: Vec<ScriptedReply>) -> Script {
        Script::new(replies)
    }
}

impl From<ScriptedReply> for Script {
    fn from(reply: ScriptedReply) -> Script {
        Script::new([reply])
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    replies: Vec<Line>,
    #[serde(default)]
    tasks: Vec<Task>,
    commit_message: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Task {
    contains: String,
    replies: Vec<Line>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    thinks: Option<String>,
    says: Option<String>,
    #[serde(default)]
    calls: Vec<Call>,
    status: Option<u16>,
    retry_after: Option<u64>,
    delay_ms: Option<u64>,
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Call {
    name: String,
    #[serde(default)]
    args: Value,
}

impl Line {
    fn reply(self) -> ScriptedReply {
        let mut reply = self.status.map_or_else(ScriptedReply::new, ScriptedReply::status);
        if let Some(seconds) = self.retry_after {
            reply = reply.retry_after(seconds);
        }
        if let Some(text) = self.thinks {
            reply = reply.thinks(text);
        }
        if let Some(text) = self.says {
            reply = reply.then_says(text);
        }
        for call in self.calls {
            let args =
                if call.args.is_null() { Value::Object(Default::default()) } else { call.args };
            reply = reply.calls(call.name, args);
        }
        if let Some(ms) = self.delay_ms {
            reply = reply.delay(std::time::Duration::from_millis(ms));
        }
        reply.usage(self.input_tokens.unwrap_or(10), self.output_tokens.unwrap_or(5))
    }
}
