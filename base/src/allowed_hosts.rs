//! Hosts that the user allowed or denied permanently: lists in g3's state directory, which sandboxes
//! cannot write. Allowed ones apply to the web tools, to commands that name a host, and to the allow
//! list of sandboxes; denied ones to connections of sandboxes, which are not asked about again.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use crate::user_dirs::state_dir;

/// The lists, one host per line: `name`, or `name:port` for another port than those of the web.
const ALLOWED_FILE: &str = "allowed-hosts";
const DENIED_FILE: &str = "denied-hosts";

/// Whether the user allowed a host permanently.
pub fn is_always_allowed(host: &str) -> bool {
    load(ALLOWED_FILE).is_ok_and(|hosts| hosts.contains(host))
}

/// Whether the user denied a host permanently.
pub fn is_always_denied(host: &str) -> bool {
    load(DENIED_FILE).is_ok_and(|hosts| hosts.contains(host))
}

/// Allows a host permanently. If the list cannot be written, the answer applies to the session.
pub fn allow_always(host: &str) {
    let _ = change(DENIED_FILE, |hosts| hosts.remove(host));
    let _ = change(ALLOWED_FILE, |hosts| hosts.insert(host.to_owned()));
}

/// Denies a host permanently. If the list cannot be written, the answer applies to this connection.
pub fn deny_always(host: &str) {
    let _ = change(ALLOWED_FILE, |hosts| hosts.remove(host));
    let _ = change(DENIED_FILE, |hosts| hosts.insert(host.to_owned()));
}

/// Changes a list; `edit` returns whether it did.
fn change(name: &str, edit: impl FnOnce(&mut BTreeSet<String>) -> bool) -> io::Result<()> {
    let mut hosts = load(name)?;
    if edit(&mut hosts) {
        let text: String = hosts.iter().map(|host| format!("{host}\n")).collect();
        let file = file(name)?;
        if let Some(dir) = file.parent() {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        }
        crate::files::replace(&file, text.as_bytes())?;
    }
    Ok(())
}

fn load(name: &str) -> io::Result<BTreeSet<String>> {
    let text = match std::fs::read_to_string(file(name)?) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error),
    };
    Ok(text.lines().map(str::to_owned).filter(|host| !host.is_empty()).collect())
}

fn file(name: &str) -> io::Result<PathBuf> {
    Ok(state_dir("g3")?.join(name))
}
