//! Tests of `g3 --agent NAME` with the real binary: the persona's text, write scope and sessions.

use serde_json::json;
use testkit::model_server::reply::ScriptedReply;

use crate::agent_env::{Stage, journal, of_type};
use crate::editor::Editor;

fn write(path: &str) -> ScriptedReply {
    ScriptedReply::call("write_file", json!({"file_path": path, "content": "x\n"}))
}

#[test]
fn a_persona_starts_the_prompt_and_the_rest_is_unchanged() {
    let stage = Stage::new([
        ScriptedReply::says("one"),
        ScriptedReply::says("two"),
        ScriptedReply::says("three"),
    ]);
    stage.repo.write("AGENTS.md", "Use tabs.");
    stage.repo.write("src/main.rs", "fn main() {}\n");
    stage.g3(["--agent", "carmack", "tidy up"]).ok();
    stage.g3(["tidy up"]).ok();
    stage.g3(["--agent", "lamport", "tidy up"]).ok();
    let systems: Vec<String> = stage.asked().iter().map(|request| request.system()).collect();
    assert!(systems[0].starts_with("You are carmack."));
    assert!(systems[0].contains("\nIn Rust\n"), "the addition for a language that is there");
    assert!(!systems[0].contains("\nIn Python\n"), "and for no other");
    assert!(systems[0].contains("the line `Agent: carmack`"));
    let rest = systems[1].split_once("\n\n").unwrap().1;
    assert!(systems[0].ends_with(rest) && rest.contains("Use tabs."));
    assert!(systems[2].starts_with("You are lamport.") && !systems[2].contains("In Rust"));
}

#[test]
fn writes_outside_the_scope_are_denied_by_the_personas_name() {
    let stage = Stage::new([
        write("src/lib.rs")
            .calls("shell", json!({"command": "echo x > src/other.rs"}))
            .calls("shell", json!({"command": "rm README.md; true"}))
            .calls("str_replace", json!({"file_path": "README.md", "diff": "-a\n+b\n"})),
        write("docs/guide.md").calls("shell", json!({"command": "echo y > docs/more.md"})),
        ScriptedReply::says("done"),
    ]);
    stage.repo.write("docs/here.md", "");
    stage.env.config(&format!(
        "{}\n[[gate.rules]]\ntool = \"*\"\naction = \"allow\"\n",
        stage.model.config_toml("anthropic")
    ));
    stage.repo.write("analysis/memory.md", "");
    stage.repo.write("README.md", "a\n");
    stage.g3(["--agent", "lamport", "document it"]).ok();
    assert!(!stage.repo.path().join("src").exists(), "no rule opens the fence");
    assert_eq!(stage.repo.read("docs/guide.md"), "x\n");
    assert_eq!(stage.repo.read("docs/more.md"), "y\n");
    let results = stage.asked()[1].tool_results();
    for at in [0, 1] {
        let text = &results[at].1;
        assert!(text.contains("lamport may write README*") && text.contains("src/"), "{text}");
    }
    assert!(!results[3].1.contains("lamport"), "README is lamport's: {}", results[3].1);
}

#[test]
fn hidden_writes_of_a_command_outside_the_scope_are_detected() {
    let sneaks = "n=a.rs; for d in src docs; do mkdir -p $d; echo x > $d/$n; done; echo ran";
    let stage = Stage::new([
        ScriptedReply::call("shell", json!({"command": sneaks})),
        ScriptedReply::call("shell", json!({"command": "rm -r $(echo src); echo fine"})),
        ScriptedReply::says("done"),
    ]);
    let ran = stage.g3(["--agent", "lamport", "--json", "document it"]);
    ran.ok();
    let results = stage.asked()[2].tool_results();
    assert!(results[0].1.contains("ran") && results[0].1.contains("denied: lamport may write"));
    assert!(results[0].1.contains("src/a.rs is not among them"), "{}", results[0].1);
    assert!(!results[0].1.contains("docs/a.rs is"), "{}", results[0].1);
    assert!(!results[1].1.contains("denied"), "putting it back is no offence: {}", results[1].1);
    let ends = of_type(&ran.json_lines(), "tool_end")
        .iter()
        .map(|end| end["ok"].clone())
        .collect::<Vec<_>>();
    assert_eq!(ends[0], false);
}

#[test]
fn a_read_only_persona_is_offered_only_read_tools() {
    let stage = Stage::new([
        write("a").calls("shell", json!({"command": "touch b"})),
        ScriptedReply::says("x"),
    ]);
    stage.g3(["--agent", "scout", "which parser?"]).ok();
    let looks = [
        "read_file",
        "read_image",
        "grep",
        "glob",
        "code_search",
        "webfetch",
        "codesearch",
        "websearch",
    ];
    assert_eq!(stage.asked()[0].tool_names(), looks);
    assert!(!stage.repo.path().join("a").exists() && !stage.repo.path().join("b").exists());
    assert!(stage.asked()[1].tool_results()[0].1.contains("not among your tools"));
}

#[test]
fn the_workspace_takes_precedence_but_may_not_widen_the_scope_unless_trusted() {
    let replies = (0..4).flat_map(|_| [write("src/a.rs"), ScriptedReply::says("done")]);
    let stage = Stage::new(replies.collect::<Vec<_>>());
    let own = "---\nname: breaker\nmay_write: [\"src/**\"]\n---\nYou are our own breaker.\n";
    stage.repo.write("agents/breaker.md", own);
    let written = || stage.repo.path().join("src/a.rs").exists();
    let ran = stage.g3(["--agent", "breaker", "break it"]);
    ran.output_contains("may narrow what `breaker` does, not widen it")
        .output_contains("g3 trust --file agents/breaker.md");
    assert!(stage.asked()[0].system().starts_with("You are our own breaker."));
    assert!(!written(), "untrusted");
    stage.g3(["trust", "--file", "agents/breaker.md"]).output_contains("trusted").ok();
    stage.g3(["--agent", "breaker", "break it"]).output_lacks("may narrow");
    assert!(written(), "trusted");
    std::fs::remove_file(stage.repo.path().join("src/a.rs")).unwrap();
    stage.repo.write("agents/breaker.md", format!("{own}One word more.\n"));
    stage.g3(["--agent", "breaker", "break it"]).output_contains("may narrow");
    assert!(!written(), "trust is for that content only");
    let narrow = "---\nmay_write: [\"docs/**\"]\n---\nYou are a narrow carmack.\n";
    stage.repo.write("agents/carmack.md", narrow);
    stage.g3(["--agent", "carmack", "tidy"]).ok();
    assert!(!written(), "a narrower fence needs no trust");
}

#[test]
fn personas_are_listed_with_their_origin() {
    let stage = Stage::new([]);
    let user = stage.env.home().join(".g3/agents");
    std::fs::create_dir_all(&user).unwrap();
    std::fs::write(user.join("fowler.md"), "# Our fowler\n").unwrap();
    stage.repo.write("agents/ada.md", "---\ndescription: counts\n---\nYou are ada.\n");
    let ran = stage.g3(["--list-agents"]);
    ran.ok();
    for line in
        ["ada      workspace  counts", "fowler   user       Our fowler", "scout    embedded"]
    {
        ran.output_contains(line);
    }
    let all = stage.g3(["--list-agents", "--json"]).json();
    let names: Vec<&str> =
        all.as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "ada", "breaker", "carmack", "euler", "fowler", "hopper", "huffman", "lamport",
            "scout", "solon"
        ]
    );
    assert_eq!(all[8]["tools"], "read-only");
    assert_eq!(all[0]["from"], "workspace");
}

#[test]
fn an_invalid_name_or_file_is_reported_with_a_hint() {
    let stage = Stage::new([]);
    stage
        .g3(["--agent", "carmak", "x"])
        .exits(2)
        .output_contains("no such agent: `carmak`")
        .output_contains("g3 --agent carmack");
    for name in ["../carmack", "a/b", "", "carmack.rust"] {
        stage.g3(["--agent", name, "x"]).exits(2).output_contains("try:");
    }
    stage.repo.write("agents/euler.md", "---\nmay_read: all\n---\nx\n");
    stage
        .g3(["--agent", "euler", "x"])
        .exits(2)
        .output_contains("agents/euler.md")
        .output_contains("may_read");
    assert!(stage.session_dirs().is_empty() && stage.asked().is_empty());
}

#[test]
fn a_session_keeps_its_persona() {
    let stage = Stage::new([
        ScriptedReply::says("one"),
        ScriptedReply::says("two"),
        ScriptedReply::says("three"),
        ScriptedReply::says("four"),
    ]);
    stage.g3(["--agent", "euler", "draw"]).ok();
    let dir = stage.session_dir();
    assert_eq!(journal(&dir)[0]["agent"], "euler");
    stage
        .g3(["--agent", "fowler", "--resume", "--", "x"])
        .exits(2)
        .output_contains("belongs to the agent `euler`");
    stage.g3(["--agent", "euler", "--resume", "--", "go on"]).ok();
    stage.g3(["--resume", "--", "go on"]).ok();
    let asked = stage.asked();
    assert!(asked[2].system().starts_with("You are euler."), "without a name the persona is kept");
    stage.g3(["plain words"]).ok();
    stage
        .g3(["--agent", "euler", "--resume", "plain", "--", "x"])
        .exits(2)
        .output_contains("started without --agent");
}

#[test]
fn an_editor_gets_the_requested_persona() {
    let stage = Stage::new([write("src/a.rs"), ScriptedReply::says("done")]);
    let mut editor = Editor::before(&stage, &["acp", "--agent", "euler"], json!({}));
    let session = editor.new_session(stage.repo.path());
    let id = editor.prompt(&session, "draw");
    assert_eq!(editor.answer(id)["result"]["stopReason"], "end_turn");
    assert!(stage.asked()[0].system().starts_with("You are euler."));
    assert!(!stage.repo.path().join("src").exists());
    drop(editor);
    let mut other = Editor::open(&stage);
    let params = json!({"sessionId": session, "cwd": stage.repo.path(), "mcpServers": []});
    let id = other.begin("session/load", params);
    let error = other.answer(id)["error"]["message"].clone();
    assert!(error.as_str().unwrap().contains("belongs to the agent `euler`"), "{error}");
}

#[test]
fn a_persona_without_a_task_starts_its_work_without_a_terminal() {
    let stage = Stage::new([ScriptedReply::says("one")]);
    stage.g3(["--agent", "breaker"]).ok();
    assert!(stage.asked()[0].last().contains("Begin your work"));
}

#[test]
fn a_persona_is_asked_for_notes_only_if_it_may_write_them() {
    let asks = |args: &[&str]| {
        let stage = Stage::new([
            ScriptedReply::call("read_file", json!({"file_path": "a.txt"})),
            ScriptedReply::says("read"),
            ScriptedReply::says("NOTHING"),
        ]);
        stage.repo.write("a.txt", "x\n");
        stage.env.run_command(stage.job([]).args(args).arg("look at a.txt")).ok();
        stage.asked().iter().any(|request| request.last().contains("did you find out about"))
    };
    assert!(asks(&["--agent", "carmack"]));
    assert!(!asks(&["--agent", "carmack", "--no-auto-memory"]));
    assert!(!asks(&["--agent", "breaker"]), "breaker writes its own folder only");
    assert!(!asks(&[]));
}

#[test]
fn a_repository_persona_is_found_from_a_subdirectory_and_its_scope_is_relative_to_the_root() {
    let stage = Stage::new([
        ScriptedReply::call("write_file", json!({ "file_path": "../notes/a.md", "content": "a" })),
        ScriptedReply::call("write_file", json!({ "file_path": "b.md", "content": "b" })),
        ScriptedReply::says("done"),
    ]);
    stage.repo.write("agents/scribe.md", "---\nmay_write: [\"notes/**\"]\n---\nYou write notes.\n");
    stage.repo.write("sub/x.txt", "");
    stage.g3(["-w", "sub", "--agent", "scribe", "x"]).ok();
    assert_eq!(stage.repo.read("notes/a.md"), "a");
    assert!(!stage.repo.path().join("sub/b.md").exists());
}
