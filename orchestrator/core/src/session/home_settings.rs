//! The settings of home for a session at a place.

use std::collections::BTreeMap;

use base::config::filters::FilterSetting;
use base::config::network::NetworkPolicy;
use base::config::studio::{AgentRow, NotifySetting, SessionLimits, ShellLines, StudioConfig};
use serde::{Deserialize, Serialize};

/// The settings of home that apply to a session at a place. Everything else, such as the models and
/// their keys, is set at the place.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HomeSettings {
    /// Seconds between two copies of uncommitted work.
    pub keep_seconds: u64,
    setup: ShellLines,
    check_caches: ShellLines,
    check_network: Option<NetworkPolicy>,
    setup_network: Option<NetworkPolicy>,
    limits: SessionLimits,
    filters: BTreeMap<String, FilterSetting>,
    /// The entry of the agent, if home has one, without its environment.
    agent: Option<AgentRow>,
}

impl HomeSettings {
    /// Returns the settings for a session.
    pub(crate) fn of(settings: &StudioConfig, keep_seconds: u64, agent: &str) -> HomeSettings {
        let agent = settings.agents.get(agent).cloned();
        HomeSettings {
            keep_seconds,
            setup: settings.setup.clone(),
            check_caches: settings.check_caches.clone(),
            check_network: settings.check_network,
            setup_network: settings.setup_network,
            limits: settings.limits,
            filters: settings.filters.clone(),
            // It may contain secrets.
            agent: agent.map(|row| AgentRow { env: Vec::new(), ..row }),
        }
    }

    /// Applies them to the configuration of the place.
    pub(crate) fn apply(&self, settings: &mut StudioConfig, agent: &str) {
        settings.setup = self.setup.clone();
        settings.check_caches = self.check_caches.clone();
        settings.check_network = self.check_network;
        settings.setup_network = self.setup_network;
        settings.limits = self.limits;
        for (name, filter) in &self.filters {
            settings.filters.entry(name.clone()).or_insert_with(|| filter.clone());
        }
        settings.caches = Some(ShellLines::default());
        settings.notify = NotifySetting::default();
        settings.pool = Some(0);
        settings.checks_on = None;
        if let Some(row) = &self.agent {
            let env = settings.agents.get(agent).map(|own| own.env.clone()).unwrap_or_default();
            settings.agents.insert(agent.to_owned(), AgentRow { env, ..row.clone() });
        }
    }
}
