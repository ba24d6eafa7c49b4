//! The `studio` program.

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use orchestrator::commands::completions;
use orchestrator::{cli::Cli, report};
use studio_core::place::node::{self, NodeArgs};
use studio_core::pool_process::{self, PoolArgs};
use studio_core::supervisor_process::{self, SupervisorArgs};
use studio_core::{recheck, sandbox, selftest, waker_process};

fn main() -> ExitCode {
    // The sandbox is an internal command: its arguments belong to another program.
    if let Some(code) = sandbox::main(std::env::args_os().skip(1)) {
        return code;
    }
    // So are the processes in the background and the agent of the self-test, which completions do not
    // offer.
    let args = || std::env::args_os().skip(1);
    let internal = SupervisorArgs::parse(args())
        .map(|args| supervisor_process::run(&args))
        .or_else(|| NodeArgs::parse(args()).map(|args| node::run(&args)))
        .or_else(|| PoolArgs::parse(args()).map(|args| pool_process::run(&args)))
        .or_else(|| recheck::parse(args()).map(|args| recheck::main(&args)))
        .or_else(|| waker_process::parse(args()).map(|args| waker_process::run(&args)))
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
