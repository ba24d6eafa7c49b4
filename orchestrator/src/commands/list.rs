//! `studio list`: lists the sessions of the repository.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::num::NonZero;

use base::failure::Result;
use base::id::Id;
use serde_json::json;

use crate::commands::context::{CommandContext, CommonArgs};
use crate::report;
use crate::report::list::ListLayout;
use crate::report::table;
use studio_core::session::collect::{self, BranchStanding};
use studio_core::session::state::SessionState;
use studio_core::session_view::SessionView;
use studio_git::{import, trial};

/// Maximum number of sessions that one call compares with their branch; the results are cached.
const MAX_COMPARED: usize = 20;

/// The command line of `list`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Args {
    /// Also show accepted and discarded sessions
    #[arg(long, short)]
    pub all: bool,
}

/// Runs the command.
pub(crate) fn run(common: &CommonArgs, args: &Args) -> Result<u8> {
    let context = CommandContext::open(common)?;
    let (views, unreadable) = context.sessions()?;
    let reasons = unreadable.iter().map(|(id, failure)| (id, failure.sentence()));
    let (closed, open): (Vec<SessionView>, Vec<SessionView>) =
        views.into_iter().partition(|view| view.state.is_over() && !args.all);
    let mut open: Vec<SessionView> = open.into_iter().map(|view| context.salvage(view)).collect();
    compare(&context, &mut open);
    for view in open.iter_mut().filter(|view| !view.state.is_over()) {
        view.tampered = import::tampering_warning(&view.record.session_repo);
    }
    if context.json {
        let sessions: Vec<_> = open.iter().map(SessionView::json).collect();
        let unreadable: Vec<_> =
            reasons.map(|(id, reason)| json!({"id": id, "why": reason})).collect();
        report::json_line(&json!({"schema": 1, "sessions": sessions, "unreadable": unreadable}));
        return Ok(0);
    }
    if open.is_empty() {
        report::say("no open sessions; start one: studio run 'your task'");
    } else {
        show(&context, &open)?;
    }
    for (_, reason) in reasons {
        report::say(&format!("{reason}: studio doctor"));
    }
    print_waiting(&open);
    for trial in trial::active(&context.repository)? {
        let worktree = trial.checkout.worktree.display();
        let id = &trial.session_repo.id;
        report::say(&format!("{id} is being tried in {worktree}: studio try --end"));
    }
    for view in &open {
        if let Some(what) = &view.tampered {
            let id = &view.record.id;
            report::say(&format!("warning: {id}: {what}; plain git in its worktree would run it"));
        }
    }
    if !closed.is_empty() {
        report::say(&format!("{} accepted or discarded: studio list --all", closed.len()));
    }
    Ok(0)
}

/// Prints sessions as a table that fits the terminal.
pub(crate) fn show(context: &CommandContext, views: &[SessionView]) -> Result<()> {
    let mut ids: Vec<Id> = context.store.ids()?;
    ids.sort_by(|a, b| a.as_str().cmp(b.as_str()));
    let is_terminal = std::io::stdout().is_terminal();
    let page = ListLayout {
        width: table::width().into(),
        height: is_terminal.then(table::height).flatten(),
        colours: is_terminal && report::wants_colours(),
    };
    report::out(&report::list::sessions(views, &ids, context.clock.now(), page));
    Ok(())
}

/// Prints what the user should do about sessions that do not continue by themselves.
fn print_waiting(open: &[SessionView]) {
    let crashed = open.iter().filter(|view| view.state == SessionState::Crashed).count();
    if crashed > 0 {
        report::say(&format!("{crashed} crashed, their work is kept: studio resume --all"));
    }
    let (blocked, waiting): (Vec<&SessionView>, Vec<&SessionView>) = open
        .iter()
        .filter(|view| view.state == SessionState::Queued)
        .partition(|view| view.is_blocked());
    let (blocked, waiting) = (blocked.len(), waiting.len());
    if blocked > 0 {
        report::say(&format!("{blocked} waiting for other sessions to land: studio status ID"));
    }
    // A session whose lock is held is being started.
    let is_running = open.iter().any(|view| view.state.is_active() || view.facts.locked);
    if waiting > 0 && !is_running {
        report::say(&format!("{waiting} queued and none running: studio resume --all"));
    }
}

/// Determines which sessions conflict with their branch. Sessions for which this fails or takes too
/// long are left undetermined.
fn compare(context: &CommandContext, views: &mut [SessionView]) {
    let cache = context.store.root().join("cache/standing.json");
    let cached: BTreeMap<String, BranchStanding> = std::fs::read(&cache)
        .ok()
        .and_then(|text| serde_json::from_slice(&text).ok())
        .unwrap_or_default();
    let mut tips = BTreeMap::new();
    let mut keys = Vec::new();
    for (index, view) in views.iter().enumerate() {
        let Some(branch) = &view.record.base.branch else { continue };
        let settled = view.state.is_settled() && !view.state.is_over();
        let Some(work) = view.work().filter(|work| settled && work.is_changed()) else { continue };
        let tip = tips
            .entry(branch.as_str().to_owned())
            .or_insert_with(|| context.repository.tip(branch).ok().flatten());
        if let Some(tip) = tip {
            keys.push((index, format!("{tip} {}", work.commit())));
        }
    }
    let missing: Vec<&(usize, String)> =
        keys.iter().filter(|(_, key)| !cached.contains_key(key)).take(MAX_COMPARED).collect();
    let compared = in_parallel(context, views, &missing);
    let has_new = !compared.is_empty();
    let standings: BTreeMap<String, BranchStanding> = keys
        .iter()
        .filter_map(|(_, key)| {
            let standing = compared.get(key).or_else(|| cached.get(key))?;
            Some((key.clone(), standing.clone()))
        })
        .collect();
    if has_new && let Some(parent) = cache.parent() {
        // If the cache cannot be written, the sessions are compared again next time.
        let _ = std::fs::create_dir_all(parent)
            .and_then(|()| base::files::replace_json(&cache, &standings));
    }
    for (index, key) in keys {
        views[index].standing = standings.get(&key).cloned();
    }
}

fn in_parallel(
    context: &CommandContext,
    views: &[SessionView],
    missing: &[&(usize, String)],
) -> BTreeMap<String, BranchStanding> {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let chunk_size = missing.len().div_ceil(cores).max(1);
    let compare = |(index, key): &(usize, String)| {
        let view = &views[*index];
        let standing =
            collect::branch_standing(&context.repository, &view.record, view.work()?).ok()??;
        Some((key.clone(), standing))
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = missing
            .chunks(chunk_size)
            .map(|chunk| {
                scope.spawn(move || chunk.iter().filter_map(|it| compare(it)).collect::<Vec<_>>())
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect()
    })
}
