//! Player and coach work on what was approved; the user says whether that is all.

use base::event::Status;
use base::failure::{Kind, Result};
use planner::history::Happened;
use planner::requirement::Requirement;
use planner::stage::Answer;
use planner::verdict::Status as Met;

use super::ask::{Voice, YES};
use super::place::LIST;
use super::{Run, given, words};
use crate::limits::Limits;
use crate::modes::autonomous::{self, How, Past, requirements};
use crate::run::Settings;
use crate::ui;

/// Rounds of player and coach, unless said.
const ROUNDS: u32 = 5;

impl Run {
    /// Player and coach work.
    pub(super) async fn implement(&mut self) -> Result<Answer> {
        let Some(wanted) = self.place.wanted()? else { return Ok(Answer::No) };
        let all = requirements::of(&wanted)?;
        self.place.state.played = false;
        if self.place.state.tree.is_none() {
            self.start(&wanted, &all).await?;
        }
        let past = autonomous::latest(&self.order.settings.cwd, &wanted)?;
        let (how, before) = match past {
            Some(Past { id, rounds, approved: false, .. }) => (How::Resume(Some(id)), rounds),
            Some(_) | None => (How::New(wanted.clone()), 0),
        };
        let most = self.order.rounds.unwrap_or(ROUNDS);
        let turns = self.order.settings.limits.turns;
        // The rounds count themselves, those of an earlier beginning too.
        let limits = Limits { turns, ..self.left_after(self.place.state.asked)? };
        let settings = Settings { limits, ..self.order.settings.clone() };
        let order = autonomous::Order {
            settings,
            how,
            rounds: Some(before + most),
            checks: self.order.checks.clone(),
        };
        let tokens = self.hear.begin();
        let (bus, asker) = (self.bus.clone(), self.asker.clone());
        let ended = autonomous::run(&order, bus, asker, &tokens).await;
        self.hear.over();
        self.ended = match ended {
            Ok(status) => status,
            Err(failure) if failure.kind == Kind::Refused => Status::NotApproved,
            Err(failure) => return Err(failure),
        };
        let past = autonomous::latest(&self.order.settings.cwd, &wanted)?;
        let met = |id: &str| {
            let verdict = past.as_ref().and_then(|past| past.verdict.as_ref());
            let mut judged = verdict.into_iter().flat_map(|verdict| &verdict.requirements);
            judged.any(|it| it.id == id && it.status == Met::Met)
        };
        self.place.write(LIST, &words::todo(&all, met))?;
        if self.ended == Status::Cancelled {
            return Ok(Answer::Quit);
        }
        self.place.state.played = true;
        self.place.save()?;
        base::files::step("g3.planning.played");
        Ok(Answer::Yes)
    }

    /// What is written down before the first round.
    async fn start(&mut self, wanted: &str, all: &[Requirement]) -> Result<()> {
        self.place.write(LIST, &words::todo(all, |_| false))?;
        let said = self.question(words::summary(wanted), given::choice).await;
        let summary = words::summed_up(said.ok().as_deref(), all);
        if let Some(tree) = &self.tree {
            if let Some(head) = tree.head() {
                self.place.tell(Happened::Head(head))?;
            }
            self.place.state.tree = Some(tree.take()?);
        }
        self.place.tell(Happened::Started(summary))?;
        self.place.save()?;
        base::files::step("g3.planning.started");
        Ok(())
    }

    /// The user says whether that is all.
    pub(super) async fn complete(&mut self) -> Result<Answer> {
        let todo = self.place.read(LIST)?.unwrap_or_default();
        ui::say(&format!("\n{}\n", base::text::printable(todo.trim_end())));
        if self.voice == Voice::Yes && todo.lines().any(|line| line.starts_with("- [ ]")) {
            // Nobody is there who could say that it is good enough.
            self.ended = Status::NotApproved;
            return Ok(Answer::Quit);
        }
        let question = "is this complete? (no: work goes on)";
        let answer = self.ask(question, &YES).await?;
        if answer == Answer::Yes {
            self.place.state.completed = Some(self.place.time("%Y-%m-%d_%H-%M-%S"));
            self.place.save()?;
            base::files::step("g3.planning.completed");
        }
        Ok(answer)
    }
}
