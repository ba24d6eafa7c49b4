//! Redacts secrets in text for a model.

use base::credentials::{is_secret_name, resembles_token};

/// The replacement for a secret.
const REPLACEMENT: &str = "[secret]";
/// Returns the text without API keys, passwords and private keys.
pub(crate) fn redact(text: &str) -> String {
    let mut output = String::with_capacity(text.len());
    let mut in_key = false;
    for line in text.split_inclusive('\n') {
        if line.contains("-----BEGIN") && line.contains("PRIVATE KEY") {
            in_key = true;
            output.push_str(REPLACEMENT);
            output.push('\n');
        }
        if !in_key {
            output.push_str(&redact_line(line));
        }
        if line.contains("-----END") {
            in_key = false;
        }
    }
    output
}

fn redact_line(line: &str) -> String {
    redact_keys(&redact_values(line))
}

/// Redacts words with the prefix and the length of a key.
fn redact_keys(line: &str) -> String {
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let mut output = String::with_capacity(line.len());
    let mut remaining = line;
    while let Some(start) = remaining.find(is_word) {
        let (prefix, tail) = remaining.split_at(start);
        let end = tail.find(|c| !is_word(c)).unwrap_or(tail.len());
        let (word, suffix) = tail.split_at(end);
        let secret = resembles_token(word);
        output.push_str(prefix);
        output.push_str(if secret { REPLACEMENT } else { word });
        remaining = suffix;
    }
    output.push_str(remaining);
    output
}

/// Redacts values that are assigned to the name of a secret, if they are literals and not code.
fn redact_values(line: &str) -> String {
    let mut output = String::with_capacity(line.len());
    let mut remaining = line;
    while let Some(separator) = remaining.find(['=', ':']) {
        let (name, tail) = remaining.split_at(separator + 1);
        output.push_str(name);
        let is_gap = |c: char| c.is_whitespace() || matches!(c, '"' | '\'');
        let (gap, value) = tail.split_at(tail.find(|c| !is_gap(c)).unwrap_or(tail.len()));
        output.push_str(gap);
        let is_end = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ',' | ';');
        let end = value.find(is_end).unwrap_or(value.len());
        let is_code = value[..end].contains(['(', '{', '<', '$', '[', ':', '=']);
        remaining = value;
        if is_secret_name(name) && end >= 8 && !is_code {
            output.push_str(REPLACEMENT);
            remaining = &value[end..];
        }
    }
    output.push_str(remaining);
    output
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_passwords_are_redacted() {
        let key = format!("sk-ant-{}", "a1".repeat(20));
        let text = format!(
            "+ANTHROPIC = \"{key}\"\n+password: hunter2hunter2\n+url = x; token='abcdefgh'\n\
             +-----BEGIN RSA PRIVATE KEY-----\n+MIIE\n+-----END RSA PRIVATE KEY-----\n+let x = 1;\n"
        );
        let redacted = redact(&text);
        for secret in ["sk-ant", "hunter2", "MIIE", "abcdefgh"] {
            assert!(!redacted.contains(secret), "{redacted}");
        }
        assert!(redacted.contains("+let x = 1;\n"));
    }

    #[test]
    fn code_is_unchanged() {
        for line in ["let token = parse(input);\n", "desk-topping is no key\n", "größe: 5\n"] {
            assert_eq!(redact(line), line);
        }
    }
}
