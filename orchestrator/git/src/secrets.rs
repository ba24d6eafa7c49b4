//! Private keys and tokens in the lines that a landing adds. Only a few patterns, each of which
//! identifies a secret with certainty: false alarms would teach users to ignore true ones.

use std::path::Path;

use base::failure::{OrFail, Result};
use serde::Serialize;

use crate::merge::{Candidate, MergeStrategy};
use crate::refs;
use crate::repo::Repository;

/// Maximum number of a session's commits that are searched individually.
const MAX_COMMITS: usize = 1000;
/// Minimum length of base64 that counts as the content of a private key.
const MIN_KEY_LENGTH: usize = 40;
/// Minimum number of distinct characters in a token: placeholders have one or two.
const MIN_DISTINCT_CHARS: usize = 10;

/// Well-known tokens: the prefix, the minimum number of characters after it, and a description.
const TOKEN_KINDS: &[(&str, usize, &str)] = &[
    ("AKIA", 16, "an AWS access key"),
    ("ASIA", 16, "an AWS access key"),
    ("ghp_", 36, "a GitHub token"),
    ("gho_", 36, "a GitHub token"),
    ("ghs_", 36, "a GitHub token"),
    ("ghr_", 36, "a GitHub token"),
    ("github_pat_", 60, "a GitHub token"),
    ("glpat-", 20, "a GitLab token"),
    ("sk-ant-api", 60, "an Anthropic key"),
    ("sk-proj-", 40, "an OpenAI key"),
    ("AIza", 35, "a Google API key"),
    ("xoxb-", 40, "a Slack token"),
    ("xoxp-", 40, "a Slack token"),
    ("sk_live_", 24, "a Stripe key"),
    ("npm_", 36, "an npm token"),
    ("hf_", 34, "a Hugging Face token"),
    ("pypi-AgEIcHlwaS5vcmc", 40, "a PyPI token"),
];

/// A line that looks like a secret.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct FoundSecret {
    /// The path; bytes that are not UTF-8 are replaced.
    pub path: String,
    /// The line number, starting at 1, in the commit that adds it.
    pub line: u32,
    /// The description of the secret.
    #[serde(rename = "what")]
    pub description: &'static str,
}

impl FoundSecret {
    /// Returns the finding in one sentence.
    pub fn sentence(&self) -> String {
        format!(
            "{}:{}: looks like {}",
            base::text::printable(&self.path),
            self.line,
            self.description
        )
    }
}

/// Returns the secrets that a landing adds: in the merged tree, and in every commit of the session
/// that becomes part of the target's history.
pub fn find_added(repository: &Repository, candidate: &Candidate) -> Result<Vec<FoundSecret>> {
    let cannot = || "cannot look for secrets in the work";
    let repo = repository.open()?;
    let tree = |id: git2::Oid| repo.find_commit(id).and_then(|commit| commit.tree());
    let (tip, merged) = (refs::oid(&candidate.target_tip)?, refs::oid(&candidate.merged_commit)?);
    let trees = (tree(tip).or_fail(cannot)?, tree(merged).or_fail(cannot)?);
    let mut secrets = find_between(&repo, Some(&trees.0), &trees.1).or_fail(cannot)?;
    if candidate.strategy != MergeStrategy::Squash {
        let mut walk = repo.revwalk().or_fail(cannot)?;
        walk.push(refs::oid(&candidate.head)?).or_fail(cannot)?;
        walk.hide(tip).or_fail(cannot)?;
        for id in walk.take(MAX_COMMITS) {
            let commit = id.and_then(|id| repo.find_commit(id)).or_fail(cannot)?;
            let parent = commit.parent(0).and_then(|parent| parent.tree()).ok();
            let tree = commit.tree().or_fail(cannot)?;
            secrets.extend(find_between(&repo, parent.as_ref(), &tree).or_fail(cannot)?);
        }
    }
    secrets.sort();
    secrets.dedup();
    Ok(secrets)
}

fn find_between(
    repo: &git2::Repository,
    from: Option<&git2::Tree<'_>>,
    to: &git2::Tree<'_>,
) -> std::result::Result<Vec<FoundSecret>, git2::Error> {
    let mut options = git2::DiffOptions::new();
    options.context_lines(0);
    let diff = repo.diff_tree_to_tree(from, Some(to), Some(&mut options))?;
    let mut secrets = Vec::new();
    // A private key whose content is on the next line.
    let mut pending_key: Option<FoundSecret> = None;
    diff.foreach(
        &mut |_, _| true,
        None,
        None,
        Some(&mut |delta, _, line| {
            if line.origin() != '+' {
                return true;
            }
            let (Some(path), Some(number)) = (delta.new_file().path(), line.new_lineno()) else {
                return true;
            };
            let text = String::from_utf8_lossy(line.content());
            let is_next_line =
                |key: &FoundSecret| key.path == lossy_path(path) && key.line + 1 == number;
            if let Some(pending) = pending_key.take().filter(is_next_line)
                && starts_with_key(&text)
            {
                secrets.push(pending);
            }
            let to_secret =
                |description| FoundSecret { path: lossy_path(path), line: number, description };
            match private_key_start(&text) {
                Some(true) => secrets.push(to_secret("a private key")),
                Some(false) => pending_key = Some(to_secret("a private key")),
                None => {}
            }
            secrets.extend(token_description(&text).map(to_secret));
            true
        }),
    )?;
    Ok(secrets)
}

fn lossy_path(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Returns whether a line starts a private key in PEM form; `true` if its content follows in the
/// same line.
fn private_key_start(line: &str) -> Option<bool> {
    let (_, rest) = line.split_once("-----BEGIN ")?;
    let (kind, rest) = rest.split_once("-----")?;
    let is_key = matches!(kind.strip_suffix(" BLOCK").unwrap_or(kind), "PRIVATE KEY")
        || kind.trim_end_matches(" BLOCK").ends_with(" PRIVATE KEY");
    is_key.then(|| starts_with_key(rest))
}

/// Returns whether a text starts with base64 of the length of a key, after quotes, whitespace and
/// `\n`.
fn starts_with_key(text: &str) -> bool {
    let text = text.trim_start_matches(|c: char| c.is_whitespace() || "\"'+,`".contains(c));
    let text = text.trim_start_matches("\\r").trim_start_matches("\\n");
    let content = text.chars().take_while(|c| c.is_ascii_alphanumeric() || "+/=".contains(*c));
    content.count() >= MIN_KEY_LENGTH
}

/// Returns the description of the token in a line.
fn token_description(line: &str) -> Option<&'static str> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    line.split(|c| !is_word(c)).find_map(|candidate| {
        let (prefix, _, description) = TOKEN_KINDS.iter().find(|(prefix, length, _)| {
            candidate.starts_with(prefix) && candidate.len() >= prefix.len() + length
        })?;
        let rest = &candidate[prefix.len()..];
        let is_aws = prefix.len() == 4 && prefix.ends_with("IA");
        let has_valid_format = !is_aws
            || (rest.len() == 16
                && rest.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit()));
        let distinct: std::collections::BTreeSet<char> = rest.chars().collect();
        let is_example = rest.to_ascii_lowercase().contains("example");
        (has_valid_format && distinct.len() >= MIN_DISTINCT_CHARS && !is_example)
            .then_some(*description)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Assembled here, so that no scanner reports this file as a leak.
    fn fake_token(prefix: &str, length: usize) -> String {
        let characters = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8s9T0u1V2w3X4y5Z6a7B8c9D0e1F2".chars();
        format!("{prefix}{}", characters.cycle().take(length).collect::<String>())
    }

    #[test]
    fn tokens_are_distinguished_from_placeholders_and_code() {
        for (prefix, length, description) in TOKEN_KINDS {
            let token_text = match prefix.ends_with("IA") {
                true => format!("{prefix}Q3EGWLTU7ZB2XK5M"),
                false => fake_token(prefix, *length),
            };
            assert_eq!(
                token_description(&format!("key = \"{token_text}\"")),
                Some(*description),
                "{prefix}"
            );
        }
        for harmless in [
            "AKIAIOSFODNN7EXAMPLE",
            "ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
            "let npm_config_cache_directory_of_the_user = 1;",
            "AIzaShort",
            "hf_hub_download(repo_id)",
        ] {
            assert_eq!(token_description(harmless), None, "{harmless}");
        }
    }

    #[test]
    fn a_private_key_is_found_only_with_its_content() {
        let begin = "-----BEGIN RSA PRIVATE KEY-----";
        assert_eq!(private_key_start(begin), Some(false));
        let content = fake_token("MII", 61);
        assert!(starts_with_key(&content));
        assert_eq!(private_key_start(&format!("k = \"{begin}\\n{content}")), Some(true));
        assert_eq!(private_key_start("-----BEGIN CERTIFICATE-----"), None);
        assert_eq!(private_key_start("-----BEGIN OPENSSH PRIVATE KEY-----"), Some(false));
        assert!(!starts_with_key("if line.contains(\"-----BEGIN\") {"));
    }
}
