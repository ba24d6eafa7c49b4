//! The `studio` program.

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use orchestrator::commands::completions;
use orchestrator::{cli::Cli, report};
use studio_core::{recheck, sandbox, selftest, supervisor_process};

fn main() -> ExitCode {
    // The sandbox is an internal command: its arguments belong to another program.
    if let Some(code) = sandbox::main(std::env::args_os().skip(1)) {
        return code;
    }
    // So are the supervisor, the checks of ready sessions and the agent of the self-test, which completions do not offer.
    let supervisor = supervisor_process::Args::parse(std::env::args_os().skip(1));
    let recheck =
        recheck::Args::parse(std::env::args_os().skip(1)).map(|args| recheck::main(&args));
    let scripted_agent = selftest::agent::main(std::env::args_os().skip(1));
    let internal = recheck.or_else(|| scripted_agent.map(|result| result.map(|()| 0)));
    let (json, result) = match (supervisor, internal) {
        (Some(args), _) => (false, supervisor_process::run(&args)),
        (None, Some(result)) => (false, result),
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
