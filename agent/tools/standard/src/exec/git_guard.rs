//! Protects git's configuration and hooks if the kernel does not allow mount namespaces: changes
//! made by a command are reverted when it ends, and saved elsewhere.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The protected files of a git directory.
#[derive(Debug)]
pub(crate) struct GitGuard {
    protected: Vec<PathBuf>,
    before: BTreeMap<PathBuf, File>,
    backup_dir: PathBuf,
}

#[derive(Debug, PartialEq, Eq)]
struct File {
    bytes: Vec<u8>,
    mode: u32,
}

/// The mode that marks a symbolic link.
const SYMLINK_MODE: u32 = u32::MAX;
/// Maximum size of a file in bytes; larger files are not hand-written hooks or configuration.
const MAX_FILE: u64 = 1 << 20;

impl GitGuard {
    /// Records these files and directories. Later changes are saved in `backup_dir`.
    pub(crate) fn new(protected: &[PathBuf], backup_dir: &Path) -> GitGuard {
        let backup_dir = backup_dir.to_owned();
        GitGuard { protected: protected.to_vec(), before: read(protected), backup_dir }
    }

    /// Reverts all changes and returns the changed paths.
    pub(crate) fn restore(&self) -> io::Result<Vec<PathBuf>> {
        let now = read(&self.protected);
        let changed_files = self.before.iter().filter(|(path, file)| now.get(*path) != Some(*file));
        let new = now.keys().filter(|path| !self.before.contains_key(*path));
        let changed: Vec<&PathBuf> = changed_files.map(|(path, _)| path).chain(new).collect();
        for path in &changed {
            self.back_up(path, now.get(*path))?;
            match self.before.get(*path) {
                Some(File { bytes, mode: SYMLINK_MODE }) => {
                    use std::os::unix::ffi::OsStrExt;
                    fs::remove_file(path).or_else(|_| fs::remove_dir_all(path))?;
                    std::os::unix::fs::symlink(std::ffi::OsStr::from_bytes(bytes), path)?;
                }
                Some(file) => {
                    path.parent().map_or(Ok(()), fs::create_dir_all)?;
                    base::files::replace_with_mode(path, &file.bytes, file.mode)?;
                }
                None => fs::remove_file(path)?,
            }
        }
        Ok(changed.into_iter().cloned().collect())
    }

    fn back_up(&self, path: &Path, file: Option<&File>) -> io::Result<()> {
        let Some(file) = file else { return Ok(()) };
        fs::create_dir_all(&self.backup_dir)?;
        let name = base::user_dirs::name_for_path(path);
        base::files::replace(&self.backup_dir.join(name), &file.bytes)
    }
}

fn read(protected: &[PathBuf]) -> BTreeMap<PathBuf, File> {
    let mut files = BTreeMap::new();
    let mut pending: Vec<PathBuf> = protected.to_vec();
    while let Some(path) = pending.pop() {
        let Ok(meta) = fs::symlink_metadata(&path) else { continue };
        if meta.is_dir() {
            pending.extend(
                fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()),
            );
        } else if meta.is_symlink() {
            let bytes = fs::read_link(&path).unwrap_or_default().into_os_string();
            files.insert(path, File { bytes: bytes.into_encoded_bytes(), mode: SYMLINK_MODE });
        } else if meta.is_file() && meta.len() <= MAX_FILE {
            let mode = meta.permissions().mode() & 0o7777;
            let bytes = base::files::read(&path).unwrap_or_default();
            files.insert(path, File { bytes, mode });
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_reverted_and_saved() {
        let dir = tempfile::tempdir().unwrap();
        let (config, hooks) = (dir.path().join("config"), dir.path().join("hooks"));
        fs::create_dir(&hooks).unwrap();
        fs::write(&config, "[core]\n").unwrap();
        fs::write(hooks.join("own"), "#!/bin/sh\n").unwrap();
        let guard = GitGuard::new(&[config.clone(), hooks.clone()], &dir.path().join("aside"));
        assert!(guard.restore().unwrap().is_empty());
        fs::write(&config, "[core]\n\tfsmonitor = ./evil\n").unwrap();
        fs::write(hooks.join("pre-commit"), "evil").unwrap();
        fs::remove_file(hooks.join("own")).unwrap();
        assert_eq!(guard.restore().unwrap().len(), 3);
        assert_eq!(fs::read_to_string(&config).unwrap(), "[core]\n");
        assert!(hooks.join("own").exists() && !hooks.join("pre-commit").exists());
        assert_eq!(fs::read_dir(dir.path().join("aside")).unwrap().count(), 2);
    }
}
