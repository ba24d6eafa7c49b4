//! `g3 --auto`: reads requirements line by line, and starts an autonomous run over all of them
//! after each one.

mod list;
mod prompt;

use std::io::IsTerminal;
use std::sync::Arc;

use base::event::RunStatus;
use base::failure::{FailureKind, Result};
use base::text::count;

use self::list::RequirementList;
use self::prompt::LinePrompt;
use super::autonomous::{self, RunOrigin, RunRequest};
use super::interactive::{self, Opening};
use super::interrupt::Interrupts;
use crate::ui;
use crate::ui::terminal::QuietInput;
use agent_core::bus::Bus;
use agent_core::prompt::Identity;
use agent_core::run::AgentSettings;
use gate::Asker;

const HELP: &str = "\
Write a requirement: it is added to .g3/requirements.md, and a run over all of them begins.
/requirements  shows them
/chat          goes over to a conversation that knows them
/help          shows this
exit, quit     leaves, as Ctrl-D does; Ctrl-C cancels a run";

/// The meaning of a line.
#[derive(Debug, PartialEq, Eq)]
enum ParsedLine<'a> {
    Requirement(&'a str),
    Requirements,
    Chat,
    Help,
    Exit,
    Unknown(&'a str),
    Nothing,
}

fn parse(line: &str) -> ParsedLine<'_> {
    match line.trim() {
        "" => ParsedLine::Nothing,
        "exit" | "quit" | "/exit" | "/quit" => ParsedLine::Exit,
        "/requirements" => ParsedLine::Requirements,
        "/chat" => ParsedLine::Chat,
        "/help" => ParsedLine::Help,
        // A requirement may start with a path; a single word after a slash is a command.
        other if other.starts_with('/') && !other[1..].contains(['/', ' ', '.']) => {
            ParsedLine::Unknown(other)
        }
        other => ParsedLine::Requirement(other),
    }
}

/// Reads requirements until the user exits. Returns `Done` on a terminal, and the status of the
/// last run otherwise.
pub(crate) async fn run(
    request: RunRequest,
    bus: Arc<Bus>,
    asker: Option<Arc<dyn Asker>>,
) -> Result<RunStatus> {
    let mut list = RequirementList::open(&request.settings.cwd)?;
    let interrupts = Interrupts::listen()?;
    let mut prompt = LinePrompt::open()?;
    ui::say(&match list.items().len() {
        0 => "no requirements yet; /help shows the commands".to_owned(),
        n => format!(
            "{} in {}; /help shows the commands",
            count(n, "requirement"),
            list.path().display()
        ),
    });
    let mut last = RunStatus::Done;
    loop {
        let (back, line) = prompt.read().await?;
        prompt = back;
        let Some(line) = line else { break };
        match parse(&line) {
            ParsedLine::Nothing => {}
            ParsedLine::Exit => break,
            ParsedLine::Help => ui::say(HELP),
            ParsedLine::Requirements => show(&list),
            ParsedLine::Unknown(name) => ui::say(&format!("no such command: `{name}`; see /help")),
            ParsedLine::Chat => {
                drop((interrupts, prompt));
                let settings = knowing(&request.settings, &list);
                let opening = Opening::default();
                return interactive::run(settings, opening, bus, asker).await;
            }
            ParsedLine::Requirement(text) => {
                if let Err(failure) = list.add(text) {
                    ui::fail(&failure);
                }
                let request = RunRequest { origin: RunOrigin::New(list.text()), ..request.clone() };
                let (tokens, _quiet) = (interrupts.begin(), QuietInput::begin());
                let ended = autonomous::run(&request, bus.clone(), asker.clone(), &tokens).await;
                interrupts.over();
                last = match ended {
                    Ok(status) => status,
                    Err(failure) if failure.kind == FailureKind::Interrupted => {
                        return Err(failure);
                    }
                    Err(failure) => {
                        ui::fail(&failure);
                        let refused = failure.kind == FailureKind::Refused;
                        if refused { RunStatus::NotApproved } else { RunStatus::Failed }
                    }
                };
            }
        }
    }
    Ok(if std::io::stdin().is_terminal() { RunStatus::Done } else { last })
}

fn show(list: &RequirementList) {
    match list.items() {
        items if items.is_empty() => ui::say("no requirements yet"),
        items => items.iter().for_each(|(id, text)| ui::say(&format!("{id}  {text}"))),
    }
}

/// Returns settings for an interactive session whose prompt includes the requirements.
fn knowing(settings: &AgentSettings, list: &RequirementList) -> AgentSettings {
    let mut settings = settings.clone();
    settings.limits.turns = None;
    if !list.items().is_empty() {
        settings.role.identity = Identity::with_section("The requirements so far:", &list.text());
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_and_requirements_are_distinguished() {
        assert_eq!(parse(" quit "), ParsedLine::Exit);
        assert_eq!(parse("/nope"), ParsedLine::Unknown("/nope"));
        assert_eq!(
            parse("/usr/bin/x must exist"),
            ParsedLine::Requirement("/usr/bin/x must exist")
        );
        assert_eq!(parse("quit when told so"), ParsedLine::Requirement("quit when told so"));
        assert_eq!(parse("  "), ParsedLine::Nothing);
    }
}
