//! The repositories in which studio has sessions, for commands with `--all-repositories`.

use std::path::{Path, PathBuf};

use base::failure::Result;
use base::known_repositories;
use base::text::{printable, shell_word};

use crate::commands::context::{CommandContext, CommonArgs};

/// A repository in which studio has, or had, sessions.
pub(crate) struct KnownRepository {
    /// The directory of its main checkout, of a bare one that of the repository.
    pub directory: PathBuf,
    /// The context of a command in it, or why it cannot be opened.
    pub context: Result<CommandContext>,
}

/// Opens all of them, one after the other: the filters of a process are those of the repository that
/// was opened last.
pub(crate) fn open(common: &CommonArgs) -> impl Iterator<Item = KnownRepository> {
    let git_dirs = known_repositories::list().into_iter();
    git_dirs.filter_map(|git_dir| {
        let directory = main_checkout(&git_dir);
        let args = CommonArgs { directory: Some(directory.clone()), ..common.clone() };
        let context = CommandContext::open(&args);
        // It is not a repository any more, and git finds another one around it.
        let is_another =
            context.as_ref().is_ok_and(|context| context.repository.common_dir != git_dir);
        (!is_another).then_some(KnownRepository { directory, context })
    })
}

/// Returns the shell's command for going to a directory.
pub(crate) fn change_directory(directory: &Path) -> String {
    format!("cd {}", shell_word(&printable(&directory.to_string_lossy())))
}

fn main_checkout(git_dir: &Path) -> PathBuf {
    let is_inside = git_dir.file_name().is_some_and(|name| name == ".git");
    git_dir.parent().filter(|_| is_inside).unwrap_or(git_dir).to_owned()
}
