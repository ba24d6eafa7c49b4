//! `g3 plan`: the steps of a plan that need a model, one per call; `studio plan` runs them.

use std::path::PathBuf;

use base::clock::Clock;
use base::failure::{Failure, Result};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::settings::settings;
use super::{AgentArgs, GlobalArgs, stdin_text, trace};
use crate::modes::planning::noninteractive::{self, PlanPart};
use crate::ui;
use crate::ui::plain_output::PlainOutput;
use agent_core::bus::Bus;
use tools::services::Toolset;

/// `g3 plan`.
#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    #[command(subcommand)]
    command: PlanCommand,
    /// Print the result or error as one JSON object: {"text"} (and {"requirements"} of `converge`) or {"error"}
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum PlanCommand {
    /// Refine a feature request from stdin into a Markdown list of requirements
    Refine(GlobalArgs),
    /// Split requirements from stdin into tasks (TOML for studio)
    Split(SplitArgs),
    /// Compare requirements from stdin with the code, and plan what is missing (TOML for studio)
    Converge(ConvergeArgs),
}

#[derive(Debug, Args)]
struct SplitArgs {
    #[command(flatten)]
    common: GlobalArgs,
    /// Existing tasks (TOML): only requirements that they do not cover are split
    #[arg(long, value_name = "FILE")]
    tasks: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct ConvergeArgs {
    #[command(flatten)]
    common: GlobalArgs,
    /// Tasks that have landed (TOML)
    #[arg(long, value_name = "FILE")]
    tasks: Option<PathBuf>,
    /// Requirement that is known to be unmet, and the reason (repeatable)
    #[arg(long, value_name = "ID=REASON", value_parser = gap)]
    unmet: Vec<(String, String)>,
}

fn gap(text: &str) -> std::result::Result<(String, String), String> {
    match text.split_once('=') {
        Some((id, reason)) if !id.is_empty() && !reason.trim().is_empty() => {
            Ok((id.to_owned(), reason.to_owned()))
        }
        _ => Err("expected ID=REASON".to_owned()),
    }
}

/// Runs `g3 plan …` and returns the exit code; what the model does is shown on stderr.
pub(crate) async fn run(args: PlanArgs, toolset: &'static dyn Toolset) -> Result<u8> {
    let is_comparison = matches!(args.command, PlanCommand::Converge(_));
    let (report, code) = match run_part(args.command, toolset).await {
        Ok(answer) => {
            (if is_comparison { comparison(&answer) } else { json!({ "text": answer }) }, 0)
        }
        Err(failure) if !args.json => return Err(failure),
        Err(failure) => (json!({ "error": failure.to_json() }), failure.exit_code()),
    };
    let text = match args.json {
        true => report.to_string(),
        false => plain(&report),
    };
    ui::print(&format!("{}\n", text.trim_end())).map(|()| code)
}

/// Returns the report of a comparison: the tasks as text, and the verdicts.
fn comparison(answer: &str) -> Value {
    let answer: Value = serde_json::from_str(answer).unwrap_or_default();
    json!({"text": answer["tasks"], "requirements": answer["requirements"]})
}

/// Returns a report for people; verdicts are comments of the TOML text.
fn plain(report: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let verdict = |it: &Value| {
        let line =
            format!("# {} {}: {}", text(&it["id"]), text(&it["status"]), text(&it["evidence"]));
        line.lines().collect::<Vec<_>>().join("\n# ") + "\n"
    };
    let verdicts: String =
        report["requirements"].as_array().into_iter().flatten().map(verdict).collect();
    match verdicts.is_empty() {
        true => text(&report["text"]),
        false => format!("{verdicts}\n{}", text(&report["text"])),
    }
}

/// Runs one step and returns the model's text.
async fn run_part(command: PlanCommand, toolset: &'static dyn Toolset) -> Result<String> {
    let (common, part) = match command {
        PlanCommand::Refine(common) => (common, PlanPart::Refine),
        PlanCommand::Split(args) => {
            (args.common, PlanPart::Split(args.tasks.map(file).transpose()?))
        }
        PlanCommand::Converge(args) => {
            let tasks = args.tasks.map(file).transpose()?;
            (args.common, PlanPart::Converge(tasks, args.unmet))
        }
    };
    let settings = settings(&common, &AgentArgs::default(), toolset)?;
    let trace = trace::begin(&common, &settings.config, "plan")?;
    let work = async {
        let text = stdin_text()?;
        let output = PlainOutput::new(std::io::sink(), Some(std::io::stderr()));
        let bus = Bus::new(Clock::from_env(), vec![Box::new(output)]);
        noninteractive::run(&settings, &part, &text, (bus, None)).await
    };
    let mut answer = String::new();
    trace.finish(work.await.map(|text| {
        answer = text;
        0
    }))?;
    Ok(answer)
}

fn file(path: PathBuf) -> Result<(String, String)> {
    let name = path.display().to_string();
    let text = base::files::read_text(&path)
        .map_err(|error| Failure::usage(format!("cannot read {name}")).because(error))?;
    Ok((name, text))
}
