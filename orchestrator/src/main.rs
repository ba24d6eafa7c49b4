//! The `studio` program.

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use orchestrator::commands::completions;
use orchestrator::{cli::Cli, report};
use studio_core::{pool_process, sandbox, selftest, supervisor_process};

fn main() -> ExitCode {
    // The sandbox is an internal command: its arguments belong to another program.
    if let Some(code) = sandbox::main(std::env::args_os().skip(1)) {
        return code;
    }
    // So are the supervisor and the agent of the self-test, which completions do not offer.
    let supervisor = supervisor_process::Args::parse(std::env::args_os().skip(1));
    if let Some(args) = pool_process::Args::parse(std::env::args_os().skip(1)) {
        return match pool_process::run(&args) {
            Ok(code) => ExitCode::from(code),
            Err(failure) => ExitCode::from(failure.exit_code()),
        };
    }
    let scripted_agent = selftest::agent::main(std::env::args_os().skip(1));
    let (json, result) = match (supervisor, scripted_agent) {
        (Some(args), _) => (false, supervisor_process::run(&args)),
        (None, Some(result)) => (false, result.map(|()| 0)),
        (None, None) if completions::answer(Cli::command) => return ExitCode::SUCCESS,
        (None, None) => {
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
