//! Processes of a session whose sandbox has ended: with the sandbox, the kernel ends all of them;
//! without it, a daemon can outlive the session.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::process::Pid;

/// Ends the processes of a session in which nothing runs; the caller holds its locks. They are
/// recognized by the temporary directory that studio gave them. Returns one sentence for each.
pub(super) fn end_leaked(temporary: &Path) -> Vec<String> {
    let mut variable = b"TMPDIR=".to_vec();
    variable.extend(temporary.as_os_str().as_bytes());
    let has_variable = |pid: Pid| {
        let environment = fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero()));
        environment.is_ok_and(|text| text.split(|byte| *byte == 0).any(|it| it == variable))
    };
    let mut messages = Vec::new();
    for pid in pids() {
        let name = fs::read_to_string(format!("/proc/{}/comm", pid.as_raw_nonzero()));
        if kill_if(pid, has_variable) {
            let (pid, name) = (pid.as_raw_nonzero(), name.unwrap_or_default());
            messages.push(format!("ended process {pid} (`{}`)", name.trim_end()));
        }
    }
    messages
}

/// Kills a process that meets a condition. The descriptor refers to this process even if its id is
/// used again.
#[cfg(target_os = "linux")]
fn kill_if(pid: Pid, condition: impl Fn(Pid) -> bool) -> bool {
    use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
    let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { return false };
    condition(pid) && pidfd_send_signal(&process, Signal::KILL).is_ok()
}

/// Does nothing: without `/proc` the processes of a session cannot be recognized.
#[cfg(not(target_os = "linux"))]
fn kill_if(_pid: Pid, _condition: impl Fn(Pid) -> bool) -> bool {
    false
}

/// Returns whether a process works in a directory.
pub(super) fn runs_in(directory: &Path) -> bool {
    let is_inside = |pid: Pid| {
        fs::read_link(format!("/proc/{}/cwd", pid.as_raw_nonzero()))
            .is_ok_and(|cwd| cwd.starts_with(directory))
    };
    pids().any(is_inside)
}

/// Returns all processes except this one; none on systems without `/proc`.
fn pids() -> impl Iterator<Item = Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let own = std::process::id().cast_signed();
    ids.filter(move |id| *id != own).filter_map(Pid::from_raw)
}
