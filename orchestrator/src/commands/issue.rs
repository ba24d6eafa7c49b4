//! Tasks from issues: of GitHub or GitLab, read by the user's `gh` or `glab`, or a Markdown file.

use std::path::Path;
use std::time::Duration;

use base::failure::{Failure, OrFail, Result};
use base::process::{Command, OutputLimits, find_program, find_program_outside};
use serde_json::Value;
use studio_git::names::WorktreeTemplate;

use crate::commands::context::CommandContext;

/// Maximum size of an issue, in bytes.
const MAX_BYTES: u64 = 1 << 20;
/// Timeout of the program that reads an issue.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A program that reads issues.
struct IssueReader {
    program: &'static str,
    /// The arguments after the number or URL.
    arguments: &'static [&'static str],
    /// The fields of its JSON: the text of the issue, and its address.
    body: &'static str,
    url: &'static str,
    install: &'static str,
}

const GITHUB: IssueReader = IssueReader {
    program: "gh",
    arguments: &["--json", "number,title,body,url"],
    body: "body",
    url: "url",
    install: "install GitHub's `gh`, then: gh auth login",
};

const GITLAB: IssueReader = IssueReader {
    program: "glab",
    arguments: &["--output", "json"],
    body: "description",
    url: "web_url",
    install: "install GitLab's `glab`, then: glab auth login",
};

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
    let reader = reader(context, reference);
    let issue = ask(context, &reader, number)?;
    let text = |name: &str| issue[name].as_str().unwrap_or_default().trim().to_owned();
    let (title, body, url) = (text("title"), text(reader.body), text(reader.url));
    if title.is_empty() {
        return Err(Failure::failed(format!("`{}` returned no issue", reader.program))
            .because(format!("its answer has no title for {reference}")));
    }
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

/// Returns the program for an issue, by its URL or by the URL of the remote `origin`.
fn reader(context: &CommandContext, reference: &str) -> IssueReader {
    let remote = || {
        let repository = context.repository.open().ok()?;
        let config = repository.config().ok()?.snapshot().ok()?;
        config.get_string("remote.origin.url").ok()
    };
    let address = match reference.contains("://") {
        true => Some(reference.to_owned()),
        false => remote(),
    };
    let is_gitlab = address.is_some_and(|it| it.contains("gitlab") || it.contains("/-/issues/"));
    let only_glab = find_program("gh").is_none() && find_program("glab").is_some();
    if is_gitlab || (only_glab && !reference.contains("://")) { GITLAB } else { GITHUB }
}

fn ask(context: &CommandContext, reader: &IssueReader, reference: &str) -> Result<Value> {
    let top = context.repository.main_checkout.as_deref().unwrap_or(&context.repository.common_dir);
    let program = reader.program;
    // Not one that the repository, or an agent, placed in `PATH`.
    let worktrees = WorktreeTemplate::parse(&context.config.studio.worktree)?;
    let excluded = [top.to_owned(), worktrees.parent(&context.repository)];
    let path = find_program_outside(program, &excluded).ok_or_else(|| {
        Failure::usage(format!("cannot read issue {reference}"))
            .because(format!("`{program}` is not in PATH"))
            .hint(reader.install)
            .hint("studio run --issue FILE.md")
    })?;
    let command = Command::new(path, top).args(["issue", "view", reference]).args(reader.arguments);
    let limits = OutputLimits { time: Some(TIMEOUT), bytes: 1 << 20 };
    let output =
        command.input("").output(limits).or_fail(|| format!("cannot start `{program}`"))?;
    let failed = || Failure::failed(format!("`{program}` cannot read issue {reference}"));
    if !output.ok() {
        return Err(failed().because(base::text::printable(&output.error_text())));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| failed().because(error))
}
