//! Any program as an agent: one process per prompt, whose exit code is the result.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::ExitStatus;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use base::clock::Clock;
use base::config::studio::{AgentProtocol, AgentRow};
use base::failure::{Failure, Result};
use base::process::GRACE;
use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::exec::runner::Process;
use crate::launch::exit_reason::{exit_error, sandbox_failure, with_sandbox_hint};
use crate::launch::json_lines::{AgentConversation, JsonLinesReader, TurnReport};
use crate::launch::log::OutputLog;
use crate::launch::message_buffer::MessageBuffer;
use crate::launch::wire::OutputTail;
use crate::launch::{
    AgentCommand, AgentEvent, LaunchParams, Launcher, RETRY_DELAYS, RunningAgent, cannot_start,
};
use crate::rate_limit::LimitNotice;
use crate::sandbox::SandboxFailure;
use crate::session::journal::TURN_CANCELLED;

/// Maximum number of bytes of one argument, including its final zero (Linux: `MAX_ARG_STRLEN`, 32
/// pages).
const MAX_ARGUMENT_BYTES: usize = 128 << 10;

/// Runs the command template of the agents table with `{prompt}`, `{worktree}` and `{id}` replaced.
/// Without `{prompt}` the program reads the prompt from its stdin.
pub(crate) struct CommandLauncher;

/// Refuses a text that does not fit into an argument of the agent's command.
pub fn refuse_too_long(row: &AgentRow, text: &str) -> Result<()> {
    let template = row.command.iter().chain(&row.resume).filter(|part| part.contains(PROMPT));
    let max_bytes = template.map(|part| part.len() - PROMPT.len() + text.len()).max();
    if row.protocol != AgentProtocol::Command
        || max_bytes.is_none_or(|max_bytes| max_bytes < MAX_ARGUMENT_BYTES)
    {
        return Ok(());
    }
    Err(Failure::usage(format!("the task has {} bytes", text.len()))
        .because(format!(
            "this agent gets it as an argument, and one argument holds {} KiB at most",
            MAX_ARGUMENT_BYTES >> 10
        ))
        .hint("leave `{prompt}` out of the agent's command: it gets the task on stdin then")
        .hint("or put the text into a file in the repository and name that file in the task"))
}

const PROMPT: &str = "{prompt}";

/// How long after its start the error of a program may be a failed start.
const START_TIME: Duration = Duration::from_secs(10);

impl Launcher for CommandLauncher {
    fn launch(&self, params: LaunchParams) -> BoxFuture<'static, Result<RunningAgent>> {
        Box::pin(async move {
            let (commands, rx) = unbounded_channel();
            let (tx, events) = unbounded_channel();
            let runner = params.runner.clone();
            let can_continue = !params.row.resume.is_empty();
            let loaded_conversation = params.conversation_id.clone().filter(|_| can_continue);
            runner.wait_tracked(serve(params, rx, tx));
            let loaded = loaded_conversation.is_some();
            Ok(RunningAgent { conversation_id: loaded_conversation, loaded, commands, events })
        })
    }
}

/// Runs one process after the other, one for each command.
async fn serve(
    params: LaunchParams,
    mut rx: UnboundedReceiver<AgentCommand>,
    tx: UnboundedSender<AgentEvent>,
) {
    let conversation =
        AgentConversation { id: params.conversation_id.clone(), usage: params.conversation_usage };
    let mut reader = match JsonLinesReader::new(params.row.output, conversation) {
        Some(lines) => OutputReader::Json(Box::new(lines)),
        None => OutputReader::Text(MessageBuffer::new(Clock::from_env())),
    };
    while let Some(command) = rx.recv().await {
        let event = match command {
            AgentCommand::Prompt(text) => {
                match run_started_turn(&params, &text, &mut reader, &mut rx, &tx).await {
                    TurnResult::Ended(error) => AgentEvent::TurnEnded(error),
                    TurnResult::NotStarted(error) => AgentEvent::TurnEnded(Some(error)),
                    TurnResult::ConversationLost => AgentEvent::ConversationLost,
                }
            }
            AgentCommand::End => return,
            AgentCommand::Answer { .. } | AgentCommand::Cancel => continue,
        };
        if tx.send(event).is_err() {
            return;
        }
    }
}

/// Converts the output of an agent's processes.
enum OutputReader {
    /// Its end is a message.
    Text(MessageBuffer),
    Json(Box<JsonLinesReader>),
}

impl OutputReader {
    fn push(&mut self, bytes: &[u8]) -> Vec<AgentEvent> {
        match self {
            OutputReader::Text(message) => {
                message.push_text(&String::from_utf8_lossy(bytes));
                Vec::new()
            }
            OutputReader::Json(lines) => lines.push(bytes),
        }
    }

    fn finish(&mut self) -> (Vec<AgentEvent>, TurnReport) {
        match self {
            OutputReader::Text(message) => {
                let message = message.take_message().map(AgentEvent::Event);
                (message.into_iter().collect(), TurnReport::default())
            }
            OutputReader::Json(lines) => lines.finish(),
        }
    }

    /// Returns the conversation that the next process continues.
    fn conversation_id(&self) -> Option<&str> {
        match self {
            OutputReader::Text(_) => None,
            OutputReader::Json(lines) => lines.conversation_id(),
        }
    }
}

/// The end of a turn.
enum TurnResult {
    /// It ended, with this error, if any.
    Ended(Option<String>),
    /// The program exited with this error before it did anything.
    NotStarted(String),
    /// The program failed to continue the conversation.
    ConversationLost,
}

/// Runs one process, again if it exits with an error before it does anything: with pauses, since
/// another process may hold what it needs.
async fn run_started_turn(
    params: &LaunchParams,
    text: &str,
    reader: &mut OutputReader,
    rx: &mut UnboundedReceiver<AgentCommand>,
    tx: &UnboundedSender<AgentEvent>,
) -> TurnResult {
    let mut attempts = 1;
    loop {
        let result = run_turn(params, text, reader, rx, tx).await;
        let TurnResult::NotStarted(error) = result else { return result };
        let Some(delay) = RETRY_DELAYS.get(attempts - 1) else {
            return TurnResult::NotStarted(format!("{error} ({attempts} attempts)"));
        };
        tokio::select! {
            () = tokio::time::sleep(*delay) => attempts += 1,
            () = wait_cancelled(rx) => return TurnResult::Ended(Some(TURN_CANCELLED.to_owned())),
        }
    }
}

/// Runs one process.
async fn run_turn(
    params: &LaunchParams,
    text: &str,
    reader: &mut OutputReader,
    rx: &mut UnboundedReceiver<AgentCommand>,
    tx: &UnboundedSender<AgentEvent>,
) -> TurnResult {
    let failed = |failure: Failure| TurnResult::Ended(Some(failure.sentence()));
    if let Err(failure) = refuse_too_long(&params.row, text) {
        return failed(failure);
    }
    let conversation = reader.conversation_id().filter(|_| !params.row.resume.is_empty());
    let is_continued = conversation.is_some();
    let (started, started_at) = (Instant::now(), SystemTime::now());
    let mut process = match params.runner.start(&fill_template(params, conversation, text)) {
        Ok(process) => process,
        Err(failure) => return failed(cannot_start(&params.row.command, failure.into_cause())),
    };
    // A program that waits for more input must not wait forever.
    if let Some(stdin) = process.running.child.stdin.take()
        && !template(params, is_continued).iter().any(|part| part.contains(PROMPT))
    {
        tokio::spawn(write_all(stdin, text.to_owned()));
    }
    let streams = Streams::of(&mut process);
    let end = async {
        let status = tokio::select! {
            status = process.running.child.wait() => Some(status),
            () = wait_cancelled(rx) => {
                let _ = process.running.end(GRACE).await;
                None
            }
        };
        // This ends the remaining processes in the sandbox, and with them the last holder of the
        // streams.
        let Process { running, lifeline, report } = process;
        drop((running, lifeline));
        (status, report)
    };
    let ((status, report), output) = tokio::join!(end, read_output(streams, params, reader, tx));
    let TurnOutput { report: turn, stderr_tail, is_silent } = output;
    let is_confined = params.runner.is_confined();
    let failure = report.read();
    if let Some(SandboxFailure::Limit(limit)) = failure {
        let _ = tx.send(AgentEvent::LimitReached(limit));
        return TurnResult::Ended(Some(sandbox_failure(&SandboxFailure::Limit(limit))));
    }
    let has_done_nothing = || {
        let is_changed = || changed_since(&params.worktree, started_at).unwrap_or(true);
        is_silent && !is_continued && failure.is_none() && !is_changed()
    };
    let error = match status {
        Some(Ok(status)) if status.success() => turn.error,
        Some(Ok(status))
            if is_failed_start(status, &stderr_tail, started) && has_done_nothing() =>
        {
            return TurnResult::NotStarted(exit_error(status, &stderr_tail, is_confined));
        }
        Some(Ok(status)) => Some(match (failure, turn.error) {
            (Some(failure), _) => {
                cannot_start(&params.row.command, sandbox_failure(&failure)).sentence()
            }
            (None, Some(error)) => with_sandbox_hint(error, is_confined),
            (None, None) => exit_error(status, &stderr_tail, is_confined),
        }),
        Some(Err(e)) => Some(format!("cannot wait for the agent: {e}")),
        None => return TurnResult::Ended(Some(TURN_CANCELLED.to_owned())),
    };
    match reader {
        OutputReader::Json(lines) if error.is_some() && is_continued && !turn.has_reply => {
            lines.forget_conversation();
            TurnResult::ConversationLost
        }
        _ => TurnResult::Ended(error),
    }
}

/// Returns whether a program may have failed at its start: soon, with a message that is not a rate
/// limit. A missing program is still missing later.
fn is_failed_start(status: ExitStatus, stderr_tail: &str, started: Instant) -> bool {
    let is_missing = matches!(base::process::exit_code(status), 126 | 127);
    let is_limit = LimitNotice::in_error(stderr_tail, &Clock::from_env()).is_some();
    !is_missing && !is_limit && !stderr_tail.is_empty() && started.elapsed() < START_TIME
}

/// Returns whether a file or directory of a worktree was changed, created or deleted after a time:
/// no program can set the time of a change.
fn changed_since(worktree: &Path, time: SystemTime) -> io::Result<bool> {
    let time = time.duration_since(UNIX_EPOCH).map_err(io::Error::other)?;
    let is_newer = |meta: &Metadata| {
        (meta.ctime(), meta.ctime_nsec())
            > (time.as_secs().cast_signed(), i64::from(time.subsec_nanos()))
    };
    if is_newer(&worktree.symlink_metadata()?) {
        return Ok(true);
    }
    let mut directories = vec![worktree.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory)? {
            let entry = entry?;
            let meta = entry.metadata()?;
            if is_newer(&meta) {
                return Ok(true);
            }
            if meta.is_dir() {
                directories.push(entry.path());
            }
        }
    }
    Ok(false)
}

async fn wait_cancelled(rx: &mut UnboundedReceiver<AgentCommand>) {
    loop {
        match rx.recv().await {
            Some(AgentCommand::Cancel | AgentCommand::End) | None => return,
            Some(AgentCommand::Prompt(_) | AgentCommand::Answer { .. }) => {}
        }
    }
}

/// Returns the command for a first or a continued turn.
fn template(params: &LaunchParams, is_continued: bool) -> &[String] {
    if is_continued { &params.row.resume } else { &params.row.command }
}

/// Returns the template with the prompt. Arguments are never split, so nothing can be injected.
fn fill_template(params: &LaunchParams, conversation: Option<&str>, text: &str) -> Vec<String> {
    let worktree = params.worktree.to_string_lossy();
    // A directory of the session that its sandbox opens for the agent.
    let state = params.log.with_file_name("agent-state");
    template(params, conversation.is_some())
        .iter()
        .map(|part| {
            // The prompt is replaced last: braces in it have no meaning.
            let part = part.replace("{worktree}", &worktree).replace("{id}", params.id.as_str());
            let part = part.replace("{state}", &state.to_string_lossy());
            let part = part.replace("{conversation}", conversation.unwrap_or_default());
            part.replace(PROMPT, text)
        })
        .collect()
}

async fn write_all(mut stdin: tokio::process::ChildStdin, text: String) {
    // An error means that the program does not read its input.
    let _ = stdin.write_all(text.as_bytes()).await;
}

struct Streams {
    stdout: Option<tokio::process::ChildStdout>,
    stderr: Option<tokio::process::ChildStderr>,
}

impl Streams {
    fn of(process: &mut Process) -> Streams {
        let child = &mut process.running.child;
        Streams { stdout: child.stdout.take(), stderr: child.stderr.take() }
    }
}

/// What a process printed.
struct TurnOutput {
    report: TurnReport,
    stderr_tail: String,
    /// Whether nothing was written to stdout.
    is_silent: bool,
}

/// Copies both streams to the log until they end, and sends the events of stdout.
async fn read_output(
    streams: Streams,
    params: &LaunchParams,
    reader: &mut OutputReader,
    tx: &UnboundedSender<AgentEvent>,
) -> TurnOutput {
    let mut stderr_tail = OutputTail::default();
    let mut log = OutputLog::open(&params.log, params.log_bytes).ok();
    let mut write_log = |bytes: &[u8]| {
        let _ = log.as_mut().map(|log| log.write(bytes));
    };
    let send = |events: Vec<AgentEvent>| {
        for event in events {
            let _ = tx.send(event);
        }
    };
    let (mut stdout, mut stderr) = (streams.stdout, streams.stderr);
    let mut is_silent = true;
    let (mut stdout_buffer, mut stderr_buffer) = (vec![0; 16 << 10], vec![0; 16 << 10]);
    while stdout.is_some() || stderr.is_some() {
        tokio::select! {
            n = read(&mut stdout, &mut stdout_buffer) => {
                is_silent &= n == 0;
                write_log(&stdout_buffer[..n]);
                send(reader.push(&stdout_buffer[..n]));
            }
            n = read(&mut stderr, &mut stderr_buffer) => {
                stderr_tail.push(&stderr_buffer[..n]);
                write_log(&stderr_buffer[..n]);
            }
        }
    }
    let (events, report) = reader.finish();
    send(events);
    TurnOutput { report, stderr_tail: stderr_tail.text(), is_silent }
}

/// Reads from a stream; a stream that has ended is removed.
async fn read(stream: &mut Option<impl AsyncRead + Unpin>, buffer: &mut [u8]) -> usize {
    let Some(reader) = stream else { return std::future::pending().await };
    match reader.read(buffer).await {
        Ok(n @ 1..) => n,
        Ok(0) | Err(_) => {
            *stream = None;
            0
        }
    }
}
