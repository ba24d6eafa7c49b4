//! The difference between two states of the files as data: files, hunks and lines. Attributes of
//! files are ignored, so none of them can hide a change.

use std::path::{Path, PathBuf};

use base::failure::{OrFail, Result};
use sha2::{Digest, Sha256};

use crate::checkout::FileEntry;
use crate::stage::is_g3s_own;
use crate::{entry_mode, index, tree_diff};

/// The number of unchanged lines around a change.
const CONTEXT_LINES: u32 = 3;
/// The number of hexadecimal digits of a hunk's id.
const ID_DIGITS: usize = 12;

/// A changed file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePatch {
    /// The path in the state to compare with; `None` for a new file.
    pub old_path: Option<PathBuf>,
    /// The path in the new state; for a deleted file, the old one.
    pub path: PathBuf,
    /// The old blob and mode; `None` for a new file.
    pub old: Option<FileEntry>,
    /// The new blob and mode; `None` for a deleted file.
    pub new: Option<FileEntry>,
    /// Whether a side is binary, so that its lines are unknown.
    pub binary: bool,
    /// The hunks. A file whose change has no lines has one hunk without lines.
    pub hunks: Vec<DiffHunk>,
}

/// Neighbouring changed lines of a file, with the unchanged lines around them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiffHunk {
    /// The id: a hash of the path and of the changed lines. It does not depend on line numbers.
    pub id: String,
    /// The lines of the old file.
    pub old: LineSpan,
    /// The lines of the new file.
    pub new: LineSpan,
    /// The line of the file that git shows after `@@`: usually the function.
    pub heading: String,
    /// The lines; empty if the change of the file has none.
    pub lines: Vec<DiffLine>,
}

/// Consecutive lines of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineSpan {
    /// The first line, starting at 1; without lines, the line before.
    pub start: u32,
    /// The number of lines.
    pub count: u32,
}

/// A line of a hunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiffLine {
    /// Which of the files have it.
    pub origin: LineOrigin,
    /// Its number in the old file.
    pub old: Option<u32>,
    /// Its number in the new file.
    pub new: Option<u32>,
    /// The text without its line break; bytes that are not UTF-8 are replaced.
    pub text: String,
    /// Whether it ends with a line break.
    pub has_newline: bool,
}

/// Which of the two files have a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineOrigin {
    /// Both.
    Context,
    /// The old one.
    Removed,
    /// The new one.
    Added,
}

impl LineSpan {
    /// Returns the range of its lines as indexes that start at 0.
    pub fn range(self) -> std::ops::Range<usize> {
        let start = if self.count == 0 { self.start } else { self.start.saturating_sub(1) };
        start as usize..(start + self.count) as usize
    }
}

impl DiffHunk {
    /// Returns the number of added and of removed lines.
    pub fn line_counts(&self) -> (usize, usize) {
        let count = |origin| self.lines.iter().filter(|line| line.origin == origin).count();
        (count(LineOrigin::Added), count(LineOrigin::Removed))
    }

    /// Returns the header `@@ -1,2 +3,4 @@ heading`.
    pub fn header(&self) -> String {
        let LineSpan { start: old_start, count: old_count } = self.old;
        let LineSpan { start: new_start, count: new_count } = self.new;
        let header = format!("@@ -{old_start},{old_count} +{new_start},{new_count} @@");
        match self.heading.as_str() {
            "" => header,
            heading => format!("{header} {heading}"),
        }
    }
}

impl FilePatch {
    /// Returns whether the file was renamed.
    pub fn is_renamed(&self) -> bool {
        self.new.is_some() && self.old_path.as_ref().is_some_and(|old| *old != self.path)
    }

    /// Returns the old and the new mode if they differ.
    pub fn mode_change(&self) -> Option<(u32, u32)> {
        let (old, new) = (self.old?.mode, self.new?.mode);
        (old != new).then_some((old, new))
    }
}

/// Returns the changed files between two commits or trees, in the order of their paths, with
/// renames.
pub fn read(repo: &git2::Repository, from: &str, to: &str) -> Result<Vec<FilePatch>> {
    let diff = crate::diff::diff_trees(repo, from, to)?;
    read_deltas(repo, &diff, |_| true)
}

/// Like [`read`], for the files that had one of these paths before; without renames.
pub fn read_paths(
    repo: &git2::Repository,
    from: &str,
    to: &str,
    paths: &[&PathBuf],
) -> Result<Vec<FilePatch>> {
    let tree = |id: &str| -> Result<git2::Tree<'_>> {
        let object = repo.find_object(crate::refs::oid(id)?, None).or_fail(cannot)?;
        object.peel_to_tree().or_fail(cannot)
    };
    let options = git2::DiffOptions::new();
    let diff = tree_diff::diff_trees(repo, Some(&tree(from)?), Some(&tree(to)?), options)
        .or_fail(cannot)?;
    let paths: std::collections::BTreeSet<&Path> =
        paths.iter().map(|path| path.as_path()).collect();
    read_deltas(repo, &diff, |path| paths.contains(path))
}

fn read_deltas(
    repo: &git2::Repository,
    diff: &git2::Diff<'_>,
    is_wanted: impl Fn(&Path) -> bool,
) -> Result<Vec<FilePatch>> {
    let mut files = Vec::new();
    for delta in diff.deltas() {
        let old_path = delta.old_file().path().map(Path::to_owned);
        let new_path = delta.new_file().path().map(Path::to_owned);
        let entry = |file: git2::DiffFile<'_>| {
            let mode = u32::from(file.mode());
            (mode != 0).then(|| FileEntry { id: file.id(), mode })
        };
        let (old, new) = (entry(delta.old_file()), entry(delta.new_file()));
        let old_path = old_path.filter(|_| old.is_some());
        let path = new_path.filter(|_| new.is_some()).or_else(|| old_path.clone());
        let Some(path) = path.filter(|path| !is_g3s_own(path) && is_wanted(path)) else { continue };
        files.push(read_file(
            repo,
            FilePatch { old_path, path, old, new, binary: false, hunks: Vec::new() },
        )?);
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

/// Reads the hunks of a file.
fn read_file(repo: &git2::Repository, mut file: FilePatch) -> Result<FilePatch> {
    let kind = |entry: Option<FileEntry>| entry.map(|entry| entry_mode::kind(entry.mode));
    let is_same_kind =
        kind(file.old).is_none() || kind(file.new).is_none() || kind(file.old) == kind(file.new);
    let is_gitlink =
        kind(file.old) == Some(entry_mode::GITLINK) || kind(file.new) == Some(entry_mode::GITLINK);
    if is_same_kind && !is_gitlink {
        let blob = |entry: Option<FileEntry>| -> Result<Option<git2::Blob<'_>>> {
            entry.map(|entry| repo.find_blob(entry.id).or_fail(cannot)).transpose()
        };
        let (old, new) = (blob(file.old)?, blob(file.new)?);
        let content = |blob: &Option<git2::Blob<'_>>| {
            blob.as_ref().map(|blob| blob.content().to_owned()).unwrap_or_default()
        };
        let (old, new) = (content(&old), content(&new));
        (file.binary, file.hunks) = text_hunks(&file.path, &old, &new)?;
    }
    if file.hunks.is_empty() {
        file.hunks.push(whole_file_hunk(&file));
    }
    Ok(file)
}

/// Compares two texts; returns whether one of them is binary. Without a path, so that no
/// attribute of the repository applies.
fn text_hunks(path: &Path, old: &[u8], new: &[u8]) -> Result<(bool, Vec<DiffHunk>)> {
    let mut options = git2::DiffOptions::new();
    options.context_lines(CONTEXT_LINES).indent_heuristic(true);
    let patch =
        git2::Patch::from_buffers(old, None, new, None, Some(&mut options)).or_fail(cannot)?;
    if patch.delta().flags().is_binary() {
        return Ok((true, Vec::new()));
    }
    let mut hunks: Vec<DiffHunk> = Vec::with_capacity(patch.num_hunks());
    let mut seen = std::collections::BTreeMap::new();
    for index in 0..patch.num_hunks() {
        let (header, count) = patch.hunk(index).or_fail(cannot)?;
        let heading = String::from_utf8_lossy(header.header());
        let heading = heading.splitn(3, "@@").nth(2).unwrap_or_default().trim().to_owned();
        let mut hash = Sha256::new();
        hash.update(path.as_os_str().as_encoded_bytes());
        let mut lines = Vec::with_capacity(count);
        for line_index in 0..count {
            let line = patch.line_in_hunk(index, line_index).or_fail(cannot)?;
            let origin = match line.origin() {
                ' ' => LineOrigin::Context,
                '-' => LineOrigin::Removed,
                '+' => LineOrigin::Added,
                // A note about a missing line break; the lines themselves say it.
                _ => continue,
            };
            if origin != LineOrigin::Context {
                hash.update([0, line.origin() as u8]);
                hash.update(line.content());
            }
            let content = line.content();
            let text = content.strip_suffix(b"\n");
            lines.push(DiffLine {
                origin,
                old: line.old_lineno(),
                new: line.new_lineno(),
                text: String::from_utf8_lossy(text.unwrap_or(content)).into_owned(),
                has_newline: text.is_some(),
            });
        }
        // The same change can occur several times in a file.
        let digest = hash.finalize();
        let occurrence =
            seen.entry(digest.to_vec()).and_modify(|count| *count += 1).or_insert(0u32);
        let digest =
            Sha256::new().chain_update(digest).chain_update(occurrence.to_le_bytes()).finalize();
        hunks.push(DiffHunk {
            id: id_of(&digest),
            old: LineSpan { start: header.old_start(), count: header.old_lines() },
            new: LineSpan { start: header.new_start(), count: header.new_lines() },
            heading,
            lines,
        });
    }
    Ok((false, hunks))
}

/// Returns the hunk of a file whose change has no lines: binary, renamed, of another mode or kind.
fn whole_file_hunk(file: &FilePatch) -> DiffHunk {
    let mut hash = Sha256::new();
    hash.update(file.path.as_os_str().as_encoded_bytes());
    for entry in [file.old, file.new] {
        let text = entry.map(|entry| format!("{} {:o}", entry.id, entry.mode));
        hash.update([0]);
        hash.update(text.unwrap_or_default());
    }
    let none = LineSpan::default();
    let id = id_of(&hash.finalize());
    DiffHunk { id, old: none, new: none, heading: String::new(), lines: Vec::new() }
}

fn id_of(digest: &[u8]) -> String {
    base::text::hex(&digest[..ID_DIGITS / 2])
}

/// Returns the chosen part of a file's content: the old content with the chosen hunks in place.
fn content_with(
    old: &[u8],
    new: &[u8],
    hunks: &[DiffHunk],
    is_chosen: &dyn Fn(&DiffHunk) -> bool,
) -> Vec<u8> {
    let old_lines: Vec<&[u8]> = old.split_inclusive(|byte| *byte == b'\n').collect();
    let new_lines: Vec<&[u8]> = new.split_inclusive(|byte| *byte == b'\n').collect();
    let mut content = Vec::with_capacity(new.len());
    let mut next = 0;
    for hunk in hunks.iter().filter(|hunk| is_chosen(hunk)) {
        let (replaced, inserted) = (hunk.old.range(), hunk.new.range());
        content.extend(old_lines[next..replaced.start].concat());
        content.extend(new_lines[inserted].concat());
        next = replaced.end;
    }
    content.extend(old_lines[next..].concat());
    content
}

/// Applies chosen hunks to a tree and writes the result, which has exactly those changes. A chosen
/// hunk of a renamed file, or of one with another mode, brings the new name and mode along.
pub(crate) fn apply(
    repo: &git2::Repository,
    base: &git2::Tree<'_>,
    files: &[FilePatch],
    is_chosen: &dyn Fn(&DiffHunk) -> bool,
) -> Result<git2::Oid> {
    let mut index = git2::Index::new_ext(repo.object_format()).or_fail(cannot_apply)?;
    index.read_tree(base).or_fail(cannot_apply)?;
    let mut entries = index.len();
    let chosen: Vec<&FilePatch> =
        files.iter().filter(|file| file.hunks.iter().any(is_chosen)).collect();
    for file in &chosen {
        let is_gone = file.new.is_none() || file.is_renamed();
        if let Some(old_path) = file.old_path.as_ref().filter(|_| is_gone) {
            index.remove_path(old_path).or_fail(cannot_apply)?;
            entries -= 1;
        }
    }
    for file in &chosen {
        let Some(new) = file.new else { continue };
        let id = match file.hunks.iter().all(is_chosen) {
            true => new.id,
            false => {
                let old =
                    file.old.map(|old| repo.find_blob(old.id)).transpose().or_fail(cannot_apply)?;
                let new = repo.find_blob(new.id).or_fail(cannot_apply)?;
                let old = old.as_ref().map(git2::Blob::content).unwrap_or_default();
                let content = content_with(old, new.content(), &file.hunks, is_chosen);
                repo.blob(&content).or_fail(cannot_apply)?
            }
        };
        let path = file.path.as_os_str().as_encoded_bytes().to_owned();
        entries += usize::from(index.get_path(&file.path, 0).is_none());
        index.add(&index::entry(path, id, new.mode)).or_fail(cannot_apply)?;
        if index.len() != entries {
            // git replaces a file by a directory of its name, and the reverse.
            return Err(base::failure::Failure::usage("the chosen hunks do not fit together")
                .because(format!("{} needs the deletion of another file", file.path.display()))
                .hint("accept the deletion too"));
        }
    }
    index.write_tree_to(repo).or_fail(cannot_apply)
}

/// Describes a change that has no lines.
pub fn describe_whole_file(file: &FilePatch) -> String {
    let mut parts = Vec::new();
    if file.is_renamed() {
        let old = file.old_path.as_deref().unwrap_or(&file.path);
        parts.push(format!("renamed from {}", old.display()));
    }
    match (file.old, file.new) {
        (None, Some(new)) if new.mode == entry_mode::GITLINK => {
            parts.push("new submodule".to_owned())
        }
        (None, Some(_)) => parts.push(format!("new {}file", binary_word(file))),
        (Some(_), None) => parts.push(format!("deleted {}file", binary_word(file))),
        (Some(old), Some(new)) if entry_mode::kind(old.mode) != entry_mode::kind(new.mode) => {
            parts.push(format!("{} becomes {}", kind_word(old.mode), kind_word(new.mode)));
        }
        (Some(old), Some(new)) => {
            if old.mode != new.mode {
                parts.push(format!("mode {:o} becomes {:o}", old.mode, new.mode));
            }
            if file.binary {
                parts.push("binary file changed".to_owned());
            } else if old.mode == entry_mode::GITLINK {
                parts.push("submodule changed".to_owned());
            }
        }
        (None, None) => {}
    }
    parts.join(", ")
}

fn binary_word(file: &FilePatch) -> &'static str {
    if file.binary { "binary " } else { "empty " }
}

fn kind_word(mode: u32) -> &'static str {
    match entry_mode::kind(mode) {
        entry_mode::SYMLINK => "a symlink",
        entry_mode::GITLINK => "a submodule",
        _ => "a file",
    }
}

fn cannot() -> &'static str {
    "cannot compare the files"
}

fn cannot_apply() -> &'static str {
    "cannot apply the chosen hunks"
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Any subset of the hunks applies; all of them give the new text, none the old one, and
        /// what remains after a part is landed is exactly the rest.
        #[test]
        fn chosen_hunks_and_the_remaining_ones_give_the_new_text(
            old in proptest::collection::vec("[ab]{0,2}(\n|\r\n)", 0..40),
            new in proptest::collection::vec("[ab]{0,2}(\n|\r\n)", 0..40),
            tail in "[ab]?",
            mask in any::<u64>(),
        ) {
            let (old, new) = (old.concat(), new.concat() + &tail);
            let path = Path::new("f");
            let (_, hunks) = text_hunks(path, old.as_bytes(), new.as_bytes()).unwrap();
            let with = |chosen: &dyn Fn(&DiffHunk) -> bool| {
                String::from_utf8(content_with(old.as_bytes(), new.as_bytes(), &hunks, chosen)).unwrap()
            };
            prop_assert_eq!(with(&|_| true), new.clone());
            prop_assert_eq!(with(&|_| false), old.clone());
            let chosen: Vec<&str> = hunks.iter().enumerate()
                .filter(|(index, _)| mask >> (index % 64) & 1 == 1)
                .map(|(_, hunk)| hunk.id.as_str()).collect();
            let part = with(&|hunk| chosen.contains(&hunk.id.as_str()));
            let (_, rest) = text_hunks(path, part.as_bytes(), new.as_bytes()).unwrap();
            prop_assert_eq!(content_with(part.as_bytes(), new.as_bytes(), &rest, &|_| true), new.into_bytes());
        }
    }

    #[test]
    fn equal_changes_of_a_file_have_different_ids_and_an_id_does_not_depend_on_line_numbers() {
        let filler = "x\n".repeat(20);
        let old = format!("a\n{filler}a\n");
        let new = format!("b\n{filler}b\n");
        let (_, hunks) = text_hunks(Path::new("f"), old.as_bytes(), new.as_bytes()).unwrap();
        assert_eq!(hunks.len(), 2);
        assert_ne!(hunks[0].id, hunks[1].id);
        let (old, new) = (format!("new\n{filler}{old}"), format!("new\n{filler}{new}"));
        let (_, moved) = text_hunks(Path::new("f"), old.as_bytes(), new.as_bytes()).unwrap();
        let ids = |hunks: &[DiffHunk]| hunks.iter().map(|hunk| hunk.id.clone()).collect::<Vec<_>>();
        assert_eq!(ids(&moved), ids(&hunks));
        let (_, other) = text_hunks(Path::new("g"), old.as_bytes(), new.as_bytes()).unwrap();
        assert_ne!(other[0].id, hunks[0].id);
    }
}
