//! The configuration as a list for display: every value with its origin, secrets as dots.

use toml::Value;

use crate::config::{LoadedConfig, ValueOrigin};
use crate::sandbox::environment::{holds_password, is_secret};
use crate::secret::MASK;

/// One value.
#[derive(Clone, Debug, PartialEq)]
pub struct ShownValue {
    /// The dotted key.
    pub key: String,
    /// The value as TOML; dots for a secret.
    pub value: String,
    /// The origin; `None` for a default.
    pub origin: Option<ValueOrigin>,
}

/// Returns every value that is set or has a default, ordered by key.
pub fn values(loaded: &LoadedConfig) -> Vec<ShownValue> {
    let mut entries = Vec::new();
    // A configuration that was read from TOML can be written as TOML.
    if let Ok(value) = Value::try_from(&loaded.config) {
        walk(String::new(), value, loaded, &mut entries);
    }
    entries.extend(environment_urls(loaded));
    entries.sort_by(|a, b| a.key.cmp(&b.key));
    entries
}

/// Returns the base URLs of the environment: for each entry without its own, or for the type as a
/// whole.
fn environment_urls(loaded: &LoadedConfig) -> Vec<ShownValue> {
    let providers = &loaded.config.providers;
    let references = providers.references();
    let mut entries = Vec::new();
    for (kind, base) in providers.environment.all() {
        let of_kind = |it: &&String| it.split('.').next() == Some(kind);
        let mut keys: Vec<String> = references
            .iter()
            .filter(of_kind)
            .map(|it| format!("providers.{it}.base_url"))
            .collect();
        keys.retain(|key| !loaded.origins.contains_key(key));
        if !references.iter().any(|it| of_kind(&it)) {
            keys.push(format!("providers.{kind}.base_url"));
        }
        let value = Value::String(base.url.to_owned()).to_string();
        let origin = base.variable.map(|name| ValueOrigin::Environment(name.to_owned()));
        let line = |key| ShownValue { key, value: value.clone(), origin: origin.clone() };
        entries.extend(keys.into_iter().map(line));
    }
    entries
}

fn walk(key: String, value: Value, loaded: &LoadedConfig, entries: &mut Vec<ShownValue>) {
    match value {
        Value::Table(table) => {
            for (name, value) in table {
                let key = if key.is_empty() { name } else { format!("{key}.{name}") };
                walk(key, value, loaded, entries);
            }
        }
        value => {
            let origin = loaded.origins.get(&key).cloned();
            let value = if is_environment(&key) { hide_values(value) } else { value };
            entries.push(ShownValue { key, value: value.to_string(), origin });
        }
    }
}

/// Returns whether a key holds variables of an agent, `NAME=VALUE`.
fn is_environment(key: &str) -> bool {
    key.starts_with("studio.agents.") && key.ends_with(".env")
}

/// Replaces the values of variables that are secrets, by their names or as addresses with a
/// password.
fn hide_values(value: Value) -> Value {
    let Value::Array(variables) = value else { return value };
    let hide = |variable: Value| match variable.as_str().and_then(|it| it.split_once('=')) {
        Some((name, text)) if is_secret(name) || holds_password(name, text) => {
            Value::String(format!("{name}={MASK}"))
        }
        Some(_) | None => variable,
    };
    Value::Array(variables.into_iter().map(hide).collect())
}
