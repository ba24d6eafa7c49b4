//! The rejection of work that conflicts with its target.

use base::failure::Failure;

use crate::landing::{ConflictingFiles, Rejection};
use crate::project::Project;
use crate::session_view::SessionView;
use studio_git::conflict::Conflict;
use studio_git::names::BranchName;

/// Returns the rejection of a session that conflicts with its target.
pub(crate) fn rejection(
    project: &Project,
    view: &SessionView,
    target: &BranchName,
    conflicts: &[Conflict],
) -> Rejection {
    let merges_by_syntax = conflicts.iter().all(|conflict| conflict.merges_by_syntax);
    let paths: Vec<String> = conflicts.iter().map(|conflict| conflict.path.clone()).collect();
    let id = &view.record.id;
    let hunks: Vec<String> = conflicts
        .iter()
        .map(|conflict| format!("{}\n{}", conflict.path, conflict.hunks.trim_end()))
        .collect();
    let hunks = base::text::printable(&hunks.join("\n"));
    let failure = Failure::conflict(format!("conflict with `{target}` in {}", paths.join(", ")));
    let failure = match merges_by_syntax {
        true => failure.hint(format!(
            "studio accept {id} --merge-by-syntax    keeps what both sides added, if the checks pass"
        )),
        false => failure,
    };
    let failure = failure
        .because(hunks.as_str())
        .hint(format!("studio accept {id} --resolve    lets the agent resolve it"));
    let tip = project.repository.tip(target).ok().flatten();
    let agent_prompt = tip.map(|tip| conflict_prompt(target, &tip, &hunks).into());
    let files = Box::new(ConflictingFiles { paths, merges_by_syntax });
    Rejection { files, agent_prompt, ..Rejection::from(failure) }
}

/// Returns the prompt for the agent to solve a conflict. It names the tip by its id, because the
/// session's own copy of the target branch is as old as the session.
fn conflict_prompt(target: &BranchName, tip: &str, hunks: &str) -> String {
    format!(
        "Your work conflicts with the branch `{target}`, which has moved to commit {tip}. Commit \
         what you have, run `git merge {tip}`, solve the conflicts so that both sides' intent is \
         kept, run the tests, and commit the merge.\n\nThe conflicts:\n{hunks}"
    )
}
