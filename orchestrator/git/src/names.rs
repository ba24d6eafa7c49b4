//! Names that git and the file system accept: branches and the two templates.

use std::fmt;
use std::path::{Component, Path, PathBuf};

use base::config::studio::DEFAULT_WORKTREE;
use base::failure::{Failure, Result};
use base::id::Id;
use serde::{Deserialize, Serialize};

use crate::repo::Repository;

/// A local branch, without `refs/heads/`. It is created by `parse` only.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BranchName(String);

impl BranchName {
    /// Parses a branch name by git's rules (gitrevisions, `git check-ref-format`); rejects names
    /// that git would read as an option, and all control characters, of which git allows some.
    pub fn parse(text: &str) -> Result<BranchName> {
        let full = format!("refs/heads/{text}");
        let is_valid = !text.starts_with('-')
            && text != "HEAD"
            && !text.contains(char::is_control)
            && git2::Reference::is_valid_name(&full);
        if is_valid {
            return Ok(BranchName(text.to_owned()));
        }
        let printable_name = base::text::printable(text);
        Err(Failure::usage(format!("invalid branch name `{printable_name}`"))
            .because("a name has no spaces, control characters, `..`, `~^:?*[\\`, a leading `-` and a trailing `.lock`"))
    }

    /// Returns the short name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the full name of the ref.
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

/// The template of sessions' branch names: a branch name with `{id}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BranchTemplate(String);

impl Default for BranchTemplate {
    fn default() -> Self {
        BranchTemplate("studio/{id}".to_owned())
    }
}

impl BranchTemplate {
    /// Parses a template, the value of `[studio] branch`.
    pub fn parse(text: &str) -> Result<BranchTemplate> {
        if text.matches("{id}").count() != 1 {
            return Err(Failure::usage(format!("invalid `[studio] branch`: `{text}`"))
                .because("it must contain `{id}` once, so that every session has its own branch")
                .hint("branch = \"studio/{id}\""));
        }
        BranchName::parse(&text.replace("{id}", "task-abcd"))?;
        Ok(BranchTemplate(text.to_owned()))
    }

    /// Returns the branch of a session.
    pub(crate) fn branch(&self, id: &Id) -> Result<BranchName> {
        BranchName::parse(&self.0.replace("{id}", id.as_str()))
    }

    /// Returns whether a branch may belong to a session: such branches are not copied to other
    /// sessions.
    pub fn matches(&self, branch: &str) -> bool {
        let (prefix, suffix) = self.0.split_once("{id}").unwrap_or((&self.0, ""));
        branch
            .strip_prefix(prefix)
            .and_then(|rest| rest.strip_suffix(suffix))
            .is_some_and(|id| Id::parse(id).is_ok())
    }
}

/// The template of sessions' worktree paths: its last component contains `{id}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorktreeTemplate(String);

/// The location in the main checkout that earlier versions used.
const WORKTREE_IN_CHECKOUT: &str = ".worktrees/{id}";

impl Default for WorktreeTemplate {
    fn default() -> Self {
        WorktreeTemplate(DEFAULT_WORKTREE.to_owned())
    }
}

impl WorktreeTemplate {
    /// Parses a template, the value of `[studio] worktree`.
    pub fn parse(text: &str) -> Result<WorktreeTemplate> {
        let path = Path::new(text);
        let last = path.file_name().and_then(|name| name.to_str());
        let has_parent_dir = path.components().any(|part| part == Component::ParentDir);
        let has_root =
            text.starts_with('/') || text.starts_with("{parent}/") || text == WORKTREE_IN_CHECKOUT;
        let has_id = last.is_some_and(|name| name.contains("{id}"));
        if has_root && has_id && !has_parent_dir && text.matches("{id}").count() == 1 {
            return Ok(WorktreeTemplate(text.to_owned()));
        }
        Err(Failure::usage(format!("invalid `[studio] worktree`: `{text}`"))
            .because("it must be an absolute path, or begin with `{parent}/`, and its last part must contain `{id}`")
            .hint(format!("worktree = \"{DEFAULT_WORKTREE}\"")))
    }

    /// Returns whether it is the default template.
    pub(crate) fn is_default(&self) -> bool {
        self.0 == DEFAULT_WORKTREE
    }

    /// Returns whether it is relative to the main checkout.
    pub fn is_relative(&self) -> bool {
        self.0 == WORKTREE_IN_CHECKOUT
    }

    /// Returns the parent directory of a repository's worktrees. The default one is replaced by a
    /// directory of the user if it is not writable.
    pub fn parent(&self, repository: &Repository) -> PathBuf {
        let expanded = self.expand(repository, "id");
        let preferred = expanded.parent().map(Path::to_owned).unwrap_or(expanded);
        if !self.is_default() || can_hold_files(&preferred) {
            return preferred;
        }
        match base::user_dirs::state_dir("studio") {
            Ok(state) => {
                state.join("worktrees").join(base::user_dirs::name_for_path(&repository.common_dir))
            }
            Err(_) => preferred,
        }
    }

    /// Returns the worktree of a session.
    pub fn worktree(&self, repository: &Repository, id: &Id) -> PathBuf {
        let expanded = self.expand(repository, id.as_str());
        self.parent(repository).join(expanded.file_name().unwrap_or_default())
    }

    /// Returns the worktree for checking merged work. In a directory that may contain other files
    /// it has the name and depth of a session's, so that `../sibling` is the same directory for
    /// both.
    pub(crate) fn check_worktree(&self, repository: &Repository, slot: u32) -> PathBuf {
        let parent = self.parent(repository);
        if is_for_worktrees(repository, &parent) {
            return parent.join(CHECKS_DIR).join(slot.to_string());
        }
        let expanded = self.expand(repository, &format!("check-{slot}"));
        parent.join(expanded.file_name().unwrap_or_default())
    }

    /// Returns the path with all placeholders replaced, in one pass.
    fn expand(&self, repository: &Repository, id: &str) -> PathBuf {
        let root = repository.main_checkout.as_deref().unwrap_or(&repository.common_dir);
        let text = match (&repository.main_checkout, self.is_relative()) {
            (Some(checkout), true) => return checkout.join(self.0.replace("{id}", id)),
            (None, true) => DEFAULT_WORKTREE,
            (_, false) => &self.0,
        };
        let mut path = String::new();
        let mut rest = text;
        while let Some(start) = rest.find('{') {
            path.push_str(&rest[..start]);
            rest = &rest[start..];
            let placeholders = ["{parent}", "{repo}", "{repository}", "{id}"];
            let Some(name) = placeholders.into_iter().find(|name| rest.starts_with(name)) else {
                path.push('{');
                rest = &rest[1..];
                continue;
            };
            match name {
                "{parent}" => {
                    path.push_str(&root.parent().unwrap_or(root).to_string_lossy());
                }
                "{repo}" => path.push_str(&root.file_name().unwrap_or_default().to_string_lossy()),
                "{repository}" => path.push_str(&repository.name()),
                _ => path.push_str(id),
            }
            rest = &rest[name.len()..];
        }
        path.push_str(rest);
        // `{parent}` of a checkout directly below the root already ends with a slash.
        PathBuf::from(path.replace("//", "/"))
    }
}

/// The directory of the check worktrees, beside the sessions'.
const CHECKS_DIR: &str = ".checks";

/// Returns whether a directory contains only worktrees of this repository.
pub fn is_for_worktrees(repository: &Repository, directory: &Path) -> bool {
    let default_template = WorktreeTemplate::default();
    let checkout_template = WorktreeTemplate(WORKTREE_IN_CHECKOUT.to_owned());
    let is_parent_of =
        |template: &WorktreeTemplate| template.expand(repository, "id").parent() == Some(directory);
    is_parent_of(&default_template)
        || is_parent_of(&checkout_template)
        || default_template.parent(repository) == directory
}

/// Returns the trash directory for worktrees: in the directory that contained them, so that it is
/// on the same file system. Several repositories may share a directory that the user chose.
pub fn trash_of(repository: &Repository, worktrees: &Path) -> PathBuf {
    match is_for_worktrees(repository, worktrees) {
        true => worktrees.join(".trash"),
        false => {
            let name = base::user_dirs::name_for_path(&repository.common_dir);
            worktrees.join(".studio-trash").join(name)
        }
    }
}

/// Returns whether files can be created in a directory, which may not exist yet. A file or a link
/// at its path is rejected elsewhere.
fn can_hold_files(directory: &Path) -> bool {
    use rustix::fs::Access;
    let existing = match directory.symlink_metadata() {
        Ok(metadata) if !metadata.is_dir() => return true,
        Ok(_) => directory,
        Err(_) => directory.parent().unwrap_or(directory),
    };
    rustix::fs::access(existing, Access::WRITE_OK | Access::EXEC_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ambiguous_branch_names_are_rejected() {
        for bad in [
            "", "-rf", "HEAD", "a b", "a..b", "x.lock", "a~1", "a\nb", "a\u{9c}b", "/a", "a/",
            "@{1}",
        ] {
            assert!(BranchName::parse(bad).is_err(), "{bad:?} was accepted");
        }
        for good in ["main", "feature/x", "größe", "$(id)"] {
            assert_eq!(BranchName::parse(good).unwrap().full(), format!("refs/heads/{good}"));
        }
    }

    #[test]
    fn a_template_makes_one_branch_per_session_and_recognizes_it() {
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
    fn a_worktree_template_ends_in_the_id() {
        for good in [
            DEFAULT_WORKTREE,
            WORKTREE_IN_CHECKOUT,
            "/srv/{repository}/{id}",
            "{parent}/{repo}-{id}",
        ] {
            assert!(WorktreeTemplate::parse(good).is_ok(), "{good:?} was refused");
        }
        for bad in
            ["{id}", "x/{id}", "/srv/x", "/srv/{id}/x", "/srv/../{id}", "/{id}/{id}", "{parent}/x"]
        {
            assert!(WorktreeTemplate::parse(bad).is_err(), "{bad:?} was accepted");
        }
    }

    #[test]
    fn placeholders_are_replaced_once_and_check_worktrees_have_the_depth_of_sessions() {
        let repository_at = |checkout: Option<&str>, common: &str| Repository {
            common_dir: common.into(),
            main_checkout: checkout.map(PathBuf::from),
            checkout_git_dir: common.into(),
            session: None,
        };
        let id = Id::parse("fix-login-7k3f").unwrap();
        let paths_of = |text: &str, repository: &Repository| {
            let template = WorktreeTemplate::parse(text).unwrap();
            let (session, check) =
                (template.worktree(repository, &id), template.check_worktree(repository, 2));
            (session.display().to_string(), check.display().to_string())
        };
        let with_braces = repository_at(Some("/tmp/{id}"), "/tmp/{id}/.git");
        let expected = ("/tmp/{id}-fix-login-7k3f".to_owned(), "/tmp/{id}-check-2".to_owned());
        assert_eq!(paths_of("{parent}/{repo}-{id}", &with_braces), expected);
        let bare_repository = repository_at(None, "/tmp/r.git");
        let expected_path = "/tmp/r.git.worktrees/fix-login-7k3f";
        assert_eq!(paths_of(DEFAULT_WORKTREE, &bare_repository).0, expected_path);
        assert_eq!(paths_of(WORKTREE_IN_CHECKOUT, &bare_repository).0, expected_path);
        assert_eq!(paths_of("/tmp/{repository}/{id}", &bare_repository).0, "/tmp/r/fix-login-7k3f");
        let user_repository = repository_at(Some("/tmp/r"), "/tmp/r/.git");
        let expected_dir = "/tmp/r/.worktrees/".to_owned();
        assert_eq!(
            paths_of(WORKTREE_IN_CHECKOUT, &user_repository),
            (expected_dir.clone() + id.as_str(), expected_dir + ".checks/2")
        );
    }
}
