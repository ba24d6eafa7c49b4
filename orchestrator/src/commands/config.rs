//! `studio config show`: prints the configuration and the origin of each value.

use base::config::show;
use base::failure::Result;
use serde_json::{Value, json};

use crate::commands::context::CommonArgs;
use crate::report;

/// The command line of `config`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum ConfigCommand {
    /// Print every effective value
    Show {
        /// Say where each value comes from
        #[arg(long)]
        origin: bool,
    },
}

/// Runs the command.
pub(crate) fn run(common: &CommonArgs, args: &Args) -> Result<u8> {
    let ConfigCommand::Show { origin } = args.command;
    let loaded = base::config::load(&common.sources()?)?;
    loaded.notices.iter().for_each(|notice| report::say(notice));
    let values = show::values(&loaded);
    if common.json {
        let to_json = |entry: &show::ShownValue| {
            let origin = entry.origin.as_ref().map(ToString::to_string);
            json!({"key": entry.key, "value": entry.value, "origin": origin})
        };
        let entries: Vec<Value> = values.iter().map(to_json).collect();
        report::json_line(&json!({"schema": 1, "values": entries}));
        return Ok(0);
    }
    for entry in values {
        let source = entry.origin.map_or("default".to_owned(), |origin| origin.to_string());
        let comment = if origin { format!("  # {source}") } else { String::new() };
        report::out(&format!("{} = {}{comment}", entry.key, entry.value));
    }
    Ok(0)
}
