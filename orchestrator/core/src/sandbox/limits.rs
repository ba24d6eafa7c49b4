//! The resources that all processes of a sandbox may use together.

use std::fmt;
use std::path::PathBuf;

use base::text::size;
use serde::{Deserialize, Serialize};

/// The limits of a sandbox; `None` is unlimited.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SandboxLimits {
    /// Bytes of memory, without the pages of files that are only mapped.
    pub memory: Option<u64>,
    /// Number of processes and threads.
    pub tasks: Option<u64>,
    /// Bytes on disk of the files in `trees`.
    pub disk: Option<u64>,
    /// Bytes that must remain free on the disks of `trees`.
    pub free_disk: Option<u64>,
    /// The writable trees whose files count.
    pub trees: Vec<PathBuf>,
}

/// The default of [`SandboxLimits::disk`], in bytes.
const DEFAULT_DISK: u64 = 100 << 30;
/// The smallest default of [`SandboxLimits::memory`], in bytes.
const MIN_DEFAULT_MEMORY: u64 = 1 << 30;
/// The smallest default of [`SandboxLimits::tasks`].
const MIN_DEFAULT_TASKS: u64 = 4096;
/// The default of [`SandboxLimits::tasks`] for each core.
const TASKS_PER_CORE: u64 = 256;

impl SandboxLimits {
    /// Returns whether anything is limited.
    pub(crate) fn any(&self) -> bool {
        [self.memory, self.tasks, self.disk, self.free_disk].iter().any(Option::is_some)
    }

    /// Returns these limits with the default of each that is unset: half of the machine's memory,
    /// 4,096 processes and threads or 256 for each core, 100 GiB on disk.
    #[must_use]
    pub fn or_default(self) -> SandboxLimits {
        let memory = || (rustix::system::sysinfo().totalram as u64 / 2).max(MIN_DEFAULT_MEMORY);
        let tasks = || {
            let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
            (cores as u64 * TASKS_PER_CORE).max(MIN_DEFAULT_TASKS)
        };
        SandboxLimits {
            memory: self.memory.or_else(|| Some(memory())),
            tasks: self.tasks.or_else(|| Some(tasks())),
            disk: self.disk.or(Some(DEFAULT_DISK)),
            ..self
        }
    }
}

/// The limit that a sandbox reached, with its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExceededLimit {
    /// Bytes of memory.
    Memory(u64),
    /// Number of processes and threads.
    Tasks(u64),
    /// Bytes on disk.
    Disk(u64),
    /// Bytes of free space on the disk.
    FreeDisk(u64),
}

impl fmt::Display for ExceededLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExceededLimit::Memory(max) => write!(f, "{} of memory", size(*max)),
            ExceededLimit::Tasks(max) => write!(f, "{max} processes and threads"),
            ExceededLimit::Disk(max) => write!(f, "{} on disk", size(*max)),
            ExceededLimit::FreeDisk(min) => write!(f, "{} of free disk space", size(*min)),
        }
    }
}

impl ExceededLimit {
    /// Says that a session, or a check of it, reached this limit, and what the user can do.
    pub fn sentence(self, id: &str) -> String {
        format!("it reached its limit of {self}; {}", self.remedy().replace("ID", id))
    }

    fn remedy(self) -> &'static str {
        match self {
            ExceededLimit::Memory(_) => {
                "`studio resume ID --memory SIZE` or `[studio.limits] memory_bytes` raises it"
            }
            ExceededLimit::Tasks(_) => {
                "`studio resume ID --processes N` or `[studio.limits] processes` raises it"
            }
            ExceededLimit::Disk(_) => {
                "`studio resume ID --disk SIZE` or `[studio.limits] disk_bytes` raises it"
            }
            ExceededLimit::FreeDisk(_) => {
                "free some space, or lower `[studio.limits] disk_floor_bytes`"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unset_limits_get_their_defaults_and_set_ones_stay() {
        let limits = SandboxLimits { memory: Some(5), ..SandboxLimits::default() }.or_default();
        assert_eq!(limits.memory, Some(5));
        assert_eq!(limits.disk, Some(100 << 30));
        assert!(limits.tasks >= Some(4096), "{limits:?}");
        assert_eq!(limits.free_disk, None);
        let memory = SandboxLimits::default().or_default().memory;
        assert!(memory >= Some(1 << 30), "{memory:?}");
    }
}
