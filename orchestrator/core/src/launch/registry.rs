//! The agents table: the configured rows, and g3's own.

use base::config::Config;
use base::config::base_url;
use base::config::studio::{AgentProtocol, AgentRow};
use base::failure::{Failure, Result};

/// The keys and addresses of hosted providers, as they are called in the environment.
const KEYS: &[&str] = &[
    "ANTHROPIC_API_KEY",
    "OPENAI_API_KEY",
    "GEMINI_API_KEY",
    "DATABRICKS_HOST",
    "DATABRICKS_TOKEN",
];

/// Returns how to speak with an agent: its configured row, else g3's own.
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
    let mut known: Vec<&str> = table.keys().map(String::as_str).collect();
    known.push("g3");
    let more = suggested(name).unwrap_or("command = [\"PROGRAM\", \"ARGUMENT\"]");
    Err(Failure::usage(format!("no such agent: `{name}`"))
        .because(format!("known agents: {}", known.join(", ")))
        .hint(format!("add this to ~/.config/g3/config.toml:\n[studio.agents.{name}]\n{more}")))
}

/// Returns the lines of a row for a known agent, as docs/agents.md lists them.
fn suggested(name: &str) -> Option<&'static str> {
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

/// Returns the row of an agent that plays a persona: `--agent NAME` ends its command, as g3 wants
/// it. Another agent would not know what that means.
pub(crate) fn playing(mut row: AgentRow, agent: &str, persona: Option<&str>) -> Result<AgentRow> {
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

/// Returns the program g3: beside studio, else in PATH.
pub fn g3_program() -> String {
    let beside = std::env::current_exe().ok().map(|studio| studio.with_file_name("g3"));
    match beside.filter(|path| path.is_file()) {
        Some(path) => path.to_string_lossy().into_owned(),
        None => "g3".to_owned(),
    }
}

/// Returns what g3 may read and know: its configuration, its model files, the providers' keys.
/// Logins are renewed where they lie.
fn g3() -> AgentRow {
    let settings = std::env::vars_os()
        .filter_map(|(name, _)| name.into_string().ok())
        .filter(|name| name.starts_with("G3_"));
    AgentRow {
        protocol: AgentProtocol::Acp,
        command: vec![g3_program(), "acp".to_owned()],
        read: vec!["~/.config/g3".into(), "~/.g3".into()],
        write: vec!["~/.g3/oauth".into()],
        env: KEYS
            .iter()
            .copied()
            .chain(base_url::variables())
            .map(str::to_owned)
            .chain(settings)
            .collect(),
        events: Some(true),
    }
}
