//! Which checks of a run the user typed: a repository that brings a session along in its files
//! must not bring commands. The mark lies in the home directory, by the hash of place and lines.

use std::path::{Path, PathBuf};

use base::failure::{Failure, OrFail, Result};
use sha2::{Digest, Sha256};

/// Remembers that this user began a run with these checks.
pub(crate) fn remember(session_dir: &Path, checks: &[String]) -> Result<()> {
    let Some(mark) = mark(session_dir, checks).filter(|_| !checks.is_empty()) else {
        return Ok(());
    };
    let cannot = || format!("cannot write {}", mark.display());
    let folder = mark.parent().unwrap_or(&mark);
    std::fs::create_dir_all(folder).or_fail(cannot)?;
    base::files::replace(&mark, b"").or_fail(cannot)
}

/// Refuses checks that nobody here is known to have typed; those given now are known.
pub(crate) fn refuse_strangers(
    session_dir: &Path,
    checks: &[String],
    given: &[String],
) -> Result<()> {
    if mark(session_dir, checks).is_some_and(|mark| mark.exists()) {
        return Ok(());
    }
    let strange: Vec<&str> =
        checks.iter().filter(|line| !given.contains(line)).map(String::as_str).collect();
    if strange.is_empty() {
        return Ok(());
    }
    Err(Failure::usage("this run contains checks that were not given on this machine")
        .because(strange.join("; "))
        .hint("review them; to run them, give each one again: --check LINE"))
}

fn mark(session_dir: &Path, checks: &[String]) -> Option<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute())?;
    let mut digest = Sha256::new();
    digest.update(session_dir.as_os_str().as_encoded_bytes());
    for line in checks {
        digest.update([0]);
        digest.update(line);
    }
    let name: String = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Some(home.join(".g3/runs").join(name))
}
