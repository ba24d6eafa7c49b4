//! Parses a `SKILL.md` into a skill, with faults by line and rule.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::Skill;
use super::allowed::{self, AllowedTool};

/// Maximum size of a `SKILL.md` in bytes.
pub const MAX_SIZE: usize = 256 << 10;

const MAX_NAME: usize = 64;
const MAX_DESCRIPTION: usize = 1_024;
const MAX_COMPATIBILITY: usize = 500;

/// The keys of the front matter.
const KEYS: &[&str] =
    &["name", "description", "license", "compatibility", "metadata", "allowed-tools"];

/// A fault in a `SKILL.md`.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct SkillFault {
    /// The line, counted from 1.
    pub line: usize,
    /// The violated rule.
    pub rule: &'static str,
    /// The fault, and how to fix it.
    pub text: String,
    /// Whether the skill is left out because of it.
    pub fatal: bool,
}

/// Parses the text of a `SKILL.md` in a directory of this name. Returns the skill, as if it were
/// built in, and its faults.
pub fn parse(text: &str, directory: &str) -> (Skill, Vec<SkillFault>) {
    let mut reader = Reader::default();
    let Some((front_matter, body)) = split(text, &mut reader) else {
        return (Skill::default(), reader.faults);
    };
    reader.front_matter = front_matter;
    let table = reader.parse_table();
    let parsed = Skill {
        name: reader.name(&table, directory),
        description: reader.required(&table, "description", MAX_DESCRIPTION),
        license: reader.text(&table, "license"),
        compatibility: reader.text(&table, "compatibility"),
        metadata: reader.metadata(&table),
        allowed: reader.allowed(&table),
        body: body.trim().to_owned(),
        ..Skill::default()
    };
    if let Some(text) = &parsed.compatibility {
        let length = text.chars().count();
        if !(1..=MAX_COMPATIBILITY).contains(&length) {
            let reason =
                format!("`compatibility` has {length} characters; 1 to {MAX_COMPATIBILITY} fit");
            reader.fault("compatibility", "compatibility-length", reason);
        }
    }
    if parsed.body.is_empty() {
        let line = text.lines().count().max(1);
        let text = "there are no instructions below the front matter".to_owned();
        reader.faults.push(SkillFault { line, rule: "body-missing", text, fatal: true });
    }
    for key in table.keys().filter(|key| !KEYS.contains(&key.as_str())) {
        let text = format!("there is no key `{key}`; other things belong below `metadata`");
        let line = reader.line_of(key);
        reader.faults.push(SkillFault { line, rule: "key-unknown", text, fatal: false });
    }
    reader.faults.sort_by_key(|fault| fault.line);
    (parsed, reader.faults)
}

/// Splits the front matter from the text.
fn split<'a>(text: &'a str, reader: &mut Reader<'_>) -> Option<(&'a str, &'a str)> {
    let mut fail = |rule, text: &str| {
        reader.faults.push(SkillFault { line: 1, rule, text: text.to_owned(), fatal: true });
        None
    };
    if text.len() > MAX_SIZE {
        return fail("too-long", "the file is larger than 256 KiB; move parts into other files");
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let first = text.lines().next().unwrap_or_default();
    if first.trim_end() != "---" {
        return fail("front-matter", "the first line must be `---`");
    }
    let start = text.find('\n').map_or(text.len(), |offset| offset + 1);
    let mut offset = start;
    for line in text[start..].split_inclusive('\n') {
        if line.trim_end() == "---" {
            return Some((&text[start..offset], &text[offset + line.len()..]));
        }
        offset += line.len();
    }
    fail("front-matter", "the front matter does not end: a line `---` is missing")
}

/// Reads keys and collects faults.
#[derive(Default)]
struct Reader<'a> {
    front_matter: &'a str,
    faults: Vec<SkillFault>,
}

impl Reader<'_> {
    fn fault(&mut self, key: &str, rule: &'static str, text: String) {
        let line = self.line_of(key);
        self.faults.push(SkillFault { line, rule, text, fatal: true });
    }

    /// Returns the line of a key in the file, or of the opening `---` if the key is absent.
    fn line_of(&self, key: &str) -> usize {
        let is_key_line = |line: &str| {
            let line = line.trim_start_matches(['"', '\'']);
            let rest = line.strip_prefix(key).map(|rest| rest.trim_start_matches(['"', '\'']));
            rest.is_some_and(|rest| rest.trim_start().starts_with(':'))
        };
        self.front_matter.lines().position(is_key_line).map_or(1, |index| index + 2)
    }

    fn parse_table(&mut self) -> Map<String, Value> {
        if self.front_matter.trim().is_empty() {
            return Map::new();
        }
        match serde_saphyr::from_str::<Value>(self.front_matter) {
            Ok(Value::Object(table)) => table,
            Ok(_) => {
                let text = "the front matter must be `key: value` lines".to_owned();
                self.faults.push(SkillFault { line: 2, rule: "front-matter", text, fatal: true });
                Map::new()
            }
            Err(error) => {
                let yaml_line = error.location().map_or(1, |location| location.line() as usize);
                let line = line_number(self.front_matter, yaml_line) + 1;
                let message = error.without_snippet().to_string();
                // The parser's own line number is relative to the front matter.
                let message = message.lines().next().unwrap_or_default();
                let message = message.split(" at line ").next().unwrap_or_default();
                let text = format!("not YAML: {message}");
                self.faults.push(SkillFault { line, rule: "yaml", text, fatal: true });
                Map::new()
            }
        }
    }

    /// Whether the front matter is unreadable, so that no key can be reported as missing.
    fn is_unreadable(&self) -> bool {
        self.faults.iter().any(|fault| ["yaml", "front-matter"].contains(&fault.rule))
    }

    fn text(&mut self, table: &Map<String, Value>, key: &'static str) -> Option<String> {
        match table.get(key)? {
            Value::Null => None,
            Value::String(text) => Some(text.trim().to_owned()),
            Value::Number(_) | Value::Bool(_) | Value::Array(_) | Value::Object(_) => {
                let rule = if key == "name" { "name-form" } else { "not-text" };
                self.fault(key, rule, format!("`{key}` must be a text; put it into quotes"));
                None
            }
        }
    }

    /// Returns a required text of at most `max_chars` characters.
    fn required(
        &mut self,
        table: &Map<String, Value>,
        key: &'static str,
        max_chars: usize,
    ) -> String {
        let faults = self.faults.len();
        let text = self.text(table, key).unwrap_or_default();
        let length = text.chars().count();
        let (missing, too_long) = match key {
            "name" => ("name-missing", "name-length"),
            _ => ("description-missing", "description-length"),
        };
        if text.is_empty() {
            if self.faults.len() == faults && !self.is_unreadable() {
                self.fault(key, missing, format!("`{key}` is missing"));
            }
        } else if length > max_chars {
            self.fault(key, too_long, format!("`{key}` has {length} characters; {max_chars} fit"));
        }
        text
    }

    fn name(&mut self, table: &Map<String, Value>, directory: &str) -> String {
        let name = self.required(table, "name", MAX_NAME);
        if name.is_empty() {
            return name;
        }
        let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if !name.chars().all(is_allowed) {
            let text = "`name` may hold lower-case letters, digits and hyphens only".to_owned();
            self.fault("name", "name-form", text);
        } else if name.starts_with('-') || name.ends_with('-') || name.contains("--") {
            let text =
                "`name` may not begin or end with a hyphen, nor hold two in a row".to_owned();
            self.fault("name", "name-hyphen", text);
        } else if name != directory {
            let text = format!("`name` is `{name}`, and its directory is called `{directory}`");
            self.fault("name", "name-directory", text);
        }
        name
    }

    fn metadata(&mut self, table: &Map<String, Value>) -> BTreeMap<String, String> {
        let entries = match table.get("metadata") {
            None | Some(Value::Null) => return BTreeMap::new(),
            Some(Value::Object(entries)) => entries,
            Some(_) => {
                self.fault("metadata", "metadata", "`metadata` must be a map of texts".to_owned());
                return BTreeMap::new();
            }
        };
        let as_text = |value: &Value| match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        entries.iter().map(|(key, value)| (key.clone(), as_text(value))).collect()
    }

    fn allowed(&mut self, table: &Map<String, Value>) -> Option<Vec<AllowedTool>> {
        let words = match table.get("allowed-tools")? {
            Value::Null => Vec::new(),
            Value::String(text) => allowed::split_names(text),
            Value::Array(list) => {
                list.iter().filter_map(Value::as_str).flat_map(allowed::split_names).collect()
            }
            Value::Number(_) | Value::Bool(_) | Value::Object(_) => {
                let text = "`allowed-tools` must be names with spaces between".to_owned();
                self.fault("allowed-tools", "allowed-tools", text);
                return None;
            }
        };
        let (entries, invalid): (Vec<_>, Vec<_>) =
            words.into_iter().map(AllowedTool::parse).partition(Result::is_ok);
        for reason in invalid.into_iter().filter_map(Result::err) {
            self.fault("allowed-tools", "allowed-tools", reason);
        }
        Some(entries.into_iter().filter_map(Result::ok).collect())
    }
}

/// Converts a line number of YAML, where a lone carriage return also ends a line, to one of editors.
fn line_number(text: &str, yaml_line: usize) -> usize {
    let bytes = text.as_bytes();
    let ends_line = |(index, byte): (usize, &u8)| match byte {
        b'\n' => Some(index),
        b'\r' => (bytes.get(index + 1) != Some(&b'\n')).then_some(index),
        _ => None,
    };
    let ends = bytes.iter().enumerate().filter_map(ends_line);
    let start = ends.take(yaml_line.saturating_sub(1)).last().map_or(0, |end| end + 1);
    1 + bytes[..start].iter().filter(|byte| **byte == b'\n').count()
}

#[cfg(test)]
mod tests;
