//! The context of every command: the repository, its sessions, the configuration, the clock.

use std::cell::OnceCell;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::clock::Clock;
use base::config::Config;
use base::failure::{Failure, OrFail, Result};
use base::id::Id;
use base::lock::Lock;
use base::parallel;

use crate::console::{Console, Silent};
use crate::interrupt::Interrupt;
use crate::queue_reasons::QueueReasons;
use crate::session::collect;
use crate::session::disposition::{DispositionCache, Dispositions};
use crate::session::id::{NamedSession, resolve};
use crate::session::journal::{JournalEntry, SessionOutcome};
use crate::session::placement::Placement;
use crate::session::prepared_message::PreparedMessage;
use crate::session::state::SessionState;
use crate::session::store::SessionStore;
use crate::session::summary::{JournalSummary, Phase, SessionFacts};
use crate::session::target_check::TargetCheck;
use crate::session_view::SessionView;
use crate::waker::ConfigLocation;
use studio_git::filters;
use studio_git::recreate_worktree;
use studio_git::repo::Repository;
use studio_git::snapshot::SnapshotLimits;

/// How long to wait for a command that only reads a session.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a supervisor may take after its exit line: it waits for the processes of its sandboxes,
/// and removes their temporary files.
const EXIT_TIMEOUT: Duration = Duration::from_secs(30);
/// The minimum number of sessions for reading them on several threads.
const MIN_SESSIONS_PER_THREAD: usize = 100;

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
    /// The dispositions that were read last.
    pub known_dispositions: DispositionCache,
}

/// A session that cannot be read, and the reason.
pub(crate) type DamagedSession = (Id, Failure);

impl Project {
    /// Creates a project for a repository and a configuration.
    pub fn new(repository: Repository, mut config: Config) -> Project {
        let store = SessionStore::new(&repository.common_dir);
        filters::trust(&repository, &mut config.studio.filters);
        Project {
            repository,
            store,
            config,
            config_file: None,
            directory: None,
            clock: Clock::from_env(),
            console: Arc::new(Silent),
            interrupt: Interrupt::default(),
            known_dispositions: DispositionCache::default(),
        }
    }

    /// Returns the same project with another console.
    pub fn with_console(&self, console: Arc<dyn Console>) -> Project {
        Project {
            config_file: self.config_file.clone(),
            directory: self.directory.clone(),
            clock: self.clock,
            console,
            interrupt: self.interrupt.clone(),
            ..Project::new(self.repository.clone(), self.config.clone())
        }
    }

    /// Returns the dispositions of sessions, from the operation log.
    pub fn dispositions(&self) -> Result<Arc<Dispositions>> {
        self.known_dispositions.get(&self.repository)
    }

    /// Starts the sessions that can start.
    pub fn schedule(&self) -> Result<Vec<Id>> {
        let repository = &self.repository;
        let directory = self.directory.as_deref().or(repository.main_checkout.as_deref());
        let location = ConfigLocation {
            directory: directory.unwrap_or(&repository.common_dir),
            config_file: self.config_file.as_deref(),
        };
        crate::schedule::step(repository, &self.config, location, &*self.dispositions()?)
    }

    /// Connects to the place of a session again, if nothing here keeps the connection.
    pub fn reconnect(&self, id: &Id) -> Result<()> {
        if self.is_away(id) && !self.store.is_locked(id) {
            self.schedule()?;
        }
        Ok(())
    }

    /// Returns whether a session is at its place.
    pub(crate) fn is_away(&self, id: &Id) -> bool {
        Placement::read(&self.store, id).is_some_and(|placement| placement.is_away())
    }

    /// Refuses what works on the files of a session while they are at a place.
    pub fn refuse_away(view: &SessionView) -> Result<()> {
        let id = &view.record.id;
        match view.placement.as_ref().filter(|placement| placement.is_away()) {
            Some(placement) => {
                Err(Failure::refused(format!("session `{id}` is at {}", placement.place))
                    .because("its files are there while it runs")
                    .hint(format!("studio logs {id} -f"))
                    .hint(format!("studio stop {id}")))
            }
            None => Ok(()),
        }
    }

    /// Makes the worktree of a session that ran at a place, if it is missing. The caller holds
    /// the session's lock.
    pub fn make_worktree_here(&self, view: &SessionView) -> Result<()> {
        let is_missing = view.record.session_repo.worktree.symlink_metadata().is_err();
        if view.record.run_mode.place.is_some() && is_missing {
            recreate_worktree::recreate_if_missing(&self.repository, &view.record.session_repo)?;
        }
        Ok(())
    }

    /// Takes a session's lock. A command that only reads a session releases it quickly; a
    /// supervisor that has written its exit line may take longer, especially on a busy machine.
    pub fn lock_with_timeout(&self, id: &Id) -> Result<Option<Lock>> {
        let start = Instant::now();
        let mut is_reported = false;
        loop {
            let lock = self.store.lock(id)?;
            if lock.is_some() {
                return Ok(lock);
            }
            self.interrupt.check()?;
            let elapsed = start.elapsed();
            let has_ended = || -> Result<bool> {
                Ok(matches!(self.store.summary(id)?.phase, Phase::Ended { .. }))
            };
            if elapsed > EXIT_TIMEOUT || elapsed > LOCK_TIMEOUT && !has_ended()? {
                return Ok(None);
            }
            if elapsed > LOCK_TIMEOUT && !is_reported {
                self.console.note(&format!("waiting for the supervisor of `{id}` to exit"));
                is_reported = true;
            }
            pause();
        }
    }

    /// Prevents shells from being opened in a session; fails if one is open. A supervisor that is ending
    /// holds this lock for a moment.
    pub fn lock_shell(&self, id: &Id) -> Result<Lock> {
        let start = Instant::now();
        loop {
            match self.store.lock_shell(id) {
                Err(_) if start.elapsed() < LOCK_TIMEOUT && !self.store.has_open_shell(id) => {
                    pause();
                }
                result => return result,
            }
        }
    }

    /// Records that a shell is open in a session; waits for a supervisor that is ending.
    pub fn open_shell(&self, id: &Id) -> Result<Lock> {
        let start = Instant::now();
        loop {
            match self.store.open_shell(id) {
                Err(_) if start.elapsed() < LOCK_TIMEOUT => pause(),
                result => return result,
            }
        }
    }

    /// Returns the current state of a session.
    pub fn view(&self, id: &Id) -> Result<SessionView> {
        self.view_with(id, &*self.dispositions()?)
    }

    /// Returns the current state of a session, with known dispositions.
    pub fn view_with(&self, id: &Id, dispositions: &Dispositions) -> Result<SessionView> {
        let mut view = self.view_without_reason(id, dispositions)?;
        if is_schedulable(&view) {
            explain_queued(&mut view, &QueueReasons::read(self.store.root()));
        }
        Ok(view)
    }

    /// Like [`Project::view_with`], without what a queued session waits for: that is one file for all
    /// sessions.
    pub(crate) fn view_without_reason(
        &self,
        id: &Id,
        dispositions: &Dispositions,
    ) -> Result<SessionView> {
        dispositions.refuse_unknown(id)?;
        // The lock is checked first: if a run ends after that, its exit line is read below.
        let locked = self.store.is_locked(id);
        let summary = self.store.summary(id)?;
        self.view_of_summary(id, dispositions, locked, summary)
    }

    /// Returns the state of a session whose journal was summarized before, without what it waits for
    /// if it is queued.
    pub(crate) fn view_of_summary(
        &self,
        id: &Id,
        dispositions: &Dispositions,
        locked: bool,
        summary: JournalSummary,
    ) -> Result<SessionView> {
        let record = self.store.load(id)?.relocated(&self.repository)?;
        let disposition = dispositions.get(id).clone();
        let dependencies = dispositions.open_dependencies(&record);
        let record = record.with_settings(&summary);
        let is_at_place = record.run_mode.place.is_some();
        let placement = is_at_place.then(|| Placement::read(&self.store, id)).flatten();
        // A place goes on although nothing here keeps the connection.
        let locked = locked || placement.as_ref().is_some_and(Placement::is_away);
        let queue_reason = None;
        let facts = SessionFacts { locked, summary, disposition, dependencies, queue_reason };
        let mut view = SessionView::new(record, facts);
        view.placement = placement;
        view.tried_in = dispositions.tried_in(id).cloned();
        self.read_preparation(&mut view);
        view.undo_operation.take_if(|operation| !dispositions.is_kept(&self.repository, operation));
        Ok(view)
    }

    /// Reads what was prepared for the landing of a ready session.
    pub(crate) fn read_preparation(&self, view: &mut SessionView) {
        if view.state == SessionState::Ready {
            let message = PreparedMessage::read(&self.store, &view.record.id);
            view.message = message
                .filter(|message| view.work().is_some_and(|work| work.commit() == message.work));
            view.obstacle = self.obstacle(view);
        }
    }

    /// Returns why a ready session cannot land on the current tip of its target, as far as a check in
    /// the background has found out.
    fn obstacle(&self, view: &SessionView) -> Option<String> {
        let check = TargetCheck::read(&self.store, &view.record.id)?;
        let obstacle = check.obstacle()?;
        let tip = self.repository.tip(view.record.base.branch.as_ref()?).ok().flatten()?;
        let is_current = check.tip == tip && view.work()?.commit() == check.work;
        is_current.then_some(obstacle)
    }

    /// Returns the refusal for a session that is accepted or discarded, with the operation that
    /// reverts it if there is one.
    pub fn already_ended(view: &SessionView) -> Failure {
        let message = format!("session `{}` is already {}", view.record.id, view.state.name());
        match &view.undo_operation {
            Some(operation) => Failure::refused(message).hint(format!("studio undo {operation}")),
            None => Failure::refused(message)
                .because("its data has already been removed by `studio gc`")
                .hint("studio run 'the task'    starts a new session"),
        }
    }

    /// Returns the current state of all sessions, oldest first, and the errors of unreadable ones.
    pub fn sessions(&self) -> Result<(Vec<SessionView>, Vec<DamagedSession>)> {
        Ok(self.sessions_of(&self.store.ids()?, &*self.dispositions()?))
    }

    /// Like [`Project::sessions`], without the accepted and discarded ones, whose number is returned:
    /// their files are not read.
    pub fn open_sessions(&self) -> Result<(Vec<SessionView>, Vec<DamagedSession>, usize)> {
        let dispositions = self.dispositions()?;
        let is_closed = |id: &Id| dispositions.get(id).operation().is_some();
        let (closed, open): (Vec<Id>, Vec<Id>) = self.store.ids()?.into_iter().partition(is_closed);
        let (views, damaged) = self.sessions_of(&open, &dispositions);
        Ok((views, damaged, closed.len()))
    }

    /// Returns the current state of these sessions, oldest first, and the errors of unreadable ones.
    fn sessions_of(
        &self,
        ids: &[Id],
        dispositions: &Dispositions,
    ) -> (Vec<SessionView>, Vec<DamagedSession>) {
        let reasons = QueueReasons::read(self.store.root());
        let results = parallel::map(ids, MIN_SESSIONS_PER_THREAD, |id| {
            let mut view = self.view_without_reason(id, dispositions)?;
            explain_queued(&mut view, &reasons);
            Ok(view)
        });
        let (mut views, mut unreadable) = (Vec::with_capacity(ids.len()), Vec::new());
        for (id, result) in ids.iter().zip(results) {
            match result {
                Ok(view) => views.push(view),
                // It may have been removed after its name was read.
                Err(_) if !self.store.dir(id).exists() => {}
                Err(failure) => unreadable.push((id.clone(), failure)),
            }
        }
        (self.oldest_first(views), unreadable)
    }

    /// Sorts sessions by their age. Of those that began at the same time, the time of the directory
    /// decides; it is read once for each.
    fn oldest_first(&self, views: Vec<SessionView>) -> Vec<SessionView> {
        let dirs_created_at = vec![OnceCell::new(); views.len()];
        let dir_created_at = |index: usize| {
            let id = &views[index].record.id;
            *dirs_created_at[index].get_or_init(|| self.store.dir_created_at(id))
        };
        let created_at = |index: usize| &views[index].record.created_at;
        let mut order: Vec<usize> = (0..views.len()).collect();
        order.sort_by(|a, b| {
            let by_time = created_at(*a).cmp(created_at(*b));
            by_time.then_with(|| dir_created_at(*a).cmp(&dir_created_at(*b)))
        });
        let mut views: Vec<Option<SessionView>> = views.into_iter().map(Some).collect();
        order.into_iter().filter_map(|index| views[index].take()).collect()
    }

    /// Collects the work of a session that crashed within a turn, if it was not collected yet, so
    /// that its numbers can be shown. On any error the session is returned unchanged.
    pub fn salvage(&self, view: SessionView) -> SessionView {
        if view.state != SessionState::Crashed || !view.facts.summary.in_turn {
            return view;
        }
        // All work that is here came with its lines of the journal, and the run may continue that one.
        let is_unreached = view.placement.as_ref().is_some_and(|it| it.unreached.is_some());
        if is_unreached && view.record.session_repo.worktree.symlink_metadata().is_err() {
            return view;
        }
        let id = &view.record.id;
        let collect_and_view = || -> Result<SessionView> {
            if let Some(_lock) = self.store.lock(id)?
                && self.store.summary(id)?.in_turn
            {
                let collected =
                    collect::collect(&self.repository, &view.record, &SnapshotLimits::default())?;
                let reason = Some("its supervisor exited unexpectedly".to_owned());
                let end = JournalEntry::TurnEnd { n: view.facts.summary.turns, why: reason };
                let mut writer = self.store.writer(id, self.clock)?;
                for entry in [end, JournalEntry::Work(collected.work)] {
                    writer.write(entry).or_fail(|| "cannot write the journal")?;
                }
            }
            self.view(id)
        };
        collect_and_view().unwrap_or(view)
    }

    /// Collects the current content of the worktree if the agent changed nothing: the user may have
    /// changed or committed files there. On any error the session is returned unchanged.
    pub fn try_refresh(&self, view: SessionView) -> SessionView {
        let is_empty =
            view.facts.summary.phase == (Phase::Ended { outcome: SessionOutcome::Empty });
        if !is_empty || view.state.is_over() {
            return view;
        }
        let id = &view.record.id;
        let refresh_and_view = || -> Result<SessionView> {
            if let Some(_lock) = self.store.lock(id)? {
                self.refresh(id)?;
            }
            self.view(id)
        };
        refresh_and_view().unwrap_or(view)
    }

    /// Like [`Project::try_refresh`], for a session whose lock the caller holds.
    pub(crate) fn refresh(&self, id: &Id) -> Result<SessionView> {
        let view = self.view(id)?;
        let is_empty =
            view.facts.summary.phase == (Phase::Ended { outcome: SessionOutcome::Empty });
        if !is_empty || view.state.is_over() {
            return Ok(view);
        }
        let collected =
            collect::collect(&self.repository, &view.record, &SnapshotLimits::default())?;
        if view.work() == Some(&collected.work) {
            return Ok(view);
        }
        let mut writer = self.store.writer(id, self.clock)?;
        writer.write(JournalEntry::Work(collected.work)).or_fail(|| "cannot write the journal")?;
        self.view(id)
    }

    /// Returns the readable sessions that were neither accepted nor discarded, oldest first.
    pub fn open_views(&self) -> Result<Vec<SessionView>> {
        Ok(self.open_sessions()?.0)
    }

    /// Returns all readable sessions, oldest first.
    pub fn views(&self) -> Result<Vec<SessionView>> {
        Ok(self.sessions()?.0)
    }

    /// Returns the session that the user named: by its id, a unique prefix, or `@latest`; without a
    /// name, the session whose worktree contains the current directory, or the only one that fits.
    pub fn find(
        &self,
        name: Option<&str>,
        is_eligible: impl Fn(&SessionState) -> bool,
    ) -> Result<SessionView> {
        if let (None, Some(session)) = (name, &self.repository.session) {
            return self.view(session);
        }
        let (views, unreadable) = self.sessions_named(name)?;
        let candidates: Vec<NamedSession> = views
            .iter()
            .map(|view| NamedSession {
                id: view.record.id.clone(),
                created_at: view.record.created_at.clone(),
                is_open: !view.state.is_over(),
                is_eligible: is_eligible(&view.state),
            })
            .collect();
        let damaged = |text: &str| {
            let matches = |id: &Id| !text.is_empty() && id.as_str().starts_with(text);
            unreadable.into_iter().find(|(id, _)| matches(id)).map(|(_, failure)| failure)
        };
        let id = resolve(name, &candidates)
            .map_err(|failure| name.and_then(damaged).unwrap_or(failure))?;
        self.view(&id)
    }

    /// Returns the sessions that a name may mean, or all of them if it means none: others need not be
    /// read.
    fn sessions_named(
        &self,
        name: Option<&str>,
    ) -> Result<(Vec<SessionView>, Vec<DamagedSession>)> {
        let prefix = name.filter(|name| !name.is_empty() && *name != "@latest");
        let matches = |id: &&Id| prefix.is_none_or(|prefix| id.as_str().starts_with(prefix));
        let ids = self.store.ids()?;
        let named: Vec<Id> = ids.iter().filter(matches).cloned().collect();
        let ids = if named.is_empty() { &ids } else { &named };
        Ok(self.sessions_of(ids, &*self.dispositions()?))
    }

    /// Returns all sessions that the user named, without duplicates; without names, the only one
    /// that fits.
    pub fn find_all(
        &self,
        names: &[String],
        is_eligible: impl Fn(&SessionState) -> bool,
    ) -> Result<Vec<SessionView>> {
        if names.is_empty() {
            return Ok(vec![self.find(None, is_eligible)?]);
        }
        let mut views: Vec<SessionView> = Vec::new();
        for name in names {
            let view = self.find(Some(name), &is_eligible)?;
            if views.iter().all(|other| other.record.id != view.record.id) {
                views.push(view);
            }
        }
        Ok(views)
    }
}

/// Returns whether only the scheduler keeps a session from starting.
fn is_schedulable(view: &SessionView) -> bool {
    view.state == SessionState::Queued && view.facts.dependencies.is_empty()
}

/// Sets what a queued session waits for; returns whether that changes anything.
pub(crate) fn explain_queued(view: &mut SessionView, reasons: &QueueReasons) -> bool {
    let reason = reasons.waiting.get(&view.record.id).filter(|_| is_schedulable(view));
    let is_changed = view.facts.queue_reason.as_ref() != reason;
    if is_changed {
        view.facts.queue_reason = reason.cloned();
    }
    is_changed
}

/// Waits briefly between two polls of another process.
pub fn pause() {
    let time = rustix::event::Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
    let _ = rustix::event::poll(&mut [], Some(&time));
}
