//! Any program as an agent: one process per prompt, whose exit code is the result.

use base::clock::Clock;
use base::config::studio::{AgentProtocol, AgentRow};
use base::failure::{Failure, Result};
use base::process::GRACE;
use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::exec::runner::Process;
use crate::launch::exit_reason::{exit_error, start_failure};
use crate::launch::log::OutputLog;
use crate::launch::message_buffer::MessageBuffer;
use crate::launch::wire::OutputTail;
use crate::launch::{AgentCommand, AgentEvent, LaunchParams, Launcher, RunningAgent, cannot_start};

/// Maximum number of bytes of one argument, including its final zero (Linux: `MAX_ARG_STRLEN`, 32
/// pages).
const MAX_ARGUMENT_BYTES: usize = 128 << 10;

/// Runs the command template of the agents table with `{prompt}`, `{worktree}` and `{id}` replaced.
/// Without `{prompt}` the program reads the prompt from its stdin.
pub(crate) struct CommandLauncher;

/// Refuses a text that does not fit into an argument of the agent's command.
pub fn refuse_too_long(row: &AgentRow, text: &str) -> Result<()> {
    let template = row.command.iter().filter(|part| part.contains(PROMPT));
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

impl Launcher for CommandLauncher {
    fn launch(&self, params: LaunchParams) -> BoxFuture<'static, Result<RunningAgent>> {
        Box::pin(async move {
            let (commands, rx) = unbounded_channel();
            let (tx, events) = unbounded_channel();
            let runner = params.runner.clone();
            runner.wait_tracked(serve(params, rx, tx));
            Ok(RunningAgent { conversation_id: None, loaded: false, commands, events })
        })
    }
}

/// Runs one process after the other, one for each command.
async fn serve(
    params: LaunchParams,
    mut rx: UnboundedReceiver<AgentCommand>,
    tx: UnboundedSender<AgentEvent>,
) {
    while let Some(command) = rx.recv().await {
        match command {
            AgentCommand::Prompt(text) => {
                let error = run_turn(&params, &text, &mut rx, &tx).await;
                if tx.send(AgentEvent::TurnEnded(error)).is_err() {
                    return;
                }
            }
            AgentCommand::End => return,
            AgentCommand::Answer { .. } | AgentCommand::Cancel => {}
        }
    }
}

/// Runs one process and returns the error, if any.
async fn run_turn(
    params: &LaunchParams,
    text: &str,
    rx: &mut UnboundedReceiver<AgentCommand>,
    tx: &UnboundedSender<AgentEvent>,
) -> Option<String> {
    if let Err(failure) = refuse_too_long(&params.row, text) {
        return Some(failure.sentence());
    }
    let mut process = match params.runner.start(&fill_template(params, text)) {
        Ok(process) => process,
        Err(failure) => {
            let cause = failure.into_cause();
            return Some(cannot_start(&params.row.command, cause).sentence());
        }
    };
    // A program that waits for more input must not wait forever.
    if let Some(stdin) = process.running.child.stdin.take()
        && !params.row.command.iter().any(|part| part.contains(PROMPT))
    {
        tokio::spawn(write_all(stdin, text.to_owned()));
    }
    let output = tokio::spawn(read_output(Streams::of(&mut process), params.clone()));
    let result = tokio::select! {
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
    let (message, stderr_tail) = output.await.unwrap_or_default();
    if let Some(message) = message {
        let _ = tx.send(AgentEvent::Event(message));
    }
    match result {
        Some(Ok(status)) if status.success() => None,
        Some(Ok(status)) => Some(match report.read() {
            Some(failure) => cannot_start(&params.row.command, start_failure(&failure)).sentence(),
            None => exit_error(status, &stderr_tail, params.runner.is_confined()),
        }),
        Some(Err(e)) => Some(format!("cannot wait for the agent: {e}")),
        None => Some("the turn was cancelled".to_owned()),
    }
}

async fn wait_cancelled(rx: &mut UnboundedReceiver<AgentCommand>) {
    loop {
        match rx.recv().await {
            Some(AgentCommand::Cancel | AgentCommand::End) | None => return,
            Some(AgentCommand::Prompt(_) | AgentCommand::Answer { .. }) => {}
        }
    }
}

/// Returns the template with the prompt. Arguments are never split, so nothing can be injected.
fn fill_template(params: &LaunchParams, text: &str) -> Vec<String> {
    let worktree = params.worktree.to_string_lossy();
    params
        .row
        .command
        .iter()
        .map(|part| {
            // The prompt is replaced last: braces in it have no meaning.
            let part = part.replace("{worktree}", &worktree).replace("{id}", params.id.as_str());
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

/// Copies both streams to the log until they end; returns the end of stdout as a message, and the
/// end of stderr.
async fn read_output(
    streams: Streams,
    params: LaunchParams,
) -> (Option<serde_json::Value>, String) {
    let mut message = MessageBuffer::new(Clock::from_env());
    let mut stderr_tail = OutputTail::default();
    let mut log = OutputLog::open(&params.log, params.log_bytes).ok();
    let mut write_log = |bytes: &[u8]| {
        let _ = log.as_mut().map(|log| log.write(bytes));
    };
    let (mut stdout, mut stderr) = (streams.stdout, streams.stderr);
    let (mut stdout_buffer, mut stderr_buffer) = (vec![0; 16 << 10], vec![0; 16 << 10]);
    while stdout.is_some() || stderr.is_some() {
        tokio::select! {
            n = read(&mut stdout, &mut stdout_buffer) => {
                message.push_text(&String::from_utf8_lossy(&stdout_buffer[..n]));
                write_log(&stdout_buffer[..n]);
            }
            n = read(&mut stderr, &mut stderr_buffer) => {
                stderr_tail.push(&stderr_buffer[..n]);
                write_log(&stderr_buffer[..n]);
            }
        }
    }
    (message.take_message(), stderr_tail.text())
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
