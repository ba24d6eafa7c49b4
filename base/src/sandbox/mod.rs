//! The box: which files a process and its children may read and write, held by the kernel.

pub mod caches;
mod confinement;
pub mod environment;
pub mod git_dirs;
pub mod home;
mod namespace;
pub mod redact;

use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use confinement::{ClosedScope, Confinement};
#[cfg(target_os = "linux")]
pub(crate) use namespace::are_possible as namespaces_are_possible;

/// What may be read and written; whole trees, and nothing else. Paths that do not exist are
/// skipped, so a missing one cannot be made either.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SandboxRules {
    /// Trees and files that may be read and executed.
    pub read: Vec<PathBuf>,
    /// Trees and files that may be changed as well; renames between them work.
    pub write: Vec<PathBuf>,
    /// Files and directories below those that stay as they are, where the kernel has mount
    /// namespaces for us ([`namespaces_are_possible`]). Only a [`Confinement`] looks at them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fixed: Vec<PathBuf>,
}

/// Set by studio for an agent in its box: the file (JSON of [`Rules`]) that says what the commands
/// of the agent may reach. It is less than the agent may: not its configuration, not its login. An
/// agent cannot make such rules in there itself, because nothing in a box can list the root.
pub const COMMANDS: &str = "STUDIO_COMMAND_RULES";

/// How much of the rules the kernel holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Enforced {
    /// What this kernel cannot do, one sentence each; empty when the box is whole.
    pub lacks: Vec<String>,
}

/// Confines the calling thread, and every process and thread that it starts from now on, for
/// good. Other threads stay as they are. What the kernel cannot do is reported, not refused.
#[cfg(target_os = "linux")]
pub fn enter(rules: &SandboxRules) -> io::Result<Enforced> {
    use landlock::{Access, Scope};
    confine(rules, Some(Scope::from_all(KNOWN)))
}

/// What this program knows of Landlock.
#[cfg(target_os = "linux")]
const KNOWN: landlock::ABI = landlock::ABI::V7;

#[cfg(target_os = "linux")]
fn confine(
    rules: &SandboxRules,
    scopes: Option<landlock::BitFlags<landlock::Scope>>,
) -> io::Result<Enforced> {
    let ruleset = ruleset(rules, scopes)?;
    drop_capabilities()?;
    let status = ruleset.restrict_self().map_err(|e| failed(&e))?;
    Ok(Enforced { lacks: missing(&status.landlock) })
}

#[cfg(target_os = "linux")]
fn failed(error: &dyn std::error::Error) -> io::Error {
    io::Error::other(format!("sandbox: {error}"))
}

/// Returns the rules as the kernel takes them.
#[cfg(target_os = "linux")]
fn ruleset(
    rules: &SandboxRules,
    scopes: Option<landlock::BitFlags<landlock::Scope>>,
) -> io::Result<landlock::RulesetCreated> {
    use landlock::{
        Access, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
        RulesetCreatedAttr,
    };
    use rustix::fs::FileType;
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(KNOWN))
        .and_then(|rules| match scopes {
            Some(scopes) => rules.scope(scopes),
            None => Ok(rules),
        })
        .and_then(Ruleset::create)
        .map_err(|e| failed(&e))?;
    let read = rules.read.iter().map(|path| (path, AccessFs::from_read(KNOWN)));
    // A disk's device node, made in the worktree by root, would be a way around every rule.
    let all = AccessFs::from_all(KNOWN) & !(AccessFs::MakeBlock | AccessFs::MakeChar);
    let write = rules.write.iter().map(|path| (path, all));
    for (path, access) in read.chain(write) {
        let Ok(fd) = PathFd::new(path) else { continue };
        let Ok(stat) = rustix::fs::fstat(&fd) else { continue };
        let access = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => access,
            FileType::RegularFile | FileType::CharacterDevice => {
                access & AccessFs::from_file(KNOWN)
            }
            // The kernel takes no rules for pipes, and sockets are not opened.
            _ => continue,
        };
        ruleset = ruleset.add_rule(PathBeneath::new(fd, access)).map_err(|e| failed(&e))?;
    }
    Ok(ruleset)
}

/// What root may do to processes, devices and the kernel behind the rules' back (reading
/// `/proc/PID/environ` of others is one: CAP_PERFMON is enough for it). Lost for good, because a
/// confined thread gains no privileges.
#[cfg(target_os = "linux")]
fn drop_capabilities() -> io::Result<()> {
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
    let harmless = CapabilitySet::CHOWN
        | CapabilitySet::DAC_OVERRIDE
        | CapabilitySet::FOWNER
        | CapabilitySet::FSETID
        | CapabilitySet::KILL
        | CapabilitySet::SETGID
        | CapabilitySet::SETUID
        | CapabilitySet::SETFCAP
        | CapabilitySet::NET_BIND_SERVICE
        | CapabilitySet::NET_RAW
        | CapabilitySet::SYS_CHROOT
        | CapabilitySet::SYS_NICE
        | CapabilitySet::IPC_LOCK;
    let mut sets = capabilities(None)?;
    sets.effective &= harmless;
    sets.permitted &= harmless;
    sets.inheritable &= harmless;
    Ok(set_capabilities(None, sets)?)
}

/// Fails: the sandbox is not supported on this system.
#[cfg(not(target_os = "linux"))]
pub fn enter(_rules: &SandboxRules) -> io::Result<Enforced> {
    Ok(Enforced { lacks: lacking() })
}

/// Returns what the box cannot do on this machine, one sentence each; empty when it is whole.
#[cfg(target_os = "linux")]
pub fn lacking() -> Vec<String> {
    // A thread that confines itself and ends is the way to ask the kernel without harm.
    std::thread::spawn(|| enter(&SandboxRules::default()).map(|enforced| enforced.lacks))
        .join()
        .unwrap_or_else(|_| Err(io::Error::other("the sandbox could not be tested")))
        .unwrap_or_else(|error| vec![error.to_string()])
}

/// Whether the kernel holds what a command may write, which is the least that a box needs; else
/// why not.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
pub fn holds_files() -> Result<(), String> {
    let null = std::ptr::null::<libc::c_void>();
    // SAFETY: asked for its version, the call reads nothing (landlock_create_ruleset(2)).
    let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, null, 0_usize, 1_u32) };
    match version {
        3.. => Ok(()),
        1.. => Err("its Landlock cannot restrict truncating files (Linux 6.2)".into()),
        _ => Err("Landlock is missing or disabled in its kernel".into()),
    }
}

/// Whether the kernel holds what a command may write.
#[cfg(not(target_os = "linux"))]
pub fn holds_files() -> Result<(), String> {
    Err("the sandbox is not supported on it".into())
}

#[cfg(target_os = "linux")]
fn missing(status: &landlock::LandlockStatus) -> Vec<String> {
    use landlock::{ABI, LandlockStatus};
    let abi = match status {
        LandlockStatus::Available { effective_abi, .. } => *effective_abi,
        LandlockStatus::NotEnabled => {
            return vec!["Landlock is disabled in this kernel".into()];
        }
        LandlockStatus::NotImplemented => return vec!["this kernel has no Landlock".into()],
    };
    let since = [
        (ABI::V2, "renames between directories (Linux 5.19)"),
        (ABI::V3, "rules for truncating files (Linux 6.2)"),
        (ABI::V5, "rules for device controls (Linux 6.10)"),
        (ABI::V6, "rules for signals and abstract sockets (Linux 6.12)"),
    ];
    since.iter().filter(|(needed, _)| abi < *needed).map(|(_, what)| format!("no {what}")).collect()
}

/// Returns what the box cannot do on this machine: everything.
#[cfg(not(target_os = "linux"))]
pub fn lacking() -> Vec<String> {
    vec!["the sandbox is not supported on this system".into()]
}
