//! `g3 plan`: the steps of a plan that need a model, one per call; `studio plan` runs them.

use std::path::PathBuf;

use base::clock::Clock;
use base::failure::{Failure, Result};
use clap::{Args, Subcommand};

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
    /// Print the result or error as one JSON object: {"text"} or {"error"}
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum PlanCommand {
    /// Refine a feature request from stdin into a Markdown list of requirements
    Refine(GlobalArgs),
    /// Split requirements from stdin into tasks (TOML for studio)
    Split(SplitArgs),
}

#[derive(Debug, Args)]
struct SplitArgs {
    #[command(flatten)]
    common: GlobalArgs,
    /// Existing tasks (TOML): only requirements that they do not cover are split
    #[arg(long, value_name = "FILE")]
    tasks: Option<PathBuf>,
}

/// Runs `g3 plan …` and returns the exit code; what the model does is shown on stderr.
pub(crate) async fn run(args: PlanArgs, toolset: &'static dyn Toolset) -> Result<u8> {
    if !args.json {
        let answer = run_part(args.command, toolset).await?;
        return ui::print(&format!("{}\n", answer.trim_end())).map(|()| 0);
    }
    let (report, code) = match run_part(args.command, toolset).await {
        Ok(answer) => (serde_json::json!({ "text": answer }), 0),
        Err(failure) => (serde_json::json!({ "error": failure.to_json() }), failure.exit_code()),
    };
    ui::print(&format!("{report}\n")).map(|()| code)
}

/// Runs one step and returns the model's text.
async fn run_part(command: PlanCommand, toolset: &'static dyn Toolset) -> Result<String> {
    let (common, part) = match command {
        PlanCommand::Refine(common) => (common, PlanPart::Refine),
        PlanCommand::Split(args) => {
            (args.common, PlanPart::Split(args.tasks.map(file).transpose()?))
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
