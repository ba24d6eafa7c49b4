//! The agents table: the configured agents and the built-in ones.

use base::config::Config;
use base::config::base_url;
use base::config::layers::directory;
use base::config::studio::{AgentOutput, AgentProtocol, AgentRow};
use base::failure::{Failure, Result};

use crate::exec::host_of_url;
use crate::launch::built_in_agents::{self, BUILT_IN_AGENTS, BuiltInAgent, LOCAL_MODEL_HOSTS};

/// Environment variables with the API keys and URLs of hosted providers.
const KEY_VARIABLES: &[&str] = &[
    "ANTHROPIC_API_KEY",
    "OPENAI_API_KEY",
    "GEMINI_API_KEY",
    "DATABRICKS_HOST",
    "DATABRICKS_TOKEN",
];

/// Returns the entry of an agent: the configured one, else the built-in one if its program is
/// installed. A configured entry without a command extends the built-in one.
pub fn row(config: &Config, name: &str) -> Result<AgentRow> {
    let configured = config.studio.agents.get(name);
    if let Some(row) = configured.filter(|row| !row.command.is_empty()) {
        return refuse_useless_resume(name, row)
            .and_then(|()| refuse_useless_options(name, row))
            .map(|()| row.clone());
    }
    let built_in = match built_in_agents::find(name) {
        Some(agent) => Some(installed(agent)?),
        None => (name == "g3").then(|| g3(config)),
    };
    match (built_in, configured) {
        (Some(built_in), Some(added)) => {
            let row = extended(built_in, added);
            refuse_useless_options(name, &row).map(|()| row)
        }
        (Some(built_in), None) => Ok(built_in),
        (None, Some(_)) => Err(Failure::usage(format!("agent `{name}` has no command"))
            .hint(format!("[studio.agents.{name}] command = [\"program\", \"acp\"]"))),
        (None, None) => Err(unknown(config, name)),
    }
}

/// Refuses a command for a conversation whose id studio cannot know.
fn refuse_useless_resume(name: &str, row: &AgentRow) -> Result<()> {
    let can_know_id = row.protocol == AgentProtocol::Command && row.output != AgentOutput::Text;
    if row.resume.is_empty() || can_know_id {
        return Ok(());
    }
    Err(Failure::usage(format!("`resume` of agent `{name}` cannot be used"))
        .because("it needs `protocol = \"command\"`, and an `output` that reports the conversation")
        .hint(format!("[studio.agents.{name}] output = \"claude-json\", for example")))
}

/// Refuses options of a program that has none, because it does not speak ACP.
fn refuse_useless_options(name: &str, row: &AgentRow) -> Result<()> {
    let Some(option) = row.options.keys().next() else { return Ok(()) };
    if row.protocol == AgentProtocol::Acp {
        return Ok(());
    }
    let program = row.command.first().map(String::as_str).unwrap_or_default();
    Err(Failure::usage(format!("the option `{option}` of agent `{name}` cannot be set"))
        .because(format!("options are those of ACP, and `{program}` does not speak it"))
        .hint(format!("add its own arguments to `command` of [studio.agents.{name}]")))
}

fn installed(agent: &BuiltInAgent) -> Result<AgentRow> {
    if let Some((program, _)) = agent.installed() {
        return Ok(agent.row(program));
    }
    let programs: Vec<String> =
        agent.programs.iter().map(|program| format!("`{}`", program.name)).collect();
    let failure = Failure::usage(format!("agent `{}` is not installed", agent.name))
        .because(format!("not found in PATH: {}", programs.join(", ")));
    Err(match agent.programs.first() {
        Some(program) => failure.hint(program.install).hint("studio agents"),
        None => failure,
    })
}

fn extended(built_in: AgentRow, added: &AgentRow) -> AgentRow {
    AgentRow {
        read: [built_in.read, added.read.clone()].concat(),
        write: [built_in.write, added.write.clone()].concat(),
        env: [built_in.env, added.env.clone()].concat(),
        events: added.events.or(built_in.events),
        network: added.network.or(built_in.network),
        hosts: [built_in.hosts, added.hosts.clone()].concat(),
        proxy_keys: [built_in.proxy_keys, added.proxy_keys.clone()].concat(),
        options: added.options.clone(),
        ..built_in
    }
}

fn unknown(config: &Config, name: &str) -> Failure {
    let known = format!("known agents: {}", names(config).join(", "));
    let is_key = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    // Anything else is rather a command that somebody wanted to run.
    let (cause, entry) = if !name.chars().all(is_key) {
        let command = toml::Value::String(name.to_owned());
        let entry = format!(
            "[studio.agents.mine]\nprotocol = \"command\"\ncommand = [\"sh\", \"-c\", {command}]"
        );
        (format!("an agent is chosen by its name, not by a command; {known}"), entry)
    } else {
        (known, format!("[studio.agents.{name}]\ncommand = [\"PROGRAM\", \"ARGUMENT\"]"))
    };
    Failure::usage(format!("no such agent: `{name}`"))
        .because(cause)
        .hint(format!("add this to ~/.config/g3/config.toml:\n{entry}"))
}

/// Returns the names of all agents: g3, the built-in ones, and those of the configuration.
pub fn names(config: &Config) -> Vec<&str> {
    let mut names = vec!["g3"];
    names.extend(BUILT_IN_AGENTS.iter().map(|agent| agent.name));
    let configured = config.studio.agents.keys().map(String::as_str);
    let others: Vec<&str> = configured.filter(|name| !names.contains(name)).collect();
    names.extend(others);
    names
}

/// Adds a persona to an agent's command: `--agent NAME` at its end, as g3 expects it. Fails for
/// other agents, which have no personas.
pub(crate) fn with_persona(
    mut row: AgentRow,
    agent: &str,
    persona: Option<&str>,
) -> Result<AgentRow> {
    let Some(persona) = persona else { return Ok(row) };
    if agent != "g3" {
        return Err(Failure::usage(format!("agent `{agent}` has no persona `{persona}`"))
            .because("personas are roles of g3")
            .hint(format!("studio run --agent g3 --persona {persona} 'your task'")));
    }
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if persona.is_empty() || persona.starts_with('-') || !persona.chars().all(is_name) {
        return Err(Failure::usage(format!("invalid persona name `{persona}`"))
            .because("use letters, digits, `-` and `_`")
            .hint("g3 --list-agents"));
    }
    row.command.extend(["--agent".to_owned(), persona.to_owned()]);
    Ok(row)
}

/// Returns the path of g3: beside studio, else on `PATH`.
pub fn g3_program() -> String {
    base::process::sibling_program("g3")
        .map_or_else(|| "g3".to_owned(), |path| path.to_string_lossy().into_owned())
}

/// Returns the built-in entry for g3: it may read its configuration without keys and its model
/// files, reaches the providers through the proxy that adds their keys, and renews logins in place.
fn g3(config: &Config) -> AgentRow {
    let variables = std::env::vars_os()
        .filter_map(|(name, _)| name.into_string().ok())
        .filter(|name| name.starts_with("G3_"));
    let has_login = config.providers.databricks.values().any(|entry| entry.use_oauth);
    AgentRow {
        protocol: AgentProtocol::Acp,
        command: vec![g3_program(), "acp".to_owned()],
        read: vec![directory().unwrap_or_else(|| "~/.config/g3".into()), "~/.g3".into()],
        write: if has_login { vec!["~/.g3/oauth".into()] } else { Vec::new() },
        env: KEY_VARIABLES
            .iter()
            .copied()
            .chain(base_url::variables())
            .map(str::to_owned)
            .chain(variables)
            .collect(),
        events: Some(true),
        hosts: g3_hosts(config),
        proxy_keys: G3_PROXY_KEYS.iter().map(|name| (*name).to_owned()).collect(),
        ..AgentRow::default()
    }
}

/// The services whose keys stay outside of g3's sandbox.
const G3_PROXY_KEYS: &[&str] = &["anthropic", "openai", "gemini", "databricks", "providers"];

/// The hosts of the services that g3 knows by itself: models, logins, web search.
const G3_HOSTS: &[&str] = &[
    "api.anthropic.com",
    "api.openai.com",
    "generativelanguage.googleapis.com",
    "*.cloud.databricks.com",
    "*.azuredatabricks.net",
    "*.gcp.databricks.com",
];

/// Returns the hosts that g3 needs: those of its services and of the configured URLs.
fn g3_hosts(config: &Config) -> Vec<String> {
    let providers = &config.providers;
    let urls = providers.anthropic.values().map(|entry| &entry.base_url);
    let urls = urls.chain(providers.openai.values().map(|entry| &entry.base_url));
    let urls = urls.chain(providers.gemini.values().map(|entry| &entry.base_url));
    let urls = urls.chain(providers.databricks.values().map(|entry| &entry.host));
    let urls = urls.chain([&config.tools.codesearch.endpoint, &config.memory.embeddings_endpoint]);
    let urls = urls.filter_map(|url| host_of_url(url.as_deref()?));
    let built_in = G3_HOSTS.iter().chain(LOCAL_MODEL_HOSTS).map(|host| (*host).to_owned());
    built_in.chain(urls).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_without_a_command_extends_the_built_in_one() {
        let mut config = Config::default();
        let added = AgentRow {
            read: vec!["~/.certificates".into()],
            env: vec!["MY_KEY".into()],
            ..AgentRow::default()
        };
        config.studio.agents.insert("g3".into(), added.clone());
        let row = row(&config, "g3").unwrap();
        assert_eq!(row.command[1..], ["acp"]);
        assert!(row.read.contains(&"~/.g3".into()) && row.read.contains(&"~/.certificates".into()));
        assert!(row.env.contains(&"MY_KEY".to_owned()));

        config.studio.agents.insert("mine".into(), added);
        assert_eq!(super::row(&config, "mine").unwrap_err().what, "agent `mine` has no command");
    }

    #[test]
    fn a_command_in_the_place_of_a_name_becomes_an_entry() {
        for command in [r#"sh -c 'echo "a\b" >> notes'"#, "./agent.sh"] {
            let failure = row(&Config::default(), command).unwrap_err();
            let (_, entry) = failure.hints[0].split_once(":\n").unwrap();
            let entry: toml::Table = entry.parse().unwrap();
            let mine = &entry["studio"]["agents"]["mine"];
            assert_eq!(mine["command"][2].as_str(), Some(command));
        }
    }

    #[test]
    fn a_command_to_continue_needs_a_format() {
        let mut config = Config::default();
        let mut mine = AgentRow {
            protocol: AgentProtocol::Command,
            command: vec!["mine".into()],
            resume: vec!["mine".into(), "{conversation}".into()],
            ..AgentRow::default()
        };
        config.studio.agents.insert("mine".into(), mine.clone());
        assert_eq!(
            row(&config, "mine").unwrap_err().what,
            "`resume` of agent `mine` cannot be used"
        );
        mine.output = AgentOutput::CodexJson;
        config.studio.agents.insert("mine".into(), mine);
        assert!(row(&config, "mine").is_ok());
    }

    #[test]
    fn every_agent_has_one_name() {
        let mut config = Config::default();
        config.studio.agents.insert("codex".into(), AgentRow::default());
        config.studio.agents.insert("mine".into(), AgentRow::default());
        let mut names = names(&config);
        assert_eq!((names[0], *names.last().unwrap()), ("g3", "mine"));
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
