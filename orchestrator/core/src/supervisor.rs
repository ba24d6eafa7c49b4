//! The hidden command behind every running session: one supervisor.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use base::clock::Clock;
use base::config::Sources;
use base::failure::{Failure, OrFail, Result};
use base::id::Id;
use tokio_util::sync::CancellationToken;

use crate::interrupt::Interrupt;
use crate::landing::{self, merge_checks};
use crate::launch::{contract, host};
use crate::room::build_caches::BuildCaches;
use crate::room::{Purpose, Room};
use crate::session::journal::{Entry, Outcome};
use crate::session::record::Record;
use crate::session::store::Store;
use crate::studio::Studio;
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
    let (studio, charge) = match prepared {
        Ok(prepared) => prepared,
        Err(failure) => return end(&store, &id, &failure),
    };
    studio.schedule()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.or_fail(|| "cannot start the runtime")?;
    let ended = runtime.block_on(crate::supervise::run::run(charge));
    // Waits for what still reads or writes the session, before anybody else may.
    drop(runtime);
    let ended = ended?;
    if ended == Outcome::Ready && studio.store.load(&id)?.manner.accept {
        let options = landing::Options::default();
        if let Err(refused) = landing::land(&studio, &studio.view(&id)?, &options, &lock) {
            let why = refused.failure.in_full();
            let mut writer = studio.store.writer(&id, studio.clock)?;
            let note = Entry::Note { text: format!("it did not land: {why}") };
            writer.write(note).or_fail(|| "cannot write the journal")?;
        }
    }
    BuildCaches::of(&studio.repository, &id).remove_checks();
    // What the agent and the checks left in their temporary directory is of no use to anybody.
    if let Ok(_shut) = studio.store.without_shell(&id) {
        let _ = std::fs::remove_dir_all(studio.store.file(&id, "tmp"));
    }
    drop(lock);
    studio.schedule()?;
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

fn prepare(repository: Repository, record: &Record) -> Result<(Studio, Charge)> {
    let only = record.manner.config.clone();
    let top = repository.main_checkout.as_deref().unwrap_or(&repository.common_dir);
    // Where it was asked for may be gone: a repository is moved, a linked worktree removed.
    let asked = record.manner.directory.as_deref().filter(|directory| directory.is_dir());
    let loaded = base::config::load(&Sources { only, ..Sources::from_env(asked.unwrap_or(top)) })?;
    let studio = Studio::with(repository, loaded.config);
    let charge = charge(&studio, record)?;
    Ok((studio, charge))
}

/// What the supervisor needs to know.
fn charge(studio: &Studio, record: &Record) -> Result<Charge> {
    let options = contract::Options {
        persona: record.persona.as_deref(),
        model: record.model.as_deref(),
        profile: record.profile.as_deref(),
    };
    let row = contract::row(&studio.config, &record.agent, options, &record.part, &record.checks)?;
    let room_for = |purpose| Room::of(&studio.repository, record, &studio.config, purpose);
    let mut room = room_for(Purpose::Agent(&row))?;
    if record.agent == "g3"
        && let Some(socket) = host::socket(&studio.config)
    {
        room = room.with_host(socket?);
    }
    let again = Studio::with(studio.repository.clone(), studio.config.clone());
    let (repository, config, of) =
        (studio.repository.clone(), studio.config.clone(), record.clone());
    let fails_on_base = Arc::new(move |check: &str, cancel: CancellationToken| {
        let interrupt = Interrupt::with(cancel);
        let studio = Studio { interrupt, ..Studio::with(repository.clone(), config.clone()) };
        merge_checks::fails_on_base(&studio, &of, check).ok().flatten()
    });
    Ok(Charge {
        repository: studio.repository.clone(),
        record: record.clone(),
        room,
        check_room: room_for(Purpose::Checks)?,
        setup_room: room_for(Purpose::Setup)?,
        row,
        setup: studio.config.studio.setup.list(),
        limits: studio.config.studio.limits,
        fails_on_base,
        tick: Box::new(move || {
            let _ = again.schedule();
        }),
    })
}
