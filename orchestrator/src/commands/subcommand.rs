//! Runs studio's own commands as processes, with the repository and the configuration of this one:
//! what another program asks for is exactly what the user would type.

use std::path::PathBuf;

use base::failure::{OrFail, Result};
use base::process::{Command, Stream, exit_code};
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::commands::context::CommonArgs;

/// The way to run another command of this program.
#[derive(Clone, Debug)]
pub(crate) struct Subcommands {
    program: PathBuf,
    directory: PathBuf,
    config: Option<PathBuf>,
}

/// The result of a command.
#[derive(Clone, Debug)]
pub(crate) struct SubcommandOutput {
    /// The exit code.
    pub code: i32,
    /// Its stdout.
    pub stdout: String,
    /// Its stderr.
    pub stderr: String,
}

impl Subcommands {
    /// Takes directory and configuration from the flags of this command.
    pub(crate) fn new(common: &CommonArgs) -> Result<Subcommands> {
        Ok(Subcommands {
            program: std::env::current_exe()
                .or_fail(|| "cannot find the program file of studio")?,
            directory: common.directory()?,
            config: common.sources()?.config_file,
        })
    }

    /// Returns the process of a command.
    pub(crate) fn command(&self, args: &[String]) -> Command {
        let mut command = Command::new(&self.program, &self.directory);
        if let Some(config) = &self.config {
            command = command.arg("--config").arg(config);
        }
        command.args(args)
    }

    /// Runs a command without a terminal and waits for its end. If the returned future is dropped,
    /// the command gets SIGTERM, which ends it like Ctrl-C.
    pub(crate) async fn run(&self, args: &[String]) -> Result<SubcommandOutput> {
        let name = args.first().map_or("", String::as_str);
        let fail = || format!("cannot run `studio {name}`");
        let command = self.command(args).stdin(Stream::Null).graceful();
        let mut running = command.spawn_async().or_fail(fail)?;
        let (stdout, stderr) = (running.child.stdout.take(), running.child.stderr.take());
        let (status, stdout, stderr) =
            tokio::join!(running.child.wait(), read_all(stdout), read_all(stderr));
        running.forget();
        Ok(SubcommandOutput { code: exit_code(status.or_fail(fail)?), stdout, stderr })
    }
}

/// Reads a stream to its end; bytes that are not UTF-8 are replaced.
async fn read_all(stream: Option<impl AsyncRead + Unpin>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut stream) = stream {
        // What was read before an error is shown.
        let _ = stream.read_to_end(&mut bytes).await;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
