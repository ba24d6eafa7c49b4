//! A directory whose `.toy` files use the language server of the tests.

use std::path::PathBuf;

use base::process::is_alive;
use serde_json::{Value, json};
use testkit::env::{built, until};

use crate::agent_env::Stage;
use crate::tools_support::{Bench, Called};

/// A bench with a project of two files, and the log of its server.
pub struct Toys {
    pub bench: Bench,
}

/// Returns the configuration of the server `toy` with these arguments.
pub fn config(log: &str, args: &[&str], lines: &str) -> String {
    let args: Vec<&str> = ["--log", log].into_iter().chain(args.iter().copied()).collect();
    let program = built("lsp-server");
    format!(
        "[lsp.toy]\ncommand = {}\nargs = {}\nextensions = [\".toy\"]\n{lines}\n",
        json!(program),
        json!(args)
    )
}

impl Toys {
    /// Creates a bench with a server with these arguments and configuration lines.
    pub fn new(args: &[&str], lines: &str) -> Toys {
        let bench = Bench::new("tools-api");
        let toys = Toys { bench };
        toys.configure(args, lines);
        toys.bench.write("a.toy", "def alpha\n  def inner\nx 𝄞 alpha beta\n");
        toys.bench.write("b.toy", "def beta\nalpha alpha\nenvironment BAD\n");
        toys
    }

    pub fn configure(&self, args: &[&str], lines: &str) {
        let log = self.log_file().to_string_lossy().into_owned();
        self.bench.env.config(&config(&log, args, lines));
    }

    fn log_file(&self) -> PathBuf {
        self.bench.env.home().join("tmp/lsp.log")
    }

    /// Queries a position, counted from 0.
    pub fn ask(&self, operation: &str, file: &str, line: usize, column: usize) -> Called {
        let args = json!({ "operation": operation, "file": file, "line": line, "column": column });
        self.bench.call("lsp", args)
    }

    /// Returns the messages that the server received, in order.
    pub fn log(&self) -> Vec<Value> {
        lines(&self.log_file())
    }

    /// Returns the methods that it received.
    pub fn methods(&self) -> Vec<String> {
        methods(&self.log())
    }
}

/// Returns the messages in a server's log.
pub fn lines(file: &PathBuf) -> Vec<Value> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Returns the methods of messages.
pub fn methods(log: &[Value]) -> Vec<String> {
    log.iter().filter_map(|it| it["method"].as_str()).map(str::to_owned).collect()
}

/// Returns the messages with this method.
pub fn with_method<'a>(log: &'a [Value], method: &str) -> Vec<&'a Value> {
    log.iter().filter(|it| it["method"] == method).collect()
}

/// Asserts that every process named in a log is gone.
#[track_caller]
pub fn all_are_gone(log: &[Value]) {
    let started = log.iter().filter_map(|it| it["started"].as_u64());
    let ids: Vec<u32> = started.map(|id| u32::try_from(id).unwrap()).collect();
    assert!(!ids.is_empty(), "no server was started");
    for id in ids {
        until("the server's end", || (!is_alive(id)).then_some(()));
    }
}

/// Adds toy files to the stage's repository. Returns the log of its server.
pub fn stage(stage: &Stage, args: &[&str], lines: &str) -> PathBuf {
    let log = stage.env.home().join("tmp/lsp.log");
    let model = stage.model.config_toml("anthropic");
    let toy = config(&log.to_string_lossy(), args, lines);
    stage.env.config(&format!("{model}\n{toy}"));
    for (name, text) in [("a.toy", "def alpha\nalpha beta\n"), ("b.toy", "def beta\nalpha\n")] {
        std::fs::write(stage.repo.path().join(name), text).unwrap();
    }
    log
}
