//! `[studio.places]`: other machines on which sessions run.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Result};

/// The name of this machine as a place.
pub const HERE: &str = "here";
/// The directory of studio's data at a place, relative to the home directory there.
const DEFAULT_SPOOL: &str = "studio";
/// The interval in which uncommitted work is brought home.
const DEFAULT_KEEP_SECONDS: u64 = 60;
/// How long a host may be unreachable before its sessions count as lost.
const DEFAULT_LOST_AFTER_SECONDS: u64 = 600;
/// The number of sessions that run on one host at the same time.
const DEFAULT_JOBS_PER_HOST: u32 = 4;

/// How sessions of a place are started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PlaceEngine {
    /// On hosts over SSH.
    #[default]
    Ssh,
}

/// A place: one or several hosts on which sessions run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct PlaceConfig {
    /// How its sessions are started.
    pub engine: PlaceEngine,
    /// Its host, as in `~/.ssh/config`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Its hosts, if there are several: a session runs on the one with the most free cores and
    /// memory.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// The directory of studio's data there; relative to the home directory (`studio` when absent).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spool: Option<String>,
    /// The `studio` program there; when absent, this program is copied to the spool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub binary: Option<String>,
    /// The configuration file of `ssh`; the user's when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ssh_config: Option<PathBuf>,
    /// Maximum number of concurrent sessions (4 for each host when absent).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jobs: Option<u32>,
    /// Seconds between two copies of uncommitted work of a working agent (60 when absent).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_seconds: Option<u64>,
    /// Seconds without a connection after which a session counts as lost (600 when absent).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_after_seconds: Option<u64>,
}

impl PlaceConfig {
    /// Returns its hosts, in order, without duplicates.
    pub fn all_hosts(&self) -> Vec<String> {
        let mut hosts: Vec<String> = Vec::new();
        for host in self.host.iter().chain(&self.hosts) {
            if !hosts.contains(host) {
                hosts.push(host.clone());
            }
        }
        hosts
    }

    /// Returns the directory of studio's data there: absolute, or relative to the home directory.
    pub fn spool_path(&self) -> &str {
        let path = self.spool.as_deref().unwrap_or(DEFAULT_SPOOL);
        path.strip_prefix("~/").unwrap_or(path).trim_end_matches('/')
    }

    /// Returns the maximum number of concurrent sessions.
    pub fn max_sessions(&self) -> u32 {
        let hosts = u32::try_from(self.all_hosts().len()).unwrap_or(u32::MAX);
        self.jobs.unwrap_or(DEFAULT_JOBS_PER_HOST.saturating_mul(hosts))
    }

    /// Returns the seconds between two copies of uncommitted work.
    pub fn keep_interval(&self) -> u64 {
        self.keep_seconds.unwrap_or(DEFAULT_KEEP_SECONDS).max(1)
    }

    /// Returns the seconds without a connection after which a session counts as lost.
    pub fn lost_after(&self) -> u64 {
        self.lost_after_seconds.unwrap_or(DEFAULT_LOST_AFTER_SECONDS)
    }

    /// Refuses settings that cannot work, or that a shell or `ssh` would take for something else.
    pub fn validate(&self, name: &str) -> Result<()> {
        let refuse = |why: String| {
            Err(Failure::usage(format!("place `{name}` cannot be used"))
                .because(why)
                .hint(format!("[studio.places.{name}] in ~/.config/g3/config.toml")))
        };
        if !is_word(name) || name.contains('/') {
            return refuse("its name may contain letters, digits, `.`, `_` and `-`".to_owned());
        }
        if name == HERE {
            return refuse(format!("`{HERE}` is this machine"));
        }
        let hosts = self.all_hosts();
        if hosts.is_empty() {
            return refuse("it has no `host`".to_owned());
        }
        if let Some(host) = hosts.iter().find(|host| !is_host(host)) {
            return refuse(format!(
                "host `{host}`: a name or `user@name`; set other options in ~/.ssh/config"
            ));
        }
        if !is_word(self.spool_path()) {
            let spool = self.spool.as_deref().unwrap_or_default();
            return refuse(format!(
                "spool `{spool}`: a path may contain letters, digits, `.`, `_`, `-` and `/`"
            ));
        }
        match &self.binary {
            Some(path) if !is_word(path) || !path.starts_with('/') => refuse(format!(
                "binary `{path}`: an absolute path of letters, digits, `.`, `_`, `-` and `/`"
            )),
            Some(_) | None => Ok(()),
        }
    }
}

/// Returns whether every shell takes a text for one plain word, and no program for an option.
pub fn is_word(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/".contains(&byte);
    !text.is_empty() && !text.starts_with('-') && text.bytes().all(is_plain)
}

/// Returns whether a text is `name` or `user@name`.
fn is_host(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-:".contains(&byte);
    let is_name =
        |part: &str| !part.is_empty() && !part.starts_with('-') && part.bytes().all(is_plain);
    match text.split_once('@') {
        Some((user, name)) => is_name(user) && is_name(name),
        None => is_name(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(host: &str) -> PlaceConfig {
        PlaceConfig { host: Some(host.to_owned()), ..PlaceConfig::default() }
    }

    #[test]
    fn hosts_and_paths_are_plain_words() {
        for host in ["box", "me@box.example", "10.0.0.7", "fe80::1"] {
            assert!(place(host).validate("farm").is_ok(), "{host}");
        }
        for host in ["", "-oProxyCommand=x", "me@-x", "a b", "box;id", "$(id)", "a@b@c", "`id`"] {
            assert!(place(host).validate("farm").is_err(), "{host}");
        }
        for spool in ["$HOME/x", "a b", "-rf", "x;y", "~me/x", ""] {
            let config = PlaceConfig { spool: Some(spool.to_owned()), ..place("box") };
            assert!(config.validate("farm").is_err(), "{spool}");
        }
        for spool in ["~/studio", "/scratch/me", "x.y/z-1_2/"] {
            let config = PlaceConfig { spool: Some(spool.to_owned()), ..place("box") };
            assert!(config.validate("farm").is_ok(), "{spool}");
        }
        assert!(PlaceConfig::default().validate("farm").is_err(), "a place needs a host");
        assert!(place("box").validate("a/b").is_err());
    }

    #[test]
    fn several_hosts_are_one_place() {
        let hosts = ["b", "a", "b"].map(str::to_owned).to_vec();
        let config = PlaceConfig { hosts, ..place("a") };
        assert_eq!(config.all_hosts(), ["a", "b"]);
        assert_eq!(config.max_sessions(), 8);
        assert_eq!(PlaceConfig { jobs: Some(3), ..config }.max_sessions(), 3);
    }
}
