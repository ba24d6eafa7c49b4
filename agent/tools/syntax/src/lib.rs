//! Searches the syntax of files with tree-sitter queries.

use std::sync::Mutex;
use std::time::Instant;

use tokio_util::sync::CancellationToken;

use collector::{FileReport, SearchCollector};
use request::{SyntaxSearch, SyntaxSearchRequest};
use searcher::{SearchTarget, SearchWorker, StopCondition};
use worklist::FileJob;

use gate::Access;
use tools::call::Invocation;
use tools::kind::Effect;
use tools::output::{ToolError, ToolErrorKind, ToolOutput};
use tools::tool::{CallScope, Tool, ToolFuture, ToolSpec};

mod collector;
mod language;
mod literal;
mod output;
mod query;
mod request;
mod searcher;
mod worklist;

/// Returns what a call reads.
fn reaches(call: &Invocation<'_>) -> Vec<Access> {
    request::reaches(call)
}

/// The tool that searches the syntax of files.
pub(crate) struct SyntaxSearchTool;

impl Tool for SyntaxSearchTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new("search.ast", Effect::Looks)
    }

    fn scope(&self, call: &Invocation<'_>) -> CallScope {
        CallScope::with_access(reaches(call))
    }

    fn call<'a>(&'a self, call: &'a Invocation<'_>) -> ToolFuture<'a> {
        Box::pin(run(call))
    }
}

/// Runs the searches.
async fn run(call: &Invocation<'_>) -> Result<ToolOutput, ToolError> {
    let wish = request::read(call)?;
    if wish.searches.iter().all(|search| search.error.is_some()) {
        return Err(ToolError::invalid(output::errors(&wish.searches)));
    }
    let cancel = call.context.cancel.clone();
    let searched = tokio::task::spawn_blocking(move || {
        let tally = search(&wish, &cancel);
        (wish, tally)
    });
    let (wish, tally) =
        searched.await.map_err(|e| ToolError::failed(format!("the search broke down: {e}")))?;
    if call.context.cancel.is_cancelled() {
        return Err(ToolError::new(ToolErrorKind::Cancelled, "cancelled by the user"));
    }
    Ok(output::outcome(call, &wish, &tally))
}

/// Runs all searches on their files, on several threads.
fn search(wish: &SyntaxSearchRequest, cancel: &CancellationToken) -> SearchCollector {
    let jobs = worklist::list(&wish.searches, cancel);
    let tally = Mutex::new(SearchCollector::new(wish.searches.len(), wish.most));
    let held = || tally.lock().unwrap_or_else(|e| e.into_inner());
    worklist::each(&jobs, wish.threads, SearchWorker::default, |bench, at, job| {
        let full = |search: usize| held().is_full(search);
        let tasks = job.tasks.iter().copied().filter(|(_, search)| !full(*search)).collect();
        let report = in_file(wish, bench, job, tasks, cancel);
        held().add(at, report);
        !cancel.is_cancelled()
    });
    tally.into_inner().unwrap_or_else(|e| e.into_inner())
}

/// Runs the searches of one file, which is read once and parsed once per grammar.
fn in_file(
    wish: &SyntaxSearchRequest,
    bench: &mut SearchWorker,
    job: &FileJob,
    tasks: Vec<(usize, usize)>,
    cancel: &CancellationToken,
) -> FileReport {
    let mut report = FileReport { path: job.path.clone(), ..FileReport::default() };
    if tasks.is_empty() {
        return report;
    }
    let text = match searcher::content(&job.path) {
        Ok(text) => text,
        Err(why) => {
            report.found.extend(tasks.iter().map(|(_, search)| (*search, Err(why))));
            return report;
        }
    };
    for same in tasks.chunk_by(|a, b| a.0 == b.0) {
        let until = StopCondition { late: Instant::now() + searcher::PATIENCE, cancel };
        let grammar = same[0].0;
        // Parsed for the first query that needs it.
        let mut tree = None;
        for (_, number) in same {
            let aim = aim(&wish.searches[*number], grammar, wish.most);
            let Some(aim) = aim.filter(|aim| aim.query.may_match(&text)) else {
                report.found.push((*number, Ok(Vec::new())));
                continue;
            };
            let tree = tree.get_or_insert_with(|| {
                report.parses += 1;
                bench.parse(grammar, &text, &until)
            });
            let found = tree.as_ref().map_err(|why| *why);
            let found = found.and_then(|tree| bench.matches(tree, &text, &aim, &until));
            report.found.push((*number, found));
        }
    }
    report
}

fn aim(search: &SyntaxSearch, grammar: usize, most: usize) -> Option<SearchTarget<'_>> {
    let (_, query) = search.queries.iter().find(|(row, _)| *row == grammar)?;
    Some(SearchTarget { query, context: search.context, enough: most + 1 })
}

/// The tools of this crate.
pub const TOOLS: &[&dyn Tool] = &[&SyntaxSearchTool];

#[cfg(test)]
mod tests;
