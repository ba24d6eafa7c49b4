//! Pull requests of sessions on GitHub, and merge requests on GitLab, by the user's own `gh` and
//! `glab`.

mod client;
mod github;
mod gitlab;
pub mod issue;
mod program;
pub mod publish;
pub mod record;
pub mod sync;

use base::failure::{Failure, Result};
use serde::{Deserialize, Serialize};
use studio_git::publish::without_login;

/// A service that hosts repositories.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Forge {
    /// GitHub, by `gh`.
    GitHub,
    /// GitLab, by `glab`.
    GitLab,
}

impl Forge {
    /// Returns the name of its program.
    fn program(self) -> &'static str {
        match self {
            Forge::GitHub => "gh",
            Forge::GitLab => "glab",
        }
    }

    /// Returns its name for a request.
    pub fn request_name(self) -> &'static str {
        match self {
            Forge::GitHub => "pull request",
            Forge::GitLab => "merge request",
        }
    }
}

/// A repository on a forge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForgeProject {
    /// The forge.
    pub forge: Forge,
    /// Its host.
    pub host: String,
    /// The owner and the name: `owner/name`, `group/subgroup/name`.
    pub path: String,
}

impl ForgeProject {
    /// Finds the project of a remote's URL. `configured` is `[studio] forge`. Fails (2) if the URL
    /// names no known forge.
    pub(crate) fn of_url(url: &str, configured: Option<&str>) -> Result<ForgeProject> {
        let printable_url = base::text::printable(&without_login(url));
        let (host, path) = split_url(url).ok_or_else(|| {
            Failure::usage(format!("the remote {printable_url} is not on a forge"))
                .hint("studio pr ID --remote NAME")
                .hint("git remote set-url origin https://github.com/OWNER/NAME.git")
        })?;
        let forge = match configured {
            Some("github") => Forge::GitHub,
            Some("gitlab") => Forge::GitLab,
            Some(_) | None if host.contains("github") => Forge::GitHub,
            Some(_) | None if host.contains("gitlab") => Forge::GitLab,
            Some(_) | None => {
                return Err(Failure::usage(format!(
                    "unknown forge: {}",
                    base::text::printable(&host)
                ))
                .hint("set `[studio] forge = \"github\"` or `\"gitlab\"`"));
            }
        };
        Ok(ForgeProject { forge, host, path })
    }
}

/// Splits the URL of a remote into host and path: `https://HOST/PATH`, `ssh://USER@HOST:PORT/PATH`,
/// `USER@HOST:PATH`. Only characters of names are accepted.
fn split_url(url: &str) -> Option<(String, String)> {
    let (authority, path) = match url.split_once("://") {
        Some(("https" | "http" | "ssh" | "git" | "git+ssh", rest)) => rest.split_once('/')?,
        Some(_) => return None,
        None => url.split_once(':').filter(|(authority, _)| !authority.contains('/'))?,
    };
    let host = authority.rsplit('@').next().unwrap_or(authority);
    let host = host.split(':').next().unwrap_or(host).to_ascii_lowercase();
    let path = path.trim_matches('/');
    let path = path.strip_suffix(".git").unwrap_or(path);
    let is_name = |text: &str| {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        !text.is_empty() && !text.starts_with(['-', '.']) && text.chars().all(is_allowed)
    };
    let is_valid = is_name(&host) && path.split('/').count() >= 2 && path.split('/').all(is_name);
    is_valid.then(|| (host, path.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_project_of_a_remote_is_found_in_its_url() {
        for (url, host, path) in [
            ("https://github.com/acme/tool.git", "github.com", "acme/tool"),
            ("https://me:secret@gitlab.example/group/sub/tool", "gitlab.example", "group/sub/tool"),
            ("ssh://git@GitHub.com:22/acme/tool.git", "github.com", "acme/tool"),
            ("git@github.com:acme/tool.git", "github.com", "acme/tool"),
        ] {
            assert_eq!(split_url(url), Some((host.to_owned(), path.to_owned())), "{url}");
        }
        for url in [
            "/srv/tool.git",
            "file:///srv/acme/tool.git",
            "ext::sh -c x",
            "https://github.com/--web/x",
            "https://github.com/a/b;touch x",
            "https://github.com/tool",
            "https://-h/a/b",
        ] {
            assert_eq!(split_url(url), None, "{url}");
        }
    }

    #[test]
    fn the_forge_is_configured_or_named_by_its_host() {
        let forge = |url, configured| ForgeProject::of_url(url, configured).map(|it| it.forge).ok();
        assert_eq!(forge("https://github.com/a/b", None), Some(Forge::GitHub));
        assert_eq!(forge("https://gitlab.acme.org/a/b", None), Some(Forge::GitLab));
        assert_eq!(forge("https://code.acme.org/a/b", None), None);
        assert_eq!(forge("https://code.acme.org/a/b", Some("gitlab")), Some(Forge::GitLab));
    }

    #[test]
    fn a_login_of_a_remote_is_not_shown() {
        let failure =
            ForgeProject::of_url("https://me:secret@code.acme.org/a b", None).unwrap_err();
        assert!(!failure.full_text().contains("secret"), "{failure}");
    }
}
