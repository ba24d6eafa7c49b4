//! Detection of models that repeat themselves.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use provider::message::{ToolCall, ToolResult};

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
    pub(crate) fn record(&mut self, call: &ToolCall, result: &ToolResult) -> LoopVerdict {
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
    fn a_repeated_call_is_nudged_then_stopped() {
        let mut guard = LoopDetector::new(false);
        let verdicts: Vec<LoopVerdict> =
            (0..6).map(|_| guard.record(&call("look"), &result("same"))).collect();
        use LoopVerdict::{Fine, Nudge, Stop};
        assert_eq!(verdicts, [Fine, Fine, Nudge(3), Nudge(4), Nudge(5), Stop(6)]);
    }

    #[test]
    fn identical_test_runs_between_different_edits_are_not_a_loop() {
        let mut guard = LoopDetector::new(true);
        for n in 0..20 {
            let edit = guard.record(&call("edit"), &result(&format!("edit {n}")));
            assert_eq!(edit, LoopVerdict::Fine);
            let run = guard.record(&call("test"), &result("still red"));
            assert!(!matches!(run, LoopVerdict::Stop(_)), "stopped at edit {n}");
        }
    }

    #[test]
    fn two_alternating_calls_are_a_loop() {
        let mut guard = LoopDetector::new(true);
        let stopped = (0..10).any(|_| {
            guard.record(&call("a"), &result("1"));
            matches!(guard.record(&call("b"), &result("2")), LoopVerdict::Stop(_))
        });
        assert!(stopped);
    }
}
