//! Grammars that constrain a model to calls of the offered tools, generated from their schemas.

use base::model_host::wire::HostTool;
use serde_json::{Value, json};

use crate::gbnf::{GrammarRules, STRING, json_literal};
use crate::json_envelope::{ANSWER, THOUGHT};
use crate::json_schema_grammar::add_schema;
use crate::tool_call_parser::END;

/// Returns the grammar of an envelope: a thought and one call of an offered tool, or `answer{text}`
/// unless the model must `act`. Small models choose the right call if they first state what they are
/// about to do.
pub(crate) fn envelope(tools: &[HostTool], act: bool) -> String {
    let answer = HostTool {
        name: ANSWER.into(),
        description: String::new(),
        parameters: json!({
            "type": "object", "properties": {"text": {"type": "string"}},
            "required": ["text"], "additionalProperties": false,
        }),
    };
    let answers = !act || tools.is_empty();
    let mut rules = GrammarRules::default();
    let thought = rules.primitive(STRING);
    let thought = rules.member(THOUGHT, &thought);
    let calls = calls(&mut rules, Some(&thought), tools.iter().chain(answers.then_some(&answer)));
    rules.add("root", calls);
    rules.into_text()
}

/// Returns the grammar of the text after the start marker of a call.
pub(crate) fn after_mark(tools: &[HostTool]) -> String {
    let mut rules = GrammarRules::default();
    let calls = calls(&mut rules, None, tools.iter());
    rules.add("root", format!("[ \\n]? ( {calls} ) [ \\n]? \"{END}\""));
    rules.into_text()
}

/// Returns an expression that matches a call of one of the tools, with this member before its name.
fn calls<'a>(
    rules: &mut GrammarRules,
    first: Option<&str>,
    tools: impl Iterator<Item = &'a HostTool>,
) -> String {
    let call = |(number, tool): (usize, &HostTool)| {
        let rule = format!("call-{number}");
        let arguments = add_schema(rules, &format!("{rule}-arguments"), &tool.parameters);
        let name = rules.member("name", &json_literal(&Value::from(tool.name.as_str())));
        let arguments = rules.member("arguments", &arguments);
        let members: Vec<&str> = first.into_iter().chain([name.as_str(), &arguments]).collect();
        let call = rules.object(&members.join(r#" "," space "#));
        rules.add(&rule, call)
    };
    tools.enumerate().map(call).collect::<Vec<_>>().join(" | ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_grammar_has_one_root_and_names_its_tools() {
        let tool = |name: &str| HostTool {
            name: name.into(),
            description: String::new(),
            parameters: json!({"type": "object", "properties": {"path": {"type": "string"}}}),
        };
        for grammar in [envelope(&[tool("read")], false), after_mark(&[tool("read")])] {
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
        let grammars = [envelope(&tools, false), after_mark(&tools)];
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
