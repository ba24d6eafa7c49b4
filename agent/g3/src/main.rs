//! The binary `g3`.

use std::process::ExitCode;

mod toolset;

fn main() -> ExitCode {
    base::process::keep_secrets();
    ExitCode::from(agent::cli::main(&toolset::EveryTool))
}
