//! Grammars that constrain a model to calls of the offered tools, generated from their schemas.

use base::model_host::wire::HostTool;
use serde_json::{Map, Value, json};

use crate::json_envelope::{ANSWER, THOUGHT};
use crate::tool_call_parser::END;

/// The schema keywords that llama.cpp's conversion uses. The others do not affect the form, or
/// (lengths, patterns) need a rule for each repetition; long strings are ended by the output limit
/// instead.
const READ: &[&str] = &[
    "type", "required", "items", "enum", "const", "anyOf", "oneOf", "allOf", "minItems",
    "maxItems", "minimum", "maximum", "$ref",
];
/// Keywords whose values map names to schemas.
const MAPS: &[&str] = &["properties", "$defs", "definitions"];

/// Why there is no grammar.
#[derive(Debug, thiserror::Error)]
#[error("the schemas of the offered tools make no grammar: {0}")]
pub(crate) struct BadSchema(String);

/// Returns the grammar of an envelope: a thought and one call of an offered tool, or `answer{text}`
/// unless the model must `act`.
pub(crate) fn envelope(tools: &[HostTool], act: bool) -> Result<String, BadSchema> {
    let answer = HostTool {
        name: ANSWER.into(),
        description: String::new(),
        parameters: json!({
            "type": "object", "properties": {"text": {"type": "string"}},
            "required": ["text"], "additionalProperties": false,
        }),
    };
    let answers = !act || tools.is_empty();
    let tools = tools.iter().chain(answers.then_some(&answer));
    let calls: Vec<Value> = calls(tools).iter().map(with_thought).collect();
    convert(&json!({ "anyOf": calls }))
}

/// Returns the grammar of the text after the start marker of a call.
pub(crate) fn after_mark(tools: &[HostTool]) -> Result<String, BadSchema> {
    let grammar = convert(&json!({ "anyOf": calls(tools.iter()) }))?;
    // Other rules may end in the same word: a parameter may be called `root`.
    let rules = grammar.lines().map(|rule| match rule.strip_prefix("root ::=") {
        Some(root) => format!("marked-call ::={root}\n"),
        None => format!("{rule}\n"),
    });
    let rules: String = rules.collect();
    Ok(format!("{rules}root ::= [ \\n]? marked-call [ \\n]? \"{END}\"\n"))
}

/// Returns the schemas of the tools' calls, as they will be placed in one document.
fn calls<'a>(tools: impl Iterator<Item = &'a HostTool>) -> Vec<Value> {
    let call = |(at, tool): (usize, &HostTool)| {
        let form = Form { root: format!("#/anyOf/{at}/properties/arguments") };
        call(&tool.name, &form.of(&tool.parameters))
    };
    tools.enumerate().map(call).collect()
}

fn call(name: &str, arguments: &Value) -> Value {
    json!({
        "type": "object",
        "properties": { "name": { "const": name }, "arguments": arguments },
        "required": ["name", "arguments"],
        "additionalProperties": false,
    })
}

/// Adds a text before a call: small models choose the right call if they first state what they are
/// about to do.
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
        .map_err(|error| BadSchema(error.to_string()))
}

/// Reduces a tool's schema to the keywords that determine its form.
struct Form {
    /// The path of the schema in the document with all tools.
    root: String,
}

impl Form {
    /// Reduces a schema. An object with known properties accepts no others.
    fn of(&self, schema: &Value) -> Value {
        let Value::Object(schema) = schema else { return json!({}) };
        let mut kept = Map::new();
        for (key, value) in schema {
            if READ.contains(&key.as_str()) {
                kept.extend(self.inner(key, value).map(|value| (key.clone(), value)));
            } else if let (true, Value::Object(map)) = (MAPS.contains(&key.as_str()), value) {
                let map = map.iter().map(|(name, schema)| (name.clone(), self.of(schema)));
                kept.insert(key.clone(), Value::Object(map.collect()));
            }
        }
        if kept.contains_key("properties") {
            // The conversion would use only these; next to properties they usually state which of
            // them are required together.
            kept.retain(|key, _| !["anyOf", "oneOf"].contains(&key.as_str()));
        }
        let open = match schema.get("additionalProperties") {
            Some(Value::Object(of)) => Some(self.of(&Value::Object(of.clone()))),
            Some(Value::Bool(open)) => Some(Value::Bool(*open)),
            _ => kept.contains_key("properties").then_some(Value::Bool(false)),
        };
        kept.extend(open.map(|open| ("additionalProperties".to_owned(), open)));
        Value::Object(kept)
    }

    fn inner(&self, key: &str, value: &Value) -> Option<Value> {
        match (key, value) {
            ("items", value) => Some(self.of(value)),
            ("anyOf" | "oneOf" | "allOf", Value::Array(all)) => {
                Some(all.iter().map(|schema| self.of(schema)).collect())
            }
            // Schemas in other documents are not fetched, so they allow everything.
            ("$ref", Value::String(to)) => {
                to.strip_prefix('#').map(|path| format!("{}{path}", self.root).into())
            }
            (_, value) => Some(value.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_keeps_its_form_without_descriptions() {
        let schema = json!({
            "type": "object", "description": "x", "properties": {
                "description": {"type": "string", "maxLength": 9000, "pattern": "^a"},
                "list": {"type": "array", "items": {"type": ["integer", "null"], "default": 1}},
            }, "required": ["description"],
        });
        let form = Form { root: String::new() }.of(&schema);
        assert_eq!(form["properties"]["description"], json!({"type": "string"}));
        assert_eq!(form["properties"]["list"]["items"], json!({"type": ["integer", "null"]}));
        assert_eq!(form["additionalProperties"], json!(false));
    }

    #[test]
    fn every_grammar_has_one_root_and_names_its_tools() {
        let tool = |name: &str| HostTool {
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
    /// Returns the rules that a grammar uses but does not define.
    fn undefined(grammar: &str) -> Vec<String> {
        let rules: Vec<(&str, &str)> =
            grammar.lines().filter_map(|line| line.split_once(" ::= ")).collect();
        let mut undefined = Vec::new();
        for (_, rule) in &rules {
            let (mut word, mut within, mut escaped) = (String::new(), None, false);
            for letter in rule.chars().chain([' ']) {
                match (within, letter) {
                    (Some(_), _) if escaped => escaped = false,
                    (Some(_), '\\') => escaped = true,
                    (Some(end), _) if letter == end => within = None,
                    (Some(_), _) => {}
                    (None, '"') => within = Some('"'),
                    (None, '[') => within = Some(']'),
                    (None, '{') => within = Some('}'),
                    (None, _) if letter.is_ascii_alphanumeric() || letter == '-' => {
                        word.push(letter);
                    }
                    (None, _) => {
                        let known = word.is_empty() || rules.iter().any(|(name, _)| *name == word);
                        undefined.extend((!known).then(|| word.clone()));
                        word.clear();
                    }
                }
            }
        }
        undefined
    }

    fn grammars(parameters: &Value) -> [String; 2] {
        let tool = |name: &str, parameters: &Value| HostTool {
            name: name.into(),
            description: String::new(),
            parameters: parameters.clone(),
        };
        let tools = [tool("first", &json!({"type": "object"})), tool("second", parameters)];
        let grammars = [envelope(&tools, false).unwrap(), after_mark(&tools).unwrap()];
        for grammar in &grammars {
            assert_eq!(undefined(grammar), [""; 0], "{grammar}");
        }
        grammars
    }

    #[test]
    fn references_resolve_within_their_own_schema() {
        let schema = json!({
            "type": "object",
            "properties": {
                "to": {"$ref": "#/$defs/place"},
                "again": {"$ref": "#"},
                "far": {"$ref": "https://example.org/schema.json"},
            },
            "required": ["to"],
            "$defs": {"place": {"type": "object", "properties": {"city": {"type": "string"}}}},
        });
        for grammar in grammars(&schema) {
            assert!(grammar.contains("city"), "{grammar}");
        }
    }

    #[test]
    fn alternatives_beside_properties_do_not_hide_them() {
        let schema = json!({
            "type": "object",
            "properties": {"path": {"type": "string"}, "url": {"type": "string"}},
            "anyOf": [{"required": ["path"]}, {"required": ["url"]}],
        });
        for grammar in grammars(&schema) {
            assert!(grammar.contains("path") && grammar.contains("url"), "{grammar}");
        }
    }

    #[test]
    fn a_parameter_may_be_called_root() {
        let schema = json!({"type": "object", "properties": {"root": {"enum": ["a"]}}});
        grammars(&schema);
    }
}
