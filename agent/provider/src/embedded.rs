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
const LARGE_MODEL: u64 = 4_000_000_000;
/// A model with a smaller context than this (in tokens) is small.
const LARGE_CONTEXT: u64 = 8_192;
/// Maximum number of tokens in a reply of a small model. Longer replies are nearly always
/// repetitions.
const SMALL_MODEL_MAX_OUTPUT: u64 = 1_536;
/// The temperature for a retry after a model repeats itself.
const RETRY_TEMPERATURE: f32 = 0.7;
/// Replaces an image in the prompt.
const IMAGE_PLACEHOLDER: &str = "[a picture; this model cannot see]";
/// Maximum number of characters kept of each argument of a truncated call.
const MAX_TRUNCATED_ARG: usize = 80;

/// A local model.
pub(crate) struct EmbeddedProvider {
    facts: ProviderFacts,
    temperature: f32,
    host: Host,
}

/// The connection to the host.
struct Host {
    /// `None` if a supervisor manages the host; its socket path does not change then.
    query: Option<HostQuery>,
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
            (Host::new(None, connection), hello)
        }
        None => {
            let query = HostQuery::of(config, model)?;
            let (connection, hello) = find::open(&query)?;
            (Host::new(Some(query), connection), hello)
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
    let small = hello.parameters < LARGE_MODEL || context < LARGE_CONTEXT;
    let default_max_output = if small { SMALL_MODEL_MAX_OUTPUT } else { 8_192 };
    ProviderFacts {
        provider: reference.to_owned(),
        model,
        context,
        max_output: config.max_tokens.map_or(default_max_output, u64::from).min(context / 4),
        small,
        priced: true,
    }
}

impl Provider for EmbeddedProvider {
    fn ask<'a>(
        &'a self,
        request: &'a ChatRequest<'a>,
        on_delta: &'a mut OnDelta<'_>,
    ) -> BoxFuture<'a, Result<Reply, ProviderError>> {
        Box::pin(async move {
            let connection = self.host.ensure_connected().await?;
            let chat = self.chat(request);
            let calls = request.messages.iter().map(|message| message.calls().count()).sum();
            read_reply(connection.chat(chat), calls, on_delta).await
        })
    }

    fn facts(&self) -> &ProviderFacts {
        &self.facts
    }
}

impl EmbeddedProvider {
    fn chat(&self, request: &ChatRequest<'_>) -> HostChat {
        let messages = history::repair(request.messages);
        let messages =
            if self.facts.small { drop_not_run(drop_before_reminder(messages)) } else { messages };
        // The model was told that its task is not done, so it must not declare it done again.
        let must_call = self.facts.small && messages.last().is_some_and(Message::is_reminder);
        let raise_temperature = self.facts.small
            && (must_call || last_call_failed(&messages) || is_repeating(&messages));
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
            temperature: if raise_temperature {
                self.temperature.max(RETRY_TEMPERATURE)
            } else {
                self.temperature
            },
            seed: request.messages.len() as u64,
            act: must_call,
        }
    }
}

/// Whether the model made the same calls twice in a row. With the same sampling it would make them
/// again.
fn is_repeating(messages: &[Message]) -> bool {
    let calls_of = |message: &Message| -> Vec<(String, Value)> {
        message.calls().map(|call| (call.name.clone(), call.args.clone())).collect()
    };
    let mut assistant_messages =
        messages.iter().rev().filter(|message| message.role == MessageRole::Assistant);
    let last = assistant_messages.next().map(calls_of).unwrap_or_default();
    !last.is_empty() && assistant_messages.take(2).any(|message| calls_of(message) == last)
}

/// Drops the conversation before the reminder except for the task. A small model would otherwise
/// repeat what it did so far.
fn drop_before_reminder(mut messages: Vec<Message>) -> Vec<Message> {
    let Some(reminder) = messages.iter().rposition(Message::is_reminder) else {
        return messages;
    };
    let is_task = |message: &Message| {
        let text = message.parts.first().and_then(ContentPart::as_text).is_some();
        message.role == MessageRole::User && text && !message.is_reminder()
    };
    let task = messages[..reminder].iter().rposition(is_task).map_or(0, |task| task + 1);
    messages.drain(task.min(reminder)..reminder);
    messages
}

/// Whether the last call failed. A small model then makes the same call again if sampling does not
/// change.
fn last_call_failed(messages: &[Message]) -> bool {
    let last_call_failed =
        |part: &ContentPart| matches!(part, ContentPart::Result(result) if !result.ok);
    messages.last().is_some_and(|message| message.parts.iter().any(last_call_failed))
}

/// Returns the number of consecutive calls at the end that were not run.
fn trailing_not_run(messages: &[Message]) -> usize {
    let results = messages.iter().rev().filter(|message| message.role == MessageRole::User);
    results.take_while(|message| is_not_run(message)).count()
}

/// Whether a message is the result of a call that was not run.
fn is_not_run(message: &Message) -> bool {
    let is_result_not_run = |part: &ContentPart| match part {
        ContentPart::Result(result) => result.not_run,
        ContentPart::Text { .. }
        | ContentPart::Note(_)
        | ContentPart::Reasoning { .. }
        | ContentPart::Call(_)
        | ContentPart::Image(_) => false,
    };
    !message.parts.is_empty() && message.parts.iter().all(is_result_not_run)
}

/// Removes calls that were not run, except for a first one at the end, whose reason the model has
/// not read yet. A small model that sees its own mistake several times repeats it.
fn drop_not_run(messages: Vec<Message>) -> Vec<Message> {
    let keep = if trailing_not_run(&messages) == 1 { messages.len() - 1 } else { messages.len() };
    let is_dropped = |index: usize| index != keep && messages.get(index).is_some_and(is_not_run);
    let is_kept = |index: &usize| !is_dropped(*index) && !is_dropped(index + 1);
    (0..messages.len()).filter(is_kept).map(|index| messages[index].clone()).collect()
}

impl EmbeddedProvider {
    /// Converts a message to the host's format.
    fn turns(message: &Message) -> Vec<HostMessage> {
        if message.role == MessageRole::Assistant {
            let call = |call: &ToolCall| wire::HostToolCall {
                name: call.name.clone(),
                args: shortened_args(call),
            };
            let calls = message.calls().map(call).collect();
            return vec![HostMessage::Assistant { text: message.full_text(), calls }];
        }
        let turn = |part: &ContentPart| match part {
            ContentPart::Text { text } | ContentPart::Note(HarnessNote { text, .. }) => {
                Some(HostMessage::User { text: text.clone() })
            }
            ContentPart::Result(result) => {
                let mut text = result.text.trim_end().to_owned();
                if !result.images.is_empty() {
                    text = format!("{text}\n{IMAGE_PLACEHOLDER}").trim_start().to_owned();
                }
                Some(HostMessage::Result { name: result.name.clone(), text })
            }
            ContentPart::Image(_) => Some(HostMessage::User { text: IMAGE_PLACEHOLDER.to_owned() }),
            ContentPart::Reasoning { .. } | ContentPart::Call(_) => None,
        };
        message.parts.iter().filter_map(turn).collect()
    }
}

impl Host {
    fn new(query: Option<HostQuery>, connection: Connection) -> Host {
        Host { query, connection: Mutex::new(Arc::new(connection)) }
    }

    fn current(&self) -> Arc<Connection> {
        Arc::clone(&base::sync::lock(&self.connection))
    }

    /// Returns the connection. Restarts a host that has exited.
    async fn ensure_connected(&self) -> Result<Arc<Connection>, ProviderError> {
        let connection = self.current();
        let Some(query) = self.query.clone().filter(|_| connection.is_closed()) else {
            return Ok(connection);
        };
        let broken = |reason: String| ProviderError::Broken(reason);
        let opened = tokio::task::spawn_blocking(move || find::open(&query)).await;
        let opened = opened.map_err(|e| broken(e.to_string()))?;
        let new_connection = Arc::new(opened.map_err(|failure| rejected(failure.into()))?.0);
        *base::sync::lock(&self.connection) = Arc::clone(&new_connection);
        Ok(new_connection)
    }
}

/// Returns the arguments of a call. Those of a truncated call are shortened: the rest would fill
/// the context and lead the model to write it again.
fn shortened_args(call: &ToolCall) -> Value {
    let mut args = call.args.clone();
    if let (Some(_), Value::Object(args)) = (&call.malformed, &mut args) {
        for value in args.values_mut() {
            if let Value::String(text) = value {
                *text = base::text::head(text, MAX_TRUNCATED_ARG).to_owned();
            }
        }
    }
    args
}

/// Reads a reply to its end. `calls` is the number of calls in the conversation before it.
async fn read_reply(
    mut responses: ResponseStream,
    calls: usize,
    on_delta: &mut OnDelta<'_>,
) -> Result<Reply, ProviderError> {
    let mut parts: Vec<ContentPart> = Vec::new();
    loop {
        match responses.next().await {
            HostResponse::Text { text } => {
                on_delta(Delta::Text(&text));
                match parts.last_mut() {
                    Some(ContentPart::Text { text: last_text }) => last_text.push_str(&text),
                    Some(_) | None => parts.push(ContentPart::Text { text }),
                }
            }
            HostResponse::Call { name, args, truncated_at_cap } => {
                let id = format!("call_{}", calls + parts.len() + 1);
                let malformed = truncated_at_cap.then(|| args.to_string());
                parts.push(ContentPart::Call(ToolCall { id, name, args, malformed }));
            }
            HostResponse::Progress { .. } => on_delta(Delta::Ping),
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
    let has_calls = message.calls().next().is_some();
    let stop = match stop {
        wire::HostStopReason::Length => StopReason::Length,
        wire::HostStopReason::Calls
        | wire::HostStopReason::Done
        | wire::HostStopReason::Cancelled
            if has_calls =>
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
        Some(cause) => format!("{}: {cause}", fault.what),
        None => fault.what.clone(),
    }
}

#[cfg(test)]
mod tests;
