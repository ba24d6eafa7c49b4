//! Files in Git LFS: brings those that an agent's own git stored in its private git directory into the
//! repository's store. A file's name there is its SHA-256, which is verified.

use std::io;
use std::path::{Path, PathBuf};

use base::failure::{OrFail, Result};
use base::files::step;
use base::git::user_setting_in;
use base::text::hex;
use sha2::Digest as _;

use crate::filters;
use crate::repo::Repository;
use crate::safe_open::SafeDir;
use crate::session_repo::SessionRepo;

/// Maximum size of a file that is brought home, in bytes.
const MAX_BYTES: u64 = 1 << 30;

/// Returns the directory of Git LFS in a repository.
pub(crate) fn storage(repository: &Repository) -> PathBuf {
    let configured = user_setting_in(&repository.common_dir, "lfs.storage");
    repository.common_dir.join(configured.as_deref().unwrap_or("lfs"))
}

/// Copies the files that a session's git stored and that the repository lacks.
pub(crate) fn import(repository: &Repository, session_repo: &SessionRepo) -> Result<()> {
    if !filters::are_trusted() {
        return Ok(());
    }
    let copy = || -> io::Result<()> {
        let Some(lfs) = SafeDir::open(&session_repo.git_dir)?.open_existing("lfs")? else {
            return Ok(());
        };
        let Some(objects) = lfs.open_existing("objects")? else { return Ok(()) };
        let target = storage(repository).join("objects");
        for first in names(&objects)? {
            let Some(first_dir) = objects.open_existing(&first)? else { continue };
            for second in names(&first_dir)? {
                let Some(second_dir) = first_dir.open_existing(&second)? else { continue };
                copy_new(&second_dir, &format!("{first}{second}"), &target)?;
            }
        }
        Ok(())
    };
    copy().or_fail(|| "cannot bring files of Git LFS into the repository")
}

/// Copies the files of `ab/cd` whose names begin with `abcd`. One that is not what its name says, or
/// too large, is not copied.
fn copy_new(source: &SafeDir, prefix: &str, target: &Path) -> io::Result<()> {
    for name in names(source)? {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let is_object = prefix.len() == 4 && name.len() == 64 && name.bytes().all(is_digit);
        if !is_object || !name.starts_with(prefix) {
            continue;
        }
        let parent = target.join(&prefix[..2]).join(&prefix[2..]);
        let path = parent.join(&name);
        if path.exists() {
            continue;
        }
        let Some(content) = source.read(&name, MAX_BYTES).ok().flatten() else { continue };
        if hex(&sha2::Sha256::digest(&content)) != name {
            continue;
        }
        std::fs::create_dir_all(&parent)?;
        base::files::replace_with_mode(&path, &content, 0o644)?;
        step("import.lfs");
    }
    Ok(())
}

fn names(dir: &SafeDir) -> io::Result<Vec<String>> {
    Ok(dir.names()?.into_iter().filter_map(|name| name.into_string().ok()).collect())
}
