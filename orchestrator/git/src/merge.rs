//! Merges a session's work in memory with the current tip of its target, and commits the result. No
//! visible ref moves.

use std::path::Path;

use base::failure::{Failure, OrFail, Result};
use base::files::step;
use serde::{Deserialize, Serialize};

use crate::checkout::FileEntry;
use crate::checkout_update::index_entry;
use crate::conflict::{self, Conflict};
use crate::names::BranchName;
use crate::object_quarantine::{self, KeepFiles, Quarantine};
use crate::refs::{self, RefChange};
use crate::repo::Repository;
use crate::session_repo::SessionRepo;
use crate::signing::{self, CommitSigner, NewCommit};
use crate::snapshot::Snapshot;
use crate::{object_format, partial_clone, rebase, receipt, syntax_conflicts, tree_limits};

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

/// How work is merged and lands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MergeMethod {
    /// The strategy.
    pub strategy: MergeStrategy,
    /// Whether files that conflict are merged by syntax, if that resolves all conflicts.
    pub by_syntax: bool,
}

impl From<MergeStrategy> for MergeMethod {
    fn from(strategy: MergeStrategy) -> MergeMethod {
        MergeMethod { strategy, by_syntax: false }
    }
}

impl MergeStrategy {
    /// Returns whether conflicts can be merged by syntax: the commits of the others land as they are,
    /// or one by one, without checks of each.
    pub fn merges_by_syntax(self) -> bool {
        match self {
            MergeStrategy::Squash | MergeStrategy::Merge => true,
            MergeStrategy::Rebase | MergeStrategy::Ff => false,
        }
    }
}

/// What happens to files that conflict and that a merge by syntax resolves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SyntaxMergeUse {
    /// They conflict.
    None,
    /// They conflict, and are marked.
    Mark,
    /// They are merged, if all conflicts are resolved.
    Merge,
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
    pub merged_commit: String,
    /// The merged tree.
    pub tree: String,
    /// The agent's head.
    pub head: String,
    /// The commit with all of the work.
    pub work: String,
    /// The files that were merged by syntax.
    pub merged_by_syntax: Vec<String>,
    /// The parents of the new commit; without a message, the first one lands.
    pub parents: Vec<String>,
    /// Whether a new commit is made, which needs a message.
    pub needs_message: bool,
    /// Protects its objects in the repository from `git gc` while this value exists.
    pub keep_files: Option<KeepFiles>,
}

/// The commit to land.
#[derive(Debug)]
pub struct LandingCommit {
    /// Its id.
    pub commit: String,
    /// The change of the receipts' ref, if the receipt was created together with the commit.
    pub note: Option<RefChange>,
    /// See [`Candidate::keep_files`].
    pub keep_files: Option<KeepFiles>,
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
pub fn ref_name(session_repo: &SessionRepo) -> String {
    format!("refs/studio/landing/{}", session_repo.id)
}

/// Merges a session's work with the current tip of the target. Fails with exit code 5 if the branch
/// does not exist, and 3 if the strategy is impossible.
pub fn prepare(
    repository: &Repository,
    session_repo: &SessionRepo,
    snapshot: &Snapshot,
    target: &BranchName,
    strategy: MergeStrategy,
    now: jiff::Timestamp,
) -> Result<PreparedMerge> {
    prepare_from(repository, session_repo, snapshot, target, strategy.into(), None, now)
}

/// Like [`prepare`], with this commit as the merge base: hunks of the session landed before, or the
/// session on which it is based.
pub fn prepare_from(
    repository: &Repository,
    session_repo: &SessionRepo,
    snapshot: &Snapshot,
    target: &BranchName,
    method: MergeMethod,
    base: Option<&str>,
    now: jiff::Timestamp,
) -> Result<PreparedMerge> {
    let tip = tip_of(repository, target)?;
    let onto = MergeTarget { branch: target, tip: &tip };
    prepare_onto(repository, session_repo, snapshot, onto, method, base, now)
}

/// Returns the current tip of a target; fails (5) if the branch does not exist.
pub fn tip_of(repository: &Repository, target: &BranchName) -> Result<String> {
    repository.tip(target)?.ok_or_else(|| {
        Failure::not_found(format!("no such branch: `{target}`")).hint("git branch --list")
    })
}

/// The commit that work is merged with.
#[derive(Clone, Copy, Debug)]
pub struct MergeTarget<'a> {
    /// The target branch.
    pub branch: &'a BranchName,
    /// Its tip, or a commit that it may get: the merged work of other sessions.
    pub tip: &'a str,
}

/// Like [`prepare_from`], with this commit instead of the current tip of the target.
pub fn prepare_onto(
    repository: &Repository,
    session_repo: &SessionRepo,
    snapshot: &Snapshot,
    onto: MergeTarget<'_>,
    method: MergeMethod,
    base: Option<&str>,
    now: jiff::Timestamp,
) -> Result<PreparedMerge> {
    let (target, target_tip) = (onto.branch, onto.tip.to_owned());
    let strategy = method.strategy;
    let scratch = Quarantine::open(repository)?;
    let repo = &scratch.repo;
    let target_commit = repo.find_commit(refs::oid(&target_tip)?).or_fail(cannot)?;
    let target_tree = target_commit.tree().or_fail(cannot)?;
    tree_limits::refuse(repo, &[&snapshot.head, &snapshot.work], &target_tree)?;
    partial_clone::fetch_merge(repository, repo, (&target_tip, &snapshot.work), base)?;
    let syntax = if method.by_syntax { SyntaxMergeUse::Merge } else { SyntaxMergeUse::Mark };
    let merge_work = || merge_all(repo, &target_commit, &snapshot.work, base, syntax);
    let (merged, parents) = match strategy {
        MergeStrategy::Squash => (merge_work()?, vec![target_commit.id()]),
        MergeStrategy::Merge => {
            let merged = merge_work()?;
            let parent = match &merged {
                Ok(_) => Some(session_parent(repo, session_repo, snapshot, now)?),
                Err(_) => None,
            };
            (merged, std::iter::once(target_commit.id()).chain(parent).collect())
        }
        MergeStrategy::Rebase => match rebase::replay(repo, &target_commit, snapshot, base, now)? {
            Ok((tree, parents)) => (Ok(MergedTree::by_lines(tree)), parents),
            Err(conflicts) => (Err(conflicts), Vec::new()),
        },
        MergeStrategy::Ff => {
            let (tree, parents) = fast_forward(repo, &target_commit, snapshot, target)?;
            (Ok(MergedTree::by_lines(tree)), parents)
        }
    };
    let MergedTree { tree, by_syntax } = match merged {
        Ok(merged) => merged,
        Err(conflicts) => return Ok(PreparedMerge::Conflicts(conflicts)),
    };
    let tree = restore_g3_directory(repo, tree, &target_commit.tree().or_fail(cannot)?)?;
    if tree == target_commit.tree_id() {
        return Ok(PreparedMerge::Nothing);
    }
    let makes_commit = match strategy {
        MergeStrategy::Squash | MergeStrategy::Merge => true,
        MergeStrategy::Rebase | MergeStrategy::Ff => {
            let tip_commit = repo.find_commit(parents[0]).or_fail(cannot)?;
            tip_commit.tree_id() != tree
        }
    };
    let parents: Vec<String> = parents.iter().map(git2::Oid::to_string).collect();
    let mut candidate = Candidate {
        target: target.clone(),
        target_tip,
        strategy,
        merged_commit: String::new(),
        tree: tree.to_string(),
        head: snapshot.head.clone(),
        work: snapshot.work.clone(),
        merged_by_syntax: by_syntax,
        parents,
        needs_message: makes_commit,
        keep_files: None,
    };
    let message = "Merged work of a studio session\n";
    candidate.merged_commit =
        write_commit(&scratch, &candidate.tree, &candidate.parents, message, None, now)?;
    let (commits, id) = ([candidate.merged_commit.clone()], &session_repo.id);
    let existing = [&candidate.target_tip, &candidate.head, &candidate.work].map(String::clone);
    let work_tree = repo.find_commit(refs::oid(&candidate.work)?).or_fail(cannot)?.tree_id();
    let keep_files = match strategy == MergeStrategy::Squash && tree == work_tree {
        true => object_quarantine::import_created(repository, &scratch, &commits, &existing, id)?,
        // The merge may have made objects that exist already, which no ref keeps.
        false => {
            let object_dirs = [scratch.objects()];
            object_quarantine::import_objects(repository, &object_dirs, &commits, &existing, id)?
        }
    };
    candidate.keep_files = Some(keep_files);
    step("merge.held");
    Ok(PreparedMerge::Ready(Box::new(candidate)))
}

/// Merges commits of a session with a commit of the user in memory, as a landing would, without
/// committing the result. Both must be visible in the quarantine. `base` is the merge base if hunks
/// of the session landed before.
pub(crate) fn merge_tree(
    scratch: &Quarantine,
    target: &str,
    head: &str,
    work: &str,
    base: Option<&str>,
) -> Result<std::result::Result<git2::Oid, Vec<Conflict>>> {
    let repo = &scratch.repo;
    let target_commit = repo.find_commit(refs::oid(target)?).or_fail(cannot)?;
    let target_tree = target_commit.tree().or_fail(cannot)?;
    tree_limits::refuse(repo, &[head, work], &target_tree)?;
    match merge_all(repo, &target_commit, work, base, SyntaxMergeUse::None)? {
        Ok(merged) => restore_g3_directory(repo, merged.tree, &target_tree).map(Ok),
        Err(conflicts) => Ok(Err(conflicts)),
    }
}

/// Makes the attributes of a tree apply to merges.
pub(crate) fn set_attributes(repo: &git2::Repository, tree: &git2::Tree<'_>) -> Result<()> {
    let mut attributes = git2::Index::new_ext(repo.object_format()).or_fail(cannot)?;
    let mut files = Vec::new();
    let walked = tree.walk(git2::TreeWalkMode::PreOrder, |directory, entry| {
        if entry.name_bytes() == b".gitattributes" && entry.kind() == Some(git2::ObjectType::Blob) {
            let path = Path::new(directory).join(".gitattributes");
            files.push((path, entry.id(), entry.filemode()));
        }
        git2::TreeWalkResult::Ok
    });
    walked.or_fail(cannot)?;
    for (path, id, mode) in files {
        let mode = u32::try_from(mode).or_fail(cannot)?;
        let entry = index_entry(&path, FileEntry { id, mode }, None);
        attributes.add(&entry).or_fail(cannot)?;
    }
    repo.set_index(&mut attributes).or_fail(cannot)
}

/// Creates the commit to land, and its receipt. A signer signs every commit that studio makes.
pub fn commit(
    repository: &Repository,
    session_repo: &SessionRepo,
    candidate: &Candidate,
    message: &CommitMessage,
    receipt: Option<&str>,
    signer: Option<&CommitSigner>,
    now: jiff::Timestamp,
) -> Result<LandingCommit> {
    let scratch = Quarantine::open(repository)?;
    let parents = match signer {
        Some(signer) => signing::sign_parents(&scratch.repo, candidate, signer)?,
        None => candidate.parents.clone(),
    };
    if !candidate.needs_message && parents == candidate.parents {
        return Ok(LandingCommit { commit: parents[0].clone(), note: None, keep_files: None });
    }
    let commit = match candidate.needs_message {
        true => write_commit(&scratch, &candidate.tree, &parents, &message.format()?, signer, now)?,
        false => parents[0].clone(),
    };
    let mut commits = vec![commit.clone()];
    let mut existing = vec![candidate.merged_commit.clone(), candidate.work.clone()];
    let mut note = None;
    if let Some(text) = receipt {
        let note_change = receipt::create_note(&*repository.open()?, &scratch, &commit, text)?;
        commits.extend(note_change.after.clone());
        existing.extend(note_change.before.clone());
        note = Some(note_change);
    }
    let id = &session_repo.id;
    let keep_files =
        object_quarantine::import_created(repository, &scratch, &commits, &existing, id)?;
    step("merge.committed");
    Ok(LandingCommit { commit, note, keep_files: Some(keep_files) })
}

/// Deletes the ref of an earlier version.
pub fn release(repository: &Repository, session_repo: &SessionRepo) -> Result<()> {
    let name = ref_name(session_repo);
    let current = refs::read(&*repository.open()?, &name)?;
    refs::update_or_fail(repository, &[RefChange::new(name, current, None)], "studio: not landed")
}

impl CommitMessage {
    /// Returns text and trailers as git stores them. Fails (2) if the text is empty.
    pub fn format(&self) -> Result<String> {
        let text = self.text.replace('\0', "");
        let mut formatted =
            git2::message_prettify(text, None).or_fail(|| "cannot use the message")?;
        if formatted.trim().is_empty() {
            return Err(Failure::usage("the commit message is empty")
                .hint("studio accept -m 'what the commit does'"));
        }
        if !self.trailers.is_empty() {
            formatted.push('\n');
        }
        for (key, value) in &self.trailers {
            let value = value.split_whitespace().collect::<Vec<_>>().join(" ");
            formatted.push_str(&format!("{key}: {value}\n"));
        }
        Ok(formatted)
    }
}

/// Merges two commits in memory, with this commit as the merge base if one is given.
pub fn merge_with_base(
    repo: &git2::Repository,
    ours: &git2::Commit<'_>,
    theirs: &git2::Commit<'_>,
    base: Option<&str>,
) -> Result<git2::Index> {
    let Some(base) = base else { return repo.merge_commits(ours, theirs, None).or_fail(cannot) };
    let base = repo.find_commit(refs::oid(base)?).or_fail(cannot)?;
    let merge = || repo.merge_trees(&base.tree()?, &ours.tree()?, &theirs.tree()?, None);
    merge().or_fail(cannot)
}

/// A merged tree.
struct MergedTree {
    tree: git2::Oid,
    /// The files that were merged by syntax.
    by_syntax: Vec<String>,
}

impl MergedTree {
    fn by_lines(tree: git2::Oid) -> MergedTree {
        MergedTree { tree, by_syntax: Vec::new() }
    }
}

/// Merges all of the work at once with the target.
fn merge_all(
    repo: &git2::Repository,
    target: &git2::Commit<'_>,
    work: &str,
    base: Option<&str>,
    syntax: SyntaxMergeUse,
) -> Result<std::result::Result<MergedTree, Vec<Conflict>>> {
    let work = repo.find_commit(refs::oid(work)?).or_fail(cannot)?;
    if is_unchanged_since_base(repo, target, &work, base)? {
        return Ok(Ok(MergedTree::by_lines(work.tree_id())));
    }
    set_attributes(repo, &target.tree().or_fail(cannot)?)?;
    let mut index = merge_with_base(repo, target, &work, base)?;
    let mut conflicts = conflict::resolve(repo, &mut index)?;
    let mut by_syntax = Vec::new();
    if !conflicts.is_empty() && syntax != SyntaxMergeUse::None {
        let merges = syntax_conflicts::find(repo, &index, &mut conflicts)?;
        let is_resolved = conflicts.iter().all(|conflict| conflict.merges_by_syntax);
        if syntax == SyntaxMergeUse::Merge && is_resolved {
            by_syntax = syntax_conflicts::apply(repo, &mut index, merges)?;
            conflicts.clear();
        }
    }
    if !conflicts.is_empty() {
        return Ok(Err(conflicts));
    }
    let tree = index.write_tree_to(repo).or_fail(cannot)?;
    Ok(Ok(MergedTree { tree, by_syntax }))
}

/// Returns whether the target has no changes since the merge base, so that the merge is the work
/// itself.
fn is_unchanged_since_base(
    repo: &git2::Repository,
    target: &git2::Commit<'_>,
    work: &git2::Commit<'_>,
    base: Option<&str>,
) -> Result<bool> {
    match base {
        Some(base) => {
            let base = repo.find_commit(refs::oid(base)?).or_fail(cannot)?;
            Ok(base.tree_id() == target.tree_id())
        }
        None => Ok(repo.merge_base(target.id(), work.id()).is_ok_and(|base| base == target.id())),
    }
}

/// Creates the second parent of a merge commit: the agent's commits and its uncommitted changes.
fn session_parent(
    repo: &git2::Repository,
    session_repo: &SessionRepo,
    snapshot: &Snapshot,
    now: jiff::Timestamp,
) -> Result<git2::Oid> {
    if !snapshot.is_dirty() {
        return refs::oid(&snapshot.head);
    }
    let create_commit = || -> std::result::Result<git2::Oid, git2::Error> {
        let head = repo.find_commit(object_format::parse_id(&snapshot.head)?)?;
        let work = repo.find_commit(object_format::parse_id(&snapshot.work)?)?;
        let signature = crate::repo::signature(repo, now)?;
        let message = format!("Uncommitted work of {}\n", session_repo.id);
        repo.commit(None, &signature, &signature, &message, &work.tree()?, &[&head])
    };
    create_commit().or_fail(cannot)
}

fn fast_forward(
    repo: &git2::Repository,
    target_commit: &git2::Commit<'_>,
    snapshot: &Snapshot,
    target: &BranchName,
) -> Result<(git2::Oid, Vec<git2::Oid>)> {
    let head = refs::oid(&snapshot.head)?;
    let is_descendant = head == target_commit.id()
        || repo.graph_descendant_of(head, target_commit.id()).or_fail(cannot)?;
    if !is_descendant {
        return Err(Failure::refused(format!("`{target}` cannot be fast-forwarded"))
            .because("it has commits that the session does not have")
            .hint("studio accept --strategy squash")
            .hint("studio accept --strategy rebase"));
    }
    let work = repo.find_commit(refs::oid(&snapshot.work)?).or_fail(cannot)?;
    Ok((work.tree_id(), vec![head]))
}

fn write_commit(
    scratch: &Quarantine,
    tree: &str,
    parents: &[String],
    message: &str,
    signer: Option<&CommitSigner>,
    now: jiff::Timestamp,
) -> Result<String> {
    let repo = &scratch.repo;
    let fail = || "cannot make the commit";
    let parents = parents
        .iter()
        .map(|id| repo.find_commit(refs::oid(id)?).or_fail(fail))
        .collect::<Result<Vec<_>>>()?;
    let author = crate::repo::signature(repo, now).or_fail(fail)?;
    let commit = NewCommit {
        committer: author.clone(),
        author,
        message,
        tree: repo.find_tree(refs::oid(tree)?).or_fail(fail)?,
        parents: parents.iter().collect(),
    };
    signing::create_commit(repo, &commit, signer).map(|id| id.to_string())
}

fn cannot() -> &'static str {
    "cannot merge the session's work with its target"
}

/// Returns the tree with `.g3` replaced by the target's version, except for project skills
/// (`.g3/skills`): working files that an agent commits do not land.
fn restore_g3_directory(
    repo: &git2::Repository,
    merged: git2::Oid,
    target: &git2::Tree<'_>,
) -> Result<git2::Oid> {
    let build_tree = || -> std::result::Result<git2::Oid, git2::Error> {
        let merged_tree = repo.find_tree(merged)?;
        let merged_entry = merged_tree.get_name(".g3").map(|entry| entry.id());
        let target_entry = target.get_name(".g3").map(|entry| entry.id());
        if merged_entry == target_entry {
            return Ok(merged);
        }
        let skills = match merged_entry.and_then(|id| repo.find_tree(id).ok()) {
            Some(tree) => tree.get_name("skills").map(|entry| (entry.id(), entry.filemode())),
            None => None,
        };
        let base = target_entry.and_then(|id| repo.find_tree(id).ok());
        let mut g3_builder = repo.treebuilder(base.as_ref())?;
        match skills {
            Some((id, mode)) => drop(g3_builder.insert("skills", id, mode)?),
            None if g3_builder.get("skills")?.is_some() => g3_builder.remove("skills")?,
            None => {}
        }
        let mut root_builder = repo.treebuilder(Some(&merged_tree))?;
        if g3_builder.is_empty() {
            if root_builder.get(".g3")?.is_some() {
                root_builder.remove(".g3")?;
            }
        } else {
            root_builder.insert(".g3", g3_builder.write()?, 0o040_000)?;
        }
        root_builder.write()
    };
    build_tree().or_fail(|| "cannot take g3's working files out of the merged tree")
}
