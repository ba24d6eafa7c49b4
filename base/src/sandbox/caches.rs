//! The user's build caches, which the commands of a g3 that was started by hand may write. Their
//! content is trusted like the working tree, because builds run it. Programs and configuration that
//! are run or read automatically (`~/.cargo/bin`, `~/.cargo/config.toml`) are excluded.

use std::fs;
use std::path::{Path, PathBuf};

/// Caches below the home directory. A missing one is created if its parent directory exists.
const CACHES: &[&str] = &[
    ".npm",
    ".cache/pip",
    ".cache/uv",
    ".cache/pypoetry",
    ".cache/pre-commit",
    ".cache/go-build",
    "go/pkg",
    ".cache/yarn",
    ".yarn/berry",
    ".cache/pnpm",
    ".local/share/pnpm/store",
    ".bun/install/cache",
    ".cache/deno",
    ".cache/node-gyp",
    ".cache/ms-playwright",
    ".cache/zig",
    ".cache/bazel",
    ".ccache",
    ".cache/ccache",
    ".cache/sccache",
    ".m2/repository",
    ".gradle/caches",
    ".gradle/wrapper",
    ".gradle/daemon",
    ".gradle/native",
    ".nuget/packages",
    ".ivy2",
];

/// Caches below cargo's home directory.
const CARGO: &[&str] = &["registry", "git"];
/// Files in cargo's home directory that cargo locks and writes.
const CARGO_FILES: &[&str] = &[".package-cache", ".package-cache-mutate", ".global-cache"];

/// Variables that name a cache directory.
const CACHE_VARIABLES: &[&str] =
    &["PIP_CACHE_DIR", "UV_CACHE_DIR", "npm_config_cache", "GOMODCACHE", "GOCACHE", "CCACHE_DIR"];

/// Returns the user's caches that exist or can be created.
pub fn of(home: &Path) -> Vec<PathBuf> {
    let variable = |name: &&str| std::env::var_os(name).map(PathBuf::from);
    let absolute = |path: &PathBuf| path.is_absolute();
    let mut caches = known_caches(home, &cargo_home(home));
    caches.extend(
        CACHE_VARIABLES.iter().filter_map(variable).filter(absolute).filter(|path| path.is_dir()),
    );
    caches
}

/// Returns the user's cargo home directory.
pub fn cargo_home(home: &Path) -> PathBuf {
    let configured = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    configured.filter(|path| path.is_absolute()).unwrap_or_else(|| home.join(".cargo"))
}

fn known_caches(home: &Path, cargo: &Path) -> Vec<PathBuf> {
    let mut caches: Vec<PathBuf> = CACHES.iter().map(|cache| home.join(cache)).collect();
    caches.extend(CARGO.iter().map(|cache| cargo.join(cache)));
    caches.retain(|cache| exists_or_create(cache));
    for file in CARGO_FILES.iter().map(|file| cargo.join(file)) {
        let new = cargo.is_dir() && !file.exists();
        if file.is_file() || new && fs::File::create_new(&file).is_ok() {
            caches.push(file);
        }
    }
    caches
}

/// Returns whether a cache exists. A missing one is created if the tool's directory exists.
fn exists_or_create(cache: &Path) -> bool {
    let parent_exists = cache.parent().is_some_and(Path::is_dir);
    let in_cargo_home =
        cache.parent().and_then(Path::file_name).is_some_and(|name| name == ".cargo");
    cache.is_dir() || parent_exists && in_cargo_home && fs::create_dir(cache).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caches_are_writable_and_programs_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path();
        let cargo = home.join(".cargo");
        assert!(known_caches(home, &cargo).is_empty(), "nothing is there");
        fs::create_dir_all(home.join(".cargo/bin")).unwrap();
        fs::create_dir_all(home.join(".cache/pip")).unwrap();
        let found = known_caches(home, &cargo);
        for open in [".cache/pip", ".cargo/registry", ".cargo/.package-cache"] {
            assert!(found.contains(&home.join(open)), "{open}: {found:?}");
        }
        let holds = |path: &str| found.iter().any(|tree| home.join(path).starts_with(tree));
        for closed in [".cargo/bin/cargo", ".cargo/config.toml", ".bashrc", ".cache/x"] {
            assert!(!holds(closed), "{closed} can be written");
        }
    }
}
