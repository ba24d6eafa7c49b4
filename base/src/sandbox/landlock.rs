//! The sandbox on Linux: rules of Landlock, and capabilities.

use std::io;

use super::{Enforced, SandboxRules};

/// Confines the calling thread, and all processes and threads that it starts from now on,
/// irrevocably. Other threads are not confined. Unsupported features are reported, not refused.
#[cfg(target_os = "linux")]
pub fn enter(rules: &SandboxRules) -> io::Result<Enforced> {
    use ::landlock::{Access, Scope};
    confine(rules, Some(Scope::from_all(SUPPORTED_ABI)))
}

/// The newest Landlock version that this program uses.
#[cfg(target_os = "linux")]
pub(super) const SUPPORTED_ABI: ::landlock::ABI = ::landlock::ABI::V7;

#[cfg(target_os = "linux")]
fn confine(
    rules: &SandboxRules,
    scopes: Option<::landlock::BitFlags<::landlock::Scope>>,
) -> io::Result<Enforced> {
    let ruleset = ruleset(rules, &[], scopes)?;
    drop_capabilities()?;
    let status = ruleset.restrict_self().map_err(|e| sandbox_error(&e))?;
    Ok(Enforced { missing: missing(&status.landlock) })
}

#[cfg(target_os = "linux")]
fn sandbox_error(error: &dyn std::error::Error) -> io::Error {
    io::Error::other(format!("sandbox: {error}"))
}

/// Returns the rules in the kernel's form, with those for the directories of a namespace.
#[cfg(target_os = "linux")]
pub(super) fn ruleset(
    rules: &SandboxRules,
    directories: &[super::namespace::SharedDirectory],
    scopes: Option<::landlock::BitFlags<::landlock::Scope>>,
) -> io::Result<::landlock::RulesetCreated> {
    use ::landlock::{
        Access, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
        RulesetCreatedAttr,
    };
    use rustix::fs::FileType;
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(SUPPORTED_ABI))
        .and_then(|rules| match scopes {
            Some(scopes) => rules.scope(scopes),
            None => Ok(rules),
        })
        .and_then(Ruleset::create)
        .map_err(|e| sandbox_error(&e))?;
    let read = rules.read.iter().map(|path| (path, AccessFs::from_read(SUPPORTED_ABI)));
    // A device node of a disk, created in the worktree by root, would bypass every rule.
    let all = AccessFs::from_all(SUPPORTED_ABI) & !(AccessFs::MakeBlock | AccessFs::MakeChar);
    let write = rules.write.iter().chain(&rules.terminal).map(|path| (path, all));
    for (path, access) in read.chain(write) {
        let Ok(fd) = PathFd::new(path) else { continue };
        let Ok(stat) = rustix::fs::fstat(&fd) else { continue };
        let access = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => access,
            FileType::RegularFile | FileType::CharacterDevice => {
                access & AccessFs::from_file(SUPPORTED_ABI)
            }
            // The kernel has no rules for pipes, and sockets are not opened.
            _ => continue,
        };
        ruleset = ruleset.add_rule(PathBeneath::new(fd, access)).map_err(|e| sandbox_error(&e))?;
    }
    if rules.gpu && super::namespace::is_inside() {
        // The sandbox around this one has protected everything in `/proc` but its processes.
        let access = AccessFs::WriteFile | AccessFs::Truncate;
        let proc = PathFd::new("/proc").map_err(|e| sandbox_error(&e))?;
        let rule = PathBeneath::new(proc, access);
        ruleset = ruleset.add_rule(rule).map_err(|e| sandbox_error(&e))?;
    }
    for directory in directories {
        let access = if directory.writable { all } else { AccessFs::ReadDir.into() };
        let rule = PathBeneath::new(&directory.handle, access);
        ruleset = ruleset.add_rule(rule).map_err(|e| sandbox_error(&e))?;
    }
    Ok(ruleset)
}

/// Drops the capabilities that would let root bypass the rules through processes, devices or the
/// kernel (for example read `/proc/PID/environ` of others, for which CAP_PERFMON is enough). This
/// is irrevocable, because a confined thread gains no privileges.
#[cfg(target_os = "linux")]
pub(super) fn drop_capabilities() -> io::Result<()> {
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
    Ok(Enforced { missing: missing_features().to_vec() })
}

/// Returns what the sandbox cannot enforce on this machine, one sentence each; empty if it is
/// complete. It is determined once.
#[cfg(target_os = "linux")]
pub fn missing_features() -> &'static [String] {
    static MISSING: std::sync::OnceLock<Vec<String>> = std::sync::OnceLock::new();
    MISSING.get_or_init(find_missing_features)
}

#[cfg(target_os = "linux")]
fn find_missing_features() -> Vec<String> {
    // A thread that confines itself and exits tests the kernel without side effects.
    let mut missing =
        std::thread::spawn(|| enter(&SandboxRules::default()).map(|enforced| enforced.missing))
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the sandbox could not be tested")))
            .unwrap_or_else(|error| vec![error.to_string()]);
    if super::seccomp::SystemCallFilter::new(true).is_none() {
        missing.push("no filter of system calls for this kind of processor".to_owned());
    }
    missing.extend(super::namespace::missing().iter().map(|&sentence| sentence.to_owned()));
    missing
}

/// Checks that the kernel enforces write access to files, which is the minimum for a sandbox; the
/// error says what is missing.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
pub fn check_landlock() -> Result<(), String> {
    let null = std::ptr::null::<libc::c_void>();
    // SAFETY: as a version query the call reads no memory (landlock_create_ruleset(2)).
    let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, null, 0_usize, 1_u32) };
    match version {
        3.. => Ok(()),
        1.. => Err("its Landlock cannot restrict truncating files (Linux 6.2)".into()),
        _ => Err("Landlock is missing or disabled in its kernel".into()),
    }
}

/// Fails: the sandbox is not supported on this system.
#[cfg(not(target_os = "linux"))]
pub fn check_landlock() -> Result<(), String> {
    Err("the sandbox is not supported on it".into())
}

#[cfg(target_os = "linux")]
fn missing(status: &::landlock::LandlockStatus) -> Vec<String> {
    use ::landlock::{ABI, LandlockStatus};
    let abi = match status {
        LandlockStatus::Available { effective_abi, .. } => *effective_abi,
        LandlockStatus::NotEnabled => {
            return vec!["Landlock is disabled in this kernel".into()];
        }
        LandlockStatus::NotImplemented => return vec!["this kernel has no Landlock".into()],
    };
    let features = [
        (ABI::V2, "renames between directories (Linux 5.19)"),
        (ABI::V3, "rules for truncating files (Linux 6.2)"),
        (ABI::V5, "rules for device controls (Linux 6.10)"),
        (ABI::V6, "rules for signals and abstract sockets (Linux 6.12)"),
    ];
    features
        .iter()
        .filter(|(needed, _)| abi < *needed)
        .map(|(_, what)| format!("no {what}"))
        .collect()
}

/// Returns what the sandbox cannot enforce on this machine: everything.
#[cfg(not(target_os = "linux"))]
pub fn missing_features() -> &'static [String] {
    static MISSING: std::sync::LazyLock<[String; 1]> =
        std::sync::LazyLock::new(|| ["the sandbox is not supported on this system".into()]);
    &*MISSING
}
