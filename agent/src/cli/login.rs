//! `g3 login`: signs in to a provider through the browser and stores the login.

use std::io::IsTerminal;
use std::path::PathBuf;

use base::failure::Result;
use base::process::{Command, Stream, find_program};
use clap::{Args, Subcommand};

use super::GlobalArgs;
use super::settings::{directory, load};
use crate::ui;
use provider::from_config;
use provider::oauth::sign_in::{self, PORT};
use provider::oauth::store::TokenStore;

/// `g3 login …`.
#[derive(Debug, Args)]
pub(crate) struct LoginArgs {
    #[command(subcommand)]
    service: Service,
}

#[derive(Debug, Subcommand)]
enum Service {
    /// Sign in to a Databricks workspace (set `use_oauth = true` in its provider)
    Databricks(DatabricksArgs),
}

#[derive(Debug, Args)]
struct DatabricksArgs {
    /// Name of [providers.databricks.NAME], if there are several
    name: Option<String>,
    /// Remove the login
    #[arg(long)]
    remove: bool,
    /// Local port that the browser returns to; 0 for any free port
    #[arg(long, value_name = "N", default_value_t = PORT)]
    port: u16,
    /// Read this file instead of the user's and the repository's configuration
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Runs `g3 login …`.
pub(crate) async fn run(args: &LoginArgs) -> Result<u8> {
    let Service::Databricks(args) = &args.service;
    let common = GlobalArgs { config: args.config.clone(), ..GlobalArgs::default() };
    let loaded = load(&common, &directory(&common)?)?;
    loaded.notices.iter().for_each(|notice| ui::say(notice));
    let (workspace, uses_login) =
        from_config::databricks::workspace(&loaded.config, args.name.as_deref())?;
    if args.remove {
        let removed = TokenStore::of(&workspace.host)?.remove()?;
        ui::say(&match removed {
            true => format!("removed the login for {}", workspace.host),
            false => format!("no login for {}", workspace.host),
        });
        return Ok(0);
    }
    let file = sign_in::sign_in(&workspace, args.port, open_browser).await?;
    ui::say(&format!("signed in to {}; the login is stored in {}", workspace.host, file.display()));
    if !uses_login {
        ui::say(&format!(
            "to use it, set `use_oauth = true` in [providers.{}]",
            workspace.reference
        ));
    }
    Ok(0)
}

/// Shows the URL, and opens it in a browser if there is a display and stderr is a terminal.
fn open_browser(url: &str) {
    ui::say(&format!("Sign in with your browser (two minutes):\n\n  {url}\n"));
    let has_screen = cfg!(target_os = "macos")
        || ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|name| std::env::var_os(name).is_some());
    let opener = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    if !has_screen || !std::io::stderr().is_terminal() {
        return;
    }
    let Some(program) = find_program(opener) else { return };
    let command = Command::new(program, "/").arg(url).stdout(Stream::Null).stderr(Stream::Null);
    // The URL is on the screen too, so a browser that cannot be started is not an error.
    let _ = command.detached().spawn_forget();
}
