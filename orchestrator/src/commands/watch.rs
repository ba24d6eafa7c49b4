//! Watching sessions until they settle: their journals are tailed, the scheduler is called.

use std::time::Duration;

use base::event::{Event, What};
use base::failure::{OrFail, Result};
use base::id::Id;
use serde_json::json;
use tokio::runtime::Runtime;

use crate::commands::desk::Desk;
use crate::commands::stop;
use crate::git::engine;
use crate::report;
use crate::report::progress::Progress;
use crate::report::view::View;
use crate::session::journal::{Entry, Line, Tail};
use crate::session::state::State;

/// How often the journals are looked at.
const LOOK: Duration = Duration::from_millis(40);
/// Looks between two calls of the scheduler.
const LOOKS_PER_STEP: u32 = 25;

/// How watching ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Every session settled.
    Settled,
    /// The user pressed Ctrl-C; the sessions were stopped.
    Interrupted,
}

/// When enough was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enough {
    /// All have settled.
    All,
    /// One has settled; it is not watched any more.
    One,
}

/// One watched session.
struct Watched {
    id: Id,
    tail: Tail,
    shown: Option<State>,
    /// Its landing was interrupted and cannot be ended now; that was said.
    stuck: bool,
    settled: bool,
}

/// Shows the sessions until all have settled. Ctrl-C stops them in order, and keeps everything.
pub fn watch(desk: &Desk, ids: &[Id], events: bool) -> Result<Seen> {
    let mut watcher = Watcher::begin(desk, events)?;
    ids.iter().for_each(|id| watcher.add(id));
    watcher.until(Enough::All)
}

/// Shows sessions while they work.
pub struct Watcher<'d> {
    desk: &'d Desk,
    events: bool,
    watched: Vec<Watched>,
    progress: Progress,
    interrupt: Interrupt,
    interrupted: bool,
    looks: u32,
    runtime: Runtime,
}

impl<'d> Watcher<'d> {
    /// A watcher of nothing yet; from now on Ctrl-C is heard.
    pub fn begin(desk: &'d Desk, events: bool) -> Result<Watcher<'d>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.or_fail(|| "cannot start the runtime")?;
        let interrupt = {
            let _inside = runtime.enter();
            Interrupt::listen()?
        };
        let progress = Progress::new(desk.json);
        let watched = Vec::new();
        let (interrupted, looks) = (false, 0);
        Ok(Watcher { desk, events, watched, progress, interrupt, interrupted, looks, runtime })
    }

    /// One more session, unless it is watched already.
    pub fn add(&mut self, id: &Id) {
        if self.watched.iter().any(|watched| watched.id == *id) {
            return;
        }
        self.watched.push(Watched {
            id: id.clone(),
            tail: Tail::from_start(self.desk.store.file(id, "journal.jsonl")),
            shown: None,
            stuck: false,
            settled: false,
        });
    }

    /// Watches until enough was seen.
    pub fn until(&mut self, enough: Enough) -> Result<Seen> {
        loop {
            if self.tick() {
                if self.interrupted {
                    return Ok(Seen::Interrupted);
                }
                self.interrupted = true;
                if !self.desk.json {
                    report::say("stopping; everything is kept (again: do not wait)");
                }
                stop_all(self.desk, self.watched.iter().map(|watched| &watched.id))?;
            }
            self.look()?;
            if self.watched.iter().all(|watched| watched.settled) {
                return Ok(if self.interrupted { Seen::Interrupted } else { Seen::Settled });
            }
            if enough == Enough::One && !self.interrupted {
                let before = self.watched.len();
                self.watched.retain(|watched| !watched.settled);
                if self.watched.len() < before {
                    return Ok(Seen::Settled);
                }
            }
            self.looks += 1;
            if self.looks.is_multiple_of(LOOKS_PER_STEP) && !self.interrupted {
                self.desk.schedule()?;
            }
        }
    }

    /// Waits a moment; whether Ctrl-C was pressed meanwhile.
    fn tick(&mut self) -> bool {
        self.runtime.block_on(async {
            tokio::select! {
                () = tokio::time::sleep(LOOK) => false,
                () = self.interrupt.heard() => true,
            }
        })
    }

    fn look(&mut self) -> Result<()> {
        let (desk, fates) = (self.desk, self.desk.fates()?);
        for session in &mut self.watched {
            let view = desk.view_with(&session.id, &fates)?;
            // One that waits for others moves when they do: alone it holds nobody up.
            session.settled =
                session.look(desk, &view, &mut self.progress, self.events)? || view.is_held();
        }
        Ok(())
    }
}

/// Ctrl-C, and the request to end that other programs send.
struct Interrupt {
    int: tokio::signal::unix::Signal,
    term: tokio::signal::unix::Signal,
}

impl Interrupt {
    fn listen() -> Result<Interrupt> {
        use tokio::signal::unix::{SignalKind, signal};
        let fail = || "cannot hear Ctrl-C";
        let int = signal(SignalKind::interrupt()).or_fail(fail)?;
        let term = signal(SignalKind::terminate()).or_fail(fail)?;
        Ok(Interrupt { int, term })
    }

    async fn heard(&mut self) {
        tokio::select! {
            _ = self.int.recv() => {}
            _ = self.term.recv() => {}
        }
    }
}

fn stop_all<'i>(desk: &Desk, ids: impl Iterator<Item = &'i Id>) -> Result<()> {
    for id in ids {
        stop::ask(desk, id)?;
    }
    Ok(())
}

impl Watched {
    /// Shows what is new; whether the session has settled.
    fn look(
        &mut self,
        desk: &Desk,
        view: &View,
        progress: &mut Progress,
        events: bool,
    ) -> Result<bool> {
        let lines = self.tail.more().or_fail(|| format!("cannot read `{}`", self.id))?;
        for line in &lines {
            if let (Entry::Event { event }, true, true) = (&line.entry, events, desk.json) {
                report::json_line(&json!({"type": "event", "id": self.id, "event": event}));
            }
        }
        if let Some(words) = lines.iter().rev().find_map(words) {
            progress.show(view, &words);
        }
        if self.shown.as_ref() != Some(&view.state) {
            progress.changed(view);
            if desk.json {
                report::json_line(&json!({
                    "type": "state", "id": self.id, "state": view.state.name(),
                    "why": view.why(), "time": view.facts.story.updated_at,
                }));
            }
            self.shown = Some(view.state.clone());
        }
        if view.state == State::Landing && !view.facts.locked {
            // Whoever landed it was killed on the way; its intent says how to end that.
            if let Err(failure) = engine::recover(&desk.repository) {
                // The others go on; whoever changes something next tries again.
                if !std::mem::replace(&mut self.stuck, true) {
                    report::say(&failure.to_string());
                }
                return Ok(true);
            }
        }
        // One that lands by itself is done when its supervisor lets go of it.
        let lands = view.record.manner.accept && view.state == State::Ready;
        Ok(view.state.is_settled() && !(lands && view.facts.locked))
    }
}

/// What a line says, for the progress line.
fn words(line: &Line) -> Option<String> {
    let Entry::Event { event } = &line.entry else { return None };
    match serde_json::from_value::<Event>(event.clone()).ok()?.what {
        What::Text { text } => Some(text),
        What::ToolStart { name, args, .. } => Some(format!("{name} {args}")),
        What::Start { .. }
        | What::Turn { .. }
        | What::Reasoning { .. }
        | What::ToolOutput { .. }
        | What::ToolEnd { .. }
        | What::Usage { .. }
        | What::Context { .. }
        | What::Todo { .. }
        | What::Plan { .. }
        | What::Retry { .. }
        | What::Thinned { .. }
        | What::Compacted { .. }
        | What::Notice { .. }
        | What::Ask { .. }
        | What::Error { .. }
        | What::End { .. } => None,
    }
}
