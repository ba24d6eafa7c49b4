//! Tests of agent.

mod acp;
mod cli;
mod modes;
mod provider_faults;
mod provider_support;
mod session;
mod stage;
mod turn;
