//! Dependencies on directories beside the repository (`../sibling`): a common reason why a check
//! passes in the main checkout and fails in a worktree, where the path refers to another location.

use std::path::{Component, Path, PathBuf};

use studio_git::safe_open::SafeDir;

/// Maximum size of a manifest that is read, in bytes.
const MAX_MANIFEST_BYTES: u64 = 4 << 20;
/// Maximum number and depth of directories that are searched for manifests.
const MAX_DIRECTORIES: usize = 2000;
const MAX_DEPTH: usize = 4;
/// Directories that contain manifests of other packages.
const SKIPPED_DIRECTORIES: &[&str] = &["node_modules", "target", ".git", ".venv", "venv", "vendor"];

/// A dependency on a directory outside the worktree.
#[derive(Clone, Debug, PartialEq, Eq)]
struct OutsideDependency {
    /// The manifest, relative to the worktree.
    manifest: String,
    /// The path, as written in the manifest.
    path: String,
    /// The same path, absolute.
    target: PathBuf,
}

/// Returns the paths that a manifest names.
type Reader = fn(&str) -> Vec<String>;

/// The manifests that can contain paths.
const MANIFESTS: &[(&str, Reader)] = &[
    ("Cargo.toml", toml_paths),
    ("pyproject.toml", toml_paths),
    ("package.json", package_json_paths),
    ("requirements.txt", requirements_paths),
    ("go.mod", go_mod_paths),
];

/// Returns the hint for a check that failed in a worktree; `None` if no dependency is missing.
pub(crate) fn missing_hint(worktree: &Path) -> Option<String> {
    let mut missing = dependencies(worktree);
    missing.retain(|dependency| !dependency.target.exists());
    let first = missing.first()?;
    let examples: Vec<String> =
        missing.iter().take(5).map(|it| format!("`{}` in {}", it.path, it.manifest)).collect();
    Some(base::text::printable(&format!(
        "{} points outside the worktree to a missing path: paths start at the worktree, {}, not at the \
         main checkout. To put worktrees beside the main checkout, where `{}` is the same directory, \
         set `[studio] worktree = \"{{parent}}/{{repo}}-{{id}}\"`",
        examples.join(", "),
        worktree.display(),
        first.path,
    )))
}

/// Returns the paths of the dependencies outside the worktree.
pub(crate) fn outside(worktree: &Path) -> Vec<PathBuf> {
    dependencies(worktree).into_iter().map(|dependency| dependency.target).collect()
}

/// Returns the dependencies outside the worktree. Agents write these files, so links out of the
/// worktree are not followed.
fn dependencies(worktree: &Path) -> Vec<OutsideDependency> {
    let mut found = Vec::new();
    let mut remaining = MAX_DIRECTORIES;
    if let Ok(dir) = SafeDir::open(worktree) {
        search(&dir, worktree, &mut Vec::new(), &mut remaining, &mut found);
    }
    found
}

fn search(
    dir: &SafeDir,
    worktree: &Path,
    parents: &mut Vec<String>,
    remaining: &mut usize,
    found: &mut Vec<OutsideDependency>,
) {
    *remaining = remaining.saturating_sub(1);
    for (name, read) in MANIFESTS {
        let Ok(Some(text)) = dir.read(name, MAX_MANIFEST_BYTES) else { continue };
        let directory: PathBuf = parents.iter().collect();
        for path in read(&String::from_utf8_lossy(&text)) {
            let target = worktree.join(&directory).join(&path);
            let target = normalized(&target);
            if !target.starts_with(worktree) {
                let manifest = directory.join(name).display().to_string();
                found.push(OutsideDependency { manifest, path, target });
            }
        }
    }
    if parents.len() >= MAX_DEPTH {
        return;
    }
    for name in dir.names().unwrap_or_default() {
        let Some(name) = name.to_str().filter(|name| !SKIPPED_DIRECTORIES.contains(name)) else {
            continue;
        };
        let Ok(Some(child)) = dir.open_existing(name) else { continue };
        if *remaining == 0 {
            return;
        }
        parents.push(name.to_owned());
        search(&child, worktree, parents, remaining, found);
        parents.pop();
    }
}

/// Removes `..` from a path lexically.
fn normalized(path: &Path) -> PathBuf {
    let mut normalized = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                normalized.pop();
            }
            Component::CurDir => {}
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => {
                normalized.push(part)
            }
        }
    }
    normalized
}

/// Returns the value of every `path = "../…"`, in any table: cargo, poetry and uv use several.
fn toml_paths(text: &str) -> Vec<String> {
    let Ok(table) = text.parse::<toml::Table>() else { return Vec::new() };
    let mut paths = Vec::new();
    collect_toml_paths(&toml::Value::Table(table), &mut paths);
    paths
}

fn collect_toml_paths(value: &toml::Value, paths: &mut Vec<String>) {
    match value {
        toml::Value::Table(table) => {
            for (key, value) in table {
                match value {
                    toml::Value::String(path) if key == "path" => paths.extend(parent_path(path)),
                    other => collect_toml_paths(other, paths),
                }
            }
        }
        toml::Value::Array(values) => {
            values.iter().for_each(|value| collect_toml_paths(value, paths))
        }
        toml::Value::String(_)
        | toml::Value::Integer(_)
        | toml::Value::Float(_)
        | toml::Value::Boolean(_)
        | toml::Value::Datetime(_) => {}
    }
}

/// Returns the paths of `"dep": "file:../…"` and `"link:../…"`.
fn package_json_paths(text: &str) -> Vec<String> {
    let Ok(package) = serde_json::from_str::<serde_json::Value>(text) else { return Vec::new() };
    let groups = ["dependencies", "devDependencies", "optionalDependencies", "peerDependencies"];
    let tables = groups.iter().filter_map(|group| package[group].as_object());
    let paths = tables.flat_map(serde_json::Map::values).filter_map(serde_json::Value::as_str);
    let local_paths =
        paths.filter_map(|it| it.strip_prefix("file:").or_else(|| it.strip_prefix("link:")));
    local_paths.filter_map(parent_path).collect()
}

/// Returns the paths of `-e ../…`, `../…`, `name @ file:../…`.
fn requirements_paths(text: &str) -> Vec<String> {
    let lines = text.lines().map(|line| line.split(" #").next().unwrap_or_default().trim());
    let path = |line: &str| {
        let line =
            line.strip_prefix("-e").or_else(|| line.strip_prefix("--editable")).unwrap_or(line);
        let line = line.trim_start_matches(['=', ' ']);
        let line = line.split_once("file:").map_or(line, |(_, path)| path);
        parent_path(line)
    };
    lines.filter_map(path).collect()
}

/// Returns the paths of `replace module => ../…`.
fn go_mod_paths(text: &str) -> Vec<String> {
    text.lines().filter_map(|line| parent_path(line.split_once("=>")?.1.trim())).collect()
}

/// Returns the path at the start of a text, if it starts with `../`.
fn parent_path(path: &str) -> Option<String> {
    let path = path.split(['[', ';', ' ']).next()?;
    path.starts_with("../").then(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_directories_outside_the_worktree_are_named() {
        let temp = tempfile::tempdir().unwrap();
        let top = temp.path().join("work");
        let write = |path: &str, text: &str| {
            let path = temp.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("there/Cargo.toml", "");
        write(
            "work/Cargo.toml",
            "[dependencies]\na = { path = \"../sibling\" }\nb = { path = \"../there\" }\n\
             c = { path = \"crates/c\" }\n[target.'cfg(unix)'.dependencies.d]\npath = \"../d\"",
        );
        write("work/crates/c/Cargo.toml", "[dependencies]\nx = { path = \"../gone\" }");
        write(
            "work/web/package.json",
            r#"{"devDependencies": {"l": "file:../../lib", "r": "^1"}}"#,
        );
        write("work/requirements.txt", "requests\n-e ../py[extra] # ours\nname @ file:../whl\n");
        write("work/go.mod", "replace example.org/m => ../m\n");
        write(
            "work/node_modules/p/package.json",
            r#"{"dependencies": {"q": "file:../../../../q"}}"#,
        );
        let mut missing: Vec<String> = dependencies(&top)
            .into_iter()
            .filter(|it| !it.target.exists())
            .map(|it| format!("{} {}", it.manifest, it.path))
            .collect();
        missing.sort();
        assert_eq!(
            missing,
            [
                "Cargo.toml ../d",
                "Cargo.toml ../sibling",
                "go.mod ../m",
                "requirements.txt ../py",
                "requirements.txt ../whl",
                "web/package.json ../../lib",
            ]
        );
        let hint = missing_hint(&top).unwrap();
        assert!(hint.contains("worktree = \"{parent}/{repo}-{id}\""), "{hint}");
    }
}
