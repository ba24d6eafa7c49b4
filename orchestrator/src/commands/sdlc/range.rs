//! The commits that a run of the pipeline works on, and the task of a stage for them.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use base::failure::{Failure, Result};
use base::id::Id;
use base::text::{count, head, printable};
use studio_git::commit_list::{self, CommitSummary};
use studio_git::names::BranchName;
use studio_git::repo::Base;

use super::record::{self, PipelineRecord};
use super::stages::PersonaStage;
use crate::commands::context::CommandContext;
use crate::report;

/// The number of commits of the first run on a branch.
const DEFAULT_COMMITS: usize = 10;
/// Size of a task in bytes from which it lists no further commits.
const MAX_TASK_BYTES: usize = 16 << 10;
/// Maximum number of files that a task lists for each commit.
const MAX_FILES: usize = 20;
/// Maximum number of bytes of a subject or a path in a task.
const MAX_LINE_BYTES: usize = 200;

/// A range of commits of a branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommitRange {
    /// The branch.
    pub branch: BranchName,
    /// The commit before the first one; `None` if the range begins with the first commit.
    pub from: Option<String>,
    /// The last commit: the tip of the branch.
    pub to: String,
    /// The commits, newest first, without those that landed the work of pipelines.
    pub commits: Vec<String>,
}

impl CommitRange {
    /// Returns the commits of the branch that is checked out: the last `commits`, those after
    /// `from`, else those after the cursor, else the last ten.
    pub(crate) fn select(
        context: &CommandContext,
        commits: Option<u32>,
        from: Option<&str>,
        cursor: impl Fn(&str) -> Option<String>,
    ) -> Result<CommitRange> {
        let repository = &context.repository;
        let Base { branch, commit: to } = repository.base(None)?;
        let branch = branch.ok_or_else(|| {
            Failure::refused("the pipeline needs a branch to land on")
                .because("no branch is checked out here")
                .hint("git switch BRANCH")
        })?;
        let since = match (from, commits) {
            (Some(from), _) => Some(repository.base(Some(from))?.commit),
            (None, Some(_)) => None,
            (None, None) => cursor(branch.as_str()),
        };
        let since = match since {
            Some(since) if !commit_list::exists(repository, &since)? => {
                let commit = head(&since, 12);
                report::say(&format!(
                    "note: {commit}, where the last run on `{branch}` ended, does not exist any more"
                ));
                None
            }
            since => since,
        };
        let max = match (&since, commits) {
            (Some(_), _) => usize::MAX,
            (None, Some(commits)) => commits as usize,
            (None, None) => DEFAULT_COMMITS,
        };
        let own = own_commits(context)?;
        let is_listed = |id: &str| !own.contains(id);
        let commits =
            commit_list::first_parents(repository, &to, since.as_deref(), is_listed, max)?;
        let from = match (since, commits.last()) {
            (None, Some(oldest)) => commit_list::first_parent(repository, oldest)?,
            (since, _) => since,
        };
        Ok(CommitRange { branch, from, to, commits })
    }

    /// Returns the commits of a run.
    fn of(context: &CommandContext, record: &PipelineRecord) -> Result<Vec<String>> {
        let own = own_commits(context)?;
        let is_listed = |id: &str| !own.contains(id);
        let from = record.from.as_deref();
        commit_list::first_parents(&context.repository, &record.to, from, is_listed, usize::MAX)
    }
}

/// Returns the commits that landed the work of pipelines: they are not work for another one.
fn own_commits(context: &CommandContext) -> Result<BTreeSet<String>> {
    let is_own = |plan: &String| record::is_id(plan);
    let views = context.views()?.into_iter();
    let views = views.filter(|view| view.record.plan_ref.plan.as_ref().is_some_and(is_own));
    let sessions: BTreeSet<Id> = views.map(|view| view.record.id).collect();
    let mut own = BTreeSet::new();
    for landing in context.dispositions()?.landings_of(&sessions) {
        let (repository, since) = (&context.repository, Some(landing.before.as_str()));
        // The commits of an undone landing may be gone.
        let landed =
            commit_list::first_parents(repository, &landing.after, since, |_| true, usize::MAX);
        own.extend(landed.unwrap_or_default());
    }
    Ok(own)
}

/// Returns the name of a run's range, as git writes it.
pub(crate) fn name(record: &PipelineRecord, digits: usize) -> String {
    let to = head(&record.to, digits);
    match &record.from {
        Some(from) => format!("{}..{to}", head(from, digits)),
        None => to.to_owned(),
    }
}

/// Returns the task of a stage: the range, its commits, and which stages have changed the worktree
/// before.
pub(crate) fn task(
    context: &CommandContext,
    record: &PipelineRecord,
    stage: &PersonaStage,
    earlier: &[&str],
) -> Result<String> {
    let commits = CommitRange::of(context, record)?;
    let range = name(record, usize::MAX);
    let PersonaStage { persona, purpose } = stage;
    let mut text = format!(
        "{persona}: {purpose} ({})\n\n\
         The subject is what {} of the branch `{}` changed: `git log {range}`.",
        name(record, 8),
        count(commits.len(), "commit"),
        record.branch,
    );
    if let Some(from) = &record.from {
        let _ = write!(text, " `git diff {from} {}` shows all changes together.", record.to);
    }
    if !earlier.is_empty() {
        let _ = write!(
            text,
            " Your worktree also contains the work of earlier stages ({}): `git log {}..HEAD`.",
            earlier.join(", "),
            record.to,
        );
    }
    text.push_str(" If nothing needs to be done, change nothing.\n\nThe commits, newest first:\n");
    for (index, commit) in commits.iter().enumerate() {
        if text.len() > MAX_TASK_BYTES {
            let _ = writeln!(text, "… and {} earlier", commits.len() - index);
            break;
        }
        text.push_str(&lines(&commit_list::summary(&context.repository, commit)?));
    }
    Ok(text)
}

/// Returns a commit in the list of a task: its first line, its size, and its files.
fn lines(commit: &CommitSummary) -> String {
    let CommitSummary { id, subject, stats } = commit;
    let mut text = format!(
        "{} {} ({}, +{} -{})\n",
        head(id, 12),
        printable(head(subject, MAX_LINE_BYTES)),
        count(stats.files, "file"),
        stats.insertions,
        stats.deletions,
    );
    for path in stats.paths.iter().take(MAX_FILES) {
        let _ = writeln!(text, "    {}", printable(head(path, MAX_LINE_BYTES)));
    }
    if let Some(more) = stats.files.checked_sub(MAX_FILES).filter(|more| *more > 0) {
        let _ = writeln!(text, "    … and {more} more");
    }
    text
}
