//! `[studio.filters]`: git filters that studio runs, by their exact commands.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The timeout of a conversion when the user has not set it.
const TIMEOUT_SECONDS: u64 = 300;

/// A filter that the user trusts, by its name in `.gitattributes`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(untagged)]
pub enum FilterSetting {
    /// One whose commands studio knows.
    Known(KnownFilter),
    /// The commands.
    Commands(FilterCommands),
}

/// A filter program whose commands studio knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum KnownFilter {
    /// Git LFS.
    #[serde(rename = "git-lfs")]
    GitLfs,
}

/// The commands of a filter, as in git's configuration: lines for `sh -c`, in which `%f` is the
/// quoted path of the file. A command that is absent leaves the content as it is. With `process`, the
/// other two are not used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct FilterCommands {
    /// Converts the content of a file to that of its blob.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clean: Option<String>,
    /// Converts the content of a blob to that of its file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub smudge: Option<String>,
    /// Converts many files, in both directions, by git's protocol for long-running filters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<String>,
    /// Whether a failure of a command is an error; if not, the content stays as it is.
    pub required: bool,
    /// Timeout of the conversion of one file, in seconds (300 when absent).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u64>,
}

impl FilterSetting {
    /// Returns the commands.
    pub fn commands(&self) -> FilterCommands {
        match self {
            FilterSetting::Known(KnownFilter::GitLfs) => FilterCommands {
                clean: Some("git-lfs clean -- %f".to_owned()),
                smudge: Some("git-lfs smudge -- %f".to_owned()),
                process: Some("git-lfs filter-process".to_owned()),
                required: true,
                timeout_seconds: Some(3_600),
            },
            FilterSetting::Commands(commands) => commands.clone(),
        }
    }

    /// Returns whether at least one command is there, and none is empty.
    pub(crate) fn is_valid(&self) -> bool {
        let FilterCommands { clean, smudge, process, .. } = &self.commands();
        let mut lines = [clean, smudge, process].into_iter().flatten().peekable();
        lines.peek().is_some() && lines.all(|line| !line.trim().is_empty() && !line.contains('\0'))
    }
}

impl FilterCommands {
    /// Returns the timeout of the conversion of one file.
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout_seconds.unwrap_or(TIMEOUT_SECONDS))
    }
}
