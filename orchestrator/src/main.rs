//! The `studio` program.

use std::process::ExitCode;

use clap::Parser;
use orchestrator::{cli::Cli, report};

fn main() -> ExitCode {
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
