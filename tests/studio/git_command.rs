//! Calls of the git program: no command that a repository plants is run.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use base::git::{Git, discover};
use base::git_version::{self, GitVersion};
use base::process::{Command, OutputLimits, find_program};
use testkit::env::TestEnv;
use testkit::repo::Repo;

use crate::fixtures::{Scene, studio};

/// A repository with every known way to make git run a command.
pub struct Planted {
    _env: Option<TestEnv>,
    repo: Repo,
    markers: PathBuf,
}

pub const ATTRIBUTES: &str = "*.txt filter=evil merge=evil diff=evil\n*.conv diff=conv\n\
                          *.eq filter=a=b\n*.proc filter=proc\n";

const HOOKS: &[&str] = &[
    "applypatch-msg",
    "commit-msg",
    "fsmonitor-watchman",
    "post-checkout",
    "post-commit",
    "post-index-change",
    "post-merge",
    "post-rewrite",
    "pre-auto-gc",
    "pre-commit",
    "pre-merge-commit",
    "prepare-commit-msg",
    "pre-rebase",
    "reference-transaction",
];

/// The location of the attributes that name the drivers.
#[derive(Clone, Copy, Debug)]
pub enum Attributes {
    Committed,
    InfoFile,
}

impl Planted {
    fn new(attributes: Attributes) -> Planted {
        let env = TestEnv::new();
        let repo = env.repo();
        let markers = env.home().join("markers");
        fs::create_dir(&markers).unwrap();
        for name in ["a.txt", "b.conv", "c.eq", "d.proc"] {
            repo.commit_file(name, "one\n");
        }
        if matches!(attributes, Attributes::Committed) {
            repo.commit_file(".gitattributes", ATTRIBUTES);
        }
        repo.git(["branch", "left"]);
        repo.git(["branch", "right"]);
        for side in ["left", "right"] {
            repo.git(["checkout", "-q", side]);
            repo.commit_file("a.txt", format!("{side}\n"));
        }
        repo.git(["checkout", "-q", "main"]);
        let planted = Planted { _env: Some(env), repo, markers };
        planted.plant(attributes);
        planted
    }

    /// Uses an existing repository.
    pub fn in_repository(repo: Repo, markers: PathBuf) -> Planted {
        Planted { _env: None, repo, markers }
    }

    pub fn plant(&self, attributes: Attributes) {
        if matches!(attributes, Attributes::InfoFile) {
            fs::write(self.repo.path().join(".git/info/attributes"), ATTRIBUTES).unwrap();
        }
        let settings = [
            ("filter.evil.clean", self.line("clean", "cat")),
            ("filter.evil.smudge", self.line("smudge", "cat")),
            ("filter.evil.required", "true".into()),
            ("filter.a=b.clean", self.line("clean-equals", "cat")),
            ("filter.a=b.smudge", self.line("smudge-equals", "cat")),
            ("filter.proc.process", self.line("process", "false")),
            ("merge.evil.driver", self.line("merge-driver", "false")),
            ("diff.evil.command", self.line("diff-command", "true")),
            ("diff.conv.textconv", self.line("textconv", "cat")),
            ("diff.external", self.line("diff-external", "true")),
            ("core.fsmonitor", self.line("fsmonitor", "false")),
            ("core.editor", self.line("editor", "false")),
            ("gpg.program", self.script("gpg")),
            ("commit.gpgSign", "true".into()),
            ("log.showSignature", "true".into()),
        ];
        for (key, value) in settings {
            self.repo.git(["config", key, &value]);
        }
        for hook in HOOKS {
            let file = self.repo.path().join(".git/hooks").join(hook);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            executable(&file, &format!("touch '{}'", self.marker(&format!("hook-{hook}"))));
        }
    }

    /// Creates a nested repository with its own planted commands.
    fn plant_nested(&self) {
        let nested = Repo::make(&self.repo.path().join("nested"));
        nested.commit_file("n.txt", "n\n");
        Git::at(self.repo.path().join(".git"))
            .with_work_tree(self.repo.path())
            .run(&["add", "nested"])
            .unwrap();
        fs::write(nested.path().join(".git/info/attributes"), "*.txt filter=nested\n").unwrap();
        nested.git(["config", "filter.nested.clean", &self.line("nested-clean", "cat")]);
        nested.git(["config", "core.fsmonitor", &self.line("nested-fsmonitor", "false")]);
        fs::write(nested.path().join("n.txt"), "m\n").unwrap();
    }

    fn marker(&self, name: &str) -> String {
        self.markers.join(name).display().to_string()
    }

    /// Returns a shell line that creates a marker file.
    pub fn line(&self, name: &str, then: &str) -> String {
        format!("touch '{}'; {then}", self.marker(name))
    }

    /// Returns a program that creates a marker file.
    pub fn script(&self, name: &str) -> String {
        let file = self.markers.with_file_name(format!("{name}.sh"));
        executable(&file, &format!("touch '{}'; exit 1", self.marker(name)));
        file.display().to_string()
    }

    /// Returns the existing markers.
    pub fn found(&self) -> BTreeSet<String> {
        let entries = fs::read_dir(&self.markers).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// Removes the markers.
    pub fn forget(&self) {
        for name in self.found() {
            fs::remove_file(self.markers.join(name)).unwrap();
        }
    }

    /// Makes every file look changed, so that git reads it again.
    pub fn stale(&self) {
        for name in ["a.txt", "b.conv", "c.eq", "d.proc"] {
            fs::write(self.repo.path().join(name), "one\n").unwrap();
        }
        fs::write(self.repo.path().join("new.txt"), "new\n").unwrap();
    }

    /// Runs every git command that studio uses, and more.
    fn session(&self, git: impl Fn(&[&str]) -> Command) {
        let run = |args: &[&str]| git(args).output(OutputLimits::seconds(60)).unwrap();
        let tree = self.markers.with_file_name("tree").display().to_string();
        self.stale();
        run(&["status", "--porcelain"]);
        run(&["diff", "left"]);
        run(&["log", "-p"]);
        run(&["show", "left"]);
        run(&["diff-tree", "-p", "main", "left"]);
        run(&["worktree", "add", "--no-checkout", &tree, "left"]);
        run(&["worktree", "remove", "--force", &tree]);
        run(&["worktree", "add", &tree, "left"]);
        self.stale();
        run(&["add", "-A"]);
        run(&["commit", "-qm", "all"]);
        run(&["merge-tree", "--write-tree", "left", "right"]);
        run(&["checkout", "-q", "-f", "right"]);
        run(&["reset", "-q", "--hard", "main~1"]);
        run(&["merge", "-q", "left"]);
        run(&["reset", "-q", "--hard"]);
        run(&["-c", "core.abbrev=7", "update-ref", "refs/heads/new", "HEAD"]);
        run(&["branch", "-D", "new"]);
        run(&["gc", "-q"]);
    }
}

pub fn executable(file: &Path, line: &str) {
    fs::write(file, format!("#!/bin/sh\n{line}\n")).unwrap();
    fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Returns every git on the machine, by its directory.
fn gits() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap();
    let mut found: Vec<PathBuf> =
        std::env::split_paths(&path).filter(|dir| dir.join("git").is_file()).collect();
    found.sort();
    found.dedup();
    found
}

fn with_git(job: Command, directory: &Path) -> Command {
    job.env("PATH", format!("{}:/usr/bin:/bin", directory.display()))
}

#[test]
fn plain_git_runs_every_planted_command() {
    for attributes in [Attributes::Committed, Attributes::InfoFile] {
        let planted = Planted::new(attributes);
        planted.session(|args| planted.repo.job().args(args));
        // The process filter does not speak the protocol, which ends most calls before the rest is
        // reached.
        planted.repo.git(["config", "--unset", "filter.proc.process"]);
        planted.session(|args| planted.repo.job().args(args));
        let found = planted.found();
        for expected in [
            "clean",
            "smudge",
            "clean-equals",
            "smudge-equals",
            "process",
            "merge-driver",
            "diff-command",
            "textconv",
            "fsmonitor",
            "gpg",
            "hook-post-checkout",
            "hook-pre-commit",
            "hook-reference-transaction",
        ] {
            assert!(found.contains(expected), "{attributes:?}: no {expected} in {found:?}");
        }
    }
}

#[test]
fn no_planted_command_runs_with_any_git() {
    for directory in gits() {
        for attributes in [Attributes::Committed, Attributes::InfoFile] {
            let planted = Planted::new(attributes);
            let git_dir = planted.repo.path().join(".git");
            let door = Git::at(git_dir).with_work_tree(planted.repo.path());
            planted.session(|args| with_git(door.command(args), &directory));
            let none = BTreeSet::new();
            assert_eq!(planted.found(), none, "{attributes:?} with {}", directory.display());
            // The calls succeeded nevertheless.
            assert!(planted.repo.git(["rev-parse", "HEAD"]).len() >= 40);
            assert_eq!(fs::read_to_string(planted.repo.path().join("a.txt")).unwrap(), "left\n");
        }
    }
}

#[test]
fn no_planted_command_runs_without_attributes() {
    let planted = Planted::new(Attributes::Committed);
    let git_dir = planted.repo.path().join(".git");
    let door = Git::at(git_dir).with_work_tree(planted.repo.path());
    let empty_tree = planted.repo.git(["hash-object", "-t", "tree", "/dev/null"]);
    let door = door.without_attributes(&empty_tree);
    planted.session(|args| door.command(args));
    assert_eq!(planted.found(), BTreeSet::new());
    let attributes = door.run(&["check-attr", "filter", "a.txt"]).unwrap();
    if git_version::detect().unwrap() >= GitVersion(2, 41) {
        assert_eq!(attributes, "a.txt: filter: unspecified");
    }
}

#[test]
fn a_diff_runs_no_command_of_a_nested_repository() {
    let planted = Planted::new(Attributes::Committed);
    planted.plant_nested();
    let show = |git: &dyn Fn(&[&str]) -> Command| {
        for args in [&["status", "--porcelain"][..], &["diff", "HEAD"], &["diff-index", "HEAD"]] {
            git(args).output(OutputLimits::seconds(60)).unwrap();
        }
    };
    let door = Git::at(planted.repo.path().join(".git")).with_work_tree(planted.repo.path());
    show(&|args| door.command(args));
    assert_eq!(planted.found(), BTreeSet::new());
    planted.repo.git(["config", "--unset", "filter.proc.process"]);
    show(&|args| planted.repo.job().args(args));
    assert!(planted.found().contains("nested-clean"), "{:?}", planted.found());
    assert!(planted.found().contains("nested-fsmonitor"));
}

#[test]
fn git_uses_its_own_repository_whatever_the_directory_contains() {
    let planted = Planted::new(Attributes::Committed);
    let env = TestEnv::new();
    let evil = Repo::make(&env.home().join("evil"));
    evil.git(["config", "core.fsmonitor", &planted.line("swapped", "false")]);
    let door = Git::at(planted.repo.path().join(".git"));
    let tree = env.home().join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join(".git"), format!("gitdir: {}/.git", evil.path().display())).unwrap();
    let at = door.with_work_tree(&tree);
    at.run(&["status", "--porcelain"]).unwrap();
    let head = at.run(&["rev-parse", "HEAD"]).unwrap();
    assert_eq!(head, planted.repo.git(["rev-parse", "HEAD"]));
    assert!(!planted.found().contains("swapped"));
    Repo::at(&tree).job().args(["status"]).output(OutputLimits::seconds(60)).unwrap();
    assert!(planted.found().contains("swapped"), "the positive control");
}

#[test]
fn inherited_variables_do_not_reach_git_and_a_failure_names_the_call() {
    let env = TestEnv::new();
    let repo = env.repo();
    let door = Git::at(repo.path().join(".git"));
    let failure = door.run(&["rev-parse", "--verify", "no-such"]).unwrap_err().to_string();
    assert!(failure.starts_with("`git rev-parse --verify no-such` failed with exit code 128"));
    let below = repo.path().join("below");
    fs::create_dir(&below).unwrap();
    let git_dir = repo.path().canonicalize().unwrap().join(".git");
    assert_eq!(discover(&below).unwrap(), (git_dir.clone(), git_dir));
    assert!(discover(Path::new("/")).is_err());
}

#[test]
fn versions_are_parsed_in_every_format() {
    assert_eq!(GitVersion::parse("git version 2.47.3"), Some(GitVersion(2, 47)));
    assert_eq!(GitVersion::parse("git version 2.39.5 (Apple Git-154)"), Some(GitVersion(2, 39)));
    assert_eq!(GitVersion::parse("git version 3.0.0.rc1.12.gabc"), Some(GitVersion(3, 0)));
    assert_eq!(GitVersion::parse("not git"), None);
    assert!(GitVersion(2, 9) < GitVersion(2, 38));
    assert!(git_version::detect().unwrap() >= GitVersion(2, 38));
}

#[test]
fn the_version_is_kept_for_an_unchanged_program_and_an_old_one_is_refused() {
    let mut scene = Scene::new();
    let directory = scene.env.home().join("programs");
    fs::create_dir(&directory).unwrap();
    let path = std::env::var("PATH").unwrap();
    let program = directory.join("git");
    fs::copy(find_program("git").unwrap().canonicalize().unwrap(), &program).unwrap();
    scene.env.set("PATH", format!("{}:{path}", directory.display()));
    scene.ready("write a.txt a");
    let cache = scene.env.home().join(".local/state/studio/git-version.json");
    let kept = fs::read_to_string(&cache).unwrap();
    assert!(kept.contains(&program.display().to_string()), "{kept}");
    let text = git_version::detect().unwrap();
    let old = kept.replace(&format!("git version {text}"), "git version 2.30");
    assert_ne!(kept, old);
    fs::write(&cache, &old).unwrap();
    scene.studio(["list"]).exits(2).output_contains("git 2.30 is too old");

    // A changed program is asked again.
    fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
    scene.studio(["list"]).exits(0);
    assert!(fs::read_to_string(&cache).unwrap().contains(&format!("git version {text}")));
    // So is one without a version in the cache, whatever the file contains.
    fs::write(&cache, "{").unwrap();
    scene.studio(["list"]).exits(0);
    // A script may start another git each time.
    fs::remove_file(&program).unwrap();
    fs::write(&program, "#!/bin/sh\necho git version 2.30.0\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let before = fs::read_to_string(&cache).unwrap();
    scene.studio(["list"]).exits(2).output_contains("git 2.30 is too old");
    assert_eq!(fs::read_to_string(&cache).unwrap(), before);
}

#[test]
fn a_git_that_another_program_starts_brings_work_home() {
    let scene = Scene::new();
    let shims = scene.env.home().join("shims");
    fs::create_dir(&shims).unwrap();
    // Closed for the git that packs the work of a session.
    let target = find_program("git").unwrap();
    fs::write(shims.join("version"), target.display().to_string()).unwrap();
    let version = shims.join("version");
    executable(
        &shims.join("git"),
        &format!("read -r git < '{}'; exec \"$git\" \"$@\"", version.display()),
    );
    let path = format!("{}:{}", shims.display(), std::env::var("PATH").unwrap());
    let run = scene.env.command(studio(), scene.repo.path()).env("PATH", path);
    let run = scene.env.run_command(run.args(["run", "write a 1; commit one"]));
    run.exits(0).output_contains("ready");
}
