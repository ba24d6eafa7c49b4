//! A session's private git directory: the files that studio writes to it, and how they are restored
//! after an agent's turn. The originals are stored beside it, where no agent can write.

use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use base::failure::{Failure, OrFail, Result};
use base::files::{PendingSync, WrittenFiles};
use base::id::Id;
use serde::{Deserialize, Serialize};

use crate::names::{BranchName, BranchTemplate};
use crate::partial_clone::PartialClone;
use crate::repo::Repository;
use crate::safe_open::SafeDir;
use crate::sparse::SparsePatterns;
use crate::{filters, object_format, refs, submodules, worktree};

/// Settings that the agent's git must share with the repository's, because they affect what is
/// written to or read from the worktree.
const SHARED_SETTINGS: &[&str] = &[
    "core.filemode",
    "core.symlinks",
    "core.ignorecase",
    "core.precomposeunicode",
    "core.autocrlf",
    "core.eol",
    "core.safecrlf",
    "core.longpaths",
    "user.name",
    "user.email",
];

/// The depth of an object directory: `ab/…`, `pack/…`, `info/commit-graphs/…`.
const MAX_OBJECTS_DEPTH: u32 = 2;

/// Returns the paths that an agent must not change in a session: its `.git` file, and what git
/// obeys in the private directory.
pub fn protected_paths(worktree: &Path, git_dir: &Path) -> Vec<PathBuf> {
    let private_paths = ["config", "hooks", "info"].map(|name| git_dir.join(name));
    let own = private_paths.into_iter().chain([worktree.join(".git")]);
    own.chain(submodules::protected_paths(worktree, git_dir)).collect()
}

/// The paths of a session. Plain data for the session's record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRepo {
    /// The session.
    pub id: Id,
    /// Its worktree.
    pub worktree: PathBuf,
    /// Its private git directory.
    pub git_dir: PathBuf,
    /// Its branch.
    pub branch: BranchName,
    /// The commit that it started from.
    pub base: String,
}

/// The files that studio writes to a private git directory, and the worktree's `.git` file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Originals {
    /// `config`.
    pub config: Vec<u8>,
    /// `info/exclude`.
    pub exclude: Vec<u8>,
    /// `info/attributes`, if the repository has one.
    pub attributes: Option<Vec<u8>>,
    /// `shallow`, if the repository has one.
    pub shallow: Option<Vec<u8>>,
    /// `info/sparse-checkout`, if the session has a sparse checkout.
    pub sparse: Option<Vec<u8>>,
    /// `objects/info/alternates`.
    pub alternates: Vec<u8>,
    /// The worktree's `.git` file.
    pub pointer: Vec<u8>,
}

impl Originals {
    /// Returns the originals for a session's private git directory, from the current state of the
    /// repository.
    pub(crate) fn for_session_repo(
        repository: &Repository,
        session_repo: &SessionRepo,
    ) -> Result<Originals> {
        let mut originals = Originals {
            alternates: alternates(repository, session_repo),
            pointer: pointer(session_repo),
            ..Originals::for_repository(repository)?
        };
        if let Some(patterns) = SparsePatterns::of_checkout(&repository.checkout_git_dir)? {
            originals.config.extend(patterns.settings().into_bytes());
            originals.sparse = Some(patterns.text);
        }
        // At the end: see `filters::without_filters`.
        originals.config.extend(filters::configuration().into_bytes());
        Ok(originals)
    }

    /// Returns the originals that do not depend on a session; the other fields are empty.
    pub(crate) fn for_repository(repository: &Repository) -> Result<Originals> {
        let repo = repository.open()?;
        let info = repository.common_dir.join("info");
        Ok(Originals {
            config: config(&repo)?.into_bytes(),
            exclude: exclude(&repo, &info)?,
            attributes: std::fs::read(info.join("attributes")).ok(),
            shallow: std::fs::read(repository.common_dir.join("shallow")).ok(),
            sparse: None,
            alternates: Vec::new(),
            pointer: Vec::new(),
        })
    }

    /// Stores the originals of a new private directory beside it.
    fn save_new(&self, git_dir: &Path) -> Result<PendingSync> {
        let dir = originals_dir(git_dir);
        let files = self.files().into_iter();
        let files: Vec<_> = files.filter_map(|(name, content)| Some((name, content?))).collect();
        let write = || {
            std::fs::create_dir_all(&dir)?;
            base::files::write_new(&dir, &files, 0o600).map(WrittenFiles::start_sync)
        };
        write().or_fail(|| format!("cannot write in {}", dir.display()))
    }

    /// Replaces the stored originals.
    pub(crate) fn save(&self, git_dir: &Path) -> Result<()> {
        let dir = originals_dir(git_dir);
        let files = self.files().into_iter();
        let mut files = files.filter_map(|(name, content)| Some((name, content?)));
        files
            .try_for_each(|(name, content)| base::files::replace(&dir.join(name), content))
            .or_fail(|| format!("cannot write in {}", dir.display()))
    }

    /// Loads the originals.
    pub(crate) fn load(git_dir: &Path) -> Result<Originals> {
        let dir = originals_dir(git_dir);
        let read_required = |name: &str| {
            std::fs::read(dir.join(name)).map_err(|error| {
                Failure::failed(format!("the record of this session's `{name}` is gone"))
                    .because(error)
                    .hint("studio doctor")
            })
        };
        Ok(Originals {
            config: read_required("config")?,
            exclude: read_required("exclude")?,
            attributes: std::fs::read(dir.join("attributes")).ok(),
            shallow: std::fs::read(dir.join("shallow")).ok(),
            sparse: std::fs::read(dir.join("sparse-checkout")).ok(),
            alternates: read_required("alternates")?,
            pointer: read_required("pointer")?,
        })
    }

    fn files(&self) -> [(&'static str, Option<&[u8]>); 7] {
        [
            ("config", Some(&self.config)),
            ("exclude", Some(&self.exclude)),
            ("attributes", self.attributes.as_deref()),
            ("shallow", self.shallow.as_deref()),
            ("sparse-checkout", self.sparse.as_deref()),
            ("alternates", Some(&self.alternates)),
            ("pointer", Some(&self.pointer)),
        ]
    }

    /// Restores the originals in the private directory, whatever an agent changed. Removes hooks
    /// and follows no symlink.
    pub(crate) fn restore(&self, git_dir: &Path) -> Result<()> {
        self.try_restore(git_dir)
            .or_fail(|| format!("cannot restore the configuration in {}", git_dir.display()))
    }

    /// Returns the names of the originals that an agent changed; including hooks and anything that
    /// leads to another configuration.
    pub(crate) fn changed_files(&self, git_dir: &Path) -> std::io::Result<Vec<String>> {
        let git_dir = SafeDir::open(git_dir)?;
        let is_changed = |dir: &SafeDir, name: &str, content: &[u8]| {
            !dir.read(name, content.len() as u64).is_ok_and(|it| it.as_deref() == Some(content))
        };
        let mut changed = Vec::new();
        if is_changed(&git_dir, "config", &self.config) {
            changed.push("config".to_owned());
        }
        let names = git_dir.names()?;
        let exists = |name: &str| names.iter().any(|it| it == name);
        if exists("config.worktree") {
            changed.push("config.worktree".to_owned());
        }
        if exists("commondir") {
            changed.push("commondir".to_owned());
        }
        match git_dir.open_existing("hooks")? {
            Some(hooks) if hooks.names()?.is_empty() => {}
            Some(_) => changed.push("hooks".to_owned()),
            None if exists("hooks") => changed.push("hooks".to_owned()),
            None => {}
        }
        let attributes_changed = match git_dir.open_existing("info")? {
            Some(info) => match &self.attributes {
                Some(attributes) => is_changed(&info, "attributes", attributes),
                None => info.names()?.iter().any(|name| name == "attributes"),
            },
            None => false,
        };
        if attributes_changed {
            changed.push("info/attributes".to_owned());
        }
        Ok(changed)
    }

    /// Returns whether everything that git obeys is certainly unchanged since it was written;
    /// `false` means unknown. Needs only a few system calls: an agent cannot set the change time of
    /// a file.
    pub(crate) fn are_unchanged(session_repo: &SessionRepo) -> bool {
        let git_dir = &session_repo.git_dir;
        let originals = originals_dir(git_dir).join("config").symlink_metadata();
        let (Ok(originals), Ok(git_dir)) = (originals, SafeDir::open(git_dir)) else {
            return false;
        };
        let written_at = (originals.ctime(), originals.ctime_nsec());
        let is_older = |name| git_dir.changed_at(name).is_some_and(|it| it <= written_at);
        ["config", "hooks", "info"].into_iter().all(is_older)
            && git_dir.changed_at("info/attributes").is_none_or(|it| it <= written_at)
            && git_dir.changed_at("config.worktree").is_none()
            && git_dir.changed_at("commondir").is_none()
            && worktree::pointer_in(&session_repo.worktree) == Some(pointer(session_repo))
    }

    fn try_restore(&self, git_dir: &Path) -> std::io::Result<()> {
        let git_dir = SafeDir::open(git_dir)?;
        git_dir.write("config", &self.config)?;
        git_dir.remove_all("config.worktree")?;
        git_dir.remove_all("commondir")?;
        git_dir.open_or_create("hooks")?.remove_entries()?;
        let info = git_dir.open_or_create("info")?;
        info.write("exclude", &self.exclude)?;
        match &self.attributes {
            Some(attributes) => info.write("attributes", attributes)?,
            None => info.remove_all("attributes")?,
        }
        if let Some(sparse) = &self.sparse {
            info.write("sparse-checkout", sparse)?;
        }
        for name in info.names()? {
            let is_sparse = name == "sparse-checkout" && self.sparse.is_some();
            if name != "exclude" && name != "attributes" && !is_sparse {
                info.remove_all(&name)?;
            }
        }
        let objects = git_dir.open_or_create("objects")?;
        objects.remove_unreadable(MAX_OBJECTS_DEPTH)?;
        let objects_info = objects.open_or_create("info")?;
        objects_info.write("alternates", &self.alternates)?;
        objects_info.remove_all("http-alternates")?;
        match &self.shallow {
            Some(shallow) => git_dir.write("shallow", shallow),
            None => Ok(()),
        }
    }
}

/// A new private directory.
pub(crate) struct PrivateDirectory {
    /// The borrowed commits.
    pub tips: Vec<String>,
    /// The originals beside it.
    pub originals: PendingSync,
}

/// Creates the private directory: HEAD on the session's branch at the base, copies of the
/// repository's branches and tags, an empty object directory that borrows the repository's. The caller
/// pins the borrowed commits, and waits for the originals.
pub(crate) fn create(
    repository: &Repository,
    session_repo: &SessionRepo,
    originals: &Originals,
    template: &BranchTemplate,
) -> Result<PrivateDirectory> {
    let repo = repository.open()?;
    let (packed_refs, tips) = packed_refs(&repo, template)?;
    let write = || -> std::io::Result<()> {
        std::fs::create_dir_all(&session_repo.git_dir)?;
        let git_dir = SafeDir::open(&session_repo.git_dir)?;
        git_dir.open_or_create("refs")?.open_or_create("heads")?;
        git_dir.open_or_create("objects")?.open_or_create("pack")?;
        git_dir.write("packed-refs", packed_refs.as_bytes())?;
        let branch = session_repo.git_dir.join(session_repo.branch.full());
        std::fs::create_dir_all(branch.parent().unwrap_or(&session_repo.git_dir))?;
        std::fs::write(branch, format!("{}\n", session_repo.base))?;
        git_dir.write("HEAD", format!("ref: {}\n", session_repo.branch.full()).as_bytes())
    };
    write().or_fail(|| format!("cannot make {}", session_repo.git_dir.display()))?;
    originals.restore(&session_repo.git_dir)?;
    let originals = originals.save_new(&session_repo.git_dir)?;
    Ok(PrivateDirectory { tips, originals })
}

/// Removes copied refs from `packed-refs` whose object no longer exists in the repository, which
/// would make every `git log --all` of the agent fail. Returns their names. Call it only between
/// turns: the agent's git may be writing the file.
pub fn remove_dead_refs(
    repository: &Repository,
    session_repo: &SessionRepo,
) -> Result<Vec<String>> {
    let fail = || "cannot read the private packed-refs";
    let git_dir = SafeDir::open(&session_repo.git_dir).or_fail(fail)?;
    let Some(bytes) = git_dir.read("packed-refs", 256 << 20).or_fail(fail)? else {
        return Ok(Vec::new());
    };
    let repo = repository.open_own()?;
    let odb = repo.odb().or_fail(fail)?;
    let own_objects = session_repo.git_dir.join("objects");
    odb.add_disk_alternate(&own_objects.to_string_lossy()).or_fail(fail)?;
    let text = String::from_utf8_lossy(&bytes);
    let (mut remaining, mut removed, mut is_dead) = (String::new(), Vec::new(), false);
    for line in text.split_inclusive('\n') {
        if !line.starts_with(['#', '^']) {
            let (id, name) = line.trim_end().split_once(' ').unwrap_or_default();
            is_dead = object_format::parse_id(id).is_ok_and(|id| !odb.exists(id));
            if is_dead {
                removed.push(name.to_owned());
            }
        }
        if !is_dead {
            remaining.push_str(line);
        }
    }
    if !removed.is_empty() {
        git_dir
            .write("packed-refs", remaining.as_bytes())
            .or_fail(|| "cannot write packed-refs")?;
    }
    Ok(removed)
}

/// Returns the repository's branches, tags and remote branches as a `packed-refs` file (git
/// documents the format in `refs/packed-backend.c`), and the commits that they point to.
fn packed_refs(
    repo: &git2::Repository,
    template: &BranchTemplate,
) -> Result<(String, Vec<String>)> {
    let mut lines = std::collections::BTreeMap::new();
    let mut tips = Vec::new();
    for prefix in ["refs/heads/", "refs/remotes/", "refs/tags/"] {
        for (name, id) in refs::list(repo, prefix)? {
            let is_ours = name.strip_prefix("refs/heads/").is_some_and(|it| template.matches(it));
            let Ok(object) = repo.find_object(refs::oid(&id)?, None) else { continue };
            if is_ours || name.contains('\n') {
                continue;
            }
            if let Ok(commit) = object.peel_to_commit() {
                tips.push(commit.id().to_string());
            }
            let peeled = match object.as_tag() {
                Some(tag) => match tag.peel() {
                    Ok(target) => format!("^{}\n", target.id()),
                    Err(_) => continue,
                },
                None => String::new(),
            };
            lines.insert(name.clone(), format!("{id} {name}\n{peeled}"));
        }
    }
    tips.sort();
    tips.dedup();
    let refs_text: String = lines.into_values().collect();
    Ok((format!("# pack-refs with: peeled fully-peeled sorted \n{refs_text}"), tips))
}

/// Returns the configuration of a private directory, without anything that could run.
pub fn config(repo: &git2::Repository) -> Result<String> {
    let settings = repo
        .config()
        .and_then(|mut config| config.snapshot())
        .or_fail(|| "cannot read the configuration")?;
    let mut text = String::from(object_format::config(repo.object_format()));
    text.push_str("[core]\n\tbare = false\n\tlogallrefupdates = true\n");
    for key in SHARED_SETTINGS {
        let fallback = match *key {
            "user.name" => Some("studio agent"),
            "user.email" => Some("agent@studio.invalid"),
            _ => None,
        };
        let from_environment = identity_from_environment(key);
        let configured = settings.get_str(key).ok().filter(|value| !value.is_empty());
        let value = from_environment.as_deref().or(configured).or(fallback);
        let (section, name) = key.split_once('.').expect("every shared key has a section");
        if let Some(value) = value {
            let _ = write!(text, "[{section}]\n\t{name} = {}\n", quote(value));
        }
    }
    // The user's own configuration may set them; libgit2 reads neither kind of index.
    text.push_str("[core]\n\tsplitIndex = false\n[index]\n\tsparse = false\n");
    text.push_str("[gc]\n\tauto = 0\n");
    if let Some(partial_clone) = PartialClone::read(&settings) {
        // Without an address: git knows that files may be missing, and fetches none.
        let remote = quote(&partial_clone.remote);
        let _ = write!(text, "[remote {remote}]\n\tpromisor = true\n");
    }
    Ok(text)
}

/// Returns the user's identity from the environment, which git prefers to the configuration.
fn identity_from_environment(key: &str) -> Option<String> {
    let variable = match key {
        "user.name" => "GIT_AUTHOR_NAME",
        "user.email" => "GIT_AUTHOR_EMAIL",
        _ => return None,
    };
    std::env::var(variable).ok().filter(|value| !value.trim().is_empty())
}

/// Returns a value in the syntax of git's configuration files.
pub(crate) fn quote(value: &str) -> String {
    let escaped = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("\"{escaped}\"")
}

/// Returns the ignore list of agents' git: the repository's own, the user's, and the working files of
/// agents that cannot keep them elsewhere (g3, aider's cache of symbols, the permissions that claude and
/// qwen remember).
fn exclude(repo: &git2::Repository, info: &Path) -> Result<Vec<u8>> {
    let mut patterns = std::fs::read(info.join("exclude")).unwrap_or_default();
    let config = repo.config().or_fail(|| "cannot read the configuration")?;
    let user_file = config.get_path("core.excludesfile").ok().or_else(|| {
        let home = base::user_dirs::home_dir().map(|home| home.join(".config"));
        let dir = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).or(home)?;
        Some(dir.join("git/ignore"))
    });
    for content in user_file.into_iter().filter_map(|path| std::fs::read(path).ok()) {
        terminate_line(&mut patterns);
        patterns.extend_from_slice(&content);
    }
    terminate_line(&mut patterns);
    patterns.extend_from_slice(
        b".g3/*\n!.g3/skills/\n.aider.tags.cache.v*/\n\
          .claude/settings.local.json\n.qwen/settings.json\n.qwen/settings.json.orig\n",
    );
    Ok(patterns)
}

fn terminate_line(text: &mut Vec<u8>) {
    if text.last().is_some_and(|last| *last != b'\n') {
        text.push(b'\n');
    }
}

/// Returns the content of the `.git` file of a session's worktree.
pub(crate) fn pointer(session_repo: &SessionRepo) -> Vec<u8> {
    format!("gitdir: {}\n", relative(&session_repo.worktree, &session_repo.git_dir).display())
        .into_bytes()
}

/// Returns `objects/info/alternates` for the objects of a repository. The relative path remains valid
/// if the repository is moved. The absolute one is for programs that resolve a relative path against
/// their current directory (GitPython); after a move git reports it as missing, until
/// [`crate::moved_repository::repair`] updates it.
pub(crate) fn alternates(repository: &Repository, session_repo: &SessionRepo) -> Vec<u8> {
    let repository_objects = repository.common_dir.join("objects");
    let relative = relative(&session_repo.git_dir.join("objects"), &repository_objects);
    let mut lines = [relative.as_os_str().as_bytes(), b"\n"].concat();
    let absolute = repository_objects.as_os_str().as_bytes();
    if !absolute.contains(&b'\n') {
        lines.extend_from_slice(absolute);
        lines.push(b'\n');
    }
    lines
}

fn originals_dir(git_dir: &Path) -> PathBuf {
    git_dir.parent().unwrap_or(git_dir).join("originals")
}

/// Returns the relative path from one directory to another; both absolute, without symlinks.
pub(crate) fn relative(from: &Path, to: &Path) -> PathBuf {
    let common_length = from.components().zip(to.components()).take_while(|(a, b)| a == b).count();
    let ascent = from.components().skip(common_length).map(|_| Path::new(".."));
    let descent = to.components().skip(common_length);
    ascent.chain(descent.map(|part| Path::new(part.as_os_str()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_paths_between_directories() {
        let relative_text =
            |from, to| relative(Path::new(from), Path::new(to)).display().to_string();
        assert_eq!(relative_text("/r/.worktrees/x", "/r/.git/studio/g"), "../../.git/studio/g");
        assert_eq!(relative_text("/a", "/b/c"), "../b/c");
        assert_eq!(relative_text("/r/o", "/r/o/p"), "p");
    }

    #[test]
    fn quoted_values_stay_on_one_line() {
        assert_eq!(quote("a\"b\\c\n[x]"), "\"a\\\"b\\\\c\\n[x]\"");
    }
}
