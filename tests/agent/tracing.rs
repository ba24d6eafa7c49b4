//! Tests of the trace: what a trace file contains, and what it never contains.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use serde_json::{Value, json};
use testkit::env::CommandRun;
use testkit::model_server::reply::ScriptedReply;
use testkit::model_server::script::Script;

use crate::agent_env::Stage;
use crate::editor::Editor;
use crate::mcp_support;

/// Returns the trace file of a stage.
fn file(stage: &Stage) -> PathBuf {
    stage.env.home().join("trace.jsonl")
}

fn text(stage: &Stage) -> String {
    std::fs::read_to_string(file(stage)).unwrap_or_default()
}

/// Returns its lines; each is a JSON object.
fn lines(stage: &Stage) -> Vec<Value> {
    text(stage).lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

/// Returns the events with this message.
fn events<'a>(lines: &'a [Value], message: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["fields"]["message"] == message).collect()
}

/// Returns the beginnings (`new`) or ends (`close`) of the spans with this name.
fn spans<'a>(lines: &'a [Value], message: &str, name: &str) -> Vec<&'a Value> {
    let mut lines = events(lines, message);
    lines.retain(|line| line["span"]["name"] == name);
    lines
}

fn traced(stage: &Stage, args: &[&str]) -> CommandRun {
    let flag = format!("--trace-file={}", file(stage).display());
    stage.g3(args.iter().copied().chain([flag.as_str()]))
}

fn write(path: &str) -> ScriptedReply {
    ScriptedReply::call("write_file", json!({"file_path": path, "content": "plum"}))
}

#[test]
fn a_run_traces_its_requests_calls_and_end() {
    let stage = Stage::new([
        ScriptedReply::status(529),
        write("a").usage(70, 7).cached(20, 10).header("request-id", "req_17"),
        ScriptedReply::call("shell", json!({"command": "exit 3"})),
        ScriptedReply::says("done").usage(100, 5),
    ]);
    let ran = stage.env.run_command(
        stage.job(["work"]).arg("--trace-file").arg(file(&stage)).env("G3_TEST_RETRY_MS", "1"),
    );
    ran.ok();
    let all = lines(&stage);
    let (first, last) = (&all[0], all.last().unwrap());
    assert_eq!(
        (&first["fields"]["message"], &first["fields"]["mode"]),
        (&json!("process started"), &json!("once"))
    );
    assert_eq!(
        (&last["fields"]["message"], &last["fields"]["exit"]),
        (&json!("process ended"), &json!(0))
    );
    assert!(all.iter().all(|line| line["timestamp"] == "2026-01-02T10:00:00.000Z"));
    assert!(all.iter().all(|line| line["level"].is_string() && line["target"].is_string()));
    let pid = &first["fields"]["pid"];
    assert!(pid.is_u64() && all.iter().all(|line| line["fields"]["pid"] == *pid));

    let chats = spans(&all, "close", "chat");
    assert_eq!(chats.len(), 4);
    let (busy, wrote) = (&chats[0]["span"], &chats[1]["span"]);
    assert_eq!((&busy["error.type"], &busy["g3.attempt"]), (&json!("busy"), &json!(1)));
    assert_eq!(busy["http.response.status_code"], 529);
    assert_eq!(wrote["g3.attempt"], 2);
    assert_eq!(wrote["g3.request_id"], "req_17");
    assert_eq!(wrote["gen_ai.request.model"], "scripted");
    assert_eq!(wrote["gen_ai.provider.name"], "anthropic");
    assert_eq!(wrote["gen_ai.usage.input_tokens"], 100);
    assert_eq!(wrote["gen_ai.usage.cache_read.input_tokens"], 20);
    assert_eq!(wrote["gen_ai.usage.output_tokens"], 7);
    assert_eq!(wrote["g3.stop"], "calls");
    assert!(chats.iter().all(|chat| chat["fields"]["ms"].is_u64()));
    let retry = events(&all, "retry");
    assert_eq!((retry.len(), &retry[0]["fields"]["why"]), (1, &json!("busy")));

    let calls = spans(&all, "close", "execute_tool");
    let names: Vec<_> = calls.iter().map(|it| it["span"]["gen_ai.tool.name"].clone()).collect();
    assert_eq!(names, ["write_file", "shell"]);
    assert_eq!(
        (&calls[0]["span"]["g3.ok"], &calls[1]["span"]["g3.ok"]),
        (&json!(true), &json!(false))
    );
    assert_eq!(calls[1]["span"]["error.type"], "failed");
    assert!(calls[0]["span"]["g3.bytes"].as_u64().unwrap() > 0);

    let turn = spans(&all, "close", "invoke_agent")[0];
    let id = stage.session_dir().file_name().unwrap().to_str().unwrap().to_owned();
    let id = id.strip_prefix("work-").unwrap();
    assert_eq!(turn["span"]["gen_ai.conversation.id"], id);
    assert_eq!(
        (&turn["span"]["g3.status"], &turn["span"]["g3.questions"]),
        (&json!("done"), &json!(3))
    );
    let number = &turn["fields"]["span_id"];
    assert!(number.is_u64() && turn["fields"]["parent_id"].is_null());
    assert!(calls.iter().chain(&chats).all(|inner| inner["fields"]["parent_id"] == *number));
    let began = spans(&all, "new", "invoke_agent")[0];
    assert_eq!(began["fields"]["span_id"], *number);
    assert!(began["span"]["g3.status"].is_null(), "the turn has only begun");
    assert_eq!(events(&all, "session opened")[0]["fields"]["session"], id);
    assert_eq!(events(&all, "run ended")[0]["fields"]["exit"], 0);
    let mode = std::fs::metadata(file(&stage)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn the_trace_contains_no_secrets_text_or_content() {
    let secret = "plum-7Yq2-tree";
    let shell = format!("echo 'out-put {secret}'");
    let stage = Stage::new([
        ScriptedReply::status(500).body("text/plain", format!("you sent {secret} pro-mpt")),
        ScriptedReply::says("wo-rds").calls("shell", json!({"command": shell})),
        ScriptedReply::call("write_file", json!({"file_path": "file-name", "content": secret})),
        ScriptedReply::call(secret, json!({"a": secret})),
        ScriptedReply::call("read_file", json!({"file_path": format!("/etc/{secret}")})),
        ScriptedReply::says("done"),
    ]);
    let model = stage.model.config_toml("anthropic");
    let hook =
        "[[hooks]]\nevent = \"before_tool\"\ncommand = [\"sh\", \"-c\", \"echo ho-ok; exit 0\"]\n";
    stage.env.config(&format!("{model}\n{hook}"));
    let prompt = format!("pro-mpt {secret}");
    let job = stage
        .job([prompt.as_str(), "--trace-file"])
        .arg(file(&stage))
        .env("G3_LOG", "trace")
        .env("G3_TEST_RETRY_MS", "1")
        .env("MY_SERVICE_TOKEN", secret);
    stage.env.run_command(job).ok();
    let all = text(&stage);
    assert!(lines(&stage).len() > 30, "{all}");
    let words = [secret, "test-key", "pro-mpt", "out-put", "wo-rds", "ho-ok", "/etc", "file-name"];
    for words in words {
        assert!(!all.contains(words), "`{words}` stands in the trace:\n{all}");
    }
    let lines = lines(&stage);
    assert_eq!(events(&lines, "hook ran").len(), 4);
    let unknown = spans(&lines, "close", "execute_tool")[2];
    assert_eq!(unknown["span"]["gen_ai.tool.name"], "(not offered)");
    let denied = lines.iter().find(|line| line["fields"]["decision"] == "to be asked");
    assert_eq!(denied.expect("the gate is traced")["fields"]["access"], "read");
    assert_eq!(events(&lines, "asked")[0]["fields"]["answer"], "no terminal");
}

#[test]
fn nothing_is_traced_unless_enabled() {
    let stage = Stage::new([
        ScriptedReply::says("one"),
        ScriptedReply::says("two"),
        ScriptedReply::says("three"),
    ]);
    let plain = stage.g3(["hello"]);
    assert_eq!(plain.ok(), "one");
    assert!(!plain.err.contains("process started"), "{plain}");
    stage
        .env
        .run_command(stage.job(["hello", "--trace-file"]).arg(file(&stage)).env("G3_LOG", "off"))
        .ok();
    assert_eq!(text(&stage), "");
    let loud = stage.env.run_command(stage.job(["--json", "hello"]).env("G3_LOG", "g3::process"));
    assert!(loud.json_lines().iter().all(|event| event["seq"].is_u64()));
    assert_eq!(loud.err.lines().count(), 2, "{loud}");
    assert!(loud.err.contains("\"process ended\""), "{loud}");
}

#[test]
fn the_configuration_sets_file_and_level() {
    let stage = Stage::new(Script::by(|_| ScriptedReply::says("hi")));
    let model = stage.model.config_toml("anthropic");
    stage
        .env
        .config(&format!("{model}\n[trace]\nfile = \"~/trace.jsonl\"\nlevel = \"g3::session\"\n"));
    stage.g3(["hello"]).ok();
    let all = lines(&stage);
    assert!(!all.is_empty() && all.iter().all(|line| line["target"] == "g3::session"), "{all:?}");
    let job = stage.job(["hello"]).env("G3_LOG", "g3::model=info");
    stage.env.run_command(job).ok();
    let more = lines(&stage)[all.len()..].to_vec();
    assert!(!more.is_empty() && more.iter().all(|line| line["target"] == "g3::model"), "{more:?}");
    // A repository must not redirect g3's output.
    let other = stage.env.home().join("other");
    stage.repo.write("g3.toml", format!("[trace]\nfile = \"{}\"\n", other.display()));
    stage.g3(["hello"]).ok();
    assert!(!other.exists());
}

#[test]
fn an_unwritable_trace_file_is_an_error_before_any_request() {
    let stage = Stage::new([ScriptedReply::says("never")]);
    let home = stage.env.home().display().to_string();
    let args = ["hello", "--trace-file", home.as_str()];
    stage
        .g3(args)
        .exits(2)
        .output_contains("cannot write the trace to")
        .output_contains("try: name a file");
    let job = || stage.job(["hello"]);
    stage
        .env
        .run_command(job().env("G3_LOG", "loud"))
        .exits(2)
        .output_contains("invalid level `loud`");
    let foreign = stage.env.run_command(job().env("G3_LOG", "info,rmcp=trace"));
    foreign.exits(2).output_contains("g3 has no target `rmcp`").output_contains("g3::model");
    for mode in [&["acp"][..], &["complete"], &["mcp", "serve"], &["--auto"]] {
        let args: Vec<&str> = mode.iter().copied().chain(["--trace-file", &home]).collect();
        stage.g3(args).exits(2).output_contains("cannot write the trace to");
    }
    assert!(stage.asked().is_empty() && stage.session_dirs().is_empty());
}

#[test]
fn a_full_disk_stops_the_trace_but_not_the_run() {
    let stage = Stage::new([write("a"), ScriptedReply::says("done")]);
    let ran = stage.g3(["work", "--trace-file", "/dev/full"]);
    assert_eq!(ran.ok(), "done");
    assert_eq!(stage.repo.read("a"), "plum");
    assert_eq!(ran.err.matches("the trace in /dev/full is not complete").count(), 1, "{ran}");
}

#[test]
fn two_processes_share_one_file() {
    let stage = Stage::new(Script::by(|request| match request.assistant_messages() {
        n @ 0..20 => ScriptedReply::call("shell", json!({"command": format!("echo {n}")})),
        _ => ScriptedReply::says("done"),
    }));
    let flag = format!("--trace-file={}", file(&stage).display());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| stage.g3(["work", flag.as_str()]).exits(0).clone());
        }
    });
    let all = lines(&stage);
    let pids: std::collections::BTreeSet<u64> =
        all.iter().map(|line| line["fields"]["pid"].as_u64().unwrap()).collect();
    assert_eq!(pids.len(), 2);
    assert_eq!(events(&all, "process ended").len(), 2);
}

#[test]
fn tracing_does_not_disturb_the_editors_stream() {
    let stage = Stage::new([write("a"), ScriptedReply::says("done")]);
    let model = stage.model.config_toml("anthropic");
    stage.env.config(&format!("{model}\n[trace]\nfile = \"~/trace.jsonl\"\n"));
    let mut editor = Editor::open(&stage);
    let session = editor.new_session(stage.repo.path());
    let id = editor.prompt(&session, "write a");
    assert_eq!(editor.answer(id)["result"]["stopReason"], "end_turn");
    let all = lines(&stage);
    assert_eq!(all[0]["fields"]["mode"], "acp");
    let opened = events(&all, "session opened")[0];
    assert_eq!(opened["fields"]["session"], session.strip_prefix("session-").unwrap());
    assert_eq!(spans(&all, "close", "execute_tool").len(), 1);
    assert_eq!(events(&all, "run ended").len(), 1);
}

#[test]
fn limits_summaries_and_servers_are_traced() {
    let stage = mcp_support::stage(
        [mcp_support::call("echo", json!({"text": "plum"})), write("b")],
        [],
        "calls = \"allow\"",
    );
    traced(&stage, &["work", "--max-turns", "2"]).exits(3);
    let all = lines(&stage);
    assert_eq!(
        events(&all, "limit reached")[0]["fields"]["limit"],
        "the limit of 2 turns is reached"
    );
    assert_eq!(spans(&all, "close", "invoke_agent")[0]["span"]["g3.status"], "limit");
    assert_eq!(events(&all, "error")[0]["level"], "ERROR");
    assert_eq!(all.last().unwrap()["fields"]["exit"], 3);
    let started = events(&all, "server started")[0];
    assert_eq!(
        (&started["fields"]["server"], &started["fields"]["ok"]),
        (&json!("kit"), &json!(true))
    );
    assert_eq!(events(&all, "server stopped").len(), 1);
}
