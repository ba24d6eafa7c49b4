//! Handles Ctrl-C and termination signals: the first cancels the turn, the second ends the program.

use std::sync::{Arc, Mutex};

use base::failure::{Failure, FailureKind, OrFail, Result};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Listens for SIGINT, SIGTERM and SIGHUP.
pub(crate) struct Interrupts {
    turn: Arc<Mutex<Option<CancelTokens>>>,
    listeners: Vec<JoinHandle<()>>,
}

impl Drop for Interrupts {
    fn drop(&mut self) {
        self.listeners.iter().for_each(JoinHandle::abort);
    }
}

/// The two tokens of a turn.
#[derive(Clone)]
pub(crate) struct CancelTokens {
    /// Cancelled by the first signal: tools end, and the finished work is recorded.
    pub cancel: CancellationToken,
    /// Cancelled by the second signal: nothing is waited for.
    pub end: CancellationToken,
}

impl Interrupts {
    /// Starts listening. A signal outside of a turn ends the program immediately.
    pub(crate) fn listen() -> Result<Interrupts> {
        let turn: Arc<Mutex<Option<CancelTokens>>> = Arc::default();
        let mut listeners = Vec::new();
        for kind in [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()] {
            let mut signals = signal(kind).or_fail(|| "cannot listen for signals")?;
            let turn = turn.clone();
            listeners.push(tokio::spawn(async move {
                while signals.recv().await.is_some() {
                    let turn = base::sync::lock(&turn).clone();
                    match turn {
                        Some(tokens) if tokens.cancel.is_cancelled() => tokens.end.cancel(),
                        Some(tokens) => tokens.cancel.cancel(),
                        None => {
                            crate::ui::terminal::give_back();
                            std::process::exit(130)
                        }
                    }
                }
            }));
        }
        Ok(Interrupts { turn, listeners })
    }

    /// Starts a turn and returns its tokens.
    pub(crate) fn begin(&self) -> CancelTokens {
        let tokens =
            CancelTokens { cancel: CancellationToken::new(), end: CancellationToken::new() };
        *base::sync::lock(&self.turn) = Some(tokens.clone());
        tokens
    }

    /// Ends the turn.
    pub(crate) fn over(&self) {
        *base::sync::lock(&self.turn) = None;
    }
}

/// Returns the failure of an interrupted program.
pub(crate) fn failure() -> Failure {
    Failure::new(FailureKind::Interrupted, "interrupted")
}
