//! Somebody outside who holds files and terminals, e.g. an editor with unsaved text: its files are
//! read and written through it, and commands run where the person sees them.

use std::io;
use std::path::Path;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

/// Whoever is outside. `None` means that it does not do such a thing, and g3 does it itself.
pub trait ClientIo: Send + Sync {
    /// The text of a file as it is shown there, saved or not.
    fn read<'a>(&'a self, file: &'a Path) -> BoxFuture<'a, Option<String>>;

    /// Writes a file.
    fn write<'a>(&'a self, file: &'a Path, text: &'a str) -> BoxFuture<'a, Option<io::Result<()>>>;

    /// Runs a command line to its end.
    fn run<'a>(
        &'a self,
        command: TerminalCommand<'a>,
    ) -> BoxFuture<'a, Option<io::Result<TerminalOutput>>>;
}

/// A command line for a terminal outside.
#[derive(Clone, Debug)]
pub struct TerminalCommand<'a> {
    /// The line for `sh -c`.
    pub line: &'a str,
    /// Where.
    pub cwd: &'a Path,
    /// For how long at most.
    pub time: Option<Duration>,
    /// Set when the user cancels.
    pub cancel: CancellationToken,
}

/// What a command in a terminal came to. Both streams are one there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TerminalOutput {
    /// What it wrote; its end, when it wrote much.
    pub output: String,
    /// As a shell gives it.
    pub code: i32,
    /// The time was over.
    pub timed_out: bool,
    /// The user cancelled.
    pub cancelled: bool,
}
