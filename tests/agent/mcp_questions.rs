//! Tests of MCP servers that ask the user: on the terminal, in an editor, and where nothing can be
//! asked.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::env::until;
use testkit::model_server::reply::ScriptedReply;
use testkit::tmux::TmuxTerminal;

use crate::agent_env::{G3, Stage};
use crate::editor::Editor;
use crate::mcp_support::{know, result, stage};

/// The arguments of a server in both versions of the protocol.
const VERSIONS: [&[&str]; 2] = [&[], &["--stateless"]];

/// Creates a stage in which the server asks in each turn.
fn asking(args: &[&str], turns: usize) -> Stage {
    let turn = || [ScriptedReply::call("mcp__kit__ask", json!({})), ScriptedReply::says("Done.")];
    let script: Vec<ScriptedReply> = (0..turns).flat_map(|_| turn()).collect();
    let lines = "calls = \"allow\"\ntimeout_seconds = 4";
    let stage = match args {
        [] => stage(script, [], lines),
        _ => stage(script, ["--stateless"], lines),
    };
    know(&stage);
    stage
}

fn g3<'a, const N: usize>(stage: &'a Stage, args: [&str; N]) -> TmuxTerminal<'a> {
    let command = [G3].into_iter().chain(args);
    TmuxTerminal::start(&stage.env, stage.repo.path(), (80, 24), command)
}

/// Returns what the server got in its first call.
fn answer(stage: &Stage) -> Value {
    serde_json::from_str(&result(stage, 1)).expect("it is JSON")
}

#[test]
fn a_form_is_filled_on_the_terminal_while_the_time_of_the_call_stands_still() {
    for args in VERSIONS {
        let stage = asking(args, 1);
        let terminal = g3(&stage, ["release it"]);
        let shown = terminal.shows("Answer? [y]es, [N]o:");
        assert!(shown.contains("kit asks:\n  │ Which release?\n"), "{shown}");
        let start = Instant::now();
        until("the time of a call", || (start.elapsed() > Duration::from_secs(5)).then_some(()));
        terminal.enters("y").shows("  │ Where it lands.\nbranch (text):");
        terminal.enters("m").shows("at least 2 characters");
        terminal.enters("main").shows("count (a whole number):");
        terminal.enters("3").shows("sign ([y]es or [n]o; Enter for true):");
        terminal.enters("");
        let text = terminal.ends();
        assert!(text.contains("Done."), "{text}");
        let expected = json!({"branch": "main", "count": 3, "sign": true});
        assert_eq!(answer(&stage)["action"], "accept", "{args:?}");
        assert_eq!(answer(&stage)["content"], expected, "{args:?}");
    }
}

#[test]
fn a_form_is_declined_or_interrupted() {
    for args in VERSIONS {
        let stage = asking(args, 2);
        let terminal = g3(&stage, []);
        terminal.shows("g3>");
        terminal.enters("release it").shows("Answer?");
        terminal.enters("").shows("Done.");
        assert_eq!(answer(&stage)["action"], "decline");
        terminal.enters("again");
        terminal.shows("g3> again\nkit asks:\n  │ Which release?\nAnswer? [y]es, [N]o:");
        terminal.enters("y").shows("branch (text):");
        terminal.presses("C-c").shows("interrupted");
        terminal.enters("/help").shows("/compact");
    }
}

#[test]
fn where_nothing_can_be_asked_the_server_knows() {
    for args in VERSIONS {
        let stage = asking(args, 1);
        stage.g3(["release it"]).ok();
        assert_eq!(result(&stage, 1), "this client cannot ask");
    }
}

#[test]
fn an_editor_shows_the_form_if_it_can() {
    for args in VERSIONS {
        for (able, action) in [
            (json!({"elicitation": {"form": {}}}), "accept"),
            (json!({"elicitation": {"form": {}}}), "decline"),
            (json!({"elicitation": {"url": {}}}), ""),
            (json!({}), ""),
        ] {
            let stage = asking(args, 1);
            let mut editor = Editor::offering(&stage, able);
            let session = editor.new_session(stage.repo.path());
            let id = editor.prompt(&session, "release it");
            if action.is_empty() {
                editor.answer(id);
                assert_eq!(result(&stage, 1), "this client cannot ask");
                continue;
            }
            let asked = editor.wait("form", |m| m["method"] == "elicitation/create");
            let params = &asked["params"];
            assert_eq!(params["sessionId"], session.as_str());
            assert_eq!(params["mode"], "form");
            assert_eq!(params["message"], "kit asks: Which release?");
            assert!(params["toolCallId"].is_string(), "{params}");
            let schema = &params["requestedSchema"];
            assert_eq!(schema["properties"]["branch"]["description"], "Where it lands.");
            assert_eq!(schema["required"], json!(["branch", "count"]));
            let content = json!({"branch": "main", "count": 3, "sign": false});
            let reply = match action {
                "accept" => json!({"action": "accept", "content": content}),
                _ => json!({"action": action}),
            };
            editor.send(json!({"jsonrpc": "2.0", "id": asked["id"], "result": reply}));
            assert_eq!(editor.answer(id)["result"]["stopReason"], "end_turn");
            assert_eq!(answer(&stage)["action"], action);
            if action == "accept" {
                assert_eq!(answer(&stage)["content"], content);
            }
        }
    }
}
