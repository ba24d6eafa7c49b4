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
/// Maximum number of jobs of a cluster at the same time.
const DEFAULT_CLUSTER_JOBS: u32 = 50;
/// Options of `sbatch` that studio sets, or that would change how a job is found or followed.
const OWN_OPTIONS: &[&str] = &[
    "--export",
    "--export-file",
    "--wrap",
    "--output",
    "-o",
    "--error",
    "-e",
    "--input",
    "-i",
    "--job-name",
    "-J",
    "--signal",
    "--dependency",
    "-d",
    "--array",
    "-a",
    "--wait",
    "-W",
    "--parsable",
    "--open-mode",
    "--chdir",
    "-D",
    "--test-only",
    "--uid",
    "--gid",
    "--help",
    "-h",
    "--version",
    "-V",
    "--usage",
];

/// How sessions of a place are started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PlaceEngine {
    /// On hosts over SSH.
    #[default]
    Ssh,
    /// As jobs of Slurm.
    Slurm,
    /// As jobs of Kubernetes.
    Kubernetes,
}

impl PlaceEngine {
    /// Returns its name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            PlaceEngine::Ssh => "ssh",
            PlaceEngine::Slurm => "slurm",
            PlaceEngine::Kubernetes => "kubernetes",
        }
    }
}

/// A place: one or several hosts, or a cluster, on which sessions run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct PlaceConfig {
    /// How its sessions are started.
    pub engine: PlaceEngine,
    /// Its host, as in `~/.ssh/config`. For a cluster, the host on which the commands of the cluster
    /// run; this machine when absent.
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
    /// Options of `sbatch`, for Slurm.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// The image of its containers, for Kubernetes: with git and what the agent needs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The namespace, for Kubernetes; that of the context when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The processors that a job requests, as a quantity of Kubernetes (`1` when absent).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<String>,
    /// The memory that a job requests, and may use, as a quantity of Kubernetes (`4Gi` when absent).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    /// The disk space that a job requests, and may use, as a quantity of Kubernetes (`8Gi` when absent).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<String>,
    /// Whether the host and the nodes of Slurm have the same `spool`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub shared: bool,
    /// The Secret of Kubernetes whose entries become variables of the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// The seconds after which Kubernetes ends a job; it may run without end when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_limit_seconds: Option<u64>,
    /// The configuration file of `ssh`; the user's when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ssh_config: Option<PathBuf>,
    /// Maximum number of concurrent sessions (when absent, 4 for each host, and 50 for a
    /// cluster, which also counts those that wait in its queue).
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
        let default = match self.engine {
            PlaceEngine::Ssh => DEFAULT_JOBS_PER_HOST.saturating_mul(hosts),
            PlaceEngine::Slurm | PlaceEngine::Kubernetes => DEFAULT_CLUSTER_JOBS,
        };
        self.jobs.unwrap_or(default)
    }

    /// Returns the seconds between two copies of uncommitted work.
    pub fn keep_interval(&self) -> u64 {
        self.keep_seconds.unwrap_or(DEFAULT_KEEP_SECONDS).max(1)
    }

    /// Returns the seconds without a connection after which a session counts as lost.
    pub fn lost_after(&self) -> u64 {
        self.lost_after_seconds.unwrap_or(DEFAULT_LOST_AFTER_SECONDS)
    }

    /// Returns a key that is set and that only Kubernetes has.
    fn key_of_kubernetes(&self) -> Option<&'static str> {
        let keys = [
            ("image", &self.image),
            ("namespace", &self.namespace),
            ("cpus", &self.cpus),
            ("memory", &self.memory),
            ("disk", &self.disk),
            ("secret", &self.secret),
        ];
        let mut set = keys.into_iter().filter(|(_, value)| value.is_some()).map(|(key, _)| key);
        set.next().or(self.time_limit_seconds.map(|_| "time_limit_seconds"))
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
        match self.engine {
            PlaceEngine::Ssh if hosts.is_empty() => return refuse("it has no `host`".to_owned()),
            PlaceEngine::Slurm | PlaceEngine::Kubernetes if hosts.len() > 1 => {
                return refuse("a cluster has one `host`, or none".to_owned());
            }
            PlaceEngine::Kubernetes if self.image.is_none() => {
                return refuse("it has no `image`".to_owned());
            }
            PlaceEngine::Ssh | PlaceEngine::Slurm | PlaceEngine::Kubernetes => {}
        }
        if self.engine != PlaceEngine::Slurm && !self.options.is_empty() {
            return refuse("`options` are for `engine = \"slurm\"`".to_owned());
        }
        if self.engine != PlaceEngine::Slurm && self.shared {
            return refuse("`shared` is for `engine = \"slurm\"`".to_owned());
        }
        if let Some(key) =
            self.key_of_kubernetes().filter(|_| self.engine != PlaceEngine::Kubernetes)
        {
            return refuse(format!("`{key}` is for `engine = \"kubernetes\"`"));
        }
        if let Some(namespace) = self.namespace.as_ref().filter(|name| !is_word(name)) {
            return refuse(format!("namespace `{namespace}`: letters, digits and `-`"));
        }
        if let Some(option) = self.options.iter().find(|option| !is_option(option)) {
            return refuse(format!(
                "option `{option}`: one word such as `--time=8:00:00`, of letters, digits and `._=,:+@%/-`"
            ));
        }
        let sets_own = |option: &&String| OWN_OPTIONS.iter().any(|own| is_same_option(option, own));
        if let Some(option) = self.options.iter().find(sets_own) {
            return refuse(format!("studio sets `{option}` itself"));
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

/// Returns whether every shell takes a text for one plain word that is an option with its value.
fn is_option(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._=,:+@%/-".contains(&byte);
    text.len() > 1 && text.starts_with('-') && text != "--" && text.bytes().all(is_plain)
}

/// Returns whether a word is this option, with or without a value, long or short. Slurm accepts the
/// first letters of long options.
fn is_same_option(word: &str, option: &str) -> bool {
    let name = word.split_once('=').map_or(word, |(name, _)| name);
    match option.starts_with("--") {
        true => name.len() > 3 && option.starts_with(name),
        false => !word.starts_with("--") && word.starts_with(option),
    }
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
    fn options_of_slurm_are_plain_words_and_not_those_of_studio() {
        let slurm = |option: &str| PlaceConfig {
            engine: PlaceEngine::Slurm,
            options: vec![option.to_owned()],
            ..PlaceConfig::default()
        };
        for option in ["--time=8:00:00", "--mem=8G", "-pcpu", "--gres=gpu:1", "--licenses=a@b:1"] {
            assert!(slurm(option).validate("farm").is_ok(), "{option}");
        }
        for option in ["gpu", "--", "--comment=a b", "--comment=$(id)", "--nodelist=n[1-2]", ""] {
            assert!(slurm(option).validate("farm").is_err(), "{option}");
        }
        for option in ["--export=ALL", "--expo=ALL", "-ofile", "--wrap=ls", "-Jx", "--arr=1-3"] {
            let failure = slurm(option).validate("farm").unwrap_err().full_text();
            assert!(failure.contains("studio sets"), "{option}: {failure}");
        }
        let with_options = PlaceConfig { options: vec!["--mem=8G".to_owned()], ..place("box") };
        assert!(with_options.validate("farm").is_err(), "only Slurm has options");
        assert!(PlaceConfig { shared: true, ..slurm("--mem=8G") }.validate("farm").is_ok());
        assert!(PlaceConfig { shared: true, ..place("box") }.validate("farm").is_err());
        let image = Some("registry.example/agent:1".to_owned());
        let kubernetes = PlaceConfig { engine: PlaceEngine::Kubernetes, ..PlaceConfig::default() };
        assert!(kubernetes.validate("farm").is_err(), "Kubernetes needs an image");
        assert!(PlaceConfig { image: image.clone(), ..kubernetes }.validate("farm").is_ok());
        assert!(PlaceConfig { image, ..place("box") }.validate("farm").is_err());
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
