//! Opens a plan: a new one for a feature text, or the current one.

use std::path::Path;

use base::failure::{Failure, Result};
use planner::document;
use planner::history::HistoryEvent;
use planner::requirement;

use super::Args;
use super::files::{PlanFiles, PlanRecord, REQUIREMENTS};
use crate::commands::context::CommandContext;
use crate::commands::{input, preflight, requirements};
use crate::report;
use studio_core::session::random;
use studio_core::session::spec::SessionSpec;

/// Maximum size of a feature text, in bytes.
const MOST: u64 = 4 << 20;

/// Reads the feature text from a file.
pub(crate) fn wish(context: &CommandContext, file: &Path) -> Result<String> {
    let path = context.directory.as_deref().unwrap_or(Path::new(".")).join(file);
    let unreadable =
        |why: String| Failure::usage(format!("cannot read {}", file.display())).because(why);
    let bytes = input::read(&path, MOST).map_err(|e| unreadable(e.to_string()))?;
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
    wish: &str,
) -> Result<()> {
    let needs_model = document::current(wish).is_none() && requirement::items_of(wish) == 0;
    if needs_model {
        preflight::planner(context)?;
    }
    let order = SessionSpec {
        agent: context.config.studio.agent.clone(),
        limits: args.limits.limits(),
        ..SessionSpec::of(wish.to_owned())
    };
    preflight::check(context, &[order])
}

/// Starts a plan for a feature text.
pub(crate) fn begin(
    context: &CommandContext,
    args: &Args,
    files: &PlanFiles,
    wish: &str,
    before: Option<PlanRecord>,
) -> Result<PlanRecord> {
    let at_work = before.as_ref().is_some_and(|before| !before.over);
    let strange = before.is_none() && files.read(REQUIREMENTS)?.is_some();
    if (at_work || strange) && !args.new {
        let file = args.wish.as_deref().unwrap_or(Path::new("FILE")).display();
        return Err(Failure::refused("another plan is active")
            .because(format!("it is in {REQUIREMENTS}"))
            .hint("studio plan    continues it")
            .hint(format!("studio plan --new {file}    sets it aside; nothing is lost")));
    }
    let saved = fresh(context, wish)?;
    let stamp = context.clock.now().strftime("%Y-%m-%d_%H-%M-%S").to_string();
    let how = if at_work || strange { "dropped" } else { "completed" };
    // A task list without requirements belongs to the user, for this plan.
    let earlier = before.is_some() || strange;
    let kept = earlier.then(|| files.set_aside(how, &stamp)).transpose()?.unwrap_or_default();
    for name in &kept {
        report::say(&format!("archived the earlier plan: {name}"));
    }
    if let [tasks, requirements] = kept.as_slice() {
        let what = match how {
            "completed" => HistoryEvent::Completed(requirements.clone(), tasks.clone()),
            _ => HistoryEvent::Other(format!("SET ASIDE ({requirements}, {tasks})")),
        };
        files.tell(context.clock, vec![what])?;
    }
    let text = match document::current(wish) {
        Some(_) => numbered(wish)?,
        None => document::marked(wish),
    };
    // The text goes first: otherwise the record would refer to the earlier plan's text.
    files.write(REQUIREMENTS, &text)?;
    files.save(&saved)?;
    Ok(saved)
}

/// Continues the current plan; requirements from another program, e.g. `g3 --planning`, count as
/// one.
pub(crate) fn go_on(
    context: &CommandContext,
    files: &PlanFiles,
    saved: Option<PlanRecord>,
) -> Result<PlanRecord> {
    let Some(text) = files.read(REQUIREMENTS)? else {
        return Err(Failure::usage("no plan in this repository")
            .because(format!("there is no {REQUIREMENTS}"))
            .hint("studio plan WISH.md    where WISH.md says what you want"));
    };
    if let Some(saved) = saved {
        return Ok(saved);
    }
    let saved = fresh(context, &text)?;
    if document::current(&text).is_some() {
        let text_now = numbered(&text)?;
        if text_now != text {
            files.write(REQUIREMENTS, &text_now)?;
        }
    }
    files.save(&saved)?;
    Ok(saved)
}

fn numbered(text: &str) -> Result<String> {
    let (text, _) = document::numbered(text).map_err(|unclear| {
        Failure::usage("cannot number the requirements").because(requirements::mistake(&unclear))
    })?;
    Ok(text)
}

fn fresh(context: &CommandContext, wish: &str) -> Result<PlanRecord> {
    let base = context.repository.base(None)?;
    let branch = base.branch.ok_or_else(|| {
        Failure::refused("a plan needs a branch to land on")
            .because("no branch is checked out here")
            .hint("git switch BRANCH")
    })?;
    let id = base::text::hex(&random::four_bytes(wish, 0)?);
    Ok(PlanRecord {
        id: format!("plan-{id}"),
        wish: wish.to_owned(),
        branch: branch.to_string(),
        since: base.commit,
        ..PlanRecord::default()
    })
}
