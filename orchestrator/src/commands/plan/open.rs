//! Opens a plan: a new one for a feature text, or the current one.

use std::path::Path;

use base::failure::{Failure, Result};
use planner::document;
use planner::history::HistoryEvent;
use planner::requirement;

use super::Args;
use super::files::{PlanFiles, PlanRecord, REQUIREMENTS, TASKS};
use crate::commands::context::CommandContext;
use crate::commands::{preflight, requirements};
use crate::report;
use studio_core::session::random;
use studio_core::session::spec::SessionSpec;

/// Maximum size of a feature text, in bytes.
const MAX_BYTES: u64 = 4 << 20;

/// Returns the files of the repository's plan.
pub(crate) fn files(context: &CommandContext) -> Result<PlanFiles> {
    let checkout = context.repository.main_checkout.clone().ok_or_else(|| {
        Failure::refused("a plan needs a checkout")
            .because("its files are in g3-plan/, and this repository is bare")
    })?;
    Ok(PlanFiles::new(checkout, &context.repository.studio_dir()?))
}

/// Reads the feature text from a file.
pub(crate) fn read_request(context: &CommandContext, file: &Path) -> Result<String> {
    let path = context.directory.as_deref().unwrap_or(Path::new(".")).join(file);
    let unreadable =
        |reason: String| Failure::usage(format!("cannot read {}", file.display())).because(reason);
    let bytes =
        base::files::read_bounded(&path, MAX_BYTES).map_err(|e| unreadable(e.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|_| unreadable("it is not UTF-8".to_owned()))?;
    match text.trim().is_empty() {
        true => Err(Failure::usage(format!("{} is empty", file.display()))
            .hint("write what you want into it")),
        false => Ok(text),
    }
}

/// Refuses a new plan that no agent could work on, or whose text no model could refine, before
/// anything is written.
pub(crate) fn refuse_without_agents(
    context: &CommandContext,
    args: &Args,
    request: &str,
) -> Result<()> {
    let needs_model =
        document::current(request).is_none() && requirement::count_items(request) == 0;
    if needs_model {
        preflight::planner(context)?;
    }
    let spec = SessionSpec {
        agent: context.config.studio.agent.clone(),
        limits: args.limits.limits(),
        ..SessionSpec::of(request.to_owned())
    };
    preflight::check(context, &[spec])
}

/// Refuses to replace a list of tasks that belongs to no plan.
pub(crate) fn refuse_unowned_tasks(files: &PlanFiles, previous: Option<&PlanRecord>) -> Result<()> {
    let has_plan = previous.is_some() || files.read(REQUIREMENTS)?.is_some();
    match files.has_tasks() && !has_plan {
        true => Err(Failure::refused(format!("{TASKS} exists"))
            .because("it belongs to no plan, and the import would replace it")
            .hint(format!("git mv {TASKS} OTHER"))),
        false => Ok(()),
    }
}

/// Starts a plan for a feature text.
pub(crate) fn begin(
    context: &CommandContext,
    args: &Args,
    files: &PlanFiles,
    request: &str,
    previous: Option<PlanRecord>,
) -> Result<PlanRecord> {
    let is_active = previous.as_ref().is_some_and(|previous| !previous.over);
    let is_unrecorded = previous.is_none() && files.read(REQUIREMENTS)?.is_some();
    if (is_active || is_unrecorded) && !args.new {
        let from = args.from.as_deref().map(|path| format!("--from {}", path.display()));
        let file = args.wish.as_deref().unwrap_or(Path::new("FILE")).display();
        let file = from.unwrap_or_else(|| file.to_string());
        return Err(Failure::refused("another plan is active")
            .because(format!("it is in {REQUIREMENTS}"))
            .hint("studio plan    continues it")
            .hint(format!("studio plan --new {file}    sets it aside; nothing is lost")));
    }
    let record = new_record(context, request)?;
    let stamp = context.clock.now().strftime("%Y-%m-%d_%H-%M-%S").to_string();
    let prefix = if is_active || is_unrecorded { "dropped" } else { "completed" };
    // A task list without requirements belongs to the user, for this plan.
    let earlier = previous.is_some() || is_unrecorded;
    let archived = earlier.then(|| files.archive(prefix, &stamp)).transpose()?.unwrap_or_default();
    for name in &archived {
        report::say(&format!("archived the earlier plan: {name}"));
    }
    if let [tasks, requirements] = archived.as_slice() {
        let what = match prefix {
            "completed" => HistoryEvent::Completed(requirements.clone(), tasks.clone()),
            _ => HistoryEvent::Other(format!("SET ASIDE ({requirements}, {tasks})")),
        };
        files.append_history(context.clock, vec![what])?;
    }
    let text = match document::current(request) {
        Some(_) => numbered(request)?,
        None => document::mark_original(request),
    };
    // The text goes first: otherwise the record would refer to the earlier plan's text.
    files.write(REQUIREMENTS, &text)?;
    files.save(&record)?;
    Ok(record)
}

/// Continues the current plan; requirements from another program, e.g. `g3 --planning`, count as
/// one.
pub(crate) fn continue_plan(
    context: &CommandContext,
    files: &PlanFiles,
    record: Option<PlanRecord>,
) -> Result<PlanRecord> {
    let Some(text) = files.read(REQUIREMENTS)? else {
        return Err(Failure::usage("no plan in this repository")
            .because(format!("there is no {REQUIREMENTS}"))
            .hint("studio plan WISH.md    where WISH.md says what you want"));
    };
    if let Some(record) = record {
        return Ok(record);
    }
    let record = new_record(context, &text)?;
    if document::current(&text).is_some() {
        let numbered_text = numbered(&text)?;
        if numbered_text != text {
            files.write(REQUIREMENTS, &numbered_text)?;
        }
    }
    files.save(&record)?;
    Ok(record)
}

fn numbered(text: &str) -> Result<String> {
    let (text, _) = document::add_ids(text).map_err(|error| {
        Failure::usage("cannot number the requirements").because(requirements::mistake(&error))
    })?;
    Ok(text)
}

fn new_record(context: &CommandContext, request: &str) -> Result<PlanRecord> {
    let base = context.repository.base(None)?;
    let branch = base.branch.ok_or_else(|| {
        Failure::refused("a plan needs a branch to land on")
            .because("no branch is checked out here")
            .hint("git switch BRANCH")
    })?;
    let id = base::text::hex(&random::four_bytes(request, 0)?);
    Ok(PlanRecord {
        id: format!("plan-{id}"),
        request: request.to_owned(),
        branch: branch.to_string(),
        since: base.commit,
        ..PlanRecord::default()
    })
}
