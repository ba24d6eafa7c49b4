//! Home's side of checks at a place: sends the commit, waits for the outcome.

use std::fs::File;
use std::io;
use std::time::{Duration, Instant};

use base::failure::{Failure, FailureKind, OrFail, Result};
use base::id::Id;
use base::process::Stream;
use studio_git::replica;
use tokio::io::{AsyncReadExt, BufReader};

use crate::exec::runner::CommandOutput;
use crate::place::cluster::Cluster;
use crate::place::configured_place::Place;
use crate::place::frames::{self, PlaceFrame};
use crate::place::host::{self, Host, HostError};
use crate::place::host_choice::{self, HostAnswer};
use crate::place::job::{self, JobState};
use crate::place::link::{self, SILENCE};
use crate::place::protocol::{self, CheckOrder, SharedSettings};
use crate::place::{hello, lfs, ship};
use crate::project::{Project, pause};
use crate::session::home_settings::HomeSettings;
use crate::session::journal::CheckResult;
use crate::session::record::Templates;
use crate::tree_checks::ChecksRun;

/// The name under which a place keeps the commits that it checks.
const CHECKS_ID: &str = "merged-checks";
/// How long the errors of a command that ended may take to arrive.
const ERROR_TIMEOUT: Duration = Duration::from_secs(1);
/// After how long the user is told what a job waits for.
const NOTE_AFTER: Duration = Duration::from_secs(3);
/// How long a job may take to end before the user is told that it is ending.
const END_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum length of its errors, in bytes.
const MAX_ERROR_BYTES: u64 = 4096;
/// Maximum length of the output of a check that is kept, in bytes.
const MAX_TEXT_BYTES: usize = 64 << 10;
/// Maximum length of a sentence about a check, in bytes.
const MAX_LINE_BYTES: usize = 1000;

/// Runs checks on the files of a commit at the place with this name. If the user interrupts, they end
/// there.
pub(crate) fn run(
    project: &Project,
    name: &str,
    templates: &Templates,
    commit: &str,
    checks: &[String],
) -> Result<ChecksRun> {
    let place = Place::find(&project.config, name)?;
    let here = "[studio] checks_on    remove it, and the checks run here";
    if replica::has_submodules(&project.repository, commit)? {
        return Err(Failure::usage(format!("checks of this repository cannot run at {name}"))
            .because("it has submodules, which are not copied to places")
            .hint(here));
    }
    let runtime = base::runtime::current_thread().or_fail(|| "cannot start the runtime")?;
    let program = ship::program_path(&place)?;
    let chosen = match Cluster::of(&place, &program) {
        Some(cluster) => node_of_job(project, &place, cluster),
        None => choose_host(project, &place, &program, commit),
    };
    let chosen = chosen.map_err(|failure| match failure.kind {
        FailureKind::Interrupted => failure,
        _ => failure.hint(here),
    });
    let CheckNode { host, commits, job } = chosen?;
    let query = query(project, job.as_ref().map(|job| job.name.clone()))?;
    lfs::send(&host, &query, &project.repository, &[commit.to_owned()])
        .map_err(|error| error.into_failure(&host).hint(here))?;
    let pack = replica::pack(&project.repository, &[commit.to_owned()], &commits)?;
    let order = CheckOrder {
        query,
        shared: SharedSettings::of(&project.repository)?,
        commit: commit.to_owned(),
        templates: templates.clone(),
        settings: HomeSettings::of(&project.config.studio, place.config.keep_interval(), ""),
        checks: checks.to_vec(),
        pack_bytes: pack.metadata().or_fail(|| "cannot pack the commit")?.len(),
    };
    let input = link::order_input(&order, &[], pack)?;
    let outcome = runtime.block_on(project.interrupt.or(outcome(&host, input)))?;
    let outcome = outcome.map_err(|error| {
        let ended = job
            .as_ref()
            .and_then(CheckJob::end)
            .map(|end| Failure::failed(format!("checks did not run at {name}")).because(end));
        ended.unwrap_or_else(|| error.into_failure(&host)).hint(here)
    })?;
    verified(outcome, checks, &project.config.studio.setup.list()).ok_or_else(|| {
        Failure::failed(format!("{} does not answer as expected", host.name))
            .because("it sent results of other checks")
            .hint(here)
    })
}

/// Where a commit is checked.
struct CheckNode<'a> {
    host: Host,
    /// The commits of the repository that it has.
    commits: Vec<String>,
    /// The job there, in a cluster.
    job: Option<CheckJob<'a>>,
}

/// A job in which checks run. It is cancelled on drop; if that fails, it ends by itself.
struct CheckJob<'a> {
    cluster: Cluster<'a>,
    name: String,
}

impl CheckJob<'_> {
    /// Says what has become of it, if it does not run. Waits for a short time if it is ending.
    fn end(&self) -> Option<String> {
        let asked_at = Instant::now();
        loop {
            let job = self.cluster.find(&self.name).ok()??;
            match job.state {
                JobState::Running(_) => return None,
                JobState::Ending if asked_at.elapsed() < END_TIMEOUT => pause(),
                _ => return Some(job.description()),
            }
        }
    }
}

impl Drop for CheckJob<'_> {
    fn drop(&mut self) {
        let _ = self.cluster.cancel(&self.name);
    }
}

/// Returns what names the repository at a place.
fn query(project: &Project, job: Option<String>) -> Result<protocol::PlacedSession> {
    let id = Id::parse(CHECKS_ID).map_err(|error| Failure::failed(error.to_string()))?;
    Ok(protocol::query(&project.repository, &id, job))
}

/// Submits a job, and waits until it runs.
fn node_of_job<'a>(
    project: &Project,
    place: &Place,
    cluster: Cluster<'a>,
) -> Result<CheckNode<'a>> {
    let job = CheckJob { cluster, name: job::new_name()? };
    let fail = |error: HostError| error.into_failure(job.cluster.host());
    job.cluster.submit(&job.name).map_err(fail)?;
    let (submitted_at, mut told) = (Instant::now(), String::new());
    let host = job.cluster.await_node(&job.name, |waits| {
        project.interrupt.check()?;
        if submitted_at.elapsed() > NOTE_AFTER && told != waits {
            waits.clone_into(&mut told);
            project.console.note(&format!("the checks wait at {}: {waits}", place.name));
        }
        Ok(())
    })?;
    let query = query(project, Some(job.name.clone()))?;
    let report = hello::report(place, &host, &query).map_err(|error| error.into_failure(&host))?;
    Ok(CheckNode { host, commits: report.commits, job: Some(job) })
}

/// Returns the host for a commit: of those with room for it, the commits of a queue are spread over all.
fn choose_host<'a>(
    project: &Project,
    place: &Place,
    program: &str,
    commit: &str,
) -> Result<CheckNode<'a>> {
    let names = place.config.all_hosts();
    let query = query(project, None)?;
    let node = |host, commits| CheckNode { host, commits, job: None };
    let ask = |name: &str| {
        let host = Host::new(place, name, program);
        host.share_connection();
        let report = hello::report(place, &host, &query);
        report.map_err(|error| error.into_failure(&host)).map(|report| (host, report))
    };
    let path = host_choice::answers_file(&project.repository, place)?;
    let recent = host_choice::recent_answers(&path, &names);
    if let Some(name) = host_choice::spread(&recent, commit)
        && let Ok((host, report)) = ask(&name)
    {
        return Ok(node(host, report.commits));
    }
    let (mut hosts, mut answers, mut first_failure) = (Vec::new(), Vec::new(), None);
    for (name, answer) in names.iter().zip(host_choice::ask_all(&names, ask)) {
        match answer {
            Ok((host, report)) => {
                hosts.push((host, report.commits.clone()));
                answers.push(HostAnswer { name: name.clone(), report });
            }
            Err(failure) => drop(first_failure.get_or_insert(failure)),
        }
    }
    host_choice::save_answers(&path, &answers);
    let chosen = host_choice::spread(&answers, commit);
    let found = hosts.into_iter().find(|(host, _)| Some(&host.name) == chosen.as_ref());
    let missing = || first_failure.unwrap_or_else(|| Failure::usage("the place has no host"));
    found.map(|(host, commits)| node(host, commits)).ok_or_else(missing)
}

/// Waits for the outcome. When this is dropped, the connection ends, and with it the checks there.
async fn outcome(host: &Host, input: File) -> std::result::Result<ChecksRun, HostError> {
    let broken = |why: String| HostError::Connection(why);
    let failed = |error: io::Error| broken(error.to_string());
    let command = host.node("check").stdin(Stream::File(input));
    let mut process = command.spawn_async().map_err(failed)?;
    let missing = || broken("its output is missing".to_owned());
    let output = process.child.stdout.take().ok_or_else(missing)?;
    let errors = process.child.stderr.take().ok_or_else(missing)?;
    let mut output = BufReader::new(output);
    loop {
        let silent = |_| broken(format!("it sent nothing for {} s", SILENCE.as_secs()));
        let frame = tokio::time::timeout(SILENCE, frames::read(&mut output)).await;
        match frame.map_err(silent)?.map_err(failed)? {
            Some(PlaceFrame::Alive) => {}
            Some(PlaceFrame::Checked { bytes }) => {
                let json = frames::read_bytes(&mut output, bytes).await.map_err(failed)?;
                return serde_json::from_slice(&json).map_err(|error| broken(error.to_string()));
            }
            Some(_) => return Err(broken("it sent what does not belong to checks".to_owned())),
            None => break,
        }
    }
    let mut text = Vec::new();
    let mut errors = errors.take(MAX_ERROR_BYTES);
    let _ = tokio::time::timeout(ERROR_TIMEOUT, errors.read_to_end(&mut text)).await;
    let text = base::text::printable(String::from_utf8_lossy(&text).trim());
    match process.child.wait().await.map_err(failed)?.code() {
        Some(code) if (1..host::KILLED).contains(&code) => Err(HostError::Failed(
            Failure::failed(format!("checks did not run on {}", host.name)).because(text),
        )),
        Some(_) | None if text.is_empty() => Err(broken("the connection ended".to_owned())),
        Some(_) | None => Err(broken(text)),
    }
}

/// Returns what counts of an outcome that a host sent: results of these checks, with texts that can be
/// shown.
fn verified(outcome: ChecksRun, checks: &[String], setup: &[String]) -> Option<ChecksRun> {
    let text = |text: String| base::text::tail(&text, MAX_TEXT_BYTES).to_owned();
    let line = |line: String| base::text::printable(base::text::head(&line, MAX_LINE_BYTES));
    match outcome {
        ChecksRun::Checks(results) => {
            let is_asked = results.iter().map(|result| &result.command).eq(checks);
            let result = |it: CheckResult| CheckResult {
                ok: it.exit == 0,
                tail: text(it.tail),
                hint: it.hint.map(line),
                limit: it.limit.map(line),
                fails_on: None,
                flaky: false,
                ..it
            };
            is_asked.then(|| ChecksRun::Checks(results.into_iter().map(result).collect()))
        }
        ChecksRun::SetUpFailed { line: failed, output, hint } => {
            let (tail, limit) = (text(output.tail), output.limit.map(line));
            let output = CommandOutput { tail, limit, ..output };
            let is_asked = setup.contains(&failed);
            is_asked.then(|| ChecksRun::SetUpFailed { line: failed, output, hint: hint.map(line) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_results_of_the_checks_that_were_asked_for_count() {
        let passed = |command: &str| CheckResult {
            ok: true,
            exit: 0,
            ..crate::check::failed_result(command.to_owned(), String::new())
        };
        let checks = ["a".to_owned(), "b".to_owned()];
        let sent = |commands: &[&str]| {
            let results = commands.iter().map(|command| passed(command)).collect();
            verified(ChecksRun::Checks(results), &checks, &[]).is_some()
        };
        assert!(sent(&["a", "b"]));
        for other in [&[][..], &["a"], &["b", "a"], &["a", "b", "c"]] {
            assert!(!sent(other), "{other:?}");
        }
        let lie = CheckResult { exit: 1, hint: Some("\u{1b}[2J".to_owned()), ..passed("a") };
        let Some(ChecksRun::Checks(results)) =
            verified(ChecksRun::Checks(vec![lie]), &checks[..1], &[])
        else {
            panic!("it is a result of the check");
        };
        assert!(!results[0].ok && results[0].hint.as_deref() == Some("^[[2J"), "{results:?}");
        let output = CommandOutput { exit: 1, tail: String::new(), duration: SILENCE, limit: None };
        let failed = ChecksRun::SetUpFailed { line: "make".to_owned(), output, hint: None };
        assert!(verified(failed.clone(), &checks, &["make".to_owned()]).is_some());
        assert!(verified(failed, &checks, &[]).is_none());
    }
}
