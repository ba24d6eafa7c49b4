//! `g3 --planning`: from a feature request to a commit. The user writes the request, a model
//! refines it, the user approves the text, player and coach work, and the result is archived and
//! committed.

mod ask;
mod commit;
mod converge;
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

/// The request for a planning run.
#[derive(Clone, Debug)]
pub(crate) struct PlanRequest {
    /// The settings of the command line and the configuration; their directory is the code path.
    pub settings: AgentSettings,
    /// Whether git is used.
    pub git: bool,
    /// Whether every question is answered with yes.
    pub yes: bool,
    /// Maximum number of rounds.
    pub rounds: Option<u32>,
    /// Commands that must pass, in addition to the configured ones.
    pub checks: Vec<String>,
}

/// A planning run in progress.
struct Run {
    request: PlanRequest,
    place: PlanDir,
    tree: Option<UserTree>,
    answers: AnswerSource,
    interrupts: Interrupts,
    bus: Arc<Bus>,
    asker: Option<Arc<dyn Asker>>,
    /// How the rounds ended, if this process ran them.
    ended: RunStatus,
    /// The limits of the run; each model request gets the remainder.
    budget: RoundBudget,
}

/// Runs until the user quits; with `--yes`, until one feature request is done.
pub(crate) async fn run(
    request: PlanRequest,
    bus: Arc<Bus>,
    asker: Option<Arc<dyn Asker>>,
) -> Result<RunStatus> {
    if request.settings.choice.budget {
        // The prices of both models must be known before anything is spent.
        PlayerCoach::of(&request.settings, &RunTerms::default())?;
    }
    let place = PlanDir::open(&request.settings.cwd)?;
    let tree = match request.git {
        true => Some(UserTree::of(&place.code, place.keep())?.ok_or_else(no_repository)?),
        false => None,
    };
    let answers = if request.yes { AnswerSource::Yes } else { AnswerSource::Lines };
    let interrupts = Interrupts::listen()?;
    let ended = RunStatus::Done;
    let budget = RoundBudget::new(request.settings.limits);
    let mut run = Run { request, place, tree, answers, interrupts, bus, asker, ended, budget };
    let Some(mut stage) = run.begin().await? else { return Ok(RunStatus::Cancelled) };
    loop {
        run.emit_stage(stage);
        let answer = match stage {
            PlanningStage::Write => run.write().await?,
            PlanningStage::Refine => run.refine().await?,
            PlanningStage::Approve => run.approve().await?,
            PlanningStage::Implement => run.implement().await?,
            PlanningStage::Complete => run.complete().await?,
            PlanningStage::Archive => run.archive()?,
            PlanningStage::Commit => run.commit().await?,
        };
        match planning_stage::next_stage(stage, answer) {
            Some(PlanningStage::Write)
                if stage == PlanningStage::Commit && run.answers == AnswerSource::Yes =>
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
    /// Asks the questions at the start; returns `None` if the user does not want to continue.
    async fn begin(&mut self) -> Result<Option<PlanningStage>> {
        if let Some(tree) = &self.tree {
            tree.require_committer()?;
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
        let files = self.place.inspect()?;
        if !planning_stage::is_recovery(files) {
            return Ok(Some(planning_stage::stage(files)));
        }
        self.recover(files).await
    }

    /// Continues or archives the work of an earlier run, as the user decides.
    async fn recover(&mut self, files: PlanningFiles) -> Result<Option<PlanningStage>> {
        ui::say("unfinished work of an earlier run:");
        for name in [CURRENT, LIST] {
            if let Some(text) = self.place.read(name)? {
                ui::say(&format!("g3-plan/{name}:\n{}", base::text::printable(text.trim_end())));
            }
        }
        match self.ask("continue it? (no: archive it)", &YES).await? {
            StageAnswer::Yes => {
                self.place.record(HistoryEvent::Recovering)?;
                Ok(Some(planning_stage::stage(files)))
            }
            StageAnswer::No => {
                self.place.record(HistoryEvent::Skipped)?;
                Ok(Some(if files.archived {
                    PlanningStage::Commit
                } else {
                    PlanningStage::Archive
                }))
            }
            StageAnswer::Quit => Ok(None),
        }
    }

    async fn ask(&self, question: &str, choice: &ask::AnswerChoice) -> Result<StageAnswer> {
        self.answers.ask(&self.interrupts, question, choice).await
    }

    fn emit_stage(&self, stage: PlanningStage) {
        let plan = json!({"mode": "planning", "state": format!("{stage:?}").to_lowercase()});
        self.bus.emit(EventKind::Plan { plan });
    }

    fn warn(&self, text: String) {
        self.bus.emit(EventKind::Notice { level: NoticeLevel::Warning, text });
    }

    /// Waits for the user's feature request.
    async fn write(&mut self) -> Result<StageAnswer> {
        let file = self.place.file(NEW);
        let mut pressed = self.answers == AnswerSource::Yes;
        loop {
            if let Some(text) = self.place.read(NEW)?.filter(|text| !text.trim().is_empty())
                && (pressed
                    || planning_stage::stage(self.place.inspect()?) == PlanningStage::Refine)
            {
                self.place.write(NEW, &document::mark_original(&text))?;
                return Ok(StageAnswer::Yes);
            }
            if self.answers == AnswerSource::Yes {
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
            match ask::line(&self.interrupts).await? {
                None => return Ok(StageAnswer::Quit),
                Some(line) if ["q", "quit", "exit"].contains(&line.trim()) => {
                    return Ok(StageAnswer::Quit);
                }
                Some(_) => pressed = true,
            }
        }
    }

    /// Lets a model refine the feature request.
    async fn refine(&mut self) -> Result<StageAnswer> {
        let Some(text) = self.place.read(NEW)? else { return Ok(StageAnswer::No) };
        let text = document::mark_original(&text);
        self.place.record(HistoryEvent::Refining)?;
        let wish = [document::original(&text), document::current(&text)];
        let wish = wish.into_iter().flatten().collect::<Vec<_>>().join("\n");
        let report = explore::report(&self.place.code);
        let history = self.place.history()?;
        let history = base::text::tail(&history, 4_000).to_owned();
        let (tool, asked) = refine::refine(&wish, prompts::refine(&wish, &report, &history));
        let settings =
            AgentSettings { limits: self.limits_left()?, ..self.request.settings.clone() };
        let tokens = self.interrupts.begin();
        let listeners = (self.bus.clone(), self.asker.clone());
        let mut spent = Usage::default();
        let refined = tool.ask(&settings, asked, listeners, (tokens.cancel, &mut spent)).await;
        self.interrupts.over();
        self.charge(spent)?;
        match refined? {
            ModelText::Text(wanted) => {
                let text = document::with_current(&text, &wanted);
                let (text, _) = document::add_ids(&text).map_err(|_| unusable())?;
                self.place.write(NEW, &text)?;
                base::files::step("g3.planning.refined");
                Ok(StageAnswer::Yes)
            }
            ModelText::Cancelled => Ok(StageAnswer::Quit),
            ModelText::Nothing(failure) if self.answers == AnswerSource::Yes => Err(failure),
            ModelText::Nothing(failure) => {
                ui::fail(&failure);
                self.ask("try again?", &YES).await.map(|answer| match answer {
                    StageAnswer::Yes => StageAnswer::No,
                    StageAnswer::No | StageAnswer::Quit => StageAnswer::Quit,
                })
            }
        }
    }

    /// Shows the text, and asks the user to approve exactly that text.
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
            self.place.record(HistoryEvent::Approved(base::text::head(&hash, 12).to_owned()))?;
        }
        Ok(answer)
    }

    /// Returns the limits that remain for model requests. The rounds of player and coach count too.
    fn limits_left(&self) -> Result<UsageLimits> {
        let mut spent = self.place.state.asked;
        if let Some(wanted) = self.place.wanted()?
            && let Some(past) = autonomous::latest(&self.request.settings.cwd, &wanted)?
        {
            spent = spent.plus(past.usage);
        }
        self.left_after(spent)
    }

    fn left_after(&self, spent: Usage) -> Result<UsageLimits> {
        self.budget.remaining(spent).map_err(|limit| Failure::refused(format!("stopped: {limit}")))
    }

    /// Records the usage of a model request.
    fn charge(&mut self, usage: Usage) -> Result<()> {
        self.place.state.asked = self.place.state.asked.plus(usage);
        self.place.save()
    }

    /// Sends one request to a model, without tools.
    async fn question(
        &mut self,
        text: String,
        choice: fn(&AgentSettings) -> ProviderChoice,
    ) -> Result<String> {
        let settings = AgentSettings {
            choice: choice(&self.request.settings),
            ..self.request.settings.clone()
        };
        self.limits_left()?;
        let answer = complete::run(&settings, &text, self.bus.clone()).await?;
        self.charge(answer.usage)?;
        Ok(answer.text)
    }
}

fn unusable() -> Failure {
    Failure::failed("requirement ids are not unique")
}

/// Resolves the directory of `--codepath`; `~` is the home directory. Fails if it does not exist.
pub(crate) fn code_path(typed: &str, cwd: &std::path::Path) -> Result<PathBuf> {
    let home = base::user_dirs::home_dir().unwrap_or_default();
    let path = match typed.strip_prefix('~') {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => {
            home.join(rest.trim_start_matches('/'))
        }
        Some(_) | None => cwd.join(typed),
    };
    let real = path.canonicalize().ok().filter(|path| path.is_dir());
    real.ok_or_else(|| Failure::usage(format!("no such directory: {}", path.display())))
}
