//! The write scope of a persona: globs over the working directory, enforced regardless of the
//! rules.

use std::path::{Path, PathBuf};

use base::failure::{Failure, Result};
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use super::write_targets::written_paths;
use super::{Access, paths, shell_parse};

/// The files that a persona may write. No other file in the directory may be written, with or
/// without a question.
#[derive(Clone, Debug)]
pub struct WriteScope {
    persona: String,
    cwd: PathBuf,
    /// A path must match a glob in each of these sets.
    sets: Vec<(String, GlobSet)>,
}

impl WriteScope {
    /// Creates the scope of a persona in a directory. Every list narrows it further.
    pub fn new(persona: &str, cwd: &Path, lists: &[Vec<String>]) -> Result<WriteScope> {
        let set = |globs: &Vec<String>| Ok((join_globs(globs), compile(persona, globs)?));
        let sets = lists.iter().map(set).collect::<Result<_>>()?;
        let cwd = paths::follow(cwd).unwrap_or_else(|_| cwd.to_owned());
        Ok(WriteScope { persona: persona.to_owned(), cwd, sets })
    }

    /// Returns why an access is denied, or `None` if the scope allows it.
    pub(crate) fn access_denial(&self, access: &Access, root: &Path) -> Option<String> {
        match access {
            Access::Read(_)
            | Access::Foreign { .. }
            | Access::Fetch { .. }
            | Access::Act(_)
            | Access::Screen { .. } => None,
            Access::Write(path) => self.write_denial(path),
            Access::Run { line, cwd, .. } => {
                let commands = shell_parse::parse(line);
                let words = commands.iter().flat_map(written_paths);
                let resolve_inside = |word: &str| {
                    let path = paths::resolve(cwd, word).ok()?;
                    // Paths outside are judged as without a scope.
                    paths::is_inside(&path, root).then_some(path)
                };
                let mut paths = words
                    .filter(|word| !word.contains('$'))
                    .filter_map(|word| resolve_inside(&word));
                paths.find_map(|path| self.write_denial(&path))
            }
        }
    }

    /// Whether the scope has no restrictions.
    pub fn is_unrestricted(&self) -> bool {
        self.sets.iter().all(|(globs, _)| globs == "**")
    }

    /// Returns why a file may not be written, or `None` if it may.
    pub fn write_denial(&self, path: &Path) -> Option<String> {
        let relative = path.strip_prefix(&self.cwd).ok();
        let matches = |set: &GlobSet| relative.is_some_and(|relative| set.is_match(relative));
        let (globs, _) = self.sets.iter().find(|(_, set)| !matches(set))?;
        let display_path = relative.unwrap_or(path).display();
        Some(match globs.is_empty() {
            true => format!("{} writes no files, and {display_path} is one", self.persona),
            false => format!(
                "{} may write {globs} only, and {display_path} is not among them",
                self.persona
            ),
        })
    }
}

fn join_globs(globs: &[String]) -> String {
    globs.join(", ")
}

fn compile(persona: &str, globs: &[String]) -> Result<GlobSet> {
    let invalid = |glob: &str, reason: String| {
        Failure::usage(format!("`{glob}` in `may_write` of {persona} is not a glob"))
            .because(reason)
    };
    let mut set = GlobSetBuilder::new();
    for glob in globs {
        let compiled = GlobBuilder::new(glob).literal_separator(true).build();
        set.add(compiled.map_err(|error| invalid(glob, error.to_string()))?);
    }
    set.build().map_err(|error| invalid(&join_globs(globs), error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(lists: &[&[&str]]) -> WriteScope {
        let owned = |globs: &&[&str]| globs.iter().map(|glob| (*glob).to_owned()).collect();
        WriteScope::new("ada", Path::new("/w"), &lists.iter().map(owned).collect::<Vec<_>>())
            .unwrap()
    }

    fn writes(scope: &WriteScope, path: &str) -> bool {
        scope.access_denial(&Access::Write(path.into()), Path::new("/w")).is_none()
    }

    #[test]
    fn unmatched_files_are_denied_by_name() {
        let scope = scope(&[&["docs/**", "README*"]]);
        assert!(writes(&scope, "/w/docs/a/b.md") && writes(&scope, "/w/README.md"));
        for path in ["/w/src/a.rs", "/w/sub/README.md", "/etc/README", "/w/docs2/x"] {
            assert!(!writes(&scope, path), "{path}");
        }
        let why =
            scope.access_denial(&Access::Write("/w/src/a.rs".into()), Path::new("/w")).unwrap();
        assert_eq!(why, "ada may write docs/**, README* only, and src/a.rs is not among them");
    }

    #[test]
    fn a_second_list_narrows_and_never_widens() {
        let scope = scope(&[&["docs/**"], &["**/*.md"]]);
        assert!(writes(&scope, "/w/docs/a.md"));
        assert!(!writes(&scope, "/w/docs/a.txt") && !writes(&scope, "/w/src/a.md"));
        assert!(!writes(&self::scope(&[&[]]), "/w/a"));
        assert!(self::scope(&[&["**"]]).is_unrestricted() && !scope.is_unrestricted());
    }

    #[test]
    fn files_named_by_a_command_are_checked() {
        let scope = scope(&[&["docs/**"]]);
        let refused = |line: &str| {
            let (line, cwd) = (line.to_owned(), PathBuf::from("/w"));
            scope
                .access_denial(
                    &Access::Run { line, cwd, confirm_destructive: false },
                    Path::new("/w"),
                )
                .is_some()
        };
        for line in [
            "echo x > src/a.rs",
            "cargo build && rm src/a.rs",
            "sed -i s/a/b/ src/a.rs",
            "git mv docs/a.md b.md",
            "sh -c 'tee -a src/x'",
            "cp docs/a /w/src/b",
        ] {
            assert!(refused(line), "{line}");
        }
        for line in
            ["cargo test", "echo x > docs/a.md", "cp src/a docs/b", "rm /tmp/x", "make 2>/dev/null"]
        {
            assert!(!refused(line), "{line}");
        }
    }
}
