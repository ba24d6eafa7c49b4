//! The user's pager, chosen like git.

use std::io::{self, Write};
use std::path::Path;
use std::process::ChildStdin;

use base::failure::{OrFail, Result};
use base::process::{Command, Running, Stream};

/// Returns the pager that git would use for a command on a terminal: `GIT_PAGER`, `pager.COMMAND`,
/// `core.pager`, `PAGER`, `less`; `user_setting` reads the user's git configuration. `None` if the
/// user disabled it.
pub(crate) fn choose(
    command: &str,
    user_setting: impl Fn(&str) -> Option<String>,
) -> Option<String> {
    let variable = |name: &str| std::env::var(name).ok();
    let configured = user_setting(&format!("pager.{command}"));
    let is_off = |value: &str| matches!(value, "false" | "no" | "off" | "0");
    let is_on = |value: &str| matches!(value, "true" | "yes" | "on" | "1" | "");
    if configured.as_deref().is_some_and(is_off) {
        return None;
    }
    let pager = variable("GIT_PAGER")
        .or_else(|| configured.filter(|value| !is_on(value)))
        .or_else(|| user_setting("core.pager"))
        .or_else(|| variable("PAGER"))
        .unwrap_or_else(|| "less".to_owned());
    (!pager.trim().is_empty() && pager.trim() != "cat").then_some(pager)
}

/// A running pager.
pub(crate) struct Pager {
    running: Running,
    input: Option<ChildStdin>,
}

impl Pager {
    /// Starts it on the terminal, with git's defaults for `less` and `lv`.
    pub(crate) fn start(command: &str, directory: &Path) -> Result<Pager> {
        let mut shell = Command::new("sh", directory)
            .args(["-c", command])
            .in_parent_group()
            .stdin(Stream::Piped)
            .stdout(Stream::Inherit)
            .stderr(Stream::Inherit);
        for (name, value) in [("LESS", "FRX"), ("LV", "-c")] {
            if std::env::var_os(name).is_none() {
                shell = shell.env(name, value);
            }
        }
        let mut running =
            shell.spawn().or_fail(|| format!("cannot start the pager `{command}`"))?;
        let input = running.child.stdin.take();
        Ok(Pager { running, input })
    }

    /// Waits until the user quits it.
    pub(crate) fn wait(mut self) -> Result<()> {
        drop(self.input.take());
        self.running.wait_until(None).or_fail(|| "cannot wait for the pager")?;
        Ok(())
    }
}

impl Write for Pager {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.input {
            Some(input) => input.write(bytes),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.input.as_mut().map_or(Ok(()), Write::flush)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_users_settings_select_the_pager() {
        // GIT_PAGER and PAGER are not tested: all tests share the variables of the process.
        let with = |settings: &'static [(&str, &str)]| {
            choose("diff", |key| {
                settings.iter().find(|(name, _)| *name == key).map(|(_, value)| (*value).to_owned())
            })
        };
        if std::env::var_os("GIT_PAGER").is_some() {
            return;
        }
        assert_eq!(with(&[("core.pager", "delta")]).as_deref(), Some("delta"));
        assert_eq!(
            with(&[("core.pager", "less"), ("pager.diff", "delta")]).as_deref(),
            Some("delta")
        );
        assert_eq!(
            with(&[("core.pager", "less"), ("pager.diff", "true")]).as_deref(),
            Some("less")
        );
        assert_eq!(with(&[("pager.diff", "false")]), None);
        assert_eq!(with(&[("core.pager", "cat")]), None);
        assert_eq!(with(&[("core.pager", "")]), None);
    }
}
