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
    fn touches(&self, name: &str, args: &Value) -> Vec<String>;
    /// Runs one call. A malformed call returns an error.
    fn run<'a>(&'a self, job: ToolJob<'a>) -> BoxFuture<'a, ToolOutput>;
    /// Whether another model continues from here.
    fn hands_over(&self) -> bool {
        false
    }
    /// Whether the work is finished although the model makes another call.
    fn is_done(&self) -> bool {
        false
    }
    /// Returns what remains to be done when the model declares that it is done.
    fn still_open(&self) -> BoxFuture<'_, Option<String>> {
        Box::pin(std::future::ready(None))
    }
}

/// A call to run.
pub(crate) struct ToolJob<'a> {
    /// The call. Its arguments may be malformed, which the outcome then reports.
    pub call: &'a ToolCall,
    /// Receives output while the call runs.
    pub hear: Arc<dyn Fn(&str) + Send + Sync>,
}

/// Time that tools have to stop by themselves after the user cancelled.
const CANCEL_GRACE: Duration = Duration::from_secs(2);

/// Maximum number of calls of one reply that are run.
const MOST_RUN: usize = 128;
/// Maximum number of calls of one reply that the conversation keeps.
const MOST_KEPT: usize = 1_024;

/// Splits off the calls of a reply that exceed what the conversation keeps.
pub(crate) fn without_excess(mut reply: Reply) -> (Reply, Vec<ToolCall>) {
    let parts = &reply.message.parts;
    let mut calls =
        parts.iter().enumerate().filter(|(_, part)| matches!(part, ContentPart::Call(_)));
    let Some((at, _)) = calls.nth(MOST_KEPT) else { return (reply, Vec::new()) };
    let excess = reply.message.parts.split_off(at);
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
    talk: &mut Conversation,
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
    let made = calls.len() + excess.len();
    let not_run = calls.split_off(calls.len().min(MOST_RUN));
    let done: Vec<CancellationToken> = calls.iter().map(|_| CancellationToken::new()).collect();
    let touched: Vec<Vec<String>> =
        calls.iter().map(|call| agent.toolbox.touches(&call.name, &call.args)).collect();
    let mut running: FuturesUnordered<_> = (0..calls.len())
        .map(|at| {
            let refused = refusal(reply, calls[at], at + 1 == made);
            let is_watched = !repeats_the_one_before(reply, calls[at]);
            let earlier: Vec<CancellationToken> = (0..at)
                .filter(|before| touched[*before].iter().any(|key| touched[at].contains(key)))
                .map(|before| done[before].clone())
                .collect();
            let (call, done) = (calls[at], done[at].clone());
            async move {
                for before in earlier {
                    before.cancelled().await;
                }
                let since = Instant::now();
                let offered = agent.toolbox.offered().iter().any(|spec| spec.name == call.name);
                let outcome = trace_events::call((&call.name, offered), &call.id, async {
                    match refused {
                        Some(outcome) => outcome,
                        None => run_one(agent, call).await,
                    }
                });
                let outcome = outcome.await;
                done.cancel();
                (call, outcome, is_watched, since.elapsed())
            }
        })
        .collect();
    let mut limit = None;
    while let Some((call, outcome, is_watched, took)) = running.next().await {
        if let Some(bill) = &outcome.bill {
            (agent.on_event)(EventKind::Usage { usage: bill.usage });
            talk.noted(bill.clone())?;
        }
        let (next, diff) = (outcome.next.clone(), outcome.diff.clone());
        // A repetition within one reply is not a loop, since the model has not read a result yet.
        let (mut result, reached) = judge(is_watched.then_some(&mut *detector), call, outcome);
        limit = limit.or(reached);
        let ToolResult { call_id: id, name, ok, text, .. } = result.clone();
        result.text.extend(next.map(|next| format!("\n\n{next}")));
        talk.answer(result)?;
        let ms = took.as_millis() as u64;
        (agent.on_event)(EventKind::ToolEnd { id, name, ok, text, ms, diff });
    }
    let text = format!(
        "not run: the reply made {made} calls, and {MOST_RUN} of one reply are run at most. Make \
         the rest in later replies, after reading these results"
    );
    for call in &not_run {
        talk.answer(ToolResult {
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
    talk.close_results();
    Ok(limit)
}

/// Returns the outcome of a call that is not run.
fn refusal(reply: &Reply, call: &ToolCall, is_last: bool) -> Option<ToolOutput> {
    if reply.stop == StopReason::Length && is_last && ends_with_call(reply) {
        return Some(invalid(
            "not run: the reply hit the output limit inside this call, so it may be half. Make \
             it shorter: write long files in parts, one call each",
        ));
    }
    if repeats_the_one_before(reply, call) {
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
fn repeats_the_one_before(reply: &Reply, call: &ToolCall) -> bool {
    let mut before = None;
    for part in &reply.message.parts {
        match part {
            ContentPart::Call(this) if this.id == call.id => {
                let of = |c: &ToolCall| (c.name.clone(), c.args.clone(), c.malformed.clone());
                let same = |b: &ToolCall| of(b) == of(this);
                return before.is_some_and(same);
            }
            ContentPart::Call(this) => before = Some(this),
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
    let (tell, id) = (agent.on_event.clone(), call.id.clone());
    let hear = Arc::new(move |text: &str| {
        tell(EventKind::ToolOutput { id: id.clone(), text: text.to_owned() });
    });
    let job = ToolJob { call, hear };
    let too_late = async {
        agent.cancel.cancelled().await;
        tokio::time::sleep(CANCEL_GRACE).await;
    };
    tokio::select! {
        outcome = agent.toolbox.run(job) => outcome,
        () = too_late => ToolOutput::failed(ToolErrorKind::Cancelled, "cancelled by the user"),
    }
}

/// Converts an outcome to a result. The loop detector may add a note or end the run.
fn judge(
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
    let verdict = detector.map_or(LoopVerdict::Fine, |detector| detector.watch(call, &result));
    let limit = match verdict {
        LoopVerdict::Fine => None,
        // A result with a next step needs no further note.
        LoopVerdict::Nudge(_) if outcome.next.is_some() => None,
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
