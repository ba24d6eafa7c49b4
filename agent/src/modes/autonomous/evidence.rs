//! The changes since a run began, as g3 itself sees them: compares the files with a git tree or,
//! without git, with a list of all files, and cuts the result to fit.

use base::config::trust::hash;
use base::failure::{OrFail, Result};
use ignore::WalkBuilder;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use agent_core::run::root_of;
use agent_core::session::checkpoint::Checkpoints;

/// The state of the files when a run began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RunBaseline {
    /// A git tree, which includes uncommitted files; used outside of repositories too.
    Tree(String),
    /// A list of all files, if git is not installed.
    List,
}

/// The changes since a run began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EvidenceChanges {
    /// One line for each file: `A`, `M` or `D`, and its path.
    pub files: Vec<String>,
    /// The diffs of the text files, cut to fit.
    pub diff: String,
    /// What is not shown, one sentence each.
    pub notes: Vec<String>,
}

/// The directories of the evidence.
#[derive(Clone, Debug)]
pub(crate) struct EvidencePaths {
    /// The working directory.
    pub cwd: PathBuf,
    /// The session's directory.
    pub keep: PathBuf,
}

impl EvidencePaths {
    /// Records the current state of all files.
    pub(crate) async fn begin(&self) -> Result<RunBaseline> {
        let place = self.clone();
        on_a_thread(move || match base::git_version::detect() {
            Ok(_) => place.trees()?.take_snapshot().map(RunBaseline::Tree),
            Err(_) => write(&place.cwd, &place.keep).map(|()| RunBaseline::List),
        })
        .await
    }

    /// Returns the changes since `start`, in about `room` bytes at most.
    pub(crate) async fn since(&self, start: &RunBaseline, room: usize) -> Result<EvidenceChanges> {
        let (place, start) = (self.clone(), start.clone());
        on_a_thread(move || place.look(&start, room)).await
    }

    fn look(&self, start: &RunBaseline, room: usize) -> Result<EvidenceChanges> {
        match start {
            RunBaseline::List => {
                let files = changed(&self.cwd, &self.keep)?;
                let notes = vec!["no git, so no diff: read the files".to_owned()];
                Ok(to_fit(files, "", notes, room))
            }
            RunBaseline::Tree(then) => {
                let trees = self.trees()?;
                let (files, diff) = trees.difference(then, &trees.take_snapshot()?)?;
                Ok(to_fit(files, &diff, Vec::new(), room))
            }
        }
    }

    fn trees(&self) -> Result<Checkpoints> {
        Checkpoints::open(&self.keep, &root_of(&self.cwd))
    }
}

/// Runs blocking work, i.e. git or a directory walk, on a thread, so that signals are handled.
async fn on_a_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await.or_fail(|| "cannot collect the changes")?
}

/// Minimum number of bytes shown of a file's diff.
const LEAST: usize = 400;

/// Cuts changes to about `room` bytes: a third for the list, the rest for the diffs.
pub(crate) fn to_fit(
    files: Vec<String>,
    diff: &str,
    mut notes: Vec<String>,
    room: usize,
) -> EvidenceChanges {
    let count = files.len();
    let mut remaining = room / 3;
    let fits = |line: &String| {
        let needed = line.len() + 1;
        let fits = needed <= remaining;
        remaining = remaining.saturating_sub(needed);
        fits
    };
    let files: Vec<String> = files.into_iter().take_while(fits).collect();
    if files.len() < count {
        notes.push(format!("{} more files changed than are listed", count - files.len()));
    }
    let parts = parts(diff);
    let shares = shares(&parts.iter().map(|part| part.len()).collect::<Vec<_>>(), room * 2 / 3);
    let mut text = String::new();
    let mut hidden = 0;
    for (part, share) in parts.iter().zip(shares) {
        if share == 0 {
            hidden += 1;
        } else if share >= part.len() {
            text.push_str(part);
        } else {
            let kept = base::text::head(part, share);
            let lines = part[kept.len()..].lines().count();
            text.push_str(&format!("{kept}\n[cut: {lines} more lines of this diff]\n"));
        }
    }
    if hidden > 0 {
        notes.push(format!("the diffs of {hidden} files are not shown: read those files"));
    }
    EvidenceChanges { files, diff: text, notes }
}

/// Splits a diff into the diffs of its files.
fn parts(diff: &str) -> Vec<&str> {
    let starts: Vec<usize> = std::iter::once(0)
        .chain(diff.match_indices("\ndiff --git ").map(|(index, _)| index + 1))
        .chain([diff.len()])
        .collect();
    let parts = starts.windows(2).map(|pair| &diff[pair[0]..pair[1]]);
    parts.filter(|part| !part.is_empty()).collect()
}

/// Divides the bytes over the diffs: short ones are shown in full, long ones get equal shares. The
/// last ones get nothing if less than [`LEAST`] is left for each.
fn shares(lengths: &[usize], room: usize) -> Vec<usize> {
    let count = lengths.len().min((room / LEAST).max(1));
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by_key(|index| lengths[*index]);
    let mut shares = vec![0; lengths.len()];
    let mut remaining = room;
    for (done, index) in order.into_iter().enumerate() {
        shares[index] = lengths[index].min(remaining / (count - done));
        remaining -= shares[index];
    }
    shares
}

/// Maximum number of files; any further ones are not observed.
const MOST: usize = 20_000;
/// Maximum size in bytes of a file that is hashed; longer ones are compared by size.
const HASHED: u64 = 10 << 20;

const NAME: &str = "files.json";

type Files = BTreeMap<String, (u64, String)>;

/// Writes the list of all files.
pub(crate) fn write(cwd: &Path, keep: &Path) -> Result<()> {
    let file = keep.join(NAME);
    base::files::replace_json(&file, &files(cwd))
        .or_fail(|| format!("cannot write {}", file.display()))
}

/// Returns the differences from that list, one line each.
pub(crate) fn changed(cwd: &Path, keep: &Path) -> Result<Vec<String>> {
    let file = keep.join(NAME);
    let cannot = || format!("cannot read {}", file.display());
    let then: Files =
        serde_json::from_slice(&base::files::read(&file).or_fail(cannot)?).or_fail(cannot)?;
    let now = files(cwd);
    let added = now.keys().filter(|name| !then.contains_key(*name)).map(|name| ("A", name));
    let changed = now.iter().filter(|(name, facts)| then.get(*name).is_some_and(|t| t != *facts));
    let changed = changed.map(|(name, _)| ("M", name));
    let removed = then.keys().filter(|name| !now.contains_key(*name)).map(|name| ("D", name));
    let mut all: Vec<(&str, &String)> = added.chain(changed).chain(removed).collect();
    all.sort_by_key(|(_, name)| *name);
    Ok(all.into_iter().map(|(mark, name)| format!("{mark} {name}")).collect())
}

fn files(cwd: &Path) -> Files {
    let mut walk = WalkBuilder::new(cwd);
    walk.hidden(false).require_git(false).follow_links(false);
    walk.filter_entry(|entry| entry.file_name() != ".g3" && entry.file_name() != ".git");
    let entries = walk.build().flatten().filter(|e| e.file_type().is_some_and(|t| t.is_file()));
    let facts = entries.take(MOST).filter_map(|entry| {
        let name = entry.path().strip_prefix(cwd).ok()?.to_string_lossy().into_owned();
        let size = entry.metadata().ok()?.len();
        let sum = if size <= HASHED {
            hash(&base::files::read(entry.path()).ok()?)
        } else {
            String::new()
        };
        Some((name, (size, sum)))
    });
    facts.collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn diff(lines: &[usize]) -> String {
        let one = |(n, lines): (usize, &usize)| {
            format!("diff --git a/{n} b/{n}\n{}", "+line\n".repeat(*lines))
        };
        lines.iter().enumerate().map(one).collect()
    }

    #[test]
    fn changes_that_fit_are_shown_in_full() {
        let text = diff(&[3, 5]);
        let changes = to_fit(vec!["M 0".into(), "M 1".into()], &text, Vec::new(), 10_000);
        assert_eq!(changes.diff, text);
        assert!(changes.notes.is_empty());
    }

    #[test]
    fn a_long_diff_leaves_room_for_the_short_ones() {
        let changes = to_fit(vec!["M 0".into()], &diff(&[10_000, 4]), Vec::new(), 3_000);
        assert!(changes.diff.contains("[cut: ") && changes.diff.len() < 2_200);
        assert!(changes.diff.ends_with("b/1\n+line\n+line\n+line\n+line\n"), "{}", changes.diff);
    }

    #[test]
    fn omitted_changes_are_counted() {
        let files = (0..500).map(|n| format!("A file-{n}")).collect();
        let changes = to_fit(files, &diff(&[100; 50]), Vec::new(), 3_000);
        let notes = changes.notes.join("; ");
        assert!(notes.contains("more files changed than are listed"), "{notes}");
        assert!(notes.contains("are not shown"), "{notes}");
        assert!(changes.diff.len() < 2_500);
    }

    #[test]
    fn added_changed_and_removed_files_are_listed() {
        let dir = tempfile::tempdir().unwrap();
        let (cwd, keep) = (dir.path(), dir.path().join(".g3/keep"));
        fs::create_dir_all(&keep).unwrap();
        for name in ["same", "other", "gone"] {
            fs::write(cwd.join(name), name).unwrap();
        }
        write(cwd, &keep).unwrap();
        assert!(changed(cwd, &keep).unwrap().is_empty());
        fs::write(cwd.join("other"), "rehto").unwrap();
        fs::remove_file(cwd.join("gone")).unwrap();
        fs::write(cwd.join("new"), "").unwrap();
        assert_eq!(changed(cwd, &keep).unwrap(), ["D gone", "A new", "M other"]);
    }

    proptest::proptest! {
        #[test]
        fn shares_never_exceed_the_room(lengths in proptest::collection::vec(0usize..5_000, 0..40), room in 0usize..9_000) {
            let shares = shares(&lengths, room);
            proptest::prop_assert!(shares.iter().sum::<usize>() <= room);
            proptest::prop_assert!(shares.iter().zip(&lengths).all(|(share, length)| share <= length));
        }
    }
}
