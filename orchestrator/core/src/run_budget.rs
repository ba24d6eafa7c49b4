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

/// The sessions of all runs, read once for many questions.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunSessions(Vec<RunSession>);

/// What a session of a run has spent, and may spend.
#[derive(Clone, Debug)]
struct RunSession {
    id: Id,
    run: String,
    cost: Option<f64>,
    reservation: f64,
    is_active: bool,
}

impl RunSessions {
    /// Reads the sessions.
    pub(crate) fn read(store: &SessionStore, expected: f64) -> RunSessions {
        let read = |id: Id| -> Option<RunSession> {
            let record = store.load(&id).ok()?;
            let run = record.run_mode.run?;
            let is_locked = store.is_locked(&id);
            let summary = store.summary(&id).ok()?;
            let is_active = is_locked && !matches!(summary.phase, Phase::Ended { .. });
            let reservation = summary.limits.or(record.limits).usd.unwrap_or(expected);
            Some(RunSession { id, run, cost: spent(&summary), reservation, is_active })
        };
        RunSessions(store.ids().unwrap_or_default().into_iter().filter_map(read).collect())
    }

    /// Counts a session that was started.
    pub(crate) fn start(&mut self, id: &Id) {
        if let Some(session) = self.0.iter_mut().find(|session| session.id == *id) {
            session.is_active = true;
        }
    }

    /// Returns the account of a run, without one of its sessions.
    fn ledger(&self, run: &str, except: &Id) -> RunLedger {
        let mut ledger = RunLedger::default();
        for session in self.0.iter().filter(|session| session.run == run && session.id != *except) {
            ledger.add(session.cost, session.reservation, session.is_active);
        }
        ledger
    }
}

impl RunLedger {
    fn add(&mut self, cost: Option<f64>, reservation: f64, is_active: bool) {
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
    sessions: &RunSessions,
    config: &Config,
    record: &SessionRecord,
    limits: &RunLimits,
    summary: &JournalSummary,
) -> Option<BudgetShortage> {
    let (total, run) = limits.total_usd.zip(record.run_mode.run.as_deref())?;
    let expected = expected_usd(config);
    let ledger = sessions.ledger(run, &record.id);
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
    let ledger = RunSessions::read(store, expected).ledger(run, &record.id);
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
        ledger.add(spent(&summary(None, 0)), 2.0, true);
        assert_eq!((ledger.spent, ledger.reserved, ledger.active), (0.0, 2.0, 1));
        ledger = RunLedger::default();
        ledger.add(spent(&summary(cost(0.5), 1)), 2.0, true);
        assert_eq!((ledger.spent, ledger.reserved), (0.5, 1.5));
        ledger = RunLedger::default();
        ledger.add(spent(&summary(cost(3.0), 1)), 2.0, true);
        assert_eq!((ledger.spent, ledger.reserved), (3.0, 0.0), "it overran its reservation");
        ledger = RunLedger::default();
        ledger.add(spent(&summary(cost(0.5), 1)), 2.0, false);
        ledger.add(spent(&summary(None, 0)), 2.0, false);
        assert_eq!((ledger.spent, ledger.reserved, ledger.unknown), (0.5, 0.0, 0));
        ledger.add(spent(&summary(None, 1)), 2.0, false);
        assert_eq!((ledger.spent, ledger.unknown), (2.5, 1), "an unknown cost counts as expected");
    }

    #[test]
    fn a_session_that_starts_reserves_its_budget_for_the_next_question() {
        let id = |text: &str| Id::parse(text).unwrap();
        let session = |name: &str, run: &str| RunSession {
            id: id(name),
            run: run.to_owned(),
            cost: Some(0.0),
            reservation: 2.0,
            is_active: false,
        };
        let sessions = ["one-aaaa", "two-bbbb"].map(|name| session(name, "r"));
        let other = session("other-cccc", "s");
        let mut sessions = RunSessions(sessions.into_iter().chain([other]).collect());
        sessions.start(&id("one-aaaa"));
        sessions.start(&id("other-cccc"));
        assert_eq!(sessions.ledger("r", &id("two-bbbb")).reserved, 2.0);
        assert_eq!(sessions.ledger("r", &id("one-aaaa")).active, 0, "its own is not counted");
    }
}
