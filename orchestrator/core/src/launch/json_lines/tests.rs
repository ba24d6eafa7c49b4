//! The formats on recorded output: `tests/fixtures/agent_output`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;

fn recorded(name: &str) -> String {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/agent_output");
    std::fs::read_to_string(format!("{folder}/{name}.jsonl")).unwrap()
}

fn reader(output: AgentOutput) -> JsonLinesReader {
    JsonLinesReader::new(output, AgentConversation::default()).unwrap()
}

/// Describes events in one line each.
fn describe(events: Vec<AgentEvent>) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let describe = |event| match event {
        AgentEvent::ConversationStarted(id) => format!("conversation {id}"),
        AgentEvent::Event(event) => match event["type"].as_str().unwrap() {
            "text" | "reasoning" => format!("{}: {}", text(&event["type"]), text(&event["text"])),
            "turn" => format!("turn {}", event["n"]),
            "tool_start" => format!("call {}: {}", text(&event["name"]), event["args"]),
            "tool_end" => {
                let ok = if event["ok"] == true { "ok" } else { "failed" };
                format!("{ok} {}: {}", text(&event["name"]), text(&event["text"]).trim())
            }
            "usage" => {
                format!("usage {} {} {}", event["input"], event["output"], event["cost_usd"])
            }
            "retry" => format!("retry {}: {}", event["attempt"], text(&event["why"])),
            kind => format!("{kind}: {}", text(&event["text"])),
        },
        other => format!("{other:?}"),
    };
    events.into_iter().map(describe).collect()
}

/// Converts recorded output, byte by byte: a process prints lines in pieces.
fn convert(lines: &mut JsonLinesReader, output: &str) -> (Vec<String>, TurnReport) {
    let mut events: Vec<AgentEvent> =
        output.as_bytes().iter().flat_map(|byte| lines.push(&[*byte])).collect();
    let (last_events, report) = lines.finish();
    events.extend(last_events);
    (describe(events), report)
}

fn convert_recorded(output: AgentOutput, name: &str) -> (Vec<String>, TurnReport) {
    convert(&mut reader(output), &recorded(name))
}

fn usage_of(events: &[String]) -> Vec<&str> {
    events.iter().filter_map(|event| event.strip_prefix("usage ")).collect()
}

const COMMAND: &str = "echo 1 > one.txt && cat one.txt";

#[test]
fn claude_reports_text_tools_and_cost() {
    let (events, report) = convert_recorded(AgentOutput::ClaudeJson, "claude-turn");
    assert_eq!(
        events,
        [
            "conversation d563beb1-f184-4e81-abd5-49d17c218359",
            "turn 1",
            "usage 1200 1 0.0",
            "reasoning: I write the file first.",
            "text: I create the file.",
            &format!("call Bash: {{\"command\":\"{COMMAND}\",\"description\":\"write one\"}}"),
            "ok Bash: 1",
            "turn 2",
            "usage 1300 1 0.0",
            "call Bash: {\"command\":\"false\",\"description\":\"fail\"}",
            "failed Bash: Exit code 1",
            "turn 3",
            "usage 1400 1 0.0",
            "text: The file is written.",
            "usage 0 67 0.028249999999999997",
        ]
    );
    assert_eq!(report, TurnReport { error: None, has_reply: true });
    let (events, _) = convert_recorded(AgentOutput::ClaudeJson, "claude-retry");
    assert_eq!(events[1], "retry 1: overloaded");
}

#[test]
fn an_interrupted_turn_of_claude_has_no_cost() {
    let output = recorded("claude-turn");
    let end = output.find("{\"type\":\"result\"").unwrap();
    let (events, _) = convert(&mut reader(AgentOutput::ClaudeJson), &output[..end]);
    assert!(events.last().unwrap().contains("did not report the cost"), "{events:?}");
}

#[test]
fn codex_reports_the_usage_of_its_thread_which_is_counted_once() {
    let mut lines = reader(AgentOutput::CodexJson);
    let (events, _) = convert(&mut lines, &recorded("codex-turn"));
    assert_eq!(events[0], "conversation 01a209ab-e020-7ac1-a2ff-413bad664b3f");
    assert_eq!(
        events[2..],
        [
            "reasoning: I write the file first.",
            "text: I create the file.",
            &format!("call shell: {{\"command\":\"/bin/bash -lc '{COMMAND}'\"}}"),
            "ok shell: 1",
            "call shell: {\"command\":\"/bin/bash -lc false\"}",
            "failed shell: exit code 1",
            "text: The file is written.",
            "usage 3900 70 null",
        ]
    );
    let (events, _) = convert(&mut lines, &recorded("codex-resumed"));
    assert_eq!(usage_of(&events), ["1500 11 null"]);

    // A later supervisor knows the usage from the journal.
    let usage = Usage { input: 3900, output: 70, ..Usage::default() };
    let id = Some("01a209ab-e020-7ac1-a2ff-413bad664b3f".to_owned());
    let conversation = AgentConversation { id, usage };
    let mut lines = JsonLinesReader::new(AgentOutput::CodexJson, conversation).unwrap();
    let (events, _) = convert(&mut lines, &recorded("codex-resumed"));
    assert_eq!(usage_of(&events), ["1500 11 null"]);
}

#[test]
fn qwen_reports_each_reply_once() {
    let (events, _) = convert_recorded(AgentOutput::QwenJson, "qwen-turn");
    assert_eq!(usage_of(&events), ["1200 40 null", "1300 20 null", "1400 10 null"]);
    assert_eq!(events.iter().filter(|event| event.starts_with("turn ")).count(), 3);
    assert!(events.contains(&"ok run_shell_command: 1".to_owned()), "{events:?}");
    assert_eq!(events.last().unwrap(), "text: The file is written.");
}

#[test]
fn gemini_reports_text_tools_and_tokens() {
    let (events, _) = convert_recorded(AgentOutput::GeminiJson, "gemini-turn");
    assert_eq!(
        events,
        [
            "conversation 5ac67deb-3d4e-44d8-96fb-b64144b669c0",
            "text: I create the file.",
            &format!("call run_shell_command: {{\"command\":\"{COMMAND}\"}}"),
            "ok run_shell_command: 1",
            "call run_shell_command: {\"command\":\"false\"}",
            "ok run_shell_command: Command exited with code: 1",
            "text: The file is written.",
            "usage 3900 70 null",
        ]
    );
}

#[test]
fn opencode_reports_the_cost_of_each_step() {
    let (events, _) = convert_recorded(AgentOutput::OpencodeJson, "opencode-turn");
    assert_eq!(
        events[..6],
        [
            "conversation ses_df654aeedffeAzOy4PiHNTftY6",
            "turn 1",
            "reasoning: I write the file first.",
            "text: I create the file.",
            &format!("call bash: {{\"command\":\"{COMMAND}\",\"description\":\"write one\"}}"),
            "ok bash: 1",
        ]
    );
    assert!(events.contains(&"failed bash: (no output)".to_owned()), "{events:?}");
    assert_eq!(usage_of(&events), ["1200 40 0.00128", "1300 20 0.00134", "1400 10 0.00142"]);
}

#[test]
fn cursor_reports_text_and_tools() {
    let (events, _) = convert_recorded(AgentOutput::CursorJson, "cursor-turn");
    assert_eq!(
        events,
        [
            "conversation c6b62c6f-7ead-4fd6-9922-e952131177ff",
            "reasoning: I write the file first.",
            "text: I create the file.",
            &format!("call shell: {{\"command\":\"{COMMAND}\"}}"),
            "ok shell: 1",
            "call read: {\"path\":\"two.txt\"}",
            "failed read: File not found",
            "text: The file is written.",
        ]
    );
}

#[test]
fn a_failed_request_is_the_error_of_the_turn() {
    for (output, name) in [
        (AgentOutput::ClaudeJson, "claude-error"),
        (AgentOutput::CodexJson, "codex-error"),
        (AgentOutput::GeminiJson, "gemini-error"),
        (AgentOutput::OpencodeJson, "opencode-error"),
        (AgentOutput::QwenJson, "qwen-error"),
    ] {
        let (_, report) = convert_recorded(output, name);
        let error = report.error.unwrap_or_default();
        assert!(error.contains("bad request"), "{name}: {error}");
    }
}

#[test]
fn unknown_types_and_broken_lines_are_skipped() {
    let text = r#"{"type":"assistant","message":{"id":"m","content":[{"type":"video"},{"type":"text","text":"on"}]}}"#;
    let output =
        format!("banner\n\n{{\"type\":\"news\"}}\n{{\"type\":\"assist\n\u{1}{{\n[1]\n{text}");
    let (events, report) = convert(&mut reader(AgentOutput::ClaudeJson), &output);
    assert_eq!(events, ["text: on"]);
    assert_eq!(report.error, None);
    for output in [AgentOutput::CodexJson, AgentOutput::CursorJson, AgentOutput::GeminiJson] {
        let (events, _) = convert(&mut reader(output), "{\"type\":\"news\"}\n{\"type\":1}\n{}\n");
        assert!(events.is_empty(), "{events:?}");
    }
}

#[test]
fn a_long_line_is_skipped_and_a_long_call_is_shortened() {
    let mut lines = reader(AgentOutput::OpencodeJson);
    let piece = vec![b'x'; 1 << 20];
    for _ in 0..40 {
        assert!(lines.push(&piece).is_empty());
        assert!(lines.lines.line.len() <= MAX_LINE);
    }
    let long = "y".repeat(100_000);
    let state = serde_json::json!({"status": "completed", "input": {"text": long, "path": "a"},
        "output": long});
    let part = serde_json::json!({"tool": "write", "callID": "c", "state": state});
    let line = serde_json::json!({"type": "tool_use", "part": part});
    let events = lines.push(format!("\n{line}\n").as_bytes());
    let [AgentEvent::Event(start), AgentEvent::Event(end)] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!(start["args"]["path"], "a");
    assert!(start.to_string().len() < 10_000 && end.to_string().len() < 10_000);
}

#[test]
fn an_id_that_could_be_an_option_is_not_used() {
    for id in ["--dangerous", "", "a b", "$(id)", "é"] {
        let line = serde_json::json!({"type": "thread.started", "thread_id": id});
        let mut lines = reader(AgentOutput::CodexJson);
        assert_eq!(lines.push(format!("{line}\n").as_bytes()), [], "{id}");
        assert_eq!(lines.conversation_id(), None);
    }
}
