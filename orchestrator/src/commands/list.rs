//! `studio list`: lists the sessions of the repository.

use std::io::IsTerminal;

use base::failure::{Failure, Result};
use base::id::Id;
use base::parallel;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::commands::context::{CommandContext, CommonArgs};
use crate::commands::{list_all_repositories, list_disk, list_watch};
use crate::report;
use crate::report::list::ListLayout;
use crate::report::table;
use studio_core::session::state::SessionState;
use studio_core::session_view::SessionView;
use studio_core::standing;
use studio_git::{import, trial};

/// The minimum number of sessions for looking at them on several threads.
const MIN_SESSIONS_PER_THREAD: usize = 100;

/// The command line of `list`.
#[derive(Clone, Debug, Default, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct Args {
    /// Also show accepted and discarded sessions
    #[arg(long, short)]
    pub all: bool,
    /// Keep the list up to date until Ctrl-C; into a pipe, print it again when it changes
    #[arg(long, short)]
    pub watch: bool,
    /// Show the disk space that sessions use, the largest first, and that of the trash
    #[arg(long, conflicts_with = "watch")]
    pub disk: bool,
    /// List the sessions of all repositories in which studio has sessions
    #[arg(long, short = 'A', conflicts_with_all = ["watch", "disk"])]
    pub all_repositories: bool,
}

/// The sessions of a repository.
pub(crate) struct SessionList {
    sessions: Vec<SessionView>,
    unreadable: Vec<(Id, Failure)>,
    /// How many accepted and discarded ones are left out.
    closed: usize,
}

/// Runs the command.
pub(crate) fn run(common: &CommonArgs, args: &Args) -> Result<u8> {
    if args.all_repositories {
        return list_all_repositories::run(common, args.all);
    }
    let context = CommandContext::open(common)?;
    if args.watch {
        return list_watch::run(&context, args.all);
    }
    if args.disk {
        return list_disk::run(&context, args.all);
    }
    let list = SessionList::read(&context, args.all)?;
    if context.json {
        report::json_line(&list.json());
        return Ok(0);
    }
    if list.sessions.is_empty() {
        report::say("no open sessions; start one: studio run 'your task'");
    }
    list.print(&context)?;
    Ok(0)
}

impl SessionList {
    /// Reads the open sessions, with `all` the accepted and discarded ones too.
    pub(crate) fn read(context: &CommandContext, all: bool) -> Result<SessionList> {
        let (views, unreadable, closed) = match all {
            true => context.sessions().map(|(views, unreadable)| (views, unreadable, 0))?,
            false => context.open_sessions()?,
        };
        let salvaged = views.into_iter().map(|view| context.salvage(view));
        let mut sessions: Vec<SessionView> = salvaged.collect();
        standing::compare(&context.repository, &context.store, &mut sessions);
        find_tampering(&mut sessions);
        Ok(SessionList { sessions, unreadable, closed })
    }

    /// Whether it has nothing to show.
    pub(crate) fn is_empty(&self) -> bool {
        self.sessions.is_empty() && self.unreadable.is_empty()
    }

    /// Returns the list as JSON.
    pub(crate) fn json(&self) -> Value {
        let reasons = self.unreadable.iter().map(|(id, failure)| (id, failure.sentence()));
        list_json(&self.sessions, reasons)
    }

    /// Prints the sessions, and what the user should know and do about them.
    pub(crate) fn print(&self, context: &CommandContext) -> Result<()> {
        if !self.sessions.is_empty() {
            show(context, &self.sessions)?;
        }
        for (_, failure) in &self.unreadable {
            report::say(&format!("{}: studio doctor", failure.sentence()));
        }
        print_waiting(&self.sessions);
        for trial in trial::active(&context.repository)? {
            let worktree = trial.checkout.worktree.display();
            let id = &trial.session_repo.id;
            report::say(&format!("{id} is being tried in {worktree}: studio try --end"));
        }
        for view in &self.sessions {
            if let Some(what) = &view.tampered {
                let id = &view.record.id;
                report::say(&format!(
                    "warning: {id}: {what}; plain git in its worktree would run it"
                ));
            }
        }
        if self.closed > 0 {
            report::say(&format!("{} accepted or discarded: studio list --all", self.closed));
        }
        Ok(())
    }
}

/// Determines on all processors which agents changed what git obeys in their worktrees.
fn find_tampering(views: &mut [SessionView]) {
    let warning = |view: &SessionView| match view.state.is_over() {
        true => None,
        false => import::tampering_warning(&view.record.session_repo),
    };
    let warnings = parallel::map(views, MIN_SESSIONS_PER_THREAD, warning);
    for (view, warning) in views.iter_mut().zip(warnings) {
        view.tampered = warning;
    }
}

/// Returns the list as JSON.
pub(crate) fn list_json<'i>(
    sessions: &[SessionView],
    unreadable: impl Iterator<Item = (&'i Id, String)>,
) -> Value {
    let sessions: Vec<_> = sessions.iter().map(SessionView::json).collect();
    let unreadable: Vec<_> =
        unreadable.map(|(id, reason)| json!({"id": id, "why": reason})).collect();
    json!({"schema": 1, "sessions": sessions, "unreadable": unreadable})
}

/// Prints sessions as a table that fits the terminal.
pub(crate) fn show(context: &CommandContext, views: &[SessionView]) -> Result<()> {
    report::out(&page(context, views, context.clock.now())?);
    Ok(())
}

/// Returns sessions as a table that fits the terminal, with their ages at a time.
pub(crate) fn page(
    context: &CommandContext,
    views: &[SessionView],
    now: Timestamp,
) -> Result<String> {
    let mut ids: Vec<Id> = context.store.ids()?;
    ids.sort_by(|a, b| a.as_str().cmp(b.as_str()));
    let is_terminal = std::io::stdout().is_terminal();
    let page = ListLayout {
        width: table::width().into(),
        height: is_terminal.then(table::height).flatten(),
        colours: is_terminal && report::wants_colours(),
    };
    Ok(report::list::sessions(views, &ids, now, page))
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
