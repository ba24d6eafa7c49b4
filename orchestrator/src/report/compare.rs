//! Formats the comparison of attempts: one row each, and the tests of each on the code of the others.

use base::text::printable;
use studio_core::attempts::judge::TieVerdict;
use studio_core::attempts::{Attempt, AttemptReport, CrossResult};

use crate::report::table;

/// Formats a comparison.
pub(crate) fn page(report: &AttemptReport) -> String {
    let ranked: Vec<&Attempt> =
        report.ranking.iter().map(|index| &report.attempts[*index]).collect();
    let header = ["#", "ID", "AGENT", "STATE", "TESTS", "CHANGES", "REPEATED", "COST", "TIME"];
    let rows = (1..).zip(&ranked).map(|(rank, attempt)| row(rank, attempt)).collect();
    let mut text = table::plain(header, rows);
    let with_tests: Vec<usize> =
        report.ranking.iter().copied().filter(|index| has_result(report, *index)).collect();
    if with_tests.len() > 1
        || with_tests.iter().any(|it| !report.attempts[*it].test_files.is_empty())
    {
        text.push_str("\n\ntests of each attempt (rows) on the code of each attempt (columns):\n");
        text.push_str(&matrix(report));
    }
    for line in failures(report) {
        text.push('\n');
        text.push_str(&line);
    }
    for verdict in &report.judgements {
        text.push('\n');
        text.push_str(&verdict_text(verdict));
    }
    printable(&text)
}

fn row(rank: usize, attempt: &Attempt) -> [String; 9] {
    let (passed, failed) = attempt.counts();
    let tests = match passed + failed {
        0 => "-".to_owned(),
        all => format!("{passed} of {all}"),
    };
    [
        rank.to_string(),
        attempt.id().to_string(),
        attempt.view.record.agent.clone(),
        attempt.view.state.name().to_owned(),
        tests,
        table::changes(&attempt.view),
        attempt.duplicated_lines.to_string(),
        attempt.cost_usd().map_or_else(|| "-".to_owned(), |usd| format!("${usd:.2}")),
        format!("{}s", attempt.seconds()),
    ]
}

fn has_result(report: &AttemptReport, tests: usize) -> bool {
    let mut results = report.attempts.iter().filter_map(|attempt| attempt.results.get(tests));
    results.any(|result| matches!(result, CrossResult::Passed | CrossResult::Failed(_)))
}

fn matrix(report: &AttemptReport) -> String {
    let columns = (1..).zip(&report.ranking).map(|(rank, _)| format!("{:>6}", format!("#{rank}")));
    let mut lines = vec![format!("      {}", columns.collect::<String>())];
    for (rank, tests) in (1..).zip(&report.ranking) {
        let cell = |code: &usize| match report.attempts[*code].results.get(*tests) {
            Some(CrossResult::Passed) => "ok",
            Some(CrossResult::Failed(_)) => "fail",
            Some(CrossResult::NotRun(_)) => "?",
            Some(CrossResult::NoTests) | None => "-",
        };
        let cells = report.ranking.iter().map(|code| format!("{:>6}", cell(code)));
        lines.push(format!("{:>6}{}", format!("#{rank}"), cells.collect::<String>()));
    }
    lines.join("\n")
}

/// Returns why tests fail or were not run, one line each.
fn failures(report: &AttemptReport) -> Vec<String> {
    let mut lines = Vec::new();
    for (rank, code) in (1..).zip(&report.ranking) {
        for (tests_rank, tests) in (1..).zip(&report.ranking) {
            let whose = match code == tests {
                true => "its own tests".to_owned(),
                false => format!("the tests of #{tests_rank}"),
            };
            match report.attempts[*code].results.get(*tests) {
                Some(CrossResult::Failed(why)) => lines.push(format!("#{rank}, {whose}: {why}")),
                Some(CrossResult::NotRun(why)) => {
                    lines.push(format!("#{rank}, {whose} were not run: {why}"));
                }
                Some(CrossResult::Passed | CrossResult::NoTests) | None => {}
            }
        }
    }
    lines
}

fn verdict_text(judgement: &TieVerdict) -> String {
    let [first, second] = &judgement.ids;
    match (&judgement.winner, &judgement.why) {
        (Some(winner), _) => format!("judge: {winner} of {first} and {second}"),
        (None, why) => {
            let why = why.as_deref().unwrap_or_default();
            format!("judge: a tie between {first} and {second}: {why}")
        }
    }
}
