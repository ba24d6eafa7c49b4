//! Runs a call through the layers around its tool, in this order: the restrictions of active
//! skills, the gate, the editor buffers, the tool itself, the errors that language servers report
//! after an edit, the limit and format of the result, the history.

use std::panic::AssertUnwindSafe;
use std::time::Instant;

use futures_util::FutureExt;
use serde_json::{Value, json};

use super::call::{self, Invocation};
use super::context::ToolContext;
use super::kind::{Effect, ToolKind};
use super::output::{ToolError, ToolErrorKind, ToolOutput};
use super::profile::lookup::{self, NamedTool};
use super::profile::{OutputStyle, Profile};
use super::registry::Registry;
use super::tool::ToolSpec;
use super::{history, result_limit, skill_permissions};
use gate::{Access, AccessDenied, AccessRequest, Permit, Preview};

/// Runs a call. All errors are reported in the [`ToolOutput`].
pub async fn run(profile: Profile, name: &str, args: &Value, context: &ToolContext) -> ToolOutput {
    if let Some(external) = context.mcp.as_ref().filter(|external| external.owns(name)) {
        let mut outcome = external.run(name, args, context).await;
        result_limit::shorten(&mut outcome, context);
        return outcome;
    }
    let started = Instant::now();
    let mut call = match call::prepare(profile, name, args, context) {
        Ok(call) => call,
        Err(rejection) => return *rejection,
    };
    let outcome = match check_permission(&mut call).await {
        Ok(()) => add_diagnostics(&call, run_catching_panics(&call).await).await,
        Err(rejection) => rejection,
    };
    let outcome = finish(&call, outcome);
    context.memory.novelty.add(call.discovery().filter(|_| outcome.ok));
    history::record(context, call.spec(), name, args, &outcome, started.elapsed());
    outcome
}

/// Checks the call against the active skills and the gate. The error is the result for the model.
async fn check_permission(call: &mut Invocation<'_>) -> Result<(), ToolOutput> {
    if let Some(reason) = skill_permissions::refusal(call) {
        return Err(ToolOutput::failed(ToolErrorKind::Denied, reason));
    }
    // A gate that panics denies the call.
    let check = AssertUnwindSafe(call.context.cancel.run_until_cancelled(admit(call)));
    let check = check.catch_unwind().await;
    match check {
        Ok(Some(Ok(permit))) => {
            call.permit = permit;
            Ok(())
        }
        Ok(Some(Err(denied))) => {
            let kind =
                if denied.timed_out { ToolErrorKind::Timeout } else { ToolErrorKind::Denied };
            Err(ToolOutput::failed(kind, denied.reason))
        }
        Ok(None) => Err(ToolOutput::failed(ToolErrorKind::Cancelled, "cancelled by the user")),
        Err(panic) => {
            let message = panic_message(panic.as_ref());
            let text = format!("not run: the gate could not judge this call: {message}");
            Err(ToolOutput::not_run(ToolErrorKind::Failed, text))
        }
    }
}

async fn admit(call: &Invocation<'_>) -> Result<Permit, AccessDenied> {
    let mut permit = Permit::Unconfined;
    let preview = || call.preview();
    for access in &call.scope().access {
        let writes = matches!(access, Access::Write(_));
        let request = AccessRequest {
            tool: &call.profile_tool.name,
            root: &call.context.root,
            session_dir: &call.context.session_dir,
            access,
            preview: writes.then_some(Preview(&preview)),
        };
        // The strictest permission applies to all.
        permit = permit.max(call.context.gate.admit(&request).await?);
    }
    Ok(permit)
}

/// Runs the tool. A panic in the tool is reported as its failure.
async fn run_catching_panics(call: &Invocation<'_>) -> ToolOutput {
    match AssertUnwindSafe(run_with_editor(call)).catch_unwind().await {
        Ok(Ok(outcome)) => {
            let diff = call.take_diff().filter(|_| outcome.ok);
            ToolOutput { diff: diff.map(|diff| truncate_diff(diff, DIFF_BYTES)), ..outcome }
        }
        Ok(Err(error)) => error.into(),
        Err(panic) => {
            let message = panic_message(panic.as_ref());
            let text =
                format!("Tool execution error: `{}` broke down: {message}", call.profile_tool.name);
            ToolOutput::failed(ToolErrorKind::Failed, text)
        }
    }
}

/// Runs the tool on the files as open in an editor.
async fn run_with_editor(call: &Invocation<'_>) -> Result<ToolOutput, ToolError> {
    let Some(client) = &call.context.client_io else { return call.start().await };
    let files = &call.scope().files;
    for file in files {
        call.editor_buffers().load_from_client(client.as_ref(), file).await;
    }
    let outcome = call.start().await?;
    for file in files {
        let result = call.editor_buffers().flush(client.as_ref(), file).await;
        result.map_err(|error| {
            ToolError::io(&format!("cannot write {}", call.display_path(file)), &error)
        })?;
    }
    Ok(outcome)
}

/// Adds the errors that language servers report in the written files.
async fn add_diagnostics(call: &Invocation<'_>, outcome: ToolOutput) -> ToolOutput {
    let written = outcome.ok && call.spec().effect == Effect::Writes;
    match &call.context.services.lsp {
        Some(servers) if written => servers.after_edit(call, &call.scope().files, outcome).await,
        Some(_) | None => outcome,
    }
}

/// Formats the outcome for the profile and adds the notes.
fn finish(call: &Invocation<'_>, mut outcome: ToolOutput) -> ToolOutput {
    if call.profile_tool.style == OutputStyle::Core {
        match outcome.metadata {
            Value::Object(_) | Value::Array(_) => {
                result_limit::shorten_fields(&mut outcome, call.context);
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                result_limit::shorten(&mut outcome, call.context);
            }
        }
        return finish_core(call, outcome);
    }
    result_limit::shorten(&mut outcome, call.context);
    for note in call.notes() {
        outcome.text.push_str(&format!("\n[note: {note}]"));
    }
    outcome
}

/// Formats the outcome for the core tools: a JSON object with a `status`.
fn finish_core(call: &Invocation<'_>, mut outcome: ToolOutput) -> ToolOutput {
    if !outcome.metadata.is_object() && !outcome.metadata.is_array() {
        let status = match outcome.error_kind {
            None => "success",
            Some(ToolErrorKind::Denied) => "rejected",
            Some(ToolErrorKind::Cancelled) => "cancelled",
            Some(ToolErrorKind::Timeout) => "timeout",
            Some(
                ToolErrorKind::Validation
                | ToolErrorKind::NotFound
                | ToolErrorKind::UnknownTool
                | ToolErrorKind::Failed,
            ) => "error",
        };
        outcome.metadata = json!({ "status": status, "description": outcome.text });
    }
    if let Some(object) = outcome.metadata.as_object_mut()
        && !call.notes().is_empty()
    {
        object.insert("ignored".to_owned(), json!(call.notes()));
    }
    outcome.text = match outcome.metadata.as_object() {
        // The image is only for people.
        Some(object) if object.contains_key("image_b64") => {
            let mut object = object.clone();
            object.remove("image_b64");
            Value::Object(object).to_string()
        }
        Some(_) | None => outcome.metadata.to_string(),
    };
    outcome
}

/// Maximum size in bytes of a diff in the metadata.
const DIFF_BYTES: usize = 32 << 10;

/// Truncates a diff at the end of a line and marks the truncation.
fn truncate_diff(diff: String, max_bytes: usize) -> String {
    if diff.len() <= max_bytes {
        return diff;
    }
    let head = base::text::head(&diff, max_bytes);
    let head = head.rsplit_once('\n').map_or("", |(lines, _)| lines);
    let omitted = diff.lines().count() - head.lines().count();
    format!("{head}\n[{} left out]\n", base::text::count(omitted, "line"))
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason given")
}

/// Returns the kind of the tool that a call refers to, or `None` if there is none.
pub fn kind(profile: Profile, name: &str, args: &Value) -> Option<ToolKind> {
    match lookup::find(profile, name, args) {
        NamedTool::One(tool) => Some(tool.kind),
        NamedTool::Several(_) | NamedTool::None(_) => None,
    }
}

/// Returns the specification of the tool that a call (name and arguments) refers to.
pub fn spec(
    profile: Profile,
    (name, args): (&str, &Value),
    registry: &Registry,
) -> Option<ToolSpec> {
    Some(registry.tool(kind(profile, name, args)?)?.spec())
}

/// Returns what a call would discover, as a unique name: a file, a command.
pub fn discovery(
    profile: Profile,
    name: &str,
    args: &Value,
    context: &ToolContext,
) -> Option<String> {
    call::prepare(profile, name, args, context).ok()?.discovery()
}

/// Returns the keys of the resources that a call uses (files, shell sessions). Calls with a common
/// key run in order.
pub fn resource_keys(
    profile: Profile,
    name: &str,
    args: &Value,
    context: &ToolContext,
) -> Vec<String> {
    call::prepare(profile, name, args, context)
        .map(|call| call.scope().keys.clone())
        .unwrap_or_default()
}
