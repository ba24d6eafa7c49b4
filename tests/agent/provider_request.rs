//! Tests of request bodies in each wire format.

use base::config::providers::CacheConfig;
use provider::anthropic::MessagesWire;
use provider::gemini::GeminiWire;
use provider::hosted::WireFormat;
use provider::message::{ContentPart, Image, Message, MessageRole, ToolCall, ToolResult};
use provider::openai_chat::dialect::ChatService;
use provider::openai_chat::{ChatWire, ReasoningEffort};
use provider::openai_responses::ResponsesWire;
use provider::{ChatRequest, ProviderFacts};
use serde_json::{Value, json};

use crate::provider_support::{tools, user};

/// Returns facts of a hosted model.
pub fn facts() -> ProviderFacts {
    ProviderFacts {
        provider: "x".into(),
        model: "m".into(),
        context: 100_000,
        max_output: 4000,
        small: false,
        priced: false,
    }
}

/// Creates a request with these messages and tools.
pub fn request<'a>(
    messages: &'a [Message],
    tools: &'a [provider::ToolDefinition],
) -> ChatRequest<'a> {
    ChatRequest { system: "Be terse.", messages, tools, max_output: 4000, session: "s-1" }
}

/// Returns a conversation with all kinds of parts.
fn conversation() -> Vec<Message> {
    let picture = Image { media_type: "image/png".into(), data: "aGk=".into() };
    let thinking = json!({"type": "thinking", "thinking": "hm", "signature": "sig"});
    let call = |id: &str, name: &str, args: Value, malformed: Option<&str>| {
        let malformed = malformed.map(str::to_owned);
        ContentPart::Call(ToolCall { id: id.into(), name: name.into(), args, malformed })
    };
    let result = |id: &str, ok: bool, images: Vec<Image>| {
        let (call_id, name, text) = (id.into(), "shell".into(), format!("result {id}"));
        ContentPart::Result(ToolResult { call_id, name, ok, text, images, not_run: false })
    };
    vec![
        Message {
            role: MessageRole::User,
            parts: vec![
                ContentPart::Text { text: "look".into() },
                ContentPart::Image(picture.clone()),
            ],
        },
        Message {
            role: MessageRole::Assistant,
            parts: vec![
                ContentPart::Reasoning { text: "hm".into(), sealed: Some(thinking) },
                ContentPart::Text { text: "I look".into() },
                call("1", "shell", json!({"command": "ls"}), None),
                call("2", "shell", json!("{\"co"), Some("{\"co")),
            ],
        },
        Message {
            role: MessageRole::User,
            parts: vec![result("1", true, vec![picture]), result("2", false, vec![])],
        },
        Message::text(MessageRole::Assistant, "done"),
        Message::text(MessageRole::User, "more"),
    ]
}

/// Formats a list of JSON values, one per line.
fn lines(list: &Value) -> String {
    list.as_array().unwrap().iter().map(|value| format!("{value}\n")).collect()
}

#[test]
fn the_messages_request_contains_everything() {
    let (messages, tools) = (conversation(), tools());
    let body = MessagesWire::default().body(&request(&messages, &tools), &facts());
    insta::assert_snapshot!(lines(&body["messages"]), @r#"
{"role":"user","content":[{"type":"text","text":"look"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"aGk="}}]}
{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"sig"},{"type":"text","text":"I look"},{"type":"tool_use","id":"1","name":"shell","input":{"command":"ls"}},{"type":"tool_use","id":"2","name":"shell","input":{"malformed_arguments":"{\"co"}}]}
{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":[{"type":"text","text":"result 1"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"aGk="}}]},{"type":"tool_result","tool_use_id":"2","content":"result 2","is_error":true,"cache_control":{"type":"ephemeral"}}]}
{"role":"assistant","content":[{"type":"text","text":"done"}]}
{"role":"user","content":[{"type":"text","text":"more","cache_control":{"type":"ephemeral"}}]}
"#);
    assert_eq!(body["system"][0]["cache_control"], json!({"type": "ephemeral"}));
    assert_eq!(body["tools"][0]["cache_control"], Value::Null);
    assert_eq!(body["tools"][1]["cache_control"], json!({"type": "ephemeral"}));
    assert_eq!(body["temperature"], Value::Null);
}

#[test]
fn the_chat_request_contains_everything() {
    let (messages, tools) = (conversation(), tools());
    let body = ChatWire::default().body(&request(&messages, &tools), &facts());
    insta::assert_snapshot!(lines(&body["messages"]), @r#"
{"role":"system","content":"Be terse."}
{"role":"user","content":[{"type":"text","text":"look"},{"type":"image_url","image_url":{"url":"data:image/png;base64,aGk="}}]}
{"role":"assistant","content":"I look","tool_calls":[{"id":"1","type":"function","function":{"name":"shell","arguments":"{\"command\":\"ls\"}"}},{"id":"2","type":"function","function":{"name":"shell","arguments":"{\"malformed_arguments\":\"{\\\"co\"}"}}]}
{"role":"tool","tool_call_id":"1","content":"result 1"}
{"role":"tool","tool_call_id":"2","content":"result 2"}
{"role":"user","content":[{"type":"text","text":"Pictures from the result of shell (1):"},{"type":"image_url","image_url":{"url":"data:image/png;base64,aGk="}}]}
{"role":"assistant","content":"done"}
{"role":"user","content":"more"}
"#);
    assert_eq!((&body["max_tokens"], &body["max_completion_tokens"]), (&json!(4000), &Value::Null));
    assert_eq!(body["stream_options"]["include_usage"], true);
    let openai =
        ChatWire { service: ChatService::Openai, temperature: Some(0.5), ..ChatWire::default() };
    let body = openai.body(&request(&messages, &tools), &facts());
    assert_eq!((&body["max_completion_tokens"], &body["max_tokens"]), (&json!(4000), &Value::Null));
    assert_eq!((&body["prompt_cache_key"], &body["temperature"]), (&json!("s-1"), &json!(0.5)));
}

#[test]
fn consecutive_user_messages_are_merged_in_chat_requests() {
    let picture = Image { media_type: "image/png".into(), data: "aGk=".into() };
    let said = |text: &str| Message::text(MessageRole::User, text);
    let shown = Message { role: MessageRole::User, parts: vec![ContentPart::Image(picture)] };
    let sent = |messages: &[Message]| {
        let body = ChatWire::default().body(&request(messages, &[]), &facts());
        body["messages"].as_array().unwrap()[1..].to_vec()
    };
    assert_eq!(sent(&[said("a"), said("b")]), [json!({"role": "user", "content": "a\n\nb"})]);
    let image = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}});
    let text = |text: &str| json!({"type": "text", "text": text});
    assert_eq!(
        sent(&[said("a"), shown, said("b")]),
        [json!({"role": "user", "content": [text("a"), image, text("b")]})]
    );
}

#[test]
fn the_responses_request_contains_everything() {
    let (mut messages, tools) = (conversation(), tools());
    let item = json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"});
    let sealed = Some(json!({ "item": item }));
    messages[1].parts.insert(1, ContentPart::Reasoning { text: "aha".into(), sealed });
    let wire = ResponsesWire::new(Some(0.5));
    let body = wire.body(&request(&messages, &tools), &facts());
    insta::assert_snapshot!(lines(&body["input"]), @r#"
{"type":"message","role":"user","content":[{"type":"input_text","text":"look"},{"type":"input_image","image_url":"data:image/png;base64,aGk="}]}
{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"x"}
{"type":"message","role":"assistant","content":[{"type":"output_text","text":"I look"}]}
{"type":"function_call","call_id":"1","name":"shell","arguments":"{\"command\":\"ls\"}"}
{"type":"function_call","call_id":"2","name":"shell","arguments":"{\"malformed_arguments\":\"{\\\"co\"}"}
{"type":"function_call_output","call_id":"1","output":[{"type":"input_text","text":"result 1"},{"type":"input_image","image_url":"data:image/png;base64,aGk="}]}
{"type":"function_call_output","call_id":"2","output":"result 2"}
{"type":"message","role":"assistant","content":[{"type":"output_text","text":"done"}]}
{"type":"message","role":"user","content":[{"type":"input_text","text":"more"}]}
"#);
    assert_eq!((&body["instructions"], &body["store"]), (&json!("Be terse."), &json!(false)));
    assert_eq!((&body["temperature"], &body["max_output_tokens"]), (&json!(0.5), &json!(4000)));
    assert_eq!(body["tools"][1]["name"], "shell");
    assert!(wire.adapt("Encrypted content is not supported with this model."));
    assert!(wire.adapt("Unsupported parameter: 'temperature'") && !wire.adapt("temperature"));
    let body = wire.body(&request(&messages, &tools), &facts());
    assert_eq!((&body["include"], &body["temperature"]), (&Value::Null, &Value::Null));
}

#[test]
fn the_gemini_request_contains_everything() {
    let (mut messages, tools) = (conversation(), tools());
    let signed = |text: &str| {
        let sealed = Some(json!({ "thoughtSignature": text }));
        ContentPart::Reasoning { text: "aha".into(), sealed }
    };
    messages[1].parts.insert(2, signed("of the call"));
    messages[3].parts.push(signed("of the end"));
    let wire = GeminiWire::new(Some(0.5));
    let body = wire.body(&request(&messages, &tools), &facts());
    insta::assert_snapshot!(lines(&body["contents"]), @r#"
{"role":"user","parts":[{"text":"look"},{"inlineData":{"mimeType":"image/png","data":"aGk="}}]}
{"role":"model","parts":[{"text":"I look"},{"functionCall":{"name":"shell","args":{"command":"ls"}},"thoughtSignature":"of the call"},{"functionCall":{"name":"shell","args":{"malformed_arguments":"{\"co"}}}]}
{"role":"user","parts":[{"functionResponse":{"name":"shell","response":{"output":"result 1"}}},{"inlineData":{"mimeType":"image/png","data":"aGk="}},{"functionResponse":{"name":"shell","response":{"error":"result 2"}}}]}
{"role":"model","parts":[{"text":"done"},{"text":"","thoughtSignature":"of the end"}]}
{"role":"user","parts":[{"text":"more"}]}
"#);
    assert_eq!(body["systemInstruction"], json!({"parts": [{"text": "Be terse."}]}));
    let declared = &body["tools"][0]["functionDeclarations"][1];
    assert_eq!(declared["parametersJsonSchema"], tools[1].parameters);
    assert_eq!(body["generationConfig"]["maxOutputTokens"], 4000);
    assert!(wire.adapt("Thinking is not enabled for this model") && !wire.adapt("thinking"));
    let body = wire.body(&request(&messages, &tools), &facts());
    assert_eq!(body["generationConfig"]["thinkingConfig"], Value::Null);
}

/// The refusal of a Gemini 3 model.
const UNSIGNED: &str = "Function call is missing a thought_signature in functionCall parts. This \
                        is required for tools to work correctly, and missing thought_signature may \
                        lead to degraded model performance.";

#[test]
fn calls_of_other_models_get_a_substitute_where_a_signature_is_required() {
    let mut messages = conversation();
    let gemini = GeminiWire::new(None);
    let chat = ChatWire::default();
    let signatures = |messages: &[Message]| {
        let request = request(messages, &[]);
        let (gemini, chat) = (gemini.body(&request, &facts()), chat.body(&request, &facts()));
        let parts = gemini["contents"][1]["parts"].as_array().expect("parts").clone();
        let calls = parts.into_iter().filter(|part| part["functionCall"].is_object());
        let native: Vec<Value> = calls.map(|call| call["thoughtSignature"].clone()).collect();
        let calls = chat["messages"][2]["tool_calls"].as_array().expect("calls").clone();
        let of_call = |call: Value| call["extra_content"]["google"]["thought_signature"].clone();
        (native, calls.into_iter().map(of_call).collect::<Vec<_>>())
    };
    let none = vec![Value::Null, Value::Null];
    assert_eq!(signatures(&messages), (none.clone(), none));
    assert!(gemini.adapt(UNSIGNED) && !gemini.adapt(UNSIGNED));
    assert!(chat.adapt(UNSIGNED) && !chat.adapt(UNSIGNED));
    let substitute = vec![json!("skip_thought_signature_validator"), Value::Null];
    assert_eq!(signatures(&messages), (substitute.clone(), substitute));
    let sealed = json!({"thoughtSignature": "real", "extra_content": {"google": {"thought_signature": "real"}}});
    messages[1]
        .parts
        .insert(2, ContentPart::Reasoning { text: String::new(), sealed: Some(sealed) });
    let real = vec![json!("real"), Value::Null];
    assert_eq!(signatures(&messages), (real.clone(), real));
}

/// Returns all values of this key, at any depth.
fn under<'a>(key: &str, value: &'a Value) -> Vec<&'a str> {
    match value {
        Value::Object(map) => {
            let own = map.get(key).and_then(Value::as_str);
            own.into_iter().chain(map.values().flat_map(|inner| under(key, inner))).collect()
        }
        Value::Array(list) => list.iter().flat_map(|inner| under(key, inner)).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    }
}

#[test]
fn calls_of_another_service_are_converted_for_each_service() {
    let (first, second) = ("functions.run shell:0", format!("chatcmpl-tool-{:040}", 7));
    let call = |id: &str, name: &str| {
        let (id, name, args) = (id.to_owned(), name.to_owned(), json!({}));
        ContentPart::Call(ToolCall { id, name, args, malformed: None })
    };
    let result = |id: &str, name: &str| {
        let (call_id, name, text) = (id.to_owned(), name.to_owned(), "r".to_owned());
        ContentPart::Result(ToolResult {
            call_id,
            name,
            ok: false,
            text,
            images: Vec::new(),
            not_run: false,
        })
    };
    let mut messages = user("go");
    let parts = vec![call(first, "run shell!"), call(&second, "")];
    messages.push(Message { role: MessageRole::Assistant, parts });
    let parts = vec![result(first, "run shell!"), result(&second, "")];
    messages.push(Message { role: MessageRole::User, parts });
    let strict = ChatWire { service: ChatService::Openai, ..ChatWire::default() };
    let wires: [(&dyn WireFormat, &str, &str); 5] = [
        (&MessagesWire::default(), "id", "tool_use_id"),
        (&strict, "id", "tool_call_id"),
        (&ResponsesWire::default(), "call_id", "call_id"),
        (&GeminiWire::default(), "", ""),
        (&ChatWire::default(), "id", "tool_call_id"),
    ];
    for (wire, of_call, of_result) in wires {
        let body = wire.body(&request(&messages, &[]), &facts());
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let fits = |text: &&str| !text.is_empty() && text.len() <= 64 && text.chars().all(plain);
        assert!(under("name", &body).iter().all(fits), "{body:#}");
        let (made, answered) = (under(of_call, &body), under(of_result, &body));
        let is_other = of_call == "id" && body["max_tokens"].is_u64() && body["system"].is_null();
        if is_other {
            assert_eq!((&made, &made), (&answered, &vec![first, &second]), "as it made them");
        } else {
            assert!(made.iter().all(|id| id.len() <= 40 && id.chars().all(plain)), "{body:#}");
        }
        if of_call != of_result {
            assert_eq!(made, answered, "{body:#}");
        }
    }
}

/// Returns a request body without cache markers, which move by design.
fn bare(mut value: Value) -> Value {
    match &mut value {
        Value::Object(map) => {
            map.remove("cache_control");
            map.values_mut().for_each(|inner| *inner = bare(inner.take()));
        }
        Value::Array(list) => list.iter_mut().for_each(|inner| *inner = bare(inner.take())),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    value
}

#[test]
fn the_prefix_of_requests_is_stable_from_turn_to_turn() {
    let (messages, tools) = (conversation(), tools());
    let wires: [&dyn WireFormat; 4] = [
        &MessagesWire::default(),
        &ChatWire::default(),
        &ResponsesWire::default(),
        &GeminiWire::default(),
    ];
    for wire in wires {
        let mut before: Vec<Value> = Vec::new();
        for turn in [1, 3, 5] {
            let body = bare(wire.body(&request(&messages[..turn], &tools), &facts()));
            let list =
                ["messages", "input", "contents"].iter().find_map(|key| body[*key].as_array());
            let now = list.unwrap().clone();
            assert!(now.starts_with(&before), "turn {turn}: {now:#?}");
            before = now;
        }
    }
}

#[test]
fn cache_markers_move_and_are_never_more_than_four() {
    let tools = tools();
    let mut messages = Vec::new();
    for turn in 0..8 {
        messages.extend(user(&format!("question {turn}")));
        let wire = MessagesWire { cache: CacheConfig::OneHour, ..MessagesWire::default() };
        let body = wire.body(&request(&messages, &tools), &facts());
        let marks = body.to_string().matches("cache_control").count();
        assert_eq!(marks, 2 + (turn + 1).min(2));
        let last = body["messages"].as_array().unwrap().last().unwrap();
        assert_eq!(last["content"][0]["cache_control"]["ttl"], "1h");
        messages.push(Message::text(MessageRole::Assistant, "answer"));
    }
}

#[test]
fn thinking_is_requested_only_if_it_fits_and_without_a_temperature() {
    let messages = user("go");
    let wire = |budget| MessagesWire {
        thinking: Some(budget),
        temperature: Some(0.3),
        ..MessagesWire::default()
    };
    let body = wire(2000).body(&request(&messages, &[]), &facts());
    assert_eq!(body["thinking"], json!({"type": "enabled", "budget_tokens": 2000}));
    assert_eq!(body["temperature"], Value::Null);
    let body = wire(3000).body(&request(&messages, &[]), &facts());
    assert_eq!((&body["thinking"], &body["temperature"]), (&Value::Null, &json!(0.3)));
}

/// The refusal of a thinking budget by Anthropic's models since Opus 4.7.
const NO_BUDGET: &str = "\"thinking.type.enabled\" is not supported for this model. Use \
                         \"thinking.type.adaptive\" and \"output_config.effort\" to control \
                         thinking behavior.";

#[test]
fn models_that_reject_a_thinking_budget_think_as_much_as_they_need() {
    let messages = user("go");
    let adaptive = json!({"type": "adaptive", "display": "summarized"});
    let wire = MessagesWire { thinking: Some(2000), ..MessagesWire::default() };
    assert!(wire.adapt(NO_BUDGET) && !wire.adapt(NO_BUDGET));
    let body = wire.body(&request(&messages, &[]), &facts());
    assert_eq!((&body["thinking"], &body["output_config"]), (&adaptive, &Value::Null));

    let budget = ReasoningEffort::Budget(2000);
    let service = ChatService::DatabricksClaude;
    let chat = ChatWire { service, thought: Some(budget), ..ChatWire::default() };
    assert!(chat.adapt(NO_BUDGET) && !chat.adapt(NO_BUDGET));
    assert_eq!(chat.body(&request(&messages, &[]), &facts())["thinking"], adaptive);

    let (effort, temperature) = (Some("high".to_owned()), Some(0.3));
    let wire = MessagesWire { effort, temperature, ..MessagesWire::default() };
    let body = wire.body(&request(&messages, &[]), &facts());
    assert_eq!((&body["thinking"], &body["temperature"]), (&adaptive, &Value::Null));
    assert_eq!(body["output_config"], json!({"effort": "high"}));

    let wire = MessagesWire { temperature, ..MessagesWire::default() };
    let refusal = "`temperature` is deprecated for this model.";
    assert!(wire.adapt(refusal) && !wire.adapt(refusal));
    let body = wire.body(&request(&messages, &[]), &facts());
    assert_eq!((&body["temperature"], &body["thinking"]), (&Value::Null, &Value::Null));
}
