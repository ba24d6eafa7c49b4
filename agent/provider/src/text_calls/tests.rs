//! Tests of calls in text: every dialect, every split, and text that must stay text.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::call_filter::TextPiece;
use super::parse::TextCallParser;

/// Parses the chunks and describes the pieces; adjacent text is joined.
fn found(chunks: &[&str]) -> Vec<String> {
    let mut parser = TextCallParser::new(["shell".to_owned(), "read_file".to_owned()]);
    let mut pieces: Vec<TextPiece> = chunks.iter().flat_map(|chunk| parser.push(chunk)).collect();
    pieces.extend(parser.end(&|_| false));
    let mut out: Vec<String> = Vec::new();
    for piece in pieces {
        let (kind, more) = match piece {
            TextPiece::Text(text) => ("text ", text),
            TextPiece::Thought(text) => ("thought ", text),
            TextPiece::Call(call) => {
                let args = call.args.map_or(json!(call.source), Value::Object);
                out.push(format!("call {} {args}", call.name));
                continue;
            }
        };
        match out.last_mut().filter(|last| last.starts_with(kind)) {
            Some(last) => last.push_str(&more),
            None => out.push(format!("{kind}{more}")),
        }
    }
    out
}

const REPLIES: &[(&str, &[&str])] = &[
    // Qwen's blocks: several, in prose, with and without arguments.
    (
        "I look.\n<tool_call>\n{\"name\": \"shell\", \"arguments\": {\"command\": \"ls\"}}\n</tool_call>\n<tool_call>{\"name\": \"fly\"}</tool_call>\nThen more.",
        &["text I look.", "call shell {\"command\":\"ls\"}", "call fly {}", "text \nThen more."],
    ),
    // The closing tag inside a string, arguments as a string, a missing brace.
    (
        "<tool_call>{\"name\": \"shell\", \"arguments\": {\"command\": \"echo '</tool_call>'\"}}</tool_call>",
        &["call shell {\"command\":\"echo '</tool_call>'\"}"],
    ),
    (
        "<tool_call>{\"name\": \"shell\", \"arguments\": \"{\\\"command\\\": 1}\"}</tool_call>",
        &["call shell {\"command\":1}"],
    ),
    (
        "<tool_call>{\"name\": \"shell\", \"arguments\": {\"command\": \"ls\"}</tool_call> ok",
        &["call shell {\"command\":\"ls\"}", "text  ok"],
    ),
    // Qwen3-Coder's tags: in a block and without one, text that looks like the end of a value, no
    // arguments, a missing end of the function.
    (
        "I look.\n<tool_call>\n<function=shell>\n<parameter=command>\nls\n</parameter>\n<parameter=timeout>\n5\n</parameter>\n</function>\n</tool_call>\n",
        &["text I look.", "call shell {\"command\":\"ls\",\"timeout\":\"5\"}"],
    ),
    (
        "<function=shell>\n<parameter=command>\ncat <<E\n\n </parameter> x\nE\n</parameter>\n</function>",
        &["call shell {\"command\":\"cat <<E\\n\\n </parameter> x\\nE\"}"],
    ),
    ("<tool_call><function=fly></function></tool_call> ok", &["call fly {}", "text  ok"]),
    (
        "<tool_call><function=shell><parameter=command>ls</parameter></tool_call>",
        &["call shell {\"command\":\"ls\"}"],
    ),
    ("<function=shell><parameter=command>ls</parameter>", &["call shell {\"command\":\"ls\"}"]),
    (
        "<function=shell><parameter=command>l",
        &["call shell \"<function=shell><parameter=command>l\""],
    ),
    ("<function=shell> is a tag", &["text <function=shell> is a tag"]),
    ("<function=a b>", &["text <function=a b>"]),
    ("<tool_call><function=shell", &["text <tool_call><function=shell"]),
    // Unclosed, truncated inside a string, invalid JSON, a mention.
    (
        "<tool_call>\n{\"name\": \"shell\", \"arguments\": {\"command\": \"ls\"}}\n",
        &["call shell {\"command\":\"ls\"}"],
    ),
    (
        "<tool_call>{\"name\": \"shell\", \"arguments\": {\"command\": \"ls",
        &[
            "call shell \"{\\\"name\\\": \\\"shell\\\", \\\"arguments\\\": {\\\"command\\\": \\\"ls\"",
        ],
    ),
    ("<tool_call>{oops}</tool_call>", &["text <tool_call>{oops}</tool_call>"]),
    ("Write <tool_call> to call, a < b.", &["text Write <tool_call> to call, a < b."]),
    // g3's form: only on its own line and only for offered tools.
    (
        "Look:\n  {\"tool\": \"shell\", \"args\": {\"command\": \"a\nb\"}}\n{ \"tool\":\"read_file\",\"args\":{}}",
        &["text Look:", "call shell {\"command\":\"a\\nb\"}", "call read_file {}"],
    ),
    ("say {\"tool\": \"shell\", \"args\": {}}", &["text say {\"tool\": \"shell\", \"args\": {}}"]),
    (
        "{\"tool\": \"shell\", \"args\": {}} is how",
        &["text {\"tool\": \"shell\", \"args\": {}} is how"],
    ),
    ("{\"tool\": \"fly\", \"args\": {}}\nx", &["text {\"tool\": \"fly\", \"args\": {}}\nx"]),
    ("{\"name\": \"shell\"}\n{\"a\": 1}", &["text {\"name\": \"shell\"}\n{\"a\": 1}"]),
    (
        "{\"tool\": \"shell\", \"args\": {\"command\": \"cut",
        &["call shell \"{\\\"tool\\\": \\\"shell\\\", \\\"args\\\": {\\\"command\\\": \\\"cut\""],
    ),
    // The functions form, with and without template tokens.
    (
        "to=functions.shell {\"command\": \"ls\"}\nto=functions.read_file <|constrain|>json<|message|>{\"a\": 1}<|call|>",
        &["call shell {\"command\":\"ls\"}", "call read_file {\"a\":1}"],
    ),
    ("to=functions.fly {}", &["text to=functions.fly {}"]),
    ("to=functions.shell is a name", &["text to=functions.shell is a name"]),
    // Fences: calls at the end if there are no others, otherwise examples; other code is unchanged.
    (
        "So:\n```json\n{\"tool\": \"shell\", \"args\": {\"command\": \"ls\"}}\n```\n",
        &["text So:", "call shell {\"command\":\"ls\"}"],
    ),
    (
        "So:\n```json\n{\"tool\": \"shell\", \"args\": {\"command\": \"ls\"}}\n```\nDone.",
        &["text So:\n```json\n{\"tool\": \"shell\", \"args\": {\"command\": \"ls\"}}\n```\nDone."],
    ),
    (
        "```\n{\"tool\": \"shell\", \"args\": {}}\n```\n\n```\n{\"tool\": \"read_file\", \"args\": {}}\n```",
        &["call shell {}", "call read_file {}"],
    ),
    (
        "```\n{\"tool\": \"shell\", \"args\": {}}\n```\nor\n```\n{\"tool\": \"read_file\", \"args\": {}}\n```",
        &["text ```\n{\"tool\": \"shell\", \"args\": {}}\n```\nor", "call read_file {}"],
    ),
    (
        "```\n{\"name\": \"shell\", \"arguments\": {}}\n```\n<tool_call>{\"name\": \"shell\"}</tool_call>",
        &["text ```\n{\"name\": \"shell\", \"arguments\": {}}\n```", "call shell {}"],
    ),
    (
        "```rust\n{\"tool\"; <tool_call>{\"name\": \"shell\"}</tool_call>\n```\nx",
        &["text ```rust\n{\"tool\"; <tool_call>{\"name\": \"shell\"}</tool_call>\n```\nx"],
    ),
    ("```json\n{\"tool\": \"shell\", \"args\"", &["text ```json\n{\"tool\": \"shell\", \"args\""]),
    ("use ``` and ```x``` so\n```y``` z", &["text use ``` and ```x``` so\n```y``` z"]),
    // Reasoning is accepted only at the start; template tokens are removed.
    (
        "<think>\n{\"tool\": \"shell\", \"args\": {}}\n</think>\n\nHello.<|im_end|>",
        &["thought \n{\"tool\": \"shell\", \"args\": {}}\n", "text Hello."],
    ),
    ("a <think> b", &["text a <think> b"]),
    ("", &[]),
];

#[test]
fn calls_are_found_in_every_dialect_and_text_stays_text() {
    for (reply, expected) in REPLIES {
        assert_eq!(found(&[reply]), *expected, "{reply}");
    }
}

#[test]
fn pieces_do_not_depend_on_chunk_boundaries() {
    for (reply, expected) in REPLIES {
        for (cut, _) in reply.char_indices() {
            let (before, after) = reply.split_at(cut);
            assert_eq!(found(&[before, after]), *expected, "{reply:?} cut at {cut}");
        }
        let single: Vec<String> = reply.chars().map(String::from).collect();
        let single: Vec<&str> = single.iter().map(String::as_str).collect();
        assert_eq!(found(&single), *expected, "{reply:?} in single characters");
    }
}

#[test]
fn plain_text_is_passed_on_immediately() {
    let mut parser = TextCallParser::new(["shell".to_owned()]);
    assert_eq!(parser.push("Hello"), [TextPiece::Text("Hello".into())]);
    assert_eq!(parser.push(" you, 1 <"), [TextPiece::Text(" you, 1".into())]);
    assert_eq!(parser.push(" 2"), [TextPiece::Text(" <".into()), TextPiece::Text(" 2".into())]);
    assert_eq!(parser.push("\n{\"key\""), [TextPiece::Text("\n{\"key\"".into())]);
}

proptest! {
    #[test]
    fn any_mixture_parses_the_same_however_it_is_split(
        parts in proptest::collection::vec(prop_oneof![
            Just("<tool_call>"), Just("</tool_call>"), Just("{\"name\": \"shell\", \"arguments\": {}}"),
            Just("{\"tool\": \"shell\", \"args\": {\"command\": \"é\"}}"), Just("\n"), Just("```"),
            Just("json"), Just("to=functions.shell "), Just("{"), Just("\""), Just("}"), Just(" x "),
            Just("<think>"), Just("</think>"), Just("<|im_end|>"), Just("\\"), Just("'")], 0..14),
        size in 1usize..6,
    ) {
        let reply = parts.concat();
        let chars: Vec<char> = reply.chars().collect();
        let chunks: Vec<String> = chars.chunks(size).map(|c| c.iter().collect()).collect();
        let chunks: Vec<&str> = chunks.iter().map(String::as_str).collect();
        prop_assert_eq!(found(&chunks), found(&[&reply]));
    }
}
