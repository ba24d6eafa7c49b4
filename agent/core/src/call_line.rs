//! Formats a tool call on one line for people.

/// Formats a call on one line: the tool and its most informative argument.
pub fn call_line(name: &str, args: &serde_json::Value) -> String {
    const INFORMATIVE_KEYS: [&str; 10] = [
        "command",
        "file_path",
        "filePath",
        "path",
        "pattern",
        "query",
        "url",
        "name",
        "id",
        "text",
    ];
    let argument = INFORMATIVE_KEYS
        .iter()
        .find_map(|key| args[*key].as_str())
        .or_else(|| args.as_object()?.values().find_map(|value| value.as_str()))
        .unwrap_or_default();
    let argument = base::text::printable(argument.lines().next().unwrap_or_default());
    let name = base::text::printable(name);
    let line = if argument.is_empty() { name } else { format!("{name} {argument}") };
    base::text::cut_columns(&line, 100)
}
