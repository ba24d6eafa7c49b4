//! Where the git program and its libraries are installed, for a git that may read nothing else.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use base::process::{Command, OutputLimits, find_program};

/// Paths that programs need, wherever they are installed.
pub(crate) const SYSTEM_PATHS: &[&str] = &[
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/nix/store",
    "/gnu/store",
    "/etc/ld.so.cache",
    "/etc/ld.so.preload",
];

/// An installation of git.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GitInstallation {
    /// The directory of the program itself.
    pub directory: PathBuf,
    /// What it needs outside of the system's paths.
    pub read: Vec<PathBuf>,
}

impl GitInstallation {
    /// Finds the git in `PATH`.
    pub(crate) fn find() -> Option<&'static GitInstallation> {
        static FOUND: OnceLock<Option<GitInstallation>> = OnceLock::new();
        let locate = || GitInstallation::of(&find_program("git")?);
        FOUND.get_or_init(locate).as_ref()
    }

    /// Returns the installation to which a program belongs: git, or one that starts git, such as the
    /// shims of version managers.
    fn of(program: &Path) -> Option<GitInstallation> {
        let mut git = program.canonicalize().ok()?;
        if !git.ends_with("git") || is_script(&git) {
            git = started_by(program).unwrap_or(git);
        }
        let directory = git.parent()?.to_owned();
        let mut read = Vec::new();
        if !is_in_system(&git) {
            if let Some(prefix) = directory.parent() {
                let parts = ["lib", "lib64", "libexec", "share/git-core"];
                read.extend(parts.map(|part| prefix.join(part)));
            }
            read.extend(libraries(&git));
            read.push(git);
        }
        Some(GitInstallation { directory, read })
    }
}

fn is_in_system(path: &Path) -> bool {
    SYSTEM_PATHS.iter().any(|tree| path.starts_with(tree))
}

fn is_script(program: &Path) -> bool {
    let mut start = [0; 2];
    let read = std::fs::File::open(program).and_then(|mut file| file.read_exact(&mut start));
    read.is_ok() && start == *b"#!"
}

/// Returns the git that a program starts: it is also among its own commands.
fn started_by(program: &Path) -> Option<PathBuf> {
    let output = Command::new(program, "/").arg("--exec-path").output(OutputLimits::seconds(10));
    let output = output.ok().filter(base::process::Output::ok)?;
    let git = Path::new(output.text().trim()).join("git").canonicalize().ok()?;
    (git.ends_with("git") && !is_script(&git)).then_some(git)
}

/// Returns the loader and the libraries of a program outside of the system's paths, as ldd(1) finds
/// them.
fn libraries(program: &Path) -> Vec<PathBuf> {
    let trace = Command::new(program, "/").env("LD_TRACE_LOADED_OBJECTS", "1");
    let Ok(output) = trace.output(OutputLimits::seconds(10)) else { return Vec::new() };
    let text = output.text();
    let paths = text.split_whitespace().filter(|word| word.starts_with('/')).map(Path::new);
    let paths = paths.filter_map(|path| path.canonicalize().ok());
    paths.filter(|path| !is_in_system(path)).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn script(path: &Path, line: &str) {
        std::fs::write(path, format!("#!/bin/sh\n{line}\n")).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn the_git_behind_a_script_and_a_link_of_another_name_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let git = find_program("git").unwrap();
        let real = GitInstallation::of(&git).unwrap();
        assert!(!is_script(&real.directory.join("git")), "{real:?}");
        let shim = dir.path().join("git");
        script(&shim, &format!("exec '{}' \"$@\"", git.display()));
        let found = GitInstallation::of(&shim).unwrap();
        assert!(found.directory.join("git").is_file() && !found.directory.starts_with(dir.path()));
        let (manager, link) = (dir.path().join("manager"), dir.path().join("bin"));
        std::fs::rename(&shim, &manager).unwrap();
        std::fs::create_dir(&link).unwrap();
        symlink(&manager, link.join("git")).unwrap();
        assert_eq!(GitInstallation::of(&link.join("git")), Some(found));
        // One that does not say where git is remains as it is.
        script(&manager, "exit 1");
        let found = GitInstallation::of(&link.join("git")).unwrap();
        assert_eq!(found.directory, dir.path().canonicalize().unwrap());
    }

    #[test]
    fn a_program_elsewhere_has_its_own_directories() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("bin")).unwrap();
        let git = root.join("bin/git");
        std::fs::copy(std::env::current_exe().unwrap(), &git).unwrap();
        let found = GitInstallation::of(&git).unwrap();
        assert_eq!(found.directory, root.join("bin"));
        for path in [root.join("libexec"), git] {
            assert!(found.read.contains(&path), "{found:?}");
        }
    }
}
