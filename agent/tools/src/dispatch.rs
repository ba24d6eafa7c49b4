//! The way of a call through the layers around its tool, in this order: the restriction of active
//! skills, the gate, the files that an editor has open, the tool itself, the errors that language
//! servers find after an edit, the limit and wording of the result, the history.

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

/// Runs one call. Never fails otherwise than by a [`ToolOutput`] that says so.
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

/// Asks the active skills and the gate; the error is what the model reads.
async fn admitted(call: &mut Invocation<'_>) -> Result<(), ToolOutput> {
    if let Some(why) = skill_permissions::refusal(call) {
        return Err(ToolOutput::failed(ToolErrorKind::Denied, why));
    }
    // A gate that breaks down lets nothing through.
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
    let mut pass = Permit::Free;
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
        // The strictest of them holds for all.
        pass = pass.max(call.at.gate.admit(&visitor).await?);
    }
    Ok(pass)
}

/// Runs the tool. A panic inside it is a failure of the tool.
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

/// Runs the tool with the files as an editor has them open.
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

/// Adds the errors that language servers find in the files that were written.
async fn with_diagnostics(call: &Invocation<'_>, outcome: ToolOutput) -> ToolOutput {
    let written = outcome.ok && call.spec().effect == Effect::Writes;
    match &call.at.others.lsp {
        Some(servers) if written => servers.after_edit(call, &call.scope().files, outcome).await,
        Some(_) | None => outcome,
    }
}

/// Words the outcome for the profile and adds what was passed over.
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

/// The core tools answer with a JSON object that has a `status`.
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
        // Pictures are for people who look on.
        Some(object) if object.contains_key("image_b64") => {
            let mut object = object.clone();
            object.remove("image_b64");
            Value::Object(object).to_string()
        }
        Some(_) | None => outcome.metadata.to_string(),
    };
    outcome
}

/// Bytes of a diff that are told.
const DIFF_BYTES: usize = 32 << 10;

/// A diff cut at the end of a line, with a word that it was.
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

/// The kind of the tool that a call means; `None` where no tool is meant.
pub fn kind(profile: Profile, name: &str, args: &Value) -> Option<ToolKind> {
    match lookup::find(profile, name, args) {
        NamedTool::One(face) => Some(face.engine),
        NamedTool::Several(_) | NamedTool::None(_) => None,
    }
}

/// The facts of the tool that a call means: its name and its arguments.
pub fn spec(
    profile: Profile,
    (name, args): (&str, &Value),
    registry: &Registry,
) -> Option<ToolSpec> {
    Some(registry.tool(kind(profile, name, args)?)?.spec())
}

/// What a call would find out, by a name that tells it from others: a file, a command.
pub fn finds_out(profile: Profile, name: &str, args: &Value, at: &ToolContext) -> Option<String> {
    call::prepare(profile, name, args, at).ok()?.finds_out()
}

/// Keys of what a call touches (files, shell sessions): calls with a common key keep their order.
pub fn touches(profile: Profile, name: &str, args: &Value, at: &ToolContext) -> Vec<String> {
    call::prepare(profile, name, args, at).map(|call| call.scope().keys.clone()).unwrap_or_default()
}
