//! Conflicts of an in-memory merge: the files, and the hunks with conflict markers.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use base::failure::{OrFail, Result};
use serde::{Deserialize, Serialize};

/// The file that is merged by union: notes that agents append to.
const MEMORY: &str = "analysis/memory.md";
/// Maximum number of bytes of hunks per file.
const SHOWN: usize = 8192;
/// Number of context lines around a hunk.
const AROUND: usize = 3;

/// A file with conflicting changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conflict {
    /// The path; bytes that are not UTF-8 are replaced.
    pub path: String,
    /// The hunks with conflict markers, or a sentence if there are none.
    pub hunks: String,
}

/// Resolves what can be resolved automatically (workspace memory, by union), and returns the other
/// conflicts.
pub fn settle(repo: &git2::Repository, index: &mut git2::Index) -> Result<Vec<Conflict>> {
    if !index.has_conflicts() {
        return Ok(Vec::new());
    }
    let all = index
        .conflicts()
        .and_then(|conflicts| conflicts.collect::<std::result::Result<Vec<_>, _>>())
        .or_fail(cannot)?;
    let mut left = Vec::new();
    for conflict in all {
        let path = path_of(&conflict);
        if path == Path::new(MEMORY) && unite(repo, index, &conflict)? {
            continue;
        }
        let hunks = hunks(repo, &conflict)?;
        left.push(Conflict { path: path.to_string_lossy().into_owned(), hunks });
    }
    left.sort_by(|a, b| a.path.cmp(&b.path));
    left.dedup_by(|a, b| a.path == b.path);
    Ok(left)
}

fn path_of(conflict: &git2::IndexConflict) -> &Path {
    let sides = [&conflict.our, &conflict.their, &conflict.ancestor];
    let entry = sides.into_iter().flatten().next();
    Path::new(OsStr::from_bytes(entry.map_or(b"", |entry| &entry.path)))
}

/// Resolves a conflict by keeping the lines of both sides.
fn unite(
    repo: &git2::Repository,
    index: &mut git2::Index,
    conflict: &git2::IndexConflict,
) -> Result<bool> {
    let (Some(our), Some(their)) = (&conflict.our, &conflict.their) else { return Ok(false) };
    let mut options = git2::MergeFileOptions::new();
    options.favor(git2::FileFavor::Union);
    let Some(merged) = merged(repo, conflict, our, their, &mut options)? else {
        return Ok(false);
    };
    let id = repo.blob(&merged).or_fail(cannot)?;
    let path = Path::new(MEMORY);
    index.conflict_remove(path).or_fail(cannot)?;
    let flags = our.flags & !0x3000; // stage 0
    let entry = git2::IndexEntry { id, flags, path: our.path.clone(), ..*our };
    index.add(&entry).or_fail(cannot)?;
    Ok(true)
}

fn hunks(repo: &git2::Repository, conflict: &git2::IndexConflict) -> Result<String> {
    let (our, their) = match (&conflict.our, &conflict.their) {
        (Some(our), Some(their)) => (our, their),
        (None, Some(_)) => return Ok("deleted in the target, changed here".to_owned()),
        (Some(_), None) => return Ok("changed in the target, deleted here".to_owned()),
        (None, None) => return Ok("deleted or renamed on both sides".to_owned()),
    };
    let mut options = git2::MergeFileOptions::new();
    options.our_label("target").their_label("session");
    let Some(merged) = merged(repo, conflict, our, their, &mut options)? else {
        return Ok("binary, changed on both sides".to_owned());
    };
    Ok(marked(&String::from_utf8_lossy(&merged)))
}

/// Merges the two sides as text; `None` if one of them is not text.
fn merged(
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
    let input = |content| {
        let mut input = git2::MergeFileInput::new();
        input.content(content);
        input
    };
    let base = input(ancestor.as_ref().map_or(&b""[..], |blob| blob.content()));
    let (ours, theirs) = (input(ours.content()), input(theirs.content()));
    let result = git2::merge_file(&base, &ours, &theirs, Some(options)).or_fail(cannot)?;
    Ok(Some(result.content().to_vec()))
}

/// Returns the hunks between conflict markers of a merged text, with context lines.
fn marked(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let mut wanted = vec![false; lines.len()];
    let mut inside = false;
    for (n, line) in lines.iter().enumerate() {
        inside |= line.starts_with("<<<<<<< ");
        if inside {
            let end = (n + AROUND + 1).min(lines.len());
            wanted[n.saturating_sub(AROUND)..end].fill(true);
        }
        inside &= !line.starts_with(">>>>>>> ");
    }
    let mut shown = String::new();
    for (n, line) in lines.iter().enumerate() {
        if wanted[n] {
            shown.push_str(line);
            shown.push('\n');
        } else if n > 0 && wanted[n - 1] {
            shown.push_str("…\n");
        }
    }
    base::text::head(&shown, SHOWN).to_owned()
}

fn cannot() -> &'static str {
    "cannot read the conflicts"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_hunks_and_their_context_are_shown() {
        let body: String = (0..20).map(|n| format!("line {n}\n")).collect();
        let text = format!("{body}<<<<<<< target\na\n=======\nb\n>>>>>>> session\n{body}");
        let shown = marked(&text);
        assert!(shown.starts_with("line 17\nline 18\nline 19\n<<<<<<< target\na\n"), "{shown}");
        assert!(shown.ends_with(">>>>>>> session\nline 0\nline 1\nline 2\n…\n"), "{shown}");
    }
}
