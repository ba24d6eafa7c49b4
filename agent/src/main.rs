//! The binary `g3`.

use std::process::ExitCode;

fn main() -> ExitCode {
    base::process::keep_secrets();
    ExitCode::from(agent::cli::main())
}
