//! `studio mcp serve`: lets other agents and editors list, start, direct and land sessions, over
//! the Model Context Protocol on stdin and stdout. Each tool runs a command of studio.

mod tools;

use std::collections::BTreeMap;

use base::failure::{OrFail, Result};
use clap::Subcommand;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ElicitRequest,
    ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema, Implementation,
    InputRequest, InputRequiredResult, JsonObject, ListToolsResult, PaginatedRequestParams,
    ProtocolVersion, ServerCapabilities, ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt};
use serde_json::{Value, json};

use crate::commands::context::{CommandContext, CommonArgs};
use crate::commands::mcp::tools::{StudioTool, TOOLS, ToolEffect};
use crate::commands::subcommand::{SubcommandOutput, SubcommandRunner};

/// The key of the question in a request for input, and of the answer.
const APPROVAL: &str = "approval";

/// The command line of `mcp`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// What to do
    #[command(subcommand)]
    pub verb: McpVerb,
}

/// The commands of `mcp`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum McpVerb {
    /// Serve studio's commands as tools to another agent, on stdin and stdout
    #[command(
        after_help = "Examples:\n  claude mcp add studio -- studio -C ~/src/repo mcp serve\n  codex mcp add studio -- studio -C ~/src/repo mcp serve"
    )]
    Serve,
}

/// Runs the command.
pub(crate) fn run(common: &CommonArgs, args: &Args) -> Result<u8> {
    match args.verb {
        McpVerb::Serve => {}
    }
    // A directory without a repository is reported now, not by each call.
    CommandContext::open(&CommonArgs { json: true, ..common.clone() })?;
    let handler = StudioServer { runner: SubcommandRunner::new(common)? };
    let runtime = base::runtime::current_thread().or_fail(|| "cannot start the runtime")?;
    runtime.block_on(async {
        let pipes = (tokio::io::stdin(), tokio::io::stdout());
        let running =
            handler.serve(pipes).await.or_fail(|| "the client did not complete the handshake")?;
        running.waiting().await.or_fail(|| "the connection broke")
    })?;
    Ok(0)
}

/// The server.
struct StudioServer {
    runner: SubcommandRunner,
}

impl ServerHandler for StudioServer {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("studio", env!("CARGO_PKG_VERSION")))
            .with_instructions(
                "Coding agent sessions on one git repository, each in a worktree of its own. `run` \
                 starts them, `status` and `diff` show their work, `accept` lands it after the \
                 user has agreed.",
            )
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> std::result::Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(TOOLS.iter().map(StudioTool::definition).collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> std::result::Result<CallToolResponse, ErrorData> {
        let Some(tool) = tools::find(&request.name) else {
            return Err(ErrorData::invalid_params(format!("unknown tool: {}", request.name), None));
        };
        let arguments = request.arguments.clone().unwrap_or_default();
        let command = match tool.command_line(&arguments) {
            Ok(command) => command,
            Err(why) => return Ok(error_result(&why).into()),
        };
        if tool.effect == ToolEffect::Asks {
            let response = self.approve(tool, &arguments, &request, &context).await?;
            if let Some(response) = response {
                return Ok(response);
            }
        }
        let result = tokio::select! {
            output = self.runner.run_async(&command) => match output {
                Ok(output) => command_result(&output),
                Err(failure) => error_result(&failure.to_string()),
            },
            () = context.ct.cancelled() => error_result("cancelled"),
        };
        Ok(result.into())
    }
}

impl StudioServer {
    /// Asks the user, and returns the response that ends the call; `None` if the user agrees. The
    /// client shows the question: up to protocol 2025-11-25 by a request of the server, from
    /// 2026-07-28 on by an intermediate result (SEP-2322).
    async fn approve(
        &self,
        tool: &StudioTool,
        arguments: &JsonObject,
        request: &CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> std::result::Result<Option<CallToolResponse>, ErrorData> {
        let question = match self.question(tool, arguments).await {
            Ok(question) => question,
            Err(result) => return Ok(Some(result.into())),
        };
        let capabilities = context.client_capabilities();
        if capabilities.is_none_or(|capabilities| capabilities.elicitation.is_none()) {
            let id = arguments.get("id").and_then(Value::as_str).unwrap_or("ID");
            return Ok(denied(&format!(
                "this client cannot ask the user; the user can run: studio {} {id}",
                tool.name
            )));
        }
        let params = ElicitRequestParams::FormElicitationParams {
            meta: None,
            message: question.clone(),
            requested_schema: ElicitationSchema::builder()
                .required_bool(APPROVAL)
                .build()
                .map_err(|e| ErrorData::internal_error(e, None))?,
        };
        let is_stateless = context
            .protocol_version()
            .is_some_and(|version| version >= ProtocolVersion::V_2026_07_28);
        let answer = if is_stateless {
            let answer = request.input_responses.as_ref().and_then(|all| all.get(APPROVAL));
            // An answer to another question does not count: the work has changed since.
            match answer.filter(|_| request.request_state.as_ref() == Some(&question)) {
                Some(answer) => serde_json::from_value::<ElicitResult>(answer.clone())
                    .map_err(|e| ErrorData::invalid_params(e.to_string(), None))?,
                None => {
                    let asked = InputRequest::Elicitation(ElicitRequest::new(params));
                    let requests = BTreeMap::from([(APPROVAL.to_owned(), asked)]);
                    let response = InputRequiredResult::new(Some(requests), Some(question));
                    return Ok(Some(response.into()));
                }
            }
        } else {
            let answer = context.peer.create_elicitation(params).await;
            answer.map_err(|e| ErrorData::internal_error(e.to_string(), None))?
        };
        let content = answer.content.unwrap_or_default();
        if answer.action != ElicitationAction::Accept || content[APPROVAL] != json!(true) {
            return Ok(denied("the user did not agree"));
        }
        match self.question(tool, arguments).await {
            Ok(current) if current == question => Ok(None),
            Ok(_) => Ok(denied("the session changed while the user was asked; call again")),
            Err(result) => Ok(Some(result.into())),
        }
    }

    /// Returns the question for the user, with the current state of the session.
    async fn question(
        &self,
        tool: &StudioTool,
        arguments: &JsonObject,
    ) -> std::result::Result<String, CallToolResult> {
        let id = arguments.get("id").and_then(Value::as_str).unwrap_or_default();
        let command = ["status".to_owned(), id.to_owned()];
        let output = match self.runner.run_async(&command).await {
            Ok(output) => output,
            Err(failure) => return Err(error_result(&failure.to_string())),
        };
        match output.ok {
            true => Ok(question(tool, arguments, output.json())),
            false => Err(command_result(&output)),
        }
    }
}

/// Formats the question whether a session may be landed or discarded.
fn question(tool: &StudioTool, arguments: &JsonObject, session: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let count = |key: &str| session[key].as_u64().unwrap_or(0);
    let id = text(&session["id"]);
    let (files, insertions, deletions) =
        (count("files_changed"), count("insertions"), count("deletions"));
    let mut lines = vec![match tool.name {
        "accept" => {
            let onto = arguments.get("onto").map_or(&session["base"]["branch"], |onto| onto);
            format!("Land session {id} on {}?", onto.as_str().unwrap_or("its branch"))
        }
        name => format!("{}{} session {id}?", name[..1].to_uppercase(), &name[1..]),
    }];
    lines.push(format!("Task: {}", base::text::head(&text(&session["task"]), 500)));
    lines.push(format!("State: {}: {}", text(&session["state"]), text(&session["why"])));
    lines.push(format!(
        "Changes: {files} files +{insertions} -{deletions}, last change {}",
        text(&session["updated_at"])
    ));
    if let Some(message) = arguments.get("message").and_then(Value::as_str) {
        lines.push(format!("Message: {message}"));
    }
    base::text::printable(&lines.join("\n"))
}

fn denied(why: &str) -> Option<CallToolResponse> {
    Some(error_result(why).into())
}

fn error_result(text: &str) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(text)])
}

/// Returns the result of a command: its JSON, or its error as text.
fn command_result(output: &SubcommandOutput) -> CallToolResult {
    match (output.ok, output.values()) {
        (false, []) => error_result(output.stderr.trim()),
        (false, _) => error_result(&format!("{}\n{}", output.stderr.trim(), output.json())),
        (true, [value]) => CallToolResult::structured(value.clone()),
        (true, values) => CallToolResult::structured(json!({ "sessions": values })),
    }
}
