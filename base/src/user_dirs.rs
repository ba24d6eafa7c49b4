//! The user's directories, by the XDG Base Directory Specification: for data that programs keep
//! outside of all repositories.

use std::io;
use std::path::{Path, PathBuf};

/// Returns the home directory, if `HOME` is an absolute path.
pub fn home_dir() -> Option<PathBuf> {
    absolute("HOME")
}

/// The variable that overrides the directory below [`state_dir`] in which g3 keeps the state of its
/// working directory. studio sets it for the agents of its sessions.
pub const STATE_VARIABLE: &str = "G3_STATE_DIR";

/// Returns the directory in which g3 keeps the state of a working directory: its sessions and error
/// reports. No command sandbox opens it, and it is never inside the working directory, where a
/// repository could have placed it.
pub fn workspace_state(directory: &Path) -> io::Result<PathBuf> {
    if let Some(configured) = absolute(STATE_VARIABLE) {
        return Ok(configured);
    }
    let directory = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
    Ok(state_dir("g3")?.join("workspaces").join(name_for_path(&directory)))
}

/// Returns the directory for a program's persistent state that belongs to no repository:
/// `$XDG_STATE_HOME/<program>`, else `~/.local/state/<program>`. Every sandbox closes both. Fails
/// if neither variable is an absolute path.
pub fn state_dir(program: &str) -> io::Result<PathBuf> {
    let base = absolute("XDG_STATE_HOME").or_else(|| Some(home_dir()?.join(".local/state")));
    let base = base.ok_or_else(|| io::Error::other("neither XDG_STATE_HOME nor HOME is set"))?;
    Ok(base.join(program))
}

/// Returns a directory name for a path: its last component, readable, and 16 hexadecimal digits of
/// the SHA-256 of the whole path, so that two paths never share a name.
pub fn name_for_path(path: &Path) -> String {
    use sha2::Digest;
    use std::os::unix::ffi::OsStrExt;
    let last = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let readable: String = last
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' })
        .take(40)
        .collect();
    let digest = sha2::Sha256::digest(path.as_os_str().as_bytes());
    format!("{}-{}", readable.trim_start_matches('.'), crate::text::hex(&digest[..8]))
}

fn absolute(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_paths_are_readable_and_differ() {
        let one = name_for_path(Path::new("/a/my project"));
        let two = name_for_path(Path::new("/b/my project"));
        assert!(one.starts_with("my-project-") && two.starts_with("my-project-"));
        assert_ne!(one, two);
        assert!(!name_for_path(Path::new("/")).contains('/'));
        assert!(!name_for_path(Path::new("/..")).starts_with('.'));
    }
}
