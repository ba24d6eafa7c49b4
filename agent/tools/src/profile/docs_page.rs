//! Generates `docs/tools.md` from the table.

use std::fmt::Write;

use serde_json::Value;

use super::{ALWAYS, ProfileTool, tools};
use crate::profile::Profile;

const HEAD: &str = "\
# Tools

This page is made from the tables in `agent/tools/src/profile` by `g3 tool list --markdown`, and a test keeps it so.

A profile is a set of names and parameters for the same tools, as other agents use them: `--profile NAME` or `[agent] profile`. `all` has every name once. A call by any name below works in every profile; switches decide only whether a tool is offered to a model. Parameters in bold are required. Numbers as strings and whole floats are accepted; unknown parameters are ignored with a note; missing or contradictory ones are an error, and nothing is done.

`g3 tool exec --profile P --name N --args JSON` runs a tool without a model: exit code 0 on success, 1 if the tool failed, 2 for an invalid call. With `--json` it prints one object with `ok`, `text`, `metadata`, `images`, `duration_ms`, `escalate` and `error_kind`, else the text as a model reads it. `g3 tool list --profile P --schemas` prints the JSON Schemas, `g3 tool check` shows the gate's decision about a call (gate.md), and `g3 tool undo` undoes the last write of a tool (sessions.md).

A result is cut to about a fifth of the model's context window, 208 KiB at most; the whole result is saved in a file of the session, and the result names it. Arrays and objects of the profile `core` stay valid JSON.

A file that has changed since the session last read it is not overwritten blindly. An edit whose text or lines match the file exactly is made, and the result shows the other changes; any other write is refused once with a diff of the changes, and the next attempt is allowed. Reading a file, a search that shows lines of it, and the session's own writes count as reading.
";

/// Returns the page with all profiles and tools.
pub fn markdown() -> String {
    let mut page = HEAD.to_owned();
    for profile in Profile::EACH {
        let _ = write!(page, "\n## Profile `{}`\n", profile.name());
        tools(profile).into_iter().for_each(|tool| section(&mut page, tool));
    }
    page
}

fn section(page: &mut String, tool: &ProfileTool) {
    let kind_name = tool.kind.name();
    let switch = match tool.enabled_by.as_str() {
        ALWAYS => String::new(),
        switch => format!(", offered with {switch}"),
    };
    let _ = write!(page, "\n### `{}`\n\n*{kind_name}{switch}.* {}\n", tool.name, tool.description);
    let properties = tool.parameters["properties"].as_object();
    let rows: Vec<String> =
        properties.into_iter().flatten().map(|(key, schema)| row(tool, key, schema)).collect();
    if !rows.is_empty() {
        let _ = write!(page, "\n| parameter | type | meaning |\n|---|---|---|\n{}", rows.concat());
    }
    if !tool.hidden_parameters.is_empty() {
        let hidden: Vec<String> =
            tool.hidden_parameters.keys().map(|key| format!("`{key}`")).collect();
        let _ = write!(page, "\nAlso understood: {}.\n", hidden.join(", "));
    }
}

fn row(tool: &ProfileTool, key: &str, schema: &Value) -> String {
    let is_required = tool.required().any(|required| required == key);
    let name = if is_required { format!("**`{key}`**") } else { format!("`{key}`") };
    let kind = schema["type"].as_str().unwrap_or_default();
    let choices: Vec<&str> =
        schema["enum"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let kind = if choices.is_empty() { kind.to_owned() } else { choices.join(", ") };
    let description = schema["description"].as_str().unwrap_or_default().replace('|', "\\|");
    format!("| {name} | {kind} | {description} |\n")
}
