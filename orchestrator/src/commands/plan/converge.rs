//! `studio plan --converge`: after the last landing, the recorded checks run again and a model
//! compares each requirement with the code. What is missing is appended to the tasks.

use base::failure::{Failure, Result};
use base::text::{head, printable};
use planner::history::HistoryEvent;
use planner::verdict::{RequirementVerdict, VerdictStatus};
use serde_json::{Value, json};

use super::Plan;
use super::files::TASKS;
use crate::commands::context::CommonArgs;
use crate::commands::verify;
use crate::report;
use studio_core::session::record::Templates;
use studio_git::names::WorktreeTemplate;
use studio_git::{check_worktree, landing_history};

/// Maximum number of comparisons that append tasks in one run; after that the user must look at it.
pub(super) const MAX_ROUNDS: u32 = 3;

/// The result of a comparison.
pub(super) enum Convergence {
    /// Every requirement is met.
    Met,
    /// Tasks for what is missing were appended.
    TasksAdded,
    /// Requirements are not met, and nothing more is planned.
    Unmet,
}

impl Plan<'_> {
    /// Compares the requirements with the tip of the branch, and appends tasks for what is missing
    /// if `may_append`.
    pub(super) fn converge(
        &mut self,
        common: &CommonArgs,
        may_append: bool,
    ) -> Result<Convergence> {
        let (text, requirements) = self.requirements()?;
        let (existing, _) = self.tasks(&requirements)?;
        let (tip, _) = landing_history::resolve(&self.context.repository, &self.record.branch)?;
        if !self.context.json {
            report::say(&format!("comparing the requirements with {} …", head(&tip, 12)));
        }
        let gaps = verify::failed_requirements(common, self.context, &self.requirement_filter())?;
        let reply = self.compare(&tip, &text, &gaps)?;
        let verdicts: Vec<RequirementVerdict> =
            serde_json::from_value(reply["requirements"].clone())
                .map_err(|error| unusable().because(error))?;
        let is_judged = |id: &String| verdicts.iter().any(|it| it.id == *id);
        if let Some(missing) = requirements.iter().find(|it| !is_judged(&it.id)) {
            return Err(unusable().because(format!("{} has no verdict", missing.id)));
        }
        // A failed check decides, whatever the model says.
        let is_met = |it: &RequirementVerdict| {
            it.status == VerdictStatus::Met && gaps.iter().all(|(id, _)| *id != it.id)
        };
        let new_tasks = reply["text"].as_str().unwrap_or_default();
        let (end, event) = match (verdicts.iter().all(is_met), new_tasks.trim().is_empty()) {
            (true, _) => (Convergence::Met, "CONVERGED"),
            (false, false) if may_append => (Convergence::TasksAdded, "NOT CONVERGED"),
            (false, _) => (Convergence::Unmet, "NOT CONVERGED"),
        };
        self.report_verdicts(&tip, &verdicts, is_met);
        if matches!(end, Convergence::TasksAdded) {
            let gap = if existing.is_empty() || existing.ends_with("\n\n") { "" } else { "\n" };
            let appended = format!("{existing}{gap}{new_tasks}");
            self.files.tasks(&appended, &requirements)?;
            self.record.over = false;
            self.files.save(&self.record)?;
            self.files.replace(TASKS, &existing, &appended)?;
        }
        let event = HistoryEvent::Other(format!("{event} (SHA: {tip})"));
        self.files.append_history(self.context.clock, vec![event])?;
        Ok(end)
    }

    /// Lets a model compare the requirements with the files of a commit, in a worktree that no agent
    /// has written.
    fn compare(&self, commit: &str, text: &str, gaps: &[(String, String)]) -> Result<Value> {
        let settings = &self.context.config.studio;
        let templates =
            Templates { branch: settings.branch.clone(), worktree: settings.worktree.clone() };
        let worktrees = WorktreeTemplate::parse(&settings.worktree)?;
        let branches = templates.branches()?;
        let repository = &self.context.repository;
        let prepared = check_worktree::prepare(repository, &worktrees, &branches, &[], commit)?;
        let path = self.files.checkout.join(TASKS);
        let path = path.to_string_lossy();
        let unmet: Vec<String> = gaps.iter().map(|(id, reason)| format!("{id}={reason}")).collect();
        let mut subcommand = vec!["plan", "converge", "--tasks", &path];
        unmet.iter().for_each(|gap| subcommand.extend(["--unmet", gap]));
        self.model_reply(&prepared.session_repo.worktree, &subcommand, text)
    }

    fn report_verdicts(
        &self,
        commit: &str,
        verdicts: &[RequirementVerdict],
        is_met: impl Fn(&RequirementVerdict) -> bool,
    ) {
        if self.context.json {
            report::json_line(&json!({
                "type": "convergence", "commit": commit, "met": verdicts.iter().all(&is_met),
                "requirements": verdicts,
            }));
            return;
        }
        for it in verdicts {
            let status = match it.status {
                VerdictStatus::Met if !is_met(it) => VerdictStatus::Unmet,
                status => status,
            };
            let line = format!("{} {}: {}", it.id, status.word(), it.evidence);
            report::out(&printable(line.trim_end_matches(": ")));
        }
        match verdicts.iter().all(is_met) {
            true => report::say(&format!("every requirement is met at {}", head(commit, 12))),
            false => report::say(&format!("not every requirement is met at {}", head(commit, 12))),
        }
    }
}

fn unusable() -> Failure {
    Failure::failed("the planning model returned no usable comparison")
        .hint("retry with: studio plan --converge")
}
