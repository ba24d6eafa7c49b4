//! A real MCP server on stdin and stdout, with configurable behavior: normal, slow, or faulty.
//!
//! `mcp-server [--pids FILE] [--wait FILE] [--broken] [--many N] [--stateless]`: writes its process
//! id, waits for a file before it answers, exits immediately, has N additional tools, or refuses a
//! handshake, as servers may since protocol 2026-07-28.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it misbehaves on purpose")]

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::error::Error;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ElicitRequest,
    ElicitRequestParams, Implementation, InputRequest, InputRequiredResult, JsonObject,
    ListToolsResult, PaginatedRequestParams, ProtocolVersion, Resource, ServerCapabilities,
    ServerConfig, ServerNotification, SubscriptionFilter, Tool, ToolAnnotations,
    ToolListChangedNotification,
};
use rmcp::service::{RequestContext, SubscriptionContext, SubscriptionSink};
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt};
use serde_json::{Value, json};

/// An image of one pixel.
const PIXEL: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/// The tools: name, description, parameters, and whether they are idempotent.
const TOOLS: &[(&str, &str, &[&str], bool)] = &[
    ("echo", "Says what it is told.", &["text"], true),
    ("env", "Tells one variable of its environment.", &["name"], true),
    ("image", "Gives a picture.", &[], true),
    ("fail", "Fails.", &[], false),
    ("die", "Ends the server in the middle of the call.", &[], false),
    ("die_once", "Ends the server unless the file is there.", &["marker"], true),
    ("huge", "Gives that many bytes.", &["bytes"], true),
    ("noise", "Writes what is no JSON to stdout, then answers.", &[], true),
    ("hang", "Answers never; writes the file when it is cancelled.", &["marker"], false),
    ("structured", "Gives a number, structured.", &[], true),
    ("change", "Gives the server the tool `fresh` instead of `image`, and says so.", &[], false),
    ("flood", "Says many times that its tools are others.", &["times"], false),
    ("ask", "Asks the user, and says what was answered.", &[], false),
    ("lists", "Says how often it was asked for its tools.", &[], true),
    ("dotted.name", "Has a name that not every wire takes.", &[], true),
];

struct Server {
    many: usize,
    /// Whether its tools have changed since its start.
    changed: AtomicBool,
    /// Number of tool list requests.
    lists: AtomicU32,
    /// The versions that it accepts.
    versions: Vec<ProtocolVersion>,
    /// A client without a handshake that wants to know of changes.
    subscription: Mutex<Option<SubscriptionSink>>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let mut many = 0;
    let mut versions = ProtocolVersion::KNOWN_VERSIONS.to_vec();
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or("the flag wants a value");
        match arg.as_str() {
            "--pids" => append(Path::new(&value()?), &std::process::id().to_string())?,
            "--wait" => wait_for(&PathBuf::from(value()?)),
            "--many" => many = value()?.parse()?,
            "--stateless" => versions = vec![ProtocolVersion::LATEST],
            "--broken" => {
                eprintln!("there is no configuration for me");
                std::process::exit(7);
            }
            other => return Err(format!("no flag {other}").into()),
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let pipes = (tokio::io::stdin(), tokio::io::stdout());
        let (changed, lists) = (AtomicBool::default(), AtomicU32::default());
        let server = Server { many, changed, lists, versions, subscription: Mutex::default() };
        server.serve(pipes).await?.waiting().await?;
        Ok(())
    })
}

fn append(file: &Path, line: &str) -> std::io::Result<()> {
    let mut file = std::fs::File::options().append(true).create(true).open(file)?;
    writeln!(file, "{line}")
}

fn wait_for(file: &Path) {
    while !file.exists() {
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

fn tool(name: String, about: &str, parameters: &[&str], repeatable: bool) -> Tool {
    let text = |name: &&str| ((*name).to_owned(), json!({ "type": "string" }));
    let properties: serde_json::Map<String, Value> = parameters.iter().map(text).collect();
    let schema = json!({ "type": "object", "properties": properties, "required": parameters });
    let schema: JsonObject = serde_json::from_value(schema).unwrap_or_default();
    let mut hints = ToolAnnotations::new();
    hints.idempotent_hint = Some(repeatable);
    Tool::new(name, about.to_owned(), Arc::new(schema)).with_annotations(hints)
}

impl Server {
    async fn tell_of_change(&self, context: &RequestContext<RoleServer>) -> Result<(), ErrorData> {
        let subscription = self.subscription.lock().map_err(failed)?.clone();
        match subscription {
            Some(sink) => {
                let change = ToolListChangedNotification::default();
                let sent = sink.send(ServerNotification::ToolListChangedNotification(change));
                sent.await.map_err(failed)
            }
            None => context.peer.notify_tool_list_changed().await.map_err(failed),
        }
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let capabilities =
            ServerCapabilities::builder().enable_tools().enable_tool_list_changed().build();
        ServerConfig::new(capabilities).with_server_info(Implementation::new("testkit", "1"))
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Owned(self.versions.clone())
    }

    fn accepted_subscription_filter(
        &self,
        asked: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        Some(asked.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        *self.subscription.lock().map_err(failed)? = Some(context.sink().clone());
        context.cancelled().await;
        Ok(())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        self.lists.fetch_add(1, Ordering::SeqCst);
        let own = TOOLS.iter().map(|(name, about, parameters, repeatable)| {
            tool((*name).to_owned(), about, parameters, *repeatable)
        });
        let more = (0..self.many)
            .map(|n| tool(format!("counter_{n}"), &format!("Counts sheep number {n}."), &[], true));
        let changed = self.changed.load(Ordering::SeqCst);
        let fresh = changed.then(|| tool("fresh".to_owned(), "Came in between.", &[], true));
        let own = own.filter(|tool| !(changed && tool.name == "image"));
        Ok(ListToolsResult::with_all_items(own.chain(fresh).chain(more).collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let args = Value::Object(request.arguments.unwrap_or_default());
        let text = |key: &str| args[key].as_str().unwrap_or_default().to_owned();
        let say = |text: String| CallToolResult::success(vec![ContentBlock::text(text)]);
        let mut answers = request.input_responses.unwrap_or_default();
        Ok(match request.name.as_ref() {
            "echo" => say(text("text")),
            "env" => say(std::env::var(text("name")).unwrap_or_else(|_| "unset".to_owned())),
            "image" => CallToolResult::success(vec![
                ContentBlock::text("here it is"),
                ContentBlock::image(PIXEL, "image/png"),
                ContentBlock::resource_link(Resource::new("file:///more", "more")),
            ]),
            "fail" => CallToolResult::error(vec![ContentBlock::text("it did not work")]),
            "die" => die(),
            "die_once" if !Path::new(&text("marker")).exists() => {
                let _ = append(Path::new(&text("marker")), "died");
                die()
            }
            "die_once" => say("alive again".to_owned()),
            "huge" => say("x".repeat(text("bytes").parse().unwrap_or(0))),
            "noise" => {
                println!("Starting up ... {{\"half\": \n\n[1, 2");
                say("after the noise".to_owned())
            }
            "hang" => {
                append(Path::new(&text("marker")), "begun").map_err(failed)?;
                context.ct.cancelled().await;
                append(Path::new(&text("marker")), "cancelled").map_err(failed)?;
                say("too late".to_owned())
            }
            "change" => {
                self.changed.store(true, Ordering::SeqCst);
                self.tell_of_change(&context).await?;
                say("I have other tools".to_owned())
            }
            "flood" => {
                for _ in 0..text("times").parse().unwrap_or(0) {
                    self.tell_of_change(&context).await?;
                }
                say("that was it".to_owned())
            }
            "ask" => match ask(&context, answers.remove("form")).await? {
                CallToolResponse::Complete(result) => result,
                asked => return Ok(asked),
            },
            "lists" => say(format!("asked {} times", self.lists.load(Ordering::SeqCst))),
            "structured" => {
                let mut result = CallToolResult::structured(json!({ "answer": 42 }));
                result.content.clear();
                result
            }
            name => say(format!("{name} was called")),
        }
        .into())
    }
}

/// Asks the user for a release, in the way of the client's protocol; `answer` is what the client sent
/// with its call.
async fn ask(
    context: &RequestContext<RoleServer>,
    answer: Option<Value>,
) -> Result<CallToolResponse, ErrorData> {
    let say = |text: String| CallToolResult::success(vec![ContentBlock::text(text)]);
    if let Some(answer) = answer {
        return Ok(say(answer.to_string()).into());
    }
    let capabilities = context.client_capabilities();
    if capabilities.is_none_or(|capabilities| capabilities.elicitation.is_none()) {
        return Ok(say("this client cannot ask".to_owned()).into());
    }
    let schema = json!({"type": "object", "required": ["branch", "count"], "properties": {
        "branch": {"type": "string", "minLength": 2, "description": "Where it lands."},
        "count": {"type": "integer", "minimum": 1},
        "sign": {"type": "boolean", "default": true},
    }});
    let params = ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: "Which release?".to_owned(),
        requested_schema: serde_json::from_value(schema).map_err(failed)?,
    };
    if context.protocol_version() >= Some(ProtocolVersion::V_2026_07_28) {
        let question = InputRequest::Elicitation(ElicitRequest::new(params));
        let questions = BTreeMap::from([("form".to_owned(), question)]);
        return Ok(InputRequiredResult::new(Some(questions), Some("asked".to_owned())).into());
    }
    let answer = context.peer.create_elicitation(params).await.map_err(failed)?;
    Ok(say(serde_json::to_value(answer).map_err(failed)?.to_string()).into())
}

fn die() -> ! {
    eprintln!("I am dying");
    std::process::exit(3)
}

fn failed(why: impl std::fmt::Display) -> ErrorData {
    ErrorData::internal_error(why.to_string(), None)
}
