//! Tests of large results: truncated to fit the model's context window in every profile, and saved
//! to a file.

use serde_json::{Value, json};
use testkit::model_server::reply::ScriptedReply;

use crate::agent_env::{Stage, of_type};
use crate::mcp_support::result;

/// Tools with unbounded results, and their profiles.
fn big() -> Vec<(&'static str, &'static str, Value)> {
    let many = "seq 1 400000";
    vec![
        ("g3", "shell", json!({ "command": many })),
        ("g3", "read_file", json!({ "file_path": "big.txt" })),
        ("egirl", "read_file", json!({ "path": "big.txt" })),
        ("egirl", "read_file", json!({ "path": "big.txt", "start_line": 2 })),
        ("egirl", "execute_command", json!({ "command": many })),
        ("tools-api", "bash", json!({ "command": many, "description": "count" })),
        ("tools-api", "grep", json!({ "pattern": "x", "path": "wide" })),
        ("core", "execute_cli", json!({ "command": many })),
    ]
}

#[test]
fn the_result_of_every_tool_fits_the_window_and_names_the_full_output() {
    for (profile, name, args) in big() {
        let stage =
            Stage::new([ScriptedReply::call(name, args.clone()), ScriptedReply::says("done")]);
        let lines: String = (1..=400_000).map(|n| format!("{n}\n")).collect();
        stage.repo.write("big.txt", lines);
        for n in 0..12 {
            stage
                .repo
                .write(&format!("wide/{n}.txt"), format!("{}\n", "x".repeat(1_900)).repeat(90));
        }
        let ran = stage.g3(["--json", "--profile", profile, "look at it"]);
        ran.ok();
        let told = result(&stage, 1);
        assert!(told.len() < 250_000, "{profile} {name}: {} bytes", told.len());
        assert!(told.contains("[truncated"), "{profile} {name}: {told}");
        let more = ["bytes are in ", "stdout_log", "read on with", "narrower pattern"];
        assert!(more.iter().any(|words| told.contains(words)), "{profile} {name}");
        assert!(of_type(&ran.json_lines(), "compacted").is_empty(), "{profile} {name}");
    }
}
