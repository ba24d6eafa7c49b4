//! The arguments of hidden commands that work on a project in the background.

use std::ffi::OsString;
use std::path::PathBuf;

use base::config::ConfigSources;
use base::failure::Result;

use crate::project::Project;
use studio_git::repo::Repository;

/// The arguments.
#[derive(Clone, Debug)]
pub struct ProjectArgs {
    /// The git directory that all worktrees share.
    pub(crate) common_dir: PathBuf,
    /// The directory whose configuration applies.
    directory: PathBuf,
    config_file: Option<PathBuf>,
}

impl ProjectArgs {
    /// Parses `COMMAND COMMON DIRECTORY [CONFIG]`, which studio itself runs; returns `None` for other
    /// commands.
    pub(crate) fn parse(
        command: &str,
        mut args: impl Iterator<Item = OsString>,
    ) -> Option<ProjectArgs> {
        if args.next()? != command {
            return None;
        }
        let (common_dir, directory) = (args.next()?.into(), args.next()?.into());
        Some(ProjectArgs { common_dir, directory, config_file: args.next().map(PathBuf::from) })
    }

    /// Returns the project, with the configuration as it is now.
    pub(crate) fn project(&self) -> Result<Project> {
        let repository = Repository::discover(&self.common_dir)?;
        let directory = Some(&self.directory).filter(|directory| directory.is_dir());
        let directory = directory.unwrap_or(&self.common_dir).clone();
        let config_file = self.config_file.clone();
        let sources = ConfigSources { config_file, ..ConfigSources::from_env(&directory) };
        let config = base::config::load(&sources)?.config;
        Ok(Project {
            config_file: sources.config_file,
            directory: Some(directory),
            ..Project::new(repository, config)
        })
    }
}
