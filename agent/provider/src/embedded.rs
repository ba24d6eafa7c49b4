//! A local model, used through its host process.

use std::sync::{Arc, Mutex};

use base::config::providers::EmbeddedConfig;
use base::event::Usage;
use base::failure::{Failure, OrFail, Result as ToolOutput};
use base::model_host::catalogue;
use base::model_host::connection::{Connection, ResponseStream};
use base::model_host::find::{self, HostQuery};
use base::model_host::wire::{
    self, Hello, HostChat, HostFault, HostFaultKind, HostMessage, HostResponse, ToolCallMode,
};
use futures_util::future::BoxFuture;
use serde_json::Value;

use crate::error::{ProviderError, Refusal};
use crate::history;
use crate::message::{ContentPart, HarnessNote, Message, MessageRole, Reply, StopReason, ToolCall};
use crate::provider::{ChatRequest, Delta, OnDelta, Provider, ProviderFacts};

/// A model with fewer parameters than this is small.
const LARGE: u64 = 4_000_000_000;
/// A model with a smaller context than this (in tokens) is small.
const ROOMY: u64 = 8_192;
/// Maximum number of tokens in a reply of a small model. Longer replies are nearly always
/// repetitions.
const SMALL_REPLY: u64 = 1_536;
/// The temperature for a retry after a model repeats itself.
const STIRRED: f32 = 0.7;
/// Replaces an image in the prompt.
const UNSEEN: &str = "[a picture; this model cannot see]";
/// Maximum number of characters kept of each argument of a truncated call.
const KEPT_OF_CUT: usize = 80;

/// A local model.
pub(crate) struct EmbeddedProvider {
    facts: ProviderFacts,
    temperature: f32,
    host: Host,
}

/// The connection to the host.
struct Host {
    /// `None` if a supervisor manages the host; its socket path does not change then.
    wanted: Option<HostQuery>,
    connection: Mutex<Arc<Connection>>,
}

/// Opens the local model of a configuration entry. `reference` is `type.name`; `model` overrides
/// the configured model. Finds or starts the host, which reports its model.
pub(crate) fn open(
    config: &EmbeddedConfig,
    reference: &str,
    model: Option<&str>,
) -> ToolOutput<EmbeddedProvider> {
    if config.model_type.is_some() || config.gpu_layers.is_some() {
        return Err(Failure::usage(format!("`{reference}` sets model_type or gpu_layers"))
            .because("the model file's own template is used, and an accelerator takes all layers")
            .hint(format!("leave them out of [providers.{reference}]")));
    }
    let name = model.or(config.model.as_deref());
    let (host, hello) = match find::inherited_connection() {
        Some(socket) => {
            let connection = Connection::new(socket).or_fail(|| "cannot talk to the model host")?;
            let hello = connection.hello().map_err(HostFault::into_failure)?;
            (Host::over(None, connection), hello)
        }
        None => {
            let wanted = HostQuery::of(config, model)?;
            let (connection, hello) = find::open(&wanted)?;
            (Host::over(Some(wanted), connection), hello)
        }
    };
    let name =
        name.map_or_else(|| file_stem(config).unwrap_or(catalogue::DEFAULT.into()), Into::into);
    let temperature = config.temperature.unwrap_or(0.0) as f32;
    Ok(EmbeddedProvider { facts: facts(&hello, config, reference, name), temperature, host })
}

fn file_stem(config: &EmbeddedConfig) -> Option<String> {
    Some(config.model_path.as_ref()?.file_stem()?.to_string_lossy().into_owned())
}

fn facts(hello: &Hello, config: &EmbeddedConfig, reference: &str, model: String) -> ProviderFacts {
    let context = hello.context.min(config.context_length.map_or(u64::MAX, u64::from));
    let small = hello.parameters < LARGE || context < ROOMY;
    let most = if small { SMALL_REPLY } else { 8_192 };
    ProviderFacts {
        provider: reference.to_owned(),
        model,
        context,
        max_output: config.max_tokens.map_or(most, u64::from).min(context / 4),
        small,
        priced: true,
    }
}

impl Provider for EmbeddedProvider {
    fn ask<'a>(
        &'a self,
        request: &'a ChatRequest<'a>,
        hear: &'a mut OnDelta<'_>,
    ) -> BoxFuture<'a, Result<Reply, ProviderError>> {
        Box::pin(async move {
            let connection = self.host.connected().await?;
            let chat = self.chat(request);
            let calls = request.messages.iter().map(|message| message.calls().count()).sum();
            listen(connection.chat(chat), calls, hear).await
        })
    }

    fn facts(&self) -> &ProviderFacts {
        &self.facts
    }
}

impl EmbeddedProvider {
    fn chat(&self, request: &ChatRequest<'_>) -> HostChat {
        let messages = history::sound(request.messages);
        let messages = if self.facts.small { forget(afresh(messages)) } else { messages };
        // The model was told that its task is not done, so it must not declare it done again.
        let act = self.facts.small && messages.last().is_some_and(Message::is_reminder);
        let stir = self.facts.small && (act || failed(&messages) || repeats(&messages));
        HostChat {
            conversation: request.session.to_owned(),
            system: request.system.to_owned(),
            messages: messages.iter().flat_map(EmbeddedProvider::turns).collect(),
            tools: request
                .tools
                .iter()
                .map(|tool| wire::HostTool {
                    name: tool.name.clone(),
                    description: tool.description.clone(),
                    parameters: tool.parameters.clone(),
                })
                .collect(),
            mode: ToolCallMode::Auto,
            max_tokens: u32::try_from(request.max_output).unwrap_or(u32::MAX),
            temperature: if stir { self.temperature.max(STIRRED) } else { self.temperature },
            seed: request.messages.len() as u64,
            act,
        }
    }
}

/// Whether the model made the same calls twice in a row. With the same sampling it would make them
/// again.
fn repeats(messages: &[Message]) -> bool {
    let made = |message: &Message| -> Vec<(String, Value)> {
        message.calls().map(|call| (call.name.clone(), call.args.clone())).collect()
    };
    let mut said = messages.iter().rev().filter(|message| message.role == MessageRole::Assistant);
    let last = said.next().map(made).unwrap_or_default();
    !last.is_empty() && said.take(2).any(|message| made(message) == last)
}

/// Drops the conversation before the reminder except for the task. A small model would otherwise
/// repeat what it did so far.
fn afresh(mut messages: Vec<Message>) -> Vec<Message> {
    let Some(at) = messages.iter().rposition(Message::is_reminder) else {
        return messages;
    };
    let asks = |message: &Message| {
        let text = message.parts.first().and_then(ContentPart::words).is_some();
        message.role == MessageRole::User && text && !message.is_reminder()
    };
    let task = messages[..at].iter().rposition(asks).map_or(0, |task| task + 1);
    messages.drain(task.min(at)..at);
    messages
}

/// Whether the last call failed. A small model then makes the same call again if sampling does not
/// change.
fn failed(messages: &[Message]) -> bool {
    let failed = |part: &ContentPart| matches!(part, ContentPart::Result(result) if !result.ok);
    messages.last().is_some_and(|message| message.parts.iter().any(failed))
}

/// Returns the number of consecutive calls at the end that were not run.
fn led_nowhere(messages: &[Message]) -> usize {
    let results = messages.iter().rev().filter(|message| message.role == MessageRole::User);
    results.take_while(|message| was_held(message)).count()
}

/// Whether a message is the result of a call that was not run.
fn was_held(message: &Message) -> bool {
    let held = |part: &ContentPart| match part {
        ContentPart::Result(result) => result.not_run,
        ContentPart::Text { .. }
        | ContentPart::Note(_)
        | ContentPart::Reasoning { .. }
        | ContentPart::Call(_)
        | ContentPart::Image(_) => false,
    };
    !message.parts.is_empty() && message.parts.iter().all(held)
}

/// Removes calls that were not run, except for a first one at the end, whose reason the model has
/// not read yet. A small model that sees its own mistake several times repeats it.
fn forget(messages: Vec<Message>) -> Vec<Message> {
    let keep = if led_nowhere(&messages) == 1 { messages.len() - 1 } else { messages.len() };
    let held = |at: usize| at != keep && messages.get(at).is_some_and(was_held);
    let is_left = |at: &usize| !held(*at) && !held(at + 1);
    (0..messages.len()).filter(is_left).map(|at| messages[at].clone()).collect()
}

impl EmbeddedProvider {
    /// Converts a message to the host's format.
    fn turns(message: &Message) -> Vec<HostMessage> {
        if message.role == MessageRole::Assistant {
            let call =
                |call: &ToolCall| wire::HostToolCall { name: call.name.clone(), args: kept(call) };
            let calls = message.calls().map(call).collect();
            return vec![HostMessage::Assistant { text: message.words(), calls }];
        }
        let turn = |part: &ContentPart| match part {
            ContentPart::Text { text } | ContentPart::Note(HarnessNote { text, .. }) => {
                Some(HostMessage::User { text: text.clone() })
            }
            ContentPart::Result(result) => {
                let mut text = result.text.trim_end().to_owned();
                if !result.images.is_empty() {
                    text = format!("{text}\n{UNSEEN}").trim_start().to_owned();
                }
                Some(HostMessage::Result { name: result.name.clone(), text })
            }
            ContentPart::Image(_) => Some(HostMessage::User { text: UNSEEN.to_owned() }),
            ContentPart::Reasoning { .. } | ContentPart::Call(_) => None,
        };
        message.parts.iter().filter_map(turn).collect()
    }
}

impl Host {
    fn over(wanted: Option<HostQuery>, connection: Connection) -> Host {
        Host { wanted, connection: Mutex::new(Arc::new(connection)) }
    }

    fn current(&self) -> Arc<Connection> {
        Arc::clone(&base::sync::lock(&self.connection))
    }

    /// Returns the connection. Restarts a host that has exited.
    async fn connected(&self) -> Result<Arc<Connection>, ProviderError> {
        let connection = self.current();
        let Some(wanted) = self.wanted.clone().filter(|_| connection.is_closed()) else {
            return Ok(connection);
        };
        let broken = |why: String| ProviderError::Broken(why);
        let found = tokio::task::spawn_blocking(move || find::open(&wanted)).await;
        let found = found.map_err(|e| broken(e.to_string()))?;
        let fresh = Arc::new(found.map_err(|failure| rejected(failure.into()))?.0);
        *base::sync::lock(&self.connection) = Arc::clone(&fresh);
        Ok(fresh)
    }
}

/// Returns the arguments of a call. Those of a truncated call are shortened: the rest would fill
/// the context and lead the model to write it again.
fn kept(call: &ToolCall) -> Value {
    let mut args = call.args.clone();
    if let (Some(_), Value::Object(args)) = (&call.malformed, &mut args) {
        for value in args.values_mut() {
            if let Value::String(text) = value {
                *text = base::text::head(text, KEPT_OF_CUT).to_owned();
            }
        }
    }
    args
}

/// Reads a reply to its end. `calls` is the number of calls in the conversation before it.
async fn listen(
    mut answers: ResponseStream,
    calls: usize,
    hear: &mut OnDelta<'_>,
) -> Result<Reply, ProviderError> {
    let mut parts: Vec<ContentPart> = Vec::new();
    loop {
        match answers.next().await {
            HostResponse::Text { text } => {
                hear(Delta::Text(&text));
                match parts.last_mut() {
                    Some(ContentPart::Text { text: said }) => said.push_str(&text),
                    Some(_) | None => parts.push(ContentPart::Text { text }),
                }
            }
            HostResponse::Call { name, args, truncated_at_cap } => {
                let id = format!("call_{}", calls + parts.len() + 1);
                let malformed = truncated_at_cap.then(|| args.to_string());
                parts.push(ContentPart::Call(ToolCall { id, name, args, malformed }));
            }
            HostResponse::Progress { .. } => hear(Delta::Ping),
            HostResponse::Done { stop, usage } => return Ok(reply(parts, stop, usage)),
            HostResponse::Error(fault) => return Err(error(fault)),
            HostResponse::Hello(_) | HostResponse::Status(_) | HostResponse::Vectors(_) => {
                return Err(ProviderError::Broken(wire::UNEXPECTED.to_owned()));
            }
        }
    }
}

fn reply(parts: Vec<ContentPart>, stop: wire::HostStopReason, usage: wire::ReplyUsage) -> Reply {
    let message = Message { role: MessageRole::Assistant, parts };
    let called = message.calls().next().is_some();
    let stop = match stop {
        wire::HostStopReason::Length => StopReason::Length,
        wire::HostStopReason::Calls
        | wire::HostStopReason::Done
        | wire::HostStopReason::Cancelled
            if called =>
        {
            StopReason::Calls
        }
        wire::HostStopReason::Calls
        | wire::HostStopReason::Done
        | wire::HostStopReason::Cancelled => StopReason::Done,
    };
    let usage = Usage {
        input: usage.prefilled,
        output: usage.written,
        cache_read: usage.reused,
        cache_write: 0,
        cost_usd: Some(0.0),
        cost_incomplete: false,
    };
    Reply { message, usage, stop }
}

fn error(fault: HostFault) -> ProviderError {
    match fault.kind {
        HostFaultKind::TooLong => ProviderError::TooLong(fault.what),
        HostFaultKind::Broken => ProviderError::Broken(with_cause(&fault)),
        HostFaultKind::Rejected => rejected(fault),
    }
}

fn rejected(fault: HostFault) -> ProviderError {
    Refusal { text: with_cause(&fault), status: None, hints: fault.next }.into()
}

fn with_cause(fault: &HostFault) -> String {
    match &fault.why {
        Some(why) => format!("{}: {why}", fault.what),
        None => fault.what.clone(),
    }
}

#[cfg(test)]
mod tests;
