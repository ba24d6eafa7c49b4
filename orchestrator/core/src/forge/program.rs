//! Runs `gh` and `glab`: outside of sandboxes, without a shell, without questions, with limits.

use std::path::{Path, PathBuf};

use base::failure::{Failure, OrFail, Result};
use base::process::{Command, Output, OutputLimits, find_program_outside};
use serde::de::DeserializeOwned;

use crate::forge::Forge;

/// Timeout of one call, in seconds.
const SECONDS: u64 = 120;
/// Maximum size of an answer in bytes.
const MAX_BYTES: usize = 16 << 20;

/// The user's program for a forge.
pub(crate) struct ForgeProgram {
    forge: Forge,
    path: PathBuf,
    /// Where it runs.
    directory: PathBuf,
}

impl ForgeProgram {
    /// Finds the program in `PATH`, outside of the excluded directories. Fails (2) without it;
    /// `user` is what needs it.
    pub(crate) fn find(
        forge: Forge,
        user: &str,
        directory: &Path,
        excluded: &[PathBuf],
    ) -> Result<ForgeProgram> {
        let name = forge.program();
        let path = find_program_outside(name, excluded).ok_or_else(|| {
            Failure::usage(format!("`{name}` was not found"))
                .because(format!("{user} needs it, and it is not in PATH"))
                .hint(format!("install it, then: {name} auth login"))
        })?;
        Ok(ForgeProgram { forge, path, directory: directory.to_owned() })
    }

    /// Runs the program and returns its result, whatever the exit code is.
    pub(super) fn output(&self, args: &[&str], input: Option<&str>) -> Result<Output> {
        let name = self.forge.program();
        let mut command = Command::new(&self.path, &self.directory).args(args).detached();
        for (key, value) in [
            ("GH_PROMPT_DISABLED", "1"),
            ("GH_NO_UPDATE_NOTIFIER", "1"),
            ("GH_PAGER", "cat"),
            ("GLAB_PAGER", "cat"),
            ("NO_PROMPT", "1"),
            ("NO_COLOR", "1"),
        ] {
            command = command.env(key, value);
        }
        if let Some(input) = input {
            command = command.input(input);
        }
        let limits =
            OutputLimits { time: Some(std::time::Duration::from_secs(SECONDS)), bytes: MAX_BYTES };
        let output = command.output(limits).or_fail(|| format!("cannot start `{name}`"))?;
        match output.timed_out {
            true => Err(Failure::failed(format!("`{name}` timed out after {SECONDS} s"))),
            false => Ok(output),
        }
    }

    /// Runs the program and returns its stdout; fails (1) with its stderr.
    pub(super) fn run(&self, args: &[&str], input: Option<&str>) -> Result<Vec<u8>> {
        let output = self.output(args, input)?;
        match output.ok() {
            true => Ok(output.stdout),
            false => Err(self.failure(args, &output)),
        }
    }

    /// Returns the failure of a call.
    pub(super) fn failure(&self, args: &[&str], output: &Output) -> Failure {
        let name = self.forge.program();
        let command: Vec<&str> = args.iter().take(2).copied().collect();
        let reason = base::text::printable_output(base::text::tail(&output.error_text(), 1500));
        Failure::failed(format!(
            "`{name} {}` failed with exit code {}",
            command.join(" "),
            output.code()
        ))
        .because(reason)
        .hint(format!("{name} auth status"))
    }

    /// Runs the program and parses the lists that it prints, one after the other.
    pub(super) fn lists<T: DeserializeOwned>(&self, args: &[&str]) -> Result<Vec<T>> {
        let text = self.run(args, None)?;
        let lists = serde_json::Deserializer::from_slice(&text).into_iter::<Vec<T>>();
        let lists: std::result::Result<Vec<Vec<T>>, _> = lists.collect();
        Ok(lists.or_fail(|| self.unreadable())?.into_iter().flatten().collect())
    }

    /// Runs the program and parses the object that it prints.
    pub(super) fn object<T: DeserializeOwned>(&self, args: &[&str]) -> Result<T> {
        serde_json::from_slice(&self.run(args, None)?).or_fail(|| self.unreadable())
    }

    pub(super) fn unreadable(&self) -> String {
        format!("the answer of `{}` has an unknown format", self.forge.program())
    }
}
