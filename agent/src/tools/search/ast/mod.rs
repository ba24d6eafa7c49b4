//! Searches the syntax of files: queries over the trees that tree-sitter parses.

use std::sync::Mutex;
use std::time::Instant;

use tokio_util::sync::CancellationToken;

use jobs::Job;
use look::{Aim, Bench, Until};
use tally::{Report, Tally};
use wish::{Search, Wish};

use crate::tools::call::Invocation;
use crate::tools::kind::Effect;
use crate::tools::output::{ErrorKind, ToolError, ToolOutput};
use crate::tools::tool::{CallScope, Tool, ToolFuture, ToolSpec};
use gate::Access;

mod jobs;
mod language;
mod literal;
mod look;
mod query;
mod tally;
mod told;
mod wish;

/// What a call reads.
pub fn reaches(call: &Invocation<'_>) -> Vec<Access> {
    wish::reaches(call)
}

/// Searches the syntax of files.
pub struct SyntaxSearchTool;

impl Tool for SyntaxSearchTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new("search.ast", Effect::Looks)
    }

    fn scope(&self, call: &Invocation<'_>) -> CallScope {
        CallScope::reaching(reaches(call))
    }

    fn call<'a>(&'a self, call: &'a Invocation<'_>) -> ToolFuture<'a> {
        Box::pin(run(call))
    }
}

/// Searches.
async fn run(call: &Invocation<'_>) -> Result<ToolOutput, ToolError> {
    let wish = wish::read(call)?;
    if wish.searches.iter().all(|search| search.error.is_some()) {
        return Err(ToolError::invalid(told::errors(&wish.searches)));
    }
    let cancel = call.at.cancel.clone();
    let searched = tokio::task::spawn_blocking(move || {
        let tally = search(&wish, &cancel);
        (wish, tally)
    });
    let (wish, tally) =
        searched.await.map_err(|e| ToolError::failed(format!("the search broke down: {e}")))?;
    if call.at.cancel.is_cancelled() {
        return Err(ToolError::new(ErrorKind::Cancelled, "cancelled by the user"));
    }
    Ok(told::outcome(call, &wish, &tally))
}

/// Every search in every file of it, on several threads.
fn search(wish: &Wish, cancel: &CancellationToken) -> Tally {
    let jobs = jobs::list(&wish.searches, cancel);
    let tally = Mutex::new(Tally::new(wish.searches.len(), wish.most));
    let held = || tally.lock().unwrap_or_else(|e| e.into_inner());
    jobs::each(&jobs, wish.threads, Bench::default, |bench, at, job| {
        let full = |search: usize| held().is_full(search);
        let tasks = job.tasks.iter().copied().filter(|(_, search)| !full(*search)).collect();
        let report = in_file(wish, bench, job, tasks, cancel);
        held().add(at, report);
        !cancel.is_cancelled()
    });
    tally.into_inner().unwrap_or_else(|e| e.into_inner())
}

/// The searches of one file: read once, and parsed once for each grammar.
fn in_file(
    wish: &Wish,
    bench: &mut Bench,
    job: &Job,
    tasks: Vec<(usize, usize)>,
    cancel: &CancellationToken,
) -> Report {
    let mut report = Report { path: job.path.clone(), ..Report::default() };
    if tasks.is_empty() {
        return report;
    }
    let text = match look::content(&job.path) {
        Ok(text) => text,
        Err(why) => {
            report.found.extend(tasks.iter().map(|(_, search)| (*search, Err(why))));
            return report;
        }
    };
    for same in tasks.chunk_by(|a, b| a.0 == b.0) {
        let until = Until { late: Instant::now() + look::PATIENCE, cancel };
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

fn aim(search: &Search, grammar: usize, most: usize) -> Option<Aim<'_>> {
    let (_, query) = search.queries.iter().find(|(row, _)| *row == grammar)?;
    Some(Aim { query, context: search.context, enough: most + 1 })
}

#[cfg(test)]
mod tests;
