//! Hooks: user commands that run on session events and may influence the session.

pub mod process;
pub mod toolbox;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use base::config::hooks::{Hook, HookEvent};
use base::failure::{Failure, Result};
use globset::{Glob, GlobMatcher};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use self::process::HookOutput;
use provider::message::{ContentPart, Message};
use tools::exec::confinement::CommandSandbox;
use tools::output::ToolOutput;

/// Receives notices for the user.
pub(crate) type OnHookNotice = Arc<dyn Fn(String) + Send + Sync>;

/// Maximum number of bytes of a hook's output that reach the model.
const MAX_OUTPUT: usize = 16_000;

/// The hooks of a session.
pub(crate) struct Hooks {
    all: Vec<CompiledHook>,
    session: String,
    cwd: PathBuf,
    sandbox: CommandSandbox,
    on_notice: OnHookNotice,
    started: AtomicBool,
}

struct CompiledHook {
    hook: Hook,
    tools: Option<GlobMatcher>,
}

/// The outcome of the hooks before a call.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct PreCallOutcome {
    /// The combined decision.
    pub decision: HookDecision,
    /// The arguments, if a hook changed them.
    pub args: Option<Value>,
}

/// The decision of a hook.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum HookDecision {
    /// The gate decides as usual.
    #[default]
    Go,
    /// The call runs without a question, even if the gate would ask.
    Allow,
    /// The user is asked, for this reason.
    Ask(String),
    /// The call is denied, for this reason.
    Deny(String),
}

/// The JSON object that a hook before a call may print.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HookStdout {
    decision: Option<Decision>,
    #[serde(default)]
    reason: String,
    args: Option<Map<String, Value>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Decision {
    Allow,
    Ask,
    Deny,
}

impl Hooks {
    /// Creates the hooks of a configuration. The error names an invalid pattern.
    pub(crate) fn new(
        hooks: &[Hook],
        session: &str,
        (cwd, sandbox): (&Path, CommandSandbox),
        on_notice: OnHookNotice,
    ) -> Result<Hooks> {
        let compile = |hook: &Hook| {
            let glob = hook.tools.as_deref().map(Glob::new).transpose().map_err(|error| {
                Failure::usage("a `match` in [[hooks]] is not a glob").because(error)
            })?;
            let tools = glob.map(|glob| glob.compile_matcher());
            Ok(CompiledHook { hook: hook.clone(), tools })
        };
        let all = hooks.iter().map(compile).collect::<Result<_>>()?;
        let (session, cwd) = (session.to_owned(), cwd.to_owned());
        Ok(Hooks { all, session, cwd, sandbox, on_notice, started: AtomicBool::new(false) })
    }

    /// Whether there are no hooks.
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether there is a hook for this event.
    pub(crate) fn has(&self, event: HookEvent) -> bool {
        self.all.iter().any(|compiled| compiled.hook.event == event)
    }

    fn matching<'a>(
        &'a self,
        event: HookEvent,
        tool: Option<&'a str>,
    ) -> impl Iterator<Item = &'a Hook> {
        let matches = move |compiled: &&CompiledHook| {
            let matches = |glob: &GlobMatcher| tool.is_some_and(|tool| glob.is_match(tool));
            compiled.hook.event == event && compiled.tools.as_ref().is_none_or(matches)
        };
        self.all.iter().filter(matches).map(|compiled| &compiled.hook)
    }

    async fn run_hook(&self, hook: &Hook, fields: Value) -> HookOutput {
        let mut input = json!({
            "event": hook.event,
            "session": self.session,
            "cwd": self.cwd,
        });
        if let (Some(input), Value::Object(fields)) = (input.as_object_mut(), fields) {
            input.extend(fields);
        }
        let start = Instant::now();
        let output = process::run(hook, (&self.cwd, &self.sandbox), &input).await;
        trace_run(hook, &output, start);
        output
    }

    /// Warns the user that a hook had no effect.
    fn warn(&self, hook: &Hook, reason: &str) {
        let event = serde_json::to_value(hook.event).unwrap_or_default();
        let event = event.as_str().unwrap_or_default().to_owned();
        (self.on_notice)(format!("the {event} hook `{}` {reason}", hook.command.join(" ")));
    }

    /// Runs the hooks of an event that cannot be denied and returns their output.
    async fn run_event(&self, event: HookEvent, tool: Option<&str>, fields: Value) -> Vec<String> {
        let mut texts = Vec::new();
        for hook in self.matching(event, tool) {
            match self.run_hook(hook, fields.clone()).await {
                HookOutput::Go(text) | HookOutput::No(text) => texts.push(truncate_output(&text)),
                HookOutput::Nothing(reason) => self.warn(hook, &reason),
            }
        }
        texts.retain(|text| !text.is_empty());
        texts
    }

    /// Runs the hooks for a user message, and those for the session start before the first one.
    /// Returns the message with the text that the hooks add for the model. Fails if a hook rejects
    /// the message.
    pub(crate) async fn on_user_message(
        &self,
        resumed: bool,
        text: &str,
        mut message: Message,
    ) -> Result<Message> {
        let mut texts = Vec::new();
        if !self.started.swap(true, Ordering::Relaxed) {
            let fields = json!({ "resumed": resumed });
            texts.extend(self.run_event(HookEvent::SessionStart, None, fields).await);
        }
        for hook in self.matching(HookEvent::UserPrompt, None) {
            match self.run_hook(hook, json!({ "prompt": text })).await {
                HookOutput::Go(text) => texts.push(truncate_output(&text)),
                HookOutput::No(reason) => {
                    return Err(Failure::refused("a hook refused the prompt").because(reason));
                }
                HookOutput::Nothing(reason) => self.warn(hook, &reason),
            }
        }
        texts.retain(|text| !text.is_empty());
        let added = texts.into_iter().map(|text| format!("\n\n[a hook says: {text}]"));
        message.parts.extend(added.map(ContentPart::context));
        Ok(message)
    }

    /// Runs the hooks for the session end, if the session started.
    pub(crate) async fn end(&self) {
        if self.started.swap(false, Ordering::Relaxed) {
            self.run_event(HookEvent::SessionEnd, None, json!({})).await;
        }
    }

    /// Runs the hooks before a call. The first denial is final; later hooks see arguments changed
    /// by earlier ones.
    pub(crate) async fn before(&self, tool: &str, args: &Value) -> PreCallOutcome {
        let mut outcome = PreCallOutcome::default();
        for hook in self.matching(HookEvent::BeforeTool, Some(tool)) {
            let args = outcome.args.as_ref().unwrap_or(args);
            let output = self.run_hook(hook, json!({ "tool": tool, "args": args })).await;
            let parsed = match output {
                HookOutput::Go(text) => parse_output(&text),
                HookOutput::No(reason) => Ok((HookDecision::Deny(reason), None)),
                HookOutput::Nothing(reason) => Err(reason),
            };
            let (decision, args) = match parsed {
                Ok(parsed) => parsed,
                Err(error) if hook.required => {
                    let name = hook.command.join(" ");
                    (HookDecision::Deny(format!("the hook `{name}` is required and {error}")), None)
                }
                Err(error) => {
                    self.warn(hook, &error);
                    continue;
                }
            };
            outcome.args = args.or(outcome.args);
            outcome.decision = match (outcome.decision, decision) {
                (_, HookDecision::Deny(reason)) => {
                    outcome.decision = HookDecision::Deny(reason);
                    return outcome;
                }
                (HookDecision::Ask(reason), _) | (_, HookDecision::Ask(reason)) => {
                    HookDecision::Ask(reason)
                }
                (HookDecision::Allow, _) | (_, HookDecision::Allow) => HookDecision::Allow,
                (HookDecision::Go | HookDecision::Deny(_), HookDecision::Go) => HookDecision::Go,
            };
        }
        outcome
    }

    /// Runs the hooks after a call; their output becomes a note in its result.
    pub(crate) async fn after(
        &self,
        tool: &str,
        args: &Value,
        outcome: &ToolOutput,
    ) -> Vec<String> {
        let fields = json!({"tool": tool, "args": args, "ok": outcome.ok, "result": outcome.text});
        self.run_event(HookEvent::AfterTool, Some(tool), fields).await
    }

    /// Runs the hooks when the agent stops. Returns why it must continue, if a hook says so.
    pub(crate) async fn stop(&self, stop_count: u32) -> Option<String> {
        for hook in self.matching(HookEvent::Stop, None) {
            match self.run_hook(hook, json!({ "again": stop_count })).await {
                HookOutput::Go(_) => {}
                HookOutput::No(reason) => return Some(reason),
                HookOutput::Nothing(reason) => self.warn(hook, &reason),
            }
        }
        None
    }
}

/// Parses a hook's stdout for a call; the error is a clause. Text that does not start with `{` is
/// ignored.
fn parse_output(text: &str) -> std::result::Result<(HookDecision, Option<Value>), String> {
    if !text.starts_with('{') {
        return Ok((HookDecision::Go, None));
    }
    let parsed: HookStdout = serde_json::from_str(text)
        .map_err(|error| format!("printed what g3 cannot read: {error}"))?;
    let reason = if parsed.reason.is_empty() { "denied by a hook".into() } else { parsed.reason };
    let decision = match parsed.decision {
        None => HookDecision::Go,
        Some(Decision::Allow) => HookDecision::Allow,
        Some(Decision::Ask) => HookDecision::Ask(reason),
        Some(Decision::Deny) => HookDecision::Deny(reason),
    };
    Ok((decision, parsed.args.map(Value::Object)))
}

/// Traces that a hook ran: its event, its program and the kind of its output.
fn trace_run(hook: &Hook, output: &HookOutput, start: Instant) {
    let event = serde_json::to_value(hook.event).unwrap_or_default();
    let program = hook.command.first().map(Path::new).and_then(Path::file_name);
    let program = program.unwrap_or_default().to_string_lossy();
    let decision = match output {
        HookOutput::Go(_) => "go",
        HookOutput::No(_) => "no",
        HookOutput::Nothing(_) => "nothing",
    };
    let ms = start.elapsed().as_millis() as u64;
    tracing::info!(
        target: "g3::hook", event = event.as_str(), program = &*program, said = decision, ms,
        "hook ran"
    );
}

fn truncate_output(text: &str) -> String {
    let head = base::text::head(text, MAX_OUTPUT);
    if head.len() < text.len() { format!("{head}\n[cut]") } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hook_output_is_parsed_strictly() {
        assert_eq!(parse_output("some log").unwrap(), (HookDecision::Go, None));
        assert_eq!(parse_output("{}").unwrap(), (HookDecision::Go, None));
        let (decision, args) = parse_output(r#"{"decision": "allow", "args": {"a": 1}}"#).unwrap();
        assert_eq!((decision, args), (HookDecision::Allow, Some(json!({"a": 1}))));
        let ask = parse_output(r#"{"decision": "ask", "reason": "who knows"}"#).unwrap().0;
        assert_eq!(ask, HookDecision::Ask("who knows".into()));
        for bad in [r#"{"decison": "deny"}"#, r#"{"decision": "maybe"}"#, r#"{"args": [1]}"#, "{"] {
            assert!(parse_output(bad).unwrap_err().contains("cannot read"), "{bad}");
        }
    }
}
