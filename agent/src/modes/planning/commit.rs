//! The end of a plan: renames its files to their final names, and commits the work.

use base::failure::Result;
use planner::history::HistoryEvent;
use planner::planning_stage::StageAnswer;
use serde_json::json;

use base::event::EventKind;

use super::ask::YES;
use super::files::{CURRENT, LIST, section};
use super::git_tree::{CommitSelection, UserTree};
use super::{Run, prompts};
use crate::ui;
use agent_core::run::AgentSettings;
use provider::ProviderChoice;

impl Run {
    /// Renames both files to their final names.
    pub(super) fn archive(&mut self) -> Result<StageAnswer> {
        let stamp = match &self.place.state.completed {
            Some(stamp) => stamp.clone(),
            None => self.place.time("%Y-%m-%d_%H-%M-%S"),
        };
        let names = [(CURRENT, "requirements"), (LIST, "todo")]
            .map(|(from, word)| (from, format!("completed_{word}_{stamp}.md")));
        for (from, to) in &names {
            if self.place.file(from).exists() {
                self.place.rename(from, to)?;
            }
        }
        let [(_, requirements), (_, todo)] = names;
        let done = HistoryEvent::Completed(requirements, todo);
        if self.place.last()?.as_ref() != Some(&done) {
            self.place.record(done)?;
        }
        self.place.state.completed = Some(stamp);
        self.place.state.archived = true;
        self.place.save()?;
        base::files::step("g3.planning.archived");
        Ok(StageAnswer::Yes)
    }

    /// Commits the changes of the work, and nothing else.
    pub(super) async fn commit(&mut self) -> Result<StageAnswer> {
        let (Some(tree), Some(since)) = (self.tree.clone(), self.place.state.tree.clone()) else {
            self.place.forget()?;
            return Ok(StageAnswer::Yes);
        };
        let message = self.message(&tree, &since).await?;
        let subject = message.lines().next().unwrap_or_default().to_owned();
        let event = HistoryEvent::Committing(subject);
        // The line enters the history before the commit, so that the commit contains it.
        let pick = tree.pick(&since, &self.place.dir)?;
        self.show(&message, &pick);
        match self.ask("commit this?", &YES).await? {
            StageAnswer::Yes => {}
            StageAnswer::No => {
                self.place.record(HistoryEvent::NotCommitted)?;
                self.place.forget()?;
                return Ok(StageAnswer::No);
            }
            StageAnswer::Quit => return Ok(StageAnswer::Quit),
        }
        if self.place.last()?.as_ref() != Some(&event) {
            self.place.record(event)?;
        }
        let pick = tree.pick(&since, &self.place.dir)?;
        let commit = tree.commit(&pick, &message)?;
        base::files::step("g3.planning.committed");
        self.place.forget()?;
        ui::say(&format!("committed as {}", base::text::head(&commit, 12)));
        let plan = json!({"mode": "planning", "state": "committed", "commit": commit});
        self.bus.emit(EventKind::Plan { plan });
        Ok(StageAnswer::Yes)
    }

    /// Returns the commit message: from a model, or a plain one from the requirements.
    async fn message(&mut self, tree: &UserTree, since: &str) -> Result<String> {
        if let Some(message) = &self.place.state.message {
            return Ok(message.clone());
        }
        let wanted = self.archived_text()?;
        let paths = tree.pick(since, &self.place.dir)?.paths();
        let commit = |settings: &AgentSettings| {
            let typed = &settings.choice;
            let configured = settings.config.providers.commit.clone();
            ProviderChoice { reference: typed.reference.clone().or(configured), ..typed.clone() }
        };
        let answer = self.question(prompts::commit(&wanted, &paths), commit).await;
        let read = answer.map_err(|failure| failure.sentence());
        let read =
            read.and_then(|words| planner::commit::read(&base::text::printable_output(&words)));
        let message = read.unwrap_or_else(|error| {
            self.warn(format!("used a plain commit message: {error}"));
            planner::commit::from_task(&prompts::plain(&wanted))
        });
        self.place.state.message = Some(message.clone());
        self.place.save()?;
        Ok(message)
    }

    fn archived_text(&self) -> Result<String> {
        let stamp = self.place.state.completed.clone().unwrap_or_default();
        let text = self.place.read(&format!("completed_requirements_{stamp}.md"))?;
        Ok(text.as_deref().map(section).unwrap_or_default().to_owned())
    }

    fn show(&self, message: &str, pick: &CommitSelection) {
        let lines: Vec<String> = pick.paths();
        ui::say(&format!("\n{message}\n\n{} files:", lines.len()));
        lines
            .iter()
            .take(30)
            .for_each(|line| ui::say(&format!("  {}", base::text::printable(line))));
        for (path, reason) in &pick.excluded {
            self.warn(format!("left out: {path}: {reason}"));
        }
    }
}
