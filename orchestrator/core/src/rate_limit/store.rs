//! The rate limits on disk: one file for each limited account, in the user's state directory, which
//! every sandbox closes. All programs change them under one lock.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base::files;
use base::lock::Lock;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::rate_limit::account::Account;
use crate::rate_limit::notice::LimitNotice;
use crate::rate_limit::scaled;

/// The pause after the first limit whose end is unknown; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(30);
/// The longest such pause.
const MAX_PAUSE: Duration = Duration::from_secs(30 * 60);
/// How long the other sessions of an account wait for the result of the first request after a
/// limit.
const PROBE_TIMEOUT: Duration = Duration::from_secs(120);
/// How long after its end a limit is forgotten.
const FORGET_AFTER: SignedDuration = SignedDuration::from_hours(24);

/// The rate limit of an account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RateLimit {
    /// The agent and its service, for people.
    pub account: String,
    /// When it ends.
    #[serde(with = "timestamp")]
    pub until: Timestamp,
    /// Whether the service said when.
    pub is_known: bool,
    /// The message of the agent, in one line.
    pub reason: String,
    /// The number of limits in a row, without an answer of the service between them.
    pub hits: u32,
    /// The session that tries first whether it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<Probe>,
}

/// A session that asks the service after a limit, while the others wait for the result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Probe {
    /// The session; ids of different repositories can be equal, which does no harm.
    session: String,
    /// When it began.
    #[serde(with = "timestamp")]
    at: Timestamp,
}

/// Whether a session may ask the service of its account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AccountAccess {
    /// It may.
    Open,
    /// It waits until this time, or until the limit changes.
    Wait(Timestamp),
}

/// Times as RFC 3339 in UTC.
mod timestamp {
    use jiff::Timestamp;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(time: &Timestamp, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(time)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Timestamp, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

/// The rate limits of all accounts.
#[derive(Clone, Debug)]
pub(crate) struct RateLimits {
    /// `None` without a state directory: then nothing is shared.
    directory: Option<PathBuf>,
}

impl RateLimits {
    /// Returns the rate limits of the user.
    pub(crate) fn of_user() -> RateLimits {
        let directory = base::user_dirs::state_dir("studio").map(|dir| dir.join("rate-limits"));
        RateLimits { directory: directory.ok() }
    }

    /// Returns the directory of the files.
    pub(crate) fn directory(&self) -> Option<&Path> {
        self.directory.as_deref()
    }

    /// Returns the limit of an account that has not been cleared; it may have ended.
    pub(crate) fn get(&self, account: &Account) -> Option<RateLimit> {
        let text = fs::read(self.path(account)?).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Returns the limit that an account has at this time.
    pub(crate) fn active(&self, account: &Account, now: Timestamp) -> Option<RateLimit> {
        self.get(account).filter(|limit| limit.until > now)
    }

    /// Records a limit that an agent reported, and returns the limit that applies.
    pub(crate) fn report(
        &self,
        account: &Account,
        notice: &LimitNotice,
        now: Timestamp,
    ) -> io::Result<RateLimit> {
        let mut result = None;
        self.update(account, |previous| {
            let limit = next_limit(account, notice, previous, now, random_factor());
            result = Some(limit.clone());
            Some(limit)
        })?;
        Ok(result.unwrap_or_else(|| next_limit(account, notice, None, now, 1.0)))
    }

    /// Lets a session ask now, before the limit of its account ends; the others wait for its
    /// result. Returns whether there is a limit.
    pub(crate) fn try_now(
        &self,
        account: &Account,
        session: &str,
        now: Timestamp,
    ) -> io::Result<bool> {
        let mut is_limited = false;
        self.update(account, |limit| {
            let limit = limit?;
            is_limited = true;
            let probe = Some(Probe { session: session.to_owned(), at: now });
            Some(RateLimit { until: limit.until.min(now), probe, ..limit })
        })?;
        Ok(is_limited)
    }

    /// Removes the limit of an account: its service answered.
    pub(crate) fn clear(&self, account: &Account) -> io::Result<()> {
        if self.path(account).is_some_and(|path| path.exists()) {
            self.update(account, |_| None)?;
        }
        Ok(())
    }

    /// Returns whether a session may ask now. After a limit, one session may, and the others wait
    /// until that has an answer.
    pub(crate) fn access(
        &self,
        account: &Account,
        session: &str,
        now: Timestamp,
    ) -> io::Result<AccountAccess> {
        if self.get(account).is_none() {
            return Ok(AccountAccess::Open);
        }
        let mut access = AccountAccess::Open;
        self.update(account, |limit| {
            let mut limit = limit?;
            access = match next_access(&limit, session, now) {
                NextAccess::Forget => return None,
                NextAccess::Wait(until) => AccountAccess::Wait(until),
                // Without a change, since changes wake all sessions of the account.
                NextAccess::Continue => AccountAccess::Open,
                NextAccess::Probe => {
                    limit.probe = Some(Probe { session: session.to_owned(), at: now });
                    AccountAccess::Open
                }
            };
            Some(limit)
        })?;
        Ok(access)
    }

    fn path(&self, account: &Account) -> Option<PathBuf> {
        Some(self.directory.as_ref()?.join(format!("{}.json", account.id())))
    }

    /// Replaces the limit of an account under the lock.
    fn update(
        &self,
        account: &Account,
        change: impl FnOnce(Option<RateLimit>) -> Option<RateLimit>,
    ) -> io::Result<()> {
        let (Some(directory), Some(path)) = (&self.directory, self.path(account)) else {
            return Ok(());
        };
        let mut builder = fs::DirBuilder::new();
        std::os::unix::fs::DirBuilderExt::mode(builder.recursive(true), 0o700).create(directory)?;
        let _lock = Lock::take(&directory.join("lock"))?;
        let previous = self.get(account);
        let next = change(previous.clone());
        if next == previous {
            return Ok(());
        }
        files::step("rate_limit.changed");
        match next {
            Some(limit) => files::replace_json(&path, &limit),
            None => match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                Ok(()) | Err(_) => Ok(()),
            },
        }
    }
}

/// The decision about a session that wants to ask.
enum NextAccess {
    /// The limit ended long ago.
    Forget,
    Wait(Timestamp),
    /// It is the one that asks already.
    Continue,
    Probe,
}

fn next_access(limit: &RateLimit, session: &str, now: Timestamp) -> NextAccess {
    if limit.until > now {
        return NextAccess::Wait(limit.until);
    }
    if now.duration_since(limit.until) > FORGET_AFTER {
        return NextAccess::Forget;
    }
    let timeout = SignedDuration::try_from(scaled(PROBE_TIMEOUT)).unwrap_or(SignedDuration::MAX);
    let is_recent = |probe: &Probe| now.duration_since(probe.at) < timeout;
    match &limit.probe {
        Some(probe) if is_recent(probe) && probe.session == session => NextAccess::Continue,
        Some(probe) if is_recent(probe) => {
            NextAccess::Wait(probe.at.saturating_add(timeout).unwrap_or(now))
        }
        Some(_) | None => NextAccess::Probe,
    }
}

/// Returns the limit after a report.
fn next_limit(
    account: &Account,
    notice: &LimitNotice,
    previous: Option<RateLimit>,
    now: Timestamp,
    random: f64,
) -> RateLimit {
    let is_same = previous.as_ref().is_some_and(|limit| limit.until > now);
    let hits = previous.as_ref().map_or(0, |limit| limit.hits);
    // Several sessions report the same limit.
    let hits = if is_same { hits } else { hits.saturating_add(1) };
    let known = notice.reset.filter(|reset| *reset > now);
    let until = match (known, previous.filter(|_| is_same)) {
        (Some(known), Some(previous)) if previous.is_known => known.max(previous.until),
        (Some(known), _) => known,
        (None, Some(previous)) => {
            return RateLimit { hits, probe: None, ..previous };
        }
        (None, None) => {
            let factor = 1u32 << hits.saturating_sub(1).min(16);
            let pause = FIRST_PAUSE.saturating_mul(factor).min(MAX_PAUSE);
            let pause = scaled(pause.mul_f64(0.8 + 0.4 * random));
            now.checked_add(pause).unwrap_or(now)
        }
    };
    RateLimit {
        account: account.label().to_owned(),
        until,
        is_known: known.is_some(),
        reason: notice.reason.clone(),
        hits,
        probe: None,
    }
}

/// Returns a random number from 0 to 1, so that several users of a service do not ask at the same
/// time.
fn random_factor() -> f64 {
    base::random::bytes::<1>().map_or(0.5, |[byte]| f64::from(byte) / 255.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::config::Config;
    use base::config::studio::AgentRow;

    fn time(text: &str) -> Timestamp {
        format!("2026-01-02T{text}Z").parse().unwrap()
    }

    fn account(agent: &str) -> Account {
        Account::of(&Config::default(), agent, &AgentRow::default())
    }

    fn notice(reset: Option<&str>) -> LimitNotice {
        LimitNotice { reset: reset.map(time), reason: "usage limit reached".into() }
    }

    fn store() -> (tempfile::TempDir, RateLimits) {
        let dir = tempfile::tempdir().unwrap();
        let directory = Some(dir.path().join("state"));
        (dir, RateLimits { directory })
    }

    #[test]
    fn a_limit_applies_to_its_account_until_its_end() {
        let (_dir, limits) = store();
        let (claude, codex) = (account("claude"), account("codex"));
        let now = time("10:00:00");
        let limit = limits.report(&claude, &notice(Some("17:42:00")), now).unwrap();
        assert_eq!((limit.until, limit.is_known, limit.hits), (time("17:42:00"), true, 1));
        assert_eq!(limits.active(&claude, time("17:41:59")), Some(limit));
        assert_eq!(limits.active(&claude, time("17:42:00")), None);
        assert_eq!(limits.active(&codex, now), None);
        let wait = limits.access(&claude, "a", now).unwrap();
        assert_eq!(wait, AccountAccess::Wait(time("17:42:00")));
        assert_eq!(limits.access(&codex, "a", now).unwrap(), AccountAccess::Open);
    }

    #[test]
    fn one_session_asks_after_the_end_and_the_others_wait_for_its_result() {
        let (_dir, limits) = store();
        let account = account("claude");
        limits.report(&account, &notice(Some("10:01:00")), time("10:00:00")).unwrap();
        let access = |session: &str, at: &str| limits.access(&account, session, time(at)).unwrap();
        assert_eq!(access("a", "10:01:00"), AccountAccess::Open);
        assert_eq!(access("b", "10:01:01"), AccountAccess::Wait(time("10:03:00")));
        assert_eq!(access("a", "10:01:02"), AccountAccess::Open, "it is the one that asks");
        assert_eq!(access("b", "10:03:00"), AccountAccess::Open, "the first one gave no result");
        limits.clear(&account).unwrap();
        assert_eq!(access("c", "10:03:01"), AccountAccess::Open);
        assert_eq!(limits.get(&account), None);
    }

    #[test]
    fn a_session_can_try_before_the_end_and_a_further_limit_starts_at_that_time() {
        let (_dir, limits) = store();
        let account = account("claude");
        assert!(!limits.try_now(&account, "a", time("10:00:00")).unwrap());
        limits.report(&account, &notice(Some("17:00:00")), time("10:00:00")).unwrap();
        assert!(limits.try_now(&account, "b", time("10:01:00")).unwrap());
        let access = |session: &str| limits.access(&account, session, time("10:01:01")).unwrap();
        assert_eq!(access("a"), AccountAccess::Wait(time("10:03:00")));
        assert_eq!(access("b"), AccountAccess::Open);
        let again = limits.report(&account, &notice(Some("17:00:00")), time("10:01:02")).unwrap();
        assert_eq!((again.until, again.hits, again.probe), (time("17:00:00"), 2, None));
    }

    #[test]
    fn pauses_double_while_the_end_is_unknown_and_several_reports_count_once() {
        let account = account("claude");
        let next = |previous: Option<RateLimit>, at: &str| {
            next_limit(&account, &notice(None), previous, time(at), 0.5)
        };
        let first = next(None, "10:00:00");
        assert_eq!((first.until, first.hits), (time("10:00:30"), 1));
        let same = next(Some(first.clone()), "10:00:01");
        assert_eq!((same.until, same.hits), (time("10:00:30"), 1));
        let second = next(Some(first), "10:00:30");
        assert_eq!((second.until, second.hits), (time("10:01:30"), 2));
        let late = next(Some(RateLimit { hits: 30, ..second.clone() }), "12:00:00");
        assert_eq!(late.until, time("12:30:00"));
        let known =
            next_limit(&account, &notice(Some("10:01:10")), Some(second), time("10:01:00"), 0.5);
        assert_eq!((known.until, known.is_known), (time("10:01:10"), true));
    }

    #[test]
    fn an_unreadable_file_is_no_limit_and_an_old_limit_is_forgotten() {
        let (_dir, limits) = store();
        let account = account("claude");
        limits.report(&account, &notice(Some("10:01:00")), time("10:00:00")).unwrap();
        let later: Timestamp = "2026-01-04T10:00:00Z".parse().unwrap();
        assert_eq!(limits.access(&account, "a", later).unwrap(), AccountAccess::Open);
        assert_eq!(limits.get(&account), None);
        fs::write(limits.path(&account).unwrap(), "{").unwrap();
        assert_eq!(limits.access(&account, "a", later).unwrap(), AccountAccess::Open);
    }
}
