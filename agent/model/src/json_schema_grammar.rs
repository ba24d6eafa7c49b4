//! Converts JSON schemas to rules of a grammar. A rule matches the JSON texts of a schema.
//!
//! The keywords that determine the form of a value are used: `type`, `properties`, `required`,
//! `additionalProperties`, `items`, `minItems`, `maxItems`, `enum`, `const`, `anyOf`, `oneOf`, `allOf`,
//! `minimum` and `maximum` of integers, and `$ref` within the schema. The others are ignored: those of
//! strings need a rule for each repetition, and long strings are ended by the output limit instead.

use std::collections::HashMap;
use std::mem;

use serde_json::{Map, Value};

use crate::gbnf::{ANY, GrammarRules, STRING, amounts, comma, json_literal, other_text};

/// The most repetitions of an item that are counted; llama.cpp refuses more than 2,000.
const MAX_COUNTED: u64 = 256;
/// The largest integer in amount: a double holds all integers of 15 digits.
const MAX_INTEGER: i64 = 999_999_999_999_999;
/// The number of schemas that are converted, and how deep. Those beyond allow any value: references
/// and lists of types can describe more forms than memory holds.
const MAX_SCHEMAS: u32 = 10_000;
const MAX_DEPTH: u32 = 100;
/// The longest property name, in letters, that the names of other properties must differ from.
const MAX_EXCLUDED: usize = 64;

/// Adds the rules of a schema's values and returns an expression that matches a value.
pub(crate) fn add_schema(rules: &mut GrammarRules, name: &str, schema: &Value) -> String {
    let mut conversion = Conversion {
        rules,
        document: schema,
        references: HashMap::new(),
        first: HashMap::new(),
        at_start: None,
        remaining: MAX_SCHEMAS,
        depth: 0,
    };
    conversion.value(name, schema)
}

/// The conversion of one document.
struct Conversion<'a> {
    rules: &'a mut GrammarRules,
    document: &'a Value,
    /// The rules of references, by the reference.
    references: HashMap<String, String>,
    /// The references that a reference's values may begin with, by the reference.
    first: HashMap<String, Vec<String>>,
    /// The innermost reference that is being converted and has matched no letter yet.
    at_start: Option<String>,
    /// How many more schemas are converted.
    remaining: u32,
    /// How many schemas contain the current one.
    depth: u32,
}

impl Conversion<'_> {
    fn value(&mut self, name: &str, schema: &Value) -> String {
        let Value::Object(schema) = schema else { return self.rules.primitive(ANY) };
        if !self.enter() {
            return self.rules.primitive(ANY);
        }
        let value = self.keywords(name, schema);
        self.depth -= 1;
        value
    }

    /// Whether one more schema may be converted within the current one.
    fn enter(&mut self) -> bool {
        if self.remaining == 0 || self.depth == MAX_DEPTH {
            return false;
        }
        self.remaining -= 1;
        self.depth += 1;
        true
    }

    fn keywords(&mut self, name: &str, schema: &Map<String, Value>) -> String {
        if let Some(Value::String(to)) = schema.get("$ref") {
            return self.reference(name, to);
        }
        if schema.contains_key("allOf") {
            let merged = self.merged(schema);
            return self.keywords(name, &merged);
        }
        // Alternatives next to properties usually state which of them are required together.
        if schema.contains_key("properties") {
            return self.object(name, schema);
        }
        let alternatives = ["anyOf", "oneOf"].iter().find_map(|key| schema.get(*key)?.as_array());
        if let Some(alternatives) = alternatives.filter(|all| !all.is_empty()) {
            return self.union(name, alternatives);
        }
        if let Some(value) = schema.get("const") {
            return json_literal(value);
        }
        if let Some(values) =
            schema.get("enum").and_then(Value::as_array).filter(|all| !all.is_empty())
        {
            let literals: Vec<String> = values.iter().map(json_literal).collect();
            return self.rules.add(name, literals.join(" | "));
        }
        match schema.get("type") {
            Some(Value::Array(types)) if !types.is_empty() => {
                let with_type = |kind: &Value| {
                    let mut one = schema.clone();
                    one.insert("type".to_owned(), kind.clone());
                    Value::Object(one)
                };
                self.union(name, &types.iter().map(with_type).collect::<Vec<_>>())
            }
            Some(Value::String(kind)) => self.typed(name, kind, schema),
            _ if schema.contains_key("additionalProperties") => self.object(name, schema),
            _ if schema.contains_key("items") => self.array(name, schema),
            _ => self.rules.primitive(ANY),
        }
    }

    fn typed(&mut self, name: &str, kind: &str, schema: &Map<String, Value>) -> String {
        match kind {
            "object" => self.object(name, schema),
            "array" => self.array(name, schema),
            "integer" => self.integer(name, schema),
            "string" => self.rules.primitive(STRING),
            "number" => self.rules.primitive("number"),
            "boolean" => self.rules.primitive("boolean"),
            "null" => self.rules.primitive("null"),
            _ => self.rules.primitive(ANY),
        }
    }

    fn union(&mut self, name: &str, alternatives: &[Value]) -> String {
        let alternative = |(number, schema)| self.value(&format!("{name}-{number}"), schema);
        let alternatives: Vec<String> = alternatives.iter().enumerate().map(alternative).collect();
        self.rules.add(name, alternatives.join(" | "))
    }

    /// A reference to another document, which is not fetched, or to nothing allows any value. So does
    /// one with which its own rule would begin, since llama.cpp refuses left recursion.
    fn reference(&mut self, name: &str, to: &str) -> String {
        if let Some(open) = self.at_start.clone() {
            if self.may_begin(to, &open, &mut Vec::new()) {
                return self.rules.primitive(ANY);
            }
            self.first.entry(open).or_default().push(to.to_owned());
        }
        if let Some(rule) = self.references.get(to) {
            return rule.clone();
        }
        let Some(schema) = self.target(to).cloned() else { return self.rules.primitive(ANY) };
        let rule = self.rules.reserve(name);
        self.references.insert(to.to_owned(), rule.clone());
        let at_start = self.at_start.replace(to.to_owned());
        let body = self.value(&format!("{rule}-value"), &schema);
        self.at_start = at_start;
        self.rules.define(&rule, body);
        rule
    }

    /// Whether values of one reference may begin with those of another.
    fn may_begin<'r>(&'r self, reference: &'r str, with: &str, seen: &mut Vec<&'r str>) -> bool {
        if reference == with {
            return true;
        }
        if seen.contains(&reference) {
            return false;
        }
        seen.push(reference);
        let first = self.first.get(reference).into_iter().flatten();
        first.into_iter().any(|next| self.may_begin(next, with, seen))
    }

    fn target(&self, to: &str) -> Option<&Value> {
        self.document.pointer(to.strip_prefix('#')?)
    }

    /// Returns a schema with those of its `allOf` merged in. The properties of their alternatives are
    /// allowed, not required.
    fn merged(&mut self, schema: &Map<String, Value>) -> Map<String, Value> {
        let mut merged = schema.clone();
        let Some(Value::Array(parts)) = merged.remove("allOf") else { return merged };
        if !self.enter() {
            return merged;
        }
        for part in &parts {
            let part = self.resolved(part);
            let alternatives =
                ["anyOf", "oneOf"].iter().filter_map(|key| part.get(*key)?.as_array());
            for alternative in alternatives.flatten() {
                if let Some(properties) = self.resolved(alternative).remove("properties") {
                    merge(&mut merged, "properties", properties);
                }
            }
            for (key, value) in part {
                merge(&mut merged, &key, value);
            }
        }
        self.depth -= 1;
        merged
    }

    /// Returns the keywords of a schema, or of the target of its reference.
    fn resolved(&mut self, schema: &Value) -> Map<String, Value> {
        let mut schema = schema.clone();
        while let Some(to) = schema.get("$ref").and_then(Value::as_str) {
            let Some(target) = self.target(to).cloned() else { break };
            if self.remaining == 0 {
                return Map::new();
            }
            self.remaining -= 1;
            schema = target;
        }
        match schema {
            Value::Object(schema) => self.merged(&schema),
            _ => Map::new(),
        }
    }

    /// An object with known properties accepts no others unless the schema says so.
    fn object(&mut self, name: &str, schema: &Map<String, Value>) -> String {
        let at_start = mem::take(&mut self.at_start);
        let properties = schema.get("properties").and_then(Value::as_object);
        let required: Vec<&str> = schema
            .get("required")
            .and_then(Value::as_array)
            .map(|names| names.iter().filter_map(Value::as_str).collect())
            .unwrap_or_default();
        let mut required_members = Vec::new();
        let mut optional_members = Vec::new();
        for (key, property) in properties.into_iter().flatten() {
            let member_name = format!("{name}-{key}");
            let value = self.value(&format!("{member_name}-value"), property);
            let member = self.rules.member(key, &value);
            let member = self.rules.add(&member_name, member);
            if required.contains(&key.as_str()) {
                required_members.push(member);
            } else {
                optional_members.push(member);
            }
        }
        let others = match schema.get("additionalProperties") {
            Some(Value::Bool(false)) => None,
            Some(others @ Value::Object(_)) => {
                Some(self.value(&format!("{name}-other-value"), others))
            }
            Some(Value::Bool(true)) => Some(self.rules.primitive(ANY)),
            _ => properties.is_none().then(|| self.rules.primitive(ANY)),
        };
        let others = others.map(|value| {
            let key = self.other_key(properties);
            let space = self.rules.primitive("space");
            self.rules
                .add(&format!("{name}-other"), format!(r#"{key} {space} ":" {space} {value}"#))
        });
        self.at_start = at_start;
        let members = self.members(name, &required_members, &optional_members, others.as_deref());
        let object = self.rules.object(&members);
        self.rules.add(name, object)
    }

    /// Returns an expression that matches all required members and any of the optional ones, in order,
    /// then any number of others.
    fn members(
        &mut self,
        name: &str,
        required: &[String],
        optional: &[String],
        others: Option<&str>,
    ) -> String {
        let more_others = others.map(|other| format!("{}*", comma(other))).unwrap_or_default();
        if !required.is_empty() {
            let required = required.join(r#" "," space "#);
            let optional: String = optional.iter().map(|one| format!("{}? ", comma(one))).collect();
            return format!("{required} {optional}{more_others}");
        }
        // Each alternative begins with another member, which no comma precedes.
        let mut alternatives: Vec<String> =
            others.map(|other| format!("{other} {more_others}")).into_iter().collect();
        let mut rest = more_others;
        for (number, member) in optional.iter().enumerate().rev() {
            alternatives.push(format!("{member} {rest}"));
            if number > 0 {
                rest =
                    self.rules.add(&format!("{name}-rest"), format!("{}? {rest}", comma(member)));
            }
        }
        alternatives.reverse();
        if alternatives.is_empty() {
            String::new()
        } else {
            format!("( {} )?", alternatives.join(" | "))
        }
    }

    /// Returns an expression that matches the keys of other properties than these.
    fn other_key(&mut self, known: Option<&Map<String, Value>>) -> String {
        let mut keys: Vec<Vec<char>> =
            known.into_iter().flat_map(Map::keys).map(|key| key.chars().collect()).collect();
        keys.retain(|key| key.len() <= MAX_EXCLUDED);
        if keys.is_empty() {
            return self.rules.primitive(STRING);
        }
        self.rules.primitive("char");
        keys.sort_unstable();
        let keys: Vec<&[char]> = keys.iter().map(Vec::as_slice).collect();
        let body = other_text(&keys);
        format!(r#""\"" {body} "\"""#)
    }

    fn array(&mut self, name: &str, schema: &Map<String, Value>) -> String {
        let at_start = mem::take(&mut self.at_start);
        let any = Value::Bool(true);
        let item = self.value(&format!("{name}-item"), schema.get("items").unwrap_or(&any));
        self.at_start = at_start;
        let count = |key: &str| schema.get(key).and_then(Value::as_u64);
        let min = count("minItems").unwrap_or(0).min(MAX_COUNTED);
        let max = count("maxItems").filter(|max| (min..=MAX_COUNTED).contains(max));
        let next = comma(&item);
        let items = match (min, max) {
            (_, Some(0)) => String::new(),
            (0 | 1, None) => format!("{item} {next}*"),
            (0 | 1, Some(max)) => format!("{item} {next}{{0,{}}}", max - 1),
            (_, None) => format!("{item} {next}{{{},}}", min - 1),
            (_, Some(max)) => format!("{item} {next}{{{},{}}}", min - 1, max - 1),
        };
        let items = if min == 0 && !items.is_empty() { format!("( {items} )?") } else { items };
        let array = self.rules.enclosed("[", &items, "]");
        self.rules.add(name, array)
    }

    fn integer(&mut self, name: &str, schema: &Map<String, Value>) -> String {
        let bound = |key: &str| schema.get(key).and_then(Value::as_f64);
        let (minimum, maximum) = (bound("minimum"), bound("maximum"));
        if minimum.is_none() && maximum.is_none() {
            return self.rules.primitive("integer");
        }
        // A conversion of a double to an integer saturates.
        let min = minimum.map_or(-MAX_INTEGER, |min| min.ceil() as i64);
        let max = maximum.map_or(MAX_INTEGER, |max| max.floor() as i64);
        let (min, max) = (min.max(-MAX_INTEGER), max.min(MAX_INTEGER));
        if min > max {
            return self.rules.primitive("integer");
        }
        let mut alternatives = Vec::new();
        if min < 0 {
            let amounts = amounts((-max).max(1).unsigned_abs(), min.unsigned_abs());
            alternatives.push(format!(r#""-" ( {amounts} )"#));
        }
        if max >= 0 {
            alternatives.push(amounts(min.max(0).unsigned_abs(), max.unsigned_abs()));
        }
        self.rules.add(name, alternatives.join(" | "))
    }
}

/// Adds a keyword of another schema that applies as well.
fn merge(schema: &mut Map<String, Value>, key: &str, value: Value) {
    match (schema.get_mut(key), value) {
        (None, value) => {
            schema.insert(key.to_owned(), value);
        }
        (Some(Value::Object(existing)), Value::Object(more)) if key == "properties" => {
            for (name, property) in more {
                existing.entry(name).or_insert(property);
            }
        }
        (Some(Value::Array(existing)), Value::Array(more)) if key == "required" => {
            existing.extend(more)
        }
        (Some(_), _) => {}
    }
}

#[cfg(test)]
mod tests;
