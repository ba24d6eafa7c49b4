//! Tests of what an editor shows over the Agent Client Protocol besides the conversation: options,
//! commands, changes, usage, titles, notices; and of what it can do with sessions.

use serde_json::{Value, json};
use testkit::model_server::gate::ReplyGate;
use testkit::model_server::reply::ScriptedReply;

use crate::agent_env::Stage;
use crate::editor::Editor;

/// Returns the current value of an option.
fn value(options: &Value, id: &str) -> Value {
    let options = options.as_array().expect("a list of options");
    options.iter().find(|option| option["id"] == id).expect("the option")["currentValue"].clone()
}

fn set(session: &str, option: &str, value: &str) -> Value {
    json!({"sessionId": session, "configId": option, "value": value})
}

#[test]
fn the_model_is_an_option_of_the_session() {
    let says = ["one", "two", "three"].map(ScriptedReply::says);
    let stage = Stage::new(says);
    let url = stage.model.url();
    stage.env.config(&format!(
        "{}\n[providers.anthropic.other]\nmodel = \"other-model\"\nbase_url = \"{url}\"\n\
         api_key = \"k\"\n",
        stage.model.config_toml("anthropic")
    ));
    let mut editor = Editor::open(&stage);
    let params = json!({"cwd": stage.repo.path(), "mcpServers": []});
    let made = editor.request("session/new", params);
    let session = made["sessionId"].as_str().unwrap().to_owned();
    let first = value(&made["configOptions"], "model");
    let model = made["configOptions"].as_array().unwrap().iter().find(|it| it["id"] == "model");
    let values: Vec<&Value> =
        model.unwrap()["options"].as_array().unwrap().iter().map(|it| &it["value"]).collect();
    assert!(values.contains(&&first), "{values:?}");
    assert!(values.contains(&&json!("anthropic.other other-model")), "{values:?}");
    let id = editor.prompt(&session, "the word is plum");
    editor.answer(id);
    let other = set(&session, "model", "anthropic.other other-model");
    let now = editor.request("session/set_config_option", other);
    assert_eq!(value(&now["configOptions"], "model"), "anthropic.other other-model");
    let id = editor.prompt(&session, "go on");
    assert_eq!(editor.answer(id)["result"]["stopReason"], "end_turn");
    let asked = stage.asked();
    assert_eq!(asked[1].body["model"], "other-model");
    assert!(asked[1].text().contains("the word is plum"));
    // A model that cannot be used changes nothing.
    let id = editor.begin("session/set_config_option", set(&session, "model", "nowhere.x y"));
    let error = editor.answer(id)["error"]["message"].clone();
    assert!(error.as_str().unwrap().contains("unknown provider `nowhere.x`"), "{error}");
    let id = editor.prompt(&session, "and on");
    editor.answer(id);
    assert_eq!(stage.asked()[2].body["model"], "other-model");
}

#[test]
fn a_provider_that_cannot_be_used_leaves_the_session_with_its_model() {
    let stage = Stage::new(["one", "two"].map(ScriptedReply::says));
    stage.env.config(&format!(
        "{}\n[providers.anthropic.locked]\nmodel = \"m\"\napi_key_command = \"exit 3\"\n",
        stage.model.config_toml("anthropic")
    ));
    let mut editor = Editor::open(&stage);
    let session = editor.new_session(stage.repo.path());
    let id = editor.prompt(&session, "the word is plum");
    editor.answer(id);
    let locked = set(&session, "model", "anthropic.locked m");
    let id = editor.begin("session/set_config_option", locked);
    assert!(editor.answer(id)["error"]["message"].is_string());
    let id = editor.prompt(&session, "which word?");
    assert_eq!(editor.answer(id)["result"]["stopReason"], "end_turn");
    assert_eq!(stage.asked()[1].body["model"], stage.asked()[0].body["model"]);
    assert!(stage.asked()[1].text().contains("the word is plum"));
}

#[test]
fn the_mode_is_an_option_and_changes_while_a_turn_runs() {
    let gate = ReplyGate::new();
    let write = json!({"file_path": "a.txt", "content": "hi\n"});
    let stage = Stage::new([
        ScriptedReply::says("I write.").calls("write_file", write).gate(&gate),
        ScriptedReply::says("done"),
    ]);
    let mut editor = Editor::open(&stage);
    let session = editor.new_session(stage.repo.path());
    let ask = editor.request("session/set_config_option", set(&session, "mode", "ask"));
    assert_eq!(value(&ask["configOptions"], "mode"), "ask");
    assert_eq!(editor.updates("current_mode_update")[0]["currentModeId"], "ask");
    let id = editor.prompt(&session, "write a.txt");
    gate.wait_until_reached(1);
    let auto = editor.request("session/set_config_option", set(&session, "mode", "auto"));
    assert_eq!(value(&auto["configOptions"], "mode"), "auto");
    gate.open_all();
    // In the mode `ask` g3 would wait for an answer now.
    assert_eq!(editor.answer(id)["result"]["stopReason"], "end_turn");
    assert_eq!(stage.repo.read("a.txt"), "hi\n");
    editor.request("session/set_mode", json!({"sessionId": session, "modeId": "plan"}));
    let update = editor.updates("config_option_update");
    assert_eq!(value(&update.last().unwrap()["configOptions"], "mode"), "plan");
    for (option, value, message) in
        [("mode", "yolo", "no such mode: `yolo`"), ("colour", "red", "no such option: `colour`")]
    {
        let id = editor.begin("session/set_config_option", set(&session, option, value));
        let error = editor.answer(id)["error"]["message"].clone();
        assert!(error.as_str().unwrap().contains(message), "{error}");
    }
}

#[test]
fn commands_about_the_conversation_are_announced_and_run() {
    let stage = Stage::new([
        ScriptedReply::says("noted"),
        ScriptedReply::says("It is full."),
        ScriptedReply::says("a summary"),
    ]);
    let mut editor = Editor::open(&stage);
    let session = editor.new_session(stage.repo.path());
    let update = editor.wait("commands", |m| {
        m["params"]["update"]["sessionUpdate"] == "available_commands_update"
    });
    let commands = update["params"]["update"]["availableCommands"].as_array().unwrap().clone();
    let named = |name: &str| commands.iter().find(|command| command["name"] == name);
    assert_eq!(named("stats").unwrap()["input"], Value::Null);
    assert_eq!(named("rehydrate").unwrap()["description"], "restore a moved turn");
    assert_eq!(named("rehydrate").unwrap()["input"]["hint"], "ID");
    assert!(named("copy").is_none(), "the clipboard is that of the terminal");
    let id = editor.prompt(&session, "the word is plum");
    editor.answer(id);
    editor.kept.clear();
    let id = editor.prompt(&session, "/stats");
    assert_eq!(editor.answer(id)["result"]["stopReason"], "end_turn");
    let shown = editor.updates("agent_message_chunk")[0]["content"]["text"].clone();
    assert!(shown.as_str().unwrap().contains(&format!("session  {session}")), "{shown}");
    assert_eq!(stage.asked().len(), 1, "the command is not sent to the model");
    let id = editor.prompt(&session, "/usr/bin is full");
    editor.answer(id);
    assert!(stage.asked()[1].text().contains("/usr/bin is full"));
    let id = editor.prompt(&session, "/compact");
    assert_eq!(editor.answer(id)["result"]["stopReason"], "end_turn");
    let id = editor.prompt(&session, "/rehydrate");
    let error = editor.answer(id)["error"].clone();
    assert_eq!(error["message"], "which turn?");
}

#[test]
fn a_change_stays_visible_after_its_call_and_when_it_is_loaded() {
    let edit = json!({"file_path": "src/a.txt", "diff": "@@ -2,1 +2,1 @@\n-two\n+2\n"});
    let stage = Stage::new([
        ScriptedReply::call("read_file", json!({"file_path": "src/a.txt"})),
        ScriptedReply::call("str_replace", edit),
        ScriptedReply::call("write_file", json!({"file_path": "src/b.txt", "content": "new\n"})),
        ScriptedReply::call(
            "str_replace",
            json!({"file_path": "src/none.txt", "diff": "-x\n+y\n"}),
        ),
        ScriptedReply::says("done"),
    ]);
    stage.repo.write("src/a.txt", "one\ntwo\nthree\n");
    let mut editor = Editor::open(&stage);
    let session = editor.new_session(stage.repo.path());
    let id = editor.prompt(&session, "change it");
    editor.answer(id);
    let ends: Vec<Value> = editor
        .updates("tool_call_update")
        .into_iter()
        .filter(|update| update["status"] != "in_progress")
        .cloned()
        .collect();
    let change = &ends[1]["content"][0];
    assert_eq!(change["type"], "diff", "{ends:#?}");
    assert_eq!(change["path"], json!(stage.repo.path().join("src/a.txt")));
    assert_eq!(
        (&change["oldText"], &change["newText"]),
        (&json!("one\ntwo\nthree\n"), &json!("one\n2\nthree\n"))
    );
    let created = &ends[2]["content"][0];
    assert_eq!((&created["oldText"], &created["newText"]), (&Value::Null, &json!("new\n")));
    assert_eq!(
        (&ends[3]["status"], &ends[3]["content"][0]["type"]),
        (&json!("failed"), &json!("content"))
    );
    editor.leave();
    let mut editor = Editor::open(&stage);
    let params = json!({"sessionId": session, "cwd": stage.repo.path(), "mcpServers": []});
    editor.request("session/load", params);
    let created = editor.updates("tool_call")[2];
    assert_eq!(created["content"][0]["newText"], "new\n");
    assert_eq!(created["locations"][0]["path"], json!(stage.repo.path().join("src/b.txt")));
    let end = editor.updates("tool_call_update")[2];
    assert_eq!((&end["status"], end.get("content")), (&json!("completed"), None));
}

#[test]
fn usage_and_title_are_shown() {
    let stage = Stage::new(["one", "two"].map(ScriptedReply::says));
    let mut editor = Editor::open(&stage);
    let session = editor.new_session(stage.repo.path());
    let id = editor.prompt(&session, "Fix the parser\n\nIt loops.");
    editor.answer(id);
    let title = editor.updates("session_info_update")[0];
    assert_eq!(title["title"], "Fix the parser");
    assert!(title["updatedAt"].as_str().unwrap().contains('T'), "{title}");
    let first = editor.updates("usage_update").last().cloned().cloned().unwrap();
    let (used, size) = (first["used"].as_u64().unwrap(), first["size"].as_u64().unwrap());
    assert!(0 < used && used < size, "{first}");
    let id = editor.prompt(&session, "go on");
    editor.answer(id);
    assert_eq!(
        editor.updates("session_info_update").len(),
        1,
        "only the first request is the title"
    );
    let last = editor.updates("usage_update").last().cloned().cloned().unwrap();
    editor.leave();
    let mut editor = Editor::open(&stage);
    let params = json!({"sessionId": session, "cwd": stage.repo.path(), "mcpServers": []});
    editor.request("session/resume", params);
    let update = editor.wait("usage", |m| m["params"]["update"]["sessionUpdate"] == "usage_update");
    assert_eq!(update["params"]["update"]["cost"], last["cost"], "the cost of the whole session");
}

#[test]
fn notices_reach_an_editor_that_shows_them() {
    for shows in [true, false] {
        let stage = Stage::new([ScriptedReply::status(529), ScriptedReply::says("done")]);
        let able = if shows { json!({"session": {"notices": {}}}) } else { json!({}) };
        let mut editor = Editor::offering(&stage, able);
        let session = editor.new_session(stage.repo.path());
        let id = editor.prompt(&session, "hi");
        assert_eq!(editor.answer(id)["result"]["stopReason"], "end_turn");
        let notices = editor.updates("notice");
        assert_eq!(notices.is_empty(), !shows, "{notices:?}");
        if shows {
            assert!(notices[0]["title"].as_str().unwrap().starts_with("retry in "), "{notices:?}");
        }
    }
}

#[test]
fn own_events_can_be_switched_off() {
    let stage = Stage::new(ScriptedReply::says("hello"));
    let mut editor = Editor::before(&stage, &["acp", "--no-events"], json!({}));
    let session = editor.new_session(stage.repo.path());
    let id = editor.prompt(&session, "hi");
    editor.answer(id);
    assert_eq!(editor.updates("agent_message_chunk")[0]["content"]["text"], "hello");
    assert_eq!(editor.own_events(), Vec::<&Value>::new());
}

#[test]
fn a_session_can_be_deleted() {
    let stage = Stage::new(ScriptedReply::says("noted"));
    let mut editor = Editor::open(&stage);
    let (session, other) =
        (editor.new_session(stage.repo.path()), editor.new_session(stage.repo.path()));
    let id = editor.prompt(&session, "the word is plum");
    editor.answer(id);
    editor.request("session/delete", json!({"sessionId": session}));
    editor.request("session/delete", json!({"sessionId": session}));
    assert_eq!(stage.session_dirs().len(), 1);
    let id = editor.prompt(&session, "are you there?");
    assert!(editor.answer(id)["error"]["message"].as_str().unwrap().contains("no open session"));
    // That of another g3 is not deleted while it is in use.
    let mut second = Editor::open(&stage);
    second.request("session/list", json!({"cwd": stage.repo.path()}));
    let id = second.begin("session/delete", json!({"sessionId": other}));
    assert!(second.answer(id)["error"]["message"].as_str().unwrap().contains("in use"));
    editor.leave();
    stage.g3(["sessions", "delete", &other]).ok();
    assert!(stage.session_dirs().is_empty());
    stage.g3(["sessions", "delete", &other]).exits(2).output_contains("no such session");
}

#[test]
fn further_directories_of_the_workspace_can_be_written() {
    let write = |repo: &str| {
        let file = format!("../{repo}/a [1].txt");
        ScriptedReply::call("write_file", json!({"file_path": file, "content": "hi\n"}))
    };
    let stage = Stage::new([write("lib [x]"), write("other"), ScriptedReply::says("done")]);
    let (lib, other) = (stage.env.repo_at("lib [x]"), stage.env.repo_at("other"));
    let mut editor = Editor::open(&stage);
    let params = json!({"cwd": stage.repo.path(), "mcpServers": [],
        "additionalDirectories": [lib.path()]});
    let session = editor.request("session/new", params)["sessionId"].as_str().unwrap().to_owned();
    let id = editor.prompt(&session, "write them");
    let asked = editor.wait("question", |m| m["method"] == "session/request_permission");
    assert_eq!(lib.read("a [1].txt"), "hi\n");
    let title = asked["params"]["toolCall"]["title"].as_str().unwrap().to_owned();
    assert!(title.contains(&other.path().display().to_string()), "{title}");
    editor.send(json!({"jsonrpc": "2.0", "id": asked["id"], "result":
        {"outcome": {"outcome": "selected", "optionId": "no"}}}));
    editor.answer(id);
    assert!(!other.path().join("a [1].txt").exists());
    let listed = editor.request("session/list", json!({}));
    assert_eq!(listed["sessions"][0]["title"], "write them", "not the note about them");
    assert!(stage.asked()[0].text().contains(&lib.path().display().to_string()));
}

#[test]
fn files_in_a_prompt_are_not_dropped_in_silence() {
    let stage = Stage::new(ScriptedReply::says("seen"));
    let mut editor = Editor::open(&stage);
    let session = editor.new_session(stage.repo.path());
    let blob = |uri: &str, media: &str| json!({"type": "resource", "resource": {"uri": uri, "mimeType": media, "blob": "aGk="}});
    let prompt = json!([{"type": "text", "text": "look"},
        blob("file:///a.png", "image/png"), blob("file:///a.zip", "application/zip"),
        {"type": "audio", "mimeType": "audio/wav", "data": "aGk="}]);
    let id = editor.begin("session/prompt", json!({"sessionId": session, "prompt": prompt}));
    editor.answer(id);
    for empty in [json!([]), json!([{"type": "text", "text": " \n"}])] {
        let id = editor.begin("session/prompt", json!({"sessionId": session, "prompt": empty}));
        assert_eq!(editor.answer(id)["error"]["message"], "the prompt is empty");
    }
    let content = stage.asked()[0].body["messages"][0]["content"].clone();
    assert!(content[3]["text"].as_str().unwrap().contains("audio/wav"), "{content}");
    assert_eq!(content[1]["source"]["media_type"], "image/png");
    assert!(content[2]["text"].as_str().unwrap().contains("file:///a.zip"), "{content}");
    editor.leave();
    let mut editor = Editor::open(&stage);
    let params = json!({"sessionId": session, "cwd": stage.repo.path(), "mcpServers": []});
    editor.request("session/load", params);
    let shown = editor.updates("user_message_chunk");
    assert_eq!(shown[1]["content"]["mimeType"], "image/png", "{shown:#?}");
}
