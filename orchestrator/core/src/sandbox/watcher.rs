//! Watches what the processes of a sandbox use, and reports the limit that they reach.
//!
//! A look at one number of the whole machine tells most of the time that the sandbox cannot have
//! reached a limit: how many tasks there are, how much memory is available, how much space is free.
//! Only when such a number changed by half of what is left to a limit are the processes of the
//! sandbox measured; the change counts from the best value since the last measurement, so that the
//! end of other programs hides nothing. The cost of a measurement bounds how often it is repeated.

use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use crate::sandbox::cgroup::Cgroup;
use crate::sandbox::init::SandboxEvent;
use crate::sandbox::limits::{ExceededLimit, SandboxLimits};
use crate::sandbox::usage::{self, AvailableMemory, MachineUsage, TreeUsage};

/// How often the number of tasks is looked at.
const TASK_INTERVAL: Duration = Duration::from_millis(200);
/// How often memory and disk are looked at: every so many looks at the tasks.
const LOOKS_PER_MEMORY_LOOK: u32 = 5;
/// How often a sandbox that uses more than half of a limit is measured.
const BUSY_INTERVAL: Duration = Duration::from_millis(100);
/// How long a measurement is good for in a quiet sandbox, at least.
const QUIET_INTERVAL: Duration = Duration::from_secs(5);
/// How long a measurement of the disk is good for in a quiet sandbox, at least.
const QUIET_DISK_INTERVAL: Duration = Duration::from_secs(60);
/// The smallest number of new tasks for which a sandbox is measured at once.
const MIN_CROWD: u64 = 64;
/// Time between two measurements of a busy sandbox, in multiples of their duration.
const BUSY_FACTOR: u32 = 20;
/// The same for a quiet sandbox.
const QUIET_FACTOR: u32 = 20_000;

/// A running watcher; it ends when this value is dropped.
#[derive(Debug)]
pub(crate) struct LimitWatcher {
    _stop: Sender<()>,
}

/// Starts a thread that sends an event when a limit is reached.
pub(crate) fn start(
    limits: &SandboxLimits,
    cgroup: Option<&Cgroup>,
    tx: Sender<SandboxEvent>,
) -> LimitWatcher {
    let (stop_tx, stop_rx) = mpsc::channel();
    let mut watch = Watch::new(limits.clone(), cgroup.cloned());
    thread::spawn(move || {
        let mut pause = TASK_INTERVAL;
        while stop_rx.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
            if let Some(limit) = watch.look() {
                if tx.send(SandboxEvent::Limit(limit)).is_err() {
                    return;
                }
                // Sent again until the sandbox has ended: its end may need several rounds.
                pause = BUSY_INTERVAL;
                continue;
            }
            pause = watch.pause();
        }
    });
    LimitWatcher { _stop: stop_tx }
}

/// The last measurement of one kind.
#[derive(Clone, Copy, Debug)]
struct Measured {
    /// When, and how long it took.
    at: Instant,
    cost: Duration,
}

impl Measured {
    /// Returns whether it is older than a minimum and a multiple of its cost.
    fn is_older(&self, minimum: Duration, factor: u32) -> bool {
        self.at.elapsed() >= minimum.max(self.cost * factor)
    }
}

/// The state of a watcher.
struct Watch {
    limits: SandboxLimits,
    cgroup: Option<Cgroup>,
    available_memory: AvailableMemory,
    looks: u32,
    tree: Measured,
    tree_usage: TreeUsage,
    /// The fewest tasks and the most available memory of the machine since the last measurement.
    fewest_tasks: u16,
    most_available: u64,
    /// The most unused memory of the machine since memory was looked at.
    most_unused: u64,
    disk: Measured,
    disk_usage: u64,
    /// The most free space since the last measurement of the disk.
    most_free: u64,
}

impl Watch {
    fn new(limits: SandboxLimits, cgroup: Option<Cgroup>) -> Watch {
        let now = Measured { at: Instant::now(), cost: Duration::ZERO };
        let available_memory = AvailableMemory::open();
        Watch {
            most_available: available_memory.read().unwrap_or(0),
            fewest_tasks: usage::of_machine().tasks,
            most_unused: 0,
            most_free: free_bytes(&limits.trees),
            available_memory,
            limits,
            cgroup,
            looks: 0,
            tree: now,
            tree_usage: TreeUsage::default(),
            disk: now,
            disk_usage: 0,
        }
    }

    /// Returns the limit that is reached now, if any.
    fn look(&mut self) -> Option<ExceededLimit> {
        self.looks = self.looks.wrapping_add(1);
        let is_memory_look = self.looks.is_multiple_of(LOOKS_PER_MEMORY_LOOK);
        if let Some(limit) = self.cgroup.as_ref().and_then(|it| it.exceeded(&self.limits)) {
            return Some(limit);
        }
        if self.tree_look_is_due(is_memory_look)
            && let Some(limit) = self.measure_tree()
        {
            return Some(limit);
        }
        if is_memory_look { self.look_at_disk() } else { None }
    }

    /// Returns whether the processes are to be measured now.
    fn tree_look_is_due(&mut self, is_memory_look: bool) -> bool {
        let TreeUsage { memory, tasks } = self.tree_usage;
        let MachineUsage { tasks: tasks_now, unused } = usage::of_machine();
        self.fewest_tasks = self.fewest_tasks.min(tasks_now);
        let tasks_left = self.limits.tasks.map_or(u64::MAX, |max| max.saturating_sub(tasks));
        let new_tasks = u64::from(tasks_now - self.fewest_tasks);
        let many_tasks = new_tasks > tasks_left / 2;
        // A fork bomb leaves no time for pauses.
        if new_tasks > tasks_left.max(MIN_CROWD) {
            return true;
        }
        if self.is_busy() {
            return self.tree.is_older(BUSY_INTERVAL, BUSY_FACTOR);
        }
        let memory_left = self.limits.memory.map_or(u64::MAX, |max| max.saturating_sub(memory));
        self.most_unused = self.most_unused.max(unused);
        let is_memory_look = is_memory_look || self.most_unused - unused > memory_left / 4;
        let much_memory = is_memory_look && {
            self.most_unused = unused;
            let available = self.available_memory.read().unwrap_or(0);
            self.most_available = self.most_available.max(available);
            self.most_available - available > memory_left / 2
        };
        (many_tasks || much_memory) && self.tree.is_older(BUSY_INTERVAL, BUSY_FACTOR)
            || self.tree.is_older(QUIET_INTERVAL, QUIET_FACTOR)
    }

    /// Returns whether the sandbox uses more than half of a limit.
    fn is_busy(&self) -> bool {
        let above_half = |used: u64, max: Option<u64>| max.is_some_and(|max| used > max / 2);
        above_half(self.tree_usage.memory, self.limits.memory)
            || above_half(self.tree_usage.tasks, self.limits.tasks)
    }

    fn measure_tree(&mut self) -> Option<ExceededLimit> {
        let at = Instant::now();
        self.fewest_tasks = usage::of_machine().tasks;
        self.most_available = self.available_memory.read().unwrap_or(0);
        let exact_from = self.limits.memory.map_or(u64::MAX, |max| max / 2);
        self.tree_usage = usage::of_descendants(exact_from);
        self.tree = Measured { at: Instant::now(), cost: at.elapsed() };
        let TreeUsage { memory, tasks } = self.tree_usage;
        let memory = self.limits.memory.filter(|max| memory > *max).map(ExceededLimit::Memory);
        let tasks = self.limits.tasks.filter(|max| tasks > *max).map(ExceededLimit::Tasks);
        memory.or(tasks)
    }

    fn look_at_disk(&mut self) -> Option<ExceededLimit> {
        let free = usage::free_disk(&self.limits.trees)?;
        let is_low = |min: &u64| free.iter().any(|free| free < min);
        if let Some(min) = self.limits.free_disk.filter(is_low) {
            return Some(ExceededLimit::FreeDisk(min));
        }
        let max = self.limits.disk?;
        let left = max.saturating_sub(self.disk_usage);
        let free_now: u64 = free.iter().sum();
        self.most_free = self.most_free.max(free_now);
        let used_since = self.most_free - free_now;
        let much = used_since > left / 2 && self.disk.is_older(BUSY_INTERVAL, BUSY_FACTOR);
        if !much && !self.disk.is_older(QUIET_DISK_INTERVAL, QUIET_FACTOR) {
            return None;
        }
        let at = Instant::now();
        self.most_free = free_now;
        self.disk_usage = usage::disk_bytes(&self.limits.trees, max);
        self.disk = Measured { at: Instant::now(), cost: at.elapsed() };
        (self.disk_usage > max).then_some(ExceededLimit::Disk(max))
    }

    /// Returns how long to wait for the next look.
    fn pause(&self) -> Duration {
        if self.is_busy() { BUSY_INTERVAL } else { TASK_INTERVAL }
    }
}

/// Returns the free bytes of all disks of these trees together.
fn free_bytes(trees: &[PathBuf]) -> u64 {
    usage::free_disk(trees).unwrap_or_default().iter().sum()
}
