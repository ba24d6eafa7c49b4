//! Fields of the trace: what the code records, and what the allow-list lets through.

use std::collections::BTreeSet;

use crate::source::{read, rust_files};

const TABLE: &str = "agent/src/trace/fields.rs";
/// Fields that the trace itself adds.
const ADDED: [&str; 5] = ["message", "pid", "span_id", "parent_id", "ms"];

#[test]
fn every_recorded_field_is_allowed_and_every_allowed_one_is_recorded() {
    let table = read(TABLE);
    let table = table.split_once("static ALLOWED").expect("the allow-list").1;
    let table = table.split_once("];").expect("its end").0;
    let allowed: BTreeSet<&str> = table.split('"').skip(1).step_by(2).collect();
    let mut recorded: BTreeSet<String> = ADDED.map(str::to_owned).into();
    for file in rust_files().iter().filter(|file| file.is_production()) {
        let text = file.production();
        for call in text.split("tracing::").skip(1).filter_map(arguments) {
            for field in fields(call) {
                let known = allowed.contains(field.as_str()) || field.starts_with("otel.");
                assert!(known, "{}: `{field}` is not in {TABLE}", file.name);
                recorded.insert(field);
            }
        }
    }
    let unused: Vec<&&str> = allowed.iter().filter(|name| !recorded.contains(**name)).collect();
    assert!(unused.is_empty(), "{TABLE}: no code records {unused:?}");
}

/// The arguments of a macro that makes an event or a span.
fn arguments(text: &str) -> Option<&str> {
    let (name, rest) = text.split_once("!(")?;
    let levels = ["trace", "debug", "info", "warn", "error"];
    if !levels.contains(&name.strip_suffix("_span").unwrap_or(name)) {
        return None;
    }
    let end = parts(rest, ')').next().expect("the end of the call").len();
    Some(&rest[..end])
}

/// The names of the fields in the arguments of such a macro.
fn fields(arguments: &str) -> Vec<String> {
    let parts = parts(arguments, ',').map(str::trim).filter(|part| !part.is_empty());
    let parts = parts.filter(|part| !part.starts_with(['"']) && !part.starts_with("target:"));
    let names = parts.map(|part| part.split_once(" = ").map_or(part, |(name, _)| name));
    names.map(|name| name.trim_start_matches(['%', '?']).to_owned()).collect()
}

/// The parts of a text between separators outside of brackets and string literals.
fn parts(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let (mut depth, mut quoted) = (0, false);
    text.split(move |c: char| {
        let splits = c == separator && depth == 0 && !quoted;
        match c {
            '"' => quoted = !quoted,
            '(' | '[' | '{' if !quoted => depth += 1,
            ')' | ']' | '}' if !quoted && !splits => depth -= 1,
            _ => {}
        }
        splits
    })
}

#[test]
fn the_fields_of_a_call_are_found() {
    let call = "info!(target: \"g3::x\", a.b = f(1, \")\"), %c, d = ?d, \"said, so\"); more(e)";
    let arguments = arguments(call).expect("it makes an event");
    assert_eq!(fields(arguments), ["a.b", "c", "d"]);
    assert!(super::trace_fields::arguments("Span::current(); x!(a)").is_none());
}
