//! `studio places`: lists the places where sessions run, and tries one out.

use base::config::places::{HERE, PlaceConfig};
use base::failure::Result;
use clap::Subcommand;
use serde_json::json;
use studio_core::place::check::{self, HostCheck};
use studio_core::place::configured_place::Place;

use crate::commands::context::CommonArgs;
use crate::report;

/// The command line of `places`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<PlacesCommand>,
}

/// What to do with places.
#[derive(Clone, Debug, Subcommand)]
enum PlacesCommand {
    /// Try out a place from end to end, and say what is missing there
    Check {
        /// The place
        #[arg(value_name = "PLACE")]
        place: String,
    },
}

/// Runs the command.
pub(crate) fn run(common: &CommonArgs, args: &Args) -> Result<u8> {
    let loaded = base::config::load(&common.sources()?)?;
    loaded.notices.iter().for_each(|notice| report::say(notice));
    match &args.command {
        None => list(common, &loaded.config),
        Some(PlacesCommand::Check { place }) => {
            let place = Place::find(&loaded.config, place)?;
            let checks = check::check(&place, &loaded.config.studio)?;
            let is_usable = checks.iter().all(|check| check.missing.is_empty());
            if common.json {
                report::json_line(
                    &json!({"schema": 1, "place": place.name, "usable": is_usable, "hosts": checks}),
                );
            } else {
                checks.iter().for_each(|check| report::out(&page(check)));
            }
            Ok(u8::from(!is_usable))
        }
    }
}

fn list(common: &CommonArgs, config: &base::config::Config) -> Result<u8> {
    let places = &config.studio.places;
    if common.json {
        let rows = places.iter().map(|(name, place)| {
            json!({
                "name": name, "engine": place.engine, "hosts": place.all_hosts(),
                "spool": place.spool_path(), "jobs": place.max_sessions(),
                "error": place.validate(name).err().map(|failure| failure.full_text()),
            })
        });
        let rows: Vec<_> = rows.collect();
        report::json_line(&json!({"schema": 1, "default": config.studio.on, "places": rows}));
        return Ok(0);
    }
    if places.is_empty() {
        report::say(
            "no places: sessions run here\n  [studio.places.NAME] host = \"HOST\"    in ~/.config/g3/config.toml adds one",
        );
    }
    for (name, place) in places {
        report::out(&line(name, place, config.studio.on.as_deref() == Some(name)));
    }
    Ok(0)
}

fn line(name: &str, place: &PlaceConfig, is_default: bool) -> String {
    let default = if is_default { "  (default)" } else { "" };
    match place.validate(name) {
        Ok(()) => {
            let hosts = match place.all_hosts() {
                hosts if hosts.is_empty() => HERE.to_owned(),
                hosts => hosts.join(", "),
            };
            let sessions = base::text::count(place.max_sessions(), "session");
            format!("{name}  {}  {hosts}  {sessions} at once{default}", place.engine.name())
        }
        Err(failure) => format!("{name}  {}", failure.full_text().replace('\n', " ")),
    }
}

fn page(check: &HostCheck) -> String {
    let mut lines = vec![check.host.clone()];
    lines.extend(check.has.iter().map(|text| format!("  ok       {text}")));
    if let Some(milliseconds) = check.milliseconds {
        lines.push(format!("  ok       a command takes {milliseconds} ms"));
    }
    lines.extend(check.notes.iter().map(|text| format!("  note     {text}")));
    lines.extend(check.missing.iter().map(|text| format!("  missing  {text}")));
    lines.extend(check.hints.iter().map(|text| format!("  try      {text}")));
    lines.join("\n")
}
