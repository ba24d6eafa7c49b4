//! The `g3` program.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "g3", version, about = "A coding agent")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List and run tools without a model
    Tool(agent::cli::tool::ToolArgs),
}

#[allow(clippy::print_stderr)]
fn main() -> ExitCode {
    let Command::Tool(args) = Cli::parse().command;
    match agent::cli::tool::run(&args) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::from(failure.exit_code())
        }
    }
}
