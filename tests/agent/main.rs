//! Tests of agent.
mod provider_faults;
mod provider_support;
