//! Limits set by the user, and detection of models that repeat themselves.

use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use base::event::Usage;

use provider::message::{ToolCall, ToolResult};

/// The limits of one run; `None` means no limit.
#[derive(Clone, Copy, Debug, Default)]
pub struct UsageLimits {
    /// Number of model requests.
    pub turns: Option<u32>,
    /// Input and output tokens, including cached ones.
    pub tokens: Option<u64>,
    /// US dollars.
    pub cost_usd: Option<f64>,
    /// Wall-clock time.
    pub time: Option<Duration>,
}

/// The usage of one run so far. Subagents share the meter of their run.
#[derive(Debug, Default)]
pub(crate) struct UsageMeter {
    used: Arc<Mutex<Used>>,
    /// Wall-clock time of finished parts.
    pub time: Duration,
}

#[derive(Debug, Default)]
struct Used {
    turns: u32,
    usage: Usage,
    /// Whether the cost of a reply is unknown.
    unpriced: bool,
}

/// The limit that was reached.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// Number of model requests.
    Turns(u32),
    /// Tokens.
    Tokens(u64),
    /// US dollars.
    Cost(f64),
    /// The cost of a reply is unknown and a limit of this many US dollars is set.
    UnknownCost(f64),
    /// Wall-clock time.
    Time(Duration),
    /// The same call returned the same result this many times.
    Repeats(u32),
}

impl UsageLimits {
    /// Returns the first limit that the usage has reached. The turn loop itself enforces the time
    /// limit.
    pub(crate) fn reached(&self, spent: &UsageMeter) -> Option<Limit> {
        let Used { turns, usage, unpriced } = *spent.used();
        let tokens = usage.tokens();
        let turns = self.turns.filter(|max| turns >= *max).map(Limit::Turns);
        let tokens = self.tokens.filter(|max| tokens >= *max).map(Limit::Tokens);
        let cost = usage.cost_usd.unwrap_or(0.0);
        let cost = self.cost_usd.filter(|max| cost >= *max).map(Limit::Cost);
        let unknown = self.cost_usd.filter(|_| unpriced).map(Limit::UnknownCost);
        turns.or(tokens).or(cost).or(unknown)
    }
}

impl UsageMeter {
    /// Adds one model request.
    pub(crate) fn add(&mut self, usage: Usage) {
        let mut used = self.used();
        used.turns = used.turns.saturating_add(1);
        used.unpriced |= usage.cost_usd.is_none();
        drop(used);
        self.add_summary(usage);
    }

    /// Adds the cost of a summary, which does not count as a turn.
    pub(crate) fn add_summary(&mut self, usage: Usage) {
        let mut used = self.used();
        used.usage = used.usage.plus(usage);
        used.unpriced |= !usage.is_cost_known();
    }

    /// Returns a meter that shares the usage, for a subagent of this run.
    pub(crate) fn shared(&self) -> UsageMeter {
        UsageMeter { used: self.used.clone(), time: Duration::ZERO }
    }

    fn used(&self) -> MutexGuard<'_, Used> {
        base::sync::lock(&self.used)
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Limit::Turns(max) => {
                write!(f, "the limit of {} is reached", base::text::count(*max as usize, "turn"))
            }
            Limit::Tokens(max) => write!(f, "the limit of {max} tokens is reached"),
            Limit::Cost(max) => write!(f, "the limit of {max} US dollars is reached"),
            Limit::UnknownCost(max) => write!(
                f,
                "the cost of a reply is unknown, so the budget of {max} US dollars cannot be kept"
            ),
            Limit::Time(max) => write!(f, "the limit of {} s is reached", max.as_secs()),
            Limit::Repeats(n) => {
                write!(f, "the model made the same call {n} times and got the same result")
            }
        }
    }
}

/// Counts calls that return the same result as before. A new call or result is progress and resets
/// the count, so that an edit between two identical test runs is not a loop.
#[derive(Debug)]
pub(crate) struct LoopDetector {
    nudge_at: u32,
    stop_at: u32,
    seen: HashMap<u64, u32>,
}

/// The verdict on one result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoopVerdict {
    /// Continue.
    Fine,
    /// Tell the model that it repeats itself; this is the n-th time.
    Nudge(u32),
    /// Stop; this was the n-th time.
    Stop(u32),
}

impl LoopDetector {
    /// Creates a detector. It is stricter for small models, which repeat themselves more often and
    /// recover less.
    pub(crate) fn new(small: bool) -> LoopDetector {
        let (nudge_at, stop_at) = if small { (2, 4) } else { (3, 6) };
        LoopDetector { nudge_at, stop_at, seen: HashMap::new() }
    }

    /// Records one call and its result.
    pub(crate) fn watch(&mut self, call: &ToolCall, result: &ToolResult) -> LoopVerdict {
        let mut hasher = DefaultHasher::new();
        (&call.name, call.args.to_string(), &call.malformed, &result.text).hash(&mut hasher);
        let key = hasher.finish();
        if !self.seen.contains_key(&key) {
            self.seen.values_mut().for_each(|count| *count = 1);
        }
        let count = self.seen.entry(key).or_insert(0);
        *count += 1;
        match *count {
            n if n >= self.stop_at => LoopVerdict::Stop(n),
            n if n >= self.nudge_at => LoopVerdict::Nudge(n),
            _ => LoopVerdict::Fine,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn call(name: &str) -> ToolCall {
        ToolCall { id: "c".into(), name: name.into(), args: json!({}), malformed: None }
    }

    fn result(text: &str) -> ToolResult {
        let (call_id, name) = ("c".into(), "x".into());
        ToolResult {
            call_id,
            name,
            ok: true,
            text: text.into(),
            images: Vec::new(),
            not_run: false,
        }
    }

    #[test]
    fn the_first_reached_limit_is_returned() {
        let limits = UsageLimits { turns: Some(2), tokens: Some(100), ..UsageLimits::default() };
        let mut spent = UsageMeter::default();
        assert_eq!(limits.reached(&spent), None);
        spent.add(Usage { input: 60, output: 40, ..Usage::default() });
        assert_eq!(limits.reached(&spent), Some(Limit::Tokens(100)));
        spent.add(Usage::default());
        assert_eq!(limits.reached(&spent), Some(Limit::Turns(2)));
    }

    #[test]
    fn a_reply_of_unknown_cost_exhausts_the_budget() {
        let limits = UsageLimits { cost_usd: Some(2.0), ..UsageLimits::default() };
        let mut spent = UsageMeter::default();
        spent.add(Usage { input: 9, cost_usd: Some(0.5), ..Usage::default() });
        assert_eq!(limits.reached(&spent), None);
        spent.add(Usage { input: 9, ..Usage::default() });
        assert_eq!(limits.reached(&spent), Some(Limit::UnknownCost(2.0)));
        assert_eq!(UsageLimits::default().reached(&spent), None);
    }

    #[test]
    fn a_repeated_call_is_nudged_then_stopped() {
        let mut guard = LoopDetector::new(false);
        let verdicts: Vec<LoopVerdict> =
            (0..6).map(|_| guard.watch(&call("look"), &result("same"))).collect();
        use LoopVerdict::{Fine, Nudge, Stop};
        assert_eq!(verdicts, [Fine, Fine, Nudge(3), Nudge(4), Nudge(5), Stop(6)]);
    }

    #[test]
    fn identical_test_runs_between_different_edits_are_not_a_loop() {
        let mut guard = LoopDetector::new(true);
        for n in 0..20 {
            let edit = guard.watch(&call("edit"), &result(&format!("edit {n}")));
            assert_eq!(edit, LoopVerdict::Fine);
            let run = guard.watch(&call("test"), &result("still red"));
            assert!(!matches!(run, LoopVerdict::Stop(_)), "stopped at edit {n}");
        }
    }

    #[test]
    fn two_alternating_calls_are_a_loop() {
        let mut guard = LoopDetector::new(true);
        let stopped = (0..10).any(|_| {
            guard.watch(&call("a"), &result("1"));
            matches!(guard.watch(&call("b"), &result("2")), LoopVerdict::Stop(_))
        });
        assert!(stopped);
    }
}
