//! Decides whether the machine and the account of an agent have room for another session.

use std::path::Path;

use base::config::Config;
use base::test_hooks::TestHook;
use base::text::size;

/// The memory that must be free before a session starts, unless configured.
const EXPECTED_MEMORY_BYTES: u64 = 512 << 20;
/// The load average for each core above which no further session starts, unless configured.
const MAX_LOAD: f64 = 4.0;

/// What the machine has left.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Machine {
    /// The number of cores.
    pub cores: f64,
    /// The average number of processes that want to run, over the last minute.
    pub load: Option<f64>,
    /// Bytes of memory that programs can still get.
    pub free_memory: Option<u64>,
}

impl Machine {
    /// Measures the machine; a value that the system does not tell is unknown.
    pub(crate) fn measure() -> Machine {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let load = TestHook::Load.value().and_then(|text| text.parse().ok()).or_else(load_average);
        let free_memory = TestHook::Memory.number().or_else(available_memory);
        Machine { cores: cores as f64, load, free_memory }
    }
}

fn load_average() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

fn available_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}

/// Returns the free bytes on the disk of a path, or of its nearest directory that exists.
pub(crate) fn free_disk(path: &Path) -> Option<u64> {
    if let Some(bytes) = TestHook::FreeDisk.number() {
        return Some(bytes);
    }
    let directory = path.ancestors().find(|directory| directory.is_dir())?;
    let stat = rustix::fs::statvfs(directory).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Says why the disk of a directory has no room for a pack of this size, if it has none; `floor` bytes
/// must remain free.
pub(crate) fn missing_disk(directory: &Path, pack_bytes: u64, floor: u64) -> Option<String> {
    let needed = pack_bytes.saturating_mul(2).saturating_add(floor);
    let free = free_disk(directory).filter(|free| *free < needed)?;
    let (free, floor) = (base::text::size(free), base::text::size(floor));
    Some(format!("{free} is free in {}, and {floor} must remain free", directory.display()))
}

/// The room for sessions during one step of the scheduler.
#[derive(Clone, Debug)]
pub(crate) struct Room {
    machine: Machine,
    expected_memory: u64,
    max_load: f64,
    /// Sessions that were started and do not use their memory yet.
    starting: u64,
}

impl Room {
    /// Creates the room of a machine; `starting` is the number of sessions that are being started.
    pub(crate) fn new(machine: Machine, config: &Config, starting: u64) -> Room {
        let limits = &config.studio.limits;
        let max_load = config.studio.max_load.filter(|load| load.is_finite() && *load > 0.0);
        Room {
            machine,
            expected_memory: limits.expected_memory_bytes.unwrap_or(EXPECTED_MEMORY_BYTES),
            max_load: max_load.unwrap_or(MAX_LOAD),
            starting,
        }
    }

    /// Counts a session that was started.
    pub(crate) fn start_one(&mut self) {
        self.starting += 1;
    }

    /// Returns why no session can start in this worktree, as a clause. The load never blocks the
    /// only session, since then other programs cause it.
    pub(crate) fn shortage(
        &self,
        worktree: &Path,
        disk_floor: Option<u64>,
        is_first: bool,
    ) -> Option<String> {
        self.memory_shortage().or_else(|| disk_shortage(worktree, disk_floor)).or_else(|| {
            let load = self.machine.load.filter(|_| !is_first)?;
            let max = self.max_load * self.machine.cores;
            (load > max).then(|| {
                format!("the load of the machine is {load:.1}, and sessions start below {max:.1}")
            })
        })
    }

    fn memory_shortage(&self) -> Option<String> {
        let free = self.machine.free_memory?;
        let promised = self.starting.saturating_mul(self.expected_memory);
        let left = free.saturating_sub(promised);
        if left >= self.expected_memory {
            return None;
        }
        let promised = match self.starting {
            0 => String::new(),
            _ => format!(" beside {} for sessions that are starting", size(promised)),
        };
        let needed = size(self.expected_memory);
        Some(format!("{} of memory is free{promised}, and a session needs {needed}", size(free)))
    }
}

fn disk_shortage(worktree: &Path, floor: Option<u64>) -> Option<String> {
    let (floor, free) = (floor?, free_disk(worktree)?);
    (free < floor).then(|| {
        format!("{} of disk space is free, and {} must remain free", size(free), size(floor))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn room(free_memory: u64, load: f64, starting: u64) -> Room {
        let machine = Machine { cores: 2.0, load: Some(load), free_memory: Some(free_memory) };
        Room::new(machine, &Config::default(), starting)
    }

    #[test]
    fn a_session_starts_only_if_there_is_memory_for_it_and_for_those_that_are_starting() {
        let shortage = |room: Room| room.shortage(Path::new("/"), None, true);
        assert_eq!(shortage(room(GIB, 0.0, 0)), None);
        assert_eq!(shortage(room(GIB, 0.0, 1)), None);
        let text = shortage(room(GIB, 0.0, 2)).unwrap();
        assert_eq!(
            text,
            "1 GiB of memory is free beside 1 GiB for sessions that are starting, and a session needs 512 MiB"
        );
        let mut one = room(GIB / 2, 0.0, 0);
        assert_eq!(shortage(one.clone()), None);
        one.start_one();
        assert!(shortage(one).is_some());
    }

    #[test]
    fn the_load_blocks_further_sessions_and_the_disk_floor_every_one() {
        let busy = room(GIB, 8.5, 0);
        assert_eq!(busy.shortage(Path::new("/"), None, true), None);
        let text = busy.shortage(Path::new("/"), None, false).unwrap();
        assert_eq!(text, "the load of the machine is 8.5, and sessions start below 8.0");
        let missing = Path::new("/no/such/directory");
        let text = room(GIB, 0.0, 0).shortage(missing, Some(u64::MAX), true).unwrap();
        assert!(text.contains("must remain free"), "{text}");
    }

    #[test]
    fn this_machine_can_be_measured() {
        let machine = Machine::measure();
        assert!(machine.cores >= 1.0 && machine.free_memory.is_none_or(|bytes| bytes > 0));
    }
}
