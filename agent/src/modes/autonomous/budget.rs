//! The limits of a whole run. Each part gets the remainder.

use std::time::Instant;

use base::event::Usage;

use agent_core::limits::{Limit, UsageLimits};

/// The budget of a run.
#[derive(Debug)]
pub(crate) struct RoundBudget {
    limits: UsageLimits,
    /// Earlier usage, which does not count.
    before: Usage,
    began: Instant,
}

impl RoundBudget {
    /// Creates a budget whose time starts now.
    pub(crate) fn new(limits: UsageLimits) -> RoundBudget {
        RoundBudget { limits, before: Usage::default(), began: Instant::now() }
    }

    /// Excludes this usage, which was spent before.
    pub(crate) fn leave_out(&mut self, spent: Usage) {
        self.before = spent;
    }

    /// Returns the limits that remain after this usage. The error is the limit that was reached.
    pub(crate) fn remaining(&self, spent: Usage) -> Result<UsageLimits, Limit> {
        let spent = beyond(spent, self.before);
        let UsageLimits { tokens, cost_usd, time, .. } = self.limits;
        let used = spent.tokens();
        if let Some(most) = tokens.filter(|most| used >= *most) {
            return Err(Limit::Tokens(most));
        }
        let paid = spent.cost_usd.unwrap_or(0.0);
        if let Some(most) = cost_usd.filter(|most| paid >= *most) {
            return Err(Limit::Cost(most));
        }
        if let Some(most) = cost_usd.filter(|_| !spent.is_cost_known()) {
            return Err(Limit::UnknownCost(most));
        }
        let took = self.began.elapsed();
        if let Some(most) = time.filter(|most| took >= *most) {
            return Err(Limit::Time(most));
        }
        Ok(UsageLimits {
            turns: None,
            tokens: tokens.map(|most| most - used),
            cost_usd: cost_usd.map(|most| most - paid),
            time: time.map(|most| most - took),
        })
    }
}

/// Returns the usage since an earlier point.
pub(crate) fn beyond(now: Usage, before: Usage) -> Usage {
    let cost = now.cost_usd.map(|usd| (usd - before.cost_usd.unwrap_or(0.0)).max(0.0));
    Usage {
        input: now.input.saturating_sub(before.input),
        output: now.output.saturating_sub(before.output),
        cache_read: now.cache_read.saturating_sub(before.cache_read),
        cache_write: now.cache_write.saturating_sub(before.cache_write),
        cost_usd: cost,
        cost_incomplete: now.cost_incomplete && before.is_cost_known(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_gets_the_remainder_of_the_budget() {
        let limits =
            UsageLimits { tokens: Some(100), cost_usd: Some(2.0), ..UsageLimits::default() };
        let spent = |tokens, usd| Usage { input: tokens, cost_usd: Some(usd), ..Usage::default() };
        let mut budget = RoundBudget::new(limits);
        let left = budget.remaining(spent(30, 0.5)).unwrap();
        assert_eq!((left.tokens, left.cost_usd), (Some(70), Some(1.5)));
        assert_eq!(budget.remaining(spent(100, 0.0)).unwrap_err(), Limit::Tokens(100));
        assert_eq!(budget.remaining(spent(0, 2.5)).unwrap_err(), Limit::Cost(2.0));
        budget.leave_out(spent(100, 2.5));
        assert_eq!(budget.remaining(spent(130, 3.0)).unwrap().tokens, Some(70));
    }
}
