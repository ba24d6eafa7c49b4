//! What the kernel of this machine offers to a sandbox, and what is missing without it.

use std::path::Path;

/// A feature of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelFeature {
    /// Its name.
    pub name: &'static str,
    /// Whether this machine has it.
    pub available: bool,
    /// What it does for a sandbox, or what is missing without it.
    pub consequence: String,
}

/// Returns all features that sandboxes use, in the order of their importance.
pub fn kernel_features() -> Vec<KernelFeature> {
    let feature = |name, available: bool, with: &str, without: &str| KernelFeature {
        name,
        available,
        consequence: if available { with } else { without }.to_owned(),
    };
    vec![
        landlock(),
        feature(
            "namespaces",
            super::namespaces_are_possible(),
            "agents cannot change git's configuration of their session",
            "no mount namespaces: studio restores git's configuration after each turn",
        ),
        feature(
            "signals",
            landlock_version() >= SIGNAL_SCOPE_VERSION,
            "signals of sandboxed programs stay inside their sandbox",
            "no scopes of signals (Linux 6.12): a sandboxed program can signal the user's other processes",
        ),
        feature(
            "seccomp",
            has_seccomp(),
            "the scratch sandbox of g3's rules denies sockets and tracing",
            "no filters for system calls: commands that a rule sends to the scratch sandbox do not run",
        ),
        feature(
            "process memory",
            Path::new("/proc/self/smaps_rollup").exists(),
            "limits of memory count shared pages once",
            "no smaps_rollup (Linux 4.14): limits of memory count shared pages once for each process",
        ),
    ]
}

/// The Landlock version with scopes for signals.
const SIGNAL_SCOPE_VERSION: i64 = 6;

fn landlock() -> KernelFeature {
    let missing = super::missing_features();
    let version = landlock_version();
    let consequence = match missing {
        [] => format!("version {version}: files, device controls, signals, abstract sockets"),
        missing if version > 0 => format!("version {version}: {}", missing.join("; ")),
        missing => format!("{}: sandboxes hold nothing", missing.join("; ")),
    };
    KernelFeature { name: "sandbox", available: missing.is_empty(), consequence }
}

/// Returns the version of Landlock in this kernel; 0 or less if it has none.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
fn landlock_version() -> i64 {
    let null = std::ptr::null::<libc::c_void>();
    // SAFETY: as a version query the call reads no memory (landlock_create_ruleset(2)).
    unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, null, 0_usize, 1_u32) }
}

/// Returns 0: only Linux has Landlock.
#[cfg(not(target_os = "linux"))]
fn landlock_version() -> i64 {
    0
}

/// Returns whether the kernel can filter system calls.
fn has_seccomp() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().any(|line| line.starts_with("Seccomp:"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_feature_has_a_name_and_a_consequence() {
        let features = kernel_features();
        let mut names: Vec<&str> = features.iter().map(|feature| feature.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), features.len());
        assert!(features.iter().all(|feature| !feature.consequence.is_empty()));
        let sandbox = features.iter().find(|feature| feature.name == "sandbox").unwrap();
        assert_eq!(sandbox.available, crate::sandbox::missing_features().is_empty());
    }
}
