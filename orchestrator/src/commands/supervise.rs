//! The hidden command behind every running session: one supervisor.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use base::clock::Clock;
use base::config::Sources;
use base::failure::{Failure, OrFail, Result};
use base::id::Id;
use tokio_util::sync::CancellationToken;

use crate::commands::desk::Desk;
use crate::commands::interrupt::Interrupt;
use crate::commands::{landing, proof};
use crate::launch::{contract, host};
use crate::room::build_caches::BuildCaches;
use crate::room::{Purpose, Room};
use crate::session::journal::{Entry, Outcome};
use crate::session::record::Record;
use crate::session::store::Store;
use crate::supervise::run::Charge;
use crate::supervise::start::{COMMAND, inherited_lock};
use studio_git::repo::Repository;

/// The command line of a supervisor.
#[derive(Clone, Debug)]
pub struct Args {
    /// The repository's common git directory.
    pub common: PathBuf,
    /// The session.
    pub id: String,
}

impl Args {
    /// Reads `__supervise COMMON ID`, which studio types itself; nothing when it is another command.
    pub fn parse(mut args: impl Iterator<Item = OsString>) -> Option<Args> {
        if args.next()? != COMMAND {
            return None;
        }
        let (common, id) = (args.next()?.into(), args.next()?.into_string().ok()?);
        args.next().is_none().then_some(Args { common, id })
    }
}

/// Runs it.
pub fn run(args: &Args) -> Result<u8> {
    let id = Id::parse(&args.id).map_err(|e| Failure::usage(e.to_string()))?;
    let store = Store::at(&args.common);
    let lock = inherited_lock(&store, &id)?;
    let repository = Repository::discover(&args.common)?;
    let record = store.load(&id)?.located(&repository)?.with_checks_of(&store.story(&id)?);
    let prepared = prepare(repository, &record);
    let (desk, charge) = match prepared {
        Ok(prepared) => prepared,
        Err(failure) => return end(&store, &id, &failure),
    };
    desk.schedule()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.or_fail(|| "cannot start the runtime")?;
    let ended = runtime.block_on(crate::supervise::run::run(charge));
    // Waits for what still reads or writes the session, before anybody else may.
    drop(runtime);
    let ended = ended?;
    if ended == Outcome::Ready && desk.store.load(&id)?.manner.accept {
        let options = landing::Options::default();
        if let Err(refused) = landing::land(&desk, &desk.view(&id)?, &options, &lock) {
            let why = refused.failure.in_full();
            let mut writer = desk.store.writer(&id, desk.clock)?;
            let note = Entry::Note { text: format!("it did not land: {why}") };
            writer.write(note).or_fail(|| "cannot write the journal")?;
        }
    }
    BuildCaches::of(&desk.repository, &id).remove_checks();
    // What the agent and the checks left in their temporary directory is of no use to anybody.
    if let Ok(_shut) = desk.store.without_shell(&id) {
        let _ = std::fs::remove_dir_all(desk.store.file(&id, "tmp"));
    }
    drop(lock);
    desk.schedule()?;
    Ok(0)
}

/// Ends a run that could not begin.
fn end(store: &Store, id: &Id, failure: &Failure) -> Result<u8> {
    let mut writer = store.writer(id, Clock::from_env())?;
    let outcome = Outcome::Failed { why: failure.in_full() };
    for entry in [Entry::Spawned { pid: std::process::id() }, Entry::Exit { outcome, ms: None }] {
        writer.write(entry).or_fail(|| "cannot write the journal")?;
    }
    Ok(failure.exit_code())
}

fn prepare(repository: Repository, record: &Record) -> Result<(Desk, Charge)> {
    let only = record.manner.config.clone();
    let top = repository.main_checkout.as_deref().unwrap_or(&repository.common_dir);
    // Where it was asked for may be gone: a repository is moved, a linked worktree removed.
    let asked = record.manner.directory.as_deref().filter(|directory| directory.is_dir());
    let loaded = base::config::load(&Sources { only, ..Sources::from_env(asked.unwrap_or(top)) })?;
    let desk = Desk::with(repository, loaded.config);
    let charge = charge(&desk, record)?;
    Ok((desk, charge))
}

/// What the supervisor needs to know.
fn charge(desk: &Desk, record: &Record) -> Result<Charge> {
    let options = contract::Options {
        persona: record.persona.as_deref(),
        model: record.model.as_deref(),
        profile: record.profile.as_deref(),
    };
    let row = contract::row(&desk.config, &record.agent, options, &record.part, &record.checks)?;
    let room_for = |purpose| Room::of(&desk.repository, record, &desk.config, purpose);
    let mut room = room_for(Purpose::Agent(&row))?;
    if record.agent == "g3"
        && let Some(socket) = host::socket(&desk.config)
    {
        room = room.with_host(socket?);
    }
    let again = Desk::with(desk.repository.clone(), desk.config.clone());
    let (repository, config, of) = (desk.repository.clone(), desk.config.clone(), record.clone());
    let fails_on_base = Arc::new(move |check: &str, cancel: CancellationToken| {
        let interrupt = Interrupt::with(cancel);
        let desk = Desk { interrupt, ..Desk::with(repository.clone(), config.clone()) };
        proof::fails_on_base(&desk, &of, check).ok().flatten()
    });
    Ok(Charge {
        repository: desk.repository.clone(),
        record: record.clone(),
        room,
        check_room: room_for(Purpose::Checks)?,
        setup_room: room_for(Purpose::Setup)?,
        row,
        setup: desk.config.studio.setup.list(),
        limits: desk.config.studio.limits,
        fails_on_base,
        tick: Box::new(move || {
            let _ = again.schedule();
        }),
    })
}
