//! `studio trace`: which commit landed which requirement, and which checks passed there.

use std::path::{Path, PathBuf};

use base::failure::{Failure, Kind, Result};
use base::text::{head, printable};
use planner::coverage::{Gap, Progress, Row, coverage};
use planner::document;
use planner::requirement::{self, Requirement, Unclear};
use planner::task::Task;
use serde_json::{Value, json};

use crate::commands::desk::{Common, Desk};
use crate::git::landings::{self, Landing};
use crate::report;
use crate::report::table;

/// Where requirements are, unless said.
const FILE: &str = "g3-plan/current_requirements.md";

/// The command line.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// One requirement, by its id; all without it
    #[arg(value_name = "REQ")]
    pub id: Option<String>,
    /// The requirements
    #[arg(long, value_name = "FILE", default_value = FILE)]
    pub file: PathBuf,
    /// Only commits that are not in the history of this one: ids begin anew with each plan
    #[arg(long, value_name = "REV")]
    pub since: Option<String>,
    /// The history that counts
    #[arg(long, value_name = "REV", default_value = "HEAD")]
    pub onto: String,
}

/// Runs it. The exit code is 1 where a requirement is not landed and shown.
pub fn run(common: &Common, args: &Args) -> Result<u8> {
    let desk = Desk::open(common)?;
    let landings = landings::read(&desk.repository, &args.onto, args.since.as_deref())?;
    let all = requirements(&common.directory()?, &args.file)?;
    let all: Vec<Requirement> = match &args.id {
        Some(id) => all.into_iter().filter(|it| it.id.eq_ignore_ascii_case(id)).collect(),
        None => all,
    };
    if let Some(id) = args.id.as_ref().filter(|_| all.is_empty()) {
        return Err(Failure::new(Kind::NotFound, format!("there is no requirement `{id}`"))
            .because(format!("it is not in {}", args.file.display()))
            .next("studio trace"));
    }
    let rows = rows(&all, &landings);
    match desk.json {
        true => report::json_line(&json!({
            "schema": 1,
            "requirements": rows.iter().zip(&all).map(|(row, it)| told(row, it)).collect::<Vec<_>>(),
        })),
        false => show(&rows, &all, &landings, args.id.is_some()),
    }
    Ok(u8::from(rows.iter().any(|row| row.gap().is_some())))
}

fn requirements(directory: &Path, file: &Path) -> Result<Vec<Requirement>> {
    let path = directory.join(file);
    let text = std::fs::read_to_string(&path).map_err(|why| {
        Failure::usage(format!("cannot read the requirements in {}", file.display()))
            .because(why)
            .next("studio trace --file FILE")
    })?;
    let section = document::current(&text).unwrap_or(&text);
    requirement::read(section).map_err(|unclear| {
        Failure::usage(match unclear {
            Unclear::Empty => format!("there is no requirement in {}", file.display()),
            Unclear::Twice(id) => format!("two requirements have the id {id}"),
        })
    })
}

/// Each landing counts as the task that it was.
fn rows(all: &[Requirement], landings: &[Landing]) -> Vec<Row> {
    let task = |it: &Landing| Task {
        id: it.commit.clone(),
        requirements: it.requirements.clone(),
        ..Task::default()
    };
    let progress = |it: &Landing| {
        let checks = it.receipt.iter().flat_map(|receipt| &receipt.checks);
        Progress {
            task: it.commit.clone(),
            landed: Some(it.commit.clone()),
            passed: checks.filter(|check| check.ok).map(|check| check.command.clone()).collect(),
        }
    };
    let tasks: Vec<Task> = landings.iter().map(task).collect();
    let progress: Vec<Progress> = landings.iter().map(progress).collect();
    coverage(all, &tasks, &progress)
}

/// What a requirement lacks, in a word.
fn state(row: &Row) -> &'static str {
    match row.gap() {
        Some(Gap::Task | Gap::Landing) => "not landed",
        Some(Gap::Check) => "no check",
        None => "shown",
    }
}

fn told(row: &Row, requirement: &Requirement) -> Value {
    json!({
        "id": row.id, "text": requirement.text, "state": state(row),
        "commits": row.commits, "checks": row.checks,
    })
}

fn show(rows: &[Row], all: &[Requirement], landings: &[Landing], whole: bool) {
    if whole {
        for (row, requirement) in rows.iter().zip(all) {
            report::out(&printable(&page(row, requirement, landings)));
        }
        return;
    }
    let line = |(row, requirement): (&Row, &Requirement)| {
        let commits: Vec<&str> = row.commits.iter().map(|commit| head(commit, 12)).collect();
        [
            row.id.clone(),
            state(row).to_owned(),
            commits.join(" "),
            printable(&row.checks.join("; ")),
            printable(head(&requirement.text, 200)),
        ]
    };
    let lines = rows.iter().zip(all).map(line).collect();
    report::out(&table::plain(["ID", "STATE", "COMMITS", "CHECKS", "REQUIREMENT"], lines));
    let open = rows.iter().filter(|row| row.gap().is_some()).count();
    if open > 0 {
        report::say(&format!("{open} of {} are not landed and shown by a check", rows.len()));
    }
}

fn page(row: &Row, requirement: &Requirement, landings: &[Landing]) -> String {
    let mut lines = vec![format!("{}: {} ({})", row.id, requirement.text, state(row))];
    for landing in landings.iter().filter(|it| row.commits.contains(&it.commit)) {
        lines.push(format!("  {} {}", head(&landing.commit, 12), landing.subject));
        match &landing.receipt {
            Some(receipt) => {
                lines.push(format!("    session {}", receipt.session));
                lines.extend(receipt.checks.iter().map(|check| {
                    format!("    {} {}", if check.ok { "passed" } else { "failed" }, check.command)
                }));
            }
            None => lines.push("    without a receipt: the commit was made anew".to_owned()),
        }
    }
    lines.join("\n")
}
