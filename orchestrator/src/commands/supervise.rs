//! The hidden command behind every running session: one supervisor.

use std::path::PathBuf;

use base::config::Sources;
use base::failure::{Failure, OrFail, Result};
use base::id::Id;

use crate::commands::desk::Desk;
use crate::launch;
use crate::room::Room;
use crate::session::record::Record;
use crate::supervise::run::Charge;
use crate::supervise::start::inherited_lock;

/// The command line of a supervisor.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The repository's common git directory
    pub common: PathBuf,
    /// The session
    pub id: String,
}

/// Runs it.
pub fn run(args: &Args) -> Result<u8> {
    let id = Id::parse(&args.id).map_err(|e| Failure::usage(e.to_string()))?;
    let store = crate::session::store::Store::at(&args.common);
    let lock = inherited_lock(&store, &id)?;
    let record = store.load(&id)?;
    let sources = Sources::from_env(args.common.parent().unwrap_or(&args.common));
    let config = base::config::load(&sources)?.config;
    let desk = Desk::at(&args.common, config)?;
    desk.schedule()?;
    let charge = charge(&desk, &record)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.or_fail(|| "cannot start the runtime")?;
    runtime.block_on(crate::supervise::run::run(charge))?;
    drop(lock);
    desk.schedule()?;
    Ok(0)
}

/// What the supervisor needs to know.
fn charge(desk: &Desk, record: &Record) -> Result<Charge> {
    let row = launch::table::row(&desk.config, &record.agent)?;
    let again = Desk::at(&desk.repository.common_dir, desk.config.clone())?;
    Ok(Charge {
        repository: desk.repository.clone(),
        record: record.clone(),
        room: Room::of(&desk.repository, record, &desk.config, Some(&row))?,
        check_room: Room::of(&desk.repository, record, &desk.config, None)?,
        row,
        setup: desk.config.studio.setup.list(),
        limits: desk.config.studio.limits,
        tick: Box::new(move || {
            let _ = again.schedule();
        }),
    })
}
