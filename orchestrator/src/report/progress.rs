//! The progress display of `run`: live lines on a terminal, plain lines elsewhere.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::sync::LazyLock;

use base::id::Id;
use base::text::{head, printable};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use crate::report::{say, table};
use studio_core::session::state::SessionState;
use studio_core::session_view::SessionView;

/// The lines of all steps that run now.
static STEPS: LazyLock<MultiProgress> = LazyLock::new(MultiProgress::new);

/// Prints above the lines of the steps that run now.
pub(crate) fn suspend<T>(print: impl FnOnce() -> T) -> T {
    STEPS.suspend(print)
}

/// A long step of a command, shown while it runs: on a terminal with the elapsed time, elsewhere as
/// a message.
pub(crate) struct ProgressStep(Option<ProgressBar>);

impl ProgressStep {
    /// Starts a step; silent for scripts.
    pub(crate) fn begin(silent: bool, id: &Id, what: &str) -> ProgressStep {
        let line = printable(&format!("{id}: {what}")).replace(['\n', '\t'], " ");
        if silent || !std::io::stderr().is_terminal() {
            if !silent {
                say(&line);
            }
            return ProgressStep(None);
        }
        let bar = STEPS.add(ProgressBar::new_spinner());
        if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg} {elapsed}") {
            bar.set_style(style);
        }
        bar.set_message(line);
        bar.enable_steady_tick(std::time::Duration::from_millis(120));
        ProgressStep(Some(bar))
    }
}

impl Drop for ProgressStep {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
            STEPS.remove(bar);
        }
    }
}

/// The progress of sessions.
pub(crate) enum SessionProgress {
    /// Redrawn lines on a terminal.
    Live {
        /// All lines.
        all: MultiProgress,
        /// The line of each session.
        bars: BTreeMap<Id, ProgressBar>,
    },
    /// One message for each change.
    Plain,
    /// No output, for scripts.
    Silent,
}

impl SessionProgress {
    /// Creates a live display on a terminal, a plain one elsewhere, and a silent one for scripts.
    pub(crate) fn new(silent: bool) -> SessionProgress {
        if silent {
            SessionProgress::Silent
        } else if std::io::stderr().is_terminal() {
            SessionProgress::Live { all: MultiProgress::new(), bars: BTreeMap::new() }
        } else {
            SessionProgress::Plain
        }
    }

    /// Updates a session; `text` is the last message or action of its agent.
    pub(crate) fn show(&mut self, view: &SessionView, text: &str) {
        let SessionProgress::Live { all, bars } = self else { return };
        let bar = bars.entry(view.record.id.clone()).or_insert_with(|| {
            let style = ProgressStyle::with_template("{spinner} {prefix} {wide_msg}");
            let bar = all.add(ProgressBar::new_spinner());
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
            bar.set_prefix(view.record.id.to_string());
            bar.enable_steady_tick(std::time::Duration::from_millis(120));
            bar
        });
        let text = printable(text).replace(['\n', '\t'], " ");
        bar.set_message(format!("{:<9} {}", view.state.name(), head(&text, 200)));
    }

    /// Prints a message above the live lines.
    pub(crate) fn say(&self, text: &str) {
        match self {
            SessionProgress::Live { all, .. } => all.suspend(|| say(text)),
            SessionProgress::Plain | SessionProgress::Silent => say(text),
        }
    }

    /// Reports a change of a session's state.
    pub(crate) fn show_state(&mut self, view: &SessionView) {
        match self {
            SessionProgress::Plain => {
                say(&table::change(view));
                if let (SessionState::Waiting { .. }, Some(n)) = (&view.state, view.open_request())
                {
                    let id = &view.record.id;
                    say(&format!("{id}: studio answer {id} {n} allow    (or deny)"));
                }
            }
            // A settled session has no live line.
            SessionProgress::Live { all, bars } if view.state.is_settled() => {
                if let Some(bar) = bars.remove(&view.record.id) {
                    bar.finish_and_clear();
                    all.remove(&bar);
                }
                all.suspend(|| say(&table::change(view)));
            }
            SessionProgress::Live { .. } => self.show(view, &view.reason().unwrap_or_default()),
            SessionProgress::Silent => {}
        }
    }
}

impl Drop for SessionProgress {
    fn drop(&mut self) {
        if let SessionProgress::Live { all, bars } = self {
            bars.values().for_each(ProgressBar::finish_and_clear);
            let _ = all.clear();
        }
    }
}
