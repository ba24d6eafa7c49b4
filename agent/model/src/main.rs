//! The `g3-model` program.

use std::io::Write;
use std::process::ExitCode;

use base::model_host::wire::{HostFault, HostResponse, HostResponseLine};
use clap::Parser;
use model::options::Options;
use model::{bench, server};

fn main() -> ExitCode {
    // The benchmark takes the same options, so it is not a subcommand with its own options.
    let is_bench = std::env::args().nth(1).is_some_and(|arg| arg == "bench");
    let args = std::env::args_os().enumerate().filter(|(index, _)| !(is_bench && *index == 1));
    let Options { serve } = Options::parse_from(args.map(|(_, arg)| arg));
    let ended = if is_bench {
        bench::run(&serve).map(|table| drop(std::io::stdout().write_all(table.as_bytes())))
    } else {
        server::run(&serve, |hello| say(HostResponse::Hello(hello.clone())))
    };
    let Err(failure) = ended else { return ExitCode::SUCCESS };
    let _ = writeln!(std::io::stderr(), "{failure}");
    let code = failure.exit_code();
    if !is_bench {
        say(HostResponse::Error(HostFault::from(failure)));
    }
    ExitCode::from(code)
}

/// Prints one line for the parent process, then redirects stdout, so that the parent does not wait
/// for its end.
fn say(what: HostResponse) {
    let mut out = std::io::stdout();
    let line = serde_json::to_string(&HostResponseLine { id: 0, what }).unwrap_or_default();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
    if let Ok(null) = std::fs::OpenOptions::new().write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(null);
    }
}
