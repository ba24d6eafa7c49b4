//! `g3 --auto`: every line is one requirement more, and starts an autonomous run over all of them.

mod list;
mod prompt;

use std::io::IsTerminal;
use std::sync::Arc;

use base::event::Status;
use base::failure::{Kind, Result};
use base::text::count;

use self::list::List;
use self::prompt::Prompt;
use super::autonomous::{self, How, Order};
use super::interactive::{self, Opening};
use super::interrupt::Interrupts;
use crate::prompt::Identity;
use crate::run::Settings;
use crate::ui::terminal::QuietInput;
use crate::ui::{self, Bus};
use gate::Asker;

const HELP: &str = "\
Write a requirement: it is added to .g3/requirements.md, and a run over all of them begins.
/requirements  shows them
/chat          goes over to a conversation that knows them
/help          shows this
exit, quit     leaves, as Ctrl-D does; Ctrl-C cancels a run";

/// What a line means.
#[derive(Debug, PartialEq, Eq)]
enum Said<'a> {
    Requirement(&'a str),
    Requirements,
    Chat,
    Help,
    Exit,
    Unknown(&'a str),
    Nothing,
}

fn said(line: &str) -> Said<'_> {
    match line.trim() {
        "" => Said::Nothing,
        "exit" | "quit" | "/exit" | "/quit" => Said::Exit,
        "/requirements" => Said::Requirements,
        "/chat" => Said::Chat,
        "/help" => Said::Help,
        // A path may begin a requirement; a single word with a slash before it is a command.
        other if other.starts_with('/') && !other[1..].contains(['/', ' ', '.']) => {
            Said::Unknown(other)
        }
        other => Said::Requirement(other),
    }
}

/// Takes requirements until the user leaves. Where nobody watches, the end is that of the last run.
pub async fn run(order: Order, bus: Arc<Bus>, asker: Option<Arc<dyn Asker>>) -> Result<Status> {
    let mut list = List::open(&order.settings.cwd)?;
    let interrupts = Interrupts::listen()?;
    let mut prompt = Prompt::open()?;
    ui::say(&match list.items().len() {
        0 => "no requirements yet; /help shows the commands".to_owned(),
        n => format!(
            "{} in {}; /help shows the commands",
            count(n, "requirement"),
            list.path().display()
        ),
    });
    let mut last = Status::Done;
    loop {
        let (back, line) = prompt.read().await?;
        prompt = back;
        let Some(line) = line else { break };
        match said(&line) {
            Said::Nothing => {}
            Said::Exit => break,
            Said::Help => ui::say(HELP),
            Said::Requirements => show(&list),
            Said::Unknown(name) => ui::say(&format!("there is no command `{name}`; /help")),
            Said::Chat => {
                drop((interrupts, prompt));
                let settings = knowing(&order.settings, &list);
                let opening = Opening::default();
                return interactive::run(settings, opening, bus, asker).await;
            }
            Said::Requirement(text) => {
                if let Err(failure) = list.add(text) {
                    ui::fail(&failure);
                }
                let order = Order { how: How::New(list.text()), ..order.clone() };
                let (tokens, _quiet) = (interrupts.begin(), QuietInput::begin());
                let ended = autonomous::run(&order, bus.clone(), asker.clone(), &tokens).await;
                interrupts.over();
                last = match ended {
                    Ok(status) => status,
                    Err(failure) if failure.kind == Kind::Interrupted => return Err(failure),
                    Err(failure) => {
                        ui::fail(&failure);
                        let refused = failure.kind == Kind::Refused;
                        if refused { Status::NotApproved } else { Status::Failed }
                    }
                };
            }
        }
    }
    Ok(if std::io::stdin().is_terminal() { Status::Done } else { last })
}

fn show(list: &List) {
    match list.items() {
        items if items.is_empty() => ui::say("no requirements yet"),
        items => items.iter().for_each(|(id, text)| ui::say(&format!("{id}  {text}"))),
    }
}

/// Settings for a conversation that knows the requirements.
fn knowing(settings: &Settings, list: &List) -> Settings {
    let mut settings = settings.clone();
    settings.limits.turns = None;
    if !list.items().is_empty() {
        settings.role.identity = Identity::knowing("The requirements so far:", &list.text());
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_and_requirements_are_told_apart() {
        assert_eq!(said(" quit "), Said::Exit);
        assert_eq!(said("/nope"), Said::Unknown("/nope"));
        assert_eq!(said("/usr/bin/x must exist"), Said::Requirement("/usr/bin/x must exist"));
        assert_eq!(said("quit when told so"), Said::Requirement("quit when told so"));
        assert_eq!(said("  "), Said::Nothing);
    }
}
