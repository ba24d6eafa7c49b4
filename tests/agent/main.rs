//! Tests of agent.

#![allow(clippy::unwrap_used, reason = "a test that cannot unwrap has failed")]

mod accumulative;
mod acp;
mod acp_outside;
mod autonomous;
mod autonomous_resume;
mod cli;
mod commands;
mod context;
mod editor;
mod errors;
mod extending;
mod flags;
mod modes;
mod personas;
mod plan;
mod provider_anthropic;
mod provider_databricks;
mod provider_embedded;
mod provider_escalation;
mod provider_fallback;
mod provider_faults;
mod provider_login;
mod provider_matrix;
mod provider_open;
mod provider_request;
mod provider_run;
mod provider_settings;
mod provider_support;
mod provider_wire;
mod session;
mod shown;
mod stage;
mod terminal;
mod tools_edit;
mod tools_exec;
mod tools_files;
mod tools_search;
mod tools_support;
mod tools_table;
mod turn;
