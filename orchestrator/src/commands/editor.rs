//! The user's editor, for commit messages, tasks and comments.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use base::failure::{Failure, FailureKind, OrFail, Result};
use base::process::{Command, Stream};
use rustix::process::Signal;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};

use studio_core::interrupt::Interrupt;

/// What is edited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EditedText {
    /// A commit message.
    Message,
    /// A task.
    Task,
}

impl EditedText {
    fn name(self) -> &'static str {
        match self {
            EditedText::Message => "message",
            EditedText::Task => "task",
        }
    }

    /// What follows if the editor fails.
    fn consequence(self) -> &'static str {
        match self {
            EditedText::Message => "nothing landed",
            EditedText::Task => "nothing was started",
        }
    }
}

/// Opens a commit message in the editor that git would use; returns the saved text.
pub(crate) fn edit(directory: &Path, interrupt: &Interrupt, text: &str) -> Result<String> {
    let text = edit_text(directory, interrupt, text, EditedText::Message)?;
    match text.trim() {
        "" => Err(Failure::refused("the message is empty, so nothing landed")),
        text => Ok(text.to_owned()),
    }
}

/// Opens a text in the editor that git would use; returns the saved text.
pub(crate) fn edit_text(
    directory: &Path,
    interrupt: &Interrupt,
    text: &str,
    kind: EditedText,
) -> Result<String> {
    let name = kind.name();
    let file =
        tempfile::Builder::new().prefix(&format!("studio-{name}-")).suffix(".txt").tempfile();
    let file = file.or_fail(base::files::cannot_make_temporary)?;
    std::fs::write(file.path(), text).or_fail(|| format!("cannot write the {name}"))?;
    edit_file(directory, interrupt, file.path(), kind.consequence())?;
    std::fs::read_to_string(file.path()).or_fail(|| format!("cannot read the {name}"))
}

/// Opens a file in the editor that git would use, and waits until the user closes it. An error says
/// that therefore nothing happened, in these words.
pub(crate) fn edit_file(
    directory: &Path,
    interrupt: &Interrupt,
    path: &Path,
    consequence: &str,
) -> Result<()> {
    let variable = |name: &str| std::env::var(name).ok();
    let editor = choose(variable, base::git::user_setting);
    let line = format!("{editor} \"$1\"");
    // In this process group: a process of another group may not read the terminal.
    let command = Command::new("sh", directory)
        .args(["-c", &line, "sh"])
        .arg(path)
        .in_parent_group()
        .stdin(Stream::Inherit)
        .stdout(Stream::Inherit)
        .stderr(Stream::Inherit);
    let status = interrupt.run_ignoring(|| {
        let _terminal = Terminal::save();
        let mut running =
            command.spawn().or_fail(|| format!("cannot start the editor `{editor}`"))?;
        running.wait_until(None).or_fail(|| "cannot wait for the editor")
    })?;
    let status = status.ok_or("it is still running").or_fail(|| "cannot wait for the editor")?;
    // `sh` reports a program that a signal killed as 128 plus the signal's number.
    let signal = status.signal().or(status.code().map(|code| code - 128));
    if signal == Some(Signal::INT.as_raw()) {
        let message = format!("interrupted, so {consequence}");
        return Err(Failure::new(FailureKind::Interrupted, message));
    }
    if !status.success() {
        let message = format!("the editor failed, so {consequence}");
        return Err(Failure::refused(message).because(editor));
    }
    Ok(())
}

/// Returns the editor that git would use: `GIT_EDITOR`, `core.editor` of the user's configuration,
/// `VISUAL` unless the terminal is dumb, `EDITOR`, `vi`. Empty values are skipped.
fn choose(
    variable: impl Fn(&str) -> Option<String>,
    user_setting: impl Fn(&str) -> Option<String>,
) -> String {
    let is_dumb = variable("TERM").is_none_or(|term| term == "dumb");
    let is_set = |value: &String| !value.trim().is_empty();
    variable("GIT_EDITOR")
        .filter(is_set)
        .or_else(|| user_setting("core.editor").filter(is_set))
        .or_else(|| variable("VISUAL").filter(|value| is_set(value) && !is_dumb))
        .or_else(|| variable("EDITOR").filter(is_set))
        .unwrap_or_else(|| "vi".to_owned())
}

/// The settings of the terminal, restored after an editor that does not restore them itself.
struct Terminal(Option<Termios>);

impl Terminal {
    fn save() -> Terminal {
        Terminal(tcgetattr(rustix::stdio::stdin()).ok())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if let Some(settings) = &self.0 {
            let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, settings);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_editor_is_chosen_like_git() {
        let with = |variables: &'static [(&str, &str)], core_editor: Option<&str>| {
            let variable = |name: &str| {
                let set = variables.iter().find(|(key, _)| *key == name);
                set.map(|(_, value)| (*value).to_owned())
            };
            choose(variable, |key| core_editor.filter(|_| key == "core.editor").map(str::to_owned))
        };
        let all = &[("GIT_EDITOR", "g"), ("VISUAL", "v"), ("EDITOR", "e"), ("TERM", "xterm")];
        assert_eq!(with(all, Some("c")), "g");
        assert_eq!(with(&all[1..], Some("c")), "c");
        assert_eq!(with(&all[1..], None), "v");
        assert_eq!(with(&[("VISUAL", "v"), ("EDITOR", "e"), ("TERM", "dumb")], None), "e");
        assert_eq!(with(&[("GIT_EDITOR", ""), ("EDITOR", " "), ("VISUAL", "")], Some("")), "vi");
    }
}
