//! The page about tools, made from the table.

use std::fmt::Write;

use serde_json::Value;

use super::{ALWAYS, ProfileTool, faces};
use crate::tools::profile::Profile;

const HEAD: &str = "\
# Tools

This page is made from the tables in `agent/src/tools/profile` by `g3 tool list --markdown`, and a test keeps it so.

A profile is a set of names for the same engines, as an ecosystem knows them: `--profile NAME` or `[agent] profile`. `all` has every name once. Whatever the profile, a call by any name below is understood; what switches a tool on decides only whether a model is offered it. Parameters in bold must be given. Numbers given as texts and whole floats are accepted; parameters that are not known are passed over with a note; a missing or contradictory one is an error, and nothing is done.

`g3 tool exec --profile P --name N --args JSON` runs a tool without a model: exit code 0 when it worked, 1 when it failed, 2 when the call was a bad one. With `--json` it prints one object with `ok`, `text`, `metadata`, `images`, `duration_ms`, `escalate` and `error_kind`, else the text as a model reads it. `g3 tool list --profile P --schemas` prints the JSON Schemas, `g3 tool check` tells what the gate would say of a call (gate.md), and `g3 tool undo` takes back what a tool wrote last (sessions.md).

A result is cut to about a fifth of the model's context window, 208 KiB at most; all of it is kept in a file of the session, and the result says where. Arrays and objects of the profile `core` stay valid JSON.

A file that changed since the session last saw it is not overwritten unseen. An edit whose text or lines stand in the file exactly goes through, and the result shows what else changed; any other change is refused once with a diff of what changed, and the next try counts as informed. Reading a file, a search that shows lines of it, and every own write count as seeing it.
";

/// All profiles, tool by tool.
pub fn markdown() -> String {
    let mut page = HEAD.to_owned();
    for profile in Profile::EACH {
        let _ = write!(page, "\n## Profile `{}`\n", profile.name());
        faces(profile).into_iter().for_each(|face| section(&mut page, face));
    }
    page
}

fn section(page: &mut String, face: &ProfileTool) {
    let engine = face.engine.name();
    let switch = match face.enabled_by.as_str() {
        ALWAYS => String::new(),
        switch => format!(", offered with {switch}"),
    };
    let _ = write!(page, "\n### `{}`\n\n*{engine}{switch}.* {}\n", face.name, face.description);
    let properties = face.parameters["properties"].as_object();
    let rows: Vec<String> =
        properties.into_iter().flatten().map(|(key, schema)| row(face, key, schema)).collect();
    if !rows.is_empty() {
        let _ = write!(page, "\n| parameter | type | meaning |\n|---|---|---|\n{}", rows.concat());
    }
    if !face.also.is_empty() {
        let also: Vec<String> = face.also.keys().map(|key| format!("`{key}`")).collect();
        let _ = write!(page, "\nAlso understood: {}.\n", also.join(", "));
    }
}

fn row(face: &ProfileTool, key: &str, schema: &Value) -> String {
    let is_required = face.required().any(|required| required == key);
    let name = if is_required { format!("**`{key}`**") } else { format!("`{key}`") };
    let kind = schema["type"].as_str().unwrap_or_default();
    let choices: Vec<&str> =
        schema["enum"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let kind = if choices.is_empty() { kind.to_owned() } else { choices.join(", ") };
    let about = schema["description"].as_str().unwrap_or_default().replace('|', "\\|");
    format!("| {name} | {kind} | {about} |\n")
}
