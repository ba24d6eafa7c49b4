//! Changes that git's verification of objects (`git index-pack --strict`) would pass: a snapshot with
//! only such changes is imported without starting git. Anything unusual is left to git.

use std::collections::BTreeSet;

use crate::object_quarantine::Quarantine;

/// Maximum number of objects: git packs more of them faster.
const MAX_OBJECTS: usize = 500;
/// Maximum number of bytes of all objects, which are packed in memory.
const MAX_BYTES: usize = 16 << 20;

/// Returns the objects that a commit of a quarantine adds to another commit, which the repository has.
/// `created` are those of the quarantine. `None` if git must verify them: one of them is neither
/// created there nor in the repository, such as an object of an agent, or has an unusual name or mode.
pub(crate) fn find(
    quarantine: &Quarantine,
    created: &[git2::Oid],
    commit: git2::Oid,
    existing: git2::Oid,
) -> Option<Vec<git2::Oid>> {
    let repo = &quarantine.repo;
    let base = repo.find_commit(existing).ok()?.tree().ok()?;
    let mut changes = Changes {
        repo,
        created,
        imported: quarantine.imported_objects()?,
        objects: BTreeSet::new(),
        bytes: 0,
    };
    let mut commits = vec![commit];
    while let Some(id) = commits.pop() {
        changes.add(id)?;
        created.binary_search(&id).ok()?;
        let commit = repo.find_commit(id).ok()?;
        changes.add_tree(commit.tree_id(), Some(&base))?;
        commits.extend(commit.parent_ids().filter(|parent| *parent != existing));
    }
    Some(changes.objects.into_iter().collect())
}

struct Changes<'a> {
    repo: &'a git2::Repository,
    /// Sorted.
    created: &'a [git2::Oid],
    /// The objects of the repository.
    imported: git2::Odb<'static>,
    objects: BTreeSet<git2::Oid>,
    bytes: usize,
}

impl Changes<'_> {
    fn add(&mut self, id: git2::Oid) -> Option<()> {
        let is_trusted = self.created.binary_search(&id).is_ok() || self.imported.exists(id);
        let (bytes, _) = self.repo.odb().ok()?.read_header(id).ok()?;
        if self.objects.insert(id) {
            self.bytes = self.bytes.saturating_add(bytes);
        }
        let fits = self.objects.len() <= MAX_OBJECTS && self.bytes <= MAX_BYTES;
        (is_trusted && fits).then_some(())
    }

    /// Adds a tree and what differs in it from that of the existing commit at the same path.
    fn add_tree(&mut self, id: git2::Oid, base: Option<&git2::Tree<'_>>) -> Option<()> {
        if base.is_some_and(|base| base.id() == id) {
            return Some(());
        }
        self.add(id)?;
        let tree = self.repo.find_tree(id).ok()?;
        let mut names = BTreeSet::new();
        let mut previous = Vec::new();
        for entry in &tree {
            let name = entry.name_bytes().to_owned();
            let is_tree = entry.kind() == Some(git2::ObjectType::Tree);
            let sorted = [&name[..], if is_tree { b"/" } else { b"" }].concat();
            if !names.insert(name.clone()) || sorted <= previous {
                return None;
            }
            previous = sorted;
            let counterpart = base.and_then(|base| base.get_name_bytes(&name));
            let is_same = counterpart.as_ref().is_some_and(|counterpart| {
                (counterpart.id(), counterpart.filemode_raw()) == (entry.id(), entry.filemode_raw())
            });
            if is_same {
                continue;
            }
            if !is_plain(&name) {
                return None;
            }
            match entry.filemode_raw() {
                0o040_000 => {
                    let subtree = counterpart
                        .and_then(|counterpart| self.repo.find_tree(counterpart.id()).ok());
                    self.add_tree(entry.id(), subtree.as_ref())?;
                }
                0o100_644 | 0o100_755 | 0o120_000 => self.add(entry.id())?,
                _ => return None,
            }
        }
        Some(())
    }
}

/// Returns whether a name is printable ASCII, and on no file system another name of `.git` or of a
/// file that git reads.
fn is_plain(name: &[u8]) -> bool {
    let is_usual = |byte: &u8| (b' '..=b'~').contains(byte) && !b"/\\:~".contains(byte);
    let start = name.get(..4).unwrap_or_default();
    !name.is_empty()
        && name.iter().all(is_usual)
        && !matches!(name, b"." | b"..")
        && !start.eq_ignore_ascii_case(b".git")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unusual_names_are_left_to_git() {
        for name in ["a", "README.md", "a b", "gitmodules", "x.git", ".github2x", "...", ".hidden"]
        {
            assert_eq!(is_plain(name.as_bytes()), !name.starts_with(".git"), "{name}");
        }
        for name in [
            "",
            ".",
            "..",
            ".git",
            ".GIT",
            ".git ",
            ".gitmodules",
            "git~1",
            "a/b",
            "a\\b",
            "a:b",
            "é",
        ] {
            assert!(!is_plain(name.as_bytes()), "{name}");
        }
        assert!(!is_plain(b"a\n") && !is_plain(b"\xff"));
    }
}
