//! Rate limits of accounts: one shared state for all sessions of an account, in all repositories of
//! the user. The first session that reports a limit parks all of them.

mod account;
mod notice;
mod reset_time;
mod store;
mod watcher;

pub use account::Account;
pub use notice::LimitNotice;
pub(crate) use store::{AccountAccess, RateLimit, RateLimits};
pub(crate) use watcher::RateLimitWatcher;

use std::time::Duration;

use base::test_hooks::TestHook;

/// Returns the length of a second of waiting: one second, except in tests.
pub(crate) fn scaled(time: Duration) -> Duration {
    match TestHook::RetryMs.number() {
        Some(ms) => time.mul_f64(ms as f64 / 1000.0),
        None => time,
    }
}
