//! Waits for input of the terminal without reading it: a thread polls, and polls again when the
//! input was read.

use std::sync::mpsc::{Sender, channel};

use rustix::event::{PollFd, PollFlags, poll};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// Waits for input on stdin.
pub(crate) struct InputWatcher {
    rx: UnboundedReceiver<()>,
    read_tx: Sender<()>,
}

impl InputWatcher {
    /// Starts to wait.
    pub(crate) fn start() -> InputWatcher {
        let (tx, rx) = unbounded_channel();
        let (read_tx, read_rx) = channel();
        std::thread::spawn(move || {
            loop {
                let mut inputs = [PollFd::from_borrowed_fd(rustix::stdio::stdin(), PollFlags::IN)];
                let result = poll(&mut inputs, None);
                if result == Err(rustix::io::Errno::INTR) {
                    continue;
                }
                if result.is_err() || tx.send(()).is_err() || read_rx.recv().is_err() {
                    return;
                }
            }
        });
        InputWatcher { rx, read_tx }
    }

    /// Returns when there is input.
    pub(crate) async fn wait(&mut self) {
        if self.rx.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    }

    /// Waits for further input, after all of it was read.
    pub(crate) fn resume(&self) {
        // A thread that ended has reported that.
        let _ = self.read_tx.send(());
    }
}
