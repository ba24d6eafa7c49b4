//! The account of an agent: what a rate limit applies to.

use base::config::Config;
use base::config::api_key::KeySources;
use base::config::studio::AgentRow;
use sha2::{Digest, Sha256};

/// The account with which an agent asks its model service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// A digest of the agent, the service and the key, in hexadecimal digits. The key cannot be
    /// derived from it.
    id: String,
    /// The agent and its service, for people.
    label: String,
}

impl Account {
    /// Returns the account of an agent: its name, the provider and its URL for g3, and the
    /// variables that it gets, which contain keys and URLs.
    pub fn of(config: &Config, agent: &str, row: &AgentRow) -> Account {
        let mut digest = AccountDigest(Sha256::new());
        digest.add("agent", agent);
        let mut label = agent.to_owned();
        if row.proxies_configured_services() {
            let reference = config.providers.chosen();
            digest.add("provider", &reference);
            let services = config.hosted_services();
            if let Some(service) = services.iter().find(|it| it.key.provider == reference) {
                digest.add("url", service.base_url.as_deref().unwrap_or_default());
                digest.add_key(&service.key);
            }
            label = format!("{agent}, {reference}");
        }
        for variable in &row.env {
            match variable.split_once('=') {
                Some((name, value)) => digest.add(name, value),
                None => digest.add(variable, &std::env::var(variable).unwrap_or_default()),
            }
        }
        let digest = digest.0.finalize();
        Account { id: base::text::hex(&digest[..12]), label }
    }

    /// Returns the digest.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Returns the agent and its service.
    pub(crate) fn label(&self) -> &str {
        &self.label
    }
}

/// Collects what identifies an account.
struct AccountDigest(Sha256);

impl AccountDigest {
    fn add(&mut self, name: &str, value: &str) {
        for text in [name, value] {
            self.0.update((text.len() as u64).to_le_bytes());
            self.0.update(text.as_bytes());
        }
    }

    /// Adds a key; for a command that prints it, the command, which does not run.
    fn add_key(&mut self, key: &KeySources) {
        match (&key.configured, &key.command, key.variable) {
            (Some(secret), _, _) => self.add("key", secret.reveal()),
            (None, Some(command), _) => self.add("command", &command.argv().join("\0")),
            (None, None, Some(variable)) => {
                self.add("key", &std::env::var(variable).unwrap_or_default());
            }
            (None, None, None) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_differ_by_agent_service_and_key_and_do_not_contain_the_key() {
        let config = |key: &str, url: &str| {
            let text =
                format!("[providers.anthropic.main]\napi_key = \"{key}\"\nbase_url = \"{url}\"\n");
            toml::from_str::<Config>(&text).unwrap()
        };
        let g3 = AgentRow { proxy_keys: vec!["providers".into()], ..AgentRow::default() };
        let of = |key: &str, url: &str| Account::of(&config(key, url), "g3", &g3);
        let one = of("secret-one", "http://a");
        assert_eq!(one, of("secret-one", "http://a"));
        assert_eq!(one.label(), "g3, anthropic.main");
        assert_ne!(one.id(), of("secret-two", "http://a").id());
        assert_ne!(one.id(), of("secret-one", "http://b").id());
        assert!(!format!("{one:?}").contains("secret"), "{one:?}");
        let with = |agent: &str, env: &str| {
            let row = AgentRow { env: vec![env.to_owned()], ..AgentRow::default() };
            Account::of(&Config::default(), agent, &row)
        };
        assert_ne!(with("claude", "KEY=a"), with("claude", "KEY=b"));
        assert_ne!(with("claude", "KEY=a"), with("codex", "KEY=a"));
    }
}
