//! Grammars that hold a model to calls of the offered tools, made from their schemas.

use base::host::wire::Tool;
use serde_json::{Map, Value, json};

use crate::envelope::{ANSWER, THOUGHT};
use crate::marked::END;

/// What llama.cpp's conversion reads of a schema. The rest says nothing about form, or (lengths,
/// patterns) costs a rule for each repetition; long strings end by the output limit instead.
const READ: &[&str] = &[
    "type", "required", "items", "enum", "const", "anyOf", "oneOf", "allOf", "minItems",
    "maxItems", "minimum", "maximum", "$ref",
];
/// Maps from names to schemas.
const MAPS: &[&str] = &["properties", "$defs", "definitions"];

/// Why there is no grammar.
#[derive(Debug, thiserror::Error)]
#[error("the schemas of the offered tools make no grammar: {0}")]
pub struct BadSchema(String);

/// The grammar of an envelope: a thought and one call of an offered tool, or `answer{text}` unless
/// the model must `act`.
pub fn envelope(tools: &[Tool], act: bool) -> Result<String, BadSchema> {
    let answer = json!({
        "type": "object", "properties": {"text": {"type": "string"}},
        "required": ["text"], "additionalProperties": false,
    });
    let mut calls: Vec<Value> =
        tools.iter().map(|tool| call(&tool.name, &tool.parameters)).collect();
    if !act || calls.is_empty() {
        calls.push(call(ANSWER, &answer));
    }
    let calls: Vec<Value> = calls.iter().map(with_thought).collect();
    convert(&json!({ "anyOf": calls }))
}

/// The grammar of what follows the mark of a call.
pub fn after_mark(tools: &[Tool]) -> Result<String, BadSchema> {
    let calls: Vec<Value> = tools.iter().map(|tool| call(&tool.name, &tool.parameters)).collect();
    let grammar = convert(&json!({ "anyOf": calls }))?;
    let inner = grammar.replace("root ::=", "marked-call ::=");
    Ok(format!("{inner}\nroot ::= [ \\n]? marked-call [ \\n]? \"{END}\"\n"))
}

fn call(name: &str, parameters: &Value) -> Value {
    json!({
        "type": "object",
        "properties": { "name": { "const": name }, "arguments": form(parameters) },
        "required": ["name", "arguments"],
        "additionalProperties": false,
    })
}

/// A call with a text before it: small models find the right call when they say first what they
/// are about to do.
fn with_thought(call: &Value) -> Value {
    let mut properties = Map::new();
    properties.insert(THOUGHT.into(), json!({"type": "string"}));
    properties.extend(call["properties"].as_object().cloned().unwrap_or_default());
    json!({
        "type": "object",
        "properties": properties,
        "required": [THOUGHT, "name", "arguments"],
        "additionalProperties": false,
    })
}

fn convert(schema: &Value) -> Result<String, BadSchema> {
    llama_cpp_2::json_schema_to_grammar(&schema.to_string())
        .map_err(|why| BadSchema(why.to_string()))
}

/// A schema reduced to what gives it its form. An object with known properties takes no others.
fn form(schema: &Value) -> Value {
    let Value::Object(schema) = schema else { return json!({}) };
    let mut kept = Map::new();
    for (key, value) in schema {
        if READ.contains(&key.as_str()) {
            kept.insert(key.clone(), inner(key, value));
        } else if let (true, Value::Object(map)) = (MAPS.contains(&key.as_str()), value) {
            let map = map.iter().map(|(name, schema)| (name.clone(), form(schema))).collect();
            kept.insert(key.clone(), Value::Object(map));
        }
    }
    let open = match schema.get("additionalProperties") {
        Some(Value::Object(of)) => Some(form(&Value::Object(of.clone()))),
        Some(Value::Bool(open)) => Some(Value::Bool(*open)),
        _ => kept.contains_key("properties").then_some(Value::Bool(false)),
    };
    kept.extend(open.map(|open| ("additionalProperties".to_owned(), open)));
    Value::Object(kept)
}

fn inner(key: &str, value: &Value) -> Value {
    match (key, value) {
        ("items", value) => form(value),
        ("anyOf" | "oneOf" | "allOf", Value::Array(all)) => all.iter().map(form).collect(),
        (_, value) => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_keeps_its_form_and_loses_its_words() {
        let schema = json!({
            "type": "object", "description": "x", "properties": {
                "description": {"type": "string", "maxLength": 9000, "pattern": "^a"},
                "list": {"type": "array", "items": {"type": ["integer", "null"], "default": 1}},
            }, "required": ["description"],
        });
        let form = form(&schema);
        assert_eq!(form["properties"]["description"], json!({"type": "string"}));
        assert_eq!(form["properties"]["list"]["items"], json!({"type": ["integer", "null"]}));
        assert_eq!(form["additionalProperties"], json!(false));
    }

    #[test]
    fn every_grammar_has_one_root_and_names_its_tools() {
        let tool = |name: &str| Tool {
            name: name.into(),
            description: String::new(),
            parameters: json!({"type": "object", "properties": {"path": {"type": "string"}}}),
        };
        for grammar in
            [envelope(&[tool("read")], false).unwrap(), after_mark(&[tool("read")]).unwrap()]
        {
            assert_eq!(grammar.matches("root ::=").count(), 1, "{grammar}");
            assert!(grammar.contains("read"));
        }
    }
}
