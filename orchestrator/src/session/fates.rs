//! What became of sessions, read from the operations log.

use std::collections::BTreeMap;

use base::failure::Result;
use base::id::Id;

use crate::git::repo::Repository;
use crate::session::facts::Fate;

/// What became of every session that an operation took up.
pub fn read(_repository: &Repository) -> Result<BTreeMap<Id, Fate>> {
    Ok(BTreeMap::new())
}
