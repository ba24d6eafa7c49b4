//! The `studio` program.

use std::process::ExitCode;

use clap::Parser;
use orchestrator::{boxed, cli::Cli, report};

fn main() -> ExitCode {
    // The box is no command of a user's: its arguments are a program's own, whatever they look like.
    if let Some(code) = boxed::main(std::env::args_os().skip(1)) {
        return code;
    }
    let cli = Cli::parse();
    let json = cli.json();
    let done = cli.run().and_then(|code| report::lost().map_or(Ok(code), Err));
    match done {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            report::failure(&failure, json);
            ExitCode::from(failure.exit_code())
        }
    }
}
