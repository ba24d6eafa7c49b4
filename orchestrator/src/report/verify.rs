//! The results of `studio verify`, for people and for scripts.

use base::text::{head, printable, printable_output, tail};
use serde::Serialize;
use serde_json::{Value, json};

use crate::report::requirements::ServedRequirement;
use crate::report::{markdown, table};
use studio_core::session::journal::CheckResult;

/// Length of an abbreviated commit id.
const NAME: usize = 12;
/// Maximum number of bytes of a failed check's output that are shown.
const TAIL: usize = 1_500;

/// A recorded check command on one tree.
#[derive(Clone, Debug)]
pub(crate) struct VerifiedLine {
    /// The `sh -c` line.
    pub command: String,
    /// The commit whose files it runs on.
    pub on: String,
    /// Their tree.
    pub tree: String,
    /// The requirements whose landings recorded it.
    pub requirements: Vec<String>,
    /// The commits of these landings.
    pub commits: Vec<String>,
    /// Whether it passed in all of them.
    pub then: bool,
    /// The current result.
    pub now: CurrentResult,
}

/// The current result of a command.
#[derive(Clone, Debug)]
pub(crate) enum CurrentResult {
    /// It ran.
    Ran(CheckResult),
    /// It did not run: it is not known on this machine.
    Refused,
    /// It did not run: a setup line failed.
    SetUpFailed {
        /// The line.
        line: String,
        /// Its exit code.
        exit: i32,
        /// The end of its output.
        tail: String,
    },
}

/// A finding for the user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct VerifyFinding {
    /// The kind.
    pub kind: &'static str,
    /// One sentence.
    pub text: String,
}

impl VerifyFinding {
    /// Creates a finding.
    pub(crate) fn new(kind: &'static str, text: String) -> VerifyFinding {
        VerifyFinding { kind, text }
    }
}

/// All results.
#[derive(Debug)]
pub(crate) struct VerifyReport<'a> {
    /// The commit whose history was searched.
    pub onto: String,
    /// Whether each landing was checked separately.
    pub each: bool,
    /// The requirements.
    pub requirements: Vec<ServedRequirement<'a>>,
    /// The checks.
    pub lines: Vec<VerifiedLine>,
    /// Further findings.
    pub findings: Vec<VerifyFinding>,
}

impl VerifiedLine {
    /// Creates a command that has not run yet.
    pub(crate) fn new(command: String, on: String, tree: String) -> VerifiedLine {
        let (requirements, commits) = (Vec::new(), Vec::new());
        VerifiedLine {
            command,
            on,
            tree,
            requirements,
            commits,
            then: true,
            now: CurrentResult::Refused,
        }
    }

    fn passes(&self) -> bool {
        matches!(&self.now, CurrentResult::Ran(result) if result.ok)
    }

    fn then_word(&self) -> &'static str {
        if self.then { "passed" } else { "failed" }
    }

    fn now_words(&self) -> String {
        match &self.now {
            CurrentResult::Ran(CheckResult { ok: true, ms, .. }) => format!("passed ({ms} ms)"),
            CurrentResult::Ran(CheckResult { exit, ms, .. }) => format!("failed ({exit}, {ms} ms)"),
            CurrentResult::Refused => "not run".to_owned(),
            CurrentResult::SetUpFailed { exit, .. } => format!("setup failed ({exit})"),
        }
    }

    /// Returns the output of a failed command, with a heading.
    fn wrote(&self) -> Option<(String, &str)> {
        let on = head(&self.on, NAME);
        match &self.now {
            CurrentResult::Ran(result) if !result.ok => {
                let what = format!("{} failed with {} on {on}", self.command, result.exit);
                Some((what, tail(result.tail.trim_end(), TAIL)))
            }
            CurrentResult::SetUpFailed { line, exit, tail: wrote } => {
                let what = format!("setup {line} failed with {exit} on {on}");
                Some((what, tail(wrote.trim_end(), TAIL)))
            }
            CurrentResult::Ran(_) | CurrentResult::Refused => None,
        }
    }

    fn json(&self) -> Value {
        let (ran, ok, exit, ms, wrote) = match &self.now {
            CurrentResult::Ran(it) => {
                (true, it.ok, Some(it.exit), Some(it.ms), Some(it.tail.as_str()))
            }
            CurrentResult::Refused | CurrentResult::SetUpFailed { .. } => {
                (false, false, None, None, None)
            }
        };
        let why = match &self.now {
            CurrentResult::Ran(_) => None,
            CurrentResult::Refused => Some("it is known only from a receipt".to_owned()),
            CurrentResult::SetUpFailed { line, exit, .. } => {
                Some(format!("setup `{line}` failed with {exit}"))
            }
        };
        json!({
            "command": self.command, "on": self.on, "tree": self.tree,
            "requirements": self.requirements, "commits": self.commits,
            "passed_then": self.then, "ran": ran, "ok": ok, "exit": exit, "ms": ms,
            "tail": wrote, "why": why,
        })
    }
}

impl VerifyReport<'_> {
    /// Returns whether every requirement is landed with a check, every command passes now, and
    /// every receipt belongs to its commit's tree.
    pub(crate) fn holds(&self) -> bool {
        let shown = self.requirements.iter().all(|it| it.row.gap().is_none());
        let honest = self.findings.iter().all(|it| it.kind != "other_tree");
        shown && honest && self.lines.iter().all(VerifiedLine::passes)
    }

    /// Returns the outcome in one sentence.
    pub(crate) fn outcome(&self) -> String {
        if self.holds() {
            let on = if self.each { "where it landed".to_owned() } else { self.on() };
            return format!("every requirement has landed, and every recorded check passes {on}");
        }
        let red = self.lines.iter().filter(|line| !line.passes()).count();
        let open = self.requirements.iter().filter(|it| it.row.gap().is_some()).count();
        let (all, lines) = (self.requirements.len(), self.lines.len());
        format!(
            "{open} of {all} requirements have not landed with a passing check; {red} of {lines} \
             checks fail"
        )
    }

    fn on(&self) -> String {
        format!("on {}", head(&self.onto, NAME))
    }

    /// Formats the report for a terminal.
    pub(crate) fn text(&self) -> String {
        let row = |line: &VerifiedLine| {
            [
                served(line),
                line.command.clone(),
                line.then_word().to_owned(),
                line.now_words(),
                head(&line.on, NAME).to_owned(),
            ]
            .map(|cell| printable(&cell))
        };
        let header = ["REQUIREMENT", "CHECK", "THEN", "NOW", "ON"];
        let mut lines = vec![table::plain(header, self.lines.iter().map(row).collect())];
        lines.extend(self.findings.iter().map(|it| format!("warning: {}", it.text)));
        for (what, wrote) in self.wrote() {
            lines.push(format!("\n{what}:"));
            let wrote = printable_output(wrote);
            lines.extend(wrote.lines().map(|line| format!("  {line}")));
            lines.extend(wrote.is_empty().then(|| "  (no output)".to_owned()));
        }
        printable(&lines.join("\n"))
    }

    /// Formats the report for a pull request.
    pub(crate) fn markdown(&self) -> String {
        let row = |line: &VerifiedLine| {
            let on = markdown::code(head(&line.on, NAME));
            let now = line.now_words();
            let requirements = markdown::text(&served(line));
            [requirements, markdown::code(&line.command), line.then_word().to_owned(), now, on]
        };
        let rows: Vec<_> = self.lines.iter().map(row).collect();
        let header = ["requirement", "check", "then", "now", "on"];
        let mut parts = vec![markdown::text(&self.outcome()), markdown::table(header, &rows)];
        if !self.findings.is_empty() {
            let all = self.findings.iter().map(|it| format!("- {}", markdown::text(&it.text)));
            parts.push(all.collect::<Vec<_>>().join("\n"));
        }
        for (what, wrote) in self.wrote() {
            parts.push(markdown::text(&what));
            parts.push(markdown::block(wrote));
        }
        parts.join("\n\n")
    }

    /// Returns the output of failed commands; a setup that failed for several is listed once.
    fn wrote(&self) -> Vec<(String, &str)> {
        let mut all: Vec<(String, &str)> =
            self.lines.iter().filter_map(VerifiedLine::wrote).collect();
        all.dedup();
        all
    }

    /// Returns the report as JSON.
    pub(crate) fn json(&self) -> Value {
        let requirement = |it: &ServedRequirement<'_>| {
            let lines = self.lines.iter().filter(|line| line.requirements.contains(&it.row.id));
            let mut checks: Vec<&str> = lines.map(|line| line.command.as_str()).collect();
            checks.dedup();
            json!({
                "id": it.row.id, "text": it.requirement.text, "state": it.state(),
                "commits": it.row.commits, "checks": checks,
            })
        };
        json!({
            "schema": 1, "ok": self.holds(), "onto": self.onto, "each": self.each,
            "requirements": self.requirements.iter().map(requirement).collect::<Vec<_>>(),
            "checks": self.lines.iter().map(VerifiedLine::json).collect::<Vec<_>>(),
            "findings": self.findings,
        })
    }
}

fn served(line: &VerifiedLine) -> String {
    match line.requirements.as_slice() {
        [] => "-".to_owned(),
        ids => ids.join(", "),
    }
}
