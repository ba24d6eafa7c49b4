//! Where there is no program git: which files there are, by size and hash.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use base::config::trust::hash;
use base::failure::{OrFail, Result};
use ignore::WalkBuilder;

/// Files at most; what is past them is not watched.
const MOST: usize = 20_000;
/// Bytes of a file that is hashed; of longer ones the size tells.
const HASHED: u64 = 10 << 20;

const NAME: &str = "files.json";

type Files = BTreeMap<String, (u64, String)>;

/// Writes the list of all files down.
pub(crate) fn write(cwd: &Path, keep: &Path) -> Result<()> {
    let file = keep.join(NAME);
    base::files::replace_json(&file, &files(cwd))
        .or_fail(|| format!("cannot write {}", file.display()))
}

/// What is different from that list, one line each.
pub(crate) fn changed(cwd: &Path, keep: &Path) -> Result<Vec<String>> {
    let file = keep.join(NAME);
    let cannot = || format!("cannot read {}", file.display());
    let then: Files = serde_json::from_slice(&fs::read(&file).or_fail(cannot)?).or_fail(cannot)?;
    let now = files(cwd);
    let added = now.keys().filter(|name| !then.contains_key(*name)).map(|name| ("A", name));
    let changed = now.iter().filter(|(name, facts)| then.get(*name).is_some_and(|t| t != *facts));
    let changed = changed.map(|(name, _)| ("M", name));
    let removed = then.keys().filter(|name| !now.contains_key(*name)).map(|name| ("D", name));
    let mut all: Vec<(&str, &String)> = added.chain(changed).chain(removed).collect();
    all.sort_by_key(|(_, name)| *name);
    Ok(all.into_iter().map(|(mark, name)| format!("{mark} {name}")).collect())
}

fn files(cwd: &Path) -> Files {
    let mut walk = WalkBuilder::new(cwd);
    walk.hidden(false).require_git(false).follow_links(false);
    walk.filter_entry(|entry| entry.file_name() != ".g3" && entry.file_name() != ".git");
    let entries = walk.build().flatten().filter(|e| e.file_type().is_some_and(|t| t.is_file()));
    let facts = entries.take(MOST).filter_map(|entry| {
        let name = entry.path().strip_prefix(cwd).ok()?.to_string_lossy().into_owned();
        let size = entry.metadata().ok()?.len();
        let sum = if size <= HASHED { hash(&fs::read(entry.path()).ok()?) } else { String::new() };
        Some((name, (size, sum)))
    });
    facts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn added_changed_and_removed_files_are_listed() {
        let dir = tempfile::tempdir().unwrap();
        let (cwd, keep) = (dir.path(), dir.path().join(".g3/keep"));
        fs::create_dir_all(&keep).unwrap();
        for name in ["same", "other", "gone"] {
            fs::write(cwd.join(name), name).unwrap();
        }
        write(cwd, &keep).unwrap();
        assert!(changed(cwd, &keep).unwrap().is_empty());
        fs::write(cwd.join("other"), "rehto").unwrap();
        fs::remove_file(cwd.join("gone")).unwrap();
        fs::write(cwd.join("new"), "").unwrap();
        assert_eq!(changed(cwd, &keep).unwrap(), ["D gone", "A new", "M other"]);
    }
}
