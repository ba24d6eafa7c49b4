//! Formats a tool call on one line for people.

/// Formats a call on one line: the tool and its most informative argument.
pub fn call_line(name: &str, args: &serde_json::Value) -> String {
    const TELLING: [&str; 10] = [
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
    let about = TELLING
        .iter()
        .find_map(|key| args[*key].as_str())
        .or_else(|| args.as_object()?.values().find_map(|value| value.as_str()))
        .unwrap_or_default();
    let about = base::text::printable(about.lines().next().unwrap_or_default());
    let name = base::text::printable(name);
    let line = if about.is_empty() { name } else { format!("{name} {about}") };
    cut_to(&line, 100)
}

/// Truncates a text to `most` characters and marks the truncation.
pub fn cut_to(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let head: String = text.chars().take(most.saturating_sub(1)).collect();
    format!("{head}…")
}
