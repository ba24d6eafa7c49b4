//! The trust store: contents of repository files that the user accepted, by SHA-256, stored outside
//! all repositories. An acceptance is valid in its repository only, and only while the files that
//! the content names (a hook's script, for example) are unchanged.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::clock::Clock;
use crate::failure::{Failure, OrFail, Result};
use crate::files;
use crate::lock::Lock;

/// An accepted content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrustEntry {
    /// The SHA-256 of the content, in hexadecimal.
    pub sha256: String,
    /// The path of the file at the time of acceptance.
    pub path: PathBuf,
    /// The time of acceptance, RFC 3339.
    pub time: String,
    /// The repository: its git directory, or the directory of the file outside a repository.
    #[serde(default)]
    pub repository: PathBuf,
    /// The files of the repository that the content names, with their SHA-256.
    #[serde(default)]
    pub names: BTreeMap<PathBuf, String>,
    /// The text, so that a later version can be shown as a difference; only of the last acceptance
    /// of a file, and absent if it is large.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
}

/// The maximum size of a content that is kept, in bytes.
const MAX_CONTENT_BYTES: usize = 64 << 10;

/// The maximum size of a `.git` file that is read, in bytes.
const MAX_POINTER_BYTES: u64 = 8 << 10;

/// The format of the trust store on disk (`trust.json`, mode 0600).
#[derive(Debug, Default, Serialize, Deserialize)]
struct TrustStore {
    schema: u32,
    files: BTreeMap<String, TrustEntry>,
}

/// Accepts exactly this content, which was read from `file` and displayed to the user.
pub fn accept(store: &Path, file: &Path, content: &[u8], clock: &Clock) -> Result<TrustEntry> {
    let (repository, names) = (repository(file), named_programs(file, content));
    let (sha256, path) = (hash(content), file.to_owned());
    let text = std::str::from_utf8(content).ok().filter(|text| text.len() <= MAX_CONTENT_BYTES);
    let content = text.map(str::to_owned);
    let entry = TrustEntry { sha256, path, time: clock.stamp(), repository, names, content };
    update(store, |entries| {
        let earlier = entries.files.values_mut().filter(|earlier| earlier.path == entry.path);
        earlier.for_each(|earlier| earlier.content = None);
        entries.files.insert(key(&entry.sha256, &entry.repository), entry.clone());
    })?;
    Ok(entry)
}

/// Returns the last acceptance of this file, whatever its content was.
pub fn last(store: &Path, file: &Path) -> Result<Option<TrustEntry>> {
    let entries = read(store)?.files.into_values();
    let rank = |entry: &TrustEntry| (entry.content.is_some(), entry.time.clone());
    Ok(entries.filter(|entry| entry.path == file).max_by_key(rank))
}

/// Removes all acceptances of this file, whatever its current content, and returns them.
pub fn revoke(store: &Path, file: &Path) -> Result<Vec<TrustEntry>> {
    let current = fs::read(file).ok().map(|content| hash(&content));
    let mut revoked = Vec::new();
    update(store, |entries| {
        let current_repository = repository(file);
        entries.files.retain(|_, entry| {
            let is_same_content =
                Some(&entry.sha256) == current.as_ref() && entry.repository == current_repository;
            let keep = entry.path != file && !is_same_content;
            if !keep {
                revoked.push(entry.clone());
            }
            keep
        });
    })?;
    Ok(revoked)
}

/// Returns all accepted contents.
pub fn show(store: &Path) -> Result<Vec<TrustEntry>> {
    Ok(read(store)?.files.into_values().collect())
}

/// Returns whether this content of a file was accepted in its repository and the files that it
/// names are unchanged. A store that is unreadable, or writable by other users, trusts nothing.
pub fn is_trusted(store: &Path, file: &Path, content: &[u8]) -> bool {
    let Ok(entries) = read(store) else { return false };
    let entry = entries.files.get(&key(&hash(content), &repository(file)));
    entry.is_some_and(|entry| entry.names == named_programs(file, content))
}

/// Returns the key of an acceptance in the store.
fn key(sha256: &str, repository: &Path) -> String {
    format!("{sha256} {}", repository.display())
}

/// Returns the repository of a file: the outermost git directory that its working tree refers to,
/// which is the same for all its working trees.
fn repository(file: &Path) -> PathBuf {
    let directory = file.parent().unwrap_or(Path::new("/"));
    let directory = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
    let Some(git) = directory.ancestors().map(|dir| dir.join(".git")).find(|git| git.exists())
    else {
        return directory;
    };
    let linked_dir = || {
        let is_small = fs::metadata(&git).is_ok_and(|meta| meta.len() < MAX_POINTER_BYTES);
        let text = is_small.then(|| fs::read_to_string(&git).ok()).flatten()?;
        git.parent()?.join(text.strip_prefix("gitdir:")?.trim()).canonicalize().ok()
    };
    let git_dir = if git.is_file() { linked_dir().unwrap_or_else(|| git.clone()) } else { git };
    let is_git = |dir: &&Path| dir.join("HEAD").is_file() && dir.join("objects").is_dir();
    git_dir.ancestors().filter(is_git).last().unwrap_or(&git_dir).to_owned()
}

/// File name extensions of scripts.
const SCRIPTS: [&str; 10] = ["sh", "bash", "py", "js", "mjs", "cjs", "ts", "rb", "pl", "lua"];

/// Returns whether a file is a program: a script, by its extension or its first bytes, or
/// executable.
fn is_program(file: &Path) -> bool {
    let Ok(meta) = fs::metadata(file) else { return false };
    let extension = file.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    let has_shebang = || {
        let mut first = [0; 2];
        let read = fs::File::open(file).and_then(|mut file| file.read_exact(&mut first));
        read.is_ok() && &first == b"#!"
    };
    let is_executable =
        || meta.permissions().mode() & 0o111 != 0 || SCRIPTS.contains(&extension) || has_shebang();
    meta.is_file() && is_executable()
}

/// Returns the programs and scripts of the repository that a content names as separate words, with
/// their hashes. They are searched for beside the file and from the root of the working tree.
fn named_programs(file: &Path, content: &[u8]) -> BTreeMap<PathBuf, String> {
    // A persona is prose: the files that it mentions are not run because of it.
    if file.extension().is_some_and(|extension| extension == "md") {
        return BTreeMap::new();
    }
    let text = String::from_utf8_lossy(content);
    let directory = file.parent().unwrap_or(Path::new("/"));
    let root = directory.ancestors().find(|dir| dir.join(".git").exists()).unwrap_or(directory);
    let is_separator = |c: char| c.is_whitespace() || "\"'`=,;:()[]{}<>|&$".contains(c);
    let mut names = BTreeMap::new();
    for word in text.split(is_separator).filter(|word| !word.is_empty() && *word != ".") {
        for candidate in [directory.join(word), root.join(word)] {
            let is_inside = candidate.starts_with(root) && candidate != *file;
            if !is_inside || !is_program(&candidate) {
                continue;
            }
            let relative =
                candidate.strip_prefix(root).unwrap_or(&candidate).components().collect();
            let digest =
                fs::read(&candidate).map_or_else(|error| error.to_string(), |bytes| hash(&bytes));
            names.insert(relative, digest);
        }
    }
    names
}

/// Returns the SHA-256 of a content, in hexadecimal.
pub fn hash(content: &[u8]) -> String {
    crate::text::hex(&Sha256::digest(content))
}

fn read(store: &Path) -> Result<TrustStore> {
    let what = || format!("cannot read {}", store.display());
    let meta = match fs::metadata(store) {
        Ok(meta) => meta,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            return Ok(TrustStore { schema: 1, files: BTreeMap::new() });
        }
        Err(e) => return Err(e).or_fail(what),
    };
    let user = rustix::process::geteuid().as_raw();
    if meta.uid() != user || meta.permissions().mode() & 0o022 != 0 {
        return Err(Failure::refused(format!("{} is writable by other users", store.display()))
            .hint(format!("check it, then: chmod 600 {}", store.display())));
    }
    serde_json::from_slice(&fs::read(store).or_fail(what)?).or_fail(what)
}

fn update(store: &Path, edit: impl FnOnce(&mut TrustStore)) -> Result<()> {
    let what = || format!("cannot write {}", store.display());
    let parent = store.parent().unwrap_or(Path::new("/"));
    fs::DirBuilder::new().recursive(true).mode(0o700).create(parent).or_fail(what)?;
    let _lock = Lock::take(&store.with_extension("lock")).or_fail(what)?;
    let mut entries = read(store)?;
    edit(&mut entries);
    files::replace_json(store, &entries).or_fail(what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_accepted_content_is_trusted_until_it_is_revoked() {
        let dir = tempfile::tempdir().unwrap();
        let store = dir.path().join("g3/trust.json");
        let file = dir.path().join("g3.toml");
        fs::write(&file, "a = 1").unwrap();
        assert!(!is_trusted(&store, &file, b"a = 1"));
        let entry = accept(&store, &file, b"a = 1", &Clock::from_env()).unwrap();
        assert!(is_trusted(&store, &file, b"a = 1"));
        assert!(!is_trusted(&store, &file, b"a = 2"));
        assert_eq!(fs::metadata(&store).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(show(&store).unwrap(), vec![entry.clone()]);
        let last = last(&store, &file).unwrap().unwrap();
        assert_eq!(last.content.as_deref(), Some("a = 1"));
        assert_eq!(revoke(&store, &file).unwrap(), vec![entry]);
        assert!(!is_trusted(&store, &file, b"a = 1"));
        assert!(show(&store).unwrap().is_empty());
    }

    #[test]
    fn an_acceptance_is_valid_for_its_repository_and_the_scripts_that_it_names() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let store = root.join("trust.json");
        let content = b"command = [\"sh\", \"./hook.sh\"] # and scripts/check";
        for name in ["one", "two"] {
            for part in ["scripts", ".git/objects", ".git/worktrees/w"] {
                fs::create_dir_all(root.join(name).join(part)).unwrap();
            }
            fs::write(root.join(name).join(".git/HEAD"), "").unwrap();
            fs::write(root.join(name).join("hook.sh"), "good").unwrap();
        }
        let (one, two) = (root.join("one/g3.toml"), root.join("two/g3.toml"));
        let entry = accept(&store, &one, content, &Clock::from_env()).unwrap();
        assert_eq!(entry.names.keys().collect::<Vec<_>>(), [Path::new("hook.sh")]);
        assert!(is_trusted(&store, &one, content));
        assert!(!is_trusted(&store, &two, content), "another repository");
        // A linked working tree belongs to the same repository.
        fs::create_dir(root.join("linked")).unwrap();
        let pointer = format!("gitdir: {}", root.join("one/.git/worktrees/w").display());
        fs::write(root.join("linked/.git"), pointer).unwrap();
        assert!(
            !is_trusted(&store, &root.join("linked/g3.toml"), content),
            "its script is missing"
        );
        fs::write(root.join("linked/hook.sh"), "good").unwrap();
        assert!(is_trusted(&store, &root.join("linked/g3.toml"), content));
        fs::write(root.join("one/hook.sh"), "evil").unwrap();
        assert!(!is_trusted(&store, &one, content), "a script changed");
        fs::write(root.join("one/hook.sh"), "good").unwrap();
        assert!(is_trusted(&store, &one, content));
        fs::write(root.join("one/scripts/check"), "#!/bin/sh").unwrap();
        assert!(!is_trusted(&store, &one, content), "a named file appeared");
    }

    #[test]
    fn a_store_that_other_users_can_write_trusts_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let store = dir.path().join("trust.json");
        let file = Path::new("/r/g3.toml");
        accept(&store, file, b"x", &Clock::from_env()).unwrap();
        assert!(is_trusted(&store, file, b"x"));
        fs::set_permissions(&store, fs::Permissions::from_mode(0o666)).unwrap();
        assert!(!is_trusted(&store, file, b"x"));
        assert!(show(&store).unwrap_err().to_string().contains("chmod 600"));
    }
}
