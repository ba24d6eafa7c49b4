//! The open line to a server: requests and their answers, and what the server says by itself.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::{mpsc, oneshot, watch};

use super::codec::{FrameReader, framed};
use super::{answer, uri};
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
                self.send(answer::to(id, method, &message["params"], &self.root));
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
                let Some(path) = uri::path(params["uri"].as_str().unwrap_or_default()) else {
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
