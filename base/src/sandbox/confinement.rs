//! A sandbox that is prepared once and applied to a child between fork and exec, so that the
//! process which starts the child is not confined.

use std::io;
#[cfg(target_os = "linux")]
use std::path::PathBuf;

use super::SandboxRules;

/// The scopes that a sandbox closes besides files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClosedScope {
    /// Signals to processes outside the sandbox, and their abstract sockets.
    Closed,
    /// No further scope: the commands of one agent may signal each other.
    SideBySide,
}

/// A prepared sandbox for children.
#[derive(Debug)]
pub struct Confinement {
    /// Its rules.
    pub rules: SandboxRules,
    #[cfg(target_os = "linux")]
    ruleset: std::os::fd::OwnedFd,
    #[cfg(target_os = "linux")]
    namespace: Option<super::namespace::Namespace>,
    missing: Vec<String>,
}

impl Confinement {
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
    pub fn denies_writing(&self, path: &std::path::Path) -> bool {
        let fixed = self.rules.fixed.iter().any(|fixed| path.starts_with(fixed));
        fixed || !self.rules.write.iter().any(|tree| path.starts_with(tree))
    }

    /// Returns whether the sandbox prevents reading this absolute path.
    pub fn denies_reading(&self, path: &std::path::Path) -> bool {
        let mut readable = self.rules.write.iter().chain(&self.rules.read);
        !readable.any(|tree| path.starts_with(tree))
    }
}

/// Returns what this kernel cannot enforce, determined once.
#[cfg(target_os = "linux")]
fn missing_features() -> &'static [String] {
    static MISSING: std::sync::OnceLock<Vec<String>> = std::sync::OnceLock::new();
    MISSING.get_or_init(super::missing_features)
}

#[cfg(target_os = "linux")]
impl Confinement {
    /// Prepares a sandbox. Fails if the kernel has no file rules at all.
    pub fn new(rules: SandboxRules, scope: ClosedScope) -> io::Result<Confinement> {
        use landlock::Access;
        let scopes = (scope == ClosedScope::Closed)
            .then(|| ::landlock::Scope::from_all(super::landlock::SUPPORTED_ABI));
        let ruleset: Option<std::os::fd::OwnedFd> =
            super::landlock::ruleset(&rules, scopes)?.into();
        let Some(ruleset) = ruleset else {
            return Err(io::Error::other("Landlock is missing or disabled in this kernel"));
        };
        let fixed: Vec<&PathBuf> = rules.fixed.iter().filter(|path| path.exists()).collect();
        let namespace = match fixed.is_empty() || !super::namespaces_are_possible() {
            true => None,
            false => Some(super::namespace::Namespace::new(&fixed)?),
        };
        Ok(Confinement { rules, ruleset, namespace, missing: missing_features().to_vec() })
    }

    fn has_namespace(&self) -> bool {
        self.namespace.is_some()
    }

    /// Confines the calling process irrevocably. Call it between fork and exec: it only makes
    /// system calls and does not allocate.
    #[allow(unsafe_code)]
    pub(crate) fn enter(&self) -> io::Result<()> {
        use std::os::fd::AsRawFd;
        if let Some(namespace) = &self.namespace {
            namespace.enter()?;
        }
        rustix::thread::set_no_new_privs(true)?;
        super::landlock::drop_capabilities()?;
        // SAFETY: the call takes two numbers, and the descriptor is open while `self` lives.
        let result = unsafe {
            libc::syscall(libc::SYS_landlock_restrict_self, self.ruleset.as_raw_fd(), 0_u32)
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

#[cfg(not(target_os = "linux"))]
impl Confinement {
    /// Fails: the sandbox is not supported on this system.
    pub fn new(_rules: SandboxRules, _scope: ClosedScope) -> io::Result<Confinement> {
        Err(io::Error::other("the sandbox is not supported on this system"))
    }

    fn has_namespace(&self) -> bool {
        false
    }

    pub(crate) fn enter(&self) -> io::Result<()> {
        Err(io::Error::other("the sandbox is not supported on this system"))
    }
}
