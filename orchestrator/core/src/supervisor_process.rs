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
use crate::exec::carried_caches;
use crate::exec::runner::{Purpose, SandboxedRunner, trees_of};
use crate::interrupt::Interrupt;
use crate::landing::{self, merge_checks, message};
use crate::launch::{host, requirements};
use crate::notification::Notifier;
use crate::place;
use crate::pool_process::PoolFiller;
use crate::project::Project;
use crate::rate_limit::Account;
use crate::recheck;
use crate::run_budget;
use crate::session::journal::{JournalEntry, SessionOutcome};
use crate::session::record::SessionRecord;
use crate::session::store::SessionStore;
use crate::supervisor::run::SupervisorConfig;
use crate::supervisor::spawn::{COMMAND, inherited_lock};
use studio_git::pack_maintenance;
use studio_git::repo::Repository;

/// The arguments of a supervisor.
#[derive(Clone, Debug)]
pub struct SupervisorArgs {
    /// The repository's common git directory.
    pub common_dir: PathBuf,
    /// The session.
    pub id: String,
}

impl SupervisorArgs {
    /// Parses `__supervise COMMON ID`, which studio itself runs; returns `None` for other commands.
    pub fn parse(mut args: impl Iterator<Item = OsString>) -> Option<SupervisorArgs> {
        if args.next()? != COMMAND {
            return None;
        }
        let (common_dir, id) = (args.next()?.into(), args.next()?.into_string().ok()?);
        args.next().is_none().then_some(SupervisorArgs { common_dir, id })
    }
}

/// Runs the supervisor.
pub fn run(args: &SupervisorArgs) -> Result<u8> {
    let id = Id::parse(&args.id).map_err(|e| Failure::usage(e.to_string()))?;
    // The kernel takes a millisecond for the answer, which the rules of the sandboxes depend on.
    std::thread::spawn(base::sandbox::namespaces_are_possible);
    let store = SessionStore::new(&args.common_dir);
    let lock = inherited_lock(&store, &id)?;
    let repository = Repository::discover(&args.common_dir)?;
    let record = store.load(&id)?.relocated(&repository)?.with_settings(&store.summary(&id)?);
    let project = match project_of(repository, &record) {
        Ok(project) => project,
        Err(failure) => return record_failure(&store, &id, &failure),
    };
    let directory = user_directory(&project.repository, &record);
    let notifier = Notifier::new(&project.config, &record, directory);
    let mut has_worktree = true;
    let outcome = if record.run_mode.place.is_some() {
        match place::keeper::supervise(&project, &record, notifier.clone()) {
            Ok(Some(outcome)) => outcome,
            Ok(None) => {
                drop(lock);
                let view = project.view(&id)?;
                notifier.notify(view.state.name(), &view.reason().unwrap_or_default());
                project.schedule()?;
                return Ok(0);
            }
            Err(failure) => return record_failure(&store, &id, &failure),
        }
    } else {
        let config = match supervisor_config(&project, &record) {
            Ok(config) => config,
            Err(failure) => return record_failure(&store, &id, &failure),
        };
        project.schedule()?;
        let runtime = base::runtime::current_thread();
        let runtime = runtime.or_fail(|| "cannot start the runtime")?;
        let outcome = runtime.block_on(crate::supervisor::run::run(config));
        has_worktree = store.summary(&id)?.has_worktree;
        if has_worktree {
            // Waits for everything that still reads or writes the session, before others may.
            drop(runtime);
        } else {
            // Filters and copies that were cancelled end with this process.
            lock.hold_until_exit().or_fail(|| "cannot hold the lock")?;
            runtime.shutdown_background();
        }
        outcome?
    };
    if outcome == SessionOutcome::Ready && project.store.load(&id)?.run_mode.accept {
        let options = landing::LandingOptions::default();
        if let Err(rejection) = landing::land(&project, &project.view(&id)?, &options, &lock) {
            let reason = rejection.failure.full_text();
            let mut writer = project.store.writer(&id, project.clock)?;
            let note = JournalEntry::Note { text: format!("it did not land: {reason}") };
            writer.write(note).or_fail(|| "cannot write the journal")?;
        }
    }
    BuildCaches::of(&project.repository, &id).remove_checks();
    // The files of the agent and the checks in their temporary directory are no longer needed.
    if let Ok(_shell_lock) = project.store.lock_shell(&id) {
        let _ = std::fs::remove_dir_all(project.store.file(&id, "tmp"));
    }
    drop(lock);
    let view = project.view(&id)?;
    notifier.notify(view.state.name(), &view.reason().unwrap_or_default());
    project.schedule()?;
    if !has_worktree {
        return Ok(0);
    }
    // Without it, later commands only take longer.
    let _ = pack_maintenance::run_if_needed(&project.repository);
    if record.run_mode.home.is_some() {
        // Home writes the message and compares the work with other sessions.
        return Ok(0);
    }
    // The session is ready and free already. If no message is written, the landing writes one.
    let _ = message::prepare(&project, &id);
    // It may have been based on an earlier state of its target.
    let _ = recheck::run_if_needed(&project);
    Ok(0)
}

/// Records the failure of a run that could not start.
fn record_failure(store: &SessionStore, id: &Id, failure: &Failure) -> Result<u8> {
    let mut writer = store.writer(id, Clock::from_env())?;
    let outcome = SessionOutcome::Failed { why: failure.full_text() };
    for entry in [
        JournalEntry::Spawned { pid: std::process::id() },
        JournalEntry::Exit { outcome, ms: None },
    ] {
        writer.write(entry).or_fail(|| "cannot write the journal")?;
    }
    Ok(failure.exit_code())
}

/// Returns the directory in which the user started the session. It may be gone, since repositories are
/// moved and linked worktrees removed: then the main checkout.
fn user_directory(repository: &Repository, record: &SessionRecord) -> PathBuf {
    let directory = record.run_mode.directory.clone().filter(|directory| directory.is_dir());
    let directory = directory.or_else(|| repository.main_checkout.clone());
    directory.unwrap_or_else(|| repository.common_dir.clone())
}

fn project_of(repository: Repository, record: &SessionRecord) -> Result<Project> {
    let (config_file, directory) =
        (record.run_mode.config.clone(), user_directory(&repository, record));
    let sources = ConfigSources { config_file, ..ConfigSources::from_env(&directory) };
    let mut config = base::config::load(&sources)?.config;
    if let Some(home) = &record.run_mode.home {
        home.apply(&mut config.studio, &record.agent);
    }
    Ok(Project {
        config_file: sources.config_file,
        directory: Some(directory),
        ..Project::new(repository, config)
    })
}

/// Returns the parameters of the supervisor.
pub(crate) fn supervisor_config(
    project: &Project,
    record: &SessionRecord,
) -> Result<SupervisorConfig> {
    let options = requirements::AgentOptions {
        persona: record.persona.as_deref(),
        model: record.model.as_deref(),
        profile: record.profile.as_deref(),
    };
    let row = requirements::agent_for(
        &project.config,
        &record.agent,
        options,
        &record.plan_ref,
        &record.checks,
    )?;
    let trees = trees_of(&project.repository, &record.session_repo);
    let runner_for = |purpose| {
        SandboxedRunner::in_trees(&project.repository, record, &project.config, purpose, &trees)
    };
    let mut runner = runner_for(Purpose::Agent(&row))?;
    if record.agent == "g3"
        && let Some(socket) = host::socket(&project.config)
    {
        runner = runner.with_host(socket?);
    }
    let scheduler = Project {
        config_file: project.config_file.clone(),
        directory: project.directory.clone(),
        ..Project::new(project.repository.clone(), project.config.clone())
    };
    let setup = project.config.studio.setup.list();
    let runner_for_lines =
        |purpose, lines: &[String]| (!lines.is_empty()).then(|| runner_for(purpose)).transpose();
    let (repository, config, session_record) =
        (project.repository.clone(), project.config.clone(), record.clone());
    let fails_on_base = Arc::new(move |check: &str, cancel: CancellationToken| {
        let interrupt = Interrupt::from_token(cancel);
        let project = Project { interrupt, ..Project::new(repository.clone(), config.clone()) };
        merge_checks::fails_on_base(&project, &session_record, check).ok().flatten()
    });
    Ok(SupervisorConfig {
        expected_usd: run_budget::expected_usd(&project.config),
        account: Account::of(&project.config, &record.agent, &row),
        repository: project.repository.clone(),
        record: record.clone(),
        runner,
        check_runner: runner_for_lines(Purpose::Checks, &record.checks)?,
        setup_runner: runner_for_lines(Purpose::Setup, &setup)?,
        row,
        pool_filler: PoolFiller {
            repository: project.repository.clone(),
            template: project.config.studio.worktree.clone(),
            size: project.config.studio.pool,
            config_file: record.run_mode.config.clone(),
        },
        setup,
        caches: carried_caches::configured(&project.config.studio)?,
        limits: project.config.studio.limits,
        fails_on_base,
        conflict_notes: project.config.studio.conflict_notes,
        notifier: Notifier::new(
            &project.config,
            record,
            user_directory(&project.repository, record),
        ),
        on_tick: Box::new(move || {
            let _ = scheduler.schedule();
        }),
    })
}
