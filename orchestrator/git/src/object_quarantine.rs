//! Creates new objects outside the repository and imports them as one kept pack, so that no `git gc
//! --prune=now` can remove them before a ref points to them.

use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use base::failure::{Failure, OrFail, Result};
use base::git::Git;
use base::id::Id;
use base::lock::Lock;
use base::process::{Command, Running, Stream};

use crate::git_installation::GitInstallation;
use crate::repo::Repository;
use crate::session_repo::{Originals, SessionRepo, config};
use crate::{confined_thread, filters, object_format, partial_clone};

/// The names that git gives to an empty pack: the SHA-1 and the SHA-256 of nothing, in a pack's form.
const EMPTY_PACKS: [&str; 2] = [
    "029d08823bd8a8eab510ad6ac75c823cfd3ed31e",
    "7ed890d8a45760f3eecf73045b1d1047085af4776dc683d78eac82203df1993f",
];
/// Timeout of one import.
const TIMEOUT: Duration = Duration::from_secs(1800);
/// The lock of a scratch directory, held while it is in use.
const LOCK: &str = "lock";
/// The minimum age of one that a killed process left: it is locked right after it was created.
const MIN_AGE: Duration = Duration::from_secs(60);

/// A temporary git directory for creating objects: it sees the repository's objects, has studio's
/// configuration, and is removed on drop.
pub struct Quarantine {
    dir: tempfile::TempDir,
    /// Tells [`remove_leftovers`] that it is in use.
    _lock: Option<Lock>,
    /// The object directory of the user's repository.
    imported: PathBuf,
    /// The opened repository.
    pub repo: git2::Repository,
}

/// A kept pack. On drop, the pack is subject to git's normal maintenance again; by then a ref must
/// point to what is needed.
#[derive(Debug, PartialEq, Eq)]
pub struct KeepFiles {
    path: Option<PathBuf>,
}

impl Quarantine {
    /// Creates a scratch directory without a working tree.
    pub(crate) fn open(repository: &Repository) -> Result<Quarantine> {
        let source = repository.open()?;
        let shallow = std::fs::read(repository.common_dir.join("shallow")).ok();
        Quarantine::create(repository, config(&source)?.as_bytes(), shallow.as_deref())
    }

    /// Creates a scratch directory in which packs are made and read.
    fn bare(repository: &Repository, shallow: Option<&[u8]>) -> Result<Quarantine> {
        let format = object_format::config(repository.open()?.object_format());
        let config = format!("{format}[core]\n\tbare = true\n");
        Quarantine::create(repository, config.as_bytes(), shallow)
    }

    /// Creates a scratch directory with this configuration.
    pub(crate) fn with_config(repository: &Repository, config: &[u8]) -> Result<Quarantine> {
        Quarantine::create(repository, config, None)
    }

    /// Creates a scratch directory that sees a session's objects, with the session's settings.
    pub(crate) fn for_session(repository: &Repository, git_dir: &Path) -> Result<Quarantine> {
        let originals = Originals::load(git_dir)?;
        let shallow = originals.shallow.as_deref();
        let config = filters::without_filters(&originals.config);
        let scratch = Quarantine::create(repository, config, shallow)?;
        scratch.write_info(&originals)?;
        scratch.add_objects(&git_dir.join("objects"))?;
        Ok(scratch)
    }

    /// Writes the ignore list and the attributes of a repository.
    pub(crate) fn write_info(&self, originals: &Originals) -> Result<()> {
        let info = self.path().join("info");
        let write = || -> std::io::Result<()> {
            std::fs::create_dir_all(&info)?;
            std::fs::write(info.join("exclude"), &originals.exclude)?;
            if let Some(attributes) = &originals.attributes {
                std::fs::write(info.join("attributes"), attributes)?;
            }
            if let Some(sparse) = &originals.sparse {
                std::fs::write(info.join("sparse-checkout"), sparse)?;
            }
            Ok(())
        };
        write().or_fail(cannot_write)
    }

    /// Creates the directory. `shallow` is the boundary of a shallow clone's history; libgit2 reads
    /// it when it opens the repository.
    fn create(
        repository: &Repository,
        config: &[u8],
        shallow: Option<&[u8]>,
    ) -> Result<Quarantine> {
        let parent = repository.studio_dir()?.join("scratch");
        std::fs::create_dir_all(&parent).or_fail(cannot_write)?;
        let dir = tempfile::Builder::new().prefix("s").tempdir_in(parent).or_fail(cannot_write)?;
        let lock = Lock::try_take(&dir.path().join(LOCK)).or_fail(cannot_write)?;
        let write = || -> std::io::Result<()> {
            for name in ["objects/info", "objects/pack", "refs"] {
                std::fs::create_dir_all(dir.path().join(name))?;
            }
            std::fs::write(dir.path().join("HEAD"), "ref: refs/heads/none\n")?;
            if let Some(shallow) = shallow {
                std::fs::write(dir.path().join("shallow"), shallow)?;
            }
            std::fs::write(dir.path().join("config"), config)
        };
        write().or_fail(cannot_write)?;
        let repo = crate::repo::open_any(dir.path()).or_fail(cannot_write)?;
        let imported = repository.common_dir.join("objects");
        let scratch = Quarantine { dir, _lock: lock, imported, repo };
        scratch.add_objects(&scratch.imported)?;
        Ok(scratch)
    }

    /// Returns the objects of the user's repository alone: no agent can have damaged them.
    pub(crate) fn imported_objects(&self) -> Option<git2::Odb<'static>> {
        let odb = git2::Odb::new_ext(self.repo.object_format()).ok()?;
        odb.add_disk_alternate(self.imported.to_str()?).ok()?;
        Some(odb)
    }

    /// Makes the objects of a directory visible.
    pub(crate) fn add_objects(&self, objects: &Path) -> Result<()> {
        let odb = self.repo.odb().or_fail(|| "cannot open the objects")?;
        odb.add_disk_alternate(&objects.to_string_lossy())
            .or_fail(|| format!("cannot read {}", objects.display()))
    }

    /// Returns its own configuration only: the user's may contain a login.
    pub(crate) fn config(&self) -> Result<git2::Config> {
        git2::Config::open(&self.path().join("config")).or_fail(cannot_write)
    }

    /// Makes the user's attributes file apply here as in the repository.
    pub(crate) fn copy_attributes(&self, source: &git2::Repository) -> Result<()> {
        let config = source.config().or_fail(cannot_write)?;
        let user_file = config.get_path("core.attributesfile").ok().or_else(|| {
            let home = base::user_dirs::home_dir().map(|home| home.join(".config"));
            let dir = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).or(home)?;
            Some(dir.join("git/attributes"))
        });
        let Some(text) = user_file.and_then(|path| std::fs::read(path).ok()) else { return Ok(()) };
        let copied = self.path().join("attributes");
        std::fs::write(&copied, text).or_fail(cannot_write)?;
        let mut config = self.config()?;
        config.set_str("core.attributesfile", &copied.to_string_lossy()).or_fail(cannot_write)
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

/// Removes the scratch directories of killed processes. Returns their paths.
pub(crate) fn remove_leftovers(repository: &Repository) -> Result<Vec<PathBuf>> {
    let mut removed = Vec::new();
    let scratch = repository.common_dir.join("studio/scratch");
    for entry in std::fs::read_dir(&scratch).into_iter().flatten().flatten() {
        let path = entry.path();
        let modified = entry.metadata().and_then(|metadata| metadata.modified()).ok();
        let age = modified.and_then(|time| time.elapsed().ok());
        let is_old = age.is_some_and(|age| age >= MIN_AGE);
        if !is_old || Lock::is_held(&path.join(LOCK)).unwrap_or(true) {
            continue;
        }
        match std::fs::remove_dir_all(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            result => {
                result.or_fail(|| format!("cannot remove {}", path.display()))?;
                removed.push(path);
            }
        }
    }
    Ok(removed)
}

impl KeepFiles {
    /// Returns a value for objects that refs keep already.
    pub(crate) fn none() -> KeepFiles {
        KeepFiles { path: None }
    }

    /// Returns the pack to git's normal maintenance: called when refs point to its objects.
    pub(crate) fn release(mut self) {
        self.remove_file();
    }

    fn remove_file(&mut self) {
        if let Some(path) = self.path.take() {
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Drop for KeepFiles {
    fn drop(&mut self) {
        self.remove_file();
    }
}

/// Imports a commit that was created in a quarantine from a session's work, with everything that it
/// adds to `existing`.
pub(crate) fn import_commit(
    repository: &Repository,
    quarantine: &Quarantine,
    session_repo: &SessionRepo,
    commit: &str,
    existing: &str,
) -> Result<KeepFiles> {
    let object_dirs = [quarantine.objects(), session_repo.git_dir.join("objects")];
    let (commits, existing) = ([commit.to_owned()], [existing.to_owned()]);
    import_objects(repository, &object_dirs, &commits, &existing, &session_repo.id)
}

/// Like [`import_objects`], for commits that studio created in a quarantine: its new objects need no
/// verification, and so no process. Refs must keep everything else that the commits need.
pub(crate) fn import_created(
    repository: &Repository,
    quarantine: &Quarantine,
    commits: &[String],
    existing: &[String],
    id: &Id,
) -> Result<KeepFiles> {
    let fail = || "cannot bring objects into the repository";
    let packs = quarantine.objects().join("pack");
    let created = created_objects(&quarantine.objects()).or_fail(fail)?;
    let is_created = |commit: &String| created.iter().any(|id| id.to_string() == *commit);
    if !commits.iter().all(is_created) {
        // It exists, but perhaps no ref keeps it.
        return import_objects(repository, &[quarantine.objects()], commits, existing, id);
    }
    let pack = || -> std::result::Result<String, git2::Error> {
        let mut builder = quarantine.repo.packbuilder()?;
        created.iter().try_for_each(|object| builder.insert_object(*object, None))?;
        builder.write(&packs, 0o444)?;
        let name = builder.name()?.map(str::to_owned);
        name.ok_or_else(|| git2::Error::from_str("the pack has no name"))
    };
    let name = pack().or_fail(fail)?;
    let write = || -> std::io::Result<KeepFiles> {
        std::fs::write(packs.join(format!("pack-{name}.keep")), format!("studio-{id}\n"))?;
        for extension in ["pack", "idx"] {
            std::fs::File::open(packs.join(format!("pack-{name}.{extension}")))?.sync_data()?;
        }
        move_pack(&packs, &repository.common_dir.join("objects/pack"), &name)
    };
    write().or_fail(fail)
}

/// Returns the loose objects of a directory: `ab/cdef…`.
fn created_objects(objects: &Path) -> std::io::Result<Vec<git2::Oid>> {
    let mut created = Vec::new();
    for directory in std::fs::read_dir(objects)? {
        let directory = directory?;
        let start = directory.file_name();
        let Some(start) = start.to_str().filter(|name| name.len() == 2) else { continue };
        for file in std::fs::read_dir(directory.path())? {
            let name = file?.file_name();
            let id = name.to_str().map(|rest| object_format::parse_id(&format!("{start}{rest}")));
            created.extend(id.and_then(std::result::Result::ok));
        }
    }
    created.sort();
    Ok(created)
}

/// Imports objects into the repository: everything reachable from `wanted` and not from `existing`, read
/// from the given object directories and the repository's own, and verified.
pub(crate) fn import_objects(
    repository: &Repository,
    object_dirs: &[PathBuf],
    commits: &[String],
    existing: &[String],
    id: &Id,
) -> Result<KeepFiles> {
    let (quarantine, name) = verify_objects(repository, object_dirs, commits, existing, id)?;
    if EMPTY_PACKS.contains(&name.as_str()) {
        return Ok(KeepFiles { path: None });
    }
    move_pack(
        &quarantine.objects().join("pack"),
        &repository.common_dir.join("objects/pack"),
        &name,
    )
    .or_fail(|| "cannot move a pack into the repository")
}

/// Like [`import_objects`], but leaves the verified objects in the returned quarantine.
pub(crate) fn verified_objects(
    repository: &Repository,
    object_dirs: &[PathBuf],
    commits: &[String],
    existing: &[String],
    id: &Id,
) -> Result<Quarantine> {
    Ok(verify_objects(repository, object_dirs, commits, existing, id)?.0)
}

/// Copies objects into a new quarantine as one verified pack; returns the pack's name. In a partial
/// clone, new directories may refer to files that are missing: these are fetched.
fn verify_objects(
    repository: &Repository,
    object_dirs: &[PathBuf],
    commits: &[String],
    existing: &[String],
    id: &Id,
) -> Result<(Quarantine, String)> {
    let verify = || verify_present_objects(repository, object_dirs, commits, existing, id);
    let result = verify();
    if result.is_ok() || !partial_clone::is_partial(&*repository.open()?)? {
        return result;
    }
    let quarantine = Quarantine::open(repository)?;
    object_dirs.iter().try_for_each(|objects| quarantine.add_objects(objects))?;
    for base in existing {
        for commit in commits {
            partial_clone::fetch_neighbors(repository, &quarantine.repo, base, commit)?;
        }
    }
    verify()
}

/// Like [`verify_objects`]; fails if an object is missing.
fn verify_present_objects(
    repository: &Repository,
    object_dirs: &[PathBuf],
    commits: &[String],
    existing: &[String],
    id: &Id,
) -> Result<(Quarantine, String)> {
    let input: String = commits
        .iter()
        .map(|id| format!("{id}\n"))
        .chain(existing.iter().map(|id| format!("^{id}\n")))
        .collect();
    // Indexed in a separate directory: `git gc --prune=now` removes unfinished packs of other
    // processes.
    let quarantine = Quarantine::bare(repository, None)?;
    let packer = pack(repository, object_dirs)?;
    let keep = format!("--keep=studio-{id}");
    // It sees only the repository's objects: forged objects of a session, and everything they refer
    // to, must be in the pack.
    let visible = [repository.common_dir.join("objects")];
    let indexer = Git::at(quarantine.path())
        .command(["index-pack", "--stdin", "--strict", "--fix-thin", &keep])
        .env("GIT_ALTERNATE_OBJECT_DIRECTORIES", alternates(&visible));
    let name = pipe(packer, indexer, input.into_bytes())?;
    Ok((quarantine, name))
}

/// Imports a pack from another machine: verified against the objects of the repository, which it may
/// refer to.
pub(crate) fn import_pack(
    repository: &Repository,
    pack: std::fs::File,
    id: &Id,
) -> Result<KeepFiles> {
    let quarantine = Quarantine::bare(repository, None)?;
    let keep = format!("--keep=studio-{id}");
    let visible = [repository.common_dir.join("objects")];
    let output = Git::at(quarantine.path())
        .command(["index-pack", "--stdin", "--strict", "--fix-thin", &keep])
        .env("GIT_ALTERNATE_OBJECT_DIRECTORIES", alternates(&visible))
        .stdin(Stream::File(pack))
        .output(base::process::OutputLimits { time: Some(TIMEOUT), bytes: 1 << 20 })
        .or_fail(|| "cannot start git")?;
    if !output.ok() {
        return Err(Failure::failed("cannot take the objects of another machine")
            .because(output.error_text())
            .hint("check the disk space, and that `.git` is writable; then try again"));
    }
    let text = output.text();
    let name = text.split_whitespace().next_back().unwrap_or_default();
    if EMPTY_PACKS.contains(&name) {
        return Ok(KeepFiles { path: None });
    }
    move_pack(&quarantine.objects().join("pack"), &repository.common_dir.join("objects/pack"), name)
        .or_fail(|| "cannot move a pack into the repository")
}

/// Starts to pack the objects that will be named on its stdin, on a confined thread, because an
/// agent controls the directories that it reads.
fn pack(repository: &Repository, object_dirs: &[PathBuf]) -> Result<Packer> {
    let errors = tempfile::tempfile().or_fail(base::files::cannot_make_temporary)?;
    let error_copy = errors.try_clone().or_fail(base::files::cannot_make_temporary)?;
    // In a separate directory: the files beside the repository's objects change.
    let shallow = std::fs::read(repository.common_dir.join("shallow")).ok();
    let quarantine = Quarantine::bare(repository, shallow.as_deref())?;
    let mut visible = vec![repository.common_dir.join("objects")];
    visible.extend_from_slice(object_dirs);
    let mut packer = Git::at(quarantine.path())
        .without_user_config()
        .command(["--no-replace-objects", "pack-objects", "--revs", "--thin", "--stdout", "-q"])
        .env("GIT_ALTERNATE_OBJECT_DIRECTORIES", alternates(&visible))
        .stdin(Stream::Piped)
        .stderr(Stream::File(error_copy));
    if let Some(git) = GitInstallation::find() {
        // A program that only starts git may need more than the thread may read.
        packer = packer.env("PATH", &git.directory);
    }
    let mut read = confined_thread::object_directories(&repository.common_dir);
    read.extend_from_slice(object_dirs);
    read.push(quarantine.path().to_owned());
    let rules = confined_thread::rules(read, Vec::new());
    let start_packer = move || packer.spawn().or_fail(|| "cannot start git");
    let running =
        confined_thread::run(rules, TIMEOUT, "cannot pack the session's objects", start_packer)?;
    Ok(Packer { running, errors, _quarantine: quarantine })
}

/// A running `git pack-objects`, and its stderr.
struct Packer {
    running: Running,
    errors: std::fs::File,
    _quarantine: Quarantine,
}

/// Moves a finished pack into the repository: its `.keep` first; its index, which makes git see it,
/// last. The pack gets a unique name: two sessions may create the same objects at the same time,
/// and a `git gc` that knows one pack must not remove the other. It is as long as git's name: git
/// replaces no pack with a shorter one.
fn move_pack(source: &Path, target: &Path, name: &str) -> std::io::Result<KeepFiles> {
    use sha2::Digest as _;
    std::fs::create_dir_all(target)?;
    let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let nonce = format!("{}{name}{:?}{}", source.display(), since_epoch, std::process::id());
    let digest = sha2::Sha256::digest(nonce.as_bytes());
    let unique_name: String = base::text::hex(&digest).chars().take(name.len()).collect();
    let mut keep_files = KeepFiles { path: None };
    for extension in ["keep", "pack", "rev", "idx"] {
        let (source_name, target_name) =
            (format!("pack-{name}.{extension}"), format!("pack-{unique_name}.{extension}"));
        match std::fs::rename(source.join(&source_name), target.join(&target_name)) {
            Ok(()) => {}
            Err(e) if e.kind() == std::io::ErrorKind::NotFound && extension == "rev" => {}
            Err(e) => return Err(e),
        }
        if extension == "keep" {
            keep_files.path = Some(target.join(&target_name));
        }
    }
    base::files::sync_dir(target)?;
    Ok(keep_files)
}

/// Pipes one git into another; both must succeed. Returns the name of the pack.
fn pipe(packer: Packer, indexer: Command, input: Vec<u8>) -> Result<String> {
    let Packer { mut running, errors, _quarantine } = packer;
    let stdout = running.child.stdout.take().expect("its stdout is a pipe");
    let mut stdin = running.child.stdin.take().expect("its stdin is a pipe");
    let feeder = std::thread::spawn(move || stdin.write_all(&input));
    let output = indexer
        .stdin(Stream::File(OwnedFd::from(stdout).into()))
        .output(base::process::OutputLimits { time: Some(TIMEOUT), bytes: 1 << 20 })
        .or_fail(|| "cannot start git")?;
    let _ = feeder.join();
    let deadline = Instant::now() + Duration::from_secs(60);
    let status = running.wait_until(Some(deadline)).or_fail(|| "cannot wait for git")?;
    if status.is_some_and(|status| status.success()) && output.ok() {
        let text = output.text();
        let name = text.split_whitespace().next_back().unwrap_or_default().to_owned();
        return Ok(name);
    }
    let packer_errors = read_errors(errors);
    Err(Failure::failed("cannot bring objects into the repository")
        .because(format!("{packer_errors}\n{}", output.error_text()).trim())
        .hint("check the disk space, and that `.git` is writable; then try again"))
}

fn read_errors(mut file: std::fs::File) -> String {
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
        let directories = ["/plain dir", "/a:b", "/q\"q"].map(PathBuf::from);
        assert_eq!(alternates(&directories), "/plain dir:\"/a:b\":\"/q\\\"q\"");
    }
}
