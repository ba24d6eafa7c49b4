//! Cancellable waiting.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use base::failure::{Failure, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Set by a signal that asks the program to exit.
static IS_ENDING: AtomicBool = AtomicBool::new(false);

/// Maximum interval between checks for cancellation.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Waits. Fails immediately if the program must exit or its output is no longer read. This stops
/// typing in the middle of a text, and the caller releases held keys.
pub(crate) fn pause(time: Duration) -> Result<()> {
    let end = Instant::now() + time;
    loop {
        let remaining = end.saturating_duration_since(Instant::now()).min(POLL_INTERVAL);
        let stdout = std::io::stdout();
        // No events are requested, so only an error or a hang-up ends the wait.
        let mut poll_fds = [PollFd::new(&stdout, PollFlags::empty())];
        let limit = Timespec {
            tv_sec: remaining.as_secs().cast_signed(),
            tv_nsec: i64::from(remaining.subsec_nanos()),
        };
        let is_closed = poll(&mut poll_fds, Some(&limit)).is_ok_and(|ready| ready > 0);
        if is_closed || IS_ENDING.load(Ordering::Relaxed) {
            return Err(Failure::failed("cancelled"));
        }
        if Instant::now() >= end {
            return Ok(());
        }
    }
}

/// Makes TERM and INT end the program once it holds no key and no button.
pub fn end_on_signals() {
    std::thread::spawn(|| {
        let runtime = base::runtime::current_thread();
        let Ok(runtime) = runtime else { return };
        runtime.block_on(async {
            use tokio::signal::unix::{SignalKind, signal};
            let (Ok(mut term), Ok(mut int)) =
                (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
            else {
                return;
            };
            tokio::select! { _ = term.recv() => {}, _ = int.recv() => {} }
            IS_ENDING.store(true, Ordering::Relaxed);
            // Waiting code notices the flag, other code finishes soon; exit after that.
            tokio::time::sleep(POLL_INTERVAL * 4).await;
            std::process::exit(143);
        });
    });
}
