//! One configured server: started when it is first needed or in the background, started anew once
//! when it is found dead, and asked with a time limit that ends the call and nothing else.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
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

/// What we know about a tool of a server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KnownTool {
    /// The server's own name for it.
    pub name: String,
    /// What the model reads about it.
    pub description: String,
    /// The JSON Schema object of its parameters.
    pub parameters: Value,
    /// Whether the server says that a second call does no harm.
    pub repeatable: bool,
}

/// A configured server.
pub struct ConfiguredServer {
    /// As the configuration has it.
    pub name: String,
    /// Its part of the names of its tools.
    pub part: String,
    /// What it is.
    pub definition: McpServerConfig,
    allowed: GlobSet,
    place: ServerPaths,
    line: tokio::sync::Mutex<Option<McpConnection>>,
    known: Arc<ToolList>,
}

/// What is known of a server's tools.
#[derive(Default)]
struct ToolList {
    tools: Mutex<Option<Arc<Vec<KnownTool>>>>,
    /// How often the server said that they changed: the answer to the last question counts.
    changes: AtomicU64,
    /// Whether a task asks for them.
    learning: AtomicBool,
    /// Whether a list came in after such a word that nobody took over.
    news: AtomicBool,
}

/// The one task that asks a server for its changed tools, as long as it runs.
struct Learning(Arc<ToolList>);

impl Learning {
    /// `None` when such a task runs.
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
        self.tools.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, tools: Vec<KnownTool>, definition: &McpServerConfig) {
        cache::write(definition, &tools);
        *self.tools.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(tools));
    }
}

/// A call that was sent and has no answer.
type Sent = RequestHandle<RoleClient>;

/// Why a call has no answer.
enum CallLost {
    /// The server is gone, or the way to it; why, where that is known.
    Died(Option<String>),
    /// The server was gone before the call reached it.
    Unsent(String),
    /// Anything else; another try would change nothing.
    ToolError(ToolError),
}

/// The longest description that the model is shown.
const DESCRIPTION: usize = 2_000;
/// How long a server that goes on changing its tools is left alone before it is asked again.
const PAUSE: Duration = Duration::from_millis(200);
/// How long the word that a call is cancelled may take.
const GOODBYE: Duration = Duration::from_secs(1);

impl ConfiguredServer {
    /// A server that was not started yet. What it said in an earlier session is known.
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

    /// The tools that are known already and may be used.
    pub fn known(&self) -> Option<Vec<KnownTool>> {
        Some(self.permitted(&self.known.now()?))
    }

    /// Whether it said, since this was last asked, that its tools are others.
    pub(crate) fn has_changed(&self) -> bool {
        self.known.news.swap(false, Ordering::SeqCst)
    }

    /// The tools that may be used; starts the server when they are not known.
    pub(crate) async fn tools(&self) -> Result<Vec<KnownTool>, String> {
        match self.known() {
            Some(known) => Ok(known),
            None => self.start().await.map(|()| self.known().unwrap_or_default()),
        }
    }

    /// The whole name of each of its tools.
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

    /// Starts the server unless it runs, and learns its tools.
    pub async fn start(&self) -> Result<(), String> {
        let mut line = self.line.lock().await;
        self.revived(&mut line).await
    }

    /// Sees to it that the line is open.
    async fn revived(&self, line: &mut Option<McpConnection>) -> Result<(), String> {
        if line.as_ref().is_some_and(McpConnection::is_open) {
            return Ok(());
        }
        // The group of a dead one goes first.
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

    /// Asks a server for its tools when it says that they changed. A list that cannot be had
    /// leaves what was known.
    fn learn(&self) -> OnToolsChanged {
        let (list, definition, limit) = (self.known.clone(), self.definition.clone(), self.limit());
        Arc::new(move |peer| {
            list.changes.fetch_add(1, Ordering::SeqCst);
            // However often a server says so, it is asked by one task, which then asks again.
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
                    // One may have come in before the end was noted.
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

    /// Calls a tool. A server that is found dead is started once more; one that dies during the
    /// call is as well, but only a call that may be repeated is made again.
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

    /// Forgets a line that broke, or that did not carry a message: a new one may (with a fresh
    /// token, say). Says how it ended.
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

    /// Ends it, if it runs.
    pub async fn close(&self) {
        // One that is still starting is ended by its handle.
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
        // What is no glob can still be a name.
        if let Ok(glob) = Glob::new(pattern).or_else(|_| Glob::new(&globset::escape(pattern))) {
            set.add(glob);
        }
    }
    set.build().unwrap_or_else(|_| GlobSet::empty())
}

fn known(tool: Tool) -> KnownTool {
    let mut parameters = Value::Object(tool.input_schema.as_ref().clone());
    // What every wire wants of a schema, also where a server leaves it out.
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
