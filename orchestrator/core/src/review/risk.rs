//! How much attention a hunk needs: a table of rules, each with its weight and its reason.

use std::collections::BTreeSet;
use std::path::Path;

use base::credentials;
use studio_git::entry_mode;
use studio_git::hunks::{DiffHunk, FilePatch, LineOrigin};

use crate::check_files::CheckFile;
use crate::review::overlap::Overlaps;

/// The risk of a hunk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Risk {
    /// The sum of the weights of its reasons.
    pub score: u32,
    /// The reasons, the heaviest first.
    pub reasons: Vec<RiskReason>,
}

/// Why a hunk needs attention.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RiskReason {
    /// The rule.
    pub rule: &'static str,
    /// The text for the user.
    pub text: String,
}

/// A rule: a hunk to which it applies needs more attention.
pub struct RiskRule {
    /// The name, as in JSON.
    pub name: &'static str,
    /// How much it adds to the score.
    pub weight: u32,
    /// Returns the reason if it applies.
    pub reason: fn(&HunkContext<'_>) -> Option<String>,
}

/// All rules, the heaviest first.
pub static RULES: &[RiskRule] = &[
    // More than all others together: these changes decide whether the checks mean anything.
    RiskRule { name: "check_file", weight: 300, reason: check_file },
    RiskRule { name: "secret", weight: 50, reason: secret },
    RiskRule { name: "authentication", weight: 40, reason: authentication },
    RiskRule { name: "build", weight: 35, reason: build },
    RiskRule { name: "migration", weight: 35, reason: migration },
    RiskRule { name: "public_api", weight: 30, reason: public_api },
    RiskRule { name: "same_lines", weight: 30, reason: same_lines },
    RiskRule { name: "file_kind", weight: 25, reason: file_kind },
    RiskRule { name: "deletion", weight: 20, reason: deletion },
    RiskRule { name: "same_file", weight: 10, reason: same_file },
    RiskRule { name: "no_test", weight: 10, reason: no_test },
];

/// A hunk and what surrounds it.
pub struct HunkContext<'a> {
    /// Its file.
    pub file: &'a FilePatch,
    /// The hunk.
    pub hunk: &'a DiffHunk,
    /// The changed files that decide what the checks say.
    pub check_files: &'a [CheckFile],
    /// What the changed tests mention.
    pub tests: &'a TestedModules,
    /// The changes of other sessions.
    pub overlaps: &'a Overlaps,
}

/// Applies all rules.
pub fn assess(context: &HunkContext<'_>) -> Risk {
    let mut risk = Risk::default();
    for rule in RULES {
        if let Some(text) = (rule.reason)(context) {
            risk.score += rule.weight;
            risk.reasons.push(RiskReason { rule: rule.name, text });
        }
    }
    risk
}

impl HunkContext<'_> {
    fn path(&self) -> &Path {
        &self.file.path
    }

    fn changed_lines(&self) -> impl Iterator<Item = &str> {
        let changed = self.hunk.lines.iter().filter(|line| line.origin != LineOrigin::Context);
        changed.map(|line| line.text.as_str())
    }
}

fn check_file(context: &HunkContext<'_>) -> Option<String> {
    let paths = [Some(context.path()), context.file.old_path.as_deref()];
    let mut paths = paths.into_iter().flatten().map(Path::to_string_lossy);
    let file = paths.find_map(|path| context.check_files.iter().find(|file| file.path == path))?;
    Some(format!("decides what the checks say: {}", file.reason))
}

fn secret(context: &HunkContext<'_>) -> Option<String> {
    let added = context.hunk.lines.iter().filter(|line| line.origin == LineOrigin::Added);
    let found = |text: &str| {
        let private_key = || credentials::private_key_start(text).map(|_| "a private key");
        credentials::find(text).or_else(private_key)
    };
    let description = added.map(|line| line.text.as_str()).find_map(found)?;
    Some(format!("adds what looks like {description}"))
}

/// Words of identifiers and paths that concern access.
const ACCESS_WORDS: &[&str] = &[
    "auth",
    "authenticate",
    "authenticated",
    "authentication",
    "authorize",
    "authorized",
    "authorization",
    "certificate",
    "chmod",
    "chown",
    "cors",
    "credential",
    "credentials",
    "crypto",
    "csrf",
    "decrypt",
    "encrypt",
    "hmac",
    "jwt",
    "login",
    "logout",
    "oauth",
    "passwd",
    "password",
    "passwords",
    "permission",
    "permissions",
    "privilege",
    "privileges",
    "sandbox",
    "secret",
    "secrets",
    "setuid",
    "sudo",
    "tls",
    "unsafe",
];

fn authentication(context: &HunkContext<'_>) -> Option<String> {
    let path = context.path().to_string_lossy();
    if let Some(word) = words(&path).find(|word| ACCESS_WORDS.contains(&word.as_str())) {
        return Some(format!("access: the path has `{word}`"));
    }
    if is_document(context.path()) {
        return None;
    }
    let mut found = context.changed_lines().flat_map(words);
    let word = found.find(|word| ACCESS_WORDS.contains(&word.as_str()))?;
    Some(format!("access: `{word}`"))
}

/// Names of files that decide what is built, or run without being called.
const BUILD_FILES: &[&str] = &[
    ".gitattributes",
    ".gitmodules",
    ".npmrc",
    "build.gradle",
    "build.gradle.kts",
    "build.rs",
    "cargo.toml",
    "cmakelists.txt",
    "configure",
    "conftest.py",
    "deny.toml",
    "dockerfile",
    "flake.nix",
    "gemfile",
    "go.mod",
    "gulpfile.js",
    "jenkinsfile",
    "justfile",
    "makefile",
    "meson.build",
    "package.json",
    "pom.xml",
    "procfile",
    "pyproject.toml",
    "rust-toolchain.toml",
    "setup.cfg",
    "setup.py",
    "tox.ini",
    "vite.config.ts",
    "webpack.config.js",
];

/// Directories of continuous integration and of hooks.
const BUILD_DIRECTORIES: &[&str] =
    &[".buildkite", ".cargo", ".ci", ".circleci", ".devcontainer", ".github", ".gitlab", ".husky"];

/// Directories of the settings of agents, with their hooks and permissions.
const AGENT_DIRECTORIES: &[&str] =
    &[".claude", ".codex", ".cursor", ".gemini", ".opencode", ".qwen"];

fn build(context: &HunkContext<'_>) -> Option<String> {
    let name = lower_name(context.path());
    let is_in = |directories: &[&str]| {
        let mut parts = context.path().components();
        parts.any(|part| directories.contains(&part.as_os_str().to_string_lossy().as_ref()))
    };
    if is_in(AGENT_DIRECTORIES) {
        return Some("settings of an agent".to_owned());
    }
    let is_build = BUILD_FILES.contains(&name.as_str())
        || is_in(BUILD_DIRECTORIES)
        || name.starts_with("requirements") && name.ends_with(".txt")
        || name.starts_with("dockerfile.")
        || name.starts_with(".gitlab-ci")
        || [".mk", ".cmake", ".tf"].iter().any(|end| name.ends_with(end));
    is_build.then(|| "build or CI file".to_owned())
}

fn migration(context: &HunkContext<'_>) -> Option<String> {
    let mut parts = context.path().components();
    let in_directory = parts.any(|part| {
        matches!(
            part.as_os_str().to_string_lossy().as_ref(),
            "migrations" | "migrate" | "migration"
        )
    });
    let is_sql = extension(context.path()) == "sql";
    (in_directory || is_sql).then(|| "database migration".to_owned())
}

fn public_api(context: &HunkContext<'_>) -> Option<String> {
    let path = context.path();
    if is_test_path(path) {
        return None;
    }
    let extension = extension(path);
    let name = lower_name(path);
    let is_interface = matches!(extension.as_str(), "proto" | "graphql" | "thrift")
        || name.ends_with(".d.ts")
        || name.starts_with("openapi.");
    if is_interface {
        return Some("public API: interface file".to_owned());
    }
    let line = context.changed_lines().find(|line| declares_public(&extension, line))?;
    Some(format!("public API: `{}`", base::text::head(line.trim(), 60)))
}

/// Returns whether a line declares something that other packages can use.
fn declares_public(extension: &str, line: &str) -> bool {
    let text = line.trim_start();
    let is_top_level = text.len() == line.len();
    let starts_upper = |rest: &str| rest.starts_with(|c: char| c.is_uppercase());
    match extension {
        "rs" => text.starts_with("pub "),
        "js" | "jsx" | "ts" | "tsx" | "mjs" | "cjs" => {
            text.starts_with("export ") || text.starts_with("module.exports")
        }
        "go" => {
            let function = text.strip_prefix("func ").map(|rest| match rest.strip_prefix('(') {
                Some(receiver) => receiver.split_once(") ").map_or("", |(_, name)| name),
                None => rest,
            });
            let declared = ["type ", "var ", "const "].iter().find_map(|it| text.strip_prefix(it));
            is_top_level && function.or(declared).is_some_and(starts_upper)
        }
        "py" => {
            let name = ["def ", "async def ", "class "].iter().find_map(|it| text.strip_prefix(it));
            is_top_level && name.is_some_and(|name| !name.starts_with('_'))
        }
        "java" | "kt" | "cs" | "swift" | "scala" | "php" => {
            text.starts_with("public ") || text.starts_with("open ")
        }
        "h" | "hpp" | "hh" => is_top_level && text.ends_with(");"),
        _ => false,
    }
}

fn same_lines(context: &HunkContext<'_>) -> Option<String> {
    let sessions = context.overlaps.same_lines(context.file, context.hunk);
    (!sessions.is_empty()).then(|| format!("also changed here by {}", sessions.join(", ")))
}

fn same_file(context: &HunkContext<'_>) -> Option<String> {
    let lines = context.overlaps.same_lines(context.file, context.hunk);
    let mut sessions = context.overlaps.same_file(context.file);
    sessions.retain(|session| !lines.contains(session));
    (!sessions.is_empty()).then(|| format!("file also changed by {}", sessions.join(", ")))
}

fn file_kind(context: &HunkContext<'_>) -> Option<String> {
    let file = context.file;
    let is_executable = |mode: u32| entry_mode::is_file(mode) && mode & 0o111 != 0;
    let (old, new) = (file.old.map(|entry| entry.mode), file.new?.mode);
    let is_same_kind = |old: u32| entry_mode::kind(old) == entry_mode::kind(new);
    if !entry_mode::is_file(new) && !old.is_some_and(is_same_kind) {
        let is_symlink = entry_mode::kind(new) == entry_mode::SYMLINK;
        return Some(if is_symlink { "symlink" } else { "submodule" }.to_owned());
    }
    if is_executable(new) && !old.is_some_and(is_executable) {
        return Some("becomes executable".to_owned());
    }
    file.binary.then(|| "binary file".to_owned())
}

/// The number of lines by which removals must exceed additions to count as a deletion.
const DELETED_LINES: usize = 10;

fn deletion(context: &HunkContext<'_>) -> Option<String> {
    if context.file.new.is_none() {
        return Some("deletes the file".to_owned());
    }
    let of = |origin: LineOrigin| context.hunk.lines.iter().filter(move |it| it.origin == origin);
    let starts_test = |text: &str| {
        ["#[test]", "def test_", "it(", "test(", "func Test", "@Test"]
            .iter()
            .any(|start| text.trim_start().starts_with(start))
    };
    let tests = |origin| of(origin).filter(|line| starts_test(&line.text)).count();
    if tests(LineOrigin::Removed) > tests(LineOrigin::Added) {
        return Some("deletes a test".to_owned());
    }
    let (added, removed) = context.hunk.line_counts();
    (removed >= added + DELETED_LINES).then(|| format!("deletes {} lines", removed - added))
}

fn no_test(context: &HunkContext<'_>) -> Option<String> {
    let path = context.path();
    let is_code = CODE_EXTENSIONS.contains(&extension(path).as_str()) && !is_test_path(path);
    (is_code && !context.tests.mention(path)).then(|| "no changed test mentions it".to_owned())
}

const CODE_EXTENSIONS: &[&str] = &[
    "c", "cc", "cpp", "cs", "go", "h", "hpp", "hs", "java", "js", "jsx", "kt", "lua", "mjs", "php",
    "pl", "py", "rb", "rs", "scala", "sh", "swift", "ts", "tsx",
];

/// What the changed tests of a session mention.
#[derive(Debug, Default)]
pub struct TestedModules {
    words: BTreeSet<String>,
    /// Files in which a test changed.
    files: BTreeSet<std::path::PathBuf>,
}

impl TestedModules {
    /// Reads the changed tests.
    pub fn of(files: &[FilePatch]) -> TestedModules {
        let mut tested = TestedModules::default();
        for file in files {
            let lines = || file.hunks.iter().flat_map(|hunk| &hunk.lines);
            if is_test_path(&file.path) {
                tested.words.extend(words(&file.path.to_string_lossy()));
                tested.words.extend(lines().flat_map(|line| words(&line.text)));
            } else if file.hunks.iter().any(has_inline_test) {
                tested.files.insert(file.path.clone());
            }
        }
        tested
    }

    fn mention(&self, path: &Path) -> bool {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().to_lowercase();
        let is_generic = matches!(stem.as_str(), "mod" | "lib" | "main" | "index" | "__init__");
        let parent = path.parent().and_then(Path::file_name);
        let module = match is_generic {
            true => parent.map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default(),
            false => stem,
        };
        let mut parts = words(&module).peekable();
        self.files.contains(path)
            || parts.peek().is_some() && parts.all(|word| self.words.contains(&word))
    }
}

/// Returns whether a hunk changes a test inside a file of the code.
fn has_inline_test(hunk: &DiffHunk) -> bool {
    let changed = hunk.lines.iter().filter(|line| line.origin == LineOrigin::Added);
    let is_test = |text: &str| text.contains("#[test]") || text.contains("assert");
    hunk.heading.starts_with("mod tests") || changed.map(|line| line.text.as_str()).any(is_test)
}

/// Returns whether a path is that of a test.
pub(crate) fn is_test_path(path: &Path) -> bool {
    let mut directories = path.parent().into_iter().flat_map(Path::components);
    let in_directory = directories.any(|part| {
        matches!(
            part.as_os_str().to_string_lossy().as_ref(),
            "test" | "tests" | "__tests__" | "spec" | "testdata"
        )
    });
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let stem = name.split('.').next().unwrap_or_default();
    in_directory
        || stem.starts_with("test_")
        || stem.ends_with("_test")
        || stem.ends_with("_spec")
        || stem.ends_with("Test")
        || stem.ends_with("Tests")
        || name.contains(".test.")
        || name.contains(".spec.")
}

fn is_document(path: &Path) -> bool {
    matches!(extension(path).as_str(), "md" | "txt" | "rst" | "adoc")
}

pub(crate) fn extension(path: &Path) -> String {
    path.extension().unwrap_or_default().to_string_lossy().to_lowercase()
}

pub(crate) fn lower_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().to_lowercase()
}

/// Returns the lower-case words of a text: identifiers are split at `_` and before upper-case
/// letters.
fn words(text: &str) -> impl Iterator<Item = String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut was_lower = false;
    for c in text.chars() {
        let ends_word = !c.is_alphanumeric() || c.is_uppercase() && was_lower;
        if ends_word && !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
        if c.is_alphanumeric() {
            word.extend(c.to_lowercase());
        }
        was_lower = c.is_lowercase();
    }
    if !word.is_empty() {
        words.push(word);
    }
    words.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;
    use studio_git::checkout::FileEntry;
    use studio_git::hunks::{DiffLine, LineSpan};

    /// A changed file with one hunk: lines with their mark `+`, `-` or ` `.
    fn file(path: &str, lines: &[&str]) -> FilePatch {
        let line = |text: &&str| DiffLine {
            origin: match &text[..1] {
                "+" => LineOrigin::Added,
                "-" => LineOrigin::Removed,
                _ => LineOrigin::Context,
            },
            old: None,
            new: None,
            text: text[1..].to_owned(),
            has_newline: true,
        };
        let none = LineSpan::default();
        let lines = lines.iter().map(line).collect();
        let hunk =
            DiffHunk { id: String::new(), old: none, new: none, heading: String::new(), lines };
        let entry = |digit: u8| {
            let id = git2::Oid::from_bytes(&[digit; 20]).unwrap();
            Some(FileEntry { id, mode: entry_mode::FILE })
        };
        FilePatch {
            old_path: Some(path.into()),
            path: path.into(),
            old: entry(1),
            new: entry(2),
            binary: false,
            hunks: vec![hunk],
        }
    }

    fn rules_of(file: &FilePatch, others: &[FilePatch]) -> Vec<&'static str> {
        let context = HunkContext {
            file,
            hunk: &file.hunks[0],
            check_files: &[CheckFile { path: "ci/check.sh".into(), reason: String::new() }],
            tests: &TestedModules::of(others),
            overlaps: &Overlaps::default(),
        };
        assess(&context).reasons.into_iter().map(|reason| reason.rule).collect()
    }

    fn rules(path: &str, lines: &[&str]) -> Vec<&'static str> {
        rules_of(&file(path, lines), &[file("tests/all.rs", &["+a b lib x core app"])])
    }

    #[test]
    fn each_rule_applies_to_its_changes_only() {
        assert_eq!(rules("src/a.rs", &["+let x = 1;", " check_password();"]), [""; 0]);
        assert_eq!(rules("src/a.rs", &["+check_password();"]), ["authentication"]);
        assert_eq!(rules("ci/check.sh", &["+x"]), ["check_file", "no_test"]);
        assert_eq!(rules("src/a.ts", &["-verifyJwt(x)"]), ["authentication"]);
        assert_eq!(rules("docs/a.md", &["+change your password"]), [""; 0]);
        assert_eq!(rules("src/a.rs", &["+author = 1"]), [""; 0], "words, not parts of words");
        assert_eq!(rules("src/oauth/a.rs", &["+x"]), ["authentication"]);
        let key = format!("url = \"glpat-{}\"", "a1B2c3D4e5F6g7H8i9J0");
        assert_eq!(rules("conf.ini", &[&format!("+{key}")]), ["secret"]);
        assert_eq!(rules("conf.ini", &[&format!("-{key}")]), [""; 0]);
        for build in [
            "Cargo.toml",
            "a/package.json",
            ".github/workflows/x.yml",
            "x.mk",
            ".qwen/settings.json",
        ] {
            assert_eq!(rules(build, &["+x"]), ["build"], "{build}");
        }
        assert_eq!(rules("db/migrations/1.rb", &["+x"])[0], "migration");
        assert_eq!(rules("src/a.rs", &["+pub fn x() {}"]), ["public_api"]);
        assert_eq!(rules("src/a.rs", &["+pub(crate) fn x() {}"]), [""; 0]);
        assert_eq!(rules("a.go", &["-func (s *S) Close() error {"]), ["public_api"]);
        assert_eq!(rules("a.go", &["-func close() error {"]), [""; 0]);
        assert_eq!(rules("a.py", &["+def x():"]), ["public_api"]);
        assert_eq!(rules("a.py", &["+    def x():", "+def _y():"]), [""; 0]);
        assert_eq!(rules("tests/a.rs", &["+pub fn x() {}"]), [""; 0]);
        assert_eq!(rules("tests/a.rs", &["-#[test]"]), ["deletion"]);
        assert_eq!(rules("src/a.rs", &["-x"; 10]), ["deletion"]);
        assert_eq!(rules("src/a.rs", &["-x"; 9]), [""; 0]);
        let mut script = file("a.sh", &["+x"]);
        script.new.as_mut().unwrap().mode = entry_mode::EXECUTABLE;
        assert_eq!(rules_of(&script, &[file("test/a", &["+a"])]), ["file_kind"]);
        script.new = None;
        assert_eq!(rules_of(&script, &[file("test/a", &["+a"])]), ["deletion"]);
    }

    #[test]
    fn code_without_a_changed_test_is_named() {
        let code = file("src/parser/mod.rs", &["+x"]);
        assert_eq!(rules_of(&code, &[]), ["no_test"]);
        assert_eq!(rules_of(&code, &[file("tests/other.rs", &["+lexer"])]), ["no_test"]);
        assert_eq!(rules_of(&code, &[file("tests/parser.rs", &["+x"])]), [""; 0]);
        assert_eq!(rules_of(&code, &[file("tests/all.rs", &["+use app::parser;"])]), [""; 0]);
        assert_eq!(rules_of(&code, &[file("src/parser/mod.rs", &["+assert_eq!(1, 1);"])]), [""; 0]);
        assert_eq!(rules_of(&file("README.md", &["+x"]), &[]), [""; 0]);
    }

    #[test]
    fn rules_are_named_once_and_ordered_by_weight() {
        for pair in RULES.windows(2) {
            assert!(pair[0].weight >= pair[1].weight && pair[0].name != pair[1].name);
        }
    }
}
