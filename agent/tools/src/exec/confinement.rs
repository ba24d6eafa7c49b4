//! Runs commands in a sandbox. By default a command may write the working directory, temporary
//! files and build caches, and cannot read configurations and logins; a rule may require a stricter
//! sandbox. Inside studio's sandbox it can never read these.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use base::config::agent as config;
use base::process::{AsyncRunning, Command};
use base::sandbox::git_dirs::{self, GitDirs};
use base::sandbox::{self, ClosedScope, Confinement, SandboxRules, caches, home};
use base::workspace;

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
pub(crate) fn scratch_sandbox(root: &Path) -> io::Result<Containment> {
    let sandbox = ScratchSandbox::new(root)?;
    let confinement = Confinement::new(sandbox.rules.clone(), ClosedScope::Closed);
    let confinement = Arc::new(require_complete("sandbox", confinement)?);
    Ok(Containment { confinement, sandbox: Some(Arc::new(sandbox)) })
}

/// The default sandbox of commands and of other programs started for a working directory: language
/// servers, MCP servers, hooks.
#[derive(Clone, Debug)]
pub struct CommandSandbox {
    sandbox: Arc<config::SandboxConfig>,
    root: PathBuf,
    /// The directory of long command outputs, which other commands may read.
    output_dir: Option<PathBuf>,
    /// A directory of the program itself.
    program_dir: Option<PathBuf>,
    /// Further readable paths.
    read: Vec<PathBuf>,
    cache: Arc<SandboxCache>,
}

/// The most recent sandbox of a session, reused for the next command, because creating one reads
/// the home directory.
#[derive(Debug, Default)]
pub struct SandboxCache(Mutex<Option<Made>>);

#[derive(Debug)]
struct Made {
    created_at: Instant,
    /// The device and inode of the working tree, and its git directory; a sandbox is valid only for
    /// these.
    tree: Option<(u64, u64)>,
    git: GitDirs,
    /// A subagent has its own directory.
    output_dir: Option<PathBuf>,
    confinement: Arc<Confinement>,
}

/// Maximum time that a sandbox is reused. Directories created in the meantime are not accessible in
/// it.
const MAX_AGE: Duration = Duration::from_secs(60);

impl CommandSandbox {
    /// Creates the sandbox of a session, in which commands may read the long outputs of others.
    pub(crate) fn of_session(
        sandbox: Arc<config::SandboxConfig>,
        root: &Path,
        session_dir: &Path,
        cache: Arc<SandboxCache>,
    ) -> CommandSandbox {
        let (root, output_dir) = (root.to_owned(), create_output_dir(session_dir));
        CommandSandbox { sandbox, root, output_dir, program_dir: None, read: Vec::new(), cache }
    }

    /// Creates the sandbox for programs that work in this tree.
    pub fn of(sandbox: &config::SandboxConfig, root: &Path) -> CommandSandbox {
        let (sandbox, root) = (Arc::new(sandbox.clone()), root.to_owned());
        let (output_dir, program_dir, read) = (None, None, Vec::new());
        CommandSandbox { sandbox, root, output_dir, program_dir, read, cache: Arc::default() }
    }

    /// Returns the same sandbox with read access to the files that a configured command names, and
    /// to the directories they are in, unless that is the home directory.
    #[must_use]
    pub fn with_read_access(self, command: &[String]) -> CommandSandbox {
        let home = home_dir();
        let named = command.iter().map(PathBuf::from).filter(|path| path.is_absolute());
        let named = named.filter(|path| path.exists());
        let read = named.map(|path| {
            let directory = path.parent().filter(|parent| !home.starts_with(parent));
            directory.map_or(path.clone(), Path::to_owned)
        });
        CommandSandbox { read: read.collect(), cache: Arc::default(), ..self }
    }

    /// Returns the same sandbox with write access to this directory.
    #[must_use]
    pub fn with_write_access(self, directory: &Path) -> CommandSandbox {
        CommandSandbox { program_dir: Some(directory.to_owned()), cache: Arc::default(), ..self }
    }

    /// Returns the restrictions of a program, or `None` if the configuration disables the sandbox
    /// and g3 does not run in studio's sandbox. Fails if the kernel cannot enforce them.
    pub fn containment(&self) -> io::Result<Option<Containment>> {
        if let Some(mut rules) = studio_rules()? {
            rules.read.extend(self.output_dir.clone());
            rules.write.extend(self.program_dir.clone());
            return Ok(Some(Containment::of(confinement(rules, ClosedScope::SideBySide)?)));
        }
        if !self.sandbox.enabled {
            return Ok(None);
        }
        use std::os::unix::fs::MetadataExt;
        let git = git_dirs::of(&self.root);
        let tree = std::fs::metadata(&self.root).ok().map(|meta| (meta.dev(), meta.ino()));
        let mut cache = self.cache.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cached) = cache.as_ref().filter(|cached| cached.created_at.elapsed() < MAX_AGE)
            && (cached.tree, &cached.git, &cached.output_dir) == (tree, &git, &self.output_dir)
        {
            let confinement = cached.confinement.clone();
            return Ok(Some(Containment { confinement, sandbox: None }));
        }
        let confinement = Arc::new(confinement(self.rules(&git), ClosedScope::SideBySide)?);
        let (created_at, cached) = (Instant::now(), confinement.clone());
        let output_dir = self.output_dir.clone();
        *cache = Some(Made { created_at, tree, git, output_dir, confinement: cached });
        Ok(Some(Containment { confinement, sandbox: None }))
    }

    /// Like [`CommandSandbox::containment`], for a program that runs without a permission question. Returns
    /// `None` if the kernel cannot enforce the restrictions.
    pub fn containment_if_supported(&self) -> io::Result<Option<Containment>> {
        match sandbox::check_landlock() {
            Ok(()) => self.containment(),
            Err(_) => Ok(None),
        }
    }

    /// Returns the restrictions of a program that a rule requires to be sandboxed: it writes only
    /// the tree and temporary files. Fails if the kernel cannot enforce them.
    pub(crate) fn strict_containment(&self) -> io::Result<Containment> {
        // If the rules cannot be read, nothing is accessible.
        let studio_rules = studio_rules().unwrap_or_else(|_| Some(SandboxRules::default()));
        let confinement = confinement(self.strict_rules(studio_rules), ClosedScope::Closed);
        Ok(Containment::of(require_complete("box", confinement)?))
    }

    fn strict_rules(&self, studio_rules: Option<SandboxRules>) -> SandboxRules {
        let mut rules = studio_rules.unwrap_or_else(home_rules);
        rules.read.extend(self.output_dir.clone());
        rules.read.extend(self.repository());
        rules.write.extend(home::writable(&self.root, &home_dir(), &g3_paths()));
        rules.write.push(std::env::temp_dir());
        protect_git(&mut rules, &git_dirs::of(&self.root), &self.root);
        rules
    }

    /// Returns the repository around the working directory, which is readable; none in studio's
    /// sandbox, which opens what its agent may read.
    fn repository(&self) -> Vec<PathBuf> {
        match in_studio() {
            true => Vec::new(),
            false => home::readable(&workspace::root(&self.root), &home_dir(), &g3_paths()),
        }
    }

    fn rules(&self, git: &GitDirs) -> SandboxRules {
        let (home, g3_paths) = (home_dir(), g3_paths());
        let mut rules = home::home_rules(&home, &g3_paths);
        rules.read.extend(self.output_dir.clone());
        rules.read.extend(self.repository());
        rules.write.extend(home::writable(&self.root, &home, &g3_paths));
        rules.write.extend(temp_dirs(&home));
        rules.write.extend(caches::of(&home));
        rules.write.extend(git.write.clone());
        protect_git(&mut rules, git, &self.root);
        rules.write.extend(self.program_dir.clone());
        rules.read.extend(self.read.iter().cloned());
        self.sandbox.open(&mut rules, &home);
        rules
    }
}

/// Returns a sandbox with these rules. For GPUs it has its own processes: only their files in `/proc`
/// can be writable.
fn confinement(rules: SandboxRules, scope: ClosedScope) -> io::Result<Confinement> {
    let has_gpus = rules.gpu;
    let confinement = Confinement::new(rules, scope)?;
    Ok(if has_gpus { confinement.with_own_processes() } else { confinement })
}

/// Protects what git runs or obeys, and shows borrowed objects, and the configuration without the
/// logins in it.
fn protect_git(rules: &mut SandboxRules, git: &GitDirs, root: &Path) {
    rules.read.extend(git.borrowed.iter().cloned());
    rules.fixed.extend(git.fixed.iter().cloned());
    rules.guarded.extend(git.guarded.iter().cloned());
    let state = base::user_dirs::state_dir("g3").map(|state| state.join("git-configurations"));
    // Without a copy, git's commands in the sandbox read the file itself.
    let copy = state.ok().and_then(|state| git.config_without_logins(&state, root).ok()?);
    rules.replaced.extend(copy);
}

impl Containment {
    fn of(confinement: Confinement) -> Containment {
        Containment { confinement: Arc::new(confinement), sandbox: None }
    }
}

/// Returns how commands are confined with this configuration.
pub fn command_confinement(sandbox: &config::SandboxConfig) -> CommandConfinement {
    match studio_rules() {
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
    std::env::var_os(sandbox::COMMAND_RULES_VAR).is_some()
}

/// Returns the rules of studio's sandbox for commands, or `None` outside of it.
pub(crate) fn studio_rules() -> io::Result<Option<SandboxRules>> {
    let Some(file) = std::env::var_os(sandbox::COMMAND_RULES_VAR).map(PathBuf::from) else {
        return Ok(None);
    };
    let failed = |error| io::Error::other(format!("cannot read {}: {error}", file.display()));
    read_rules(&file).map_err(failed).map(Some)
}

/// Returns the rules that every command sandbox starts from outside of studio's sandbox.
pub(crate) fn home_rules() -> SandboxRules {
    home::home_rules(&home_dir(), &g3_paths())
}

fn home_dir() -> PathBuf {
    base::user_dirs::home_dir().unwrap_or_else(|| PathBuf::from("/nonexistent"))
}

/// Returns the paths of g3's own configuration and state.
fn g3_paths() -> Vec<PathBuf> {
    let env_path = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let mut paths = vec![home_dir().join(".config/g3")];
    paths.extend(env_path("XDG_CONFIG_HOME").map(|dir| dir.join("g3")));
    paths.extend(env_path(base::user_dirs::STATE_VARIABLE));
    paths
}

/// Returns the directories for temporary files, without those that contain the home directory.
fn temp_dirs(home: &Path) -> impl Iterator<Item = PathBuf> {
    let dirs = [std::env::temp_dir(), PathBuf::from("/tmp"), PathBuf::from("/var/tmp")];
    let home = home.canonicalize().unwrap_or_else(|_| home.to_owned());
    dirs.into_iter().filter(move |dir| !home.starts_with(dir))
}

/// Returns the directory of long command outputs, which other commands may read.
fn create_output_dir(session_dir: &Path) -> Option<PathBuf> {
    let output_dir = session_dir.join("tools");
    // A sandbox rule requires that the directory exists.
    std::fs::create_dir_all(&output_dir).ok().map(|()| output_dir)
}

fn read_rules(file: &Path) -> io::Result<SandboxRules> {
    Ok(serde_json::from_slice(&std::fs::read(file)?)?)
}

/// Starts a command, sandboxed if restrictions are given. It is killed when g3 dies.
pub fn spawn(command: Command, containment: Option<Containment>) -> io::Result<AsyncRunning> {
    // Inside studio's sandbox, the sandbox itself kills everything.
    let command = if in_studio() { command } else { command.kill_group_on_parent_death() };
    spawn_detached(command, containment)
}

/// Like [`spawn`], but the command outlives g3.
pub fn spawn_detached(
    command: Command,
    containment: Option<Containment>,
) -> io::Result<AsyncRunning> {
    containment.into_iter().fold(command, Containment::apply).spawn_async()
}

impl Containment {
    /// Applies the restrictions to a command.
    pub fn apply(command: Command, containment: Containment) -> Command {
        let command = command.confined(containment.confinement);
        match &containment.sandbox {
            Some(sandbox) => sandbox.apply(command),
            None => command,
        }
    }
}

/// Fails if the kernel cannot enforce all restrictions.
fn require_complete(what: &str, confinement: io::Result<Confinement>) -> io::Result<Confinement> {
    let missing = match &confinement {
        Ok(confinement) => confinement.missing().first().cloned(),
        Err(error) => Some(error.to_string()),
    };
    match missing {
        Some(missing) => Err(io::Error::other(format!("no {what} to run it in: {missing}"))),
        None => confinement,
    }
}
