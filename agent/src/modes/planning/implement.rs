//! Runs player and coach on the approved text, and asks the user whether the work is complete.

use base::event::RunStatus;
use base::failure::{FailureKind, Result};
use planner::history::HistoryEvent;
use planner::planning_stage::StageAnswer;
use planner::requirement::Requirement;
use planner::verdict::VerdictStatus as Met;

use super::ask::{AnswerSource, YES};
use super::files::LIST;
use super::{Run, model_io, prompts};
use crate::modes::autonomous::{self, PreviousRun, RunOrigin, requirements};
use crate::ui;
use agent_core::limits::UsageLimits;
use agent_core::run::AgentSettings;

/// Default maximum number of rounds.
const ROUNDS: u32 = 5;

impl Run {
    /// Runs player and coach.
    pub(super) async fn implement(&mut self) -> Result<StageAnswer> {
        let Some(wanted) = self.place.wanted()? else { return Ok(StageAnswer::No) };
        let all = requirements::of(&wanted)?;
        self.place.state.played = false;
        if self.place.state.tree.is_none() {
            self.start(&wanted, &all).await?;
        }
        let past = autonomous::latest(&self.request.settings.cwd, &wanted)?;
        let (origin, before) = match past {
            Some(PreviousRun { id, rounds, approved: false, .. }) => {
                (RunOrigin::Resume(Some(id)), rounds)
            }
            Some(_) | None => (RunOrigin::New(wanted.clone()), 0),
        };
        let most = self.request.rounds.unwrap_or(ROUNDS);
        let turns = self.request.settings.limits.turns;
        // The rounds count their own usage, including that of an earlier start.
        let limits = UsageLimits { turns, ..self.left_after(self.place.state.asked)? };
        let settings = AgentSettings { limits, ..self.request.settings.clone() };
        let request = autonomous::RunRequest {
            settings,
            origin,
            rounds: Some(before + most),
            checks: self.request.checks.clone(),
        };
        let tokens = self.interrupts.begin();
        let (bus, asker) = (self.bus.clone(), self.asker.clone());
        let ended = autonomous::run(&request, bus, asker, &tokens).await;
        self.interrupts.over();
        self.ended = match ended {
            Ok(status) => status,
            Err(failure) if failure.kind == FailureKind::Refused => RunStatus::NotApproved,
            Err(failure) => return Err(failure),
        };
        let past = autonomous::latest(&self.request.settings.cwd, &wanted)?;
        let met = |id: &str| {
            let verdict = past.as_ref().and_then(|past| past.verdict.as_ref());
            let mut judged = verdict.into_iter().flat_map(|verdict| &verdict.requirements);
            judged.any(|it| it.id == id && it.status == Met::Met)
        };
        self.place.write(LIST, &prompts::todo(&all, met))?;
        if self.ended == RunStatus::Cancelled {
            return Ok(StageAnswer::Quit);
        }
        self.place.state.played = true;
        self.place.save()?;
        base::files::step("g3.planning.played");
        Ok(StageAnswer::Yes)
    }

    /// Records the to-do list, the state of the files and a summary before the first round.
    async fn start(&mut self, wanted: &str, all: &[Requirement]) -> Result<()> {
        self.place.write(LIST, &prompts::todo(all, |_| false))?;
        let answer = self.question(prompts::summary(wanted), model_io::choice).await;
        let summary = prompts::summed_up(answer.ok().as_deref(), all);
        if let Some(tree) = &self.tree {
            if let Some(head) = tree.head() {
                self.place.record(HistoryEvent::Head(head))?;
            }
            self.place.state.tree = Some(tree.take()?);
        }
        self.place.record(HistoryEvent::Started(summary))?;
        self.place.save()?;
        base::files::step("g3.planning.started");
        Ok(())
    }

    /// Asks the user whether the work is complete.
    pub(super) async fn complete(&mut self) -> Result<StageAnswer> {
        let todo = self.place.read(LIST)?.unwrap_or_default();
        ui::say(&format!("\n{}\n", base::text::printable(todo.trim_end())));
        if self.answers == AnswerSource::Yes && todo.lines().any(|line| line.starts_with("- [ ]")) {
            // `--yes` does not accept open requirements.
            self.ended = RunStatus::NotApproved;
            return Ok(StageAnswer::Quit);
        }
        let question = "is this complete? (no: continue)";
        let answer = self.ask(question, &YES).await?;
        if answer == StageAnswer::Yes {
            self.place.state.completed = Some(self.place.time("%Y-%m-%d_%H-%M-%S"));
            self.place.save()?;
            base::files::step("g3.planning.completed");
        }
        Ok(answer)
    }
}
