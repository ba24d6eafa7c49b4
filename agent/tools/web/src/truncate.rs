//! Truncates long texts: the model gets the beginning, and a file contains the whole text.

use std::io::Write;

use tools::call::Invocation;

/// Default maximum number of characters for a model.
pub(crate) const MOST: usize = 50_000;

/// Returns a text with escaped control characters and without soft hyphens, cut to `most`
/// characters. The whole text of a longer one is stored in a file of the session.
pub(crate) fn truncate(call: &Invocation<'_>, text: &str, most: usize, name: &str) -> String {
    let text = base::text::printable_output(&text.replace('\u{ad}', ""));
    let Some((end, _)) = text.char_indices().nth(most) else { return text };
    let missing = text[end..].chars().count();
    let place = match keep(call, &text, name) {
        Ok(place) => format!("all of it is in {place}"),
        Err(error) => format!("the rest is lost: {error}"),
    };
    format!("{}\n[{missing} more characters are not shown; {place}]", &text[..end])
}

fn keep(call: &Invocation<'_>, text: &str, name: &str) -> std::io::Result<String> {
    let dir = call.context.session_dir.join("tools");
    std::fs::create_dir_all(&dir)?;
    let prefix = format!("{name}-");
    let file = tempfile::Builder::new().prefix(&prefix).suffix(".txt").tempfile_in(&dir)?;
    let (mut file, path) = file.keep().map_err(|error| error.error)?;
    file.write_all(text.as_bytes())?;
    Ok(path.display().to_string())
}
