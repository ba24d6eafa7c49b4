//! The open line to a server: requests and their answers, and what the server says by itself.

use super::{document, render};
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::{mpsc, oneshot, watch};
use tools::child_server::Disconnect;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RequestError {
    /// The connection broke.
    Gone(Disconnect),
    /// It took too long.
    Late,
    /// The server says that it cannot.
    Refused {
        /// Its number for that.
        code: i64,
        /// Its words.
        message: String,
    },
}

/// A line that was opened.
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
    news: Notifications,
}

/// What the server said by itself.
#[derive(Default)]
pub(crate) struct Notifications {
    /// The work that it is at.
    works: HashSet<String>,
    /// Whether it ever told of work.
    told: bool,
    /// Whether it has nothing left to do, where it tells that.
    quiet: Option<bool>,
    /// What is wrong with files, as it last said.
    pub published: HashMap<PathBuf, PublishedDiagnostics>,
    /// Methods that it offered after its start.
    pub registered: HashSet<String>,
}

/// What is wrong with a file.
#[derive(Clone, Debug)]
pub(crate) struct PublishedDiagnostics {
    /// The version of the file that is meant, where the server tells it.
    pub version: Option<i64>,
    /// When it came.
    pub at: Instant,
    /// The diagnostics.
    pub items: Vec<Value>,
}

impl LspConnection {
    /// Speaks on these pipes.
    pub(crate) fn open(
        stdin: ChildStdin,
        stdout: ChildStdout,
        root: PathBuf,
    ) -> Arc<LspConnection> {
        let (out, messages) = mpsc::unbounded_channel();
        let line =
            LspConnection { out, state: Mutex::default(), changed: watch::Sender::new(()), root };
        let line = Arc::new(line);
        tokio::spawn(write(stdin, messages));
        tokio::spawn(listen(stdout, line.clone()));
        line
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells something that wants no answer.
    pub(crate) fn notify(&self, method: &str, params: Value) {
        self.send(json!({ "jsonrpc": "2.0", "method": method, "params": params }));
    }

    fn send(&self, message: Value) {
        // A line that broke is known by its requests.
        let _ = self.out.send(message);
    }

    /// Asks, and takes the question back when nobody waits for the answer any more.
    pub(crate) async fn request(
        &self,
        method: &str,
        params: Value,
        limit: Duration,
    ) -> Result<Value, RequestError> {
        let (send, answer) = oneshot::channel();
        let asked = {
            let mut state = self.state();
            if let Some(why) = &state.gone {
                return Err(RequestError::Gone(why.clone()));
            }
            state.asked += 1;
            let id = state.asked;
            state.waiting.insert(id, send);
            PendingRequest { line: self, id }
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

    /// What the server said by itself.
    pub(crate) fn news<T>(&self, look: impl FnOnce(&mut Notifications) -> T) -> T {
        look(&mut self.state().news)
    }

    /// Why it broke, if it did.
    pub(crate) fn gone(&self) -> Option<Disconnect> {
        self.state().gone.clone()
    }

    /// Learns when something is new. What was there before is no news.
    pub(crate) fn watch(&self) -> watch::Receiver<()> {
        let mut changes = self.changed.subscribe();
        changes.mark_unchanged();
        changes
    }

    fn hear(&self, message: Value) {
        let method = message["method"].as_str().unwrap_or_default();
        match (message.get("id"), method) {
            (Some(id), "") => self.answered(id, &message),
            (Some(id), method) => {
                if method == "client/registerCapability" {
                    let all = message["params"]["registrations"].as_array().into_iter().flatten();
                    let names = all.filter_map(|it| it["method"].as_str()).map(str::to_owned);
                    self.state().news.registered.extend(names);
                }
                self.send(render::to(id, method, &message["params"], &self.root));
            }
            (None, method) => {
                if self.state().news.hear(method, &message["params"]) {
                    self.changed.send_replace(());
                }
            }
        }
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
        // Whoever asked may have gone.
        let _ = asked.send(answer);
    }

    fn broke(&self, why: Disconnect) {
        let waiting = {
            let mut state = self.state();
            state.gone = Some(why.clone());
            std::mem::take(&mut state.waiting)
        };
        for (_, asked) in waiting {
            let _ = asked.send(Err(RequestError::Gone(why.clone())));
        }
        self.changed.send_replace(());
    }
}

/// A question that is open.
struct PendingRequest<'a> {
    line: &'a LspConnection,
    id: u64,
}

impl Drop for PendingRequest<'_> {
    fn drop(&mut self) {
        let open = self.line.state().waiting.remove(&self.id).is_some();
        if open {
            self.line.notify("$/cancelRequest", json!({ "id": self.id }));
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

async fn listen(stdout: ChildStdout, line: Arc<LspConnection>) {
    let mut frames = FrameReader::new(BufReader::new(stdout));
    let why = loop {
        match frames.next().await {
            Ok(Some(message)) => line.hear(message),
            Ok(None) => break Disconnect::Closed,
            Err(why) => break Disconnect::Failed(why),
        }
    };
    line.broke(why);
}

impl Notifications {
    /// Whether the server is at work that may change its answers.
    pub(crate) fn is_busy(&self) -> bool {
        self.quiet.map_or(!self.works.is_empty(), |quiet| !quiet)
    }

    /// Whether it ever told of its work.
    pub(crate) fn tells(&self) -> bool {
        self.told || self.quiet.is_some()
    }

    /// Takes something over; whether anybody may wait for it.
    fn hear(&mut self, method: &str, params: &Value) -> bool {
        match method {
            "$/progress" => {
                let token = params["token"].to_string();
                self.told = true;
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
                    .insert(path, PublishedDiagnostics { version, at: Instant::now(), items });
                true
            }
            _ => false,
        }
    }
}

/// The longest message, in bytes.
const LONGEST: usize = 64 << 20;
/// The longest line of a header, in bytes.
const LINE: u64 = 16 << 10;
/// How much of what is no message is passed over, in bytes.
const NOISE: usize = 1 << 20;

/// Reads messages from a pipe.
pub(crate) struct FrameReader<R> {
    from: R,
    noise: usize,
}

impl<R: AsyncBufRead + Unpin> FrameReader<R> {
    /// Reads from here.
    pub(crate) fn new(from: R) -> FrameReader<R> {
        FrameReader { from, noise: 0 }
    }

    /// The next message; `None` at the end. The error says why nothing more can be read.
    pub(crate) async fn next(&mut self) -> Result<Option<Value>, String> {
        while let Some(length) = self.length().await? {
            let mut body = Vec::new();
            let read = (&mut self.from).take(length as u64).read_to_end(&mut body).await;
            if read.map_err(|why| why.to_string())? < length {
                return Ok(None);
            }
            match serde_json::from_slice(&body) {
                Ok(message) => return Ok(Some(message)),
                Err(_) => self.passes_over(length)?,
            }
        }
        Ok(None)
    }

    /// Reads a header to its end; the length that it tells.
    async fn length(&mut self) -> Result<Option<usize>, String> {
        let mut length = None;
        loop {
            let mut line = Vec::new();
            let read = (&mut self.from).take(LINE).read_until(b'\n', &mut line).await;
            let read = read.map_err(|why| why.to_string())?;
            if read == 0 {
                return Ok(None);
            }
            let text = String::from_utf8_lossy(&line).trim().to_ascii_lowercase();
            match (length_in(&text), length) {
                (Some(told), _) if told > LONGEST => {
                    return Err(format!("it announced a message of {told} bytes"));
                }
                (Some(told), _) => length = Some(told),
                (None, Some(length)) if text.is_empty() => return Ok(Some(length)),
                (None, _) if text.is_empty() || text.starts_with("content-type:") => {}
                (None, _) => self.passes_over(read)?,
            }
        }
    }

    fn passes_over(&mut self, bytes: usize) -> Result<(), String> {
        self.noise += bytes;
        match self.noise > NOISE {
            true => Err("what it writes to stdout is not the protocol".to_owned()),
            false => Ok(()),
        }
    }
}

/// The length in a line of a header, also behind something that had no newline.
fn length_in(line: &str) -> Option<usize> {
    line.rsplit_once("content-length:")?.1.trim().parse().ok()
}

/// A message with its header.
pub(crate) fn framed(message: &Value) -> Vec<u8> {
    let body = message.to_string();
    format!("Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// All messages in these bytes, read in pieces of this size.
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
        fn messages_come_back_whatever_the_pieces_and_the_noise(
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
    fn what_is_no_json_is_passed_over_and_too_much_of_it_is_an_error() {
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
