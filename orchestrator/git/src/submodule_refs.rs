//! Deletes the refs that keep the commits of sessions in the user's submodules
//! (`refs/studio/work/ID/COMMIT`), when a session is gone and nothing needs the commit.

use std::collections::{BTreeMap, BTreeSet};

use base::failure::{OrFail, Result};
use base::id::Id;

use crate::keepalive_refs;
use crate::object_format;
use crate::oplog::OperationLog;
use crate::refs::{self, RefChange};
use crate::repo::Repository;
use crate::session_repo::SessionRepo;
use crate::submodules::{self, Submodule};

/// The prefixes of the user's own refs.
const USER_REFS: [&str; 3] = ["refs/heads/", "refs/remotes/", "refs/tags/"];

/// Deletes the refs of the sessions whose data `studio gc` has deleted. Those of commits that landed
/// remain until a branch, remote branch or tag of the submodule has them: the user may not have
/// pushed them yet.
pub(crate) fn delete_of_gone_sessions(repository: &Repository, log: &OperationLog) -> Result<()> {
    let repo = repository.open()?;
    let sessions = log.intents().flat_map(|intent| &intent.sessions);
    let sessions: BTreeMap<&Id, &SessionRepo> = sessions.map(|it| (&it.id, it)).collect();
    for (id, session_repo) in sessions {
        // The pins are deleted with the trash.
        let has_pins = refs::read(&repo, &keepalive_refs::ref_name(id))?.is_some();
        if has_pins || session_repo.git_dir.symlink_metadata().is_ok() {
            continue;
        }
        let all = submodules::recorded(session_repo);
        for submodule in &all {
            let parent = all.iter().find(|it| Some(&it.path) == submodule.parent.as_ref());
            delete_unneeded(repository, session_repo, submodule, parent)?;
        }
    }
    Ok(())
}

/// Deletes the refs of a session in one submodule. `parent` is the submodule that contains it.
fn delete_unneeded(
    repository: &Repository,
    session_repo: &SessionRepo,
    submodule: &Submodule,
    parent: Option<&Submodule>,
) -> Result<()> {
    let Some(user) = submodule.of_user(repository) else { return Ok(()) };
    let module = submodules::repository_at(&user);
    let repo = module.open()?;
    let kept = refs::list(&repo, &submodules::work_ref_prefix(&session_repo.id))?;
    if kept.is_empty() {
        return Ok(());
    }
    let (container, since) = match parent {
        None => (repository.open()?, &session_repo.base),
        Some(parent) => match parent.of_user(repository) {
            Some(directory) => (submodules::repository_at(&directory).open()?, &parent.commit),
            None => return Ok(()),
        },
    };
    let recorded = gitlinks_since(&container, since)?;
    let mut changes = Vec::new();
    for (name, commit) in kept {
        if !recorded.contains(&refs::oid(&commit)?) || is_in_user_refs(&repo, &commit)? {
            changes.push(RefChange::new(name, Some(commit), None));
        }
    }
    base::files::step("gc.submodule");
    refs::update_or_fail(&module, &changes, "studio: gc")
}

/// Returns the commits of submodules that the commits of all refs, and of HEAD, introduced since a
/// commit.
fn gitlinks_since(repo: &git2::Repository, since: &str) -> Result<BTreeSet<git2::Oid>> {
    let mut tips = Vec::new();
    for id in refs::list(repo, "refs/")?.values() {
        tips.push(refs::oid(id)?);
    }
    // HEAD may have no commit yet.
    tips.extend(refs::head(repo)?.id);
    gitlinks_of(repo, &tips, since).or_fail(cannot)
}

fn gitlinks_of(
    repo: &git2::Repository,
    tips: &[git2::Oid],
    since: &str,
) -> std::result::Result<BTreeSet<git2::Oid>, git2::Error> {
    let mut walk = repo.revwalk()?;
    for tip in tips {
        // Tags may lead to other objects.
        if let Ok(commit) = repo.find_object(*tip, None)?.peel_to_commit() {
            walk.push(commit.id())?;
        }
    }
    // The base may be gone.
    let _ = object_format::parse_id(since).and_then(|since| walk.hide(since));
    let mut gitlinks = BTreeSet::new();
    for id in walk {
        let commit = repo.find_commit(id?)?;
        let tree = commit.tree()?;
        let mut parents: Vec<Option<git2::Tree<'_>>> = Vec::new();
        for parent in commit.parents() {
            parents.push(Some(parent.tree()?));
        }
        if parents.is_empty() {
            parents.push(None);
        }
        for parent in parents {
            let diff = repo.diff_tree_to_tree(parent.as_ref(), Some(&tree), None)?;
            let files = diff.deltas().map(|delta| delta.new_file());
            let links = files.filter(|file| file.mode() == git2::FileMode::Commit);
            gitlinks.extend(links.map(|file| file.id()));
        }
    }
    Ok(gitlinks)
}

/// Returns whether a branch, remote branch or tag of the user has a commit.
fn is_in_user_refs(repo: &git2::Repository, commit: &str) -> Result<bool> {
    let commit = refs::oid(commit)?;
    for prefix in USER_REFS {
        for target in refs::list(repo, prefix)?.values() {
            let tip = repo.find_object(refs::oid(target)?, None);
            let Ok(tip) = tip.and_then(|it| it.peel_to_commit()) else { continue };
            let has_commit = repo.graph_descendant_of(tip.id(), commit).or_fail(cannot)?;
            if tip.id() == commit || has_commit {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

fn cannot() -> &'static str {
    "cannot tell which commits of a submodule are needed"
}
