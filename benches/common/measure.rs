//! Wall time, CPU time and memory of process trees.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use base::process::{Command, Running};

/// The cost of a run.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Time from the start to the end of the last process.
    pub wall: Duration,
    /// User and system time of all processes.
    pub cpu: Duration,
}

/// Makes this process the parent of all orphans of its children, so that detached processes are
/// counted as well.
pub fn adopt_orphans() {
    rustix::process::set_child_subreaper(rustix::process::Pid::from_raw(1)).expect("Linux");
}

/// Runs commands in parallel to their end. Processes that they leave running are waited for outside
/// the wall time.
pub fn measure(jobs: Vec<Command>) -> Sample {
    let cpu = children_cpu();
    let begin = Instant::now();
    let mut running = start(jobs);
    for process in &mut running {
        process.wait_until(None).expect("a child can be waited for");
    }
    let wall = begin.elapsed();
    reap_orphans();
    Sample { wall, cpu: children_cpu() - cpu }
}

/// Runs commands in parallel and returns the peak PSS in KiB of all processes below this one.
pub fn memory(jobs: Vec<Command>) -> u64 {
    let mut running = start(jobs);
    let mut peak = 0;
    while !running.is_empty() {
        let children = children();
        let trees = children.get(&std::process::id()).into_iter().flatten();
        peak = peak.max(trees.map(|id| tree_pss(*id, &children)).sum());
        running.retain_mut(|process| {
            let deadline = Instant::now() + Duration::from_millis(1);
            process.wait_until(Some(deadline)).expect("a child can be waited for").is_none()
        });
    }
    reap_orphans();
    peak
}

/// Waits for all orphans.
pub fn reap_orphans() {
    while rustix::process::wait(rustix::process::WaitOptions::empty()).is_ok() {}
}

/// Returns the user and system time of a process.
pub fn process_cpu(id: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).expect("procfs");
    let after = stat.rsplit(')').next().unwrap_or_default();
    let fields: Vec<u64> =
        after.split_whitespace().skip(1).map(|field| field.parse().unwrap_or(0)).collect();
    // Fields 14 and 15 of proc(5), in ticks of 10 ms.
    Duration::from_millis((fields[10] + fields[11]) * 10)
}

/// Returns the PSS in KiB of a process and those below it.
pub fn process_memory(id: u32) -> u64 {
    tree_pss(id, &children())
}

fn start(jobs: Vec<Command>) -> Vec<Running> {
    jobs.into_iter().map(|job| job.spawn().expect("the program can be started")).collect()
}

/// Returns the CPU time of all children that were waited for, including their own (`getrusage(2)`).
fn children_cpu() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").expect("procfs");
    let after = stat.rsplit(')').next().unwrap_or_default();
    // Fields 16 and 17 of proc(5), in ticks of 10 ms; two fields precede the closing parenthesis.
    let fields: Vec<u64> =
        after.split_whitespace().skip(1).map(|f| f.parse().unwrap_or(0)).collect();
    Duration::from_millis((fields[12] + fields[13]) * 10)
}

/// Returns the children of each process, by process id.
fn children() -> BTreeMap<u32, Vec<u32>> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").expect("procfs").flatten() {
        let Ok(id) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        let after = stat.rsplit(')').next().unwrap_or_default();
        if let Some(parent) = after.split_whitespace().nth(1).and_then(|f| f.parse().ok()) {
            children.entry(parent).or_default().push(id);
        }
    }
    children
}

fn tree_pss(id: u32, children: &BTreeMap<u32, Vec<u32>>) -> u64 {
    let memory = Memory::of(id);
    let below =
        children.get(&id).into_iter().flatten().filter(|child| !memory.is(&Memory::of(**child)));
    below.map(|child| tree_pss(*child, children)).sum::<u64>() + memory.pss
}

/// The memory of a process, from `smaps_rollup`.
struct Memory {
    /// The address range from its first to its last mapping.
    range: String,
    pss: u64,
}

impl Memory {
    fn of(id: u32) -> Memory {
        let text = fs::read_to_string(format!("/proc/{id}/smaps_rollup")).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with("Pss:"));
        let pss = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0);
        Memory { range: text.lines().next().unwrap_or_default().to_owned(), pss }
    }

    /// Returns whether a child shares this memory: between `vfork(2)` and exec it has none of its
    /// own, and both processes report all of it.
    fn is(&self, child: &Memory) -> bool {
        self.range == child.range && self.pss.abs_diff(child.pss) * 20 <= self.pss
    }
}
