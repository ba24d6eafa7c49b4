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
    what: What,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum What {
    /// Print every effective value
    Show {
        /// Say where each value comes from
        #[arg(long)]
        origin: bool,
    },
}

/// Runs the command.
pub(crate) fn run(common: &CommonArgs, args: &Args) -> Result<u8> {
    let What::Show { origin } = args.what;
    let loaded = base::config::load(&common.sources()?)?;
    loaded.notices.iter().for_each(|notice| report::say(notice));
    let values = show::values(&loaded);
    if common.json {
        let one = |shown: &show::ShownValue| {
            let origin = shown.origin.as_ref().map(ToString::to_string);
            json!({"key": shown.key, "value": shown.value, "origin": origin})
        };
        let all: Vec<Value> = values.iter().map(one).collect();
        report::json_line(&json!({"schema": 1, "values": all}));
        return Ok(0);
    }
    for shown in values {
        let from = shown.origin.map_or("default".to_owned(), |origin| origin.to_string());
        let comment = if origin { format!("  # {from}") } else { String::new() };
        report::out(&format!("{} = {}{comment}", shown.key, shown.value));
    }
    Ok(0)
}
