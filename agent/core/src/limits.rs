//! Limits set by the user.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use base::event::Usage;

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
    pub(crate) fn reached(&self, meter: &UsageMeter) -> Option<Limit> {
        let Used { turns, usage, unpriced } = *meter.used();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_reached_limit_is_returned() {
        let limits = UsageLimits { turns: Some(2), tokens: Some(100), ..UsageLimits::default() };
        let mut meter = UsageMeter::default();
        assert_eq!(limits.reached(&meter), None);
        meter.add(Usage { input: 60, output: 40, ..Usage::default() });
        assert_eq!(limits.reached(&meter), Some(Limit::Tokens(100)));
        meter.add(Usage::default());
        assert_eq!(limits.reached(&meter), Some(Limit::Turns(2)));
    }

    #[test]
    fn a_reply_of_unknown_cost_exhausts_the_budget() {
        let limits = UsageLimits { cost_usd: Some(2.0), ..UsageLimits::default() };
        let mut meter = UsageMeter::default();
        meter.add(Usage { input: 9, cost_usd: Some(0.5), ..Usage::default() });
        assert_eq!(limits.reached(&meter), None);
        meter.add(Usage { input: 9, ..Usage::default() });
        assert_eq!(limits.reached(&meter), Some(Limit::UnknownCost(2.0)));
        assert_eq!(UsageLimits::default().reached(&meter), None);
    }
}
