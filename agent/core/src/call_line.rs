//! A tool call in one line, for people.

/// A call in one line for people: the tool and what it is about.
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

/// A text cut to so many characters, with a sign that it was.
pub fn cut_to(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let head: String = text.chars().take(most.saturating_sub(1)).collect();
    format!("{head}…")
}
