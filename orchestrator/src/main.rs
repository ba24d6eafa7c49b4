//! The `studio` program.

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use orchestrator::commands::completions;
use orchestrator::{cli::Cli, report};
use studio_core::{sandbox, supervisor_process};

fn main() -> ExitCode {
    // The sandbox is an internal command: its arguments belong to another program.
    if let Some(code) = sandbox::main(std::env::args_os().skip(1)) {
        return code;
    }
    // So is the supervisor, which completions do not offer.
    let supervisor = supervisor_process::Args::parse(std::env::args_os().skip(1));
    let (json, result) = match supervisor {
        Some(args) => (false, supervisor_process::run(&args)),
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
