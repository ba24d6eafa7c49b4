//! What holds after every command, whatever interrupted it: no work is lost, the refs are sound,
//! the main checkout is as before or as landed, and nothing is left over. It reads the repository
//! from outside, and shares no code with the commands that it judges.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use base::failure::{Failure, OrFail, Result};
use base::git::Git;
use git2::ObjectFormat;
use serde_json::Value;
use studio_git::object_format;

/// The state of a repository that later states are compared with.
#[derive(Clone, Debug)]
pub struct Baseline {
    checkout: PathBuf,
    worktrees: Vec<PathBuf>,
    git_dir: PathBuf,
    git: Git,
    /// The files of the sessions: `ID/PATH`, and the id of the content.
    contents: BTreeMap<String, String>,
    /// The tips of the sessions' branches.
    commits: BTreeMap<String, String>,
    /// The refs that belong to the user alone.
    refs: BTreeMap<String, String>,
    head: String,
    tip: String,
    index: BTreeMap<String, String>,
    files: BTreeMap<String, String>,
}

/// The mode of a submodule in a tree.
const SUBMODULE: &str = "160000";

/// The prefix of the branches of sessions.
const SESSION_BRANCHES: &str = "refs/heads/studio/";

impl Baseline {
    /// Reads a repository by its main checkout, and the directories of its sessions' worktrees.
    pub fn read(checkout: &Path, worktrees: &[PathBuf]) -> Result<Baseline> {
        let git_dir = checkout.join(".git");
        let git = Git::at(&git_dir).with_work_tree(checkout);
        let head = run(&git, &["symbolic-ref", "HEAD"])?;
        let all = all_refs(&git)?;
        let tip = all.get(&head).cloned().unwrap_or_default();
        let sessions = |name: &String| name.starts_with(SESSION_BRANCHES);
        let commits = all.iter().filter(|(name, _)| sessions(name));
        let commits = commits.map(|(name, id)| (name.clone(), id.clone())).collect();
        let refs = all.into_iter().filter(|(name, _)| is_users(name, &head)).collect();
        let format = object_format::of_id(&tip);
        let mut contents = BTreeMap::new();
        for parent in worktrees {
            for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
                if !entry.file_name().as_bytes().starts_with(b".") {
                    hash_files(&entry.path(), parent, format, &mut contents)?;
                }
            }
        }
        contents.retain(|name, _| !name.ends_with("/.git") && !name.contains("/.g3/"));
        let files = checkout_files(checkout, worktrees, format)?;
        let index = index_entries(&git)?;
        Ok(Baseline {
            checkout: checkout.to_owned(),
            worktrees: worktrees.to_vec(),
            git_dir,
            git,
            contents,
            commits,
            refs,
            head,
            tip,
            index,
            files,
        })
    }

    /// Returns the baseline without a session whose data the user has deleted.
    #[must_use]
    pub fn without(mut self, session: &str) -> Baseline {
        let prefix = format!("{session}/");
        self.contents.retain(|name, _| !name.starts_with(&prefix));
        self.commits.retain(|name, _| !name.ends_with(session));
        self
    }

    /// Adds the sessions' work of an earlier baseline: it must be kept as well.
    pub fn add_work_of(&mut self, earlier: &Baseline) {
        for (name, id) in &earlier.contents {
            self.contents.entry(name.clone()).or_insert_with(|| id.clone());
        }
        for (name, id) in &earlier.commits {
            self.commits.entry(name.clone()).or_insert_with(|| id.clone());
        }
    }

    /// Returns one sentence for each invariant that does not hold; empty if all hold.
    pub fn violations(&self) -> Result<Vec<String>> {
        let mut found = self.lost_work()?;
        found.extend(self.damaged_refs()?);
        found.extend(self.changed_checkout()?);
        found.extend(self.leftovers());
        Ok(found)
    }

    fn format(&self) -> ObjectFormat {
        object_format::of_id(&self.tip)
    }

    /// Returns each file and commit of a session that is in no worktree, ref or trash.
    pub fn lost_work(&self) -> Result<Vec<String>> {
        let reachable: BTreeSet<String> = run(&self.git, &["rev-list", "--objects", "--all"])?
            .lines()
            .filter_map(|line| line.split(' ').next().map(str::to_owned))
            .collect();
        let mut files = BTreeMap::new();
        for parent in &self.worktrees {
            hash_files(parent, Path::new(""), self.format(), &mut files)?;
        }
        let trash = self.git_dir.join("studio/trash");
        hash_files(&trash, &trash, self.format(), &mut files)?;
        let kept: BTreeSet<&String> = files.values().collect();
        let is_lost = |id: &String| !reachable.contains(id) && !kept.contains(id);
        let contents = self.contents.iter().filter(|(_, id)| is_lost(id));
        let mut lost: Vec<String> =
            contents.map(|(name, _)| format!("the content of {name} is lost")).collect();
        let commits = self.commits.iter().filter(|(_, id)| !reachable.contains(*id));
        lost.extend(commits.map(|(name, id)| format!("commit {id} of {name} is lost")));
        Ok(lost)
    }

    fn damaged_refs(&self) -> Result<Vec<String>> {
        let mut found = Vec::new();
        let args = ["fsck", "--strict", "--connectivity-only", "--no-dangling"];
        if let Err(failure) = run(&self.git, &args) {
            found.push(failure.sentence());
        }
        let now: BTreeMap<String, String> = all_refs(&self.git)?
            .into_iter()
            .filter(|(name, _)| is_users(name, &self.head))
            .collect();
        for (name, id) in &self.refs {
            if now.get(name) != Some(id) {
                found.push(format!("{name} moved from {id} to {:?}", now.get(name)));
            }
        }
        let new = now.keys().filter(|name| !self.refs.contains_key(*name));
        found.extend(new.map(|name| format!("{name} is new")));
        let last = run(&self.git, &["log", "-g", "-1", "--format=%H", &self.head])?;
        let tip = run(&self.git, &["rev-parse", "--verify", &self.head])?;
        if last != tip {
            found.push(format!("the reflog of {} does not end at {tip}", self.head));
        }
        Ok(found)
    }

    /// Compares HEAD, index and files with the baseline, apart from the files that landed.
    pub fn changed_checkout(&self) -> Result<Vec<String>> {
        let mut found = Vec::new();
        let head = run(&self.git, &["symbolic-ref", "HEAD"])?;
        if head != self.head {
            found.push(format!("HEAD is {head}, and was {}", self.head));
        }
        let tip = run(&self.git, &["rev-parse", "--verify", &self.head])?;
        let (mut index, mut files) = (self.index.clone(), self.files.clone());
        let args = ["diff-tree", "-r", "--raw", "--no-renames", "--no-abbrev", &self.tip, &tip];
        for line in run(&self.git, &args)?.lines() {
            let Some((facts, path)) = line.split_once('\t') else { continue };
            let facts: Vec<&str> = facts.split(' ').collect();
            let [_, mode, _, id, status] = facts.as_slice() else { continue };
            if *status == "D" {
                index.remove(path);
                files.remove(path);
                continue;
            }
            index.insert(path.to_owned(), format!("{mode} {id} 0"));
            // The files of a submodule stay as they are.
            if *mode != SUBMODULE {
                files.insert(path.to_owned(), (*id).to_owned());
            }
        }
        found.extend(differences("index", &index, &index_entries(&self.git)?));
        let current = checkout_files(&self.checkout, &self.worktrees, self.format())?;
        found.extend(differences("file", &files, &current));
        Ok(found)
    }

    /// Returns git's lock files and studio's temporary files.
    pub fn leftovers(&self) -> Vec<String> {
        let mut found = Vec::new();
        find_leftovers(&self.git_dir, &mut found);
        self.worktrees.iter().for_each(|parent| find_leftovers(parent, &mut found));
        found.into_iter().map(|path| format!("{} is left over", path.display())).collect()
    }

    /// Returns what does not fit in `studio list --all --json`: an unreadable session, or a session
    /// that is over and has a worktree or a branch.
    pub fn inconsistent_sessions(&self, list: &Value) -> Result<Vec<String>> {
        let mut found = Vec::new();
        for unreadable in list["unreadable"].as_array().into_iter().flatten() {
            found.push(format!("a session is unreadable: {unreadable}"));
        }
        let refs = all_refs(&self.git)?;
        for session in list["sessions"].as_array().into_iter().flatten() {
            let (id, state) = (text(&session["id"]), text(&session["state"]));
            let has_worktree = self.worktrees.iter().any(|parent| parent.join(id).exists());
            let has_branch = refs.contains_key(&format!("{SESSION_BRANCHES}{id}"));
            match state {
                "accepted" | "discarded" if has_worktree || has_branch => found.push(format!(
                    "`{id}` is {state}; worktree: {has_worktree}, branch: {has_branch}"
                )),
                "ready" | "empty" if !has_worktree || !has_branch => found.push(format!(
                    "`{id}` is {state}; worktree: {has_worktree}, branch: {has_branch}"
                )),
                "landing" => found.push(format!("`{id}` is {state}, and no command runs")),
                _ => {}
            }
        }
        Ok(found)
    }
}

/// Returns the processes whose arguments name a path below a directory, or that work there.
pub fn processes_in(directory: &Path) -> Vec<(u32, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).replace('\0', " ");
        let works_there =
            fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(directory));
        let is_named = words.contains(&*directory.to_string_lossy());
        if pid != std::process::id() && !words.is_empty() && (works_there || is_named) {
            found.push((pid, words.trim_end().to_owned()));
        }
    }
    found
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn run(git: &Git, args: &[&str]) -> Result<String> {
    git.run(args).map_err(|error| Failure::failed("cannot examine the repository").because(error))
}

fn all_refs(git: &Git) -> Result<BTreeMap<String, String>> {
    let list = run(git, &["for-each-ref", "--format=%(refname) %(objectname)"])?;
    let pairs = list.lines().filter_map(|line| line.split_once(' '));
    Ok(pairs.map(|(name, id)| (name.to_owned(), id.to_owned())).collect())
}

/// Returns whether a ref belongs to the user alone. The checked-out branch is compared with the
/// checkout.
fn is_users(name: &str, head: &str) -> bool {
    name != head
        && !name.starts_with(SESSION_BRANCHES)
        && !name.starts_with("refs/studio/")
        && !name.starts_with("refs/notes/studio")
}

fn index_entries(git: &Git) -> Result<BTreeMap<String, String>> {
    let list = run(git, &["ls-files", "--stage"])?;
    let pairs = list.lines().filter_map(|line| line.split_once('\t'));
    Ok(pairs.map(|(entry, path)| (path.to_owned(), entry.to_owned())).collect())
}

/// Returns the git ids of the files of the main checkout, without worktrees inside it.
fn checkout_files(
    checkout: &Path,
    worktrees: &[PathBuf],
    format: ObjectFormat,
) -> Result<BTreeMap<String, String>> {
    let mut files = BTreeMap::new();
    hash_files(checkout, checkout, format, &mut files)?;
    files.retain(|name, _| !worktrees.iter().any(|dir| checkout.join(name).starts_with(dir)));
    Ok(files)
}

/// Adds the git ids of all files below a directory, by their paths below `root`. The git directory
/// of a main checkout is skipped; a missing directory has no files.
fn hash_files(
    dir: &Path,
    root: &Path,
    format: ObjectFormat,
    found: &mut BTreeMap<String, String>,
) -> Result<()> {
    let fail = || format!("cannot read {}", dir.display());
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        let kind = entry.file_type().or_fail(fail)?;
        if kind.is_dir() {
            if entry.file_name() != ".git" {
                hash_files(&path, root, format, found)?;
            }
            continue;
        }
        let content = if kind.is_symlink() {
            fs::read_link(&path).map(|target| target.as_os_str().as_bytes().to_owned())
        } else {
            fs::read(&path)
        };
        // A file that a process removes at this moment is not there.
        let Ok(content) = content else { continue };
        let id = object_format::hash_blob(&content, format).or_fail(fail)?;
        let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
        found.insert(name, id.to_string());
    }
    Ok(())
}

fn differences(
    what: &str,
    expected: &BTreeMap<String, String>,
    actual: &BTreeMap<String, String>,
) -> Vec<String> {
    let names: BTreeSet<&String> = expected.keys().chain(actual.keys()).collect();
    let changed = names.into_iter().filter(|name| expected.get(*name) != actual.get(*name));
    let sentence = |name: &String| {
        let (expected, actual) = (expected.get(name), actual.get(name));
        format!("{what} {name} of the main checkout is {actual:?}, not {expected:?}")
    };
    changed.map(sentence).collect()
}

/// Git's lock files have these names; studio's own locks are held by the kernel, and their files
/// stay.
const GIT_LOCKS: [&str; 6] = [
    "index.lock",
    "HEAD.lock",
    "config.lock",
    "packed-refs.lock",
    "shallow.lock",
    "tables.list.lock",
];
/// The beginnings of the names of temporary files.
const TEMPORARY: [&str; 4] = [base::files::TEMPORARY_PREFIX, ".new-", "tmp_obj_", "tmp_pack_"];

fn find_leftovers(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        let in_refs = path.components().any(|part| part.as_os_str() == "refs");
        let is_lock = GIT_LOCKS.contains(&name.as_str()) || (in_refs && name.ends_with(".lock"));
        if is_lock || TEMPORARY.iter().any(|prefix| name.starts_with(prefix)) {
            found.push(path);
        } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            find_leftovers(&path, found);
        }
    }
}
