//! All descendants of this process, found through `/proc`; process groups and sessions hide
//! nothing, because orphans are reparented to the subreaper.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

/// Sends a signal to all descendants; on systems that do not report them, to the program's process
/// group.
pub(crate) fn signal_all(program: u32, signal: Signal) {
    if cfg!(not(target_os = "linux")) {
        return base::process::signal_group(program, signal);
    }
    for pid in descendants(std::process::id(), &processes()) {
        if let Some(pid) = Pid::from_raw(pid.cast_signed()) {
            // An error means that it has ended already.
            let _ = rustix::process::kill_process(pid, signal);
        }
    }
}

/// How long one call of [`kill_all`] searches for processes that are started in the meantime.
const KILL_TIMEOUT: Duration = Duration::from_millis(500);

/// Kills all descendants, again and again until no further one is found or the time is over. Whole
/// process groups are killed first: the kernel lets none of a group's processes fork during that.
pub(crate) fn kill_all(program: u32) {
    if cfg!(not(target_os = "linux")) {
        return base::process::signal_group(program, Signal::KILL);
    }
    if kill_namespace(program) {
        return;
    }
    // A sandbox full of running processes leaves little time to others. Only root may do this.
    let _ = rustix::process::setpriority_process(None, -20);
    let deadline = Instant::now() + KILL_TIMEOUT;
    loop {
        let processes = processes();
        let tree: BTreeSet<u32> = descendants(std::process::id(), &processes).into_iter().collect();
        let live = processes.iter().filter(|it| tree.contains(&it.id) && !it.is_zombie);
        let live: Vec<&ProcessEntry> = live.collect();
        if live.is_empty() || Instant::now() > deadline {
            return;
        }
        // A group to which a process outside the sandbox belongs is that of the user's terminal.
        let shared: BTreeSet<u32> =
            processes.iter().filter(|it| !tree.contains(&it.id)).map(|it| it.group).collect();
        let groups: BTreeSet<u32> = live.iter().map(|process| process.group).collect();
        for group in groups.difference(&shared).filter(|group| **group > 1) {
            base::process::signal_group(*group, Signal::KILL);
        }
        for process in live {
            if let Some(pid) = Pid::from_raw(process.id.cast_signed()) {
                let _ = rustix::process::kill_process(pid, Signal::KILL);
            }
        }
    }
}

/// Kills the first process of the program's process id namespace, and with it all others of that
/// namespace; returns whether there is one. The program's parent in it, a child of this process, ends
/// by itself then.
fn kill_namespace(program: u32) -> bool {
    let children = fs::read_to_string(format!("/proc/{program}/task/{program}/children"));
    let children = children.unwrap_or_default();
    let children = children.split_whitespace().filter_map(|id| id.parse::<i32>().ok());
    let is_first = |pid: &Pid| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        ids.is_some_and(|ids| ids.split_whitespace().last() == Some("1"))
    };
    let first = children.filter_map(Pid::from_raw).find(is_first);
    first.is_some_and(|first| rustix::process::kill_process(first, Signal::KILL).is_ok())
}

/// Processes that are stopped until this value is dropped.
#[derive(Debug)]
pub struct FrozenProcesses(Vec<Pid>);

impl Drop for FrozenProcesses {
    fn drop(&mut self) {
        for pid in &self.0 {
            let _ = rustix::process::kill_process(*pid, Signal::CONT);
        }
    }
}

/// How long a parent may take to stop before its children are stopped regardless.
const FREEZE_TIMEOUT: Duration = Duration::from_secs(2);
/// How often new processes are searched for: a sandbox may fork faster than they are stopped.
const MAX_FREEZE_ROUNDS: u32 = 500;

/// Stops all processes in the sandboxes of these reapers, so that nothing changes while a caller
/// reads their files. On systems that do not report descendants, nothing is stopped.
///
/// Children are stopped after their parent: when an exiting parent leaves a stopped process group
/// behind, the kernel sends SIGHUP to that group (POSIX.1-2017, `_exit`), which would kill it.
pub fn freeze(guards: &[u32]) -> FrozenProcesses {
    if guards.is_empty() {
        return FrozenProcesses(Vec::new());
    }
    let mut stopped = BTreeSet::new();
    let mut quiet_rounds = 0;
    let deadline = Instant::now() + FREEZE_TIMEOUT;
    for _ in 0..MAX_FREEZE_ROUNDS {
        let processes = processes();
        let inits = processes.iter().filter(|process| guards.contains(&process.parent));
        let descendants = inits.flat_map(|process| descendants(process.id, &processes));
        let descendants: BTreeSet<u32> = descendants.collect();
        let sandboxed = || processes.iter().filter(|process| descendants.contains(&process.id));
        let running: BTreeSet<u32> =
            sandboxed().filter(|it| it.is_running).map(|it| it.id).collect();
        let is_waiting = !running.is_empty() && Instant::now() < deadline;
        let mut found_new = false;
        for process in sandboxed().filter(|it| !(is_waiting && running.contains(&it.parent))) {
            if let Some(pid) = Pid::from_raw(process.id.cast_signed())
                && stopped.insert(process.id)
            {
                found_new = true;
                let _ = rustix::process::kill_process(pid, Signal::STOP);
            }
        }
        // A process whose parent exits during the scan is missed, so a second scan is needed.
        quiet_rounds = if found_new || is_waiting { 0 } else { quiet_rounds + 1 };
        if quiet_rounds == 2 {
            break;
        }
        if is_waiting {
            let time = rustix::event::Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
            let _ = rustix::event::poll(&mut [], Some(&time));
        }
    }
    FrozenProcesses(stopped.into_iter().filter_map(|id| Pid::from_raw(id.cast_signed())).collect())
}

/// A process from `/proc`.
pub(super) struct ProcessEntry {
    /// Its id.
    pub(super) id: u32,
    parent: u32,
    group: u32,
    /// Whether its main thread can run. Other threads may continue after it has ended.
    is_running: bool,
    /// Whether it has ended, and its parent has not waited for it yet.
    is_zombie: bool,
    /// The number of its threads.
    pub(super) threads: u64,
    /// The number of its pages in memory, shared ones included.
    pub(super) resident_pages: u64,
}

/// Returns all processes.
pub(super) fn processes() -> Vec<ProcessEntry> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let ids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter_map(|id: u32| {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        ProcessEntry::parse(id, &stat)
    })
    .collect()
}

impl ProcessEntry {
    /// Parses `/proc/PID/stat` from its third field on; the second is a name in parentheses, which
    /// may contain parentheses itself (proc_pid_stat(5)).
    fn parse(id: u32, stat: &str) -> Option<ProcessEntry> {
        let (_, after_name) = stat.rsplit_once(')')?;
        let mut fields = after_name.split_whitespace();
        let state = fields.next()?.chars().next()?;
        let (parent, group) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        // The fields 20 and 24; negative numbers do not occur.
        let mut number = |skipped: usize| fields.nth(skipped)?.parse().ok();
        let (threads, resident_pages) = (number(14).unwrap_or(1), number(3).unwrap_or(0));
        let is_running = !matches!(state, 'T' | 't' | 'Z' | 'X');
        let is_zombie = matches!(state, 'Z' | 'X');
        Some(ProcessEntry { id, parent, group, is_running, is_zombie, threads, resident_pages })
    }
}

/// Returns all descendants of a process, parents before children.
pub(super) fn descendants(root: u32, processes: &[ProcessEntry]) -> Vec<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for process in processes {
        children.entry(process.parent).or_default().push(process.id);
    }
    let mut ids = Vec::new();
    let mut queue = vec![root];
    while let Some(id) = queue.pop() {
        let direct = children.remove(&id).unwrap_or_default();
        ids.extend(&direct);
        queue.extend(direct);
    }
    ids
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_hide_the_parent() {
        let stat = "42 (a) S 1) (b) S 7 41 42 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 13 0 99 5000 321 1";
        let process = ProcessEntry::parse(42, stat).unwrap();
        assert_eq!((process.parent, process.group, process.is_running), (7, 41, true));
        assert_eq!((process.threads, process.resident_pages), (13, 321));
        assert!(ProcessEntry::parse(42, "torn").is_none());
    }

    #[test]
    fn exactly_the_descendants_are_found() {
        let processes = [(2, 1), (3, 2), (4, 3), (5, 1), (6, 9)].map(|(id, parent)| ProcessEntry {
            id,
            parent,
            group: id,
            is_running: true,
            is_zombie: false,
            threads: 1,
            resident_pages: 0,
        });
        let mut ids = descendants(2, &processes);
        ids.sort_unstable();
        assert_eq!(ids, [3, 4]);
        assert!(descendants(6, &processes).is_empty());
    }
}
