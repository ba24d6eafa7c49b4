//! Imports sessions that an earlier version of g3 kept in `.g3/sessions` of the working directory.
//! Runs only on the user's request, since such files may come from a repository.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use base::failure::{Failure, OrFail, Result};
use base::git::Git;
use base::id::Id;

use super::{make_dir, refuse_links, sessions_dir};

/// The files that are imported; none of them contains commands or permissions.
const IMPORTED_FILES: [&str; 5] =
    ["session.jsonl", "session.json", "todo.g3.md", "todo.json", "project.md"];

/// Whether a working directory has such sessions.
pub(crate) fn can_be_imported(cwd: &Path) -> bool {
    !list_importable(cwd).is_empty()
}

/// Copies every unknown session of `.g3/sessions` and returns their ids. Fails if git tracks any of
/// them or another user owns them.
pub fn import(cwd: &Path) -> Result<Vec<Id>> {
    refuse_links(cwd)?;
    let old = cwd.join(".g3/sessions");
    if is_tracked(cwd) {
        return Err(Failure::refused(".g3/sessions belongs to the repository, not to you")
            .because("git tracks files in it"));
    }
    let mut imported = Vec::new();
    for (id, dir) in list_importable(cwd) {
        let failed = || format!("cannot take over {}", dir.display());
        let owner = fs::symlink_metadata(&dir).or_fail(failed)?.uid();
        if owner != rustix::process::geteuid().as_raw() {
            return Err(Failure::refused(format!("{} belongs to another user", dir.display())));
        }
        let new = sessions_dir(cwd).join(id.as_str());
        if new.exists() {
            continue;
        }
        make_dir(&new).or_fail(failed)?;
        copy(&dir, &new).or_fail(failed)?;
        imported.push(id);
    }
    if imported.is_empty() {
        return Err(Failure::usage(format!("nothing to import in {}", old.display())));
    }
    Ok(imported)
}

fn list_importable(cwd: &Path) -> Vec<(Id, PathBuf)> {
    let entries = fs::read_dir(cwd.join(".g3/sessions")).into_iter().flatten().flatten();
    let session = |entry: fs::DirEntry| {
        let id = Id::parse(entry.file_name().to_str()?).ok()?;
        let is_plain = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let dir = entry.path();
        (is_plain && dir.join("session.jsonl").is_file()).then_some((id, dir))
    };
    entries.filter_map(session).collect()
}

/// Whether git tracks any of the files. False if git cannot tell.
fn is_tracked(cwd: &Path) -> bool {
    let Ok((_, git_dir)) = base::git::discover(cwd) else { return false };
    let top = cwd.ancestors().find(|dir| dir.join(".git").exists()).unwrap_or(cwd);
    let Ok(relative) = cwd.join(".g3").strip_prefix(top).map(Path::to_owned) else { return false };
    let args = ["ls-files", "--", &relative.to_string_lossy()];
    let tracked = Git::at(git_dir).with_work_tree(top).run(&args);
    tracked.is_ok_and(|text| !text.trim().is_empty())
}

fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    let is_regular = |file: &Path| fs::symlink_metadata(file).is_ok_and(|meta| meta.is_file());
    for name in IMPORTED_FILES.iter().filter(|name| is_regular(&from.join(name))) {
        fs::copy(from.join(name), to.join(name))?;
    }
    let fragments = from.join("fragments");
    if fs::symlink_metadata(&fragments).is_ok_and(|meta| meta.is_dir()) {
        make_dir(&to.join("fragments"))?;
        for entry in fs::read_dir(&fragments)?.flatten().filter(|entry| is_regular(&entry.path())) {
            fs::copy(entry.path(), to.join("fragments").join(entry.file_name()))?;
        }
    }
    Ok(())
}
