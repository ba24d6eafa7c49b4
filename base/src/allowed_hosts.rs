//! Hosts that the user allowed permanently: a list in g3's state directory, which sandboxes cannot
//! write. Applies to the web tools, to commands that name a host, and to the allow list of
//! sandboxes.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use crate::user_dirs::state_dir;

/// The list, one host per line: `name`, or `name:port` for another port than those of the web.
const FILE: &str = "allowed-hosts";

/// Whether the user allowed a host permanently.
pub fn is_always_allowed(host: &str) -> bool {
    load().is_ok_and(|hosts| hosts.contains(host))
}

/// Allows a host permanently. If the list cannot be written, the answer applies to the session.
pub fn allow_always(host: &str) {
    let write = || -> io::Result<()> {
        let mut hosts = load()?;
        if hosts.insert(host.to_owned()) {
            let text: String = hosts.iter().map(|host| format!("{host}\n")).collect();
            let file = file()?;
            if let Some(dir) = file.parent() {
                std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
            }
            crate::files::replace(&file, text.as_bytes())?;
        }
        Ok(())
    };
    let _ = write();
}

fn load() -> io::Result<BTreeSet<String>> {
    let text = match std::fs::read_to_string(file()?) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error),
    };
    Ok(text.lines().map(str::to_owned).filter(|host| !host.is_empty()).collect())
}

fn file() -> io::Result<PathBuf> {
    Ok(state_dir("g3")?.join(FILE))
}
