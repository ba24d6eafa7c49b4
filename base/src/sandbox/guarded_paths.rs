//! Paths that git would obey and that the kernel cannot protect, because they do not exist yet or
//! are links: what a program puts there is moved aside when the program ends.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// A path that is put back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuardedPath {
    /// The path.
    pub path: PathBuf,
    /// The target of the link that is there; nothing is there without one.
    pub link: Option<PathBuf>,
}

impl GuardedPath {
    /// Guards a path at which nothing exists.
    pub(super) fn missing(path: PathBuf) -> GuardedPath {
        GuardedPath { path, link: None }
    }

    fn is_unchanged(&self) -> bool {
        match &self.link {
            Some(target) => fs::read_link(&self.path).is_ok_and(|it| it == *target),
            None => fs::symlink_metadata(&self.path).is_err(),
        }
    }

    /// Moves what is there aside, to a name that git ignores, and restores the link.
    fn put_back(&self) -> io::Result<()> {
        if fs::symlink_metadata(&self.path).is_ok() {
            let mut name = self.path.file_name().unwrap_or_default().to_owned();
            name.push(format!(".set-aside-{}", crate::random::hex::<4>()?));
            fs::rename(&self.path, self.path.with_file_name(name))?;
        }
        match &self.link {
            Some(target) => std::os::unix::fs::symlink(target, &self.path),
            None => Ok(()),
        }
    }
}

/// Returns those that are as they should be: a path that the user changed before is left alone.
pub fn unchanged(guarded: &[GuardedPath]) -> Vec<GuardedPath> {
    guarded.iter().filter(|it| it.is_unchanged()).cloned().collect()
}

/// Puts all paths back and returns those that had changed.
pub fn put_back(guarded: &[GuardedPath]) -> io::Result<Vec<PathBuf>> {
    let changed = guarded.iter().filter(|it| !it.is_unchanged());
    changed.map(|it| it.put_back().map(|()| it.path.clone())).collect()
}

/// Says that a path was moved aside.
pub fn notice(path: &Path) -> String {
    let path = crate::text::printable(&path.display().to_string());
    format!("{path} was moved aside: git would run or obey what a program wrote there")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_planted_is_moved_aside_and_a_link_is_restored() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        std::os::unix::fs::symlink("real", path("link")).unwrap();
        let guarded = [
            GuardedPath::missing(path("commondir")),
            GuardedPath::missing(path("gone")),
            GuardedPath { path: path("link"), link: Some("real".into()) },
        ];
        assert!(put_back(&guarded).unwrap().is_empty());
        fs::write(path("commondir"), "evil\n").unwrap();
        fs::remove_file(path("link")).unwrap();
        fs::create_dir(path("link")).unwrap();
        assert_eq!(put_back(&guarded).unwrap(), [path("commondir"), path("link")]);
        assert!(!path("commondir").exists());
        assert_eq!(fs::read_link(path("link")).unwrap(), Path::new("real"));
        let kept = fs::read_dir(dir.path()).unwrap().flatten();
        let kept = kept.filter(|it| it.file_name().to_string_lossy().contains(".set-aside-"));
        assert_eq!(kept.count(), 2, "nothing is deleted");
        assert!(put_back(&guarded).unwrap().is_empty());
    }
}
