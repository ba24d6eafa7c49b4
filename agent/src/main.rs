//! The binary `g3`.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(agent::cli::main())
}
