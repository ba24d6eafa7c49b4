//! Any program as an agent: one process per prompt, whose exit code is the result.

use base::clock::Clock;
use base::config::studio::{AgentProtocol, AgentRow};
use base::failure::{Failure, Result};
use base::process::GRACE;
use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::exec::runner::Process;
use crate::launch::exit_reason::{ended_with, not_started};
use crate::launch::log::OutputLog;
use crate::launch::message_buffer::MessageBuffer;
use crate::launch::wire::OutputTail;
use crate::launch::{AgentCommand, AgentEvent, LaunchParams, Launcher, RunningAgent, cannot_start};

/// Maximum number of bytes of one argument, including its final zero (Linux: `MAX_ARG_STRLEN`, 32
/// pages).
const LONGEST_ARGUMENT: usize = 128 << 10;

/// Runs the command template of the agents table with `{prompt}`, `{worktree}` and `{id}` replaced.
/// Without `{prompt}` the program reads the prompt from its stdin.
pub(crate) struct CommandLauncher;

/// Refuses a text that does not fit into an argument of the agent's command.
pub fn refuse_too_long(row: &AgentRow, text: &str) -> Result<()> {
    let template = row.command.iter().filter(|part| part.contains(PROMPT));
    let longest = template.map(|part| part.len() - PROMPT.len() + text.len()).max();
    if row.protocol != AgentProtocol::Command || longest.is_none_or(|most| most < LONGEST_ARGUMENT)
    {
        return Ok(());
    }
    Err(Failure::usage(format!("the task has {} bytes", text.len()))
        .because(format!(
            "this agent gets it as an argument, and one argument holds {} KiB at most",
            LONGEST_ARGUMENT >> 10
        ))
        .hint("leave `{prompt}` out of the agent's command: it gets the task on stdin then")
        .hint("or put the text into a file in the repository and name that file in the task"))
}

const PROMPT: &str = "{prompt}";

impl Launcher for CommandLauncher {
    fn launch(&self, params: LaunchParams) -> BoxFuture<'static, Result<RunningAgent>> {
        Box::pin(async move {
            let (orders, rx) = unbounded_channel();
            let (tx, news) = unbounded_channel();
            let room = params.room.clone();
            room.wait_tracked(serve(params, rx, tx));
            Ok(RunningAgent { conversation_id: None, loaded: false, orders, news })
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
                let why = turn(&params, &text, &mut rx, &tx).await;
                if tx.send(AgentEvent::TurnEnded(why)).is_err() {
                    return;
                }
            }
            AgentCommand::End => return,
            AgentCommand::Answer { .. } | AgentCommand::Cancel => {}
        }
    }
}

/// Runs one process and returns the error, if any.
async fn turn(
    params: &LaunchParams,
    text: &str,
    rx: &mut UnboundedReceiver<AgentCommand>,
    tx: &UnboundedSender<AgentEvent>,
) -> Option<String> {
    if let Err(failure) = refuse_too_long(&params.row, text) {
        return Some(failure.sentence());
    }
    let mut process = match params.room.start(&filled(params, text)) {
        Ok(process) => process,
        Err(failure) => {
            let why = failure.into_cause();
            return Some(cannot_start(&params.row.command, why).sentence());
        }
    };
    // A program that waits for more input must not wait forever.
    if let Some(stdin) = process.running.child.stdin.take()
        && !params.row.command.iter().any(|part| part.contains(PROMPT))
    {
        tokio::spawn(write_all(stdin, text.to_owned()));
    }
    let hear = tokio::spawn(hear(Streams::of(&mut process), params.clone()));
    let ended = tokio::select! {
        status = process.running.child.wait() => Some(status),
        () = cancelled(rx) => {
            let _ = process.running.end(GRACE).await;
            None
        }
    };
    // This ends the remaining processes in the sandbox, and with them the last holder of the
    // streams.
    let Process { running, lifeline, report } = process;
    drop((running, lifeline));
    let (message, said) = hear.await.unwrap_or_default();
    if let Some(message) = message {
        let _ = tx.send(AgentEvent::Event(message));
    }
    match ended {
        Some(Ok(status)) if status.success() => None,
        Some(Ok(status)) => Some(match report.read() {
            Some(failure) => cannot_start(&params.row.command, not_started(&failure)).sentence(),
            None => ended_with(status, &said, params.room.is_confined()),
        }),
        Some(Err(e)) => Some(format!("cannot wait for the agent: {e}")),
        None => Some("the turn was cancelled".to_owned()),
    }
}

async fn cancelled(rx: &mut UnboundedReceiver<AgentCommand>) {
    loop {
        match rx.recv().await {
            Some(AgentCommand::Cancel | AgentCommand::End) | None => return,
            Some(AgentCommand::Prompt(_) | AgentCommand::Answer { .. }) => {}
        }
    }
}

/// Returns the template with the prompt. Arguments are never split, so nothing can be injected.
fn filled(params: &LaunchParams, text: &str) -> Vec<String> {
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
    out: Option<tokio::process::ChildStdout>,
    err: Option<tokio::process::ChildStderr>,
}

impl Streams {
    fn of(process: &mut Process) -> Streams {
        let child = &mut process.running.child;
        Streams { out: child.stdout.take(), err: child.stderr.take() }
    }
}

/// Copies both streams to the log until they end; returns the end of stdout as a message, and the
/// end of stderr.
async fn hear(streams: Streams, params: LaunchParams) -> (Option<serde_json::Value>, String) {
    let mut message = MessageBuffer::new(Clock::from_env());
    let mut said = OutputTail::default();
    let mut log = OutputLog::open(&params.log, params.log_bytes).ok();
    let mut keep = |bytes: &[u8]| {
        let _ = log.as_mut().map(|log| log.write(bytes));
    };
    let (mut out, mut err) = (streams.out, streams.err);
    let (mut from_out, mut from_err) = (vec![0; 16 << 10], vec![0; 16 << 10]);
    while out.is_some() || err.is_some() {
        tokio::select! {
            n = read(&mut out, &mut from_out) => {
                message.text(&String::from_utf8_lossy(&from_out[..n]));
                keep(&from_out[..n]);
            }
            n = read(&mut err, &mut from_err) => {
                said.hear(&from_err[..n]);
                keep(&from_err[..n]);
            }
        }
    }
    (message.message(), said.text())
}

/// Reads from a stream; a stream that has ended is removed.
async fn read(stream: &mut Option<impl AsyncRead + Unpin>, buffer: &mut [u8]) -> usize {
    let Some(open) = stream else { return std::future::pending().await };
    match open.read(buffer).await {
        Ok(n @ 1..) => n,
        Ok(0) | Err(_) => {
            *stream = None;
            0
        }
    }
}
