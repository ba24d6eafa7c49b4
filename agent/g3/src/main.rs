//! The binary `g3`.

use std::process::ExitCode;

mod toolset;

fn main() -> ExitCode {
    base::process::disable_core_dumps();
    ExitCode::from(agent::cli::main(&toolset::EveryTool))
}
