//! Tests of hooks with the real binary: their input, their decisions and their limits.

use serde_json::{Value, json};
use testkit::env::{CommandRun, until};
use testkit::model_server::reply::ScriptedReply;
use testkit::model_server::script::Script;

use crate::agent_env::{Stage, of_type};

/// Creates a stage with hooks: event and match (`before_tool shell`), a shell line, further keys.
fn stage(script: impl Into<Script>, hooks: &[(&str, &str, &str)]) -> Stage {
    let stage = Stage::new(script);
    let model = stage.model.config_toml("anthropic");
    let hooks: String = hooks.iter().map(|hook| hook_toml(*hook)).collect();
    stage.env.config(&format!("{model}\n{hooks}"));
    stage
}

fn hook_toml((event, line, more): (&str, &str, &str)) -> String {
    let (event, tools) = event.split_once(' ').unwrap_or((event, ""));
    let tools = if tools.is_empty() { String::new() } else { format!("match = \"{tools}\"\n") };
    format!(
        "[[hooks]]\nevent = \"{event}\"\n{tools}command = {}\n{more}\n",
        json!(["sh", "-c", line])
    )
}

fn shell(command: &str) -> ScriptedReply {
    ScriptedReply::call("shell", json!({ "command": command }))
}

/// Returns the texts of the tool results, as the model read them.
fn results(stage: &Stage) -> Vec<String> {
    let asked = stage.asked();
    let last = asked.last().expect("the model was asked");
    last.tool_results().into_iter().map(|(_, text)| text).collect()
}

fn notices(ran: &CommandRun) -> Vec<String> {
    let events = ran.json_lines();
    of_type(&events, "notice").iter().map(|it| it["text"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn each_event_is_sent_with_its_data() {
    let all = ["session_start", "user_prompt", "before_tool", "after_tool", "stop", "session_end"];
    let line = "cat >> heard; echo >> heard";
    let hooks: Vec<_> = all.into_iter().map(|event| (event, line, "")).collect();
    let stage = stage([shell("echo hi"), ScriptedReply::says("done")], &hooks);
    stage.g3(["say hi"]).ok();
    let told: Vec<Value> =
        stage.repo.read("heard").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let events: Vec<&str> = told.iter().map(|it| it["event"].as_str().unwrap()).collect();
    assert_eq!(events, all);
    let id = stage.session_dir().file_name().unwrap().to_str().unwrap().to_owned();
    for it in &told {
        assert_eq!(it["session"], id.as_str());
        assert_eq!(it["cwd"], stage.repo.path().canonicalize().unwrap().to_str().unwrap());
    }
    assert_eq!(told[0]["resumed"], false);
    assert_eq!(told[1]["prompt"], "say hi");
    assert_eq!(
        (&told[2]["tool"], &told[2]["args"]),
        (&json!("shell"), &json!({"command": "echo hi"}))
    );
    assert_eq!(told[3]["ok"], true);
    assert!(told[3]["result"].as_str().unwrap().contains("hi"));
    assert_eq!(told[4]["again"], 0);
}

#[test]
fn the_output_of_hooks_reaches_the_model_once() {
    let hooks = [
        ("session_start", "echo the branch is main", ""),
        ("user_prompt", "echo be brief", ""),
        ("after_tool sh*", "echo remember to test", ""),
        ("after_tool read_file", "echo never", ""),
    ];
    let script = [shell("echo one"), ScriptedReply::says("done"), ScriptedReply::says("again")];
    let stage = stage(script, &hooks);
    stage.g3_with_input([], "go\nmore\n").ok();
    let asked = stage.asked();
    let first = asked[0].first_user();
    assert!(first.starts_with("go"), "{first}");
    assert!(first.contains("the branch is main") && first.contains("be brief"), "{first}");
    let result = &results(&stage)[0];
    assert!(result.contains("one") && result.ends_with("[note of a hook: remember to test]"));
    let all = asked[2].text();
    assert_eq!(all.matches("the branch is main").count(), 1, "{all}");
    assert_eq!(all.matches("be brief").count(), 2, "{all}");
}

#[test]
fn a_before_tool_hook_can_deny_and_change_and_fails_open() {
    let no = "echo 'not on Fridays' >&2; exit 2";
    let changed = r#"echo '{"args": {"command": "echo changed"}}'"#;
    let script = [shell("touch made"), ScriptedReply::says("ok")];
    let denied = stage(script.clone(), &[("before_tool shell", no, "")]);
    denied.g3(["try"]).ok();
    assert_eq!(results(&denied), ["denied by a hook: not on Fridays"]);
    assert!(!denied.repo.path().join("made").exists());

    let by_words = r#"echo '{"decision": "deny", "reason": "no"}'"#;
    let said = stage(script.clone(), &[("before_tool", by_words, "")]);
    said.g3(["try"]).ok();
    assert_eq!(results(&said), ["denied by a hook: no"]);

    let other =
        stage(script.clone(), &[("before_tool", changed, ""), ("before_tool", "cat > seen", "")]);
    other.g3(["try"]).ok();
    assert!(results(&other)[0].contains("changed"), "{:?}", results(&other));
    assert!(results(&other)[0].contains("a hook changed the arguments"));
    assert!(!other.repo.path().join("made").exists());
    assert!(other.repo.read("seen").contains("echo changed"), "the next hook sees the change");

    let open = stage(script.clone(), &[("before_tool", "echo broken >&2; exit 7", "")]);
    let ran = open.g3(["--json", "try"]);
    ran.ok();
    assert!(notices(&ran)[0].contains("ended with code 7: broken"), "{:?}", notices(&ran));
    assert!(open.repo.path().join("made").exists(), "it fails open");

    let closed = stage(script, &[("before_tool", "exit 7", "required = true")]);
    closed.g3(["try"]).ok();
    assert!(results(&closed)[0].contains("is required and ended with code 7"));
    assert!(!closed.repo.path().join("made").exists());
}

#[test]
fn a_hook_can_answer_a_question_but_not_override_a_denial() {
    let allow = r#"echo '{"decision": "allow"}'"#;
    let ask = r#"echo '{"decision": "ask", "reason": "who knows"}'"#;
    let outside = |stage: &Stage| stage.env.home().join("outside");
    let write =
        ScriptedReply::call("write_file", json!({"file_path": "../outside", "content": "x"}));
    let script = [write, shell("rm -rf /"), ScriptedReply::says("ok")];
    let stage = stage(script.clone(), &[("before_tool", allow, "")]);
    stage.g3(["try"]).ok();
    assert!(outside(&stage).exists(), "{:?}", results(&stage));
    assert!(results(&stage)[1].starts_with("denied"), "{:?}", results(&stage));

    let ruled = self::stage(script.clone(), &[("before_tool", allow, "")]);
    let rule = "[[gate.rules]]\ntool = \"write_file\"\naction = \"deny\"\n";
    let config = ruled.env.home().join(".config/g3/config.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, format!("{text}{rule}")).unwrap();
    ruled.g3(["try"]).ok();
    assert!(results(&ruled)[0].starts_with("denied"), "{:?}", results(&ruled));
    assert!(!outside(&ruled).exists());

    let asked =
        self::stage([shell("echo hi"), ScriptedReply::says("ok")], &[("before_tool", ask, "")]);
    asked.g3(["try"]).ok();
    let said = &results(&asked)[0];
    assert!(said.contains("who knows (no terminal to ask on)"), "{said}");
    assert!(!said.contains("add this rule"), "{said}");
}

#[test]
fn a_stop_hook_continues_the_agent_at_most_three_times() {
    let line = "echo x >> stops; echo 'the tests are red' >&2; exit 2";
    let script = (0..4).map(|n| ScriptedReply::says(format!("done {n}"))).collect::<Vec<_>>();
    let stage = stage(script, &[("stop", line, "")]);
    stage.g3(["work"]).ok();
    let asked = stage.asked();
    assert_eq!(asked.len(), 4);
    assert!(asked[1].last().contains("the tests are red"));
    assert_eq!(stage.repo.read("stops").lines().count(), 3);
}

#[test]
fn a_prompt_that_a_hook_rejects_is_not_sent() {
    let stage =
        stage([], &[("user_prompt", "grep -q secret && echo 'no secrets' >&2 && exit 2", "")]);
    stage.g3(["--", "the secret is 7"]).exits(3).output_contains("no secrets");
    assert!(stage.asked().is_empty());
}

#[test]
fn a_hook_that_hangs_is_killed_with_its_children() {
    let line = "sleep 1000 & echo $! > child; wait";
    let stage = stage(
        [shell("echo on"), ScriptedReply::says("ok")],
        &[("before_tool", line, "timeout_seconds = 1")],
    );
    let ran = stage.g3(["--json", "try"]);
    ran.ok();
    assert!(notices(&ran)[0].contains("timed out after 1 s"));
    assert!(results(&stage)[0].contains("on"));
    let child: u32 = stage.repo.read("child").trim().parse().unwrap();
    until("the child to end", || (!base::process::is_alive(child)).then_some(()));
}

#[test]
fn hooks_have_no_keys_and_those_of_a_repository_run_only_if_trusted() {
    let mut stage = stage(
        [ScriptedReply::says("one"), ScriptedReply::says("two")],
        &[("session_start", "env > seen", "")],
    );
    stage.env.set("OPENAI_API_KEY", "sk-secret");
    stage.repo.write("g3.toml", hook_toml(("session_start", "touch theirs", "")));
    stage.g3(["work"]).output_contains("`hooks` in ").output_contains("is ignored").ok();
    let seen = stage.repo.read("seen");
    assert!(
        seen.contains("HOME=") && !seen.contains("sk-secret") && !seen.contains("OPENAI_API_KEY")
    );
    assert!(!stage.repo.path().join("theirs").exists());
    stage.g3(["trust"]).ok();
    std::fs::remove_file(stage.repo.path().join("seen")).unwrap();
    stage.g3(["work"]).ok();
    assert!(stage.repo.path().join("theirs").exists());
    assert!(stage.repo.path().join("seen").exists(), "the user's own run as well");
}

#[test]
fn an_invalid_hook_is_a_configuration_error() {
    for hook in [
        "event = \"nope\"\ncommand = [\"x\"]",
        "event = \"stop\"\ncommand = []",
        "event = \"stop\"\nmatch = \"shell\"\ncommand = [\"x\"]",
        "event = \"after_tool\"\nrequired = true\ncommand = [\"x\"]",
    ] {
        let stage = Stage::new([]);
        let model = stage.model.config_toml("anthropic");
        stage.env.config(&format!("{model}\n[[hooks]]\n{hook}\n"));
        stage.g3(["work"]).exits(2).output_contains("`hooks` must be a list of hooks");
    }
    let stage = stage([], &[("before_tool [", "true", "")]);
    stage.g3(["work"]).exits(2).output_contains("not a glob");
}
