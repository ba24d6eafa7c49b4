//! Everything that was started below this process, found through `/proc`; process groups and
//! sessions do not hide anything, because orphans are given to the sub-reaper.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use rustix::process::{Pid, Signal};

/// Sends a signal to every descendant; where the system does not tell who they are, to the group
/// of the program.
pub fn signal_all(program: u32, signal: Signal) {
    if cfg!(not(target_os = "linux")) {
        return base::process::signal_group(program, signal);
    }
    for pid in below(std::process::id(), &parents()) {
        if let Some(pid) = Pid::from_raw(pid.cast_signed()) {
            // One that ended meanwhile needs no signal.
            let _ = rustix::process::kill_process(pid, signal);
        }
    }
}

/// Processes that are stopped until this is dropped.
#[derive(Debug)]
pub struct Frozen(Vec<Pid>);

impl Drop for Frozen {
    fn drop(&mut self) {
        for pid in &self.0 {
            let _ = rustix::process::kill_process(*pid, Signal::CONT);
        }
    }
}

/// How often new processes are looked for: a box may fork faster than we stop.
const FREEZE_ROUNDS: u32 = 50;

/// Stops everything that runs in the boxes of these guards, so that nothing changes under the eyes
/// of who looks. Where the system does not tell what runs there, nothing is stopped.
pub fn freeze(guards: &[u32]) -> Frozen {
    let mut stopped = BTreeSet::new();
    let mut quiet = 0;
    for _ in 0..FREEZE_ROUNDS {
        let parents = parents();
        let boxes = parents.iter().filter(|(_, parent)| guards.contains(parent));
        let inside: Vec<u32> = boxes.flat_map(|(id, _)| below(*id, &parents)).collect();
        let mut is_new = false;
        for id in inside {
            if let Some(pid) = Pid::from_raw(id.cast_signed()).filter(|_| stopped.insert(id)) {
                is_new = true;
                let _ = rustix::process::kill_process(pid, Signal::STOP);
            }
        }
        // A process whose parent ends while we read is seen below nothing: it takes a second look.
        quiet = if is_new { 0 } else { quiet + 1 };
        if quiet == 2 {
            break;
        }
    }
    Frozen(stopped.into_iter().filter_map(|id| Pid::from_raw(id.cast_signed())).collect())
}

/// Every process and its parent.
fn parents() -> Vec<(u32, u32)> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let ids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter_map(|id: u32| {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        Some((id, parent(&stat)?))
    })
    .collect()
}

/// The fourth field of `/proc/PID/stat`; the second is a name in parentheses that may hold
/// anything, parentheses too (proc_pid_stat(5)).
fn parent(stat: &str) -> Option<u32> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_whitespace().nth(1)?.parse().ok()
}

/// All processes below one, parents before children.
fn below(root: u32, parents: &[(u32, u32)]) -> Vec<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (id, parent) in parents {
        children.entry(*parent).or_default().push(*id);
    }
    let mut found = Vec::new();
    let mut next = vec![root];
    while let Some(id) = next.pop() {
        let own = children.remove(&id).unwrap_or_default();
        found.extend(&own);
        next.extend(own);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_hide_the_parent() {
        assert_eq!(parent("42 (a) S 1) (b) S 7 42 42 0 -1"), Some(7));
        assert_eq!(parent("torn"), None);
    }

    #[test]
    fn the_whole_tree_is_found_and_nothing_else() {
        let parents = [(2, 1), (3, 2), (4, 3), (5, 1), (6, 9)];
        let mut found = below(2, &parents);
        found.sort_unstable();
        assert_eq!(found, [3, 4]);
        assert!(below(6, &parents).is_empty());
    }
}
