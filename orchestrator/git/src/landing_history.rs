//! The landed work in the history: commits that name requirements, and their receipts.

use std::collections::BTreeMap;

use base::event::Usage;
use base::failure::{Failure, OrFail, Result};
use planner::verdict::{Disagreement, RequirementVerdict};
use serde::Deserialize;

use crate::receipt;
use crate::refs;
use crate::repo::Repository;

/// The trailer for a requirement.
const TRAILER_PREFIX: &str = "Requirement: ";

/// A commit that names requirements or has a receipt.
#[derive(Clone, Debug, PartialEq)]
pub struct Landing {
    /// The commit.
    pub commit: String,
    /// Its tree.
    pub tree: String,
    /// The first line of its message.
    pub subject: String,
    /// The ids of the requirements that it names.
    pub requirements: Vec<String>,
    /// Its receipt; `None` if the commit was rewritten, e.g. by a rebase.
    pub receipt: Option<Receipt>,
}

/// The fields of a receipt that are used here.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Receipt {
    /// The session.
    pub session: String,
    /// The ids of its requirements; `None` in receipts of versions that did not record them.
    pub requirements: Option<Vec<String>>,
    /// The tree that landed.
    pub tree: Option<String>,
    /// The checks of the landed tree.
    pub checks: Vec<ReceiptCheck>,
    /// The coach's verdict on each requirement.
    pub verdict: Option<Vec<RequirementVerdict>>,
    /// Whether the coach judged another state of the work, so that there is no verdict here.
    pub judged_earlier: bool,
    /// Number of rounds of player and coach.
    pub rounds: Option<u32>,
    /// Number of model replies.
    pub turns: Option<u32>,
    /// Tokens and cost.
    pub usage: Option<Usage>,
    /// The disagreements of coach and checks.
    pub disagreements: Vec<Disagreement>,
}

/// The result of a check at landing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ReceiptCheck {
    /// The command line.
    pub command: String,
    /// Whether it passed.
    pub ok: bool,
}

/// Returns the commits reachable from `from` and not from `since` that name requirements or have a
/// receipt, oldest first.
pub fn read(repository: &Repository, from: &str, since: Option<&str>) -> Result<Vec<Landing>> {
    let repo = repository.open()?;
    let commit = |name: &str| resolve_commit(&repo, name).map(|commit| commit.id());
    let cannot = || "cannot read the history";
    let mut walk = repo.revwalk().or_fail(cannot)?;
    walk.set_sorting(git2::Sort::TOPOLOGICAL | git2::Sort::REVERSE).or_fail(cannot)?;
    walk.push(commit(from)?).or_fail(cannot)?;
    if let Some(since) = since {
        walk.hide(commit(since)?).or_fail(cannot)?;
    }
    let notes = receipt::all(&repo)?;
    let mut receipts = receipts(&repo, notes).or_fail(|| "cannot read the receipts")?;
    let mut landings = Vec::new();
    for id in walk {
        let id = id.or_fail(cannot)?;
        let commit = repo.find_commit(id).or_fail(cannot)?;
        let message = String::from_utf8_lossy(commit.message_bytes()).into_owned();
        let receipt = receipts.remove(&id);
        // The receipt has precedence, because an agent may have written the message.
        let recorded = receipt.as_ref().and_then(|receipt| receipt.requirements.clone());
        let requirements = recorded.unwrap_or_else(|| trailer_requirements(&message));
        if !requirements.is_empty() || receipt.is_some() {
            let subject = message.lines().next().unwrap_or_default().to_owned();
            let (commit, tree) = (id.to_string(), commit.tree_id().to_string());
            landings.push(Landing { commit, tree, subject, requirements, receipt });
        }
    }
    Ok(landings)
}

/// Returns the requirements that the trailers of a message name, without duplicates.
fn trailer_requirements(message: &str) -> Vec<String> {
    let mut requirements: Vec<String> = Vec::new();
    let trailers = message.trim_end().rsplit("\n\n").next().unwrap_or_default();
    for id in trailers.lines().filter_map(|line| line.strip_prefix(TRAILER_PREFIX)) {
        if !requirements.iter().any(|other| other == id.trim()) {
            requirements.push(id.trim().to_owned());
        }
    }
    requirements
}

/// Resolves a revision to a commit and its tree.
pub fn resolve(repository: &Repository, name: &str) -> Result<(String, String)> {
    let repo = repository.open()?;
    let commit = resolve_commit(&repo, name)?;
    Ok((commit.id().to_string(), commit.tree_id().to_string()))
}

fn resolve_commit<'a>(repo: &'a git2::Repository, name: &str) -> Result<git2::Commit<'a>> {
    refs::find_commit(repo, name).map_err(|error| {
        let printable_name = base::text::printable(name);
        Failure::usage(format!("no such commit: `{printable_name}`")).because(error.message())
    })
}

/// Returns all receipts by commit; other notes are skipped.
fn receipts(
    repo: &git2::Repository,
    notes: BTreeMap<git2::Oid, git2::Oid>,
) -> std::result::Result<BTreeMap<git2::Oid, Receipt>, git2::Error> {
    let mut receipts = BTreeMap::new();
    for (commit, blob) in notes {
        let text = repo.find_blob(blob)?;
        if let Ok(receipt) = serde_json::from_slice(text.content()) {
            receipts.insert(commit, receipt);
        }
    }
    Ok(receipts)
}
