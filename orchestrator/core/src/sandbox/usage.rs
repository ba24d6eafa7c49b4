//! Measures what the processes of a sandbox use: memory, number of tasks, space on disk.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};

use crate::sandbox::process_tree::{ProcessEntry, descendants, processes};

/// What the descendants of this process use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TreeUsage {
    /// Bytes of memory. At most the resident size: shared pages count once if they were measured.
    pub memory: u64,
    /// Processes and threads.
    pub tasks: u64,
}

/// Measures the descendants of this process. The resident size is cheap and counts shared pages
/// more than once; above `exact_from` bytes, the proportional size is measured.
pub(crate) fn of_descendants(exact_from: u64) -> TreeUsage {
    let all = processes();
    let ids: BTreeSet<u32> = descendants(std::process::id(), &all).into_iter().collect();
    let page = base::process::page_size();
    let tree: Vec<&ProcessEntry> = all.iter().filter(|process| ids.contains(&process.id)).collect();
    let resident: u64 = tree.iter().map(|process| process.resident_pages * page).sum();
    let memory = match resident > exact_from {
        false => resident,
        true => tree
            .iter()
            .map(|it| proportional_bytes(it.id).unwrap_or(it.resident_pages * page))
            .sum(),
    };
    TreeUsage { memory, tasks: tree.iter().map(|process| process.threads).sum() }
}

/// Returns the memory of a process that is its own, and its share of what it shares, without files
/// (proc_pid_smaps(5)).
fn proportional_bytes(id: u32) -> Option<u64> {
    let mut text = String::new();
    let file = File::open(format!("/proc/{id}/smaps_rollup")).ok()?;
    file.take(16 << 10).read_to_string(&mut text).ok()?;
    proportional_sum(&text)
}

/// Adds up the fields that count.
fn proportional_sum(text: &str) -> Option<u64> {
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    let own = match (field("Pss_Anon"), field("Pss_Shmem")) {
        (Some(anonymous), Some(shared)) => anonymous + shared,
        // Kernels before 5.9 have the sum with files only.
        _ => field("Pss")?,
    };
    Some((own + field("SwapPss").unwrap_or(0)) << 10)
}

/// The memory that programs of the whole machine can still get, in bytes, read repeatedly.
pub(crate) struct AvailableMemory(Option<File>);

impl AvailableMemory {
    /// Opens the kernel's file.
    pub(crate) fn open() -> AvailableMemory {
        AvailableMemory(File::open("/proc/meminfo").ok())
    }

    /// Reads the current value; `None` on systems that do not report it.
    pub(crate) fn read(&self) -> Option<u64> {
        let mut bytes = [0; 512];
        let length = self.0.as_ref()?.read_at(&mut bytes, 0).ok()?;
        let text = std::str::from_utf8(bytes.get(..length)?).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
        Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
    }
}

/// What one cheap system call says about the whole machine.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MachineUsage {
    /// The number of processes and threads, modulo 65,536.
    pub tasks: u16,
    /// Bytes of memory that nothing uses, not even as a cache.
    pub unused: u64,
}

/// Returns the current numbers.
#[cfg(target_os = "linux")]
pub(crate) fn of_machine() -> MachineUsage {
    let info = rustix::system::sysinfo();
    MachineUsage { tasks: info.procs, unused: info.freeram * u64::from(info.mem_unit) }
}

/// Returns zeros: only Linux counts them cheaply.
#[cfg(not(target_os = "linux"))]
pub(crate) fn of_machine() -> MachineUsage {
    MachineUsage::default()
}

/// Returns the free bytes of the disks of these trees, each disk once; `None` if there is none.
pub(crate) fn free_disk(trees: &[PathBuf]) -> Option<Vec<u64>> {
    let mut seen = BTreeSet::new();
    let mut free = Vec::new();
    for tree in trees {
        let Ok(stat) = rustix::fs::statvfs(tree.as_path()) else { continue };
        if seen.insert(stat.f_fsid) {
            free.push(stat.f_bavail.saturating_mul(stat.f_frsize));
        }
    }
    (!free.is_empty()).then_some(free)
}

/// Maximum depth of directories below a tree that are counted: each holds a descriptor.
const MAX_DEPTH: usize = 512;

/// Returns the bytes on disk of all files in these trees, without following symbolic links. Counting
/// stops above `enough`.
pub(crate) fn disk_bytes(trees: &[PathBuf], enough: u64) -> u64 {
    let mut counter = DiskCounter { bytes: 0, linked: BTreeSet::new(), enough };
    for tree in trees {
        counter.add_tree(tree);
    }
    counter.bytes
}

/// Adds up the sizes of files.
struct DiskCounter {
    bytes: u64,
    /// Files with several names that were counted: device and number.
    linked: BTreeSet<(i128, u64)>,
    enough: u64,
}

impl DiskCounter {
    fn add_tree(&mut self, tree: &Path) {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(root) = rustix::fs::open(tree, flags, Mode::empty()) else { return };
        let mut stack: Vec<Dir> = Dir::new(root).into_iter().collect();
        loop {
            let may_descend = stack.len() < MAX_DEPTH;
            let Some(dir) = stack.last_mut() else { return };
            if self.bytes > self.enough {
                return;
            }
            let Some(entry) = dir.next() else {
                stack.pop();
                continue;
            };
            // A directory that cannot be read any further.
            let Ok(entry) = entry else {
                stack.pop();
                continue;
            };
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let Ok(parent) = dir.fd() else { continue };
            let Ok(stat) = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            self.add_file(&stat);
            let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
            if is_directory && may_descend {
                let child = rustix::fs::openat(parent, name, flags, Mode::empty());
                stack.extend(child.ok().and_then(|child| Dir::new(child).ok()));
            }
        }
    }

    fn add_file(&mut self, stat: &rustix::fs::Stat) {
        let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        let has_more_names = stat.st_nlink > 1 && !is_directory;
        if !has_more_names || self.linked.insert((i128::from(stat.st_dev), stat.st_ino)) {
            // Always in units of 512 bytes (stat(3type)).
            self.bytes = self.bytes.saturating_add((stat.st_blocks as u64).saturating_mul(512));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_memory_that_belongs_to_the_process_counts() {
        let text = "Rss: 900 kB\nPss: 800 kB\nPss_Anon: 100 kB\nPss_File: 600 kB\n\
                    Pss_Shmem: 20 kB\nSwapPss: 3 kB\n";
        assert_eq!(proportional_sum(text), Some(123 << 10));
        assert_eq!(proportional_sum("Rss: 9 kB\nPss: 7 kB\n"), Some(7 << 10), "an old kernel");
        assert_eq!(proportional_sum("torn"), None);
    }

    #[test]
    fn files_on_disk_count_once_and_links_are_not_followed() {
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("large"), vec![1; 4 << 20]).unwrap();
        let tree = tempfile::tempdir().unwrap();
        let deep = tree.path().join("a/b/c");
        std::fs::create_dir_all(&deep).unwrap();
        std::fs::write(deep.join("file"), vec![1; 1 << 20]).unwrap();
        std::fs::hard_link(deep.join("file"), tree.path().join("again")).unwrap();
        std::os::unix::fs::symlink(outside.path(), tree.path().join("link")).unwrap();
        rustix::fs::sync();
        let trees = [tree.path().to_owned()];
        let bytes = disk_bytes(&trees, u64::MAX);
        assert!((1 << 20..2 << 20).contains(&bytes), "{bytes}");
        assert!(free_disk(&trees).is_some_and(|free| free.len() == 1));
        assert_eq!(free_disk(&[tree.path().join("missing")]), None);
    }
}
