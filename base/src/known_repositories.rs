//! The repositories that studio has worked in: every sandbox closes the data that studio keeps in
//! them (journals, private git directories of sessions). studio's state directory has one directory
//! for each.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::user_dirs::{name_for_path, state_dir};

/// The file that contains the path of the repository's git common directory.
const FILE: &str = "repository";

/// Returns the directory for studio's data about a repository, identified by its git common
/// directory. No sandbox can reach it.
pub fn directory(common: &Path) -> io::Result<PathBuf> {
    Ok(state_dir("studio")?.join(name_for_path(common)))
}

/// Records a repository, by its git common directory, unless it is known.
pub fn remember(common: &Path) -> io::Result<()> {
    let directory = directory(common)?;
    let file = directory.join(FILE);
    if file.exists() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
    crate::files::replace(&file, common.as_os_str().as_bytes())
}

/// Returns the git common directories of the known repositories that still exist.
pub fn list() -> Vec<PathBuf> {
    let Ok(state) = state_dir("studio") else { return Vec::new() };
    let entries = fs::read_dir(state).into_iter().flatten().flatten();
    let paths = entries.filter_map(|entry| fs::read(entry.path().join(FILE)).ok());
    let paths = paths.map(|bytes| PathBuf::from(OsStr::from_bytes(&bytes)));
    let mut repositories: Vec<PathBuf> = paths.filter(|path| path.is_dir()).collect();
    repositories.sort();
    repositories
}
