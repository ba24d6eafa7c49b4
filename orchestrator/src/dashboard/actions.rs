//! The commands that the dashboard runs in the background: the same verbs as on the command line.

use base::failure::Failure;
use base::id::Id;
use serde_json::Value;

use crate::dashboard::keys::Action;

/// A verb of the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Answer,
    Send,
    Stop,
    Resume,
    Accept,
    Discard,
    Undo,
    Run,
}

impl Verb {
    /// Returns its name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Verb::Answer => "answer",
            Verb::Send => "send",
            Verb::Stop => "stop",
            Verb::Resume => "resume",
            Verb::Accept => "accept",
            Verb::Discard => "discard",
            Verb::Undo => "undo",
            Verb::Run => "run",
        }
    }

    /// Returns the state of a session during the command.
    pub(crate) fn progress(self) -> &'static str {
        match self {
            Verb::Answer => "answering",
            Verb::Send => "sending",
            Verb::Stop => "stopping",
            Verb::Resume => "resuming",
            Verb::Accept => "landing",
            Verb::Discard => "discarding",
            Verb::Undo => "undoing",
            Verb::Run => "starting",
        }
    }
}

/// A command for the background.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BackgroundCommand {
    /// Its verb.
    pub verb: Verb,
    /// Its session, if it has one.
    pub id: Option<Id>,
    /// The arguments after the common flags.
    pub words: Vec<String>,
    /// Its stdin.
    pub input: Option<String>,
}

impl BackgroundCommand {
    /// Creates a command with a session as its only argument.
    pub(crate) fn of(verb: Verb, id: &Id) -> BackgroundCommand {
        let mut words = vec![verb.name().to_owned()];
        if verb == Verb::Discard {
            words.push("--yes".to_owned());
        }
        words.push(id.as_str().to_owned());
        BackgroundCommand { verb, id: Some(id.clone()), words, input: None }
    }

    /// Creates a `send` with a message.
    pub(crate) fn send(id: &Id, text: &str) -> BackgroundCommand {
        let mut command = BackgroundCommand::of(Verb::Send, id);
        command.words.extend(["--".to_owned(), text.to_owned()]);
        command
    }

    /// Creates an `answer` to a request.
    pub(crate) fn answer(id: &Id, number: u32, action: Action) -> BackgroundCommand {
        let mut command = BackgroundCommand::of(Verb::Answer, id);
        let answer = if action == Action::Deny { "deny" } else { "allow" };
        command.words.extend([number.to_string(), answer.to_owned()]);
        if action == Action::AllowAlways {
            command.words.push("--always".to_owned());
        }
        command
    }

    /// Creates an `undo` of an operation, or of the last one.
    pub(crate) fn undo(operation: Option<String>) -> BackgroundCommand {
        let words = std::iter::once("undo".to_owned()).chain(operation).collect();
        BackgroundCommand { verb: Verb::Undo, id: None, words, input: None }
    }

    /// Creates a `run` of a task.
    pub(crate) fn run(task: String) -> BackgroundCommand {
        let words = ["run", "--detach", "-"].map(str::to_owned).to_vec();
        BackgroundCommand { verb: Verb::Run, id: None, words, input: Some(task) }
    }

    /// Returns a question and the command that lands the same work after a yes, if the work was
    /// refused because the user must confirm it.
    pub(crate) fn question(&self, output: &Value) -> Option<(String, BackgroundCommand)> {
        let id = self.id.as_ref()?;
        let confirm = &output["refused"][0]["confirm"];
        let flag = confirm["flag"].as_str()?.to_owned();
        let question = match flag.as_str() {
            "--yes" => format!("{id} changed since you looked at it"),
            "--allow-check-changes" => format!("{id} changes what its checks run"),
            _ => return None,
        };
        let tree = format!("--match-tree={}", confirm["tree"].as_str()?);
        let mut command = self.clone();
        for word in [flag, tree] {
            if !command.words.contains(&word) {
                command.words.insert(1, word);
            }
        }
        (command != *self).then_some((question, command))
    }

    /// Describes the running command.
    pub(crate) fn progress(&self) -> String {
        match &self.id {
            Some(id) => format!("{id}: {} …", self.verb.progress()),
            None => format!("{} …", self.verb.progress()),
        }
    }

    /// Describes the result, from the command's JSON output.
    pub(crate) fn outcome(&self, output: &Value) -> String {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let id = self.id.as_ref().map(Id::as_str).unwrap_or_default();
        match self.verb {
            Verb::Answer => {
                let word = if output["allow"] == true { "allowed" } else { "denied" };
                let scope = match (output["always"] == true, output["host"].is_string()) {
                    (true, true) => " in all sessions",
                    (true, false) => " for this session",
                    (false, _) => "",
                };
                let number = self.words.get(2).map(String::as_str).unwrap_or_default();
                format!("{id}: permission {number} {word}{scope}")
            }
            Verb::Send => format!("{id}: message sent"),
            Verb::Stop => format!("{id} stopped; r resumes it"),
            Verb::Resume => format!("{id} resumed"),
            Verb::Discard => format!("{id} discarded; u undoes it"),
            Verb::Undo => format!("{} is undone", text(&output["undone"])),
            Verb::Run => format!("started {}", text(&output["id"])),
            Verb::Accept => {
                let landed = &output["landed"][0];
                let commit = text(&landed["commit"]);
                let short = base::text::head(&commit, 12);
                format!("{id} landed on {} as {short}; u undoes it", text(&landed["target"]))
            }
        }
    }
}

/// Why a command failed.
#[derive(Debug)]
pub(crate) struct CommandError {
    /// The failure.
    pub failure: Failure,
    /// What the user can confirm, and the command that then runs.
    pub question: Option<Box<(String, BackgroundCommand)>>,
}

impl From<Failure> for CommandError {
    fn from(failure: Failure) -> CommandError {
        CommandError { failure, question: None }
    }
}

/// Returns the failure that a command reported as JSON, or on stderr.
pub(crate) fn failure(output: &Value, stderr: &str) -> Failure {
    if let Some(failure) = Failure::from_json(&output["error"]) {
        return failure;
    }
    // `accept` refuses each session by itself.
    if let Some(why) = output["refused"][0]["why"].as_str() {
        return Failure::refused(why);
    }
    let text = stderr.trim();
    Failure::failed(if text.is_empty() { "the command failed" } else { text })
}
