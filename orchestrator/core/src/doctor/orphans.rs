//! Orphans: worktrees and branches of sessions whose record is gone. They may contain work, so they
//! are only discarded if the user wants that, by an operation that can be undone.

use base::failure::Result;
use studio_git::discard;
use studio_git::names::{BranchTemplate, WorktreeTemplate};
use studio_git::orphan::{self, Orphan};
use studio_git::session_repo::SessionRepo;

use crate::doctor::Findings;
use crate::project::Project;

/// Reports orphans, or discards them.
pub(super) fn check(project: &Project, wants_discard: bool, findings: &mut Findings) -> Result<()> {
    let branches = BranchTemplate::parse(&project.config.studio.branch)?;
    let worktrees = WorktreeTemplate::parse(&project.config.studio.worktree)?;
    let repository = &project.repository;
    let ids = project.store.ids()?;
    let is_known = |id: &base::id::Id| ids.binary_search(id).is_ok();
    let orphans = orphan::find(repository, &branches, &worktrees, is_known)?;
    if wants_discard && !orphans.is_empty() {
        let session_repos: Vec<SessionRepo> =
            orphans.iter().map(|orphan| orphan.session_repo.clone()).collect();
        let operation =
            discard::discard_orphans(repository, &session_repos, &project.clock.stamp())?;
        findings.repaired.extend(orphans.iter().map(|orphan| {
            format!("discarded {}; studio undo {operation} restores it", description(orphan))
        }));
    } else {
        findings.open.extend(orphans.iter().map(|orphan| {
            format!(
                "{} belongs to no session; it is kept: studio doctor --discard-orphans, which can \
                 be undone",
                description(orphan)
            )
        }));
    }
    findings.repaired.extend(orphan::prune_registrations(repository, &worktrees, is_known)?);
    findings.repaired.extend(orphan::remove_starts(repository, is_known)?);
    Ok(())
}

fn description(orphan: &Orphan) -> String {
    let SessionRepo { worktree, branch, .. } = &orphan.session_repo;
    match (orphan.has_worktree, orphan.has_branch) {
        (true, true) => format!("the worktree {} with branch `{branch}`", worktree.display()),
        (true, false) => format!("the worktree {}", worktree.display()),
        (false, _) => format!("the branch `{branch}`"),
    }
}
