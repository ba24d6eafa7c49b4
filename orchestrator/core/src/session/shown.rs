//! What a person was shown of a session last: the tree of the last `studio diff` on a terminal, so
//! that `accept` can say when something else would land.

use base::failure::{OrFail, Result};
use base::id::Id;
use serde::{Deserialize, Serialize};

use studio_git::repo::Repository;

/// The file in the session's directory.
const FILE: &str = "shown.json";

#[derive(Serialize, Deserialize)]
struct Shown {
    tree: String,
}

/// Writes down the tree that was shown, as 40 hexadecimal digits.
pub fn record(repository: &Repository, id: &Id, tree: &str) -> Result<()> {
    let path = repository.session_dir(id).join(FILE);
    base::files::replace_json(&path, &Shown { tree: tree.to_owned() })
        .or_fail(|| format!("cannot write {}", path.display()))
}

/// Returns the tree that was shown last; none before the first time.
pub(crate) fn last(repository: &Repository, id: &Id) -> Option<String> {
    let text = std::fs::read(repository.session_dir(id).join(FILE)).ok()?;
    serde_json::from_slice::<Shown>(&text).ok().map(|shown| shown.tree)
}
