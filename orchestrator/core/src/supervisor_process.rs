//! The hidden command that runs a session's supervisor.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use base::clock::Clock;
use base::config::ConfigSources;
use base::failure::{Failure, OrFail, Result};
use base::id::Id;
use tokio_util::sync::CancellationToken;

use crate::exec::build_caches::BuildCaches;
use crate::exec::runner::{Purpose, SandboxedRunner};
use crate::interrupt::Interrupt;
use crate::landing::{self, merge_checks};
use crate::launch::{host, requirements};
use crate::project::Project;
use crate::session::journal::{JournalEntry, SessionOutcome};
use crate::session::record::SessionRecord;
use crate::session::store::SessionStore;
use crate::supervisor::run::SupervisorConfig;
use crate::supervisor::spawn::{COMMAND, inherited_lock};
use studio_git::repo::Repository;

/// The arguments of a supervisor.
#[derive(Clone, Debug)]
pub struct Args {
    /// The repository's common git directory.
    pub common: PathBuf,
    /// The session.
    pub id: String,
}

impl Args {
    /// Parses `__supervise COMMON ID`, which studio itself runs; returns `None` for other commands.
    pub fn parse(mut args: impl Iterator<Item = OsString>) -> Option<Args> {
        if args.next()? != COMMAND {
            return None;
        }
        let (common, id) = (args.next()?.into(), args.next()?.into_string().ok()?);
        args.next().is_none().then_some(Args { common, id })
    }
}

/// Runs the supervisor.
pub fn run(args: &Args) -> Result<u8> {
    let id = Id::parse(&args.id).map_err(|e| Failure::usage(e.to_string()))?;
    let store = SessionStore::at(&args.common);
    let lock = inherited_lock(&store, &id)?;
    let repository = Repository::discover(&args.common)?;
    let record = store.load(&id)?.located(&repository)?.with_checks_of(&store.story(&id)?);
    let prepared = prepare(repository, &record);
    let (project, config) = match prepared {
        Ok(prepared) => prepared,
        Err(failure) => return end(&store, &id, &failure),
    };
    project.schedule()?;
    let runtime = base::runtime::current_thread();
    let runtime = runtime.or_fail(|| "cannot start the runtime")?;
    let ended = runtime.block_on(crate::supervisor::run::run(config));
    // Waits for everything that still reads or writes the session, before others may.
    drop(runtime);
    let ended = ended?;
    if ended == SessionOutcome::Ready && project.store.load(&id)?.manner.accept {
        let options = landing::LandingOptions::default();
        if let Err(refused) = landing::land(&project, &project.view(&id)?, &options, &lock) {
            let why = refused.failure.in_full();
            let mut writer = project.store.writer(&id, project.clock)?;
            let note = JournalEntry::Note { text: format!("it did not land: {why}") };
            writer.write(note).or_fail(|| "cannot write the journal")?;
        }
    }
    BuildCaches::of(&project.repository, &id).remove_checks();
    // The files of the agent and the checks in their temporary directory are no longer needed.
    if let Ok(_shut) = project.store.without_shell(&id) {
        let _ = std::fs::remove_dir_all(project.store.file(&id, "tmp"));
    }
    drop(lock);
    project.schedule()?;
    Ok(0)
}

/// Records the failure of a run that could not start.
fn end(store: &SessionStore, id: &Id, failure: &Failure) -> Result<u8> {
    let mut writer = store.writer(id, Clock::from_env())?;
    let outcome = SessionOutcome::Failed { why: failure.in_full() };
    for entry in [
        JournalEntry::Spawned { pid: std::process::id() },
        JournalEntry::Exit { outcome, ms: None },
    ] {
        writer.write(entry).or_fail(|| "cannot write the journal")?;
    }
    Ok(failure.exit_code())
}

fn prepare(repository: Repository, record: &SessionRecord) -> Result<(Project, SupervisorConfig)> {
    let config_file = record.manner.config.clone();
    let top = repository.main_checkout.as_deref().unwrap_or(&repository.common_dir);
    // The directory may be gone: repositories are moved, linked worktrees removed.
    let asked = record.manner.directory.as_deref().filter(|directory| directory.is_dir());
    let loaded = base::config::load(&ConfigSources {
        config_file,
        ..ConfigSources::from_env(asked.unwrap_or(top))
    })?;
    let project = Project::with(repository, loaded.config);
    let config = supervisor_config(&project, record)?;
    Ok((project, config))
}

/// Returns the parameters of the supervisor.
fn supervisor_config(project: &Project, record: &SessionRecord) -> Result<SupervisorConfig> {
    let options = requirements::AgentOptions {
        persona: record.persona.as_deref(),
        model: record.model.as_deref(),
        profile: record.profile.as_deref(),
    };
    let row = requirements::agent_for(
        &project.config,
        &record.agent,
        options,
        &record.part,
        &record.checks,
    )?;
    let room_for =
        |purpose| SandboxedRunner::of(&project.repository, record, &project.config, purpose);
    let mut room = room_for(Purpose::Agent(&row))?;
    if record.agent == "g3"
        && let Some(socket) = host::socket(&project.config)
    {
        room = room.with_host(socket?);
    }
    let again = Project::with(project.repository.clone(), project.config.clone());
    let (repository, config, of) =
        (project.repository.clone(), project.config.clone(), record.clone());
    let fails_on_base = Arc::new(move |check: &str, cancel: CancellationToken| {
        let interrupt = Interrupt::with(cancel);
        let project = Project { interrupt, ..Project::with(repository.clone(), config.clone()) };
        merge_checks::fails_on_base(&project, &of, check).ok().flatten()
    });
    Ok(SupervisorConfig {
        repository: project.repository.clone(),
        record: record.clone(),
        room,
        check_room: room_for(Purpose::Checks)?,
        setup_room: room_for(Purpose::Setup)?,
        row,
        setup: project.config.studio.setup.list(),
        limits: project.config.studio.limits,
        fails_on_base,
        tick: Box::new(move || {
            let _ = again.schedule();
        }),
    })
}
