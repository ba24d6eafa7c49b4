//! Ports, and the names of databases and of Compose projects, that belong to one session: programs
//! of several sessions can run at the same time. No two sessions on this machine have the same
//! ports; the user's state directory has one file for each range of ports that is in use.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use base::files;
use base::lock::Lock;
use base::user_dirs::state_dir;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use studio_git::repo::Repository;

/// The ports that are leased: below those that the system gives to clients (32768 on Linux).
const PORTS: std::ops::Range<u16> = 20_000..30_000;
/// The length of a name, of which databases and Compose accept this many bytes.
const MAX_NAME_LENGTH: usize = 63;
/// How many leases are looked at when one is taken. Those that are over do not accumulate: if as many
/// sessions end as start, about one lease of this many is over.
const LOOKS_PER_LEASE: usize = 16;
/// The file of a holder that names its ports, so that its lease is found without reading all leases.
const PORTS_FILE: &str = "ports.json";

/// A range of ports of one session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortRange {
    /// The first port.
    pub first: u16,
    /// How many ports follow each other.
    pub count: u16,
}

/// What belongs to one session of a repository, or to one check worktree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leases {
    /// Its ports; `None` if none are configured or free.
    pub ports: Option<PortRange>,
    /// The name for Compose: lower-case letters, digits, `-` and `_`.
    pub compose_project: String,
    /// The name for a database: lower-case letters, digits and `_`, beginning with a letter.
    pub database: String,
}

/// The holder of a lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Lease {
    #[serde(flatten)]
    ports: PortRange,
    /// The git common directory.
    repository: PathBuf,
    /// The directory of the holder in `studio`: `sessions/ID` or `checks/N`.
    holder: PathBuf,
}

impl Leases {
    /// Returns what a holder has, and leases ports for it if it has none. `holder` is its directory
    /// in `studio`, `name` its name.
    pub(crate) fn take(repository: &Repository, holder: &Path, name: &str, ports: u16) -> Leases {
        // Without a state directory, programs choose their ports themselves.
        let ports = lease_ports(repository, holder, ports).ok().flatten();
        Leases::named(repository, name, ports)
    }

    /// Returns what a session has at the moment, without leasing anything.
    pub fn of_session(repository: &Repository, id: &base::id::Id) -> Leases {
        let holder = Path::new("sessions").join(id.as_str());
        let registry = registry().ok();
        let ports = registry.and_then(|registry| present_ports(&registry, repository, &holder));
        Leases::named(repository, id.as_str(), ports)
    }

    fn named(repository: &Repository, name: &str, ports: Option<PortRange>) -> Leases {
        let project = repository.name();
        let compose_project = safe_name(&project, name, '-');
        Leases { ports, compose_project, database: safe_name(&project, name, '_') }
    }

    /// Returns the variables for the programs of the holder.
    pub(crate) fn variables(&self) -> Vec<(String, String)> {
        let mut variables = vec![
            ("COMPOSE_PROJECT_NAME".to_owned(), self.compose_project.clone()),
            ("STUDIO_DATABASE".to_owned(), self.database.clone()),
        ];
        if let Some(PortRange { first, count }) = self.ports {
            variables.push(("STUDIO_PORT".to_owned(), first.to_string()));
            variables.push(("STUDIO_PORT_COUNT".to_owned(), count.to_string()));
        }
        variables
    }

    /// Returns the object `leases` of `status --json`.
    pub fn json(&self) -> Value {
        let ports = self.ports.map(|ports| json!({"first": ports.first, "count": ports.count}));
        json!({
            "ports": ports, "compose_project": self.compose_project, "database": self.database,
        })
    }
}

impl Lease {
    /// Reads a file of the registry; `None` if it is missing or is none.
    fn read(path: &Path) -> Option<Lease> {
        serde_json::from_slice(&files::read_small(path).ok()?).ok()
    }

    fn is_of(&self, repository: &Repository, holder: &Path) -> bool {
        self.repository == repository.common_dir && self.holder == holder
    }

    /// Returns whether the holder no longer needs it: the session was landed, discarded or deleted,
    /// or no checks run in the worktree.
    fn is_over(&self) -> bool {
        let dir = self.repository.join("studio").join(&self.holder);
        if self.holder.starts_with("checks") {
            return !Lock::is_held(&dir.join("lock")).unwrap_or(false);
        }
        // Most of them are those of sessions which have a git directory: one question is enough.
        !dir.join("git").exists()
            && (dir.join("originals/finished").exists() || !dir.join("session.json").exists())
    }
}

impl PortRange {
    fn overlaps(self, other: PortRange) -> bool {
        let end = |range: PortRange| u32::from(range.first) + u32::from(range.count);
        u32::from(self.first) < end(other) && u32::from(other.first) < end(self)
    }

    /// Returns whether no program listens on any of the ports.
    fn is_free(self) -> bool {
        (self.first..self.first.saturating_add(self.count)).all(|port| can_bind(port).is_ok())
    }
}

/// Binds a port for a moment, without listening: that succeeds unless a program listens on it.
fn can_bind(port: u16) -> io::Result<()> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType};
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    rustix::net::sockopt::set_socket_reuseaddr(&socket, true)?;
    let address = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port);
    Ok(rustix::net::bind(&socket, &address)?)
}

/// Returns the directory of the leases; creates it.
fn registry() -> io::Result<PathBuf> {
    let directory = state_dir("studio")?.join("leases");
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
    Ok(directory)
}

/// Returns the file of the registry for a range of ports.
fn lease_file(registry: &Path, ports: PortRange) -> PathBuf {
    registry.join(format!("{}.json", ports.first))
}

/// Returns the ports that a holder has leased, as its own file names them.
fn present_ports(registry: &Path, repository: &Repository, holder: &Path) -> Option<PortRange> {
    let path = ports_file(repository, holder);
    let ports: PortRange = serde_json::from_slice(&files::read_small(&path).ok()?).ok()?;
    // The file may be in a copy of the repository, or older than the lease.
    let lease = Lease::read(&lease_file(registry, ports))?;
    (lease.ports == ports && lease.is_of(repository, holder) && !lease.is_over()).then_some(ports)
}

/// Writes the file of a holder.
fn name_ports(repository: &Repository, holder: &Path, ports: PortRange) -> io::Result<()> {
    files::replace_cache(&ports_file(repository, holder), &serde_json::to_vec(&ports)?)
}

fn ports_file(repository: &Repository, holder: &Path) -> PathBuf {
    repository.common_dir.join("studio").join(holder).join(PORTS_FILE)
}

/// Leases a range of free ports, unless the holder has one of this length.
fn lease_ports(
    repository: &Repository,
    holder: &Path,
    count: u16,
) -> io::Result<Option<PortRange>> {
    if count == 0 {
        return Ok(None);
    }
    let registry = registry()?;
    let present = || present_ports(&registry, repository, holder);
    if let Some(ports) = present().filter(|ports| ports.count == count) {
        return Ok(Some(ports));
    }
    let _lock = Lock::take(&registry.join("lock"))?;
    match present() {
        Some(ports) if ports.count == count => return Ok(Some(ports)),
        Some(ports) => fs::remove_file(lease_file(&registry, ports))?,
        None => {}
    }
    end_leases(&registry, LOOKS_PER_LEASE)?;
    let mut free = free_ports(&registry, count)?;
    if free.is_none() {
        end_leases(&registry, usize::MAX)?;
        free = free_ports(&registry, count)?;
    }
    let Some(ports) = free else { return Ok(None) };
    name_ports(repository, holder, ports)?;
    let lease =
        Lease { ports, repository: repository.common_dir.clone(), holder: holder.to_owned() };
    files::replace_cache(&lease_file(&registry, ports), &serde_json::to_vec(&lease)?)?;
    Ok(Some(ports))
}

/// Returns the first range of ports that is not leased, and on which nothing listens. Files are named by
/// the first port of their lease, so only one that may reach into the range is read.
fn free_ports(registry: &Path, count: u16) -> io::Result<Option<PortRange>> {
    let leased = first_ports(registry)?;
    let reaches_into = |range: PortRange| {
        let before = leased.range(..range.first).next_back();
        let lease = before.and_then(|first| Lease::read(&registry.join(format!("{first}.json"))));
        lease.is_some_and(|lease| lease.ports.overlaps(range))
    };
    let starts = PORTS.step_by(usize::from(count));
    let ranges = starts.map(|first| PortRange { first, count });
    let mut free = ranges.filter(|range| {
        let end = range.first.saturating_add(count);
        end <= PORTS.end
            && leased.range(range.first..end).next().is_none()
            && !reaches_into(*range)
            && range.is_free()
    });
    Ok(free.next())
}

/// Removes the leases that are over, of this many from a random one on.
fn end_leases(registry: &Path, count: usize) -> io::Result<()> {
    let leased: Vec<u16> = first_ports(registry)?.into_iter().collect();
    let start = usize::from(u16::from_le_bytes(base::random::bytes()?));
    for index in 0..count.min(leased.len()) {
        let first = leased[(start + index) % leased.len()];
        let path = registry.join(format!("{first}.json"));
        if Lease::read(&path).is_none_or(|lease| lease.is_over()) {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

/// Returns the first port of each lease.
fn first_ports(registry: &Path) -> io::Result<BTreeSet<u16>> {
    let first_port =
        |entry: fs::DirEntry| entry.file_name().to_str()?.strip_suffix(".json")?.parse().ok();
    Ok(fs::read_dir(registry)?.flatten().filter_map(first_port).collect())
}

/// Returns a name with only lower-case ASCII letters, digits and the separator. A name that is too
/// long loses letters of the project, then of the beginning of the session's name.
fn safe_name(project: &str, name: &str, separator: char) -> String {
    let plain = |text: &str| -> String {
        let plain = text.chars().map(|c| match c.to_ascii_lowercase() {
            c if c.is_ascii_alphanumeric() => c,
            _ => separator,
        });
        plain.collect()
    };
    let (mut project, mut name) = (plain(project), plain(name));
    name.drain(..name.len().saturating_sub(MAX_NAME_LENGTH - 2));
    project.truncate((MAX_NAME_LENGTH - 2).saturating_sub(name.len()));
    let joined = format!("{project}{separator}{name}");
    match joined.starts_with(|c: char| c.is_ascii_alphabetic()) {
        true => joined,
        false => format!("s{joined}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_valid_for_databases_and_compose() {
        assert_eq!(safe_name("My Repö", "fix-login-7k3f", '-'), "my-rep--fix-login-7k3f");
        assert_eq!(safe_name("9lives", "a-b", '_'), "s9lives_a_b");
        let long = safe_name(&"p".repeat(99), &format!("{}-7k3f", "n".repeat(99)), '_');
        assert!(long.len() <= MAX_NAME_LENGTH && long.ends_with("n_7k3f"), "{long}");
        let two = safe_name(&"p".repeat(99), "n-7k3f", '_');
        // There is room for an `s` at the beginning.
        assert!(
            two.len() == MAX_NAME_LENGTH - 1 && two.starts_with("pp") && two.ends_with("_n_7k3f")
        );
    }

    #[test]
    fn ranges_that_share_a_port_overlap() {
        let range = |first, count| PortRange { first, count };
        assert!(range(20_000, 10).overlaps(range(20_009, 1)));
        assert!(!range(20_000, 10).overlaps(range(20_010, 10)));
        assert!(range(20_005, 1).overlaps(range(20_000, 10)));
    }

    #[test]
    fn a_port_with_a_listener_is_not_free() {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(!PortRange { first: port, count: 1 }.is_free());
    }
}
