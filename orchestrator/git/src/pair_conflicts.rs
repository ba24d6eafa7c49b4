//! Conflicts between pieces of work: which pairs of commits change the same lines. Pairs are merged
//! in memory, and only those whose changed paths meet; results are cached.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use base::failure::{OrFail, Result};
use base::parallel;
use serde::{Deserialize, Serialize};

use crate::conflict::{self, Conflict, SideLabels};
use crate::entry_mode;
use crate::merge::set_attributes;
use crate::refs;
use crate::repo::Repository;
use crate::stage::is_g3s_own;
use crate::syntax_conflicts;

/// Maximum number of changed files of one piece of work; larger ones are not compared.
const MAX_CHANGED_FILES: usize = 20_000;
/// Maximum depth of directories.
const MAX_DEPTH: usize = 256;
/// Maximum number of cached results; above it, only those of the current call are kept.
const MAX_CACHED: usize = 20_000;
/// Maximum number of cached paths; above it, only those of the current call are kept.
const MAX_CACHED_PATHS: usize = 200_000;
/// The minimum number of works or pairs for which another thread is started.
const MIN_PAIRS_PER_THREAD: usize = 16;

/// A piece of work: what changed from one commit to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkRange {
    /// The commit to compare with.
    pub base: String,
    /// The commit with all of the work.
    pub commit: String,
}

/// Two pieces of work that change the same lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairConflict {
    /// The index of the first one.
    pub first: usize,
    /// The index of the second one.
    pub second: usize,
    /// The conflicting files; bytes that are not UTF-8 are replaced.
    pub paths: Vec<String>,
}

/// The conflicts among pieces of work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PairConflicts {
    /// The conflicting pairs, sorted by their indices.
    pub conflicts: Vec<PairConflict>,
    /// The number of pairs that were merged in this call.
    pub merged: usize,
    /// The number of pairs that were not compared because of the maximum.
    pub skipped: usize,
    /// The indices of works that cannot be compared: unreadable, or too large.
    pub unreadable: Vec<usize>,
}

/// Which pairs to compare.
#[derive(Clone, Copy)]
pub struct PairSelection<'a> {
    /// Whether to compare the works with these indices, the smaller one first.
    pub is_wanted: &'a (dyn Fn(usize, usize) -> bool + Sync),
    /// Maximum number of merges; cached results do not count.
    pub max_merges: usize,
}

impl PairSelection<'static> {
    /// All pairs.
    pub const ALL: PairSelection<'static> =
        PairSelection { is_wanted: &|_, _| true, max_merges: usize::MAX };
}

/// Finds the conflicting pairs. Writes nothing but the cache.
pub fn find(
    repository: &Repository,
    works: &[WorkRange],
    selection: PairSelection<'_>,
) -> Result<PairConflicts> {
    let cache_path = repository.common_dir.join("studio/cache/pair-conflicts.json");
    let mut cache = Cache::read(&cache_path);
    let keys: Vec<String> = works.iter().map(WorkRange::key).collect();
    let pair_key = |(first, second): (usize, usize)| [&*keys[first], " ", &keys[second]].concat();
    let mut changes: Vec<Option<Changes>> = vec![None; works.len()];
    let uncached: Vec<usize> =
        (0..works.len()).filter(|index| !cache.paths.contains_key(&keys[*index])).collect();
    let mut unreadable = read_changes(repository, works, &uncached, &mut changes)?;
    for index in &uncached {
        if let Some(changes) = &changes[*index] {
            cache.add_paths(&keys[*index], changes);
        }
    }
    let paths: Vec<Vec<&[u8]>> = (0..works.len())
        .map(|index| match (&changes[index], cache.paths.get(&keys[index])) {
            (Some(changes), _) => changes.keys().map(Vec::as_slice).collect(),
            (None, Some(paths)) => paths.iter().map(String::as_bytes).collect(),
            (None, None) => Vec::new(),
        })
        .collect();
    let meeting = meeting_pairs(&paths, selection.is_wanted);
    let meeting: BTreeMap<(usize, usize), String> =
        meeting.into_iter().map(|pair| (pair, pair_key(pair))).collect();
    let missing: Vec<(usize, usize)> = meeting
        .iter()
        .filter(|(_, key)| !cache.pairs.contains_key(*key))
        .map(|(pair, _)| *pair)
        .collect();
    let merged = &missing[..missing.len().min(selection.max_merges)];
    let skipped = missing.len() - merged.len();
    let unread: BTreeSet<usize> = merged
        .iter()
        .flat_map(|(first, second)| [*first, *second])
        .filter(|index| changes[*index].is_none())
        .collect();
    drop(paths);
    let unread: Vec<usize> = unread.into_iter().collect();
    unreadable.extend(read_changes(repository, works, &unread, &mut changes)?);
    let results = merge_pairs(repository, works, &changes, merged)?;
    let count = results.len();
    let is_changed = !uncached.is_empty() || count > 0;
    for PairConflict { first, second, paths } in results {
        cache.pairs.insert(pair_key((first, second)), paths);
    }
    let conflicts = meeting
        .iter()
        .filter_map(|((first, second), key)| {
            let paths = cache.pairs.get(key).filter(|paths| !paths.is_empty())?.clone();
            Some(PairConflict { first: *first, second: *second, paths })
        })
        .collect();
    if is_changed {
        cache.retain_current(&keys, meeting.values());
        cache.write(&cache_path);
    }
    Ok(PairConflicts { conflicts, merged: count, skipped, unreadable })
}

/// Returns the hunks in which two pieces of work conflict, with the sides named by `labels`, and
/// whether a merge by syntax resolves them.
pub fn hunks(
    repository: &Repository,
    first: &WorkRange,
    second: &WorkRange,
    labels: SideLabels<'_>,
) -> Result<Vec<Conflict>> {
    let repo = open(repository)?;
    let works = [first.clone(), second.clone()];
    let read = |work| read_tree_changes(&repo, work);
    let (Some(ours), Some(theirs)) = (read(first)?, read(second)?) else {
        return Ok(Vec::new());
    };
    let mut index = merge_index(&repo, &works[0], &works[1])?;
    let mut conflicts = conflict::resolve_labelled(&repo, &mut index, labels)?;
    syntax_conflicts::find(&repo, &index, &mut conflicts)?;
    conflicts.retain(|conflict| is_own(conflict.path.as_bytes(), &ours, &theirs));
    for path in nested_paths(&ours, &theirs) {
        let path = String::from_utf8_lossy(&path).into_owned();
        if conflicts.iter().all(|conflict| conflict.path != path) {
            conflicts.push(Conflict::new(path, conflict::NESTED.to_owned()));
        }
    }
    Ok(conflicts)
}

/// The changed files of a piece of work, by path.
type Changes = BTreeMap<Vec<u8>, FileChange>;

/// The object of a file before and after a change, with its mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileChange {
    old: Option<(git2::Oid, i32)>,
    new: Option<(git2::Oid, i32)>,
}

impl WorkRange {
    fn key(&self) -> String {
        format!("{}..{}", self.base, self.commit)
    }
}

/// Opens the repository for merges: what a merge writes stays in memory.
fn open(repository: &Repository) -> Result<git2::Repository> {
    let repo = repository.open_own()?;
    repo.odb().and_then(|odb| odb.add_new_mempack_backend(1000).map(drop)).or_fail(cannot)?;
    Ok(repo)
}

/// Reads the changes of the works with these indices; returns the indices of unreadable ones.
fn read_changes(
    repository: &Repository,
    works: &[WorkRange],
    indices: &[usize],
    changes: &mut [Option<Changes>],
) -> Result<Vec<usize>> {
    let open = || open(repository);
    // The objects of a dropped session may be gone.
    let read = |repo: &mut git2::Repository, index: &usize| {
        read_tree_changes(repo, &works[*index]).ok().flatten()
    };
    let results = parallel::map_with(indices, MIN_PAIRS_PER_THREAD, open, read)?;
    let mut unreadable = Vec::new();
    for (index, read) in indices.iter().copied().zip(results) {
        if read.is_none() {
            unreadable.push(index);
        }
        changes[index] = read;
    }
    unreadable.sort_unstable();
    Ok(unreadable)
}

/// Returns the changed files; `None` if there are too many.
fn read_tree_changes(repo: &git2::Repository, work: &WorkRange) -> Result<Option<Changes>> {
    let tree = |id: &str| repo.find_commit(refs::oid(id)?).and_then(|it| it.tree()).or_fail(cannot);
    let (old, new) = (tree(&work.base)?, tree(&work.commit)?);
    let mut walk = TreeWalk { repo, changes: Changes::new() };
    let is_complete = walk.compare(Some(&old), Some(&new), &mut Vec::new(), 0).or_fail(cannot)?;
    Ok(is_complete.then_some(walk.changes))
}

/// Collects the files that differ between two trees. Equal directories are not read.
struct TreeWalk<'repo> {
    repo: &'repo git2::Repository,
    changes: Changes,
}

impl TreeWalk<'_> {
    /// Compares two directories; returns `false` if there are too many changes.
    fn compare(
        &mut self,
        old: Option<&git2::Tree<'_>>,
        new: Option<&git2::Tree<'_>>,
        path: &mut Vec<u8>,
        depth: usize,
    ) -> std::result::Result<bool, git2::Error> {
        if depth > MAX_DEPTH {
            return Ok(false);
        }
        for (name, old, new) in different_entries(old, new) {
            let length = path.len();
            path.extend(&name);
            let is_complete = self.compare_entries(old, new, path, depth)?;
            path.truncate(length);
            if !is_complete {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn compare_entries(
        &mut self,
        old: Option<(git2::Oid, i32)>,
        new: Option<(git2::Oid, i32)>,
        path: &mut Vec<u8>,
        depth: usize,
    ) -> std::result::Result<bool, git2::Error> {
        let directory = |entry: Option<(git2::Oid, i32)>| {
            entry.filter(|(_, mode)| *mode == i32::from(git2::FileMode::Tree))
        };
        let file = |entry| if directory(entry).is_some() { None } else { entry };
        let change = FileChange { old: file(old), new: file(new) };
        if (change.old.is_some() || change.new.is_some())
            && !is_g3s_own(Path::new(OsStr::from_bytes(path)))
        {
            self.changes.insert(path.clone(), change);
            if self.changes.len() > MAX_CHANGED_FILES {
                return Ok(false);
            }
        }
        if directory(old).is_none() && directory(new).is_none() {
            return Ok(true);
        }
        let tree = |entry| directory(entry).map(|(id, _)| self.repo.find_tree(id)).transpose();
        let (old, new) = (tree(old)?, tree(new)?);
        path.push(b'/');
        self.compare(old.as_ref(), new.as_ref(), path, depth + 1)
    }
}

/// An object with its mode.
type TreeEntry = (git2::Oid, i32);

/// Returns the entries that differ between two directories, by name.
fn different_entries(
    old: Option<&git2::Tree<'_>>,
    new: Option<&git2::Tree<'_>>,
) -> Vec<(Vec<u8>, Option<TreeEntry>, Option<TreeEntry>)> {
    let entry = |it: &git2::TreeEntry<'_>| (it.id(), it.filemode());
    let mut different = Vec::new();
    // Most entries are equal, and have the same name at the same position: for them nothing is copied.
    let mut aligned = 0;
    if let (Some(old), Some(new)) = (old, new) {
        for (old, new) in old.iter().zip(new.iter()) {
            if old.name_bytes() != new.name_bytes() {
                break;
            }
            aligned += 1;
            if entry(&old) != entry(&new) {
                let name = old.name_bytes().to_vec();
                different.push((name, Some(entry(&old)), Some(entry(&new))));
            }
        }
    }
    let rest = |tree: Option<&git2::Tree<'_>>| -> BTreeMap<Vec<u8>, TreeEntry> {
        let entries = tree.into_iter().flat_map(git2::Tree::iter).skip(aligned);
        entries.map(|it| (it.name_bytes().to_vec(), entry(&it))).collect()
    };
    let (old, new) = (rest(old), rest(new));
    let names: BTreeSet<&Vec<u8>> = old.keys().chain(new.keys()).collect();
    let entries = names.into_iter().map(|name| (name.clone(), old.get(name), new.get(name)));
    let changed = entries.filter(|(_, old, new)| old != new);
    different.extend(changed.map(|(name, old, new)| (name, old.copied(), new.copied())));
    different
}

/// Returns the pairs that change the same path, or of which one changes a file where the other one
/// has a directory.
fn meeting_pairs(
    paths: &[Vec<&[u8]>],
    is_wanted: &dyn Fn(usize, usize) -> bool,
) -> BTreeSet<(usize, usize)> {
    let mut by_path: HashMap<&[u8], Vec<usize>> = HashMap::new();
    for (index, paths) in paths.iter().enumerate() {
        for path in paths {
            by_path.entry(path).or_default().push(index);
        }
    }
    let mut pairs = BTreeSet::new();
    let mut add = |a: usize, b: usize| {
        let pair = (a.min(b), a.max(b));
        if a != b && is_wanted(pair.0, pair.1) {
            pairs.insert(pair);
        }
    };
    for (path, indices) in &by_path {
        for (n, first) in indices.iter().enumerate() {
            indices[n + 1..].iter().for_each(|second| add(*first, *second));
        }
        let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        for others in slashes.filter_map(|(n, _)| by_path.get(&path[..n])) {
            for first in indices {
                others.iter().for_each(|second| add(*first, *second));
            }
        }
    }
    pairs
}

/// Merges pairs; returns the conflicting files of each. Pairs that cannot be merged are left out.
fn merge_pairs(
    repository: &Repository,
    works: &[WorkRange],
    changes: &[Option<Changes>],
    pairs: &[(usize, usize)],
) -> Result<Vec<PairConflict>> {
    let make = || open(repository).map(PairMerger::new);
    let merge = |merger: &mut PairMerger, (first, second): &(usize, usize)| {
        let (ours, theirs) = (changes[*first].as_ref()?, changes[*second].as_ref()?);
        let paths = merger.conflicts(&works[*first], &works[*second], ours, theirs).ok()?;
        Some(PairConflict { first: *first, second: *second, paths })
    };
    let results = parallel::map_with(pairs, MIN_PAIRS_PER_THREAD, make, merge)?;
    Ok(results.into_iter().flatten().collect())
}

struct PairMerger {
    repo: git2::Repository,
    /// The commit whose attributes apply.
    attributes_of: Option<String>,
    /// Whether files have a merge attribute.
    has_attribute: HashMap<PathBuf, bool>,
    /// The lines that each change of a text replaces; `None` for binary files.
    replaced: BTreeMap<(git2::Oid, git2::Oid), Option<Vec<Range<u32>>>>,
}

impl PairMerger {
    fn new(repo: git2::Repository) -> PairMerger {
        PairMerger {
            repo,
            attributes_of: None,
            has_attribute: HashMap::new(),
            replaced: BTreeMap::new(),
        }
    }

    /// Returns the files in which two pieces of work conflict.
    fn conflicts(
        &mut self,
        first: &WorkRange,
        second: &WorkRange,
        ours: &Changes,
        theirs: &Changes,
    ) -> Result<Vec<String>> {
        if self.attributes_of.as_ref() != Some(&first.base) {
            let base = self.repo.find_commit(refs::oid(&first.base)?).or_fail(cannot)?;
            set_attributes(&self.repo, &base.tree().or_fail(cannot)?)?;
            self.attributes_of = Some(first.base.clone());
            self.has_attribute.clear();
        }
        // libgit2 does not report all of these.
        let mut paths: BTreeSet<String> = nested_paths(ours, theirs)
            .into_iter()
            .map(|path| String::from_utf8_lossy(&path).into_owned())
            .collect();
        if let Some(conflicts) = self.text_conflicts(ours, theirs)? {
            paths.extend(conflicts);
            return Ok(paths.into_iter().collect());
        }
        let mut index = merge_index(&self.repo, first, second)?;
        let merged = conflict::conflicting_paths(&self.repo, &mut index)?.into_iter();
        let own = merged.filter(|path| is_own(path.as_os_str().as_bytes(), ours, theirs));
        paths.extend(own.map(|path| path.to_string_lossy().into_owned()));
        Ok(paths.into_iter().collect())
    }

    /// Merges the files that both change, if each of them is a text that exists on both sides and
    /// has no merge attribute: such merges do not depend on other files. `None` otherwise.
    fn text_conflicts(&mut self, ours: &Changes, theirs: &Changes) -> Result<Option<Vec<String>>> {
        let (few, many) = if ours.len() <= theirs.len() { (ours, theirs) } else { (theirs, ours) };
        let mut paths = Vec::new();
        for (path, change) in few {
            let Some(other) = many.get(path) else { continue };
            if change.new == other.new && change.new.is_some() {
                continue;
            }
            let path = Path::new(OsStr::from_bytes(path));
            match self.text_conflict(path, *change, *other)? {
                Some(true) => paths.push(path.to_string_lossy().into_owned()),
                Some(false) => {}
                None => return Ok(None),
            }
        }
        Ok(Some(paths))
    }

    /// Returns whether two changes of a text conflict; `None` if that needs a merge of all files.
    fn text_conflict(
        &mut self,
        path: &Path,
        change: FileChange,
        other: FileChange,
    ) -> Result<Option<bool>> {
        let (Some(old), Some(ours), Some(theirs)) = (change.old, change.new, other.new) else {
            return Ok(None);
        };
        let is_text = |mode: i32| entry_mode::is_file(mode.cast_unsigned());
        let modes = [old.1, ours.1, theirs.1];
        if other.old != change.old || modes.iter().any(|mode| !is_text(*mode) || *mode != old.1) {
            return Ok(None);
        }
        if path == Path::new(conflict::MEMORY_FILE) {
            return Ok(Some(false));
        }
        if self.has_merge_attribute(path)? {
            return Ok(None);
        }
        if self.are_apart(old.0, ours.0, theirs.0)? {
            return Ok(Some(false));
        }
        conflict::texts_conflict(&self.repo, old.0, ours.0, theirs.0)
    }

    fn has_merge_attribute(&mut self, path: &Path) -> Result<bool> {
        if let Some(known) = self.has_attribute.get(path) {
            return Ok(*known);
        }
        let flags = git2::AttrCheckFlags::INDEX_ONLY;
        let value = self.repo.get_attr_bytes(path, "merge", flags).or_fail(cannot)?;
        self.has_attribute.insert(path.to_owned(), value.is_some());
        Ok(value.is_some())
    }

    /// Returns whether unchanged lines are between all changes of two sides of a text: then they
    /// merge, and most pairs need no merge.
    fn are_apart(&mut self, old: git2::Oid, ours: git2::Oid, theirs: git2::Oid) -> Result<bool> {
        self.read_replaced(old, ours)?;
        self.read_replaced(old, theirs)?;
        let replaced = |new: git2::Oid| self.replaced.get(&(old, new)).and_then(Option::as_deref);
        let (Some(ours), Some(theirs)) = (replaced(ours), replaced(theirs)) else {
            return Ok(false);
        };
        let is_apart = |a: &Range<u32>, b: &Range<u32>| a.end < b.start || b.end < a.start;
        Ok(ours.iter().all(|ours| theirs.iter().all(|theirs| is_apart(ours, theirs))))
    }

    /// Reads which lines of a text a change replaces; an insertion is an empty range.
    fn read_replaced(&mut self, old: git2::Oid, new: git2::Oid) -> Result<()> {
        if self.replaced.contains_key(&(old, new)) {
            return Ok(());
        }
        let blob = |id| self.repo.find_blob(id).or_fail(cannot);
        let (before, after) = (blob(old)?, blob(new)?);
        let mut options = git2::DiffOptions::new();
        options.context_lines(0);
        let mut read = || -> std::result::Result<Option<Vec<Range<u32>>>, git2::Error> {
            // With blobs, libgit2 would ask for the attributes of a file called `file`, by which it may
            // find no changes.
            let (old, new) = (before.content(), after.content());
            let patch = git2::Patch::from_buffers(old, None, new, None, Some(&mut options))?;
            if before.is_binary() || after.is_binary() {
                return Ok(None);
            }
            let range = |hunk: &git2::DiffHunk<'_>| {
                // An insertion names the line before it.
                let start = hunk.old_start() + u32::from(hunk.old_lines() == 0);
                start..start + hunk.old_lines()
            };
            let hunks = (0..patch.num_hunks()).map(|index| Ok(range(&patch.hunk(index)?.0)));
            Ok(Some(hunks.collect::<std::result::Result<_, git2::Error>>()?))
        };
        let ranges = read().or_fail(cannot)?;
        self.replaced.insert((old, new), ranges);
        Ok(())
    }
}

/// Returns the paths at which one side makes a file and the other one makes files in a directory.
fn nested_paths(ours: &Changes, theirs: &Changes) -> Vec<Vec<u8>> {
    let nested = |files: &Changes, others: &Changes| -> Vec<Vec<u8>> {
        let is_nested = |(path, change): &(&Vec<u8>, &FileChange)| {
            let mut directory = (*path).clone();
            directory.push(b'/');
            let mut inside = others.range(directory.clone()..);
            let made = inside
                .by_ref()
                .take_while(|(other, _)| other.starts_with(&directory))
                .any(|(_, other)| other.new.is_some());
            change.new.is_some() && made
        };
        files.iter().filter(is_nested).map(|(path, _)| path.clone()).collect()
    };
    let mut paths = nested(ours, theirs);
    paths.extend(nested(theirs, ours));
    paths
}

/// Returns whether a conflict in a path is about changes of both works: one of them may conflict
/// with changes of the branch that the other one started from.
fn is_own(path: &[u8], ours: &Changes, theirs: &Changes) -> bool {
    let is_removed = |changes: &Changes| changes.values().any(|change| change.new.is_none());
    match (ours.contains_key(path), theirs.contains_key(path)) {
        (true, true) => true,
        // After a rename, the path is that of one side only.
        (true, false) | (false, true) => is_removed(ours) || is_removed(theirs),
        (false, false) => false,
    }
}

/// Merges all files of two pieces of work in memory.
fn merge_index(
    repo: &git2::Repository,
    first: &WorkRange,
    second: &WorkRange,
) -> Result<git2::Index> {
    let base = merge_base(repo, first, second)?;
    let tree = |id: git2::Oid| repo.find_commit(id).and_then(|commit| commit.tree());
    let (ours, theirs) = (refs::oid(&first.commit)?, refs::oid(&second.commit)?);
    let merge = || repo.merge_trees(&tree(base)?, &tree(ours)?, &tree(theirs)?, None);
    merge().or_fail(cannot)
}

fn merge_base(repo: &git2::Repository, first: &WorkRange, second: &WorkRange) -> Result<git2::Oid> {
    let base = refs::oid(&first.base)?;
    if first.base == second.base {
        return Ok(base);
    }
    let other_base = refs::oid(&second.base)?;
    let of_work = repo.merge_base(refs::oid(&first.commit)?, refs::oid(&second.commit)?);
    Ok(of_work.or_else(|_| repo.merge_base(base, other_base)).unwrap_or(base))
}

/// The results of earlier calls.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Cache {
    /// The changed paths of each piece of work.
    paths: BTreeMap<String, Vec<String>>,
    /// The conflicting files of each pair that was merged.
    pairs: BTreeMap<String, Vec<String>>,
}

impl Cache {
    /// Reads the cache; an unreadable one is empty.
    fn read(path: &PathBuf) -> Cache {
        let text = std::fs::read(path).ok();
        text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
    }

    fn add_paths(&mut self, key: &str, changes: &Changes) {
        let paths = changes.keys().map(|path| String::from_utf8(path.clone()));
        // Paths that are not UTF-8 are read each time.
        if let Ok(paths) = paths.collect::<std::result::Result<Vec<_>, _>>() {
            self.paths.insert(key.to_owned(), paths);
        }
    }

    fn retain_current<'k>(&mut self, works: &[String], pairs: impl Iterator<Item = &'k String>) {
        let path_count: usize = self.paths.values().map(Vec::len).sum();
        if self.paths.len() > MAX_CACHED || path_count > MAX_CACHED_PATHS {
            let current: BTreeSet<&String> = works.iter().collect();
            self.paths.retain(|key, _| current.contains(key));
        }
        if self.pairs.len() > MAX_CACHED {
            let current: BTreeSet<&String> = pairs.collect();
            self.pairs.retain(|key, _| current.contains(key));
        }
    }

    /// Writes the cache; if that fails, the pairs are merged again next time.
    fn write(&self, path: &Path) {
        if let (Some(parent), Ok(text)) = (path.parent(), serde_json::to_vec(self)) {
            let write = || base::files::replace_cache(path, &text);
            let _ = std::fs::create_dir_all(parent).and_then(|()| write());
        }
    }
}

fn cannot() -> &'static str {
    "cannot compare the changes of two commits"
}
