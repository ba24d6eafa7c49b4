//! Credentials in the lines that a landing adds; what counts as one is in `base::credentials`.

use std::path::Path;

use base::credentials;
use base::failure::{OrFail, Result};
use serde::Serialize;

use crate::merge::{Candidate, MergeStrategy};
use crate::refs;
use crate::repo::Repository;
use crate::tree_diff;

/// Maximum number of a session's commits that are searched individually.
const MAX_COMMITS: usize = 1000;
/// A line with this mark was declared to hold no secret. Its author may be the agent, so it is
/// still reported.
const ALLOW_MARK: &str = "studio:allow-secret";

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
    /// Whether its line is marked as allowed, or its path is configured as allowed.
    #[serde(rename = "marked")]
    pub is_marked: bool,
}

impl FoundSecret {
    /// Returns the finding in one sentence.
    pub fn sentence(&self) -> String {
        let mark = if self.is_marked { " (marked as allowed)" } else { "" };
        format!(
            "{}:{}: looks like {}{mark}",
            base::text::printable(&self.path),
            self.line,
            self.description
        )
    }
}

/// Returns the secrets that a landing adds: in the merged tree, and in every commit of the session
/// that becomes part of the target's history. Paths that match one of the patterns are marked as
/// allowed.
pub fn find_added(
    repository: &Repository,
    candidate: &Candidate,
    allowed: &[String],
) -> Result<Vec<FoundSecret>> {
    let cannot = || "cannot look for secrets in the work";
    let repo = repository.open()?;
    let tree = |id: git2::Oid| repo.find_commit(id).and_then(|commit| commit.tree());
    let (tip, merged) = (refs::oid(&candidate.target_tip)?, refs::oid(&candidate.merged_commit)?);
    let trees = (tree(tip).or_fail(cannot)?, tree(merged).or_fail(cannot)?);
    let mut secrets = find_between(&repo, Some(&trees.0), &trees.1).or_fail(cannot)?;
    if candidate.strategy != MergeStrategy::Squash {
        secrets.extend(in_history(&repo, tip, refs::oid(&candidate.head)?).or_fail(cannot)?);
    }
    sorted(secrets, allowed)
}

/// Returns the secrets that the commits between two commits add, as [`find_added`] does.
pub fn find_in_commits(
    repository: &Repository,
    base: &str,
    head: &str,
    allowed: &[String],
) -> Result<Vec<FoundSecret>> {
    let found = in_history(&*repository.open()?, refs::oid(base)?, refs::oid(head)?);
    sorted(found.or_fail(|| "cannot look for secrets in the work")?, allowed)
}

/// Returns the secrets that the commits add which are reachable from `head` and not from `base`.
fn in_history(
    repo: &git2::Repository,
    base: git2::Oid,
    head: git2::Oid,
) -> std::result::Result<Vec<FoundSecret>, git2::Error> {
    let mut secrets = Vec::new();
    let mut walk = repo.revwalk()?;
    walk.push(head)?;
    walk.hide(base)?;
    for id in walk.take(MAX_COMMITS) {
        let commit = repo.find_commit(id?)?;
        let parent = commit.parent(0).and_then(|parent| parent.tree()).ok();
        secrets.extend(find_between(repo, parent.as_ref(), &commit.tree()?)?);
    }
    Ok(secrets)
}

/// Marks the secrets in allowed files, and sorts them.
fn sorted(mut secrets: Vec<FoundSecret>, allowed: &[String]) -> Result<Vec<FoundSecret>> {
    if !allowed.is_empty() {
        let invalid = || "invalid pattern in `[studio] secrets_allowed`";
        let patterns = git2::Pathspec::new(allowed).or_fail(invalid)?;
        for secret in &mut secrets {
            let path = Path::new(&secret.path);
            secret.is_marked |= patterns.matches_path(path, git2::PathspecFlags::DEFAULT);
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
    let diff = tree_diff::diff_trees(repo, from, Some(to), options)?;
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
                && credentials::starts_with_key(&text)
            {
                secrets.push(pending);
            }
            let is_marked = text.contains(ALLOW_MARK);
            let to_secret = |description| FoundSecret {
                path: lossy_path(path),
                line: number,
                description,
                is_marked,
            };
            match credentials::private_key_start(&text) {
                Some(true) => secrets.push(to_secret("a private key")),
                Some(false) => pending_key = Some(to_secret("a private key")),
                None => {}
            }
            secrets.extend(credentials::find(&text).map(to_secret));
            true
        }),
    )?;
    Ok(secrets)
}

fn lossy_path(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
