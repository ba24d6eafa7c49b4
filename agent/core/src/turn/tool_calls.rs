//! Carries out the calls of one reply: at once where they do not meet, in order where they do, and
//! with exactly one result for each.

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
use crate::limits::{Limit, LoopDetector, LoopVerdict};
use provider::ToolDefinition;
use provider::message::{ContentPart, Reply, StopReason, ToolCall, ToolResult};
use tools::output::{ToolErrorKind, ToolOutput};
use tools::trace_events;

/// What the model may do, as the loop sees it.
pub(crate) trait Toolbox: Send + Sync {
    /// The tools offered; the same in every request of a session.
    fn offered(&self) -> &[ToolDefinition];
    /// Keys of what a call touches: calls that share one are carried out in order.
    fn touches(&self, name: &str, args: &Value) -> Vec<String>;
    /// Carries one call out; a malformed one by saying so.
    fn run<'a>(&'a self, job: ToolJob<'a>) -> BoxFuture<'a, ToolOutput>;
    /// Whether another model shall go on from here.
    fn hands_over(&self) -> bool {
        false
    }
    /// Whether all is done although the model makes another call.
    fn is_done(&self) -> bool {
        false
    }
    /// What is still to be done, when the model says that it is done.
    fn still_open(&self) -> BoxFuture<'_, Option<String>> {
        Box::pin(std::future::ready(None))
    }
}

/// One call to be carried out.
pub(crate) struct ToolJob<'a> {
    /// The call; its arguments may be malformed, which the outcome then says.
    pub call: &'a ToolCall,
    /// Hears output while it runs.
    pub hear: Arc<dyn Fn(&str) + Send + Sync>,
}

/// How long tools may take to end themselves after the user cancelled.
const CANCEL_GRACE: Duration = Duration::from_secs(2);

/// Calls of one reply that are run, at most.
const MOST_RUN: usize = 128;
/// Calls of one reply that the conversation keeps, at most.
const MOST_KEPT: usize = 1_024;

/// The reply without the calls that are too many for a conversation, and those calls.
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

/// Carries out the calls of a reply, `excess` being those that the conversation does not keep; gives
/// the limit that the guard saw reached, if any.
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
        // A repetition within one reply is not a loop: the model has not read a result yet.
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

/// Why a call is not run, as its outcome.
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

/// Whether the part before this call (thoughts aside) is the same call.
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

/// Runs one call. When the user cancels, the tool has a moment to end its processes itself; then
/// its future is dropped, which kills what is left.
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

/// Makes the result of an outcome; the guard may add a word, or say that it is enough.
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
        // Who is told the next step has no use for another one.
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
