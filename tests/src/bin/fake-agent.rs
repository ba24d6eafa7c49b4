//! A fake agent for studio tests: executes its prompt as a script. It runs as a command
//! (`fake-agent PROMPT`) or over ACP (`fake-agent acp`, `fake-agent acp-load`).

use std::io::Write;
use std::process::ExitCode;

use testkit::fake::script::{self, ScriptStage};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.first().map(String::as_str) {
        Some("acp") => testkit::fake::acp::serve(false),
        Some("acp-load") => testkit::fake::acp::serve(true),
        Some(_) | None => script::play(&args.join(" "), &mut Terminal),
    }
}

/// The stage of an agent that runs as a command.
struct Terminal;

impl ScriptStage for Terminal {
    fn say(&mut self, text: &str) {
        let _ = writeln!(std::io::stdout().lock(), "{text}");
    }

    fn ask(&mut self, _what: &str) -> bool {
        false
    }

    fn is_cancelled(&mut self) -> bool {
        false
    }
}
