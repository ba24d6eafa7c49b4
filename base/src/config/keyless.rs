//! The configuration that studio passes to g3 in a sandbox: the user's without the keys of model
//! services, and the URLs under which studio's proxy adds these keys.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use crate::config::hosted_services::NO_KEY;
use crate::config::layers;
use crate::failure::{Failure, OrFail, Result};

/// Set by studio: the number of a descriptor from which g3 reads a [`KeylessConfig`] (JSON) in
/// place of the user's file.
pub const KEYLESS_CONFIG_VAR: &str = "STUDIO_CONFIG_FD";

/// A configuration without keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeylessConfig {
    /// The user's file, or the one given with `--config`, as TOML.
    pub file: String,
    /// Whether the repository's file is ignored, as with `--config`.
    pub ignores_repository: bool,
    /// Values that override those of all other sources, by the path of their key.
    pub overrides: Vec<(Vec<String>, String)>,
}

impl KeylessConfig {
    /// Reads a configuration file without its keys. A file that does not exist has no settings.
    pub fn from_file(file: &Path, ignores_repository: bool) -> Result<KeylessConfig> {
        let bytes = layers::read(file)?.unwrap_or_default();
        let cannot = || format!("cannot read {}", file.display());
        let text = String::from_utf8(bytes).or_fail(cannot)?;
        // The error's own text quotes the line, which may contain a key.
        let parsed = text.parse::<Table>();
        let mut table =
            parsed.map_err(|error| Failure::usage(cannot()).because(error.message().to_owned()))?;
        remove_keys(&mut table);
        let file = toml::to_string(&table).or_fail(cannot)?;
        Ok(KeylessConfig { file, ignores_repository, overrides: Vec::new() })
    }

    /// Returns the configuration that studio passed to this process; `None` if it passed none.
    pub fn inherited() -> Result<Option<KeylessConfig>> {
        static INHERITED: OnceLock<std::result::Result<Option<KeylessConfig>, String>> =
            OnceLock::new();
        let read = || {
            let Ok(number) = std::env::var(KEYLESS_CONFIG_VAR) else { return Ok(None) };
            let number = number.parse().map_err(|_| format!("invalid number `{number}`"))?;
            let fd = crate::process::inherited(number).map_err(|error| error.to_string())?;
            KeylessConfig::read(fd).map(Some)
        };
        match INHERITED.get_or_init(read) {
            Ok(config) => Ok(config.clone()),
            Err(error) => Err(Failure::failed("cannot read the configuration that studio passes")
                .because(format!("{KEYLESS_CONFIG_VAR}: {error}"))),
        }
    }

    fn read(fd: OwnedFd) -> std::result::Result<KeylessConfig, String> {
        let mut text = String::new();
        let mut file = File::from(fd).take(crate::files::MAX_READ_BYTES);
        file.read_to_string(&mut text).map_err(|error| error.to_string())?;
        serde_json::from_str(&text).map_err(|error| error.to_string())
    }
}

/// Returns whether a variable of the environment sets a key of the configuration that
/// [`KeylessConfig`] leaves out.
pub fn is_key_variable(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    let is_key = |name: &str| {
        ["__API_KEY", "__TOKEN", "__API_KEY_COMMAND"].iter().any(|key| name.ends_with(key))
    };
    name.starts_with("G3_PROVIDERS__") && is_key(&name)
        || name == "G3_TOOLS__CODESEARCH__API_KEY"
        || name.starts_with("G3_STUDIO__AGENTS__")
}

/// Removes the keys of model services and of the search service, commands that print them, and the
/// entries of studio's agents, whose variables may contain keys.
fn remove_keys(table: &mut Table) {
    if let Some(Value::Table(kinds)) = table.get_mut("providers") {
        let entries = kinds.iter_mut().filter_map(|(_, kind)| kind.as_table_mut());
        for (_, entry) in entries.flat_map(|kind| kind.iter_mut()) {
            let Some(entry) = entry.as_table_mut() else { continue };
            entry.retain(|name, value| match name {
                "api_key" | "token" => value.as_str() == Some(NO_KEY),
                "api_key_command" => false,
                _ => true,
            });
        }
    }
    let codesearch = table.get_mut("tools").and_then(|tools| tools.get_mut("codesearch"));
    if let Some(codesearch) = codesearch.and_then(Value::as_table_mut) {
        codesearch.remove("api_key");
    }
    if let Some(studio) = table.get_mut("studio").and_then(Value::as_table_mut) {
        studio.remove("agents");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_all_settings_except_keys() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("config.toml");
        let text = "[providers]\ndefault_provider = \"openai.a\"\n\
            [providers.openai.a]\nmodel = \"m\"\napi_key = \"canary\"\n\
            [providers.openai_compatible.b]\napi_key_command = \"echo canary\"\n\
            [providers.openai.c]\napi_key = \"none\"\n\
            [providers.databricks.d]\nhost = \"h\"\ntoken = \"canary\"\n\
            [tools.codesearch]\napi_key = \"canary\"\n\
            [studio]\nchecks = [\"make\"]\n[studio.agents.x]\nenv = [\"K=canary\"]\n\
            [mcp.s]\ncommand = [\"p\"]\n";
        std::fs::write(&file, text).unwrap();
        let copy = KeylessConfig::from_file(&file, false).unwrap();
        assert!(!copy.file.contains("canary"), "{}", copy.file);
        let table: Table = copy.file.parse().unwrap();
        let providers = &table["providers"];
        assert_eq!(providers["default_provider"].as_str(), Some("openai.a"));
        assert_eq!(providers["openai"]["a"]["model"].as_str(), Some("m"));
        assert_eq!(providers["openai"]["c"]["api_key"].as_str(), Some("none"));
        assert_eq!(providers["databricks"]["d"]["host"].as_str(), Some("h"));
        assert!(providers["openai_compatible"]["b"].is_table());
        assert!(table["studio"]["checks"].is_array() && table["mcp"]["s"].is_table());

        std::fs::write(&file, "[providers.openai.a]\napi_key = canary\n").unwrap();
        let failure = KeylessConfig::from_file(&file, false).unwrap_err();
        assert!(!failure.full_text().contains("canary"), "{}", failure.full_text());
        std::fs::remove_file(&file).unwrap();
        assert_eq!(KeylessConfig::from_file(&file, false).unwrap().file, "");
    }

    #[test]
    fn variables_with_keys_are_recognized() {
        for name in [
            "G3_PROVIDERS__OPENAI__A__API_KEY",
            "G3_PROVIDERS__OPENAI__A__API_KEY_COMMAND",
            "G3_PROVIDERS__DATABRICKS__D__TOKEN",
            "G3_TOOLS__CODESEARCH__API_KEY",
        ] {
            assert!(is_key_variable(name), "{name}");
        }
        for name in ["G3_PROVIDERS__OPENAI__A__MODEL", "G3_AGENT__MAX_TURNS", "G3_MCP__X__ENV"] {
            assert!(!is_key_variable(name), "{name}");
        }
    }
}
