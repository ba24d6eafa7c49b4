//! Detects agents that are stuck: without an event for a long time, or with the same call again and
//! again.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::time::Duration;

use base::event::EventKind;
use serde_json::Value;
use tokio::time::Instant;

/// How long a turn may be without an event, unless configured.
const DEFAULT_SECONDS: u64 = 600;
/// How much longer a tool call may run.
const CALL_FACTOR: u32 = 6;
/// The number of identical calls with identical results in a row.
const MAX_REPEATS: u32 = 10;

/// Watches the events of one agent.
pub(crate) struct StallDetector {
    /// `None` if it is switched off.
    timeout: Option<Duration>,
    last_event: Instant,
    /// The raw output, which grows before a message is complete.
    log: PathBuf,
    log_bytes: u64,
    /// Calls that are running: digests of their names and arguments, by id.
    open_calls: BTreeMap<String, (String, u64)>,
    last_call: Option<u64>,
    repeats: u32,
}

/// What an event says about a stall.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StallChange {
    /// The agent makes progress.
    Progress,
    /// It repeats the same call, as before.
    Unchanged,
    /// It repeats the same call, for this reason counted as stuck from now on.
    Began(String),
}

impl StallDetector {
    /// Creates a detector; 0 seconds switch it off.
    pub(crate) fn new(seconds: Option<u64>, log: PathBuf) -> StallDetector {
        let seconds = seconds.unwrap_or(DEFAULT_SECONDS);
        StallDetector {
            timeout: (seconds > 0).then(|| Duration::from_secs(seconds)),
            last_event: Instant::now(),
            log,
            log_bytes: 0,
            open_calls: BTreeMap::new(),
            last_call: None,
            repeats: 0,
        }
    }

    /// Starts a turn.
    pub(crate) fn restart(&mut self) {
        self.last_event = Instant::now();
        self.open_calls.clear();
        (self.last_call, self.repeats) = (None, 0);
    }

    /// Ends a wait for the user, which does not count.
    pub(crate) fn end_wait(&mut self) {
        self.last_event = Instant::now();
    }

    /// Returns when a turn without a further event counts as stuck.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        // A timeout that the clock cannot count to never ends.
        self.last_event.checked_add(self.current_timeout()?)
    }

    fn current_timeout(&self) -> Option<Duration> {
        let factor = if self.open_calls.is_empty() { 1 } else { CALL_FACTOR };
        Some(self.timeout?.saturating_mul(factor))
    }

    /// Returns why the agent counts as stuck at its deadline; `None` if its raw output has grown.
    pub(crate) fn check(&mut self) -> Option<String> {
        let bytes = std::fs::metadata(&self.log).map_or(0, |log| log.len());
        let seconds = self.current_timeout()?.as_secs();
        self.last_event = Instant::now();
        if std::mem::replace(&mut self.log_bytes, bytes) != bytes {
            return None;
        }
        let time = match seconds {
            0..120 => format!("{seconds} s"),
            _ => format!("{} minutes", seconds / 60),
        };
        Some(match self.open_calls.values().next() {
            Some((name, _)) => format!("`{name}` has run for {time} without output"),
            None => format!("no event for {time}"),
        })
    }

    /// Considers an event.
    pub(crate) fn on_event(&mut self, event: &Value) -> StallChange {
        self.last_event = Instant::now();
        let Ok(event) = serde_json::from_value::<EventKind>(event.clone()) else {
            return self.progress();
        };
        match event {
            EventKind::ToolStart { id, name, args } => {
                let digest = digest(&(&name, args.to_string()));
                self.open_calls.insert(id, (name, digest));
                self.progress()
            }
            EventKind::ToolEnd { id, ok, text, .. } => {
                let Some((name, call)) = self.open_calls.remove(&id) else {
                    return self.progress();
                };
                let call = digest(&(call, ok, text));
                if self.last_call.replace(call) != Some(call) {
                    self.repeats = 1;
                    return StallChange::Progress;
                }
                self.repeats = self.repeats.saturating_add(1);
                match self.repeats {
                    MAX_REPEATS => StallChange::Began(format!(
                        "`{name}` was called {MAX_REPEATS} times with the same arguments and result"
                    )),
                    _ => self.progress(),
                }
            }
            EventKind::Start { .. }
            | EventKind::Turn { .. }
            | EventKind::Text { .. }
            | EventKind::Reasoning { .. }
            | EventKind::ToolOutput { .. }
            | EventKind::Usage { .. }
            | EventKind::Context { .. }
            | EventKind::Todo { .. }
            | EventKind::Plan { .. }
            | EventKind::Retry { .. }
            | EventKind::Thinned { .. }
            | EventKind::Compacted { .. }
            | EventKind::Notice { .. }
            | EventKind::Ask { .. }
            | EventKind::Error { .. }
            | EventKind::End { .. } => self.progress(),
        }
    }

    /// Only another call ends a repetition.
    fn progress(&self) -> StallChange {
        match self.repeats >= MAX_REPEATS {
            true => StallChange::Unchanged,
            false => StallChange::Progress,
        }
    }
}

fn digest(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn detector() -> StallDetector {
        StallDetector::new(Some(1), PathBuf::from("/nonexistent"))
    }

    fn call(detector: &mut StallDetector, args: &str, text: &str) -> StallChange {
        let start = json!({"seq": 1, "time": "2026-01-02T10:00:00Z", "type": "tool_start",
            "id": "c", "name": "shell", "args": {"command": args}});
        detector.on_event(&start);
        let end = json!({"seq": 2, "time": "2026-01-02T10:00:00Z", "type": "tool_end",
            "id": "c", "name": "shell", "ok": true, "text": text, "ms": 1});
        detector.on_event(&end)
    }

    #[tokio::test(flavor = "current_thread")]
    async fn ten_identical_calls_are_a_stall_until_another_call() {
        let mut detector = detector();
        for _ in 1..MAX_REPEATS {
            assert_eq!(call(&mut detector, "make", "error"), StallChange::Progress);
        }
        let StallChange::Began(why) = call(&mut detector, "make", "error") else { panic!() };
        assert_eq!(why, "`shell` was called 10 times with the same arguments and result");
        assert_eq!(call(&mut detector, "make", "error"), StallChange::Unchanged);
        assert_eq!(call(&mut detector, "make", "another error"), StallChange::Progress);
        for _ in 0..30 {
            let text = format!("{:?}", Instant::now());
            assert_eq!(call(&mut detector, "make", &text), StallChange::Progress);
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn silence_counts_unless_the_output_grows_and_a_call_may_run_longer() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let mut detector = StallDetector::new(Some(60), log.clone());
        assert_eq!(detector.check().as_deref(), Some("no event for 60 s"));
        std::fs::write(&log, "{").unwrap();
        assert_eq!(detector.check(), None);
        let before = detector.deadline().unwrap();
        let start = json!({"seq": 1, "time": "2026-01-02T10:00:00Z", "type": "tool_start",
            "id": "c", "name": "shell", "args": {}});
        detector.on_event(&start);
        assert!(detector.deadline().unwrap() >= before + Duration::from_secs(299));
        let why = detector.check().unwrap();
        assert_eq!(why, "`shell` has run for 6 minutes without output");
        assert_eq!(StallDetector::new(Some(0), log.clone()).deadline(), None);
        assert_eq!(StallDetector::new(Some(u64::MAX), log).deadline(), None);
    }
}
