//! The results of `studio verify`, for people and for scripts.

use base::text::{head, printable, printable_output, tail};
use serde::Serialize;
use serde_json::{Value, json};

use crate::report::requirements::ServedRequirement;
use crate::report::{markdown, table};
use studio_core::session::journal::CheckResult;

/// Length of an abbreviated commit id.
const SHORT_COMMIT: usize = 12;
/// Maximum number of bytes of a failed check's output that are shown.
const MAX_TAIL_BYTES: usize = 1_500;

/// A recorded check command on one tree.
#[derive(Clone, Debug)]
pub(crate) struct VerifiedLine {
    /// The `sh -c` line.
    pub command: String,
    /// The commit whose files it runs on.
    pub commit: String,
    /// Their tree.
    pub tree: String,
    /// The requirements whose landings recorded it.
    pub requirements: Vec<String>,
    /// The commits of these landings.
    pub commits: Vec<String>,
    /// Whether it passed in all of them.
    pub passed_then: bool,
    /// The current result.
    pub current: CurrentResult,
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
    pub(crate) fn new(command: String, commit: String, tree: String) -> VerifiedLine {
        let (requirements, commits) = (Vec::new(), Vec::new());
        VerifiedLine {
            command,
            commit,
            tree,
            requirements,
            commits,
            passed_then: true,
            current: CurrentResult::Refused,
        }
    }

    fn passes(&self) -> bool {
        matches!(&self.current, CurrentResult::Ran(result) if result.ok)
    }

    /// Returns in one sentence why the command does not pass; `None` if it passes or did not run.
    pub(crate) fn failure(&self) -> Option<String> {
        match &self.current {
            CurrentResult::Ran(CheckResult { ok: true, .. }) | CurrentResult::Refused => None,
            CurrentResult::Ran(CheckResult { exit, .. }) => {
                Some(format!("the check `{}` fails with exit code {exit}", self.command))
            }
            CurrentResult::SetUpFailed { line, exit, .. } => Some(format!(
                "the check `{}` cannot run: the setup `{line}` fails with exit code {exit}",
                self.command
            )),
        }
    }

    fn then_word(&self) -> &'static str {
        if self.passed_then { "passed" } else { "failed" }
    }

    fn now_words(&self) -> String {
        match &self.current {
            CurrentResult::Ran(CheckResult { ok: true, ms, .. }) => format!("passed ({ms} ms)"),
            CurrentResult::Ran(CheckResult { exit, ms, .. }) => format!("failed ({exit}, {ms} ms)"),
            CurrentResult::Refused => "not run".to_owned(),
            CurrentResult::SetUpFailed { exit, .. } => format!("setup failed ({exit})"),
        }
    }

    /// Returns the output of a failed command, with a heading.
    fn failure_output(&self) -> Option<(String, &str)> {
        let commit = head(&self.commit, SHORT_COMMIT);
        match &self.current {
            CurrentResult::Ran(result) if !result.ok => {
                let what = format!("{} failed with {} on {commit}", self.command, result.exit);
                Some((what, tail(result.tail.trim_end(), MAX_TAIL_BYTES)))
            }
            CurrentResult::SetUpFailed { line, exit, tail: output } => {
                let what = format!("setup {line} failed with {exit} on {commit}");
                Some((what, tail(output.trim_end(), MAX_TAIL_BYTES)))
            }
            CurrentResult::Ran(_) | CurrentResult::Refused => None,
        }
    }

    fn json(&self) -> Value {
        let (ran, ok, exit, ms, output) = match &self.current {
            CurrentResult::Ran(it) => {
                (true, it.ok, Some(it.exit), Some(it.ms), Some(it.tail.as_str()))
            }
            CurrentResult::Refused | CurrentResult::SetUpFailed { .. } => {
                (false, false, None, None, None)
            }
        };
        let reason = match &self.current {
            CurrentResult::Ran(_) => None,
            CurrentResult::Refused => Some("it is known only from a receipt".to_owned()),
            CurrentResult::SetUpFailed { line, exit, .. } => {
                Some(format!("setup `{line}` failed with {exit}"))
            }
        };
        json!({
            "command": self.command, "on": self.commit, "tree": self.tree,
            "requirements": self.requirements, "commits": self.commits,
            "passed_then": self.passed_then, "ran": ran, "ok": ok, "exit": exit, "ms": ms,
            "tail": output, "why": reason,
        })
    }
}

impl VerifyReport<'_> {
    /// Returns whether every requirement is landed with a check, every command passes now, and
    /// every receipt belongs to its commit's tree.
    pub(crate) fn holds(&self) -> bool {
        let all_covered = self.requirements.iter().all(|it| it.row.gap().is_none());
        let receipts_match = self.findings.iter().all(|it| it.kind != "other_tree");
        all_covered && receipts_match && self.lines.iter().all(VerifiedLine::passes)
    }

    /// Returns the outcome in one sentence.
    pub(crate) fn outcome(&self) -> String {
        if self.holds() {
            let location = if self.each { "where it landed".to_owned() } else { self.on_target() };
            return format!(
                "every requirement has landed, and every recorded check passes {location}"
            );
        }
        let failed = self.lines.iter().filter(|line| !line.passes()).count();
        let open = self.requirements.iter().filter(|it| it.row.gap().is_some()).count();
        let (all, lines) = (self.requirements.len(), self.lines.len());
        format!(
            "{open} of {all} requirements have not landed with a passing check; {failed} of {lines} \
             checks fail"
        )
    }

    fn on_target(&self) -> String {
        format!("on {}", head(&self.onto, SHORT_COMMIT))
    }

    /// Formats the report for a terminal.
    pub(crate) fn text(&self) -> String {
        let row = |line: &VerifiedLine| {
            [
                served(line),
                line.command.clone(),
                line.then_word().to_owned(),
                line.now_words(),
                head(&line.commit, SHORT_COMMIT).to_owned(),
            ]
            .map(|cell| printable(&cell))
        };
        let header = ["REQUIREMENT", "CHECK", "THEN", "NOW", "ON"];
        let mut lines = vec![table::plain(header, self.lines.iter().map(row).collect())];
        lines.extend(self.findings.iter().map(|it| format!("warning: {}", it.text)));
        for (what, output) in self.failure_output() {
            lines.push(format!("\n{what}:"));
            let output = printable_output(output);
            lines.extend(output.lines().map(|line| format!("  {line}")));
            lines.extend(output.is_empty().then(|| "  (no output)".to_owned()));
        }
        printable(&lines.join("\n"))
    }

    /// Formats the report for a pull request.
    pub(crate) fn markdown(&self) -> String {
        let row = |line: &VerifiedLine| {
            let commit = markdown::code(head(&line.commit, SHORT_COMMIT));
            let current = line.now_words();
            let requirements = markdown::text(&served(line));
            [
                requirements,
                markdown::code(&line.command),
                line.then_word().to_owned(),
                current,
                commit,
            ]
        };
        let rows: Vec<_> = self.lines.iter().map(row).collect();
        let header = ["requirement", "check", "then", "now", "on"];
        let mut parts = vec![markdown::text(&self.outcome()), markdown::table(header, &rows)];
        if !self.findings.is_empty() {
            let all = self.findings.iter().map(|it| format!("- {}", markdown::text(&it.text)));
            parts.push(all.collect::<Vec<_>>().join("\n"));
        }
        for (what, output) in self.failure_output() {
            parts.push(markdown::text(&what));
            parts.push(markdown::block(output));
        }
        parts.join("\n\n")
    }

    /// Returns the output of failed commands; a setup that failed for several is listed once.
    fn failure_output(&self) -> Vec<(String, &str)> {
        let mut all: Vec<(String, &str)> =
            self.lines.iter().filter_map(VerifiedLine::failure_output).collect();
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
