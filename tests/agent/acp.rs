//! Tests of the Agent Client Protocol: prompts, sessions, modes, permissions.

use serde_json::json;
use testkit::model_server::gate::ReplyGate;
use testkit::model_server::reply::ScriptedReply;

use crate::agent_env::Stage;
use crate::editor::Editor;

#[test]
fn a_prompt_is_answered_with_updates_and_own_events() {
    let stage = Stage::new([
        ScriptedReply::new()
            .thinks("hm")
            .then_says("I write. ")
            .calls("write_file", json!({"file_path": "a.txt", "content": "hi\n"})),
        ScriptedReply::says("Done."),
    ]);
    let mut editor = Editor::open(&stage);
    let session = editor.new_session(stage.repo.path());
    let id = editor.prompt(&session, "write a.txt");
    assert_eq!(editor.answer(id)["result"]["stopReason"], "end_turn");
    assert_eq!(stage.repo.read("a.txt"), "hi\n");
    let said = editor.updates("agent_message_chunk");
    let text: String = said.iter().map(|u| u["content"]["text"].as_str().unwrap()).collect();
    assert_eq!(text, "I write. Done.");
    assert_eq!(editor.updates("agent_thought_chunk").len(), 1);
    let call = editor.updates("tool_call")[0];
    assert_eq!((&call["kind"], &call["status"]), (&json!("edit"), &json!("in_progress")));
    assert_eq!(call["content"][0]["type"], "diff");
    assert_eq!(call["locations"][0]["path"], json!(stage.repo.path().join("a.txt")));
    let updates = editor.updates("tool_call_update");
    assert_eq!(updates.last().unwrap()["status"], "completed");
    assert_eq!(updates.last().unwrap()["toolCallId"], call["toolCallId"]);
    let own = editor.own_events();
    assert!(own.iter().all(|event| event["sessionId"] == session.as_str()));
    assert_eq!(own.first().unwrap()["event"]["type"], "start");
    assert_eq!(own.last().unwrap()["event"]["type"], "end");
    assert!(own.iter().any(|event| event["event"]["type"] == "usage"));
}

#[test]
fn bracketed_user_text_is_not_mistaken_for_a_note() {
    let stage = Stage::new(ScriptedReply::says("Done."));
    let mut editor = Editor::open(&stage);
    let session = editor.new_session(stage.repo.path());
    let prompt = json!([{"type": "text", "text": "[x]\n\n"}, {"type": "text", "text": "fix it"}]);
    let id = editor.begin("session/prompt", json!({"sessionId": session, "prompt": prompt}));
    assert_eq!(editor.answer(id)["result"]["stopReason"], "end_turn");
    editor.leave();
    let listed = stage.g3(["sessions", "list", "--json"]).json();
    assert_eq!(listed[0]["task"], "[x]\n\nfix it");
    stage.g3(["sessions", "export"]).output_contains("## User\n\n[x]\n\nfix it\n");
}

#[test]
fn a_user_image_reaches_the_model() {
    let stage = Stage::new(ScriptedReply::says("A cat."));
    let mut editor = Editor::open(&stage);
    let session = editor.new_session(stage.repo.path());
    let prompt = json!([{"type": "text", "text": "What is it?"},
        {"type": "image", "mimeType": "image/png", "data": "aGk="}]);
    let params = json!({"sessionId": session, "prompt": prompt});
    let id = editor.begin("session/prompt", params);
    assert_eq!(editor.answer(id)["result"]["stopReason"], "end_turn");
    let content = stage.asked()[0].body["messages"][0]["content"].clone();
    assert_eq!(content[0]["text"], "What is it?");
    assert_eq!(
        content[1]["source"],
        json!({"type": "base64", "media_type": "image/png", "data": "aGk="})
    );
}

#[test]
fn a_cancel_stops_the_turn_and_the_session_continues() {
    let gate = ReplyGate::new();
    let stage = Stage::new([
        ScriptedReply::says("a ").then_says("b").gate(&gate),
        ScriptedReply::says("fresh"),
    ]);
    let mut editor = Editor::open(&stage);
    let session = editor.new_session(stage.repo.path());
    let id = editor.prompt(&session, "talk");
    gate.wait_until_reached(1);
    editor.send(json!({"jsonrpc": "2.0", "method": "session/cancel",
        "params": {"sessionId": session}}));
    assert_eq!(editor.answer(id)["result"]["stopReason"], "cancelled");
    gate.open_all();
    let id = editor.prompt(&session, "again");
    assert_eq!(editor.answer(id)["result"]["stopReason"], "end_turn");
}

#[test]
fn a_session_that_is_slow_to_open_does_not_block_others() {
    let stage = Stage::new([ScriptedReply::says("quick"), ScriptedReply::says("slow")]);
    let (key, other) = (stage.env.home().join("key"), stage.env.repo_at("other"));
    let waits = format!("until test -e {}; do sleep 0.05; done; echo k", key.display());
    let url = stage.model.url();
    stage.env.config(&format!(
        "{}\n[providers.anthropic.slow]\nmodel = \"m\"\nbase_url = \"{url}\"\n\
         api_key_command = {waits:?}\n",
        stage.model.config_toml("anthropic")
    ));
    other.write("g3.toml", "[providers]\ndefault_provider = \"anthropic.slow\"\n");
    let mut editor = Editor::open(&stage);
    let slow = editor.begin("session/new", json!({"cwd": other.path(), "mcpServers": []}));
    let session = editor.new_session(stage.repo.path());
    let id = editor.prompt(&session, "be quick");
    assert_eq!(editor.answer(id)["result"]["stopReason"], "end_turn");
    std::fs::write(&key, "").unwrap();
    let session = editor.answer(slow)["result"]["sessionId"].as_str().unwrap().to_owned();
    let id = editor.prompt(&session, "be slow");
    assert_eq!(editor.answer(id)["result"]["stopReason"], "end_turn");
}

#[test]
fn a_session_can_be_loaded_again_while_a_prompt_is_running() {
    for method in ["session/load", "session/resume"] {
        let gate = ReplyGate::new();
        let held = ScriptedReply::says("a ").then_says("b").gate(&gate);
        let stage = Stage::new([held, ScriptedReply::says("fresh")]);
        let mut editor = Editor::open(&stage);
        let session = editor.new_session(stage.repo.path());
        let prompt = editor.prompt(&session, "talk");
        gate.wait_until_reached(1);
        let params = json!({"sessionId": session, "cwd": stage.repo.path(), "mcpServers": []});
        // Two concurrent loads: one of them waits for the other.
        let loads = [editor.begin(method, params.clone()), editor.begin(method, params)];
        assert_eq!(editor.answer(prompt)["result"]["stopReason"], "cancelled");
        for load in loads {
            let answer = editor.answer(load);
            assert!(answer.get("error").is_none(), "{method}: {answer}");
        }
        gate.open_all();
        let id = editor.prompt(&session, "again");
        assert_eq!(editor.answer(id)["result"]["stopReason"], "end_turn");
    }
}

#[test]
fn a_session_closed_during_a_prompt_can_be_resumed_immediately() {
    let gate = ReplyGate::new();
    let stage = Stage::new([
        ScriptedReply::says("a ").then_says("b").gate(&gate),
        ScriptedReply::says("fresh"),
    ]);
    let mut editor = Editor::open(&stage);
    let session = editor.new_session(stage.repo.path());
    let prompt = editor.prompt(&session, "talk");
    gate.wait_until_reached(1);
    let closed = editor.begin("session/close", json!({"sessionId": session}));
    let params = json!({"sessionId": session, "cwd": stage.repo.path(), "mcpServers": []});
    let resumed = editor.begin("session/resume", params);
    assert_eq!(editor.answer(prompt)["result"]["stopReason"], "cancelled");
    for id in [closed, resumed] {
        assert!(editor.answer(id).get("error").is_none());
    }
    gate.open_all();
    let id = editor.prompt(&session, "again");
    assert_eq!(editor.answer(id)["result"]["stopReason"], "end_turn");
}

#[test]
fn the_todo_list_is_the_editors_plan() {
    let list = "- [x] look\n- [ ] write\n";
    let stage = Stage::new([
        ScriptedReply::call("todo_write", json!({"content": list})),
        ScriptedReply::says("noted"),
    ]);
    let mut editor = Editor::open(&stage);
    let session = editor.new_session(stage.repo.path());
    let id = editor.prompt(&session, "plan");
    editor.answer(id);
    let entries = editor.updates("plan")[0]["entries"].clone();
    assert_eq!(
        (&entries[0]["content"], &entries[0]["status"]),
        (&json!("look"), &json!("completed"))
    );
    assert_eq!(
        (&entries[1]["content"], &entries[1]["status"]),
        (&json!("write"), &json!("pending"))
    );
    assert!(editor.own_events().iter().any(|event| event["event"]["type"] == "todo"));
}

#[test]
fn a_cancel_immediately_after_its_prompt_takes_effect() {
    let stage = Stage::new([ScriptedReply::call("shell", json!({"command": "sleep 1000"}))]);
    let mut editor = Editor::open(&stage);
    let session = editor.new_session(stage.repo.path());
    let id = editor.prompt(&session, "wait");
    editor.send(json!({"jsonrpc": "2.0", "method": "session/cancel",
        "params": {"sessionId": session}}));
    assert_eq!(editor.answer(id)["result"]["stopReason"], "cancelled");
}

#[test]
fn access_outside_the_root_asks_the_editor() {
    let outside = |stage: &Stage| stage.env.home().join("outside.txt");
    for (option, written) in [("once", true), ("no", false)] {
        let path = std::sync::Arc::new(std::sync::Mutex::new(String::new()));
        let target = path.clone();
        let stage = Stage::new(testkit::model_server::script::Script::by(move |request| {
            if request.assistant_messages() > 0 {
                return ScriptedReply::says("done");
            }
            let path = target.lock().unwrap().clone();
            ScriptedReply::call("write_file", json!({"file_path": path, "content": "x"}))
        }));
        *path.lock().unwrap() = outside(&stage).display().to_string();
        let mut editor = Editor::open(&stage);
        let session = editor.new_session(stage.repo.path());
        let id = editor.prompt(&session, "write outside");
        let asked =
            editor.wait("permission request", |m| m["method"] == "session/request_permission");
        let call = editor.updates("tool_call")[0]["toolCallId"].clone();
        assert_eq!(asked["params"]["toolCall"]["toolCallId"], call);
        let shown = &asked["params"]["toolCall"]["content"][0]["content"]["text"];
        let shown = shown.as_str().unwrap();
        assert!(shown.starts_with("```diff\n--- ") && shown.contains("\n+x\n"), "{shown}");
        editor.send(json!({"jsonrpc": "2.0", "id": asked["id"],
            "result": {"outcome": {"outcome": "selected", "optionId": option}}}));
        assert_eq!(editor.answer(id)["result"]["stopReason"], "end_turn");
        assert_eq!(outside(&stage).exists(), written, "answered `{option}`");
    }
}

#[test]
fn a_session_is_loaded_from_its_journal_by_another_process() {
    let stage = Stage::new([ScriptedReply::says("noted"), ScriptedReply::says("plum")]);
    let session = {
        let mut editor = Editor::open(&stage);
        let session = editor.new_session(stage.repo.path());
        let id = editor.prompt(&session, "the word is plum");
        editor.answer(id);
        session
    };
    let mut editor = Editor::open(&stage);
    let params = json!({"sessionId": session, "cwd": stage.repo.path(), "mcpServers": []});
    editor.request("session/load", params);
    assert_eq!(editor.updates("user_message_chunk")[0]["content"]["text"], "the word is plum");
    assert_eq!(editor.updates("agent_message_chunk")[0]["content"]["text"], "noted");
    let id = editor.prompt(&session, "which word?");
    editor.answer(id);
    assert!(stage.asked()[1].text().contains("the word is plum"));
}

#[test]
fn several_sessions_live_in_one_process() {
    let gate = ReplyGate::new();
    let stage = Stage::new([ScriptedReply::says("slow").gate(&gate), ScriptedReply::says("quick")]);
    let other = stage.env.repo_at("other");
    let mut editor = Editor::open(&stage);
    let (one, two) = (editor.new_session(stage.repo.path()), editor.new_session(other.path()));
    let first = editor.prompt(&one, "be slow");
    gate.wait_until_reached(1);
    let second = editor.prompt(&two, "be quick");
    assert_eq!(editor.answer(second)["result"]["stopReason"], "end_turn");
    gate.open_all();
    assert_eq!(editor.answer(first)["result"]["stopReason"], "end_turn");
    assert!(stage.env.g3_state(other.path()).join("sessions").join(&two).exists());
}

#[test]
fn errors_are_json_rpc_errors_with_hints() {
    let stage = Stage::new([ScriptedReply::status(401)]);
    let mut editor = Editor::open(&stage);
    let id = editor.prompt("nobody-aaaa", "hi");
    assert!(editor.answer(id)["error"]["message"].as_str().unwrap().contains("nobody-aaaa"));
    let id = editor.begin("session/new", json!({"cwd": "/does/not/exist", "mcpServers": []}));
    assert!(editor.answer(id)["error"]["message"].as_str().unwrap().contains("/does/not/exist"));
    let session = editor.new_session(stage.repo.path());
    let id = editor.prompt(&session, "hi");
    let error = editor.answer(id)["error"].clone();
    assert!(error["data"]["try"].is_array(), "{error}");
}

#[test]
fn sessions_can_be_listed_resumed_without_history_and_closed() {
    let stage = Stage::new([
        ScriptedReply::says("noted"),
        ScriptedReply::says("plum"),
        ScriptedReply::says("still"),
    ]);
    let mut editor = Editor::open(&stage);
    let session = editor.new_session(stage.repo.path());
    let id = editor.prompt(&session, "the word is plum");
    editor.answer(id);
    let listed = editor.request("session/list", json!({"cwd": stage.repo.path()}));
    assert_eq!(listed["sessions"][0]["sessionId"], session.as_str());
    assert_eq!(listed["sessions"][0]["title"], "the word is plum");
    let all = editor.request("session/list", json!({}));
    assert_eq!(all["sessions"].as_array().unwrap().len(), 1);
    editor.request("session/close", json!({"sessionId": session}));
    let closed = editor.prompt(&session, "are you there?");
    assert!(
        editor.answer(closed)["error"]["message"].as_str().unwrap().contains("no open session")
    );
    // The lock is free, so another g3 can use the session, and it can be resumed here again.
    stage.g3(["--resume", &session, "which word?"]).ok();
    editor.kept.clear();
    let params = json!({"sessionId": session, "cwd": stage.repo.path(), "mcpServers": []});
    editor.request("session/resume", params);
    assert!(editor.updates("user_message_chunk").is_empty(), "resume sends no history");
    let id = editor.prompt(&session, "again?");
    assert_eq!(editor.answer(id)["result"]["stopReason"], "end_turn");
    assert!(stage.asked()[2].text().contains("the word is plum"));
}

fn writes_a_file() -> ScriptedReply {
    ScriptedReply::call("write_file", json!({"file_path": "a.txt", "content": "hi\n"}))
}

#[test]
fn plan_mode_changes_nothing_before_the_editor_approves() {
    let stage = Stage::new([
        writes_a_file(),
        ScriptedReply::call("shell", json!({"command": "touch b.txt"})),
        ScriptedReply::call("propose_plan", json!({"plan": "1. write a.txt"})),
        writes_a_file(),
        ScriptedReply::says("done"),
    ]);
    let mut editor = Editor::open(&stage);
    let params = json!({"cwd": stage.repo.path(), "mcpServers": []});
    let made = editor.request("session/new", params);
    assert_eq!(made["modes"]["currentModeId"], "auto");
    assert_eq!(made["modes"]["availableModes"].as_array().unwrap().len(), 3);
    let session = made["sessionId"].as_str().unwrap().to_owned();
    editor.request("session/set_mode", json!({"sessionId": session, "modeId": "plan"}));
    let id = editor.prompt(&session, "write a.txt");
    let asks = editor.wait("question", |m| m["method"] == "session/request_permission");
    assert!(!stage.repo.path().join("a.txt").exists() && !stage.repo.path().join("b.txt").exists());
    let title = asks["params"]["toolCall"]["title"].as_str().unwrap();
    assert!(title.contains("1. write a.txt"), "{title}");
    editor.send(json!({"jsonrpc": "2.0", "id": asks["id"], "result":
        {"outcome": {"outcome": "selected", "optionId": "once"}}}));
    assert_eq!(editor.answer(id)["result"]["stopReason"], "end_turn");
    assert_eq!(stage.repo.read("a.txt"), "hi\n");
    assert_eq!(editor.updates("current_mode_update")[0]["currentModeId"], "auto");
    let refused = stage.asked()[1].tool_results();
    assert!(refused[0].1.contains("plan mode"), "{refused:?}");
    let bad = editor.begin("session/set_mode", json!({"sessionId": session, "modeId": "yolo"}));
    assert!(editor.answer(bad)["error"]["message"].as_str().unwrap().contains("no such mode"));
}

#[test]
fn ask_mode_asks_about_every_write() {
    let stage = Stage::new([writes_a_file(), ScriptedReply::says("as you wish")]);
    let mut editor = Editor::open(&stage);
    let session = editor.new_session(stage.repo.path());
    editor.request("session/set_mode", json!({"sessionId": session, "modeId": "ask"}));
    let id = editor.prompt(&session, "write a.txt");
    let asks = editor.wait("question", |m| m["method"] == "session/request_permission");
    editor.send(json!({"jsonrpc": "2.0", "id": asks["id"], "result":
        {"outcome": {"outcome": "selected", "optionId": "no"}}}));
    editor.answer(id);
    assert!(!stage.repo.path().join("a.txt").exists());
}

#[test]
fn the_editors_mcp_servers_are_used_and_the_user_is_asked() {
    let call = json!({"server": "kit", "tool": "echo", "args": {"text": "plum"}});
    let stage = Stage::new([ScriptedReply::call("mcp_call", call), ScriptedReply::says("done")]);
    let mut editor = Editor::open(&stage);
    let server = json!({
        "name": "kit",
        "command": testkit::env::built("mcp-server"),
        "args": ["--pids", "pids"],
        "env": [{"name": "A", "value": "b"}],
    });
    let params = json!({"cwd": stage.repo.path(), "mcpServers": [server]});
    let session = editor.request("session/new", params)["sessionId"].as_str().unwrap().to_owned();
    let id = editor.prompt(&session, "say plum");
    let asked = editor.wait("question", |m| m["method"] == "session/request_permission");
    let title = asked["params"].to_string();
    assert!(title.contains("MCP server `kit`"), "{title}");
    let option = asked["params"]["options"][0]["optionId"].clone();
    let outcome = json!({"outcome": {"outcome": "selected", "optionId": option}});
    editor.send(json!({"jsonrpc": "2.0", "id": asked["id"], "result": outcome}));
    assert_eq!(editor.answer(id)["result"]["stopReason"], "end_turn");
    assert_eq!(stage.asked()[1].tool_results()[0].1, "plum");
    editor.leave();
    let server: u32 = stage.repo.read("pids").trim().parse().unwrap();
    testkit::env::until("the server to end", || (!base::process::is_alive(server)).then_some(()));
}
