//! Tests with llama.cpp's own grammar engine, over a vocabulary of single bytes.

use std::path::Path;
use std::sync::OnceLock;

use llama_cpp_2::llama_backend::LlamaBackend;
use llama_cpp_2::model::LlamaModel;
use llama_cpp_2::model::params::LlamaModelParams;
use llama_cpp_2::token::LlamaToken;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::sample::Sampler;

/// The end of a reply in the vocabulary.
const END: LlamaToken = LlamaToken(2);
/// The token of byte 0.
const FIRST_BYTE: i32 = 3;

/// Writes a model file that contains only a vocabulary: unknown, beginning, end and all bytes.
fn write_vocabulary(path: &Path) {
    fn text(bytes: &mut Vec<u8>, text: &str) {
        bytes.extend((text.len() as u64).to_le_bytes());
        bytes.extend(text.as_bytes());
    }
    fn key(bytes: &mut Vec<u8>, key: &str, kind: u32) {
        text(bytes, key);
        bytes.extend(kind.to_le_bytes());
    }
    fn list(bytes: &mut Vec<u8>, name: &str, kind: u32, length: usize) {
        key(bytes, name, 9);
        bytes.extend(kind.to_le_bytes());
        bytes.extend((length as u64).to_le_bytes());
    }
    let named = ["<unk>", "<s>", "</s>"].map(str::to_owned);
    let tokens: Vec<String> =
        named.into_iter().chain((0..256).map(|byte| format!("<0x{byte:02X}>"))).collect();
    let kind = |number: usize| {
        if number == 0 {
            2i32
        } else if number < 3 {
            3
        } else {
            6
        }
    };
    let mut bytes = b"GGUF".to_vec();
    bytes.extend(3u32.to_le_bytes());
    bytes.extend(0u64.to_le_bytes());
    bytes.extend(5u64.to_le_bytes());
    key(&mut bytes, "general.architecture", 8);
    text(&mut bytes, "llama");
    key(&mut bytes, "tokenizer.ggml.model", 8);
    text(&mut bytes, "llama");
    list(&mut bytes, "tokenizer.ggml.tokens", 8, tokens.len());
    tokens.iter().for_each(|token| text(&mut bytes, token));
    list(&mut bytes, "tokenizer.ggml.scores", 6, tokens.len());
    tokens.iter().for_each(|_| bytes.extend(0f32.to_le_bytes()));
    list(&mut bytes, "tokenizer.ggml.token_type", 5, tokens.len());
    (0..tokens.len()).for_each(|number| bytes.extend(kind(number).to_le_bytes()));
    bytes.resize(bytes.len().next_multiple_of(32), 0);
    std::fs::write(path, bytes).unwrap();
}

fn vocabulary() -> &'static LlamaModel {
    static MODEL: OnceLock<(LlamaBackend, LlamaModel)> = OnceLock::new();
    let (_, model) = MODEL.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bytes.gguf");
        write_vocabulary(&path);
        let mut backend = LlamaBackend::init().unwrap();
        backend.void_logs();
        let only = LlamaModelParams::default().with_vocab_only(true);
        let model = LlamaModel::load_from_file(&backend, &path, &only).unwrap();
        (backend, model)
    });
    model
}

fn tokens(text: &str) -> Vec<LlamaToken> {
    text.bytes().map(|byte| LlamaToken(FIRST_BYTE + i32::from(byte))).collect()
}

fn grammar_of(schema: &Value) -> String {
    let mut rules = GrammarRules::default();
    let value = add_schema(&mut rules, "test", schema);
    rules.add("root", value);
    rules.into_text()
}

/// Whether llama.cpp lets a model write exactly this text.
fn matches(grammar: &str, text: &str) -> bool {
    let reply = [tokens(text), vec![END]].concat();
    Sampler::new(0.0, 0).constrain(vocabulary(), grammar, &reply).is_ok()
}

fn check(schema: &Value, accepted: &[&str], refused: &[&str]) {
    let grammar = grammar_of(schema);
    assert!(
        Sampler::new(0.0, 0).constrain(vocabulary(), &grammar, &[]).is_ok(),
        "llama.cpp cannot read {grammar}"
    );
    for text in accepted {
        assert!(matches(&grammar, text), "{schema} does not accept {text}:\n{grammar}");
    }
    for text in refused {
        assert!(!matches(&grammar, text), "{schema} accepts {text}:\n{grammar}");
    }
}

#[test]
fn values_without_a_form_are_any_json() {
    let any = ["1", "-0.5e10", "\"a\\n\\u00e9é\"", "null", "[]", "[1, {\"a\": [true]}]", "{}"];
    let not_json = ["", "01", "a", "\"a", "\"\n\"", "\"\\x\"", "[1,]", "{a: 1}", "nul", "1."];
    check(&json!({}), &any, &not_json);
    check(&json!(true), &any, &not_json);
    check(&json!({"description": "x", "default": 1}), &any, &not_json);
    check(&json!({"$ref": "https://example.org/schema.json"}), &any, &not_json);
    check(&json!({"$ref": "#/$defs/nothing"}), &any, &not_json);
}

#[test]
fn primitive_types_are_told_apart() {
    check(
        &json!({"type": "string", "pattern": "^a", "maxLength": 2}),
        &["\"\"", "\"long\""],
        &["1"],
    );
    check(&json!({"type": "integer"}), &["0", "-12"], &["1.5", "01", "\"1\""]);
    check(&json!({"type": "number"}), &["1.5", "2", "-1e-7"], &["1e999", "true"]);
    check(&json!({"type": "boolean"}), &["true", "false"], &["null", "1"]);
    check(&json!({"type": "null"}), &["null"], &["0"]);
    check(&json!({"type": ["integer", "null"]}), &["1", "null"], &["\"\"", "1.5"]);
}

#[test]
fn constants_and_enumerations_are_literal() {
    check(&json!({"const": "a\"\\\n"}), &["\"a\\\"\\\\\\n\""], &["\"a\"", "\"\""]);
    check(&json!({"enum": ["one", 2, null]}), &["\"one\"", "2", "null"], &["\"two\"", "1"]);
    check(&json!({"enum": ["ä", "日本"]}), &["\"ä\"", "\"日本\""], &["\"日\""]);
}

#[test]
fn objects_have_their_required_members_and_any_of_the_optional_ones() {
    let schema = json!({
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {}, "c": {"type": "boolean"}},
        "required": ["b"],
    });
    let accepted = [
        r#"{"b":"x"}"#,
        r#"{ "b": 1, "a": 2 }"#,
        "{\n  \"b\": [],\n  \"c\": true\n}",
        r#"{"b":1,"a":2,"c":true}"#,
    ];
    let refused = ["{}", r#"{"a":1}"#, r#"{"b":1,"z":1}"#, r#"{"b":1,}"#, r#"{"b":1,"c":1}"#];
    check(&schema, &accepted, &refused);

    let optional = json!({"properties": {"a": {"type": "integer"}, "b": {}, "c": {}}});
    let accepted = ["{}", r#"{"a":1}"#, r#"{"c":1}"#, r#"{"a":1,"c":2}"#, r#"{"a":1,"b":2,"c":3}"#];
    check(
        &optional,
        &accepted,
        &[r#"{,"a":1}"#, r#"{"a":1 "b":2}"#, r#"{"a":1,"a":2}"#, r#"{"d":1}"#],
    );

    check(&json!({"type": "object"}), &["{}", r#"{"x": {"y": 1}}"#], &["[]"]);
    check(&json!({"type": "object", "properties": {}}), &["{}"], &[r#"{"x":1}"#]);
    check(&json!({"type": "object", "additionalProperties": false}), &["{}"], &[r#"{"x":1}"#]);
}

#[test]
fn other_members_are_allowed_where_the_schema_says_so() {
    let schema = json!({
        "type": "object",
        "properties": {"to": {"type": "integer"}, "top": {"type": "integer"}, "é-]": {"type": "integer"}},
        "required": ["to"],
        "additionalProperties": {"type": "string"},
    });
    let accepted = [
        r#"{"to":1}"#,
        r#"{"to":1,"t":"x"}"#,
        r#"{"to":1,"top":2,"tops":"x","":"y"}"#,
        r#"{"to":1,"é":"x","é-]]":"y"}"#,
    ];
    check(
        &schema,
        &accepted,
        &[r#"{"to":1,"to":"x"}"#, r#"{"to":1,"top":"x"}"#, r#"{"to":1,"é-]":"x"}"#],
    );
    check(
        &json!({"additionalProperties": {"type": "integer"}}),
        &["{}", r#"{"a":1,"b":2}"#],
        &[r#"{"a":""}"#],
    );
    check(&json!({"properties": {"a": {}}, "additionalProperties": true}), &[r#"{"b":1}"#], &["1"]);
}

#[test]
fn arrays_have_as_many_items_as_the_schema_says() {
    let of = |min: u64, max: Option<u64>| {
        let mut schema = json!({"type": "array", "items": {"type": "integer"}, "minItems": min});
        if let Some(max) = max {
            schema["maxItems"] = json!(max);
        }
        schema
    };
    check(&of(0, None), &["[]", "[1]", "[1, 2,3]", "[\n  1\n]"], &["[\"\"]", "[1,]", "[,1]"]);
    check(&of(1, None), &["[1]", "[1,2,3]"], &["[]"]);
    check(&of(2, Some(3)), &["[1,2]", "[1,2,3]"], &["[1]", "[1,2,3,4]"]);
    check(&of(0, Some(0)), &["[]"], &["[1]"]);
    check(&of(0, Some(1)), &["[]", "[1]"], &["[1,2]"]);
    // More than llama.cpp counts.
    check(&of(0, Some(100_000)), &["[]", "[1,2,3]"], &["[1"]);
    check(&of(100_000, None), &[], &["[1,2,3]"]);
    check(&json!({"type": "array"}), &["[]", "[1, \"a\"]"], &["{}"]);
    check(&json!({"items": {"type": "null"}}), &["[null]"], &["[1]"]);
}

#[test]
fn alternatives_and_merged_schemas_are_accepted() {
    check(&json!({"anyOf": [{"type": "string"}, {"type": "integer"}]}), &["\"\"", "1"], &["null"]);
    check(&json!({"oneOf": [{"const": 1}, {"const": 2}]}), &["1", "2"], &["3"]);
    let beside = json!({
        "properties": {"path": {"type": "string"}, "url": {"type": "string"}},
        "anyOf": [{"required": ["path"]}, {"required": ["url"]}],
    });
    check(&beside, &[r#"{"path":""}"#, r#"{"url":""}"#], &[r#"{"x":1}"#]);
    let all = json!({
        "allOf": [
            {"$ref": "#/$defs/named"},
            {"properties": {"size": {"type": "integer"}}, "required": ["size"]},
            {"anyOf": [{"properties": {"color": {}}}, {"properties": {"shape": {}}}]},
        ],
        "$defs": {"named": {"properties": {"name": {"type": "string"}}, "required": ["name"]}},
    });
    let accepted = [r#"{"name":"","size":1}"#, r#"{"name":"","size":1,"color":1}"#];
    check(&all, &accepted, &[r#"{"name":""}"#, r#"{"size":1}"#]);
}

#[test]
fn references_may_be_recursive() {
    let tree = json!({
        "type": "object",
        "properties": {"name": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#"}}},
        "required": ["name"],
    });
    let nested = r#"{"name":"a","children":[{"name":"b"},{"name":"c","children":[]}]}"#;
    check(&tree, &[r#"{"name":"a"}"#, nested], &[r#"{"name":"a","children":[1]}"#]);
    for loops in [
        json!({"$ref": "#"}),
        json!({"anyOf": [{"$ref": "#"}, {"type": "string"}]}),
        json!({"allOf": [{"$ref": "#"}]}),
        json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}),
        json!({
            "$ref": "#/$defs/a",
            "$defs": {
                "a": {"anyOf": [{"properties": {"x": {"$ref": "#/$defs/b"}}}, {"$ref": "#/$defs/b"}]},
                "b": {"anyOf": [{"$ref": "#/$defs/a"}, {"type": "string"}]},
            },
        }),
    ] {
        check(&loops, &["\"a\""], &["\"a"]);
    }
}

#[test]
fn a_schema_that_is_no_schema_allows_any_value() {
    for schema in [
        json!("x"),
        json!({"type": 7}),
        json!({"type": []}),
        json!({"enum": []}),
        json!({"anyOf": 1, "oneOf": []}),
        json!({"type": "integer", "minimum": "low", "maximum": []}),
        json!({"type": "integer", "minimum": 5, "maximum": 1}),
        json!({"type": "float", "properties": 3, "required": {}, "allOf": [1, {"$ref": 2}]}),
    ] {
        check(&schema, &[], &["x"]);
    }
}

#[test]
fn a_schema_of_more_forms_than_memory_holds_is_cut() {
    let mut doubled = json!({"type": "integer"});
    for _ in 0..60 {
        doubled = json!({"type": ["array", "array"], "items": doubled});
    }
    let mut definitions = Map::new();
    for number in 0..20_000 {
        let next = format!("#/$defs/{}", number + 1);
        let part =
            json!({"allOf": [{"$ref": next}, {"$ref": next}], "properties": {"x": {"$ref": next}}});
        definitions.insert(number.to_string(), part);
    }
    let merged = json!({"$ref": "#/$defs/0", "$defs": definitions});
    let mut long_name = json!({"properties": {}, "additionalProperties": true});
    long_name["properties"]["x".repeat(1 << 20)] = json!({});
    for schema in [doubled, merged, long_name] {
        assert!(!grammar_of(&schema).is_empty());
    }
}

#[test]
fn a_grammar_that_allows_nothing_is_released() {
    let mut sampler = Sampler::new(0.0, 0);
    sampler.constrain(vocabulary(), "root ::= \"a\"", &[]).unwrap();
    let nothing = vec![f32::NEG_INFINITY; 259];
    assert_eq!(sampler.pick(&nothing), LlamaToken(0));
    let mut likely = nothing;
    likely[7] = 1.0;
    assert_eq!(sampler.pick(&likely), LlamaToken(7));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn integers_lie_within_their_bounds(
        min in prop::option::of(-2000i64..2000),
        size in prop::option::of(0i64..3000),
        number in -5000i64..5000,
    ) {
        let max = size.map(|size| min.unwrap_or(-1000) + size);
        let mut schema = json!({"type": "integer"});
        if let Some(min) = min { schema["minimum"] = json!(min); }
        if let Some(max) = max { schema["maximum"] = json!(max); }
        let within = min.is_none_or(|min| number >= min) && max.is_none_or(|max| number <= max);
        let grammar = grammar_of(&schema);
        prop_assert_eq!(matches(&grammar, &number.to_string()), within, "{} {}\n{}", number, schema, grammar);
    }

    #[test]
    fn other_keys_are_all_but_the_known_ones(
        known in prop::collection::vec("[ab]{0,3}", 1..4),
        key in "[abc]{0,4}",
    ) {
        let mut schema = json!({"properties": {}, "additionalProperties": {"type": "null"}});
        for name in &known { schema["properties"][name] = json!({"type": "integer"}); }
        let text = format!("{{\"{key}\":null}}");
        prop_assert_eq!(matches(&grammar_of(&schema), &text), !known.contains(&key));
    }
}
