//! The files that decide what a check says: the scripts that the checks name, and the
//! configuration of build tools and test runners. An agent that changes one can make a check pass
//! without making the work correct, so these changes are named before the work lands.

mod named_files;
mod sections;

use std::path::Path;

use base::failure::{OrFail, Result};
use serde::Serialize;
use studio_git::patch::Comparison;
use studio_git::{refs, tree_diff};

use crate::check_files::named_files::NamedFiles;
use crate::project::Project;
use crate::session::record::SessionRecord;

/// Maximum number of files in one sentence.
const FILES_SHOWN: usize = 8;

/// A changed file that decides what a check says.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct CheckFile {
    /// The path; bytes that are not UTF-8 are replaced.
    pub path: String,
    /// Why it decides.
    pub reason: String,
}

/// A file that a tool obeys, by its name or its path.
struct ToolFile {
    /// A file name, a path from any directory on (`.config/nextest.toml`), or a directory with
    /// everything in it (`.husky/`), in lower case. `*` matches any characters of a name.
    pattern: &'static str,
    /// The tool.
    tool: &'static str,
    /// The parts of the file that decide; the whole file if empty.
    sections: &'static [&'static str],
}

const fn tool(pattern: &'static str, tool: &'static str) -> ToolFile {
    ToolFile { pattern, tool, sections: &[] }
}

/// All files that tools obey. A name in `sections` is a key of the file, or a key below it.
static TOOL_FILES: &[ToolFile] = &[
    tool("g3.toml", "studio"),
    tool(".gitattributes", "git"),
    ToolFile { pattern: "cargo.toml", tool: "cargo", sections: sections::CARGO },
    tool(".cargo/config.toml", "cargo"),
    tool(".cargo/config", "cargo"),
    tool("build.rs", "cargo"),
    tool("rust-toolchain", "rustup"),
    tool("rust-toolchain.toml", "rustup"),
    tool(".config/nextest.toml", "nextest"),
    tool("clippy.toml", "clippy"),
    tool(".clippy.toml", "clippy"),
    tool("rustfmt.toml", "rustfmt"),
    tool(".rustfmt.toml", "rustfmt"),
    tool("deny.toml", "cargo-deny"),
    ToolFile { pattern: "package.json", tool: "npm", sections: sections::NPM },
    tool(".npmrc", "npm"),
    tool(".yarnrc", "yarn"),
    tool(".yarnrc.yml", "yarn"),
    tool(".yarn/", "yarn"),
    tool(".pnpmfile.cjs", "pnpm"),
    tool("pnpm-workspace.yaml", "pnpm"),
    tool("jest.config.*", "jest"),
    tool("jest.setup.*", "jest"),
    tool("vitest.config.*", "vitest"),
    tool("vitest.setup.*", "vitest"),
    tool("vitest.workspace.*", "vitest"),
    tool("vite.config.*", "vite"),
    tool(".mocharc*", "mocha"),
    tool("ava.config.*", "ava"),
    tool("karma.conf.*", "karma"),
    tool("playwright.config.*", "playwright"),
    tool("cypress.config.*", "cypress"),
    tool("babel.config.*", "babel"),
    tool(".babelrc*", "babel"),
    tool("webpack.config.*", "webpack"),
    tool("tsconfig*.json", "tsc"),
    tool("eslint.config.*", "eslint"),
    tool(".eslintrc*", "eslint"),
    tool("biome.json*", "biome"),
    tool("bunfig.toml", "bun"),
    tool("deno.json*", "deno"),
    tool("turbo.json", "turbo"),
    tool("nx.json", "nx"),
    ToolFile { pattern: "pyproject.toml", tool: "python", sections: sections::PYTHON },
    tool("pytest.ini", "pytest"),
    tool(".pytest.ini", "pytest"),
    tool("conftest.py", "pytest"),
    tool("tox.ini", "tox"),
    tool("noxfile.py", "nox"),
    tool("setup.cfg", "python"),
    tool("setup.py", "python"),
    tool("sitecustomize.py", "python"),
    tool("usercustomize.py", "python"),
    tool("*.pth", "python"),
    tool(".coveragerc", "coverage"),
    tool("mypy.ini", "mypy"),
    tool(".mypy.ini", "mypy"),
    tool("ruff.toml", "ruff"),
    tool(".ruff.toml", "ruff"),
    tool(".flake8", "flake8"),
    tool(".pylintrc", "pylint"),
    tool("pylintrc", "pylint"),
    tool("go.work", "go"),
    tool(".golangci.*", "golangci-lint"),
    tool("build.gradle*", "gradle"),
    tool("settings.gradle*", "gradle"),
    tool("gradle.properties", "gradle"),
    tool("gradle/wrapper/", "gradle"),
    tool("gradlew", "gradle"),
    tool("pom.xml", "maven"),
    tool(".mvn/", "maven"),
    tool("mvnw", "maven"),
    tool("rakefile", "rake"),
    tool(".rspec", "rspec"),
    tool(".rubocop.yml", "rubocop"),
    tool("phpunit.xml*", "phpunit"),
    tool("cmakelists.txt", "cmake"),
    tool("*.cmake", "cmake"),
    tool("meson.build", "meson"),
    tool("configure", "make"),
    tool("configure.ac", "make"),
    tool("makefile", "make"),
    tool("gnumakefile", "make"),
    tool("*.mk", "make"),
    tool("justfile", "just"),
    tool(".justfile", "just"),
    tool("taskfile.y*ml", "task"),
    tool("mise.toml", "mise"),
    tool(".mise.toml", "mise"),
    tool(".tool-versions", "mise"),
    tool(".nvmrc", "nvm"),
    tool(".node-version", "node"),
    tool(".python-version", "python"),
    tool(".envrc", "direnv"),
    tool("flake.nix", "nix"),
    tool("shell.nix", "nix"),
    tool("dockerfile*", "docker"),
    tool(".pre-commit-config.yaml", "pre-commit"),
    tool("lefthook.y*ml", "lefthook"),
    tool(".husky/", "husky"),
    tool(".github/workflows/", "CI"),
    tool(".github/actions/", "CI"),
    tool(".gitlab-ci*", "CI"),
    tool(".circleci/", "CI"),
    tool(".buildkite/", "CI"),
    tool(".travis.yml", "CI"),
    tool(".drone.yml", "CI"),
    tool(".woodpecker*", "CI"),
    tool("azure-pipelines*", "CI"),
    tool("bitbucket-pipelines.yml", "CI"),
    tool("appveyor.yml", "CI"),
    tool("jenkinsfile*", "CI"),
];

/// Returns the lines that prepare and check the work of a session.
pub fn lines(project: &Project, record: &SessionRecord) -> Vec<String> {
    let studio = &project.config.studio;
    let mut lines = record.checks.clone();
    for line in studio.checks.list().into_iter().chain(studio.setup.list()) {
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines
}

/// Returns the files that decide what these check lines say and that differ between both states.
pub fn changed_in(comparison: &Comparison, lines: &[String]) -> Result<Vec<CheckFile>> {
    changed(&comparison.open()?, &comparison.from, &comparison.to, lines)
}

/// Like [`changed_in`], between two commits or trees of a repository.
pub fn changed(
    repo: &git2::Repository,
    from: &str,
    to: &str,
    lines: &[String],
) -> Result<Vec<CheckFile>> {
    let cannot = || "cannot look for changed files of the checks";
    let tree = |id: &str| -> Result<git2::Tree<'_>> {
        let object = repo.find_object(refs::oid(id)?, None).or_fail(cannot)?;
        object.peel_to_tree().or_fail(cannot)
    };
    let (old, new) = (tree(from)?, tree(to)?);
    let diff = tree_diff::diff_trees(repo, Some(&old), Some(&new), git2::DiffOptions::new())
        .or_fail(cannot)?;
    let mut named = None;
    let mut found = Vec::new();
    for delta in diff.deltas() {
        // Renames are not detected here, so that both sides have the same path.
        let Some(path) = delta.new_file().path() else { continue };
        let contents = || {
            let blob = |id: git2::Oid| repo.find_blob(id).ok();
            let text = |id| blob(id).map(|blob| String::from_utf8_lossy(blob.content()).into());
            (text(delta.old_file().id()), text(delta.new_file().id()))
        };
        let named = named.get_or_insert_with(|| NamedFiles::of(repo, &old, &new, lines));
        if let Some(reason) = named.reason(path).or_else(|| tool_reason(path, contents)) {
            found.push(CheckFile { path: path.to_string_lossy().into_owned(), reason });
        }
    }
    found.sort();
    // A file that becomes a symlink is reported as removed and added.
    found.dedup_by(|one, other| one.path == other.path);
    Ok(found)
}

/// Returns the files in one sentence; `None` without files.
pub fn sentence(files: &[CheckFile]) -> Option<String> {
    if files.is_empty() {
        return None;
    }
    let describe = |file: &CheckFile| {
        let path = base::text::printable(&file.path).replace('\n', "\\n");
        format!("{path} ({})", base::text::printable(&file.reason).replace('\n', "\\n"))
    };
    let shown: Vec<String> = files.iter().take(FILES_SHOWN).map(describe).collect();
    let more = match files.len() - shown.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Some(format!("the work changes what the checks run or obey: {}{more}", shown.join(", ")))
}

/// Returns why a file of the table decides, given both contents.
fn tool_reason(
    path: &Path,
    contents: impl FnOnce() -> (Option<String>, Option<String>),
) -> Option<String> {
    let path = path.to_string_lossy().to_lowercase();
    let file = TOOL_FILES.iter().find(|file| matches_path(file.pattern, &path))?;
    if file.sections.is_empty() {
        return Some(format!("read by {}", file.tool));
    }
    let (old, new) = contents();
    let changed = sections::changed(&path, old.as_deref(), new.as_deref(), file.sections);
    (!changed.is_empty()).then(|| format!("read by {}: {}", file.tool, changed.join(", ")))
}

/// Returns whether the end of a path matches a pattern; for a directory, any part of it.
fn matches_path(pattern: &str, path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    let wanted: Vec<&str> = pattern.trim_end_matches('/').split('/').collect();
    let matches_at = |parts: &[&str]| {
        parts.len() == wanted.len()
            && parts.iter().zip(&wanted).all(|(part, wanted)| matches_name(wanted, part))
    };
    match pattern.ends_with('/') {
        true => parts[..parts.len() - 1].windows(wanted.len()).any(matches_at),
        false => parts.windows(wanted.len()).last().is_some_and(matches_at),
    }
}

/// Returns whether a name matches a pattern with at most one `*`.
fn matches_name(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((start, end)) => {
            name.len() >= start.len() + end.len() && name.starts_with(start) && name.ends_with(end)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(path: &str, old: &str, new: &str) -> Option<String> {
        tool_reason(Path::new(path), || (Some(old.to_owned()), Some(new.to_owned())))
    }

    #[test]
    fn files_of_tools_are_known_by_name_path_or_directory_in_any_case() {
        for path in [
            "Makefile",
            "sub/GNUmakefile",
            "x.mk",
            "a/.cargo/config.toml",
            ".Cargo/Config.toml",
            ".config/nextest.toml",
            "web/jest.config.mjs",
            "tests/conftest.py",
            ".husky/pre-commit",
            "a/.github/workflows/ci.yml",
            "tsconfig.base.json",
            "Dockerfile.test",
        ] {
            assert!(reason(path, "", "").is_some(), "{path}");
        }
        for path in [
            "src/main.rs",
            "config.toml",
            "nextest.toml",
            ".husky",
            "workflows/ci.yml",
            "Makefile.md",
            "src/makefile.rs",
            "jest.config",
            "my-package.json",
        ] {
            assert_eq!(reason(path, "", ""), None, "{path}");
        }
    }

    #[test]
    fn patterns_are_in_lower_case_and_have_at_most_one_star_in_a_name() {
        for file in TOOL_FILES {
            assert_eq!(file.pattern, file.pattern.to_lowercase());
            let stars = |part: &str| part.matches('*').count();
            assert!(file.pattern.split('/').all(|part| stars(part) <= 1), "{}", file.pattern);
        }
    }

    #[test]
    fn a_sentence_names_the_files_and_shows_control_characters() {
        let file = |path: &str| CheckFile { path: path.into(), reason: "read by make".into() };
        assert_eq!(sentence(&[]), None);
        let text = sentence(&[file("a\u{202e}\nb")]).unwrap();
        assert!(!text.contains('\n') && !text.contains('\u{202e}'), "{text}");
        let many: Vec<CheckFile> = (0..10).map(|n| file(&n.to_string())).collect();
        assert!(sentence(&many).unwrap().ends_with("and 2 more"));
    }
}
