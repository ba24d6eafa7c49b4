//! Whether a worktree has untracked files. Most have none when a session starts or ends, and their
//! names alone tell it in less time than git takes to start.

use std::collections::HashMap;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;

use crate::entry_mode;
use crate::open_directories::{buffer, open_below, open_directory, visit};
use crate::stored_index::StoredIndex;

/// The path and the mode of an entry of an index.
type Entry<'i> = (&'i [u8], u32);

/// Returns whether all files of a worktree are those of an index, so that none is untracked, ignored
/// or not. `false` if there may be one: git must look, as into unknown directories and submodules.
pub(crate) fn has_none(worktree: &Path, index: &StoredIndex) -> io::Result<bool> {
    let entries: Vec<Entry<'_>> = index.entries().collect();
    has_none_below(&open_directory(worktree)?, 0, &entries, &mut buffer())
}

/// The part of [`has_none`] for one directory, whose path has `prefix_length` bytes and whose entries
/// are these. Stops at the first unknown name.
fn has_none_below(
    directory: &OwnedFd,
    prefix_length: usize,
    entries: &[Entry<'_>],
    buffer: &mut [MaybeUninit<u8>],
) -> io::Result<bool> {
    let known = children(prefix_length, entries);
    let mut directories = Vec::new();
    let are_known = visit(directory, buffer, |name, is_directory| {
        let is_git = prefix_length == 0 && name.to_bytes() == b".git";
        match known.get(name.to_bytes()) {
            Some(Child::Directory(entries)) if is_directory => {
                directories.push((name.to_owned(), *entries));
                true
            }
            Some(Child::File) => !is_directory,
            Some(Child::Directory(_) | Child::Submodule) | None => is_git,
        }
    })?;
    if !are_known {
        return Ok(false);
    }
    for (name, entries) in directories {
        let prefix_length = prefix_length + name.count_bytes() + 1;
        if !has_none_below(&open_below(directory, &name)?, prefix_length, entries, buffer)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// What an index has for a name in a directory.
enum Child<'e> {
    File,
    Directory(&'e [Entry<'e>]),
    Submodule,
}

/// Returns the names in a directory of an index.
fn children<'e>(
    prefix_length: usize,
    mut entries: &'e [Entry<'e>],
) -> HashMap<&'e [u8], Child<'e>> {
    let mut children = HashMap::new();
    while let Some((path, mode)) = entries.first() {
        let name = &path[prefix_length..];
        let (name, child, count) = match name.iter().position(|byte| *byte == b'/') {
            Some(slash) => {
                let count = entries.partition_point(|(path, _)| {
                    path[prefix_length..].starts_with(&name[..=slash])
                });
                (&name[..slash], Child::Directory(&entries[..count]), count)
            }
            None if *mode == entry_mode::GITLINK => (name, Child::Submodule, 1),
            None => (name, Child::File, 1),
        };
        children.insert(name, child);
        entries = &entries[count..];
    }
    children
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use base::process::{Command, OutputLimits};

    use super::*;

    fn git(directory: &Path, args: &[&str]) -> String {
        let output = Command::new("git", directory).args(args).output(OutputLimits::seconds(60));
        let output = output.unwrap();
        assert!(output.ok(), "git {args:?}: {}", output.error_text());
        output.text()
    }

    fn has_none(directory: &Path) -> bool {
        let index = StoredIndex::read(&directory.join(".git/index"), git2::ObjectFormat::Sha1)
            .unwrap()
            .unwrap();
        super::has_none(directory, &index).unwrap()
    }

    #[test]
    fn an_untracked_file_is_seen_wherever_it_is() {
        let repository = tempfile::tempdir().unwrap();
        let directory = repository.path();
        git(directory, &["init", "-q", "--object-format=sha1"]);
        for name in ["a", "d/e/deep", "d/f", "d.x/f", "d-/f", "link", "kind"] {
            fs::create_dir_all(directory.join(name).parent().unwrap()).unwrap();
            fs::write(directory.join(name), name).unwrap();
        }
        git(directory, &["add", "."]);
        assert!(has_none(directory));
        // What is missing or changed is not untracked.
        fs::remove_file(directory.join("link")).unwrap();
        symlink("d", directory.join("link")).unwrap();
        fs::remove_dir_all(directory.join("d/e")).unwrap();
        fs::write(directory.join("a"), "changed").unwrap();
        assert!(has_none(directory));
        for untracked in ["b", "d/e", "d/e2", "d/ff", "d.x/g", "d-/f2", ".gitignore"] {
            fs::write(directory.join(untracked), "").unwrap();
            assert!(!has_none(directory), "{untracked}");
            assert_eq!(git(directory, &["ls-files", "--others"]).trim(), untracked);
            fs::remove_file(directory.join(untracked)).unwrap();
            assert!(has_none(directory));
        }
    }

    #[test]
    fn git_looks_into_unknown_directories_and_submodules() {
        let repository = tempfile::tempdir().unwrap();
        let directory = repository.path();
        git(directory, &["init", "-q", "--object-format=sha1"]);
        fs::write(directory.join("kind"), "").unwrap();
        git(directory, &["add", "."]);
        assert!(has_none(directory));
        fs::create_dir(directory.join("new")).unwrap();
        assert!(!has_none(directory));
        fs::remove_dir(directory.join("new")).unwrap();
        fs::remove_file(directory.join("kind")).unwrap();
        fs::create_dir(directory.join("kind")).unwrap();
        assert!(!has_none(directory), "a directory in the place of a file");
        let submodule = format!("160000,{},kind", "1".repeat(40));
        git(directory, &["update-index", "--add", "--cacheinfo", &submodule]);
        assert!(!has_none(directory), "a submodule");
    }
}
