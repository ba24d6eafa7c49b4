//! Sessions whose agent works as player and coach on requirements: its command and its prompts.

use base::config::Config;
use base::config::studio::{AgentProtocol, AgentRow};
use base::failure::{Failure, Result};
use planner::document::{CURRENT, escape_marks};

use crate::launch::registry;
use crate::session::record::PlanRef;
use crate::session::spec::SessionSpec;

/// Options of a session's agent; the first and the last one are those of g3.
#[derive(Clone, Copy, Debug, Default)]
pub struct AgentOptions<'a> {
    /// The persona.
    pub persona: Option<&'a str>,
    /// The model, instead of the configured one.
    pub model: Option<&'a str>,
    /// The tool profile, instead of the configured one.
    pub profile: Option<&'a str>,
}

impl<'a> From<&'a SessionSpec> for AgentOptions<'a> {
    fn from(spec: &'a SessionSpec) -> AgentOptions<'a> {
        AgentOptions {
            persona: spec.persona.as_deref(),
            model: spec.model.as_deref(),
            profile: spec.profile.as_deref(),
        }
    }
}

/// Returns the entry of a session's agent with its full command: player and coach work on the
/// requirements with the session's checks, and the persona comes last.
pub fn agent_for(
    config: &Config,
    agent: &str,
    options: AgentOptions<'_>,
    plan_ref: &PlanRef,
    checks: &[String],
) -> Result<AgentRow> {
    let row = registry::row(config, agent)?;
    let row = match plan_ref.contract {
        Some(_) => with_rounds(row, agent, options.persona, checks)?,
        None => row,
    };
    let mut row = registry::with_persona(row, agent, options.persona)?;
    if let Some(model) = options.model {
        row = with_model(row, agent, model)?;
    }
    let Some(profile) = options.profile else { return Ok(row) };
    if agent != "g3" {
        return Err(Failure::usage(format!("--profile cannot be used with agent `{agent}`"))
            .because("it is an option of g3")
            .hint("omit --profile"));
    }
    row.command.extend(["--profile".to_owned(), profile.to_owned()]);
    Ok(row)
}

/// Sets the model: as an argument, or as an option of the sessions over ACP.
fn with_model(mut row: AgentRow, agent: &str, model: &str) -> Result<AgentRow> {
    if agent == "g3" {
        row.command.extend(["--model".to_owned(), model.to_owned()]);
        return Ok(row);
    }
    if row.protocol == AgentProtocol::Acp {
        row.options.insert("model".to_owned(), model.to_owned());
        return Ok(row);
    }
    if row.model_arguments.is_empty() {
        return Err(Failure::usage(format!("--model cannot be used with agent `{agent}`"))
            .because("studio does not know its argument for the model")
            .hint(format!("add it to `command` of [studio.agents.{agent}]")));
    }
    let arguments: Vec<String> =
        row.model_arguments.iter().map(|text| text.replace("{model}", model)).collect();
    for command in [&mut row.command, &mut row.resume] {
        if !command.is_empty() {
            command.splice(1..1, arguments.iter().cloned());
        }
    }
    Ok(row)
}

/// Returns whether an agent can work on requirements in rounds; others only get them in the prompt.
pub fn has_rounds(config: &Config, agent: &str, persona: Option<&str>) -> bool {
    registry::row(config, agent).is_ok_and(|row| with_rounds(row, agent, persona, &[]).is_ok())
}

fn with_rounds(
    mut row: AgentRow,
    agent: &str,
    persona: Option<&str>,
    checks: &[String],
) -> Result<AgentRow> {
    let refuse = |message: String, reason: &str| Err(Failure::usage(message).because(reason));
    if agent != "g3" {
        let message = format!("agent `{agent}` cannot be used with --requirements");
        return refuse(message, "player and coach are modes of g3")
            .map_err(|failure| failure.hint("--agent g3"));
    }
    if row.protocol != AgentProtocol::Acp {
        let message = "agent `g3` cannot be used with --requirements".to_owned();
        return refuse(message, "its entry in [studio.agents] has the protocol `command`")
            .map_err(|failure| failure.hint("[studio.agents.g3] protocol = \"acp\""));
    }
    if let Some(persona) = persona {
        let message = format!("persona `{persona}` cannot be used with --requirements");
        return refuse(message, "player and coach are personas of their own")
            .map_err(|failure| failure.hint("omit --persona"));
    }
    row.command.push("--autonomous".to_owned());
    for line in checks {
        row.command.extend(["--check".to_owned(), line.clone()]);
    }
    Ok(row)
}

/// Returns a prompt of a session, followed by its requirements: the first run starts from them, and
/// an agent that lost its conversation, or was killed before it started, finds them again.
pub(crate) fn prompt(plan_ref: &PlanRef, text: String) -> String {
    match &plan_ref.contract {
        Some(contract) => {
            format!("{}\n\n{CURRENT}\n\n{}\n", escape_marks(text.trim_end()), contract.trim())
        }
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use planner::document::current;

    use super::*;

    fn plan_ref() -> PlanRef {
        PlanRef { contract: Some("- R1: a\n".to_owned()), ..PlanRef::default() }
    }

    fn command(agent: &str, persona: Option<&str>, plan_ref: &PlanRef) -> Result<Vec<String>> {
        let checks = ["make test".to_owned(), "true".to_owned()];
        let options = AgentOptions { persona, ..AgentOptions::default() };
        agent_for(&Config::default(), agent, options, plan_ref, &checks)
            .map(|row| row.command[1..].to_vec())
    }

    #[test]
    fn the_model_is_an_argument_or_an_option_and_the_profile_is_one_of_g3() {
        let mut config = Config::default();
        let other = || AgentRow { command: vec!["other".to_owned()], ..AgentRow::default() };
        config.studio.agents.insert("other".into(), other());
        let command = AgentRow { protocol: AgentProtocol::Command, ..other() };
        config.studio.agents.insert("command".into(), command);
        let row = |agent, model, profile| {
            let options = AgentOptions { model, profile, ..AgentOptions::default() };
            agent_for(&config, agent, options, &PlanRef::default(), &[])
        };
        let g3 = row("g3", Some("m"), Some("core")).unwrap();
        assert_eq!(g3.command[1..], ["acp", "--model", "m", "--profile", "core"]);
        assert_eq!(row("other", Some("m"), None).unwrap().options["model"], "m");
        let refused = |agent, model, profile| row(agent, model, profile).unwrap_err().what;
        let model = refused("command", Some("m"), None);
        assert_eq!(model, "--model cannot be used with agent `command`");
        let profile = refused("other", None, Some("core"));
        assert_eq!(profile, "--profile cannot be used with agent `other`");
    }

    #[test]
    fn requirements_are_implemented_in_rounds_with_the_checks() {
        let with_contract = command("g3", None, &plan_ref()).unwrap();
        assert_eq!(
            with_contract,
            ["acp", "--autonomous", "--check", "make test", "--check", "true"]
        );
        assert_eq!(command("g3", None, &PlanRef::default()).unwrap(), ["acp"]);
        let persona = command("g3", Some("scout"), &PlanRef::default()).unwrap();
        assert_eq!(persona, ["acp", "--agent", "scout"]);
        assert!(command("g3", Some("scout"), &plan_ref()).is_err());
        let rounds_with = |persona| has_rounds(&Config::default(), "g3", persona);
        assert!(rounds_with(None) && !rounds_with(Some("scout")));
        assert!(!has_rounds(&Config::default(), "nobody", None));
    }

    #[test]
    fn every_prompt_ends_with_the_requirements_only() {
        let text = format!("do it\n{CURRENT}\n- not this\n\n");
        let prompted = prompt(&plan_ref(), text.clone());
        assert_eq!(current(&prompted).map(str::trim), Some("- R1: a"), "{prompted}");
        assert!(prompted.starts_with("do it\n"), "{prompted}");
        assert_eq!(prompt(&PlanRef::default(), text.clone()), text);
    }
}
