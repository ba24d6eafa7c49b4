//! A running language server: its start, its capabilities, requests to it, and its shutdown.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::connection::{LspConnection, RequestError};
use super::document::Documents;
use super::position::PositionEncoding;
use super::servers::LanguageServer;
use super::{document, render};
use tools::child_server::{self, Disconnect, ServerProcess, ServerStart};
use tools::exec::confinement::CommandSandbox;

/// A server that reports no work for this long after its start has read the project.
const SETTLED: Duration = Duration::from_secs(1);
/// How long a request with an empty answer is repeated while the server reads the project.
const READING: Duration = Duration::from_secs(60);
/// Maximum pause between two such requests.
const PAUSE: Duration = Duration::from_secs(2);
/// Timeout of the shutdown request.
const GOODBYE: Duration = Duration::from_secs(1);
/// Error codes of the protocol for content modified, server cancelled, and server not initialized.
const AGAIN: [i64; 3] = [-32801, -32802, -32002];
/// How often a request with such an error is sent.
const TRIES: u32 = 5;

/// A server that has been started and initialized.
pub(crate) struct LspClient {
    /// Its name in the configuration.
    pub name: String,
    /// The connection to it.
    pub connection: Arc<LspConnection>,
    /// The unit in which it counts columns.
    pub encoding: PositionEncoding,
    /// The files that it knows.
    pub documents: Mutex<Documents>,
    capabilities: Value,
    program: tokio::sync::Mutex<ServerProcess>,
    timeout: Duration,
    born: Instant,
}

/// Starts a server in a root and initializes it: the first of its programs with which that works.
/// The error says why the first one cannot be used.
pub(crate) async fn start(
    language: &LanguageServer,
    root: &Path,
    logs: Option<PathBuf>,
    sandbox: &CommandSandbox,
) -> Result<LspClient, String> {
    let mut failure = None;
    for command in language.commands() {
        match start_program(&command, language, root, logs.as_deref(), sandbox).await {
            Ok(client) => return Ok(client),
            Err(reason) => failure = failure.or(Some(reason)),
        }
    }
    Err(failure.unwrap_or_else(|| format!("no such program: `{}`", language.command)))
}

async fn start_program(
    command: &[String],
    language: &LanguageServer,
    root: &Path,
    logs: Option<&Path>,
    sandbox: &CommandSandbox,
) -> Result<LspClient, String> {
    let log = logs.map(|logs| (logs, language.name.as_str()));
    let hold = sandbox.containment_if_supported().map_err(|error| error.to_string())?;
    let wanted = ServerStart { command, env: &language.env, cwd: root, log, containment: hold };
    let (mut program, stdin, stdout) = child_server::start(&wanted)?;
    let connection = LspConnection::open(stdin, stdout, root.to_owned());
    let timeout = language.timeout();
    let hello = match connection.request("initialize", hello(root), timeout).await {
        Ok(hello) => hello,
        Err(RequestError::Gone(error)) => return Err(error.with_end(program.describe_end().await)),
        Err(RequestError::Late) => {
            return Err(format!("it did not answer within {} s of its start", timeout.as_secs()));
        }
        Err(RequestError::Refused { message, .. }) => {
            return Err(format!("no handshake: {message}"));
        }
    };
    let capabilities = hello["capabilities"].clone();
    let encoding = PositionEncoding::chosen(&capabilities)?;
    connection.notify("initialized", json!({}));
    connection.notify("workspace/didChangeConfiguration", json!({ "settings": {} }));
    tracing::info!(target: "g3::lsp", server = language.name, "server started");
    Ok(LspClient {
        name: language.name.clone(),
        connection,
        encoding,
        documents: Mutex::default(),
        capabilities,
        program: tokio::sync::Mutex::new(program),
        timeout,
        born: Instant::now(),
    })
}

/// Returns the parameters of the `initialize` request.
fn hello(root: &Path) -> Value {
    let encodings = PositionEncoding::EACH.map(PositionEncoding::name);
    let kinds: Vec<u32> = (1..=26).collect();
    json!({
        "processId": std::process::id(),
        "clientInfo": { "name": "g3", "version": env!("CARGO_PKG_VERSION") },
        "rootPath": root,
        "rootUri": document::of(root),
        "workspaceFolders": render::folders(root),
        "capabilities": {
            "general": { "positionEncodings": encodings },
            "window": { "workDoneProgress": true },
            "workspace": {
                "configuration": true,
                "workspaceFolders": true,
                "didChangeConfiguration": { "dynamicRegistration": true },
                // Servers watch files themselves; g3 also notifies them of the files that it
                // writes.
                "didChangeWatchedFiles": { "dynamicRegistration": false },
                "symbol": { "symbolKind": { "valueSet": kinds } },
            },
            "textDocument": {
                "synchronization": { "didSave": true },
                "hover": { "contentFormat": ["markdown", "plaintext"] },
                "definition": { "linkSupport": true },
                "implementation": { "linkSupport": true },
                "references": {},
                "callHierarchy": {},
                "documentSymbol": {
                    "hierarchicalDocumentSymbolSupport": true,
                    "symbolKind": { "valueSet": kinds },
                },
                "diagnostic": {},
                "publishDiagnostics": { "versionSupport": true },
            },
            "experimental": { "serverStatusNotification": true },
        },
    })
}

impl LspClient {
    /// Returns whether it provides a method, by its capabilities or by a later registration.
    pub(crate) fn can(&self, method: &str, capability: &str) -> bool {
        let provided = &self.capabilities[capability];
        let from_start = !provided.is_null() && *provided != Value::Bool(false);
        from_start
            || self
                .connection
                .notifications(|notifications| notifications.registered.contains(method))
    }

    /// Returns whether a save notification contains the text; `None` if it expects no notification.
    pub(crate) fn save_includes_text(&self) -> Option<bool> {
        match &self.capabilities["textDocumentSync"]["save"] {
            Value::Bool(true) => Some(false),
            Value::Object(save) => Some(save.get("includeText") == Some(&Value::Bool(true))),
            Value::Null
            | Value::Bool(false)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_) => None,
        }
    }

    /// Sends a request. While the server reads the project, a request with an empty answer is
    /// repeated for up to [`READING`].
    pub(crate) async fn ask(&self, method: &str, params: Value) -> Result<Value, RequestError> {
        let end = Instant::now() + READING;
        let (mut pause, mut tries) = (PAUSE / 16, 0);
        loop {
            let mut changes = self.connection.watch();
            let reads = self.reads();
            let answer = self.connection.request(method, params.clone(), self.timeout).await;
            let retry = match &answer {
                Ok(answer) => reads && is_nothing(answer),
                Err(RequestError::Refused { code, .. }) => {
                    tries += 1;
                    AGAIN.contains(code) && (reads || tries < TRIES)
                }
                Err(RequestError::Gone(_) | RequestError::Late) => false,
            };
            if !retry || Instant::now() > end {
                return answer;
            }
            let _ = tokio::time::timeout(pause, changes.changed()).await;
            pause = (pause * 2).min(PAUSE);
        }
    }

    /// Returns whether it may still be reading the project.
    pub(crate) fn reads(&self) -> bool {
        let young = self.born.elapsed() < SETTLED;
        self.connection.notifications(|notifications| {
            notifications.is_busy() || (young && !notifications.has_reported())
        })
    }

    /// Returns how it ended, after the connection broke.
    pub(crate) async fn end_of_it(&self, disconnect: &Disconnect) -> String {
        disconnect.with_end(self.program.lock().await.describe_end().await)
    }

    /// Shuts the server down, and ends the process if it does not exit by itself.
    pub(crate) async fn close(&self) {
        if self.connection.gone().is_none() {
            base::sync::lock(&self.documents).close(self);
            let _ = self.connection.request("shutdown", Value::Null, GOODBYE).await;
            self.connection.notify("exit", Value::Null);
        }
        self.program.lock().await.close().await;
        tracing::info!(target: "g3::lsp", server = self.name, "server stopped");
    }
}

/// Returns whether an answer is empty.
fn is_nothing(answer: &Value) -> bool {
    match answer {
        Value::Null => true,
        Value::Array(all) => all.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => false,
    }
}
