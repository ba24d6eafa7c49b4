//! One running server: its start, what it can do, questions to it, and its end.

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
use tools::exec::confinement::CommandBox;

/// A server that says nothing of its work for this long has read the project.
const SETTLED: Duration = Duration::from_secs(1);
/// How long an empty answer is asked again while the server reads the project.
const READING: Duration = Duration::from_secs(60);
/// The longest pause between two such questions.
const PAUSE: Duration = Duration::from_secs(2);
/// How long it may take to say goodbye.
const GOODBYE: Duration = Duration::from_secs(1);
/// Numbers of the protocol for: what you ask about has changed; I was cancelled; not ready yet.
const AGAIN: [i64; 3] = [-32801, -32802, -32002];
/// How often such a question is asked again.
const TRIES: u32 = 5;

/// A server that was started and shook hands.
pub(crate) struct LspClient {
    /// What the configuration calls it.
    pub name: String,
    /// The line to it.
    pub line: Arc<LspConnection>,
    /// What it counts columns in.
    pub encoding: PositionEncoding,
    /// The files that it was told of.
    pub documents: Mutex<Documents>,
    capabilities: Value,
    program: tokio::sync::Mutex<ServerProcess>,
    patience: Duration,
    born: Instant,
}

/// Starts a server in a root and shakes hands. The error says why it cannot be used.
pub(crate) async fn start(
    language: &LanguageServer,
    root: &Path,
    logs: Option<PathBuf>,
    around: &CommandBox,
) -> Result<LspClient, String> {
    let Some(command) = language.command() else {
        return Err(format!("no such program: `{}`", language.command));
    };
    let log = logs.as_deref().map(|logs| (logs, language.name.as_str()));
    let hold = around.hold_where_possible().map_err(|why| why.to_string())?;
    let wanted = ServerStart { command: &command, env: &language.env, cwd: root, log, hold };
    let (mut program, stdin, stdout) = child_server::start(&wanted)?;
    let line = LspConnection::open(stdin, stdout, root.to_owned());
    let patience = language.patience();
    let hello = match line.request("initialize", hello(root), patience).await {
        Ok(hello) => hello,
        Err(RequestError::Gone(why)) => return Err(why.with_end(program.end_of_it().await)),
        Err(RequestError::Late) => {
            return Err(format!("it did not answer within {} s of its start", patience.as_secs()));
        }
        Err(RequestError::Refused { message, .. }) => {
            return Err(format!("no handshake: {message}"));
        }
    };
    let capabilities = hello["capabilities"].clone();
    let encoding = PositionEncoding::chosen(&capabilities)?;
    line.notify("initialized", json!({}));
    line.notify("workspace/didChangeConfiguration", json!({ "settings": {} }));
    tracing::info!(target: "g3::lsp", server = language.name, "server started");
    Ok(LspClient {
        name: language.name.clone(),
        line,
        encoding,
        documents: Mutex::default(),
        capabilities,
        program: tokio::sync::Mutex::new(program),
        patience,
        born: Instant::now(),
    })
}

/// What g3 is and can, for a server.
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
                // Servers watch files by themselves; what we write they hear from us as well.
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
    /// Whether it offers a method, by the name of the capability.
    pub(crate) fn can(&self, method: &str, capability: &str) -> bool {
        let told = &self.capabilities[capability];
        let from_start = !told.is_null() && *told != Value::Bool(false);
        from_start || self.line.news(|news| news.registered.contains(method))
    }

    /// What it wants to hear when a file was saved: nothing, that, or the text as well.
    pub(crate) fn hears_saves(&self) -> Option<bool> {
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

    /// Asks. While the server reads the project, an empty answer is asked again, for a while.
    pub(crate) async fn ask(&self, method: &str, params: Value) -> Result<Value, RequestError> {
        let end = Instant::now() + READING;
        let (mut pause, mut tries) = (PAUSE / 16, 0);
        loop {
            let mut changes = self.line.watch();
            let reads = self.reads();
            let answer = self.line.request(method, params.clone(), self.patience).await;
            let again = match &answer {
                Ok(answer) => reads && is_nothing(answer),
                Err(RequestError::Refused { code, .. }) => {
                    tries += 1;
                    AGAIN.contains(code) && (reads || tries < TRIES)
                }
                Err(RequestError::Gone(_) | RequestError::Late) => false,
            };
            if !again || Instant::now() > end {
                return answer;
            }
            let _ = tokio::time::timeout(pause, changes.changed()).await;
            pause = (pause * 2).min(PAUSE);
        }
    }

    /// Whether it may still be reading the project.
    pub(crate) fn reads(&self) -> bool {
        let young = self.born.elapsed() < SETTLED;
        self.line.news(|news| news.is_busy() || (young && !news.tells()))
    }

    /// How it ended, after the line broke.
    pub(crate) async fn end_of_it(&self, why: &Disconnect) -> String {
        why.with_end(self.program.lock().await.end_of_it().await)
    }

    /// Says goodbye, and ends what does not end by itself.
    pub(crate) async fn close(&self) {
        if self.line.gone().is_none() {
            self.documents.lock().unwrap_or_else(std::sync::PoisonError::into_inner).close(self);
            let _ = self.line.request("shutdown", Value::Null, GOODBYE).await;
            self.line.notify("exit", Value::Null);
        }
        self.program.lock().await.close().await;
        tracing::info!(target: "g3::lsp", server = self.name, "server stopped");
    }
}

/// Whether an answer says nothing.
fn is_nothing(answer: &Value) -> bool {
    match answer {
        Value::Null => true,
        Value::Array(all) => all.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => false,
    }
}
