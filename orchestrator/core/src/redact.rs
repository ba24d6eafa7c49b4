//! Redacts secrets in text for a model.

/// The replacement for a secret.
const GONE: &str = "[secret]";
/// The prefixes of well-known API keys.
const PREFIXES: &[&str] = &[
    "sk-",
    "sk_live_",
    "ghp_",
    "gho_",
    "ghs_",
    "github_pat_",
    "glpat-",
    "AKIA",
    "ASIA",
    "AIza",
    "xoxb-",
    "xoxp-",
    "dapi",
    "hf_",
    "npm_",
    "eyJhbGciOi",
];
/// Names whose values are secret.
const NAMES: &[&str] =
    &["password", "passwd", "secret", "api_key", "apikey", "access_key", "private_key", "token"];

/// Returns the text without API keys, passwords and private keys.
pub(crate) fn redacted(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut in_key = false;
    for line in text.split_inclusive('\n') {
        if line.contains("-----BEGIN") && line.contains("PRIVATE KEY") {
            in_key = true;
            out.push_str(GONE);
            out.push('\n');
        }
        if !in_key {
            out.push_str(&of_line(line));
        }
        if line.contains("-----END") {
            in_key = false;
        }
    }
    out
}

fn of_line(line: &str) -> String {
    without_keys(&without_values(line))
}

/// Redacts words with the prefix and the length of a key.
fn without_keys(line: &str) -> String {
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(start) = rest.find(is_word) {
        let (before, from) = rest.split_at(start);
        let end = from.find(|c| !is_word(c)).unwrap_or(from.len());
        let (word, after) = from.split_at(end);
        let secret = word.len() >= 20 && PREFIXES.iter().any(|prefix| word.starts_with(prefix));
        out.push_str(before);
        out.push_str(if secret { GONE } else { word });
        rest = after;
    }
    out.push_str(rest);
    out
}

/// Redacts values that are assigned to the name of a secret, if they are literals and not code.
fn without_values(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find(['=', ':']) {
        let (name, from) = rest.split_at(at + 1);
        out.push_str(name);
        let is_gap = |c: char| c.is_whitespace() || matches!(c, '"' | '\'');
        let (gap, value) = from.split_at(from.find(|c| !is_gap(c)).unwrap_or(from.len()));
        out.push_str(gap);
        let ends = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ',' | ';');
        let end = value.find(ends).unwrap_or(value.len());
        let is_code = value[..end].contains(['(', '{', '<', '$', '[', ':', '=']);
        rest = value;
        if is_secret_name(name) && end >= 8 && !is_code {
            out.push_str(GONE);
            rest = &value[end..];
        }
    }
    out.push_str(rest);
    out
}

fn is_secret_name(text: &str) -> bool {
    let name = text.trim_end_matches(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let name = name.to_lowercase().replace('-', "_");
    NAMES.iter().any(|secret| name.ends_with(secret))
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
        let clean = redacted(&text);
        for secret in ["sk-ant", "hunter2", "MIIE", "abcdefgh"] {
            assert!(!clean.contains(secret), "{clean}");
        }
        assert!(clean.contains("+let x = 1;\n"));
    }

    #[test]
    fn code_is_unchanged() {
        for line in ["let token = parse(input);\n", "desk-topping is no key\n", "größe: 5\n"] {
            assert_eq!(redacted(line), line);
        }
    }
}
