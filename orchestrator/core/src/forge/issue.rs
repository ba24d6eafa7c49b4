//! Issues, read by the user's program.

use base::failure::{Failure, Result};
use base::process::find_program;
use serde_json::Value;
use studio_git::names::WorktreeTemplate;

use crate::forge::Forge;
use crate::forge::program::ForgeProgram;
use crate::project::Project;

/// An issue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issue {
    /// Its title; never empty.
    pub title: String,
    /// Its text.
    pub body: String,
    /// Its address, if the forge says it.
    pub url: String,
}

/// Reads an issue by its number or its URL.
pub fn read(project: &Project, reference: &str) -> Result<Issue> {
    let repository = &project.repository;
    let top = repository.main_checkout.as_deref().unwrap_or(&repository.common_dir);
    let forge = forge_of(project, reference);
    let name = forge.program();
    let failed = || Failure::failed(format!("`{name}` cannot read issue {reference}"));
    // Not one that the repository, or an agent, placed in `PATH`.
    let worktrees = WorktreeTemplate::parse(&project.config.studio.worktree)?;
    let excluded = [top.to_owned(), worktrees.parent(repository)];
    let program = ForgeProgram::find(forge, "`--issue`", top, &excluded)
        .map_err(|failure| failure.hint("studio run --issue FILE.md"))?;
    let (format, body, url): (&[&str], _, _) = match forge {
        Forge::GitHub => (&["--json", "number,title,body,url"], "body", "url"),
        Forge::GitLab => (&["--output", "json"], "description", "web_url"),
    };
    let args = [&["issue", "view", reference], format].concat();
    let issue: Value =
        program.object(&args).map_err(|failure| failed().because(failure.sentence()))?;
    let text = |name: &str| issue[name].as_str().unwrap_or_default().trim().to_owned();
    let issue = Issue { title: text("title"), body: text(body), url: text(url) };
    match issue.title.is_empty() {
        true => Err(failed().because("its answer has no title")),
        false => Ok(issue),
    }
}

/// Returns the forge of an issue, by its URL or by the URL of the remote `origin`.
fn forge_of(project: &Project, reference: &str) -> Forge {
    let remote = || {
        let repository = project.repository.open().ok()?;
        let config = repository.config().ok()?.snapshot().ok()?;
        config.get_string("remote.origin.url").ok()
    };
    let is_url = reference.contains("://");
    let address = if is_url { Some(reference.to_owned()) } else { remote() };
    let is_gitlab = address.is_some_and(|it| it.contains("gitlab") || it.contains("/-/issues/"));
    let only_glab = find_program("gh").is_none() && find_program("glab").is_some();
    if is_gitlab || (only_glab && !is_url) { Forge::GitLab } else { Forge::GitHub }
}
