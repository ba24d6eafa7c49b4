//! The scheduler: an idempotent step under the repository's scheduler lock, called by every command
//! that changes something. There is no daemon.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use base::clock::Clock;
use base::config::Config;
use base::failure::{OrFail, Result};
use base::id::Id;
use base::lock::Lock;

use crate::admission::{Machine, Room};
use crate::launch::registry;
use crate::queue_reasons::QueueReasons;
use crate::rate_limit::{Account, AccountAccess, RateLimits};
use crate::run_budget::{self, BudgetShortage, RunSessions};
use crate::session::disposition::Dispositions;
use crate::session::placement::Placement;
use crate::session::record::SessionRecord;
use crate::session::state::rate_limit_reason;
use crate::session::store::SessionStore;
use crate::session::summary::{Disposition, Phase, QueueReason};
use crate::supervisor::spawn;
use crate::waker::{self, ConfigLocation};
use studio_git::repo::Repository;
use studio_git::worktree;

/// The sessions of a repository at the beginning of a step.
#[derive(Default)]
struct ScheduledSessions {
    /// Sessions that can start, the oldest first.
    queue: Vec<SessionRecord>,
    /// The number of sessions that occupy a job slot of this machine.
    active: u32,
    /// The number of sessions at each place.
    active_at: BTreeMap<String, u32>,
    /// Sessions at a place to which nothing keeps the connection.
    disconnected: Vec<Id>,
    /// The number of those that are being started.
    starting: u64,
    /// Sessions that a process works on. Includes a session that is landing: until it has landed,
    /// others cannot start from its work.
    busy_ids: Vec<Id>,
    /// The sessions that share a total budget with others; read when a session with one may start.
    runs: OnceCell<RunSessions>,
}

/// Starts queued sessions while there is room for them; returns those that were started. `location` is
/// where the configuration comes from.
pub(crate) fn step(
    repository: &Repository,
    config: &Config,
    location: ConfigLocation<'_>,
    dispositions: &Dispositions,
) -> Result<Vec<Id>> {
    let store = SessionStore::new(&repository.common_dir);
    let _lock = lock(repository)?;
    let mut sessions = ScheduledSessions::read(&store, dispositions)?;
    for id in std::mem::take(&mut sessions.disconnected) {
        let Some(lock) = store.lock(&id)? else { continue };
        spawn::spawn(&repository.common_dir, &id, lock)?;
        sessions.busy_ids.push(id);
    }
    let queue = std::mem::take(&mut sessions.queue);
    if queue.is_empty() {
        QueueReasons::default().write(store.root());
        return Ok(Vec::new());
    }
    let mut room = Room::new(Machine::measure(), config, sessions.starting);
    let mut reasons = QueueReasons::default();
    let mut started = Vec::new();
    for mut record in queue {
        if !dispositions.open_dependencies(&record).is_empty() {
            continue;
        }
        if let Some(reason) = obstacle(&store, config, &sessions, &room, &record) {
            reasons.waiting.insert(record.id, reason);
            continue;
        }
        let Some(lock) = store.lock(&record.id)? else { continue };
        // It may have been stopped before the lock was taken.
        if store.summary(&record.id)?.phase != Phase::Queued {
            continue;
        }
        if record.starts_at_tip() && !worktree::is_finished(&record.session_repo) {
            rebase_on_tip(repository, &store, &mut record)?;
        }
        spawn::spawn(&repository.common_dir, &record.id, lock)?;
        match &record.run_mode.place {
            Some(place) => *sessions.active_at.entry(place.clone()).or_default() += 1,
            None => {
                sessions.active += 1;
                room.start_one();
            }
        }
        if let Some(runs) = sessions.runs.get_mut() {
            runs.start(&record.id);
        }
        sessions.busy_ids.push(record.id.clone());
        started.push(record.id);
    }
    reasons.write(store.root());
    if reasons.needs_waker() && sessions.busy_ids.is_empty() {
        waker::start(&repository.common_dir, store.root(), location);
    }
    Ok(started)
}

impl ScheduledSessions {
    fn read(store: &SessionStore, dispositions: &Dispositions) -> Result<ScheduledSessions> {
        let mut sessions = ScheduledSessions::default();
        for id in store.ids()? {
            let locked = store.is_locked(&id);
            if !locked && dispositions.get(&id).operation().is_some() {
                continue;
            }
            // A damaged session does not block others; `list` and `doctor` report it.
            let Ok(summary) = store.summary(&id) else {
                sessions.active += u32::from(locked);
                continue;
            };
            match summary.phase {
                Phase::Queued if !locked && is_open(dispositions, &id) => {
                    sessions.queue.extend(store.load(&id));
                }
                Phase::Queued if !locked => {}
                Phase::Ended { .. } if locked => {}
                // A parked session has no agent at work.
                Phase::Parked { .. } if locked => {}
                Phase::Queued | Phase::Starting if locked => sessions.add_active(store, &id, 1),
                Phase::Working | Phase::Waiting { .. } | Phase::Checking if locked => {
                    sessions.add_active(store, &id, 0);
                }
                Phase::Queued
                | Phase::Starting
                | Phase::Working
                | Phase::Waiting { .. }
                | Phase::Parked { .. }
                | Phase::Checking
                // Home may have been killed before it took the session back.
                | Phase::Ended { .. } => {
                    if !is_open(dispositions, &id) {
                        continue;
                    }
                    let placement = Placement::read(store, &id);
                    let is_away = placement.is_some_and(|placement| placement.is_away());
                    if is_away {
                        sessions.add_active(store, &id, 0);
                        sessions.disconnected.push(id.clone());
                    }
                }
            }
            sessions.busy_ids.extend(locked.then_some(id));
        }
        sessions.queue.sort_by(|a, b| (&a.created_at, &a.id).cmp(&(&b.created_at, &b.id)));
        Ok(sessions)
    }

    /// Counts a session that runs; `starting` is 1 if it does not use its memory yet.
    fn add_active(&mut self, store: &SessionStore, id: &Id, starting: u64) {
        match store.load(id).ok().and_then(|record| record.run_mode.place) {
            Some(place) => *self.active_at.entry(place).or_default() += 1,
            None => {
                self.active += 1;
                self.starting += starting;
            }
        }
    }
}

/// Returns why a session does not start now.
fn obstacle(
    store: &SessionStore,
    config: &Config,
    sessions: &ScheduledSessions,
    room: &Room,
    record: &SessionRecord,
) -> Option<QueueReason> {
    if let Some(reason) = full(config, sessions, record) {
        return Some(QueueReason::new(reason));
    }
    if let Some(other) = overlapping(store, &sessions.busy_ids, record) {
        return Some(QueueReason::new(format!("waiting for `{other}`, which has the same paths")));
    }
    let is_first = sessions.active == 0;
    let floor = record.limits.disk_floor_bytes;
    let shortage = || room.shortage(&record.session_repo.worktree, floor, is_first);
    let is_here = record.run_mode.place.is_none();
    if let Some(text) = is_here.then(shortage).flatten() {
        return Some(QueueReason { changes_by_itself: true, ..QueueReason::new(text) });
    }
    if let Some(shortage) = budget_shortage(store, config, sessions, record) {
        let needs_user = !shortage.can_change;
        return Some(QueueReason { needs_user, ..QueueReason::new(shortage.text) });
    }
    rate_limit(config, record)
}

/// Returns that all job slots of this machine, or of its place, are occupied.
fn full(config: &Config, sessions: &ScheduledSessions, record: &SessionRecord) -> Option<String> {
    let Some(place) = &record.run_mode.place else {
        let is_full = sessions.active >= record.run_mode.jobs.max(1);
        return is_full.then(|| "waiting for a free slot".to_owned());
    };
    // The run of a session at an unknown place ends with that error.
    let max = config.studio.places.get(place)?.max_sessions();
    let active = sessions.active_at.get(place).copied().unwrap_or_default();
    (active >= max).then(|| format!("waiting for a free slot at {place}"))
}

/// Returns why the budget of its run does not allow a session to start.
fn budget_shortage(
    store: &SessionStore,
    config: &Config,
    sessions: &ScheduledSessions,
    record: &SessionRecord,
) -> Option<BudgetShortage> {
    let summary = store.summary(&record.id).ok()?;
    let limits = summary.limits.or(record.limits);
    limits.total_usd?;
    let expected = run_budget::expected_usd(config);
    let runs = sessions.runs.get_or_init(|| RunSessions::read(store, expected));
    run_budget::shortage(runs, config, record, &limits, &summary)
}

/// Returns the rate limit of the account of a session's agent. After the end of a limit, this is
/// where one session takes the right to ask first.
fn rate_limit(config: &Config, record: &SessionRecord) -> Option<QueueReason> {
    let row = registry::row(config, &record.agent).ok()?;
    let account = Account::of(config, &record.agent, &row);
    let limits = RateLimits::of_user();
    let limit = limits.get(&account)?;
    match limits.access(&account, record.id.as_str(), Clock::from_env().now()).ok()? {
        AccountAccess::Open => None,
        AccountAccess::Wait(until) => Some(QueueReason {
            text: rate_limit_reason(&limit.until.to_string()),
            until: Some(until.to_string()),
            changes_by_itself: true,
            needs_user: false,
        }),
    }
}

/// Lets a session ask its model service before the rate limit of its account ends; the others of
/// the account wait for the result. Returns whether there is a limit.
pub fn try_rate_limit(config: &Config, record: &SessionRecord) -> Result<bool> {
    let row = registry::row(config, &record.agent)?;
    let account = Account::of(config, &record.agent, &row);
    let now = Clock::from_env().now();
    let tried = RateLimits::of_user().try_now(&account, record.id.as_str(), now);
    tried.or_fail(|| "cannot change the rate limit of the account")
}

/// Takes the scheduler lock, which is required to start a session.
pub fn lock(repository: &Repository) -> Result<Lock> {
    let path = repository.studio_dir()?.join("scheduler.lock");
    Lock::take(&path).or_fail(|| format!("cannot lock {}", path.display()))
}

fn is_open(dispositions: &Dispositions, id: &Id) -> bool {
    *dispositions.get(id) == Disposition::Open
}

/// Returns a running session with paths that overlap with this one's.
fn overlapping(store: &SessionStore, busy_ids: &[Id], record: &SessionRecord) -> Option<Id> {
    let paths = &record.plan_ref.paths;
    if paths.is_empty() {
        return None;
    }
    let mut others = busy_ids.iter().filter_map(|id| store.load(id).ok());
    let overlaps = |other: &SessionRecord| {
        other.id != record.id
            && !record.is_other_attempt(other)
            && planner::task::paths_overlap(paths, &other.plan_ref.paths)
    };
    others.find(overlaps).map(|other| other.id)
}

/// Updates the base of a session that waited to the current tip of its branch, if the branch still
/// exists.
fn rebase_on_tip(
    repository: &Repository,
    store: &SessionStore,
    record: &mut SessionRecord,
) -> Result<()> {
    let branch = record.base.branch.as_ref();
    let current = branch.and_then(|branch| repository.base(Some(&branch.full())).ok());
    let Some(base) = current.filter(|base| *base != record.base) else { return Ok(()) };
    record.session_repo.base.clone_from(&base.commit);
    record.base = base;
    store.rewrite(record)
}

/// Returns the default maximum number of concurrent sessions: agents mostly wait for a model, so
/// twice the number of cores, limited by memory (512 MiB each).
pub(crate) fn default_jobs() -> u32 {
    let cores = std::thread::available_parallelism().map_or(2, |n| n.get() as u64);
    #[cfg(target_os = "linux")]
    let memory = rustix::system::sysinfo().totalram as u64 >> 29;
    #[cfg(not(target_os = "linux"))]
    let memory = 2 * cores;
    u32::try_from((2 * cores).clamp(4, 64).min(memory.max(2))).unwrap_or(4)
}
