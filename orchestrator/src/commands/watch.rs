//! Watching sessions until they settle: their journals are tailed, the scheduler is called.

use std::time::Duration;

use base::event::{Event, What};
use base::failure::{OrFail, Result};
use base::id::Id;
use serde_json::json;

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

/// One watched session.
struct Watched {
    id: Id,
    tail: Tail,
    shown: Option<State>,
    /// Its landing was interrupted and cannot be ended now; that was said.
    stuck: bool,
}

/// Shows the sessions until all have settled. Ctrl-C stops them in order, and keeps everything.
pub fn watch(desk: &Desk, ids: &[Id], events: bool) -> Result<Seen> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.or_fail(|| "cannot start the runtime")?.block_on(look(desk, ids, events))
}

async fn look(desk: &Desk, ids: &[Id], events: bool) -> Result<Seen> {
    let mut progress = Progress::new(desk.json);
    let mut watched: Vec<Watched> = ids
        .iter()
        .map(|id| Watched {
            id: id.clone(),
            tail: Tail::from_start(desk.store.file(id, "journal.jsonl")),
            shown: None,
            stuck: false,
        })
        .collect();
    let mut interrupt = Interrupt::listen()?;
    let mut interrupted = false;
    let mut ticks = tokio::time::interval(LOOK);
    let mut looks = 0u32;
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = interrupt.heard() => {
                if interrupted {
                    return Ok(Seen::Interrupted);
                }
                interrupted = true;
                if !desk.json {
                    report::say("stopping; everything is kept (again: do not wait)");
                }
                stop_all(desk, ids)?;
            }
        }
        let mut settled = true;
        let fates = desk.fates()?;
        for session in &mut watched {
            let view = desk.view_with(&session.id, &fates)?;
            // One that waits for others moves when they do: alone it holds nobody up.
            settled &= session.look(desk, &view, &mut progress, events)? || view.is_held();
        }
        if settled {
            return Ok(if interrupted { Seen::Interrupted } else { Seen::Settled });
        }
        looks += 1;
        if looks.is_multiple_of(LOOKS_PER_STEP) && !interrupted {
            desk.schedule()?;
        }
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

fn stop_all(desk: &Desk, ids: &[Id]) -> Result<()> {
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
