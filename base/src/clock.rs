//! The current time, passed as a value so that tests can fix it.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::fault;
use crate::test_hooks::TestHook;

/// A source of the current time.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    fixed: Option<Timestamp>,
}

impl Clock {
    /// Returns the system's clock, or the time that a test set.
    pub fn from_env() -> Self {
        Self { fixed: TestHook::Now.value().and_then(|text| text.parse().ok()) }
    }

    /// Creates a clock that always returns the same time.
    pub fn fixed(time: Timestamp) -> Self {
        Self { fixed: Some(time) }
    }

    /// Returns the current time.
    pub fn now(&self) -> Timestamp {
        let time = self.fixed.unwrap_or_else(Timestamp::now);
        match fault::clock_offset() {
            0 => time,
            seconds => time.checked_add(jiff::SignedDuration::from_secs(seconds)).unwrap_or(time),
        }
    }

    /// Returns today's date in the user's time zone, as `2026-01-02 (Friday)`.
    pub fn day(&self) -> String {
        self.now().to_zoned(self.zone()).strftime("%Y-%m-%d (%A)").to_string()
    }

    /// Returns the user's time zone; UTC if the time is fixed.
    pub fn zone(&self) -> TimeZone {
        if self.fixed.is_some() { TimeZone::UTC } else { TimeZone::system() }
    }

    /// Returns a time in the user's time zone, as short as it is clear: `17:42` today, `Mon 17:42`
    /// within a week, `2026-01-12 17:42` otherwise.
    pub fn local_time(&self, time: Timestamp) -> String {
        let (now, time) = (self.now().to_zoned(self.zone()), time.to_zoned(self.zone()));
        let days = now.date().until(time.date()).map_or(i32::MAX, |span| span.get_days());
        let format = match days {
            0 => "%H:%M",
            1..=6 => "%a %H:%M",
            _ => "%Y-%m-%d %H:%M",
        };
        time.strftime(format).to_string()
    }

    /// Returns the current time as RFC 3339 in UTC with milliseconds.
    pub fn stamp(&self) -> String {
        format!("{:.3}", self.now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_local_time_is_as_short_as_it_is_clear() {
        let clock = Clock::fixed("2026-01-02T10:00:00Z".parse().unwrap());
        let local = |time: &str| clock.local_time(time.parse().unwrap());
        assert_eq!(local("2026-01-02T17:42:30Z"), "17:42");
        assert_eq!(local("2026-01-03T05:00:00Z"), "Sat 05:00");
        assert_eq!(local("2026-01-20T05:00:00Z"), "2026-01-20 05:00");
        assert_eq!(local("2026-01-01T05:00:00Z"), "2026-01-01 05:00");
    }
}
