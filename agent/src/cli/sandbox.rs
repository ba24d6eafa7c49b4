//! `g3 sandbox`: runs any program in the sandbox of g3's commands.

use std::path::PathBuf;

use base::failure::{Failure, OrFail, Result};
use base::process::{Command, Stream, exit_code};
use base::sandbox::guarded_paths;
use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use tools::exec::confinement::{CommandSandbox, Containment};
use tools::exec::environment::{self, Environment};

use super::GlobalArgs;
use super::settings::{directory, load};
use crate::ui;

/// `g3 sandbox`.
#[derive(Debug, Args)]
pub(crate) struct SandboxCommandArgs {
    /// Run as if started in this directory
    #[arg(short = 'w', long, value_name = "DIR")]
    workspace: Option<PathBuf>,
    /// Read this file instead of the user's and the repository's configuration
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Program and arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<String>,
}

/// Runs the program and returns its exit code.
pub(crate) fn run(args: &SandboxCommandArgs) -> Result<u8> {
    let (workspace, config) = (args.workspace.clone(), args.config.clone());
    let common = GlobalArgs { workspace, config, ..GlobalArgs::default() };
    let directory = directory(&common)?;
    let loaded = load(&common, &directory)?;
    loaded.notices.iter().for_each(|notice| ui::say(&format!("warning: {notice}")));
    let no_sandbox = || Failure::refused("the command cannot run in the sandbox");
    let containment = CommandSandbox::of(&loaded.config.sandbox, &directory).containment();
    let containment: Containment =
        containment.map_err(|error| no_sandbox().because(error))?.ok_or_else(|| {
            no_sandbox()
                .because("`[sandbox] enabled = false` is configured")
                .hint("remove that line")
        })?;
    let Some((program, rest)) = args.command.split_first() else {
        return Err(Failure::usage("no program is given").hint("g3 sandbox -- make test"));
    };
    let command = Command::new(program, &directory)
        .args(rest)
        .stdin(Stream::Inherit)
        .stdout(Stream::Inherit)
        .stderr(Stream::Inherit);
    let command = environment::apply(command, Environment::Full);
    let guarded = guarded_paths::unchanged(&containment.confinement.rules.guarded);
    let command = Containment::apply(command, containment).in_parent_group().kill_on_parent_death();
    let cannot = || format!("cannot start `{program}`");
    // Ctrl-C is left to the program.
    let runtime = base::runtime::current_thread().or_fail(cannot)?;
    let _guard = runtime.enter();
    let _interrupts = signal(SignalKind::interrupt()).or_fail(cannot)?;
    let mut running = command.spawn().or_fail(cannot)?;
    let status = running.wait_until(None).or_fail(|| "cannot wait for the program")?;
    for path in guarded_paths::put_back(&guarded).or_fail(|| "cannot put back git's files")? {
        ui::say(&format!("warning: {}", guarded_paths::notice(&path)));
    }
    Ok(u8::try_from(status.map_or(1, exit_code)).unwrap_or(1))
}
