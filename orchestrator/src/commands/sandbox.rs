//! `studio sandbox`: runs any program in the sandbox of a session's checks.

use std::path::PathBuf;

use base::failure::{Failure, Result};
use base::sandbox::guarded_paths;
use studio_core::exec::directory_sandbox::{DirectorySandbox, OpenedPaths};
use studio_git::repo::Repository;

use crate::commands::context::CommonArgs;
use crate::report;

/// The command line of `sandbox`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Open this path for reading (repeatable)
    #[arg(long, value_name = "PATH")]
    pub read: Vec<PathBuf>,
    /// Open this path for reading and writing (repeatable)
    #[arg(long, value_name = "PATH")]
    pub write: Vec<PathBuf>,
    /// Program and arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub command: Vec<String>,
}

/// Runs the command and returns its exit code.
pub(crate) fn run(common: &CommonArgs, args: &Args) -> Result<u8> {
    let directory = common.directory()?;
    let loaded = base::config::load(&common.sources()?)?;
    loaded.notices.iter().for_each(|notice| report::say(notice));
    let config = loaded.config;
    if !config.sandbox.enabled {
        return Err(Failure::refused("the sandbox is disabled")
            .because("`[sandbox] enabled = false` is configured")
            .hint("remove that line"));
    }
    let open = |paths: &[PathBuf]| -> Result<Vec<PathBuf>> {
        paths
            .iter()
            .map(|path| {
                let path = directory.join(path);
                path.canonicalize().map_err(|error| {
                    Failure::usage(format!("no such path: {}", path.display())).because(error)
                })
            })
            .collect()
    };
    let opened = OpenedPaths { read: open(&args.read)?, write: open(&args.write)? };
    let repository = Repository::discover(&directory).ok();
    let sandbox = DirectorySandbox::new(&directory, repository.as_ref(), &config, opened)?;
    if let Some(path) = sandbox.unprotected().first() {
        let what = format!("the kernel cannot keep {} read-only", path.display());
        if !config.sandbox.best_effort {
            return Err(Failure::refused(what)
                .because("this user may not create mount namespaces")
                .hint("`[sandbox] best_effort = true` continues without it"));
        }
        report::say(&format!("warning: {what}: this user may not create mount namespaces"));
    }
    let code = sandbox.run(&args.command)?;
    for path in sandbox.put_back()? {
        report::say(&format!("warning: {}", guarded_paths::notice(&path)));
    }
    Ok(u8::try_from(code).unwrap_or(1))
}
