//! The policy `core-exact`: routes a call by its tool name and the words of its command, like the
//! evaluator of the core tools, including its false positives. Pure: nothing is executed.

use base::config::agent::GateConfig as Config;
use base::failure::{Failure, Result};
use regex::Regex;
use serde::Serialize;
use serde_json::Value;

use command::Destructive;
use rows::{Announcement, ToolRoute};

mod command;
pub mod rows;

/// The tool whose argument is a command line.
pub(crate) const COMMAND: &str = "execute_cli";

/// Where a call runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Route {
    /// On this machine, as usual.
    Host,
    /// In the sandbox.
    Sandbox,
}

/// The decision about a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Judgement {
    /// Where it runs.
    pub route: Route,
    /// The reason, for programs.
    pub reason: String,
    /// The reason, to be spoken; empty if there is nothing to say.
    pub voice_message: String,
    /// Whether the user is asked first. Calls routed to the sandbox always ask.
    pub require_confirmation: bool,
}

/// The evaluator with its lists.
#[derive(Debug)]
pub struct Evaluator {
    /// The text as written, and the pattern that finds it in a command.
    forbidden: Vec<(String, Regex)>,
    restricted: Vec<String>,
    destructive: Destructive,
}

impl Evaluator {
    /// Creates an evaluator. Each list of the user replaces the built-in one.
    pub fn new(config: &Config) -> Result<Evaluator> {
        let forbidden = list_or_default(config.forbidden.as_ref(), &rows::FORBIDDEN);
        let compile =
            |text: String| Ok((text.clone(), pattern("forbidden", &at_word_start(&text))?));
        Ok(Evaluator {
            forbidden: forbidden.into_iter().map(compile).collect::<Result<_>>()?,
            restricted: list_or_default(config.restricted.as_ref(), &rows::RESTRICTED),
            destructive: Destructive::new(&list_or_default(
                config.destructive.as_ref(),
                &rows::DESTRUCTIVE,
            ))?,
        })
    }

    /// Evaluates a call. `forced` means that the user decided that it runs on this machine.
    pub fn judge(&self, tool: &str, args: &Value, forced: bool) -> Judgement {
        if forced {
            return host(&rows::FORCED);
        }
        let text = |key: &str| args.get(key).and_then(Value::as_str).unwrap_or_default();
        match rows::route_of(tool) {
            Some(ToolRoute::Host(announcement)) => host(announcement),
            Some(ToolRoute::File) => {
                let file_path = Some(text("file_path")).filter(|text| !text.is_empty());
                match self.restricted_in(file_path.unwrap_or_else(|| text("path"))) {
                    Some(path) => sandbox(&rows::RESTRICTED_FILE, path),
                    None => host(&rows::FILE),
                }
            }
            Some(ToolRoute::Command) => self.command(text("command")),
            None => sandbox(&rows::UNKNOWN, ""),
        }
    }

    fn command(&self, line: &str) -> Judgement {
        if line.is_empty() {
            return host(&rows::EMPTY);
        }
        // For a shell, quoted text is part of its word.
        let unquoted = line.replace(['\'', '"'], "");
        let is_named = |regex: &Regex| regex.is_match(line) || regex.is_match(&unquoted);
        if let Some((text, _)) = self.forbidden.iter().find(|(_, regex)| is_named(regex)) {
            return sandbox(&rows::FORBIDDEN_COMMAND, text);
        }
        if let Some(path) = self.restricted_in(line).or_else(|| self.restricted_in(&unquoted)) {
            return sandbox(&rows::RESTRICTED_PATH, path);
        }
        host(if self.destructive.matches(line) { &rows::DESTRUCTIVE_COMMAND } else { &rows::SAFE })
    }

    fn restricted_in(&self, text: &str) -> Option<&str> {
        let is_contained = |path: &&String| match cfg!(windows) {
            true => text.to_lowercase().contains(&path.to_lowercase()),
            false => text.contains(path.as_str()),
        };
        self.restricted.iter().find(is_contained).map(String::as_str)
    }
}

fn list_or_default(configured: Option<&Vec<String>>, built_in: &[&str]) -> Vec<String> {
    let built_in = || built_in.iter().map(|text| (*text).to_owned()).collect();
    let all: Vec<String> = configured.cloned().unwrap_or_else(built_in);
    // An empty text would match every command.
    all.into_iter().filter(|text| !text.is_empty()).collect()
}

/// Returns a pattern for a text that starts at a word boundary.
fn at_word_start(text: &str) -> String {
    format!(r"(?i)\b{}", regex::escape(text))
}

fn pattern(list: &str, pattern: &str) -> Result<Regex> {
    Regex::new(pattern).map_err(|error| {
        Failure::usage(format!("`gate.{list}` is too long to be searched for")).because(error)
    })
}

fn host(announcement: &Announcement) -> Judgement {
    judgement(Route::Host, announcement, "")
}

fn sandbox(announcement: &Announcement, what: &str) -> Judgement {
    judgement(Route::Sandbox, announcement, what)
}

fn judgement(route: Route, announcement: &Announcement, what: &str) -> Judgement {
    let reason = match what {
        "" => announcement.reason.to_owned(),
        what => format!("{}: {what}", announcement.reason),
    };
    let voice_message = announcement.voice_message.to_owned();
    Judgement {
        route,
        reason,
        voice_message,
        require_confirmation: announcement.require_confirmation,
    }
}

#[cfg(test)]
mod tests;
