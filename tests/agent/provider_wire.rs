//! Tests of recorded replies of real services, split at any position.

use provider::Delta;
use provider::anthropic::MessagesWire;
use provider::gemini::GeminiWire;
use provider::hosted::{ReplyDecoder, WireFormat};
use provider::message::{ContentPart, Reply, StopReason};
use provider::openai_chat::ChatWire;
use provider::openai_responses::ResponsesWire;
use provider::sse::{SseEvent, SseReader};
use serde_json::{Value, json};

use crate::provider_request::request;
use crate::provider_support::user;

pub fn decoder(wire: &str) -> Box<dyn ReplyDecoder> {
    let messages = user("go");
    let request = request(&messages, &[]);
    match wire {
        "anthropic" => MessagesWire::default().decoder(&request),
        "gemini" => GeminiWire::default().decoder(&request),
        "responses" => ResponsesWire::default().decoder(&request),
        _ => ChatWire::default().decoder(&request),
    }
}

fn fixtures() -> Vec<(String, &'static str, String)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/wire");
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.extension().is_none_or(|ext| ext != "json") {
            continue;
        }
        let wires = [("anthropic", "anthropic"), ("gemini", "gemini"), ("openai-r", "responses")];
        let wire = wires.iter().find(|(begin, _)| name.starts_with(begin));
        let wire = wire.map_or("openai", |(_, wire)| *wire);
        let exchanges: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        for (at, exchange) in exchanges.as_array().unwrap().iter().enumerate() {
            let body = exchange["response"].as_str().unwrap().to_owned();
            all.push((format!("{name}#{at}"), wire, body));
        }
    }
    all.sort();
    assert!(all.len() >= 22, "the recorded replies are gone");
    all
}

pub fn events(chunks: &[&[u8]]) -> Vec<SseEvent> {
    let (mut reader, mut events) = (SseReader::default(), Vec::new());
    for chunk in chunks {
        reader.push(chunk, &mut events).unwrap();
    }
    reader.end(&mut events);
    events
}

/// Returns everything that is streamed, and the reply.
pub fn decode(wire: &str, events: &[SseEvent]) -> (Vec<String>, Reply) {
    let mut decoder = decoder(wire);
    let mut heard = Vec::new();
    let mut hear = |delta: Delta<'_>| match delta {
        Delta::Text(text) => heard.push(format!("text {text}")),
        Delta::Reasoning(text) => heard.push(format!("thought {text}")),
        Delta::Retry { .. } | Delta::Notice(_) | Delta::Ping => {}
    };
    for event in events {
        decoder.event(event, &mut hear).unwrap();
    }
    let reply = decoder.reply().expect("a complete reply");
    (heard, reply)
}

pub fn read(wire: &str, body: &str) -> Reply {
    decode(wire, &events(&[body.as_bytes()])).1
}

#[test]
fn recorded_replies_do_not_depend_on_chunk_boundaries() {
    for (name, wire, body) in fixtures() {
        let bytes = body.as_bytes();
        let whole = events(&[bytes]);
        let expected = decode(wire, &whole);
        let step = if bytes.len() < 8 << 10 { 1 } else { 41 };
        for cut in (0..bytes.len()).step_by(step) {
            let (before, after) = bytes.split_at(cut);
            assert_eq!(events(&[before, after]), whole, "{name} cut at {cut}");
        }
        for size in [1, 2, 3, 1000] {
            let chunks: Vec<&[u8]> = bytes.chunks(size).collect();
            assert_eq!(decode(wire, &events(&chunks)), expected, "{name} in chunks of {size}");
        }
    }
}

#[test]
fn line_endings_comments_and_pings_make_no_difference() {
    for (name, wire, body) in fixtures() {
        let expected = decode(wire, &events(&[body.as_bytes()]));
        let ping = if wire == "anthropic" {
            "event: ping\ndata: {\"type\": \"ping\"}\n\n: busy\n\n"
        } else {
            ": OPENROUTER PROCESSING\n\n"
        };
        let with_pings = body.replace("\n\n", &format!("\n\n{ping}"));
        let variants = [
            body.replace('\n', "\r\n"),
            body.replace('\n', "\r"),
            format!("\u{feff}{with_pings}"),
            with_pings.replace('\n', "\r\n"),
            body.trim_end().to_owned(),
        ];
        for variant in variants {
            let chunks: Vec<&[u8]> = variant.as_bytes().chunks(5).collect();
            assert_eq!(decode(wire, &events(&chunks)), expected, "{name}");
        }
    }
}

#[test]
fn streamed_text_equals_the_reply() {
    for (name, wire, body) in fixtures() {
        let (heard, reply) = decode(wire, &events(&[body.as_bytes()]));
        let text: String = heard.iter().filter_map(|piece| piece.strip_prefix("text ")).collect();
        assert_eq!(text, reply.message.full_text(), "{name}");
        assert!(reply.usage.output > 0, "{name}: {:?}", reply.usage);
        let calls = reply.message.calls().count();
        match reply.stop {
            StopReason::Calls => assert!(calls > 0, "{name}"),
            StopReason::Done => assert_eq!(calls, 0, "{name}"),
            StopReason::Length => {
                assert!(reply.message.calls().all(|c| c.malformed.is_some()), "{name}")
            }
            StopReason::Refused => panic!("{name} was not refused"),
        }
    }
}

#[test]
fn a_truncated_reply_is_never_complete() {
    for (name, wire, body) in fixtures() {
        let end = match wire {
            "anthropic" => "\"stop_reason\":\"",
            "gemini" => "\"finishReason\":\"",
            "responses" => "event: response.",
            _ => "\"finish_reason\":\"",
        };
        let end = body.rfind(end).unwrap();
        for cut in (0..end).step_by(307) {
            let mut decoder = decoder(wire);
            for event in events(&[&body.as_bytes()[..cut]]) {
                let _ = decoder.event(&event, &mut |_| ());
            }
            assert!(decoder.reply().is_none(), "{name} cut at {cut}");
        }
    }
}

#[test]
fn reasoning_is_kept_unchanged_in_each_wire_format() {
    let reply = part_named("encrypted_reasoning_multi_part");
    let is_phase = |part: &&ContentPart| match part {
        ContentPart::Reasoning { sealed: Some(sealed), .. } => sealed.get("phase").is_some(),
        _ => false,
    };
    let parts = reply.message.parts.iter();
    assert_eq!(parts.clone().filter(is_phase).count(), 1, "the recorded message has a phase");
    let thoughts: Vec<&ContentPart> =
        parts.filter(|part| is_thought(part) && !is_phase(part)).collect();
    assert!(!thoughts.is_empty());
    for thought in thoughts {
        let ContentPart::Reasoning { text, sealed: Some(sealed) } = thought else {
            panic!("{thought:?}")
        };
        let item = &sealed["item"];
        assert!(item["encrypted_content"].as_str().is_some_and(|text| !text.is_empty()));
        let summary = item["summary"].as_array().unwrap();
        let summary: Vec<&str> = summary.iter().filter_map(|part| part["text"].as_str()).collect();
        assert_eq!(*text, summary.join("\n\n"));
    }
    let parallel = part_named("parallel_tool_calls_single_turn");
    let names: Vec<&str> = parallel.message.calls().map(|call| call.name.as_str()).collect();
    assert_eq!(names, ["lookup_harbor_label", "lookup_orchard_label"]);
    assert_eq!(part_named("incomplete_max_output_tokens").stop, StopReason::Length);
    assert_eq!(part_named("gemini-streaming_grammar-max_tokens").stop, StopReason::Length);
    let signed = "data: {\"candidates\": [{\"content\": {\"parts\": [{\"text\": \"hm\", \"thought\": true}, \
         {\"functionCall\": {\"name\": \"a\", \"args\": {}}, \"thoughtSignature\": \"s\"}, \
         {\"functionCall\": {\"name\": \"b\"}}]}, \"finishReason\": \"STOP\"}]}\r\n\r\n";
    let reply = read("gemini", signed);
    let kinds: Vec<&str> = reply
        .message
        .parts
        .iter()
        .map(|part| match part {
            ContentPart::Reasoning { text, sealed: None } if text == "hm" => "thought",
            ContentPart::Reasoning { sealed: Some(sealed), .. }
                if sealed["thoughtSignature"] == "s" =>
            {
                "sign"
            }
            ContentPart::Call(_) => "call",
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(kinds, ["thought", "sign", "call", "call"]);
}

fn is_thought(part: &ContentPart) -> bool {
    matches!(part, ContentPart::Reasoning { .. })
}

fn part_named(name: &str) -> Reply {
    let (_, wire, body) =
        fixtures().into_iter().find(|(file, _, _)| file.contains(name)).expect("a recorded reply");
    read(wire, &body)
}

#[test]
fn recorded_calls_reasoning_and_unicode_are_decoded() {
    let reply = part_named("anthropic-streaming_grammar-parallel_tool_use");
    let calls: Vec<_> = reply.message.calls().map(|c| (c.name.as_str(), &c.args)).collect();
    assert_eq!(calls, [("lookup_harbor_label", &json!({})), ("lookup_orchard_label", &json!({}))]);
    assert_eq!((reply.usage.input, reply.usage.output), (700, 70));

    let reply = part_named("unicode_arguments");
    let message = reply.message.calls().next().unwrap().args["message"].as_str().unwrap();
    assert_eq!(message, "Grüße aus 東京, from the \"naïve café\"!");

    let reply = part_named("redacted_thinking");
    let sealed = reply.message.parts.iter().filter_map(|part| match part {
        ContentPart::Reasoning { sealed, .. } => sealed.as_ref().map(|block| block["data"].clone()),
        ContentPart::Text { .. }
        | ContentPart::Note(_)
        | ContentPart::Call(_)
        | ContentPart::Result(_)
        | ContentPart::Image(_) => None,
    });
    let sealed: Vec<_> = sealed.collect();
    assert_eq!(sealed, ["redacted_thinking_REDACTED_1", "redacted_thinking_REDACTED_2"]);

    let reply = part_named("llamacpp-streaming_tools-example");
    assert_eq!(reply.message.calls().next().unwrap().args, json!({"x": 2, "y": 5}));
    assert_eq!((reply.usage.cache_read, reply.usage.input), (305, 1));
    assert!(
        matches!(&reply.message.parts[0], ContentPart::Reasoning { text, .. } if text.len() > 50)
    );
}

/// Decodes a chat completions stream from chunks of `choices[0]`.
pub fn chat(choices: &[Value]) -> Reply {
    let lines = choices.iter().map(|choice| format!("data: {}\n\n", json!({"choices": [choice]})));
    read("openai", &format!("{}data: [DONE]\n\n", lines.collect::<String>()))
}

pub fn calls(pieces: &[Value]) -> Vec<(String, String, Value)> {
    let mut choices: Vec<Value> =
        pieces.iter().map(|piece| json!({"delta": {"tool_calls": [piece]}})).collect();
    choices.push(json!({"delta": {}, "finish_reason": "tool_calls"}));
    let reply = chat(&choices);
    assert_eq!(reply.stop, StopReason::Calls);
    reply.message.calls().map(|c| (c.id.clone(), c.name.clone(), c.args.clone())).collect()
}

pub fn named(id: &str, name: &str, args: Value) -> (String, String, Value) {
    (id.to_owned(), name.to_owned(), args)
}

#[test]
fn calls_are_decoded_however_servers_split_them() {
    let piece = |index: u64, id: &str, name: &str, args: &str| json!({"index": index, "id": id, "function": {"name": name, "arguments": args}});
    let rest = |index: u64, args: &str| json!({"index": index, "function": {"arguments": args}});

    // Interleaved indices.
    let pieces = [
        piece(0, "a", "x", ""),
        piece(1, "b", "y", ""),
        rest(0, "{\"n\""),
        rest(1, "{\"m\""),
        rest(0, ":1}"),
        rest(1, ":2}"),
    ];
    assert_eq!(
        calls(&pieces),
        [named("a", "x", json!({"n": 1})), named("b", "y", json!({"m": 2}))]
    );

    // Id and name repeated in every piece; a new id in every piece (vLLM).
    let pieces = [piece(0, "a", "x", "{\"n\""), piece(0, "a", "x", ":1}")];
    assert_eq!(calls(&pieces), [named("a", "x", json!({"n": 1}))]);
    let pieces = [piece(0, "a", "x", "{\"n\""), piece(0, "q", "", ":1}")];
    assert_eq!(calls(&pieces), [named("a", "x", json!({"n": 1}))]);

    // Every call has index 0 and is complete (ollama, Gemini); or there are no ids at all.
    let pieces = [piece(0, "a", "x", "{}"), piece(0, "b", "x", "{}")];
    assert_eq!(calls(&pieces), [named("a", "x", json!({})), named("b", "x", json!({}))]);
    let pieces = [piece(0, "", "x", "{\"n\":1}"), piece(0, "", "x", "{\"n\":2}")];
    let found = calls(&pieces);
    assert_eq!((&found[0].2, &found[1].2), (&json!({"n": 1}), &json!({"n": 2})));
    assert!(found[0].0 != found[1].0 && !found[0].0.is_empty(), "{found:?}");

    // Repeated ids within a reply, no index, arguments as an object.
    let pieces = [piece(0, "a", "x", "{}"), piece(1, "a", "y", "{}")];
    let found = calls(&pieces);
    assert_ne!(found[0].0, found[1].0);
    let pieces = [json!({"id": "a", "function": {"name": "x", "arguments": {"n": 1}}})];
    assert_eq!(calls(&pieces), [named("a", "x", json!({"n": 1}))]);
}

#[test]
fn text_and_reasoning_are_decoded_in_every_form() {
    let stop = json!({"delta": {}, "finish_reason": "stop"});
    let list = json!({"delta": {"content": [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"type": "text", "text": "hi"}]}});
    let reply = chat(&[list, stop.clone()]);
    assert_eq!(reply.message.full_text(), "hi");
    assert!(matches!(&reply.message.parts[0], ContentPart::Reasoning { text, .. } if text == "hm"));

    // A second stop that repeats the whole text.
    let hi = json!({"delta": {"content": "hi"}});
    let again = json!({"delta": {"content": "hi"}, "finish_reason": "stop"});
    assert_eq!(chat(&[hi.clone(), stop.clone(), again]).message.full_text(), "hi");

    // `[DONE]` without a reason; a reason without `[DONE]`.
    assert_eq!(chat(std::slice::from_ref(&hi)).stop, StopReason::Done);
    let body =
        format!("data: {}\n\ndata: {}", json!({"choices": [hi]}), json!({"choices": [stop]}));
    assert_eq!(read("openai", &body).message.full_text(), "hi");
    let filtered = json!({"delta": {}, "finish_reason": "content_filter"});
    assert_eq!(chat(&[filtered]).stop, StopReason::Refused);
}

#[test]
fn spliced_and_unknown_messages_events_are_tolerated() {
    let event = |data: Value| format!("event: x\ndata: {data}\n\n");
    let start = event(json!({"type": "message_start", "message": {"usage": {"input_tokens": 9}}}));
    let block = |index: u64, kind: &str, text: &str| {
        event(json!({"type": "content_block_start", "index": index,
            "content_block": {"type": kind, "text": ""}}))
            + &event(json!({"type": "content_block_delta", "index": index,
                "delta": {"type": "text_delta", "text": text}}))
            + &event(json!({"type": "content_block_stop", "index": index}))
    };
    let end = event(json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"},
        "usage": {"output_tokens": 4}}))
        + &event(json!({"type": "message_stop"}));
    let body = [
        start.clone(),
        start,
        block(0, "text", "one "),
        event(json!({"type": "novelty", "index": 0})),
        block(1, "server_surprise", "never shown"),
        block(0, "text", "two"),
        end,
    ];
    let reply = read("anthropic", &body.concat());
    assert_eq!(reply.message.full_text(), "one two");
    assert_eq!((reply.usage.input, reply.usage.output, reply.stop), (9, 4, StopReason::Done));
}
