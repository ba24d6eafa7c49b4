//! The difference between two states of the files in git's format, as a stream. Runs no program
//! that a repository names, and ignores attributes that would hide changes.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write as _;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use base::failure::{Failure, OrFail, Result};
use base::git::Git;
use base::process::{Command, OutputLimits};

use crate::object_quarantine::Quarantine;
use crate::repo::Repository;
use crate::stage::is_g3s_own;
use crate::{object_format, refs};

/// Two states of the files, and the location of their objects.
pub struct Comparison {
    /// The commit to compare with.
    pub from: String,
    /// The commit or tree with the work.
    pub to: String,
    git_dir: PathBuf,
    objects: Vec<PathBuf>,
    /// Keeps the objects of a worktree that was not imported.
    _scratch: Option<Quarantine>,
}

/// The format of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchForm {
    /// A patch for `git apply`, exact to the byte: with the data of binary files.
    Applicable,
    /// A patch for people: binary files are only reported as different.
    Readable,
    /// One line per file, in this many columns.
    Stat {
        /// The number of columns.
        width: u16,
    },
    /// The names of the changed files only.
    Names,
    /// Changed words, marked as `[-old-]{+new+}`.
    Words,
    /// Changed words in git's line format for programs.
    WordsForPrograms,
}

impl Comparison {
    /// Compares two commits of the repository.
    pub fn of_commits(repository: &Repository, from: &str, to: &str) -> Comparison {
        Comparison {
            from: from.to_owned(),
            to: to.to_owned(),
            git_dir: repository.common_dir.clone(),
            objects: Vec::new(),
            _scratch: None,
        }
    }

    /// Compares a commit of the repository with a tree whose objects are in a scratch directory, or
    /// among the session's objects.
    pub fn of_worktree(
        repository: &Repository,
        session_git_dir: &Path,
        scratch: Quarantine,
        from: &str,
        to: &str,
    ) -> Comparison {
        Comparison {
            from: from.to_owned(),
            to: to.to_owned(),
            git_dir: scratch.path().to_owned(),
            objects: vec![repository.common_dir.join("objects"), session_git_dir.join("objects")],
            _scratch: Some(scratch),
        }
    }

    /// Returns the git command that prints the difference of these paths to its stdout; of all
    /// files without paths.
    pub fn git_command(&self, form: PatchForm, paths: &[OsString]) -> Result<Command> {
        let mut args: Vec<OsString> = Vec::new();
        let is_readable = !matches!(form, PatchForm::Applicable);
        if is_readable {
            // Names are escaped for display later, and stay readable otherwise.
            args.extend(["-c", "core.quotePath=false"].map(OsString::from));
        }
        args.extend(["diff-tree", "-r", "-M", "--no-color"].map(OsString::from));
        let format_args: &[&str] = match form {
            PatchForm::Applicable => &["-p", "--binary", "--full-index"],
            PatchForm::Readable => &["-p"],
            PatchForm::Stat { .. } => &["--stat"],
            PatchForm::Names => &["--name-only"],
            PatchForm::Words => &["-p", "--word-diff=plain"],
            PatchForm::WordsForPrograms => &["-p", "--word-diff=porcelain"],
        };
        args.extend(format_args.iter().map(OsString::from));
        if let PatchForm::Stat { width } = form {
            args.push(format!("--stat-width={width}").into());
        }
        args.extend([OsString::from(&self.from), OsString::from(&self.to), "--".into()]);
        args.extend(paths.iter().cloned());
        args.extend(self.g3_exclusions()?);
        Ok(self.git(&args))
    }

    /// Returns pathspecs that exclude g3's own files, in case an agent committed some.
    fn g3_exclusions(&self) -> Result<Vec<OsString>> {
        let names = self.names(&[".g3".into()])?;
        let excluded = names.into_iter().filter(|name| is_g3s_own(Path::new(name)));
        Ok(excluded
            .map(|name| {
                let mut pathspec = OsString::from(":(exclude,top,literal)");
                pathspec.push(name);
                pathspec
            })
            .collect())
    }

    /// Returns the changed files, relative to the root; a renamed file with both names.
    fn names(&self, paths: &[OsString]) -> Result<Vec<OsString>> {
        let mut args: Vec<OsString> =
            ["diff-tree", "-r", "--no-renames", "--name-only", "-z"].map(OsString::from).into();
        args.extend([OsString::from(&self.from), OsString::from(&self.to), "--".into()]);
        args.extend(paths.iter().cloned());
        let output = self.git(&args).output(OutputLimits::seconds(600)).or_fail(cannot)?;
        let output = base::git::checked(&args, output).or_fail(cannot)?;
        let names = output.stdout.split(|byte| *byte == 0).filter(|name| !name.is_empty());
        Ok(names.map(|name| OsString::from_vec(name.to_owned())).collect())
    }

    fn git(&self, args: &[OsString]) -> Command {
        let empty_tree = object_format::empty_tree(object_format::of_id(&self.from));
        let mut command = Git::at(&self.git_dir).without_attributes(&empty_tree).command(args);
        if !self.objects.is_empty() {
            let quoted_paths: Vec<Vec<u8>> =
                self.objects.iter().map(|path| quote(path.as_os_str())).collect();
            let alternates = OsString::from_vec(quoted_paths.join(&b':'));
            command = command.env("GIT_ALTERNATE_OBJECT_DIRECTORIES", alternates);
        }
        command
    }

    /// Opens a repository that has the objects of both states.
    pub fn open(&self) -> Result<git2::Repository> {
        let repo = crate::repo::open_any(&self.git_dir).or_fail(cannot)?;
        {
            let odb = repo.odb().or_fail(cannot)?;
            for objects in &self.objects {
                odb.add_disk_alternate(&objects.to_string_lossy()).or_fail(cannot)?;
            }
        }
        Ok(repo)
    }

    /// Writes the changed files of both states below a directory, as `base/…` and `work/…`.
    /// Symlinks become files that contain their target.
    pub fn write_files(&self, paths: &[OsString], directory: &Path) -> Result<()> {
        let repo = self.open()?;
        let tree = |id: &str| -> Result<git2::Tree<'_>> {
            let object = repo.find_object(refs::oid(id)?, None).or_fail(cannot)?;
            object.peel_to_tree().or_fail(cannot)
        };
        let sides = [("base", tree(&self.from)?), ("work", tree(&self.to)?)];
        for (name, _) in &sides {
            fs::create_dir(directory.join(name)).or_fail(cannot)?;
        }
        for name in self.names(paths)? {
            let path = Path::new(&name);
            if is_g3s_own(path) || !is_inside(path) {
                continue;
            }
            for (side, tree) in &sides {
                let Ok(entry) = tree.get_path(path) else { continue };
                let Ok(blob) = repo.find_blob(entry.id()) else { continue };
                let target = directory.join(side).join(path);
                let parent = target.parent().unwrap_or(directory);
                let write = || {
                    fs::create_dir_all(parent)?;
                    fs::File::create_new(&target)?.write_all(blob.content())
                };
                write().or_fail(|| format!("cannot write {}", target.display()))?;
            }
        }
        Ok(())
    }
}

/// Returns whether a path of a tree stays below the directory that it is joined to.
fn is_inside(path: &Path) -> bool {
    path.components().all(|part| match part {
        std::path::Component::Normal(name) => !name.eq_ignore_ascii_case(".git"),
        _ => false,
    })
}

/// Quotes a path for a list of object directories, which git splits at colons.
fn quote(path: &OsStr) -> Vec<u8> {
    let mut quoted = vec![b'"'];
    for byte in path.as_bytes() {
        if matches!(byte, b'"' | b'\\') {
            quoted.push(b'\\');
        }
        quoted.push(*byte);
    }
    quoted.push(b'"');
    quoted
}

/// Converts a pathspec that is relative to a directory below the root to one that is relative to
/// the root; pathspecs with magic (`:…`) are unchanged.
pub fn root_relative(prefix: &Path, pathspec: &OsStr) -> Result<OsString> {
    if pathspec.as_bytes().starts_with(b":") {
        return Ok(pathspec.to_owned());
    }
    let mut path = prefix.to_owned();
    for part in Path::new(pathspec).components() {
        match part {
            std::path::Component::CurDir => {}
            std::path::Component::ParentDir if path.pop() => {}
            std::path::Component::Normal(name) => path.push(name),
            std::path::Component::ParentDir
            | std::path::Component::RootDir
            | std::path::Component::Prefix(_) => {
                return Err(Failure::usage(format!(
                    "`{}` is outside the repository",
                    Path::new(pathspec).display()
                ))
                .hint("name paths relative to the current directory"));
            }
        }
    }
    if path.as_os_str().is_empty() {
        return Ok(".".into());
    }
    Ok(path.into_os_string())
}

fn cannot() -> &'static str {
    "cannot compare the work with its base"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_relative_to_the_current_directory_and_stay_in_the_repository() {
        let convert = |prefix: &str, typed: &str| root_relative(Path::new(prefix), typed.as_ref());
        assert_eq!(convert("", "a/b").unwrap(), "a/b");
        assert_eq!(convert("src", "../docs/./x").unwrap(), "docs/x");
        assert_eq!(convert("src", ".").unwrap(), "src");
        assert_eq!(convert("", ".").unwrap(), ".");
        assert_eq!(convert("src", ":(top)*.md").unwrap(), ":(top)*.md");
        assert!(convert("src", "../../x").is_err() && convert("", "/etc").is_err());
    }

    #[test]
    fn no_path_of_a_tree_leaves_its_directory() {
        assert!(is_inside(Path::new("a/b")));
        for path in ["../a", "/a", "a/../../b", ".git/config", "a/.GIT/x"] {
            assert!(!is_inside(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn object_directories_are_quoted_as_git_reads_them() {
        assert_eq!(quote("/a:b\"c".as_ref()), b"\"/a:b\\\"c\"");
    }
}
