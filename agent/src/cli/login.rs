//! `g3 login`: signing in to a provider through the browser, once.

use std::io::IsTerminal;
use std::path::PathBuf;

use base::failure::Result;
use base::process::{Job, Stream, find_program};
use clap::{Args, Subcommand};

use super::Common;
use super::settings::{directory, load};
use crate::ui;
use provider::oauth::sign_in::{self, PORT};
use provider::oauth::store::Store;
use provider::open;

/// `g3 login …`.
#[derive(Debug, Args)]
pub struct LoginArgs {
    #[command(subcommand)]
    service: Service,
}

#[derive(Debug, Subcommand)]
enum Service {
    /// Sign in to a Databricks workspace; its provider says `use_oauth = true`
    Databricks(DatabricksArgs),
}

#[derive(Debug, Args)]
struct DatabricksArgs {
    /// Which [providers.databricks.NAME], when there are several
    name: Option<String>,
    /// Forget the login instead
    #[arg(long)]
    remove: bool,
    /// Where the browser comes back to on this machine; 0 takes any free port
    #[arg(long, value_name = "N", default_value_t = PORT)]
    port: u16,
    /// Read this file instead of the user's and the repository's configuration
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Runs `g3 login …`.
pub async fn run(args: &LoginArgs) -> Result<u8> {
    let Service::Databricks(args) = &args.service;
    let common = Common { config: args.config.clone(), ..Common::default() };
    let loaded = load(&common, &directory(&common)?)?;
    loaded.notices.iter().for_each(|notice| ui::say(notice));
    let (workspace, uses_it) = open::databricks::workspace(&loaded.config, args.name.as_deref())?;
    if args.remove {
        let removed = Store::of(&workspace.host)?.remove()?;
        ui::say(&match removed {
            true => format!("the login for {} is removed", workspace.host),
            false => format!("there was no login for {}", workspace.host),
        });
        return Ok(0);
    }
    let file = sign_in::sign_in(&workspace, args.port, show).await?;
    ui::say(&format!("signed in to {}; the login is kept in {}", workspace.host, file.display()));
    if !uses_it {
        ui::say(&format!(
            "to use it, set `use_oauth = true` in [providers.{}]",
            workspace.reference
        ));
    }
    Ok(0)
}

/// Shows the address, and opens it where there is a person with a browser.
fn show(url: &str) {
    ui::say(&format!("Sign in with your browser (two minutes):\n\n  {url}\n"));
    let has_screen = cfg!(target_os = "macos")
        || ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|name| std::env::var_os(name).is_some());
    let opener = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    if !has_screen || !std::io::stderr().is_terminal() {
        return;
    }
    let Some(program) = find_program(opener) else { return };
    let job = Job::new(program, "/").arg(url).stdout(Stream::Null).stderr(Stream::Null);
    // The address is shown as well.
    let _ = job.detached().spawn_forget();
}
