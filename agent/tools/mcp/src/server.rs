//! A configured server: started in the background or on first use, restarted once if it is found
//! dead, and called with a timeout that ends only the call.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use base::config::mcp::McpServerConfig;
use globset::{Glob, GlobSet, GlobSetBuilder};
use rmcp::RoleClient;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, ClientRequest, JsonObject,
    ServerResult, Tool,
};
use rmcp::service::{PeerRequestOptions, RequestHandle, ServiceError};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::connect::{self, G3Client, McpConnection, OnToolsChanged, ServerPaths};
use super::{cache, name};
use tools::output::{ToolError, ToolErrorKind};

/// A known tool of a server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KnownTool {
    /// The server's own name for it.
    pub name: String,
    /// The description for the model.
    pub description: String,
    /// The JSON Schema object of its parameters.
    pub parameters: Value,
    /// Whether the server declares that repeated calls do no harm.
    pub repeatable: bool,
}

/// A configured server.
pub struct ConfiguredServer {
    /// Its name in the configuration.
    pub name: String,
    /// Its part of the names of its tools.
    pub part: String,
    /// Its definition.
    pub definition: McpServerConfig,
    allowed: GlobSet,
    place: ServerPaths,
    line: tokio::sync::Mutex<Option<McpConnection>>,
    known: Arc<ToolList>,
}

/// The known tools of a server.
#[derive(Default)]
struct ToolList {
    tools: Mutex<Option<Arc<Vec<KnownTool>>>>,
    /// Number of change notifications of the server; only the answer to the last request counts.
    changes: AtomicU64,
    /// Whether a task is requesting the tools.
    learning: AtomicBool,
    /// Whether a changed list has arrived that was not applied yet.
    news: AtomicBool,
}

/// The single task that requests a server's changed tools, while it runs.
struct Learning(Arc<ToolList>);

impl Learning {
    /// Returns `None` if such a task is running.
    fn begin(list: &Arc<ToolList>) -> Option<Learning> {
        let runs = list.learning.swap(true, Ordering::SeqCst);
        (!runs).then(|| Learning(list.clone()))
    }
}

impl Drop for Learning {
    fn drop(&mut self) {
        self.0.learning.store(false, Ordering::SeqCst);
    }
}

impl ToolList {
    fn now(&self) -> Option<Arc<Vec<KnownTool>>> {
        base::sync::lock(&self.tools).clone()
    }

    fn set(&self, tools: Vec<KnownTool>, definition: &McpServerConfig) {
        cache::write(definition, &tools);
        *base::sync::lock(&self.tools) = Some(Arc::new(tools));
    }
}

/// A call that was sent and not answered yet.
type Sent = RequestHandle<RoleClient>;

/// Why a call has no answer.
enum CallLost {
    /// The server or the connection died; the reason, if known.
    Died(Option<String>),
    /// The server was gone before the call reached it.
    Unsent(String),
    /// Any other error; retrying does not help.
    ToolError(ToolError),
}

/// Maximum length in bytes of a description shown to the model.
const DESCRIPTION: usize = 2_000;
/// Delay before a server that keeps changing its tools is queried again.
const PAUSE: Duration = Duration::from_millis(200);
/// Timeout for sending a cancellation.
const GOODBYE: Duration = Duration::from_secs(1);

impl ConfiguredServer {
    /// Creates a server that is not started, with its cached tools.
    pub fn new(
        name: &str,
        part: &str,
        definition: &McpServerConfig,
        place: &ServerPaths,
    ) -> ConfiguredServer {
        ConfiguredServer {
            name: name.to_owned(),
            part: part.to_owned(),
            allowed: globs(&definition.tools),
            known: Arc::new(ToolList {
                tools: Mutex::new(cache::read(definition).map(Arc::new)),
                ..ToolList::default()
            }),
            definition: definition.clone(),
            place: place.clone(),
            line: tokio::sync::Mutex::default(),
        }
    }

    /// Returns the permitted tools, if the tools are known.
    pub fn known(&self) -> Option<Vec<KnownTool>> {
        Some(self.permitted(&self.known.now()?))
    }

    /// Whether its tools changed since the last call of this function.
    pub(crate) fn has_changed(&self) -> bool {
        self.known.news.swap(false, Ordering::SeqCst)
    }

    /// Returns the permitted tools; starts the server if they are not known.
    pub(crate) async fn tools(&self) -> Result<Vec<KnownTool>, String> {
        match self.known() {
            Some(known) => Ok(known),
            None => self.start().await.map(|()| self.known().unwrap_or_default()),
        }
    }

    /// Returns its tools by their full names.
    pub fn named(&self, tools: &[KnownTool]) -> BTreeMap<String, KnownTool> {
        let names = name::tools(&self.part, tools.iter().map(|tool| tool.name.as_str()));
        names.into_iter().zip(tools.iter().cloned()).collect()
    }

    fn permitted(&self, all: &[KnownTool]) -> Vec<KnownTool> {
        let fits = |tool: &&KnownTool| {
            self.definition.tools.is_empty() || self.allowed.is_match(tool.name.as_str())
        };
        all.iter().filter(fits).cloned().collect()
    }

    /// Starts the server unless it runs, and reads its tools.
    pub async fn start(&self) -> Result<(), String> {
        let mut line = self.line.lock().await;
        self.revived(&mut line).await
    }

    /// Opens the connection if it is not open.
    async fn revived(&self, line: &mut Option<McpConnection>) -> Result<(), String> {
        if line.as_ref().is_some_and(McpConnection::is_open) {
            return Ok(());
        }
        // The process group of a dead server is killed first.
        *line = None;
        let opened = async {
            let us = G3Client { learn: self.learn() };
            let open = connect::open(&self.definition, &self.part, &self.place, us).await?;
            let tools = open.peer().list_all_tools().await;
            let tools = tools.map_err(|why| format!("it does not list its tools: {why}"))?;
            Ok::<_, String>((open, tools))
        };
        let (limit, since) = (self.limit(), Instant::now());
        let opened = tokio::time::timeout(limit, opened).await.unwrap_or_else(|_| {
            Err(format!("it did not start within {} s (`timeout_seconds`)", limit.as_secs()))
        });
        let (ms, server) = (since.elapsed().as_millis() as u64, &self.name);
        let tools = opened.as_ref().ok().map(|(_, tools)| tools.len());
        tracing::info!(target: "g3::mcp", server, ok = opened.is_ok(), ms, tools, "server started");
        let (open, tools) = opened?;
        self.known.set(tools.into_iter().map(known).collect(), &self.definition);
        *line = Some(open);
        Ok(())
    }

    /// Requests the tools of a server that reports a change. If that fails, the known tools are
    /// kept.
    fn learn(&self) -> OnToolsChanged {
        let (list, definition, limit) = (self.known.clone(), self.definition.clone(), self.limit());
        Arc::new(move |peer| {
            list.changes.fetch_add(1, Ordering::SeqCst);
            // Regardless of the number of notifications, one task requests the tools, again if
            // necessary.
            let Some(learning) = Learning::begin(&list) else {
                return Box::pin(std::future::ready(()));
            };
            let definition = definition.clone();
            Box::pin(async move {
                let mut learning = Some(learning);
                while let Some(Learning(list)) = &learning {
                    let change = list.changes.load(Ordering::SeqCst);
                    let tools = tokio::time::timeout(limit, peer.list_all_tools()).await;
                    if list.changes.load(Ordering::SeqCst) != change {
                        tokio::time::sleep(PAUSE).await;
                        continue;
                    }
                    if let Ok(Ok(tools)) = tools {
                        list.set(tools.into_iter().map(known).collect(), &definition);
                        list.news.store(true, Ordering::SeqCst);
                    }
                    let list = list.clone();
                    drop(learning.take());
                    // A notification may have arrived before the end was recorded.
                    if list.changes.load(Ordering::SeqCst) != change {
                        learning = Learning::begin(&list);
                    }
                }
            })
        })
    }

    fn limit(&self) -> Duration {
        Duration::from_secs(self.definition.timeout_seconds)
    }

    /// Calls a tool. Restarts a server that is found dead or that dies during the call, but repeats
    /// only calls that are marked as repeatable.
    pub(crate) async fn call(
        &self,
        tool: &KnownTool,
        args: JsonObject,
        cancel: &CancellationToken,
    ) -> Result<CallToolResult, ToolError> {
        let (why, harmless) = match self.attempt(tool, args.clone(), cancel).await {
            Ok(answer) => return Ok(answer),
            Err(CallLost::ToolError(trouble)) => return Err(trouble),
            Err(CallLost::Died(why)) => (why, tool.repeatable),
            Err(CallLost::Unsent(why)) => (Some(why), true),
        };
        let how = self.bury(why).await;
        if harmless {
            match self.attempt(tool, args, cancel).await {
                Ok(answer) => return Ok(answer),
                Err(CallLost::ToolError(trouble)) => return Err(trouble),
                Err(CallLost::Died(why)) => self.bury(why).await,
                Err(CallLost::Unsent(why)) => self.bury(Some(why)).await,
            };
        }
        let again = match self.start().await {
            Ok(()) => "it is there again".to_owned(),
            Err(why) => format!("it could not be started again: {why}"),
        };
        Err(ToolError::failed(format!(
            "the MCP server `{}` was lost during the call ({how}); whether the call was carried \
             out is not known; {again}",
            self.name
        )))
    }

    async fn attempt(
        &self,
        tool: &KnownTool,
        args: JsonObject,
        cancel: &CancellationToken,
    ) -> Result<CallToolResult, CallLost> {
        let sent = tokio::select! {
            sent = self.send(tool, args) => sent?,
            () = cancel.cancelled() => return Err(CallLost::ToolError(cancelled())),
        };
        let mut sent = sent;
        let why = tokio::select! {
            answer = &mut sent.rx => {
                return self.answer(answer.unwrap_or(Err(ServiceError::TransportClosed)));
            }
            () = cancel.cancelled() => cancelled(),
            () = tokio::time::sleep(self.limit()) => self.too_late(),
        };
        let reason = Some(base::text::head(&why.text, 200).to_owned());
        let _ = tokio::time::timeout(GOODBYE, sent.cancel(reason)).await;
        Err(CallLost::ToolError(why))
    }

    fn too_late(&self) -> ToolError {
        let text = format!(
            "no answer within {} s (`timeout_seconds` of [mcp.{}]); the request was cancelled",
            self.definition.timeout_seconds, self.name
        );
        ToolError::new(ToolErrorKind::Timeout, text)
    }

    async fn send(&self, tool: &KnownTool, args: JsonObject) -> Result<Sent, CallLost> {
        let mut line = self.line.lock().await;
        self.revived(&mut line).await.map_err(|why| {
            let text = format!("the MCP server `{}` cannot be started: {why}", self.name);
            CallLost::ToolError(ToolError::failed(text))
        })?;
        let Some(open) = line.as_ref() else { return Err(CallLost::Died(None)) };
        let params = CallToolRequestParams::new(tool.name.clone()).with_arguments(args);
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        let options = PeerRequestOptions::no_options();
        open.peer()
            .send_cancellable_request(request, options)
            .await
            .map_err(|_| CallLost::Died(None))
    }

    fn answer(
        &self,
        answer: Result<ServerResult, ServiceError>,
    ) -> Result<CallToolResult, CallLost> {
        let trouble = |text: String| Err(CallLost::ToolError(ToolError::failed(text)));
        match answer {
            Ok(ServerResult::CallToolResult(answer)) => Ok(answer),
            Ok(_) => {
                trouble(format!("`{}` requires a capability that g3 does not have", self.name))
            }
            Err(ServiceError::TransportClosed) => Err(CallLost::Died(None)),
            // Over HTTP a request may have arrived although its answer did not.
            Err(ServiceError::TransportSend(why)) if self.definition.url.is_some() => {
                Err(CallLost::Died(Some(why.error.to_string())))
            }
            Err(ServiceError::TransportSend(why)) => Err(CallLost::Unsent(why.error.to_string())),
            Err(ServiceError::McpError(error)) => trouble(error.message.into_owned()),
            Err(why) => trouble(why.to_string()),
        }
    }

    /// Drops a connection that broke or did not carry a message, since a new one may work (with a
    /// fresh token, for example). Returns how it ended.
    async fn bury(&self, why: Option<String>) -> String {
        let mut line = self.line.lock().await;
        let how = match line.take() {
            Some(open) if open.is_open() && why.is_none() => {
                *line = Some(open);
                None
            }
            Some(mut dead) => dead.end_of_it().await,
            None => None,
        };
        tracing::warn!(target: "g3::mcp", server = self.name, "server lost");
        how.or(why).unwrap_or_else(|| "the connection broke".to_owned())
    }

    /// Stops it, if it runs.
    pub async fn close(&self) {
        // A server that is still starting is stopped through its handle.
        let open = self.line.try_lock().ok().and_then(|mut line| line.take());
        if let Some(open) = open {
            open.close().await;
            tracing::info!(target: "g3::mcp", server = self.name, "server stopped");
        }
    }
}

fn cancelled() -> ToolError {
    ToolError::new(ToolErrorKind::Cancelled, "cancelled by the user")
}

fn globs(patterns: &[String]) -> GlobSet {
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        // An invalid glob may still be a name.
        if let Ok(glob) = Glob::new(pattern).or_else(|_| Glob::new(&globset::escape(pattern))) {
            set.add(glob);
        }
    }
    set.build().unwrap_or_else(|_| GlobSet::empty())
}

fn known(tool: Tool) -> KnownTool {
    let mut parameters = Value::Object(tool.input_schema.as_ref().clone());
    // Required by all wire formats, even if a server omits it.
    parameters["type"] = json!("object");
    if !parameters["properties"].is_object() {
        parameters["properties"] = json!({});
    }
    let description = tool.description.or(tool.title.map(Into::into)).unwrap_or_default();
    let hints = tool.annotations.unwrap_or_default();
    KnownTool {
        name: tool.name.into_owned(),
        description: base::text::head(&description, DESCRIPTION).to_owned(),
        parameters,
        repeatable: hints.read_only_hint == Some(true) || hints.idempotent_hint == Some(true),
    }
}
