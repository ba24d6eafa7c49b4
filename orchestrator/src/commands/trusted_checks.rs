//! Determines which recorded check commands may run. Receipts travel with the repository, so their
//! commands may come from others; a command runs only if this machine knew it before.

use std::collections::BTreeSet;

use base::failure::Result;

use crate::commands::context::CommandContext;
use studio_git::landing_history::Receipt;
use studio_git::oplog;

/// Returns the commands of the trusted configuration, of sessions that were created here, and of
/// landings that were done here: none of these is cloned or fetched with a repository.
pub(crate) fn lines(context: &CommandContext) -> Result<BTreeSet<String>> {
    let mut trusted: BTreeSet<String> = context.config.studio.checks.list().into_iter().collect();
    for id in context.store.ids()? {
        // An unreadable session contributes no commands.
        if let Ok(record) = context.store.load(&id) {
            trusted.extend(record.checks);
        }
    }
    for receipt in oplog::receipts(&context.repository)? {
        if let Ok(receipt) = serde_json::from_str::<Receipt>(&receipt) {
            trusted.extend(receipt.checks.into_iter().map(|check| check.command));
        }
    }
    Ok(trusted)
}
