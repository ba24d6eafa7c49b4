//! Files that a partial clone lacks. Git fetches each one when it reads it; here, those that a step reads
//! are fetched together before it, as `git checkout` does.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use base::failure::{Failure, OrFail, Result};
use base::git::GitError;
use git2::OdbLookupFlags;

use crate::repo::Repository;
use crate::sparse::SparsePatterns;
use crate::{checkout, entry_mode, refs, tree_limits};

/// Files with these names are read from commits for their rules, wherever the patterns put them.
const RULE_FILES: [&[u8]; 2] = [b".gitattributes", b".gitmodules"];

/// Filters of clones that lack directories or commits as well: how their names begin.
const UNSUPPORTED_FILTERS: [&str; 2] = ["tree:", "object:type="];

/// How a repository was cloned in part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PartialClone {
    /// The remote that has the missing objects.
    pub remote: String,
    /// Which objects are missing, as in `git clone --filter`.
    pub filter: Option<String>,
}

impl PartialClone {
    /// Reads the configuration of a repository; `None` if it has all objects.
    pub(crate) fn read(config: &git2::Config) -> Option<PartialClone> {
        let mut promisors = Vec::new();
        if let Ok(mut entries) = config.entries(Some("^remote\\..*\\.promisor$")) {
            while let Some(Ok(entry)) = entries.next() {
                let name = entry.name().ok().and_then(|name| name.strip_prefix("remote."));
                let remote = name.and_then(|name| name.strip_suffix(".promisor"));
                let is_on = remote.is_some() && config.get_bool(entry.name().ok()?) == Ok(true);
                promisors.extend(remote.filter(|_| is_on).map(str::to_owned));
            }
        }
        let remote = promisors.into_iter().next()?;
        let filter = config.get_string(&format!("remote.{remote}.partialclonefilter")).ok();
        Some(PartialClone { remote, filter })
    }

    /// Refuses (2) one that lacks more than files: they would be missing at any moment.
    pub(crate) fn refuse_unsupported(&self) -> Result<()> {
        let filter = self.filter.as_deref().unwrap_or_default();
        let mut parts = filter.trim_start_matches("combine:").split('+');
        let Some(part) =
            parts.find(|part| UNSUPPORTED_FILTERS.iter().any(|start| part.starts_with(start)))
        else {
            return Ok(());
        };
        let (part, remote) = (base::text::printable(part), base::text::printable(&self.remote));
        Err(Failure::usage(format!("a partial clone with the filter {part} is not supported"))
            .because("directories may be missing at any moment; only files may be")
            .hint(format!("git fetch --refetch --filter=blob:none {remote}    then the next"))
            .hint(format!("git config remote.{remote}.partialclonefilter blob:none")))
    }
}

/// Fetches what a checkout of a commit with these patterns reads.
pub(crate) fn fetch_checkout(
    repository: &Repository,
    commit: &str,
    patterns: Option<&SparsePatterns>,
) -> Result<()> {
    let repo = repository.open()?;
    let Some(mut missing) = MissingFiles::of(repository, &repo)? else { return Ok(()) };
    missing.add_tree(&find_tree(&repo, commit)?, Path::new(""), &|path, mode| {
        patterns.is_none_or(|patterns| !patterns.leave_out(path, mode))
    })?;
    missing.fetch()
}

/// Fetches what a merge of two commits reads: the files that both sides changed, and those that one
/// side deleted or added, which may be renames. `repo` sees both; without a merge base, it is that of
/// the commits. Only files of the merge base and of `ours` are fetched: an agent may name any in
/// `theirs`.
pub fn fetch_merge(
    repository: &Repository,
    repo: &git2::Repository,
    (ours, theirs): (&str, &str),
    base: Option<&str>,
) -> Result<()> {
    let Some(mut missing) = MissingFiles::of(repository, repo)? else { return Ok(()) };
    let base = match base {
        Some(base) => base.to_owned(),
        None => match repo.merge_base(refs::oid(ours)?, refs::oid(theirs)?) {
            Ok(base) => base.to_string(),
            Err(_) => return Ok(()),
        },
    };
    let (base, ours) = (find_tree(repo, &base)?, find_tree(repo, ours)?);
    tree_limits::refuse(repo, &[theirs], &ours)?;
    let theirs = find_tree(repo, theirs)?;
    missing.add_tree(&ours, Path::new(""), &|_, _| false)?;
    let our_changes = changes(repo, &base, &ours)?;
    let their_changes = changes(repo, &base, &theirs)?;
    let read = |own: &Changes, other: &Changes| -> Vec<Change> {
        let read = own.iter().filter(|(path, change)| {
            change.before.is_none() || change.after.is_none() || other.contains_key(*path)
        });
        read.map(|(_, change)| *change).collect()
    };
    for change in read(&our_changes, &their_changes) {
        missing.add(change.before.into_iter().chain(change.after));
    }
    for change in read(&their_changes, &our_changes) {
        missing.add(change.before);
    }
    missing.fetch()
}

/// Fetches the files of a commit or tree that differ in another one, an agent's. `repo` sees both.
pub fn fetch_changed(
    repository: &Repository,
    repo: &git2::Repository,
    before: &str,
    after: &str,
) -> Result<()> {
    let Some(mut missing) = MissingFiles::of(repository, repo)? else { return Ok(()) };
    let changes = changes(repo, &find_tree(repo, before)?, &find_tree(repo, after)?)?;
    missing.add(changes.values().filter_map(|change| change.before));
    missing.fetch()
}

/// Fetches the files of a commit's directories in which another commit has changes: git expects them
/// beside the new files. `repo` sees both.
pub(crate) fn fetch_neighbors(
    repository: &Repository,
    repo: &git2::Repository,
    before: &str,
    after: &str,
) -> Result<()> {
    let Some(mut missing) = MissingFiles::of(repository, repo)? else { return Ok(()) };
    let before = find_tree(repo, before)?;
    tree_limits::refuse(repo, &[after], &before)?;
    let after = find_tree(repo, after)?;
    let changes = changes(repo, &before, &after)?;
    let directories = changes.keys().flat_map(|path| path.ancestors().skip(1));
    for directory in directories.collect::<BTreeSet<_>>() {
        let find = |tree: &git2::Tree<'_>| match directory.as_os_str().is_empty() {
            true => repo.find_tree(tree.id()).ok(),
            false => repo.find_tree(tree.get_path(directory).ok()?.id()).ok(),
        };
        let (Some(old), Some(_)) = (find(&before), find(&after)) else { continue };
        let files = old.iter().filter(|entry| entry.kind() == Some(git2::ObjectType::Blob));
        missing.add(files.map(|entry| entry.id()));
    }
    missing.fetch()
}

fn find_tree<'r>(repo: &'r git2::Repository, id: &str) -> Result<git2::Tree<'r>> {
    let object = repo.find_object(refs::oid(id)?, None);
    object.and_then(|object| object.peel_to_tree()).or_fail(cannot)
}

/// Returns whether a repository is a partial clone.
pub(crate) fn is_partial(repo: &git2::Repository) -> Result<bool> {
    Ok(read(repo)?.is_some())
}

/// Lets this process make trees that refer to missing files, if the repository is a partial clone.
/// Objects are verified when they are imported.
pub(crate) fn allow_missing_files(repo: &git2::Repository) -> Result<()> {
    if is_partial(repo)? {
        git2::opts::strict_object_creation(false);
    }
    Ok(())
}

fn read(repo: &git2::Repository) -> Result<Option<PartialClone>> {
    Ok(PartialClone::read(&repo.config().or_fail(cannot)?))
}

/// A change of a path: its file before and after.
#[derive(Clone, Copy, Debug, Default)]
struct Change {
    before: Option<git2::Oid>,
    after: Option<git2::Oid>,
}

type Changes = BTreeMap<PathBuf, Change>;

fn changes(
    repo: &git2::Repository,
    before: &git2::Tree<'_>,
    after: &git2::Tree<'_>,
) -> Result<Changes> {
    let file = |id: git2::Oid, mode: u32| (mode != entry_mode::GITLINK).then_some(id);
    let changes = checkout::tree_changes(repo, before, after)?.into_iter().map(|change| {
        let [before, after] =
            [change.before, change.after].map(|entry| entry.and_then(|it| file(it.id, it.mode)));
        (change.path, Change { before, after })
    });
    Ok(changes.collect())
}

/// The files that a step reads and that are missing.
struct MissingFiles<'r> {
    repository: &'r Repository,
    repo: &'r git2::Repository,
    odb: git2::Odb<'r>,
    remote: String,
    ids: BTreeSet<git2::Oid>,
}

impl<'r> MissingFiles<'r> {
    /// Returns `None` for a repository that has all objects.
    fn of(
        repository: &'r Repository,
        repo: &'r git2::Repository,
    ) -> Result<Option<MissingFiles<'r>>> {
        let Some(PartialClone { remote, .. }) = read(&*repository.open()?)? else {
            return Ok(None);
        };
        let odb = repo.odb().or_fail(cannot)?;
        odb.refresh().or_fail(cannot)?;
        Ok(Some(MissingFiles { repository, repo, odb, remote, ids: BTreeSet::new() }))
    }

    /// Adds the files below a directory that are selected, and those with rules.
    fn add_tree(
        &mut self,
        tree: &git2::Tree<'_>,
        directory: &Path,
        is_selected: &dyn Fn(&Path, u32) -> bool,
    ) -> Result<()> {
        for entry in tree {
            let path = directory.join(OsStr::from_bytes(entry.name_bytes()));
            match entry.kind() {
                Some(git2::ObjectType::Tree) => {
                    let subtree = self.repo.find_tree(entry.id()).or_fail(cannot)?;
                    self.add_tree(&subtree, &path, is_selected)?;
                }
                Some(git2::ObjectType::Blob) => {
                    let mode = u32::try_from(entry.filemode()).unwrap_or(entry_mode::FILE);
                    if RULE_FILES.contains(&entry.name_bytes()) || is_selected(&path, mode) {
                        self.add([entry.id()]);
                    }
                }
                Some(_) | None => {}
            }
        }
        Ok(())
    }

    /// Adds those of these files that are missing.
    fn add(&mut self, ids: impl IntoIterator<Item = git2::Oid>) {
        let is_missing = |id: &git2::Oid| !self.odb.exists_ext(*id, OdbLookupFlags::NO_REFRESH);
        self.ids.extend(ids.into_iter().filter(is_missing));
    }

    /// Fetches them in one connection.
    fn fetch(self) -> Result<()> {
        if self.ids.is_empty() {
            return Ok(());
        }
        let ids: String = self.ids.iter().map(|id| format!("{id}\n")).collect();
        self.repository.git().fetch_objects(&self.remote, &ids).map_err(|error| {
            let (count, remote) = (self.ids.len(), base::text::printable(&self.remote));
            let plural = if count == 1 { "" } else { "s" };
            Failure::failed(format!("cannot fetch {count} file{plural} that this clone lacks"))
                .because(match error {
                    GitError::Failed { stderr, .. } => stderr,
                    GitError::Start(error) => error.to_string(),
                })
                .hint(format!("git fetch {remote}    whether the remote can be reached"))
                .hint(format!("git fetch --refetch --no-filter {remote}    fetches all files"))
        })?;
        self.odb.refresh().or_fail(cannot)
    }
}

fn cannot() -> &'static str {
    "cannot find the files that this partial clone lacks"
}
