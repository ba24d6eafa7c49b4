//! `g3 tool check`: what the gate would say of a call. Nothing runs, and nobody is asked.

use std::time::Duration;

use base::config::agent::{Action, Policy};
use base::failure::Result;
use clap::{Args, ValueEnum};
use serde::Serialize;
use serde_json::Value;

use super::{CallArgs, as_json, exit_code, given, loaded, print, workplace};
use crate::tools::args as arguments;
use crate::tools::call::{self, Invocation};
use crate::tools::output::ToolOutput;
use gate::AccessRequest;
use gate::core_exact::{Evaluator, Judgement, Route};
use gate::policy::{Confine, Verdict};

/// `g3 tool check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    #[command(flatten)]
    call: CallArgs,
    /// Who judges (the policy of the configuration unless said)
    #[arg(long, value_enum)]
    policy: Option<Judge>,
    /// Judge as if the user had said that it runs on this machine (core-exact)
    #[arg(long)]
    force_host: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Judge {
    /// By syntax, by reach and by the rules of the configuration
    Default,
    /// By the words of the core tools' evaluator
    CoreExact,
}

/// What is printed.
#[derive(Debug, Serialize)]
struct Told {
    route: &'static str,
    reason: String,
    voice_message: String,
    require_confirmation: bool,
}

/// Judges a call; gives the exit code.
pub fn run(args: &CheckArgs) -> Result<u8> {
    let text = given(&args.call.args)?;
    let (cwd, config) = loaded(args.call.cwd.as_deref())?;
    let policy = match args.policy {
        Some(Judge::Default) => Policy::Default,
        Some(Judge::CoreExact) => Policy::CoreExact,
        None => config.gate.policy,
    };
    let Ok(call @ Value::Object(_)) = serde_json::from_str::<Value>(&text) else {
        return bad_call(
            &arguments::malformed(args.call.profile, &args.call.name, &text),
            args.json,
        );
    };
    let told = match policy {
        Policy::CoreExact => {
            let evaluator = Evaluator::new(&config.gate)?;
            by_words(evaluator.judge(&args.call.name, &call, args.force_host))
        }
        Policy::Default => {
            let mut config = config;
            config.gate.policy = Policy::Default;
            let at = workplace(&cwd, None, &config)?;
            match call::prepare(args.call.profile, &args.call.name, &call, &at) {
                Ok(call) => by_gate(&call),
                Err(wrong) => return bad_call(&wrong, args.json),
            }
        }
    };
    print(&shown(&told, args.json)?)?;
    Ok(0)
}

/// Says why a call makes no sense, as `g3 tool exec` would.
fn bad_call(wrong: &ToolOutput, json: bool) -> Result<u8> {
    let text = if json { as_json(wrong, Duration::ZERO).to_string() } else { wrong.text.clone() };
    print(&format!("{text}\n"))?;
    Ok(exit_code(wrong))
}

fn by_words(judgement: Judgement) -> Told {
    let Judgement { route, reason, voice_message, require_confirmation } = judgement;
    let route = match route {
        Route::Host => "host",
        Route::Sandbox => "sandbox",
    };
    Told { route, reason, voice_message, require_confirmation }
}

/// The strictest verdict about what a call reaches.
fn by_gate(call: &Invocation<'_>) -> Told {
    let verdicts = call.scope().access.iter().map(|access| {
        let (root, session_dir) = (&call.at.root, &call.at.session_dir);
        let visitor =
            AccessRequest { tool: &call.face.name, root, session_dir, access, preview: None };
        call.at.gate.judge(&visitor)
    });
    let strictest = verdicts.max_by_key(|verdict| strictness(verdict.action));
    let Some(verdict) = strictest else {
        return told(&Verdict::by_reach(Action::Allow, String::new()));
    };
    told(&verdict)
}

fn told(verdict: &Verdict) -> Told {
    let (action, why) = (verdict.action, &verdict.why);
    let route = match action {
        Action::Allow | Action::Ask if verdict.confine == Confine::Always => "box",
        Action::Allow | Action::Ask => "host",
        Action::Box => "box",
        Action::Deny => "deny",
    };
    let reason = if why.is_empty() { "safe".to_owned() } else { why.clone() };
    let voice = match action {
        Action::Allow => "That call is safe to run here.",
        Action::Ask => "That call needs your word. Shall I go on?",
        Action::Box => "That call runs in the box.",
        Action::Deny => "That call is not allowed.",
    };
    let require_confirmation = action == Action::Ask;
    Told { route, reason, voice_message: voice.to_owned(), require_confirmation }
}

fn strictness(action: Action) -> u8 {
    match action {
        Action::Allow => 0,
        Action::Box => 1,
        Action::Ask => 2,
        Action::Deny => 3,
    }
}

fn shown(told: &Told, json: bool) -> Result<String> {
    use base::failure::OrFail;
    if json {
        let line = serde_json::to_string(told).or_fail(|| "cannot write the verdict as JSON")?;
        return Ok(line + "\n");
    }
    let asks = if told.require_confirmation { "asks first" } else { "asks nobody" };
    let mut text = format!("{}: {} ({asks})\n", told.route, told.reason);
    if !told.voice_message.is_empty() {
        text.push_str(&format!("{}\n", told.voice_message));
    }
    Ok(text)
}
