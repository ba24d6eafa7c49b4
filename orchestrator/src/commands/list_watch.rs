//! `studio list --watch`: the list, kept up to date.

use std::collections::BTreeSet;
use std::io::IsTerminal;

use base::failure::{OrFail, Result};
use base::id::Id;
use jiff::Timestamp;
use studio_core::live_sessions::LiveSessions;
use studio_core::session_view::SessionView;
use studio_core::standing;
use studio_git::import;

use crate::commands::changes::DirectoryWatcher;
use crate::commands::context::CommandContext;
use crate::commands::list;
use crate::commands::watch::TerminationSignals;
use crate::report;

/// Shows the list until Ctrl-C: on a terminal always the current one, into a pipe each time that
/// more than an age changed. Returns the exit code.
pub(crate) fn run(context: &CommandContext, shows_all: bool) -> Result<u8> {
    let runtime = base::runtime::current_thread().or_fail(|| "cannot start the runtime")?;
    let _guard = runtime.enter();
    let mut signals = TerminationSignals::listen()?;
    let mut watch = ListWatch {
        context,
        shows_all,
        is_terminal: std::io::stdout().is_terminal() && report::can_redraw() && !context.json,
        started: context.clock.now(),
        sessions: LiveSessions::read(context)?,
        changes: DirectoryWatcher::start(),
        watched: BTreeSet::new(),
        compared: None,
        shown: String::new(),
    };
    watch.changes.add(context.store.root());
    watch.changes.add(&context.store.root().join("sessions"));
    if watch.is_terminal {
        report::clear();
    }
    loop {
        watch.compare();
        watch.show()?;
        let is_interrupted = runtime.block_on(async {
            tokio::select! {
                () = signals.recv() => true,
                () = watch.changes.next() => false,
            }
        });
        if is_interrupted {
            return Ok(130);
        }
        watch.sessions.refresh(context)?;
    }
}

struct ListWatch<'c> {
    context: &'c CommandContext,
    shows_all: bool,
    is_terminal: bool,
    started: Timestamp,
    sessions: LiveSessions,
    changes: DirectoryWatcher,
    watched: BTreeSet<Id>,
    /// The version of the sessions that were compared with their branches.
    compared: Option<u64>,
    shown: String,
}

impl ListWatch<'_> {
    /// Compares the sessions with their branches, if that may have another result.
    fn compare(&mut self) {
        let version = self.sessions.comparison_version(self.context);
        if self.compared == Some(version) {
            return;
        }
        let mut views: Vec<SessionView> = self.sessions.compared_views().cloned().collect();
        let (repository, store) = (&self.context.repository, &self.context.store);
        let has_more = standing::compare(repository, store, &mut views);
        self.compared = (!has_more).then_some(version);
        for mut view in views {
            view.tampered = import::tampering_warning(&view.record.session_repo);
            self.sessions.apply(&view);
        }
    }

    /// Prints the list if it changed.
    fn show(&mut self) -> Result<()> {
        let context = self.context;
        let sessions = self.sessions.oldest_first();
        let views = sessions.into_iter().map(|(view, _)| view);
        let is_shown = |view: &&SessionView| self.shows_all || !view.state.is_over();
        let views: Vec<SessionView> = views.filter(is_shown).cloned().collect();
        for view in views.iter().filter(|view| !view.state.is_over()) {
            if self.watched.insert(view.record.id.clone()) {
                self.changes.add(&context.store.dir(&view.record.id));
            }
        }
        let unreadable = self.sessions.unreadable().map(|(id, failure)| (id, failure.sentence()));
        let page = |now: Timestamp| match views.is_empty() {
            true => Ok("no open sessions".to_owned()),
            false => list::page(context, &views, now),
        };
        let text = match (context.json, self.is_terminal) {
            (true, _) => list::list_json(&views, unreadable).to_string(),
            (false, true) => page(context.clock.now())?,
            // Into a pipe, a change of the ages alone prints nothing.
            (false, false) => page(self.started)?,
        };
        if text == self.shown {
            return Ok(());
        }
        match (context.json, self.is_terminal) {
            (true, _) => report::out(&base::text::json_escaped(&text)),
            (false, true) => report::redraw(&text),
            (false, false) => {
                let gap = if self.shown.is_empty() { "" } else { "\n" };
                report::out(&format!("{gap}{}", page(context.clock.now())?));
            }
        }
        self.shown = text;
        Ok(())
    }
}
