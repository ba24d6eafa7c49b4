//! Runs the calls of one reply: concurrently if they are independent, in order if they share a
//! resource, and with exactly one result for each.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base::event::EventKind;
use base::failure::Result;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::Agent;
use crate::context::Conversation;
use crate::limits::Limit;
use crate::loop_detector::{LoopDetector, LoopVerdict};
use provider::ToolDefinition;
use provider::message::{ContentPart, Reply, StopReason, ToolCall, ToolResult};
use tools::output::{ToolErrorKind, ToolOutput};
use tools::trace_events;

/// The tools as the turn loop uses them.
pub(crate) trait Toolbox: Send + Sync {
    /// Returns the offered tools; the same in every request of a session.
    fn offered(&self) -> &[ToolDefinition];
    /// Returns the keys of the resources that a call uses. Calls that share a key run in order.
    fn resource_keys(&self, name: &str, args: &Value) -> Vec<String>;
    /// Runs one call. A malformed call returns an error.
    fn run<'a>(&'a self, job: ToolJob<'a>) -> BoxFuture<'a, ToolOutput>;
    /// Whether another model continues from here.
    fn wants_handover(&self) -> bool {
        false
    }
    /// Whether the work is finished although the model makes another call.
    fn is_done(&self) -> bool {
        false
    }
    /// Returns what remains to be done when the model declares that it is done.
    fn open_work(&self) -> BoxFuture<'_, Option<String>> {
        Box::pin(std::future::ready(None))
    }
}

/// A call to run.
pub(crate) struct ToolJob<'a> {
    /// The call. Its arguments may be malformed, which the outcome then reports.
    pub call: &'a ToolCall,
    /// Receives output while the call runs.
    pub on_output: Arc<dyn Fn(&str) + Send + Sync>,
}

/// Time that tools have to stop by themselves after the user cancelled.
const CANCEL_GRACE: Duration = Duration::from_secs(2);

/// Maximum number of calls of one reply that are run.
const MAX_RUN: usize = 128;
/// Maximum number of calls of one reply that the conversation keeps.
const MAX_KEPT: usize = 1_024;

/// Splits off the calls of a reply that exceed what the conversation keeps.
pub(crate) fn without_excess(mut reply: Reply) -> (Reply, Vec<ToolCall>) {
    let parts = &reply.message.parts;
    let mut calls =
        parts.iter().enumerate().filter(|(_, part)| matches!(part, ContentPart::Call(_)));
    let Some((index, _)) = calls.nth(MAX_KEPT) else { return (reply, Vec::new()) };
    let excess = reply.message.parts.split_off(index);
    let calls = excess.into_iter().filter_map(|part| match part {
        ContentPart::Call(call) => Some(call),
        ContentPart::Text { .. }
        | ContentPart::Note(_)
        | ContentPart::Reasoning { .. }
        | ContentPart::Result(_)
        | ContentPart::Image(_) => None,
    });
    (reply, calls.collect())
}

/// Runs the calls of a reply; `excess` are the calls that the conversation does not keep. Returns
/// the limit that the loop detector reached, if any.
pub(crate) async fn run_tool_calls(
    conversation: &mut Conversation,
    agent: &Agent<'_>,
    (reply, excess): (&Reply, &[ToolCall]),
    detector: &mut LoopDetector,
) -> Result<Option<Limit>> {
    let mut calls: Vec<&ToolCall> = reply.message.calls().collect();
    for call in calls.iter().copied().chain(excess) {
        let (id, name) = (call.id.clone(), call.name.clone());
        let args = call.malformed.clone().map_or_else(|| call.args.clone(), Value::String);
        (agent.on_event)(EventKind::ToolStart { id, name, args });
    }
    let total = calls.len() + excess.len();
    let not_run = calls.split_off(calls.len().min(MAX_RUN));
    let finished: Vec<CancellationToken> = calls.iter().map(|_| CancellationToken::new()).collect();
    let keys: Vec<Vec<String>> =
        calls.iter().map(|call| agent.toolbox.resource_keys(&call.name, &call.args)).collect();
    let mut running: FuturesUnordered<_> = (0..calls.len())
        .map(|index| {
            let rejected = rejection(reply, calls[index], index + 1 == total);
            let is_checked = !repeats_previous(reply, calls[index]);
            let earlier_calls: Vec<CancellationToken> = (0..index)
                .filter(|before| keys[*before].iter().any(|key| keys[index].contains(key)))
                .map(|before| finished[before].clone())
                .collect();
            let (call, finished) = (calls[index], finished[index].clone());
            async move {
                for before in earlier_calls {
                    before.cancelled().await;
                }
                let start = Instant::now();
                let offered = agent.toolbox.offered().iter().any(|spec| spec.name == call.name);
                let outcome = trace_events::call((&call.name, offered), &call.id, async {
                    match rejected {
                        Some(outcome) => outcome,
                        None => run_one(agent, call).await,
                    }
                });
                let outcome = outcome.await;
                finished.cancel();
                (call, outcome, is_checked, start.elapsed())
            }
        })
        .collect();
    let mut limit = None;
    while let Some((call, outcome, is_checked, elapsed)) = running.next().await {
        if let Some(side_usage) = &outcome.side_usage {
            (agent.on_event)(EventKind::Usage { usage: side_usage.usage });
            conversation.add_side_usage(side_usage.clone())?;
        }
        let (next, diff) = (outcome.hint.clone(), outcome.diff.clone());
        // A repetition within one reply is not a loop, since the model has not read a result yet.
        let (mut result, reached_limit) =
            to_result(is_checked.then_some(&mut *detector), call, outcome);
        limit = limit.or(reached_limit);
        let ToolResult { call_id: id, name, ok, text, .. } = result.clone();
        result.text.extend(next.map(|next| format!("\n\n{next}")));
        conversation.add_result(result)?;
        let ms = elapsed.as_millis() as u64;
        (agent.on_event)(EventKind::ToolEnd { id, name, ok, text, ms, diff });
    }
    let text = format!(
        "not run: the reply made {total} calls, and {MAX_RUN} of one reply are run at most. Make \
         the rest in later replies, after reading these results"
    );
    for call in &not_run {
        conversation.add_result(ToolResult {
            call_id: call.id.clone(),
            name: call.name.clone(),
            ok: false,
            text: text.clone(),
            images: Vec::new(),
            not_run: true,
        })?;
    }
    for call in not_run.into_iter().chain(excess) {
        let (id, name, text) = (call.id.clone(), call.name.clone(), text.clone());
        (agent.on_event)(EventKind::ToolEnd { id, name, ok: false, text, ms: 0, diff: None });
    }
    conversation.close_results();
    Ok(limit)
}

/// Returns the outcome of a call that is not run.
fn rejection(reply: &Reply, call: &ToolCall, is_last: bool) -> Option<ToolOutput> {
    if reply.stop == StopReason::Length && is_last && ends_with_call(reply) {
        return Some(invalid(
            "not run: the reply hit the output limit inside this call, so it may be half. Make \
             it shorter: write long files in parts, one call each",
        ));
    }
    if repeats_previous(reply, call) {
        return Some(invalid(
            "not run: this call is identical to the one directly before it in the same reply; \
             its result stands above. Repeat it in a later reply if you need it again",
        ));
    }
    None
}

fn invalid(text: impl Into<String>) -> ToolOutput {
    ToolOutput::not_run(ToolErrorKind::Validation, text)
}

fn ends_with_call(reply: &Reply) -> bool {
    matches!(reply.message.parts.last(), Some(ContentPart::Call(_)))
}

/// Whether the part before this call (ignoring reasoning) is the same call.
fn repeats_previous(reply: &Reply, call: &ToolCall) -> bool {
    let mut before = None;
    for part in &reply.message.parts {
        match part {
            ContentPart::Call(current) if current.id == call.id => {
                let content = |c: &ToolCall| (c.name.clone(), c.args.clone(), c.malformed.clone());
                let is_same = |b: &ToolCall| content(b) == content(current);
                return before.is_some_and(is_same);
            }
            ContentPart::Call(current) => before = Some(current),
            ContentPart::Text { text } if text.trim().is_empty() => {}
            ContentPart::Reasoning { .. } => {}
            ContentPart::Text { .. }
            | ContentPart::Note(_)
            | ContentPart::Result(_)
            | ContentPart::Image(_) => {
                before = None;
            }
        }
    }
    false
}

/// Runs one call. After a cancellation, the tool has a moment to end its processes itself; then its
/// future is dropped, which kills the rest.
async fn run_one(agent: &Agent<'_>, call: &ToolCall) -> ToolOutput {
    if agent.cancel.is_cancelled() {
        return ToolOutput::failed(
            ToolErrorKind::Cancelled,
            "cancelled by the user before it started",
        );
    }
    let (on_event, id) = (agent.on_event.clone(), call.id.clone());
    let on_output = Arc::new(move |text: &str| {
        on_event(EventKind::ToolOutput { id: id.clone(), text: text.to_owned() });
    });
    let job = ToolJob { call, on_output };
    let grace_ended = async {
        agent.cancel.cancelled().await;
        tokio::time::sleep(CANCEL_GRACE).await;
    };
    tokio::select! {
        outcome = agent.toolbox.run(job) => outcome,
        () = grace_ended => ToolOutput::failed(ToolErrorKind::Cancelled, "cancelled by the user"),
    }
}

/// Converts an outcome to a result. The loop detector may add a note or end the run.
fn to_result(
    detector: Option<&mut LoopDetector>,
    call: &ToolCall,
    outcome: ToolOutput,
) -> (ToolResult, Option<Limit>) {
    let mut result = ToolResult {
        call_id: call.id.clone(),
        name: call.name.clone(),
        ok: outcome.ok,
        text: outcome.text,
        images: outcome.images,
        not_run: outcome.not_run,
    };
    let verdict = detector.map_or(LoopVerdict::Fine, |detector| detector.record(call, &result));
    let limit = match verdict {
        LoopVerdict::Fine => None,
        // A result with a next step needs no further note.
        LoopVerdict::Nudge(_) if outcome.hint.is_some() => None,
        LoopVerdict::Nudge(n) => {
            result.text.push_str(&format!(
                "\n\n[You made this same call {n} times and got this same result. Do something \
                 else: read the result, try another way, or finish with what you know.]"
            ));
            None
        }
        LoopVerdict::Stop(n) => Some(Limit::Repeats(n)),
    };
    (result, limit)
}
