//! Runs the `git` program: explicit directories, a cleared environment, and none of the
//! repository's own programs (hooks, drivers). Used for what libgit2 cannot do.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use crate::git_version::{self, ATTR_SOURCE_VERSION};
use crate::process::{Command, Output, OutputLimits};

/// Settings of every call, verified with planted hooks, drivers and helpers. They are passed
/// through the environment (git 2.31 and later), because `-c` cannot name a driver whose name
/// contains an equals sign.
const FIXED_SETTINGS: &[(&str, &str)] = &[
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("core.alternateRefsCommand", "true"),
    ("safe.bareRepository", "explicit"),
    ("commit.gpgSign", "false"),
    ("tag.gpgSign", "false"),
    ("log.showSignature", "false"),
    ("protocol.ext.allow", "never"),
    ("submodule.recurse", "false"),
    ("credential.helper", ""),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    // In milliseconds: reftables have one lock for all refs, which parallel sessions wait for.
    ("reftable.lockTimeout", "10000"),
];

/// Environment variables of every call; all inherited `GIT_…` variables are removed.
const VARIABLES: &[(&str, &str)] = &[
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_NO_LAZY_FETCH", "1"),
    ("GIT_EDITOR", "true"),
    ("GIT_SEQUENCE_EDITOR", "true"),
    ("GIT_ASKPASS", "true"),
    ("GIT_PAGER", "cat"),
    // Overrides `core.sshCommand`.
    ("GIT_SSH_COMMAND", "ssh"),
    ("LC_ALL", "C"),
];

/// Commands that never read attributes, so that no driver can run: for them the list of drivers is
/// not needed.
const COMMANDS_WITHOUT_DRIVERS: &[&str] = &[
    "branch",
    "check-ref-format",
    "config",
    "for-each-ref",
    "fsck",
    "index-pack",
    "pack-objects",
    "pack-refs",
    "repack",
    "rev-list",
    "rev-parse",
    "symbolic-ref",
    "tag",
    "update-ref",
    "version",
];

/// Commands that show differences: their drivers are disabled by flags as well.
const DIFF_COMMANDS: &[&str] = &["diff", "diff-files", "diff-index", "diff-tree", "log", "show"];

/// Commands that would run git inside nested repositories, whose drivers are unknown.
const SUBMODULE_COMMANDS: &[&str] = &["diff", "diff-files", "diff-index", "status"];

/// Timeout of a connection to another repository, in seconds.
const REMOTE_SECONDS: u64 = 600;

/// Why a git call failed.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// `git` does not exist or cannot be started.
    #[error("{0}")]
    Start(#[from] std::io::Error),
    /// git exited with an error.
    #[error("`git {args}` failed with exit code {code}: {stderr}")]
    Failed {
        /// The arguments, for display.
        args: String,
        /// The exit code.
        code: i32,
        /// Its stderr.
        stderr: String,
    },
}

/// A repository for running git in, with a working tree if one is needed. The list of configured
/// drivers is read before the first call that needs it, and shared by clones. Staging (`add`,
/// `commit`, `stash`) uses libgit2 instead, because git would run itself inside nested
/// repositories.
#[derive(Clone, Debug)]
pub struct Git {
    git_dir: PathBuf,
    work_tree: Option<PathBuf>,
    attributes: Attributes,
    objects: Option<OsString>,
    user_config: bool,
    drivers: Arc<OnceLock<Vec<Setting>>>,
}

/// The attributes that git uses.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Attributes {
    /// Those of the files: checkout needs `eol`.
    OfFiles,
    /// Those of the git directory and of a tree.
    OfTree(String),
}

/// A key and value for one call.
type Setting = (OsString, OsString);

impl Git {
    /// Creates a handle for a git directory; calls that need a working tree use
    /// [`Git::with_work_tree`].
    pub fn at(git_dir: impl Into<PathBuf>) -> Git {
        Git {
            git_dir: git_dir.into(),
            work_tree: None,
            attributes: Attributes::OfFiles,
            objects: None,
            user_config: true,
            drivers: Arc::default(),
        }
    }

    /// Returns a handle for the same repository with a working tree.
    #[must_use]
    pub fn with_work_tree(&self, path: impl Into<PathBuf>) -> Git {
        Git { work_tree: Some(path.into()), ..self.clone() }
    }

    /// Returns a handle that ignores `.gitattributes` if git supports it (2.41 and later): a second
    /// protection against drivers, for everything but checkout. `empty_tree` is the repository's id of
    /// the empty tree, which git knows in every repository.
    #[must_use]
    pub fn without_attributes(&self, empty_tree: &str) -> Git {
        Git { attributes: Attributes::OfTree(empty_tree.to_owned()), ..self.clone() }
    }

    /// Returns a handle with additional object directories: the value of
    /// `GIT_ALTERNATE_OBJECT_DIRECTORIES`.
    #[must_use]
    pub fn with_objects(&self, alternates: impl Into<OsString>) -> Git {
        Git { objects: Some(alternates.into()), ..self.clone() }
    }

    /// Returns a handle that ignores the configuration of the user and the system: for confined
    /// calls, which cannot read those files.
    #[must_use]
    pub fn without_user_config(&self) -> Git {
        Git { user_config: false, drivers: Arc::default(), ..self.clone() }
    }

    /// Returns a handle for a git directory whose configuration names no driver, because studio
    /// wrote it, and that ignores the configuration of the user and the system.
    #[must_use]
    pub fn with_known_config(&self) -> Git {
        Git { drivers: Arc::new(OnceLock::from(Vec::new())), ..self.without_user_config() }
    }

    /// Returns the command for a git call, to which the caller may add environment or input.
    pub fn command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let args: Vec<OsString> = args.into_iter().map(|arg| arg.as_ref().to_owned()).collect();
        let index = command_index(&args);
        let subcommand = args.get(index).and_then(|arg| arg.to_str()).unwrap_or_default();
        let drivers = match COMMANDS_WITHOUT_DRIVERS.contains(&subcommand) {
            true => &[],
            false => self.drivers.get_or_init(|| self.driver_overrides()).as_slice(),
        };
        let mut command = self.bare_command(drivers);
        if let Attributes::OfTree(tree) = &self.attributes
            && git_version::detect().is_ok_and(|version| version >= ATTR_SOURCE_VERSION)
        {
            command = command.arg(format!("--attr-source={tree}"));
        }
        command = command.args(&args[..args.len().min(index + 1)]);
        if DIFF_COMMANDS.contains(&subcommand) {
            command = command.args(["--no-ext-diff", "--no-textconv"]);
        }
        if SUBMODULE_COMMANDS.contains(&subcommand) {
            command = command.arg("--ignore-submodules=dirty");
        }
        command.args(args.iter().skip(index + 1))
    }

    /// Returns a git command with directories, environment and settings, without arguments.
    fn bare_command(&self, drivers: &[Setting]) -> Command {
        let directory = self.work_tree.as_deref().unwrap_or(&self.git_dir);
        let fixed =
            FIXED_SETTINGS.iter().map(|(key, value)| (OsString::from(key), OsString::from(value)));
        let settings: Vec<Setting> = fixed.chain(drivers.iter().cloned()).collect();
        let mut command = clean_git(directory).arg("--git-dir").arg(&self.git_dir);
        if let Some(work_tree) = &self.work_tree {
            command = command.arg("--work-tree").arg(work_tree);
        }
        if let Some(objects) = &self.objects {
            command = command.env("GIT_ALTERNATE_OBJECT_DIRECTORIES", objects);
        }
        if !self.user_config {
            command = command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
        }
        command = command.env("GIT_CONFIG_COUNT", settings.len().to_string());
        for (index, (key, value)) in settings.into_iter().enumerate() {
            command = command.env(format!("GIT_CONFIG_KEY_{index}"), key);
            command = command.env(format!("GIT_CONFIG_VALUE_{index}"), value);
        }
        command
    }

    /// Runs git and returns stdout without its last newline.
    pub fn run<S: AsRef<OsStr>>(&self, args: &[S]) -> Result<String, GitError> {
        let output = self.command(args).output(OutputLimits::seconds(600))?;
        checked(args, output).map(|output| output.text())
    }

    /// Returns the hash function of the repository's object ids: "sha1" or "sha256".
    pub fn object_format(&self) -> Result<String, GitError> {
        self.run(&["rev-parse", "--show-object-format"])
    }

    /// Fetches one ref from a configured remote, with the credential helper of the user's own
    /// configuration. Tags and `FETCH_HEAD` are not written.
    pub fn fetch(&self, remote: &str, refspec: &str, seconds: u64) -> Result<(), GitError> {
        let mut args = Vec::new();
        if let Some(helper) = user_setting("credential.helper") {
            args.extend(["-c".to_owned(), format!("credential.helper={helper}")]);
        }
        let options = ["fetch", "--quiet", "--no-tags", "--no-write-fetch-head"];
        args.extend(options.map(str::to_owned));
        args.extend(self.upload_pack(remote)?);
        args.extend(["--", remote, refspec].map(str::to_owned));
        let output = self.command(&args).output(OutputLimits::seconds(seconds))?;
        checked(&args, output).map(|_| ())
    }

    /// Fetches objects that a partial clone lacks: `ids`, one in a line, from the remote that has them.
    /// No ref is written.
    pub fn fetch_objects(&self, remote: &str, ids: &str) -> Result<(), GitError> {
        // As git fetches them itself: the remote is not told what the clone has.
        let mut args = vec!["-c", "fetch.negotiationAlgorithm=noop", "fetch", "--quiet"];
        args.extend(["--no-tags", "--no-write-fetch-head", "--no-recurse-submodules"]);
        args.extend(["--no-prune", "--refmap=", "--filter=blob:none", "--stdin"]);
        let mut args: Vec<String> = args.into_iter().map(str::to_owned).collect();
        args.extend(self.upload_pack(remote)?);
        args.extend(["--".to_owned(), remote.to_owned()]);
        self.run_remote(&args, ids).map(|_| ())
    }

    /// Returns the option with which git starts its own program as the other side of a repository on
    /// this machine, and not one that the configuration names.
    fn upload_pack(&self, remote: &str) -> Result<Option<String>, GitError> {
        let url = self.run(&["remote", "get-url", "--", remote])?;
        Ok(is_local(&url).then(|| "--upload-pack=git-upload-pack".to_owned()))
    }

    /// Returns the URLs of a configured remote: where it is fetched from, and where it is pushed to.
    pub fn remote_urls(&self, remote: &str) -> Result<(String, String), GitError> {
        let fetched = self.run(&["remote", "get-url", "--", remote])?;
        let pushed = self.run(&["remote", "get-url", "--push", "--", remote])?;
        Ok((fetched, pushed))
    }

    /// Returns the commit of a branch of another repository; `None` if it has no such branch.
    pub fn remote_tip(&self, url: &str, branch: &str) -> Result<Option<String>, GitError> {
        let args = ["ls-remote", "--quiet", "--refs", "--", url, branch].map(str::to_owned);
        let text = self.run_remote(&args, "")?;
        let line = text.lines().find_map(|line| line.split_once('\t'));
        Ok(line.filter(|(_, name)| *name == branch).map(|(id, _)| id.to_owned()))
    }

    /// Pushes a commit to a branch of another repository, if the branch is at `expected` there:
    /// `None` if it must not exist. No hook runs, on neither side of a local repository.
    pub fn push(
        &self,
        url: &str,
        commit: &str,
        branch: &str,
        expected: Option<&str>,
    ) -> Result<(), GitError> {
        let mut args = vec!["push", "--quiet", "--no-verify", "--no-signed", "--no-follow-tags"];
        args.push("--no-recurse-submodules");
        let mut args: Vec<String> = args.into_iter().map(str::to_owned).collect();
        args.push(format!("--force-with-lease={branch}:{}", expected.unwrap_or_default()));
        if is_local(url) {
            args.push("--receive-pack=git -c core.hooksPath=/dev/null receive-pack".to_owned());
        }
        args.extend(["--".to_owned(), url.to_owned(), format!("{commit}:{branch}")]);
        self.run_remote(&args, "").map(|_| ())
    }

    /// Runs a command that connects to another repository: with the credentials, and the ssh command,
    /// of the user's own configuration, and without questions.
    fn run_remote(&self, args: &[String], input: &str) -> Result<String, GitError> {
        let mut command = self.command(args);
        let credentials = user_settings_in(&self.git_dir, "^credential\\.");
        let first = FIXED_SETTINGS.len() + self.drivers.get().map_or(0, Vec::len);
        for (index, (key, value)) in credentials.iter().enumerate() {
            command = command.env(format!("GIT_CONFIG_KEY_{}", first + index), key);
            command = command.env(format!("GIT_CONFIG_VALUE_{}", first + index), value);
        }
        let ssh = user_setting_in(&self.git_dir, "core.sshCommand");
        let command = command
            .env("GIT_CONFIG_COUNT", (first + credentials.len()).to_string())
            .env("GIT_SSH_COMMAND", ssh.as_deref().unwrap_or("ssh -o BatchMode=yes"))
            // Overrides `core.gitProxy`.
            .env("GIT_PROXY_COMMAND", "")
            .input(input);
        checked(args, command.output(OutputLimits::seconds(REMOTE_SECONDS))?)
            .map(|output| output.text())
    }

    /// Returns settings that empty every configured driver, by name. Listing the configuration runs
    /// no program.
    fn driver_overrides(&self) -> Vec<Setting> {
        let list = self.bare_command(&[]).args(["config", "--list", "-z", "--name-only"]);
        let Ok(list) = list.output(OutputLimits::seconds(30)) else { return Vec::new() };
        let keys: BTreeSet<&[u8]> = list.stdout.split(|byte| *byte == 0).collect();
        let drivers: BTreeSet<Setting> = keys.into_iter().flat_map(empty_drivers).collect();
        drivers.into_iter().collect()
    }
}

/// Returns whether a URL names a repository on this machine: git then starts its other side itself.
fn is_local(url: &str) -> bool {
    let is_scp = || {
        let colon = url.find(':');
        colon.is_some_and(|colon| !url[..colon].contains('/'))
    };
    url.starts_with("file://") || (!url.contains("://") && !is_scp())
}

/// Returns a git command in a directory, without inherited `GIT_…` variables.
fn clean_git(directory: &Path) -> Command {
    with_clean_environment(Command::new("git", directory))
}

/// Returns the command of a filter, a line for `sh -c` as in git's configuration: in a working tree
/// and a git directory that studio made, with the configuration of the user and without questions.
pub fn filter_command(git_dir: &Path, work_tree: &Path, line: &str) -> Command {
    let ssh = user_setting_in(git_dir, "core.sshCommand");
    with_clean_environment(Command::new("sh", work_tree).args(["-c", line]))
        .env("GIT_DIR", git_dir)
        .env("GIT_WORK_TREE", work_tree)
        .env("GIT_SSH_COMMAND", ssh.as_deref().unwrap_or("ssh -o BatchMode=yes"))
}

/// Removes inherited `GIT_…` variables from a command's environment and sets [`VARIABLES`].
fn with_clean_environment(mut command: Command) -> Command {
    for (key, _) in std::env::vars_os() {
        if key.as_bytes().starts_with(b"GIT_") && !KEPT_VARIABLES.iter().any(|name| key == *name) {
            command = command.env_remove(key);
        }
    }
    VARIABLES.iter().fold(command, |command, (key, value)| command.env(key, value))
}

/// Returns a setting of the user's configuration (system and global files), never of a repository.
pub fn user_setting(key: &str) -> Option<String> {
    let command = clean_git(Path::new("/")).env("GIT_DIR", "/dev/null");
    let output = command.args(["config", "--get", key]).output(OutputLimits::seconds(30)).ok()?;
    output.ok().then(|| output.text())
}

/// Like [`user_setting`], in a repository: conditional includes (`includeIf`) of the user's files
/// apply, and the repository's own configuration does not.
pub fn user_setting_in(git_dir: &Path, key: &str) -> Option<String> {
    own_entries(git_dir, "--get-all", key).pop()
}

/// Returns all settings of the user's configuration whose lower-case names match a regular
/// expression, in the order of git, as in [`user_setting_in`].
pub fn user_settings_in(git_dir: &Path, names: &str) -> Vec<(String, String)> {
    let entries = own_entries(git_dir, "--get-regexp", names).into_iter();
    let split = |entry: String| {
        let (key, value) = entry.split_once('\n').unwrap_or((&entry, ""));
        (key.to_owned(), value.to_owned())
    };
    entries.map(split).collect()
}

/// Returns the entries of `git config` that come from the user's and the system's files.
fn own_entries(git_dir: &Path, query: &str, name: &str) -> Vec<String> {
    let command = clean_git(Path::new("/")).arg("--git-dir").arg(git_dir);
    let command = command.args(["config", "--show-scope", "-z", query, name]);
    let Ok(output) = command.output(OutputLimits::seconds(30)) else { return Vec::new() };
    let text = String::from_utf8_lossy(&output.stdout);
    let fields: Vec<&str> = text.split_terminator('\0').collect();
    let (pairs, _) = fields.as_chunks::<2>();
    let own = pairs.iter().filter(|[scope, _]| matches!(*scope, "global" | "system"));
    own.map(|[_, entry]| (*entry).to_owned()).collect()
}

/// Returns a git command with the user's own configuration, in a directory outside all
/// repositories.
pub fn outside_repositories(directory: &Path) -> Command {
    let mut command = Command::new("git", directory);
    for (key, _) in std::env::vars_os() {
        let is_user_setting = KEPT_VARIABLES.iter().chain(&["GIT_PAGER"]).any(|name| key == *name);
        if key.as_bytes().starts_with(b"GIT_") && !is_user_setting {
            command = command.env_remove(key);
        }
    }
    command.env("GIT_CEILING_DIRECTORIES", directory.parent().unwrap_or(directory))
}

/// Variables that are kept: they locate the user's own configuration.
const KEPT_VARIABLES: &[&str] = &["GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM"];

/// Returns the index of the subcommand among the arguments, after git's own options.
fn command_index(args: &[OsString]) -> usize {
    let mut index = 0;
    while let Some(arg) =
        args.get(index).and_then(|arg| arg.to_str()).filter(|a| a.starts_with('-'))
    {
        index += if matches!(arg, "-c" | "-C" | "--exec-path" | "--namespace") { 2 } else { 1 };
    }
    index
}

/// Returns the settings that empty the commands of a driver or of a configured hook.
fn empty_drivers(key: &[u8]) -> Vec<Setting> {
    let Some(first) = key.iter().position(|byte| *byte == b'.') else { return Vec::new() };
    let Some(last) = key.iter().rposition(|byte| *byte == b'.') else { return Vec::new() };
    if first == last {
        return Vec::new();
    }
    let setting = |name: &str, value: &str| {
        let key = [&key[..=last], name.as_bytes()].concat();
        (OsStr::from_bytes(&key).to_owned(), OsString::from(value))
    };
    match &key[..first] {
        b"filter" => {
            vec![
                setting("clean", ""),
                setting("smudge", ""),
                setting("process", ""),
                setting("required", "false"),
            ]
        }
        b"merge" => vec![setting("driver", "")],
        b"diff" => vec![setting("command", ""), setting("textconv", "")],
        b"hook" => vec![setting("enabled", "false")],
        _ => Vec::new(),
    }
}

/// Converts a failed call into an error that names it.
pub fn checked<S: AsRef<OsStr>>(args: &[S], output: Output) -> Result<Output, GitError> {
    if output.ok() {
        return Ok(output);
    }
    let args: Vec<_> = args.iter().map(|a| a.as_ref().to_string_lossy().into_owned()).collect();
    let stderr = if output.timed_out { "timed out".into() } else { output.error_text() };
    Err(GitError::Failed { args: args.join(" "), code: output.code(), stderr })
}

/// Returns the git directories of a path: `(common, git_dir)`.
pub fn discover(from: &Path) -> Result<(PathBuf, PathBuf), GitError> {
    let args = ["rev-parse", "--path-format=absolute", "--git-common-dir", "--absolute-git-dir"];
    let command = clean_git(from).env("GIT_CONFIG_COUNT", "0");
    let output = command.args(args).output(OutputLimits::seconds(30))?;
    let output = checked(&args, output)?;
    let text = output.text();
    let mut lines = text.lines().map(PathBuf::from);
    let common = lines.next().unwrap_or_default();
    let git_dir = lines.next().unwrap_or_else(|| common.clone());
    Ok((common, git_dir))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_local_unless_it_names_a_host() {
        for local in ["/srv/r.git", "../r", "file:///srv/r.git", "./a:b"] {
            assert!(is_local(local), "{local}");
        }
        for remote in ["https://h/r.git", "ssh://git@h:22/r", "git@h:o/r.git", "h:r", "git://h/r"] {
            assert!(!is_local(remote), "{remote}");
        }
    }
}
