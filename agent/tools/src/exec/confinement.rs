//! Runs commands in a sandbox. By default a command may write the working directory, temporary
//! files and build caches, and cannot read configurations and logins; a rule may require a stricter
//! sandbox. Inside studio's sandbox it can never read these.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use base::config::agent as config;
use base::config::studio::expand_tilde;
use base::process::{AsyncRunning, Command};
use base::sandbox::git_dirs::{self, GitDirs};
use base::sandbox::{self, ClosedScope, Confinement, SandboxRules, caches, home};

use super::sandbox::ScratchSandbox;
use gate::CommandConfinement;

/// The restrictions of a command.
#[derive(Clone, Debug)]
pub struct Containment {
    /// The rules enforced by the kernel.
    pub confinement: Arc<Confinement>,
    /// The scratch sandbox, if the command runs in one.
    pub sandbox: Option<Arc<ScratchSandbox>>,
}

/// Creates the scratch sandbox for a command that works in this tree.
pub(crate) fn sandboxed(root: &Path) -> io::Result<Containment> {
    let sandbox = ScratchSandbox::new(root)?;
    let confinement = Confinement::new(sandbox.rules.clone(), ClosedScope::Closed);
    let confinement = Arc::new(whole("sandbox", confinement)?);
    Ok(Containment { confinement, sandbox: Some(Arc::new(sandbox)) })
}

/// The default sandbox of commands and of other programs started for a working directory: language
/// servers, MCP servers, hooks.
#[derive(Clone, Debug)]
pub struct CommandSandbox {
    sandbox: Arc<config::SandboxConfig>,
    root: PathBuf,
    /// The directory of long command outputs, which other commands may read.
    outputs: Option<PathBuf>,
    /// A directory of the program itself.
    own: Option<PathBuf>,
    recent: Arc<SandboxCache>,
}

/// The most recent sandbox of a session, reused for the next command, because creating one reads
/// the home directory.
#[derive(Debug, Default)]
pub struct SandboxCache(Mutex<Option<Made>>);

#[derive(Debug)]
struct Made {
    at: Instant,
    /// The device and inode of the working tree, and its git directory; a sandbox is valid only for
    /// these.
    tree: Option<(u64, u64)>,
    git: GitDirs,
    /// A subagent has its own directory.
    outputs: Option<PathBuf>,
    confinement: Arc<Confinement>,
}

/// Maximum time that a sandbox is reused. Directories created in the meantime are not accessible in
/// it.
const RECENT: Duration = Duration::from_secs(60);

impl CommandSandbox {
    /// Creates the sandbox of a session, in which commands may read the long outputs of others.
    pub(crate) fn of_session(
        sandbox: Arc<config::SandboxConfig>,
        root: &Path,
        session_dir: &Path,
        recent: Arc<SandboxCache>,
    ) -> CommandSandbox {
        let (root, outputs) = (root.to_owned(), outputs(session_dir));
        CommandSandbox { sandbox, root, outputs, own: None, recent }
    }

    /// Creates the sandbox for programs that work in this tree.
    pub fn of(sandbox: &config::SandboxConfig, root: &Path) -> CommandSandbox {
        let (sandbox, root) = (Arc::new(sandbox.clone()), root.to_owned());
        CommandSandbox { sandbox, root, outputs: None, own: None, recent: Arc::default() }
    }

    /// Returns the same sandbox with write access to this directory.
    #[must_use]
    pub fn writing(self, directory: &Path) -> CommandSandbox {
        CommandSandbox { own: Some(directory.to_owned()), recent: Arc::default(), ..self }
    }

    /// Returns the restrictions of a program, or `None` if the configuration disables the sandbox
    /// and g3 does not run in studio's sandbox. Fails if the kernel cannot enforce them.
    pub fn hold(&self) -> io::Result<Option<Containment>> {
        if let Some(mut rules) = around()? {
            rules.read.extend(self.outputs.clone());
            rules.write.extend(self.own.clone());
            return Ok(Some(Containment::of(Confinement::new(rules, ClosedScope::SideBySide)?)));
        }
        if !self.sandbox.enabled {
            return Ok(None);
        }
        use std::os::unix::fs::MetadataExt;
        let git = git_dirs::of(&self.root);
        let tree = std::fs::metadata(&self.root).ok().map(|meta| (meta.dev(), meta.ino()));
        let mut recent = self.recent.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(made) = recent.as_ref().filter(|made| made.at.elapsed() < RECENT)
            && (made.tree, &made.git, &made.outputs) == (tree, &git, &self.outputs)
        {
            let confinement = made.confinement.clone();
            return Ok(Some(Containment { confinement, sandbox: None }));
        }
        let confinement = Arc::new(Confinement::new(self.rules(&git), ClosedScope::SideBySide)?);
        let (at, made) = (Instant::now(), confinement.clone());
        let outputs = self.outputs.clone();
        *recent = Some(Made { at, tree, git, outputs, confinement: made });
        Ok(Some(Containment { confinement, sandbox: None }))
    }

    /// Like [`CommandSandbox::hold`], for a program that runs without a permission question. Returns
    /// `None` if the kernel cannot enforce the restrictions.
    pub fn hold_where_possible(&self) -> io::Result<Option<Containment>> {
        match sandbox::check_landlock() {
            Ok(()) => self.hold(),
            Err(_) => Ok(None),
        }
    }

    /// Returns the restrictions of a program that a rule requires to be sandboxed: it writes only
    /// the tree and temporary files. Fails if the kernel cannot enforce them.
    pub(crate) fn hold_tightly(&self) -> io::Result<Containment> {
        // If the rules cannot be read, nothing is accessible.
        let around = around().unwrap_or_else(|_| Some(SandboxRules::default()));
        let confinement = Confinement::new(self.tight(around), ClosedScope::Closed);
        Ok(Containment::of(whole("box", confinement)?))
    }

    fn tight(&self, around: Option<SandboxRules>) -> SandboxRules {
        let mut rules = around.unwrap_or_else(home_rules);
        rules.read.extend(self.outputs.clone());
        rules.write.extend(home::writable(&self.root, &home_dir(), &closed()));
        rules.write.push(std::env::temp_dir());
        rules.fixed = git_dirs::of(&self.root).fixed;
        rules
    }

    fn rules(&self, git: &GitDirs) -> SandboxRules {
        let (home, closed) = (home_dir(), closed());
        let mut rules = home::home_rules(&home, &closed);
        rules.read.extend(self.outputs.clone());
        rules.write.extend(home::writable(&self.root, &home, &closed));
        rules.write.extend(temporary(&home));
        rules.write.extend(caches::of(&home));
        rules.write.extend(git.write.clone());
        rules.fixed = git.fixed.clone();
        rules.write.extend(self.own.clone());
        let own = &self.sandbox;
        rules.read.extend(own.read.iter().map(|path| expand_tilde(path, &home)));
        rules.write.extend(own.write.iter().map(|path| expand_tilde(path, &home)));
        rules
    }
}

impl Containment {
    fn of(confinement: Confinement) -> Containment {
        Containment { confinement: Arc::new(confinement), sandbox: None }
    }
}

/// Returns how commands are confined with this configuration.
pub fn confining(sandbox: &config::SandboxConfig) -> CommandConfinement {
    match around() {
        Ok(Some(rules)) => CommandConfinement::Studio(rules.write),
        // If the rules cannot be read, nothing is accessible.
        Err(_) => CommandConfinement::Studio(Vec::new()),
        Ok(None) if !sandbox.enabled => CommandConfinement::Off,
        Ok(None) => sandbox::check_landlock()
            .map_or_else(CommandConfinement::Unable, |()| CommandConfinement::Box),
    }
}

/// Whether g3 runs in studio's sandbox.
pub fn in_studio() -> bool {
    std::env::var_os(sandbox::COMMANDS).is_some()
}

/// Returns the rules of studio's sandbox for commands, or `None` outside of it.
pub(crate) fn around() -> io::Result<Option<SandboxRules>> {
    let Some(file) = std::env::var_os(sandbox::COMMANDS).map(PathBuf::from) else {
        return Ok(None);
    };
    let unread = |why| io::Error::other(format!("cannot read {}: {why}", file.display()));
    read(&file).map_err(unread).map(Some)
}

/// Returns the rules that every command sandbox starts from outside of studio's sandbox.
pub(crate) fn home_rules() -> SandboxRules {
    home::home_rules(&home_dir(), &closed())
}

fn home_dir() -> PathBuf {
    base::user_dirs::home_dir().unwrap_or_else(|| PathBuf::from("/nonexistent"))
}

/// Returns the paths of g3's own configuration and state.
fn closed() -> Vec<PathBuf> {
    let named = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let mut closed = vec![home_dir().join(".config/g3")];
    closed.extend(named("XDG_CONFIG_HOME").map(|dir| dir.join("g3")));
    closed.extend(named(base::user_dirs::STATE_VARIABLE));
    closed
}

/// Returns the directories for temporary files, without those that contain the home directory.
fn temporary(home: &Path) -> impl Iterator<Item = PathBuf> {
    let all = [std::env::temp_dir(), PathBuf::from("/tmp"), PathBuf::from("/var/tmp")];
    let home = home.canonicalize().unwrap_or_else(|_| home.to_owned());
    all.into_iter().filter(move |dir| !home.starts_with(dir))
}

/// Returns the directory of long command outputs, which other commands may read.
fn outputs(session_dir: &Path) -> Option<PathBuf> {
    let outputs = session_dir.join("tools");
    // A sandbox rule requires that the directory exists.
    std::fs::create_dir_all(&outputs).ok().map(|()| outputs)
}

fn read(file: &Path) -> io::Result<SandboxRules> {
    Ok(serde_json::from_slice(&std::fs::read(file)?)?)
}

/// Starts a command, sandboxed if restrictions are given. It is killed when g3 dies.
pub fn spawn(job: Command, hold: Option<Containment>) -> io::Result<AsyncRunning> {
    // Inside studio's sandbox, the sandbox itself kills everything.
    let job = if in_studio() { job } else { job.kill_group_on_parent_death() };
    spawn_lasting(job, hold)
}

/// Like [`spawn`], but the command outlives g3.
pub fn spawn_lasting(job: Command, hold: Option<Containment>) -> io::Result<AsyncRunning> {
    hold.into_iter().fold(job, Containment::around).spawn_async()
}

impl Containment {
    /// Applies the restrictions to a command.
    pub fn around(job: Command, hold: Containment) -> Command {
        let job = job.confined(hold.confinement);
        match &hold.sandbox {
            Some(sandbox) => sandbox.bind(job),
            None => job,
        }
    }
}

/// Fails if the kernel cannot enforce all restrictions.
fn whole(what: &str, made: io::Result<Confinement>) -> io::Result<Confinement> {
    let lack = match &made {
        Ok(made) => made.lacks().first().cloned(),
        Err(why) => Some(why.to_string()),
    };
    match lack {
        Some(lack) => Err(io::Error::other(format!("no {what} to run it in: {lack}"))),
        None => made,
    }
}
