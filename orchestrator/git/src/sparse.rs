//! Sparse checkouts: sessions start with the patterns of the user's checkout, and landings leave out
//! of a checkout what its patterns leave out.

use std::path::Path;

use base::failure::{Failure, OrFail, Result};
use base::git::Git;
use base::process::OutputLimits;
use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use crate::entry_mode;

/// The file with the patterns, in a git directory.
pub(crate) const PATTERNS_FILE: &str = "info/sparse-checkout";

/// The patterns of a sparse checkout.
#[derive(Clone, Debug)]
pub(crate) struct SparsePatterns {
    /// The content of the file.
    pub text: Vec<u8>,
    /// Whether git reads them as directories (`core.sparseCheckoutCone`).
    pub is_cone: bool,
    matcher: Gitignore,
}

impl SparsePatterns {
    /// Returns the patterns of a checkout, by its git directory; `None` if it has all files.
    pub(crate) fn of_checkout(git_dir: &Path) -> Result<Option<SparsePatterns>> {
        let config = crate::repo::open_any(git_dir).and_then(|repo| repo.config());
        let config = config.or_fail(|| "cannot read the configuration")?;
        if !config.get_bool("core.sparsecheckout").unwrap_or(false) {
            return Ok(None);
        }
        let is_cone = config.get_bool("core.sparsecheckoutcone").unwrap_or(false);
        SparsePatterns::read(&git_dir.join(PATTERNS_FILE), is_cone)
    }

    /// Reads a file of patterns; git leaves nothing out without one.
    pub(crate) fn read(path: &Path, is_cone: bool) -> Result<Option<SparsePatterns>> {
        let fail = || format!("cannot read {}", path.display());
        match std::fs::read(path) {
            Ok(text) => SparsePatterns::parse(text, is_cone).or_fail(fail).map(Some),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Failure::failed(fail()).because(error)),
        }
    }

    fn parse(text: Vec<u8>, is_cone: bool) -> std::result::Result<SparsePatterns, ignore::Error> {
        let mut builder = GitignoreBuilder::new("");
        for line in String::from_utf8_lossy(&text).lines() {
            builder.add_line(None, line)?;
        }
        Ok(SparsePatterns { matcher: builder.build()?, text, is_cone })
    }

    /// Returns the settings with which git applies the patterns.
    pub(crate) fn settings(&self) -> String {
        let is_cone = self.is_cone;
        format!("[core]\n\tsparseCheckout = true\n\tsparseCheckoutCone = {is_cone}\n")
    }

    /// Returns whether the patterns leave a path out. As in git, the last pattern that matches the
    /// path decides, else the last one that matches the nearest directory above.
    pub(crate) fn leave_out(&self, path: &Path, mode: u32) -> bool {
        let mut is_directory = mode == entry_mode::GITLINK;
        for part in path.ancestors().filter(|part| !part.as_os_str().is_empty()) {
            match self.matcher.matched(part, is_directory) {
                Match::Ignore(_) => return false,
                Match::Whitelist(_) => return true,
                Match::None => is_directory = true,
            }
        }
        true
    }
}

/// Writes files and index of a commit into a worktree; then `staged` becomes the index. With sparse
/// patterns, `git read-tree` leaves out work that is outside of them: what differs from HEAD is
/// written nevertheless. `written` is called while the index has the commit.
pub(crate) fn read_trees(
    git: &Git,
    work: &str,
    staged: &str,
    written: impl FnOnce() -> Result<()>,
) -> Result<()> {
    run(git, &["read-tree", "--reset", "-u", work], Vec::new())?;
    if is_sparse(git)? {
        let differing = ["diff-tree", "-r", "-z", "--name-only", "--diff-filter=d", "HEAD", work];
        let paths = run(git, &differing, Vec::new())?;
        run(git, &["checkout-index", "-f", "-q", "-z", "--stdin", IGNORE_BITS], paths)?;
    }
    written()?;
    run(git, &["read-tree", "--reset", staged], Vec::new()).map(drop)
}

/// The option with which `git checkout-index` writes files that sparse patterns leave out.
const IGNORE_BITS: &str = "--ignore-skip-worktree-bits";

fn is_sparse(git: &Git) -> Result<bool> {
    let output = git.command(["config", "--type=bool", "core.sparseCheckout"]);
    let output = output.output(OutputLimits::seconds(60)).or_fail(|| "cannot start git")?;
    Ok(output.text().trim() == "true")
}

fn run(git: &Git, args: &[&str], input: Vec<u8>) -> Result<Vec<u8>> {
    let limits = OutputLimits { bytes: 1 << 30, ..OutputLimits::seconds(3600) };
    let output = git.command(args).input(input).output(limits).or_fail(|| "cannot start git")?;
    match output.ok() {
        true => Ok(output.stdout),
        false => Err(Failure::failed("cannot write the files of the worktree")
            .because(output.error_text())
            .hint("check the disk space (`df .`), then try again")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left_out(patterns: &str, paths: &[&str]) -> Vec<bool> {
        let patterns = SparsePatterns::parse(patterns.as_bytes().to_vec(), false).unwrap();
        paths.iter().map(|path| patterns.leave_out(Path::new(path), 0o100_644)).collect()
    }

    #[test]
    fn the_last_pattern_of_the_nearest_directory_decides() {
        let cone = "/*\n!/*/\n/a/\n!/a/*/\n/a/b/\n";
        let paths = ["top", "a/x", "a/b/x", "a/b/c/x", "a/c/x", "d/x", "d/a/x"];
        assert_eq!(left_out(cone, &paths), [false, false, false, false, true, true, true]);
        let patterns = "/*\n!/a/b/\n!*.bin\n/a/b/keep\n# a comment\n\n";
        let paths = ["top", "a/x", "a/b/x", "a/b/keep", "x.bin", "a/c/x.bin", "a/b/d/x"];
        assert_eq!(left_out(patterns, &paths), [false, false, true, false, true, true, true]);
    }
}
