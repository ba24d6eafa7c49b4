//! The `studio` program.

use std::process::ExitCode;

use clap::Parser;
use orchestrator::{boxed, cli::Cli, report};

fn main() -> ExitCode {
    // The box is no command of a user's: its arguments are a program's own, whatever they look like.
    let mut args = std::env::args_os().skip(1);
    if args.next().is_some_and(|verb| verb == "__box") {
        return boxed::main(args);
    }
    let cli = Cli::parse();
    let json = cli.json();
    match cli.run() {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            report::failure(&failure, json);
            ExitCode::from(failure.exit_code())
        }
    }
}
