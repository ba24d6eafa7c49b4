//! Where the project of a file begins: the nearest marker above it, within the work tree.

use std::path::{Path, PathBuf};

use super::servers::LanguageServer;

/// The root that a server works in for a file; `None` where the project is another server's.
pub(crate) fn of(file: &Path, language: &LanguageServer, tree: &Path) -> Option<PathBuf> {
    let above: Vec<&Path> = file.ancestors().skip(1).collect();
    let within: Vec<&Path> = match file.starts_with(tree) {
        true => above.into_iter().take_while(|dir| dir.starts_with(tree)).collect(),
        false => above.into_iter().take(1).collect(),
    };
    let nearest = |markers: &[String]| {
        within.iter().position(|dir| markers.iter().any(|marker| holds(dir, marker)))
    };
    if nearest(&language.unless).is_some() {
        return None;
    }
    let Some(found) = language.roots.iter().find_map(|group| nearest(group)) else {
        return within.last().map(|dir| (*dir).to_owned());
    };
    let is_outer = |dir: &&&Path| {
        let outer = language.outer.as_ref();
        outer.is_some_and(|outer| {
            let text = std::fs::read_to_string(dir.join(&outer.file)).unwrap_or_default();
            text.lines().any(|line| line.trim() == outer.with)
        })
    };
    let outer = within[found..].iter().find(is_outer);
    Some(outer.map_or(within[found], |dir| dir).to_owned())
}

/// Whether a directory holds a file of this name, or of this ending (`*.sln`).
fn holds(dir: &Path, marker: &str) -> bool {
    let Some(ending) = marker.strip_prefix('*') else { return dir.join(marker).exists() };
    let entries = std::fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok);
    let mut names = entries.map(|entry| entry.file_name());
    names.any(|name| name.to_str().is_some_and(|name| name.ends_with(ending)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;

    use super::*;
    use crate::servers::languages;

    /// The root of a file for a server, in a tree with these files.
    fn root(files: &[(&str, &str)], server: &str, file: &str) -> Option<String> {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        fs::create_dir(&tree).unwrap();
        fs::write(dir.path().join("Cargo.toml"), "[workspace]").unwrap();
        for (name, text) in files {
            fs::create_dir_all(tree.join(name).parent().unwrap()).unwrap();
            fs::write(tree.join(name), text).unwrap();
        }
        let all = languages(&BTreeMap::new()).unwrap();
        let language = all.iter().find(|row| row.name == server).unwrap();
        let found = of(&tree.join(file), language, &tree)?;
        Some(found.strip_prefix(&tree).unwrap().to_string_lossy().into_owned())
    }

    #[test]
    fn the_root_is_the_nearest_marker_within_the_tree() {
        let cargo = ("w/a/Cargo.toml", "[package]");
        let workspace = ("w/Cargo.toml", "[package]\n[workspace]\nmembers = []");
        let of = |files: &[_], server, file| root(files, server, file).unwrap();
        assert_eq!(of(&[cargo, workspace], "rust", "w/a/src/x.rs"), "w");
        assert_eq!(of(&[cargo], "rust", "w/a/src/x.rs"), "w/a");
        assert_eq!(of(&[], "rust", "w/x.rs"), "", "the tree, and nothing above it");
        let go = [("go.work", ""), ("m/go.mod", "")];
        assert_eq!(of(&go, "go", "m/x.go"), "");
        assert_eq!(of(&go[1..], "go", "m/x.go"), "m");
        assert_eq!(of(&[("s/a.sln", ""), ("s/p/b.csproj", "")], "csharp", "s/p/x.cs"), "s");
        let lock = [("yarn.lock", ""), ("p/package.json", ""), ("d/deno.json", "")];
        assert_eq!(of(&lock, "typescript", "p/x.ts"), "");
        assert_eq!(root(&lock, "typescript", "d/x.ts"), None);
    }
}
