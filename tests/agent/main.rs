//! Tests of agent.

mod acp;
mod cli;
mod modes;
mod session;
mod stage;
mod turn;
