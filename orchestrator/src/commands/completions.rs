//! `studio completions`: the completion script of a shell.

use base::failure::Result;
use clap::Command;
use clap_complete::Shell;

use crate::report;

/// The command line of `completions`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The shell
    pub shell: Shell,
}

/// Runs it.
pub fn run(args: &Args, mut command: Command) -> Result<u8> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "studio", &mut script);
    report::out(String::from_utf8_lossy(&script).trim_end());
    Ok(0)
}
