//! Tests of the turn loop with a scripted model and a scripted toolbox, in one process.

mod calls;
mod context;

use std::collections::VecDeque;
use std::path::PathBuf;

use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use super::tool_calls::ToolJob;
use super::*;

use crate::context::window::ContextWindow;
use crate::context::{ConversationEntry, ConversationLog};
use provider::message::{ContentPart, ToolCall, ToolResult};
use provider::{OnDelta, ProviderFacts, ToolDefinition};
use tools::output::ToolOutput;

/// A model with scripted replies that records its requests.
struct Script {
    facts: ProviderFacts,
    replies: Mutex<VecDeque<std::result::Result<Reply, ProviderError>>>,
    requests: Mutex<Vec<Vec<Message>>>,
}

impl Script {
    fn new(replies: impl IntoIterator<Item = Reply>) -> Script {
        Script::with(replies.into_iter().map(Ok))
    }

    fn with(
        replies: impl IntoIterator<Item = std::result::Result<Reply, ProviderError>>,
    ) -> Script {
        let facts = ProviderFacts {
            provider: "script.test".into(),
            model: "m".into(),
            context: 10_000,
            max_output: 1_000,
            small: false,
            priced: false,
        };
        let replies = Mutex::new(replies.into_iter().collect());
        Script { facts, replies, requests: Mutex::new(Vec::new()) }
    }

    fn requests(&self) -> Vec<Vec<Message>> {
        self.requests.lock().unwrap().clone()
    }
}

impl Provider for Script {
    fn ask<'a>(
        &'a self,
        request: &'a ChatRequest<'a>,
        on_delta: &'a mut OnDelta<'_>,
    ) -> BoxFuture<'a, std::result::Result<Reply, ProviderError>> {
        self.requests.lock().unwrap().push(request.messages.to_vec());
        let reply = self.replies.lock().unwrap().pop_front();
        Box::pin(async move {
            let reply = reply.expect("the script has no more replies")?;
            on_delta(Delta::Text(&reply.message.full_text()));
            Ok(reply)
        })
    }

    fn facts(&self) -> &ProviderFacts {
        &self.facts
    }
}

/// Test tools: `wait` ends when another call named `wake` runs; `say` returns its text; `slow`
/// never ends by itself and sets the token as well.
#[derive(Default)]
struct Tools {
    woken: CancellationToken,
    order: Mutex<Vec<String>>,
    /// The open work, taken from the end.
    open: Mutex<Vec<String>>,
}

impl Toolbox for Tools {
    fn offered(&self) -> &[ToolDefinition] {
        &[]
    }

    fn resource_keys(&self, _: &str, args: &Value) -> Vec<String> {
        args["file"].as_str().map(str::to_owned).into_iter().collect()
    }

    fn run<'a>(&'a self, job: ToolJob<'a>) -> BoxFuture<'a, ToolOutput> {
        Box::pin(async move {
            self.order.lock().unwrap().push(format!("begin {}", job.call.id));
            let outcome = match job.call.name.as_str() {
                "wait" => {
                    self.woken.cancelled().await;
                    ToolOutput::success("woken")
                }
                "wake" => {
                    self.woken.cancel();
                    ToolOutput::success("woke it")
                }
                "slow" => {
                    self.woken.cancel();
                    std::future::pending().await
                }
                _ => {
                    tokio::task::yield_now().await;
                    let next = job.call.args["next"].as_str().map(str::to_owned);
                    let said = job.call.args["text"].as_str().unwrap_or("said");
                    ToolOutput { hint: next, ..ToolOutput::success(said) }
                }
            };
            self.order.lock().unwrap().push(format!("end {}", job.call.id));
            outcome
        })
    }

    fn open_work(&self) -> BoxFuture<'_, Option<String>> {
        Box::pin(std::future::ready(self.open.lock().unwrap().pop()))
    }
}

/// An empty inbox.
struct Nobody;

impl Inbox for Nobody {
    fn queued(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    fn remove(&self, _: &str) {}
}

/// Records the log entries.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<ConversationEntry>>>);

impl ConversationLog for Notes {
    fn append(&mut self, entry: &ConversationEntry) -> std::io::Result<()> {
        self.0.lock().unwrap().push(entry.clone());
        Ok(())
    }
    fn sync(&mut self) -> std::io::Result<()> {
        Ok(())
    }
    fn write_file(&mut self, folder: &str, name: &str, _: &str) -> std::io::Result<PathBuf> {
        Ok(PathBuf::from(format!("{folder}/{name}")))
    }
}

fn reply(parts: Vec<ContentPart>, stop: StopReason) -> Reply {
    let message = Message { role: MessageRole::Assistant, parts };
    Reply { message, usage: Usage::default(), stop }
}

fn says(text: &str) -> Reply {
    reply(vec![ContentPart::Text { text: text.into() }], StopReason::Done)
}

fn call(id: &str, name: &str, args: Value) -> ContentPart {
    ContentPart::Call(ToolCall { id: id.into(), name: name.into(), args, malformed: None })
}

fn calls(parts: Vec<ContentPart>) -> Reply {
    reply(parts, StopReason::Calls)
}

struct Run {
    finish: TurnResult<TurnEnd>,
    conversation: Conversation,
    events: Vec<EventKind>,
    notes: Notes,
}

impl Run {
    fn results(&self) -> Vec<ToolResult> {
        let parts = self.conversation.messages().iter().flat_map(|message| message.parts.clone());
        let results = parts.filter_map(|part| match part {
            ContentPart::Result(result) => Some(result),
            ContentPart::Text { .. }
            | ContentPart::Note(_)
            | ContentPart::Reasoning { .. }
            | ContentPart::Call(_)
            | ContentPart::Image(_) => None,
        });
        results.collect()
    }
}

async fn run_with(
    model: &Script,
    tools: &Tools,
    limits: UsageLimits,
    cancel: CancellationToken,
) -> Run {
    run_after(Vec::new(), model, tools, limits, cancel).await
}

/// Continues after the entries of a journal.
async fn run_after(
    before: Vec<ConversationEntry>,
    model: &Script,
    tools: &Tools,
    limits: UsageLimits,
    cancel: CancellationToken,
) -> Run {
    let events: Arc<Mutex<Vec<EventKind>>> = Arc::default();
    let received = events.clone();
    let agent = Agent {
        provider: model,
        toolbox: tools,
        system: "be good",
        session: "s",
        limits,
        inbox: &Nobody,
        verbatim_texts: &|| Some("- [ ] the rest".to_owned()),
        on_event: Arc::new(move |what| received.lock().unwrap().push(what)),
        cancel,
    };
    let notes = Notes::default();
    let window = ContextWindow::new(model.facts.context, 10);
    let mut conversation = Conversation::new(window, Box::new(notes.clone()));
    conversation.replay(before).unwrap();
    conversation.add_request(Message::text(MessageRole::User, "go")).unwrap();
    let finish = run_turn(&mut conversation, &agent, &mut UsageMeter::default()).await;
    let events = events.lock().unwrap().clone();
    Run { finish, conversation, events, notes }
}

async fn run(model: &Script) -> Run {
    run_with(model, &Tools::default(), UsageLimits::default(), CancellationToken::new()).await
}
