//! Determines whether a command failed because of its sandbox, and how to allow the access. The
//! kernel only reports "Permission denied".

use std::path::{Path, PathBuf};

use base::sandbox::{Confinement, git_dirs};
use rustix::fs::{Access, access};

use gate::paths::follow;

/// Messages of the system for a denied access, in lower case.
const ERROR_TEXTS: [&str; 7] = [
    "permission denied",
    "operation not permitted",
    "read-only file system",
    "device or resource busy",
    "eacces",
    "eperm",
    "os error 13",
];

/// Messages of the system for a missing path, in lower case: a private home directory does not show
/// what is closed.
const MISSING_TEXTS: [&str; 3] = ["no such file or directory", "enoent", "os error 2)"];

/// The message of git for a git directory that it cannot read, in lower case.
const GIT_TEXT: &str = "not a git repository";

/// Number of lines at the end of an output that are searched.
const MAX_LINES: usize = 200;

/// An access that the sandbox denied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Denial {
    /// The path.
    pub path: PathBuf,
    /// The kind of access.
    pub what: DeniedPath,
}

/// The kind of a denied access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeniedPath {
    /// Reading the path.
    Read,
    /// Writing the path.
    Write,
    /// Reading a git directory.
    GitDirectory,
    /// Changing git's configuration or hooks.
    GitConfiguration,
    /// Writing the path, in a directory that the command changed to.
    Elsewhere,
}

/// Finds an access that the sandbox denied, as far as these outputs of a command in `cwd` show it.
pub(crate) fn find(confinement: &Confinement, cwd: &Path, outputs: [&str; 2]) -> Option<Denial> {
    let lines = outputs.into_iter().flat_map(|text| text.lines().rev().take(MAX_LINES));
    lines.into_iter().find_map(|line| {
        let lower = line.to_lowercase();
        if ERROR_TEXTS.iter().any(|error_text| lower.contains(error_text)) {
            return in_line(confinement, cwd, line);
        }
        if lower.contains(GIT_TEXT) {
            return in_git(confinement, cwd);
        }
        let is_missing = MISSING_TEXTS.iter().any(|error_text| lower.contains(error_text));
        let denial = is_missing.then(|| in_line(confinement, cwd, line)).flatten();
        denial.filter(|denial| is_hidden(confinement, denial))
    })
}

/// Returns whether the path, or the directory it is in, exists and the sandbox does not show it. A
/// path that g3 itself does not find either is missing indeed.
fn is_hidden(confinement: &Confinement, denial: &Denial) -> bool {
    let parent = denial.path.parent();
    match denial.what {
        DeniedPath::Read => true,
        DeniedPath::Write => {
            parent.is_some_and(|parent| parent.exists() && confinement.denies_reading(parent))
        }
        DeniedPath::GitConfiguration | DeniedPath::GitDirectory | DeniedPath::Elsewhere => false,
    }
}

/// Returns the denial of the git directory of a working tree.
fn in_git(confinement: &Confinement, cwd: &Path) -> Option<Denial> {
    let path = git_dirs::nearest(cwd)?;
    let is_closed = confinement.denies_reading(&path.join("HEAD"));
    is_closed.then_some(Denial { path, what: DeniedPath::GitDirectory })
}

fn in_line(confinement: &Confinement, cwd: &Path, line: &str) -> Option<Denial> {
    let is_separator = |c: char| c.is_whitespace() || "'\"`‘’“”,;()[]<>".contains(c);
    let words = line.split(is_separator).map(|word| word.trim_end_matches([':', '.']));
    let path_words = words.filter(|word| word.contains('/'));
    // A path with whitespace is in quotes.
    let quoted = line.split(['\'', '"', '‘', '’']).skip(1).step_by(2);
    let words: Vec<&str> = quoted.chain(path_words).filter(|word| !word.is_empty()).collect();
    let follow_word = |word: &&str| follow(&cwd.join(word)).ok();
    let denied_path = words.iter().filter_map(follow_word).find_map(|path| {
        let what = denied(confinement, &path)?;
        Some(Denial { path, what })
    });
    denied_path.or_else(|| {
        // The command ran in another directory; in `cwd` it could have written the path.
        let unwritable = words.iter().find(|word| {
            let path = cwd.join(word);
            let nearest = path.ancestors().find(|it| it.exists());
            let can_write = nearest.is_some_and(|it| access(it, Access::WRITE_OK).is_ok());
            Path::new(word).is_relative() && can_write
        })?;
        Some(Denial { path: PathBuf::from(unwritable), what: DeniedPath::Elsewhere })
    })
}

/// Whether the sandbox denies an access to the path that g3 itself would have.
fn denied(confinement: &Confinement, path: &Path) -> Option<DeniedPath> {
    if confinement.rules.fixed.iter().any(|fixed| path.starts_with(fixed)) {
        return Some(DeniedPath::GitConfiguration);
    }
    let nearest = path.ancestors().find(|ancestor| ancestor.exists())?;
    if path.exists() && confinement.denies_reading(path) && access(path, Access::READ_OK).is_ok() {
        return Some(DeniedPath::Read);
    }
    let is_write_denied =
        confinement.denies_writing(path) && access(nearest, Access::WRITE_OK).is_ok();
    is_write_denied.then_some(DeniedPath::Write)
}

impl Denial {
    /// Describes the denial and how to allow the access. In studio's sandbox only studio's
    /// configuration can allow it.
    pub(crate) fn text(&self, in_studio: bool) -> String {
        let path = self.path.display();
        let open = |key: &str, directory: &Path| {
            format!("`[sandbox] {key} = [\"{}\"]` in the configuration", directory.display())
        };
        let (action, config_hint) = match self.what {
            DeniedPath::Read => ("does not let commands read", open("read", &self.path)),
            DeniedPath::GitDirectory => {
                return format!(
                    "the sandbox opens a git directory outside of the working tree only if it names the \
                     working tree: git --git-dir='{path}' config core.worktree DIRECTORY"
                );
            }
            DeniedPath::Write => {
                let directory = self.path.parent().filter(|_| !self.path.is_dir());
                let directory = directory.unwrap_or(&self.path);
                ("does not let commands write", open("write", directory))
            }
            DeniedPath::Elsewhere => {
                let text = "the sandbox lets commands write the working directory, temporary files and \
                            build caches only";
                return format!("{text}, and not {path} where the command was; {RULE_HINT}");
            }
            DeniedPath::GitConfiguration => {
                let text = "the sandbox protects git's configuration and hooks";
                return format!("{text}: {path}; {RULE_HINT}");
            }
        };
        let rule = if in_studio { String::new() } else { format!("; {RULE_HINT}") };
        format!("the sandbox {action} {path}. To allow it: {config_hint}{rule}")
    }
}

/// The alternative.
const RULE_HINT: &str =
    "a [[gate.rules]] with `action = \"allow\"` runs a command outside the sandbox";
