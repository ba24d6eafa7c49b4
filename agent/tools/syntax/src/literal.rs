//! Finds literal text that a file must contain for a query to match, so that other files need not
//! be parsed.

use regex::bytes::Regex;
use tree_sitter::{CaptureQuantifier, Query};

use super::query::{after_string, operators};

/// Returns a regex that finds one of the texts that the patterns of the query require. Returns
/// `None` if a pattern can match any text.
pub(crate) fn required_literal(query: &Query, source: &str) -> Option<Regex> {
    let mut literals = Vec::new();
    for pattern in 0..query.pattern_count() {
        let pattern_range =
            query.start_byte_for_pattern(pattern)..query.end_byte_for_pattern(pattern);
        let is_always_captured = |capture: &str| {
            let index = query.capture_index_for_name(capture)?;
            let quantifier = query.capture_quantifiers(pattern).get(index as usize)?;
            matches!(quantifier, CaptureQuantifier::One | CaptureQuantifier::OneOrMore)
                .then_some(())
        };
        let equality = operators(source)
            .filter(|(offset, name)| pattern_range.contains(offset) && *name == "eq?")
            .filter_map(|(offset, name)| parse_equality(&source[offset + name.len()..]))
            .find(|(capture, _)| is_always_captured(capture).is_some());
        literals.push(regex::escape(equality?.1));
    }
    Regex::new(&literals.join("|")).ok()
}

/// Returns the capture and the literal text of an `#eq?`. A text with escapes is ignored.
fn parse_equality(arguments: &str) -> Option<(&str, &str)> {
    let arguments = arguments.trim_start().strip_prefix('@')?;
    let (capture, rest) = arguments.split_once(char::is_whitespace)?;
    let rest = rest.trim_start();
    let text = rest.starts_with('"').then(|| &rest[1..after_string(rest.as_bytes(), 0) - 1])?;
    (!text.is_empty() && !text.contains('\\')).then_some((capture, text))
}

#[cfg(test)]
mod tests {
    use super::required_literal;

    /// Returns for each text whether a file with it would be parsed.
    fn parsed(query: &str, text: &str) -> bool {
        let rust = tree_sitter_rust::LANGUAGE.into();
        let compiled = tree_sitter::Query::new(&rust, query).expect(query);
        required_literal(&compiled, query).is_none_or(|needed| needed.is_match(text.as_bytes()))
    }

    #[test]
    fn texts_required_by_each_pattern_are_found() {
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
    fn queries_that_may_match_without_a_text_always_parse() {
        for query in [
            "(identifier) @n",
            r#"((identifier) @n (#match? @n "seek"))"#,
            r#"((identifier) @n (#not-eq? @n "seek"))"#,
            // The capture may be absent, and then the predicate holds.
            r#"((function_item (visibility_modifier)? @v) @f (#eq? @v "pub"))"#,
            r#"([(identifier) @n (type_identifier)] @all (#eq? @n "seek"))"#,
            // One of the two patterns requires no text.
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
