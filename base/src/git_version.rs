//! The version of the `git` program on `PATH`. Each command needs it, so it is kept for a program
//! that did not change.

use std::fmt;
use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Result};
use crate::files;
use crate::process::{self, Command, OutputLimits};
use crate::user_dirs::state_dir;

/// The oldest supported git (`merge-tree --write-tree`).
const MIN_VERSION: GitVersion = GitVersion(2, 38);
/// The first git with `--attr-source`.
pub const ATTR_SOURCE_VERSION: GitVersion = GitVersion(2, 41);

/// The first version that reads reftables.
pub const REFTABLE_VERSION: GitVersion = GitVersion(2, 45);
/// The file in studio's state directory in which the version is kept.
const CACHE_FILE: &str = "git-version.json";

/// A git version: major and minor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GitVersion(pub u32, pub u32);

impl fmt::Display for GitVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

impl GitVersion {
    /// Parses `git version 2.47.3` and similar.
    pub fn parse(text: &str) -> Option<GitVersion> {
        let mut numbers = text.trim().strip_prefix("git version ")?.split('.');
        Some(GitVersion(numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
    }
}

/// Returns the version of the git on `PATH`, determined once. Fails with a hint (exit code 2) if
/// git is missing or too old.
pub fn detect() -> Result<GitVersion> {
    static DETECTED: OnceLock<std::result::Result<String, String>> = OnceLock::new();
    let text = DETECTED.get_or_init(text).as_ref().map_err(|error| {
        Failure::usage("git was not found")
            .because(error.as_str())
            .hint("install git 2.38 or later, e.g. `apt install git`")
    })?;
    match GitVersion::parse(text) {
        Some(version) if version >= MIN_VERSION => Ok(version),
        Some(version) => Err(Failure::usage(format!("git {version} is too old"))
            .because(format!("at least {MIN_VERSION} is required"))
            .hint(format!("install git {MIN_VERSION} or later, first in PATH"))),
        None => Err(Failure::usage("cannot determine the version of git")
            .because(text.as_str())
            .hint(format!("install git {MIN_VERSION} or later, first in PATH"))),
    }
}

/// Returns what `git version` prints, from the cache if it is of this program.
fn text() -> std::result::Result<String, String> {
    let program = ProgramFile::of_git();
    let cache = state_dir("studio").ok().map(|dir| dir.join(CACHE_FILE));
    let (Some(program), Some(cache)) = (program, cache) else { return run_git() };
    let read = files::read_small(&cache).ok();
    let cached = read.and_then(|bytes| serde_json::from_slice::<CachedVersion>(&bytes).ok());
    if let Some(cached) = cached.filter(|cached| cached.program == program) {
        return Ok(cached.text);
    }
    let text = run_git()?;
    // Only a directory that exists is used: git may be asked for without a repository of studio.
    if GitVersion::parse(&text).is_some()
        && let Ok(bytes) = serde_json::to_vec(&CachedVersion { program, text: text.clone() })
    {
        // Without the file, git is asked each time.
        let _ = files::replace_cache(&cache, &bytes);
    }
    Ok(text)
}

fn run_git() -> std::result::Result<String, String> {
    let output = Command::new("git", "/").arg("version").output(OutputLimits::seconds(30));
    output.map(|output| output.text()).map_err(|error| error.to_string())
}

#[derive(Serialize, Deserialize)]
struct CachedVersion {
    program: ProgramFile,
    text: String,
}

/// What tells one program from another one without running it.
#[derive(PartialEq, Eq, Serialize, Deserialize)]
struct ProgramFile {
    path: PathBuf,
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl ProgramFile {
    /// Returns the git on `PATH`; `None` if it may be a program that starts another git: a script,
    /// or one of another name.
    fn of_git() -> Option<ProgramFile> {
        let path = process::find_program("git")?.canonicalize().ok()?;
        let is_git = path.file_name().is_some_and(|name| name == "git");
        let meta = fs::metadata(&path).ok().filter(|_| is_git && is_elf(&path))?;
        Some(ProgramFile {
            path,
            device: meta.dev(),
            inode: meta.ino(),
            bytes: meta.len(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        })
    }
}

fn is_elf(path: &Path) -> bool {
    let mut magic = [0; 4];
    let read = fs::File::open(path).and_then(|mut file| file.read_exact(&mut magic));
    read.is_ok() && magic == *b"\x7fELF"
}
