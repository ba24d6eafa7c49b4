//! Long texts: their beginning is shown, and all of it lies in a file.

use std::io::Write;

use tools::call::Invocation;

/// Characters that a model is shown.
pub(crate) const MOST: usize = 50_000;

/// A text with its control characters written out and without its soft hyphens, cut to so many
/// characters; the whole of it is kept in a file of the session.
pub(crate) fn shown(call: &Invocation<'_>, text: &str, most: usize, name: &str) -> String {
    let text = base::text::printable_output(&text.replace('\u{ad}', ""));
    let Some((end, _)) = text.char_indices().nth(most) else { return text };
    let missing = text[end..].chars().count();
    let place = match keep(call, &text, name) {
        Ok(place) => format!("all of it is in {place}"),
        Err(why) => format!("the rest is lost: {why}"),
    };
    format!("{}\n[{missing} more characters are not shown; {place}]", &text[..end])
}

fn keep(call: &Invocation<'_>, text: &str, name: &str) -> std::io::Result<String> {
    let dir = call.at.session_dir.join("tools");
    std::fs::create_dir_all(&dir)?;
    let prefix = format!("{name}-");
    let file = tempfile::Builder::new().prefix(&prefix).suffix(".txt").tempfile_in(&dir)?;
    let (mut file, path) = file.keep().map_err(|why| why.error)?;
    file.write_all(text.as_bytes())?;
    Ok(path.display().to_string())
}
