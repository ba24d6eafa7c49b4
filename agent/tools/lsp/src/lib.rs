//! Language servers: the `lsp` tool, which finds definitions, references, symbols and calls, and
//! the errors of a file after an edit.

pub mod client;
pub mod connection;
pub mod diagnostics_on_edit;
pub mod document;
pub mod operation;
pub mod pool;
pub mod position;
pub mod render;
pub mod servers;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use self::client::LspClient;
use self::connection::RequestError;
use self::operation::{LspOperation, LspRequest};
use self::pool::{LspPool, ServerKey};
use self::render::AnswerRenderer;
use tools::call::Invocation;
use tools::kind::Effect;
use tools::output::{ToolError, ToolErrorKind, ToolOutput};
use tools::services::LanguageServers;
use tools::tool::{CallScope, Tool, ToolFuture, ToolSpec};

/// Maximum number of functions at one position whose calls are reported.
const FUNCTIONS: usize = 5;

/// The `lsp` tool: asks a language server.
pub(crate) struct LspTool;

impl Tool for LspTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new("lsp", Effect::Looks)
    }

    fn scope(&self, call: &Invocation<'_>) -> CallScope {
        CallScope::reading(vec![call.path.clone()])
    }

    fn call<'a>(&'a self, call: &'a Invocation<'_>) -> ToolFuture<'a> {
        match &call.context.services.lsp {
            Some(servers) => servers.query(call),
            None => Box::pin(async { LspPool::default().answer(call).await }),
        }
    }
}

impl LspPool {
    /// Asks a language server. If there is none, or it fails, the result says what to do.
    async fn answer(&self, call: &Invocation<'_>) -> Result<ToolOutput, ToolError> {
        let question = LspRequest::of(call)?;
        let text = text(call)?;
        question.check(&text, &call.display_own_path())?;
        let wanted = match self.find(&call.path, call.context) {
            Ok(wanted) => wanted,
            Err(error) => return Ok(unavailable(&error)),
        };
        let started =
            call.context.cancel.run_until_cancelled(self.start(&wanted, call.context)).await;
        let client = match started.ok_or_else(cancelled)? {
            Ok(client) => client,
            Err(error) => return Ok(unavailable(&cannot(&wanted, &error))),
        };
        synchronize(&client, call, &wanted, &text);
        let (method, capability) = question.operation.method();
        if !client.can(method, capability) {
            let name = &wanted.language.name;
            let what = call.text("operation");
            return Ok(unavailable(&format!(
                "The language server `{name}` does not offer `{what}`"
            )));
        }
        let asked =
            call.context.cancel.run_until_cancelled(ask(&client, call, &question, &text)).await;
        match asked.ok_or_else(cancelled)? {
            Ok(answer) => Ok(rendered(&client, call, &question, &answer)),
            Err(RequestError::Gone(error)) => {
                let reason = client.end_of_it(&error).await;
                self.mark_broken(&client, &reason);
                Ok(unavailable(&cannot(&wanted, &reason)))
            }
            Err(RequestError::Late) => Ok(unavailable(&format!(
                "The language server `{}` did not answer within {} s; [lsp.{0}] timeout_seconds gives \
                 it longer",
                wanted.language.name,
                wanted.language.timeout().as_secs()
            ))),
            Err(RequestError::Refused { message, .. }) => Ok(unavailable(&format!(
                "The language server `{}` refused: {}",
                wanted.language.name,
                base::text::head(&base::text::printable(&message), 1_000)
            ))),
        }
    }
}

impl LanguageServers for LspPool {
    fn query<'a>(&'a self, call: &'a Invocation<'_>) -> ToolFuture<'a> {
        Box::pin(self.answer(call))
    }

    fn after_edit<'a>(
        &'a self,
        call: &'a Invocation<'_>,
        files: &'a [PathBuf],
        output: ToolOutput,
    ) -> BoxFuture<'a, ToolOutput> {
        Box::pin(diagnostics_on_edit::with_errors(self, call, files, output))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.end())
    }
}

fn cancelled() -> ToolError {
    ToolError::new(ToolErrorKind::Cancelled, "cancelled by the user")
}

/// Returns a result without an answer. It is not an error, so the model continues without one.
fn unavailable(reason: &str) -> ToolOutput {
    ToolOutput::success(reason).with(json!({ "available": false, "count": 0 }))
}

fn cannot(wanted: &ServerKey<'_>, reason: &str) -> String {
    let language = wanted.language;
    let install = match language.install.is_empty() {
        true => String::new(),
        false => format!("; to install it: {}", language.install),
    };
    format!(
        "The language server `{}` (`{}`) cannot be used in this session: {reason}{install}",
        language.name, language.command
    )
}

/// Returns the text of the file for a server; fails if it is too large or not UTF-8.
fn text(call: &Invocation<'_>) -> Result<String, ToolError> {
    let failed = |error: &io::Error| ToolError::io(&call.display_own_path(), error);
    let bytes = call.load(&call.path).map_err(|error| failed(&error))?.bytes;
    if bytes.len() as u64 > document::LARGEST {
        let reason = format!("{} is too large for a language server", call.display_own_path());
        return Err(ToolError::failed(reason));
    }
    String::from_utf8(bytes)
        .map_err(|_| ToolError::failed(format!("{} is not UTF-8 text", call.display_own_path())))
}

/// Sends this file, and the files that changed elsewhere, to the server.
fn synchronize(client: &LspClient, call: &Invocation<'_>, wanted: &ServerKey<'_>, text: &str) {
    let mut known = base::sync::lock(&client.documents);
    known.refresh(client);
    known.update(client, &call.path, wanted.id, text);
}

async fn ask(
    client: &Arc<LspClient>,
    call: &Invocation<'_>,
    question: &LspRequest,
    text: &str,
) -> Result<Value, RequestError> {
    let (method, _) = question.operation.method();
    let document = json!({ "uri": document::of(&call.path) });
    let position = client.encoding.to_server(text, question.position);
    let params = match question.operation {
        LspOperation::WorkspaceSymbol => json!({ "query": question.query }),
        LspOperation::Symbols => json!({ "textDocument": document }),
        LspOperation::References => json!({
            "textDocument": document,
            "position": position,
            "context": { "includeDeclaration": question.with_declaration },
        }),
        LspOperation::Definition
        | LspOperation::Hover
        | LspOperation::Implementation
        | LspOperation::CallHierarchy
        | LspOperation::IncomingCalls
        | LspOperation::OutgoingCalls => json!({ "textDocument": document, "position": position }),
    };
    let answer = client.ask(method, params).await?;
    let calls = match question.operation {
        LspOperation::IncomingCalls => "callHierarchy/incomingCalls",
        LspOperation::OutgoingCalls => "callHierarchy/outgoingCalls",
        LspOperation::Definition
        | LspOperation::References
        | LspOperation::Symbols
        | LspOperation::Hover
        | LspOperation::WorkspaceSymbol
        | LspOperation::Implementation
        | LspOperation::CallHierarchy => return Ok(answer),
    };
    let mut all = Vec::new();
    for item in answer.as_array().into_iter().flatten().take(FUNCTIONS) {
        let response = client.ask(calls, json!({ "item": item })).await?;
        all.extend(response.as_array().into_iter().flatten().cloned());
    }
    Ok(Value::Array(all))
}

fn rendered(
    client: &LspClient,
    call: &Invocation<'_>,
    question: &LspRequest,
    answer: &Value,
) -> ToolOutput {
    let rendered = AnswerRenderer::new(client, call).render(question.operation, answer);
    let mut text = rendered.text;
    if rendered.count == 0 {
        question.operation.nothing().clone_into(&mut text);
        if client.reads() {
            text.push_str(&format!(
                " (the language server `{}` is still reading the project: ask again later)",
                client.name
            ));
        }
    }
    let metadata =
        json!({ "count": rendered.count, "locations": rendered.places, "server": client.name });
    ToolOutput::success(text).with(metadata)
}

/// The tools of this crate.
pub const TOOLS: &[&dyn Tool] = &[&LspTool];
