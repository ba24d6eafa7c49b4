//! Tries out the hosts of a place, and says what is missing there.

use std::time::{Duration, Instant};

use base::clock::Clock;
use base::config::filters::{FilterCommands, FilterSetting};
use base::config::studio::StudioConfig;
use base::failure::{Failure, OrFail, Result};
use base::id::Id;
use base::text::size;
use serde::Serialize;

use crate::place::cluster::Cluster;
use crate::place::configured_place::Place;
use crate::place::host::{Host, HostError};
use crate::place::job;
use crate::place::protocol::{HostReport, PROTOCOL, PlacedSession};
use crate::place::ship;
use crate::project::pause;

/// How long a job may wait in the queue.
const JOB_TIMEOUT: Duration = Duration::from_secs(60);
/// How long the host may take to see that a job runs.
const SHARED_TIMEOUT: Duration = Duration::from_secs(5);
/// A clock that differs by more seconds is reported: times in journals are those of the place.
const MAX_CLOCK_SECONDS: i64 = 60;
/// A disk with less free space is reported.
const LOW_DISK_BYTES: u64 = 2 << 30;

/// What a host has, and what it lacks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HostCheck {
    /// The host.
    pub host: String,
    /// What is there, one clause each.
    pub has: Vec<String>,
    /// What should be known, one clause each.
    pub notes: Vec<String>,
    /// Why sessions cannot run there, one clause each.
    pub missing: Vec<String>,
    /// What to try, as commands.
    pub hints: Vec<String>,
    /// The time of a command over the shared connection, in milliseconds.
    pub milliseconds: Option<u64>,
}

/// Tries out every host of a place, or one node of a cluster, for sessions with these settings.
pub fn check(place: &Place, settings: &StudioConfig) -> Result<Vec<HostCheck>> {
    let program = ship::program_path(place)?;
    if let Some(cluster) = Cluster::of(place, &program) {
        return Ok(vec![check_cluster(place, &cluster, settings)?]);
    }
    let names = place.config.all_hosts();
    let checks = names.iter().map(|name| {
        let host = Host::new(place, name, &program);
        host.share_connection();
        let mut found = check_host(place, &host, settings);
        check_logout(&host, &mut found);
        found
    });
    Ok(checks.collect())
}

/// Submits a job, waits until it runs, and tries out its node.
fn check_cluster(
    place: &Place,
    cluster: &Cluster<'_>,
    settings: &StudioConfig,
) -> Result<HostCheck> {
    let name = job::new_name()?;
    let mut found = match await_job(cluster, &name) {
        Ok(host) => {
            let mut found = check_host(place, &host, settings);
            if place.config.shared {
                check_shared(place, cluster.host(), &name, &mut found);
            }
            found
        }
        Err(failure) => {
            let mut found = HostCheck { host: cluster.host().name.clone(), ..HostCheck::default() };
            found.missing.push(failure.sentence());
            found.hints.extend(failure.hints);
            found
        }
    };
    if let Err(error) = cluster.cancel(&name) {
        found.notes.push(error.into_failure(cluster.host()).sentence());
    }
    Ok(found)
}

/// Finds out whether the host of a cluster sees the files of a job that runs, and its lock.
fn check_shared(place: &Place, host: &Host, job: &str, found: &mut HostCheck) {
    let asked_at = Instant::now();
    // The job looks for studio five times a second before it takes its lock.
    while asked_at.elapsed() < SHARED_TIMEOUT {
        if hello(host, Some(job)).is_ok_and(|report| report.sees_job) {
            found.has.push("a spool that the host and the nodes share".to_owned());
            return;
        }
        pause();
    }
    found.missing.push(format!("{} does not see the files of a job and their locks", host.name));
    found.hints.push(format!(
        "[studio.places.{}] spool = \"PATH\"    names a directory that they share, or remove `shared`",
        place.name
    ));
}

/// Submits a job and returns the node on which it runs.
fn await_job(cluster: &Cluster<'_>, name: &str) -> Result<Host> {
    cluster.submit(name).map_err(|error| error.into_failure(cluster.host()))?;
    let submitted_at = Instant::now();
    cluster.await_node(name, |description| {
        let seconds = JOB_TIMEOUT.as_secs();
        match submitted_at.elapsed() < JOB_TIMEOUT {
            true => Ok(()),
            false => Err(Failure::failed(format!("a job did not run within {seconds} s"))
                .because(description)),
        }
    })
}

fn check_host(place: &Place, host: &Host, settings: &StudioConfig) -> HostCheck {
    let mut found = HostCheck { host: host.name.clone(), ..HostCheck::default() };
    let program = &host.program;
    let answer = match hello(host, None) {
        Err(HostError::NotInstalled) => ship::install_studio(host, place)
            .map_err(HostError::Failed)
            .and_then(|()| hello(host, None))
            .inspect(|_| found.has.push(format!("studio, copied to {program}"))),
        answer => answer.inspect(|_| found.has.push(format!("studio, at {program}"))),
    };
    let report = match answer {
        Ok(report) => report,
        Err(error) => {
            let failure = error.into_failure(host);
            found.missing.push(failure.sentence());
            found.hints.extend(failure.hints);
            return found;
        }
    };
    let start = Instant::now();
    if hello(host, None).is_ok() {
        found.milliseconds = u64::try_from(start.elapsed().as_millis()).ok();
    }
    describe(&report, &mut found);
    let uses_lfs = settings.filters.values().any(runs_git_lfs);
    if uses_lfs && !report.git_lfs {
        found.missing.push("git-lfs, which a filter of `[studio.filters]` runs".to_owned());
        found.hints.push("install git-lfs there".to_owned());
    }
    found
}

/// Finds out whether a run lives longer than the connection over which it was started.
fn check_logout(host: &Host, found: &mut HostCheck) {
    if found.missing.is_empty() && host.ask("ends-at-logout", Vec::new()).unwrap_or(false) {
        found.notes.push(
            "it ends the processes of users who log out (`KillUserProcesses=` of systemd): a run \
             there ends with the connection"
                .to_owned(),
        );
        found.hints.push(
            "KillExcludeUsers=root YOU    in /etc/systemd/logind.conf there, by its administrator"
                .to_owned(),
        );
    }
}

fn runs_git_lfs(filter: &FilterSetting) -> bool {
    let FilterCommands { clean, smudge, process, .. } = &filter.commands();
    let runs = |line: &String| line.starts_with("git-lfs ") || line.starts_with("git lfs ");
    [clean, smudge, process].into_iter().flatten().any(runs)
}

fn hello(host: &Host, job: Option<&str>) -> std::result::Result<HostReport, HostError> {
    let id = Id::parse("check-0000").or_fail(|| "an id").map_err(HostError::Failed)?;
    let query = PlacedSession {
        protocol: PROTOCOL,
        repository: "check".to_owned(),
        id,
        job: job.map(str::to_owned),
        shared: false,
    };
    let mut line = serde_json::to_vec(&query).or_fail(|| "JSON").map_err(HostError::Failed)?;
    line.push(b'\n');
    host.ask("hello", line)
}

fn describe(report: &HostReport, found: &mut HostCheck) {
    if report.protocol != PROTOCOL {
        found.missing.push(format!("studio {} there is another version", report.version));
        found.hints.push("install the same version, or remove `binary` of the place".to_owned());
    }
    match (&report.git, &report.git_problem) {
        (Some(git), _) => found.has.push(format!("git {git}")),
        (None, problem) => {
            found.missing.push(problem.clone().unwrap_or_else(|| "git".to_owned()));
            found.hints.push("install git 2.38 or later there".to_owned());
        }
    }
    found.has.extend(report.git_lfs.then(|| "git-lfs".to_owned()));
    match report.sandbox_gaps.as_slice() {
        [] => found.has.push("a complete sandbox".to_owned()),
        gaps => found.notes.extend(gaps.iter().map(|gap| format!("the sandbox: {gap}"))),
    }
    match report.g3 {
        true => found.has.push("g3".to_owned()),
        false => found.notes.push("g3 is copied there when a session needs it".to_owned()),
    }
    let cores = base::text::count(report.cores, "core");
    let memory = report
        .free_memory
        .map_or_else(String::new, |bytes| format!(", {} of free memory", size(bytes)));
    found.has.push(format!("{cores}{memory}"));
    match report.free_bytes {
        Some(bytes) if bytes < LOW_DISK_BYTES => {
            found.notes.push(format!("only {} of free disk space", size(bytes)));
        }
        Some(bytes) => found.has.push(format!("{} of free disk space", size(bytes))),
        None => {}
    }
    let seconds = report.clock - Clock::from_env().now().as_second();
    if seconds.abs() > MAX_CLOCK_SECONDS {
        let direction = if seconds > 0 { "ahead of" } else { "behind" };
        let seconds = base::text::count(seconds.unsigned_abs(), "second");
        found.notes.push(format!("its clock is {seconds} {direction} the one here"));
    }
}
