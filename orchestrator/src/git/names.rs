//! Names that git and the file system will accept: branches and the two templates.

use std::fmt;
use std::path::{Path, PathBuf};

use base::failure::{Failure, Result};
use base::id::Id;
use serde::{Deserialize, Serialize};

use crate::git::repo::Repository;

/// A local branch, without `refs/heads/`. The only way in is `parse`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BranchName(String);

impl BranchName {
    /// Reads a branch name by git's own rules (gitrevisions, `git check-ref-format`), and refuses
    /// what git would read as an option.
    pub fn parse(text: &str) -> Result<BranchName> {
        let full = format!("refs/heads/{text}");
        let good =
            !text.starts_with('-') && text != "HEAD" && git2::Reference::is_valid_name(&full);
        if good {
            return Ok(BranchName(text.to_owned()));
        }
        let shown = base::text::printable(text);
        Err(Failure::usage(format!("`{shown}` is not a branch name"))
            .because("git forbids spaces, `..`, `~^:?*[\\`, a leading `-` and a trailing `.lock`"))
    }

    /// The name as people write it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The full name of the ref.
    pub fn full(&self) -> String {
        format!("refs/heads/{}", self.0)
    }
}

impl fmt::Display for BranchName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for BranchName {
    type Error = Failure;
    fn try_from(text: String) -> Result<BranchName> {
        BranchName::parse(&text)
    }
}

impl From<BranchName> for String {
    fn from(name: BranchName) -> String {
        name.0
    }
}

/// How sessions' branches are called: a branch name with `{id}` in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BranchTemplate(String);

impl Default for BranchTemplate {
    fn default() -> Self {
        BranchTemplate("studio/{id}".to_owned())
    }
}

impl BranchTemplate {
    /// Reads a template, the value of `[studio] branch`.
    pub fn parse(text: &str) -> Result<BranchTemplate> {
        if text.matches("{id}").count() != 1 {
            return Err(Failure::usage(format!("`[studio] branch` is `{text}`"))
                .because("it needs `{id}` once, so that every session has its own branch")
                .next("branch = \"studio/{id}\""));
        }
        BranchName::parse(&text.replace("{id}", "task-abcd"))?;
        Ok(BranchTemplate(text.to_owned()))
    }

    /// The branch of a session.
    pub fn branch(&self, id: &Id) -> Result<BranchName> {
        BranchName::parse(&self.0.replace("{id}", id.as_str()))
    }

    /// Whether a branch could be one of ours: those are not copied into other sessions.
    pub fn matches(&self, branch: &str) -> bool {
        let (before, after) = self.0.split_once("{id}").unwrap_or((&self.0, ""));
        branch
            .strip_prefix(before)
            .and_then(|rest| rest.strip_suffix(after))
            .is_some_and(|middle| Id::parse(middle).is_ok())
    }
}

/// Where sessions' worktrees lie.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum WorktreeTemplate {
    /// `<main checkout>/.worktrees/<id>`, or `<bare>.worktrees/<id>` beside a bare repository.
    #[default]
    Beside,
    /// An absolute path with `{id}` as its last part, and `{repository}` (a name) where wanted.
    At(String),
}

impl WorktreeTemplate {
    /// Reads a template, the value of `[studio] worktree`.
    pub fn parse(text: &str) -> Result<WorktreeTemplate> {
        let last = Path::new(text).file_name().and_then(|name| name.to_str());
        let climbs = Path::new(text).components().any(|c| c == std::path::Component::ParentDir);
        let good = text.starts_with('/') && last.is_some_and(|name| name.contains("{id}"));
        if good && !climbs && text.matches("{id}").count() == 1 {
            return Ok(WorktreeTemplate::At(text.to_owned()));
        }
        Err(Failure::usage(format!("`[studio] worktree` is `{text}`"))
            .because("it must be an absolute path whose last part has `{id}`")
            .next("worktree = \"/srv/worktrees/{repository}/{id}\""))
    }

    /// The directory in which the sessions' worktrees of a repository lie.
    pub fn parent(&self, repository: &Repository) -> PathBuf {
        match self {
            WorktreeTemplate::Beside => match &repository.main_checkout {
                Some(checkout) => checkout.join(".worktrees"),
                None => {
                    let mut name = repository.common_dir.clone().into_os_string();
                    name.push(".worktrees");
                    PathBuf::from(name)
                }
            },
            WorktreeTemplate::At(text) => {
                let path = PathBuf::from(text.replace("{repository}", &repository.name()));
                path.parent().map(Path::to_owned).unwrap_or(path)
            }
        }
    }

    /// The worktree of a session.
    pub fn worktree(&self, repository: &Repository, id: &Id) -> PathBuf {
        let name = match self {
            WorktreeTemplate::Beside => id.to_string(),
            WorktreeTemplate::At(text) => {
                let last = Path::new(text).file_name().unwrap_or_default().to_string_lossy();
                last.replace("{id}", id.as_str()).replace("{repository}", &repository.name())
            }
        };
        self.parent(repository).join(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_git_or_a_command_line_would_misread_are_refused() {
        for bad in ["", "-rf", "HEAD", "a b", "a..b", "x.lock", "a~1", "a\nb", "/a", "a/", "@{1}"] {
            assert!(BranchName::parse(bad).is_err(), "{bad:?} was accepted");
        }
        for good in ["main", "feature/x", "größe", "$(id)"] {
            assert_eq!(BranchName::parse(good).unwrap().full(), format!("refs/heads/{good}"));
        }
    }

    #[test]
    fn a_template_makes_one_branch_per_session_and_knows_its_own() {
        let template = BranchTemplate::parse("agents/{id}/work").unwrap();
        let id = Id::parse("fix-login-7k3f").unwrap();
        assert_eq!(template.branch(&id).unwrap().as_str(), "agents/fix-login-7k3f/work");
        assert!(template.matches("agents/fix-login-7k3f/work"));
        assert!(!template.matches("agents/Other/work") && !template.matches("main"));
        for bad in ["studio", "{id}/{id}", "a b/{id}", "-{id}"] {
            assert!(BranchTemplate::parse(bad).is_err(), "{bad:?} was accepted");
        }
    }

    #[test]
    fn a_worktree_template_is_an_absolute_path_that_ends_in_the_id() {
        assert!(WorktreeTemplate::parse("/srv/{repository}/{id}").is_ok());
        for bad in ["{id}", "/srv/x", "/srv/{id}/x", "/srv/../{id}", "/{id}/{id}"] {
            assert!(WorktreeTemplate::parse(bad).is_err(), "{bad:?} was accepted");
        }
    }
}
