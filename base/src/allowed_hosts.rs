//! Hosts that the user allowed or denied permanently: lists in g3's state directory, which sandboxes
//! cannot write. Allowed ones apply to the web tools, to commands that name a host, and to the allow
//! list of sandboxes; denied ones to connections of sandboxes, which are not asked about again.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use crate::lock::Lock;
use crate::user_dirs::state_dir;

/// The lists, one host per line: `name`, or `name:port` for another port than those of the web.
const ALLOWED_FILE: &str = "allowed-hosts";
const DENIED_FILE: &str = "denied-hosts";
/// The lock of both lists while one of them changes.
const LOCK_FILE: &str = "hosts.lock";

/// Whether the user allowed a host permanently.
pub fn is_always_allowed(host: &str) -> bool {
    is_listed(ALLOWED_FILE, host)
}

/// Whether the user denied a host permanently.
pub fn is_always_denied(host: &str) -> bool {
    is_listed(DENIED_FILE, host)
}

/// Allows a host permanently. If the list cannot be written, the answer applies to the session.
pub fn allow_always(host: &str) {
    let _ = state_dir("g3").and_then(|dir| move_host(&dir, host, DENIED_FILE, ALLOWED_FILE));
}

/// Denies a host permanently. If the list cannot be written, the answer applies to this connection.
pub fn deny_always(host: &str) {
    let _ = state_dir("g3").and_then(|dir| move_host(&dir, host, ALLOWED_FILE, DENIED_FILE));
}

fn is_listed(name: &str, host: &str) -> bool {
    let hosts = state_dir("g3").and_then(|dir| load(&dir, name));
    hosts.is_ok_and(|hosts| hosts.contains(host))
}

/// Moves a host from one list to the other. Other processes may do the same at the same time.
fn move_host(dir: &Path, host: &str, from: &str, to: &str) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let _lock = Lock::take(&dir.join(LOCK_FILE))?;
    let removed = change(dir, from, |hosts| hosts.remove(host));
    change(dir, to, |hosts| hosts.insert(host.to_owned())).and(removed)
}

/// Changes a list; `edit` returns whether it did.
fn change(
    dir: &Path,
    name: &str,
    edit: impl FnOnce(&mut BTreeSet<String>) -> bool,
) -> io::Result<()> {
    let mut hosts = load(dir, name)?;
    if edit(&mut hosts) {
        let text: String = hosts.iter().map(|host| format!("{host}\n")).collect();
        crate::files::replace(&dir.join(name), text.as_bytes())?;
    }
    Ok(())
}

fn load(dir: &Path, name: &str) -> io::Result<BTreeSet<String>> {
    let text = match std::fs::read_to_string(dir.join(name)) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error),
    };
    Ok(text.lines().map(str::to_owned).filter(|host| !host.is_empty()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_at_the_same_moment_are_all_kept() {
        let dir = tempfile::tempdir().unwrap();
        let dir = &dir.path().join("state");
        let name = |thread: usize, n: usize| format!("h{thread}-{n}.example");
        std::thread::scope(|scope| {
            for thread in 0..4 {
                scope.spawn(move || {
                    for n in 0..25 {
                        let host = name(thread, n);
                        move_host(dir, &host, DENIED_FILE, ALLOWED_FILE).unwrap();
                        if n % 2 == 1 {
                            move_host(dir, &host, ALLOWED_FILE, DENIED_FILE).unwrap();
                        }
                    }
                });
            }
        });
        let expected = |is_denied: bool| -> BTreeSet<String> {
            let all = (0..4).flat_map(|thread| (0..25).map(move |n| (thread, n)));
            all.filter(|(_, n)| (n % 2 == 1) == is_denied).map(|(t, n)| name(t, n)).collect()
        };
        assert_eq!(load(dir, ALLOWED_FILE).unwrap(), expected(false));
        assert_eq!(load(dir, DENIED_FILE).unwrap(), expected(true));
    }
}
