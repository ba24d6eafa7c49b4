//! The environment of commands: g3's own without secrets, or a fixed list of variables.

use base::process::Command;
use base::sandbox::COMMAND_RULES_VAR;
use base::sandbox::environment::{holds_password, is_secret};
use base::test_hooks::is_hook;
use serde::Deserialize;

/// The variables that a command receives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Environment {
    /// All except secrets.
    #[default]
    Full,
    /// Like `Full`, with variables that tell programs to be non-interactive.
    Quiet,
    /// Only the variables of the core tools.
    Listed,
}

/// The variables that the core tools pass on.
const CORE_VARIABLES: [&str; 24] = [
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

/// Whether a variable is withheld from commands: secrets (by name) and g3's own configuration.
fn is_withheld(name: &str) -> bool {
    let is_own = name.starts_with("G3_") && !is_hook(name);
    is_own || name == "SSH_AUTH_SOCK" || name == COMMAND_RULES_VAR || is_secret(name)
}

/// Sets the environment of a command.
pub fn apply(mut command: Command, environment: Environment) -> Command {
    if environment == Environment::Listed {
        command = command.env_clear();
        for name in CORE_VARIABLES {
            if let Some(value) = std::env::var_os(name) {
                command = command.env(name, value);
            }
        }
        return command;
    }
    for (name, value) in std::env::vars_os() {
        let value = value.to_string_lossy();
        if name.to_str().is_none_or(|name| is_withheld(name) || holds_password(name, &value)) {
            command = command.env_remove(name);
        }
    }
    match environment {
        Environment::Full | Environment::Listed => command,
        Environment::Quiet => {
            command.env("TERM", "dumb").env("GIT_TERMINAL_PROMPT", "0").env("NO_COLOR", "1")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_recognized_by_name() {
        for name in ["GITHUB_TOKEN", "my_secret", "ANTHROPIC_BASE_URL", "DB_PASSWORD", "X_API_KEY"]
        {
            assert!(is_withheld(name), "{name}");
        }
        for name in ["PATH", "HOME", "KEYBOARD", "CARGO_HOME", "G3_TEST_NOW"] {
            assert!(!is_withheld(name), "{name}");
        }
    }
}
