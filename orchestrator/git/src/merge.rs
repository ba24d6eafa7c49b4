//! Merges a session's work in memory with the current tip of its target, and commits the result. No
//! visible ref moves.

use base::failure::{Failure, OrFail, Result};
use base::files::step;
use serde::{Deserialize, Serialize};

use crate::conflict::{self, Conflict};
use crate::names::BranchName;
use crate::object_quarantine::{self, KeepFiles, Quarantine};
use crate::refs::{self, RefChange};
use crate::repo::Repository;
use crate::session_repo::SessionRepo;
use crate::snapshot::Snapshot;
use crate::{rebase, receipt, tree_limits};

/// How work lands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MergeStrategy {
    /// One commit on the target.
    #[default]
    Squash,
    /// A merge commit.
    Merge,
    /// The session's commits, rebased onto the target, on the target.
    Rebase,
    /// The session's own commits; only where the target has not moved.
    Ff,
}

/// The result of preparing a merge.
#[derive(Debug, PartialEq, Eq)]
pub enum PreparedMerge {
    /// The target already contains all of the work.
    Nothing,
    /// Both sides changed the same lines.
    Conflicts(Vec<Conflict>),
    /// The work can be merged.
    Ready(Box<Candidate>),
}

/// Merged work, to be checked and committed.
#[derive(Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The target branch.
    pub target: BranchName,
    /// The commit of the target that it was merged with.
    pub target_tip: String,
    /// The merge strategy.
    pub strategy: MergeStrategy,
    /// A commit with the merged tree, for checks and diffs; it never lands itself.
    pub merged: String,
    /// The merged tree.
    pub tree: String,
    /// The agent's head.
    pub head: String,
    /// The commit with all of the work.
    pub work: String,
    /// The parents of the new commit; without a message, the first one lands.
    pub parents: Vec<String>,
    /// Whether a new commit is made, which needs a message.
    pub needs_message: bool,
    /// Protects its objects in the repository from `git gc` while this value exists.
    pub kept: Option<KeepFiles>,
}

/// The commit to land.
#[derive(Debug)]
pub struct LandingCommit {
    /// Its id.
    pub commit: String,
    /// The change of the receipts' ref, if the receipt was created together with the commit.
    pub note: Option<RefChange>,
    /// See [`Candidate::kept`].
    pub kept: Option<KeepFiles>,
}

/// A commit message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommitMessage {
    /// Subject and body.
    pub text: String,
    /// Trailers, e.g. `Task`; their values are joined to one line.
    pub trailers: Vec<(String, String)>,
}

/// Returns the ref by which earlier versions kept a session's work during landing.
pub fn ref_name(place: &SessionRepo) -> String {
    format!("refs/studio/landing/{}", place.id)
}

/// Merges a session's work with the current tip of the target. Fails with exit code 5 if the branch
/// does not exist, and 3 if the strategy is impossible.
pub fn prepare(
    repository: &Repository,
    place: &SessionRepo,
    snapshot: &Snapshot,
    target: &BranchName,
    strategy: MergeStrategy,
    now: jiff::Timestamp,
) -> Result<PreparedMerge> {
    let target_tip = repository.tip(target)?.ok_or_else(|| {
        Failure::not_found(format!("no such branch: `{target}`")).hint("git branch --list")
    })?;
    let scratch = Quarantine::open(repository)?;
    let repo = &scratch.repo;
    let ours = repo.find_commit(refs::oid(&target_tip)?).or_fail(cannot)?;
    let ours_tree = ours.tree().or_fail(cannot)?;
    for commit in [&snapshot.head, &snapshot.work] {
        tree_limits::refuse(repo, commit, &ours_tree)?;
    }
    let mut attributes = git2::Index::new().or_fail(cannot)?;
    attributes.read_tree(&ours.tree().or_fail(cannot)?).or_fail(cannot)?;
    repo.set_index(&mut attributes).or_fail(cannot)?;
    let merged = match strategy {
        MergeStrategy::Squash => whole(repo, &ours, snapshot)?.map(|tree| (tree, vec![ours.id()])),
        MergeStrategy::Merge => match whole(repo, &ours, snapshot)? {
            Ok(tree) => Ok((tree, vec![ours.id(), side(repo, place, snapshot, now)?])),
            Err(conflicts) => Err(conflicts),
        },
        MergeStrategy::Rebase => rebase::replay(repo, &ours, snapshot, now)?,
        MergeStrategy::Ff => Ok(fast_forward(repo, &ours, snapshot, target)?),
    };
    let (tree, parents) = match merged {
        Ok(merged) => merged,
        Err(conflicts) => return Ok(PreparedMerge::Conflicts(conflicts)),
    };
    let tree = without_g3s_own(repo, tree, &ours.tree().or_fail(cannot)?)?;
    if tree == ours.tree_id() {
        return Ok(PreparedMerge::Nothing);
    }
    let makes_commit = match strategy {
        MergeStrategy::Squash | MergeStrategy::Merge => true,
        MergeStrategy::Rebase | MergeStrategy::Ff => {
            let last = repo.find_commit(parents[0]).or_fail(cannot)?;
            last.tree_id() != tree
        }
    };
    let parents: Vec<String> = parents.iter().map(git2::Oid::to_string).collect();
    let mut candidate = Candidate {
        target: target.clone(),
        target_tip,
        strategy,
        merged: String::new(),
        tree: tree.to_string(),
        head: snapshot.head.clone(),
        work: snapshot.work.clone(),
        parents,
        needs_message: makes_commit,
        kept: None,
    };
    candidate.merged = make(&scratch, &candidate, "Merged work of a studio session\n", now)?;
    let wanted = [candidate.merged.clone()];
    let had = [&candidate.target_tip, &candidate.head, &candidate.work].map(String::clone);
    let from = [scratch.objects()];
    candidate.kept = Some(object_quarantine::bring(repository, &from, &wanted, &had, &place.id)?);
    step("merge.held");
    Ok(PreparedMerge::Ready(Box::new(candidate)))
}

/// Creates the commit to land, and its receipt.
pub fn commit(
    repository: &Repository,
    place: &SessionRepo,
    candidate: &Candidate,
    message: &CommitMessage,
    receipt: Option<&str>,
    now: jiff::Timestamp,
) -> Result<LandingCommit> {
    if !candidate.needs_message {
        return Ok(LandingCommit { commit: candidate.parents[0].clone(), note: None, kept: None });
    }
    let scratch = Quarantine::open(repository)?;
    let commit = make(&scratch, candidate, &message.full()?, now)?;
    let mut wanted = vec![commit.clone()];
    let mut had = vec![candidate.merged.clone(), candidate.work.clone()];
    let mut note = None;
    if let Some(text) = receipt {
        let made = receipt::note(&repository.open()?, &scratch, &commit, text)?;
        wanted.extend(made.after.clone());
        had.extend(made.before.clone());
        note = Some(made);
    }
    let kept =
        object_quarantine::bring(repository, &[scratch.objects()], &wanted, &had, &place.id)?;
    step("merge.committed");
    Ok(LandingCommit { commit, note, kept: Some(kept) })
}

/// Deletes the ref of an earlier version.
pub fn release(repository: &Repository, place: &SessionRepo) -> Result<()> {
    let name = ref_name(place);
    let held = refs::read(&repository.open()?, &name)?;
    refs::update_own(repository, &[RefChange::new(name, held, None)], "studio: not landed")
}

impl CommitMessage {
    /// Returns text and trailers as git stores them.
    fn full(&self) -> Result<String> {
        let text = self.text.replace('\0', "");
        let mut full = git2::message_prettify(text, None).or_fail(|| "cannot use the message")?;
        if full.trim().is_empty() {
            return Err(Failure::usage("the commit message is empty")
                .hint("studio accept -m 'what the commit does'"));
        }
        if !self.trailers.is_empty() {
            full.push('\n');
        }
        for (key, value) in &self.trailers {
            let value = value.split_whitespace().collect::<Vec<_>>().join(" ");
            full.push_str(&format!("{key}: {value}\n"));
        }
        Ok(full)
    }
}

/// Merges all of the work at once with the target.
fn whole(
    repo: &git2::Repository,
    ours: &git2::Commit<'_>,
    snapshot: &Snapshot,
) -> Result<std::result::Result<git2::Oid, Vec<Conflict>>> {
    let work = repo.find_commit(refs::oid(&snapshot.work)?).or_fail(cannot)?;
    let mut index = repo.merge_commits(ours, &work, None).or_fail(cannot)?;
    let conflicts = conflict::settle(repo, &mut index)?;
    if !conflicts.is_empty() {
        return Ok(Err(conflicts));
    }
    index.write_tree_to(repo).map(Ok).or_fail(cannot)
}

/// Creates the second parent of a merge commit: the agent's commits and its uncommitted changes.
fn side(
    repo: &git2::Repository,
    place: &SessionRepo,
    snapshot: &Snapshot,
    now: jiff::Timestamp,
) -> Result<git2::Oid> {
    if !snapshot.is_dirty() {
        return refs::oid(&snapshot.head);
    }
    let make = || -> std::result::Result<git2::Oid, git2::Error> {
        let head = repo.find_commit(git2::Oid::from_str(&snapshot.head)?)?;
        let work = repo.find_commit(git2::Oid::from_str(&snapshot.work)?)?;
        let who = crate::repo::signature(repo, now)?;
        let message = format!("Uncommitted work of {}\n", place.id);
        repo.commit(None, &who, &who, &message, &work.tree()?, &[&head])
    };
    make().or_fail(cannot)
}

fn fast_forward(
    repo: &git2::Repository,
    ours: &git2::Commit<'_>,
    snapshot: &Snapshot,
    target: &BranchName,
) -> Result<(git2::Oid, Vec<git2::Oid>)> {
    let head = refs::oid(&snapshot.head)?;
    let fits = head == ours.id() || repo.graph_descendant_of(head, ours.id()).or_fail(cannot)?;
    if !fits {
        return Err(Failure::refused(format!("`{target}` cannot be fast-forwarded"))
            .because("it has commits that the session does not have")
            .hint("studio accept --strategy squash")
            .hint("studio accept --strategy rebase"));
    }
    let work = repo.find_commit(refs::oid(&snapshot.work)?).or_fail(cannot)?;
    Ok((work.tree_id(), vec![head]))
}

fn make(
    scratch: &Quarantine,
    candidate: &Candidate,
    message: &str,
    now: jiff::Timestamp,
) -> Result<String> {
    let repo = &scratch.repo;
    let make = || -> std::result::Result<git2::Oid, git2::Error> {
        let tree = repo.find_tree(git2::Oid::from_str(&candidate.tree)?)?;
        let who = crate::repo::signature(repo, now)?;
        let commits = candidate
            .parents
            .iter()
            .map(|id| repo.find_commit(git2::Oid::from_str(id)?))
            .collect::<std::result::Result<Vec<_>, _>>()?;
        let parents: Vec<&git2::Commit<'_>> = commits.iter().collect();
        repo.commit(None, &who, &who, message, &tree, &parents)
    };
    make().map(|id| id.to_string()).or_fail(|| "cannot make the commit")
}

fn cannot() -> &'static str {
    "cannot merge the session's work with its target"
}

/// Returns the tree with `.g3` replaced by the target's version, except for project skills
/// (`.g3/skills`): working files that an agent commits do not land.
fn without_g3s_own(
    repo: &git2::Repository,
    merged: git2::Oid,
    target: &git2::Tree<'_>,
) -> Result<git2::Oid> {
    let make = || -> std::result::Result<git2::Oid, git2::Error> {
        let merged_tree = repo.find_tree(merged)?;
        let found = merged_tree.get_name(".g3").map(|entry| entry.id());
        let theirs = target.get_name(".g3").map(|entry| entry.id());
        if found == theirs {
            return Ok(merged);
        }
        let skills = match found.and_then(|id| repo.find_tree(id).ok()) {
            Some(tree) => tree.get_name("skills").map(|entry| (entry.id(), entry.filemode())),
            None => None,
        };
        let base = theirs.and_then(|id| repo.find_tree(id).ok());
        let mut inner = repo.treebuilder(base.as_ref())?;
        match skills {
            Some((id, mode)) => drop(inner.insert("skills", id, mode)?),
            None if inner.get("skills")?.is_some() => inner.remove("skills")?,
            None => {}
        }
        let mut outer = repo.treebuilder(Some(&merged_tree))?;
        if inner.is_empty() {
            if outer.get(".g3")?.is_some() {
                outer.remove(".g3")?;
            }
        } else {
            outer.insert(".g3", inner.write()?, 0o040_000)?;
        }
        outer.write()
    };
    make().or_fail(|| "cannot take g3's working files out of the merged tree")
}
