//! The user's editor, for a commit message.

use base::failure::{Failure, OrFail, Result};
use base::process::{Job, Stream};

use crate::commands::desk::Desk;

/// Opens a text in `$GIT_EDITOR`, `$VISUAL` or `$EDITOR`, else `vi`; gives what was saved.
pub fn edit(desk: &Desk, text: &str) -> Result<String> {
    let file = tempfile::Builder::new().prefix("studio-message-").suffix(".txt").tempfile();
    let file = file.or_fail(|| "cannot make a temporary file")?;
    std::fs::write(file.path(), text).or_fail(|| "cannot write the message")?;
    let editor = ["GIT_EDITOR", "VISUAL", "EDITOR"];
    let editor = editor.iter().find_map(|name| std::env::var(name).ok());
    let editor = editor.unwrap_or_else(|| "vi".to_owned());
    let line = format!("{editor} \"$1\"");
    let directory = desk.repository.main_checkout.as_ref().unwrap_or(&desk.repository.common_dir);
    let mut running = Job::new("sh", directory)
        .args(["-c", &line, "sh"])
        .arg(file.path())
        .stdin(Stream::Inherit)
        .stdout(Stream::Inherit)
        .stderr(Stream::Inherit)
        .spawn()
        .or_fail(|| format!("cannot start the editor `{editor}`"))?;
    let status = running.wait_until(None).or_fail(|| "cannot wait for the editor")?;
    if !status.is_some_and(|status| status.success()) {
        return Err(Failure::refused("the editor failed, so nothing landed").because(editor));
    }
    let text = std::fs::read_to_string(file.path()).or_fail(|| "cannot read the message")?;
    match text.trim() {
        "" => Err(Failure::refused("the message is empty, so nothing landed")),
        text => Ok(text.to_owned()),
    }
}
