//! The account of a session's agent: reports its rate limits to the shared state, and learns of
//! those that other sessions reported.

use std::time::Duration;

use base::clock::Clock;
use base::event::EventKind;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tokio::time::Instant;

use crate::rate_limit::{
    Account, AccountAccess, LimitNotice, RateLimit, RateLimitWatcher, RateLimits, scaled,
};
use crate::session::journal::TURN_CANCELLED;
use crate::supervisor::step::Input;

/// A limit that ends earlier than this is left to the agent, which asks again by itself: to cancel
/// its turn would cost more.
const PARK_FROM: Duration = Duration::from_secs(30);
/// The wait after the end of a limit, since clocks differ.
const MARGIN: Duration = Duration::from_millis(20);

/// Watches the account of one session.
pub(crate) struct AccountWatch {
    limits: RateLimits,
    account: Account,
    session: String,
    clock: Clock,
    watcher: RateLimitWatcher,
    /// When the limit, or the wait for another session's request, ends.
    recheck_at: Option<Instant>,
    /// Whether an answer of the service ends the recorded limit.
    awaits_answer: bool,
}

impl AccountWatch {
    /// Starts watching. Call it within a runtime.
    pub(crate) fn start(account: Account, session: &str, clock: Clock) -> AccountWatch {
        let limits = RateLimits::of_user();
        let watcher = RateLimitWatcher::start(limits.directory());
        let session = session.to_owned();
        let (recheck_at, awaits_answer) = (None, false);
        AccountWatch { limits, account, session, clock, watcher, recheck_at, awaits_answer }
    }

    /// Returns when a limit may have begun or ended.
    pub(crate) async fn changed(&mut self) {
        let timer = async {
            match self.recheck_at {
                Some(time) => tokio::time::sleep_until(time).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.watcher.changed() => {}
            () = timer => self.recheck_at = None,
        }
    }

    /// Returns what a change means for the session.
    pub(crate) fn check(&mut self, is_parked: bool) -> Option<Input> {
        if is_parked {
            return match self.check_before_prompt() {
                None => Some(Input::RateLimitEnded),
                limited => limited,
            };
        }
        let now = self.clock.now();
        let limit = self.limits.active(&self.account, now)?;
        self.is_long(&limit, now).then(|| self.park(&limit, limit.until))
    }

    /// Returns the limit that a prompt has to wait for.
    pub(crate) fn check_before_prompt(&mut self) -> Option<Input> {
        let limit = self.limits.get(&self.account)?;
        // Without the shared state the agent finds out by itself.
        let access = self.limits.access(&self.account, &self.session, self.clock.now()).ok()?;
        match access {
            AccountAccess::Open => {
                self.awaits_answer = true;
                None
            }
            AccountAccess::Wait(until) => Some(self.park(&limit, until)),
        }
    }

    /// Reports a limit of which an event tells, or its end.
    pub(crate) fn on_event(&mut self, event: &Value) -> Option<Input> {
        match serde_json::from_value(event.clone()).ok()? {
            EventKind::Retry { why, .. } => {
                let now = self.clock.now();
                let notice = LimitNotice::in_error(&why, &self.clock)?;
                let limit = self.report(&notice, now)?;
                self.awaits_answer = true;
                self.is_long(&limit, now).then(|| self.park(&limit, limit.until))
            }
            EventKind::Usage { usage } if usage.tokens() > 0 => {
                self.on_answer();
                None
            }
            EventKind::ToolStart { .. } => {
                self.on_answer();
                None
            }
            EventKind::Text { .. }
            | EventKind::Usage { .. }
            | EventKind::Start { .. }
            | EventKind::Turn { .. }
            | EventKind::Reasoning { .. }
            | EventKind::ToolOutput { .. }
            | EventKind::ToolEnd { .. }
            | EventKind::Context { .. }
            | EventKind::Todo { .. }
            | EventKind::Plan { .. }
            | EventKind::Thinned { .. }
            | EventKind::Compacted { .. }
            | EventKind::Notice { .. }
            | EventKind::Ask { .. }
            | EventKind::Error { .. }
            | EventKind::End { .. } => None,
        }
    }

    /// Reports the limit that ended a turn, if one did: its error tells of it, or the last message
    /// of the agent is a notice.
    pub(crate) fn on_turn_end(
        &mut self,
        error: Option<&str>,
        last_message: Option<&str>,
    ) -> Option<Input> {
        let now = self.clock.now();
        let in_message = || LimitNotice::in_message(last_message?, &self.clock);
        let notice = match error {
            Some(TURN_CANCELLED) => None,
            Some(error) => LimitNotice::in_error(error, &self.clock).or_else(in_message),
            None => in_message(),
        };
        match notice {
            Some(notice) => {
                let limit = self.report(&notice, now)?;
                self.park(&limit, limit.until);
                let (until, why) = (limit.until.to_string(), limit.reason);
                Some(Input::RateLimited { until, why, ended_turn: true })
            }
            None => {
                if error.is_none() {
                    self.on_answer();
                }
                None
            }
        }
    }

    /// The service answered: the limit has ended.
    fn on_answer(&mut self) {
        if std::mem::take(&mut self.awaits_answer) {
            let _ = self.limits.clear(&self.account);
        }
    }

    fn report(&self, notice: &LimitNotice, now: Timestamp) -> Option<RateLimit> {
        let reset = notice.reset.and_then(|reset| {
            let wait = Duration::try_from(reset.duration_since(now)).ok()?;
            now.checked_add(scaled(wait)).ok()
        });
        self.limits.report(&self.account, &LimitNotice { reset, ..notice.clone() }, now).ok()
    }

    fn is_long(&self, limit: &RateLimit, now: Timestamp) -> bool {
        limit.until.duration_since(now)
            >= SignedDuration::try_from(scaled(PARK_FROM)).unwrap_or(SignedDuration::MAX)
    }

    fn park(&mut self, limit: &RateLimit, wait_until: Timestamp) -> Input {
        let wait = wait_until.duration_since(self.clock.now());
        let wait = Duration::try_from(wait).unwrap_or(Duration::ZERO);
        self.recheck_at = Some(Instant::now() + wait + MARGIN);
        self.awaits_answer = false;
        let (until, why) = (limit.until.to_string(), limit.reason.clone());
        Input::RateLimited { until, why, ended_turn: false }
    }
}
