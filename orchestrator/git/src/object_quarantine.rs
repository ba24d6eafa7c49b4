//! Creates new objects outside the repository and imports them as one kept pack, so that no `git gc
//! --prune=now` can remove them before a ref points to them.

use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use base::failure::{Failure, OrFail, Result};
use base::git::Git;
use base::id::Id;
use base::process::{Command, Running, Stream};

use crate::confined_thread;
use crate::repo::Repository;
use crate::session_repo::{Originals, config};

/// The name that git gives to an empty pack (the SHA-1 of nothing, in a pack's form).
const EMPTY_PACK: &str = "029d08823bd8a8eab510ad6ac75c823cfd3ed31e";
/// Timeout of one import.
const LONGEST: Duration = Duration::from_secs(1800);

/// A temporary git directory for creating objects: it sees the repository's objects, has studio's
/// configuration, and is removed on drop.
pub struct Quarantine {
    dir: tempfile::TempDir,
    /// The opened repository.
    pub repo: git2::Repository,
}

/// A kept pack. On drop, the pack is subject to git's normal maintenance again; by then a ref must
/// point to what is needed.
#[derive(Debug, PartialEq, Eq)]
pub struct KeepFiles {
    keep: Option<PathBuf>,
}

impl Quarantine {
    /// Creates a scratch directory without a working tree.
    pub(crate) fn open(repository: &Repository) -> Result<Quarantine> {
        let real = repository.open()?;
        let shallow = std::fs::read(repository.common_dir.join("shallow")).ok();
        Quarantine::make(repository, config(&real)?.as_bytes(), shallow.as_deref())
    }

    /// Creates a scratch directory that sees a session's objects, with the session's settings.
    pub(crate) fn for_session(repository: &Repository, git_dir: &Path) -> Result<Quarantine> {
        let originals = Originals::load(git_dir)?;
        let shallow = originals.shallow.as_deref();
        let scratch = Quarantine::make(repository, &originals.config, shallow)?;
        let info = scratch.path().join("info");
        let write = || -> std::io::Result<()> {
            std::fs::create_dir_all(&info)?;
            std::fs::write(info.join("exclude"), &originals.exclude)?;
            if let Some(attributes) = &originals.attributes {
                std::fs::write(info.join("attributes"), attributes)?;
            }
            Ok(())
        };
        write().or_fail(cannot_write)?;
        scratch.see(&git_dir.join("objects"))?;
        Ok(scratch)
    }

    /// Creates the directory. `shallow` is the boundary of a shallow clone's history; libgit2 reads
    /// it when it opens the repository.
    fn make(repository: &Repository, config: &[u8], shallow: Option<&[u8]>) -> Result<Quarantine> {
        let parent = repository.studio_dir()?.join("scratch");
        std::fs::create_dir_all(&parent).or_fail(cannot_write)?;
        let dir = tempfile::Builder::new().prefix("s").tempdir_in(parent).or_fail(cannot_write)?;
        let write = || -> std::io::Result<()> {
            for sub in ["objects/info", "objects/pack", "refs"] {
                std::fs::create_dir_all(dir.path().join(sub))?;
            }
            std::fs::write(dir.path().join("HEAD"), "ref: refs/heads/none\n")?;
            if let Some(shallow) = shallow {
                std::fs::write(dir.path().join("shallow"), shallow)?;
            }
            std::fs::write(dir.path().join("config"), config)
        };
        write().or_fail(cannot_write)?;
        let repo = git2::Repository::open(dir.path()).or_fail(cannot_write)?;
        let scratch = Quarantine { dir, repo };
        scratch.see(&repository.common_dir.join("objects"))?;
        Ok(scratch)
    }

    fn see(&self, objects: &Path) -> Result<()> {
        let odb = self.repo.odb().or_fail(|| "cannot open the objects")?;
        odb.add_disk_alternate(&objects.to_string_lossy())
            .or_fail(|| format!("cannot read {}", objects.display()))
    }

    /// Returns its own configuration only: the user's may contain a login.
    pub(crate) fn config(&self) -> Result<git2::Config> {
        git2::Config::open(&self.path().join("config")).or_fail(cannot_write)
    }

    /// Makes the user's attributes file apply here as in the repository.
    pub(crate) fn share_attributes(&self, real: &git2::Repository) -> Result<()> {
        let config = real.config().or_fail(cannot_write)?;
        let users = config.get_path("core.attributesfile").ok().or_else(|| {
            let home = base::user_dirs::home_dir().map(|home| home.join(".config"));
            let dir = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).or(home)?;
            Some(dir.join("git/attributes"))
        });
        let Some(text) = users.and_then(|path| std::fs::read(path).ok()) else { return Ok(()) };
        let copy = self.path().join("attributes");
        std::fs::write(&copy, text).or_fail(cannot_write)?;
        let mut config = self.config()?;
        config.set_str("core.attributesfile", &copy.to_string_lossy()).or_fail(cannot_write)
    }

    /// Returns its path.
    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Returns its object directory.
    pub(crate) fn objects(&self) -> PathBuf {
        self.dir.path().join("objects")
    }
}

impl KeepFiles {
    /// Returns the pack to git's normal maintenance: called when refs point to its objects.
    pub(crate) fn release(mut self) {
        self.remove_keep();
    }

    fn remove_keep(&mut self) {
        if let Some(keep) = self.keep.take() {
            let _ = std::fs::remove_file(keep);
        }
    }
}

impl Drop for KeepFiles {
    fn drop(&mut self) {
        self.remove_keep();
    }
}

/// Imports objects into the repository: everything reachable from `wanted` and not from `had`, read
/// from the given object directories and the repository's own, and verified.
pub(crate) fn bring(
    repository: &Repository,
    from: &[PathBuf],
    wanted: &[String],
    had: &[String],
    id: &Id,
) -> Result<KeepFiles> {
    let input: String = wanted
        .iter()
        .map(|id| format!("{id}\n"))
        .chain(had.iter().map(|id| format!("^{id}\n")))
        .collect();
    // Indexed in a separate directory: `git gc --prune=now` removes unfinished packs of other
    // processes.
    let desk = Quarantine::make(repository, b"[core]\n\tbare = true\n", None)?;
    let packer = pack(repository, from)?;
    let keep = format!("--keep=studio-{id}");
    // It sees only the repository's objects: forged objects of a session, and everything they refer
    // to, must be in the pack.
    let seen = [repository.common_dir.join("objects")];
    let indexer = Git::at(desk.path())
        .job(["index-pack", "--stdin", "--strict", "--fix-thin", &keep])
        .env("GIT_ALTERNATE_OBJECT_DIRECTORIES", alternates(&seen));
    let name = pipe(packer, indexer, input.into_bytes())?;
    if name == EMPTY_PACK {
        return Ok(KeepFiles { keep: None });
    }
    hand_over(&desk.objects().join("pack"), &repository.common_dir.join("objects/pack"), &name)
        .or_fail(|| "cannot move a pack into the repository")
}

/// Starts to pack the objects that will be named on its stdin, on a confined thread, because an
/// agent controls the directories that it reads.
fn pack(repository: &Repository, from: &[PathBuf]) -> Result<Packer> {
    let errors = tempfile::tempfile().or_fail(|| "cannot make a temporary file")?;
    let error_copy = errors.try_clone().or_fail(|| "cannot make a temporary file")?;
    // In a separate directory: the files beside the repository's objects change.
    let shallow = std::fs::read(repository.common_dir.join("shallow")).ok();
    let desk = Quarantine::make(repository, b"[core]\n\tbare = true\n", shallow.as_deref())?;
    let mut seen = vec![repository.common_dir.join("objects")];
    seen.extend_from_slice(from);
    let packer = Git::at(desk.path())
        .without_user_config()
        .job(["--no-replace-objects", "pack-objects", "--revs", "--thin", "--stdout", "-q"])
        .env("GIT_ALTERNATE_OBJECT_DIRECTORIES", alternates(&seen))
        .stdin(Stream::Piped)
        .stderr(Stream::File(error_copy));
    let mut read = confined_thread::object_directories(&repository.common_dir);
    read.extend_from_slice(from);
    read.push(desk.path().to_owned());
    let rules = confined_thread::rules(read, Vec::new());
    let start = move || packer.spawn().or_fail(|| "cannot start git");
    let packing = confined_thread::run(rules, LONGEST, "cannot pack the session's objects", start)?;
    Ok(Packer { packing, errors, _desk: desk })
}

/// A running `git pack-objects`, and its stderr.
struct Packer {
    packing: Running,
    errors: std::fs::File,
    _desk: Quarantine,
}

/// Moves a finished pack into the repository: its `.keep` first; its index, which makes git see it,
/// last. The pack gets a unique name: two sessions may create the same objects at the same time,
/// and a `git gc` that knows one pack must not remove the other.
fn hand_over(from: &Path, to: &Path, name: &str) -> std::io::Result<KeepFiles> {
    use sha2::Digest as _;
    std::fs::create_dir_all(to)?;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let nonce = format!("{}{name}{:?}{}", from.display(), now, std::process::id());
    let digest = sha2::Sha256::digest(nonce.as_bytes());
    let unique = base::text::hex(&digest[..20]);
    let mut kept = KeepFiles { keep: None };
    for end in ["keep", "pack", "rev", "idx"] {
        let (made, file) = (format!("pack-{name}.{end}"), format!("pack-{unique}.{end}"));
        match std::fs::rename(from.join(&made), to.join(&file)) {
            Ok(()) => {}
            Err(e) if e.kind() == std::io::ErrorKind::NotFound && end == "rev" => {}
            Err(e) => return Err(e),
        }
        if end == "keep" {
            kept.keep = Some(to.join(&file));
        }
    }
    base::files::sync_dir(to)?;
    Ok(kept)
}

/// Pipes one git into another; both must succeed. Returns the name of the pack.
fn pipe(packer: Packer, indexer: Command, input: Vec<u8>) -> Result<String> {
    let Packer { mut packing, errors, _desk } = packer;
    let stdout = packing.child.stdout.take().expect("its stdout is a pipe");
    let mut stdin = packing.child.stdin.take().expect("its stdin is a pipe");
    let feeder = std::thread::spawn(move || stdin.write_all(&input));
    let output = indexer
        .stdin(Stream::File(OwnedFd::from(stdout).into()))
        .output(base::process::OutputLimits { time: Some(LONGEST), bytes: 1 << 20 })
        .or_fail(|| "cannot start git")?;
    let _ = feeder.join();
    let until = Instant::now() + Duration::from_secs(60);
    let packed = packing.wait_until(Some(until)).or_fail(|| "cannot wait for git")?;
    if packed.is_some_and(|status| status.success()) && output.ok() {
        let text = output.text();
        let name = text.split_whitespace().next_back().unwrap_or_default().to_owned();
        return Ok(name);
    }
    let said = text_of(errors);
    Err(Failure::failed("cannot bring objects into the repository")
        .because(format!("{said}\n{}", output.error_text()).trim())
        .hint("check the disk space, and that `.git` is writable; then try again"))
}

fn text_of(mut file: std::fs::File) -> String {
    use std::io::{Read, Seek};
    let mut bytes = Vec::new();
    let _ = file.rewind();
    let _ = file.take(4096).read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).trim().to_owned()
}

/// Returns the value of `GIT_ALTERNATE_OBJECT_DIRECTORIES`: paths with a colon or a quote are
/// C-quoted.
pub(crate) fn alternates(directories: &[PathBuf]) -> String {
    let quoted = directories.iter().map(|path| {
        let text = path.to_string_lossy();
        if !text.contains([':', '"', '\n', '\\']) {
            return text.into_owned();
        }
        let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        format!("\"{text}\"")
    });
    quoted.collect::<Vec<_>>().join(":")
}

fn cannot_write() -> &'static str {
    "cannot write in the repository's `studio` directory"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_with_a_colon_or_a_quote_are_quoted() {
        let list = ["/plain dir", "/a:b", "/q\"q"].map(PathBuf::from);
        assert_eq!(alternates(&list), "/plain dir:\"/a:b\":\"/q\\\"q\"");
    }
}
