//! `studio open`: opens a session's worktree in the user's editor.

use base::failure::{Failure, OrFail, Result};
use base::process::{Command, Stream, exit_code};
use serde_json::json;

use crate::commands::context::{CommandContext, CommonArgs};
use crate::commands::shell;
use crate::report;
use studio_core::interrupt::Interrupt;
use studio_git::import;

/// The command line of `open`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Session (default: the only open one)
    #[arg(value_name = "ID")]
    pub id: Option<String>,
}

/// Runs the command and returns the exit code of the editor.
pub(crate) fn run(common: &CommonArgs, args: &Args) -> Result<u8> {
    let interrupt = Interrupt::listen()?;
    let context = CommandContext::open(common)?;
    let (view, _lock) = shell::enter(&context, args.id.as_deref())?;
    let worktree = &view.record.session_repo.worktree;
    let argv = command_line(&context.config.studio.open, &worktree.display().to_string())?;
    if context.json {
        report::json_line(&json!({"schema": 1, "id": view.record.id, "worktree": worktree}));
    }
    if let Some(what) = import::tampering_warning(&view.record.session_repo) {
        report::say(&format!("warning: {what}; plain git in its worktree would run it"));
    }
    let (program, arguments) =
        argv.split_first().ok_or("it is empty").or_fail(|| "`[studio] open`")?;
    // In this process group: an editor in the terminal has to be able to read it.
    let command = Command::new(program, worktree)
        .args(arguments)
        .in_parent_group()
        .stdin(Stream::Inherit)
        .stdout(Stream::Inherit)
        .stderr(Stream::Inherit);
    let status = interrupt.run_ignoring(|| {
        let mut running = command.spawn().map_err(|e| {
            Failure::failed(format!("cannot start the editor `{program}`"))
                .because(e)
                .hint("set `[studio] open`, e.g. to [\"code\", \"{worktree}\"]")
        })?;
        running.wait_until(None).or_fail(|| "cannot wait for the editor")
    })?;
    Ok(status.map_or(0, |status| u8::try_from(exit_code(status)).unwrap_or(1)))
}

/// Returns `[studio] open` with the worktree filled in; without that, `VISUAL` or `EDITOR`, which
/// may contain arguments.
fn command_line(configured: &[String], worktree: &str) -> Result<Vec<String>> {
    if !configured.is_empty() {
        let filled = configured.iter().map(|argument| argument.replace("{worktree}", worktree));
        return Ok(filled.collect());
    }
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
    let editor = variable("VISUAL").or_else(|| variable("EDITOR")).ok_or_else(|| {
        Failure::usage("no editor is configured")
            .because("neither VISUAL nor EDITOR is set")
            .hint("set `[studio] open`, e.g. to [\"code\", \"{worktree}\"]")
    })?;
    let line = format!("{editor} \"$1\"");
    Ok(["sh", "-c", &line, "sh", worktree].map(str::to_owned).to_vec())
}
