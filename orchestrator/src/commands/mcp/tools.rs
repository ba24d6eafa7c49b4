//! The tools of `studio mcp serve`: one table that says for each its parameters and the command
//! that it runs.

use std::sync::Arc;

use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::{Value, json};

/// What a tool does to sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ToolEffect {
    /// It only reads.
    Reads,
    /// It starts, continues or stops agents.
    Runs,
    /// It changes a branch of the user or drops work: the user must agree.
    Asks,
}

/// The type of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ParameterType {
    /// A text.
    Text,
    /// A list of texts.
    Texts,
    /// A number.
    Number,
    /// True or false.
    Switch,
}

/// Where a parameter goes in the command line.
#[derive(Clone, Copy, Debug)]
enum Position {
    /// The value of an option.
    Option(&'static str),
    /// The session's id.
    Id,
    /// After `--`.
    Last,
}

/// A parameter of a tool.
#[derive(Clone, Copy, Debug)]
struct Parameter {
    name: &'static str,
    kind: ParameterType,
    position: Position,
    is_required: bool,
    description: &'static str,
}

/// A tool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StudioTool {
    /// The name.
    pub name: &'static str,
    /// What it does to sessions.
    pub effect: ToolEffect,
    description: &'static str,
    command: &'static str,
    parameters: &'static [Parameter],
}

const fn parameter(
    name: &'static str,
    kind: ParameterType,
    position: Position,
    description: &'static str,
) -> Parameter {
    Parameter { name, kind, position, is_required: false, description }
}

const fn required(parameter: Parameter) -> Parameter {
    Parameter { is_required: true, ..parameter }
}

const ID: Parameter = parameter(
    "id",
    ParameterType::Text,
    Position::Id,
    "Session id or unique prefix; optional where only one session fits",
);

/// Every tool, in the order in which clients see them.
pub(crate) const TOOLS: &[StudioTool] = &[
    StudioTool {
        name: "list",
        effect: ToolEffect::Reads,
        description: "List the sessions of the repository: id, task, state, reason, changes, checks, cost, conflicts and suggested commands.",
        command: "list",
        parameters: &[parameter(
            "all",
            ParameterType::Switch,
            Position::Option("--all"),
            "Also list accepted and discarded sessions",
        )],
    },
    StudioTool {
        name: "status",
        effect: ToolEffect::Reads,
        description: "Show one session in full.",
        command: "status",
        parameters: &[ID],
    },
    StudioTool {
        name: "inbox",
        effect: ToolEffect::Reads,
        description: "List what needs the user over all sessions: open permission requests and settled sessions. Only the user can answer a request.",
        command: "inbox",
        parameters: &[],
    },
    StudioTool {
        name: "diff",
        effect: ToolEffect::Reads,
        description: "Show the changes of a session as a patch, including uncommitted ones.",
        command: "diff",
        parameters: &[
            ID,
            parameter(
                "paths",
                ParameterType::Texts,
                Position::Last,
                "Limit the patch to these files and directories",
            ),
        ],
    },
    StudioTool {
        name: "run",
        effect: ToolEffect::Runs,
        description: "Start one coding agent session per task, each in a worktree and branch of its own, and return at once. Poll `status` until the state is ready, failed or empty.",
        command: "exec",
        parameters: &[
            required(parameter(
                "tasks",
                ParameterType::Texts,
                Position::Last,
                "Task texts, one session each",
            )),
            parameter(
                "agent",
                ParameterType::Text,
                Position::Option("--agent"),
                "Agent name, or several names separated by commas that take the tasks in turn",
            ),
            parameter(
                "base",
                ParameterType::Text,
                Position::Option("--base"),
                "Branch, tag or commit to start from (default: HEAD)",
            ),
            parameter(
                "checks",
                ParameterType::Texts,
                Position::Option("--check"),
                "Shell commands that must pass, in addition to the configured checks",
            ),
            parameter(
                "model",
                ParameterType::Text,
                Position::Option("--model"),
                "Model of the agent",
            ),
            parameter(
                "persona",
                ParameterType::Text,
                Position::Option("--persona"),
                "Persona for g3",
            ),
            parameter(
                "budget",
                ParameterType::Number,
                Position::Option("--budget"),
                "Maximum cost of a session in US dollars",
            ),
            parameter(
                "max_turns",
                ParameterType::Number,
                Position::Option("--max-turns"),
                "Maximum number of model replies in a session",
            ),
            parameter(
                "timeout",
                ParameterType::Number,
                Position::Option("--timeout"),
                "Maximum working time of a session in seconds",
            ),
        ],
    },
    StudioTool {
        name: "send",
        effect: ToolEffect::Runs,
        description: "Send a message to a session's agent: at the end of its turn, or by resuming the session.",
        command: "send",
        parameters: &[
            required(ID),
            required(parameter("text", ParameterType::Text, Position::Last, "Message text")),
        ],
    },
    StudioTool {
        name: "stop",
        effect: ToolEffect::Runs,
        description: "Stop a session; its work is kept and it can be resumed.",
        command: "stop",
        parameters: &[required(ID)],
    },
    StudioTool {
        name: "resume",
        effect: ToolEffect::Runs,
        description: "Resume a stopped, failed or crashed session.",
        command: "resume",
        parameters: &[required(ID)],
    },
    StudioTool {
        name: "accept",
        effect: ToolEffect::Asks,
        description: "Land a session's work on its branch after its checks pass on the merged tree. The user is asked first.",
        command: "accept",
        parameters: &[
            required(ID),
            parameter(
                "message",
                ParameterType::Text,
                Position::Option("--message"),
                "Commit message (default: written by a model)",
            ),
            parameter(
                "onto",
                ParameterType::Text,
                Position::Option("--onto"),
                "Branch to land on (default: the branch that the session started from)",
            ),
        ],
    },
    StudioTool {
        name: "discard",
        effect: ToolEffect::Asks,
        description: "Discard a session; `studio undo` restores it. The user is asked first.",
        command: "discard",
        parameters: &[required(ID)],
    },
];

/// Returns the tool with this name.
pub(crate) fn find(name: &str) -> Option<&'static StudioTool> {
    TOOLS.iter().find(|tool| tool.name == name)
}

impl StudioTool {
    /// Returns the tool as the protocol describes it.
    pub(crate) fn definition(&self) -> Tool {
        let properties: serde_json::Map<String, Value> = self
            .parameters
            .iter()
            .map(|parameter| (parameter.name.to_owned(), parameter.schema()))
            .collect();
        let is_required = |parameter: &&Parameter| parameter.is_required;
        let required: Vec<&str> =
            self.parameters.iter().filter(is_required).map(|parameter| parameter.name).collect();
        let schema = json!({
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": false,
        });
        let schema = schema.as_object().cloned().unwrap_or_default();
        let annotations = ToolAnnotations::new()
            .read_only(self.effect == ToolEffect::Reads)
            .destructive(self.effect == ToolEffect::Asks);
        Tool::new(self.name, self.description, Arc::new(schema)).with_annotations(annotations)
    }

    /// Returns the command line for these arguments, or what is wrong with them.
    pub(crate) fn command_line(&self, arguments: &JsonObject) -> Result<Vec<String>, String> {
        if let Some(unknown) = arguments.keys().find(|key| self.parameter(key).is_none()) {
            let known: Vec<&str> = self.parameters.iter().map(|it| it.name).collect();
            return Err(format!("unknown argument `{unknown}`; valid ones: {}", known.join(", ")));
        }
        let mut command = vec![self.command.to_owned()];
        let (mut id, mut last) = (None, Vec::new());
        for parameter in self.parameters {
            let value = arguments.get(parameter.name).filter(|value| !value.is_null());
            let Some(value) = value else {
                match parameter.is_required {
                    true => return Err(format!("missing argument `{}`", parameter.name)),
                    false => continue,
                }
            };
            let values = parameter.values(value)?;
            match parameter.position {
                // `--name=value`, so that a value with a leading hyphen is not an option.
                Position::Option(name) if parameter.kind == ParameterType::Switch => {
                    command.extend(values.iter().map(|_| name.to_owned()));
                }
                Position::Option(name) => {
                    command.extend(values.iter().map(|value| format!("{name}={value}")));
                }
                Position::Id => id = values.into_iter().next(),
                Position::Last => last = values,
            }
        }
        if let Some(id) = id {
            if id.starts_with('-') || id.is_empty() {
                return Err(format!("invalid session id `{id}`"));
            }
            command.push(id);
        }
        if !last.is_empty() {
            command.push("--".to_owned());
            command.extend(last);
        }
        Ok(command)
    }

    fn parameter(&self, name: &str) -> Option<&Parameter> {
        self.parameters.iter().find(|parameter| parameter.name == name)
    }
}

impl Parameter {
    fn schema(&self) -> Value {
        let description = self.description;
        match self.kind {
            ParameterType::Text => json!({"type": "string", "description": description}),
            ParameterType::Texts => json!({
                "type": "array", "items": {"type": "string"}, "description": description,
            }),
            ParameterType::Number => json!({"type": "number", "description": description}),
            ParameterType::Switch => json!({"type": "boolean", "description": description}),
        }
    }

    /// Returns the values as words of a command line; none for a switch that is off.
    fn values(&self, value: &Value) -> Result<Vec<String>, String> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let (values, expected) = match self.kind {
            ParameterType::Text => (text(value).map(|text| vec![text]), "a string"),
            ParameterType::Texts => {
                let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
                let texts: Option<Vec<String>> = items.iter().map(text).collect();
                (texts.filter(|texts| !texts.is_empty()), "a list of strings")
            }
            ParameterType::Number => {
                (value.as_number().map(|number| vec![number.to_string()]), "a number")
            }
            ParameterType::Switch => {
                let on = |is_on| if is_on { vec![String::new()] } else { Vec::new() };
                (value.as_bool().map(on), "true or false")
            }
        };
        values.ok_or_else(|| format!("argument `{}` must be {expected}", self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command_line(name: &str, arguments: &Value) -> Result<Vec<String>, String> {
        find(name).unwrap().command_line(arguments.as_object().unwrap())
    }

    #[test]
    fn arguments_become_the_command_that_a_user_would_type() {
        let run = json!({"tasks": ["--help", "two"], "checks": ["a b", "c"], "budget": 0.5});
        assert_eq!(
            command_line("run", &run).unwrap(),
            ["exec", "--check=a b", "--check=c", "--budget=0.5", "--", "--help", "two"]
        );
        let send = json!({"id": "fix", "text": "-y"});
        assert_eq!(command_line("send", &send).unwrap(), ["send", "fix", "--", "-y"]);
        assert_eq!(command_line("list", &json!({"all": false})).unwrap(), ["list"]);
        assert_eq!(command_line("list", &json!({"all": true})).unwrap(), ["list", "--all"]);
    }

    #[test]
    fn wrong_arguments_are_rejected() {
        for (name, arguments, expected) in [
            ("send", json!({"id": "fix"}), "missing argument `text`"),
            ("accept", json!({"id": "--all"}), "invalid session id `--all`"),
            ("list", json!({"al": true}), "unknown argument `al`; valid ones: all"),
            ("list", json!({"all": "yes"}), "argument `all` must be true or false"),
            ("run", json!({"tasks": "one"}), "argument `tasks` must be a list of strings"),
            ("run", json!({"tasks": []}), "argument `tasks` must be a list of strings"),
        ] {
            assert_eq!(command_line(name, &arguments).unwrap_err(), expected);
        }
    }

    #[test]
    fn names_are_unique() {
        for (index, tool) in TOOLS.iter().enumerate() {
            assert_eq!(TOOLS.iter().position(|other| other.name == tool.name), Some(index));
        }
    }
}
