//! Permission requests of the protocol: their text for the user, and the response.

use std::path::PathBuf;

use agent_client_protocol::v1::schema::{
    PermissionOption, PermissionOptionKind, RequestPermissionOutcome, RequestPermissionResponse,
    SelectedPermissionOutcome, ToolCallUpdate, ToolKind,
};
use serde_json::Value;

use crate::launch::{Decision, PermissionRequest};

/// The key of the fields that g3 and studio exchange outside the protocol, in `_meta`.
const META: &str = "g3";

/// Describes a request. An agent may hide its intent behind a harmless title, so the tool's input
/// is included.
pub(crate) fn describe(number: u32, call: &ToolCallUpdate, is_g3: bool) -> PermissionRequest {
    let fields = &call.fields;
    let title = fields.title.clone().or_else(|| fields.name.clone());
    let title = title.unwrap_or_else(|| "use a tool".to_owned());
    let mut lines = vec![title.clone()];
    let locations: Vec<PathBuf> =
        fields.locations.iter().flatten().map(|location| location.path.clone()).collect();
    let changes_files = match fields.kind.unwrap_or_default() {
        ToolKind::Edit | ToolKind::Delete | ToolKind::Move => true,
        ToolKind::Read
        | ToolKind::Search
        | ToolKind::Execute
        | ToolKind::Think
        | ToolKind::Fetch
        | ToolKind::SwitchMode
        | ToolKind::Other
        | _ => false,
    };
    if let Some(input) = fields.raw_input.as_ref().filter(|_| !changes_files) {
        let is_new = |line: &String| {
            let text = line.strip_prefix("description: ").unwrap_or(line);
            !title.contains(text)
        };
        lines.extend(input_lines(input).into_iter().filter(is_new));
    }
    for path in locations.iter().map(|path| path.display().to_string()) {
        if !title.contains(&path) {
            lines.push(format!("file: {path}"));
        }
    }
    let description = lines.join("\n");
    let declared = call.meta.as_ref().filter(|_| is_g3).map(|meta| &meta[META]["rule"]);
    let rule = declared.and_then(Value::as_str).filter(|rule| !rule.is_empty());
    let rule = rule.map_or_else(|| description.clone(), str::to_owned);
    let writes = if changes_files { locations } else { Vec::new() };
    let writes = writes.into_iter().filter(|path| path.is_absolute()).collect();
    PermissionRequest { number, description, rule, writes }
}

/// Returns the input of a tool, one line each: the command and its directory by name, the rest as
/// JSON.
fn input_lines(input: &Value) -> Vec<String> {
    let Some(fields) = input.as_object() else {
        return if input.is_null() { Vec::new() } else { vec![input.to_string()] };
    };
    let line = |(name, value): (&String, &Value)| match (name.as_str(), value) {
        (_, Value::Null) => None,
        ("command" | "cmd", Value::String(text)) => Some(text.clone()),
        ("cwd" | "workdir" | "directory", Value::String(text)) => Some(format!("in {text}")),
        (name, Value::String(text)) => Some(format!("{name}: {text}")),
        (name, other) => Some(format!("{name}: {other}")),
    };
    fields.iter().filter_map(line).collect()
}

/// Returns the response of the protocol: the agent's option that matches the decision best.
pub(crate) fn response(
    options: &[PermissionOption],
    decision: &Decision,
) -> RequestPermissionResponse {
    use PermissionOptionKind::{AllowAlways, AllowOnce, RejectAlways, RejectOnce};
    let kinds = match (decision.allow, decision.always) {
        (true, true) => [AllowAlways, AllowOnce],
        (true, false) => [AllowOnce, AllowAlways],
        (false, _) => [RejectOnce, RejectAlways],
    };
    let option = kinds.iter().find_map(|kind| options.iter().find(|it| it.kind == *kind));
    let outcome = option.map_or(RequestPermissionOutcome::Cancelled, |option| {
        let selected = SelectedPermissionOutcome::new(option.option_id.clone());
        RequestPermissionOutcome::Selected(selected)
    });
    let response = RequestPermissionResponse::new(outcome);
    match &decision.reason {
        Some(reason) => {
            let denial = serde_json::json!({ "denied": reason });
            response.meta(serde_json::Map::from_iter([(META.to_owned(), denial)]))
        }
        None => response,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_client_protocol::v1::schema::{ToolCallLocation, ToolCallUpdateFields};
    use serde_json::json;

    fn describe_fields(fields: ToolCallUpdateFields) -> PermissionRequest {
        describe(3, &ToolCallUpdate::new("c", fields), false)
    }

    #[test]
    fn a_request_is_shown_with_the_whole_input_of_the_tool() {
        let input = json!({"command": "rm -rf ~", "cwd": "/w", "description": "Tidy up"});
        let fields = ToolCallUpdateFields::new().title("Tidy up").raw_input(input);
        let request = describe_fields(fields.kind(ToolKind::Execute));
        assert_eq!(request.description, "Tidy up\nrm -rf ~\nin /w");
        assert_eq!((request.number, &request.rule), (3, &request.description));
    }

    #[test]
    fn the_files_of_an_edit_are_named_without_its_text() {
        let fields = ToolCallUpdateFields::new()
            .title("Edit")
            .kind(ToolKind::Edit)
            .raw_input(json!({"text": "long"}))
            .locations(vec![ToolCallLocation::new("/opt/x"), ToolCallLocation::new("y")]);
        let request = describe_fields(fields);
        assert_eq!(request.description, "Edit\nfile: /opt/x\nfile: y");
        assert_eq!(request.writes, [PathBuf::from("/opt/x")]);
    }

    #[test]
    fn only_g3_names_the_kind_of_a_request() {
        let meta = json!({"rule": "broad"});
        let call = ToolCallUpdate::new("c", ToolCallUpdateFields::new().title("write a"))
            .meta(serde_json::Map::from_iter([(META.to_owned(), meta)]));
        assert_eq!(describe(1, &call, true).rule, "broad");
        assert_eq!(describe(1, &call, false).rule, "write a");
    }

    #[test]
    fn the_best_matching_option_is_chosen() {
        let option = |id: &str, kind| PermissionOption::new(id.to_owned(), id.to_owned(), kind);
        let options = [
            option("always", PermissionOptionKind::AllowAlways),
            option("once", PermissionOptionKind::AllowOnce),
            option("no", PermissionOptionKind::RejectOnce),
        ];
        let choose = |options: &[PermissionOption], allow, always| {
            let decision = Decision { allow, always, reason: None };
            match response(options, &decision).outcome {
                RequestPermissionOutcome::Selected(it) => it.option_id.to_string(),
                _ => "none".to_owned(),
            }
        };
        assert_eq!(choose(&options, true, false), "once");
        assert_eq!(choose(&options, true, true), "always");
        assert_eq!(choose(&options, false, false), "no");
        assert_eq!(choose(&options[1..], true, true), "once");
        assert_eq!(choose(&options[..2], false, false), "none");
    }
}
