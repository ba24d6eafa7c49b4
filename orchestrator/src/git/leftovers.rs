//! What checks leave in a worktree (reports, caches, rewritten files): it is not the agent's work,
//! so it is noted when the checks ended, and not counted, shown or landed.

use base::failure::{OrFail, Result};
use base::files::step;
use base::id::Id;

use crate::git::checkout::{self, Change, Entry};
use crate::git::private::Place;
use crate::git::refs::{self, RefChange};
use crate::git::repo::Repository;
use crate::git::snapshot::{self, Limits, Seen};
use crate::git::{along, import, scratch};

/// The commit with the worktree as the checks left it; its parent is the work as it was before.
fn name(id: &Id) -> String {
    format!("{}checked", snapshot::prefix(id))
}

/// Notes what differs in a worktree from the work as it was before the checks. Their commits, if
/// they made any, count as the session's.
pub fn note(
    repository: &Repository,
    place: &Place,
    before: &str,
    now: jiff::Timestamp,
) -> Result<()> {
    let home = import::bring_home(repository, place)?;
    let repo = repository.open()?;
    let held = refs::read(&repo, &name(&place.id))?;
    let Seen { scratch, tree, .. } =
        snapshot::look(repository, place, &home, &Limits::default(), &[])?;
    let work = scratch.repo.find_commit(refs::oid(before)?).or_fail(cannot)?;
    if tree == work.tree_id() {
        let gone = RefChange::new(name(&place.id), held, None);
        return refs::update_own(repository, &[gone], "studio: the checks left nothing");
    }
    let make = || -> std::result::Result<git2::Oid, git2::Error> {
        let time = git2::Time::new(now.as_second(), 0);
        let who = git2::Signature::new("studio", "studio@studio.invalid", &time)?;
        let tree = scratch.repo.find_tree(tree)?;
        scratch.repo.commit(None, &who, &who, "What checks left\n", &tree, &[&work])
    };
    let commit = make().or_fail(cannot)?.to_string();
    let from = [scratch.objects(), place.git_dir.join("objects")];
    let had = [before.to_owned()];
    let kept = scratch::bring(repository, &from, std::slice::from_ref(&commit), &had, &place.id)?;
    let change = RefChange::new(name(&place.id), held, Some(commit));
    refs::update_own(repository, &[change], "studio: what the checks left")?;
    step("checks.noted");
    kept.release();
    Ok(())
}

/// What the last checks changed, path by path.
pub fn of(repo: &git2::Repository, id: &Id) -> Result<Vec<Change>> {
    let Some(left) = refs::read(repo, &name(id))? else { return Ok(Vec::new()) };
    let commit = repo.find_commit(refs::oid(&left)?).or_fail(cannot)?;
    let before = commit.parent_id(0).or_fail(cannot)?.to_string();
    checkout::changes(repo, &before, &left)
}

/// Those that nobody staged since.
pub fn unstaged<'a>(index: &git2::Index, left: &'a [Change]) -> Vec<&'a Change> {
    left.iter().filter(|change| entry(index, change) != change.after).collect()
}

/// Puts back, in an index with all that a worktree holds, what is still as the checks left it.
pub fn take_out(index: &mut git2::Index, left: &[&Change]) -> Result<()> {
    for change in left {
        if entry(index, change) != change.after {
            continue;
        }
        match change.before {
            None => index.remove_path(&change.path).or_fail(cannot)?,
            Some(before) => {
                index.add(&along::fresh(&change.path, before, None)).or_fail(cannot)?;
            }
        }
    }
    Ok(())
}

fn entry(index: &git2::Index, change: &Change) -> Option<Entry> {
    index.get_path(&change.path, 0).map(|held| Entry { id: held.id, mode: held.mode })
}

fn cannot() -> &'static str {
    "cannot tell what the checks left in the worktree"
}
