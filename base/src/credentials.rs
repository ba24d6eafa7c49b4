//! Credentials in text: the formats of well-known keys and tokens, private keys, passwords in
//! addresses, and random values of secret names. Each rule identifies a credential with near
//! certainty: false alarms would teach users to ignore true ones.

/// A well-known token.
#[derive(Debug)]
pub struct TokenFormat {
    /// The prefix.
    pub prefix: &'static str,
    /// The minimum number of characters after it.
    pub min_length: usize,
    /// The description.
    pub description: &'static str,
}

const fn token(prefix: &'static str, min_length: usize, description: &'static str) -> TokenFormat {
    TokenFormat { prefix, min_length, description }
}

/// The formats of tokens.
pub const TOKEN_FORMATS: &[TokenFormat] = &[
    token("AKIA", 16, "an AWS access key"),
    token("ASIA", 16, "an AWS access key"),
    token("ghp_", 36, "a GitHub token"),
    token("gho_", 36, "a GitHub token"),
    token("ghs_", 36, "a GitHub token"),
    token("ghu_", 36, "a GitHub token"),
    token("ghr_", 36, "a GitHub token"),
    token("github_pat_", 60, "a GitHub token"),
    token("glpat-", 20, "a GitLab token"),
    token("sk-ant-", 60, "an Anthropic key"),
    token("sk-proj-", 40, "an OpenAI key"),
    token("sk-svcacct-", 40, "an OpenAI key"),
    token("sk-or-v1-", 48, "an OpenRouter key"),
    token("gsk_", 48, "a Groq key"),
    token("xai-", 60, "an xAI key"),
    token("AIza", 35, "a Google API key"),
    token("dapi", 32, "a Databricks token"),
    token("xoxb-", 40, "a Slack token"),
    token("xoxp-", 40, "a Slack token"),
    token("xapp-", 40, "a Slack token"),
    token("sk_live_", 24, "a Stripe key"),
    token("rk_live_", 24, "a Stripe key"),
    token("npm_", 36, "an npm token"),
    token("hf_", 34, "a Hugging Face token"),
    token("pypi-AgEIcHlwaS5vcmc", 40, "a PyPI token"),
    token("dop_v1_", 64, "a DigitalOcean token"),
    token("shpat_", 32, "a Shopify token"),
    token("lin_api_", 40, "a Linear key"),
    token("AGE-SECRET-KEY-1", 50, "an age key"),
];

/// Names whose values are secret, at the end of a name.
pub const SECRET_NAMES: &[&str] = &[
    "password",
    "passwd",
    "secret",
    "api_key",
    "apikey",
    "access_key",
    "secret_key",
    "private_key",
    "token",
];

/// Words of values that are examples.
const EXAMPLE_WORDS: &[&str] = &[
    "example",
    "sample",
    "dummy",
    "fake",
    "test",
    "placeholder",
    "changeme",
    "your",
    "xxxx",
    "insert",
    "redacted",
    "secret",
    "password",
    "token",
    "user",
    "pass",
];

/// Minimum length of base64 that counts as the content of a private key.
const MIN_KEY_LENGTH: usize = 40;
/// Minimum number of distinct characters in a token: placeholders have one or two.
const MIN_DISTINCT_CHARS: usize = 10;
/// Minimum length of a random value.
const MIN_RANDOM_LENGTH: usize = 20;
/// Minimum bits per character of a random value, and of one of hexadecimal digits.
const MIN_ENTROPY: f64 = 3.7;
const MIN_HEX_ENTROPY: f64 = 3.2;
/// Maximum length of a line that is examined.
const MAX_LINE: usize = 64 << 10;

/// Returns the description of the credential in a line; `None` if there is none. A private key on
/// several lines is found by [`private_key_start`].
pub fn find(line: &str) -> Option<&'static str> {
    let line = crate::text::head(line, MAX_LINE);
    known_token(line)
        .or_else(|| is_web_token(line).then_some("a JSON web token"))
        .or_else(|| has_password_in_address(line).then_some("a password in an address"))
        .or_else(|| has_random_value(line).then_some("a random value of a secret name"))
}

fn is_token_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_')
}

/// Returns whether a word has the prefix of a token and at least 20 characters. Weaker than
/// [`find`]: for text that is removed, where a false alarm costs nothing.
pub fn resembles_token(word: &str) -> bool {
    let is_format = TOKEN_FORMATS.iter().any(|format| word.starts_with(format.prefix));
    word.len() >= 20 && (is_format || word.starts_with("sk-") || word.starts_with("eyJhbGciOi"))
}

fn known_token(line: &str) -> Option<&'static str> {
    line.split(|c| !is_token_char(c)).find_map(|word| {
        let format = TOKEN_FORMATS.iter().find(|format| {
            word.starts_with(format.prefix) && word.len() >= format.prefix.len() + format.min_length
        })?;
        let rest = &word[format.prefix.len()..];
        let is_aws = format.prefix.len() == 4 && format.prefix.ends_with("IA");
        let has_valid_format = match format.prefix {
            _ if is_aws => {
                rest.len() == 16
                    && rest.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit())
            }
            "dapi" | "shpat_" | "dop_v1_" => {
                rest.chars().all(|c| c.is_ascii_hexdigit() || c == '-')
            }
            _ => true,
        };
        let mut distinct: Vec<char> = rest.chars().collect();
        distinct.sort_unstable();
        distinct.dedup();
        let is_example = rest.to_ascii_lowercase().contains("example");
        (has_valid_format && distinct.len() >= MIN_DISTINCT_CHARS && !is_example)
            .then_some(format.description)
    })
}

fn is_web_token(line: &str) -> bool {
    line.split(|c| !is_token_char(c) && c != '.').any(|word| {
        let parts: Vec<&str> = word.split('.').collect();
        let [header, claims, signature] = parts.as_slice() else { return false };
        header.starts_with("eyJ") && claims.starts_with("eyJ") && signature.len() >= 20
    })
}

fn is_example(value: &str) -> bool {
    let lower = value.to_ascii_lowercase();
    value.contains(['<', '$', '{', '*', '%']) || EXAMPLE_WORDS.iter().any(|it| lower.contains(it))
}

/// Returns whether a line has an address with a password (`postgres://ada:PASSWORD@db.net/x`) for
/// another machine.
fn has_password_in_address(line: &str) -> bool {
    line.split("://").skip(1).any(|rest| {
        let authority = rest.split(|c: char| c.is_whitespace() || "/?#\"'`".contains(c)).next();
        let Some((user_info, host)) = authority.and_then(|it| it.rsplit_once('@')) else {
            return false;
        };
        let Some((_, password)) = user_info.split_once(':') else { return false };
        let host = host.split(':').next().unwrap_or_default();
        let is_remote = host.contains('.')
            && !host.starts_with("127.")
            && !host.contains("example")
            && !host.ends_with(".test")
            && !host.ends_with(".local");
        password.len() >= 8 && is_remote && !is_example(password)
    })
}

/// Returns whether a secret name has a random literal as its value.
fn has_random_value(line: &str) -> bool {
    let mut rest = line;
    while let Some(at) = rest.find(['=', ':']) {
        let (name, tail) = rest.split_at(at);
        rest = &tail[1..];
        let value = rest.trim_start();
        let (value, is_quoted) = match value.strip_prefix(['"', '\'']) {
            Some(value) => (value, true),
            None => (value.trim_end(), false),
        };
        let end = value.find(|c: char| !is_value_char(c)).unwrap_or(value.len());
        // A value without quotes ends its line: `NAME=VALUE` of a file for the environment.
        let is_literal = match is_quoted {
            true => value[end..].starts_with(['"', '\'']),
            false => end == value.len(),
        };
        if is_literal && is_secret_name(name) && is_random(&value[..end]) {
            return true;
        }
    }
    false
}

fn is_value_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || "+/=_-".contains(c)
}

/// Returns whether a text ends with the name of a secret, perhaps in quotes.
pub fn is_secret_name(text: &str) -> bool {
    let name = text.trim_end_matches(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let start = name.len().saturating_sub(64);
    let start = (start..=name.len()).find(|at| name.is_char_boundary(*at)).unwrap_or(0);
    let name = name[start..].to_lowercase().replace('-', "_");
    SECRET_NAMES.iter().any(|secret| name.ends_with(secret))
}

fn is_random(value: &str) -> bool {
    let digits = value.chars().filter(char::is_ascii_digit).count();
    let letters = value.chars().filter(char::is_ascii_alphabetic).count();
    if value.len() < MIN_RANDOM_LENGTH || digits < 2 || letters < 4 || is_example(value) {
        return false;
    }
    let is_hex = value.len() >= 32 && value.chars().all(|c| c.is_ascii_hexdigit());
    entropy(value) >= if is_hex { MIN_HEX_ENTROPY } else { MIN_ENTROPY }
}

/// Returns the bits per character, by the frequencies of the characters.
fn entropy(text: &str) -> f64 {
    let mut counts = [0_u32; 256];
    text.bytes().for_each(|byte| counts[usize::from(byte)] += 1);
    let total = text.len() as f64;
    counts.iter().filter(|count| **count > 0).fold(0.0, |sum, count| {
        let share = f64::from(*count) / total;
        sum - share * share.log2()
    })
}

/// Returns whether a line starts a private key in PEM form; `true` if its content follows in the
/// same line.
pub fn private_key_start(line: &str) -> Option<bool> {
    let (_, rest) = line.split_once("-----BEGIN ")?;
    let (kind, rest) = rest.split_once("-----")?;
    let kind = kind.strip_suffix(" BLOCK").unwrap_or(kind);
    let is_key = kind == "PRIVATE KEY" || kind.ends_with(" PRIVATE KEY");
    is_key.then(|| starts_with_key(rest))
}

/// Returns whether a text starts with base64 of the length of a key, after quotes, whitespace and
/// `\n`.
pub fn starts_with_key(text: &str) -> bool {
    let text = text.trim_start_matches(|c: char| c.is_whitespace() || "\"'+,`".contains(c));
    let text = text.trim_start_matches("\\r").trim_start_matches("\\n");
    let content = text.chars().take_while(|c| c.is_ascii_alphanumeric() || "+/=".contains(*c));
    content.count() >= MIN_KEY_LENGTH
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Assembled here, so that no scanner reports this file as a leak.
    fn random(length: usize) -> String {
        let characters = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8s9T0u1V2w3X4y5Z6a7B8c9D0e1F2".chars();
        characters.cycle().take(length).collect()
    }

    fn hex(length: usize) -> String {
        "9f86d081884c7d659a2feaa0c55ad015".chars().cycle().take(length).collect()
    }

    #[test]
    fn every_token_format_is_found_and_placeholders_are_not() {
        for TokenFormat { prefix, min_length, description } in TOKEN_FORMATS {
            let text = match *prefix {
                "AKIA" | "ASIA" => format!("{prefix}Q3EGWLTU7ZB2XK5M"),
                "dapi" | "shpat_" | "dop_v1_" => format!("{prefix}{}", hex(*min_length)),
                _ => format!("{prefix}{}", random(*min_length)),
            };
            assert_eq!(find(&format!("key = \"{text}\"")), Some(*description), "{prefix}");
            assert!(text.len() < 20 || resembles_token(&text), "{prefix}");
        }
        for harmless in [
            "AKIAIOSFODNN7EXAMPLE",
            "ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
            "let npm_config_cache_directory_of_the_user = 1;",
            "AIzaShort",
            "hf_hub_download(repo_id)",
        ] {
            assert_eq!(find(harmless), None, "{harmless}");
        }
    }

    #[test]
    fn random_values_of_secret_names_are_found_and_code_is_not() {
        let (value, web) = (random(32), random(24));
        for line in [
            format!("DB_PASSWORD={value}"),
            format!("  \"api_key\": \"{value}\","),
            format!("secret_key = '{}'", hex(40)),
            format!("export STRIPE_SECRET={value}\n"),
            format!("url = \"postgres://ada:{}@db.shop.net/x\"", random(12)),
            format!("bearer eyJhbGciOi.eyJzdWIi.{web}"),
        ] {
            assert!(find(&line).is_some(), "{line}");
        }
        for line in [
            "let token = parse(input);",
            "token: CancellationToken,",
            "password = \"correct horse battery staple\"",
            "api_key = \"your-api-key-goes-here-12345\"",
            "API_KEY=${API_KEY_OF_PRODUCTION_2}",
            "const SECRET_NAME = 'projects/1/secrets/database-main'",
            "access_token = \"123e4567-e89b-12d3-a456-426614174000\"",
            "sha256 = \"9f86d081884c7d659a2feaa0c55ad0159f86d081884c7d659a2feaa0c55ad015\"",
            "integrity: sha512-a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8s9T0u1V2w3X4y5Z6==",
            "postgres://postgres:postgres@localhost:5432/app",
            "https://user:password1@db.shop.net/",
            "token = self.tokens[index + 1].kind_of_token_at_12",
            "git clone https://github.com/a/b@v1.2.3",
        ] {
            assert_eq!(find(line), None, "{line}");
        }
    }

    #[test]
    fn a_private_key_is_found_only_with_its_content() {
        let begin = "-----BEGIN RSA PRIVATE KEY-----";
        assert_eq!(private_key_start(begin), Some(false));
        let content = format!("MII{}", random(61));
        assert!(starts_with_key(&content));
        assert_eq!(private_key_start(&format!("k = \"{begin}\\n{content}")), Some(true));
        assert_eq!(private_key_start("-----BEGIN CERTIFICATE-----"), None);
        assert_eq!(private_key_start("-----BEGIN OPENSSH PRIVATE KEY-----"), Some(false));
        assert!(!starts_with_key("if line.contains(\"-----BEGIN\") {"));
    }
}
