//! Tests of decisions where the documented tools contradict each other or the programs behind them:
//! one test for each decision, named after its number, and one for each name that several profiles
//! have.

use std::fs;

use serde_json::{Value, json};
use testkit::model_server::reply::ScriptedReply;
use testkit::model_server::script::Script;

use crate::agent_env::Stage;
use crate::lsp_support::Toys;
use crate::tools_support::{Bench, G3};

fn run(bench: &Bench, tool: &str, command: &str) -> crate::tools_support::Called {
    bench.call(tool, json!({ "command": command, "description": "runs" }))
}

#[test]
fn divergence_01_the_directory_of_execute_cli_persists() {
    let bench = Bench::new("core");
    run(&bench, "execute_cli", "mkdir sub && cd sub && export X=1").works();
    let there = run(&bench, "execute_cli", "pwd; echo \"[$X]\"");
    assert_eq!(there.metadata["stdout"], format!("{}\n[]\n", bench.at("sub")), "exports do not");
}

#[test]
fn divergence_03_and_25_core_returns_the_bare_array_and_all_the_object() {
    let bench = Bench::new("core");
    run(&bench, "execute_cli", "true").works();
    assert!(bench.call("get_action_history", json!({})).metadata.is_array());
    let all = Bench { profile: "all", ..bench };
    let told = all.call("get_action_history", json!({})).metadata;
    assert_eq!((&told["status"], &told["total_count"]), (&json!("success"), &json!(1)), "{told}");
    assert!(told["actions"].is_array(), "{told}");
}

#[test]
fn divergence_06_fourteen_kinds_of_prompts_are_answered() {
    let bench = Bench::new("core");
    for (question, answer) in [
        ("Install? [Y/n] ", "Y"),
        ("Remove? [y/N] ", "y"),
        ("Go (y/n)? ", "y"),
        ("Go (yes/no): ", "yes"),
        ("Do you want to continue? ", "y"),
        ("Are you sure? ", "y"),
        ("Continue? ", "y"),
        ("Press Enter to go on ", ""),
        ("Ok to proceed? (y) ", "y"),
        ("Proceed? (y/N) ", "y"),
        // The rule for `(y/n)` comes before the one for `proceed (Y/n)`.
        ("Proceed (Y/n)? ", "y"),
        ("Type 'yes' to confirm: ", "yes"),
        ("overwrite x? [y/N] ", "y"),
        ("x already exists, overwrite? ", "y"),
    ] {
        let line = format!("printf \"{question}\"; read answer; echo \"<$answer>\"");
        let told = run(&bench, "execute_cli", &line).metadata;
        let out = told["stdout"].as_str().unwrap().to_owned();
        assert!(out.ends_with(&format!("<{answer}>\n")), "{question:?}: {out:?}");
    }
}

#[test]
fn divergence_07_a_silent_command_is_not_killed() {
    let bench = Bench::new("core");
    let told = run(&bench, "execute_cli", "sleep 8.5; echo built").metadata;
    assert_eq!((&told["stdout"], &told["status"]), (&json!("built\n"), &json!("success")));
}

#[test]
fn divergence_08_fuzzy_matches_are_reported_and_disabled_for_egirl() {
    let loose = json!({"oldString": "a  =  1", "newString": "a = 2", "filePath": "x"});
    let bench = Bench::new("tools-api");
    bench.write("x", "a = 1\n");
    let edited = bench.call("edit", loose);
    edited.says("not found exactly").works();
    assert_eq!(edited.metadata["strategy"], "whitespace_normalized");
    let bench = Bench::new("egirl");
    bench.write("x", "a = 1\n");
    let args = json!({"path": "x", "old_text": "a  =  1", "new_text": "a = 2"});
    let missed = bench.call("edit_file", args);
    missed.fails("failed");
    assert!(missed.escalate.is_some());
    assert_eq!(bench.read("x"), "a = 1\n");
}

#[test]
fn divergence_09_an_edit_is_never_reversed_or_applied_everywhere_unless_requested() {
    let bench = Bench::new("tools-api");
    bench.write("x", "new\n");
    bench
        .call("edit", json!({"filePath": "x", "oldString": "old", "newString": "new"}))
        .says("already applied")
        .fails("failed");
    bench.write("y", "a = 1\nb\na = 1\n");
    bench
        .call("edit", json!({"filePath": "y", "oldString": "a  =  1", "newString": "a = 2"}))
        .fails("failed");
    assert_eq!((bench.read("x"), bench.read("y")), ("new\n".into(), "a = 1\nb\na = 1\n".into()));
}

#[test]
fn divergence_10_a_patch_is_atomic_unless_sequential_is_requested() {
    let patch = "*** Begin Patch\n*** Add File: a\n+a\n*** Delete File: b/\n*** Update File: no\n@@\n-x\n+y\n*** End Patch";
    for (mode, made) in [(None, false), (Some("atomic"), false), (Some("sequential"), true)] {
        let bench = Bench::new("tools-api");
        let mut args = json!({ "patch_text": patch });
        if let Some(mode) = mode {
            args["mode"] = json!(mode);
        }
        bench.call("patch", args).fails("not_found");
        assert_eq!(bench.has("a"), made, "{mode:?}");
    }
}

#[test]
fn divergence_11_deleting_a_missing_file_depends_on_the_profile() {
    let patch = "*** Begin Patch\n*** Delete File: gone\n*** End Patch";
    let bench = Bench::new("tools-api");
    bench.call("patch", json!({ "patch_text": patch })).says("Skipped").works();
    bench.call("apply_patch", json!({ "input": patch })).fails("not_found");
}

#[test]
fn divergence_14_the_meaning_of_an_exit_code_depends_on_the_profile() {
    let ok = |profile: &'static str, tool: &str| run(&Bench::new(profile), tool, "exit 3").ok;
    assert!(!ok("g3", "shell") && !ok("egirl", "execute_command") && !ok("core", "execute_cli"));
    let bench = Bench::new("tools-api");
    assert_eq!(run(&bench, "bash", "exit 3").metadata["exit_code"], 3);
    assert!(ok("tools-api", "bash"));
}

#[test]
fn divergence_16_no_stop_token_is_requested() {
    let stage = Stage::new([ScriptedReply::says("hi")]);
    stage.env.config(&stage.model.config_toml("openai"));
    stage.g3(["say hi"]).ok();
    let asked = &stage.asked()[0].body;
    assert!(asked.get("stop").is_none() && asked.get("stop_sequences").is_none(), "{asked}");
}

#[test]
fn divergence_17_quotes_are_repaired_only_if_strict_parsing_fails() {
    let call =
        |args: &str| format!("<tool_call>\n{{'name': 'shell', 'arguments': {args}}}\n</tool_call>");
    let strict = "<tool_call>\n{\"name\": \"shell\", \"arguments\": {\"command\": \"echo \\\"it's 'so'\\\" > strict\"}}\n</tool_call>";
    let stage = Stage::new([
        ScriptedReply::says(strict),
        ScriptedReply::says(call("{'command': 'echo it\u{2019}s > mended; echo \"b\" >> mended'}")),
        ScriptedReply::says("done"),
    ]);
    let model = stage.model.config_toml("openai");
    stage.env.config(&format!("{model}native_tools = false\n"));
    stage.g3(["write"]).ok();
    assert_eq!(stage.repo.read("strict"), "it's 'so'\n");
    assert_eq!(stage.repo.read("mended"), "it\u{2019}s\nb\n");
}

#[test]
fn divergence_18_a_truncated_list_of_matches_says_so_at_its_end() {
    let bench = Bench::new("tools-api");
    for file in 0..12 {
        bench.write(&format!("{file}.txt"), "hit\n".repeat(100));
    }
    let found = bench.call("grep", json!({ "pattern": "hit" }));
    assert!(found.works().lines().last().unwrap().starts_with("[truncated"), "{}", found.text);
}

#[test]
fn divergence_20_a_verb_is_destructive_and_a_word_is_not() {
    let bench = Bench::new("core");
    for harmless in [
        "echo rm -rf x",
        "printf '%s' --format=json --message-format=json",
        "grep -c kill /dev/null || true",
        "git mv --help >/dev/null 2>&1 || true",
        "echo docker run --rm x",
    ] {
        run(&bench, "execute_cli", harmless).works();
    }
    for destructive in ["rm x", "echo a && rm x", "sudo rm x", "x=$(rm y)", "/bin/rm x", "mv a b"] {
        run(&bench, "execute_cli", destructive).fails("denied");
    }
}

#[test]
fn divergence_21_calls_on_one_file_run_in_order() {
    let write = |text: &str| json!({"filePath": "x", "content": text});
    let edit = |old: &str, new: &str| json!({"filePath": "x", "oldString": old, "newString": new});
    let stage = Stage::new([
        ScriptedReply::new()
            .calls("write", write("one"))
            .calls("edit", edit("one", "two"))
            .calls("edit", edit("two", "three"))
            .calls("bash", json!({"command": "cat ./x >> log", "description": "looks"}))
            .calls("edit", edit("three", "four")),
        ScriptedReply::says("done"),
    ]);
    stage.g3(["--profile", "tools-api", "write"]).ok();
    assert_eq!((stage.repo.read("x"), stage.repo.read("log")), ("four".into(), "three".into()));
}

#[test]
fn divergence_23_calls_that_need_an_answer_are_denied_without_one() {
    let bench = Bench::new("egirl");
    let args = json!({"path": "/etc/g3-was-here", "content": ""});
    let denied = bench.call("write_file", args);
    denied.says("no terminal to ask on").says("[[gate.rules]]").fails("denied");
}

#[test]
fn divergence_24_a_file_need_not_be_read_first_but_must_not_have_changed_since() {
    let bench = Bench::new("tools-api");
    bench.write("x", "one\n");
    let edit = |old: &str, new: &str| {
        bench.call("edit", json!({"filePath": "x", "oldString": old, "newString": new}))
    };
    edit("one", "two").works();
    bench.write("x", "two and more\n");
    let write = json!({"filePath": "x", "content": "three\n"});
    bench.call("write", write).says("changed since").says("+two and more").fails("failed");
    assert_eq!(bench.read("x"), "two and more\n");
    bench.write("x", "two and much more\n");
    edit("two and more", "three").says("changed since").says("+two and much more").fails("failed");
    // An exact edit loses none of the changes.
    bench.write("x", "two and most\n");
    edit("two", "three").says("changed since").works();
    assert_eq!(bench.read("x"), "three and most\n");
}

#[test]
fn divergence_26_execute_cli_starts_in_the_configured_directory() {
    let bench = Bench::new("core");
    fs::create_dir(bench.dir.join("there")).unwrap();
    let args = [
        "tool",
        "exec",
        "--profile",
        "core",
        "--name",
        "execute_cli",
        "--cwd",
        "there",
        "--args",
        "{\"command\": \"pwd\"}",
        "--json",
    ];
    let told: Value = bench.env.run(crate::tools_support::G3, &bench.dir, args).json();
    assert_eq!(told["metadata"]["stdout"], format!("{}\n", bench.at("there")));
}

#[test]
fn divergence_29_research_waits_and_returns_its_brief() {
    let brief = "---SCOUT_REPORT_START---\nblue\n---SCOUT_REPORT_END---";
    let stage = Stage::new(Script::by(move |request| {
        match (request.system().contains("You are scout"), request.assistant_messages()) {
            (true, _) => ScriptedReply::says(brief),
            (false, 0) => ScriptedReply::call("research", json!({"query": "Which colour?"})),
            (false, _) => ScriptedReply::says("done"),
        }
    }));
    stage.g3(["find out"]).ok();
    let asked = stage.asked();
    assert_eq!(asked.len(), 3, "the lead, its scout, the lead again");
    assert!(asked[2].tool_results()[0].1.contains("blue"));
}

#[test]
fn divergence_30_a_finished_list_stays_readable() {
    let bench = Bench::new("tools-api");
    let todos = json!([{"id": "1", "content": "paint", "status": "completed", "priority": "low"}]);
    bench.call("todowrite", json!({ "todos": todos })).works();
    bench.call("todoread", json!({})).says("[x]").says("paint").works();
}

#[test]
fn collision_read_file_depends_on_the_parameters_and_mixes_none() {
    let bench = Bench::new("all");
    bench.write("x", "one\ntwo\nthree\n");
    let read = |more: Value| {
        let mut args = json!({"path": "x"});
        args.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        bench.call("read_file", args)
    };
    assert!(read(json!({"start": 4, "end": 7})).works().contains("two"));
    assert!(!read(json!({"start": 4, "end": 7})).text.contains("three"));
    let lines = read(json!({"start_line": 2, "end_line": 2}));
    assert!(lines.works().contains("two") && !lines.text.contains("one"), "{lines:?}");
    let offset = read(json!({"offset": 3, "limit": 1}));
    assert!(offset.works().contains("three") && !offset.text.contains("two"), "{offset:?}");
    read(json!({"start": 1, "start_line": 2})).fails("validation");
}

#[test]
fn collision_write_file_has_one_path_under_three_names() {
    let bench = Bench::new("all");
    for key in ["path", "file_path", "filePath"] {
        bench.call("write_file", json!({ key: "x", "content": key })).works();
        assert_eq!(bench.read("x"), key);
    }
    let both = json!({"path": "x", "file_path": "y", "content": "z"});
    bench.call("write_file", both).fails("validation");
    assert!(!bench.has("y"));
}

#[test]
fn collision_edit_file_accepts_both_parameter_families() {
    let bench = Bench::new("egirl");
    bench.write("x", "a a\n");
    let by = |args: Value| bench.call("edit_file", args);
    by(json!({"path": "x", "old_text": "a a", "new_text": "b a"})).works();
    by(json!({"path": "x", "old_text": "z", "new_text": "y"})).fails("failed");
    assert_eq!(bench.read("x"), "b a\n");
}

#[test]
fn collision_codesearch_queries_a_service_and_code_search_a_syntax_tree() {
    let bench = Bench::new("all");
    let listed = bench.env.run(G3, &bench.dir, ["tool", "list", "--profile", "all", "--schemas"]);
    let tools: Vec<Value> = serde_json::from_str(listed.ok()).unwrap();
    let about = |name: &str| {
        let tool = tools.iter().find(|tool| tool["name"] == name).unwrap();
        tool["description"].as_str().unwrap().to_owned()
    };
    assert!(
        about("codesearch").contains("web service") && about("code_search").contains("tree-sitter")
    );
    bench.write("a.rs", "fn door() {}\n");
    let search = json!({"name": "f", "query": "(function_item) @f", "language": "rust"});
    bench.call("code_search", json!({"searches": [search]})).says("door").works();
    bench.call("codesearch", json!({"searches": [search]})).says("query").fails("validation");
    bench.call("code-search", json!({"query": "x"})).fails("unknown_tool");
}

#[test]
fn collision_todo_write_and_todowrite_are_one_list() {
    let bench = Bench::new("all");
    let item =
        |status: &str| json!({"id": "1", "content": "paint", "status": status, "priority": "low"});
    bench.call("todo_write", json!({"content": "# Doors\n- [x] sand\n  - [ ] fill\n"})).works();
    assert_eq!(
        bench.call("todo_read", json!({})).works().trim_end(),
        "# Doors\n- [x] sand\n  - [ ] fill"
    );
    bench.call("todoread", json!({})).says("sand").says("fill").works();
    bench.call("todowrite", json!({"todos": [item("in_progress")]})).works();
    let now = bench.call("todo_read", json!({}));
    assert!(now.works().contains("- [>] paint") && !now.text.contains("sand"), "{now:?}");
}

#[test]
fn collision_read_image_accepts_one_path_or_several() {
    let bench = Bench::new("all");
    let dot = image::DynamicImage::new_rgb8(2, 2);
    dot.save(bench.dir.join("a.png")).unwrap();
    for args in [
        json!({"file_path": "a.png"}),
        json!({"file_paths": ["a.png"]}),
        json!({"file_paths": "a.png"}),
    ] {
        let seen = bench.call("read_image", args);
        seen.works();
        assert_eq!(seen.images.len(), 1);
    }
}

#[test]
fn collision_lsp_counts_as_its_parameter_names_say() {
    let toys = Toys::new(&[], "");
    let at = |args: Value| toys.bench.call("lsp", args).works().to_owned();
    let from_0 = at(json!({"operation": "definition", "file": "b.toy", "line": 1, "column": 0}));
    let from_1 =
        at(json!({"operation": "goToDefinition", "filePath": "b.toy", "line": 2, "character": 1}));
    assert_eq!((from_0.as_str(), from_1.as_str()), ("a.toy:1:5", "a.toy:1:5"));
}

#[test]
fn collision_timeout_has_the_unit_of_its_tool() {
    let bench = Bench::new("tools-api");
    run_for(&bench, "bash", 300).says("300 ms");
    run_for(&Bench::new("egirl"), "execute_command", 300).says("300 ms").fails("timeout");
}

fn run_for(bench: &Bench, tool: &str, timeout: u32) -> crate::tools_support::Called {
    let args = json!({"command": "sleep 100", "description": "waits", "timeout": timeout});
    bench.call(tool, args)
}
