//! The agents table: the configured agents, and the built-in entry for g3.

use base::config::Config;
use base::config::base_url;
use base::config::studio::{AgentProtocol, AgentRow};
use base::failure::{Failure, Result};

/// Environment variables with the API keys and URLs of hosted providers.
const KEY_VARIABLES: &[&str] = &[
    "ANTHROPIC_API_KEY",
    "OPENAI_API_KEY",
    "GEMINI_API_KEY",
    "DATABRICKS_HOST",
    "DATABRICKS_TOKEN",
];

/// Returns the entry of an agent: the configured one, else the built-in one for g3.
pub fn row(config: &Config, name: &str) -> Result<AgentRow> {
    let table = &config.studio.agents;
    if let Some(row) = table.get(name) {
        if row.command.is_empty() {
            return Err(Failure::usage(format!("agent `{name}` has no command"))
                .hint(format!("[studio.agents.{name}] command = [\"program\", \"acp\"]")));
        }
        return Ok(row.clone());
    }
    if name == "g3" {
        return Ok(g3());
    }
    let mut names: Vec<&str> = table.keys().map(String::as_str).collect();
    names.push("g3");
    let example = suggested_entry(name).unwrap_or("command = [\"PROGRAM\", \"ARGUMENT\"]");
    Err(Failure::usage(format!("no such agent: `{name}`"))
        .because(format!("known agents: {}", names.join(", ")))
        .hint(format!("add this to ~/.config/g3/config.toml:\n[studio.agents.{name}]\n{example}")))
}

/// Returns the configuration lines for a well-known agent, as in docs/agents.md.
fn suggested_entry(name: &str) -> Option<&'static str> {
    Some(match name {
        "claude" => {
            "command = [\"claude-agent-acp\"]\nwrite = [\"~/.claude\", \"~/.claude.json\"]\n\
             env = [\"ANTHROPIC_API_KEY\", \"ANTHROPIC_BASE_URL\"]"
        }
        "codex" => {
            "command = [\"codex-acp\", \"-c\", \"sandbox_mode=danger-full-access\"]\n\
             write = [\"~/.codex\"]\nenv = [\"OPENAI_API_KEY\"]"
        }
        "gemini" => {
            "command = [\"gemini\", \"--acp\"]\nwrite = [\"~/.gemini\"]\n\
             env = [\"GEMINI_API_KEY\", \"GOOGLE_GEMINI_BASE_URL\"]"
        }
        "opencode" => {
            "command = [\"opencode\", \"acp\"]\nwrite = [\"~/.local/share/opencode\", \
             \"~/.local/state/opencode\", \"~/.config/opencode\"]"
        }
        "qwen" | "qwen-code" => {
            "command = [\"qwen\", \"--acp\"]\nwrite = [\"~/.qwen\"]\n\
             env = [\"OPENAI_API_KEY\", \"OPENAI_BASE_URL\", \"OPENAI_MODEL\"]"
        }
        _ => return None,
    })
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

/// Returns the built-in entry for g3: it may read its configuration and its model files, gets the
/// providers' API keys, and renews logins in place.
fn g3() -> AgentRow {
    let variables = std::env::vars_os()
        .filter_map(|(name, _)| name.into_string().ok())
        .filter(|name| name.starts_with("G3_"));
    AgentRow {
        protocol: AgentProtocol::Acp,
        command: vec![g3_program(), "acp".to_owned()],
        read: vec!["~/.config/g3".into(), "~/.g3".into()],
        write: vec!["~/.g3/oauth".into()],
        env: KEY_VARIABLES
            .iter()
            .copied()
            .chain(base_url::variables())
            .map(str::to_owned)
            .chain(variables)
            .collect(),
        events: Some(true),
    }
}
