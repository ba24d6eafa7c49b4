//! The context of every command: the repository, its sessions, the configuration, the clock.

use std::num::NonZero;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use base::clock::Clock;
use base::config::Config;
use base::failure::{Failure, OrFail, Result};
use base::id::Id;
use base::lock::Lock;

use crate::console::{Console, Silent};
use crate::interrupt::Interrupt;
use crate::session::collect;
use crate::session::disposition::{self, Dispositions};
use crate::session::id::{NamedSession, resolve};
use crate::session::journal::{JournalEntry, SessionOutcome};
use crate::session::state::SessionState;
use crate::session::store::SessionStore;
use crate::session::summary::{Phase, SessionFacts};
use crate::session_view::SessionView;
use studio_git::repo::Repository;
use studio_git::snapshot::SnapshotLimits;

/// How long to wait for a command that only reads a session.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a supervisor may take after its exit line: it waits for the processes of its sandboxes,
/// and removes their temporary files.
const ENDING: Duration = Duration::from_secs(30);
/// The minimum number of sessions for reading them on several threads.
const WORTH_A_THREAD: usize = 100;

/// The context of every command.
pub struct Project {
    /// The repository of the command.
    pub repository: Repository,
    /// Its sessions.
    pub store: SessionStore,
    /// The configuration.
    pub config: Config,
    /// The file given with `--config`; absolute.
    pub config_file: Option<PathBuf>,
    /// The directory whose `g3.toml` was read.
    pub directory: Option<PathBuf>,
    /// The clock.
    pub clock: Clock,
    /// Messages and questions for the user.
    pub console: Arc<dyn Console>,
    /// Whether the user interrupted the command.
    pub interrupt: Interrupt,
}

/// A session that cannot be read, and the reason.
pub(crate) type DamagedSession = (Id, Failure);

impl Project {
    /// Creates a project for a repository and a configuration.
    pub fn with(repository: Repository, config: Config) -> Project {
        let store = SessionStore::at(&repository.common_dir);
        Project {
            repository,
            store,
            config,
            config_file: None,
            directory: None,
            clock: Clock::from_env(),
            console: Arc::new(Silent),
            interrupt: Interrupt::default(),
        }
    }

    /// Reads the dispositions of sessions from the operation log.
    pub fn fates(&self) -> Result<Dispositions> {
        disposition::read(&self.repository)
    }

    /// Starts the sessions that can start.
    pub fn schedule(&self) -> Result<Vec<Id>> {
        crate::schedule::step(&self.repository, &self.fates()?)
    }

    /// Takes a session's lock. A command that only reads a session releases it quickly; a
    /// supervisor that has written its exit line may take longer, especially on a busy machine.
    pub fn lock_soon(&self, id: &Id) -> Result<Option<Lock>> {
        let begin = Instant::now();
        let mut is_told = false;
        loop {
            let lock = self.store.lock(id)?;
            if lock.is_some() {
                return Ok(lock);
            }
            self.interrupt.check()?;
            let waited = begin.elapsed();
            let may_end = || -> Result<bool> {
                Ok(matches!(self.store.story(id)?.phase, Phase::Ended { .. }))
            };
            if waited > ENDING || waited > PATIENCE && !may_end()? {
                return Ok(None);
            }
            if waited > PATIENCE && !is_told {
                self.console.note(&format!("waiting for the supervisor of `{id}` to exit"));
                is_told = true;
            }
            pause();
        }
    }

    /// Returns the current state of a session.
    pub fn view(&self, id: &Id) -> Result<SessionView> {
        self.view_with(id, &self.fates()?)
    }

    /// Returns the current state of a session, with known dispositions.
    pub fn view_with(&self, id: &Id, fates: &Dispositions) -> Result<SessionView> {
        let record = self.store.load(id)?.located(&self.repository)?;
        fates.refuse_doubt(id)?;
        // The lock is checked first: if a run ends after that, its exit line is read below.
        let locked = self.store.is_locked(id);
        let story = self.store.story(id)?;
        let fate = fates.of(id).clone();
        let holds = fates.holds(&record);
        let record = record.with_checks_of(&story);
        let mut view = SessionView::new(record, SessionFacts { locked, story, fate, holds });
        view.way_back.take_if(|operation| !fates.is_kept(&self.repository, operation));
        Ok(view)
    }

    /// Returns the refusal for a session that is accepted or discarded, with the operation that
    /// reverts it if there is one.
    pub fn is_over(view: &SessionView) -> Failure {
        let what = format!("session `{}` is already {}", view.record.id, view.state.name());
        match &view.way_back {
            Some(operation) => Failure::refused(what).hint(format!("studio undo {operation}")),
            None => Failure::refused(what)
                .because("its data has already been removed by `studio gc`")
                .hint("studio run 'the task'    starts a new session"),
        }
    }

    /// Returns the current state of all sessions, oldest first, and the errors of unreadable ones.
    pub fn sessions(&self) -> Result<(Vec<SessionView>, Vec<DamagedSession>)> {
        let fates = self.fates()?;
        let ids = self.store.ids()?;
        let part = ids.len().div_ceil(thread::available_parallelism().map_or(1, NonZero::get));
        let parts = ids.chunks(part.max(WORTH_A_THREAD));
        let looked: Vec<(Vec<SessionView>, Vec<DamagedSession>)> = thread::scope(|scope| {
            let fates = &fates;
            let threads: Vec<_> =
                parts.map(|part| scope.spawn(move || self.look_at(part, fates))).collect();
            let looked = threads.into_iter().map(thread::ScopedJoinHandle::join);
            looked.map(|looked| looked.unwrap_or_else(|why| resume_unwind(why))).collect()
        });
        let (views, unreadable): (Vec<_>, Vec<_>) = looked.into_iter().unzip();
        let mut views: Vec<SessionView> = views.into_iter().flatten().collect();
        views.sort_by(|a, b| {
            let made = |view: &SessionView| self.store.made_at(&view.record.id);
            a.record.created_at.cmp(&b.record.created_at).then_with(|| made(a).cmp(&made(b)))
        });
        Ok((views, unreadable.into_iter().flatten().collect()))
    }

    fn look_at(&self, ids: &[Id], fates: &Dispositions) -> (Vec<SessionView>, Vec<DamagedSession>) {
        let (mut views, mut unreadable) = (Vec::new(), Vec::new());
        for id in ids {
            match self.view_with(id, fates) {
                Ok(view) => views.push(view),
                // It may have been removed after its name was read.
                Err(_) if !self.store.dir(id).exists() => {}
                Err(failure) => unreadable.push((id.clone(), failure)),
            }
        }
        (views, unreadable)
    }

    /// Collects the work of a session that crashed within a turn, if it was not collected yet, so
    /// that its numbers can be shown. On any error the session is returned unchanged.
    pub fn salvaged(&self, view: SessionView) -> SessionView {
        if view.state != SessionState::Crashed || !view.facts.story.in_turn {
            return view;
        }
        let id = &view.record.id;
        let salvage = || -> Result<SessionView> {
            if let Some(_lock) = self.store.lock(id)?
                && self.store.story(id)?.in_turn
            {
                let brought =
                    collect::collect(&self.repository, &view.record, &SnapshotLimits::default())?;
                let why = Some("its supervisor exited unexpectedly".to_owned());
                let end = JournalEntry::TurnEnd { n: view.facts.story.turns, why };
                let mut writer = self.store.writer(id, self.clock)?;
                for entry in [end, JournalEntry::Work(brought.work)] {
                    writer.write(entry).or_fail(|| "cannot write the journal")?;
                }
            }
            self.view(id)
        };
        salvage().unwrap_or(view)
    }

    /// Collects the current content of the worktree if the agent changed nothing: the user may have
    /// changed or committed files there. On any error the session is returned unchanged.
    pub fn refreshed(&self, view: SessionView) -> SessionView {
        let is_empty = view.facts.story.phase == (Phase::Ended { outcome: SessionOutcome::Empty });
        if !is_empty || view.state.is_over() {
            return view;
        }
        let id = &view.record.id;
        let refresh = || -> Result<SessionView> {
            if let Some(_lock) = self.store.lock(id)? {
                self.refresh(id)?;
            }
            self.view(id)
        };
        refresh().unwrap_or(view)
    }

    /// Like [`Project::refreshed`], for a session whose lock the caller holds.
    pub(crate) fn refresh(&self, id: &Id) -> Result<SessionView> {
        let view = self.view(id)?;
        let is_empty = view.facts.story.phase == (Phase::Ended { outcome: SessionOutcome::Empty });
        if !is_empty || view.state.is_over() {
            return Ok(view);
        }
        let brought = collect::collect(&self.repository, &view.record, &SnapshotLimits::default())?;
        if view.work() == Some(&brought.work) {
            return Ok(view);
        }
        let mut writer = self.store.writer(id, self.clock)?;
        writer.write(JournalEntry::Work(brought.work)).or_fail(|| "cannot write the journal")?;
        self.view(id)
    }

    /// Returns all readable sessions, oldest first.
    pub fn views(&self) -> Result<Vec<SessionView>> {
        Ok(self.sessions()?.0)
    }

    /// Returns the session that the user named: by its id, a unique prefix, or `@latest`; without a
    /// name, the session whose worktree contains the current directory, or the only one that fits.
    pub fn find(
        &self,
        typed: Option<&str>,
        fits: impl Fn(&SessionState) -> bool,
    ) -> Result<SessionView> {
        if let (None, Some(here)) = (typed, &self.repository.session) {
            return self.view(here);
        }
        let (views, unreadable) = self.sessions()?;
        let candidates: Vec<NamedSession> = views
            .iter()
            .map(|view| NamedSession {
                id: view.record.id.clone(),
                created_at: view.record.created_at.clone(),
                is_open: !view.state.is_over(),
                fits: fits(&view.state),
            })
            .collect();
        let damaged = |text: &str| {
            let meant = |id: &Id| !text.is_empty() && id.as_str().starts_with(text);
            unreadable.into_iter().find(|(id, _)| meant(id)).map(|(_, failure)| failure)
        };
        let id = resolve(typed, &candidates)
            .map_err(|failure| typed.and_then(damaged).unwrap_or(failure))?;
        self.view(&id)
    }

    /// Returns all sessions that the user named, without duplicates; without names, the only one
    /// that fits.
    pub fn find_all(
        &self,
        typed: &[String],
        fits: impl Fn(&SessionState) -> bool,
    ) -> Result<Vec<SessionView>> {
        if typed.is_empty() {
            return Ok(vec![self.find(None, fits)?]);
        }
        let mut found: Vec<SessionView> = Vec::new();
        for text in typed {
            let view = self.find(Some(text), &fits)?;
            if found.iter().all(|other| other.record.id != view.record.id) {
                found.push(view);
            }
        }
        Ok(found)
    }
}

/// Waits briefly between two polls of another process.
pub fn pause() {
    let time = rustix::event::Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
    let _ = rustix::event::poll(&mut [], Some(&time));
}
