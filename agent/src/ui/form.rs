//! Forms of servers on the terminal: the fields are asked one after the other.

use base::text::printable;
use gate::form::{FormAnswer, UserForm};
use serde_json::{Map, Number, Value};

/// Asks the user; `write` shows text, and `read_line` returns a line, or `None` at the end of input.
pub(crate) fn fill(
    form: &UserForm,
    write: &mut dyn FnMut(&str),
    read_line: &mut dyn FnMut() -> Option<String>,
) -> FormAnswer {
    write(&heading(form));
    loop {
        write("Answer? [y]es, [N]o: ");
        let Some(line) = read_line() else { return FormAnswer::Cancelled };
        match line.trim().to_ascii_lowercase().as_str() {
            "y" | "yes" => break,
            "" | "n" | "no" => return FormAnswer::Declined,
            _ => {}
        }
    }
    let mut values = Map::new();
    for field in fields(&form.schema) {
        write(&field.heading());
        loop {
            write(&field.prompt());
            let Some(line) = read_line() else { return FormAnswer::Cancelled };
            match field.parse(line.trim()) {
                Ok(Some(value)) => drop(values.insert(field.name.clone(), value)),
                Ok(None) => {}
                Err(problem) => {
                    write(&format!("  {problem}\n"));
                    continue;
                }
            }
            break;
        }
    }
    FormAnswer::Filled(values)
}

/// Formats the question. Each line after the first starts with a bar, so that none can look like
/// another question.
fn heading(form: &UserForm) -> String {
    let message = printable(form.message.trim());
    let mut text = format!("{} asks:\n", printable(&form.source));
    message.lines().for_each(|line| text.push_str(&format!("  │ {line}\n")));
    text
}

/// A field of a form.
struct Field {
    name: String,
    title: String,
    description: String,
    kind: FieldKind,
    is_required: bool,
    default: Option<Value>,
}

enum FieldKind {
    Text { min: Option<u64>, max: Option<u64>, format: Option<String> },
    Number { is_whole: bool, min: Option<f64>, max: Option<f64> },
    Switch,
    OneOf(Vec<Choice>),
    SomeOf { choices: Vec<Choice>, min: u64, max: Option<u64> },
}

/// A value that can be chosen, and how it is shown.
struct Choice {
    value: String,
    label: String,
}

/// Returns the fields of a schema, the required ones first.
fn fields(schema: &Value) -> Vec<Field> {
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let properties = schema["properties"].as_object().into_iter().flatten();
    let mut fields: Vec<Field> = properties
        .map(|(name, property)| {
            let text = |key: &str| property[key].as_str().map(printable).unwrap_or_default();
            let title = text("title");
            Field {
                name: name.clone(),
                title: if title.is_empty() { printable(name) } else { title },
                description: text("description"),
                kind: kind(property),
                is_required: required.contains(&name.as_str()),
                default: property.get("default").filter(|default| !default.is_null()).cloned(),
            }
        })
        .collect();
    fields.sort_by_key(|field| !field.is_required);
    fields
}

fn kind(property: &Value) -> FieldKind {
    let number = |key: &str| property[key].as_f64();
    let count = |key: &str| property[key].as_u64();
    let values = choices(property);
    match property["type"].as_str() {
        Some("boolean") => FieldKind::Switch,
        Some("number" | "integer") => FieldKind::Number {
            is_whole: property["type"] == "integer",
            min: number("minimum"),
            max: number("maximum"),
        },
        Some("array") => FieldKind::SomeOf {
            choices: choices(&property["items"]),
            min: count("minItems").unwrap_or_default(),
            max: count("maxItems"),
        },
        _ if !values.is_empty() => FieldKind::OneOf(values),
        _ => FieldKind::Text {
            min: count("minLength"),
            max: count("maxLength"),
            format: property["format"].as_str().map(printable),
        },
    }
}

/// Returns the values of an enumeration, in any of the forms that MCP knows.
fn choices(property: &Value) -> Vec<Choice> {
    let names = property["enumNames"].as_array();
    let plain = property["enum"].as_array().into_iter().flatten().enumerate();
    let plain = plain.filter_map(|(number, value)| {
        let value = value.as_str()?.to_owned();
        let name = names.and_then(|names| names.get(number)?.as_str());
        Some(Choice { label: printable(name.unwrap_or(&value)), value })
    });
    let titled = ["oneOf", "anyOf"].into_iter().filter_map(|key| property[key].as_array());
    let titled = titled.flatten().filter_map(|option| {
        let value = option["const"].as_str()?.to_owned();
        Some(Choice { label: printable(option["title"].as_str().unwrap_or(&value)), value })
    });
    plain.chain(titled).collect()
}

impl Field {
    /// Returns the lines before the prompt.
    fn heading(&self) -> String {
        let mut text = String::new();
        for line in self.description.lines() {
            text.push_str(&format!("  │ {line}\n"));
        }
        if let FieldKind::OneOf(choices) | FieldKind::SomeOf { choices, .. } = &self.kind {
            for (number, choice) in choices.iter().enumerate() {
                text.push_str(&format!(
                    "  │ {}. {}\n",
                    number + 1,
                    choice.label.replace('\n', " ")
                ));
            }
        }
        text
    }

    /// Returns the line on which the value is typed.
    fn prompt(&self) -> String {
        let kind = match &self.kind {
            FieldKind::Text { format: Some(format), .. } => format.as_str(),
            FieldKind::Text { .. } => "text",
            FieldKind::Number { is_whole: true, .. } => "a whole number",
            FieldKind::Number { is_whole: false, .. } => "a number",
            FieldKind::Switch => "[y]es or [n]o",
            FieldKind::OneOf(_) => "its number",
            FieldKind::SomeOf { .. } => "numbers, separated by commas",
        };
        let empty = match (&self.default, self.is_required) {
            (Some(default), _) => format!("; Enter for {}", self.kind.label(default)),
            (None, true) => String::new(),
            (None, false) => "; Enter for none".to_owned(),
        };
        format!("{} ({kind}{empty}): ", self.title.replace('\n', " "))
    }

    /// Reads a typed value; `None` if the field stays empty. The error says what is expected.
    fn parse(&self, line: &str) -> Result<Option<Value>, String> {
        if line.is_empty() {
            return match (&self.default, self.is_required) {
                (Some(default), _) => Ok(Some(default.clone())),
                (None, false) => Ok(None),
                (None, true) => Err("a value is required".to_owned()),
            };
        }
        self.kind.parse(line).map(Some)
    }
}

impl FieldKind {
    /// Returns a value as it is shown.
    fn label(&self, value: &Value) -> String {
        let label = match (self, value) {
            (
                FieldKind::OneOf(choices) | FieldKind::SomeOf { choices, .. },
                Value::String(value),
            ) => {
                let choice = choices.iter().find(|choice| choice.value == *value);
                choice.map_or_else(|| printable(value), |choice| choice.label.clone())
            }
            (_, Value::Array(values)) => {
                values.iter().map(|value| self.label(value)).collect::<Vec<_>>().join(", ")
            }
            (_, Value::String(text)) => printable(text),
            (_, value) => printable(&value.to_string()),
        };
        label.replace('\n', " ")
    }

    fn parse(&self, line: &str) -> Result<Value, String> {
        match self {
            FieldKind::Text { min, max, .. } => {
                let length = line.chars().count() as u64;
                match (min.filter(|min| length < *min), max.filter(|max| length > *max)) {
                    (Some(min), _) => Err(format!("at least {min} characters, not {length}")),
                    (None, Some(max)) => Err(format!("at most {max} characters, not {length}")),
                    (None, None) => Ok(Value::String(line.to_owned())),
                }
            }
            FieldKind::Number { is_whole, min, max } => parse_number(line, *is_whole, (*min, *max)),
            FieldKind::Switch => match line.to_ascii_lowercase().as_str() {
                "y" | "yes" | "true" => Ok(Value::Bool(true)),
                "n" | "no" | "false" => Ok(Value::Bool(false)),
                _ => Err("y or n".to_owned()),
            },
            FieldKind::OneOf(choices) => choose(choices, line).map(Value::String),
            FieldKind::SomeOf { choices, min, max } => {
                let parts = line.split(',').map(str::trim).filter(|part| !part.is_empty());
                let chosen = parts.map(|part| choose(choices, part).map(Value::String));
                let chosen = chosen.collect::<Result<Vec<Value>, String>>()?;
                let count = chosen.len() as u64;
                if count < *min || max.is_some_and(|max| count > max) {
                    let most = max.map(|max| format!(" and at most {max}")).unwrap_or_default();
                    return Err(format!("at least {min}{most} of them, not {count}"));
                }
                Ok(Value::Array(chosen))
            }
        }
    }
}

fn parse_number(
    line: &str,
    is_whole: bool,
    (min, max): (Option<f64>, Option<f64>),
) -> Result<Value, String> {
    let number = match is_whole {
        true => line.parse::<i64>().ok().map(Number::from),
        false => line.parse::<f64>().ok().and_then(Number::from_f64),
    };
    let Some(number) = number else {
        return Err(if is_whole { "a whole number" } else { "a number" }.to_owned());
    };
    let value = number.as_f64().unwrap_or_default();
    match (min.filter(|min| value < *min), max.filter(|max| value > *max)) {
        (Some(min), _) => Err(format!("at least {min}")),
        (None, Some(max)) => Err(format!("at most {max}")),
        (None, None) => Ok(Value::Number(number)),
    }
}

/// Returns the choice with this number, or with this value.
fn choose(choices: &[Choice], line: &str) -> Result<String, String> {
    let by_number = line.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
    let choice = by_number.and_then(|number| choices.get(number));
    let choice = choice.or_else(|| choices.iter().find(|choice| choice.value == line));
    match choice {
        Some(choice) => Ok(choice.value.clone()),
        None => Err(format!("a number from 1 to {}", choices.len())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Fills a form with these lines; returns the answer and everything that was shown.
    fn filled(schema: Value, lines: &str) -> (FormAnswer, String) {
        let message = "Which release?\n\u{1b}[2JAllow?".to_owned();
        let form = UserForm { source: "kit".to_owned(), message, schema };
        let (mut shown, mut lines) = (String::new(), lines.lines().map(str::to_owned));
        let answer = fill(&form, &mut |text| shown.push_str(text), &mut || lines.next());
        (answer, shown)
    }

    #[test]
    fn every_kind_of_field_is_asked_until_its_value_is_valid() {
        let schema = json!({"type": "object", "required": ["name", "count", "yes", "one"], "properties": {
            "name": {"type": "string", "title": "Its name", "description": "As in git.", "minLength": 2},
            "count": {"type": "integer", "minimum": 1, "maximum": 9},
            "ratio": {"type": "number", "default": 0.5},
            "yes": {"type": "boolean"},
            "one": {"type": "string", "oneOf": [{"const": "a", "title": "First"}, {"const": "b"}]},
            "some": {"type": "array", "minItems": 1, "items": {"anyOf": [
                {"const": "x", "title": "X"}, {"const": "y"}, {"const": "z"}]}, "default": ["x", "z"]},
            "more": {"type": "string", "enum": ["p", "q"], "enumNames": ["P", "Q"]},
            "none": {"type": "string", "format": "email"},
        }});
        // The required fields come first.
        let lines = "what\ny\n\na\nab\nmany\n10\n3\nmaybe\nN\n3\nb\n\n7\n1, z\n2\n\n";
        let (answer, shown) = filled(schema, lines);
        let FormAnswer::Filled(values) = answer else { panic!("{answer:?}\n{shown}") };
        let expected = json!({
            "count": 3, "name": "ab", "one": "b", "yes": false, "more": "q", "ratio": 0.5,
            "some": ["x", "z"],
        });
        assert_eq!(Value::Object(values), expected, "{shown}");
        for text in [
            "kit asks:\n  │ Which release?\n  │ ",
            "Answer? [y]es, [N]o: Answer?",
            "  a whole number\ncount (a whole number): ",
            "  at most 9\n",
            "  │ As in git.\nIts name (text):   a value is required\nIts name (text): ",
            "  at least 2 characters, not 1\n",
            "  │ 1. First\n  │ 2. b\none (its number): ",
            "  a number from 1 to 2\n",
            "more (its number; Enter for none): ",
            "none (email; Enter for none): ",
            "ratio (a number; Enter for 0.5): ",
            "some (numbers, separated by commas; Enter for X, z): ",
        ] {
            assert!(shown.contains(text), "{text}:\n{shown}");
        }
        assert!(!shown.contains('\u{1b}'), "{shown}");
    }

    #[test]
    fn a_form_is_declined_by_default_and_cancelled_at_the_end_of_input() {
        assert_eq!(filled(json!({}), "\n").0, FormAnswer::Declined);
        assert_eq!(filled(json!({}), "no\n").0, FormAnswer::Declined);
        assert_eq!(filled(json!({}), "").0, FormAnswer::Cancelled);
        assert_eq!(filled(json!({}), "yes\n").0, FormAnswer::Filled(Map::new()));
        let schema = json!({"properties": {"a": {"type": "string"}}});
        assert_eq!(filled(schema, "y\n").0, FormAnswer::Cancelled);
    }
}
