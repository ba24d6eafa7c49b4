//! The difference between two trees. libgit2 reads every directory of both unless it is told the
//! paths to compare, so these are found first: a directory with the same id on both sides has the
//! same content and is not read.

use std::collections::BTreeMap;

use git2::{Diff, DiffOptions, ObjectType, Oid, Repository, Tree};

/// Returns the difference between two trees; a missing one is empty.
pub fn diff_trees<'repo>(
    repo: &'repo Repository,
    before: Option<&Tree<'_>>,
    after: Option<&Tree<'_>>,
    mut options: DiffOptions,
) -> Result<Diff<'repo>, git2::Error> {
    let mut paths = Vec::new();
    add_changed(repo, before, after, b"", &mut paths)?;
    if paths.is_empty() {
        return Diff::from_buffer_ext(b"", repo.object_format());
    }
    options.disable_pathspec_match(true);
    for path in paths {
        options.pathspec(path);
    }
    repo.diff_tree_to_tree(before, after, Some(&mut options))
}

/// Adds the paths of all entries that differ and are not directories.
fn add_changed(
    repo: &Repository,
    before: Option<&Tree<'_>>,
    after: Option<&Tree<'_>>,
    directory: &[u8],
    paths: &mut Vec<Vec<u8>>,
) -> Result<(), git2::Error> {
    let (before, after) = (entries(before), entries(after));
    let added = after.iter().filter(|(name, _)| !before.contains_key(*name));
    let names = before.keys().chain(added.map(|(name, _)| name));
    for name in names {
        let (old, new) = (before.get(name), after.get(name));
        if old == new {
            continue;
        }
        let mut path = directory.to_vec();
        path.extend(name);
        let is_tree = |entry: &&Entry| entry.kind == Some(ObjectType::Tree);
        if [old, new].into_iter().flatten().any(|entry| !is_tree(&entry)) {
            paths.push(path.clone());
        }
        let subtree = |entry: Option<&Entry>| {
            entry.filter(is_tree).map(|entry| repo.find_tree(entry.id)).transpose()
        };
        let (old, new) = (subtree(old)?, subtree(new)?);
        if old.is_some() || new.is_some() {
            path.push(b'/');
            add_changed(repo, old.as_ref(), new.as_ref(), &path, paths)?;
        }
    }
    Ok(())
}

#[derive(PartialEq, Eq)]
struct Entry {
    id: Oid,
    mode: i32,
    kind: Option<ObjectType>,
}

/// Returns the entries of a tree by name.
fn entries(tree: Option<&Tree<'_>>) -> BTreeMap<Vec<u8>, Entry> {
    let entry = |it: git2::TreeEntry<'_>| {
        let entry = Entry { id: it.id(), mode: it.filemode_raw(), kind: it.kind() };
        (it.name_bytes().to_vec(), entry)
    };
    tree.into_iter().flat_map(Tree::iter).map(entry).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use proptest::collection::btree_map;
    use proptest::prelude::*;

    use super::*;
    use crate::{entry_mode, index};

    type Files = BTreeMap<String, (u32, u8)>;

    fn files() -> impl Strategy<Value = Files> {
        let name = "[ab]{1,2}(/[ab.]b{0,1}c){0,2}";
        let modes =
            [entry_mode::FILE, entry_mode::EXECUTABLE, entry_mode::SYMLINK, entry_mode::GITLINK];
        let mode = proptest::sample::select(modes.to_vec());
        btree_map(name, (mode, 0..3_u8), 0..12)
    }

    /// Makes a tree; a file whose directory is another file is left out.
    fn tree(repo: &Repository, files: &Files) -> Oid {
        let mut index = git2::Index::new().unwrap();
        for (path, (mode, content)) in files {
            let is_file = |parent: &str| files.contains_key(parent);
            let mut parents = path.match_indices('/').map(|(end, _)| &path[..end]);
            if parents.any(is_file) {
                continue;
            }
            let id = repo.blob(&[*content]).unwrap();
            index.add(&index::entry(path.as_bytes().to_vec(), id, *mode)).unwrap();
        }
        index.write_tree_to(repo).unwrap()
    }

    fn text(diff: &Diff<'_>) -> String {
        let mut text = String::new();
        for delta in diff.deltas() {
            text += &format!("{delta:?}\n");
        }
        diff.print(git2::DiffFormat::Patch, |_, _, line| {
            text += &String::from_utf8_lossy(line.content());
            true
        })
        .unwrap();
        text
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn the_difference_is_that_of_libgit2(before in files(), after in files()) {
            let directory = tempfile::tempdir().unwrap();
            let repo = Repository::init_bare(directory.path()).unwrap();
            let find = |files| repo.find_tree(tree(&repo, files)).unwrap();
            let (before, after) = (find(&before), find(&after));
            for (before, after) in [(Some(&before), Some(&after)), (None, Some(&after)), (Some(&before), None)] {
                for typechange in [true, false] {
                    let options = || {
                        let mut options = DiffOptions::new();
                        options.include_typechange(typechange);
                        options
                    };
                    let expected = repo.diff_tree_to_tree(before, after, Some(&mut options())).unwrap();
                    let found = diff_trees(&repo, before, after, options()).unwrap();
                    prop_assert_eq!(text(&found), text(&expected));
                }
            }
        }
    }
}
