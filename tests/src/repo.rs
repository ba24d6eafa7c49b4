//! A real git repository for a test.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use base::process::{Command, OutputLimits};

/// The variables with which git makes repositories of another format. If they are set, all tests use
/// such repositories.
const FORMAT_VARIABLES: [&str; 2] = ["GIT_DEFAULT_HASH", "GIT_DEFAULT_REF_FORMAT"];

/// A real git repository. Its directory belongs to the test's `TestEnv`.
#[derive(Clone, Debug)]
pub struct Repo {
    path: PathBuf,
}

pub(crate) fn with_repository_format(mut job: Command) -> Command {
    for name in FORMAT_VARIABLES {
        if let Some(value) = std::env::var_os(name) {
            job = job.env(name, value);
        }
    }
    job
}

impl Repo {
    /// Creates a repository on branch `main` with one commit that contains `README.md`.
    pub fn make(path: &Path) -> Repo {
        let repo = Repo::empty(path);
        repo.commit_file("README.md", "# A repository\n");
        repo
    }

    /// Creates a repository without a commit.
    pub fn empty(path: &Path) -> Repo {
        fs::create_dir_all(path).expect("the directory can be made");
        let repo = Repo { path: path.to_owned() };
        repo.git(["init", "-q", "-b", "main"]);
        repo
    }

    /// Returns a handle for an existing repository or worktree.
    pub fn at(path: &Path) -> Repo {
        Repo { path: path.to_owned() }
    }

    /// Returns the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the directory of its sessions' worktrees, beside the repository.
    pub fn worktrees(&self) -> PathBuf {
        let name = self.path.file_name().expect("a repository has a name").to_string_lossy();
        self.path.with_file_name(format!("{name}.worktrees"))
    }

    /// Runs git as a user would; panics if git fails. Returns stdout, trimmed.
    #[track_caller]
    pub fn git<const N: usize>(&self, args: [&str; N]) -> String {
        let (code, out, err) = self.try_git(args);
        assert_eq!(code, 0, "git {args:?} failed in {}: {err}", self.path.display());
        out
    }

    /// Runs git; returns exit code, stdout and stderr.
    pub fn try_git<const N: usize>(&self, args: [&str; N]) -> (i32, String, String) {
        let output =
            self.job().args(args).output(OutputLimits::seconds(120)).expect("git can be run");
        (output.code(), output.text(), output.error_text())
    }

    /// Prepares a git call as a user would make it.
    pub fn job(&self) -> Command {
        with_repository_format(Command::new("git", &self.path).env_clear())
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", "/nonexistent")
            .env("GIT_CONFIG_GLOBAL", "/nonexistent/.gitconfig")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_AUTHOR_NAME", "Ada")
            .env("GIT_AUTHOR_EMAIL", "ada@example.org")
            .env("GIT_COMMITTER_NAME", "Ada")
            .env("GIT_COMMITTER_EMAIL", "ada@example.org")
            .env("GIT_AUTHOR_DATE", "2026-01-02T09:00:00Z")
            .env("GIT_COMMITTER_DATE", "2026-01-02T09:00:00Z")
    }

    /// Writes a file, creating its directories.
    #[track_caller]
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path.join(name);
        fs::create_dir_all(path.parent().expect("a file has a parent")).expect("can be made");
        fs::write(path, content).expect("the file can be written");
    }

    /// Writes a file and commits it.
    #[track_caller]
    pub fn commit_file(&self, name: &str, content: impl AsRef<[u8]>) {
        self.write(name, content);
        self.git(["add", "-A", "--", name]);
        self.git(["commit", "-q", "-m", &format!("add {name}")]);
    }

    /// Returns the content of a file in the working tree.
    #[track_caller]
    pub fn read(&self, name: &str) -> String {
        let path = self.path.join(name);
        fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    }

    /// Returns the content of a file at a revision.
    #[track_caller]
    pub fn show(&self, revision: &str, name: &str) -> String {
        self.git(["show", &format!("{revision}:{name}")])
    }

    /// Returns the commit id of a revision.
    #[track_caller]
    pub fn rev(&self, revision: &str) -> String {
        self.git(["rev-parse", "--verify", revision])
    }

    /// Returns everything that a command must not change by accident, as one comparable value:
    /// refs, HEAD, status, worktrees and all files of the working tree.
    #[track_caller]
    pub fn everything(&self) -> BTreeMap<String, String> {
        let mut all = self.files();
        all.insert("<refs>".into(), self.git(["for-each-ref"]));
        all.insert("<HEAD>".into(), self.git(["rev-parse", "--symbolic-full-name", "HEAD"]));
        all.insert("<index>".into(), self.git(["ls-files", "-s"]));
        all.insert("<worktrees>".into(), self.git(["worktree", "list", "--porcelain"]));
        all
    }

    /// Returns all files of the working tree, as [`tree`] does.
    pub fn files(&self) -> BTreeMap<String, String> {
        let mut files = BTreeMap::new();
        // A supervisor may still be writing below `.git`.
        walk(&self.path, &self.path, &|name| name == ".git", &mut files);
        files
    }

    /// Asserts that `git fsck` finds no errors.
    #[track_caller]
    pub fn is_sound(&self) {
        let (code, out, err) = self.try_git(["fsck", "--full", "--no-dangling"]);
        assert_eq!(code, 0, "git fsck: {out}\n{err}");
    }
}

/// Returns all entries below a directory: kind, mode and content, by relative name (bytes escaped).
pub fn tree(root: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    walk(root, root, &|_| false, &mut found);
    found
}

fn walk(
    root: &Path,
    dir: &Path,
    is_left_out: &dyn Fn(&str) -> bool,
    found: &mut BTreeMap<String, String>,
) {
    for entry in fs::read_dir(dir).expect("the directory can be read") {
        let path = entry.expect("the entry can be read").path();
        let name = path.strip_prefix(root).expect("below the root");
        let name = name.as_os_str().as_bytes().escape_ascii().to_string();
        let meta = fs::symlink_metadata(&path);
        let meta = meta.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let kind = meta.file_type();
        if kind.is_dir() {
            if is_left_out(&name) {
                continue;
            }
            walk(root, &path, is_left_out, found);
            found.insert(format!("{name}/"), format!("{:o}", meta.permissions().mode()));
        } else if kind.is_symlink() {
            let target = fs::read_link(&path).expect("a link has a target");
            found.insert(name, format!("-> {}", target.display()));
        } else if kind.is_file() {
            let content = fs::read(&path).expect("the file can be read").escape_ascii().to_string();
            found.insert(name, format!("{:o} {content}", meta.permissions().mode()));
        } else {
            found.insert(name, format!("special {:o}", meta.mode()));
        }
    }
}
