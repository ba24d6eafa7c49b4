//! The hidden command that prepares worktrees for later sessions, in the background, and ends.

use std::ffi::OsString;
use std::io::Read;
use std::path::PathBuf;

use base::config::ConfigSources;
use base::failure::{OrFail, Result};
use base::process::{Command, Stream};
use studio_git::names::WorktreeTemplate;
use studio_git::repo::Repository;
use studio_git::session_repo::SessionRepo;
use studio_git::{filters, pool};

/// The hidden command.
const COMMAND: &str = "__pool";
/// The number of files of a worktree from which one is prepared without being configured.
const MIN_FILES: u32 = 10_000;
/// The number that lowers the priority of a process most (`nice(2)`).
const LOWEST_PRIORITY: i32 = 19;

/// The arguments of the process.
#[derive(Clone, Debug)]
pub struct PoolArgs {
    common_dir: PathBuf,
    template: String,
    commit: String,
    size: u32,
    config_file: Option<PathBuf>,
}

impl PoolArgs {
    /// Parses `__pool COMMON TEMPLATE COMMIT SIZE [CONFIG]`, which studio itself runs; returns `None` for
    /// other commands.
    pub fn parse(mut args: impl Iterator<Item = OsString>) -> Option<PoolArgs> {
        if args.next()? != COMMAND {
            return None;
        }
        let common_dir = args.next()?.into();
        let mut text = || args.next()?.into_string().ok();
        let (template, commit, size) = (text()?, text()?, text()?.parse().ok()?);
        let config_file = args.next().map(PathBuf::from);
        Some(PoolArgs { common_dir, template, commit, size, config_file })
    }
}

/// Prepares worktrees until there are enough.
pub fn run(args: &PoolArgs) -> Result<u8> {
    // Sessions that work come first, however long this takes.
    base::process::lower_priority(LOWEST_PRIORITY);
    let repository = Repository::discover(&args.common_dir)?;
    let template = WorktreeTemplate::parse(&args.template)?;
    // The files have their content, as those of the sessions.
    let config_file = args.config_file.clone();
    let sources = ConfigSources { config_file, ..ConfigSources::from_env(&args.common_dir) };
    let mut config = base::config::load(&sources)?.config;
    filters::trust(&repository, &mut config.studio.filters);
    pool::fill(&repository, &template, &args.commit, args.size)?;
    Ok(0)
}

/// Starts the process when it is needed.
#[derive(Clone, Debug)]
pub(crate) struct PoolFiller {
    /// The repository.
    pub repository: Repository,
    /// The template of worktrees.
    pub template: String,
    /// The configured number of prepared worktrees.
    pub size: Option<u32>,
    /// The configuration file of the session.
    pub config_file: Option<PathBuf>,
}

impl PoolFiller {
    /// Starts the process in the background after a session has its worktree, if there are fewer
    /// prepared worktrees than there should be.
    pub(crate) fn start(&self, session_repo: &SessionRepo) -> Result<()> {
        let is_large = || count_files(session_repo).is_some_and(|files| files >= MIN_FILES);
        let size = self.size.unwrap_or_else(|| u32::from(is_large()));
        let template = WorktreeTemplate::parse(&self.template)?;
        let len = || pool::len(&self.repository, &template, &session_repo.base);
        if size == 0 || len() >= size as usize {
            return Ok(());
        }
        let fail = || "cannot prepare worktrees for later sessions";
        let studio = std::env::current_exe().or_fail(fail)?;
        let command = Command::new(studio, &self.repository.common_dir)
            .arg(COMMAND)
            .arg(&self.repository.common_dir)
            .args([self.template.as_str(), session_repo.base.as_str(), &size.to_string()])
            .args(&self.config_file)
            .stdin(Stream::Null)
            .stdout(Stream::Null)
            .stderr(Stream::Null)
            .detached();
        command.spawn_forget().map(drop).or_fail(fail)
    }
}

/// Returns the number of entries of a session's new index.
fn count_files(session_repo: &SessionRepo) -> Option<u32> {
    let mut head = [0; 12];
    std::fs::File::open(session_repo.git_dir.join("index")).ok()?.read_exact(&mut head).ok()?;
    Some(u32::from_be_bytes([head[8], head[9], head[10], head[11]]))
}
