//! `studio plan`: plans and implements a feature. A model refines the user's text and splits it
//! into tasks, the user approves both, sessions work on the tasks, and their work lands in order.

mod background;
mod converge;
pub(crate) mod edit;
mod executor;
mod files;
mod import;
mod open;
mod output;
pub(crate) mod status;

use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
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
use converge::{Convergence, MAX_ROUNDS};
use executor::ExecutionEnd;
use files::{PlanFiles, PlanRecord, REQUIREMENTS, TASKS};
use studio_core::launch::registry::g3_program;
use studio_core::session::record::RunMode;
use studio_core::session::spec::SessionSpec;
use studio_git::transaction;

/// Timeout of one call of the model.
const TIMEOUT: Duration = Duration::from_secs(3600);

/// The command line of `plan`.
#[derive(Clone, Debug, Default, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command")]
pub(crate) struct Args {
    /// File that describes the feature; continues the current plan if omitted
    #[arg(value_name = "FILE")]
    pub wish: Option<PathBuf>,
    /// Plan of another tool to import: a directory of spec-kit, OpenSpec or Kiro, or Task Master's tasks.json
    #[arg(long, value_name = "PATH", conflicts_with = "wish")]
    pub from: Option<PathBuf>,
    /// List of Task Master to import, if its file has several
    #[arg(long, value_name = "NAME", requires = "from")]
    pub tag: Option<String>,
    /// Approve the requirements and the tasks
    #[arg(short, long)]
    pub yes: bool,
    /// Approve the one text with this digest, which --status shows, and no later one
    #[arg(long, value_name = "DIGEST", conflicts_with = "yes")]
    pub approve: Option<String>,
    /// Show the plan with its tasks, and change nothing
    #[arg(long, conflicts_with_all = ["wish", "from", "yes", "approve", "converge", "new"])]
    pub status: bool,
    /// Continue in the background
    #[arg(long, conflicts_with = "status")]
    pub detach: bool,
    /// Stop the running `studio plan` and its sessions; everything is kept
    #[arg(long, conflicts_with_all = ["wish", "from", "yes", "approve", "status", "converge", "new", "detach"])]
    pub stop: bool,
    /// After the last landing, compare each requirement with the code and plan what is missing, until nothing is
    #[arg(long)]
    pub converge: bool,
    /// Set the current plan aside and start a new one
    #[arg(long)]
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
    record: PlanRecord,
    /// Whether a model was already asked to split: requirements without a task are not split again.
    split: bool,
    /// Sessions whose landing was undone and which the user agreed to land again.
    land_again: BTreeSet<Id>,
    /// `None` if the plan is only read.
    _lock: Option<Lock>,
}

/// Runs the command.
pub(crate) fn run(common: &CommonArgs, args: &Args) -> Result<u8> {
    let context = CommandContext::open(common)?;
    if args.status {
        return status::show(&context);
    }
    if args.stop {
        return background::stop(&context);
    }
    for note in transaction::recover(&context.repository)? {
        report::say(&note);
    }
    if args.converge {
        preflight::planner(&context)?;
    }
    let mut plan = Plan::open(&context, args)?;
    if args.detach {
        return background::detach(common, plan);
    }
    let mut comparisons = 0;
    loop {
        let stage = plan.stage()?;
        output::stage(&context, stage);
        match stage {
            PlanStage::Refine => plan.refine()?,
            PlanStage::Approve => plan.approve()?,
            PlanStage::Split => plan.split()?,
            PlanStage::Agree => plan.agree()?,
            PlanStage::Work => match plan.execute()? {
                ExecutionEnd::Done => {}
                ExecutionEnd::Stuck => return plan.report(common).map(|_| 1),
                ExecutionEnd::Interrupted => {
                    report::say("stopped; continue with: studio plan");
                    return Ok(130);
                }
            },
            PlanStage::Over => {
                if args.converge {
                    comparisons += 1;
                    match plan.converge(common, comparisons <= MAX_ROUNDS)? {
                        Convergence::Met => {}
                        Convergence::TasksAdded => continue,
                        Convergence::Unmet => return plan.report(common).map(|_| 1),
                    }
                }
                plan.record.over = true;
                plan.files.save(&plan.record)?;
                return plan.report(common);
            }
        }
    }
}

/// Returns the path of the lock of `studio plan`.
pub(crate) fn lock_path(context: &CommandContext) -> Result<PathBuf> {
    background::lock_path(context)
}

/// Returns the files that decide what `--status` shows, beside the sessions.
pub(crate) fn watched_files(context: &CommandContext) -> Result<Vec<PathBuf>> {
    Ok([open::files(context)?.paths().to_vec(), vec![background::log_path(context)?]].concat())
}

impl<'a> Plan<'a> {
    /// Opens the current plan, or a new one.
    fn open(context: &'a CommandContext, args: &'a Args) -> Result<Plan<'a>> {
        let files = open::files(context)?;
        let lock = background::lock(context)?;
        let record = files.load_record()?;
        let (request, tasks) = match (&args.wish, &args.from) {
            (Some(file), _) => (Some(open::read_request(context, file)?), None),
            (None, Some(path)) => {
                let texts = import::read(context, path, args.tag.as_deref())?;
                (Some(texts.request), Some(texts.tasks))
            }
            (None, None) if args.new => {
                return Err(Failure::usage("--new needs a plan").hint("studio plan --new FILE"));
            }
            (None, None) => (None, None),
        };
        let record = match (request, record) {
            (Some(request), Some(record)) if request == record.request => record,
            (Some(request), previous) => {
                open::refuse_without_agents(context, args, &request)?;
                if tasks.is_some() {
                    open::refuse_unowned_tasks(&files, previous.as_ref())?;
                }
                open::begin(context, args, &files, &request, previous)?
            }
            (None, record) => open::continue_plan(context, &files, record)?,
        };
        // They are written last: an import that was interrupted continues here.
        if let Some(tasks) = tasks.filter(|_| !files.has_tasks()) {
            files.write(TASKS, &tasks)?;
        }
        // An approved list of tasks is complete, whatever it leaves out.
        let tasks = files.read(TASKS)?.unwrap_or_default();
        let split = !tasks.is_empty() && args.approve.as_ref() == Some(&hash(tasks.as_bytes()));
        let _lock = Some(lock);
        Ok(Plan { context, args, files, record, split, land_again: BTreeSet::new(), _lock })
    }

    /// Opens the current plan to read it; `None` without a plan.
    fn open_to_read(context: &'a CommandContext, args: &'a Args) -> Result<Option<Plan<'a>>> {
        let files = open::files(context)?;
        if files.read(REQUIREMENTS)?.is_none() {
            return Ok(None);
        }
        let record = files.load_record()?.unwrap_or_default();
        let land_again = BTreeSet::new();
        Ok(Some(Plan { context, args, files, record, split: false, land_again, _lock: None }))
    }

    fn requirements(&self) -> Result<(String, Vec<Requirement>)> {
        let text = self.files.read(REQUIREMENTS)?.unwrap_or_default();
        let requirements = self.files.requirements(&text)?;
        Ok((text, requirements))
    }

    fn tasks(&self, requirements: &[Requirement]) -> Result<(String, Vec<Task>)> {
        let text = self.files.read(TASKS)?.unwrap_or_default();
        let tasks = self.files.tasks(&text, requirements)?;
        Ok((text, tasks))
    }

    fn stage(&self) -> Result<PlanStage> {
        let (text, requirements) = self.requirements()?;
        self.stage_of(&text, &requirements)
    }

    /// Returns the stage for a text of requirements.
    fn stage_of(&self, text: &str, requirements: &[Requirement]) -> Result<PlanStage> {
        let mut status = PlanStatus {
            approved: self.record.approved.as_deref() == Some(text),
            ..PlanStatus::default()
        };
        if document::current(text).is_none() {
            return Ok(plan::stage(status));
        }
        status.requirements = RequirementsStatus::Refined;
        if status.approved {
            let (text, tasks) = self.tasks(requirements)?;
            let is_covered =
                |it: &Requirement| tasks.iter().any(|task| task.requirements.contains(&it.id));
            status.agreed = self.record.agreed.as_ref() == Some(&text);
            if self.split || status.agreed || requirements.iter().all(is_covered) {
                status.tasks = TaskListStatus::Whole;
            }
            status.done = status.agreed && self.is_done(&tasks, requirements)?;
        }
        Ok(plan::stage(status))
    }

    /// Lets a model refine the user's text.
    fn refine(&mut self) -> Result<()> {
        let original = self.files.read(REQUIREMENTS)?.unwrap_or_default();
        let text = document::mark_original(&original);
        let request = document::original(&text).unwrap_or(&text);
        let section = match self.model(&["plan", "refine"], request) {
            // A text with a list of requirements can be used without a model.
            Err(failure) if requirement::count_items(request) > 0 => {
                output::without_a_model(&failure, "using your own list of requirements");
                request.to_owned()
            }
            other => other?,
        };
        let refined = document::with_current(&text, &section);
        let (refined, _) = document::add_ids(&refined)
            .map_err(|_| Failure::failed("requirement ids are not unique"))?;
        self.files.replace(REQUIREMENTS, &original, &refined)
    }

    /// Asks the user to approve the requirements in the file.
    fn approve(&mut self) -> Result<()> {
        let (text, requirements) = self.requirements()?;
        let previous = self.record.approved.as_deref().unwrap_or_default();
        let previous = self.files.requirements(previous).unwrap_or_default();
        output::requirements(self.context, &requirements, &previous);
        let question = "approve these requirements?";
        self.ask(question, "the requirements are not approved", REQUIREMENTS, &text)?;
        let approved = HistoryEvent::Approved(hash(text.as_bytes()));
        self.record.approved = Some(text);
        // The resulting tasks are shown and need approval as well.
        self.record.agreed = None;
        self.record.over = false;
        self.files.save(&self.record)?;
        self.files.append_history(self.context.clock, vec![approved])
    }

    /// Lets a model create tasks for requirements without one.
    fn split(&mut self) -> Result<()> {
        let (text, requirements) = self.requirements()?;
        let (existing, tasks) = self.tasks(&requirements)?;
        let path = self.files.checkout.join(TASKS);
        let path = path.to_string_lossy();
        let subcommand: &[&str] = match existing.trim().is_empty() {
            true => &["plan", "split"],
            false => &["plan", "split", "--tasks", &path],
        };
        let new_tasks = self.model(subcommand, &text).unwrap_or_else(|failure| {
            output::without_a_model(&failure, "each requirement becomes one task, in order");
            task::to_toml(&plan::tasks_for_uncovered(&requirements, &tasks))
        });
        let gap = if existing.is_empty() || existing.ends_with("\n\n") { "" } else { "\n" };
        self.split = true;
        self.files.replace(TASKS, &existing, &format!("{existing}{gap}{new_tasks}"))
    }

    /// Asks the user to approve the tasks in the file.
    fn agree(&mut self) -> Result<()> {
        let (_, requirements) = self.requirements()?;
        let (text, tasks) = self.tasks(&requirements)?;
        let specs: Vec<SessionSpec> =
            tasks.iter().map(|task| self.session_spec(task, None, &requirements)).collect();
        preflight::check(self.context, &specs)?;
        output::tasks(self.context, &tasks, &self.task_statuses(&tasks, &requirements)?);
        self.ask("work on these tasks?", "the tasks are not approved", TASKS, &text)?;
        self.record.agreed = Some(text);
        self.files.save(&self.record)?;
        let tip = self.context.repository.base(Some(&self.record.branch))?.commit;
        let lines = requirements.iter().map(|it| format!("{}: {}", it.id, it.text)).collect();
        self.files.append_history(
            self.context.clock,
            vec![HistoryEvent::Head(tip), HistoryEvent::Started(lines)],
        )
    }

    /// Asks a question about the text of a file, unless `--yes` or `--approve` answers it.
    fn ask(&self, question: &str, refusal: &str, file: &str, text: &str) -> Result<()> {
        let is_approved =
            self.args.yes || self.args.approve.as_ref() == Some(&hash(text.as_bytes()));
        let answer = if is_approved { Some(true) } else { confirm::ask(question) };
        match answer {
            Some(true) => Ok(()),
            Some(false) => {
                Err(Failure::refused(refusal).hint(format!("change {file}, then: studio plan")))
            }
            None => Err(Failure::refused(refusal)
                .because(match self.args.approve {
                    Some(_) => "its text has another digest",
                    None => "no terminal to ask on",
                })
                .hint(format!("read {file}, then: studio plan --yes"))),
        }
    }

    /// Returns the model's answer to a text on stdin.
    fn model(&self, subcommand: &[&str], input: &str) -> Result<String> {
        let reply = self.model_reply(&self.files.checkout, subcommand, input)?;
        Ok(reply["text"].as_str().unwrap_or_default().to_owned())
    }

    /// Returns the report of a step of `g3 plan` in a directory.
    fn model_reply(&self, directory: &Path, subcommand: &[&str], input: &str) -> Result<Value> {
        let mut command = Command::new(g3_program(), directory).args(subcommand).arg("--json");
        if let Some(file) = &self.context.config_file {
            command = command.arg("--config").arg(file);
        }
        let limits = OutputLimits { time: Some(TIMEOUT), bytes: 4 << 20 };
        let fail = || "cannot run g3";
        // On a terminal the user sees the model's progress.
        let shows_progress = !self.context.json && std::io::stderr().is_terminal();
        let stderr = if shows_progress { Stream::Inherit } else { Stream::Piped };
        // `studio plan --stop` ends the model too.
        let command = command.kill_on_parent_death();
        let output = command.input(input).stderr(stderr).output(limits).or_fail(fail)?;
        let failed =
            || Failure::failed("the planning model failed").hint("retry with: studio plan");
        let reply: Value = serde_json::from_slice(&output.stdout)
            .map_err(|_| failed().because(format!("g3 ended with exit code {}", output.code())))?;
        if reply["text"].is_string() {
            return Ok(reply);
        }
        let cause = Failure::from_json(&reply["error"]);
        Err(cause.map_or_else(failed, |cause| {
            let failure = failed().because(base::text::printable(&cause.sentence()));
            cause.hints.into_iter().fold(failure, Failure::hint)
        }))
    }

    /// Returns how the sessions of this plan are run.
    fn run_mode(&self) -> RunMode {
        RunMode {
            jobs: self.args.jobs.unwrap_or(0),
            accept: true,
            sandboxed: self.args.sandbox != "off",
            ..RunMode::default()
        }
    }

    fn digests(&self, tasks: &[Task], requirements: &[Requirement]) -> Vec<plan::TaskDigest> {
        plan::digests(tasks, requirements, |text| hash(text.as_bytes()))
    }

    /// Selects the requirements of this plan, and what landed since it started.
    fn requirement_filter(&self) -> RequirementFilter {
        RequirementFilter {
            id: None,
            file: self.files.checkout.join(REQUIREMENTS),
            since: Some(self.record.since.clone()),
            onto: self.record.branch.clone(),
        }
    }

    fn report(&self, common: &CommonArgs) -> Result<u8> {
        let (_, requirements) = self.requirements()?;
        let (_, tasks) = self.tasks(&requirements)?;
        let statuses = self.task_statuses(&tasks, &requirements)?;
        output::end(self.context, &tasks, &statuses);
        if !self.context.json {
            let scope = self.requirement_filter();
            trace::run(common, &trace::Args { scope, markdown: false })?;
        }
        Ok(0)
    }
}
