//! Tests of streams as services and gateways actually send them, including unusual ones.

use provider::ProviderError;
use provider::hosted::WireFormat;
use provider::message::{ContentPart, Message, MessageRole, Reply, StopReason};
use provider::openai_chat::ChatWire;
use provider::openai_chat::dialect::ChatService;
use provider::openai_responses::ResponsesWire;
use serde_json::{Value, json};

use crate::provider_request::{facts, request};
use crate::provider_wire::{calls, chat, decode, decoder, events, named, read};

/// Returns a stream of these objects in each wire format.
fn stream(objects: &[Value]) -> String {
    let event = |object: &Value| match object["type"].as_str() {
        Some(kind) => format!("event: {kind}\ndata: {object}\n\n"),
        None => format!("data: {object}\n\n"),
    };
    objects.iter().map(event).collect()
}

fn heard(wire: &str, objects: &[Value]) -> (Vec<String>, Reply) {
    decode(wire, &events(&[stream(objects).as_bytes()]))
}

/// Returns the error at the end of a stream.
fn error(wire: &str, objects: &[Value]) -> ProviderError {
    let mut decoder = decoder(wire);
    let events = events(&[stream(objects).as_bytes()]);
    let failed = events.iter().find_map(|event| decoder.event(event, &mut |_| ()).err());
    failed.unwrap_or_else(|| panic!("{wire}: {objects:?} is no error"))
}

fn thoughts(reply: &Reply) -> Vec<&str> {
    let parts = reply.message.parts.iter().filter_map(|part| match part {
        ContentPart::Reasoning { text, .. } => Some(text.as_str()),
        ContentPart::Text { .. }
        | ContentPart::Note(_)
        | ContentPart::Call(_)
        | ContentPart::Result(_)
        | ContentPart::Image(_) => None,
    });
    parts.collect()
}

fn made(reply: &Reply) -> Vec<(&str, &Value)> {
    reply.message.calls().map(|call| (call.name.as_str(), &call.args)).collect()
}

#[test]
fn calls_without_an_index_are_distinguished_by_id_and_name() {
    let begin = |id: &str, name: &str, args: &str| json!({"id": id, "function": {"name": name, "arguments": args}});
    let rest = |args: &str| json!({"function": {"arguments": args}});
    let pieces = [
        begin("a", "x", ""),
        rest("{\"n\":"),
        rest("1}"),
        begin("b", "x", "{\"n\""),
        rest(":2}"),
        json!({"index": null, "id": "c", "function": {"name": "y", "arguments": {}}}),
    ];
    let expected = [
        named("a", "x", json!({"n": 1})),
        named("b", "x", json!({"n": 2})),
        named("c", "y", json!({})),
    ];
    assert_eq!(calls(&pieces), expected);
}

#[test]
fn extra_content_of_calls_is_sent_back_to_the_service_that_made_it() {
    let signature = |text: &str| json!({"google": {"thought_signature": text}});
    let call = |id: &str| json!({"id": id, "function": {"name": "x", "arguments": "{}"}});
    let mut signed = call("a");
    signed["extra_content"] = signature("s");
    let chunk = |calls: &[Value]| json!({"choices": [{"delta": {"tool_calls": calls}}]});
    let end = json!({"choices": [{"delta": {}, "finish_reason": "stop"}]});
    let alone = json!({"extra_content": signature("s")});
    for chunks in [
        vec![chunk(&[signed, call("b")]), end.clone()],
        vec![chunk(&[call("a")]), chunk(&[alone]), chunk(&[call("b")]), end],
    ] {
        let (_, reply) = heard("openai", &chunks);
        let messages = [Message::text(MessageRole::User, "go"), reply.message];
        let extra = |wire: &ChatWire| {
            let body = wire.body(&request(&messages, &[]), &facts());
            let calls = body["messages"][2]["tool_calls"].as_array().expect("calls").clone();
            calls.into_iter().map(|call| call["extra_content"].clone()).collect::<Vec<_>>()
        };
        assert_eq!(extra(&ChatWire::default()), [signature("s"), Value::Null]);
        let strict = ChatWire { service: ChatService::Openai, ..ChatWire::default() };
        assert_eq!(extra(&strict), [Value::Null, Value::Null], "it rejects unknown fields");
    }
}

#[test]
fn calls_are_accepted_with_any_finish_reason() {
    for reason in ["stop", "tool_calls", "function_call", "eos", ""] {
        let call = json!({"index": 0, "id": "a", "function": {"name": "x", "arguments": ""}});
        let reply = chat(&[
            json!({"delta": {"role": "assistant", "content": null, "tool_calls": [call]}}),
            json!({"delta": {"tool_calls": null}, "finish_reason": reason}),
        ]);
        assert_eq!(
            (made(&reply), reply.stop),
            (vec![("x", &json!({}))], StopReason::Calls),
            "{reason}"
        );
    }
}

#[test]
fn reasoning_fields_have_many_names_and_an_empty_one_hides_no_other() {
    let stop = json!({"delta": {"content": "hi"}, "finish_reason": "stop"});
    for thought in [
        json!({"reasoning_content": "hm"}),
        json!({"reasoning": "hm"}),
        json!({"reasoning_text": "hm"}),
        json!({"reasoning_content": "", "reasoning": "hm"}),
        json!({"reasoning_content": "hm", "reasoning": "hm"}),
        json!({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]}),
    ] {
        let reply = chat(&[json!({"delta": thought}), stop.clone()]);
        assert_eq!((thoughts(&reply), reply.message.full_text().as_str()), (vec!["hm"], "hi"));
    }
    let piece = |text: &str| json!({"delta": {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": text}]}]}});
    let reply = chat(&[piece("h"), piece("m"), stop]);
    let ContentPart::Reasoning { sealed: Some(sealed), .. } = &reply.message.parts[0] else {
        panic!()
    };
    assert_eq!(sealed["block"]["thinking"], json!([{"type": "text", "text": "hm"}]));
}

#[test]
fn usage_is_found_in_every_position() {
    let usage = json!({"prompt_tokens": 9, "completion_tokens": 4});
    let end = json!({"delta": {"content": "hi"}, "finish_reason": "stop"});
    let mut inside = end.clone();
    inside["usage"] = usage.clone();
    for stream in [
        vec![json!({"choices": [end]}), json!({"choices": [], "usage": usage})],
        vec![json!({"choices": [], "usage": usage}), json!({"choices": [end], "usage": null})],
        vec![json!({"choices": [end], "usage": usage})],
        vec![json!({"choices": [inside]})],
    ] {
        let (_, reply) = heard("openai", &stream);
        assert_eq!((reply.usage.input, reply.usage.output), (9, 4), "{stream:?}");
    }
    // 0 at the start or at the end is not a count.
    for (begin, end) in [(9, json!(null)), (0, json!(9)), (9, json!(0))] {
        let (_, reply) = heard(
            "anthropic",
            &[
                json!({"type": "message_start", "message": {"usage": {"input_tokens": begin, "output_tokens": 1}}}),
                json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"},
                    "usage": {"input_tokens": end, "output_tokens": 4}}),
                json!({"type": "message_stop"}),
            ],
        );
        assert_eq!((reply.usage.input, reply.usage.output), (9, 4));
    }
}

#[test]
fn errors_in_a_stream_are_detected_in_every_form() {
    use ProviderError as E;
    let is_rejected =
        |error: E| matches!(error, E::Rejected(said) if said.text.contains("no such"));
    let chunk = json!({"choices": [{"delta": {"content": "half"}}]});
    for bad in [
        json!({"error": {"message": "no such thing", "type": "invalid_request_error"}}),
        json!({"error": {"message": "no such thing", "code": "400"}}),
        json!({"object": "error", "message": "no such thing", "type": "BadRequestError", "code": 400}),
    ] {
        assert!(is_rejected(error("openai", &[chunk.clone(), bad])));
    }
    for bad in [
        json!({"error": "we are down"}),
        json!({"error_code": "INTERNAL", "message": "we are down"}),
        json!({"choices": [{"delta": {}, "finish_reason": "error"}]}),
        json!({"choices": [{"delta": {}, "finish_reason": "insufficient_system_resource"}]}),
    ] {
        let error = error("openai", &[chunk.clone(), bad]);
        assert!(matches!(error, E::Broken(_)), "{error:?}");
    }
    let named = "data: {\"choices\": []}\n\nevent: error\ndata: {\"message\": \"no\"}\n\n";
    let events = events(&[named.as_bytes()]);
    assert!(decoder("openai").event(&events[1], &mut |_| ()).is_err());
}

#[test]
fn an_object_in_several_data_lines_is_joined() {
    let chunk = json!({"choices": [{"delta": {"content": "hi"}, "finish_reason": "stop"}]});
    let pretty = serde_json::to_string_pretty(&chunk).unwrap();
    let lines: String = pretty.lines().map(|line| format!("data: {line}\r\n")).collect();
    let body = format!("\u{feff}: hello\r\nid: 7\r\n{lines}\r\n: bye\r\n");
    assert_eq!(read("openai", &body).message.full_text(), "hi");
}

fn block(index: u64, block: Value) -> Value {
    json!({"type": "content_block_start", "index": index, "content_block": block})
}

fn delta(index: u64, delta: Value) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": delta})
}

fn stops(reason: &str) -> Value {
    json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 4}})
}

#[test]
fn stop_reasons_of_the_messages_api_are_mapped() {
    for (reason, stop) in [
        ("end_turn", StopReason::Done),
        ("stop_sequence", StopReason::Done),
        ("something_new", StopReason::Done),
        ("refusal", StopReason::Refused),
        ("max_tokens", StopReason::Length),
        ("model_context_window_exceeded", StopReason::Length),
        // Not the end: the model continues if asked.
        ("pause_turn", StopReason::Length),
    ] {
        let text = block(0, json!({"type": "text", "text": "hi"}));
        let (_, reply) = heard("anthropic", &[text, stops(reason)]);
        assert_eq!((reply.message.full_text().as_str(), reply.stop), ("hi", stop), "{reason}");
    }
    let call = block(0, json!({"type": "tool_use", "id": "a", "name": "x", "input": {"n": 1}}));
    for reason in ["tool_use", "end_turn", "pause_turn"] {
        let (_, reply) = heard("anthropic", &[call.clone(), stops(reason)]);
        assert_eq!((made(&reply), reply.stop), (vec![("x", &json!({"n": 1}))], StopReason::Calls));
    }
}

#[test]
fn blocks_of_the_messages_api_may_be_interleaved() {
    let begin = |at: u64| {
        block(at, json!({"type": "tool_use", "id": at.to_string(), "name": "x", "input": {}}))
    };
    let piece =
        |at: u64, json: &str| delta(at, json!({"type": "input_json_delta", "partial_json": json}));
    let objects = [
        begin(0),
        begin(1),
        piece(0, ""),
        piece(1, "{\"n\":"),
        piece(0, "{\"n\":1"),
        piece(1, "2}"),
        piece(0, "}"),
        stops("tool_use"),
    ];
    let (_, reply) = heard("anthropic", &objects);
    assert_eq!(made(&reply), [("x", &json!({"n": 1})), ("x", &json!({"n": 2}))]);
}

#[test]
fn text_without_a_block_start_is_accepted() {
    let (heard, reply) = heard(
        "anthropic",
        &[
            delta(0, json!({"type": "thinking_delta", "thinking": "hm"})),
            delta(0, json!({"type": "signature_delta", "signature": "s"})),
            delta(1, json!({"type": "text_delta", "text": "h"})),
            delta(1, json!({"type": "text_delta", "text": "i"})),
            stops("end_turn"),
        ],
    );
    assert_eq!(heard, ["thought hm", "text h", "text i"]);
    assert_eq!((thoughts(&reply), reply.message.full_text().as_str()), (vec!["hm"], "hi"));
    let ContentPart::Reasoning { sealed: Some(sealed), .. } = &reply.message.parts[0] else {
        panic!()
    };
    assert_eq!(sealed, &json!({"type": "thinking", "thinking": "hm", "signature": "s"}));
}

#[test]
fn each_call_has_a_unique_id_in_every_wire_format() {
    let use_of = |index: u64, id: Value| {
        block(index, json!({"type": "tool_use", "id": id, "name": "x", "input": {}}))
    };
    let item = |at: u64, id: Value| {
        json!({"type": "response.output_item.done", "output_index": at,
        "item": {"type": "function_call", "call_id": id, "name": "x", "arguments": "{}"}})
    };
    let whole = json!({"type": "response.completed", "response": {}});
    let part = |id: Value| json!({"functionCall": {"name": "x", "id": id}});
    let gemini = |ids: [Value; 2]| json!({"candidates": [{"content": {"parts": ids.map(part)}, "finishReason": "STOP"}]});
    for ids in [[json!(""), json!("")], [json!("a"), json!("a")], [json!(null), json!("b")]] {
        let [first, second] = ids.clone();
        let chat = |at: u64, id: &Value| {
            json!({"choices": [{"delta": {"tool_calls": [
            {"index": at, "id": id, "function": {"name": "x", "arguments": "{}"}}]}}]})
        };
        let end = json!({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]});
        for (wire, objects) in [
            (
                "anthropic",
                vec![use_of(0, first.clone()), use_of(1, second.clone()), stops("tool_use")],
            ),
            ("responses", vec![item(0, first.clone()), item(1, second.clone()), whole.clone()]),
            ("gemini", vec![gemini(ids.clone())]),
            ("openai", vec![chat(0, &first), chat(1, &second), end]),
        ] {
            let (_, reply) = heard(wire, &objects);
            let found: Vec<&str> = reply.message.calls().map(|call| call.id.as_str()).collect();
            assert_eq!(found.len(), 2, "{wire}: {ids:?}");
            assert!(found[0] != found[1] && !found.contains(&""), "{wire}: {found:?}");
            let sent = |id: &&Value| id.as_str().is_some_and(|id| !id.is_empty());
            let kept = ids.iter().filter(sent).all(|id| found.contains(&id.as_str().unwrap()));
            assert!(kept, "{wire}: {ids:?} became {found:?}");
        }
    }
}

#[test]
fn gemini_parts_are_decoded_in_order_and_a_late_signature_is_sent_back() {
    let chunk = |parts: Value, reason: Value| json!({"candidates": [{"content": {"parts": parts}, "finishReason": reason}]});
    let (heard, reply) = heard(
        "gemini",
        &[
            chunk(json!([{"text": "hm", "thought": true}, {"text": "I "}]), json!("")),
            chunk(json!([{"text": "look."}, {"executableCode": {"code": "x"}}]), json!("STOP")),
            // The finish reason may be in every chunk.
            chunk(
                json!([{"functionCall": {"name": "x", "args": {"n": 1}}}, {"functionCall": {"name": "y"}}]),
                json!("STOP"),
            ),
            chunk(json!([{"text": "", "thoughtSignature": "late"}]), json!("STOP")),
        ],
    );
    assert_eq!(heard, ["thought hm", "text I ", "text look."]);
    assert_eq!(made(&reply), [("x", &json!({"n": 1})), ("y", &json!({}))]);
    assert_eq!(reply.stop, StopReason::Calls);
    let last = reply.message.parts.last();
    let is_late = |sealed: &Value| sealed["thoughtSignature"] == "late";
    assert!(
        matches!(last, Some(ContentPart::Reasoning { sealed: Some(it), .. }) if is_late(it)),
        "{last:?}"
    );
}

#[test]
fn finish_reasons_of_gemini_are_mapped() {
    let ends = |reason: &str| json!({"candidates": [{"content": {"parts": [{"text": "hi"}]}, "finishReason": reason}]});
    for (reason, stop) in [
        ("STOP", StopReason::Done),
        ("MAX_TOKENS", StopReason::Length),
        ("SAFETY", StopReason::Refused),
        ("RECITATION", StopReason::Refused),
    ] {
        assert_eq!(heard("gemini", &[ends(reason)]).1.stop, stop, "{reason}");
    }
    for reason in ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL"] {
        assert!(matches!(error("gemini", &[ends(reason)]), ProviderError::Broken(_)), "{reason}");
    }
    let blocked = json!({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}});
    assert!(matches!(error("gemini", &[blocked]), ProviderError::Rejected(_)));
    let busy = json!({"error": {"code": 503, "message": "busy", "status": "UNAVAILABLE"}});
    assert!(matches!(error("gemini", &[busy]), ProviderError::Busy { .. }));
}

fn response(kind: &str, more: Value) -> Value {
    json!({"type": format!("response.{kind}"), "response": more})
}

#[test]
fn responses_items_may_arrive_complete_in_deltas_or_at_the_end() {
    let said = json!({"type": "message", "content": [{"type": "output_text", "text": "hi"}]});
    let call =
        json!({"type": "function_call", "call_id": "a", "name": "x", "arguments": "{\"n\":1}"});
    let whole = |at: u64, item: &Value| json!({"type": "response.output_item.done", "output_index": at, "item": item});
    let begun = json!({"type": "function_call", "call_id": "a", "name": "x", "arguments": "", "status": "in_progress"});
    let usage = json!({"input_tokens": 9, "output_tokens": 4});
    let bare = response("completed", json!({"usage": usage}));
    let full = response("completed", json!({"usage": usage, "output": [said, call]}));
    let added = |at: u64, item: Value| json!({"type": "response.output_item.added", "output_index": at, "item": item});
    let args = |kind: &str, key: &str, text: &str| json!({"type": format!("response.function_call_arguments.{kind}"), "output_index": 1, key: text});
    let text = json!({"type": "response.output_text.delta", "output_index": 0, "delta": "hi"});
    for objects in [
        vec![whole(0, &said), whole(1, &call), bare.clone()],
        vec![full.clone()],
        vec![text.clone(), added(1, begun.clone()), args("delta", "delta", "{\"n\""), full],
        vec![
            added(0, json!({"type": "message", "content": []})),
            text,
            added(1, begun),
            args("delta", "delta", "{\"n\""),
            args("done", "arguments", "{\"n\":1}"),
            bare,
        ],
    ] {
        let (heard, reply) = heard("responses", &objects);
        assert_eq!(heard, ["text hi"], "{objects:?}");
        assert_eq!(made(&reply), [("x", &json!({"n": 1}))], "{objects:?}");
        assert!(reply.message.calls().all(|call| call.malformed.is_none()), "{objects:?}");
        assert_eq!((reply.stop, reply.usage.input, reply.usage.output), (StopReason::Calls, 9, 4));
    }
    // The type may be only in the event name.
    let body = "event: response.output_text.delta\ndata: {\"delta\": \"hi\"}\n\n\
                event: response.completed\ndata: {\"response\": {}}\n\n";
    assert_eq!(read("responses", body).message.full_text(), "hi");
}

/// Changes an event of a stream, by its number.
type MendEvent<'m> = &'m dyn Fn(usize, &mut Value);

/// Returns a stream of the Responses API with reasoning, text and two calls. All headers come
/// before the first complete item, as llama.cpp sends them; `mend` changes each event.
fn responses_with_two_calls(mend: MendEvent<'_>) -> Vec<Value> {
    let headers = [
        json!({"type": "reasoning", "id": "rs_1", "summary": []}),
        json!({"type": "message", "id": "msg_1", "content": []}),
        json!({"type": "function_call", "id": "fc_1", "call_id": "a", "name": "x", "arguments": ""}),
        json!({"type": "function_call", "id": "fc_2", "call_id": "b", "name": "y", "arguments": ""}),
    ];
    let deltas = [
        ("reasoning_text", ["so", "so"]),
        ("output_text", ["h", "i"]),
        ("function_call_arguments", ["{\"n\"", ":1}"]),
        ("function_call_arguments", ["{\"m\"", ":2}"]),
    ];
    let mut output = headers.clone();
    output[0]["content"] = json!([{"type": "reasoning_text", "text": "soso"}]);
    output[1]["content"] = json!([{"type": "output_text", "text": "hi"}]);
    output[2]["arguments"] = json!("{\"n\":1}");
    output[3]["arguments"] = json!("{\"m\":2}");
    let event = |kind: &str, at: usize, field: &str, value: &Value| {
        let id = &headers[at]["id"];
        json!({"type": format!("response.{kind}"), "output_index": at, "item_id": id, field: value})
    };
    let mut objects = Vec::new();
    for (at, (kind, texts)) in deltas.iter().enumerate() {
        objects.push(event("output_item.added", at, "item", &headers[at]));
        for text in texts {
            objects.push(event(&format!("{kind}.delta"), at, "delta", &json!(text)));
        }
    }
    for (at, item) in output.iter().enumerate() {
        objects.push(event("output_item.done", at, "item", item));
    }
    for (number, object) in objects.iter_mut().enumerate() {
        mend(number, object);
    }
    let usage = json!({"input_tokens": 9, "output_tokens": 4});
    objects.push(response("completed", json!({"usage": usage, "output": output})));
    objects
}

#[test]
fn responses_items_are_distinguished_whatever_a_server_does_with_indexes_and_ids() {
    let without_index = |_: usize, event: &mut Value| {
        event.as_object_mut().expect("an event").remove("output_index");
    };
    let one_index = |_: usize, event: &mut Value| event["output_index"] = json!(0);
    let changing_ids = |number: usize, event: &mut Value| {
        let id = json!(format!("id{number}"));
        event["item_id"] = id.clone();
        if event["item"].is_object() {
            event["item"]["id"] = id;
        }
    };
    let neither = |number: usize, event: &mut Value| {
        one_index(number, event);
        changing_ids(number, event);
    };
    let cases: [(&str, MendEvent<'_>); 5] = [
        ("as specified", &|_, _| ()),
        ("without an index", &without_index),
        ("one index", &one_index),
        ("changing ids", &changing_ids),
        ("one index and changing ids", &neither),
    ];
    for (case, mend) in cases {
        let (heard, reply) = heard("responses", &responses_with_two_calls(mend));
        assert_eq!(heard, ["thought so", "thought so", "text h", "text i"], "{case}");
        assert_eq!((thoughts(&reply), reply.message.full_text()), (vec!["soso"], "hi".to_owned()));
        let expected = [("x", &json!({"n": 1})), ("y", &json!({"m": 2}))];
        assert_eq!(made(&reply), expected, "{case}");
        assert!(reply.message.calls().all(|call| call.malformed.is_none()), "{case}");
    }
    let mut repeated = responses_with_two_calls(&without_index);
    let done = repeated[repeated.len() - 2].clone();
    repeated.insert(repeated.len() - 1, done);
    assert_eq!(made(&heard("responses", &repeated).1).len(), 2, "an item that is sent again");
}

#[test]
fn the_phase_of_a_message_is_sent_back() {
    let message = |phase: &str, text: &str| {
        let content = json!([{"type": "output_text", "text": text}]);
        json!({"type": "message", "phase": phase, "content": content})
    };
    let call = json!({"type": "function_call", "call_id": "a", "name": "x", "arguments": "{}"});
    let output = [message("commentary", "I look"), call, message("final_answer", "done")];
    let (_, reply) = heard("responses", &[response("completed", json!({"output": output}))]);
    let messages = [Message::text(MessageRole::User, "go"), reply.message];
    let body = ResponsesWire::default().body(&request(&messages, &[]), &facts());
    let input = body["input"].as_array().expect("items");
    let phases: Vec<&Value> = input.iter().map(|item| &item["phase"]).collect();
    let (commentary, answer) = (json!("commentary"), json!("final_answer"));
    assert_eq!(phases, [&Value::Null, &commentary, &Value::Null, &answer, &Value::Null]);
}

#[test]
fn text_that_precedes_its_item_is_neither_lost_nor_repeated() {
    let text = json!({"type": "response.output_text.delta", "output_index": 0, "item_id": "p", "delta": "hi"});
    let thought = json!({"type": "response.reasoning_summary_text.delta", "output_index": 0, "item_id": "q", "delta": "so"});
    let item = json!({"type": "message", "id": "m", "content": [{"type": "output_text", "text": "hi there"}]});
    let added = json!({"type": "response.output_item.added", "output_index": 0, "item": {"type": "message", "id": "m", "content": []}});
    let call = json!({"type": "function_call", "call_id": "a", "name": "x", "arguments": "{}"});
    let args = json!({"type": "response.function_call_arguments.delta", "output_index": 0, "item_id": "r", "delta": "{}"});
    let full = response("completed", json!({"output": [item, call]}));
    for objects in [
        vec![thought.clone(), text.clone(), args.clone(), full.clone()],
        vec![thought, text, added, args, full],
    ] {
        let (heard, reply) = heard("responses", &objects);
        assert_eq!(heard, ["thought so", "text hi", "text  there"], "{objects:?}");
        assert_eq!(
            (thoughts(&reply), reply.message.full_text().as_str()),
            (vec!["so"], "hi there")
        );
        assert_eq!(made(&reply), [("x", &json!({}))], "{objects:?}");
    }
}

#[test]
fn all_final_events_of_the_responses_api_are_handled() {
    use ProviderError as E;
    let ends = |more: Value| response("incomplete", json!({"incomplete_details": more}));
    for (details, stop) in [
        (json!({"reason": "max_output_tokens"}), StopReason::Length),
        (json!({"reason": "content_filter"}), StopReason::Refused),
        (json!(null), StopReason::Length),
    ] {
        assert_eq!(heard("responses", &[ends(details.clone())]).1.stop, stop, "{details}");
    }
    let failed = |code: &str| {
        error("responses", &[response("failed", json!({"error": {"code": code, "message": "m"}}))])
    };
    assert!(matches!(failed("rate_limit_exceeded"), E::RateLimited { .. }));
    assert!(matches!(failed("server_error"), E::Overloaded(_)));
    assert!(matches!(failed("context_length_exceeded"), E::TooLong(_)));
    assert!(matches!(failed("insufficient_quota"), E::Rejected(_)));
    assert!(matches!(failed("something_new"), E::Broken(_)));
    assert!(matches!(error("responses", &[response("failed", json!({}))]), E::Broken(_)));
    assert!(matches!(error("responses", &[response("cancelled", json!({}))]), E::Broken(_)));
    let bare = json!({"type": "error", "code": "server_error", "message": "m"});
    assert!(matches!(error("responses", &[bare]), E::Overloaded(_)));
    let refusal =
        json!({"type": "message", "content": [{"type": "refusal", "refusal": "I will not"}]});
    let (_, reply) = heard("responses", &[response("completed", json!({"output": [refusal]}))]);
    assert_eq!(reply.message.full_text(), "I will not");
}

#[test]
fn only_the_first_of_several_choices_is_the_reply() {
    let choice = |index: u32, text: &str| json!({ "index": index, "delta": { "content": text } });
    let end = |index: u32| json!({ "index": index, "delta": {}, "finish_reason": "stop" });
    let (_, reply) = heard(
        "openai",
        &[
            json!({ "choices": [choice(1, "no ")] }),
            json!({ "choices": [choice(0, "yes")] }),
            json!({ "choices": [choice(1, "other"), choice(0, " it is")] }),
            json!({ "choices": [end(1)] }),
            json!({ "choices": [choice(0, ".")] }),
            json!({ "choices": [end(0)] }),
        ],
    );
    assert_eq!(reply.message.full_text(), "yes it is.");
    let candidate = |index: u32, text: &str| json!({ "index": index, "content": { "parts": [{ "text": text }] } });
    let mut last = candidate(0, "yes");
    last["finishReason"] = json!("STOP");
    let (_, reply) = heard(
        "gemini",
        &[json!({ "candidates": [candidate(1, "no")] }), json!({ "candidates": [last] })],
    );
    assert_eq!(reply.message.full_text(), "yes");
}
