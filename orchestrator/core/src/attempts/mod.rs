//! Several attempts at one task: what each of them shows for itself, the tests of each on the code of
//! every other one, and a ranking.

mod cross_tests;
pub mod duplication;
pub mod judge;
pub mod ranking;

use std::path::PathBuf;

use base::failure::{Failure, Result};
use base::id::Id;
use serde_json::{Value, json};
use studio_git::hunks::{self, FilePatch, LineOrigin};

use crate::attempts::judge::TieVerdict;
use crate::attempts::ranking::Evidence;
use crate::project::Project;
use crate::review::risk::is_test_path;
use crate::session::journal::CheckResult;
use crate::session::state::SessionState;
use crate::session_view::{SessionView, checks_json};

/// The result of the tests of one attempt on the code of another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CrossResult {
    /// The attempt adds or changes no tests.
    NoTests,
    /// The checks pass.
    Passed,
    /// A check fails, for this reason.
    Failed(String),
    /// The checks were not run, for this reason.
    NotRun(String),
}

/// One attempt.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// The session.
    pub view: SessionView,
    /// The commit with all of its work; `None` without work.
    pub commit: Option<String>,
    /// The files of tests that it adds or changes.
    pub test_files: Vec<PathBuf>,
    /// Added lines that repeat other added lines.
    pub duplicated_lines: usize,
    /// The results of the tests of each attempt on its code, in the order of the attempts; for its
    /// own tests, those of its checks.
    pub results: Vec<CrossResult>,
}

/// The comparison of attempts.
#[derive(Clone, Debug)]
pub struct AttemptReport {
    /// The attempts, in the order of their creation.
    pub attempts: Vec<Attempt>,
    /// The indices of the attempts, the best one first.
    pub ranking: Vec<usize>,
    /// What the judge said about attempts that the evidence does not tell apart.
    pub judgements: Vec<TieVerdict>,
}

/// Compares attempts. Runs the checks of the first one on what was not checked before.
pub fn compare(project: &Project, views: Vec<SessionView>) -> Result<AttemptReport> {
    let mut attempts = Vec::with_capacity(views.len());
    for view in views {
        attempts.push(read(project, view)?);
    }
    let results = cross_tests::run(project, &attempts)?;
    for (attempt, results) in attempts.iter_mut().zip(results) {
        attempt.results = results;
    }
    let evidence: Vec<Evidence> = attempts.iter().map(Attempt::evidence).collect();
    let ranking = ranking::rank(&evidence);
    Ok(AttemptReport { attempts, ranking, judgements: Vec::new() })
}

/// Returns all attempts of the group that a session belongs to.
pub fn group_of(project: &Project, view: &SessionView) -> Result<Vec<SessionView>> {
    let id = &view.record.id;
    let Some(group) = &view.record.group else {
        return Err(Failure::usage(format!("session `{id}` is the only attempt at its task"))
            .hint("studio run --attempts 3 'your task'")
            .hint(format!("studio compare {id} OTHER    compares two sessions")));
    };
    let mut views = project.views()?;
    views.retain(|other| other.record.group.as_ref() == Some(group));
    Ok(views)
}

fn read(project: &Project, view: SessionView) -> Result<Attempt> {
    let mut attempt = Attempt {
        view,
        commit: None,
        test_files: Vec::new(),
        duplicated_lines: 0,
        results: Vec::new(),
    };
    let record = &attempt.view.record;
    let Some(work) = attempt.view.work().filter(|work| work.is_changed()) else {
        return Ok(attempt);
    };
    let base = work.base.as_ref().unwrap_or(&record.base.commit);
    let files = hunks::read(&*project.repository.open()?, base, work.commit())?;
    let is_test = |file: &&FilePatch| file.new.is_some() && is_test_path(&file.path);
    attempt.test_files = files.iter().filter(is_test).map(|file| file.path.clone()).collect();
    let lines = files.iter().flat_map(|file| &file.hunks).flat_map(|hunk| &hunk.lines);
    let added = lines.filter(|line| line.origin == LineOrigin::Added);
    let added: Vec<&str> = added.map(|line| line.text.as_str()).collect();
    attempt.duplicated_lines = duplication::count(&added);
    attempt.commit = Some(work.commit().to_owned());
    Ok(attempt)
}

impl Attempt {
    /// Returns its session.
    pub fn id(&self) -> &Id {
        &self.view.record.id
    }

    /// Returns the number of attempts whose tests pass and fail on its code.
    pub fn counts(&self) -> (usize, usize) {
        let count = |is_counted: fn(&CrossResult) -> bool| {
            self.results.iter().filter(|result| is_counted(result)).count()
        };
        (
            count(|result| *result == CrossResult::Passed),
            count(|result| matches!(result, CrossResult::Failed(_))),
        )
    }

    /// Returns the number of changed lines.
    pub fn changed_lines(&self) -> u64 {
        self.view.work().map_or(0, |work| work.insertions + work.deletions)
    }

    /// Returns its known cost in US dollars.
    pub fn cost_usd(&self) -> Option<f64> {
        self.view.facts.summary.usage.as_ref().and_then(|usage| usage.cost_usd)
    }

    /// Returns how long its agent worked, in seconds.
    pub fn seconds(&self) -> u64 {
        self.view.facts.summary.worked_ms / 1000
    }

    /// Returns the results of its checks, if they ran on its current work.
    pub fn checks(&self) -> Option<&[CheckResult]> {
        let summary = &self.view.facts.summary;
        summary.checks.as_deref().filter(|_| summary.is_checked)
    }

    fn evidence(&self) -> Evidence {
        let (passed, failed) = self.counts();
        Evidence {
            has_work: self.commit.is_some() && !self.view.state.is_over(),
            is_ready: self.view.state == SessionState::Ready,
            passed,
            failed,
            changed_lines: self.changed_lines(),
            duplicated_lines: self.duplicated_lines,
            cost_usd: self.cost_usd(),
        }
    }
}

impl AttemptReport {
    /// Returns the pairs of neighbours in the ranking that the evidence does not tell apart.
    pub fn ties(&self) -> Vec<(usize, usize)> {
        let evidence: Vec<Evidence> = self.attempts.iter().map(Attempt::evidence).collect();
        let neighbours = self.ranking.windows(2).map(|pair| (pair[0], pair[1]));
        neighbours.filter(|(a, b)| ranking::is_tie(&evidence[*a], &evidence[*b])).collect()
    }

    /// Returns the report as JSON.
    pub fn json(&self) -> Value {
        let attempt = |(rank, index): (usize, &usize)| {
            let attempt = &self.attempts[*index];
            let (passed, failed) = attempt.counts();
            let work = attempt.view.work();
            let results = self.attempts.iter().zip(&attempt.results);
            json!({
                "rank": rank + 1,
                "id": attempt.id(),
                "attempt": attempt.view.record.attempt,
                "agent": attempt.view.record.agent,
                "state": attempt.view.state.name(),
                "why": attempt.view.reason(),
                "checks": attempt.checks().map(checks_json),
                "files_changed": work.map(|work| work.files_changed),
                "insertions": work.map(|work| work.insertions),
                "deletions": work.map(|work| work.deletions),
                "duplicated_lines": attempt.duplicated_lines,
                "cost_usd": attempt.cost_usd(),
                "seconds": attempt.seconds(),
                "test_files": attempt.test_files,
                "passed": passed,
                "failed": failed,
                "tests": results.map(|(of, result)| result.json(of.id())).collect::<Vec<_>>(),
            })
        };
        let first = self.attempts.first().map(|attempt| &attempt.view.record);
        json!({
            "schema": 1,
            "group": first.and_then(|record| record.group.as_ref()),
            "task": first.map(|record| &record.task),
            "attempts": self.ranking.iter().enumerate().map(attempt).collect::<Vec<_>>(),
            "judge": self.judgements.iter().map(TieVerdict::json).collect::<Vec<_>>(),
        })
    }
}

impl CrossResult {
    fn json(&self, of: &Id) -> Value {
        let (name, why) = match self {
            CrossResult::NoTests => ("no_tests", None),
            CrossResult::Passed => ("passed", None),
            CrossResult::Failed(why) => ("failed", Some(why)),
            CrossResult::NotRun(why) => ("not_run", Some(why)),
        };
        json!({"tests_of": of, "result": name, "why": why})
    }
}
