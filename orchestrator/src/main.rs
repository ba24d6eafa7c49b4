//! The `studio` program.

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use orchestrator::commands::completions;
use orchestrator::{cli::Cli, report};
use studio_core::{pool_process, recheck, sandbox, selftest, supervisor_process, waker_process};

fn main() -> ExitCode {
    // The sandbox is an internal command: its arguments belong to another program.
    if let Some(code) = sandbox::main(std::env::args_os().skip(1)) {
        return code;
    }
    // So are the processes in the background and the agent of the self-test, which completions do not
    // offer.
    let args = || std::env::args_os().skip(1);
    let internal = supervisor_process::Args::parse(args())
        .map(|args| supervisor_process::run(&args))
        .or_else(|| pool_process::Args::parse(args()).map(|args| pool_process::run(&args)))
        .or_else(|| recheck::Args::parse(args()).map(|args| recheck::main(&args)))
        .or_else(|| waker_process::Args::parse(args()).map(|args| waker_process::run(&args)))
        .or_else(|| selftest::agent::main(args()).map(|result| result.map(|()| 0)));
    let (json, result) = match internal {
        Some(result) => (false, result),
        None if completions::answer(Cli::command) => return ExitCode::SUCCESS,
        None => {
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
