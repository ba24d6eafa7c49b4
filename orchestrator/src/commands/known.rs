//! Which recorded check lines may run. Receipts travel with the repository, so a line in one may
//! be a stranger's; a line runs by itself only where this machine had it before.

use std::collections::BTreeSet;

use base::failure::Result;

use crate::commands::desk::Desk;
use studio_git::landings::Receipt;
use studio_git::operations;

/// The lines of the trusted configuration, of sessions that were made here, and of landings that
/// were done here: none of them comes along when a repository is cloned or fetched.
pub fn lines(desk: &Desk) -> Result<BTreeSet<String>> {
    let mut known: BTreeSet<String> = desk.config.studio.checks.list().into_iter().collect();
    for id in desk.store.ids()? {
        // A session that cannot be read vouches for nothing.
        if let Ok(record) = desk.store.load(&id) {
            known.extend(record.checks);
        }
    }
    for receipt in operations::receipts(&desk.repository)? {
        if let Ok(receipt) = serde_json::from_str::<Receipt>(&receipt) {
            known.extend(receipt.checks.into_iter().map(|check| check.command));
        }
    }
    Ok(known)
}
