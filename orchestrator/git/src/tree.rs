//! Removes g3's working files from trees.

use base::failure::{OrFail, Result};

/// Returns the tree with `.g3` replaced by the target's version, except for project skills
/// (`.g3/skills`): working files that an agent commits do not land.
pub(crate) fn without_g3s_own(
    repo: &git2::Repository,
    merged: git2::Oid,
    target: &git2::Tree<'_>,
) -> Result<git2::Oid> {
    let make = || -> std::result::Result<git2::Oid, git2::Error> {
        let merged_tree = repo.find_tree(merged)?;
        let found = merged_tree.get_name(".g3").map(|entry| entry.id());
        let theirs = target.get_name(".g3").map(|entry| entry.id());
        if found == theirs {
            return Ok(merged);
        }
        let skills = match found.and_then(|id| repo.find_tree(id).ok()) {
            Some(tree) => tree.get_name("skills").map(|entry| (entry.id(), entry.filemode())),
            None => None,
        };
        let base = theirs.and_then(|id| repo.find_tree(id).ok());
        let mut inner = repo.treebuilder(base.as_ref())?;
        match skills {
            Some((id, mode)) => drop(inner.insert("skills", id, mode)?),
            None if inner.get("skills")?.is_some() => inner.remove("skills")?,
            None => {}
        }
        let mut outer = repo.treebuilder(Some(&merged_tree))?;
        if inner.is_empty() {
            if outer.get(".g3")?.is_some() {
                outer.remove(".g3")?;
            }
        } else {
            outer.insert(".g3", inner.write()?, 0o040_000)?;
        }
        outer.write()
    };
    make().or_fail(|| "cannot take g3's working files out of the merged tree")
}
