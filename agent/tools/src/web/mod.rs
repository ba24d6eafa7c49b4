//! Requests to the web that reach no private address unless the user allows it.

pub mod guarded_client;
