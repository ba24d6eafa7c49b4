//! Walks a directory like ripgrep: on several threads, respecting `.gitignore`, without following
//! links.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::SystemTime;

use ignore::{DirEntry, WalkBuilder, WalkState};
use tokio_util::sync::CancellationToken;

/// What a walk skips.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skip {
    /// Hidden files and files ignored by `.gitignore`.
    IgnoredAndHidden,
    /// Files ignored by `.gitignore`.
    Ignored,
    /// Hidden files.
    Hidden,
}

/// A file found by a walk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalkedFile<T> {
    /// Its path.
    pub path: PathBuf,
    /// Its modification time.
    pub modified: SystemTime,
    /// The result of the visitor.
    pub result: T,
}

/// Visits all files below a directory (or a single file) on several threads. Each thread has its
/// own `inspect` function, which returns what to keep.
pub fn files<T: Send, L: FnMut(&Path) -> Option<T> + Send>(
    root: &Path,
    skip: Skip,
    cancel: &CancellationToken,
    inspect: impl Fn() -> L,
) -> Vec<WalkedFile<T>> {
    let files = Mutex::new(Vec::new());
    let mut builder = WalkBuilder::new(root);
    let ignored = skip != Skip::Hidden;
    builder
        .standard_filters(ignored)
        .hidden(skip != Skip::Ignored)
        .require_git(false)
        .follow_links(false)
        .filter_entry(|entry| entry.file_name() != ".git");
    let visit = |entry: &DirEntry, inspect: &mut L| {
        if !entry.file_type().is_some_and(|kind| kind.is_file()) {
            return;
        }
        let Some(result) = inspect(entry.path()) else { return };
        let modified = entry.metadata().ok().and_then(|metadata| metadata.modified().ok());
        let modified = modified.unwrap_or(SystemTime::UNIX_EPOCH);
        let path = entry.path().to_owned();
        files.lock().unwrap_or_else(|e| e.into_inner()).push(WalkedFile { path, modified, result });
    };
    let visit = &visit;
    builder.build_parallel().run(|| {
        let mut inspect = inspect();
        Box::new(move |entry| {
            if cancel.is_cancelled() {
                return WalkState::Quit;
            }
            if let Ok(entry) = &entry {
                visit(entry, &mut inspect);
            }
            WalkState::Continue
        })
    });
    files.into_inner().unwrap_or_else(|e| e.into_inner())
}

/// Sorts by modification time, newest first, then by path.
pub fn newest_first<T>(files: &mut [WalkedFile<T>]) {
    files.sort_by(|a, b| b.modified.cmp(&a.modified).then_with(|| a.path.cmp(&b.path)));
}
