//! Checkpoints: the files of the working directory before and after each turn, as trees in a
//! separate git repository of the session. The user's repository is not affected.
//!
//! `.gitignore` applies; ignored files are neither stored nor changed. In a git repository, the
//! user's objects and index are reused, so that only changed files are read and stored.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use base::failure::{Failure, OrFail, Result};
use base::files::{Journal, read_journal};
use base::git::{self, Git, checked};
use base::process::OutputLimits;
use serde::{Deserialize, Serialize};

/// The file changes of one turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnChanges {
    /// The user turn, counted from 1.
    pub turn: usize,
    /// The tree before it.
    pub before: String,
    /// The tree after it.
    pub after: String,
}

/// A line of `checkpoints.jsonl`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "snake_case")]
enum CheckpointLine {
    Changed(TurnChanges),
    Undone { turn: usize },
}

/// The checkpoints of a session.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    git: Git,
    log: PathBuf,
    root: PathBuf,
}

/// A path, and its mode and object before and after; `None` if there was no file.
pub(crate) type PathDifference = (Vec<u8>, Option<(String, String)>, Option<(String, String)>);

/// Timeout of a git command in seconds.
const TIMEOUT_SECONDS: u64 = 120;

impl Checkpoints {
    /// Opens or creates the checkpoints of a session for the files below `root`.
    pub fn open(session_dir: &Path, root: &Path) -> Result<Checkpoints> {
        base::git_version::detect()?;
        let dir = session_dir.join("checkpoints.git");
        let git = Git::at(&dir).with_work_tree(root);
        let log = session_dir.join("checkpoints.jsonl");
        let checkpoints = Checkpoints { git, log, root: root.to_owned() };
        if !dir.join("HEAD").exists() {
            checkpoints.create_repo(&dir).inspect_err(|_| drop(fs::remove_dir_all(&dir)))?;
        }
        Ok(checkpoints)
    }

    fn create_repo(&self, dir: &Path) -> Result<()> {
        let failed = || format!("cannot make {}", dir.display());
        let template = dir.with_extension("template");
        fs::create_dir_all(&template).or_fail(failed)?;
        fs::create_dir_all(dir).or_fail(failed)?;
        let repository = git::discover(&self.root).ok();
        // The objects of both repositories have the same ids.
        let format = match &repository {
            Some((_, git_dir)) => Git::at(git_dir).object_format().or_fail(failed)?,
            None => "sha1".to_owned(),
        };
        let (template_option, format) =
            (format!("--template={}", template.display()), format!("--object-format={format}"));
        let init = ["init", "--quiet", "--bare", &template_option, &format];
        let result = Git::at(dir).run(&init).or_fail(failed);
        let _ = fs::remove_dir_all(&template);
        result?;
        let bare = ["config", "core.bare", "false"];
        Git::at(dir).run(&bare).or_fail(failed)?;
        fs::create_dir_all(dir.join("info")).or_fail(failed)?;
        let mut excluded = ".g3/\n.worktrees/\n".to_owned();
        if let Some((common, git_dir)) = repository {
            excluded += &base::files::read_text(&common.join("info/exclude")).unwrap_or_default();
            self.use_alternates(dir, &common, &git_dir).or_fail(failed)?;
        }
        fs::write(dir.join("info/exclude"), excluded).or_fail(failed)
    }

    /// Lets the repository use the user's objects as alternates and start with a copy of their
    /// index, if that is a plain one. Otherwise everything is read once.
    fn use_alternates(&self, dir: &Path, common: &Path, git_dir: &Path) -> std::io::Result<()> {
        if !self.root.join(".git").exists() {
            return Ok(());
        }
        let objects = common.join("objects");
        fs::create_dir_all(dir.join("objects/info"))?;
        fs::write(dir.join("objects/info/alternates"), format!("{}\n", objects.display()))?;
        let index = base::files::read(&git_dir.join("index")).unwrap_or_default();
        // A split or sparse index refers to objects that are not available here.
        let is_plain = !index.windows(4).any(|window| window == b"link" || window == b"sdir");
        if is_plain && !index.is_empty() {
            fs::write(dir.join("index"), index)?;
        }
        Ok(())
    }

    /// Writes the current files as a tree and returns its id.
    pub fn take_snapshot(&self) -> Result<String> {
        let changed = self.paths(&["diff-files", "-z", "--name-only"])?;
        let new = self.paths(&["ls-files", "-z", "--others", "--exclude-standard"])?;
        // A directory with its own repository belongs to that repository.
        let all = changed.into_iter().chain(new).filter(|path| !path.ends_with(b"/"));
        let input: Vec<u8> = all.flat_map(|path| [path, vec![0]].concat()).collect();
        if !input.is_empty() {
            self.run_with_input(&["update-index", "--add", "--remove", "-z", "--stdin"], input)?;
        }
        // In a partial clone, files that a sparse checkout leaves out may be missing.
        self.git
            .run(&["write-tree", "--missing-ok"])
            .or_fail(|| "cannot keep a picture of the files")
    }

    /// Records the changes of a turn, if there are any.
    pub fn record(&self, turn: usize, before: String, after: String) -> Result<()> {
        if before == after {
            return Ok(());
        }
        self.append(&CheckpointLine::Changed(TurnChanges { turn, before, after }))
    }

    fn append(&self, line: &CheckpointLine) -> Result<()> {
        let failed = || format!("cannot write {}", self.log.display());
        let mut journal = Journal::open(&self.log).or_fail(failed)?;
        journal.append(line).and_then(|()| journal.sync()).or_fail(failed)
    }

    /// Returns the changes of turns that were not undone, newest last.
    pub fn changes(&self) -> Result<Vec<TurnChanges>> {
        let lines: Vec<CheckpointLine> =
            read_journal(&self.log).or_fail(|| format!("cannot read {}", self.log.display()))?;
        let mut changes: Vec<TurnChanges> = Vec::new();
        for line in lines {
            match line {
                CheckpointLine::Changed(change) => changes.push(change),
                CheckpointLine::Undone { turn } => changes.retain(|change| change.turn < turn),
            }
        }
        Ok(changes)
    }

    /// Undoes the file changes of this turn and all later ones. Returns the paths. Fails without
    /// any change if one of the files was changed since by something else.
    pub fn undo(&self, turn: usize) -> Result<Vec<PathBuf>> {
        let changes = self.changes()?;
        let undone: Vec<&TurnChanges> =
            changes.iter().filter(|change| change.turn >= turn).collect();
        let (Some(first), Some(last)) = (undone.first(), undone.last()) else {
            return Ok(Vec::new());
        };
        let own_paths: BTreeSet<Vec<u8>> =
            undone.iter().try_fold(BTreeSet::new(), |mut all, one| {
                all.extend(self.changed_paths(&one.before, &one.after)?);
                Ok::<_, Failure>(all)
            })?;
        let current = self.take_snapshot()?;
        let foreign_changes: BTreeSet<Vec<u8>> = self
            .changed_paths(&last.after, &current)?
            .into_iter()
            .filter(|p| own_paths.contains(p))
            .collect();
        if !foreign_changes.is_empty() {
            let names: Vec<String> =
                foreign_changes.iter().map(|path| display_path(path)).collect();
            return Err(Failure::refused("files were changed after the agent wrote them")
                .because(names.join(", "))
                .hint("commit or move your changes, then try again"));
        }
        self.restore(&first.before, &own_paths)?;
        self.append(&CheckpointLine::Undone { turn: first.turn })?;
        Ok(own_paths.iter().map(|path| PathBuf::from(display_path(path))).collect())
    }

    /// Restores these paths from a tree.
    fn restore(&self, tree: &str, paths: &BTreeSet<Vec<u8>>) -> Result<()> {
        self.git
            .run(&["read-tree", "-m", tree])
            .or_fail(|| "cannot read the picture of the files")?;
        let existing: BTreeSet<Vec<u8>> =
            self.paths(&["ls-files", "-z"])?.into_iter().filter(|p| paths.contains(p)).collect();
        // Removed first, since a directory may have replaced a file.
        for path in paths.difference(&existing) {
            remove(&self.root, path).or_fail(|| format!("cannot remove {}", display_path(path)))?;
        }
        let input: Vec<u8> = existing.iter().flat_map(|p| [p.as_slice(), &[0]].concat()).collect();
        self.run_with_input(&["checkout-index", "--force", "-z", "--stdin"], input)
    }

    /// Compares two trees. Returns a line for each file (`A`, `M` or `D`, and its path), and the
    /// patch.
    pub fn difference(&self, from: &str, to: &str) -> Result<(Vec<String>, String)> {
        let args = ["diff-tree", "-r", "-z", "--name-status", "--no-renames", from, to];
        let fields = self.paths(&args)?;
        let pairs = fields.chunks_exact(2);
        let lines = pairs
            .map(|pair| format!("{} {}", display_path(&pair[0]), display_path(&pair[1])))
            .collect();
        let args = ["diff-tree", "-r", "-p", "--no-color", "--no-renames", from, to];
        let output = self.git.command(args).output(OutputLimits::seconds(TIMEOUT_SECONDS));
        let output = output.map_err(git::GitError::from).and_then(|out| checked(&args, out));
        let patch = output.or_fail(|| "cannot look at what changed")?.stdout;
        Ok((lines, display_path(&patch)))
    }

    /// Compares two trees. Returns path, mode and object before and after.
    pub fn compare(&self, from: &str, to: &str) -> Result<Vec<PathDifference>> {
        let fields = self.paths(&["diff-tree", "-r", "-z", "--raw", "--no-renames", from, to])?;
        let parse_pair = |pair: &[Vec<u8>]| {
            let line = String::from_utf8_lossy(&pair[0]).into_owned();
            let mut fields = line.trim_start_matches(':').split(' ');
            let (old, new) = (fields.next()?.to_owned(), fields.next()?.to_owned());
            let (old_object, new_object) = (fields.next()?.to_owned(), fields.next()?.to_owned());
            let entry = |mode: String, object| (mode != "000000").then_some((mode, object));
            Some((pair[1].clone(), entry(old, old_object), entry(new, new_object)))
        };
        Ok(fields.chunks_exact(2).filter_map(parse_pair).collect())
    }

    /// Returns the content of a file in a tree.
    pub fn blob(&self, object: &str) -> Result<Vec<u8>> {
        let args = ["cat-file", "blob", object];
        let output = self.git.command(args).output(OutputLimits::seconds(TIMEOUT_SECONDS));
        let output = output.map_err(git::GitError::from).and_then(|out| checked(&args, out));
        output.map(|output| output.stdout).or_fail(|| "cannot read the picture of a file")
    }

    fn changed_paths(&self, from: &str, to: &str) -> Result<Vec<Vec<u8>>> {
        self.paths(&["diff-tree", "-r", "-z", "--name-only", "--no-renames", from, to])
    }

    /// Returns the NUL-terminated paths that a git command lists.
    fn paths(&self, args: &[&str]) -> Result<Vec<Vec<u8>>> {
        let output = self.git.command(args).output(OutputLimits::seconds(TIMEOUT_SECONDS));
        let output = output.map_err(git::GitError::from).and_then(|out| checked(args, out));
        let output = output.or_fail(|| "cannot look at the files")?;
        let names = output.stdout.split(|byte| *byte == 0);
        Ok(names.filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect())
    }

    fn run_with_input(&self, args: &[&str], input: Vec<u8>) -> Result<()> {
        let output =
            self.git.command(args).input(input).output(OutputLimits::seconds(TIMEOUT_SECONDS));
        let output = output.map_err(git::GitError::from).and_then(|out| checked(args, out));
        output.map(drop).or_fail(|| "cannot keep or bring back the files")
    }
}

/// Removes a file below a directory, and parent directories that become empty. Fails if a symbolic
/// link in the path leads out of the directory.
fn remove(root: &Path, path: &[u8]) -> std::io::Result<()> {
    use std::os::unix::ffi::OsStrExt;
    let file = root.join(std::ffi::OsStr::from_bytes(path));
    let parent = file.parent().unwrap_or(root);
    match parent.canonicalize() {
        Ok(real) if real == parent => {}
        Ok(_) => return Err(std::io::Error::other("a symbolic link is in its path")),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    }
    match fs::remove_file(&file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    for dir in parent.ancestors().take_while(|dir| *dir != root) {
        if fs::remove_dir(dir).is_err() {
            break;
        }
    }
    Ok(())
}

fn display_path(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}
