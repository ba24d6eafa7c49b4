//! The user's repository: its state, the changes of the work, and a commit of exactly these
//! changes. The user's own staged and unstaged changes are preserved.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use base::failure::{Failure, OrFail, Result};
use base::git::{self, Git, checked};
use base::process::OutputLimits;
use planner::staging::exclusion_reason;

use agent_core::session::checkpoint::Checkpoints;

/// Timeout of a git command in seconds.
const PATIENCE: u64 = 120;
/// The mode of an absent file in git's lists.
const ABSENT: &str = "000000";

/// A file in a tree or an index: its mode and object; `None` for an absent file.
type Entry = Option<(String, String)>;
type Entries = BTreeMap<Vec<u8>, (String, String)>;

/// The user's repository.
#[derive(Clone, Debug)]
pub(crate) struct UserTree {
    git: Git,
    /// The top level of its working tree.
    pub top: PathBuf,
    /// The directory of the checkpoints.
    keep: PathBuf,
}

/// The changes that a commit would contain.
#[derive(Clone, Debug, Default)]
pub(crate) struct CommitSelection {
    /// The parent commit; `None` in a repository without commits.
    pub head: Option<String>,
    /// Each path, its entry in the commit, and its entry in the index after the commit.
    taken: Vec<(Vec<u8>, Entry, Entry)>,
    /// The paths that are left out, for people, and why.
    pub excluded: Vec<(String, &'static str)>,
}

impl CommitSelection {
    /// Returns the paths, for people.
    pub(crate) fn paths(&self) -> Vec<String> {
        self.taken.iter().map(|(path, ..)| display_path(path)).collect()
    }
}

impl UserTree {
    /// Opens the repository of a directory; `None` outside of a repository.
    pub(crate) fn of(code: &Path, keep: PathBuf) -> Result<Option<UserTree>> {
        base::git_version::detect()?;
        let Ok((_, git_dir)) = git::discover(code) else { return Ok(None) };
        let top = agent_core::run::root_of(code);
        let git = Git::at(git_dir).with_work_tree(&top);
        Ok(Some(UserTree { git, top, keep }))
    }

    /// Returns the branch, or the abbreviated commit if HEAD is detached.
    pub(crate) fn branch(&self) -> Result<String> {
        let branch = self.git.run(&["symbolic-ref", "--quiet", "--short", "HEAD"]);
        match (branch, self.head()) {
            (Ok(branch), _) => Ok(branch),
            (Err(_), Some(head)) => Ok(base::text::head(&head, 12).to_owned()),
            (Err(error), None) => Err(error).or_fail(|| "HEAD of the repository cannot be read"),
        }
    }

    /// Returns the commit of HEAD.
    pub(crate) fn head(&self) -> Option<String> {
        self.git.run(&["rev-parse", "--quiet", "--verify", "HEAD^{commit}"]).ok()
    }

    /// Fails if git does not know the committer, before any work is paid for.
    pub(crate) fn require_committer(&self) -> Result<()> {
        self.call(&["var", "GIT_COMMITTER_IDENT"], None).map(drop)
    }

    /// Returns the uncommitted changes in git's short format, one line per file.
    pub(crate) fn dirty(&self) -> Result<Vec<String>> {
        let output = self.call(&["status", "--porcelain=v1", "-z", "--no-renames"], None)?;
        Ok(parts(&output).map(|line| display_path(&line)).collect())
    }

    /// Records the current state of the files, as a tree of the checkpoints.
    pub(crate) fn take(&self) -> Result<String> {
        Checkpoints::open(&self.keep, &self.top)?.take_snapshot()
    }

    /// Selects the changes since a checkpoint that can be committed. In a file that the user had
    /// changed before, the two changes are separated by lines, or the file is left out. Files below
    /// `whole` belong to g3 and are committed as they are.
    pub(crate) fn pick(&self, since: &str, whole: &Path) -> Result<CommitSelection> {
        let checkpoints = Checkpoints::open(&self.keep, &self.top)?;
        let now = checkpoints.take_snapshot()?;
        let head = self.head();
        let committed = match &head {
            Some(head) => entries(&self.call(&["ls-tree", "-r", "-z", "--full-tree", head], None)?),
            None => Entries::new(),
        };
        let staged = index(&self.call(&["ls-files", "--stage", "-z", "--full-name"], None)?);
        let whole = whole.strip_prefix(&self.top).unwrap_or(whole).as_os_str().as_bytes().to_vec();
        let mut pick = CommitSelection { head, ..CommitSelection::default() };
        for (path, before, after) in checkpoints.compare(since, &now)? {
            let ours = path.starts_with(&[&whole[..], b"/"].concat());
            let name = display_path(&path);
            if let Some(reason) = exclusion_reason(&name).filter(|_| !ours) {
                pick.excluded.push((name, reason));
                continue;
            }
            let before = if ours { committed.get(&path).cloned() } else { before };
            let after = self.import_object(&checkpoints, after)?;
            let unknown = |known: &Entries| !known.contains_key(&path);
            if after.is_none() && unknown(&committed) && unknown(&staged) {
                // The file was never in git, and it was removed.
                continue;
            }
            let change = (&before, &after);
            let in_commit = self.moved(committed.get(&path).cloned(), change, &checkpoints)?;
            let in_index = self.moved(staged.get(&path).cloned(), change, &checkpoints)?;
            match (in_commit, in_index) {
                (Some(in_commit), Some(in_index)) => pick.taken.push((path, in_commit, in_index)),
                _ => pick.excluded.push((name, "it also contains your own changes")),
            }
        }
        Ok(pick)
    }

    /// Commits the selection with this message and returns the commit. The index is updated first:
    /// an interruption in between leaves the work staged.
    pub(crate) fn commit(&self, pick: &CommitSelection, message: &str) -> Result<String> {
        let scratch = tempfile::tempdir_in(&self.keep).or_fail(|| "cannot make a directory")?;
        let index = scratch.path().join("index");
        let format = self.git.object_format().or_fail(|| "cannot read the repository's format")?;
        let absent = "0".repeat(if format == "sha256" { 64 } else { 40 });
        let list = |entry: fn(&(Vec<u8>, Entry, Entry)) -> &Entry| -> Vec<u8> {
            pick.taken.iter().flat_map(|one| listed(&one.0, entry(one), &absent)).collect()
        };
        if let Some(head) = &pick.head {
            self.call_with(&["read-tree", head], None, Some(&index))?;
        }
        let update = ["update-index", "-z", "--index-info"];
        self.call_with(&update, Some(list(|one| &one.1)), Some(&index))?;
        let tree = self.call_with(&["write-tree"], None, Some(&index))?;
        let tree = String::from_utf8_lossy(&tree).trim().to_owned();
        let mut args = vec!["commit-tree", &tree, "-F", "-"];
        args.extend(pick.head.iter().flat_map(|head| ["-p", head]));
        let commit = self.call(&args, Some(message.as_bytes().to_vec()))?;
        let commit = String::from_utf8_lossy(&commit).trim().to_owned();
        self.call(&update, Some(list(|one| &one.2)))?;
        base::files::step("g3.planning.staged");
        let none = "0".repeat(commit.len());
        let old = pick.head.as_ref().unwrap_or(&none);
        let subject = message.lines().next().unwrap_or_default();
        let moved = ["update-ref", "-m", &format!("commit: {subject}"), "HEAD", &commit, old];
        self.call(&moved, None).map_err(|failure| {
            failure.hint("the branch changed; run g3 --planning again to commit on top")
        })?;
        Ok(commit)
    }

    /// Applies a change of the work to an entry. Returns `None` if the change cannot be separated
    /// from other changes of the entry.
    fn moved(
        &self,
        has: Entry,
        (before, after): (&Entry, &Entry),
        checkpoints: &Checkpoints,
    ) -> Result<Option<Entry>> {
        if has == *before || has == *after {
            return Ok(Some(after.clone()));
        }
        let (Some(has), Some(before), Some(after)) = (has, before, after) else { return Ok(None) };
        let before = self.import_object(checkpoints, Some(before.clone()))?;
        let Some(before) = before.filter(|it| it.0 == has.0 && it.0 == after.0) else {
            return Ok(None);
        };
        let scratch = tempfile::tempdir_in(&self.keep).or_fail(|| "cannot make a directory")?;
        let mut files = Vec::new();
        for (name, object) in [("has", &has.1), ("before", &before.1), ("after", &after.1)] {
            let file = scratch.path().join(name);
            let bytes = self.call(&["cat-file", "blob", object], None)?;
            std::fs::write(&file, bytes).or_fail(|| "cannot write a file")?;
            files.push(file.into_os_string());
        }
        let args: Vec<OsString> =
            ["merge-file", "-p", "-q"].map(OsString::from).into_iter().chain(files).collect();
        let merged = self.git.command(&args).output(OutputLimits::seconds(PATIENCE));
        let merged = merged.or_fail(|| "cannot merge a file")?;
        if !merged.ok() {
            return Ok(None);
        }
        let object = self.call(&["hash-object", "-w", "--stdin"], Some(merged.stdout))?;
        Ok(Some(Some((has.0, String::from_utf8_lossy(&object).trim().to_owned()))))
    }

    /// Copies an object of the checkpoints into the user's repository if it is missing there.
    fn import_object(&self, checkpoints: &Checkpoints, entry: Entry) -> Result<Entry> {
        let Some((mode, object)) = entry else { return Ok(None) };
        if self.git.run(&["cat-file", "-e", &object]).is_err() {
            let bytes = checkpoints.blob(&object)?;
            self.call(&["hash-object", "-w", "--stdin"], Some(bytes))?;
        }
        Ok(Some((mode, object)))
    }

    fn call(&self, args: &[&str], input: Option<Vec<u8>>) -> Result<Vec<u8>> {
        self.call_with(args, input, None)
    }

    fn call_with(
        &self,
        args: &[&str],
        input: Option<Vec<u8>>,
        index: Option<&Path>,
    ) -> Result<Vec<u8>> {
        let mut job = self.git.command(args);
        // Author and committer may be set in the user's environment.
        for part in ["NAME", "EMAIL", "DATE"] {
            let variable = |who: &str| std::env::var_os(format!("GIT_{who}_{part}"));
            let author = variable("AUTHOR");
            let committer = variable("COMMITTER").or_else(|| author.clone());
            for (who, value) in [("AUTHOR", author), ("COMMITTER", committer)] {
                if let Some(value) = value {
                    job = job.env(format!("GIT_{who}_{part}"), value);
                }
            }
        }
        if let Some(index) = index {
            job = job.env("GIT_INDEX_FILE", index);
        }
        if let Some(input) = input {
            job = job.input(input);
        }
        let output = job.output(OutputLimits::seconds(PATIENCE)).map_err(git::GitError::from);
        let output = output.and_then(|output| checked(args, output));
        let output = output.map_err(|error| {
            let failure = Failure::failed("git failed");
            match error.to_string() {
                why if why.contains("tell me who you are") => {
                    let hint = "git config user.name \"…\"; git config user.email \"…\"";
                    failure.because("git does not know who you are").hint(hint)
                }
                why => failure.because(why),
            }
        })?;
        Ok(output.stdout)
    }
}

/// Formats a line for `update-index --index-info`. `absent` is the id of no object.
fn listed(path: &[u8], entry: &Entry, absent: &str) -> Vec<u8> {
    let (mode, object) = match entry {
        Some((mode, object)) => (mode.as_str(), object.as_str()),
        None => (ABSENT, absent),
    };
    [format!("{mode} {object}\t").as_bytes(), path, &[0]].concat()
}

fn parts(output: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    output.split(|byte| *byte == 0).filter(|part| !part.is_empty()).map(<[u8]>::to_vec)
}

/// Parses lines of `MODE TYPE OBJECT TAB PATH`, without submodules.
fn entries(output: &[u8]) -> Entries {
    let entry = |line: Vec<u8>| {
        let tab = line.iter().position(|byte| *byte == b'\t')?;
        let words = String::from_utf8_lossy(&line[..tab]).into_owned();
        let mut words = words.split(' ').map(str::to_owned);
        let (mode, kind, object) = (words.next()?, words.next()?, words.next()?);
        (kind == "blob").then(|| (line[tab + 1..].to_vec(), (mode, object)))
    };
    parts(output).filter_map(entry).collect()
}

/// Parses lines of `MODE OBJECT STAGE TAB PATH`. A conflicted entry gets a mode that equals no
/// other.
fn index(output: &[u8]) -> Entries {
    let entry = |line: Vec<u8>| {
        let tab = line.iter().position(|byte| *byte == b'\t')?;
        let words = String::from_utf8_lossy(&line[..tab]).into_owned();
        let mut words = words.split(' ').map(str::to_owned);
        let (mode, object, stage) = (words.next()?, words.next()?, words.next()?);
        let mode = if stage == "0" { mode } else { "conflict".to_owned() };
        Some((line[tab + 1..].to_vec(), (mode, object)))
    };
    parts(output).filter_map(entry).collect()
}

/// Formats a path for people.
fn display_path(path: &[u8]) -> String {
    OsString::from_vec(path.to_vec()).as_os_str().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_with_any_path_are_parsed() {
        let list = b"100644 blob aa\ta \xc3\xbc\nb\x00160000 commit bb\tsub\x00";
        let found = entries(list);
        assert_eq!(found.len(), 1);
        assert_eq!(display_path(found.keys().next().unwrap()), "a ü\nb");
        let found = index(b"100644 aa 0\tx\x00100644 bb 2\ty\x00");
        assert_eq!(found[&b"x"[..]].0, "100644");
        assert_eq!(found[&b"y"[..]].0, "conflict");
        assert_eq!(listed(b"x", &None, "00"), b"000000 00\tx\0");
    }
}
