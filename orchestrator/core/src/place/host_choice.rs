//! Chooses the host of a place for a session: the one with the most room. The answers of the hosts also
//! serve the sessions that start soon after, which ask only the one that they choose.

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use base::failure::{OrFail, Result};
use base::lock::Lock;
use serde::{Deserialize, Serialize};
use studio_git::repo::Repository;

use crate::place::configured_place::Place;
use crate::place::protocol::HostReport;

/// How long the answers of hosts serve later starts.
const VALID_FOR: Duration = Duration::from_secs(30);
/// Maximum number of hosts that are asked at the same time.
const MAX_ASKED_AT_ONCE: usize = 16;
/// Maximum size of the saved answers in bytes.
const MAX_BYTES: u64 = 16 << 20;

/// The answer of a host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct HostAnswer {
    /// Its name.
    pub name: String,
    /// What it says about itself.
    pub report: HostReport,
}

/// Returns the file with the last answers of the hosts of a place.
pub(super) fn answers_file(repository: &Repository, place: &Place) -> Result<PathBuf> {
    Ok(repository.studio_dir()?.join("cache").join(format!("place-{}.json", place.name)))
}

/// Takes the lock of the one that asks all hosts.
pub(super) fn lock(answers_file: &Path) -> Result<Lock> {
    let path = answers_file.with_extension("lock");
    let fail = || format!("cannot lock {}", path.display());
    std::fs::create_dir_all(path.parent().unwrap_or(&path)).or_fail(fail)?;
    Lock::take(&path).or_fail(fail)
}

/// Returns the last answers of configured hosts; none if they are too old.
pub(super) fn recent_answers(path: &Path, hosts: &[String]) -> Vec<HostAnswer> {
    let read = || -> Option<Vec<HostAnswer>> {
        let saved_at = std::fs::metadata(path).and_then(|metadata| metadata.modified()).ok()?;
        // The time of a clock that was set back is not known.
        saved_at.elapsed().ok().filter(|age| *age < VALID_FOR)?;
        serde_json::from_slice(&base::files::read_bounded(path, MAX_BYTES).ok()?).ok()
    };
    let mut answers = read().unwrap_or_default();
    answers.retain(|answer| hosts.contains(&answer.name));
    answers
}

/// Saves the answers of hosts. Without them, later starts ask all hosts.
pub(super) fn save_answers(path: &Path, answers: &[HostAnswer]) {
    if let (Some(directory), Ok(text)) = (path.parent(), serde_json::to_vec(answers)) {
        let _ = std::fs::create_dir_all(directory);
        let _ = base::files::replace_cache(path, &text);
    }
}

/// Asks hosts, several at the same time; returns the answers in their order.
pub(super) fn ask_all<T: Send>(hosts: &[String], ask: impl Fn(&str) -> T + Sync) -> Vec<T> {
    let ask = &ask;
    let batches = hosts.chunks(MAX_ASKED_AT_ONCE).map(|batch| {
        thread::scope(|scope| {
            let threads: Vec<_> =
                batch.iter().map(|name| scope.spawn(move || ask(name.as_str()))).collect();
            let results = threads.into_iter().map(thread::ScopedJoinHandle::join);
            results.map(|result| result.unwrap_or_else(|panic| resume_unwind(panic))).collect()
        })
    });
    batches.flat_map(|answers: Vec<T>| answers).collect()
}

/// Returns the host with the most room; `placed` has the number of sessions that home has sent to each,
/// which hosts may not know of yet.
pub(super) fn best<'a>(
    answers: &'a [HostAnswer],
    placed: &BTreeMap<String, u64>,
) -> Option<&'a HostAnswer> {
    let room = |answer: &HostAnswer| {
        let placed = placed.get(&answer.name).copied().unwrap_or_default();
        room(&answer.report, answer.report.sessions.max(placed))
    };
    // The first one of equal ones.
    answers.iter().rev().max_by(|a, b| room(a).total_cmp(&room(b)))
}

/// Returns the host for the checks of a commit: commits are spread over the hosts that have a free core,
/// or are checked where there is the most room.
pub(super) fn spread(answers: &[HostAnswer], commit: &str) -> Option<String> {
    let has_room = |answer: &&HostAnswer| room(&answer.report, answer.report.sessions) >= 1.0;
    let free: Vec<&HostAnswer> = answers.iter().filter(has_room).collect();
    let digits = commit.get(..8).and_then(|digits| usize::from_str_radix(digits, 16).ok());
    let chosen = match (free.len(), digits) {
        (count @ 1.., Some(number)) => Some(free[number % count]),
        _ => best(answers, &BTreeMap::new()),
    };
    chosen.map(|answer| answer.name.clone())
}

/// Returns how much room a host has beside its sessions: free cores, and memory in units of what a
/// session may need.
fn room(report: &HostReport, sessions: u64) -> f64 {
    let sessions = sessions as f64;
    let cores = report.cores as f64 - report.load.unwrap_or_default().max(sessions);
    let memory =
        report.free_memory.map_or(f64::INFINITY, |bytes| bytes as f64 / (1u64 << 30) as f64);
    cores.min(memory - sessions)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(name: &str, cores: u64, free_memory: u64) -> HostAnswer {
        let free_memory = Some(free_memory << 30);
        let report = HostReport { cores, free_memory, ..HostReport::default() };
        HostAnswer { name: name.to_owned(), report }
    }

    #[test]
    fn a_host_has_room_for_its_free_cores_and_memory() {
        let report = |cores, load, gib: u64| HostReport {
            cores,
            load: Some(load),
            free_memory: Some(gib << 30),
            ..HostReport::default()
        };
        let idle = room(&report(8, 0.1, 16), 0);
        for (report, sessions) in [
            (report(8, 7.0, 16), 0),
            (report(8, 0.1, 16), 6),
            (report(2, 0.0, 16), 0),
            (report(8, 0.1, 1), 0),
        ] {
            assert!(idle > room(&report, sessions), "{report:?}");
        }
    }

    #[test]
    fn the_host_with_the_most_room_is_the_best() {
        let answers = [answer("small", 2, 64), answer("large", 16, 64), answer("full", 32, 1)];
        let best_with = |placed: &[(&str, u64)]| {
            let placed = placed.iter().map(|(name, count)| ((*name).to_owned(), *count));
            best(&answers, &placed.collect()).map(|it| it.name.as_str())
        };
        assert_eq!(best_with(&[]), Some("large"));
        assert_eq!(best_with(&[("large", 15)]), Some("small"));
        assert_eq!(best_with(&[("large", 15), ("small", 2)]), Some("large"));
        assert!(best(&[], &BTreeMap::new()).is_none());
    }

    #[test]
    fn commits_are_spread_over_the_hosts_with_a_free_core() {
        let answers = [answer("one", 4, 8), answer("full", 0, 8), answer("two", 4, 8)];
        let host = |commit: &str| spread(&answers, commit);
        assert_eq!(host("0000000a"), Some("one".to_owned()));
        assert_eq!(host("0000000b"), Some("two".to_owned()));
        assert_eq!(host("no commit"), Some("one".to_owned()));
        assert_eq!(spread(&answers[1..2], "0000000b"), Some("full".to_owned()));
        assert_eq!(spread(&[], "0000000b"), None);
    }

    #[test]
    fn all_hosts_are_asked_and_answers_keep_their_order() {
        let hosts: Vec<String> = (0..50).map(|number| format!("host-{number}")).collect();
        assert_eq!(ask_all(&hosts, str::to_owned), hosts);
    }

    #[test]
    fn saved_answers_serve_configured_hosts_until_they_are_old() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("cache/place-farm.json");
        let hosts = ["one".to_owned(), "two".to_owned()];
        let names = || -> Vec<String> {
            recent_answers(&path, &hosts).into_iter().map(|it| it.name).collect()
        };
        assert!(names().is_empty());
        save_answers(&path, &[answer("one", 1, 1), answer("gone", 1, 1)]);
        assert_eq!(names(), ["one"]);
        let file = std::fs::File::options().write(true).open(&path).expect("it was saved");
        let old = std::time::SystemTime::now() - VALID_FOR;
        file.set_modified(old).expect("its time can be set");
        assert!(names().is_empty());
        std::fs::write(&path, "[").expect("writable");
        assert!(names().is_empty());
    }
}
