//! Tests of data that outlives a session: the notes of the workspace, and the user's memories.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use serde_json::{Value, json};
use testkit::model_server::ModelServer;
use testkit::model_server::reply::ScriptedReply;
use testkit::model_server::script::Script;

use crate::agent_env::{G3, Stage, journal, of_type};
use crate::tools_support::Bench;

const NOTES: &str = "analysis/memory.md";

#[test]
fn notes_are_merged_and_the_next_session_reads_them() {
    let note = |text: &str| ScriptedReply::call("remember", json!({ "notes": text }));
    let stage = Stage::new([
        note("### Build\n- `./test` runs all\n"),
        note("### Build\n- `./test`  runs all\n- needs cmake\n"),
        ScriptedReply::says("noted"),
        ScriptedReply::says("read"),
    ]);
    stage.repo.write(NOTES, "By hand.\n\n### Build\n- ask Ann\n");
    stage.g3(["take notes"]).ok();
    let text = stage.repo.read(NOTES);
    assert_eq!(
        text,
        "# Workspace Memory\n> Updated: 2026-01-02T10:00:00Z | Size: 0.1k chars\n\nBy hand.\n\n\
         ### Build\n- ask Ann\n- `./test` runs all\n- needs cmake\n"
    );
    let results = stage.asked()[2].tool_results();
    assert_eq!(results[0].1, "Memory updated. Size: 0.1k chars");
    assert!(results[1].1.contains("1 of the notes were already there"), "{results:?}");
    stage.g3(["what do you know?"]).ok();
    assert!(stage.asked()[3].system().contains("- needs cmake"));
    assert!(!stage.asked()[2].system().contains("needs cmake"), "stable within a session");
}

#[test]
fn notes_that_do_not_fit_are_rejected_and_nothing_is_lost() {
    let bench = Bench::new("g3");
    let old = format!("# Workspace Memory\n### Long\n{}", "- words and words\n".repeat(1_700));
    bench.write(NOTES, &old);
    let said = bench.call("remember", json!({"notes": format!("### New\n{}", "x ".repeat(2_000))}));
    assert!(said.fails("failed").contains("32k fit"), "{said:?}");
    assert_eq!(bench.read(NOTES), old);
    bench.call("remember", json!({"notes": "### New\n- short\n"})).works();
    bench.call("remember", json!({"notes": "### New\n- short\n"})).says("No change").works();
    bench.call("remember", json!({"notes": " "})).fails("validation");
    bench.write(NOTES, b"caf\xe9\n");
    bench.call("remember", json!({"notes": "- x"})).says("not UTF-8").fails("failed");
    assert_eq!(fs::read(bench.dir.join(NOTES)).unwrap(), b"caf\xe9\n");
}

#[test]
fn notes_do_not_follow_a_link_out_of_the_workspace() {
    let bench = Bench::new("g3");
    let outside = bench.env.home().join("outside.md");
    fs::write(&outside, "mine").unwrap();
    fs::create_dir(bench.dir.join("analysis")).unwrap();
    std::os::unix::fs::symlink(&outside, bench.dir.join(NOTES)).unwrap();
    bench.call("remember", json!({"notes": "- x"})).says("no terminal to ask on").fails("denied");
    assert_eq!(fs::read_to_string(outside).unwrap(), "mine");
}

#[test]
fn another_notes_file_is_read_and_written() {
    let stage = Stage::new([
        ScriptedReply::call("remember", json!({"notes": "### New\n- from here\n"})),
        ScriptedReply::says("done"),
    ]);
    let file = stage.env.home().join("shared.md");
    fs::write(&file, "### Old\n- shared word plum\n").unwrap();
    stage.repo.write(NOTES, "not this one\n");
    stage.g3(["--memory", file.to_str().unwrap(), "note it"]).ok();
    let system = stage.asked()[0].system();
    assert!(system.contains("plum") && !system.contains("not this one"), "{system}");
    assert!(fs::read_to_string(&file).unwrap().contains("- from here"));
    assert_eq!(stage.repo.read(NOTES), "not this one\n");
    stage.g3(["--memory", "/", "x"]).exits(2).output_contains("not a file");
}

/// A model that reads a file when told to, and answers a request for notes with these.
fn learner(notes: &'static str) -> Script {
    Script::by(move |request| {
        let last = request.last();
        if last.contains("this is about the next one") {
            return ScriptedReply::says(notes).usage(50, 7);
        }
        match last.as_str() {
            "look" => ScriptedReply::call("shell", json!({"command": "cat notes.txt"})),
            "note" => ScriptedReply::call("shell", json!({"command": "ls -a"}))
                .calls("remember", json!({"notes": "### Self\n- noted\n"})),
            _ => ScriptedReply::says("fine"),
        }
    })
}

/// Returns how often the model was asked for notes.
fn questions(stage: &Stage) -> usize {
    let asks = |text: String| text.contains("this is about the next one");
    stage.asked().iter().filter(|request| asks(request.last())).count()
}

#[test]
fn auto_memory_asks_once_after_a_turn_with_a_discovery() {
    let stage = Stage::new(learner("### Files\n- `notes.txt` holds notes\n"));
    stage.repo.write("notes.txt", "hello\n");
    let ran = stage.g3(["--auto-memory", "--json", "look"]);
    ran.ok();
    assert_eq!(questions(&stage), 1);
    assert!(stage.repo.read(NOTES).contains("### Files\n- `notes.txt` holds notes\n"));
    let events = ran.json_lines();
    let words: String =
        of_type(&events, "text").iter().filter_map(|event| event["text"].as_str()).collect();
    assert_eq!(words, "fine", "notes are not the model's answer");
    let end = events.last().unwrap();
    assert_eq!(end["usage"]["input"], json!(10 + 10 + 50), "but they are paid for");
    assert_eq!(end["turns"], 2);
    let notice = of_type(&events, "notice");
    assert!(notice[0]["text"].as_str().unwrap().contains("Memory updated"), "{notice:?}");
    let asked = stage.asked();
    assert_eq!(
        (asked[1].system(), asked[1].tool_names()),
        (asked[2].system(), asked[2].tool_names())
    );
    let entries = journal(&stage.session_dir());
    assert_eq!(entries.iter().filter(|entry| entry["entry"] == "noted").count(), 1);
    stage.g3(["--resume", "--", "hi"]).ok();
    assert!(!stage.asked().last().unwrap().text().contains("this is about the next one"));
}

#[test]
fn auto_memory_does_not_ask_without_a_discovery_or_after_notes() {
    let stage = Stage::new(learner("NOTHING"));
    stage.repo.write("notes.txt", "hello\n");
    stage.g3(["look"]).ok();
    stage.g3(["--no-auto-memory", "look"]).ok();
    stage.g3(["--auto-memory", "hi"]).ok();
    stage.g3(["--auto-memory", "note"]).ok();
    assert_eq!(questions(&stage), 0);
    let before = stage.repo.read(NOTES);
    stage.g3(["--auto-memory", "look"]).ok();
    assert_eq!((questions(&stage), stage.repo.read(NOTES)), (1, before), "nothing is worth a note");
    let config = stage.model.config_toml("anthropic");
    stage.env.config(&format!("{config}\n[agent]\nauto_memory = true\n"));
    stage.g3(["look"]).ok();
    stage.g3(["--no-auto-memory", "look"]).ok();
    assert_eq!(questions(&stage), 2, "a flag wins over the configuration");
    stage.g3(["--resume", "--", "look"]).ok();
    assert_eq!(questions(&stage), 2, "the session has seen it before");
}

#[test]
fn truncated_notes_lose_their_last_line_and_a_refusal_is_ignored() {
    let stage = Stage::new([
        ScriptedReply::call("shell", json!({"command": "ls"})),
        ScriptedReply::says("fine"),
        ScriptedReply {
            stop: Some("max_tokens".into()),
            ..ScriptedReply::says("### A\n- whole\n- ha")
        },
        ScriptedReply::call("shell", json!({"command": "ls -a"})),
        ScriptedReply::says("fine"),
        ScriptedReply::status(400),
    ]);
    stage.g3(["--auto-memory", "look"]).ok();
    assert!(stage.repo.read(NOTES).ends_with("### A\n- whole\n"));
    let ran = stage.g3(["--auto-memory", "look again"]);
    assert_eq!(ran.ok(), "fine");
    ran.output_contains("no notes were taken");
}

#[test]
fn in_a_conversation_only_new_discoveries_are_asked_about() {
    let stage = Stage::new(learner("### Files\n- one\n"));
    stage.repo.write("notes.txt", "hello\n");
    stage.g3_with_input(["--auto-memory"], "look\nlook\n").ok();
    assert_eq!(questions(&stage), 1);
}

#[test]
fn memories_are_stored_found_and_replaced_in_both_profiles() {
    for profile in ["g3", "egirl"] {
        let bench = Bench::new(profile);
        bench.call("memory_search", json!({"query": "x"})).says("No memories found").works();
        let set =
            |key: &str, value: &str| bench.call("memory_set", json!({"key": key, "value": value}));
        assert_eq!(
            set("preference_editor", "The user edits with Helix.").works(),
            "Memory stored: preference_editor"
        );
        set("project/goal", &format!("Ship \"it\" {}", "soon ".repeat(100))).works();
        set("user_timezone", "UTC+1 (Berlin)").works();
        set("user_timezone", "UTC+2 (Athens)").works();
        let found = bench.call(
            "memory_search",
            json!({"query": "which editor does the user's \"x\" prefer? -C++ AND"}),
        );
        let text = found.works();
        assert!(text.starts_with("Found "), "{text}");
        assert!(
            text.contains("\n1. [preference_editor] 0.") && text.contains("\n   The user edits"),
            "{text}"
        );
        let got = bench.call("memory_get", json!({"key": "user_timezone"}));
        assert!(got.works().ends_with("UTC+2 (Athens)"), "{got:?}");
        assert_eq!(
            bench.call("memory_search", json!({"query": "berlin"})).works(),
            "No memories found"
        );
        let goal = bench.call("memory_search", json!({"query": "ship goal", "limit": 1}));
        let preview = goal.works().lines().last().unwrap().trim_start().to_owned();
        assert!(preview.chars().count() == 200 && preview.ends_with('…'), "{preview}");
        bench
            .call("memory_get", json!({"key": "none"}))
            .says("Memory not found")
            .fails("not_found");
        bench.call("memory_search", json!({"query": "x", "limit": 0})).fails("validation");
        set("", "x").fails("validation");
        set("k", "").fails("validation");
        let home = bench.env.home().join(".g3");
        let mode = fs::metadata(home.join("memory.db")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let log = fs::read_to_string(home.join("logs/2026-01-02.md")).unwrap();
        assert!(log.contains("SET user_timezone: UTC+2 (Athens)\n"), "{log}");
    }
}

#[test]
fn notes_of_the_workspace_are_found_by_a_search() {
    let bench = Bench::new("g3");
    bench.call("remember", json!({"notes": "### Landing\n- merges happen in memory\n"})).works();
    let found = bench.call("memory_search", json!({"query": "landing merges"}));
    found.says("[workspace/work-").says("/Landing]").works();
    bench.env.config("[memory]\nenabled = false\n");
    bench.call("remember", json!({"notes": "### Other\n- penguins\n"})).works();
    let found = bench.call("memory_search", json!({"query": "penguins"}));
    assert_eq!(found.works(), "No memories found");
}

#[test]
fn every_note_below_a_heading_is_indexed() {
    let bench = Bench::new("g3");
    let remember = |notes: &str| bench.call("remember", json!({ "notes": notes })).works().len();
    let get = |key: &str| bench.call("memory_get", json!({ "key": key }));
    remember("### Feature Name\n- one\n");
    remember("### Feature Name\n- two\n");
    let key = "workspace/work/Feature Name";
    assert!(get(key).works().ends_with("- one\n- two\n"), "the short name works as well");
    // An entry that a person deletes from the file is removed with the next note.
    let text = bench.read(NOTES).replace("- one\n", "");
    bench.write(NOTES, text);
    remember("### Other\n- three\n");
    assert!(get(key).works().ends_with("]\n- two\n"));
    bench.write(NOTES, "### Other\n- three\n");
    remember("### Other\n- three\n");
    get(key).fails("not_found");
}

#[test]
fn notes_of_workspaces_with_the_same_directory_name_are_separate() {
    let bench = Bench::new("g3");
    for (place, build) in [("a/proj", "uses make in A"), ("b/proj", "uses bazel in B")] {
        fs::create_dir_all(bench.dir.join(place)).unwrap();
        let notes = json!({ "notes": format!("### Build\n- {build}") }).to_string();
        let args = ["tool", "exec", "--cwd", place, "--name", "remember", "--args", &notes];
        bench.env.run(G3, &bench.dir, args).exits(0);
    }
    let found = bench.call("memory_search", json!({"query": "make in A"}));
    found.says("uses make in A").says("/Build]").works();
    bench.call("memory_search", json!({"query": "bazel in B"})).says("uses bazel in B").works();
}

#[test]
fn subdirectories_share_the_notes_of_the_repository() {
    let stage = Stage::new([
        ScriptedReply::call("remember", json!({ "notes": "### Build\n- needs cmake" })),
        ScriptedReply::says("noted"),
        ScriptedReply::says("read"),
    ]);
    stage.repo.write("sub/deep/x.txt", "");
    stage.g3(["-w", "sub/deep", "take notes"]).ok();
    assert!(stage.repo.read(NOTES).contains("- needs cmake"));
    assert!(!stage.repo.path().join("sub/deep").join(NOTES).exists());
    stage.g3(["-w", "sub", "what do you know?"]).ok();
    assert!(stage.asked()[2].system().contains("- needs cmake"));
}

#[test]
fn a_memory_may_have_an_image_which_is_stored_with_it() {
    let bench = Bench::new("egirl");
    let picture = b"\x89PNG\r\n\x1a\nnot much of one";
    bench.write("plan.png", picture);
    let set = |image: &str| {
        bench.call("memory_set", json!({"key": "plan", "value": "the plan", "image": image}))
    };
    set("plan.png").works();
    fs::remove_file(bench.dir.join("plan.png")).unwrap();
    let got = bench.call("memory_get", json!({"key": "plan"}));
    let kept = got.works().split_once("Image: ").unwrap().1.to_owned();
    assert!(kept.ends_with(".png"), "{kept}");
    assert_eq!(fs::read(kept).unwrap(), picture);
    bench.call("memory_search", json!({"query": "plan"})).says("[image]").works();
    set("gone.png").says("`image` gone.png").fails("validation");
    bench.write("text.txt", "words");
    set("text.txt").fails("validation");
    // Storing it again without an image removes the image.
    bench.call("memory_set", json!({"key": "plan", "value": "words only"})).works();
    assert!(!bench.call("memory_get", json!({"key": "plan"})).works().contains("Image"));
}

fn broken_files(bench: &Bench) -> Vec<PathBuf> {
    let all = fs::read_dir(bench.env.home().join(".g3")).unwrap().map(|e| e.unwrap().path());
    all.filter(|path| path.to_string_lossy().contains("broken")).collect()
}

#[test]
fn a_corrupt_memory_file_is_renamed_with_a_notice() {
    let bench = Bench::new("g3");
    let set = |key: &str| bench.call("memory_set", json!({"key": key, "value": "v"}));
    set("a").works();
    let file = bench.env.home().join(".g3/memory.db");
    let mut bytes = fs::read(&file).unwrap();
    // The header stays intact: the file opens, and fails when it is read.
    bytes[100..].fill(0xff);
    fs::write(&file, &bytes).unwrap();
    for wal in ["memory.db-wal", "memory.db-shm"] {
        let _ = fs::remove_file(file.with_file_name(wal));
    }
    set("b").says("it was moved to").works();
    let broken = broken_files(&bench);
    assert_eq!((broken.len(), fs::read(&broken[0]).unwrap() == bytes), (1, true));
    bench.call("memory_get", json!({"key": "b"})).works();
    fs::write(&file, "not a database at all").unwrap();
    bench.call("memory_search", json!({"query": "b"})).says("it was moved to").works();
    assert_eq!(broken_files(&bench).len(), 2);
}

#[test]
fn without_a_home_directory_the_tools_report_missing_memory() {
    let bench = Bench::new("g3");
    let args = ["tool", "exec", "--name", "memory_get", "--args", "{\"key\":\"k\"}"];
    let job = || bench.env.command(G3, &bench.dir).args(args).env_remove("HOME");
    bench.env.run_command(job()).exits(1).output_contains("try: set HOME or XDG_STATE_HOME");
    let with_state = job().env("XDG_STATE_HOME", bench.env.home().join("state"));
    bench.env.run_command(with_state).exits(1).output_contains("Memory system not initialized");
    fs::write(bench.env.home().join(".g3"), "a file where the directory should be").unwrap();
    bench.call("memory_get", json!({"key": "k"})).says("not initialized").fails("failed");
}

/// An embedding server: texts about animals are similar.
fn vectors() -> ModelServer {
    ModelServer::start(Script::by(|request| {
        assert_eq!(request.path, "/v1/embeddings");
        let texts = request.body["input"].as_array().unwrap();
        let vector = |text: &Value| {
            let text = text.as_str().unwrap();
            let animal = ["dog", "cat", "pet"].iter().any(|word| text.contains(word));
            if animal { [3.0, 0.0, 0.0] } else { [0.0, 1.0, 0.0] }
        };
        let data: Vec<Value> = texts
            .iter()
            .enumerate()
            .map(|(at, text)| json!({"index": at, "embedding": vector(text)}))
            .rev()
            .collect();
        let body = json!({"data": data, "model": "m"}).to_string();
        ScriptedReply::status(200).body("application/json", body)
    }))
}

#[test]
fn an_embedding_server_finds_by_meaning_and_updates_old_vectors() {
    let bench = Bench::new("g3");
    let set =
        |key: &str, value: &str| bench.call("memory_set", json!({"key": key, "value": value}));
    set("companion", "a dog named Rex").works();
    set("weather", "it rains").works();
    let asks = || bench.call("memory_search", json!({"query": "my pets"}));
    assert_eq!(asks().works(), "No memories found", "the built-in embedder knows no meaning");
    let server = vectors();
    let url = server.openai_url();
    bench
        .env
        .config(&format!("[memory]\nembeddings_endpoint = \"{url}/embeddings\"\nmodel = \"m\"\n"));
    assert_eq!(asks().works(), "Found 1 memory:\n1. [companion] 0.700\n   a dog named Rex");
    let requests = server.requests().len();
    assert_eq!(requests, 2, "both old memories in one request, then the question");
    asks().works();
    assert_eq!(server.requests().len(), 3, "they keep their vectors");
    set("later", "a cat").works();
    assert!(asks().works().contains("[later] 0.700"));
    drop(server);
    let said = set("plain", "a pet again");
    assert!(said.says("found by its words only").works().starts_with("Memory stored"));
    asks().says("searched by words only").works();
    assert!(
        bench.call("memory_search", json!({"query": "again"})).works().contains("[plain] 0.300")
    );
}

#[test]
fn embeddings_may_come_from_a_configured_provider_with_its_key() {
    let bench = Bench::new("g3");
    let server = vectors();
    bench.env.config(&format!(
        "[providers.openai.mine]\nbase_url = \"{}\"\napi_key = \"test-key\"\nmodel = \"x\"\n\
         [memory]\nembeddings_provider = \"openai.mine\"\nmodel = \"m\"\n",
        server.openai_url()
    ));
    bench.call("memory_set", json!({"key": "a", "value": "a cat"})).works();
    assert_eq!(server.requests()[0].header("authorization"), Some("Bearer test-key"));
    assert_eq!(server.requests()[0].body["model"], "m");
    bench.env.config(
        "[providers.openai.mine]\nbase_url = \"http://127.0.0.1:9\"\nmodel = \"x\"\n\
         api_key_command = \"touch $HOME/asked\"\n\
         [memory]\nembeddings_provider = \"openai.mine\"\nmodel = \"m\"\n",
    );
    bench.call("memory_get", json!({"key": "a"})).works();
    assert!(!bench.env.home().join("asked").exists(), "a key is asked for when it is needed");
    bench.env.config("[memory]\nembeddings_provider = \"anthropic\"\nmodel = \"m\"\n");
    bench.call("memory_set", json!({"key": "b", "value": "x"})).says("has no embeddings").works();
}
