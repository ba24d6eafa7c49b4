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
    CallToolRequest, CallToolRequestParams, CallToolResponse, CallToolResult, ClientRequest,
    JsonObject, ServerResult, Tool,
};
use rmcp::service::{PeerRequestOptions, RequestHandle, ServiceError};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::connect::{self, G3Client, McpConnection, OnToolsChanged, ServerPaths};
use super::user_questions::UserQuestions;
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
    paths: ServerPaths,
    questions: Option<Arc<UserQuestions>>,
    connection: tokio::sync::Mutex<Option<McpConnection>>,
    known: Arc<ToolList>,
}

/// The known tools of a server.
#[derive(Default)]
struct ToolList {
    tools: Mutex<Option<Arc<Vec<KnownTool>>>>,
    /// Number of change notifications of the server; only the answer to the last request counts.
    changes: AtomicU64,
    /// Whether a task is requesting the tools.
    is_learning: AtomicBool,
    /// Whether a changed list has arrived that was not applied yet.
    has_news: AtomicBool,
}

/// The single task that requests a server's changed tools, while it runs.
struct Learning(Arc<ToolList>);

impl Learning {
    /// Returns `None` if such a task is running.
    fn begin(list: &Arc<ToolList>) -> Option<Learning> {
        let is_running = list.is_learning.swap(true, Ordering::SeqCst);
        (!is_running).then(|| Learning(list.clone()))
    }
}

impl Drop for Learning {
    fn drop(&mut self) {
        self.0.is_learning.store(false, Ordering::SeqCst);
    }
}

impl ToolList {
    fn current(&self) -> Option<Arc<Vec<KnownTool>>> {
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
const MAX_DESCRIPTION: usize = 2_000;
/// Delay before a server that keeps changing its tools is queried again.
const DEBOUNCE: Duration = Duration::from_millis(200);
/// Maximum number of times that a server asks the user in one call.
const MAX_QUESTION_ROUNDS: usize = 10;
/// Timeout for sending a cancellation.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(1);

impl ConfiguredServer {
    /// Creates a server that is not started, with its cached tools. It cannot ask the user.
    pub fn new(
        name: &str,
        part: &str,
        definition: &McpServerConfig,
        paths: &ServerPaths,
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
            paths: paths.clone(),
            questions: None,
            connection: tokio::sync::Mutex::default(),
        }
    }

    /// Lets the server ask the user.
    pub(crate) fn with_questions(self, questions: Option<Arc<UserQuestions>>) -> ConfiguredServer {
        ConfiguredServer { questions, ..self }
    }

    /// Returns the permitted tools, if the tools are known.
    pub fn known_tools(&self) -> Option<Vec<KnownTool>> {
        Some(self.allowed_tools(&self.known.current()?))
    }

    /// Whether its tools changed since the last call of this function.
    pub(crate) fn has_changed(&self) -> bool {
        self.known.has_news.swap(false, Ordering::SeqCst)
    }

    /// Returns the permitted tools; starts the server if they are not known.
    pub(crate) async fn tools(&self) -> Result<Vec<KnownTool>, String> {
        match self.known_tools() {
            Some(known) => Ok(known),
            None => self.start().await.map(|()| self.known_tools().unwrap_or_default()),
        }
    }

    /// Returns its tools by their full names.
    pub fn tools_by_name(&self, tools: &[KnownTool]) -> BTreeMap<String, KnownTool> {
        let names = name::tools(&self.part, tools.iter().map(|tool| tool.name.as_str()));
        names.into_iter().zip(tools.iter().cloned()).collect()
    }

    fn allowed_tools(&self, tools: &[KnownTool]) -> Vec<KnownTool> {
        let is_allowed = |tool: &&KnownTool| {
            self.definition.tools.is_empty() || self.allowed.is_match(tool.name.as_str())
        };
        tools.iter().filter(is_allowed).cloned().collect()
    }

    /// Starts the server unless it runs, and reads its tools.
    pub async fn start(&self) -> Result<(), String> {
        let mut connection = self.connection.lock().await;
        self.ensure_connected(&mut connection).await
    }

    /// Opens the connection if it is not open.
    async fn ensure_connected(&self, connection: &mut Option<McpConnection>) -> Result<(), String> {
        if connection.as_ref().is_some_and(McpConnection::is_open) {
            return Ok(());
        }
        // The process group of a dead server is killed first.
        *connection = None;
        let open_result = async {
            let (on_tools_changed, questions) =
                (self.tools_changed_callback(), self.questions.clone());
            let client = G3Client { on_tools_changed, questions };
            let open = connect::open(&self.definition, &self.part, &self.paths, client).await?;
            let tools = open.peer().list_all_tools().await;
            let tools = tools.map_err(|error| format!("it does not list its tools: {error}"))?;
            Ok::<_, String>((open, tools))
        };
        let (limit, start_time) = (self.limit(), Instant::now());
        let open_result = tokio::time::timeout(limit, open_result).await.unwrap_or_else(|_| {
            Err(format!("it did not start within {} s (`timeout_seconds`)", limit.as_secs()))
        });
        let (ms, server) = (start_time.elapsed().as_millis() as u64, &self.name);
        let tools = open_result.as_ref().ok().map(|(_, tools)| tools.len());
        tracing::info!(target: "g3::mcp", server, ok = open_result.is_ok(), ms, tools, "server started");
        let (open, tools) = open_result?;
        self.known.set(tools.into_iter().map(known_tool).collect(), &self.definition);
        *connection = Some(open);
        Ok(())
    }

    /// Requests the tools of a server that reports a change. If that fails, the known tools are
    /// kept.
    fn tools_changed_callback(&self) -> OnToolsChanged {
        let (list, definition, limit) = (self.known.clone(), self.definition.clone(), self.limit());
        Arc::new(move |peer| {
            list.changes.fetch_add(1, Ordering::SeqCst);
            // Regardless of the number of notifications, one task requests the tools, again if
            // necessary.
            let Some(is_learning) = Learning::begin(&list) else {
                return Box::pin(std::future::ready(()));
            };
            let definition = definition.clone();
            Box::pin(async move {
                let mut is_learning = Some(is_learning);
                while let Some(Learning(list)) = &is_learning {
                    let change = list.changes.load(Ordering::SeqCst);
                    let tools = tokio::time::timeout(limit, peer.list_all_tools()).await;
                    if list.changes.load(Ordering::SeqCst) != change {
                        tokio::time::sleep(DEBOUNCE).await;
                        continue;
                    }
                    if let Ok(Ok(tools)) = tools {
                        list.set(tools.into_iter().map(known_tool).collect(), &definition);
                        list.has_news.store(true, Ordering::SeqCst);
                    }
                    let list = list.clone();
                    drop(is_learning.take());
                    // A notification may have arrived before the end was recorded.
                    if list.changes.load(Ordering::SeqCst) != change {
                        is_learning = Learning::begin(&list);
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
        let (loss, is_harmless) = match self.attempt(tool, args.clone(), cancel).await {
            Ok(output) => return Ok(output),
            Err(CallLost::ToolError(trouble)) => return Err(trouble),
            Err(CallLost::Died(loss)) => (loss, tool.repeatable),
            Err(CallLost::Unsent(loss)) => (Some(loss), true),
        };
        let exit_reason = self.close_lost(loss).await;
        if is_harmless {
            match self.attempt(tool, args, cancel).await {
                Ok(output) => return Ok(output),
                Err(CallLost::ToolError(trouble)) => return Err(trouble),
                Err(CallLost::Died(loss)) => self.close_lost(loss).await,
                Err(CallLost::Unsent(loss)) => self.close_lost(Some(loss)).await,
            };
        }
        let restart = match self.start().await {
            Ok(()) => "it is there again".to_owned(),
            Err(loss) => format!("it could not be started again: {loss}"),
        };
        Err(ToolError::failed(format!(
            "the MCP server `{}` was lost during the call ({exit_reason}); whether the call was carried \
             out is not known; {restart}",
            self.name
        )))
    }

    /// Calls a tool once, again with the user's answers if the server asks for them.
    async fn attempt(
        &self,
        tool: &KnownTool,
        args: JsonObject,
        cancel: &CancellationToken,
    ) -> Result<CallToolResult, CallLost> {
        if let Some(questions) = &self.questions {
            questions.begin_call(cancel);
        }
        let mut params = CallToolRequestParams::new(tool.name.clone()).with_arguments(args);
        for _ in 0..MAX_QUESTION_ROUNDS {
            let asked = match self.exchange(params.clone(), cancel).await? {
                CallToolResponse::Complete(result) => return Ok(result),
                CallToolResponse::InputRequired(asked) => asked,
                _ => return Err(self.lacks_capability()),
            };
            let Some(questions) = &self.questions else { return Err(self.lacks_capability()) };
            let answers = questions.answer_all(&asked).await;
            let answers = answers.map_err(|error| {
                CallLost::ToolError(ToolError::failed(format!("`{}`: {error}", self.name)))
            })?;
            params.input_responses = Some(answers);
            params.request_state = asked.request_state;
        }
        let text = format!("`{}` asked {MAX_QUESTION_ROUNDS} times", self.name);
        Err(CallLost::ToolError(ToolError::failed(text)))
    }

    /// Sends a request and waits for its response.
    async fn exchange(
        &self,
        params: CallToolRequestParams,
        cancel: &CancellationToken,
    ) -> Result<CallToolResponse, CallLost> {
        let request = tokio::select! {
            request = self.send(params) => request?,
            () = cancel.cancelled() => return Err(CallLost::ToolError(cancelled())),
        };
        let mut request = request;
        let limit = async {
            match &self.questions {
                Some(questions) => questions.sleep(self.limit()).await,
                None => tokio::time::sleep(self.limit()).await,
            }
        };
        let error = tokio::select! {
            response = &mut request.rx => {
                return self.to_output(response.unwrap_or(Err(ServiceError::TransportClosed)));
            }
            () = cancel.cancelled() => cancelled(),
            () = limit => self.timeout_error(),
        };
        let reason = Some(base::text::head(&error.text, 200).to_owned());
        let _ = tokio::time::timeout(CANCEL_TIMEOUT, request.cancel(reason)).await;
        Err(CallLost::ToolError(error))
    }

    fn lacks_capability(&self) -> CallLost {
        let text = format!("`{}` requires a capability that g3 does not have", self.name);
        CallLost::ToolError(ToolError::failed(text))
    }

    fn timeout_error(&self) -> ToolError {
        let text = format!(
            "no answer within {} s (`timeout_seconds` of [mcp.{}]); the request was cancelled",
            self.definition.timeout_seconds, self.name
        );
        ToolError::new(ToolErrorKind::Timeout, text)
    }

    async fn send(&self, params: CallToolRequestParams) -> Result<Sent, CallLost> {
        let mut connection = self.connection.lock().await;
        self.ensure_connected(&mut connection).await.map_err(|error| {
            let text = format!("the MCP server `{}` cannot be started: {error}", self.name);
            CallLost::ToolError(ToolError::failed(text))
        })?;
        let Some(open_connection) = connection.as_ref() else { return Err(CallLost::Died(None)) };
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        let options = PeerRequestOptions::no_options();
        open_connection
            .peer()
            .send_cancellable_request(request, options)
            .await
            .map_err(|_| CallLost::Died(None))
    }

    fn to_output(
        &self,
        answer: Result<ServerResult, ServiceError>,
    ) -> Result<CallToolResponse, CallLost> {
        let failed = |text: String| Err(CallLost::ToolError(ToolError::failed(text)));
        match answer {
            Ok(ServerResult::CallToolResult(answer)) => Ok(CallToolResponse::Complete(answer)),
            Ok(ServerResult::InputRequiredResult(asked)) => {
                Ok(CallToolResponse::InputRequired(asked))
            }
            Ok(_) => Err(self.lacks_capability()),
            Err(ServiceError::TransportClosed) => Err(CallLost::Died(None)),
            // Over HTTP a request may have arrived although its answer did not.
            Err(ServiceError::TransportSend(error)) if self.definition.url.is_some() => {
                Err(CallLost::Died(Some(error.error.to_string())))
            }
            Err(ServiceError::TransportSend(error)) => {
                Err(CallLost::Unsent(error.error.to_string()))
            }
            Err(ServiceError::McpError(error)) => failed(error.message.into_owned()),
            Err(error) => failed(error.to_string()),
        }
    }

    /// Drops a connection that broke or did not carry a message, since a new one may work (with a
    /// fresh token, for example). Returns how it ended.
    async fn close_lost(&self, known_reason: Option<String>) -> String {
        let mut connection = self.connection.lock().await;
        let exit_reason = match connection.take() {
            Some(open) if open.is_open() && known_reason.is_none() => {
                *connection = Some(open);
                None
            }
            Some(mut lost) => lost.exit_reason().await,
            None => None,
        };
        tracing::warn!(target: "g3::mcp", server = self.name, "server lost");
        exit_reason.or(known_reason).unwrap_or_else(|| "the connection broke".to_owned())
    }

    /// Stops it, if it runs.
    pub async fn close(&self) {
        // A server that is still starting is stopped through its handle.
        let open_connection =
            self.connection.try_lock().ok().and_then(|mut connection| connection.take());
        if let Some(open_connection) = open_connection {
            open_connection.close().await;
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

fn known_tool(tool: Tool) -> KnownTool {
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
        description: base::text::head(&description, MAX_DESCRIPTION).to_owned(),
        parameters,
        repeatable: hints.read_only_hint == Some(true) || hints.idempotent_hint == Some(true),
    }
}
