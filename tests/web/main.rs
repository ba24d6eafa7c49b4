//! `studio serve`: the server over raw HTTP, and its pages in a real browser.

mod accessibility;
mod actions;
mod api;
mod board;
mod browser;
mod conflicts;
#[allow(dead_code, reason = "the scene of the command tests, of which these use a part")]
#[path = "../studio/fixtures.rs"]
mod fixtures;
mod hostile;
mod looks;
mod plan;
mod queue;
mod review;
mod server;
mod session;
