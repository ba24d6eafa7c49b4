//! Files and terminals provided by the client, e.g. an editor with unsaved buffers: files are read
//! and written through it, and commands run in its terminals.

use std::io;
use std::path::Path;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

/// A client. `None` means that it does not support the operation, and g3 performs it itself.
pub trait ClientIo: Send + Sync {
    /// Returns the text of a file as shown in the client, saved or not.
    fn read<'a>(&'a self, file: &'a Path) -> BoxFuture<'a, Option<String>>;

    /// Writes a file.
    fn write<'a>(&'a self, file: &'a Path, text: &'a str) -> BoxFuture<'a, Option<io::Result<()>>>;

    /// Runs a command line until it exits.
    fn run<'a>(
        &'a self,
        command: TerminalCommand<'a>,
    ) -> BoxFuture<'a, Option<io::Result<TerminalOutput>>>;
}

/// A command line for a terminal of the client.
#[derive(Clone, Debug)]
pub struct TerminalCommand<'a> {
    /// The line for `sh -c`.
    pub line: &'a str,
    /// The working directory.
    pub cwd: &'a Path,
    /// The timeout.
    pub timeout: Option<Duration>,
    /// Set when the user cancels.
    pub cancel: CancellationToken,
}

/// The result of a command in a terminal. Both output streams are combined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TerminalOutput {
    /// The output, truncated to its end if long.
    pub output: String,
    /// The exit code, as in a shell.
    pub code: i32,
    /// Whether the command timed out.
    pub timed_out: bool,
    /// Whether the user cancelled.
    pub cancelled: bool,
}
