//! Parameters of task files: `{{name}}` is replaced by a value.

use std::collections::{BTreeMap, BTreeSet};

use super::TaskFileError;

/// Replaces `{{name}}` by its value; `\{{` is a literal `{{`. An undefined parameter is an error at
/// its line, an unused value one at line 1. Anything else in braces is unchanged.
pub fn fill(text: &str, values: &BTreeMap<String, String>) -> Result<String, Vec<TaskFileError>> {
    let (mut filled, mut errors, mut used) = (String::new(), Vec::new(), BTreeSet::new());
    for (line, number) in text.split_inclusive('\n').zip(1..) {
        let mut rest = line;
        while let Some(start) = rest.find("{{") {
            let (before, after) = rest.split_at(start);
            if let Some(before) = before.strip_suffix('\\') {
                filled.push_str(before);
                filled.push_str("{{");
                rest = &after[2..];
                continue;
            }
            filled.push_str(before);
            let name = after[2..].split_once("}}").map(|(name, _)| name);
            match name.filter(|name| is_name(name)) {
                Some(name) => {
                    match values.get(name) {
                        Some(value) => filled.push_str(value),
                        None => {
                            let what =
                                format!("parameter `{name}` has no value: --set {name}=VALUE");
                            errors.push(TaskFileError::new(number, what));
                        }
                    }
                    used.insert(name);
                    rest = &after[name.len() + 4..];
                }
                None => {
                    filled.push_str("{{");
                    rest = &after[2..];
                }
            }
        }
        filled.push_str(rest);
    }
    let unused = values.keys().filter(|name| !used.contains(name.as_str()));
    errors.extend(unused.map(|name| {
        TaskFileError::new(1, format!("it has no parameter `{name}`, which --set gives"))
    }));
    if errors.is_empty() { Ok(filled) } else { Err(errors) }
}

/// Returns whether a text is the name of a parameter: letters, digits, `-` and `_`.
pub fn is_name(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.chars().all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(all: &[(&str, &str)]) -> BTreeMap<String, String> {
        all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn parameters_are_replaced_and_other_braces_are_kept() {
        let text =
            "- port {{module}} to {{ x }} {{{module}}} \\{{module}}\n  check: test {{module}}";
        let filled = fill(text, &values(&[("module", "a{{b}}")])).unwrap();
        assert_eq!(
            filled,
            "- port a{{b}} to {{ x }} {{{module}}} {{module}}\n  check: test a{{b}}"
        );
    }

    #[test]
    fn undefined_and_unused_parameters_are_errors() {
        let errors =
            fill("a\n{{one}} {{two}}\n", &values(&[("two", "2"), ("three", "3")])).unwrap_err();
        let found: Vec<(usize, &str)> =
            errors.iter().map(|it| (it.line, it.what.as_str())).collect();
        assert_eq!(
            found,
            [
                (2, "parameter `one` has no value: --set one=VALUE"),
                (1, "it has no parameter `three`, which --set gives"),
            ]
        );
    }

    proptest::proptest! {
        #[test]
        fn a_text_without_parameters_is_unchanged(text in "[a{} \\n]{0,20}") {
            if !text.contains("{{a") {
                proptest::prop_assert_eq!(fill(&text, &BTreeMap::new()).unwrap(), text);
            }
        }
    }
}
