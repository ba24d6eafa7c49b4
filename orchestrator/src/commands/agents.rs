//! `studio agents`: lists the agents, what each speaks, whether its login is found, and what installs
//! the missing ones.

use std::path::{Path, PathBuf};
use std::thread;

use base::config::Config;
use base::config::studio::AgentProtocol;
use base::failure::Result;
use base::process::{Command, OutputLimits, Stream};
use base::user_dirs::home_dir;
use serde_json::json;
use studio_core::launch::built_in_agents::{self, BuiltInAgent, Login};
use studio_core::launch::registry;

use crate::commands::context::CommonArgs;
use crate::report;
use crate::report::agents::AgentListing;

/// How long a program has to print its version, in seconds.
const VERSION_SECONDS: u64 = 10;

/// Runs the command.
pub(crate) fn run(common: &CommonArgs) -> Result<u8> {
    let loaded = base::config::load(&common.sources()?)?;
    loaded.notices.iter().for_each(|notice| report::say(notice));
    let config = &loaded.config;
    let home = home_dir().unwrap_or_default();
    let names = registry::names(config);
    // Many agents are Node.js programs, which take half a second to print their version.
    let listings: Vec<AgentListing> = thread::scope(|scope| {
        let listings: Vec<_> =
            names.iter().map(|name| scope.spawn(|| listing(config, name, &home))).collect();
        listings.into_iter().filter_map(|listing| listing.join().ok()).collect()
    });
    let default = config.studio.agent.as_deref().unwrap_or("g3");
    if common.json {
        let agents: Vec<_> = listings.iter().map(AgentListing::json).collect();
        report::json_line(&json!({"schema": 1, "default": default, "agents": agents}));
    } else {
        report::out(&report::agents::page(&listings, default));
    }
    Ok(0)
}

fn listing(config: &Config, name: &str, home: &Path) -> AgentListing {
    let built_in = built_in_agents::find(name);
    let row = registry::row(config, name);
    let program = row.as_ref().ok().and_then(|row| find(row.command.first()?));
    // What a program of the configuration does with `--version` is unknown.
    let is_known = built_in.is_some() || name == "g3";
    let is_configured = config.studio.agents.get(name).is_some_and(|row| !row.command.is_empty());
    let version = program.as_deref().filter(|_| is_known && !is_configured).and_then(version);
    let installed = built_in.and_then(BuiltInAgent::installed).map(|(program, _)| program);
    let login = built_in.and_then(|agent| agent.login(home));
    AgentListing {
        name: name.to_owned(),
        command: row.as_ref().map(|row| row.command.clone()).unwrap_or_default(),
        protocol: row.as_ref().ok().map(|row| protocol_name(row.protocol)),
        login: login.as_ref().map(|login| match login {
            Login::Variable(name) => (*name).to_owned(),
            Login::File(path) => (*path).to_owned(),
        }),
        login_hint: match (built_in, installed, &login) {
            (Some(agent), Some(program), None) => Some(agent.login_hint(program)),
            _ => None,
        },
        install: match (built_in, &program) {
            (Some(agent), None) => agent.programs.first().map(|program| program.install),
            _ => None,
        },
        error: row.err().filter(|_| built_in.is_none()).map(|failure| failure.sentence()),
        program,
        version,
        is_configured,
    }
}

fn protocol_name(protocol: AgentProtocol) -> &'static str {
    match protocol {
        AgentProtocol::Acp => "acp",
        AgentProtocol::Command => "command",
    }
}

fn find(program: &String) -> Option<PathBuf> {
    let path = Path::new(program);
    if path.components().count() > 1 {
        return path.is_file().then(|| path.to_owned());
    }
    base::process::find_program(program)
}

/// Returns the version that a program prints: the first word with a number and a dot.
fn version(program: &Path) -> Option<String> {
    let output = Command::new(program, "/")
        .arg("--version")
        .stdin(Stream::Null)
        .output(OutputLimits::seconds(VERSION_SECONDS))
        .ok()?;
    // One that does not know the option may still print its version.
    let text = output.text();
    let word = text.split_whitespace().find(|word| {
        word.trim_start_matches('v').starts_with(|c: char| c.is_ascii_digit()) && word.contains('.')
    })?;
    Some(
        base::text::printable(word.trim_start_matches('v').trim_end_matches('.'))
            .chars()
            .take(24)
            .collect(),
    )
}
