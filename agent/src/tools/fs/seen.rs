//! What this session last saw in each file, so that a change by somebody else is not overwritten
//! unseen.

use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::tools::call::Trouble;

/// Keeps what the session saw or wrote. A note that cannot be kept is no reason to fail: the file
/// then counts as never seen.
pub fn note(session_dir: &Path, path: &Path, bytes: &[u8]) {
    let file = file(session_dir, path);
    let Some(parent) = file.parent() else { return };
    let _ = std::fs::create_dir_all(parent)
        .and_then(|()| base::files::replace(&file, hash(bytes).as_bytes()));
}

/// Refuses when the session saw the file and its content is another now.
pub fn check(session_dir: &Path, path: &Path, bytes: &[u8]) -> Result<(), Trouble> {
    let seen = match std::fs::read_to_string(file(session_dir, path)) {
        Ok(seen) => seen,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(Trouble::io("cannot read the notes of this session", &e)),
    };
    if seen == hash(bytes) {
        return Ok(());
    }
    let text = format!(
        "{} has changed since this session last read it; nothing was written. Read it again, then \
         repeat the change",
        path.display()
    );
    Err(Trouble::failed(text))
}

fn file(session_dir: &Path, path: &Path) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    session_dir.join("tools/seen").join(&hash(path.as_os_str().as_bytes())[..32])
}

fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
