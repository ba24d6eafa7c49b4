//! Tests of the configuration.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod layers;
mod models;
mod setting;
mod untrusted;
