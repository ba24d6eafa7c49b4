//! The project's own instructions: AGENTS.md files from the root down, and the workspace memory.

use std::path::{Path, PathBuf};

use base::workspace;

/// Maximum number of bytes of instructions and of memory, each.
pub(crate) const MAX_BYTES: usize = 64 << 10;

/// Returns the texts of all AGENTS.md files from the repository root down to the working directory.
/// The nearest comes last because it takes precedence. What exceeds `max_bytes` bytes is cut from the
/// start.
pub(crate) fn instructions(cwd: &Path, max_bytes: usize) -> Option<String> {
    let mut files: Vec<(PathBuf, String)> = Vec::new();
    for dir in workspace::upward(cwd).into_iter().rev() {
        let names = ["AGENTS.md", "agents.md"];
        let text =
            names.iter().find_map(|name| Some((dir.join(name), read(cwd, &dir.join(name))?)));
        files.extend(text.filter(|(_, text)| !text.trim().is_empty()));
    }
    let mut remaining = max_bytes;
    let mut parts = Vec::new();
    for (path, text) in files.iter().rev() {
        let part = base::text::head(text.trim(), remaining);
        remaining -= part.len();
        let cut = if part.len() < text.trim().len() { "\n[cut: the file is longer]" } else { "" };
        parts.push(format!("From {}:\n{part}{cut}", path.display()));
        if remaining == 0 {
            break;
        }
    }
    parts.reverse();
    let text = parts.join("\n\n");
    (!text.is_empty()).then(|| format!("What the project asks of agents\n\n{text}"))
}

/// Returns the notes of earlier sessions in `analysis/memory.md` or in the named file.
pub(crate) fn memory(cwd: &Path, notes_file: Option<&Path>, max_bytes: usize) -> Option<String> {
    let (text, display_path) = match notes_file {
        Some(file) => (read_bounded(file)?, file.display().to_string()),
        None => {
            let file = memory::notes_file(cwd);
            let display_path = file.strip_prefix(cwd).unwrap_or(&file).display().to_string();
            (read(cwd, &file)?, display_path)
        }
    };
    let text = base::text::tail(text.trim(), max_bytes);
    (!text.is_empty()).then(|| {
        format!(
            "Notes from earlier sessions ({display_path}); check before you rely on them\n\n{text}"
        )
    })
}

/// Reads a bounded part of a text file. Returns `None` if it does not exist or if a symbolic link
/// leads out of the repository: the author of a link must not decide what a provider reads.
fn read(cwd: &Path, path: &Path) -> Option<String> {
    let root = workspace::root(cwd).canonicalize().ok()?;
    read_bounded(&path.canonicalize().ok().filter(|path| path.starts_with(root))?)
}

/// Reads a bounded part of a text file.
fn read_bounded(path: &Path) -> Option<String> {
    let bytes = base::files::read_start(path, 2 * MAX_BYTES as u64).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_nearest_instructions_come_last_and_survive_truncation() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("a/b");
        fs::create_dir_all(&deep).unwrap();
        fs::create_dir(dir.path().join(".git")).unwrap();
        fs::write(dir.path().join("AGENTS.md"), "use tabs").unwrap();
        fs::write(deep.join("AGENTS.md"), "use spaces").unwrap();
        let all = instructions(&deep, 1_000).unwrap();
        assert!(all.find("use tabs").unwrap() < all.find("use spaces").unwrap());
        let cut = instructions(&deep, 12).unwrap();
        assert!(cut.contains("use spaces") && !cut.contains("use tabs"), "{cut}");
    }

    #[test]
    fn outside_a_repository_only_the_working_directory_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("a");
        fs::create_dir_all(&deep).unwrap();
        fs::write(dir.path().join("AGENTS.md"), "not mine").unwrap();
        assert_eq!(instructions(&deep, 1_000), None);
    }
    #[test]
    fn a_link_out_of_the_repository_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let repo = dir.path().join("repo");
        fs::create_dir_all(repo.join(".git")).unwrap();
        fs::write(dir.path().join("key"), "secret").unwrap();
        std::os::unix::fs::symlink("../key", repo.join("AGENTS.md")).unwrap();
        assert_eq!(instructions(&repo, 1_000), None);
        fs::remove_file(repo.join("AGENTS.md")).unwrap();
        fs::write(repo.join("CLAUDE.md"), "use tabs").unwrap();
        std::os::unix::fs::symlink("CLAUDE.md", repo.join("AGENTS.md")).unwrap();
        assert!(instructions(&repo, 1_000).unwrap().contains("use tabs"));
    }
}
