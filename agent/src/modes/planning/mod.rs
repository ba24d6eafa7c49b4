//! `g3 --planning`: from a wish to a commit. The user writes what is wanted, a model refines it,
//! the user approves the text, player and coach work, and what they did is archived and committed.

mod ask;
mod commit;
pub mod explore;
mod files;
mod git_tree;
mod implement;
mod model_io;
pub mod noninteractive;
mod prompts;
mod refine;
mod split;

use std::path::PathBuf;
use std::sync::Arc;

use base::config::trust::hash;
use base::event::{EventKind, NoticeLevel, RunStatus, Usage};
use base::failure::{Failure, Result};
use planner::document;
use planner::history::HistoryEvent;
use planner::planning_stage::{self, PlanningFiles, PlanningStage, StageAnswer};
use serde_json::json;

use self::ask::{AnswerSource, OWN, YES};
use self::files::{CURRENT, LIST, NEW, PlanDir, section};
use self::git_tree::UserTree;
use self::model_io::ModelText;
use super::autonomous::{self, PlayerCoach, RoundBudget, RunTerms, requirements};
use super::complete;
use super::interrupt::Interrupts;
use crate::ui;
use agent_core::bus::Bus;
use agent_core::limits::UsageLimits;
use agent_core::run::AgentSettings;
use gate::Asker;
use provider::ProviderChoice;

/// What is to be run.
#[derive(Clone, Debug)]
pub(crate) struct PlanRequest {
    /// What was typed and configured; its directory is the code path.
    pub settings: AgentSettings,
    /// Whether git is used.
    pub git: bool,
    /// Whether everything that would be asked is answered with yes.
    pub yes: bool,
    /// Rounds at most.
    pub rounds: Option<u32>,
    /// Commands that must pass, besides the configured ones.
    pub checks: Vec<String>,
}

/// A run at work.
struct Run {
    order: PlanRequest,
    place: PlanDir,
    tree: Option<UserTree>,
    voice: AnswerSource,
    hear: Interrupts,
    bus: Arc<Bus>,
    asker: Option<Arc<dyn Asker>>,
    /// How the rounds ended, as far as they were run here.
    ended: RunStatus,
    /// The limits of the run, of which each question gets what is left.
    purse: RoundBudget,
}

/// Runs until the user leaves; with `--yes`, until one wish is done.
pub(crate) async fn run(
    order: PlanRequest,
    bus: Arc<Bus>,
    asker: Option<Arc<dyn Asker>>,
) -> Result<RunStatus> {
    if order.settings.choice.budget {
        // The prices of both sides must be known before anything is spent.
        PlayerCoach::of(&order.settings, &RunTerms::default())?;
    }
    let place = PlanDir::open(&order.settings.cwd)?;
    let tree = match order.git {
        true => Some(UserTree::of(&place.code, place.keep())?.ok_or_else(no_repository)?),
        false => None,
    };
    let voice = if order.yes { AnswerSource::Yes } else { AnswerSource::Lines };
    let hear = Interrupts::listen()?;
    let ended = RunStatus::Done;
    let purse = RoundBudget::new(order.settings.limits);
    let mut run = Run { order, place, tree, voice, hear, bus, asker, ended, purse };
    let Some(mut stage) = run.begin().await? else { return Ok(RunStatus::Cancelled) };
    loop {
        run.tell(stage);
        let answer = match stage {
            PlanningStage::Write => run.write().await?,
            PlanningStage::Refine => run.refine().await?,
            PlanningStage::Approve => run.approve().await?,
            PlanningStage::Implement => run.implement().await?,
            PlanningStage::Complete => run.complete().await?,
            PlanningStage::Archive => run.archive()?,
            PlanningStage::Commit => run.commit().await?,
        };
        match planning_stage::after(stage, answer) {
            Some(PlanningStage::Write)
                if stage == PlanningStage::Commit && run.voice == AnswerSource::Yes =>
            {
                return Ok(run.ended);
            }
            Some(next) => stage = next,
            None => return Ok(run.ended),
        }
    }
}

fn no_repository() -> Failure {
    Failure::usage("the code path is not in a git repository")
        .hint("git init")
        .hint("g3 --planning --no-git, to work without commits")
}

impl Run {
    /// The questions at the start; `None` when the user does not want to go on.
    async fn begin(&mut self) -> Result<Option<PlanningStage>> {
        if let Some(tree) = &self.tree {
            tree.refuse_nobody()?;
            let (branch, dirty) = (tree.branch()?, tree.dirty()?);
            let ours = |line: &&String| !line.ends_with(&format!("g3-plan/{NEW}"));
            let dirty: Vec<&String> = dirty.iter().filter(ours).collect();
            if self.ask(&format!("work on branch `{branch}`?"), &YES).await? != StageAnswer::Yes {
                return Ok(None);
            }
            if !dirty.is_empty() {
                ui::say("uncommitted changes (will not be committed):");
                dirty.iter().take(30).for_each(|line| ui::say(&format!("  {line}")));
                if self.ask("continue?", &YES).await? != StageAnswer::Yes {
                    return Ok(None);
                }
            }
        }
        let found = self.place.found()?;
        if !planning_stage::is_recovery(found) {
            return Ok(Some(planning_stage::stage(found)));
        }
        self.recover(found).await
    }

    /// Takes up what an earlier run left.
    async fn recover(&mut self, found: PlanningFiles) -> Result<Option<PlanningStage>> {
        ui::say("unfinished work of an earlier run:");
        for name in [CURRENT, LIST] {
            if let Some(text) = self.place.read(name)? {
                ui::say(&format!("g3-plan/{name}:\n{}", base::text::printable(text.trim_end())));
            }
        }
        match self.ask("continue it? (no: archive it)", &YES).await? {
            StageAnswer::Yes => {
                self.place.tell(HistoryEvent::Recovering)?;
                Ok(Some(planning_stage::stage(found)))
            }
            StageAnswer::No => {
                self.place.tell(HistoryEvent::Skipped)?;
                Ok(Some(if found.archived {
                    PlanningStage::Commit
                } else {
                    PlanningStage::Archive
                }))
            }
            StageAnswer::Quit => Ok(None),
        }
    }

    async fn ask(&self, question: &str, choice: &ask::AnswerChoice) -> Result<StageAnswer> {
        self.voice.ask(&self.hear, question, choice).await
    }

    fn tell(&self, stage: PlanningStage) {
        let plan = json!({"mode": "planning", "state": format!("{stage:?}").to_lowercase()});
        self.bus.emit(EventKind::Plan { plan });
    }

    fn warn(&self, text: String) {
        self.bus.emit(EventKind::Notice { level: NoticeLevel::Warning, text });
    }

    /// Waits for what the user wants.
    async fn write(&mut self) -> Result<StageAnswer> {
        let file = self.place.file(NEW);
        let mut pressed = self.voice == AnswerSource::Yes;
        loop {
            if let Some(text) = self.place.read(NEW)?.filter(|text| !text.trim().is_empty())
                && (pressed || planning_stage::stage(self.place.found()?) == PlanningStage::Refine)
            {
                self.place.write(NEW, &document::marked(&text))?;
                return Ok(StageAnswer::Yes);
            }
            if self.voice == AnswerSource::Yes {
                return Err(Failure::usage("no requirements")
                    .because(format!("no such file: {}", file.display()))
                    .hint("write a feature request to it, then run this again"));
            }
            if pressed {
                ui::say("the file is empty");
            }
            ui::say(&format!(
                "write a feature request to {}, then press Enter (q: quit)",
                file.display()
            ));
            match ask::line(&self.hear).await? {
                None => return Ok(StageAnswer::Quit),
                Some(line) if ["q", "quit", "exit"].contains(&line.trim()) => {
                    return Ok(StageAnswer::Quit);
                }
                Some(_) => pressed = true,
            }
        }
    }

    /// Lets a model refine it.
    async fn refine(&mut self) -> Result<StageAnswer> {
        let Some(text) = self.place.read(NEW)? else { return Ok(StageAnswer::No) };
        let text = document::marked(&text);
        self.place.tell(HistoryEvent::Refining)?;
        let wish = [document::original(&text), document::current(&text)];
        let wish = wish.into_iter().flatten().collect::<Vec<_>>().join("\n");
        let report = explore::report(&self.place.code);
        let history = self.place.history()?;
        let history = base::text::tail(&history, 4_000).to_owned();
        let (tool, asked) = refine::refine(&wish, prompts::refine(&wish, &report, &history));
        let settings = AgentSettings { limits: self.limits_left()?, ..self.order.settings.clone() };
        let tokens = self.hear.begin();
        let heard = (self.bus.clone(), self.asker.clone());
        let mut spent = Usage::default();
        let came = tool.ask(&settings, asked, heard, (tokens.cancel, &mut spent)).await;
        self.hear.over();
        self.charge(spent)?;
        match came? {
            ModelText::Text(wanted) => {
                let text = document::with_current(&text, &wanted);
                let (text, _) = document::numbered(&text).map_err(|_| unusable())?;
                self.place.write(NEW, &text)?;
                base::files::step("g3.planning.refined");
                Ok(StageAnswer::Yes)
            }
            ModelText::Cancelled => Ok(StageAnswer::Quit),
            ModelText::Nothing(failure) if self.voice == AnswerSource::Yes => Err(failure),
            ModelText::Nothing(failure) => {
                ui::fail(&failure);
                self.ask("try again?", &YES).await.map(|answer| match answer {
                    StageAnswer::Yes => StageAnswer::No,
                    StageAnswer::No | StageAnswer::Quit => StageAnswer::Quit,
                })
            }
        }
    }

    /// Shows the text, and asks for the user's approval of exactly that text.
    async fn approve(&mut self) -> Result<StageAnswer> {
        let name = if self.place.file(CURRENT).exists() { CURRENT } else { NEW };
        let Some(text) = self.place.read(name)? else { return Ok(StageAnswer::No) };
        let wanted = section(&text).to_owned();
        requirements::of(&wanted)?;
        ui::say(&format!("\n{}\n", base::text::printable(wanted.trim())));
        let answer = self.ask(&format!("implement g3-plan/{name} as it is?"), &OWN).await?;
        if answer == StageAnswer::Yes {
            let now = self.place.read(name)?;
            if now.as_deref().map(section) != Some(wanted.as_str()) {
                ui::say("the file changed after you reviewed it");
                return Ok(StageAnswer::No);
            }
            self.place.state.approved = Some(hash(wanted.as_bytes()));
            self.place.save()?;
            base::files::step("g3.planning.approved");
            if name == NEW {
                self.place.rename(NEW, CURRENT)?;
            }
            let hash = self.place.state.approved.clone().unwrap_or_default();
            self.place.tell(HistoryEvent::Approved(base::text::head(&hash, 12).to_owned()))?;
        }
        Ok(answer)
    }

    /// What is left of the limits for questions to a model: the rounds of player and coach count too.
    fn limits_left(&self) -> Result<UsageLimits> {
        let mut spent = self.place.state.asked;
        if let Some(wanted) = self.place.wanted()?
            && let Some(past) = autonomous::latest(&self.order.settings.cwd, &wanted)?
        {
            spent = spent.plus(past.usage);
        }
        self.left_after(spent)
    }

    fn left_after(&self, spent: Usage) -> Result<UsageLimits> {
        self.purse.left(spent).map_err(|limit| Failure::refused(format!("stopped: {limit}")))
    }

    /// Counts what a question to a model cost.
    fn charge(&mut self, usage: Usage) -> Result<()> {
        self.place.state.asked = self.place.state.asked.plus(usage);
        self.place.save()
    }

    /// One question to a model, without tools.
    async fn question(
        &mut self,
        text: String,
        choice: fn(&AgentSettings) -> ProviderChoice,
    ) -> Result<String> {
        let settings =
            AgentSettings { choice: choice(&self.order.settings), ..self.order.settings.clone() };
        self.limits_left()?;
        let answer = complete::run(&settings, &text, self.bus.clone()).await?;
        self.charge(answer.usage)?;
        Ok(answer.text)
    }
}

fn unusable() -> Failure {
    Failure::failed("requirement ids are not unique")
}

/// The directory that `--codepath` means: `~` is the home, and it must be there.
pub(crate) fn code_path(typed: &str, cwd: &std::path::Path) -> Result<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let path = match typed.strip_prefix('~') {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => {
            home.join(rest.trim_start_matches('/'))
        }
        Some(_) | None => cwd.join(typed),
    };
    let real = path.canonicalize().ok().filter(|path| path.is_dir());
    real.ok_or_else(|| Failure::usage(format!("no such directory: {}", path.display())))
}
