//! The connection to a language server: messages with their headers, requests and responses, and
//! the notifications of the server.

use super::{document, render};
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::{mpsc, oneshot, watch};
use tools::child_server::Disconnect;

/// The error of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RequestError {
    /// The connection broke.
    Gone(Disconnect),
    /// The request timed out.
    Late,
    /// The server returned an error.
    Refused {
        /// Its error code.
        code: i64,
        /// Its message.
        message: String,
    },
}

/// An open connection.
pub(crate) struct LspConnection {
    out: mpsc::UnboundedSender<Value>,
    state: Mutex<State>,
    changed: watch::Sender<()>,
    root: PathBuf,
}

#[derive(Default)]
struct State {
    asked: u64,
    waiting: HashMap<u64, oneshot::Sender<Result<Value, RequestError>>>,
    gone: Option<Disconnect>,
    notifications: Notifications,
}

/// The state that the server has reported in notifications.
#[derive(Default)]
pub(crate) struct Notifications {
    /// Tokens of the work in progress.
    works: HashSet<String>,
    /// Whether it has ever reported progress.
    reports_progress: bool,
    /// Whether it is idle, if it reports that.
    quiet: Option<bool>,
    /// The last diagnostics of each file.
    pub published: HashMap<PathBuf, PublishedDiagnostics>,
    /// Methods that it has registered after its start.
    pub registered: HashSet<String>,
}

/// The diagnostics of a file.
#[derive(Clone, Debug)]
pub(crate) struct PublishedDiagnostics {
    /// The version of the file, if the server reports it.
    pub version: Option<i64>,
    /// When they arrived.
    pub time: Instant,
    /// The diagnostics.
    pub items: Vec<Value>,
}

impl LspConnection {
    /// Opens a connection on these pipes.
    pub(crate) fn open(
        stdin: ChildStdin,
        stdout: ChildStdout,
        root: PathBuf,
    ) -> Arc<LspConnection> {
        let (out, messages) = mpsc::unbounded_channel();
        let connection =
            LspConnection { out, state: Mutex::default(), changed: watch::Sender::new(()), root };
        let connection = Arc::new(connection);
        tokio::spawn(write(stdin, messages));
        tokio::spawn(listen(stdout, connection.clone()));
        connection
    }

    fn state(&self) -> MutexGuard<'_, State> {
        base::sync::lock(&self.state)
    }

    /// Sends a notification.
    pub(crate) fn notify(&self, method: &str, params: Value) {
        self.send(json!({ "jsonrpc": "2.0", "method": method, "params": params }));
    }

    fn send(&self, message: Value) {
        // A broken connection is reported by its requests.
        let _ = self.out.send(message);
    }

    /// Sends a request, and cancels it if the caller stops waiting for the response.
    pub(crate) async fn request(
        &self,
        method: &str,
        params: Value,
        limit: Duration,
    ) -> Result<Value, RequestError> {
        let (send, answer) = oneshot::channel();
        let asked = {
            let mut state = self.state();
            if let Some(reason) = &state.gone {
                return Err(RequestError::Gone(reason.clone()));
            }
            state.asked += 1;
            let id = state.asked;
            state.waiting.insert(id, send);
            PendingRequest { connection: self, id }
        };
        let mut message = json!({ "jsonrpc": "2.0", "id": asked.id, "method": method });
        if !params.is_null() {
            message["params"] = params;
        }
        self.send(message);
        match tokio::time::timeout(limit, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(RequestError::Gone(Disconnect::Closed)),
            Err(_) => Err(RequestError::Late),
        }
    }

    /// Accesses the state that the server has reported.
    pub(crate) fn notifications<T>(&self, look: impl FnOnce(&mut Notifications) -> T) -> T {
        look(&mut self.state().notifications)
    }

    /// Returns why the connection broke, if it did.
    pub(crate) fn gone(&self) -> Option<Disconnect> {
        self.state().gone.clone()
    }

    /// Returns a receiver of the changes from now on.
    pub(crate) fn watch(&self) -> watch::Receiver<()> {
        let mut changes = self.changed.subscribe();
        changes.mark_unchanged();
        changes
    }

    fn handle(&self, message: Value) {
        let method = message["method"].as_str().unwrap_or_default();
        match (message.get("id"), method) {
            (Some(id), "") => self.answered(id, &message),
            (Some(id), method) => {
                if method == "client/registerCapability" {
                    let all = message["params"]["registrations"].as_array().into_iter().flatten();
                    let names = all.filter_map(|it| it["method"].as_str()).map(str::to_owned);
                    self.state().notifications.registered.extend(names);
                }
                self.send(render::to(id, method, &message["params"], &self.root));
            }
            (None, "tsserver/request") => self.refuse_typescript(&message["params"]),
            (None, method) => {
                if self.state().notifications.handle(method, &message["params"]) {
                    self.changed.send_replace(());
                }
            }
        }
    }

    /// Answers Vue's server, which waits for TypeScript's in the editor: g3 connects no two servers.
    fn refuse_typescript(&self, params: &Value) {
        let request = if params[0].is_array() { &params[0] } else { params };
        self.notify("tsserver/response", json!([[request[0], null]]));
    }

    fn answered(&self, id: &Value, message: &Value) {
        let Some(asked) = id.as_u64().and_then(|id| self.state().waiting.remove(&id)) else {
            return;
        };
        let answer = match message.get("error").filter(|error| !error.is_null()) {
            Some(error) => Err(RequestError::Refused {
                code: error["code"].as_i64().unwrap_or(0),
                message: error["message"].as_str().unwrap_or("no reason given").to_owned(),
            }),
            None => Ok(message["result"].clone()),
        };
        // The caller may have stopped waiting.
        let _ = asked.send(answer);
    }

    fn broke(&self, disconnect: Disconnect) {
        let waiting = {
            let mut state = self.state();
            state.gone = Some(disconnect.clone());
            std::mem::take(&mut state.waiting)
        };
        for (_, asked) in waiting {
            let _ = asked.send(Err(RequestError::Gone(disconnect.clone())));
        }
        self.changed.send_replace(());
    }
}

/// A request that has no response yet.
struct PendingRequest<'a> {
    connection: &'a LspConnection,
    id: u64,
}

impl Drop for PendingRequest<'_> {
    fn drop(&mut self) {
        let open = self.connection.state().waiting.remove(&self.id).is_some();
        if open {
            self.connection.notify("$/cancelRequest", json!({ "id": self.id }));
        }
    }
}

async fn write(mut stdin: ChildStdin, mut messages: mpsc::UnboundedReceiver<Value>) {
    while let Some(message) = messages.recv().await {
        let last = message["method"] == "exit";
        let sent = stdin.write_all(&framed(&message)).await;
        if sent.is_err() || stdin.flush().await.is_err() || last {
            return;
        }
    }
}

async fn listen(stdout: ChildStdout, connection: Arc<LspConnection>) {
    let mut frames = FrameReader::new(BufReader::new(stdout));
    let disconnect = loop {
        match frames.next().await {
            Ok(Some(message)) => connection.handle(message),
            Ok(None) => break Disconnect::Closed,
            Err(error) => break Disconnect::Failed(error),
        }
    };
    connection.broke(disconnect);
}

impl Notifications {
    /// Returns whether the server is doing work that may change its answers.
    pub(crate) fn is_busy(&self) -> bool {
        self.quiet.map_or(!self.works.is_empty(), |quiet| !quiet)
    }

    /// Returns whether it has ever reported its work.
    pub(crate) fn has_reported(&self) -> bool {
        self.reports_progress || self.quiet.is_some()
    }

    /// Handles a notification. Returns whether it contains something that a caller may wait for.
    fn handle(&mut self, method: &str, params: &Value) -> bool {
        match method {
            "$/progress" => {
                let token = params["token"].to_string();
                self.reports_progress = true;
                match params["value"]["kind"].as_str() {
                    Some("begin") => self.works.insert(token),
                    Some("end") => self.works.remove(&token),
                    Some(_) | None => false,
                }
            }
            "experimental/serverStatus" => {
                self.quiet = params["quiescent"].as_bool();
                true
            }
            "textDocument/publishDiagnostics" => {
                let Some(path) = document::path(params["uri"].as_str().unwrap_or_default()) else {
                    return false;
                };
                let items = params["diagnostics"].as_array().cloned().unwrap_or_default();
                let version = params["version"].as_i64();
                self.published
                    .insert(path, PublishedDiagnostics { version, time: Instant::now(), items });
                true
            }
            _ => false,
        }
    }
}

/// Maximum size of a message in bytes.
const LONGEST: usize = 64 << 20;
/// Maximum length of a header line in bytes.
const LINE: u64 = 16 << 10;
/// Maximum number of bytes that are skipped because they are not a message.
const NOISE: usize = 1 << 20;

/// Reads messages from a pipe.
pub(crate) struct FrameReader<R> {
    from: R,
    noise: usize,
}

impl<R: AsyncBufRead + Unpin> FrameReader<R> {
    /// Creates a reader of this pipe.
    pub(crate) fn new(from: R) -> FrameReader<R> {
        FrameReader { from, noise: 0 }
    }

    /// Returns the next message; `None` at the end. The error says why nothing more can be read.
    pub(crate) async fn next(&mut self) -> Result<Option<Value>, String> {
        while let Some(length) = self.length().await? {
            let mut body = Vec::new();
            let read = (&mut self.from).take(length as u64).read_to_end(&mut body).await;
            if read.map_err(|error| error.to_string())? < length {
                return Ok(None);
            }
            match serde_json::from_slice(&body) {
                Ok(message) => return Ok(Some(message)),
                Err(_) => self.skip(length)?,
            }
        }
        Ok(None)
    }

    /// Reads a header to its end and returns the length that it announces.
    async fn length(&mut self) -> Result<Option<usize>, String> {
        let mut length = None;
        loop {
            let mut line = Vec::new();
            let read = (&mut self.from).take(LINE).read_until(b'\n', &mut line).await;
            let read = read.map_err(|error| error.to_string())?;
            if read == 0 {
                return Ok(None);
            }
            let text = String::from_utf8_lossy(&line).trim().to_ascii_lowercase();
            match (length_in(&text), length) {
                (Some(announced), _) if announced > LONGEST => {
                    return Err(format!("it announced a message of {announced} bytes"));
                }
                (Some(announced), _) => length = Some(announced),
                (None, Some(length)) if text.is_empty() => return Ok(Some(length)),
                (None, _) if text.is_empty() || text.starts_with("content-type:") => {}
                (None, _) => self.skip(read)?,
            }
        }
    }

    fn skip(&mut self, bytes: usize) -> Result<(), String> {
        self.noise += bytes;
        match self.noise > NOISE {
            true => Err("what it writes to stdout is not the protocol".to_owned()),
            false => Ok(()),
        }
    }
}

/// Parses the length in a header line, even after noise that did not end in a newline.
fn length_in(line: &str) -> Option<usize> {
    line.rsplit_once("content-length:")?.1.trim().parse().ok()
}

/// Formats a message with its header.
pub(crate) fn framed(message: &Value) -> Vec<u8> {
    let body = message.to_string();
    format!("Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// Returns all messages in these bytes, read in pieces of this size.
    fn read(bytes: &[u8], piece: usize) -> (Vec<Value>, Result<(), String>) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let from = tokio::io::BufReader::with_capacity(piece, bytes);
            let mut frames = FrameReader::new(from);
            let mut all = Vec::new();
            loop {
                match frames.next().await {
                    Ok(Some(message)) => all.push(message),
                    Ok(None) => return (all, Ok(())),
                    Err(why) => return (all, Err(why)),
                }
            }
        })
    }

    proptest! {
        #[test]
        fn messages_are_read_from_any_pieces_and_through_noise(
            texts in prop::collection::vec(".{0,30}", 0..6),
            noise in "[a-z{}: ]{0,20}",
            piece in 1usize..40,
        ) {
            let messages: Vec<Value> = texts.into_iter().map(|text| json!({ "t": text })).collect();
            let mut bytes = Vec::new();
            for message in &messages {
                bytes.extend(format!("{noise}\n").into_bytes());
                bytes.extend(noise.bytes());
                bytes.extend(framed(message));
            }
            prop_assert_eq!(read(&bytes, piece), (messages, Ok(())));
        }
    }

    #[test]
    fn invalid_json_is_skipped_and_too_much_of_it_is_an_error() {
        let good = framed(&json!(1));
        let bad = b"Content-Length: 3\r\nContent-Type: x\r\n\r\n{]}".to_vec();
        assert_eq!(read(&[bad, good.clone()].concat(), 64).0, [json!(1)]);
        let noise = "no protocol\n".repeat(NOISE / 8).into_bytes();
        assert!(read(&noise, 4096).1.unwrap_err().contains("not the protocol"));
        let long = b"Content-Length: 99999999999\r\n\r\n".to_vec();
        assert!(read(&long, 64).1.unwrap_err().contains("99999999999 bytes"));
        assert_eq!(read(&good[..good.len() - 1], 64), (Vec::new(), Ok(())));
    }
}
