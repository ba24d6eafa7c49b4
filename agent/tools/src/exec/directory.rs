//! The directory in which commands start; some profiles keep it from one call to the next.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::profile::ProfileTool;
use gate::paths;

/// Whether the tool keeps the directory between calls.
pub fn is_persistent(tool: &ProfileTool) -> bool {
    tool.defaults.get("keep_directory").and_then(Value::as_bool).unwrap_or(false)
}

/// Returns the directory in which the last command of a session ended, if it still exists below the
/// root.
pub(crate) fn load(session_dir: &Path, root: &Path) -> Option<PathBuf> {
    let text = base::files::read_text(&file(session_dir)).ok()?;
    let path = paths::follow(Path::new(&text)).ok()?;
    (path.is_dir() && paths::is_inside(&path, root)).then_some(path)
}

/// Stores the directory in which a command ended.
pub fn store(session_dir: &Path, path: &Path) {
    let file = file(session_dir);
    let Some(parent) = file.parent() else { return };
    // If it cannot be stored, the next command starts in the working directory.
    let _ = std::fs::create_dir_all(parent)
        .and_then(|()| base::files::replace(&file, path.as_os_str().as_encoded_bytes()));
}

fn file(session_dir: &Path) -> PathBuf {
    session_dir.join("tools/directory")
}
