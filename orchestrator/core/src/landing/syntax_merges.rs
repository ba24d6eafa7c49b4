//! Landings whose conflicts were merged by syntax: only checks can tell whether the result is right.

use base::failure::{Failure, Result};
use base::id::Id;

use crate::landing::{LandingOptions, merge_checks};
use crate::project::Project;
use crate::session::record::SessionRecord;
use studio_git::merge::{Candidate, MergeMethod};

/// Returns how work is merged. By configuration, conflicts are merged by syntax only if checks can
/// confirm it.
pub(crate) fn method(
    project: &Project,
    record: &SessionRecord,
    options: &LandingOptions,
) -> MergeMethod {
    let strategy = options.strategy;
    let is_configured =
        project.config.studio.merge_by_syntax && missing_checks(project, record, options).is_none();
    let by_syntax = strategy.merges_by_syntax() && (options.merge_by_syntax || is_configured);
    MergeMethod { strategy, by_syntax }
}

/// Refuses (2) a merge by syntax with a strategy that lands commits without checks of each.
pub fn refuse_strategy(options: &LandingOptions) -> Result<()> {
    if !options.merge_by_syntax || options.strategy.merges_by_syntax() {
        return Ok(());
    }
    Err(Failure::usage("--merge-by-syntax requires --strategy squash or merge")
        .because("the other strategies land commits of the agent, and checks run on the last one"))
}

/// Refuses (3) files that were merged by syntax if no check will confirm them.
pub(crate) fn require_checks(
    project: &Project,
    record: &SessionRecord,
    candidate: &Candidate,
    options: &LandingOptions,
) -> Result<()> {
    let files = &candidate.merged_by_syntax;
    let Some(reason) = missing_checks(project, record, options) else { return Ok(()) };
    if files.is_empty() {
        return Ok(());
    }
    let id = &record.id;
    let what = format!("a merge by syntax needs checks to confirm it: {}", files.join(", "));
    let failure = Failure::refused(what).because(reason);
    let failure = match options.no_checks {
        true => failure.hint(format!("studio accept {id} --merge-by-syntax")),
        false => failure.hint(format!("studio edit {id} --check 'command'")),
    };
    Err(failure
        .hint(format!("studio accept {id} --resolve    lets the agent resolve the conflict")))
}

/// Returns why no checks will run; `None` if they will.
fn missing_checks(
    project: &Project,
    record: &SessionRecord,
    options: &LandingOptions,
) -> Option<&'static str> {
    if options.no_checks {
        return Some("--no-checks skips them");
    }
    let is_empty = merge_checks::checks_of(project, record).is_empty();
    is_empty.then_some("neither the session nor `[studio] checks` has any")
}

/// Adds to the failure of a check that files were merged by syntax.
pub(crate) fn explain_failure(mut failure: Failure, id: &Id, files: &[String]) -> Failure {
    if files.is_empty() {
        return failure;
    }
    let reason = failure.reason().unwrap_or_default();
    failure.hints.retain(|hint| !hint.contains("--no-checks"));
    failure.because(format!("merged by syntax: {}\n{reason}", files.join(", "))).hint(format!(
        "studio accept {id} --resolve    lets the agent resolve the conflict instead"
    ))
}
