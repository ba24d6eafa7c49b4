//! The tree of the last `studio diff` on a terminal, so that `accept` can warn if the work has
//! changed since.

use base::failure::{OrFail, Result};
use base::id::Id;
use serde::{Deserialize, Serialize};

use studio_git::repo::Repository;

/// The file in the session's directory.
const FILE_NAME: &str = "shown.json";

#[derive(Serialize, Deserialize)]
struct Shown {
    tree: String,
}

/// Records the displayed tree, in hexadecimal digits.
pub fn record(repository: &Repository, id: &Id, tree: &str) -> Result<()> {
    let path = repository.session_dir(id).join(FILE_NAME);
    base::files::replace_json(&path, &Shown { tree: tree.to_owned() })
        .or_fail(|| format!("cannot write {}", path.display()))
}

/// Returns the tree that was displayed last; `None` if none was.
pub fn read(repository: &Repository, id: &Id) -> Option<String> {
    let text = std::fs::read(repository.session_dir(id).join(FILE_NAME)).ok()?;
    serde_json::from_slice::<Shown>(&text).ok().map(|record| record.tree)
}
