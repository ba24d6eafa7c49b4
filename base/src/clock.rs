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

    /// Returns the current time as RFC 3339 in UTC with milliseconds.
    pub fn stamp(&self) -> String {
        format!("{:.3}", self.now())
    }
}
