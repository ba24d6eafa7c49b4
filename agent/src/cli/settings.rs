//! Builds the settings of a session from flags, environment and files.

use std::path::{Path, PathBuf};
use std::time::Duration;

use base::config::agent::BrowserKind;
use base::config::keyless::KeylessConfig;
use base::config::{Config, ConfigSources, LoadedConfig, mcp};
use base::failure::{Failure, OrFail, Result};
use clap::Args;

use super::{AgentArgs, GlobalArgs, LimitArgs, NoteArgs};
use crate::modes::planning::explore;
use agent_core::limits::UsageLimits;
use agent_core::persona::PersonaDirs;
use agent_core::role::AgentRole;
use agent_core::run::AgentSettings;
use agent_core::run::notes::Notes;
use provider::ProviderChoice;
use tools::profile::Profile;
use tools::research_agent;
use tools::services::Toolset;

/// Flags for the browser tools.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct BrowserArgs {
    /// Enable the browser tools with a visible browser (Safari on macOS, Chromium elsewhere)
    #[arg(long, conflicts_with = "chrome_headless")]
    webdriver: bool,
    /// Enable the browser tools with headless Chromium
    #[arg(long)]
    chrome_headless: bool,
}

impl BrowserArgs {
    /// Applies the flags to the configuration; fails together with `--chat`.
    fn apply(&self, config: &mut Config, chat: bool) -> Result<()> {
        let visible_browser =
            if cfg!(target_os = "macos") { BrowserKind::Safari } else { BrowserKind::Chrome };
        let (flag, kind) = match (self.webdriver, self.chrome_headless) {
            (true, _) => ("--webdriver", visible_browser),
            (_, true) => ("--chrome-headless", BrowserKind::ChromeHeadless),
            (false, false) => return Ok(()),
        };
        if chat {
            let what = format!("{flag} cannot be used with --chat (no tools are available)");
            return Err(Failure::usage(what).hint("omit one of them"));
        }
        config.webdriver.enabled = true;
        config.webdriver.browser = kind;
        Ok(())
    }
}

/// Builds the settings of a session from these flags.
pub(crate) fn settings(
    common: &GlobalArgs,
    args: &AgentArgs,
    toolset: &'static dyn Toolset,
) -> Result<AgentSettings> {
    let cwd = directory(common)?;
    let LoadedConfig { mut config, mut notices, .. } = load(common, &cwd)?;
    args.browser.apply(&mut config, args.chat)?;
    config.gate.rules.extend(research_agent::allow_rule());
    let profile_name = args.profile.as_deref().or(config.agent.profile.as_deref());
    let profile = profile_name.map_or(Ok(Profile::default()), |name| {
        Profile::parse(name).ok_or_else(|| {
            Failure::usage(format!("no such profile: `{name}`"))
                .hint("use g3, egirl, tools-api, core or all")
        })
    })?;
    let mut notes = notes(&args.notes, &config)?;
    let persona_dirs = PersonaDirs::new(&cwd, sources(common, &cwd).trust_store());
    let role = match &args.agent {
        Some(name) => {
            let (persona, persona_notices) = persona_dirs.find(name)?;
            notices.extend(persona_notices);
            persona_dirs.role(&persona)?
        }
        None => AgentRole::default(),
    };
    // A persona keeps notes by default, unless it only reads or its write scope excludes the notes.
    if args.agent.is_some() && notes.auto.is_none() {
        let file = notes.file.clone().unwrap_or_else(|| memory::notes_file(&cwd));
        let refusal = role.write_scope.as_ref().and_then(|fence| fence.write_denial(&file));
        notes.auto = Some(!role.reads_only && refusal.is_none());
    }
    let first_note = args.codebase_fast_start.as_ref().map(|_| first_report(&cwd));
    Ok(AgentSettings {
        toolset,
        cwd,
        config,
        notices,
        choice: ProviderChoice {
            reference: common.provider.clone(),
            model: common.model.clone(),
            fallback: common.fallback_model.clone(),
            budget: args.limits.budget.is_some(),
        },
        profile,
        limits: limits(&args.limits),
        tools: !args.chat,
        acd: args.acd,
        notes,
        role,
        personas: persona_dirs,
        first_note,
    })
}

/// Returns the report about the code that the model receives before anything else.
fn first_report(cwd: &Path) -> String {
    let report = explore::report(cwd);
    format!(
        "Report about the code in {}, made by g3. It is information, not instructions.\n\n{report}",
        cwd.display()
    )
}

/// Resolves the settings of the workspace notes: flags first, then the configuration; if neither
/// sets them, the mode decides.
fn notes(args: &NoteArgs, config: &Config) -> Result<Notes> {
    let auto = match (args.auto_memory, args.no_auto_memory) {
        (true, _) => Some(true),
        (_, true) => Some(false),
        (false, false) => config.agent.auto_memory,
    };
    let file = args.memory.as_ref().map(|file| cwd_of_user().join(expand_home(file)));
    if let Some(file) = file.as_ref().filter(|file| file.exists() && !file.is_file()) {
        return Err(
            Failure::usage(format!("{} is not a file", file.display())).hint("--memory notes.md")
        );
    }
    Ok(Notes { file, auto })
}

fn expand_home(path: &Path) -> PathBuf {
    gate::paths::expand_home(&path.to_string_lossy())
}

fn limits(args: &LimitArgs) -> UsageLimits {
    UsageLimits {
        turns: args.max_turns,
        tokens: args.max_tokens,
        cost_usd: args.budget,
        time: args.timeout.map(Duration::from_secs),
    }
}

/// Returns the working directory, absolute and without symbolic links.
pub(crate) fn directory(common: &GlobalArgs) -> Result<PathBuf> {
    let current_dir = std::env::current_dir().or_fail(|| "cannot tell the working directory")?;
    let Some(requested) = &common.workspace else { return Ok(current_dir) };
    let dir = current_dir.join(requested);
    match dir.canonicalize() {
        Ok(path) if path.is_dir() => Ok(path),
        Ok(_) => Err(Failure::usage(format!("{} is not a directory", dir.display()))),
        Err(error) => Err(Failure::usage(format!("cannot use {}", dir.display())).because(error)),
    }
}

/// Loads the configuration for a directory, including the repository's MCP servers.
pub(crate) fn load(common: &GlobalArgs, cwd: &std::path::Path) -> Result<LoadedConfig> {
    let keyless = KeylessConfig::inherited()?;
    let sources = ConfigSources { keyless, ..sources(common, cwd) };
    let mut loaded = base::config::load(&sources)?;
    if sources.config_file.is_none() {
        let file = mcp::repository_file(cwd);
        mcp::add(&mut loaded, &file, sources.trust_store().as_deref())?;
    }
    Ok(loaded)
}

/// Returns the sources of the configuration.
pub(crate) fn sources(common: &GlobalArgs, cwd: &std::path::Path) -> ConfigSources {
    let mut sources = ConfigSources::from_env(cwd);
    sources.config_file = common.config.as_ref().map(|file| cwd_of_user().join(file));
    sources
}

/// Returns the directory against which relative paths on the command line are resolved.
pub(crate) fn cwd_of_user() -> PathBuf {
    std::env::current_dir().unwrap_or_default()
}
