//! Tests of the command line: flags, tasks, configuration, exit codes.

use serde_json::json;
use testkit::env::TestEnv;
use testkit::model_server::reply::ScriptedReply;

use crate::agent_env::{G3, Stage};

#[test]
fn invalid_flags_exit_with_2_and_a_hint() {
    let stage = Stage::new([]);
    for args in [
        &["--bogus"][..],
        &["--max-turns", "0", "x"],
        &["--max-turns", "many", "x"],
        &["--max-tokens", "0", "x"],
        &["--budget", "nan", "x"],
        &["--budget", "-1", "x"],
        &["--timeout", "0", "x"],
        &["--resume", "a", "--new-session"],
        &["--profile", "nope", "x"],
        &["--provider", "nope", "x"],
        &["-w", "/does/not/exist", "x"],
        &["--config", "/does/not/exist.toml", "x"],
        &["--model=", "x"],
        &["--resume", "", "--", "x"],
        &["--events", "-", "x"],
        &["fix", "the", "tests"],
        &["--fallback-model=", "x"],
        &["--json"],
        &["acp", "--json"],
        &["--plannning"],
    ] {
        let ran = stage.g3(args);
        assert_eq!(ran.code, 2, "{args:?}:\n{ran}");
        ran.output_contains("error:").output_lacks(" turns");
        assert_eq!(ran.err.matches("error:").count(), 1, "{args:?}:\n{ran}");
    }
    assert!(stage.session_dirs().is_empty(), "nothing was begun");
    assert!(stage.asked().is_empty());
}

#[test]
fn a_missing_configuration_file_is_an_error() {
    let env = TestEnv::new();
    let repo = env.repo();
    env.run(G3, repo.path(), ["--config", "nope.toml", "x"]).exits(2).output_contains("nope.toml");
    env.run(G3, repo.path(), ["config", "show"]).ok();
    for path in [env.home().join(".config/g3"), repo.path().join("nope.toml")] {
        assert!(!path.exists(), "{} was written", path.display());
    }
}

#[test]
fn a_task_in_place_of_a_session_gets_a_hint() {
    let stage = Stage::new([ScriptedReply::says("one"), ScriptedReply::says("two")]);
    stage.g3(["first"]).ok();
    let ran = stage.g3(["--resume", "do it"]);
    ran.exits(2)
        .output_contains("no such session: `do it`")
        .output_contains("g3 --resume -- \"do it\"");
    stage.g3(["--resume", "zzz", "--", "go"]).exits(2).output_lacks("if that is the task");
    stage.g3(["--resume", "--", "do it"]).ok();
    assert!(stage.asked()[1].text().contains("first") && stage.asked()[1].text().contains("do it"));
}

#[test]
fn an_unknown_key_suggests_a_similar_one() {
    let stage = Stage::new([]);
    stage.env.config("[agent]\nmax_turn = 3\n");
    stage.g3(["x"]).exits(2).output_contains("max_turn").output_contains("max_turns");
}

#[test]
fn an_unquoted_task_gets_a_hint() {
    let stage = Stage::new([]);
    for words in [&["fix", "it"][..], &["--quiet", "fix", "the", "tests"], &["list", "sessions"]] {
        stage.g3(words).exits(2).output_contains("quote a task of several words");
    }
    stage.g3(["--bogus"]).exits(2).output_lacks("quotes");
    stage.g3(["sessions", "lst"]).exits(2).output_lacks("quotes");
}

#[test]
fn without_a_key_and_a_local_model_the_options_are_listed() {
    let env = TestEnv::new();
    let ran = env.run(G3, env.repo().path(), ["x"]);
    ran.exits(2).output_contains("g3 model pull").output_contains("ANTHROPIC_API_KEY");
    env.run(G3, env.repo_at("b").path(), ["model", "remove", "nope"])
        .exits(2)
        .output_contains("try:");
}

#[test]
fn a_missing_key_says_where_to_set_it() {
    let env = TestEnv::new();
    env.config("[providers]\ndefault_provider = \"anthropic.main\"\n[providers.anthropic.main]\nmodel = \"m\"\n");
    let ran = env.run(G3, env.repo().path(), ["x"]);
    ran.exits(2)
        .output_contains("ANTHROPIC_API_KEY")
        .output_contains("try:")
        .output_lacks(" turns");
}

#[test]
fn with_json_stdout_has_only_events_even_on_failure() {
    let stage = Stage::new([]);
    stage.env.config("nonsense = 1\n");
    let ran = stage.g3(["--json", "x"]);
    ran.exits(2);
    let events = ran.json_lines();
    assert_eq!(events[0]["type"], "error");
    assert_eq!(events.last().unwrap()["exit"], 2);
}

#[test]
fn a_task_of_one_megabyte_is_read_from_stdin() {
    let stage = Stage::new([ScriptedReply::says("read it")]);
    let task = format!("find the end: {}THE-END", "words ".repeat(180_000));
    assert!(task.len() > 1_000_000);
    assert_eq!(stage.g3_with_input(["-"], &task).ok(), "read it");
    assert!(stage.asked()[0].text().ends_with("THE-END"));
}

#[test]
fn a_task_may_start_with_hyphens() {
    let stage = Stage::new([ScriptedReply::says("ok")]);
    stage.g3(["--", "--why is this flag ignored?"]).ok();
    assert!(stage.asked()[0].first_user().contains("--why is this flag ignored?"));
}

#[test]
fn variables_in_a_task_are_expanded() {
    let stage = Stage::new([ScriptedReply::says("ok"), ScriptedReply::says("ok")]);
    stage.g3(["is {{today}} a {{holiday}}?"]).ok();
    stage.g3_with_input(["-"], "since {{today}}").ok();
    let said: Vec<String> = stage.asked().iter().map(|asked| asked.last()).collect();
    assert_eq!(said, ["is 2026-01-02 (Friday) a {{holiday}}?", "since 2026-01-02 (Friday)"]);
}

#[test]
fn an_empty_task_is_rejected() {
    let stage = Stage::new([]);
    stage.g3([" "]).exits(2).output_contains("empty");
    stage.g3_with_input(["-"], "\n").exits(2).output_contains("empty");
}

#[test]
fn quiet_prints_only_the_models_text() {
    let stage = Stage::new([
        ScriptedReply::call("shell", json!({"command": "ls"})),
        ScriptedReply::says("done"),
    ]);
    let ran = stage.g3(["--quiet", "look"]);
    assert_eq!(ran.ok(), "done");
    assert_eq!(ran.err, "");
}

#[test]
fn control_characters_of_a_model_are_escaped() {
    let stage = Stage::new([ScriptedReply::says("a\u{1b}]52;c;aGk=\u{7}b\u{1b}[2Jc")]);
    assert_eq!(stage.g3(["x"]).ok(), "a^[]52;c;aGk=^Gb^[[2Jc");
}

#[test]
fn complete_sends_one_request_without_tools_or_agent_prompt() {
    let stage = Stage::new([ScriptedReply::says("Fix login\n")]);
    let ran = stage.g3_with_input(["complete"], "Write a commit message for this diff");
    assert_eq!(ran.out, "Fix login\n");
    let asked = &stage.asked()[0];
    assert!(asked.tool_names().is_empty());
    assert_eq!(asked.system(), "");
    assert!(stage.session_dirs().is_empty(), "it leaves no session");
    stage.g3_with_input(["complete"], "again").exits(1).output_contains("error:");
    stage.g3_with_input(["complete"], "").exits(2).output_contains("expected a question");
}

#[test]
fn chat_offers_no_tools() {
    let stage = Stage::new([ScriptedReply::says("hello")]);
    stage.g3(["--chat", "hi"]).ok();
    assert!(stage.asked()[0].tool_names().is_empty());
}

#[test]
fn the_configuration_is_shown_with_its_origins() {
    let stage = Stage::new([]);
    let ran = stage.g3(["config", "show", "--origin"]);
    ran.ok();
    ran.output_contains("config.toml").output_contains("# default").output_lacks("test-key");
}

#[test]
fn a_repositorys_configuration_applies_only_if_trusted() {
    let stage = Stage::new([ScriptedReply::says("one"), ScriptedReply::says("two")]);
    stage.repo.write("g3.toml", "[studio]\nchecks = [\"make\"]\n");
    stage.g3(["config", "show"]).output_lacks("make\"");
    stage.g3(["trust"]).output_contains("trusted").ok();
    stage.g3(["config", "show"]).output_contains("make");
    stage.g3(["trust", "show"]).output_contains("g3.toml");
    stage.g3(["trust", "revoke"]).output_contains("no longer trusted");
    stage.g3(["config", "show"]).output_lacks("make\"");
}

#[test]
fn a_changed_file_is_trusted_by_its_difference_with_hidden_characters_shown() {
    let stage = Stage::new([]);
    let script = |text: &str| stage.repo.write("check.sh", format!("#!/bin/sh\n{text}\n"));
    script("true");
    stage.repo.write("g3.toml", "[studio]\nchecks = [\"./check.sh\"]\njobs = 1\n");
    let first = stage.g3(["trust"]);
    first.output_contains("checks = [").output_contains("with check.sh (sha256").ok();
    first.output_lacks("changed since");

    // Only what changed is shown, and nothing of it is hidden.
    stage.repo.write(
        "g3.toml",
        "[studio]\nchecks = [\"./check.sh\"]\njobs = 1\nsetup = \"a\u{202e}b\u{200b}\u{e0041}\"\n",
    );
    script("rm -rf x");
    stage.g3(["config", "show"]).output_lacks("setup = \"a");
    let changed = stage.g3(["trust"]);
    changed
        .output_contains("changed since you trusted it on ")
        .output_contains("+setup = \"a<U+202E>b<U+200B><U+E0041>\"")
        .output_contains(", changed)")
        .output_lacks("+jobs = 1");
    stage.g3(["config", "show"]).output_contains("check.sh");

    // Another change of the script only.
    script("rm -rf y");
    stage.g3(["config", "show"]).output_lacks("check.sh");
    stage.g3(["trust"]).output_contains(", changed)").output_lacks("changed since");
}

#[test]
fn the_projects_instructions_and_memory_are_in_the_prompt() {
    let stage = Stage::new([ScriptedReply::says("ok")]);
    stage.repo.write("AGENTS.md", "Use tabs in this house.");
    stage.repo.write("sub/AGENTS.md", "Use spaces in this room.");
    stage.repo.write("sub/analysis/memory.md", "The parser lives in parse.rs.");
    stage.g3(["-w", "sub", "x"]).ok();
    let system = stage.asked()[0].system();
    let tabs = system.find("Use tabs").unwrap();
    assert!(tabs < system.find("Use spaces").unwrap());
    assert!(system.contains("The parser lives in parse.rs."));
    assert!(system.contains("2026-01-02"));
}

#[test]
fn completions_are_printed() {
    let stage = Stage::new([]);
    assert!(stage.g3(["completions", "bash"]).ok().contains("--new-session"));
}

#[test]
fn a_pipe_in_place_of_an_instructions_file_does_not_block() {
    let stage = Stage::new([ScriptedReply::says("ok")]);
    for place in ["AGENTS.md", "analysis/memory.md", "skills/slow/SKILL.md", "agents/slow.md"] {
        let path = stage.repo.path().join(place);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let mode = rustix::fs::Mode::from_bits_truncate(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    }
    stage.g3(["x"]).output_contains("it is a named pipe").exits(0);
    stage.g3(["--agent", "slow", "x"]).output_contains("it is a named pipe").exits(2);
}

#[test]
fn a_misspelled_command_or_flag_does_not_run_as_a_task() {
    let stage = Stage::new(vec![ScriptedReply::says("done"); 4]);
    for (word, command) in
        [("resume", "g3 --resume"), ("chat", "g3 --chat"), ("sesions", "g3 sessions")]
    {
        let ran = stage.g3([word]);
        ran.exits(2).output_contains(&format!("no such command: `{word}`"));
        ran.output_contains(&format!("try: {command}")).output_contains(&format!("g3 -- {word}"));
    }
    stage.g3(["resume", "fix-login"]).exits(2).output_contains("try: g3 --resume");
    assert!(stage.asked().is_empty() && stage.session_dirs().is_empty());
    for task in [&["--", "resume"][..], &["refactor"], &["chat with me"]] {
        assert_eq!(stage.g3(task).ok(), "done", "{task:?}");
    }
}

#[test]
fn codebase_fast_start_works_in_the_directory_and_describes_its_code() {
    let stage = Stage::new([
        ScriptedReply::call("shell", json!({"command": "pwd"})),
        ScriptedReply::says("done"),
        ScriptedReply::says("again"),
    ]);
    stage.repo.write("shop/src/lib.rs", "pub fn open_the_doors() {}\n");
    stage.g3(["--codebase-fast-start", "shop", "look around"]).ok();
    let asked = stage.asked();
    let first = asked[0].messages()[0].to_string();
    assert!(first.contains("pub fn open_the_doors()") && first.contains("look around"), "{first}");
    assert!(asked[1].text().contains("/repo/shop"), "tools run in the directory");
    stage.g3(["--codebase-fast-start", "nowhere", "x"]).exits(2).output_contains("nowhere");
    stage.g3(["--codebase-fast-start", "shop", "--resume", "--", "x"]).exits(2);
    let tiny = format!("{}context_length = 9000\n", stage.model.config_toml("anthropic"));
    stage.env.config(&tiny);
    for n in 0..300 {
        stage.repo.write(&format!("shop/src/m{n}.rs"), format!("pub fn f{n}() {{}}\n"));
    }
    stage.g3(["--codebase-fast-start", "shop", "again"]).ok();
    let first = stage.asked()[2].messages()[0].to_string();
    assert!(first.len() < 6_000 && first.contains("Report about the code"), "{}", first.len());
}
