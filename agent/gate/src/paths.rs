//! Resolves paths and checks whether they are inside a directory.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::path::{Component, Path, PathBuf};

/// Maximum number of symbolic links to follow, as in the kernel.
const MAX_LINKS: u32 = 40;

/// Resolves a path written by a person or a model to an absolute path without `..` and symbolic
/// links, whether or not it exists. A dangling link resolves to its target, so that no path can
/// leave a directory unnoticed.
pub fn resolve(cwd: &Path, raw: &str) -> io::Result<PathBuf> {
    if raw.trim().is_empty() || raw.contains('\0') {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path is empty or has a NUL"));
    }
    follow(&cwd.join(expand_home(raw)))
}

/// Like [`resolve`], for an absolute path.
pub fn follow(path: &Path) -> io::Result<PathBuf> {
    let mut pending: VecDeque<OsString> = names(path);
    let mut resolved = PathBuf::from("/");
    let mut links = 0;
    while let Some(name) = pending.pop_front() {
        if name == ".." {
            resolved.pop();
            continue;
        }
        let next = resolved.join(&name);
        let Ok(target) = std::fs::read_link(&next) else {
            resolved = next;
            continue;
        };
        links += 1;
        if links > MAX_LINKS {
            let reason = format!("{}: too many symbolic links", path.display());
            return Err(io::Error::other(reason));
        }
        if target.is_absolute() {
            resolved = PathBuf::from("/");
        }
        for name in names(&target).into_iter().rev() {
            pending.push_front(name);
        }
    }
    Ok(resolved)
}

fn names(path: &Path) -> VecDeque<OsString> {
    let parts = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    parts.collect()
}

/// Expands `~` and `~/x` to the home directory.
pub fn expand_home(raw: &str) -> PathBuf {
    let home = || base::user_dirs::home_dir();
    match raw.strip_prefix('~') {
        Some("") => home().unwrap_or_else(|| raw.into()),
        Some(rest) if rest.starts_with('/') => {
            home().map_or_else(|| raw.into(), |home| home.join(rest.trim_start_matches('/')))
        }
        Some(_) | None => PathBuf::from(raw),
    }
}

/// Whether a resolved path is in a directory or the directory itself.
pub fn is_inside(path: &Path, directory: &Path) -> bool {
    follow(directory).is_ok_and(|directory| path.starts_with(directory))
}

/// Whether a path inside the root is part of a git directory (or the `.git` file itself), whose
/// files git may execute later.
pub(crate) fn is_git_internal(path: &Path, root: &Path) -> bool {
    let root = follow(root).unwrap_or_else(|_| root.to_owned());
    path.strip_prefix(root)
        .is_ok_and(|relative| relative.components().any(|c| c.as_os_str() == ".git"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn paths_resolve_through_links_even_if_nothing_exists() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("in/deep")).unwrap();
        symlink("/etc", root.join("out")).unwrap();
        symlink("in/deep", root.join("near")).unwrap();
        symlink("/nowhere/at-all", root.join("dangling")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        let at = |raw: &str| resolve(&root, raw).unwrap();
        assert_eq!(at("new/./a/../b.txt"), root.join("new/b.txt"));
        assert_eq!(at("out/passwd"), Path::new("/etc/passwd"));
        assert_eq!(at("near/../x"), root.join("in/x"));
        assert_eq!(at("dangling"), Path::new("/nowhere/at-all"));
        assert_eq!(at("../../../../../../../etc"), Path::new("/etc"));
        assert!(resolve(&root, "loop").is_err());
        assert!(resolve(&root, "  ").is_err());
    }

    #[test]
    fn paths_in_a_git_directory_are_recognized() {
        let root = Path::new("/w");
        assert!(is_git_internal(Path::new("/w/.git/hooks/pre-commit"), root));
        assert!(is_git_internal(Path::new("/w/sub/.git"), root));
        assert!(!is_git_internal(Path::new("/w/.github/a.yml"), root));
    }
}
