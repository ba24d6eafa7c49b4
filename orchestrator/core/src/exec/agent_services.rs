//! The model services of codex and opencode whose keys are in the environment. Both take a base URL
//! from their own configuration only, so that the proxy's is passed by arguments or as additional
//! configuration.

use std::path::Path;

use base::config::hosted_services::{ANTHROPIC_URL, OPENAI_URL};
use base::secret::Secret;
use network::KeyHeader;
use serde_json::{Value, json};
use toml::Table;

use crate::exec::model_services::{KeyValue, ServiceKey, UrlSetting, variable};

/// The name in `proxy_keys` of the service that codex uses.
pub(crate) const CODEX: &str = "codex";
/// The name in `proxy_keys` of the services that opencode uses.
pub(crate) const OPENCODE: &str = "opencode";
/// The variable that opencode reads as additional configuration.
pub(crate) const OPENCODE_VARIABLE: &str = "OPENCODE_CONFIG_CONTENT";
/// The configuration of opencode, below the home directory.
const OPENCODE_CONFIG: &str = ".config/opencode/opencode.json";
/// The logins of opencode, below the home directory.
const OPENCODE_LOGINS: &str = ".local/share/opencode/auth.json";
/// The providers whose keys opencode reads from the environment.
const OPENCODE_KEYS: [(&str, &str); 2] =
    [("anthropic", "ANTHROPIC_API_KEY"), ("openai", "OPENAI_API_KEY")];
/// The variable with the key of codex's own provider.
const OPENAI_VARIABLE: &str = "OPENAI_API_KEY";
/// The name of the provider that codex gets in place of its own one.
const OWN_PROVIDER: &str = "studio";
/// The maximum size of a configuration file of an agent, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// Returns the service that codex uses, if its key is in the environment: the provider of codex's
/// configuration, else OpenAI's unless codex has a login.
pub(crate) fn codex(home: &Path, environment: &[(String, String)]) -> Option<ServiceKey> {
    let directory = home.join(".codex");
    let table: Table = match base::files::read_bounded(&directory.join("config.toml"), MAX_BYTES) {
        Ok(bytes) => String::from_utf8(bytes).ok()?.parse().ok()?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Table::new(),
        Err(_) => return None,
    };
    let text = |table: &Table, name: &str| Some(table.get(name)?.as_str()?.to_owned());
    let sections = |name: &str| table.get(name).and_then(toml::Value::as_table);
    let profile = text(&table, "profile");
    let profile = profile.and_then(|name| sections("profiles")?.get(&name)?.as_table());
    let provider = profile.and_then(|profile| text(profile, "model_provider"));
    let provider = provider.or_else(|| text(&table, "model_provider"));
    let provider = provider.filter(|name| name != "openai");
    let is_configured = provider.is_some();
    let (key_variable, base_url, name, mut entry) = match provider {
        Some(name) => {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
            let entry = sections("model_providers")?.get(&name)?.as_table()?;
            let name = Some(name).filter(|name| name.chars().all(is_plain))?;
            (
                text(entry, "env_key")?,
                text(entry, "base_url")?,
                name,
                serde_json::to_value(entry).ok()?,
            )
        }
        None if directory.join("auth.json").exists() => return None,
        None => {
            let url = text(&table, "openai_base_url").unwrap_or_else(|| OPENAI_URL.to_owned());
            let entry =
                json!({"name": "OpenAI", "env_key": OPENAI_VARIABLE, "wire_api": "responses"});
            (OPENAI_VARIABLE.to_owned(), url, OWN_PROVIDER.to_owned(), entry)
        }
    };
    entry["base_url"] = Value::from("{url}");
    let arguments = match is_configured {
        true => vec![format!("model_providers.{name}.base_url=\"{{url}}\"")],
        false => {
            let provider = "model_providers.studio={name=\"OpenAI\", base_url=\"{url}\", \
                            env_key=\"OPENAI_API_KEY\", wire_api=\"responses\"}";
            vec![format!("model_provider=\"{OWN_PROVIDER}\""), provider.to_owned()]
        }
    };
    let config = json!({"model_provider": name, "model_providers": {(&name): entry}});
    Some(ServiceKey {
        name: CODEX.to_owned(),
        header: KeyHeader::Bearer,
        base_url,
        key: KeyValue::Known(Secret::new(variable(environment, &key_variable)?)),
        setting: UrlSetting::Codex {
            key_variable,
            arguments: arguments.into_iter().flat_map(|it| ["-c".to_owned(), it]).collect(),
            config: config.to_string(),
        },
    })
}

/// Returns the services of opencode whose keys are in the environment: providers of its
/// configuration with `apiKey = "{env:NAME}"`, and Anthropic and OpenAI unless it has a login there.
pub(crate) fn opencode(home: &Path, environment: &[(String, String)]) -> Vec<ServiceKey> {
    let (config, logins) = (read_json(home, OPENCODE_CONFIG), read_json(home, OPENCODE_LOGINS));
    let [(anthropic, anthropic_key), (openai, openai_key)] = OPENCODE_KEYS;
    let built_in = [
        (anthropic, anthropic_key, KeyHeader::XApiKey, format!("{ANTHROPIC_URL}/v1")),
        (openai, openai_key, KeyHeader::Bearer, OPENAI_URL.to_owned()),
    ];
    let configured = config["provider"].as_object().into_iter().flatten();
    let configured = configured.filter_map(|(id, provider)| {
        let options = &provider["options"];
        let name = options["apiKey"].as_str()?.strip_prefix("{env:")?.strip_suffix('}')?;
        let header = match provider["npm"].as_str() {
            Some("@ai-sdk/anthropic") => KeyHeader::XApiKey,
            Some("@ai-sdk/google") => KeyHeader::XGoogApiKey,
            Some(_) | None => KeyHeader::Bearer,
        };
        let url = options["baseURL"].as_str()?;
        Some((id.as_str(), name, header, url.to_owned()))
    });
    let has_own_settings = |id: &str| {
        let options = &config["provider"][id]["options"];
        !(options["apiKey"].is_null() && options["baseURL"].is_null() && logins[id].is_null())
    };
    let built_in = built_in.into_iter().filter(|(id, ..)| !has_own_settings(id));
    let services = configured.chain(built_in).enumerate();
    let with_key = services.filter_map(|(index, (id, name, header, base_url))| {
        Some(ServiceKey {
            name: format!("{OPENCODE}-{index}"),
            header,
            base_url,
            key: KeyValue::Known(Secret::new(variable(environment, name)?)),
            setting: UrlSetting::Opencode {
                provider: id.to_owned(),
                key_variable: name.to_owned(),
            },
        })
    });
    with_key.collect()
}

/// Returns the variables with keys that opencode does not use, because it has a login.
pub(crate) fn unused_by_opencode(home: &Path) -> Vec<&'static str> {
    let logins = read_json(home, OPENCODE_LOGINS);
    let unused = OPENCODE_KEYS.into_iter().filter(|(id, _)| !logins[id].is_null());
    unused.map(|(_, variable)| variable).collect()
}

/// Reads a file below the home directory; null if it cannot be read.
fn read_json(home: &Path, path: &str) -> Value {
    let bytes = base::files::read_bounded(&home.join(path), MAX_BYTES).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
}

/// Returns the additional configuration for opencode: the URLs of these services.
pub(crate) fn opencode_config(services: &[ServiceKey], proxy_url: &str) -> Option<String> {
    let mut providers = serde_json::Map::new();
    for service in services {
        if let UrlSetting::Opencode { provider, .. } = &service.setting {
            let options = json!({"options": {"baseURL": service.url(proxy_url)}});
            providers.insert(provider.clone(), options);
        }
    }
    (!providers.is_empty()).then(|| json!({ "provider": providers }).to_string())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn environment() -> Vec<(String, String)> {
        ["OPENAI_API_KEY", "ANTHROPIC_API_KEY", "MY_KEY"]
            .map(|name| (name.to_owned(), "real".to_owned()))
            .to_vec()
    }

    fn write(home: &Path, name: &str, text: &str) {
        fs::create_dir_all(home.join(name).parent().unwrap()).unwrap();
        fs::write(home.join(name), text).unwrap();
    }

    #[test]
    fn codex_uses_the_provider_of_its_configuration_and_keeps_its_login() {
        let home = tempfile::tempdir().unwrap();
        let service = || codex(home.path(), &environment());
        let arguments = || match service().unwrap().setting {
            UrlSetting::Codex { key_variable, arguments, .. } => {
                (key_variable, arguments.join(" "))
            }
            _ => panic!("it has arguments"),
        };
        let adapter = || match service().unwrap().setting {
            UrlSetting::Codex { config, .. } => serde_json::from_str::<Value>(&config).unwrap(),
            _ => panic!("it has a configuration"),
        };
        assert_eq!(service().unwrap().base_url, OPENAI_URL);
        let (variable, line) = arguments();
        assert_eq!(variable, "OPENAI_API_KEY");
        assert!(line.starts_with("-c model_provider=\"studio\" -c model_providers.studio={"));
        assert_eq!(adapter()["model_provider"], "studio");
        assert_eq!(adapter()["model_providers"]["studio"]["base_url"], "{url}");
        write(home.path(), ".codex/auth.json", "{}");
        assert!(service().is_none(), "the login is used");
        let config = "model_provider = \"own\"\n[model_providers.own]\n\
            base_url = \"https://own.example/v1\"\nenv_key = \"MY_KEY\"\n";
        write(home.path(), ".codex/config.toml", config);
        assert_eq!(service().unwrap().base_url, "https://own.example/v1");
        let expected = "-c model_providers.own.base_url=\"{url}\"".to_owned();
        assert_eq!(arguments(), ("MY_KEY".to_owned(), expected));
        let own = json!({"base_url": "{url}", "env_key": "MY_KEY"});
        assert_eq!(adapter()["model_providers"], json!({ "own": own }), "the whole entry");
        write(home.path(), ".codex/config.toml", &config.replace("MY_KEY", "UNSET"));
        assert!(service().is_none());
        write(home.path(), ".codex/config.toml", "not toml");
        assert!(service().is_none());
    }

    #[test]
    fn opencode_gets_the_urls_of_providers_whose_keys_are_in_the_environment() {
        let home = tempfile::tempdir().unwrap();
        let config = || opencode_config(&opencode(home.path(), &environment()), "http://p");
        let built_in = "{\"provider\":{\"anthropic\":{\"options\":{\"baseURL\":\
            \"http://p/opencode-0\"}},\"openai\":{\"options\":{\"baseURL\":\"http://p/opencode-1\"}}}}";
        assert_eq!(config().as_deref(), Some(built_in));
        write(
            home.path(),
            ".local/share/opencode/auth.json",
            "{\"anthropic\": {}, \"openai\": {}}",
        );
        assert_eq!(config(), None, "the logins are used");
        assert_eq!(unused_by_opencode(home.path()).len(), 2);
        let own = json!({"provider": {
            "own": {"options": {"baseURL": "https://own/v1", "apiKey": "{env:MY_KEY}"}},
            "written": {"options": {"baseURL": "https://w/v1", "apiKey": "real"}},
        }});
        write(home.path(), ".config/opencode/opencode.json", &own.to_string());
        let services = opencode(home.path(), &environment());
        assert_eq!((services.len(), &*services[0].base_url), (1, "https://own/v1"));
    }
}
