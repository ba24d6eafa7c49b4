//! Files that a partial clone lacks. Git fetches each one when it reads it; here, those that a step reads
//! are fetched together before it, as `git checkout` does.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use base::failure::{Failure, OrFail, Result};
use base::git::GitError;
use git2::OdbLookupFlags;

use crate::repo::Repository;
use crate::sparse::SparsePatterns;
use crate::{entry_mode, refs, tree_diff};

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
        let part = base::text::printable(part);
        Err(Failure::usage(format!("a partial clone with the filter {part} is not supported"))
            .because("directories may be missing at any moment; only files may be")
            .hint(format!("git fetch --refetch --filter=blob:none {}", self.remote))
            .hint(format!("git config remote.{}.partialclonefilter blob:none", self.remote)))
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
/// the commits.
pub fn fetch_merge(
    repository: &Repository,
    repo: &git2::Repository,
    (ours, theirs): (&str, &str),
    base: Option<&str>,
) -> Result<()> {
    let Some(mut missing) = MissingFiles::of(repository, repo)? else { return Ok(()) };
    let (ours, theirs) = (refs::oid(ours)?, refs::oid(theirs)?);
    let base = match base {
        Some(base) => refs::oid(base)?,
        None => match repo.merge_base(ours, theirs) {
            Ok(base) => base,
            Err(_) => return Ok(()),
        },
    };
    let [base, ours, theirs] = [base, ours, theirs].map(|id| find_tree(repo, &id.to_string()));
    let (base, ours, theirs) = (base?, ours?, theirs?);
    missing.add_tree(&ours, Path::new(""), &|_, _| false)?;
    let sides = [changes(repo, &base, &ours)?, changes(repo, &base, &theirs)?];
    for (own, other) in [(&sides[0], &sides[1]), (&sides[1], &sides[0])] {
        for change in own {
            let is_common = || other.iter().any(|it| it.path == change.path);
            if change.ids.len() == 1 || is_common() {
                missing.add(&change.ids);
            }
        }
    }
    missing.fetch()
}

/// Fetches the files that differ between two commits or trees. `repo` sees both.
pub fn fetch_changed(
    repository: &Repository,
    repo: &git2::Repository,
    before: &str,
    after: &str,
) -> Result<()> {
    let Some(mut missing) = MissingFiles::of(repository, repo)? else { return Ok(()) };
    for change in changes(repo, &find_tree(repo, before)?, &find_tree(repo, after)?)? {
        missing.add(&change.ids);
    }
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
    let (before, after) = (find_tree(repo, before)?, find_tree(repo, after)?);
    let changes = changes(repo, &before, &after)?;
    let directories = changes.iter().flat_map(|change| change.path.ancestors().skip(1));
    for directory in directories.collect::<BTreeSet<_>>() {
        let find = |tree: &git2::Tree<'_>| match directory.as_os_str().is_empty() {
            true => repo.find_tree(tree.id()).ok(),
            false => repo.find_tree(tree.get_path(directory).ok()?.id()).ok(),
        };
        let (Some(old), Some(_)) = (find(&before), find(&after)) else { continue };
        let files = old.iter().filter(|entry| entry.kind() == Some(git2::ObjectType::Blob));
        missing.add(&files.map(|entry| entry.id()).collect::<Vec<_>>());
    }
    missing.fetch()
}

fn find_tree<'r>(repo: &'r git2::Repository, id: &str) -> Result<git2::Tree<'r>> {
    let object = repo.find_object(refs::oid(id)?, None);
    object.and_then(|object| object.peel_to_tree()).or_fail(cannot)
}

/// Returns whether a repository is a partial clone. Then new trees may refer to files that are missing.
pub(crate) fn is_partial(repo: &git2::Repository) -> Result<bool> {
    Ok(read(repo)?.is_some())
}

fn read(repo: &git2::Repository) -> Result<Option<PartialClone>> {
    let partial_clone = PartialClone::read(&repo.config().or_fail(cannot)?);
    if partial_clone.is_some() {
        git2::opts::strict_object_creation(false);
    }
    Ok(partial_clone)
}

/// A changed path, with the files before and after.
struct Change {
    path: PathBuf,
    ids: Vec<git2::Oid>,
}

fn changes(
    repo: &git2::Repository,
    before: &git2::Tree<'_>,
    after: &git2::Tree<'_>,
) -> Result<Vec<Change>> {
    let diff = tree_diff::diff_trees(repo, Some(before), Some(after), git2::DiffOptions::new())
        .or_fail(cannot)?;
    let deltas = diff.deltas().filter_map(|delta| {
        let files = [delta.old_file(), delta.new_file()];
        let path = files.iter().find_map(git2::DiffFile::path_bytes)?;
        let files = files.iter().filter(|file| !file.id().is_zero());
        let files = files.filter(|file| file.mode() != git2::FileMode::Commit);
        let path = PathBuf::from(OsStr::from_bytes(path));
        Some(Change { path, ids: files.map(git2::DiffFile::id).collect() })
    });
    Ok(deltas.collect())
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
                        self.add(&[entry.id()]);
                    }
                }
                Some(_) | None => {}
            }
        }
        Ok(())
    }

    /// Adds those of these files that are missing.
    fn add(&mut self, ids: &[git2::Oid]) {
        let is_missing = |id: &&git2::Oid| !self.odb.exists_ext(**id, OdbLookupFlags::NO_REFRESH);
        self.ids.extend(ids.iter().filter(is_missing));
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
