//! `g3 tool check`: shows the gate's decision about a call, without running the call or asking.

use std::time::Duration;

use base::config::agent::{CommandPolicy, GateAction};
use base::failure::Result;
use clap::{Args, ValueEnum};
use serde::Serialize;
use serde_json::Value;

use super::{CallArgs, as_json, exit_code, load_config, print, read_args, tool_context};
use gate::AccessRequest;
use gate::core_exact::{Evaluator, Judgement, Route};
use gate::policy::{PolicyVerdict, SandboxUse};
use tools::args as arguments;
use tools::call::{self, Invocation};
use tools::output::ToolOutput;
use tools::services::Toolset;

/// `g3 tool check`.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    call: CallArgs,
    /// Policy to apply [default: the configured one]
    #[arg(long, value_enum)]
    policy: Option<Judge>,
    /// Assume that the user asked to run it on the host (core-exact)
    #[arg(long)]
    force_host: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Judge {
    /// By syntax, reach and the configured rules
    Default,
    /// As the evaluator of the core tools
    CoreExact,
}

/// The printed report.
#[derive(Debug, Serialize)]
struct CheckReport {
    route: &'static str,
    reason: String,
    voice_message: String,
    require_confirmation: bool,
}

/// Evaluates a call and returns the exit code.
pub(crate) fn run(args: &CheckArgs, toolset: &'static dyn Toolset) -> Result<u8> {
    let text = read_args(&args.call.args)?;
    let (cwd, config) = load_config(args.call.cwd.as_deref())?;
    let policy = match args.policy {
        Some(Judge::Default) => CommandPolicy::Default,
        Some(Judge::CoreExact) => CommandPolicy::CoreExact,
        None => config.gate.policy,
    };
    let Ok(call @ Value::Object(_)) = serde_json::from_str::<Value>(&text) else {
        return bad_call(
            &arguments::malformed(args.call.profile, &args.call.name, &text),
            args.json,
        );
    };
    let report = match policy {
        CommandPolicy::CoreExact => {
            let evaluator = Evaluator::new(&config.gate)?;
            core_exact_report(evaluator.judge(&args.call.name, &call, args.force_host))
        }
        CommandPolicy::Default => {
            let mut config = config;
            config.gate.policy = CommandPolicy::Default;
            let context = tool_context((&cwd, None), &config, toolset)?;
            match call::prepare(args.call.profile, &args.call.name, &call, &context) {
                Ok(call) => gate_report(&call),
                Err(output) => return bad_call(&output, args.json),
            }
        }
    };
    print(&render(&report, args.json)?)?;
    Ok(0)
}

/// Prints why a call is invalid, in the format of `g3 tool exec`.
fn bad_call(output: &ToolOutput, json: bool) -> Result<u8> {
    let text = if json { as_json(output, Duration::ZERO).to_string() } else { output.text.clone() };
    print(&format!("{text}\n"))?;
    Ok(exit_code(output))
}

fn core_exact_report(judgement: Judgement) -> CheckReport {
    let Judgement { route, reason, voice_message, require_confirmation } = judgement;
    let route = match route {
        Route::Host => "host",
        Route::Sandbox => "sandbox",
    };
    CheckReport { route, reason, voice_message, require_confirmation }
}

/// Reports the strictest verdict about the accesses of a call.
fn gate_report(call: &Invocation<'_>) -> CheckReport {
    let verdicts = call.scope().access.iter().map(|access| {
        let (root, session_dir) = (&call.context.root, &call.context.session_dir);
        let request = AccessRequest {
            tool: &call.profile_tool.name,
            root,
            session_dir,
            access,
            preview: None,
        };
        call.context.gate.judge(&request)
    });
    let strictest = verdicts.max_by_key(|verdict| strictness(verdict.action));
    let Some(verdict) = strictest else {
        return report(&PolicyVerdict::by_access(GateAction::Allow, String::new()));
    };
    report(&verdict)
}

fn report(verdict: &PolicyVerdict) -> CheckReport {
    let (action, reason) = (verdict.action, &verdict.reason);
    let route = match action {
        GateAction::Allow | GateAction::Ask if verdict.confine == SandboxUse::Always => "box",
        GateAction::Allow | GateAction::Ask => "host",
        GateAction::Box => "box",
        GateAction::Deny => "deny",
    };
    let reason = if reason.is_empty() { "safe".to_owned() } else { reason.clone() };
    let voice = match action {
        GateAction::Allow => "That call is safe to run here.",
        GateAction::Ask => "That call needs your approval. Continue?",
        GateAction::Box => "That call runs in the sandbox.",
        GateAction::Deny => "That call is not allowed.",
    };
    let require_confirmation = action == GateAction::Ask;
    CheckReport { route, reason, voice_message: voice.to_owned(), require_confirmation }
}

fn strictness(action: GateAction) -> u8 {
    match action {
        GateAction::Allow => 0,
        GateAction::Box => 1,
        GateAction::Ask => 2,
        GateAction::Deny => 3,
    }
}

fn render(report: &CheckReport, json: bool) -> Result<String> {
    use base::failure::OrFail;
    if json {
        let line = serde_json::to_string(report).or_fail(|| "cannot write the verdict as JSON")?;
        return Ok(line + "\n");
    }
    let confirmation = if report.require_confirmation { "asks first" } else { "does not ask" };
    let mut text = format!("{}: {} ({confirmation})\n", report.route, report.reason);
    if !report.voice_message.is_empty() {
        text.push_str(&format!("{}\n", report.voice_message));
    }
    Ok(text)
}
