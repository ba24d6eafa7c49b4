//! The model services whose keys stay outside of the sandbox: their variables, URLs and hosts.

use base::config::Config;
use base::config::api_key::KeySources;
use base::config::hosted_services::{ANTHROPIC_URL, GEMINI_URL, NO_KEY, OPENAI_URL, workspace_url};
use base::config::keyless::KeylessConfig;
use base::failure::Result;
use base::secret::Secret;
use network::KeyHeader;

/// A model service.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ModelService {
    /// Its name in `proxy_keys`.
    pub name: &'static str,
    /// The header that carries its key.
    header: KeyHeader,
    /// The variable with its key.
    key_variable: &'static str,
    /// The variables with its base URL, in order of precedence.
    url_variables: &'static [&'static str],
    /// Its own base URL.
    default_url: &'static str,
}

/// All model services whose keys are in the environment.
pub(crate) const MODEL_SERVICES: &[ModelService] = &[
    ModelService {
        name: "anthropic",
        header: KeyHeader::XApiKey,
        key_variable: "ANTHROPIC_API_KEY",
        url_variables: &["ANTHROPIC_BASE_URL"],
        default_url: ANTHROPIC_URL,
    },
    ModelService {
        name: "openai",
        header: KeyHeader::Bearer,
        key_variable: "OPENAI_API_KEY",
        url_variables: &["OPENAI_BASE_URL", "OPENAI_API_BASE"],
        default_url: OPENAI_URL,
    },
    ModelService {
        name: "gemini",
        header: KeyHeader::XGoogApiKey,
        key_variable: "GEMINI_API_KEY",
        url_variables: &["GOOGLE_GEMINI_BASE_URL", "GEMINI_BASE_URL"],
        default_url: GEMINI_URL,
    },
    ModelService {
        name: "databricks",
        header: KeyHeader::Bearer,
        key_variable: "DATABRICKS_TOKEN",
        url_variables: &["DATABRICKS_HOST"],
        // Each user has an own workspace.
        default_url: "",
    },
];

/// A model service that a sandbox reaches through the proxy, with the user's key. It has no
/// `Debug`.
#[derive(Clone)]
pub(crate) struct ServiceKey {
    /// The name of its route.
    pub name: String,
    /// The header that carries its key.
    pub header: KeyHeader,
    /// Its base URL outside of the sandbox.
    pub base_url: String,
    /// Its key.
    pub key: KeyValue,
    /// How the sandbox gets the URL of the proxy.
    pub setting: UrlSetting,
}

/// A key, or how to get it.
#[derive(Clone)]
pub(crate) enum KeyValue {
    /// The key.
    Known(Secret),
    /// It is what a command prints, which runs when a request needs the key.
    Command(KeySources),
}

/// How a program in a sandbox gets the URL of the proxy.
#[derive(Clone)]
pub(crate) enum UrlSetting {
    /// In the variables of this service, with a placeholder for the key.
    Variables(&'static ModelService),
    /// In g3's configuration, under this path.
    Configuration(Vec<String>),
    /// In codex's configuration, with a placeholder in this variable. `{url}` is replaced.
    Codex {
        /// The variable with the key.
        key_variable: String,
        /// The arguments after the program.
        arguments: Vec<String>,
        /// The same configuration for its adapter to ACP, which reads it from a variable.
        config: String,
    },
    /// In opencode's additional configuration, with a placeholder in this variable.
    Opencode {
        /// The id of the provider.
        provider: String,
        /// The variable with the key.
        key_variable: String,
    },
}

/// The variable that codex's adapter to ACP reads as additional configuration.
const CODEX_VARIABLE: &str = "CODEX_CONFIG";
/// The key that a sandbox gets instead of the user's. Some programs check the prefix.
const PLACEHOLDER: &str = "sk-ant-studio-placeholder-the-proxy-adds-the-key";

impl ServiceKey {
    /// Returns the URL of the service in the sandbox; `proxy_url` is the URL of the proxy with its
    /// token.
    pub(crate) fn url(&self, proxy_url: &str) -> String {
        format!("{proxy_url}/{}", self.name)
    }

    /// Returns the variables for the sandbox.
    pub(crate) fn variables(&self, proxy_url: &str) -> Vec<(String, String)> {
        let url = self.url(proxy_url);
        let urls: Vec<(String, String)> = match &self.setting {
            UrlSetting::Variables(service) => {
                let names = service.url_variables.iter();
                names.map(|name| ((*name).to_owned(), url.clone())).collect()
            }
            UrlSetting::Codex { config, .. } => {
                vec![(CODEX_VARIABLE.to_owned(), config.replace("{url}", &url))]
            }
            UrlSetting::Configuration(_) | UrlSetting::Opencode { .. } => Vec::new(),
        };
        urls.into_iter().chain(self.placeholder()).collect()
    }

    /// Returns the variable that contains a placeholder instead of the key.
    pub(crate) fn placeholder(&self) -> Option<(String, String)> {
        let name = match &self.setting {
            UrlSetting::Variables(service) => service.key_variable,
            UrlSetting::Codex { key_variable, .. } | UrlSetting::Opencode { key_variable, .. } => {
                key_variable
            }
            UrlSetting::Configuration(_) => return None,
        };
        Some((name.to_owned(), PLACEHOLDER.to_owned()))
    }

    /// Returns the arguments for the program in the sandbox.
    pub(crate) fn arguments(&self, proxy_url: &str) -> Vec<String> {
        let UrlSetting::Codex { arguments, .. } = &self.setting else { return Vec::new() };
        let url = self.url(proxy_url);
        arguments.iter().map(|argument| argument.replace("{url}", &url)).collect()
    }
}

/// Returns the value of a variable; an empty one counts as unset.
pub(crate) fn variable<'a>(environment: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let found = environment.iter().find(|(existing, _)| existing == name);
    found.map(|(_, value)| value.trim()).filter(|value| !value.is_empty())
}

/// Returns the services with these names whose keys are in an environment.
pub(crate) fn with_keys(names: &[String], environment: &[(String, String)]) -> Vec<ServiceKey> {
    let value = |name: &str| variable(environment, name);
    let services = MODEL_SERVICES.iter().filter(|service| names.iter().any(|n| n == service.name));
    let with_key = |service: &'static ModelService| {
        let url = service.url_variables.iter().find_map(|name| value(name));
        let url = url.unwrap_or(service.default_url);
        let is_workspace = service.name == "databricks";
        let base_url = if is_workspace { workspace_url(url)? } else { url.to_owned() };
        Some(ServiceKey {
            name: service.name.to_owned(),
            header: service.header,
            base_url,
            key: KeyValue::Known(Secret::new(value(service.key_variable)?)),
            setting: UrlSetting::Variables(service),
        })
    };
    services.filter_map(with_key).collect()
}

/// Returns the services of g3's configuration that have a key, and adds to the configuration for
/// the sandbox a placeholder for each key.
pub(crate) fn of_configuration(
    config: &Config,
    keyless: &mut KeylessConfig,
) -> Result<Vec<ServiceKey>> {
    let mut services = Vec::new();
    for (index, service) in config.hosted_services().into_iter().enumerate() {
        let key = if service.key.is_command() {
            KeyValue::Command(service.key)
        } else {
            match service.key.optional()? {
                Some(key) if key.secret.reveal() != NO_KEY => KeyValue::Known(key.secret),
                Some(_) | None => continue,
            }
        };
        keyless.overrides.push((service.key_path, PLACEHOLDER.to_owned()));
        // g3 reports an address that it must not use.
        let base_url = service.base_url.filter(|url| may_carry_key(url, service.allow_http));
        let header = match service.kind {
            "anthropic" | "codesearch" => KeyHeader::XApiKey,
            "gemini" => KeyHeader::XGoogApiKey,
            _ => KeyHeader::Bearer,
        };
        services.extend(base_url.map(|base_url| ServiceKey {
            name: format!("service-{index}"),
            header,
            base_url,
            key,
            setting: UrlSetting::Configuration(service.url_path),
        }));
    }
    Ok(services)
}

/// Returns whether a key may be sent to a URL whose host must be on an allow list.
pub(crate) fn is_listed(url: &str, hosts: &[String]) -> bool {
    let (list, _) = network::host::HostList::parse(hosts.iter().map(String::as_str));
    let target = host_of_url(url).and_then(|host| network::host::Target::parse(&host));
    may_carry_key(url, false) && target.is_some_and(|target| list.permits(&target).is_some())
}

/// Returns whether g3 sends a key to a URL: by `https`, or within this machine, or because the user
/// allows it.
fn may_carry_key(url: &str, allow_http: bool) -> bool {
    let Some(host) = host_of_url(url) else { return false };
    let is_local = network::host::Target::parse(&host).is_some_and(|it| it.host.is_loopback());
    let has_user = url.split('/').nth(2).is_none_or(|authority| authority.contains('@'));
    !has_user
        && (url.starts_with("https://") || url.starts_with("http://") && (allow_http || is_local))
}

/// Returns the hosts of the base URLs in an environment, with their ports.
pub(crate) fn url_hosts(environment: &[(String, String)]) -> Vec<String> {
    let is_url =
        |name: &str| MODEL_SERVICES.iter().any(|service| service.url_variables.contains(&name));
    let urls = environment.iter().filter(|(name, _)| is_url(name));
    let hosts = urls.filter_map(|(_, url)| host_of_url(url));
    hosts.collect()
}

/// Returns the entry of an allow list for the host of a URL, with its port.
pub(crate) fn host_of_url(url: &str) -> Option<String> {
    let (scheme, rest) = url.trim().split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = authority.rsplit('@').next()?;
    let entry = match (host.rsplit_once(':'), scheme) {
        (Some((_, port)), _) if !port.ends_with(']') => host.to_owned(),
        (_, "http") => format!("{host}:80"),
        (_, _) => format!("{host}:443"),
    };
    network::host::HostRule::parse(&entry).map(|_| entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_with_a_key_gets_a_placeholder_and_a_local_url() {
        let variable = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let environment = [
            variable("ANTHROPIC_API_KEY", "real"),
            variable("OPENAI_BASE_URL", "http://10.0.0.1/v1"),
            variable("GEMINI_API_KEY", "other"),
        ];
        let names = ["anthropic".to_owned(), "openai".to_owned()];
        let services = with_keys(&names, &environment);
        assert_eq!(services.len(), 1, "only a listed service with a key");
        assert_eq!(services[0].base_url, "https://api.anthropic.com");
        let variables = services[0].variables("http://127.0.0.1:9/token");
        let (url, key) = (&variables[0], &variables[1]);
        assert_eq!(url.1, "http://127.0.0.1:9/token/anthropic");
        assert_eq!(key.0, "ANTHROPIC_API_KEY");
        assert!(!key.1.contains("real"));
    }

    #[test]
    fn a_url_of_a_writable_file_must_be_on_the_list() {
        let hosts = ["api.openai.com".to_owned(), "127.0.0.1:9".to_owned()];
        for url in ["https://api.openai.com/v1", "http://127.0.0.1:9/v1"] {
            assert!(is_listed(url, &hosts), "{url}");
        }
        for url in [
            "https://evil.example/v1",
            "https://api.openai.com:8443/v1",
            "http://api.openai.com/v1",
            "https://u@api.openai.com/v1",
            "http://127.0.0.1:10/v1",
        ] {
            assert!(!is_listed(url, &hosts), "{url}");
        }
    }

    #[test]
    fn a_key_of_the_configuration_is_replaced_unless_its_service_cannot_be_used() {
        let config = "[providers.anthropic.a]\napi_key = \"real\"\n\
            [providers.openai.b]\napi_key_command = \"exit 1\"\nbase_url = \"https://b/v1\"\n\
            [providers.openai.c]\napi_key = \"none\"\nbase_url = \"http://c/v1\"\n\
            [providers.openai.d]\napi_key = \"real\"\nbase_url = \"http://10.0.0.1/v1\"\n\
            [providers.databricks.e]\nhost = \"e.example\"\ntoken = \"real\"\n\
            [providers.databricks.f]\nhost = \"f.example\"\nuse_oauth = true\n\
            [tools.codesearch]\napi_key = \"real\"\n";
        let config: Config = toml::from_str(config).unwrap();
        let mut keyless = KeylessConfig::default();
        let services = of_configuration(&config, &mut keyless).unwrap();
        let urls: Vec<&str> = services.iter().map(|service| &*service.base_url).collect();
        let expected =
            [ANTHROPIC_URL, "https://b/v1", "https://e.example", "https://mcp.exa.ai/mcp"];
        assert_eq!(urls, expected);
        assert!(matches!(services[1].key, KeyValue::Command(_)), "the command did not run");
        let paths: Vec<String> = keyless.overrides.iter().map(|(path, _)| path.join(".")).collect();
        let replaced = [
            "providers.anthropic.a.api_key",
            "providers.openai.b.api_key",
            "providers.openai.d.api_key",
            "providers.databricks.e.token",
            "tools.codesearch.api_key",
        ];
        assert_eq!(paths, replaced);
        assert!(keyless.overrides.iter().all(|(_, value)| value == PLACEHOLDER));
    }
}
