//! What a command may know: our environment without secrets, or a short list.

use base::process::Job;
use serde::Deserialize;

/// Which variables a command gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Environment {
    /// Ours, without secrets.
    #[default]
    Full,
    /// As full, and programs are told that nobody watches.
    Quiet,
    /// Only what the core tools list.
    Listed,
}

/// What the core tools let through.
const LISTED: [&str; 24] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "TERM",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TMPDIR",
    "TMP",
    "TEMP",
    "XDG_RUNTIME_DIR",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "DBUS_SESSION_BUS_ADDRESS",
    "COLORTERM",
    "TERM_PROGRAM",
    "LS_COLORS",
    "CARGO_HOME",
    "RUSTUP_HOME",
    "TZ",
];

/// Parts of names that tell a secret.
const SECRET_PARTS: [&str; 9] = [
    "TOKEN",
    "SECRET",
    "PASSWORD",
    "PASSWD",
    "PRIVATE_KEY",
    "API_KEY",
    "APIKEY",
    "CREDENTIAL",
    "ACCESS_KEY",
];

/// Beginnings of names that belong to model services, to us, or to a login.
const SECRET_STARTS: [&str; 9] = [
    "ANTHROPIC_",
    "OPENAI_",
    "GEMINI_",
    "DATABRICKS_",
    "G3_PROVIDERS__",
    "G3_MODEL_HOST",
    "AWS_SECRET",
    "AWS_SESSION",
    "SSH_AUTH",
];

/// Whether a variable is kept from commands.
pub fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    SECRET_PARTS.iter().any(|part| name.contains(part))
        || SECRET_STARTS.iter().any(|start| name.starts_with(start))
}

/// Gives a job its environment.
pub fn apply(mut job: Job, environment: Environment) -> Job {
    if environment == Environment::Listed {
        job = job.env_clear();
        for name in LISTED {
            if let Some(value) = std::env::var_os(name) {
                job = job.env(name, value);
            }
        }
        return job;
    }
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_none_or(is_secret) {
            job = job.env_remove(name);
        }
    }
    match environment {
        Environment::Full | Environment::Listed => job,
        Environment::Quiet => {
            job.env("TERM", "dumb").env("GIT_TERMINAL_PROMPT", "0").env("NO_COLOR", "1")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_known_by_name() {
        for name in ["GITHUB_TOKEN", "my_secret", "ANTHROPIC_BASE_URL", "DB_PASSWORD", "X_API_KEY"]
        {
            assert!(is_secret(name), "{name}");
        }
        for name in ["PATH", "HOME", "KEYBOARD", "CARGO_HOME", "G3_TEST_NOW"] {
            assert!(!is_secret(name), "{name}");
        }
    }
}
