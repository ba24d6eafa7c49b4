//! The rules of a session's sandbox: the worktree, its private git directory, its own temporary
//! directory and its own build caches are writable; everything is readable except secrets, the main
//! checkout and other worktrees.

use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use base::config::agent::SandboxConfig;
use base::config::layers::user_config_file;
use base::config::studio::{AgentRow, expand_tilde};
use base::process::find_program;
use base::sandbox::environment::{ChildKind, cache_env, cache_trees, child_env};
use base::sandbox::home::home_rules;
use base::sandbox::{self, SandboxRules, borrowed_objects, caches};
use base::user_dirs::STATE_VARIABLE;

use crate::sandbox::limits::SandboxLimits;
use crate::sandbox::{NetworkAccess, SandboxSpec, cargo_home};

/// The paths of a session for its sandbox.
#[derive(Clone, Copy, Debug)]
pub struct SessionPaths<'a> {
    /// The user's home directory.
    pub home: &'a Path,
    /// The session's worktree.
    pub worktree: &'a Path,
    /// The session's private git directory.
    pub private_git: &'a Path,
    /// The repository's git directory (the common one).
    pub repository_git: &'a Path,
    /// The session's own temporary directory.
    pub temp: &'a Path,
    /// The build caches of these processes.
    pub cache: &'a Path,
    /// The trees around it.
    pub trees: &'a SessionTrees,
    /// Paths that an agent must not change within its writable trees.
    pub protected: &'a [PathBuf],
}

/// The trees that all sandboxes of a session have in common. Finding them takes a walk over the home
/// directory and around each known repository.
#[derive(Clone, Debug)]
pub struct SessionTrees {
    /// Closed: the main checkout, other worktrees.
    hidden: Vec<PathBuf>,
    /// What is readable of the system and the home directory.
    system: SandboxRules,
}

impl SessionTrees {
    /// Determines them for a home directory, closed trees, and the repository's git directory.
    pub fn new(home: &Path, hidden: Vec<PathBuf>, repository_git: &Path) -> SessionTrees {
        // Only studio reads its own data about sessions (which contains tokens), and the
        // repository's configuration may contain a login.
        let mut closed = hidden.clone();
        closed.extend([repository_git.join("studio"), repository_git.join("config")]);
        SessionTrees { system: home_rules(home, &closed), hidden }
    }
}

impl SandboxSpec {
    /// Returns the specification of the sandbox for a session's processes. `row` is the agent's
    /// entry, with the paths and variables that only it gets; checks, setup commands and shells
    /// have none.
    pub fn for_session(
        paths: &SessionPaths<'_>,
        row: Option<&AgentRow>,
        config: &SandboxConfig,
    ) -> io::Result<SandboxSpec> {
        let mut rules = paths.trees.system.clone();
        rules.read.extend(["objects", "lfs/objects"].map(|dir| paths.repository_git.join(dir)));
        rules.read.extend(borrowed_objects::directories(&paths.repository_git.join("objects")));
        config.open(&mut rules, paths.home);
        rules.write.extend([paths.worktree, paths.private_git].map(Path::to_owned));
        let caches = cache_env(paths.cache, &caches::cargo_home(paths.home))?;
        let mut caches: Vec<(String, String)> =
            caches.into_iter().map(|(name, path)| (name, path.display().to_string())).collect();
        let namespaces = sandbox::namespaces_are_possible();
        let has_mounts = config.enabled && namespaces;
        if let Some(users) = cargo_home::show(&mut rules, paths.cache, paths.home, has_mounts)? {
            caches.push(("CARGO_HOME".to_owned(), users.display().to_string()));
            let own = paths.cache.join("cargo");
            caches.push(("CARGO_INSTALL_ROOT".to_owned(), own.display().to_string()));
        }
        rules.write.extend(cache_trees(paths.cache));
        let mut variables: &[String] = &[];
        let mut child = ChildKind::Tool;
        let mut commands = Vec::new();
        if let Some(row) = row {
            if config.enabled {
                let rules_file = write_command_rules(paths, &rules)?;
                commands.push((
                    sandbox::COMMAND_RULES_VAR.to_owned(),
                    rules_file.display().to_string(),
                ));
                rules.read.push(rules_file);
            }
            (variables, child) = (&row.env, ChildKind::Agent);
            let assignments = row.env.iter().filter_map(|entry| entry.split_once('='));
            commands.extend(assignments.map(|(name, value)| (name.to_owned(), value.to_owned())));
            rules.read.extend(program_paths(row, paths.home));
            rules.read.extend(readable_paths(row, paths.home));
            for path in row.write.iter().map(|path| expand_tilde(path, paths.home)) {
                make_directory(&path, paths.home)?;
                rules.write.push(path);
            }
            if !config.enabled {
                // Without a sandbox for the session, g3 creates none for its commands either.
                commands.push(("G3_SANDBOX__ENABLED".to_owned(), "false".to_owned()));
            }
            let state = agent_state(paths)?;
            commands.push((STATE_VARIABLE.to_owned(), state.display().to_string()));
            rules.write.push(state);
            rules.fixed = paths.protected.to_vec();
        }
        let inherited = child_env(std::env::vars_os(), variables, child);
        let inherited = inherited.into_iter().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        // The user's own git configuration names keys and programs that are not accessible here
        // (for signing, above all); the session's configuration contains what applies.
        let git = paths.private_git.join("config").display().to_string();
        let git = [("GIT_CONFIG_GLOBAL".to_owned(), git)];
        let open_trees = [&rules.read[..], &rules.write[..]].concat();
        let mut environment: Vec<(String, String)> = inherited
            .filter_map(|(name, value)| {
                let value = without_closed_paths(&name, value, &paths.trees.hidden, &open_trees)?;
                Some((name, value))
            })
            .collect();
        for (name, value) in caches.into_iter().chain(git).chain(commands) {
            environment.retain(|(existing, _)| *existing != name);
            environment.push((name, value));
        }
        Ok(SandboxSpec {
            confined: config.enabled,
            best_effort: config.best_effort,
            namespaces,
            rules,
            directory: paths.worktree.to_owned(),
            environment,
            temp: Some(paths.temp.to_owned()),
            network: NetworkAccess::Open,
            descriptors: Vec::new(),
            limits: SandboxLimits {
                trees: [paths.worktree, paths.private_git, paths.temp, paths.cache]
                    .map(Path::to_owned)
                    .to_vec(),
                ..SandboxLimits::default()
            },
        })
    }
}

/// Returns the value of a variable without paths in closed trees: a program found there could not
/// be started, and a library not be read. `None` if no path is left.
fn without_closed_paths(
    name: &str,
    value: String,
    closed: &[PathBuf],
    open_trees: &[PathBuf],
) -> Option<String> {
    let is_in = |path: &str, trees: &[PathBuf]| {
        path.starts_with('/') && trees.iter().any(|tree| Path::new(path).starts_with(tree))
    };
    let is_closed = |path: &str| is_in(path, closed) && !is_in(path, open_trees);
    if name == "HOME" || !value.split(':').any(is_closed) {
        return Some(value);
    }
    let remaining: Vec<&str> = value.split(':').filter(|path| !is_closed(path)).collect();
    (!remaining.is_empty()).then(|| remaining.join(":"))
}

/// Returns the paths that an agent's entry opens for reading.
fn readable_paths(row: &AgentRow, home: &Path) -> Vec<PathBuf> {
    let closed = closed_files(row, home);
    let mut read = Vec::new();
    for path in &row.read {
        open_around(&expand_tilde(path, home), &closed, &mut read);
    }
    read
}

/// Returns the files that an agent's entry does not open although they are in a readable directory:
/// for g3, those that contain keys.
fn closed_files(row: &AgentRow, home: &Path) -> Vec<PathBuf> {
    let mut closed = Vec::new();
    if row.proxies_configured_services() {
        closed.extend(user_config_file());
        closed.push(home.join(".config/g3/config.toml"));
        let logins = home.join(".g3/oauth");
        let are_used = row.write.iter().any(|path| expand_tilde(path, home) == logins);
        closed.extend(Some(logins).filter(|_| !are_used));
    }
    closed
}

/// Opens a tree, without the closed paths in it.
fn open_around(tree: &Path, closed: &[PathBuf], read: &mut Vec<PathBuf>) {
    if closed.iter().any(|path| tree.starts_with(path)) {
        return;
    }
    if !closed.iter().any(|path| path.starts_with(tree)) {
        read.push(tree.to_owned());
        return;
    }
    let entries = std::fs::read_dir(tree).into_iter().flatten().flatten();
    for entry in entries {
        open_around(&entry.path(), closed, read);
    }
}

/// Returns the paths of an agent's program and of a script that its command names, wherever they are
/// installed, with their own directories.
fn program_paths(row: &AgentRow, home: &Path) -> Vec<PathBuf> {
    let program = row.command.first().and_then(|name| find_program(name));
    let program = program.and_then(|path| path.canonicalize().ok());
    let helper = program.as_ref().map(|path| path.with_file_name("g3-desktop"));
    let named = row.command.iter().skip(1).map(Path::new).filter(|path| path.is_absolute());
    let named = named.filter_map(|path| path.canonicalize().ok()).filter(|path| path.is_file());
    let mut paths: Vec<PathBuf> = program.into_iter().chain(named).collect();
    let directories: Vec<PathBuf> =
        paths.iter().filter_map(|path| installation(path, home)).collect();
    paths.extend(directories.into_iter().chain(helper));
    paths
}

/// Returns the directory of a program that is installed somewhere in the home directory; `None` if
/// that directory may contain more than the program, as `~/Downloads` does.
fn installation(program: &Path, home: &Path) -> Option<PathBuf> {
    let directory = program.parent()?;
    let depth = directory.strip_prefix(home.canonicalize().ok()?).ok()?.components().count();
    (depth > 1).then(|| directory.to_owned())
}

/// Creates a directory in the home directory that an agent's entry makes writable: the kernel opens
/// only existing paths, and an agent that was never started has not created its directories. A name
/// with an extension (`x.json`) is assumed to be a file and is not created.
fn make_directory(path: &Path, home: &Path) -> io::Result<()> {
    if !path.starts_with(home) || path.extension().is_some() || path.exists() {
        return Ok(());
    }
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|error| {
        let subject = "a directory in `write` of the agent's row";
        io::Error::new(error.kind(), format!("cannot make {} ({subject}): {error}", path.display()))
    })
}

/// Returns the directory of the agent's conversation: in the session's own directory, out of reach
/// of the commands that it runs.
fn agent_state(paths: &SessionPaths<'_>) -> io::Result<PathBuf> {
    let state = paths.temp.with_file_name("agent-state");
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&state)?;
    Ok(state)
}

/// Writes the rules for an agent's commands: the agent's own, without the paths that its entry
/// opens for it alone. No process in the sandbox can write the file.
fn write_command_rules(paths: &SessionPaths<'_>, rules: &SandboxRules) -> io::Result<PathBuf> {
    let mut rules = rules.clone();
    rules.write.push(paths.temp.to_owned());
    let file = paths.temp.with_file_name("command-rules.json");
    base::files::replace_cache(&file, &serde_json::to_vec(&rules)?)?;
    Ok(file)
}
