//! The `g3-desktop` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    if std::env::args().len() > 1 {
        let _ = std::io::Write::write_all(&mut std::io::stderr(), desktop::USAGE.as_bytes());
        return ExitCode::from(2);
    }
    desktop::cancel::end_on_signals();
    match desktop::serve::serve(std::io::stdin().lock(), std::io::stdout()) {
        Ok(()) => ExitCode::SUCCESS,
        // The client is gone.
        Err(_) => ExitCode::FAILURE,
    }
}
