//! The network policy of a sandbox.

use serde::{Deserialize, Serialize};

/// Which hosts the processes in a sandbox can reach. The order is from the widest policy to the
/// narrowest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum NetworkPolicy {
    /// All hosts, and the services of this machine.
    On,
    /// The hosts of the allow list, through studio's proxy.
    AllowList,
    /// No host.
    Off,
}

impl NetworkPolicy {
    /// The names of all policies, from the widest to the narrowest.
    pub const NAMES: &[&str] = &["on", "allow-list", "off"];

    /// Returns the policy with this name.
    pub fn parse(name: &str) -> Option<NetworkPolicy> {
        [NetworkPolicy::On, NetworkPolicy::AllowList, NetworkPolicy::Off]
            .into_iter()
            .find(|policy| policy.name() == name)
    }

    /// Returns its name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            NetworkPolicy::On => "on",
            NetworkPolicy::AllowList => "allow-list",
            NetworkPolicy::Off => "off",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_has_one_name_and_they_are_ordered() {
        let parsed: Vec<_> =
            NetworkPolicy::NAMES.iter().map(|name| NetworkPolicy::parse(name).unwrap()).collect();
        assert!(parsed.is_sorted());
        for (policy, name) in parsed.iter().zip(NetworkPolicy::NAMES) {
            assert_eq!(policy.name(), *name);
            assert_eq!(serde_json::to_value(policy).unwrap(), *name);
        }
        assert_eq!(NetworkPolicy::parse("On"), None);
    }
}
