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
fn accesses(call: &Invocation<'_>) -> Vec<Access> {
    request::accesses(call)
}

/// The tool that searches the syntax of files.
pub(crate) struct SyntaxSearchTool;

impl Tool for SyntaxSearchTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new("search.ast", Effect::Looks)
    }

    fn scope(&self, call: &Invocation<'_>) -> CallScope {
        CallScope::with_access(accesses(call))
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
    let search_task = tokio::task::spawn_blocking(move || {
        let collector = search(&wish, &cancel);
        (wish, collector)
    });
    let (wish, collector) =
        search_task.await.map_err(|e| ToolError::failed(format!("the search broke down: {e}")))?;
    if call.context.cancel.is_cancelled() {
        return Err(ToolError::new(ToolErrorKind::Cancelled, "cancelled by the user"));
    }
    Ok(output::to_output(call, &wish, &collector))
}

/// Runs all searches on their files, on several threads.
fn search(request: &SyntaxSearchRequest, cancel: &CancellationToken) -> SearchCollector {
    let jobs = worklist::list(&request.searches, cancel);
    let collector = Mutex::new(SearchCollector::new(request.searches.len(), request.max_matches));
    let lock_collector = || collector.lock().unwrap_or_else(|e| e.into_inner());
    worklist::run_all(&jobs, request.threads, SearchWorker::default, |worker, index, file_job| {
        let is_full = |search: usize| lock_collector().is_full(search);
        let tasks =
            file_job.tasks.iter().copied().filter(|(_, search)| !is_full(*search)).collect();
        let report = search_file(request, worker, file_job, tasks, cancel);
        lock_collector().add(index, report);
        !cancel.is_cancelled()
    });
    collector.into_inner().unwrap_or_else(|e| e.into_inner())
}

/// Runs the searches of one file, which is read once and parsed once per grammar.
fn search_file(
    request: &SyntaxSearchRequest,
    worker: &mut SearchWorker,
    file_job: &FileJob,
    tasks: Vec<(usize, usize)>,
    cancel: &CancellationToken,
) -> FileReport {
    let mut report = FileReport { path: file_job.path.clone(), ..FileReport::default() };
    if tasks.is_empty() {
        return report;
    }
    let text = match searcher::content(&file_job.path) {
        Ok(text) => text,
        Err(reason) => {
            report.results.extend(tasks.iter().map(|(_, search)| (*search, Err(reason))));
            return report;
        }
    };
    for same_grammar in tasks.chunk_by(|a, b| a.0 == b.0) {
        let stop = StopCondition { deadline: Instant::now() + searcher::TIMEOUT, cancel };
        let grammar = same_grammar[0].0;
        // Parsed for the first query that needs it.
        let mut tree = None;
        for (_, number) in same_grammar {
            let target = search_target(&request.searches[*number], grammar, request.max_matches);
            let Some(target) = target.filter(|target| target.query.may_match(&text)) else {
                report.results.push((*number, Ok(Vec::new())));
                continue;
            };
            let tree = tree.get_or_insert_with(|| {
                report.parses += 1;
                worker.parse(grammar, &text, &stop)
            });
            let result = tree.as_ref().map_err(|reason| *reason);
            let result = result.and_then(|tree| worker.matches(tree, &text, &target, &stop));
            report.results.push((*number, result));
        }
    }
    report
}

fn search_target(search: &SyntaxSearch, grammar: usize, max: usize) -> Option<SearchTarget<'_>> {
    let (_, query) = search.queries.iter().find(|(row, _)| *row == grammar)?;
    Some(SearchTarget { query, context: search.context, max_matches: max + 1 })
}

/// The tools of this crate.
pub const TOOLS: &[&dyn Tool] = &[&SyntaxSearchTool];

#[cfg(test)]
mod tests;
