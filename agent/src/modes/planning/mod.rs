//! `g3 --planning`: from a wish to a commit. The user writes what is wanted, a model refines it,
//! the user approves the text, player and coach work, and what they did is archived and committed.

pub mod alone;
mod ask;
mod commit;
pub mod explore;
mod given;
mod implement;
mod place;
mod refine;
mod split;
mod tree;
mod words;

use std::path::PathBuf;
use std::sync::Arc;

use base::config::trust::hash;
use base::event::{Level, Status, Usage, What};
use base::failure::{Failure, Result};
use planner::document;
use planner::history::Happened;
use planner::stage::{self, Answer, Found, Stage};
use serde_json::json;

use self::ask::{OWN, Voice, YES};
use self::given::Came;
use self::place::{CURRENT, LIST, NEW, Place, section};
use self::tree::Tree;
use super::autonomous::{self, Pair, Purse, Terms, requirements};
use super::complete;
use super::interrupt::Interrupts;
use crate::limits::Limits;
use crate::run::Settings;
use crate::ui::{self, Bus};
use gate::Asker;
use provider::Choice;

/// What is to be run.
#[derive(Clone, Debug)]
pub struct Order {
    /// What was typed and configured; its directory is the code path.
    pub settings: Settings,
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
    order: Order,
    place: Place,
    tree: Option<Tree>,
    voice: Voice,
    hear: Interrupts,
    bus: Arc<Bus>,
    asker: Option<Arc<dyn Asker>>,
    /// How the rounds ended, as far as they were run here.
    ended: Status,
    /// The limits of the run, of which each question gets what is left.
    purse: Purse,
}

/// Runs until the user leaves; with `--yes`, until one wish is done.
pub async fn run(order: Order, bus: Arc<Bus>, asker: Option<Arc<dyn Asker>>) -> Result<Status> {
    if order.settings.choice.budget {
        // The prices of both sides must be known before anything is spent.
        Pair::of(&order.settings, &Terms::default())?;
    }
    let place = Place::open(&order.settings.cwd)?;
    let tree = match order.git {
        true => Some(Tree::of(&place.code, place.keep())?.ok_or_else(no_repository)?),
        false => None,
    };
    let voice = if order.yes { Voice::Yes } else { Voice::Lines };
    let hear = Interrupts::listen()?;
    let ended = Status::Done;
    let purse = Purse::new(order.settings.limits);
    let mut run = Run { order, place, tree, voice, hear, bus, asker, ended, purse };
    let Some(mut stage) = run.begin().await? else { return Ok(Status::Cancelled) };
    loop {
        run.tell(stage);
        let answer = match stage {
            Stage::Write => run.write().await?,
            Stage::Refine => run.refine().await?,
            Stage::Approve => run.approve().await?,
            Stage::Implement => run.implement().await?,
            Stage::Complete => run.complete().await?,
            Stage::Archive => run.archive()?,
            Stage::Commit => run.commit().await?,
        };
        match stage::after(stage, answer) {
            Some(Stage::Write) if stage == Stage::Commit && run.voice == Voice::Yes => {
                return Ok(run.ended);
            }
            Some(next) => stage = next,
            None => return Ok(run.ended),
        }
    }
}

fn no_repository() -> Failure {
    Failure::usage("the code path is in no git repository")
        .next("git init")
        .next("g3 --planning --no-git, to work without commits")
}

impl Run {
    /// The questions at the start; `None` when the user does not want to go on.
    async fn begin(&mut self) -> Result<Option<Stage>> {
        if let Some(tree) = &self.tree {
            tree.refuse_nobody()?;
            let (branch, dirty) = (tree.branch()?, tree.dirty()?);
            let ours = |line: &&String| !line.ends_with(&format!("g3-plan/{NEW}"));
            let dirty: Vec<&String> = dirty.iter().filter(ours).collect();
            if self.ask(&format!("work on branch `{branch}`?"), &YES).await? != Answer::Yes {
                return Ok(None);
            }
            if !dirty.is_empty() {
                ui::say("these files are not committed; what you have there stays out of commits:");
                dirty.iter().take(30).for_each(|line| ui::say(&format!("  {line}")));
                if self.ask("go on?", &YES).await? != Answer::Yes {
                    return Ok(None);
                }
            }
        }
        let found = self.place.found()?;
        if !stage::is_recovery(found) {
            return Ok(Some(stage::stage(found)));
        }
        self.recover(found).await
    }

    /// Takes up what an earlier run left.
    async fn recover(&mut self, found: Found) -> Result<Option<Stage>> {
        ui::say("an earlier run left work here:");
        for name in [CURRENT, LIST] {
            if let Some(text) = self.place.read(name)? {
                ui::say(&format!("g3-plan/{name}:\n{}", base::text::printable(text.trim_end())));
            }
        }
        match self.ask("go on with it? (no: archive it as it is)", &YES).await? {
            Answer::Yes => {
                self.place.tell(Happened::Recovering)?;
                Ok(Some(stage::stage(found)))
            }
            Answer::No => {
                self.place.tell(Happened::Skipped)?;
                Ok(Some(if found.archived { Stage::Commit } else { Stage::Archive }))
            }
            Answer::Quit => Ok(None),
        }
    }

    async fn ask(&self, question: &str, choice: &ask::Choice) -> Result<Answer> {
        self.voice.ask(&self.hear, question, choice).await
    }

    fn tell(&self, stage: Stage) {
        let plan = json!({"mode": "planning", "state": format!("{stage:?}").to_lowercase()});
        self.bus.tell(What::Plan { plan });
    }

    fn warn(&self, text: String) {
        self.bus.tell(What::Notice { level: Level::Warning, text });
    }

    /// Waits for what the user wants.
    async fn write(&mut self) -> Result<Answer> {
        let file = self.place.file(NEW);
        let mut pressed = self.voice == Voice::Yes;
        loop {
            if let Some(text) = self.place.read(NEW)?.filter(|text| !text.trim().is_empty())
                && (pressed || stage::stage(self.place.found()?) == Stage::Refine)
            {
                self.place.write(NEW, &document::marked(&text))?;
                return Ok(Answer::Yes);
            }
            if self.voice == Voice::Yes {
                return Err(Failure::usage("there are no requirements")
                    .because(format!("there is no file {}", file.display()))
                    .next("write what you want into it, and run this again"));
            }
            if pressed {
                ui::say("there is nothing in it yet");
            }
            ui::say(&format!(
                "write what you want into {}, then press Enter (q: quit)",
                file.display()
            ));
            match ask::line(&self.hear).await? {
                None => return Ok(Answer::Quit),
                Some(line) if ["q", "quit", "exit"].contains(&line.trim()) => {
                    return Ok(Answer::Quit);
                }
                Some(_) => pressed = true,
            }
        }
    }

    /// Lets a model refine it.
    async fn refine(&mut self) -> Result<Answer> {
        let Some(text) = self.place.read(NEW)? else { return Ok(Answer::No) };
        let text = document::marked(&text);
        self.place.tell(Happened::Refining)?;
        let wish = [document::original(&text), document::current(&text)];
        let wish = wish.into_iter().flatten().collect::<Vec<_>>().join("\n");
        let report = explore::report(&self.place.code);
        let history = self.place.history()?;
        let history = base::text::tail(&history, 4_000).to_owned();
        let (tool, asked) = refine::refine(&wish, words::refine(&wish, &report, &history));
        let settings = Settings { limits: self.limits_left()?, ..self.order.settings.clone() };
        let tokens = self.hear.begin();
        let heard = (self.bus.clone(), self.asker.clone());
        let mut spent = Usage::default();
        let came = tool.ask(&settings, asked, heard, (tokens.cancel, &mut spent)).await;
        self.hear.over();
        self.charge(spent)?;
        match came? {
            Came::Text(wanted) => {
                let text = document::with_current(&text, &wanted);
                let (text, _) = document::numbered(&text).map_err(|_| unusable())?;
                self.place.write(NEW, &text)?;
                base::files::step("g3.planning.refined");
                Ok(Answer::Yes)
            }
            Came::Cancelled => Ok(Answer::Quit),
            Came::Nothing(failure) if self.voice == Voice::Yes => Err(failure),
            Came::Nothing(failure) => {
                ui::fail(&failure);
                self.ask("try again?", &YES).await.map(|answer| match answer {
                    Answer::Yes => Answer::No,
                    Answer::No | Answer::Quit => Answer::Quit,
                })
            }
        }
    }

    /// Shows the text, and asks for the user's approval of exactly that text.
    async fn approve(&mut self) -> Result<Answer> {
        let name = if self.place.file(CURRENT).exists() { CURRENT } else { NEW };
        let Some(text) = self.place.read(name)? else { return Ok(Answer::No) };
        let wanted = section(&text).to_owned();
        requirements::of(&wanted)?;
        ui::say(&format!("\n{}\n", base::text::printable(wanted.trim())));
        let answer = self.ask(&format!("implement g3-plan/{name} as it is?"), &OWN).await?;
        if answer == Answer::Yes {
            let now = self.place.read(name)?;
            if now.as_deref().map(section) != Some(wanted.as_str()) {
                ui::say("the text was changed meanwhile; this is not what you saw");
                return Ok(Answer::No);
            }
            self.place.state.approved = Some(hash(wanted.as_bytes()));
            self.place.save()?;
            base::files::step("g3.planning.approved");
            if name == NEW {
                self.place.rename(NEW, CURRENT)?;
            }
            let hash = self.place.state.approved.clone().unwrap_or_default();
            self.place.tell(Happened::Approved(base::text::head(&hash, 12).to_owned()))?;
        }
        Ok(answer)
    }

    /// What is left of the limits for questions to a model: the rounds of player and coach count too.
    fn limits_left(&self) -> Result<Limits> {
        let mut spent = self.place.state.asked;
        if let Some(wanted) = self.place.wanted()?
            && let Some(past) = autonomous::latest(&self.order.settings.cwd, &wanted)?
        {
            spent = spent.plus(past.usage);
        }
        self.left_after(spent)
    }

    fn left_after(&self, spent: Usage) -> Result<Limits> {
        self.purse.left(spent).map_err(|limit| Failure::refused(format!("stopped: {limit}")))
    }

    /// Counts what a question to a model cost.
    fn charge(&mut self, usage: Usage) -> Result<()> {
        self.place.state.asked = self.place.state.asked.plus(usage);
        self.place.save()
    }

    /// One question to a model, without tools.
    async fn question(&mut self, text: String, choice: fn(&Settings) -> Choice) -> Result<String> {
        let settings =
            Settings { choice: choice(&self.order.settings), ..self.order.settings.clone() };
        self.limits_left()?;
        let answer = complete::run(&settings, &text, self.bus.clone()).await?;
        self.charge(answer.usage)?;
        Ok(answer.text)
    }
}

fn unusable() -> Failure {
    Failure::failed("the refined requirements cannot be told apart")
}

/// The directory that `--codepath` means: `~` is the home, and it must be there.
pub fn code_path(typed: &str, cwd: &std::path::Path) -> Result<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let path = match typed.strip_prefix('~') {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => {
            home.join(rest.trim_start_matches('/'))
        }
        Some(_) | None => cwd.join(typed),
    };
    let real = path.canonicalize().ok().filter(|path| path.is_dir());
    real.ok_or_else(|| Failure::usage(format!("there is no directory {}", path.display())))
}
