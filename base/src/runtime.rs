//! The asynchronous runtime of synchronous code.

use std::io;

use tokio::runtime::{Builder, Runtime};

/// Returns a runtime on the current thread, with timers and I/O.
pub fn current_thread() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}
