//! Ctrl-C during a command: the command ends in an orderly way.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::failure::{Failure, FailureKind, OrFail, Result};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Whether the user interrupted the command. Clones share the state.
#[derive(Clone, Debug, Default)]
pub struct Interrupt {
    token: CancellationToken,
    /// Whether another program on the terminal handles the keys.
    ignored: Arc<AtomicBool>,
}

impl Interrupt {
    /// Starts to listen for Ctrl-C and SIGTERM. The second signal ends the program immediately.
    pub fn listen() -> Result<Interrupt> {
        let interrupt = Interrupt::default();
        let listener = interrupt.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
        let runtime = runtime.or_fail(cannot)?;
        let (mut int, mut term) = {
            let _guard = runtime.enter();
            let int = signal(SignalKind::interrupt()).or_fail(cannot)?;
            (int, signal(SignalKind::terminate()).or_fail(cannot)?)
        };
        std::thread::spawn(move || {
            runtime.block_on(async {
                loop {
                    tokio::select! {
                        _ = int.recv() => {}
                        _ = term.recv() => {}
                    }
                    if listener.ignored.load(Ordering::Relaxed) {
                        continue;
                    }
                    if listener.token.is_cancelled() {
                        std::process::exit(i32::from(FailureKind::Interrupted as u8));
                    }
                    listener.token.cancel();
                }
            });
        });
        Ok(interrupt)
    }

    /// Creates an interrupt that is triggered when a token is cancelled.
    pub(crate) fn from_token(token: CancellationToken) -> Interrupt {
        Interrupt { token, ..Interrupt::default() }
    }

    /// Creates an interrupt for a part of a command: it is triggered with this one, or alone.
    pub(crate) fn child(&self) -> Interrupt {
        Interrupt::from_token(self.token.child_token())
    }

    /// Returns the token that is cancelled when it is triggered.
    pub(crate) fn token(&self) -> CancellationToken {
        self.token.clone()
    }

    /// Triggers it.
    pub(crate) fn trigger(&self) {
        self.token.cancel();
    }

    /// Runs a program that handles the terminal's keys itself, e.g. an editor.
    pub fn run_ignoring<T>(&self, program: impl FnOnce() -> T) -> T {
        self.ignored.store(true, Ordering::Relaxed);
        let result = program();
        self.ignored.store(false, Ordering::Relaxed);
        result
    }

    /// Fails (130) after Ctrl-C.
    pub fn check(&self) -> Result<()> {
        if self.token.is_cancelled() { Err(interrupted_failure()) } else { Ok(()) }
    }

    /// Awaits a future; on Ctrl-C drops it and fails (130).
    pub async fn or<T>(&self, future: impl Future<Output = T>) -> Result<T> {
        self.token.run_until_cancelled(future).await.ok_or_else(interrupted_failure)
    }
}

fn interrupted_failure() -> Failure {
    Failure::new(FailureKind::Interrupted, "interrupted")
}

fn cannot() -> &'static str {
    "cannot hear Ctrl-C"
}
