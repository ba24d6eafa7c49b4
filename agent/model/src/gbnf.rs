//! GBNF grammars, the notation of llama.cpp (`grammars/README.md` in its repository): the rules of JSON
//! values and the expressions that they consist of.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

/// The rule of any value.
pub(crate) const ANY: &str = "value";
/// The rule of a string.
pub(crate) const STRING: &str = "string";
/// The rules of values that need no schema, with the rules that they use.
const PRIMITIVES: &[(&str, &str, &[&str])] = &[
    ("space", r#"| " " | "\n"{1,2} [ \t]{0,20}"#, &[]),
    ("null", r#""null""#, &[]),
    ("boolean", r#"( "true" | "false" )"#, &[]),
    ("whole", "[0] | [1-9] [0-9]{0,15}", &[]),
    ("integer", r#""-"? whole"#, &["whole"]),
    ("number", r#""-"? whole ( "." [0-9]{1,16} )? ( [eE] [-+]? [0-9]{1,2} )?"#, &["whole"]),
    ("char", r#"[^"\\\x7F\x00-\x1F] | [\\] ( ["\\bfnrt] | "u" [0-9a-fA-F]{4} )"#, &[]),
    (STRING, r#""\"" char* "\"""#, &["char"]),
    ("member", r#"string space ":" space value"#, &[STRING, "space", ANY]),
    ("object", r#""{" space ( member ( "," space member )* )? space "}""#, &["space", "member"]),
    ("array", r#""[" space ( value ( "," space value )* )? space "]""#, &["space", ANY]),
    (
        ANY,
        "object | array | string | number | boolean | null",
        &["object", "array", STRING, "number", "boolean", "null"],
    ),
];

/// The rules of a grammar by name.
#[derive(Default)]
pub(crate) struct GrammarRules {
    rules: BTreeMap<String, String>,
}

impl GrammarRules {
    /// Adds a rule under this name, or a similar one if that is taken. Returns its name.
    pub fn add(&mut self, name: &str, body: String) -> String {
        let reserved = self.reserve(name);
        self.rules.insert(reserved.clone(), body);
        reserved
    }

    /// Returns the name of a primitive rule and adds what it needs.
    pub fn primitive(&mut self, name: &'static str) -> String {
        if let Some((_, body, needs)) = PRIMITIVES.iter().find(|(known, ..)| *known == name)
            && !self.rules.contains_key(name)
        {
            self.rules.insert(name.to_owned(), (*body).to_owned());
            for need in *needs {
                self.primitive(need);
            }
        }
        name.to_owned()
    }

    /// Returns an expression that matches a member of an object.
    pub fn member(&mut self, key: &str, value: &str) -> String {
        let space = self.primitive("space");
        format!(r#"{} {space} ":" {space} {value}"#, json_literal(&Value::from(key)))
    }

    /// Returns an expression that matches an object with these members.
    pub fn object(&mut self, members: &str) -> String {
        self.enclosed("{", members, "}")
    }

    /// Returns an expression that matches an object or array with this content.
    pub fn enclosed(&mut self, open: &str, content: &str, close: &str) -> String {
        let space = self.primitive("space");
        let content =
            if content.is_empty() { String::new() } else { format!("{content} {space} ") };
        format!(r#""{open}" {space} {content}"{close}""#)
    }

    /// Sets the body of a reserved rule.
    pub fn define(&mut self, name: &str, body: String) {
        self.rules.insert(name.to_owned(), body);
    }

    /// Returns the grammar's text.
    pub fn into_text(self) -> String {
        self.rules.into_iter().fold(String::new(), |mut text, (name, body)| {
            let _ = writeln!(text, "{name} ::= {body}");
            text
        })
    }

    /// Adds an empty rule under this name, or a similar one if that is taken. Returns its name.
    pub fn reserve(&mut self, name: &str) -> String {
        let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '-' };
        let base: String = name.chars().map(plain).collect();
        let numbered = (2..).map(|number| format!("{base}-{number}"));
        let free = std::iter::once(base.clone())
            .chain(numbered)
            .find(|name| !self.rules.contains_key(name))
            .unwrap_or(base);
        self.rules.insert(free.clone(), String::new());
        free
    }
}

/// The separator of items and members.
pub(crate) fn comma(item: &str) -> String {
    format!(r#"( "," space {item} )"#)
}

/// Returns a literal that matches the JSON text of a value.
pub(crate) fn json_literal(value: &Value) -> String {
    literal(&value.to_string())
}

fn literal(text: &str) -> String {
    let escape = |letter: char| match letter {
        '"' | '\\' => format!("\\{letter}"),
        '\n' => "\\n".to_owned(),
        '\r' => "\\r".to_owned(),
        _ => letter.to_string(),
    };
    format!("\"{}\"", text.chars().map(escape).collect::<String>())
}

/// Returns an expression that matches the rest of a key that is none of these sorted ones.
pub(crate) fn other_text(keys: &[&[char]]) -> String {
    let mut alternatives = Vec::new();
    let mut excluded = String::new();
    let mut longer: Vec<&[char]> = keys.iter().copied().filter(|key| !key.is_empty()).collect();
    while let Some(first) = longer.first().map(|key| key[0]) {
        let end = longer.partition_point(|key| key[0] <= first);
        let tails: Vec<&[char]> = longer.drain(..end).map(|key| &key[1..]).collect();
        let letter = class_letter(first);
        alternatives.push(format!("[{letter}] {}", other_text(&tails)));
        excluded.push_str(&letter);
    }
    // Letters that JSON escapes are outside of `[^…]`, as in the rule `char`.
    alternatives.push(format!(r#"[^"\\\x7F\x00-\x1F{excluded}] char*"#));
    let is_key = keys.iter().any(|key| key.is_empty());
    format!("( {} ){}", alternatives.join(" | "), if is_key { "" } else { "?" })
}

fn class_letter(letter: char) -> String {
    if letter.is_ascii_alphanumeric() {
        letter.to_string()
    } else {
        format!("\\U{:08X}", u32::from(letter))
    }
}

/// Returns an expression that matches the decimal numbers from `min` to `max`.
pub(crate) fn amounts(min: u64, max: u64) -> String {
    let mut alternatives = Vec::new();
    let mut low = min;
    loop {
        let digits = low.to_string();
        let longest: u64 = "9".repeat(digits.len()).parse().unwrap_or(u64::MAX);
        let high = max.min(longest);
        alternatives.push(digits_between(digits.as_bytes(), high.to_string().as_bytes()));
        if high == max {
            return alternatives.join(" | ");
        }
        low = high + 1;
    }
}

/// Returns an expression that matches the numbers of one length from `low` to `high`.
fn digits_between(low: &[u8], high: &[u8]) -> String {
    let (Some((&first, low_rest)), Some((&last, high_rest))) =
        (low.split_first(), high.split_first())
    else {
        return String::new();
    };
    let length = low_rest.len();
    let any = if length == 0 { String::new() } else { format!(" [0-9]{{{length}}}") };
    let one =
        |digit: u8, rest: String| format!("[{}] {rest}", char::from(digit)).trim_end().to_owned();
    if first == last {
        return one(first, digits_between(low_rest, high_rest));
    }
    let mut alternatives = Vec::new();
    let (mut from, mut to) = (first, last);
    if low_rest.iter().any(|digit| *digit != b'0') {
        alternatives.push(one(first, digits_between(low_rest, &vec![b'9'; length])));
        from += 1;
    }
    let has_upper = high_rest.iter().any(|digit| *digit != b'9');
    if has_upper {
        to -= 1;
    }
    if from <= to {
        alternatives.push(format!("[{}-{}]{any}", char::from(from), char::from(to)));
    }
    if has_upper {
        alternatives.push(one(last, digits_between(&vec![b'0'; length], high_rest)));
    }
    format!("( {} )", alternatives.join(" | "))
}
