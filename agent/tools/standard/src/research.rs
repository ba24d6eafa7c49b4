//! Research: a second g3 process with the persona `scout` researches a question, and its report is
//! returned.

use std::time::Duration;

use base::config::agent::GateAction;
use base::process::{AsyncRunning, Command, GRACE, exit_code};
use serde::Deserialize;
use serde_json::json;
use tokio::io::AsyncReadExt;
use tokio::sync::Semaphore;

use gate::{Access, AccessRequest, PermissionQuestion};
use skills::embedded;
use tools::call::Invocation;
use tools::context::ToolContext;
use tools::kind::Effect;
use tools::output::{ToolError, ToolErrorKind, ToolOutput};
use tools::research_agent::{HOSTS, RESEARCH_AGENT, WEB_TOOLS};
use tools::tool::{Tool, ToolFuture, ToolSpec};

#[derive(Deserialize)]
struct Args {
    query: String,
}

/// Timeout of a research agent.
const TIMEOUT: Duration = Duration::from_secs(20 * 60);
/// Maximum number of concurrent research agents of this process.
static CONCURRENT: Semaphore = Semaphore::const_new(3);
/// Maximum number of characters of a question, and of bytes of a report.
const MAX_QUESTION: usize = 8_000;
const MAX_REPORT: u64 = 64 << 10;
/// The program to start as research agent; this one by default.
const PROGRAM_VAR: &str = "G3_RESEARCH_PROGRAM";
/// The tool that delegates a question about the web to a research agent.
pub(crate) struct ResearchTool;

impl Tool for ResearchTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new("web.research", Effect::Looks)
    }

    fn call<'a>(&'a self, call: &'a Invocation<'_>) -> ToolFuture<'a> {
        Box::pin(run(call))
    }
}

/// Starts a research agent and waits for its report. The program is that of the skill `research`.
/// It is run from memory, because it receives g3's keys and anyone could change the file in
/// `.g3/bin`.
async fn run(call: &Invocation<'_>) -> Result<ToolOutput, ToolError> {
    let Args { query } = call.decode()?;
    if query.trim().is_empty() || query.chars().count() > MAX_QUESTION {
        let text =
            format!("research: `query` must hold a question of at most {MAX_QUESTION} characters");
        return Err(ToolError::invalid(text));
    }
    if std::env::var_os(RESEARCH_AGENT).is_some() {
        return Err(ToolError::failed("research agents cannot start other research agents"));
    }
    let reads_all = may_read_all(call).await?;
    let cancelled = || ToolError::new(ToolErrorKind::Cancelled, "cancelled by the user");
    let cancel = &call.context.cancel;
    let permit = cancel.run_until_cancelled(CONCURRENT.acquire()).await.ok_or_else(cancelled)?;
    let mut running = start(call, &query, reads_all)
        .map_err(|error| ToolError::io("cannot start a scout", &error))?;
    let outputs = tokio::select! {
        output = read_output(&mut running) => Some(output),
        () = cancel.cancelled() => None,
        () = tokio::time::sleep(TIMEOUT) => None,
    };
    drop(permit);
    let Some((report, errors)) = outputs else {
        let _ = running.end(GRACE).await;
        if cancel.is_cancelled() {
            return Err(cancelled());
        }
        let text = format!("the scout had no report after {} minutes", TIMEOUT.as_secs() / 60);
        return Err(ToolError::new(ToolErrorKind::Timeout, text));
    };
    let status = running.child.wait().await.map_err(|error| ToolError::io("the scout", &error))?;
    if !status.success() {
        let code = exit_code(status);
        return Err(ToolError::failed(format!(
            "the scout wrote no report (exit code {code}): {}. A narrower question may help",
            errors.trim()
        )));
    }
    Ok(ToolOutput::success(report).titled("a report of the scout").with(json!({ "query": query })))
}

/// Whether the research agent may read the whole public web. It cannot ask, so the user is asked
/// before it starts. If the user cannot be asked, it reads as far as the rules allow.
async fn may_read_all(call: &Invocation<'_>) -> Result<bool, ToolError> {
    let ToolContext { root, session_dir, gate, .. } = call.context;
    let fetch_access = Access::Fetch { host: "host.invalid".to_owned(), allowed: false };
    let access_request =
        AccessRequest { tool: "webfetch", root, session_dir, access: &fetch_access, preview: None };
    if !gate.can_ask() || gate.judge(&access_request).action != GateAction::Ask {
        return Ok(false);
    }
    let question = PermissionQuestion {
        tool: call.profile_tool.name.clone(),
        what: "let a research agent read any page of the public web".to_owned(),
        reason: "it works in the background and cannot ask about each host".to_owned(),
        rule: format!("[[gate.rules]]\ntool = \"{WEB_TOOLS}\"\nhost = \"*\"\naction = \"allow\""),
        host: None,
        writes: None,
        details: None,
    };
    match gate.ask(&question).await {
        Ok(()) => Ok(true),
        Err(refusal) => Err(ToolError::new(ToolErrorKind::Denied, refusal.reason)),
    }
}

/// Starts the program of the skill with g3's full environment, so that the agent has its keys, and
/// with the same model.
fn start(call: &Invocation<'_>, query: &str, may_read_all: bool) -> std::io::Result<AsyncRunning> {
    base::files::keep_out_of_git(&call.context.cwd)?;
    let bundle = embedded::bundle("research");
    let script =
        bundle.and_then(|bundle| bundle.scripts.first()).map_or("exit 1", |(_, text)| text);
    let command =
        Command::new("sh", &call.context.cwd).args(["-c", script, "g3-research", "--", query]);
    let program = match std::env::var_os(PROGRAM_VAR) {
        Some(program) => program,
        None => std::env::current_exe()?.into(),
    };
    let mut command = command.env(PROGRAM_VAR, program).graceful();
    if let Some((provider, model)) = &call.context.services.model {
        command = command.env("G3_RESEARCH_PROVIDER", provider).env("G3_RESEARCH_MODEL", model);
    }
    if may_read_all {
        command = command.env(HOSTS, "*");
    }
    command.spawn_async()
}

/// Reads both of its streams until they are closed.
async fn read_output(running: &mut AsyncRunning) -> (String, String) {
    let (stdout, stderr) = (running.child.stdout.take(), running.child.stderr.take());
    let (mut report, mut errors) = (Vec::new(), Vec::new());
    let read_out = async {
        if let Some(stdout) = stdout {
            let _ = stdout.take(MAX_REPORT).read_to_end(&mut report).await;
        }
    };
    let read_err = async {
        if let Some(stderr) = stderr {
            let _ = stderr.take(MAX_REPORT).read_to_end(&mut errors).await;
        }
    };
    tokio::join!(read_out, read_err);
    let text = |bytes: &[u8]| base::text::printable_output(&String::from_utf8_lossy(bytes));
    (text(&report), text(&errors))
}
