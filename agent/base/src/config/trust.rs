//! Which contents of repository files the user accepted, by SHA-256, kept outside every repository.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::clock::Clock;
use crate::failure::{Failure, OrFail, Result};
use crate::files;
use crate::lock::Lock;

/// One accepted content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The SHA-256 of the content, in hexadecimal.
    pub sha256: String,
    /// Where the file lay when it was accepted.
    pub path: PathBuf,
    /// When, RFC 3339.
    pub time: String,
}

/// The store as it lies on disk (`trust.json`, mode 0600).
#[derive(Debug, Default, Serialize, Deserialize)]
struct Store {
    schema: u32,
    files: BTreeMap<String, Entry>,
}

/// Accepts exactly this content, which was read from `file` and shown to the user.
pub fn accept(store: &Path, file: &Path, content: &[u8], clock: &Clock) -> Result<Entry> {
    let entry = Entry { sha256: hash(content), path: file.to_owned(), time: clock.stamp() };
    change(store, |all| {
        all.files.insert(entry.sha256.clone(), entry.clone());
    })?;
    Ok(entry)
}

/// Takes back everything that was ever accepted for this file, wherever its content lies now.
/// Gives what was taken back.
pub fn revoke(store: &Path, file: &Path) -> Result<Vec<Entry>> {
    let current = fs::read(file).ok().map(|content| hash(&content));
    let mut revoked = Vec::new();
    change(store, |all| {
        all.files.retain(|sha256, entry| {
            let keep = entry.path != file && Some(sha256) != current.as_ref();
            if !keep {
                revoked.push(entry.clone());
            }
            keep
        });
    })?;
    Ok(revoked)
}

/// Everything that is accepted.
pub fn show(store: &Path) -> Result<Vec<Entry>> {
    Ok(read(store)?.files.into_values().collect())
}

/// Whether this content was accepted. A store that cannot be read, or that others can write,
/// trusts nothing.
pub fn is_trusted(store: &Path, content: &[u8]) -> bool {
    read(store).is_ok_and(|all| all.files.contains_key(&hash(content)))
}

/// The SHA-256 of a content, in hexadecimal.
pub fn hash(content: &[u8]) -> String {
    let mut text = String::with_capacity(64);
    for byte in Sha256::digest(content) {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn read(store: &Path) -> Result<Store> {
    let what = || format!("cannot read {}", store.display());
    let meta = match fs::metadata(store) {
        Ok(meta) => meta,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            return Ok(Store { schema: 1, files: BTreeMap::new() });
        }
        Err(e) => return Err(e).or_fail(what),
    };
    let ours = rustix::process::geteuid().as_raw();
    if meta.uid() != ours || meta.permissions().mode() & 0o022 != 0 {
        return Err(Failure::refused(format!("{} could be written by others", store.display()))
            .next(format!("look at it, then `chmod 600 {}`", store.display())));
    }
    serde_json::from_slice(&fs::read(store).or_fail(what)?).or_fail(what)
}

fn change(store: &Path, edit: impl FnOnce(&mut Store)) -> Result<()> {
    let what = || format!("cannot write {}", store.display());
    let parent = store.parent().unwrap_or(Path::new("/"));
    fs::DirBuilder::new().recursive(true).mode(0o700).create(parent).or_fail(what)?;
    let _lock = Lock::take(&store.with_extension("lock")).or_fail(what)?;
    let mut all = read(store)?;
    edit(&mut all);
    files::replace_json(store, &all).or_fail(what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_content_is_trusted_from_accept_to_revoke_and_only_that_content() {
        let dir = tempfile::tempdir().unwrap();
        let store = dir.path().join("g3/trust.json");
        let file = dir.path().join("g3.toml");
        fs::write(&file, "a = 1").unwrap();
        assert!(!is_trusted(&store, b"a = 1"));
        let entry = accept(&store, &file, b"a = 1", &Clock::from_env()).unwrap();
        assert!(is_trusted(&store, b"a = 1"));
        assert!(!is_trusted(&store, b"a = 2"));
        assert_eq!(fs::metadata(&store).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(show(&store).unwrap(), vec![entry.clone()]);
        assert_eq!(revoke(&store, &file).unwrap(), vec![entry]);
        assert!(!is_trusted(&store, b"a = 1"));
        assert!(show(&store).unwrap().is_empty());
    }

    #[test]
    fn a_store_that_others_can_write_trusts_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let store = dir.path().join("trust.json");
        accept(&store, Path::new("/r/g3.toml"), b"x", &Clock::from_env()).unwrap();
        assert!(is_trusted(&store, b"x"));
        fs::set_permissions(&store, fs::Permissions::from_mode(0o666)).unwrap();
        assert!(!is_trusted(&store, b"x"));
        assert!(show(&store).unwrap_err().to_string().contains("chmod 600"));
    }
}
