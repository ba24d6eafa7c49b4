//! The list of agents.

use std::path::PathBuf;

use base::text::{columns, printable};
use serde_json::{Value, json};

use crate::report::table;

/// What is known of an agent.
pub(crate) struct AgentListing {
    /// Its name for `--agent`.
    pub name: String,
    /// Program and arguments; empty if it cannot be started.
    pub command: Vec<String>,
    /// The path of the program, if it is installed.
    pub program: Option<PathBuf>,
    /// The version that the program prints.
    pub version: Option<String>,
    /// What it speaks: `acp` or `command`.
    pub protocol: Option<&'static str>,
    /// The variable or file with its login.
    pub login: Option<String>,
    /// How to log in, if no login was found.
    pub login_hint: Option<String>,
    /// The command that installs it, if it is missing.
    pub install: Option<&'static str>,
    /// Why its entry in the configuration cannot be used.
    pub error: Option<String>,
    /// Whether its command is from the configuration.
    pub is_configured: bool,
}

impl AgentListing {
    /// Returns the listing as JSON.
    pub(crate) fn json(&self) -> Value {
        json!({
            "name": self.name, "installed": self.program.is_some(), "program": self.program,
            "command": self.command, "version": self.version, "protocol": self.protocol,
            "login": self.login, "install": self.install, "configured": self.is_configured,
            "error": self.error,
        })
    }

    fn program_name(&self) -> String {
        let name = self.program.as_ref().and_then(|path| path.file_name());
        name.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }

    fn cells(&self, default: &str) -> [String; 5] {
        let mark = if self.name == default { " (default)" } else { "" };
        let or_dash = |text: Option<&str>| text.unwrap_or("-").to_owned();
        [
            printable(&format!("{}{mark}", self.name)),
            printable(&self.program_name()),
            or_dash(self.version.as_deref()),
            or_dash(self.protocol),
            match (&self.login, &self.login_hint) {
                (Some(login), _) => login.clone(),
                (None, Some(_)) => "not found".to_owned(),
                (None, None) => "-".to_owned(),
            },
        ]
    }
}

/// Formats the installed agents as a table, then what is missing.
pub(crate) fn page(listings: &[AgentListing], default: &str) -> String {
    let (installed, missing): (Vec<_>, Vec<_>) =
        listings.iter().partition(|listing| listing.program.is_some());
    let rows = installed.iter().map(|listing| listing.cells(default)).collect();
    let mut parts = vec![table::plain(["NAME", "PROGRAM", "VERSION", "PROTOCOL", "LOGIN"], rows)];
    let hints: Vec<String> = installed
        .iter()
        .filter_map(|listing| Some(format!("  {}: {}", listing.name, listing.login_hint.as_ref()?)))
        .collect();
    if !hints.is_empty() {
        parts.push(format!("No login found:\n{}", hints.join("\n")));
    }
    let name_width = missing.iter().map(|listing| columns(&listing.name)).max().unwrap_or_default();
    let missing: Vec<String> = missing
        .iter()
        .map(|listing| {
            let reason = listing.install.or(listing.error.as_deref());
            let program = listing.command.first().map(|name| format!("no program `{name}`"));
            let reason = reason.map(str::to_owned).or(program).unwrap_or_default();
            format!("  {:<name_width$}  {}", printable(&listing.name), printable(&reason))
        })
        .collect();
    if !missing.is_empty() {
        parts.push(format!("Not installed:\n{}", missing.join("\n")));
    }
    parts.join("\n\n")
}
