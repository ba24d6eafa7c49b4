//! A scripted model for Anthropic Messages, both OpenAI wire formats, Gemini's and Databricks',
//! over real HTTP on loopback.
//!
//! `ModelServer::start([ScriptedReply::call("shell", json!({"command": "ls"})),
//! ScriptedReply::says("done")])` answers the first request with a call and the second with text;
//! the path selects the wire format. It runs on its own threads, so that tests without a runtime
//! can use it.

pub mod gate;
pub mod http;
pub mod reply;
pub mod request;
pub mod script;
pub mod wire;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use self::request::ReceivedRequest;
use self::script::Script;

/// A running server; it stops when dropped.
pub struct ModelServer {
    address: SocketAddr,
    state: Arc<ServerState>,
}

/// The state that the connections share.
pub struct ServerState {
    script: Script,
    seen: Mutex<Vec<ReceivedRequest>>,
    changed: Condvar,
    stopping: AtomicBool,
    hangups: AtomicUsize,
    connections: AtomicUsize,
}

impl ModelServer {
    /// Starts a server on a free port of 127.0.0.1.
    pub fn start(script: impl Into<Script>) -> ModelServer {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let state = Arc::new(ServerState {
            script: script.into(),
            seen: Mutex::default(),
            changed: Condvar::new(),
            stopping: AtomicBool::new(false),
            hangups: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
        });
        let shared = Arc::clone(&state);
        std::thread::spawn(move || accept(&listener, &shared));
        ModelServer { address, state }
    }

    /// Returns `http://127.0.0.1:PORT`: the `base_url` of an anthropic provider.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns `http://127.0.0.1:PORT/v1`: the `base_url` of an openai provider.
    pub fn openai_url(&self) -> String {
        format!("{}/v1", self.url())
    }

    /// Returns a g3 configuration whose default provider is this server with the given wire format:
    /// `anthropic`, `openai` (chat), `responses`, `gemini` or `databricks`.
    pub fn config_toml(&self, wire: &str) -> String {
        let (kind, url, more) = match wire {
            "anthropic" | "gemini" => (wire, self.url(), ""),
            "openai" => (wire, self.openai_url(), ""),
            "responses" => ("openai", self.openai_url(), "wire = \"responses\"\n"),
            "databricks" => return self.databricks_toml(),
            other => panic!("there is no wire `{other}`"),
        };
        format!(
            "[providers]\ndefault_provider = \"{kind}.scripted\"\n\n[providers.{kind}.scripted]\n\
             model = \"scripted\"\napi_key = \"test-key\"\nbase_url = \"{url}\"\n{more}"
        )
    }

    fn databricks_toml(&self) -> String {
        format!(
            "[providers]\ndefault_provider = \"databricks.scripted\"\n\n\
             [providers.databricks.scripted]\nmodel = \"scripted\"\ntoken = \"test-key\"\n\
             thinking_budget_tokens = 1024\nhost = \"{}\"\n",
            self.url()
        )
    }

    /// Returns the requests so far, in order.
    pub fn requests(&self) -> Vec<ReceivedRequest> {
        self.state.seen().clone()
    }

    /// Waits for this many requests; panics after 20 seconds.
    pub fn wait_for_requests(&self, count: usize) -> Vec<ReceivedRequest> {
        let until = Instant::now() + Duration::from_secs(20);
        let mut seen = self.state.seen();
        while seen.len() < count {
            let left = until.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{} requests came, {count} were awaited", seen.len());
            let waited = self.state.changed.wait_timeout(seen, left);
            seen = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        seen.clone()
    }

    /// Returns how many clients closed their connection before their reply was complete.
    pub fn hangups(&self) -> usize {
        self.state.hangups.load(Ordering::SeqCst)
    }

    /// Returns how many connections were opened.
    pub fn connections(&self) -> usize {
        self.state.connections.load(Ordering::SeqCst)
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        self.state.stopping.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts connections.
        let _ = TcpStream::connect(self.address);
    }
}

impl ServerState {
    fn seen(&self) -> std::sync::MutexGuard<'_, Vec<ReceivedRequest>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a request; returns its number, starting at 1.
    pub fn record(&self, request: &ReceivedRequest) -> usize {
        let mut seen = self.seen();
        seen.push(request.clone());
        self.changed.notify_all();
        seen.len()
    }

    /// Returns the script.
    pub fn script(&self) -> &Script {
        &self.script
    }

    /// Returns whether the server was dropped.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Counts a client that disconnected early.
    pub fn count_hangup(&self) {
        self.hangups.fetch_add(1, Ordering::SeqCst);
    }
}

fn accept(listener: &TcpListener, state: &Arc<ServerState>) {
    for stream in listener.incoming() {
        if state.is_stopping() {
            return;
        }
        let Ok(stream) = stream else { continue };
        state.connections.fetch_add(1, Ordering::SeqCst);
        let state = Arc::clone(state);
        std::thread::spawn(move || http::serve(stream, &state));
    }
}
