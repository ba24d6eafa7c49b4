//! The budget of a run as a whole: what its sessions have spent, and what is reserved for those that
//! are working. Everything follows from their journals.

use base::config::Config;
use base::id::Id;

use crate::session::record::{RunLimits, SessionRecord};
use crate::session::store::SessionStore;
use crate::session::summary::{JournalSummary, Phase};

/// The cost that is reserved for a session without a budget of its own, unless configured.
const EXPECTED_USD: f64 = 1.0;
/// Differences below this are rounding errors.
const EPSILON: f64 = 1e-9;

/// The account of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct RunLedger {
    /// What the sessions have spent. An ended session whose cost is unknown counts as expected.
    pub spent: f64,
    /// What the working sessions may spend beyond that.
    pub reserved: f64,
    /// The number of ended sessions whose cost is unknown.
    pub unknown: u32,
    /// The number of working sessions.
    pub active: u32,
}

/// Returns the cost that is reserved for a session without a budget of its own.
pub(crate) fn expected_usd(config: &Config) -> f64 {
    let configured = config.studio.limits.expected_cost_usd;
    configured.filter(|usd| usd.is_finite() && *usd > 0.0).unwrap_or(EXPECTED_USD)
}

impl RunLedger {
    /// Reads the account of a run, without one of its sessions.
    pub(crate) fn without(
        store: &SessionStore,
        run: &str,
        except: &Id,
        expected: f64,
    ) -> RunLedger {
        let mut ledger = RunLedger::default();
        for id in store.ids().unwrap_or_default() {
            let Ok(record) = store.load(&id) else { continue };
            if id == *except || record.run_mode.run.as_deref() != Some(run) {
                continue;
            }
            let is_locked = store.is_locked(&id);
            let Ok(summary) = store.summary(&id) else { continue };
            let is_active = is_locked && !matches!(summary.phase, Phase::Ended { .. });
            let budget = summary.limits.or(record.limits).usd;
            ledger.add(&summary, budget.unwrap_or(expected), is_active);
        }
        ledger
    }

    fn add(&mut self, summary: &JournalSummary, reservation: f64, is_active: bool) {
        let cost = spent(summary);
        self.active += u32::from(is_active);
        match (cost, is_active) {
            (Some(usd), true) => {
                self.spent += usd;
                self.reserved += (reservation - usd).max(0.0);
            }
            (None, true) => self.reserved += reservation,
            (Some(usd), false) => self.spent += usd,
            (None, false) => {
                self.spent += reservation;
                self.unknown += 1;
            }
        }
    }
}

/// Returns the cost of a session so far; `None` if it worked and did not report it.
fn spent(summary: &JournalSummary) -> Option<f64> {
    match &summary.usage {
        Some(usage) => usage.cost_usd.filter(|_| usage.is_cost_known()),
        None => (summary.turns == 0).then_some(0.0),
    }
}

/// Why a session of a run does not start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BudgetShortage {
    /// The reason, as a clause.
    pub text: String,
    /// Whether sessions are working whose reservations may become free.
    pub can_change: bool,
}

/// Returns why the budget of its run does not allow a session to start.
pub(crate) fn shortage(
    store: &SessionStore,
    config: &Config,
    record: &SessionRecord,
    limits: &RunLimits,
    summary: &JournalSummary,
) -> Option<BudgetShortage> {
    let (total, run) = limits.total_usd.zip(record.run_mode.run.as_deref())?;
    let expected = expected_usd(config);
    let ledger = RunLedger::without(store, run, &record.id, expected);
    let own = spent(summary).unwrap_or(expected);
    let needed = (limits.usd.unwrap_or(expected) - own).max(0.0);
    let left = total - ledger.spent - ledger.reserved - own;
    if left + EPSILON >= needed && left > EPSILON {
        return None;
    }
    let unknown = match ledger.unknown {
        0 => String::new(),
        n => format!(
            "; the cost of {} is unknown and counts as ${expected:.2} each",
            base::text::count(n, "session")
        ),
    };
    let text = format!(
        "${:.2} of the total budget of ${total:.2} is left, and it needs ${needed:.2}{unknown}",
        left.max(0.0)
    );
    Some(BudgetShortage { text, can_change: ledger.active > 0 })
}

/// Returns whether a working session and the others of its run have used up the budget of the run.
pub(crate) fn used_up(
    store: &SessionStore,
    record: &SessionRecord,
    limits: &RunLimits,
    summary: &JournalSummary,
    expected: f64,
) -> Option<f64> {
    let (total, run) = limits.total_usd.zip(record.run_mode.run.as_deref())?;
    let ledger = RunLedger::without(store, run, &record.id, expected);
    let own = summary.usage.and_then(|usage| usage.cost_usd).unwrap_or(0.0);
    (ledger.spent + own + EPSILON >= total).then_some(total)
}

#[cfg(test)]
mod tests {
    use base::event::Usage;

    use super::*;

    fn summary(usage: Option<Usage>, turns: u32) -> JournalSummary {
        JournalSummary { usage, turns, ..JournalSummary::default() }
    }

    fn cost(usd: f64) -> Option<Usage> {
        Some(Usage { input: 1, cost_usd: Some(usd), ..Usage::default() })
    }

    #[test]
    fn reservations_become_real_costs() {
        let mut ledger = RunLedger::default();
        ledger.add(&summary(None, 0), 2.0, true);
        assert_eq!((ledger.spent, ledger.reserved, ledger.active), (0.0, 2.0, 1));
        ledger = RunLedger::default();
        ledger.add(&summary(cost(0.5), 1), 2.0, true);
        assert_eq!((ledger.spent, ledger.reserved), (0.5, 1.5));
        ledger = RunLedger::default();
        ledger.add(&summary(cost(3.0), 1), 2.0, true);
        assert_eq!((ledger.spent, ledger.reserved), (3.0, 0.0), "it overran its reservation");
        ledger = RunLedger::default();
        ledger.add(&summary(cost(0.5), 1), 2.0, false);
        ledger.add(&summary(None, 0), 2.0, false);
        assert_eq!((ledger.spent, ledger.reserved, ledger.unknown), (0.5, 0.0, 0));
        ledger.add(&summary(None, 1), 2.0, false);
        assert_eq!((ledger.spent, ledger.unknown), (2.5, 1), "an unknown cost counts as expected");
    }
}
