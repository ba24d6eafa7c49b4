//! Tasks from issues: of GitHub or GitLab, read by the user's `gh` or `glab`, or a Markdown file.

use std::path::Path;

use base::failure::{Failure, Result};
use studio_core::forge::issue::{self, Issue};

use crate::commands::context::CommandContext;

/// Maximum size of a file with an issue, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// Returns the task of an issue: its title, its text and its address.
pub(crate) fn read(context: &CommandContext, reference: &str) -> Result<String> {
    let directory = context.directory.as_deref().unwrap_or(Path::new("."));
    let path = directory.join(reference);
    let number = reference.trim_start_matches('#');
    let is_number = !number.is_empty() && number.chars().all(|c| c.is_ascii_digit());
    let is_url = reference.starts_with("https://") || reference.starts_with("http://");
    if !is_number && !is_url {
        return read_file(&path, reference);
    }
    let Issue { title, body, url } = issue::read(context, number)?;
    let parts = [title, body, if url.is_empty() { url } else { format!("Issue: {url}") }];
    let parts = parts.into_iter().filter(|part| !part.is_empty());
    Ok(parts.collect::<Vec<_>>().join("\n\n"))
}

/// Reads a Markdown file: its first heading is the title.
fn read_file(path: &Path, reference: &str) -> Result<String> {
    let unreadable = |reason: String| {
        Failure::usage(format!("cannot read the issue {reference}")).because(reason)
    };
    let bytes = base::files::read_bounded(path, MAX_BYTES).map_err(|error| {
        unreadable(error.to_string()).hint("an issue is a number, a URL or a Markdown file")
    })?;
    let text = String::from_utf8(bytes).map_err(|_| unreadable("it is not UTF-8".to_owned()))?;
    let text = text.trim();
    Ok(text.strip_prefix("# ").unwrap_or(text).to_owned())
}
