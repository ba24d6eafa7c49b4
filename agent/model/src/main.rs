//! The `g3-model` program.

use std::io::Write;
use std::process::ExitCode;

use base::host::wire::{Fault, Tell, Told};
use clap::Parser;
use model::options::{Instead, Options};
use model::{bench, server};

fn main() -> ExitCode {
    let options = Options::parse();
    let ended = match &options.instead {
        Some(Instead::Bench(serve)) => bench::run(serve).map(|table| {
            let _ = std::io::stdout().write_all(table.as_bytes());
        }),
        None => server::run(&options.serve, |hello| say(Tell::Hello(hello.clone()))),
    };
    let Err(failure) = ended else { return ExitCode::SUCCESS };
    let _ = writeln!(std::io::stderr(), "{failure}");
    let code = failure.exit_code();
    if options.instead.is_none() {
        say(Tell::Error(Fault::from(failure)));
    }
    ExitCode::from(code)
}

/// One line for whoever started us; then stdout leads nowhere, so that nobody waits for its end.
fn say(what: Tell) {
    let mut out = std::io::stdout();
    let line = serde_json::to_string(&Told { id: 0, what }).unwrap_or_default();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
    if let Ok(null) = std::fs::OpenOptions::new().write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(null);
    }
}
