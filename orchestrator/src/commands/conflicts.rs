//! `studio conflicts`: shows which sessions change the same lines, and the best landing order.

use base::failure::Result;
use base::id::Id;
use serde_json::{Value, json};
use studio_core::radar::{self, BranchConflict, ConflictingPair, RadarReport, RadarSession};
use studio_core::session_view::SessionView;
use studio_git::conflict::{Conflict, SideLabels};
use studio_git::pair_conflicts::{self, WorkRange};

use crate::commands::context::{CommandContext, CommonArgs};
use crate::report;
use crate::report::conflicts::{self as text, ShownConflict};

/// The command line of `conflicts`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Sessions to compare with each other; one is compared with all others (default: all)
    #[arg(value_name = "ID")]
    pub ids: Vec<String>,
    /// Show the conflicting hunks
    #[arg(long, short)]
    pub patch: bool,
}

/// Runs the command.
pub(crate) fn run(common: &CommonArgs, args: &Args) -> Result<u8> {
    let context = CommandContext::open(common)?;
    let named = match args.ids.as_slice() {
        [] => Vec::new(),
        ids => context.find_all(ids, |state| !state.is_over())?,
    };
    let ids: Vec<Id> = named.into_iter().map(|view| view.record.id).collect();
    let (sessions, report) = compare(&context, &ids)?;
    let shown = shown_conflicts(&context, &sessions, &report, args.patch)?;
    if context.json {
        report::json_line(&report_json(&sessions, &report, &shown));
        return Ok(0);
    }
    let count = sessions.len();
    if shown.is_empty() {
        report::say(&match count {
            0 => "no open session has changes".to_owned(),
            _ => format!("no conflicts among {}", base::text::count(count as u64, "session")),
        });
    } else {
        report::out(&text::page(&shown, &report.order));
    }
    for id in &report.unreadable {
        report::say(&format!("{id} was not compared: its work is too large or cannot be read"));
    }
    Ok(0)
}

/// Returns the conflicts of a session with other sessions and with its branch, with their hunks.
pub(crate) fn of_session(context: &CommandContext, id: &Id) -> Result<Vec<ShownConflict>> {
    let (sessions, report) = compare(context, std::slice::from_ref(id))?;
    shown_conflicts(context, &sessions, &report, true)
}

/// Compares sessions with each other, and with their branches; one with all others, none: all.
fn compare(context: &CommandContext, ids: &[Id]) -> Result<(Vec<RadarSession>, RadarReport)> {
    let (views, _) = context.sessions()?;
    let views: Vec<SessionView> = views.into_iter().map(|view| context.salvage(view)).collect();
    let of_view =
        |view: &SessionView| RadarSession::of(&view.record, &view.facts.summary, &view.state);
    let mut sessions: Vec<RadarSession> = views.iter().filter_map(of_view).collect();
    if ids.len() > 1 {
        sessions.retain(|session| ids.contains(&session.id));
    }
    let mut report = radar::scan(&context.repository, &sessions, usize::MAX)?;
    if let [id] = ids {
        report.pairs.retain(|pair| pair.ids.contains(id));
        report.branches.retain(|conflict| conflict.id == *id);
    }
    Ok((sessions, report))
}

/// Returns the conflicts to show, those of pairs first, with their hunks if these are wanted.
fn shown_conflicts(
    context: &CommandContext,
    sessions: &[RadarSession],
    report: &RadarReport,
    has_hunks: bool,
) -> Result<Vec<ShownConflict>> {
    let work =
        |id: &Id| sessions.iter().find(|session| session.id == *id).map(|session| &session.work);
    let mut shown = Vec::new();
    for ConflictingPair { ids: [first, second], files } in &report.pairs {
        let mut hunks = Vec::new();
        if let (true, Some(ours), Some(theirs)) = (has_hunks, work(first), work(second)) {
            let labels = SideLabels { ours: first.as_str(), theirs: second.as_str() };
            hunks = pair_conflicts::hunks(&context.repository, ours, theirs, labels)?;
        }
        let other = second.to_string();
        shown.push(ShownConflict::new(first, other, files, hunks));
    }
    for BranchConflict { id, branch, tip, files } in &report.branches {
        let mut hunks = Vec::<Conflict>::new();
        if let (true, Some(theirs)) = (has_hunks, work(id)) {
            let ours = WorkRange { base: theirs.base.clone(), commit: tip.clone() };
            let labels = SideLabels { ours: branch.as_str(), theirs: id.as_str() };
            hunks = pair_conflicts::hunks(&context.repository, &ours, theirs, labels)?;
        }
        shown.push(ShownConflict::new(id, branch.to_string(), files, hunks));
    }
    Ok(shown)
}

fn report_json(sessions: &[RadarSession], report: &RadarReport, shown: &[ShownConflict]) -> Value {
    let ids: Vec<_> = sessions.iter().map(|session| &session.id).collect();
    let (pairs, branches) = shown.split_at(report.pairs.len());
    let pair = |shown: &ShownConflict| json!({"sessions": [shown.id, shown.other], "files": shown.files_json()});
    let branch = |shown: &ShownConflict| json!({"session": shown.id, "branch": shown.other, "files": shown.files_json()});
    let step =
        |step: &radar::LandingStep| json!({"id": step.id, "conflicts_with": step.conflicts_with});
    json!({
        "schema": 1,
        "sessions": ids,
        "pairs": pairs.iter().map(pair).collect::<Vec<_>>(),
        "branches": branches.iter().map(branch).collect::<Vec<_>>(),
        "order": report.order.iter().map(step).collect::<Vec<_>>(),
        "not_compared": report.unreadable,
    })
}
