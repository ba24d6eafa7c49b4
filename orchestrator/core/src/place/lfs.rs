//! Sends files in Git LFS to a place: those that a session or checks need and that the place lacks.

use std::collections::BTreeSet;
use std::io;

use base::failure::OrFail;
use base::process::{OutputLimits, Stream};
use studio_git::lfs_objects;
use studio_git::repo::Repository;

use crate::place::host::{Host, HostError};
use crate::place::keeper::json_line;
use crate::place::protocol::{LfsOrder, PlacedSession, SharedSettings};

/// Timeout of sending files, in seconds.
const SEND_SECONDS: u64 = 3600;

/// Sends the files that these commits need.
pub(super) fn send(
    host: &Host,
    query: &PlacedSession,
    repository: &Repository,
    commits: &[String],
) -> std::result::Result<(), HostError> {
    let needed = lfs_objects::needed(repository, commits).map_err(HostError::Failed)?;
    if needed.is_empty() {
        return Ok(());
    }
    let shared = SharedSettings::of(repository).map_err(HostError::Failed)?;
    let mut order = LfsOrder { query: query.clone(), shared, files: needed };
    let missing: BTreeSet<usize> = host.ask("lfs-missing", json_line(&order))?;
    let files = order.files.into_iter().enumerate();
    let files = files.filter(|(position, _)| missing.contains(position));
    order.files = files.map(|(_, file)| file).collect();
    if order.files.is_empty() {
        return Ok(());
    }
    let input = || -> io::Result<std::fs::File> {
        let mut input = tempfile::tempfile()?;
        io::copy(&mut json_line(&order).as_slice(), &mut input)?;
        for file in &order.files {
            io::copy(&mut lfs_objects::open(repository, file)?, &mut input)?;
        }
        io::Seek::rewind(&mut input)?;
        Ok(input)
    };
    let input = input().or_fail(|| "cannot read the files in Git LFS");
    let input = input.map_err(HostError::Failed)?;
    let command = host.node("lfs").stdin(Stream::File(input));
    let output = host.checked(command.output(OutputLimits::seconds(SEND_SECONDS)))?;
    host.answer(&output)
}
