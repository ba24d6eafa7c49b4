//! The checks of a run: commands that g3 runs itself instead of trusting an agent's claims, and the
//! record of the checks that this user has given.

use base::failure::{Failure, OrFail, Result};
use base::process::{Command, GRACE, Stream, exit_code};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;
use tools::exec::confinement::{self, CommandSandbox};
use tools::exec::environment::{self, Environment};

/// Maximum number of bytes kept of the end of an output.
const TAIL: u64 = 4_000;
/// Exit code of a check that timed out, as in `timeout(1)`.
const TIMED_OUT: i32 = 124;
/// Exit code of a check that cannot be started, as in a shell.
const NOT_STARTED: i32 = 127;

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CheckOutcome {
    /// The command line, as given.
    pub command: String,
    /// Whether it passed.
    pub ok: bool,
    /// The exit code, as a shell reports it.
    pub exit: i32,
    /// Duration in milliseconds.
    pub ms: u64,
    /// The end of its output.
    pub tail: String,
}

/// Where, how long and how confined checks run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CheckRunner<'a> {
    /// The directory they run in.
    pub cwd: &'a Path,
    /// Directory for the whole output, a file for each check.
    pub logs: &'a Path,
    /// Timeout of each check.
    pub most: Duration,
    /// The sandbox of the checks; `None` for no sandbox.
    pub sandbox: Option<&'a CommandSandbox>,
}

/// Runs every check in order, even after one has failed: the coach needs to see all failures.
/// Returns `None` if the user cancelled.
pub(crate) async fn run(
    lines: &[String],
    runner: &CheckRunner<'_>,
    cancel: &CancellationToken,
) -> io::Result<Option<Vec<CheckOutcome>>> {
    fs::create_dir_all(runner.logs)?;
    let mut results = Vec::new();
    for (n, line) in lines.iter().enumerate() {
        let log = runner.logs.join(format!("check-{}.log", n + 1));
        let Some(outcome) = one(line, &log, runner, cancel).await? else { return Ok(None) };
        results.push(outcome);
    }
    Ok(Some(results))
}

async fn one(
    line: &str,
    log: &Path,
    runner: &CheckRunner<'_>,
    cancel: &CancellationToken,
) -> io::Result<Option<CheckOutcome>> {
    let (out, since) = (File::create(log)?, Instant::now());
    let job = Command::new("sh", runner.cwd).arg("-c").arg(line);
    let job = environment::apply(job, Environment::Quiet)
        .stderr(Stream::File(out.try_clone()?))
        .stdout(Stream::File(out));
    let containment = runner.sandbox.map_or(Ok(None), CommandSandbox::containment_if_supported);
    let (exit, more) = match containment.and_then(|hold| confinement::spawn(job, hold)) {
        Err(error) => (NOT_STARTED, error.to_string()),
        Ok(mut running) => {
            let ended = tokio::select! {
                status = running.child.wait() => Some(status?),
                () = tokio::time::sleep(runner.most) => None,
                () = cancel.cancelled() => {
                    running.end(GRACE).await?;
                    return Ok(None);
                }
            };
            match ended {
                Some(status) => (exit_code(status), String::new()),
                None => {
                    running.end(GRACE).await?;
                    let seconds = runner.most.as_secs();
                    (TIMED_OUT, format!("\n[timed out after {seconds} s]"))
                }
            }
        }
    };
    let ms = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
    let tail = tail_of(log)? + &more;
    Ok(Some(CheckOutcome { command: line.to_owned(), ok: exit == 0, exit, ms, tail }))
}

fn tail_of(log: &Path) -> io::Result<String> {
    let mut file = File::open(log)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
    let mut bytes = Vec::new();
    file.take(TAIL).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let cut = if length > TAIL { "[cut] …" } else { "" };
    Ok(format!("{cut}{}", text.trim_end()))
}

/// Records that this user started a run with these checks.
pub(crate) fn remember(session_dir: &Path, checks: &[String]) -> Result<()> {
    let Some(mark) = mark(session_dir, checks).filter(|_| !checks.is_empty()) else {
        return Ok(());
    };
    let cannot = || format!("cannot write {}", mark.display());
    let folder = mark.parent().unwrap_or(&mark);
    std::fs::create_dir_all(folder).or_fail(cannot)?;
    base::files::replace(&mark, b"").or_fail(cannot)
}

/// Fails if the session has checks that were not given on this machine. Checks in `given` are
/// known.
pub(crate) fn refuse_unknown(
    session_dir: &Path,
    checks: &[String],
    commands: &[String],
) -> Result<()> {
    if mark(session_dir, checks).is_some_and(|mark| mark.exists()) {
        return Ok(());
    }
    let strange: Vec<&str> =
        checks.iter().filter(|line| !commands.contains(line)).map(String::as_str).collect();
    if strange.is_empty() {
        return Ok(());
    }
    Err(Failure::usage("this run contains checks that were not given on this machine")
        .because(strange.join("; "))
        .hint("review them; to run them, give each one again: --check LINE"))
}

fn mark(session_dir: &Path, checks: &[String]) -> Option<PathBuf> {
    let home = base::user_dirs::home_dir()?;
    let mut digest = Sha256::new();
    digest.update(session_dir.as_os_str().as_encoded_bytes());
    for line in checks {
        digest.update([0]);
        digest.update(line);
    }
    let name = base::text::hex(&digest.finalize());
    Some(home.join(".g3/runs").join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn ran(line: &str, most: Duration) -> CheckOutcome {
        let dir = tempfile::tempdir().unwrap();
        let at =
            CheckRunner { cwd: dir.path(), logs: &dir.path().join("logs"), most, sandbox: None };
        let lines = [line.to_owned()];
        let mut all = run(&lines, &at, &CancellationToken::new()).await.unwrap().unwrap();
        all.remove(0)
    }

    #[tokio::test]
    async fn exit_code_and_the_end_of_both_streams_are_kept() {
        let minute = Duration::from_secs(60);
        let good = ran("echo out; echo err >&2", minute).await;
        assert_eq!((good.ok, good.exit, good.tail.as_str()), (true, 0, "out\nerr"));
        let bad = ran("seq 1 5000; exit 7", minute).await;
        assert_eq!((bad.ok, bad.exit), (false, 7));
        assert!(bad.tail.ends_with("\n5000") && bad.tail.len() < 4_100, "{}", bad.tail);
    }

    #[tokio::test]
    async fn a_check_that_times_out_is_ended_with_its_children() {
        let slow = ran("sleep 1000 & echo $!; wait", Duration::from_millis(300)).await;
        assert_eq!((slow.ok, slow.exit), (false, TIMED_OUT));
        let child: u32 = slow.tail.lines().next().unwrap().parse().unwrap();
        testkit::env::until("the end of the child", || {
            (!base::process::is_alive(child)).then_some(())
        });
    }
}
