//! `[mcp.NAME]` and a repository's `.mcp.json`: MCP servers for the agent.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::config::providers::CommandLine;
use crate::config::trust::{self, hash};
use crate::config::{LoadedConfig, ValueOrigin, layers};
use crate::failure::{Failure, Result};
use crate::secret::Secret;

/// An MCP server: a program or a URL.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct McpServerConfig {
    /// Whether the server is started and its tools are offered.
    pub enabled: bool,
    /// Program and arguments of a stdio server.
    pub command: Vec<String>,
    /// Additional variables for the program; `${NAME}` is replaced by that variable of g3.
    pub env: BTreeMap<String, Secret>,
    /// The working directory of the program; g3's when absent.
    pub cwd: Option<PathBuf>,
    /// The URL of an HTTP server.
    pub url: Option<String>,
    /// Headers of each request; `${NAME}` is replaced by that variable of g3.
    pub headers: BTreeMap<String, Secret>,
    /// A command that prints the token for `Authorization: Bearer`.
    pub bearer_token_command: Option<CommandLine>,
    /// The client with which g3 logs in, if it was registered by hand; else g3 registers itself.
    pub client_id: Option<String>,
    /// The client's secret; `${NAME}` is replaced by that variable of g3.
    pub client_secret: Option<Secret>,
    /// The port of this machine to which the browser returns; a free one when absent.
    pub callback_port: Option<u16>,
    /// The scopes of a login; those that the server names when empty.
    pub scopes: Vec<String>,
    /// Whether plain `http` is allowed to other machines.
    pub allow_http: bool,
    /// Timeout of the start and of each call, in seconds.
    pub timeout_seconds: u64,
    /// Globs over the names of the tools to offer; all when empty.
    pub tools: Vec<String>,
    /// The default for calls that no permission rule matches.
    pub calls: CallDefault,
    /// Whether the program runs in the command sandbox.
    pub sandbox: bool,
}

/// The default for calls that no permission rule matches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CallDefault {
    /// Ask the user; deny in a non-interactive run.
    #[default]
    Ask,
    /// Run the call.
    Allow,
}

impl Default for McpServerConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            command: Vec::new(),
            env: BTreeMap::new(),
            cwd: None,
            url: None,
            headers: BTreeMap::new(),
            bearer_token_command: None,
            client_id: None,
            client_secret: None,
            callback_port: None,
            scopes: Vec::new(),
            allow_http: false,
            timeout_seconds: 60,
            tools: Vec::new(),
            calls: CallDefault::Ask,
            sandbox: true,
        }
    }
}

impl McpServerConfig {
    /// Returns the SHA-256 of everything that identifies the server: program, arguments, variables,
    /// directory, URL and headers.
    pub fn fingerprint(&self) -> String {
        let plain = |map: &BTreeMap<String, Secret>| -> Vec<(String, String)> {
            map.iter().map(|(key, value)| (key.clone(), value.reveal().to_owned())).collect()
        };
        let all = (&self.command, plain(&self.env), &self.cwd, &self.url, plain(&self.headers));
        hash(&serde_json::to_vec(&all).unwrap_or_default())
    }

    /// Returns why the entry is invalid, if it is.
    fn fault(&self) -> Option<&'static str> {
        match (self.command.first(), &self.url) {
            (None, None) => Some("it has neither `command` nor `url`"),
            (Some(_), Some(_)) => Some("it has both `command` and `url`"),
            (Some(program), None) if program.trim().is_empty() => Some("its `command` is empty"),
            (Some(_), None) | (None, Some(_)) if self.timeout_seconds == 0 => {
                Some("its `timeout_seconds` is 0")
            }
            (Some(_), None) | (None, Some(_)) => None,
        }
    }
}

/// Checks that every server has exactly one of `command` and `url`.
pub(super) fn check(servers: &BTreeMap<String, McpServerConfig>) -> Result<()> {
    for (name, server) in servers {
        if let Some(fault) = server.fault() {
            return Err(Failure::usage(format!("invalid server [mcp.{name}]"))
                .because(fault)
                .hint("command = [\"PROGRAM\", \"ARGUMENT\"], or url = \"https://…\""));
        }
    }
    Ok(())
}

/// Returns the path of `.mcp.json` in the directory or in its nearest ancestor within the
/// repository.
pub fn repository_file(cwd: &Path) -> PathBuf {
    layers::in_repository(cwd, ".mcp.json")
}

/// Adds the servers of a repository's `.mcp.json` if the user trusts exactly this content,
/// otherwise a notice. Servers of the configuration itself have precedence.
pub fn add(loaded: &mut LoadedConfig, file: &Path, store: Option<&Path>) -> Result<()> {
    let Some(bytes) = layers::read(file)? else { return Ok(()) };
    if !store.is_some_and(|store| trust::is_trusted(store, file, &bytes)) {
        loaded.notices.push(format!(
            "{} is ignored: the repository is not trusted to name MCP servers; run `g3 trust` to \
             trust this file",
            file.display()
        ));
        return Ok(());
    }
    let invalid =
        |reason: String| Failure::usage(format!("cannot read {}", file.display())).because(reason);
    let directory = file.parent().unwrap_or(Path::new("/"));
    for (name, mut server) in parse(&bytes, &variable).map_err(invalid)? {
        if loaded.config.mcp.contains_key(&name) {
            loaded.notices.push(format!(
                "`{name}` in {} is ignored: the configuration has [mcp.{name}]",
                file.display()
            ));
            continue;
        }
        // Paths are relative to the directory of the file.
        server.cwd =
            Some(server.cwd.map_or_else(|| directory.to_owned(), |cwd| directory.join(cwd)));
        let key = if server.url.is_some() { "url" } else { "command" };
        let origin = ValueOrigin::Repository(file.to_owned());
        loaded.origins.insert(format!("mcp.{name}.{key}"), origin);
        loaded.config.mcp.insert(name, server);
    }
    check(&loaded.config.mcp)
}

/// Returns whether the file exists.
pub fn is_file(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|meta| meta.is_file())
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Parses the format that many agents share: `{"mcpServers": {NAME: {command, args, env} | {url,
/// headers, oauth: {clientId, callbackPort}}}}`. Unknown fields are ignored.
fn parse(
    bytes: &[u8],
    variable: &dyn Fn(&str) -> Option<String>,
) -> std::result::Result<BTreeMap<String, McpServerConfig>, String> {
    let all: Value = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let Some(servers) = all["mcpServers"].as_object() else {
        return Err("the object `mcpServers` is missing".to_owned());
    };
    let server = |(name, entry): (&String, &Value)| match parse_server(entry, variable) {
        Ok(server) => Ok((name.clone(), server)),
        Err(error) => Err(format!("`{name}`: {error}")),
    };
    servers.iter().map(server).collect()
}

fn parse_server(
    entry: &Value,
    variable: &dyn Fn(&str) -> Option<String>,
) -> std::result::Result<McpServerConfig, String> {
    let Some(fields) = entry.as_object() else { return Err("it is not an object".to_owned()) };
    if entry["type"] == "sse" {
        return Err("the transport `sse` was replaced by `http`; use that".to_owned());
    }
    let text = |key: &str| match fields.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => expand(text, variable).map(Some),
        Some(_) => Err(format!("`{key}` must be a string")),
    };
    let mut command: Vec<String> = text("command")?.into_iter().collect();
    for arg in fields.get("args").and_then(Value::as_array).into_iter().flatten() {
        let arg = arg.as_str().ok_or_else(|| "`args` must be strings".to_owned())?;
        command.push(expand(arg, variable)?);
    }
    // The values may be secrets, so they are expanded where they are used.
    let texts = |key: &str| -> std::result::Result<BTreeMap<String, Secret>, String> {
        let map = fields.get(key).and_then(Value::as_object).into_iter().flatten();
        map.map(|(name, value)| match value.as_str() {
            Some(value) => Ok((name.clone(), Secret::new(value))),
            None => Err(format!("`{key}.{name}` must be a string")),
        })
        .collect()
    };
    let oauth = &entry["oauth"];
    let client_id = match &oauth["clientId"] {
        Value::String(id) => Some(expand(id, variable)?),
        _ => None,
    };
    Ok(McpServerConfig {
        enabled: entry["disabled"] != true,
        client_id,
        callback_port: oauth["callbackPort"].as_u64().and_then(|port| u16::try_from(port).ok()),
        command,
        env: texts("env")?,
        cwd: text("cwd")?.map(PathBuf::from),
        url: text("url")?,
        headers: texts("headers")?,
        ..McpServerConfig::default()
    })
}

/// Replaces `${NAME}` and `${NAME:-default}` by variables; an unset variable without a default is
/// an error. All other text is unchanged.
pub fn expand(
    text: &str,
    variable: &dyn Fn(&str) -> Option<String>,
) -> std::result::Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        let body = &rest[start + 2..];
        let Some(end) = body.find('}') else { break };
        let (name, default) = match body[..end].split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (&body[..end], None),
        };
        let is_name =
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        out.push_str(&rest[..start]);
        match is_name.then(|| variable(name).or(default.map(str::to_owned))) {
            Some(Some(value)) => out.push_str(&value),
            Some(None) => return Err(format!("the variable {name} is not set")),
            None => out.push_str(&rest[start..start + end + 3]),
        }
        rest = &body[end + 1..];
    }
    out.push_str(rest);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(name: &str) -> Option<String> {
        (name == "TOKEN").then(|| "t0".to_owned())
    }

    #[test]
    fn variables_are_expanded_and_other_text_is_unchanged() {
        let says = |text: &str| expand(text, &known);
        assert_eq!(says("a ${TOKEN} $TOKEN ${x y} ${").unwrap(), "a t0 $TOKEN ${x y} ${");
        assert_eq!(says("${NONE:-b}${TOKEN:-c}").unwrap(), "bt0");
        assert_eq!(says("${NONE}").unwrap_err(), "the variable NONE is not set");
    }

    #[test]
    fn the_common_format_is_parsed_and_invalid_servers_are_named() {
        let text = r#"{"mcpServers": {
            "a": {"command": "npx", "args": ["-y", "${TOKEN}"], "env": {"K": "${TOKEN}"}, "new": 1},
            "b": {"type": "http", "url": "https://x/mcp", "headers": {"X": "1"}, "disabled": true,
                  "oauth": {"clientId": "id-${TOKEN}", "callbackPort": 7410}}
        }}"#;
        let read = parse(text.as_bytes(), &known).unwrap();
        assert_eq!(read["a"].command, ["npx", "-y", "t0"]);
        assert_eq!(read["a"].env["K"].reveal(), "${TOKEN}");
        assert_eq!(read["b"].url.as_deref(), Some("https://x/mcp"));
        assert!(read["a"].enabled && !read["b"].enabled);
        assert_eq!(read["b"].client_id.as_deref(), Some("id-t0"));
        assert_eq!(read["b"].callback_port, Some(7410));
        for (text, why) in [
            (r#"{"mcpServers": {"a": 1}}"#, "`a`: it is not an object"),
            (r#"{"mcpServers": {"a": {"command": ["x"]}}}"#, "`command` must be a string"),
            (r#"{"mcpServers": {"a": {"type": "sse", "url": "http://x"}}}"#, "`sse`"),
            ("{}", "the object `mcpServers` is missing"),
        ] {
            let error = parse(text.as_bytes(), &known).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn a_fingerprint_depends_only_on_what_identifies_the_server() {
        let one = McpServerConfig { command: vec!["a".into()], ..McpServerConfig::default() };
        let same = McpServerConfig { timeout_seconds: 1, calls: CallDefault::Allow, ..one.clone() };
        assert_eq!(one.fingerprint(), same.fingerprint());
        let other = McpServerConfig { command: vec!["b".into()], ..one.clone() };
        assert_ne!(one.fingerprint(), other.fingerprint());
        let env = BTreeMap::from([("K".to_owned(), Secret::new("1"))]);
        assert_ne!(one.fingerprint(), McpServerConfig { env, ..one.clone() }.fingerprint());
    }
}
