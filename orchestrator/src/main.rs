//! The `studio` program.

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use orchestrator::commands::completions;
use orchestrator::{cli::Cli, report};
use studio_core::{sandbox, selftest, supervisor_process, waker_process};

fn main() -> ExitCode {
    // The sandbox is an internal command: its arguments belong to another program.
    if let Some(code) = sandbox::main(std::env::args_os().skip(1)) {
        return code;
    }
    // So are the supervisor, the waker and the agent of the self-test, which completions do not
    // offer.
    let waker = waker_process::parse(std::env::args_os().skip(1));
    let supervisor = supervisor_process::Args::parse(std::env::args_os().skip(1));
    let scripted_agent = selftest::agent::main(std::env::args_os().skip(1));
    let (json, result) = match (supervisor, waker, scripted_agent) {
        (Some(args), _, _) => (false, supervisor_process::run(&args)),
        (None, Some(common_dir), _) => (false, waker_process::run(&common_dir)),
        (None, None, Some(result)) => (false, result.map(|()| 0)),
        (None, None, None) if completions::answer(Cli::command) => return ExitCode::SUCCESS,
        (None, None, None) => {
            let cli = Cli::parse();
            (cli.json(), cli.run())
        }
    };
    match result.and_then(|code| report::write_error().map_or(Ok(code), Err)) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            report::failure(&failure, json);
            ExitCode::from(failure.exit_code())
        }
    }
}
