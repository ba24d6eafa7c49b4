//! The branch on which a session lands.

use base::failure::{Failure, Result};
use base::id::Id;

use crate::landing::LandingOptions;
use crate::project::Project;
use crate::session::disposition::Dispositions;
use crate::session::record::SessionRecord;
use crate::session::summary::Disposition;
use studio_git::names::BranchName;

/// The branch on which a session lands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LandingTarget {
    /// The branch.
    pub branch: BranchName,
    /// The commit from which its work is merged, if the session started from another session's
    /// branch; the merge base with the target when absent.
    pub base: Option<String>,
}

/// Returns the branch on which a session lands. A session that started from the branch of another
/// session lands after that one, on its target.
pub(crate) fn resolve(
    project: &Project,
    record: &SessionRecord,
    options: &LandingOptions,
) -> Result<LandingTarget> {
    if let Some(onto) = &options.onto {
        let branch = BranchName::parse(onto.trim_start_matches("refs/heads/"))?;
        return Ok(LandingTarget { branch, base: None });
    }
    let Some(branch) = &record.base.branch else {
        return Err(Failure::usage("no branch to land on")
            .because("the session started from a commit, not from a branch")
            .hint(format!("studio accept {} --onto BRANCH", record.id)));
    };
    match parent(project, record)? {
        None => Ok(LandingTarget { branch: branch.clone(), base: None }),
        Some(parent) => {
            let branch = landed_on(project, &*project.dispositions()?, record, &parent)?;
            Ok(LandingTarget { branch, base: Some(record.base.commit.clone()) })
        }
    }
}

/// Returns the session from whose branch another one started.
pub(crate) fn parent(project: &Project, record: &SessionRecord) -> Result<Option<Id>> {
    let Some(branch) = &record.base.branch else { return Ok(None) };
    let has_its_name = |id: &Id| *id != record.id && branch.as_str().contains(id.as_str());
    let mut candidates = project.store.ids()?;
    candidates.retain(has_its_name);
    let is_its_branch =
        |id: &Id| project.store.load(id).is_ok_and(|other| other.session_repo.branch == *branch);
    Ok(candidates.into_iter().find(is_its_branch))
}

/// Returns the branch on which the parent of a session landed.
fn landed_on(
    project: &Project,
    dispositions: &Dispositions,
    record: &SessionRecord,
    parent: &Id,
) -> Result<BranchName> {
    let id = &record.id;
    let refuse =
        |reason: String| Failure::refused(format!("session `{id}` was not landed")).because(reason);
    match dispositions.get(parent) {
        Disposition::Accepted { operation, .. } => {
            if let Some(target) = dispositions.target_of(operation) {
                return Ok(target.clone());
            }
            let parent_record = project.store.load(parent)?;
            Ok(resolve(project, &parent_record, &LandingOptions::default())?.branch)
        }
        Disposition::Open | Disposition::Landing => {
            Err(refuse(format!("it is based on `{parent}`, which has not landed"))
                .hint(format!("studio accept {parent}"))
                .hint("studio accept --all    lands both in order"))
        }
        Disposition::Discarded { operation } => {
            Err(refuse(format!("it is based on `{parent}`, which was discarded"))
                .hint(format!("studio undo {operation}"))
                .hint(format!("or land all of it: studio accept {id} --onto BRANCH")))
        }
    }
}
