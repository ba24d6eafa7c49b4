//! Combines the small packs that sessions leave. git does this after the user's own commits and fetches;
//! a repository in which only studio works would collect packs without end, and each of them makes every
//! search for an object slower.

use std::path::Path;

use base::failure::{OrFail, Result};
use base::git::Git;
use base::lock::Lock;
use base::process::OutputLimits;

use crate::repo::Repository;

/// The number of packs above which they are combined, as `gc.autoPackLimit` of git.
const DEFAULT_PACK_LIMIT: usize = 50;
/// Timeout, in seconds.
const REPACK_SECONDS: u64 = 3600;

/// Combines packs if there are many, unless the user has switched that off for git, or another process
/// does it. Returns whether it was done. No object is deleted.
pub fn run_if_needed(repository: &Repository) -> Result<bool> {
    let packs = repository.common_dir.join("objects/pack");
    let count = pack_count(&packs);
    if count <= DEFAULT_PACK_LIMIT || count <= pack_limit(repository)? {
        return Ok(false);
    }
    let path = repository.studio_dir()?.join("repack.lock");
    let lock = Lock::try_take(&path).or_fail(|| format!("cannot lock {}", path.display()))?;
    if lock.is_none() {
        return Ok(false);
    }
    let git = Git::at(&repository.common_dir);
    // A bitmap of some packs only is an error, if the user has configured bitmaps.
    let no_bitmap = "--no-write-bitmap-index";
    let repack = git.command(["repack", "-d", "-l", "-q", "--geometric=2", no_bitmap]);
    let output = repack.output(OutputLimits::seconds(REPACK_SECONDS));
    Ok(output.or_fail(|| "cannot start git")?.ok())
}

/// Returns the number of packs that git may combine.
fn pack_count(packs: &Path) -> usize {
    let names = std::fs::read_dir(packs).into_iter().flatten().flatten();
    let paths = names.map(|entry| entry.path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "idx")).count()
}

/// Returns the user's limit; more than any number of packs if automatic maintenance is switched off.
fn pack_limit(repository: &Repository) -> Result<usize> {
    let fail = || "cannot read the configuration";
    let config = repository.open()?.config().and_then(|mut it| it.snapshot()).or_fail(fail)?;
    let is_off = |key: &str| config.get_i64(key) == Ok(0);
    if is_off("gc.auto") || config.get_bool("maintenance.auto") == Ok(false) {
        return Ok(usize::MAX);
    }
    Ok(match config.get_i64("gc.autopacklimit") {
        Ok(0) => usize::MAX,
        Ok(limit) => usize::try_from(limit).unwrap_or(DEFAULT_PACK_LIMIT),
        Err(_) => DEFAULT_PACK_LIMIT,
    })
}
