//! A sandbox that is prepared once and applied to a child between fork and exec, so that the
//! process which starts the child is not confined.

use std::io;
use std::os::fd::RawFd;
use std::path::Path;

use super::SandboxRules;
use super::network::NetworkConfinement;

/// The scopes that a sandbox closes besides files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClosedScope {
    /// Signals to processes outside the sandbox, and their abstract sockets.
    Closed,
    /// Abstract sockets only: the commands of one agent may signal each other.
    SideBySide,
}

/// A prepared sandbox for children.
#[derive(Debug)]
pub struct Confinement {
    /// Its rules.
    pub rules: SandboxRules,
    #[cfg(target_os = "linux")]
    pub(super) ruleset: std::os::fd::OwnedFd,
    #[cfg(target_os = "linux")]
    namespaces: Option<super::namespace::Namespaces>,
    #[cfg(target_os = "linux")]
    filter: Option<super::seccomp::SystemCallFilter>,
    own_processes: bool,
    missing: Vec<String>,
}

impl Confinement {
    /// Gives each child a process id namespace where the sandbox has namespaces: the child's processes
    /// see no others, and all end at once with it. The child must not share a process group with
    /// this process.
    #[must_use]
    pub fn with_own_processes(mut self) -> Confinement {
        self.own_processes = true;
        self
    }

    /// Returns what the kernel cannot enforce, one sentence each; empty if the sandbox is complete.
    pub fn missing(&self) -> &[String] {
        &self.missing
    }

    /// Returns whether the paths in [`SandboxRules::fixed`] are protected.
    pub fn protects_fixed(&self) -> bool {
        self.rules.fixed.is_empty() || self.has_namespace()
    }

    /// Returns whether the sandbox prevents writing this absolute path, and so explains a child's
    /// failure.
    pub fn denies_writing(&self, path: &Path) -> bool {
        let fixed = self.rules.fixed.iter().any(|fixed| path.starts_with(fixed));
        fixed || !self.rules.write.iter().any(|tree| path.starts_with(tree))
    }

    /// Returns whether the sandbox prevents reading this absolute path.
    pub fn denies_reading(&self, path: &Path) -> bool {
        let mut readable = self.rules.write.iter().chain(&self.rules.read);
        !readable.any(|tree| path.starts_with(tree))
    }
}

#[cfg(target_os = "linux")]
impl Confinement {
    /// Prepares a sandbox. Fails if the kernel has no file rules at all.
    pub fn new(rules: SandboxRules, scope: ClosedScope) -> io::Result<Confinement> {
        Confinement::in_network(rules, scope, None)
    }

    /// Prepares a sandbox for children that enter this network first.
    pub fn in_network(
        rules: SandboxRules,
        scope: ClosedScope,
        network: Option<&NetworkConfinement>,
    ) -> io::Result<Confinement> {
        use landlock::Access;
        let all = ::landlock::Scope::from_all(super::landlock::SUPPORTED_ABI);
        let scopes = match scope {
            ClosedScope::Closed => all,
            ClosedScope::SideBySide => all & ::landlock::Scope::AbstractUnixSocket,
        };
        let user = network.and_then(NetworkConfinement::user_namespace);
        let namespaces = super::namespaces_are_possible()
            .then(|| super::namespace::Namespaces::new(&rules, user))
            .transpose()
            .map_err(|error| {
                io::Error::new(error.kind(), format!("cannot create its namespaces: {error}"))
            })?;
        let directories =
            namespaces.as_ref().map(|namespaces| &namespaces.directories[..]).unwrap_or_default();
        let ruleset: Option<std::os::fd::OwnedFd> =
            super::landlock::ruleset(&rules, directories, Some(scopes))?.into();
        let Some(ruleset) = ruleset else {
            return Err(io::Error::other("Landlock is missing or disabled in this kernel"));
        };
        let has_ipc_namespace = super::namespace::missing().is_empty();
        let filter = super::seccomp::SystemCallFilter::new(has_ipc_namespace);
        let missing = super::missing_features().to_vec();
        Ok(Confinement { rules, ruleset, namespaces, filter, own_processes: false, missing })
    }

    pub(super) fn has_namespace(&self) -> bool {
        self.namespaces.is_some()
    }

    /// Confines the calling process irrevocably, and puts its program into the cgroup of this
    /// directory. Call it between fork and exec: it only makes system calls and does not allocate.
    #[allow(unsafe_code)]
    pub(crate) fn enter(&self, cgroup: Option<RawFd>) -> io::Result<()> {
        use std::os::fd::AsRawFd;
        let namespaces = self.namespaces.as_ref();
        match namespaces.filter(|_| self.own_processes) {
            Some(namespaces) => {
                namespaces.enter()?;
                let reads_proc =
                    self.rules.read.iter().any(|tree| Path::new("/proc").starts_with(tree));
                let ruleset = reads_proc.then(|| self.ruleset.as_raw_fd());
                super::process_namespace::enter(ruleset, self.rules.gpu, cgroup)?;
            }
            None => {
                cgroup.map_or(Ok(()), super::cgroup::join)?;
                namespaces.map_or(Ok(()), super::namespace::Namespaces::enter)?;
            }
        }
        rustix::thread::set_no_new_privs(true)?;
        super::landlock::drop_capabilities()?;
        // SAFETY: the call takes two numbers, and the descriptor is open while `self` lives.
        let result = unsafe {
            libc::syscall(libc::SYS_landlock_restrict_self, self.ruleset.as_raw_fd(), 0_u32)
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        self.filter.as_ref().map_or(Ok(()), super::seccomp::SystemCallFilter::install)
    }
}

#[cfg(not(target_os = "linux"))]
impl Confinement {
    /// Fails: the sandbox is not supported on this system.
    pub fn new(rules: SandboxRules, scope: ClosedScope) -> io::Result<Confinement> {
        Confinement::in_network(rules, scope, None)
    }

    /// Fails: the sandbox is not supported on this system.
    pub fn in_network(
        _rules: SandboxRules,
        _scope: ClosedScope,
        _network: Option<&NetworkConfinement>,
    ) -> io::Result<Confinement> {
        Err(io::Error::other("the sandbox is not supported on this system"))
    }

    pub(super) fn has_namespace(&self) -> bool {
        false
    }

    pub(crate) fn enter(&self, _cgroup: Option<RawFd>) -> io::Result<()> {
        Err(io::Error::other("the sandbox is not supported on this system"))
    }
}
