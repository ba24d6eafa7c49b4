//! Decodes arguments: lenient in type, strict in meaning.

use serde_json::{Map, Number, Value};

use super::kind::ToolKind;
use super::output::{ToolErrorKind, ToolOutput};
use super::profile::lookup::{self, NamedTool};
use super::profile::{self, Profile, ProfileTool};

/// Arguments by the tool's own parameter names, with notes.
#[derive(Debug, Default)]
pub(crate) struct DecodedArgs {
    /// Tool parameter -> value of the declared type.
    pub map: Map<String, Value>,
    /// Tool parameter -> the parameter name used in the call.
    pub used_names: Map<String, Value>,
    /// Sentences about ignored arguments.
    pub notes: Vec<String>,
}

/// Decodes the arguments of a call. The error is a sentence that names the parameter.
pub(crate) fn decode(tool: &ProfileTool, args: &Value) -> Result<DecodedArgs, String> {
    let fields = parse_object(args)?;
    let mut decoded = DecodedArgs::default();
    for (key, value) in &fields {
        if value.is_null() {
            continue;
        }
        let Some(schema) = tool.parameter(key) else {
            decoded.notes.push(format!("ignored unknown parameter `{key}`"));
            continue;
        };
        let name = tool.internal_name(key).to_owned();
        let value = match value {
            // The content of a JSON file may be given as JSON instead of text.
            Value::Object(_) | Value::Array(_)
                if name == "content" && writes_json(tool, &fields) =>
            {
                Value::String(format!("{value:#}\n"))
            }
            _ => coerce(value, schema).map_err(|error| format!("parameter `{key}` {error}"))?,
        };
        if let Some(other) = decoded.map.get(&name)
            && *other != value
        {
            let first = decoded.used_names[&name].as_str().unwrap_or_default();
            return Err(format!("`{first}` and `{key}` contradict each other: give one of them"));
        }
        decoded.used_names.insert(name.clone(), Value::from(key.as_str()));
        decoded.map.insert(name, value);
    }
    if let Some(missing) = tool.required().find(|key| !has_value(tool, key, &decoded.map)) {
        let ignored: String = decoded.notes.iter().map(|note| format!("; {note}")).collect();
        return Err(format!("missing required parameter `{missing}`{ignored}"));
    }
    for (key, value) in &tool.defaults {
        decoded.map.entry(key.clone()).or_insert_with(|| value.clone());
    }
    Ok(decoded)
}

fn writes_json(tool: &ProfileTool, fields: &Map<String, Value>) -> bool {
    let is_json = |(key, value): (&String, &Value)| {
        let extension =
            value.as_str().and_then(|path| path.rsplit_once('.')).map(|(_, extension)| extension);
        tool.internal_name(key) == "path" && extension == Some("json")
    };
    tool.kind == ToolKind::WRITE && fields.iter().any(is_json)
}

/// Whether a required parameter is given or has a default in the profile.
fn has_value(tool: &ProfileTool, key: &str, map: &Map<String, Value>) -> bool {
    let name = tool.internal_name(key);
    map.contains_key(name) || tool.defaults.contains_key(name)
}

/// Returns the arguments as an object. Accepts a string that contains an object, as some models
/// send, and treats absent arguments as empty.
fn parse_object(args: &Value) -> Result<Map<String, Value>, String> {
    match args {
        Value::Object(map) => Ok(map.clone()),
        Value::Null => Ok(Map::new()),
        Value::String(text) if text.trim().is_empty() => Ok(Map::new()),
        Value::String(text) => match serde_json::from_str(text) {
            Ok(Value::Object(map)) => Ok(map),
            Ok(_) | Err(_) => Err("the arguments are a string, not a JSON object".to_owned()),
        },
        Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
            Err("the arguments are not a JSON object".to_owned())
        }
    }
}

/// Converts a value to the type in the schema, if its meaning is unambiguous.
fn coerce(value: &Value, schema: &Value) -> Result<Value, String> {
    let expected_type = schema["type"].as_str().unwrap_or("any");
    let coerced = match expected_type {
        "string" => coerce_string(value),
        "integer" => coerce_number(value).and_then(|n| to_integer(&n)).map(Value::from),
        "number" => coerce_number(value).map(Value::Number),
        "boolean" => coerce_boolean(value).map(Value::Bool),
        "array" => {
            parse_if(value, Value::is_array).or_else(|| wrap_in_list(value, &schema["items"]))
        }
        "object" => parse_if(value, Value::is_object),
        _ => Some(value.clone()),
    };
    let coerced = coerced.ok_or_else(|| format!("must be {}", with_article(expected_type)))?;
    if let Some(min) = schema["minimum"].as_f64()
        && coerced.as_f64().is_some_and(|n| n < min)
    {
        return Err(format!("must be at least {min}"));
    }
    Ok(coerced)
}

fn with_article(expected_type: &str) -> String {
    let article = if expected_type.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
    format!("{article} {expected_type}")
}

fn coerce_string(value: &Value) -> Option<Value> {
    match value {
        Value::String(_) => Some(value.clone()),
        Value::Number(n) => Some(Value::String(n.to_string())),
        Value::Bool(b) => Some(Value::String(b.to_string())),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

fn coerce_number(value: &Value) -> Option<Number> {
    match value {
        Value::Number(n) => Some(n.clone()),
        Value::String(text) => text.trim().parse().ok(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Returns a whole number, also if it is written as a float.
fn to_integer(number: &Number) -> Option<i64> {
    if let Some(int) = number.as_i64() {
        return Some(int);
    }
    let float = number.as_f64()?;
    // Above 2^53 a float cannot represent every whole number, so its meaning would be ambiguous.
    let exact = float.fract() == 0.0 && float.abs() <= 9_007_199_254_740_992.0;
    exact.then_some(float as i64)
}

fn coerce_boolean(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(b) => Some(*b),
        Value::String(text) => match text.trim().to_ascii_lowercase().as_str() {
            "true" | "yes" | "1" => Some(true),
            "false" | "no" | "0" => Some(false),
            _ => None,
        },
        Value::Number(n) => match n.as_i64() {
            Some(0) => Some(false),
            Some(1) => Some(true),
            Some(_) | None => None,
        },
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Returns the value itself, or the value that its text parses to.
fn parse_if(value: &Value, is_expected: fn(&Value) -> bool) -> Option<Value> {
    if is_expected(value) {
        return Some(value.clone());
    }
    serde_json::from_str::<Value>(value.as_str()?).ok().filter(is_expected)
}

/// Wraps a value in a list, if it has the type of the schema's list items.
fn wrap_in_list(value: &Value, items: &Value) -> Option<Value> {
    let is_element = match value {
        // An incomplete list is not an element.
        Value::String(text) => items["type"] == "string" && !text.trim_start().starts_with('['),
        Value::Object(_) => items["type"] == "object",
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => false,
    };
    is_element.then(|| Value::Array(vec![value.clone()]))
}

/// Returns the result of an invalid call: the error and the expected parameters.
pub(crate) fn invalid_call(tool: &ProfileTool, reason: &str) -> ToolOutput {
    ToolOutput::invalid(format!("{}: {reason}\n{}", tool.name, describe_parameters(tool)))
}

/// Describes the parameters of a tool in a few lines.
fn describe_parameters(tool: &ProfileTool) -> String {
    let Some(properties) = tool.parameters["properties"].as_object().filter(|p| !p.is_empty())
    else {
        return "expected parameters: none".to_owned();
    };
    let required: Vec<&str> = tool.required().collect();
    let mut text = "expected parameters:".to_owned();
    for (key, schema) in properties {
        let kind = schema["type"].as_str().unwrap_or("any");
        let requirement = if required.contains(&key.as_str()) { "required" } else { "optional" };
        let description = schema["description"].as_str().unwrap_or_default();
        text.push_str(&format!("\n- {key} ({kind}, {requirement}): {description}"));
    }
    text
}

/// Returns the result of a call whose arguments are not a JSON object, with the expected
/// parameters. `raw_args` is the text as the model wrote it.
pub fn malformed(profile: Profile, name: &str, raw_args: &str) -> ToolOutput {
    let tool = match lookup::find(profile, name, &Value::Null) {
        NamedTool::One(tool) => tool,
        found @ (NamedTool::Several(_) | NamedTool::None(_)) => {
            return not_found(profile, name, &found);
        }
    };
    let reason = match serde_json::from_str::<Value>(raw_args) {
        Err(error) if error.is_eof() => format!(
            "the arguments break off before they are complete ({error}); nothing was run. If the \
             content is long, write it in several smaller parts"
        ),
        Err(error) => format!("the arguments are not valid JSON ({error}); nothing was run"),
        Ok(_) => "the arguments are not a JSON object; nothing was run".to_owned(),
    };
    let start = base::text::head(raw_args, 200);
    invalid_call(tool, &format!("{reason}\nas sent: {start}"))
}

/// Returns the result of a call whose name is unknown or ambiguous.
pub(crate) fn not_found(profile: Profile, name: &str, tool: &NamedTool) -> ToolOutput {
    let text = match tool {
        NamedTool::Several(profiles) => {
            let names: Vec<&str> = profiles.iter().map(|profile| profile.name()).collect();
            format!(
                "`{name}` is known to several profiles ({}) and the parameters do not say which is \
                 meant",
                names.join(", ")
            )
        }
        NamedTool::None(Some(nearest)) => {
            format!("unknown tool `{name}`; the nearest name is `{nearest}`")
        }
        NamedTool::None(None) | NamedTool::One(_) => format!("unknown tool `{name}`"),
    };
    let names: Vec<&str> = profile::tools(profile).iter().map(|f| f.name.as_str()).collect();
    ToolOutput::failed(ToolErrorKind::UnknownTool, format!("{text}\ntools: {}", names.join(", ")))
}
