//! Takes a session from home: its repository, work, record and journal.

use std::io::Read;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use base::failure::{Failure, OrFail, Result};
use base::files;
use base::lock::Lock;
use studio_git::replica::{self, WorkRefs};
use studio_git::repo::Repository;
use studio_git::session_repo::SessionRepo;

use crate::place::frames;
use crate::place::node::spool::{self, JobFiles, Spool};
use crate::place::protocol::{
    Delivered, KnownSessions, Order, PlacedSession, SharedSettings, refuse_other_protocol,
};
use crate::project::pause;
use crate::session::record::{SessionRecord, Templates};
use crate::session::store::SessionStore;
use crate::supervisor::control::{self, ControlRequest};

/// How long a supervisor of an earlier delivery may take to stop.
const STOP_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(30);

/// Takes a session. The same delivery twice changes nothing.
pub(super) fn deliver(spool: &Spool, order: Order, input: &mut impl Read) -> Result<Delivered> {
    refuse_other_protocol(&order.query)?;
    let fail = || "cannot read what home sent";
    if order.journal_bytes > frames::MAX_JOURNAL_BYTES {
        return Err(Failure::usage("the journal of the session is too long")
            .because(format!("{} bytes", order.journal_bytes))
            .hint("studio fork ID    continues the work in a new session"));
    }
    let floor = order.record.limits.disk_floor_bytes.unwrap_or_default();
    refuse_full_disk(spool.root(), order.pack_bytes, floor)?;
    let job = order.query.job.as_ref().map(|name| JobFiles::new(spool, name)).transpose()?;
    if let Some(job) = job.as_ref().filter(|_| !order.query.shared) {
        job.await_begin()?;
    }
    let mut journal = Vec::new();
    input.take(order.journal_bytes).read_to_end(&mut journal).or_fail(fail)?;
    if journal.len() as u64 != order.journal_bytes {
        return Err(Failure::failed(fail()).because("the connection ended"));
    }
    let pack = frames::copy_to_file(input, order.pack_bytes).or_fail(fail)?;
    let _lock = spool.lock(&order.query)?;
    let repository = prepare_repository(spool, &order.query, &order.shared)?;
    let record = record_here(&repository, &order)?;
    let store = SessionStore::new(&repository.common_dir);
    let mut commits = order.work.commits();
    commits.push(record.base.commit.clone());
    replica::take_base(&repository, &record.id, &commits, pack)?;
    let mut set_aside = None;
    if store.dir(&record.id).exists() {
        let lock = stop(&store, &repository, &record)?;
        if continues(&store, &repository, &record, &order.work, &journal)? {
            let path = store.file(&record.id, "journal.jsonl");
            files::replace(&path, &journal).or_fail(|| "cannot write the journal")?;
            store.rewrite(&record)?;
            files::step("deliver.continued");
            complete_delivery(&store, &order, job.as_ref())?;
            drop(lock);
            return Ok(Delivered { set_aside });
        }
        set_aside = move_aside(spool, &store, &repository, &record)?;
        drop(lock);
    }
    replica::create(&repository, &record.session_repo, &record.templates.branches()?, None)?;
    replica::take(&repository, &record.session_repo, &order.work, None)?;
    files::step("deliver.work");
    // The worktree is made when the run starts; the directory of the session may exist by now, with
    // its git directory only.
    complete(&store, &record, &journal)?;
    files::step("deliver.session");
    complete_delivery(&store, &order, job.as_ref())?;
    Ok(Delivered { set_aside })
}

/// Saves that the session is delivered: from here on it may run.
fn complete_delivery(store: &SessionStore, order: &Order, job: Option<&JobFiles>) -> Result<()> {
    spool::set_attempt(store, &order.query.id, order.attempt)?;
    job.map_or(Ok(()), |job| job.set_session(&order.query))
}

/// Writes record and journal beside the git directory.
fn complete(store: &SessionStore, record: &SessionRecord, journal: &[u8]) -> Result<()> {
    let fail = || format!("cannot save session `{}`", record.id);
    let path = store.file(&record.id, "journal.jsonl");
    files::replace(&path, journal).or_fail(fail)?;
    store.rewrite(record)
}

/// Refuses a pack for which the disk has no room.
pub(super) fn refuse_full_disk(root: &Path, pack_bytes: u64, floor: u64) -> Result<()> {
    match crate::admission::missing_disk(root, pack_bytes, floor) {
        Some(why) => Err(Failure::refused("the disk of the place is full")
            .because(why)
            .hint("delete files there, or choose another `spool`")),
        None => Ok(()),
    }
}

/// Creates the bare repository, if it is missing, with the settings that its sessions share with home.
pub(super) fn prepare_repository(
    spool: &Spool,
    query: &PlacedSession,
    shared: &SharedSettings,
) -> Result<Repository> {
    let path = spool.repository_path(query)?;
    let fail = || format!("cannot make {}", path.display());
    if !path.join("HEAD").exists() {
        // Renamed into place, so that an incomplete one is never used.
        let temporary = tempfile::Builder::new()
            .prefix(".new-")
            .tempdir_in(spool.root().join("repos"))
            .or_fail(fail)?;
        git2::Repository::init_bare(temporary.path()).or_fail(fail)?;
        std::fs::rename(temporary.keep(), &path).or_fail(fail)?;
    }
    // The last value of a key applies.
    let config = format!("{}[core]\n\tbare = true\n", shared.git_config);
    let write = |name: &str, text: Option<&str>| match text {
        Some(text) => files::replace(&path.join(name), text.as_bytes()),
        None => match std::fs::remove_file(path.join(name)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        },
    };
    std::fs::create_dir_all(path.join("info")).or_fail(fail)?;
    write("config", Some(&config)).or_fail(fail)?;
    write("info/exclude", Some(&shared.exclude)).or_fail(fail)?;
    write("info/attributes", shared.attributes.as_deref()).or_fail(fail)?;
    write("shallow", shared.shallow.as_deref()).or_fail(fail)?;
    Repository::discover(&path)
}

/// Returns the record with the paths of this machine.
fn record_here(repository: &Repository, order: &Order) -> Result<SessionRecord> {
    let record = &order.record;
    let worktree = base::config::studio::DEFAULT_WORKTREE.to_owned();
    let templates = Templates { worktree, ..record.templates.clone() };
    let session_repo = SessionRepo {
        branch: record.session_repo.branch.clone(),
        base: record.session_repo.base.clone(),
        ..templates.worktree_spec(&record.id, &record.base)?.session_repo(repository)?
    };
    Ok(SessionRecord { templates, session_repo, ..record.clone() })
}

/// Stops the run of an earlier delivery, and returns the session's lock.
fn stop(store: &SessionStore, repository: &Repository, record: &SessionRecord) -> Result<Lock> {
    let deadline = std::time::Instant::now() + STOP_TIMEOUT;
    loop {
        if let Some(lock) = store.lock(&record.id)? {
            return Ok(lock);
        }
        if std::time::Instant::now() > deadline {
            return Err(Failure::refused(format!(
                "an earlier run of `{}` does not stop there",
                record.id
            ))
            .hint("try again"));
        }
        let _ = control::send_request(&repository.common_dir, &record.id, &ControlRequest::Stop);
        pause();
    }
}

/// Returns whether home knows everything that happened here: then the session continues where it is.
fn continues(
    store: &SessionStore,
    repository: &Repository,
    record: &SessionRecord,
    work: &WorkRefs,
    journal: &[u8],
) -> Result<bool> {
    let here = std::fs::read(store.file(&record.id, "journal.jsonl")).unwrap_or_default();
    let is_known = !here.is_empty() && journal.starts_with(&here);
    Ok(is_known
        && studio_git::worktree::is_finished(&record.session_repo)
        && replica::work_refs(repository, &record.session_repo)?.as_ref() == Some(work))
}

/// Moves the state of an earlier delivery away. Nothing of it is deleted: home may not have all of it.
fn move_aside(
    spool: &Spool,
    store: &SessionStore,
    repository: &Repository,
    record: &SessionRecord,
) -> Result<Option<PathBuf>> {
    let id = &record.id;
    let fail = || format!("cannot move an earlier state of `{id}` away");
    let attempt = spool::attempt(store, id).unwrap_or_default();
    let old = spool.root().join("old");
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&old).or_fail(fail)?;
    let nonce = base::random::hex::<4>().or_fail(fail)?;
    let target = old.join(format!("{id}-{attempt}-{nonce}"));
    replica::keep_aside(repository, &record.session_repo, &format!("{attempt}-{nonce}"))?;
    if record.session_repo.worktree.symlink_metadata().is_ok() {
        std::fs::rename(&record.session_repo.worktree, target.with_extension("worktree"))
            .or_fail(fail)?;
    }
    std::fs::rename(store.dir(id), &target).or_fail(fail)?;
    Ok(Some(target))
}

/// Notes that home has everything of a session, and deletes the sessions that home no longer has and
/// that do not run.
pub(super) fn tidy(spool: &Spool, known: &KnownSessions) -> Result<u64> {
    if let Some(job) = &known.query.job {
        let job = JobFiles::new(spool, job)?;
        job.set_settled(known.settled)?;
        if known.query.shared && !job.runs() {
            job.remove();
        }
    }
    let _lock = spool.lock(&known.query)?;
    let Some(repository) = spool.existing_repository(&known.query)? else { return Ok(0) };
    let store = SessionStore::new(&repository.common_dir);
    let mut deleted = 0;
    for id in store.ids()?.into_iter().filter(|id| !known.known.contains(id)) {
        let Some(_lock) = store.lock(&id)? else { continue };
        let Ok(record) = store.load(&id) else { continue };
        replica::delete(&repository, &record.session_repo)?;
        std::fs::remove_dir_all(store.dir(&id))
            .or_fail(|| format!("cannot delete {}", store.dir(&id).display()))?;
        deleted += 1;
    }
    Ok(deleted)
}
