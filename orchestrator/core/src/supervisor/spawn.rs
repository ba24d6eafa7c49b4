//! Starts a supervisor: the same program, detached, with the session's lock.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use base::failure::{Failure, OrFail, Result};
use base::files::step;
use base::id::Id;
use base::lock::Lock;
use base::process::{Command, Running, Stream};

use crate::session::store::SessionStore;

/// The hidden command that starts a supervisor.
pub(crate) const COMMAND: &str = "__supervise";

/// Starts the supervisor of a session whose lock the caller holds. It keeps running when the caller
/// ends.
pub(crate) fn spawn(common_dir: &Path, id: &Id, lock: Lock) -> Result<u32> {
    let supervisor = command(common_dir, id, lock)?.detached();
    supervisor.spawn_forget().or_fail(|| cannot_start(id))
}

/// Like [`spawn`], but the supervisor ends with the calling process.
pub(crate) fn spawn_child(common_dir: &Path, id: &Id, lock: Lock) -> Result<Running> {
    let supervisor = command(common_dir, id, lock)?.kill_on_parent_death();
    supervisor.spawn().or_fail(|| cannot_start(id))
}

/// Returns the command of a supervisor. The lock is passed as its stdin, so that it is held at every
/// moment.
fn command(common_dir: &Path, id: &Id, lock: Lock) -> Result<Command> {
    let store = SessionStore::new(common_dir);
    let fail = || cannot_start(id);
    let studio = std::env::current_exe().or_fail(fail)?;
    let log = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(store.file(id, "supervisor.log"))
        .or_fail(fail)?;
    let stderr = log.try_clone().or_fail(fail)?;
    step("run.supervisor");
    Ok(Command::new(studio, common_dir)
        .arg(COMMAND)
        .arg(common_dir)
        .arg(id.as_str())
        .stdin(Stream::File(File::from(lock.share().or_fail(fail)?)))
        .stdout(Stream::File(log))
        .stderr(Stream::File(stderr)))
}

fn cannot_start(id: &Id) -> String {
    format!("cannot start the supervisor of `{id}`")
}

/// Returns the lock that the parent passed as stdin. Children get `/dev/null` as stdin.
pub(crate) fn inherited_lock(store: &SessionStore, id: &Id) -> Result<Lock> {
    let fail = || "the supervisor was not handed its lock";
    let fd = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3).or_fail(fail)?;
    let null = File::open("/dev/null").or_fail(fail)?;
    rustix::stdio::dup2_stdin(&null).or_fail(fail)?;
    if !store.is_locked(id) {
        return Err(Failure::usage("a supervisor is started by studio, not by hand"));
    }
    Ok(Lock::inherited(fd))
}
