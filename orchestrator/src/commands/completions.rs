//! `studio completions`: prints a shell completion script.

use base::failure::Result;
use clap::Command;
use clap_complete::Shell;

use crate::report;

/// The command line of `completions`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// The shell
    pub shell: Shell,
}

/// Runs the command.
pub(crate) fn run(args: &Args, command: Command) -> Result<u8> {
    let mut script = Vec::new();
    // Some generators also offer hidden commands.
    let visible = command.get_subcommands().filter(|it| !it.is_hide_set()).cloned();
    let mut command =
        clap::Command::new("studio").args(command.get_arguments().cloned()).subcommands(visible);
    clap_complete::generate(args.shell, &mut command, "studio", &mut script);
    report::out(String::from_utf8_lossy(&script).trim_end());
    Ok(0)
}
