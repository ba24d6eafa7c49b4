//! Which recorded check lines may run. Receipts travel with the repository, so a line in one may
//! be a stranger's; a line runs by itself only where this machine had it before.

use std::collections::BTreeSet;

use base::failure::Result;

use crate::commands::context::CommandContext;
use studio_git::landing_history::Receipt;
use studio_git::oplog;

/// Returns the lines of the trusted configuration, of sessions that were made here, and of landings
/// that were done here: none of them comes along when a repository is cloned or fetched.
pub(crate) fn lines(context: &CommandContext) -> Result<BTreeSet<String>> {
    let mut known: BTreeSet<String> = context.config.studio.checks.list().into_iter().collect();
    for id in context.store.ids()? {
        // A session that cannot be read vouches for nothing.
        if let Ok(record) = context.store.load(&id) {
            known.extend(record.checks);
        }
    }
    for receipt in oplog::receipts(&context.repository)? {
        if let Ok(receipt) = serde_json::from_str::<Receipt>(&receipt) {
            known.extend(receipt.checks.into_iter().map(|check| check.command));
        }
    }
    Ok(known)
}
