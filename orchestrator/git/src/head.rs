//! Reads HEAD of a private git directory without running or trusting anything in it: an agent may
//! have packed its refs, switched branches, detached HEAD or created symlinks anywhere.

use std::path::Path;

use base::failure::{Failure, OrFail, Result};

use crate::object_format;
use crate::safe_open::SafeDir;

/// Maximum depth of symbolic refs, as in git.
const MAX_REF_DEPTH: usize = 5;
/// Maximum size of a ref, in bytes.
const MAX_REF_BYTES: u64 = 4096;
/// Maximum size of `packed-refs`, in bytes.
const MAX_PACKED_BYTES: u64 = 256 << 20;

/// The state of an agent's HEAD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadState {
    /// The branch without `refs/heads/`; `None` for a detached HEAD.
    pub branch: Option<String>,
    /// The commit; `None` for an unborn branch.
    pub commit: Option<String>,
    /// The operation in progress: "rebase", "merge", "cherry-pick", "revert", "bisect".
    pub operation: Option<String>,
}

/// Reads HEAD, whether its ref is loose or packed.
pub fn read(git_dir: &Path) -> Result<HeadState> {
    let fail = || format!("cannot read HEAD in {}", git_dir.display());
    let safe_git_dir = SafeDir::open(git_dir).or_fail(fail)?;
    let mut text = safe_git_dir.read("HEAD", MAX_REF_BYTES).or_fail(fail)?;
    let mut branch = None;
    for _ in 0..MAX_REF_DEPTH {
        let Some(bytes) = &text else {
            return Ok(HeadState {
                branch,
                commit: None,
                operation: operation_in_progress(&safe_git_dir)?,
            });
        };
        let line = String::from_utf8_lossy(bytes).trim_end().to_owned();
        let Some(name) = line.strip_prefix("ref:").map(str::trim) else {
            let commit = object_format::parse_id(&line).ok().filter(|id| id.to_string() == line);
            let commit = commit.ok_or_else(|| unreadable(git_dir))?.to_string();
            return Ok(HeadState {
                branch,
                commit: Some(commit),
                operation: operation_in_progress(&safe_git_dir)?,
            });
        };
        if !git2::Reference::is_valid_name(name) || !name.starts_with("refs/") {
            return Err(unreadable(git_dir));
        }
        branch.get_or_insert_with(|| name.strip_prefix("refs/heads/").unwrap_or(name).to_owned());
        text = resolve(&safe_git_dir, name).or_fail(fail)?;
    }
    Err(unreadable(git_dir))
}

fn unreadable(git_dir: &Path) -> Failure {
    Failure::refused(format!("{} does not say where the agent is", git_dir.join("HEAD").display()))
        .because("it names neither a commit nor a ref that can be read")
        .hint("repair it with git in the session's worktree, e.g. `git checkout -B BRANCH COMMIT`")
}

/// Returns the text of a ref: its own file, else its line in `packed-refs`.
fn resolve(git_dir: &SafeDir, name: &str) -> std::io::Result<Option<Vec<u8>>> {
    let (dirs, file) = name.rsplit_once('/').unwrap_or(("", name));
    let mut current = Some(None::<SafeDir>);
    for part in dirs.split('/') {
        let Some(parent) = current else { break };
        let child = parent.as_ref().unwrap_or(git_dir).open_existing(part)?;
        current = child.map(Some);
    }
    if let Some(Some(dir)) = current
        && let Some(text) = dir.read(file, MAX_REF_BYTES)?
    {
        return Ok(Some(text));
    }
    let Some(packed) = git_dir.read("packed-refs", MAX_PACKED_BYTES)? else { return Ok(None) };
    let mut lines = packed.split(|byte| *byte == b'\n').filter_map(|line| {
        let space = line.iter().position(|byte| *byte == b' ')?;
        Some((&line[..space], &line[space + 1..]))
    });
    Ok(lines.find(|(_, found)| *found == name.as_bytes()).map(|(id, _)| id.to_vec()))
}

fn operation_in_progress(git_dir: &SafeDir) -> Result<Option<String>> {
    let state_files = [
        ("rebase-merge", "rebase"),
        ("rebase-apply", "rebase"),
        ("MERGE_HEAD", "merge"),
        ("CHERRY_PICK_HEAD", "cherry-pick"),
        ("REVERT_HEAD", "revert"),
        ("BISECT_START", "bisect"),
    ];
    let names = git_dir.names().or_fail(|| "cannot list the session's git directory")?;
    let entry =
        state_files.iter().find(|(state_file, _)| names.iter().any(|name| name == state_file));
    Ok(entry.map(|(_, operation)| (*operation).to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const A: &str = "1111111111111111111111111111111111111111";
    const B: &str = "2222222222222222222222222222222222222222";

    fn dir(head: &str) -> tempfile::TempDir {
        let temp = tempfile::tempdir().unwrap();
        fs::create_dir_all(temp.path().join("refs/heads/studio")).unwrap();
        fs::write(temp.path().join("HEAD"), head).unwrap();
        temp
    }

    #[test]
    fn a_loose_ref_overrides_a_packed_one() {
        let temp = dir("ref: refs/heads/studio/x\n");
        let packed = format!("# pack-refs with: peeled \n{A} refs/heads/studio/x\n^{B}\n");
        fs::write(temp.path().join("packed-refs"), packed).unwrap();
        let packed = read(temp.path()).unwrap();
        assert_eq!(packed.commit.as_deref(), Some(A));
        assert_eq!(packed.branch.as_deref(), Some("studio/x"));
        fs::write(temp.path().join("refs/heads/studio/x"), format!("{B}\n")).unwrap();
        assert_eq!(read(temp.path()).unwrap().commit.as_deref(), Some(B));
    }

    #[test]
    fn a_detached_head_an_unborn_branch_and_a_rebase_are_distinguished() {
        let temp = dir(A);
        fs::create_dir(temp.path().join("rebase-merge")).unwrap();
        let head = read(temp.path()).unwrap();
        assert_eq!((head.branch, head.commit.as_deref()), (None, Some(A)));
        assert_eq!(head.operation.as_deref(), Some("rebase"));
        let head = read(dir("ref: refs/heads/new\n").path()).unwrap();
        assert_eq!((head.branch.as_deref(), head.commit), (Some("new"), None));
    }

    #[test]
    fn nothing_outside_is_read_and_loops_terminate() {
        for bad in ["ref: ../../secret", "ref: /etc/passwd", "secret", "ref: refs/heads/../../x"] {
            let failure = read(dir(bad).path()).unwrap_err().to_string();
            assert!(!failure.contains("secret"), "{failure}");
        }
        let temp = dir("ref: refs/heads/a\n");
        fs::write(temp.path().join("refs/heads/a"), "ref: refs/heads/a\n").unwrap();
        assert!(read(temp.path()).is_err());
        let temp = dir("ref: refs/heads/link\n");
        std::os::unix::fs::symlink("/etc/hostname", temp.path().join("refs/heads/link")).unwrap();
        assert_eq!(read(temp.path()).unwrap().commit, None);
    }
}
