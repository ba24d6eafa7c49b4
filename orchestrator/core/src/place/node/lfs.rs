//! Takes files in Git LFS from home.

use std::io::Read;

use base::failure::{OrFail, Result};
use studio_git::lfs_objects;

use crate::place::node::deliver;
use crate::place::node::spool::Spool;
use crate::place::protocol::{LfsOrder, refuse_other_protocol};

/// Returns the positions of the files that are not here.
pub(super) fn missing(spool: &Spool, order: &LfsOrder) -> Result<Vec<usize>> {
    refuse_other_protocol(&order.query)?;
    Ok(match spool.existing_repository(&order.query)? {
        Some(repository) => lfs_objects::missing(&repository, &order.files),
        None => (0..order.files.len()).collect(),
    })
}

/// Stores files, whose contents follow.
pub(super) fn take(spool: &Spool, order: &LfsOrder, input: &mut impl Read) -> Result<()> {
    refuse_other_protocol(&order.query)?;
    let bytes = order.files.iter().fold(0_u64, |sum, file| sum.saturating_add(file.bytes));
    deliver::refuse_full_disk(spool.root(), bytes, 0)?;
    let repository = {
        let _lock = spool.lock(&order.query)?;
        deliver::prepare_repository(spool, &order.query, &order.shared)?
    };
    for file in &order.files {
        lfs_objects::store(&repository, file, &mut *input)
            .or_fail(|| "cannot store what home sent")?;
    }
    Ok(())
}
