//! `studio plan`: plans and implements a feature. A model refines the user's text and splits it
//! into tasks, the user approves both, sessions work on the tasks, and their work lands in order.

mod executor;
mod files;
mod open;
mod output;

use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Duration;

use base::config::trust::hash;
use base::failure::{Failure, OrFail, Result};
use base::id::Id;
use base::lock::Lock;
use base::process::{Command, OutputLimits, Stream};
use planner::document;
use planner::history::HistoryEvent;
use planner::plan::{self, PlanStage, PlanStatus, RequirementsStatus, TaskListStatus};
use planner::requirement::{self, Requirement};
use planner::task::{self, Task};
use serde_json::Value;

use crate::commands::context::{CommandContext, CommonArgs};
use crate::commands::requirement_filter::RequirementFilter;
use crate::commands::run::LimitArgs;
use crate::commands::{confirm, preflight, trace};
use crate::report;
use executor::ExecutionEnd;
use files::{PlanFiles, PlanRecord, REQUIREMENTS, TASKS};
use studio_core::launch::registry::g3_program;
use studio_core::session::record::RunMode;
use studio_core::session::spec::SessionSpec;
use studio_git::transaction;

/// Timeout of one call of the model.
const PATIENCE: Duration = Duration::from_secs(3600);

/// The command line of `plan`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// File that describes the feature; continues the current plan if omitted
    #[arg(value_name = "FILE")]
    pub wish: Option<PathBuf>,
    /// Approve the requirements and the tasks
    #[arg(short, long)]
    pub yes: bool,
    /// Set the current plan aside and start a new one
    #[arg(long, requires = "wish")]
    pub new: bool,
    /// A command that must pass for each task, one `sh -c` line (repeatable; in addition to the configured ones)
    #[arg(long = "check", value_name = "LINE")]
    pub checks: Vec<String>,
    /// Maximum number of sessions that run at the same time
    #[arg(short = 'j', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub jobs: Option<u32>,
    /// What each session may use
    #[command(flatten)]
    pub limits: LimitArgs,
    /// `off` runs the agents without the sandbox
    #[arg(long, value_name = "on|off", value_parser = ["on", "off"], default_value = "on")]
    pub sandbox: String,
}

/// A plan and what is needed to continue it.
struct Plan<'a> {
    context: &'a CommandContext,
    args: &'a Args,
    files: PlanFiles,
    saved: PlanRecord,
    /// Whether a model was already asked to split: requirements without a task are not split again.
    split: bool,
    /// Sessions whose landing was undone and which the user agreed to land again.
    land_again: BTreeSet<Id>,
    _alone: Lock,
}

/// Runs the command.
pub(crate) fn run(common: &CommonArgs, args: &Args) -> Result<u8> {
    let context = CommandContext::open(common)?;
    for said in transaction::recover(&context.repository)? {
        report::say(&said);
    }
    let mut plan = Plan::open(&context, args)?;
    loop {
        let stage = plan.stage()?;
        output::stage(&context, stage);
        match stage {
            PlanStage::Refine => plan.refine()?,
            PlanStage::Approve => plan.approve()?,
            PlanStage::Split => plan.split()?,
            PlanStage::Agree => plan.agree()?,
            PlanStage::Work => match plan.work()? {
                ExecutionEnd::Done => {}
                ExecutionEnd::Stuck => return plan.report(common).map(|_| 1),
                ExecutionEnd::Interrupted => {
                    report::say("stopped; continue with: studio plan");
                    return Ok(130);
                }
            },
            PlanStage::Over => {
                plan.saved.over = true;
                plan.files.save(&plan.saved)?;
                return plan.report(common);
            }
        }
    }
}

impl<'a> Plan<'a> {
    /// Opens the current plan, or a new one.
    fn open(context: &'a CommandContext, args: &'a Args) -> Result<Plan<'a>> {
        let top = context.repository.main_checkout.clone().ok_or_else(|| {
            Failure::refused("a plan needs a checkout")
                .because("its files are in g3-plan/, and this repository is bare")
        })?;
        let studio = context.repository.studio_dir()?;
        let lock = studio.join("plan.lock");
        let alone = Lock::try_take(&lock).or_fail(|| format!("cannot lock {}", lock.display()))?;
        let _alone = alone.ok_or_else(|| {
            Failure::refused("`studio plan` is already running in this repository")
                .hint("studio list")
                .hint("or stop the other one with Ctrl-C")
        })?;
        let files = PlanFiles::at(top, &studio);
        let saved = files.saved()?;
        let wish = args.wish.as_deref().map(|file| open::wish(context, file)).transpose()?;
        let saved = match (wish, saved) {
            (Some(wish), Some(saved)) if wish == saved.wish => saved,
            (Some(wish), before) => {
                open::refuse_without_agents(context, args, &wish)?;
                open::begin(context, args, &files, &wish, before)?
            }
            (None, saved) => open::go_on(context, &files, saved)?,
        };
        Ok(Plan { context, args, files, saved, split: false, land_again: BTreeSet::new(), _alone })
    }

    fn requirements(&self) -> Result<(String, Vec<Requirement>)> {
        let text = self.files.read(REQUIREMENTS)?.unwrap_or_default();
        let all = self.files.requirements(&text)?;
        Ok((text, all))
    }

    fn tasks(&self, all: &[Requirement]) -> Result<(String, Vec<Task>)> {
        let text = self.files.read(TASKS)?.unwrap_or_default();
        let tasks = self.files.tasks(&text, all)?;
        Ok((text, tasks))
    }

    fn stage(&self) -> Result<PlanStage> {
        let (text, all) = self.requirements()?;
        let mut found = PlanStatus {
            approved: self.saved.approved.as_ref() == Some(&text),
            ..PlanStatus::default()
        };
        if document::current(&text).is_none() {
            return Ok(plan::stage(found));
        }
        found.requirements = RequirementsStatus::Refined;
        if found.approved {
            let (text, tasks) = self.tasks(&all)?;
            let served =
                |it: &Requirement| tasks.iter().any(|task| task.requirements.contains(&it.id));
            if self.split || all.iter().all(served) {
                found.tasks = TaskListStatus::Whole;
            }
            found.agreed = self.saved.agreed.as_ref() == Some(&text);
            found.done = found.agreed && self.is_done(&tasks, &all)?;
        }
        Ok(plan::stage(found))
    }

    /// Lets a model refine the user's text.
    fn refine(&mut self) -> Result<()> {
        let text = self.files.read(REQUIREMENTS)?.unwrap_or_default();
        let text = document::marked(&text);
        let wish = document::original(&text).unwrap_or(&text);
        let wanted = match self.model(&["plan", "refine"], wish) {
            // A text with a list of requirements can be used without a model.
            Err(failure) if requirement::items_of(wish) > 0 => {
                output::without_a_model(&failure, "using your own list of requirements");
                wish.to_owned()
            }
            wanted_or_failed => wanted_or_failed?,
        };
        let refined = document::with_current(&text, &wanted);
        let (refined, _) = document::numbered(&refined)
            .map_err(|_| Failure::failed("requirement ids are not unique"))?;
        self.files.write(REQUIREMENTS, &refined)
    }

    /// Asks the user to approve the requirements in the file.
    fn approve(&mut self) -> Result<()> {
        let (text, all) = self.requirements()?;
        let before = self.saved.approved.as_deref().unwrap_or_default();
        let before = self.files.requirements(before).unwrap_or_default();
        output::requirements(self.context, &all, &before);
        self.ask("approve these requirements?", "the requirements are not approved", REQUIREMENTS)?;
        let approved = HistoryEvent::Approved(hash(text.as_bytes()));
        self.saved.approved = Some(text);
        // The resulting tasks are shown and need approval as well.
        self.saved.agreed = None;
        self.saved.over = false;
        self.files.save(&self.saved)?;
        self.files.tell(self.context.clock, vec![approved])
    }

    /// Lets a model create tasks for requirements without one.
    fn split(&mut self) -> Result<()> {
        let (text, all) = self.requirements()?;
        let (there, tasks) = self.tasks(&all)?;
        let path = self.files.top.join(TASKS);
        let path = path.to_string_lossy();
        let part: &[&str] = match there.trim().is_empty() {
            true => &["plan", "split"],
            false => &["plan", "split", "--tasks", &path],
        };
        let new = self.model(part, &text).unwrap_or_else(|failure| {
            output::without_a_model(&failure, "each requirement becomes one task, in order");
            task::to_toml(&plan::one_each(&all, &tasks))
        });
        let gap = if there.is_empty() || there.ends_with("\n\n") { "" } else { "\n" };
        self.split = true;
        self.files.write(TASKS, &format!("{there}{gap}{new}"))
    }

    /// Asks the user to approve the tasks in the file.
    fn agree(&mut self) -> Result<()> {
        let (_, all) = self.requirements()?;
        let (text, tasks) = self.tasks(&all)?;
        let orders: Vec<SessionSpec> =
            tasks.iter().map(|task| self.order(task, None, &all)).collect();
        preflight::check(self.context, &orders)?;
        output::tasks(self.context, &tasks, &self.standing(&tasks, &all)?);
        self.ask("work on these tasks?", "the tasks are not approved", TASKS)?;
        self.saved.agreed = Some(text);
        self.files.save(&self.saved)?;
        let tip = self.context.repository.base(Some(&self.saved.branch))?.commit;
        let lines = all.iter().map(|it| format!("{}: {}", it.id, it.text)).collect();
        self.files
            .tell(self.context.clock, vec![HistoryEvent::Head(tip), HistoryEvent::Started(lines)])
    }

    /// Asks a question, unless `--yes` was given.
    fn ask(&self, question: &str, refused: &str, file: &str) -> Result<()> {
        let said = if self.args.yes { Some(true) } else { confirm::yes(question) };
        match said {
            Some(true) => Ok(()),
            Some(false) => {
                Err(Failure::refused(refused).hint(format!("change {file}, then: studio plan")))
            }
            None => Err(Failure::refused(refused)
                .because("no terminal to ask on")
                .hint(format!("read {file}, then: studio plan --yes"))),
        }
    }

    /// Returns the model's answer to a text on stdin.
    fn model(&self, part: &[&str], input: &str) -> Result<String> {
        let mut job = Command::new(g3_program(), &self.files.top).args(part).arg("--json");
        if let Some(file) = &self.context.config_file {
            job = job.arg("--config").arg(file);
        }
        let limits = OutputLimits { time: Some(PATIENCE), bytes: 4 << 20 };
        let fail = || "cannot run g3";
        // On a terminal the user sees the model's progress.
        let seen = !self.context.json && std::io::stderr().is_terminal();
        let stderr = if seen { Stream::Inherit } else { Stream::Piped };
        let output = job.input(input).stderr(stderr).output(limits).or_fail(fail)?;
        let failed =
            || Failure::failed("the planning model failed").hint("retry with: studio plan");
        let told: Value = serde_json::from_slice(&output.stdout)
            .map_err(|_| failed().because(format!("g3 ended with exit code {}", output.code())))?;
        if let Some(text) = told["text"].as_str() {
            return Ok(text.to_owned());
        }
        let why = Failure::from_json(&told["error"]);
        Err(why.map_or_else(failed, |why| {
            let failure = failed().because(base::text::printable(&why.sentence()));
            why.hints.into_iter().fold(failure, Failure::hint)
        }))
    }

    /// Returns how the sessions of this plan are run.
    fn manner(&self) -> RunMode {
        RunMode {
            jobs: self.args.jobs.unwrap_or(0),
            accept: true,
            sandboxed: self.args.sandbox != "off",
            ..RunMode::default()
        }
    }

    fn digests(&self, tasks: &[Task], all: &[Requirement]) -> Vec<plan::TaskDigest> {
        plan::digests(tasks, all, |text| hash(text.as_bytes()))
    }

    fn report(&self, common: &CommonArgs) -> Result<u8> {
        let (_, all) = self.requirements()?;
        let (_, tasks) = self.tasks(&all)?;
        let standing = self.standing(&tasks, &all)?;
        output::end(self.context, &tasks, &standing);
        if !self.context.json {
            let scope = RequirementFilter {
                id: None,
                file: self.files.top.join(REQUIREMENTS),
                since: Some(self.saved.since.clone()),
                onto: self.saved.branch.clone(),
            };
            trace::run(common, &trace::Args { scope, markdown: false })?;
        }
        Ok(0)
    }
}
