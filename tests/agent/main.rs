//! Tests of agent.

mod acp;
mod cli;
mod modes;
mod provider_faults;
mod provider_open;
mod provider_run;
mod provider_support;
mod provider_wire;
mod session;
mod stage;
mod terminal;
mod turn;
