//! Starting a command in its box. By default a command writes the working directory, temporary
//! files and build caches, and sees no configuration and no login; a rule may ask for a tighter
//! box. In studio's box it sees neither in any case.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use base::config::agent as config;
use base::config::studio::expanded;
use base::process::{AsyncRunning, Command};
use base::sandbox::git_dirs::{self, GitDirs};
use base::sandbox::{self, ClosedScope, Confinement, SandboxRules, caches, home};

use super::sandbox::ScratchSandbox;
use gate::CommandConfinement;

/// What holds a command.
#[derive(Clone, Debug)]
pub struct Containment {
    /// The kernel's rules.
    pub confinement: Arc<Confinement>,
    /// The sandbox, where it runs in that.
    pub sandbox: Option<Arc<ScratchSandbox>>,
}

/// The sandbox for a command that works in this tree.
pub(crate) fn sandboxed(root: &Path) -> io::Result<Containment> {
    let sandbox = ScratchSandbox::new(root)?;
    let confinement = Confinement::new(sandbox.rules.clone(), ClosedScope::Closed);
    let confinement = Arc::new(whole("sandbox", confinement)?);
    Ok(Containment { confinement, sandbox: Some(Arc::new(sandbox)) })
}

/// The box that commands run in by default, and other programs that are started for a working
/// directory: language servers, MCP servers, hooks.
#[derive(Clone, Debug)]
pub struct CommandBox {
    sandbox: Arc<config::SandboxConfig>,
    root: PathBuf,
    /// Where long outputs of commands are kept, for the model to look at with other commands.
    outputs: Option<PathBuf>,
    /// A directory of the program's own.
    own: Option<PathBuf>,
    recent: Arc<RecentBox>,
}

/// The last box of a session, which the next command is likely to need again: to make one, the
/// home directory is read.
#[derive(Debug, Default)]
pub struct RecentBox(Mutex<Option<Made>>);

#[derive(Debug)]
struct Made {
    at: Instant,
    /// The working tree itself, and its git directory: another needs another box.
    tree: Option<(u64, u64)>,
    git: GitDirs,
    /// An agent that works within a session has its own.
    outputs: Option<PathBuf>,
    confinement: Arc<Confinement>,
}

/// How long a box is used again. Directories that were made since are not open in it.
const RECENT: Duration = Duration::from_secs(60);

impl CommandBox {
    /// The box of a session, in which its commands may read the long outputs of others.
    pub(crate) fn of_session(
        sandbox: Arc<config::SandboxConfig>,
        root: &Path,
        session_dir: &Path,
        recent: Arc<RecentBox>,
    ) -> CommandBox {
        let (root, outputs) = (root.to_owned(), outputs(session_dir));
        CommandBox { sandbox, root, outputs, own: None, recent }
    }

    /// The box for programs that work in this tree.
    pub fn of(sandbox: &config::SandboxConfig, root: &Path) -> CommandBox {
        let (sandbox, root) = (Arc::new(sandbox.clone()), root.to_owned());
        CommandBox { sandbox, root, outputs: None, own: None, recent: Arc::default() }
    }

    /// The same box, in which this directory may be written, too.
    #[must_use]
    pub fn writing(self, directory: &Path) -> CommandBox {
        CommandBox { own: Some(directory.to_owned()), recent: Arc::default(), ..self }
    }

    /// What holds a program; nothing where the configuration switches the box off and studio has
    /// none around us. Fails where the kernel cannot hold it.
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

    /// As [`CommandBox::hold`], for a program that no answer of the user lets run otherwise: where
    /// the kernel holds nothing, neither does this.
    pub fn hold_where_possible(&self) -> io::Result<Option<Containment>> {
        match sandbox::holds_files() {
            Ok(()) => self.hold(),
            Err(_) => Ok(None),
        }
    }

    /// What holds a program that a rule boxes: it writes the tree and temporary files only. Fails
    /// where the kernel cannot hold it.
    pub(crate) fn hold_tightly(&self) -> io::Result<Containment> {
        // Without rules nothing can be reached.
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
        rules.read.extend(own.read.iter().map(|path| expanded(path, &home)));
        rules.write.extend(own.write.iter().map(|path| expanded(path, &home)));
        rules
    }
}

impl Containment {
    fn of(confinement: Confinement) -> Containment {
        Containment { confinement: Arc::new(confinement), sandbox: None }
    }
}

/// What holds the commands of a g3 with this configuration.
pub fn confining(sandbox: &config::SandboxConfig) -> CommandConfinement {
    match around() {
        Ok(Some(rules)) => CommandConfinement::Studio(rules.write),
        // Without the rules nothing can be reached.
        Err(_) => CommandConfinement::Studio(Vec::new()),
        Ok(None) if !sandbox.enabled => CommandConfinement::Off,
        Ok(None) => sandbox::holds_files()
            .map_or_else(CommandConfinement::Unable, |()| CommandConfinement::Box),
    }
}

/// Whether studio's box is around us.
pub fn in_studio() -> bool {
    std::env::var_os(sandbox::COMMANDS).is_some()
}

/// The rules of studio's box for commands, where there is one around us.
pub(crate) fn around() -> io::Result<Option<SandboxRules>> {
    let Some(file) = std::env::var_os(sandbox::COMMANDS).map(PathBuf::from) else {
        return Ok(None);
    };
    let unread = |why| io::Error::other(format!("cannot read {}: {why}", file.display()));
    read(&file).map_err(unread).map(Some)
}

/// The rules that every box of a command starts from outside of studio's.
pub(crate) fn home_rules() -> SandboxRules {
    home::home_rules(&home_dir(), &closed())
}

fn home_dir() -> PathBuf {
    base::user_dirs::home_dir().unwrap_or_else(|| PathBuf::from("/nonexistent"))
}

/// Our own configuration and state.
fn closed() -> Vec<PathBuf> {
    let named = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let mut closed = vec![home_dir().join(".config/g3")];
    closed.extend(named("XDG_CONFIG_HOME").map(|dir| dir.join("g3")));
    closed.extend(named(base::user_dirs::STATE_VARIABLE));
    closed
}

/// Where temporary files may be made: not where the home directory is.
fn temporary(home: &Path) -> impl Iterator<Item = PathBuf> {
    let all = [std::env::temp_dir(), PathBuf::from("/tmp"), PathBuf::from("/var/tmp")];
    let home = home.canonicalize().unwrap_or_else(|_| home.to_owned());
    all.into_iter().filter(move |dir| !home.starts_with(dir))
}

/// Where long outputs of commands are kept, for the model to look at with other commands.
fn outputs(session_dir: &Path) -> Option<PathBuf> {
    let outputs = session_dir.join("tools");
    // What is not there cannot be opened.
    std::fs::create_dir_all(&outputs).ok().map(|()| outputs)
}

fn read(file: &Path) -> io::Result<SandboxRules> {
    Ok(serde_json::from_slice(&std::fs::read(file)?)?)
}

/// Starts a job, in the box when something holds it. It ends with us, even when we are killed.
pub fn spawn(job: Command, hold: Option<Containment>) -> io::Result<AsyncRunning> {
    // In studio's box the box itself ends everything.
    let job = if in_studio() { job } else { job.ends_with_us() };
    spawn_lasting(job, hold)
}

/// As [`spawn`], but it outlives us.
pub fn spawn_lasting(job: Command, hold: Option<Containment>) -> io::Result<AsyncRunning> {
    hold.into_iter().fold(job, Containment::around).spawn_async()
}

impl Containment {
    /// The job in this box.
    pub fn around(job: Command, hold: Containment) -> Command {
        let job = job.confined(hold.confinement);
        match &hold.sandbox {
            Some(sandbox) => sandbox.bind(job),
            None => job,
        }
    }
}

/// Whether the kernel holds all of it.
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
