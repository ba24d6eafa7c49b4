//! A scope of signals (Landlock, Linux 6.12) around this process and everything that it starts from
//! now on: `kill(-1)` reaches exactly these processes, and ends all of them at once, however fast they
//! start others.

#[cfg(not(target_os = "linux"))]
pub use other::*;

#[cfg(target_os = "linux")]
pub use linux::*;

#[cfg(target_os = "linux")]
mod linux {
    use std::io;

    use landlock::{CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetStatus, Scope};
    use rustix::io::Errno;
    use rustix::process::{Pid, Signal};

    /// Enters a new scope, irrevocably; returns `false` if the kernel has none. The process gains no
    /// privileges any more. Call it before the first thread is started.
    pub fn enter() -> io::Result<bool> {
        let create = || {
            Ruleset::default()
                .set_compatibility(CompatLevel::BestEffort)
                .scope(Scope::Signal)?
                .create()?
                .restrict_self()
        };
        let status = create().map_err(io::Error::other)?;
        Ok(status.ruleset == RulesetStatus::FullyEnforced && parent_is_outside())
    }

    /// Kills all other processes in the scope of this process; returns `false` if it is in none. A
    /// process that the kernel is starting at this moment is not missed.
    #[allow(unsafe_code)]
    pub fn kill_others() -> bool {
        // Without a scope the call would reach all processes of the user.
        if !parent_is_outside() {
            return false;
        }
        // SAFETY: the call takes two numbers.
        let result = unsafe { libc::kill(-1, Signal::KILL.as_raw()) };
        // The error says that there is no other process.
        result == 0 || io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)
    }

    /// Returns whether this process may not signal its parent, which runs as the same user.
    fn parent_is_outside() -> bool {
        let parent = rustix::process::getppid().filter(|parent| *parent != Pid::INIT);
        let Some(parent) = parent else { return false };
        let user = std::fs::metadata(format!("/proc/{parent}")).map(|metadata| {
            use std::os::unix::fs::MetadataExt;
            metadata.uid()
        });
        let is_own = user.is_ok_and(|user| user == rustix::process::geteuid().as_raw());
        is_own && rustix::process::test_kill_process(parent) == Err(Errno::PERM)
    }
}

#[cfg(not(target_os = "linux"))]
mod other {
    use std::io;

    /// Returns `false`: this system has no such scopes.
    pub fn enter() -> io::Result<bool> {
        Ok(false)
    }

    /// Returns `false`: this system has no such scopes.
    pub fn kill_others() -> bool {
        false
    }
}
