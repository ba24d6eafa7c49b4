//! Conflicts of an in-memory merge: the files, and the hunks with conflict markers.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use base::failure::{OrFail, Result};
use serde::{Deserialize, Serialize};

/// The file that is merged by union: notes that agents append to.
pub(crate) const MEMORY_FILE: &str = "analysis/memory.md";
/// Maximum number of bytes of hunks per file.
const MAX_HUNK_BYTES: usize = 8192;
/// Number of context lines around a hunk.
const CONTEXT_LINES: usize = 3;

/// Describes the conflict of a file with a directory.
pub(crate) const NESTED: &str = "a file on one side, a directory on the other";

/// A file with conflicting changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conflict {
    /// The path; bytes that are not UTF-8 are replaced.
    pub path: String,
    /// The hunks with conflict markers, or a sentence if there are none.
    pub hunks: String,
    /// Whether a merge by syntax resolves it, where that was looked for.
    #[serde(default)]
    pub merges_by_syntax: bool,
}

impl Conflict {
    /// Creates a conflict that no merge by syntax resolves.
    pub(crate) fn new(path: String, hunks: String) -> Conflict {
        Conflict { path, hunks, merges_by_syntax: false }
    }
}

/// What conflict markers and sentences call the two sides of a merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SideLabels<'a> {
    /// Our side.
    pub ours: &'a str,
    /// Their side.
    pub theirs: &'a str,
}

/// Resolves what can be resolved automatically (workspace memory, by union), and returns the other
/// conflicts.
pub fn resolve(repo: &git2::Repository, index: &mut git2::Index) -> Result<Vec<Conflict>> {
    resolve_labelled(repo, index, SideLabels { ours: "target", theirs: "session" })
}

/// Like [`resolve`], with these names for the two sides.
pub fn resolve_labelled(
    repo: &git2::Repository,
    index: &mut git2::Index,
    labels: SideLabels<'_>,
) -> Result<Vec<Conflict>> {
    let mut conflicts = Vec::new();
    for conflict in unresolved(repo, index)? {
        let path = conflict_path(&conflict).to_string_lossy().into_owned();
        conflicts.push(Conflict::new(path, describe_hunks(repo, &conflict, labels)?));
    }
    for path in nested_paths(index) {
        let path = path.to_string_lossy().into_owned();
        conflicts.push(Conflict::new(path, NESTED.to_owned()));
    }
    conflicts.sort_by(|a, b| a.path.cmp(&b.path));
    conflicts.dedup_by(|a, b| a.path == b.path);
    Ok(conflicts)
}

/// Like [`resolve`], but returns the paths only.
pub(crate) fn conflicting_paths(
    repo: &git2::Repository,
    index: &mut git2::Index,
) -> Result<Vec<PathBuf>> {
    let conflicts = unresolved(repo, index)?;
    let mut paths: Vec<PathBuf> =
        conflicts.iter().map(|conflict| conflict_path(conflict).to_owned()).collect();
    paths.extend(nested_paths(index));
    paths.sort();
    paths.dedup();
    Ok(paths)
}

/// Returns the files at whose path the index has a directory as well: libgit2 does not report all of
/// them, and a tree with both would lose the file.
fn nested_paths(index: &git2::Index) -> Vec<PathBuf> {
    let mut nested = Vec::new();
    // The entries that are the start of the current one.
    let mut starts: Vec<Vec<u8>> = Vec::new();
    for entry in index.iter() {
        while starts.last().is_some_and(|start| !entry.path.starts_with(start)) {
            starts.pop();
        }
        let is_inside = |start: &&Vec<u8>| entry.path.get(start.len()) == Some(&b'/');
        if let Some(file) = starts.iter().find(is_inside) {
            nested.push(PathBuf::from(OsStr::from_bytes(file)));
        }
        starts.push(entry.path);
    }
    nested.dedup();
    nested
}

/// Returns whether two versions of a text conflict; `None` if one of them is not text.
pub(crate) fn texts_conflict(
    repo: &git2::Repository,
    old: git2::Oid,
    ours: git2::Oid,
    theirs: git2::Oid,
) -> Result<Option<bool>> {
    let blob = |id| repo.find_blob(id).or_fail(cannot);
    let (old, ours, theirs) = (blob(old)?, blob(ours)?, blob(theirs)?);
    if [&old, &ours, &theirs].iter().any(|blob| blob.is_binary()) {
        return Ok(None);
    }
    let result = git2::merge_file(
        &to_input(old.content()),
        &to_input(ours.content()),
        &to_input(theirs.content()),
        None,
    );
    result.map(|result| Some(!result.is_automergeable())).or_fail(cannot)
}

/// Returns the conflicts that cannot be resolved automatically.
fn unresolved(
    repo: &git2::Repository,
    index: &mut git2::Index,
) -> Result<Vec<git2::IndexConflict>> {
    if !index.has_conflicts() {
        return Ok(Vec::new());
    }
    let conflicts = index
        .conflicts()
        .and_then(|conflicts| conflicts.collect::<std::result::Result<Vec<_>, _>>())
        .or_fail(cannot)?;
    let mut unresolved = Vec::new();
    for conflict in conflicts {
        let is_memory = conflict_path(&conflict) == Path::new(MEMORY_FILE);
        if !(is_memory && merge_union(repo, index, &conflict)?) {
            unresolved.push(conflict);
        }
    }
    Ok(unresolved)
}

fn conflict_path(conflict: &git2::IndexConflict) -> &Path {
    let sides = [&conflict.our, &conflict.their, &conflict.ancestor];
    let entry = sides.into_iter().flatten().next();
    Path::new(OsStr::from_bytes(entry.map_or(b"", |entry| &entry.path)))
}

/// Resolves a conflict by keeping the lines of both sides.
fn merge_union(
    repo: &git2::Repository,
    index: &mut git2::Index,
    conflict: &git2::IndexConflict,
) -> Result<bool> {
    let (Some(our), Some(their)) = (&conflict.our, &conflict.their) else { return Ok(false) };
    let mut options = git2::MergeFileOptions::new();
    options.favor(git2::FileFavor::Union);
    let Some(merged) = merge_text(repo, conflict, our, their, &mut options)? else {
        return Ok(false);
    };
    let id = repo.blob(&merged).or_fail(cannot)?;
    let path = Path::new(MEMORY_FILE);
    index.conflict_remove(path).or_fail(cannot)?;
    let flags = our.flags & !0x3000; // stage 0
    let entry = git2::IndexEntry { id, flags, path: our.path.clone(), ..*our };
    index.add(&entry).or_fail(cannot)?;
    Ok(true)
}

fn describe_hunks(
    repo: &git2::Repository,
    conflict: &git2::IndexConflict,
    labels: SideLabels<'_>,
) -> Result<String> {
    let SideLabels { ours, theirs } = labels;
    let (our, their) = match (&conflict.our, &conflict.their) {
        (Some(our), Some(their)) => (our, their),
        (None, Some(_)) => return Ok(format!("deleted in {ours}, changed in {theirs}")),
        (Some(_), None) => return Ok(format!("changed in {ours}, deleted in {theirs}")),
        (None, None) => return Ok("deleted or renamed on both sides".to_owned()),
    };
    let mut options = git2::MergeFileOptions::new();
    options.our_label(ours).their_label(theirs);
    let Some(merged) = merge_text(repo, conflict, our, their, &mut options)? else {
        return Ok("binary, changed on both sides".to_owned());
    };
    Ok(conflict_hunks(&String::from_utf8_lossy(&merged)))
}

/// Merges the two sides as text; `None` if one of them is not text.
fn merge_text(
    repo: &git2::Repository,
    conflict: &git2::IndexConflict,
    our: &git2::IndexEntry,
    their: &git2::IndexEntry,
    options: &mut git2::MergeFileOptions,
) -> Result<Option<Vec<u8>>> {
    let content = |entry: &git2::IndexEntry| repo.find_blob(entry.id).ok();
    let (Some(ours), Some(theirs)) = (content(our), content(their)) else { return Ok(None) };
    let ancestor = conflict.ancestor.as_ref().and_then(content);
    if ours.is_binary() || theirs.is_binary() {
        return Ok(None);
    }
    let base = to_input(ancestor.as_ref().map_or(&b""[..], |blob| blob.content()));
    let (ours, theirs) = (to_input(ours.content()), to_input(theirs.content()));
    let result = git2::merge_file(&base, &ours, &theirs, Some(options)).or_fail(cannot)?;
    Ok(Some(result.content().to_vec()))
}

fn to_input(content: &[u8]) -> git2::MergeFileInput<'_> {
    let mut input = git2::MergeFileInput::new();
    input.content(content);
    input
}

/// Returns the hunks between conflict markers of a merged text, with context lines.
fn conflict_hunks(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let mut is_included = vec![false; lines.len()];
    let mut in_hunk = false;
    for (n, line) in lines.iter().enumerate() {
        in_hunk |= line.starts_with("<<<<<<< ");
        if in_hunk {
            let end = (n + CONTEXT_LINES + 1).min(lines.len());
            is_included[n.saturating_sub(CONTEXT_LINES)..end].fill(true);
        }
        in_hunk &= !line.starts_with(">>>>>>> ");
    }
    let mut output = String::new();
    for (n, line) in lines.iter().enumerate() {
        if is_included[n] {
            output.push_str(line);
            output.push('\n');
        } else if n > 0 && is_included[n - 1] {
            output.push_str("…\n");
        }
    }
    base::text::head(&output, MAX_HUNK_BYTES).to_owned()
}

fn cannot() -> &'static str {
    "cannot read the conflicts"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_hunks_and_their_context_are_shown() {
        let context: String = (0..20).map(|n| format!("line {n}\n")).collect();
        let text = format!("{context}<<<<<<< target\na\n=======\nb\n>>>>>>> session\n{context}");
        let hunks = conflict_hunks(&text);
        assert!(hunks.starts_with("line 17\nline 18\nline 19\n<<<<<<< target\na\n"), "{hunks}");
        assert!(hunks.ends_with(">>>>>>> session\nline 0\nline 1\nline 2\n…\n"), "{hunks}");
    }
}
