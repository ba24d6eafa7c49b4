//! A stage whose configuration names the MCP server of the tests.

use serde_json::{Value, json};
use testkit::env::{CommandRun, built};
use testkit::model_server::reply::ScriptedReply;
use testkit::model_server::script::Script;

use crate::agent_env::Stage;

/// Creates a stage with the server `kit` with these arguments and configuration lines.
pub fn stage<const N: usize>(script: impl Into<Script>, args: [&str; N], lines: &str) -> Stage {
    let stage = Stage::new(script);
    configure(&stage, &args, lines);
    stage
}

/// Rewrites the configuration of a stage.
pub fn configure(stage: &Stage, args: &[&str], lines: &str) {
    let model = stage.model.config_toml("anthropic");
    stage.env.config(&format!("{model}\n[mcp.kit]\ncommand = {}\n{lines}\n", command(args)));
}

/// Returns the command of the tests' server, valid as TOML and as JSON.
pub fn command(args: &[&str]) -> Value {
    let program = built("mcp-server").to_string_lossy().into_owned();
    let all: Vec<&str> = std::iter::once(program.as_str()).chain(args.iter().copied()).collect();
    json!(all)
}

/// Returns a call of a tool of `kit` through `mcp_call`.
pub fn call(tool: &str, args: Value) -> ScriptedReply {
    ScriptedReply::call("mcp_call", json!({"server": "kit", "tool": tool, "args": args}))
}

/// Makes the tools of `kit` known, as an earlier session would have.
pub fn know(stage: &Stage) {
    stage.g3(["mcp", "test", "kit"]).ok();
}

/// Returns the result of the call before the request with this number (counted from 1).
#[track_caller]
pub fn result(stage: &Stage, request: usize) -> String {
    let asked = stage.asked();
    asked[request].tool_results().last().expect("there is a result").1.clone()
}

/// Returns the text of each `tool_end` and whether it succeeded.
pub fn ends(ran: &CommandRun) -> Vec<(bool, String)> {
    let events = ran.json_lines();
    let ends = events.iter().filter(|event| event["type"] == "tool_end");
    ends.map(|end| (end["ok"] == true, end["text"].as_str().unwrap().to_owned())).collect()
}
