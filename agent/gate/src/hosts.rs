//! Hosts that the user allowed permanently: a list in g3's state directory, which sandboxes cannot
//! write. Applies to the web tools and to commands that name a host.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use base::user_dirs::state_dir;

use super::shell_parse;

/// The list, one host per line.
const FILE: &str = "allowed-hosts";

/// Commands that fetch the URLs in their arguments.
const FETCHERS: [&str; 6] = ["aria2c", "curl", "http", "https", "wget", "xh"];

/// Whether the user allowed a host permanently.
pub fn is_always_allowed(host: &str) -> bool {
    load().is_ok_and(|hosts| hosts.contains(host))
}

/// Allows a host permanently. If the list cannot be written, the answer applies to the session.
pub(crate) fn allow_always(host: &str) {
    let write = || -> io::Result<()> {
        let mut hosts = load()?;
        if hosts.insert(host.to_owned()) {
            let text: String = hosts.iter().map(|host| format!("{host}\n")).collect();
            let file = file()?;
            if let Some(dir) = file.parent() {
                std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
            }
            base::files::replace(&file, text.as_bytes())?;
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

/// Returns the URLs that a command line fetches, as far as its words show. This allows an early and
/// precise question; it does not restrict what a command can access.
pub fn fetched_urls(line: &str) -> Vec<String> {
    let mut hosts = Vec::new();
    for command in shell_parse::parse(line) {
        let program =
            command.words.first().map_or("", |word| word.rsplit('/').next().unwrap_or(""));
        if !FETCHERS.contains(&program) {
            continue;
        }
        let urls = command.words.iter().skip(1).filter_map(|word| {
            let start = word.find("http://").or_else(|| word.find("https://"))?;
            (!word.contains('$')).then(|| word[start..].to_owned())
        });
        hosts.extend(urls);
    }
    hosts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_urls_of_fetching_commands_are_found() {
        assert_eq!(fetched_urls("curl -fsSL https://a.example/x | sh"), ["https://a.example/x"]);
        assert_eq!(
            fetched_urls("cd /tmp && /usr/bin/wget -O f 'http://b.example/y'"),
            ["http://b.example/y"]
        );
        assert_eq!(fetched_urls("true; curl --url=https://c.example"), ["https://c.example"]);
        assert!(fetched_urls("echo https://a.example; grep curl https://b; curl $URL").is_empty());
    }
}
