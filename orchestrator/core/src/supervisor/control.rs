//! The control socket of a supervisor: one JSON line in, one out, authenticated by a token that the
//! agent's sandbox cannot read.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base::failure::{Failure, OrFail, Result};
use base::id::Id;
use base::known_repositories;
use base::model_host::socket_path::with_short_name;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Lines};
use tokio::net::{UnixListener, UnixStream as Stream};
use tokio::sync::{mpsc, oneshot};

use crate::launch::live_message::{LiveMessage, LiveMessagePart, LiveMessages};

/// Maximum size of a request in bytes: a message may be long.
const MAX_REQUEST_BYTES: u64 = 4 << 20;
/// The least time between two lines for a client that follows the agent's message.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(100);
/// Timeout of a supervisor's response.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A request to a supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum ControlRequest {
    /// Send a message to the agent.
    Send {
        /// The message.
        text: String,
    },
    /// Stop the session's run.
    Stop,
    /// Stop it although the user did not ask for that.
    StopBecause {
        /// Why, as a clause.
        why: String,
    },
    /// Answer a permission request.
    Answer {
        /// The number of the request; the only open one when absent.
        n: Option<u32>,
        /// Whether it is allowed.
        allow: bool,
        /// Whether the answer also applies to further requests of its kind.
        #[serde(default)]
        always: bool,
    },
    /// Record that another session changes the same lines.
    SameLines {
        /// The other session.
        id: Id,
        /// The files.
        files: Vec<String>,
    },
    /// Check that the supervisor is reachable.
    Status,
    /// Follow the message that the agent is writing: one line for each change, until the connection
    /// is closed.
    Follow,
}

/// A request with its token.
#[derive(Serialize, Deserialize)]
struct SignedRequest {
    token: String,
    #[serde(flatten)]
    request: ControlRequest,
}

/// A response.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Reply {
    /// The request was carried out.
    Done,
    /// The supervisor is ending and no longer accepts requests.
    Ending,
    /// The request was refused, for this reason.
    Refused(String),
}

/// A request and the channel for its response.
pub(crate) type ControlCall = (ControlRequest, oneshot::Sender<std::result::Result<(), String>>);

/// What the socket serves.
#[derive(Clone)]
pub(crate) struct ControlChannels {
    /// Receives the requests.
    pub requests: mpsc::UnboundedSender<ControlCall>,
    /// The message that the agent is writing.
    pub live: LiveMessages,
}

/// An open control socket. On drop, its path and its token are removed.
#[derive(Debug)]
pub(crate) struct ControlEndpoint {
    directory: PathBuf,
}

impl Drop for ControlEndpoint {
    fn drop(&mut self) {
        for name in ["token", "control.sock"] {
            let _ = std::fs::remove_file(self.directory.join(name));
        }
        // Fails unless it is empty, so the session's own directory is never removed.
        let _ = std::fs::remove_dir(&self.directory);
    }
}

/// Returns the directory of a session's token and socket: in the user's state directory, which
/// every sandbox closes, so that no agent, of this repository or of another, can act for the user.
fn directory(common_dir: &Path, id: &Id) -> io::Result<PathBuf> {
    Ok(known_repositories::directory(common_dir)?.join(id.as_str()))
}

/// Returns the directory that earlier versions used, and that is used without a state directory.
fn directory_in_repository(common_dir: &Path, id: &Id) -> PathBuf {
    common_dir.join("studio/sessions").join(id.as_str())
}

/// Opens the socket of a session and forwards requests, as long as the endpoint lives.
pub(crate) fn serve(
    common_dir: &Path,
    id: &Id,
    channels: ControlChannels,
) -> io::Result<ControlEndpoint> {
    let private_directory = || -> io::Result<PathBuf> {
        known_repositories::remember(common_dir)?;
        let directory = directory(common_dir, id)?;
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        Ok(directory)
    };
    let directory = private_directory().unwrap_or_else(|_| directory_in_repository(common_dir, id));
    serve_in(&directory, channels)?;
    Ok(ControlEndpoint { directory })
}

fn serve_in(dir: &Path, channels: ControlChannels) -> io::Result<()> {
    let token = base::random::hex::<16>()?;
    base::files::replace_cache(&dir.join("token"), token.as_bytes())?;
    let socket = dir.join("control.sock");
    match std::fs::remove_file(&socket) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        Ok(()) | Err(_) => {}
    }
    let listener = with_short_name(&socket, |name| UnixListener::bind(name))?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer_connection(stream, token.clone(), channels.clone()));
        }
    });
    Ok(())
}

async fn answer_connection(stream: Stream, token: String, channels: ControlChannels) {
    let (reader, mut writer) = stream.into_split();
    let mut line = String::new();
    let mut reader = tokio::io::BufReader::new(reader.take(MAX_REQUEST_BYTES));
    let reply = match reader.read_line(&mut line).await {
        Ok(_) => match serde_json::from_str::<SignedRequest>(&line) {
            Ok(signed) if signed.token == token => match signed.request {
                ControlRequest::Follow => {
                    return publish(&mut reader, &mut writer, &channels.live).await;
                }
                request @ (ControlRequest::Send { .. }
                | ControlRequest::Stop
                | ControlRequest::StopBecause { .. }
                | ControlRequest::Answer { .. }
                | ControlRequest::SameLines { .. }
                | ControlRequest::Status) => forward(request, &channels.requests).await,
            },
            Ok(_) => Reply::Refused("invalid token".to_owned()),
            Err(e) => Reply::Refused(format!("the request cannot be read: {e}")),
        },
        Err(e) => Reply::Refused(e.to_string()),
    };
    if let Ok(mut bytes) = serde_json::to_vec(&reply) {
        bytes.push(b'\n');
        let _ = writer.write_all(&bytes).await;
    }
}

/// Writes the changes of the agent's message until the client closes the connection.
async fn publish(
    reader: &mut (impl AsyncRead + Unpin),
    writer: &mut (impl AsyncWrite + Unpin),
    live: &LiveMessages,
) {
    let (mut messages, mut known) = (live.subscribe(), LiveMessage::default());
    messages.mark_changed();
    loop {
        tokio::select! {
            changed = messages.changed() => if changed.is_err() { return },
            _ = reader.read_u8() => return,
        }
        let message = messages.borrow_and_update().clone();
        let Some(part) = message.part_after(&known) else { continue };
        let Ok(mut line) = serde_json::to_vec(&part) else { return };
        line.push(b'\n');
        if writer.write_all(&line).await.is_err() {
            return;
        }
        known = message;
        tokio::time::sleep(FOLLOW_INTERVAL).await;
    }
}

async fn forward(request: ControlRequest, tx: &mpsc::UnboundedSender<ControlCall>) -> Reply {
    let (reply_tx, reply_rx) = oneshot::channel();
    if tx.send((request, reply_tx)).is_err() {
        return Reply::Ending;
    }
    match reply_rx.await {
        Ok(Ok(())) => Reply::Done,
        Ok(Err(error)) => Reply::Refused(error),
        Err(_) => Reply::Ending,
    }
}

/// The message that the agent of a session is writing, as its supervisor publishes it.
#[derive(Debug)]
pub struct MessageFollower {
    lines: Lines<tokio::io::BufReader<Stream>>,
    message: LiveMessage,
}

impl MessageFollower {
    /// Connects to the supervisor of a session; `None` if none listens. Call it within a runtime.
    pub fn open(common_dir: &Path, id: &Id) -> Option<MessageFollower> {
        let stream = Stream::from_std(follow(common_dir, id)?).ok()?;
        let lines = tokio::io::BufReader::new(stream).lines();
        Some(MessageFollower { lines, message: LiveMessage::default() })
    }

    /// Returns the message when it has changed; `None` when the supervisor has ended. Cancel safe.
    pub async fn changed(&mut self) -> Option<&LiveMessage> {
        let line = self.lines.next_line().await.ok()??;
        self.message.add(serde_json::from_str(&line).ok()?);
        Some(&self.message)
    }
}

/// The parts of the message that the agent of a session is writing, read without waiting for them.
#[derive(Debug)]
pub(crate) struct MessageParts {
    stream: UnixStream,
    unread: Vec<u8>,
}

impl MessageParts {
    /// Connects to the supervisor of a session; `None` if none listens.
    pub(crate) fn open(common_dir: &Path, id: &Id) -> Option<MessageParts> {
        Some(MessageParts { stream: follow(common_dir, id)?, unread: Vec::new() })
    }

    /// Returns the parts that have arrived; `None` when the supervisor has ended.
    pub(crate) fn read(&mut self) -> Option<Vec<LiveMessagePart>> {
        let mut block = [0; 16 << 10];
        loop {
            match self.stream.read(&mut block) {
                Ok(0) => return None,
                Ok(length) => self.unread.extend_from_slice(&block[..length]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => return None,
            }
        }
        let complete = self.unread.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let lines: Vec<u8> = self.unread.drain(..complete).collect();
        let lines = lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines.map(|line| serde_json::from_slice(line).ok()).collect()
    }
}

/// Asks the supervisor of a session for the message that its agent is writing; `None` if none listens.
fn follow(common_dir: &Path, id: &Id) -> Option<UnixStream> {
    let dir = directory(common_dir, id).ok()?;
    let token = std::fs::read_to_string(dir.join("token")).ok()?;
    let mut stream =
        with_short_name(&dir.join("control.sock"), |name| UnixStream::connect(name)).ok()?;
    let request = SignedRequest { token, request: ControlRequest::Follow };
    let mut line = serde_json::to_vec(&request).ok()?;
    line.push(b'\n');
    stream.write_all(&line).ok()?;
    stream.set_nonblocking(true).ok()?;
    Some(stream)
}

/// Sends a request to the supervisor of a session; returns `false` if none listens. A supervisor of
/// an earlier version is found, too.
pub fn send_request(common_dir: &Path, id: &Id, request: &ControlRequest) -> Result<bool> {
    let private_directory = directory(common_dir, id).ok();
    for directory in private_directory.into_iter().chain([directory_in_repository(common_dir, id)])
    {
        if send_request_in(&directory, request)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn send_request_in(dir: &Path, request: &ControlRequest) -> Result<bool> {
    let Ok(token) = std::fs::read_to_string(dir.join("token")) else { return Ok(false) };
    let stream = with_short_name(&dir.join("control.sock"), |name| UnixStream::connect(name));
    let Ok(mut stream) = stream else { return Ok(false) };
    let fail = || "the supervisor does not answer";
    stream.set_read_timeout(Some(TIMEOUT)).or_fail(fail)?;
    stream.set_write_timeout(Some(TIMEOUT)).or_fail(fail)?;
    let mut line =
        serde_json::to_vec(&SignedRequest { token, request: request.clone() }).or_fail(fail)?;
    line.push(b'\n');
    let mut reply = String::new();
    let exchange = stream
        .write_all(&line)
        .and_then(|()| BufReader::new(stream.take(MAX_REQUEST_BYTES)).read_line(&mut reply));
    match exchange {
        // It ended without having read the request.
        Ok(0) => return Ok(false),
        Err(error) if is_closed(&error) => return Ok(false),
        Ok(_) => {}
        Err(error) => return Err(no_answer(error)),
    }
    match serde_json::from_str(&reply).or_fail(fail)? {
        Reply::Done => Ok(true),
        Reply::Ending => Ok(false),
        Reply::Refused(reason) => Err(Failure::refused("the supervisor refused").because(reason)),
    }
}

fn is_closed(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
}

/// Returns the failure of a request without an answer.
fn no_answer(error: io::Error) -> Failure {
    let failure = Failure::failed("the supervisor does not answer");
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => failure
            .because(format!("timed out after {} s", TIMEOUT.as_secs()))
            .hint("on a busy machine it may still do what you asked for: see `studio list`"),
        _ => failure.because(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_is_named() {
        let failure = no_answer(io::ErrorKind::WouldBlock.into());
        assert_eq!(failure.reason().unwrap(), "timed out after 20 s");
        assert!(is_closed(&io::ErrorKind::ConnectionReset.into()));
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_request_without_the_token_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("d".repeat(120));
        std::fs::create_dir(&dir).unwrap();
        assert!(!send_request_in(&dir, &ControlRequest::Stop).unwrap(), "nothing listens yet");
        let (requests, mut rx) = mpsc::unbounded_channel();
        serve_in(&dir, ControlChannels { requests, live: LiveMessages::default() }).unwrap();
        let request_dir = dir.clone();
        let caller = tokio::task::spawn_blocking(move || {
            send_request_in(&request_dir, &ControlRequest::Stop)
        });
        let (request, reply_tx) = rx.recv().await.unwrap();
        assert_eq!(request, ControlRequest::Stop);
        reply_tx.send(Ok(())).unwrap();
        assert!(caller.await.unwrap().unwrap());
        std::fs::write(dir.join("token"), "guessed").unwrap();
        let result =
            tokio::task::spawn_blocking(move || send_request_in(&dir, &ControlRequest::Stop))
                .await
                .unwrap();
        assert!(result.unwrap_err().reason().unwrap().contains("token"));
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_supervisor_of_an_earlier_version_is_found() {
        let root = tempfile::tempdir().unwrap();
        let id = Id::parse("task-abcd").unwrap();
        let directory = directory_in_repository(root.path(), &id);
        std::fs::create_dir_all(&directory).unwrap();
        let (requests, mut rx) = mpsc::unbounded_channel();
        serve_in(&directory, ControlChannels { requests, live: LiveMessages::default() }).unwrap();
        let common_dir = root.path().to_owned();
        let caller = tokio::task::spawn_blocking(move || {
            send_request(&common_dir, &id, &ControlRequest::Status)
        });
        let (_, reply_tx) = rx.recv().await.unwrap();
        reply_tx.send(Ok(())).unwrap();
        assert!(caller.await.unwrap().unwrap());
    }
}
