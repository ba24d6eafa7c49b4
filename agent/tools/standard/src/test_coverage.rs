//! Measures the line coverage of a Rust workspace with `cargo llvm-cov` and reports it as a short
//! table.

use std::path::Path;
use std::time::Duration;

use base::process::find_program;
use serde::Deserialize;
use serde_json::json;

use super::exec;
use super::exec::process::{self, ProcessEnd, ProcessSpec};
use tools::call::Invocation;
use tools::exec::environment::Environment;
use tools::exec::output;
use tools::exec::output::{CapturedStream, OutputBudget};
use tools::kind::Effect;
use tools::output::{ToolError, ToolErrorKind, ToolOutput};
use tools::tool::{CallScope, Tool, ToolFuture, ToolSpec};

/// The arguments, set by the profile; the gate has checked the same command line.
#[derive(Deserialize)]
struct Args {
    command: String,
    timeout_ms: u64,
}

/// The output of `llvm-cov export`.
#[derive(Deserialize)]
struct Export {
    data: Vec<Data>,
}

#[derive(Deserialize)]
struct Data {
    files: Vec<File>,
    totals: Summary,
}

#[derive(Deserialize)]
struct File {
    filename: String,
    summary: Summary,
}

#[derive(Clone, Copy, Deserialize)]
struct Summary {
    lines: Lines,
    functions: Lines,
}

/// Number of lines and number of covered lines.
#[derive(Clone, Copy, Deserialize)]
struct Lines {
    count: u64,
    covered: u64,
}

/// The report is parsed from the output, so enough of it is kept; a file takes half a kilobyte.
const REPORT_BUDGET: OutputBudget = OutputBudget { head: 16 << 20, tail: 8_000 };
/// Maximum number of bytes of messages shown on failure.
const MAX_OUTPUT: usize = 6_000;
/// Maximum number of files reported.
const MAX_FILES: usize = 100;

/// cargo's message when the LLVM tools are missing.
const MISSING_LLVM_TOOLS: &str = "failed to find llvm-tools";

/// Missing components by cargo's message, with hints.
const MISSING: [(&str, &str); 5] = [
    (
        "no such command: `llvm-cov`",
        "cargo-llvm-cov is not installed. Ask the user to install it: `cargo install \
         cargo-llvm-cov`, and `rustup component add llvm-tools`",
    ),
    (
        MISSING_LLVM_TOOLS,
        "the component llvm-tools is not installed. Ask the user to install it: `rustup component \
         add llvm-tools`; for a Rust that is not from rustup, the system's llvm of the version \
         that `rustc -vV` tells, or to set LLVM_COV and LLVM_PROFDATA to such programs",
    ),
    ("cargo: command not found", "cargo was not found: Rust is not installed"),
    ("cargo: not found", "cargo was not found: Rust is not installed"),
    (
        "could not find `Cargo.toml`",
        "there is no Cargo.toml in the working directory or above it: coverage is measured of \
         Rust packages only",
    ),
];

/// The tool that measures the coverage of a Rust workspace.
pub(crate) struct CoverageTool;

impl Tool for CoverageTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new("code.coverage", Effect::Runs)
    }

    fn scope(&self, call: &Invocation<'_>) -> CallScope {
        exec::scope(call)
    }

    fn call<'a>(&'a self, call: &'a Invocation<'_>) -> ToolFuture<'a> {
        Box::pin(run(call))
    }
}

/// Runs all tests and reports the coverage.
async fn run(call: &Invocation<'_>) -> Result<ToolOutput, ToolError> {
    let Args { command, timeout_ms } = call.decode()?;
    let run = async |line: &str| {
        let run_error = |e| ToolError::failed(format!("cannot run `{line}`: {e}"));
        let spec = ProcessSpec {
            line,
            cwd: &call.path,
            environment: Environment::Quiet,
            time: Some(Duration::from_millis(timeout_ms)),
            output_budget: REPORT_BUDGET,
            containment: call.context.containment(call.permit).map_err(run_error)?,
            reports_directory: false,
        };
        process::run(&spec, call.context).await.map_err(run_error)
    };
    let mut result = run(&command).await?;
    let mut tools = String::new();
    if result.code != 0 && output::render(&result.stderr).contains(MISSING_LLVM_TOOLS) {
        let version = run("rustc -vV").await?;
        if let Some(tools_env) = system_tools(&version.stdout.head) {
            tools = tools_env + " ";
            result = run(&format!("{tools}{command}")).await?;
        }
    }
    match result.end {
        ProcessEnd::Exited if result.code == 0 => {}
        ProcessEnd::Exited => return Err(failed(result.code, &result.stdout, &result.stderr)),
        ProcessEnd::Cancelled => {
            return Err(ToolError::new(ToolErrorKind::Cancelled, "cancelled by the user"));
        }
        ProcessEnd::TimedOut => {
            let text = format!(
                "it took longer than {timeout_ms} ms, and the process group was ended. Run a part \
                 of the tests with the shell: `cargo llvm-cov -p PACKAGE --summary-only`\n{}",
                output_tail(&result.stderr)
            );
            return Err(ToolError::new(ToolErrorKind::Timeout, text));
        }
    }
    match report(&result.stdout) {
        Some(data) => Ok(outcome(data, &call.path, &tools)),
        None => Err(ToolError::failed(format!(
            "`{command}` succeeded but its report cannot be read:\n{}",
            output_tail(&result.stdout)
        ))),
    }
}

/// Returns the system's LLVM tools that match this rustc, as assignments before a command.
fn system_tools(rustc: &str) -> Option<String> {
    let version = rustc.lines().find_map(|line| line.strip_prefix("LLVM version: "))?;
    let major =
        version.split('.').next().filter(|part| part.bytes().all(|b| b.is_ascii_digit()))?;
    let shell_quoted = |name: &str| {
        let program = find_program(&format!("{name}-{major}"))?;
        let path = program.to_str().filter(|path| !path.contains('\''))?;
        Some(format!("'{path}'"))
    };
    Some(format!(
        "LLVM_COV={} LLVM_PROFDATA={}",
        shell_quoted("llvm-cov")?,
        shell_quoted("llvm-profdata")?
    ))
}

/// Parses the report: the last line that is one, regardless of the output of tests.
fn report(output: &CapturedStream) -> Option<Data> {
    let lines = output.head.lines().rev().filter(|line| line.starts_with('{'));
    let read = |line: &str| serde_json::from_str::<Export>(line).ok()?.data.pop();
    lines.take(10).find_map(read).filter(|_| output.omitted == 0)
}

fn failed(code: i32, stdout: &CapturedStream, stderr: &CapturedStream) -> ToolError {
    let output = format!("{}{}", output_tail(stdout), output_tail(stderr));
    if let Some((_, hint)) = MISSING.iter().find(|(error_text, _)| output.contains(error_text)) {
        return ToolError::failed(*hint);
    }
    ToolError::failed(format!(
        "no coverage, because the tests failed or could not be built (exit code \
         {code}):\n{output}"
    ))
}

/// Returns the end of a stream, which contains the error.
fn output_tail(stream: &CapturedStream) -> String {
    let text = output::render(stream);
    let tail = base::text::tail(&text, MAX_OUTPUT);
    let omitted = text.len() - tail.len();
    match omitted {
        0 => text,
        _ => format!("[{omitted} bytes before this are left out]\n{tail}"),
    }
}

fn outcome(data: Data, root: &Path, tools: &str) -> ToolOutput {
    let Data { mut files, totals } = data;
    files.sort_by(|a, b| {
        let missed_lines = |file: &File| file.summary.lines.missed();
        missed_lines(b).cmp(&missed_lines(a)).then_with(|| a.filename.cmp(&b.filename))
    });
    let name = |file: &File| {
        let path = Path::new(&file.filename);
        path.strip_prefix(root).unwrap_or(path).display().to_string()
    };
    let mut text = format!(
        "All tests passed. Lines that they ran: {}; functions: {}. By file, most lines missed \
         first:\n",
        totals.lines.percent_text(),
        totals.functions.percent_text()
    );
    for file in files.iter().take(MAX_FILES) {
        text.push_str(&format!("{}  {}\n", file.summary.lines.percent_text(), name(file)));
    }
    if files.len() > MAX_FILES {
        text.push_str(&format!(
            "[{} more files, each missing fewer lines]\n",
            files.len() - MAX_FILES
        ));
    }
    let lines = format!("{tools}cargo llvm-cov report --show-missing-lines");
    text.push_str(&format!("[which lines: `{lines}`, with the shell]"));
    let file_line = |file: &File| {
        let Lines { count, covered } = file.summary.lines;
        json!({ "path": name(file), "lines": count, "covered": covered })
    };
    let metadata = json!({
        "lines": totals.lines.count,
        "covered": totals.lines.covered,
        "percent": totals.lines.percent(),
        "file_count": files.len(),
        "files": files.iter().take(MAX_FILES).map(file_line).collect::<Vec<_>>(),
    });
    let title = format!("{:.1} % of lines covered", totals.lines.percent());
    ToolOutput::success(text).titled(title).with(metadata)
}

impl Lines {
    fn missed(self) -> u64 {
        self.count.saturating_sub(self.covered)
    }

    fn percent(self) -> f64 {
        if self.count == 0 { 100.0 } else { self.covered as f64 * 100.0 / self.count as f64 }
    }

    fn percent_text(self) -> String {
        format!("{:.1} % ({} of {})", self.percent(), self.covered, self.count)
    }
}
