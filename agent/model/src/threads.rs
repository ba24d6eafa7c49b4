//! Determines the number of computing threads: one per physical core, fewer while other programs
//! use the processors, since threads that wait for each other at every layer are delayed by the
//! slowest.

use std::time::{Duration, Instant};

use base::test_hooks::TestHook;

/// Time over which the load of other programs is measured before each decision.
const MEASURE_INTERVAL: Duration = Duration::from_secs(1);
/// Number of consecutive windows that must agree before a thread is added; threads are removed
/// immediately.
const MIN_OBSERVATIONS: u32 = 3;
/// Clock ticks per second in the kernel's accounting.
const TICKS_PER_SECOND: f64 = 100.0;

/// The threads of a host and the load that determines them.
#[derive(Debug)]
pub(crate) struct Threads {
    now: u32,
    most: u32,
    /// `None` if the user set the number.
    load: Option<Load>,
    more: u32,
}

/// The busy time of the usable processors up to a moment, in seconds.
#[derive(Clone, Copy, Debug)]
struct Load {
    time: Instant,
    busy: f64,
    own_time: f64,
}

impl Threads {
    /// Uses the given number, or one thread per physical core.
    pub(crate) fn new(configured: Option<u32>) -> Threads {
        let most = configured.unwrap_or_else(physical_cores);
        let load = if configured.is_none() { Load::now() } else { None };
        Threads { now: most, most, load, more: 0 }
    }

    /// Returns the current number of threads.
    pub(crate) fn now(&self) -> u32 {
        self.now
    }

    /// Restarts the measurement after a pause in computing.
    pub(crate) fn pause(&mut self) {
        self.load = self.load.and_then(|_| Load::now());
    }

    /// Measures the load. Returns true if the number of threads should change.
    pub(crate) fn update(&mut self) -> bool {
        let Some(previous) = self.load else { return false };
        let other_load = match load_from_test() {
            Some(other_load) => other_load,
            None if previous.time.elapsed() < MEASURE_INTERVAL => return false,
            None => {
                let Some(now) = Load::now() else { return false };
                self.load = Some(now);
                now.others_since(previous)
            }
        };
        let fitting_threads = fitting_threads(self.most, processors().len(), other_load);
        self.more = if fitting_threads > self.now { self.more + 1 } else { 0 };
        let change = fitting_threads < self.now || self.more >= MIN_OBSERVATIONS;
        if change {
            self.now = fitting_threads;
            self.more = 0;
        }
        change
    }
}

impl Load {
    fn now() -> Option<Load> {
        let stat = std::fs::read_to_string("/proc/stat").ok()?;
        let own_stat = std::fs::read_to_string("/proc/self/stat").ok()?;
        let busy = busy(&stat, &processors());
        Some(Load { time: Instant::now(), busy, own_time: process_time(&own_stat)? })
    }

    /// Returns the number of processors that other programs kept busy since then.
    fn others_since(self, before: Load) -> f64 {
        let seconds = self.time.duration_since(before.time).as_secs_f64().max(0.01);
        (self.busy - before.busy - (self.own_time - before.own_time)).max(0.0) / seconds
    }
}

/// Returns the number of threads that fit while other programs keep `other_load` of our processors
/// busy. Half a processor is tolerated as noise.
fn fitting_threads(max: u32, processors: usize, other_load: f64) -> u32 {
    let free_processors = (processors as f64 - other_load + 0.5).floor().max(1.0) as u32;
    free_processors.min(max)
}

/// Returns the seconds during which these processors were busy, from `/proc/stat`.
fn busy(stat: &str, processors: &[usize]) -> f64 {
    let busy_of = |line: &str| {
        let mut fields = line.strip_prefix("cpu")?.split_whitespace();
        let processor = fields.next()?.parse().ok()?;
        let times: Vec<f64> = fields.filter_map(|field| field.parse().ok()).collect();
        // user nice system idle iowait irq softirq steal; guest time is included in user.
        let busy = [0, 1, 2, 5, 6, 7].iter().filter_map(|index| times.get(*index)).sum::<f64>();
        processors.contains(&processor).then_some(busy)
    };
    stat.lines().filter_map(busy_of).sum::<f64>() / TICKS_PER_SECOND
}

/// Returns the seconds that this process computed, from `/proc/self/stat`.
fn process_time(stat: &str) -> Option<f64> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system) / TICKS_PER_SECOND)
}

/// Returns the load that a test wrote to a file.
fn load_from_test() -> Option<f64> {
    let path = TestHook::Busy.value()?;
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Returns the processors that this process may use.
fn processors() -> Vec<usize> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let listed = list.map(numbers).unwrap_or_default();
    if !listed.is_empty() {
        return listed;
    }
    (0..std::thread::available_parallelism().map_or(1, |n| n.get())).collect()
}

/// Parses a list like `0-3,8`.
fn numbers(list: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    list.trim().split(',').filter_map(range).flatten().collect()
}

/// Returns the number of physical cores. Two threads of one core share its arithmetic units, so
/// more threads than cores are slower.
fn physical_cores() -> u32 {
    let processors = processors();
    let siblings = processors.iter().filter_map(|cpu| {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
        std::fs::read_to_string(path).ok()
    });
    let cores: std::collections::HashSet<String> = siblings.collect();
    let allowed = std::thread::available_parallelism().map_or(1, |n| n.get());
    let cores = if cores.is_empty() { allowed } else { cores.len().min(allowed) };
    u32::try_from(cores).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_leave_processors_to_other_programs() {
        assert_eq!(fitting_threads(2, 2, 0.1), 2, "a little noise takes no thread");
        assert_eq!(fitting_threads(2, 2, 0.7), 1);
        assert_eq!(fitting_threads(2, 2, 9.0), 1, "one always computes");
        assert_eq!(fitting_threads(8, 16, 4.0), 8, "siblings of our cores are free");
        assert_eq!(fitting_threads(8, 16, 12.0), 4);
    }

    #[test]
    fn the_kernels_accounting_is_parsed() {
        assert_eq!(numbers("\t0-2,8"), [0, 1, 2, 8]);
        let stat = "cpu  9 9 9 9\ncpu0 100 20 30 4000 50 1 2 3 0 0\ncpu1 300 0 0 1 1 0 0 0 0 0\n";
        assert!((busy(stat, &[0]) - 1.56).abs() < 1e-9);
        assert!((busy(stat, &[0, 1]) - 4.56).abs() < 1e-9);
        let own = "7 (a) b) S 1 7 7 0 -1 4194304 1 0 0 0 250 50 0 0 20 0 1 0 1 1 1";
        assert_eq!(process_time(own), Some(3.0));
        let load = |busy, own| Load { time: Instant::now(), busy, own_time: own };
        assert!(
            load(8.0, 5.0).others_since(load(5.0, 2.0)) < 1e-9,
            "our own work does not count as load"
        );
    }

    #[test]
    fn a_configured_number_of_threads_is_kept() {
        let mut threads = Threads::new(Some(3));
        assert!(!threads.update());
        assert_eq!(threads.now(), 3);
    }
}
