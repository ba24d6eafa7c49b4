//! The text that a file must hold for a query to match anything in it: whoever lacks it need not
//! be parsed.

use regex::bytes::Regex;
use tree_sitter::{CaptureQuantifier, Query};

use super::query::{after_string, operators};

/// What finds one of the texts of which each pattern of the query needs its own. `None`: some
/// pattern can match whatever the text.
pub(crate) fn needed(query: &Query, source: &str) -> Option<Regex> {
    let mut literals = Vec::new();
    for pattern in 0..query.pattern_count() {
        let within = query.start_byte_for_pattern(pattern)..query.end_byte_for_pattern(pattern);
        let always = |capture: &str| {
            let index = query.capture_index_for_name(capture)?;
            let quantifier = query.capture_quantifiers(pattern).get(index as usize)?;
            matches!(quantifier, CaptureQuantifier::One | CaptureQuantifier::OneOrMore)
                .then_some(())
        };
        let equal = operators(source)
            .filter(|(at, name)| within.contains(at) && *name == "eq?")
            .filter_map(|(at, name)| compared(&source[at + name.len()..]))
            .find(|(capture, _)| always(capture).is_some());
        literals.push(regex::escape(equal?.1));
    }
    Regex::new(&literals.join("|")).ok()
}

/// The capture and the plain text that stand behind `#eq?`. A text with escapes is passed over.
fn compared(arguments: &str) -> Option<(&str, &str)> {
    let arguments = arguments.trim_start().strip_prefix('@')?;
    let (capture, rest) = arguments.split_once(char::is_whitespace)?;
    let rest = rest.trim_start();
    let text = rest.starts_with('"').then(|| &rest[1..after_string(rest.as_bytes(), 0) - 1])?;
    (!text.is_empty() && !text.contains('\\')).then_some((capture, text))
}

#[cfg(test)]
mod tests {
    use super::needed;

    /// What the text of each of these is worth: whether a file with it would be parsed.
    fn parsed(query: &str, text: &str) -> bool {
        let rust = tree_sitter_rust::LANGUAGE.into();
        let compiled = tree_sitter::Query::new(&rust, query).expect(query);
        needed(&compiled, query).is_none_or(|needed| needed.is_match(text.as_bytes()))
    }

    #[test]
    fn a_text_that_each_pattern_needs_is_known() {
        let one = r#"((identifier) @n (#eq? @n "seek"))"#;
        assert!(!parsed(one, "fn other() {}") && parsed(one, "fn seek() {}"));
        let two = r#"((identifier) @n (#eq? @n "a.b")) ((type_identifier) @t (#eq? @t "Map"))"#;
        assert!(!parsed(two, "axb") && parsed(two, "a.b") && parsed(two, "Map"));
        let more = r#"((line_comment)+ @c (#eq? @c "// x"))"#;
        assert!(!parsed(more, "// y") && parsed(more, "// x"));
        let second = r#"((identifier) @n (#match? @n "^s") (#eq? @n "seek"))"#;
        assert!(!parsed(second, "sick"));
    }

    #[test]
    fn whatever_may_match_without_a_text_is_parsed() {
        for query in [
            "(identifier) @n",
            r#"((identifier) @n (#match? @n "seek"))"#,
            r#"((identifier) @n (#not-eq? @n "seek"))"#,
            // The capture may be missing, and then nothing is asked of it.
            r#"((function_item (visibility_modifier)? @v) @f (#eq? @v "pub"))"#,
            r#"([(identifier) @n (type_identifier)] @all (#eq? @n "seek"))"#,
            // One of two patterns needs nothing.
            r#"((identifier) @n (#eq? @n "seek")) (type_identifier) @t"#,
            r#"((identifier) @a (#eq? @a @a))"#,
            r#"((string_literal) @s (#eq? @s "\"x\""))"#,
            r#"((identifier) @n (#eq? @n ""))"#,
            "(identifier) @n ; (#eq? @n \"seek\")",
        ] {
            assert!(parsed(query, "nothing of it"), "{query}");
        }
    }
}
