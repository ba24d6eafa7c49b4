//! The context of every command: the common flags, the repository with its sessions, and the output
//! format.

use std::any::Any;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::config::ConfigSources;
use base::failure::{Failure, Result};
use base::id::Id;
use studio_core::console::Console;
use studio_core::interrupt::Interrupt;
use studio_core::project::Project;
use studio_git::repo::Repository;

use crate::commands::{confirm, editor};
use crate::report;
use crate::report::progress::{self, ProgressStep};

/// The context of a command.
pub(crate) struct CommandContext {
    /// The repository, its sessions and the configuration.
    pub project: Project,
    /// Whether the output is JSON.
    pub json: bool,
}

impl Deref for CommandContext {
    type Target = Project;

    fn deref(&self) -> &Project {
        &self.project
    }
}

/// The flags that every command takes.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct CommonArgs {
    /// Run as if started in this directory
    #[arg(short = 'C', value_name = "DIR", global = true)]
    pub directory: Option<PathBuf>,
    /// Print JSON for scripts
    #[arg(long, global = true)]
    pub json: bool,
    /// Read this configuration file instead of the user's and the repository's
    #[arg(long, value_name = "FILE", global = true)]
    pub config: Option<PathBuf>,
}

impl CommonArgs {
    /// Returns the directory of the command, canonicalized.
    pub(crate) fn directory(&self) -> Result<PathBuf> {
        let directory = self.directory.clone().unwrap_or_else(|| PathBuf::from("."));
        directory.canonicalize().map_err(|e| {
            Failure::usage(format!("no such directory: {}", directory.display())).because(e)
        })
    }

    /// Returns the sources of the configuration.
    pub(crate) fn sources(&self) -> Result<ConfigSources> {
        let absolute = |file: &PathBuf| std::path::absolute(file).unwrap_or_else(|_| file.clone());
        let config_file = self.config.as_ref().map(absolute);
        Ok(ConfigSources { config_file, ..ConfigSources::from_env(&self.directory()?) })
    }
}

impl CommandContext {
    /// Creates a context with output for people.
    pub(crate) fn new(project: Project) -> CommandContext {
        let project = Project { console: Arc::new(Terminal { json: false }), ..project };
        CommandContext { project, json: false }
    }

    /// Finds the repository and reads the configuration; notices go to stderr.
    pub(crate) fn open(common: &CommonArgs) -> Result<CommandContext> {
        let directory = common.directory()?;
        let repository = Repository::discover(&directory)?;
        let sources = common.sources()?;
        let loaded = base::config::load(&sources)?;
        if !common.json {
            loaded.notices.iter().for_each(|notice| report::say(notice));
        }
        if repository.common_dir.join("studio").is_dir() {
            // On failure, sandboxes of other repositories may read studio's data here; everything
            // works.
            let _ = base::known_repositories::remember(&repository.common_dir);
        }
        let project = Project {
            config_file: sources.config_file,
            directory: Some(directory),
            console: Arc::new(Terminal { json: common.json }),
            ..Project::new(repository, loaded.config)
        };
        Ok(CommandContext { project, json: common.json })
    }

    /// Sets the interrupt that ends the command on Ctrl-C.
    #[must_use]
    pub(crate) fn with_interrupt(mut self, interrupt: Interrupt) -> CommandContext {
        self.project.interrupt = interrupt;
        self
    }
}

/// The user at the terminal.
struct Terminal {
    /// Whether the output is JSON: then nothing is shown or asked.
    json: bool,
}

impl Console for Terminal {
    fn note(&self, text: &str) {
        if !self.json {
            progress::suspend(|| report::say(text));
        }
    }

    fn confirm(&self, question: &str) -> Option<bool> {
        if self.json { None } else { confirm::ask(question) }
    }

    fn step(&self, id: &Id, what: &str) -> Box<dyn Any> {
        Box::new(ProgressStep::begin(self.json, id, what))
    }

    fn edit(&self, directory: &Path, interrupt: &Interrupt, text: &str) -> Result<String> {
        editor::edit(directory, interrupt, text)
    }
}
