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
pub async fn run(profile: Profile, name: &str, args: &Value, at: &ToolContext) -> ToolOutput {
    if let Some(external) = at.mcp.as_ref().filter(|external| external.owns(name)) {
        let mut outcome = external.run(name, args, at).await;
        result_limit::shorten(&mut outcome, at);
        return outcome;
    }
    let started = Instant::now();
    let mut call = match call::prepare(profile, name, args, at) {
        Ok(call) => call,
        Err(refused) => return *refused,
    };
    let outcome = match admitted(&mut call).await {
        Ok(()) => with_diagnostics(&call, caught(&call).await).await,
        Err(refused) => refused,
    };
    let outcome = finish(&call, outcome);
    at.memory.learnt.saw(call.finds_out().filter(|_| outcome.ok));
    history::record(at, call.spec(), name, args, &outcome, started.elapsed());
    outcome
}

/// Checks the call against the active skills and the gate. The error is the result for the model.
async fn admitted(call: &mut Invocation<'_>) -> Result<(), ToolOutput> {
    if let Some(why) = skill_permissions::refusal(call) {
        return Err(ToolOutput::failed(ToolErrorKind::Denied, why));
    }
    // A gate that panics denies the call.
    let asked = AssertUnwindSafe(call.at.cancel.run_until_cancelled(admit(call)));
    let asked = asked.catch_unwind().await;
    match asked {
        Ok(Some(Ok(pass))) => {
            call.pass = pass;
            Ok(())
        }
        Ok(Some(Err(refused))) => {
            let kind = if refused.late { ToolErrorKind::Timeout } else { ToolErrorKind::Denied };
            Err(ToolOutput::failed(kind, refused.why))
        }
        Ok(None) => Err(ToolOutput::failed(ToolErrorKind::Cancelled, "cancelled by the user")),
        Err(panic) => {
            let why = words_of(panic.as_ref());
            let text = format!("not run: the gate could not judge this call: {why}");
            Err(ToolOutput::not_run(ToolErrorKind::Failed, text))
        }
    }
}

async fn admit(call: &Invocation<'_>) -> Result<Permit, AccessDenied> {
    let mut pass = Permit::Unconfined;
    let preview = || call.preview();
    for access in &call.scope().access {
        let writes = matches!(access, Access::Write(_));
        let visitor = AccessRequest {
            tool: &call.face.name,
            root: &call.at.root,
            session_dir: &call.at.session_dir,
            access,
            preview: writes.then_some(Preview(&preview)),
        };
        // The strictest permission applies to all.
        pass = pass.max(call.at.gate.admit(&visitor).await?);
    }
    Ok(pass)
}

/// Runs the tool. A panic in the tool is reported as its failure.
async fn caught(call: &Invocation<'_>) -> ToolOutput {
    match AssertUnwindSafe(through_editor(call)).catch_unwind().await {
        Ok(Ok(outcome)) => {
            let diff = call.take_diff().filter(|_| outcome.ok);
            ToolOutput { diff: diff.map(|diff| at_most(diff, DIFF_BYTES)), ..outcome }
        }
        Ok(Err(error)) => error.into(),
        Err(panic) => {
            let why = words_of(panic.as_ref());
            let text = format!("Tool execution error: `{}` broke down: {why}", call.face.name);
            ToolOutput::failed(ToolErrorKind::Failed, text)
        }
    }
}

/// Runs the tool on the files as open in an editor.
async fn through_editor(call: &Invocation<'_>) -> Result<ToolOutput, ToolError> {
    let Some(outside) = &call.at.outside else { return call.start().await };
    let files = &call.scope().files;
    for file in files {
        call.held().ask(outside.as_ref(), file).await;
    }
    let outcome = call.start().await?;
    for file in files {
        let handed = call.held().hand_over(outside.as_ref(), file).await;
        handed.map_err(|why| ToolError::io(&format!("cannot write {}", call.shown(file)), &why))?;
    }
    Ok(outcome)
}

/// Adds the errors that language servers report in the written files.
async fn with_diagnostics(call: &Invocation<'_>, outcome: ToolOutput) -> ToolOutput {
    let written = outcome.ok && call.spec().effect == Effect::Writes;
    match &call.at.others.lsp {
        Some(servers) if written => servers.after_edit(call, &call.scope().files, outcome).await,
        Some(_) | None => outcome,
    }
}

/// Formats the outcome for the profile and adds the notes.
fn finish(call: &Invocation<'_>, mut outcome: ToolOutput) -> ToolOutput {
    if call.face.style == OutputStyle::Core {
        match outcome.metadata {
            Value::Object(_) | Value::Array(_) => {
                result_limit::shorten_fields(&mut outcome, call.at);
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                result_limit::shorten(&mut outcome, call.at);
            }
        }
        return finish_core(call, outcome);
    }
    result_limit::shorten(&mut outcome, call.at);
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
fn at_most(diff: String, most: usize) -> String {
    if diff.len() <= most {
        return diff;
    }
    let head = base::text::head(&diff, most);
    let head = head.rsplit_once('\n').map_or("", |(lines, _)| lines);
    let more = diff.lines().count() - head.lines().count();
    format!("{head}\n[{} left out]\n", base::text::count(more, "line"))
}

fn words_of(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason given")
}

/// Returns the kind of the tool that a call refers to, or `None` if there is none.
pub fn kind(profile: Profile, name: &str, args: &Value) -> Option<ToolKind> {
    match lookup::find(profile, name, args) {
        NamedTool::One(face) => Some(face.engine),
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
pub fn finds_out(profile: Profile, name: &str, args: &Value, at: &ToolContext) -> Option<String> {
    call::prepare(profile, name, args, at).ok()?.finds_out()
}

/// Returns the keys of the resources that a call uses (files, shell sessions). Calls with a common
/// key run in order.
pub fn touches(profile: Profile, name: &str, args: &Value, at: &ToolContext) -> Vec<String> {
    call::prepare(profile, name, args, at).map(|call| call.scope().keys.clone()).unwrap_or_default()
}
