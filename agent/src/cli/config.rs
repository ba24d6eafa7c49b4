//! `g3 config show`: prints the effective configuration and the origin of each value.

use base::config::show;
use base::failure::Result;
use clap::{Args, Subcommand};

use super::GlobalArgs;
use super::settings::{directory, load};
use crate::ui;

/// `g3 config …`.
#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Print every value (API keys are hidden)
    Show {
        /// Show where each value comes from
        #[arg(long)]
        origin: bool,
        #[command(flatten)]
        common: GlobalArgs,
    },
}

/// Runs `g3 config …` and returns the exit code.
pub(crate) fn run(args: &ConfigArgs) -> Result<u8> {
    let ConfigCommand::Show { origin, common } = &args.command;
    let loaded = load(common, &directory(common)?)?;
    let line = |entry: show::ShownValue| {
        let source = entry.origin.map_or_else(|| "default".to_owned(), |source| source.to_string());
        let source = if *origin { format!("  # {source}") } else { String::new() };
        format!("{} = {}{source}\n", entry.key, entry.value)
    };
    let text: String = show::values(&loaded).into_iter().map(line).collect();
    ui::print(&text)?;
    loaded.notices.iter().for_each(|notice| ui::say(&format!("warning: {notice}")));
    Ok(0)
}
