//! The scheduler: an idempotent step under the repository's scheduler lock, called by every command
//! that changes something. There is no daemon.

use base::failure::{OrFail, Result};
use base::id::Id;
use base::lock::Lock;

use crate::session::disposition::Dispositions;
use crate::session::record::SessionRecord;
use crate::session::store::SessionStore;
use crate::session::summary::{Disposition, Phase};
use crate::supervisor::spawn;
use studio_git::repo::Repository;
use studio_git::worktree;

/// Starts queued sessions while job slots are free; returns those that were started.
pub(crate) fn step(repository: &Repository, dispositions: &Dispositions) -> Result<Vec<Id>> {
    let store = SessionStore::new(&repository.common_dir);
    let _lock = lock(repository)?;
    let mut queue: Vec<SessionRecord> = Vec::new();
    let (mut active, mut busy_ids) = (0u32, Vec::new());
    for id in store.ids()? {
        let locked = store.is_locked(&id);
        // A damaged session does not block others; `list` and `doctor` report it.
        let Ok(summary) = store.summary(&id) else {
            active += u32::from(locked);
            continue;
        };
        match summary.phase {
            Phase::Queued if !locked && is_open(dispositions, &id) => queue.extend(store.load(&id)),
            Phase::Queued | Phase::Ended { .. } if !locked => {}
            Phase::Ended { .. } => {}
            Phase::Queued
            | Phase::Starting
            | Phase::Working
            | Phase::Waiting { .. }
            | Phase::Checking => active += u32::from(locked),
        }
        // Includes a session that is landing: until it has landed, others cannot start from its
        // work.
        busy_ids.extend(locked.then_some(id));
    }
    queue.sort_by(|a, b| (&a.created_at, &a.id).cmp(&(&b.created_at, &b.id)));
    let mut started = Vec::new();
    for mut record in queue {
        let must_wait = !dispositions.open_dependencies(&record).is_empty()
            || overlaps_running(&store, &busy_ids, &record);
        if active >= record.run_mode.jobs.max(1) || must_wait {
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
        active += 1;
        busy_ids.push(record.id.clone());
        started.push(record.id);
    }
    Ok(started)
}

/// Takes the scheduler lock, which is required to start a session.
pub fn lock(repository: &Repository) -> Result<Lock> {
    let path = repository.studio_dir()?.join("scheduler.lock");
    Lock::take(&path).or_fail(|| format!("cannot lock {}", path.display()))
}

fn is_open(dispositions: &Dispositions, id: &Id) -> bool {
    *dispositions.get(id) == Disposition::Open
}

/// Returns whether a running session has paths that overlap with this one's.
fn overlaps_running(store: &SessionStore, busy_ids: &[Id], record: &SessionRecord) -> bool {
    let paths = &record.plan_ref.paths;
    !paths.is_empty()
        && busy_ids.iter().filter_map(|id| store.load(id).ok()).any(|other| {
            other.id != record.id
                && !record.is_other_attempt(&other)
                && planner::task::paths_overlap(paths, &other.plan_ref.paths)
        })
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
