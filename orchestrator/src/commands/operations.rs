//! `studio operations`: lists operations and undos.

use base::failure::Result;
use serde_json::json;

use crate::commands::context::{CommandContext, CommonArgs};
use crate::report;
use crate::report::table;
use studio_git::oplog::{self, LogEntries};

/// Runs the command.
pub(crate) fn run(common: &CommonArgs) -> Result<u8> {
    let context = CommandContext::open(common)?;
    let all = oplog::list(&context.repository)?;
    let entries = LogEntries::read(&context.repository)?;
    let unreadable: Vec<String> =
        entries.unreadable().iter().map(oplog::UnreadableOperation::sentence).collect();
    if context.json {
        let mut json = json!({"schema": 1, "operations": all});
        if !unreadable.is_empty() {
            json["unreadable"] = json!(unreadable);
        }
        report::json_line(&json);
        return Ok(0);
    }
    unreadable.iter().for_each(|line| report::say(&format!("warning: {line}")));
    if all.is_empty() {
        report::say("no operations yet");
        return Ok(0);
    }
    let rows: Vec<[String; 5]> = all
        .iter()
        .map(|operation| {
            let sessions: Vec<String> =
                operation.sessions.iter().map(ToString::to_string).collect();
            let undone = operation.undone_by.as_ref().map(|by| format!("undone by {by}"));
            [
                operation.id.clone(),
                operation.kind.name().to_owned(),
                sessions.join(" "),
                table::age(&operation.time, context.clock.now()),
                undone.unwrap_or_default(),
            ]
        })
        .collect();
    report::out(&table::plain(["OP", "KIND", "SESSIONS", "AGE", ""], rows));
    Ok(0)
}
