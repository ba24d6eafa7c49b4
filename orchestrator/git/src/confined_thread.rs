//! Reads files that an agent may change at the same time: on a thread that the kernel lets read the
//! named trees only, so that a symlink in place of a directory leads nowhere.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use base::failure::{Failure, OrFail, Result};
use base::sandbox::{self, SandboxRules, borrowed_objects};

use crate::git_installation::{GitInstallation, SYSTEM_PATHS};

/// Stack size that suffices for libgit2 in deep directories.
const STACK_BYTES: usize = 16 << 20;
/// Returns rules that open only these trees and what git needs to run.
pub(crate) fn rules(read: Vec<PathBuf>, write: Vec<PathBuf>) -> SandboxRules {
    let mut rules = SandboxRules { read, write, ..SandboxRules::default() };
    rules.read.extend(SYSTEM_PATHS.iter().map(PathBuf::from));
    rules.read.extend(GitInstallation::find().map(|git| git.read.clone()).unwrap_or_default());
    rules.write.push(PathBuf::from("/dev/null"));
    rules
}

/// Runs a function on a separate thread under these rules, which also apply to what the thread
/// starts. Fails after `timeout`, so that no file can block forever: the thread is then abandoned
/// and ends with this process.
pub(crate) fn run<T: Send + 'static>(
    rules: SandboxRules,
    timeout: Duration,
    error: &'static str,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let (tx, rx) = mpsc::channel();
    let run_confined = move || {
        let confined = sandbox::enter(&rules).or_fail(|| "cannot confine a thread");
        let _ = tx.send(confined.and_then(|_| work()));
    };
    let thread = std::thread::Builder::new().name("confined".to_owned()).stack_size(STACK_BYTES);
    let handle = thread.spawn(run_confined).or_fail(|| "cannot start a thread")?;
    let received = rx.recv_timeout(timeout);
    if matches!(&received, Err(RecvTimeoutError::Timeout)) {
        let reason = format!("timed out after {} s", timeout.as_secs());
        return Err(Failure::failed(error).because(reason));
    }
    // Its rules keep the files that they name open until it has ended.
    let _ = handle.join();
    received.unwrap_or_else(|_| Err(Failure::failed(error).because("its thread panicked")))
}

/// Returns the object directories of a repository: its own, and those that it borrows from.
pub(crate) fn object_directories(common_dir: &Path) -> Vec<PathBuf> {
    let own = common_dir.join("objects");
    let mut directories = borrowed_objects::directories(&own);
    directories.insert(0, own);
    directories
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::process::{Command, OutputLimits};

    #[test]
    fn a_confined_thread_and_its_children_read_only_the_named_trees() {
        let temp = tempfile::tempdir().unwrap();
        let (open, closed) = (temp.path().join("open"), temp.path().join("closed"));
        std::fs::write(&open, "seen").unwrap();
        std::fs::write(&closed, "secret").unwrap();
        let read = move || {
            let can_read_open = std::fs::read_to_string(&open).is_ok();
            let can_read_closed = std::fs::read_to_string(&closed).is_ok();
            let child = Command::new("cat", "/").arg(&closed).output(OutputLimits::seconds(60));
            let child = child.or_fail(|| "cannot run cat")?;
            Ok((can_read_open, can_read_closed, child.text().contains("secret")))
        };
        assert_eq!(read.clone()().unwrap(), (true, true, true), "nothing is confined yet");
        let rules = rules(vec![temp.path().join("open")], Vec::new());
        let result = run(rules, Duration::from_secs(60), "cannot look", read).unwrap();
        assert_eq!(result, (true, false, false));
    }

    #[test]
    fn work_that_never_ends_times_out() {
        let (_tx, rx) = mpsc::channel::<()>();
        let wait_forever = move || rx.recv().or_fail(|| "it ended");
        let result =
            run(SandboxRules::default(), Duration::from_millis(1), "cannot look", wait_forever);
        assert!(result.unwrap_err().reason().unwrap().contains("timed out"));
    }

    #[test]
    fn object_directories_include_alternates() {
        let temp = tempfile::tempdir().unwrap();
        for (name, alternates_text) in [("a", "../../b/objects\n"), ("b", "# none\n")] {
            let info = temp.path().join(name).join("objects/info");
            std::fs::create_dir_all(&info).unwrap();
            std::fs::write(info.join("alternates"), alternates_text).unwrap();
        }
        let directories = object_directories(&temp.path().join("a"));
        let found: Vec<_> = directories.iter().map(|path| path.canonicalize().unwrap()).collect();
        let root = temp.path().canonicalize().unwrap();
        assert_eq!(found, [root.join("a/objects"), root.join("b/objects")]);
    }
}
