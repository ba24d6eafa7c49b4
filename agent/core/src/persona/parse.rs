//! Parses the front matter of a persona. Unknown keys are rejected.

/// The front matter of a persona.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct FrontMatter {
    /// `name`.
    pub name: Option<String>,
    /// `description`.
    pub description: Option<String>,
    /// `may_write`: globs over the working directory.
    pub may_write: Option<Vec<String>>,
    /// `tools: read-only`.
    pub reads_only: bool,
}

/// Parses a file into its front matter, if there is one between two `---` lines, and its text. The
/// error names the invalid line.
pub(crate) fn parse(text: &str) -> Result<(FrontMatter, String), String> {
    let Some(rest) = text.strip_prefix("---\n") else {
        return Ok((FrontMatter::default(), text.to_owned()));
    };
    let Some((head, body)) = rest.split_once("\n---\n") else {
        return Err("its front matter has no end: a line `---`".to_owned());
    };
    let mut front_matter = FrontMatter::default();
    let mut lines = head.lines().peekable();
    while let Some(line) = lines.next() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let (key, value) =
            line.split_once(':').ok_or_else(|| format!("`{line}` is no `key: value`"))?;
        let value = value.trim();
        match key.trim() {
            "name" => front_matter.name = Some(unquote(value)),
            "description" => front_matter.description = Some(unquote(value)),
            "may_write" if value.is_empty() => {
                let mut globs = Vec::new();
                while let Some(item) = lines.next_if(|line| line.trim_start().starts_with("- ")) {
                    globs.push(unquote(item.trim_start()[2..].trim()));
                }
                front_matter.may_write = Some(globs);
            }
            "may_write" => {
                let globs = serde_json::from_str(value);
                let invalid =
                    || format!("`{line}`: a list like [\"docs/**\", \"README.md\"] is wanted");
                front_matter.may_write = Some(globs.map_err(|_| invalid())?);
            }
            "tools" => {
                front_matter.reads_only = match unquote(value).as_str() {
                    "full" => false,
                    "read-only" => true,
                    other => return Err(format!("`tools` is full or read-only, not `{other}`")),
                }
            }
            other => {
                return Err(format!(
                    "unknown key `{other}` (expected: name, description, may_write, tools)"
                ));
            }
        }
    }
    Ok((front_matter, body.to_owned()))
}

/// Returns a value without surrounding quotes.
fn unquote(value: &str) -> String {
    let strip = |quote| value.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
    strip('"').or_else(|| strip('\'')).unwrap_or(value).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_list_forms_of_front_matter_are_parsed() {
        let text =
            "---\nname: ada\ndescription: \"counts\"\nmay_write:\n  - a/*\n  - 'b'\n---\nHi.\n";
        let (front_matter, body) = parse(text).unwrap();
        assert_eq!(
            (front_matter.name.as_deref(), front_matter.description.as_deref()),
            (Some("ada"), Some("counts"))
        );
        assert_eq!(front_matter.may_write.unwrap(), ["a/*", "b"]);
        assert_eq!(body, "Hi.\n");
        let (front_matter, _) = parse("---\nmay_write: [\"x\"]\ntools: read-only\n---\n").unwrap();
        assert!(front_matter.reads_only && front_matter.may_write.unwrap() == ["x"]);
        assert_eq!(parse("# Just words").unwrap().0, FrontMatter::default());
    }

    #[test]
    fn errors_name_the_invalid_line() {
        for (text, words) in [
            ("---\nname: a\n", "no end"),
            ("---\nmay_read: x\n---\n", "may_read"),
            ("---\ntools: some\n---\n", "some"),
            ("---\nmay_write: docs\n---\n", "may_write: docs"),
            ("---\nwords\n---\n", "words"),
        ] {
            assert!(parse(text).unwrap_err().contains(words), "{text}");
        }
    }
}
