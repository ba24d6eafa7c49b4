//! A cgroup (version 2) around the processes of a sandbox, where this user may create one: the kernel
//! itself holds the limits, and ends all processes at once.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::sandbox::limits::{ExceededLimit, SandboxLimits};

/// The beginning of the names of studio's cgroups. The process id of the sandbox follows, and random
/// digits: a process id is used again, and another sandbox may be removing that cgroup.
const PREFIX: &str = "studio-";
/// How long the last processes may take to leave the cgroup, before it is left to the next sandbox.
const REMOVE_TIMEOUT: Duration = Duration::from_millis(500);
/// How old a cgroup without processes must be before another sandbox removes it.
const JOIN_TIMEOUT: Duration = Duration::from_secs(60);

/// The cgroup of a sandbox.
#[derive(Clone, Debug)]
pub(crate) struct Cgroup {
    directory: PathBuf,
    holds_memory: bool,
    holds_tasks: bool,
}

/// What the kernel's cgroups offer to this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupSupport {
    /// Memory and number of processes are held by the kernel.
    Complete,
    /// All processes of a sandbox can be ended at once; limits are watched by studio.
    KillOnly,
    /// No cgroup can be created.
    None,
}

/// Returns what this process can do with cgroups. Creates and removes one.
pub fn support() -> CgroupSupport {
    match Cgroup::create(&SandboxLimits::default().or_default()) {
        Some(cgroup) => {
            let support = match cgroup.holds_memory && cgroup.holds_tasks {
                true => CgroupSupport::Complete,
                false => CgroupSupport::KillOnly,
            };
            cgroup.remove();
            support
        }
        None => CgroupSupport::None,
    }
}

impl Cgroup {
    /// Creates a cgroup with these limits below one that this process may change; `None` if there is
    /// none.
    pub(crate) fn create(limits: &SandboxLimits) -> Option<Cgroup> {
        let name = format!("{PREFIX}{}-{}", std::process::id(), base::random::hex::<4>().ok()?);
        Cgroup::create_in(&candidates(), limits, &name)
    }

    /// Creates it in the first of these directories that distributes memory and processes, else in
    /// the first where one can be created at all.
    fn create_in(candidates: &[PathBuf], limits: &SandboxLimits, name: &str) -> Option<Cgroup> {
        let distributes = |directory: &&PathBuf| {
            let controllers = fs::read_to_string(directory.join("cgroup.subtree_control"));
            let controllers = controllers.unwrap_or_default();
            ["memory", "pids"]
                .iter()
                .all(|wanted| controllers.split_whitespace().any(|name| name == *wanted))
        };
        let complete = candidates.iter().filter(distributes);
        let all = complete.chain(candidates.iter());
        all.filter_map(|parent| {
            remove_leftovers(parent);
            let directory = parent.join(name);
            fs::create_dir(&directory).ok()?;
            let cgroup = Cgroup::with_limits(directory, limits);
            // Without this file, processes cannot be ended at once (Linux 5.14).
            if cgroup.directory.join("cgroup.kill").exists() {
                return Some(cgroup);
            }
            cgroup.remove();
            None
        })
        .next()
    }

    /// Writes the limits. A file that is missing or refused is not held by the kernel.
    fn with_limits(directory: PathBuf, limits: &SandboxLimits) -> Cgroup {
        let set = |name: &str, value: Option<u64>| {
            value.is_some_and(|value| write(&directory.join(name), &value.to_string()).is_ok())
        };
        let holds_memory = set("memory.max", limits.memory);
        if holds_memory {
            // All processes end together, and none of them only slows the machine down.
            let _ = write(&directory.join("memory.oom.group"), "1");
            let _ = write(&directory.join("memory.swap.max"), "0");
        }
        let holds_tasks = set("pids.max", limits.tasks);
        Cgroup { directory, holds_memory, holds_tasks }
    }

    /// Opens the directory.
    pub(crate) fn open(&self) -> io::Result<OwnedFd> {
        Ok(fs::File::open(&self.directory)?.into())
    }

    /// Returns the limit at which the kernel ended or refused a process.
    pub(crate) fn exceeded(&self, limits: &SandboxLimits) -> Option<ExceededLimit> {
        let count = |file: &str, name: &str| {
            let text = fs::read_to_string(self.directory.join(file)).unwrap_or_default();
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.and_then(|count| count.parse::<u64>().ok()).unwrap_or(0)
        };
        let is_out_of_memory = self.holds_memory && count("memory.events", "oom_kill") > 0;
        let is_out_of_tasks = || self.holds_tasks && count("pids.events", "max") > 0;
        let memory = limits.memory.filter(|_| is_out_of_memory).map(ExceededLimit::Memory);
        memory.or_else(|| limits.tasks.filter(|_| is_out_of_tasks()).map(ExceededLimit::Tasks))
    }

    /// Ends all processes at once.
    pub(crate) fn kill(&self) {
        let _ = write(&self.directory.join("cgroup.kill"), "1");
    }

    /// Removes the cgroup when its last process has left it.
    pub(crate) fn remove(&self) {
        let deadline = Instant::now() + REMOVE_TIMEOUT;
        while let Err(error) = fs::remove_dir(&self.directory) {
            let is_busy = error.raw_os_error() == Some(rustix::io::Errno::BUSY.raw_os_error());
            if !is_busy || Instant::now() > deadline {
                return;
            }
            let time = rustix::event::Timespec { tv_sec: 0, tv_nsec: 5_000_000 };
            let _ = rustix::event::poll(&mut [], Some(&time));
        }
    }
}

fn write(file: &Path, text: &str) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).open(file)?;
    io::Write::write_all(&mut file, text.as_bytes())
}

/// Removes the cgroups of sandboxes that were killed; one with processes cannot be removed. A new one
/// is kept: its first process is about to join, and may belong to another process id namespace,
/// where this process does not see its sandbox.
fn remove_leftovers(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        let pid = name.and_then(|name| name.split('-').next()?.parse::<u32>().ok());
        let created = entry.metadata().and_then(|metadata| metadata.modified());
        let is_old = created.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > JOIN_TIMEOUT));
        if is_old && pid.is_some_and(|pid| !base::process::is_alive(pid)) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// Returns the cgroup of this process and those above it, nearest first.
fn candidates() -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    candidates_of(&mounts, &own)
}

/// Like [`candidates`], from the texts of `/proc/self/mountinfo` and `/proc/self/cgroup`.
fn candidates_of(mounts: &str, own: &str) -> Vec<PathBuf> {
    let mount_point = mounts.lines().find_map(|line| {
        let (fields, after) = line.split_once(" - ")?;
        after.starts_with("cgroup2 ").then(|| fields.split(' ').nth(4)).flatten()
    });
    let path = own.lines().find_map(|line| line.strip_prefix("0::/"));
    let (Some(mount_point), Some(path)) = (mount_point, path) else { return Vec::new() };
    let directory = Path::new(mount_point).join(path);
    // A process outside the root of its cgroup namespace has a path with `..`.
    if path.split('/').any(|part| part == "..") {
        return Vec::new();
    }
    let is_inside = |path: &&Path| path.starts_with(mount_point);
    directory.ancestors().take_while(is_inside).map(Path::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "25 20 0:22 / /sys rw - sysfs sysfs rw\n\
                          30 25 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n";

    #[test]
    fn the_own_cgroup_and_those_above_it_are_candidates() {
        let own = "1:name=systemd:/x\n0::/user.slice/a.scope\n";
        let paths = candidates_of(MOUNTS, own);
        let expected = ["/sys/fs/cgroup/user.slice/a.scope", "/sys/fs/cgroup/user.slice"];
        assert_eq!(paths[..2], expected.map(PathBuf::from));
        assert_eq!(paths.len(), 3);
        assert!(candidates_of(MOUNTS, "0::/../../outside\n").is_empty());
        assert!(candidates_of("", own).is_empty());
    }

    /// Plain directories in place of the kernel's: which files are written, and what is read.
    #[test]
    fn limits_are_written_where_the_kernel_distributes_them() {
        let root = tempfile::tempdir().unwrap();
        let (plain, delegated) = (root.path().join("a/b"), root.path().join("a"));
        fs::create_dir_all(&plain).unwrap();
        fs::write(plain.join("cgroup.subtree_control"), "cpu\n").unwrap();
        fs::write(delegated.join("cgroup.subtree_control"), "cpu memory pids\n").unwrap();
        let limits = SandboxLimits { memory: Some(7), tasks: Some(9), ..SandboxLimits::default() };
        // A directory without the kernel's files offers nothing.
        assert!(Cgroup::create_in(&[plain, delegated.clone()], &limits, "studio-1-a").is_none());
        let directory = delegated.join("made");
        fs::create_dir(&directory).unwrap();
        for name in ["memory.max", "memory.oom.group", "memory.swap.max", "pids.max"] {
            fs::write(directory.join(name), "").unwrap();
        }
        let cgroup = Cgroup::with_limits(directory.clone(), &limits);
        let text = |name: &str| fs::read_to_string(directory.join(name)).unwrap();
        assert_eq!((text("memory.max"), text("pids.max")), ("7".to_owned(), "9".to_owned()));
        assert_eq!((text("memory.oom.group"), text("memory.swap.max")), ("1".into(), "0".into()));
        assert_eq!(cgroup.exceeded(&limits), None);
        fs::write(directory.join("pids.events"), "max 2\n").unwrap();
        assert_eq!(cgroup.exceeded(&limits), Some(ExceededLimit::Tasks(9)));
        fs::write(directory.join("memory.events"), "low 0\noom 1\noom_kill 1\n").unwrap();
        assert_eq!(cgroup.exceeded(&limits), Some(ExceededLimit::Memory(7)));
    }
}
