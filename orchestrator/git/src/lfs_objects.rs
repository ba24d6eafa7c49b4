//! Files in Git LFS: brings those that an agent's own git stored in its private git directory, or that
//! another machine sent, into the repository's store. A file's name there is its SHA-256, which is
//! verified.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use base::failure::{Failure, OrFail, Result};
use base::files::step;
use base::git::{Git, user_setting_in};
use base::process::OutputLimits;
use base::text::hex;
use serde::{Deserialize, Serialize};
use sha2::Digest as _;

use crate::repo::Repository;
use crate::safe_open::SafeDir;
use crate::session_repo::SessionRepo;
use crate::{filters, object_format, refs};

/// Maximum size of a file that is copied, in bytes.
const MAX_BYTES: u64 = 1 << 30;
/// Maximum size of a pointer, in bytes. Git LFS documents the format of pointers in `docs/spec.md`.
const MAX_POINTER_BYTES: usize = 1024;
/// The first line of a pointer.
const POINTER_VERSION: &str = "version https://git-lfs.github.com/spec/v1";
/// Timeout of listing the objects of commits, in seconds.
const LIST_SECONDS: u64 = 600;
/// The size of the parts in which a file is copied, in bytes.
const COPY_BYTES: usize = 64 << 10;

/// A file in Git LFS, as a pointer names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LfsFile {
    /// The SHA-256 of its content, as 64 hex digits.
    pub oid: String,
    /// Its size.
    pub bytes: u64,
}

impl LfsFile {
    /// Reads a pointer; `None` for other content.
    fn of_pointer(content: &[u8]) -> Option<LfsFile> {
        let lines = std::str::from_utf8(content).ok()?.strip_prefix(POINTER_VERSION)?;
        let value = |key: &str| lines.lines().find_map(|line| line.strip_prefix(key));
        let oid = value("oid sha256:")?.to_owned();
        let file = LfsFile { oid, bytes: value("size ")?.parse().ok()? };
        file.has_valid_name().then_some(file)
    }

    /// Returns whether its name is that of an object: it comes from another machine.
    fn has_valid_name(&self) -> bool {
        self.oid.len() == 64 && self.oid.bytes().all(is_digit)
    }

    /// Returns its path in a repository's store.
    fn path_in(&self, storage: &Path) -> PathBuf {
        let (first, second) = (&self.oid[..2], &self.oid[2..4]);
        storage.join("objects").join(first).join(second).join(&self.oid)
    }
}

/// Returns the files of this repository that a session with these commits needs: those that their trees
/// name and that are here. There are none if the user lets no filter run.
pub fn needed(repository: &Repository, commits: &[String]) -> Result<Vec<LfsFile>> {
    match filters::are_trusted() {
        true => named(repository, &["--no-walk"], commits, &[]),
        false => Ok(Vec::new()),
    }
}

/// Returns the files of this repository that are named by commits reachable from `commits` and not from
/// `existing`.
pub fn added(
    repository: &Repository,
    commits: &[String],
    existing: &[String],
) -> Result<Vec<LfsFile>> {
    named(repository, &[], commits, existing)
}

/// Returns the files that objects of commits name and that are here.
fn named(
    repository: &Repository,
    options: &[&str],
    commits: &[String],
    existing: &[String],
) -> Result<Vec<LfsFile>> {
    let storage = storage(repository);
    if !storage.join("objects").exists() {
        return Ok(Vec::new());
    }
    let fail = || "cannot list the files in Git LFS";
    let repo = repository.open()?;
    let input = refs::range_input(&repo, commits, existing)?;
    let small = format!("--filter=blob:limit={}", MAX_POINTER_BYTES + 1);
    let args = ["--no-replace-objects", "rev-list", "--objects", "--no-object-names", "--stdin"];
    let output = Git::at(&repository.common_dir)
        .without_user_config()
        .command(args)
        .args(options.iter().copied().chain(["--filter=object:type=blob", &small]))
        .input(input)
        .output(OutputLimits::seconds(LIST_SECONDS))
        .or_fail(fail)?;
    if !output.ok() {
        return Err(Failure::failed(fail()).because(output.error_text()).hint("git fsck"));
    }
    let mut files = BTreeSet::new();
    for line in output.text().lines() {
        let blob = object_format::parse_id(line).and_then(|id| repo.find_blob(id));
        let file = blob.ok().and_then(|blob| LfsFile::of_pointer(blob.content()));
        let is_here = |file: &LfsFile| {
            let size = file.path_in(&storage).metadata().map(|metadata| metadata.len());
            file.bytes <= MAX_BYTES && size.is_ok_and(|size| size == file.bytes)
        };
        files.extend(file.filter(is_here));
    }
    Ok(files.into_iter().collect())
}

/// Returns the positions of those of these files that are not here.
pub fn missing(repository: &Repository, files: &[LfsFile]) -> Vec<usize> {
    let storage = storage(repository);
    let is_missing = |file: &LfsFile| file.has_valid_name() && !file.path_in(&storage).exists();
    let missing = files.iter().enumerate().filter(|(_, file)| is_missing(file));
    missing.map(|(position, _)| position).collect()
}

/// Opens a file.
pub fn open(repository: &Repository, file: &LfsFile) -> io::Result<File> {
    File::open(file.path_in(&storage(repository)))
}

/// Stores a file from another machine, which is read to its end. Refuses one that is not what its name
/// says, or too large.
pub fn store(repository: &Repository, file: &LfsFile, input: impl Read) -> io::Result<()> {
    let refuse = |what: &str| Err(io::Error::other(format!("a file in Git LFS {what}")));
    if !file.has_valid_name() || file.bytes > MAX_BYTES {
        return refuse("has an invalid name or is too large");
    }
    let storage = storage(repository);
    let path = file.path_in(&storage);
    // Git LFS deletes old files there.
    let temporary_directory = storage.join("tmp");
    for directory in [&temporary_directory, path.parent().unwrap_or(&path)] {
        std::fs::create_dir_all(directory)?;
    }
    let mut temporary = tempfile::NamedTempFile::new_in(temporary_directory)?;
    let mut input = input.take(file.bytes);
    let (mut digest, mut part) = (sha2::Sha256::new(), vec![0; COPY_BYTES]);
    loop {
        let length = input.read(&mut part)?;
        if length == 0 {
            break;
        }
        digest.update(&part[..length]);
        temporary.write_all(&part[..length])?;
    }
    if hex(&digest.finalize()) != file.oid {
        return refuse("is not what its name says");
    }
    temporary.as_file().set_permissions(std::fs::Permissions::from_mode(0o644))?;
    temporary.as_file().sync_all()?;
    temporary.persist(&path).map_err(|error| error.error)?;
    step("replica.lfs");
    Ok(())
}

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

/// Returns whether a byte is a hexadecimal digit of an object's name.
fn is_digit(byte: u8) -> bool {
    byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte)
}

fn names(dir: &SafeDir) -> io::Result<Vec<String>> {
    Ok(dir.names()?.into_iter().filter_map(|name| name.into_string().ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_pointer_names_a_file() {
        let oid = "4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393";
        let pointer = |oid: &str, size: &str| {
            LfsFile::of_pointer(
                format!("{POINTER_VERSION}\noid sha256:{oid}\nsize {size}\n").as_bytes(),
            )
        };
        assert_eq!(pointer(oid, "12345"), Some(LfsFile { oid: oid.to_owned(), bytes: 12345 }));
        for (oid, size) in [
            (oid, "-1"),
            (oid, "many"),
            (&oid[1..], "1"),
            (&oid.to_uppercase(), "1"),
            ("../../../../../../../../../../../../../../../../../etc/passwd0000", "1"),
        ] {
            assert_eq!(pointer(oid, size), None, "{oid} {size}");
        }
        assert_eq!(LfsFile::of_pointer(format!("oid sha256:{oid}\nsize 1\n").as_bytes()), None);
        assert_eq!(LfsFile::of_pointer(b"\xff\xfe"), None);
    }
}
