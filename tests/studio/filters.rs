//! Git filters of the user's configuration: in sessions, snapshots, trials and landings; and that no
//! other command runs.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use testkit::repo::Repo;

use crate::fixtures::Scene;

/// The command of a filter that is its own inverse.
pub const ROT13: &str = "tr A-Za-z N-ZA-Mn-za-m";

/// Returns the configuration of the filter `rot` with this command.
pub fn configuration(command: &str, more: &str) -> String {
    format!("[studio.filters.rot]\nclean = {command:?}\nsmudge = {command:?}\n{more}")
}

/// Creates a repository whose `*.rot` files are stored filtered, with a user who trusts the filter.
pub fn scene() -> Scene {
    let scene = Scene::new();
    scene.configure(&configuration(ROT13, "required = true"));
    for command in ["clean", "smudge"] {
        scene.repo.git(["config", &format!("filter.rot.{command}"), ROT13]);
    }
    scene.repo.git(["config", "filter.rot.required", "true"]);
    scene.repo.commit_file(".gitattributes", "*.rot filter=rot\n");
    scene.repo.commit_file("a.rot", "hello\n");
    scene.repo.commit_file("sub dir/it's.rot", "nested\n");
    assert_eq!(scene.repo.show("main", "a.rot"), "uryyb");
    scene
}

/// Returns what differs from the last commit, with the content of every file compared: git reads those
/// whose times are not the ones that it knows. It compares seconds, so each call sets other ones.
pub fn changes(repo: &Repo) -> String {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let time = UNIX_EPOCH + Duration::from_secs(CALLS.fetch_add(1, Ordering::Relaxed));
    for file in repo.git(["ls-files"]).lines() {
        let _ = fs::File::options()
            .write(true)
            .open(repo.path().join(file.trim_matches('"')))
            .and_then(|file| file.set_modified(time));
    }
    repo.git(["status", "--porcelain"])
}

#[test]
fn a_session_that_changes_nothing_is_empty() {
    let scene = scene();
    let id = scene.exec(["sh cat a.rot; sh git status --porcelain; sh touch a.rot"]);
    scene.await_state(&id, "empty");
    scene.await_free(&id);
    let logs = scene.studio(["logs", &id]);
    logs.output_contains("hello").output_lacks("uryyb").output_lacks(" M ");
    assert_eq!(scene.worktree(&id).read("sub dir/it's.rot"), "nested\n");
}

#[test]
fn a_trusted_filter_converts_files_wherever_they_are_read_and_written() {
    let scene = scene();
    let script = "sh cat a.rot > plain.txt; write a.rot world; commit committed by the agent; \
                  write b.rot there; sh rm sub*/*.rot";
    let id = scene.ready(script);
    scene.await_free(&id);
    let diff = scene.studio(["diff", &id]);
    diff.exits(0).output_contains("jbeyq").output_contains("gurer").output_lacks("there");
    scene.studio(["try", &id, "--once"]).exits(0);
    assert_eq!(scene.repo.read("a.rot"), "world\n");
    assert_eq!(scene.repo.read("b.rot"), "there\n");
    scene.studio(["try", "--end"]).exits(0);
    assert_eq!(scene.repo.read("a.rot"), "hello\n");
    assert_eq!(changes(&scene.repo), "");

    let landed = scene.studio(["accept", &id, "-m", "Land it"]);

    landed.exits(0).output_lacks("filters were not run");
    assert_eq!(scene.repo.show("main", "a.rot"), "jbeyq");
    assert_eq!(scene.repo.show("main", "b.rot"), "gurer");
    assert_eq!(scene.repo.show("main", "plain.txt"), "hello");
    assert_eq!(
        (scene.repo.read("a.rot"), scene.repo.read("b.rot")),
        ("world\n".into(), "there\n".into())
    );
    assert!(!scene.repo.path().join("sub dir/it's.rot").exists());
    assert_eq!(changes(&scene.repo), "");
    scene.studio(["undo"]).exits(0);
    assert_eq!(scene.repo.read("a.rot"), "hello\n");
    assert_eq!(scene.repo.read("sub dir/it's.rot"), "nested\n");
    assert!(!scene.repo.path().join("b.rot").exists());
    assert_eq!(changes(&scene.repo), "");
    assert_eq!(scene.worktree(&id).read("a.rot"), "world\n");
    scene.studio(["discard", &id]).exits(0);
    scene.studio(["undo"]).exits(0);
    assert_eq!(scene.worktree(&id).read("b.rot"), "there\n");
    scene.repo.is_sound();
}

#[test]
fn hunks_of_filtered_files_land_filtered() {
    let scene = scene();
    let id = scene.ready("write a.rot world; write other.txt other");
    scene.await_free(&id);
    let review = scene.studio(["review", &id, "--json"]).exits(0).json();
    let hunks = review["reviews"][0]["hunks"].as_array().unwrap().clone();
    let hunk = hunks.iter().find(|hunk| hunk.to_string().contains("jbeyq")).unwrap();
    let hunk = hunk["id"].as_str().unwrap();
    scene.studio(["accept", &id, "--hunks", hunk, "-m", "Land one"]).exits(0);
    assert_eq!(scene.repo.show("main", "a.rot"), "jbeyq");
    assert_eq!(scene.repo.read("a.rot"), "world\n");
    assert_eq!(changes(&scene.repo), "");
    assert_eq!(scene.worktree(&id).read("a.rot"), "world\n");
    scene.studio(["accept", &id, "-m", "Land the rest"]).exits(0);
    assert_eq!(scene.repo.read("other.txt"), "other\n");
}

#[test]
fn work_of_the_user_and_deleted_worktrees_keep_their_filtered_files() {
    let scene = scene();
    let linked = scene.repo.path().with_file_name("linked");
    let linked = linked.to_str().unwrap();
    scene.repo.git(["worktree", "add", "-q", "-b", "linked", linked]);
    Repo::at(linked.as_ref()).write("a.rot", "uncommitted\n");
    let script = "sh cat a.rot > seen.txt; write b.rot there";
    let id = scene.exec(["--worktree", linked, script]);
    scene.await_state(&id, "ready");
    scene.await_free(&id);
    let worktree = scene.worktree(&id);
    assert_eq!(worktree.read("seen.txt"), "uncommitted\n");
    fs::remove_dir_all(worktree.path()).unwrap();
    scene.studio(["send", &id, "say again"]).exits(0);
    scene.await_state(&id, "ready");
    scene.await_free(&id);
    assert_eq!(worktree.read("a.rot"), "uncommitted\n");
    assert_eq!(worktree.read("b.rot"), "there\n");
}

#[test]
fn a_command_that_only_the_repository_names_never_runs() {
    let scene = scene();
    let marker = scene.env.home().join("marker");
    let plant = |name: &str| {
        for command in ["clean", "smudge", "process"] {
            let line = format!("touch '{}'; {ROT13}", marker.display());
            scene.repo.git(["config", &format!("filter.{name}.{command}"), &line]);
        }
    };
    // A trusted name with another command, and a name that is not trusted.
    plant("rot");
    plant("other");
    fs::write(scene.repo.path().join(".git/info/attributes"), "*.txt filter=other\n").unwrap();
    scene.repo.write("g3.toml", "[studio.filters.other]\nclean = \"cat\"\nsmudge = \"cat\"\n");
    let script = "write a.rot world; write new.txt text; sh echo '*.md filter=other' >> .gitattributes; \
                  sh git config filter.other.clean \"touch marker; cat\"; write b.md text";
    let id = scene.ready(script);
    scene.await_free(&id);
    scene
        .studio(["try", &id, "--once"])
        .exits(0)
        .output_contains("only your own configuration names filters");
    scene.studio(["try", "--end"]).exits(0);
    let landed = scene.studio(["accept", &id, "-m", "Land it"]);
    landed.exits(0).output_contains("git filters were not run: b.md new.txt landed");
    assert_eq!(scene.repo.read("a.rot"), "world\n");
    assert_eq!(scene.repo.git(["cat-file", "-p", "main:new.txt"]), "text");
    assert!(!marker.exists() && !scene.worktree(&id).path().join("marker").exists());
    // The control: git runs it. A process would have to speak git's protocol.
    scene.repo.git(["config", "--unset", "filter.rot.process"]);
    scene.repo.git(["config", "--unset", "filter.other.process"]);
    let _ = changes(&scene.repo);
    assert!(marker.exists());
}

#[test]
fn a_failure_of_a_required_filter_names_file_and_command_and_loses_nothing() {
    let scene = scene();
    let id = scene.ready("write a.rot world");
    scene.await_free(&id);
    scene.configure(&configuration("echo broken >&2; exit 3", "required = true"));
    let before = scene.repo.everything();
    let refused = scene.studio(["accept", &id, "-m", "Land it"]);
    refused.exits(1).output_contains(
        "filter `rot` failed on a.rot: `echo broken >&2; exit 3`: exit code 3: broken",
    );
    refused.output_contains("`[studio.filters]`");
    assert_eq!(scene.repo.everything(), before);
    // A session cannot start without its files.
    let other = scene.exec(["say hello"]);
    let why = scene.await_state(&other, "failed")["why"].to_string();
    assert!(why.contains("filter `rot` failed on"), "{why}");
    scene.configure(&configuration("sleep 1000", "required = true\ntimeout_seconds = 1"));
    let refused = scene.studio(["accept", &id, "-m", "Land it"]);
    refused.exits(1).output_contains("timed out after 1 s");
    scene.configure(&configuration(ROT13, "required = true"));
    scene.studio(["accept", &id, "-m", "Land it"]).exits(0);
    assert_eq!(scene.repo.read("a.rot"), "world\n");
    scene.repo.is_sound();
}

#[test]
fn content_stays_as_it_is_if_a_filter_that_is_not_required_fails() {
    let scene = scene();
    scene.configure(&configuration("exit 3", ""));
    let id = scene.ready("sh cat a.rot; write b.rot there");
    scene.await_free(&id);
    scene.studio(["logs", &id]).output_contains("uryyb");
    let landed = scene.studio(["accept", &id, "-m", "Land it"]);
    landed.exits(0).output_contains("git filters were not run: b.rot landed");
    assert_eq!(scene.repo.read("b.rot"), "there\n");
}

#[test]
fn the_note_about_unfiltered_files_has_the_lines_of_the_configuration() {
    let scene = scene();
    scene.configure("");
    let settings =
        format!("[filter \"rot\"]\n\tclean = {ROT13}\n\tsmudge = {ROT13}\n\trequired = true\n");
    let lfs = "[filter \"lfs\"]\n\tclean = git-lfs clean -- %f\n\tsmudge = git-lfs smudge -- %f\n";
    fs::write(scene.env.home().join(".gitconfig"), settings + lfs).unwrap();
    let id = scene.ready("write b.rot there");
    let landed = scene.studio(["accept", &id, "-m", "Land it"]);
    landed.exits(0).output_contains("git filters were not run: b.rot landed");
    landed.output_contains("[studio.filters.rot]").output_contains("required = true");
    landed.output_contains(&format!("clean = \"{ROT13}\""));
    let id = scene.ready("sh echo '*.bin filter=lfs' > .gitattributes; write c.bin there");
    let landed = scene.studio(["accept", &id, "-m", "Land it"]);
    landed.exits(0).output_contains("[studio.filters]").output_contains("lfs = \"git-lfs\"");
}

/// Creates a repository that uses Git LFS, with a user who trusts it.
pub fn lfs_scene() -> Scene {
    let scene = Scene::new();
    scene.configure("[studio.filters]\nlfs = \"git-lfs\"");
    scene.repo.git(["lfs", "install", "--local"]);
    commit_lfs_files(&scene);
    scene
}

fn commit_lfs_files(scene: &Scene) {
    scene.repo.commit_file(".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n");
    scene.repo.commit_file("a.bin", "large content\n");
    scene.repo.commit_file("kept.bin", "kept content\n");
    assert!(scene.repo.show("main", "a.bin").starts_with("version https://git-lfs"));
}

#[test]
fn git_lfs_of_the_users_own_git_needs_no_line_in_the_configuration() {
    let scene = Scene::new();
    // The tests' own git has no configuration of a user.
    scene.repo.git(["lfs", "install", "--local"]);
    commit_lfs_files(&scene);
    let global = scene.env.home().join(".gitconfig");
    let user = fs::read_to_string(&global).unwrap_or_default();
    let install = |smudge: &str, process: &str| {
        let lfs = format!(
            "[filter \"lfs\"]\nclean = git-lfs clean -- %f\nsmudge = {smudge}\n\
             process = {process}\nrequired = true\n"
        );
        fs::write(&global, user.clone() + &lfs).unwrap();
    };
    let read_first_line = |content: &str| {
        let id = scene.ready("sh head -n 1 a.bin > seen.txt");
        let seen = scene.worktree(&id).read("seen.txt");
        assert!(seen.starts_with(content), "{seen}");
    };
    install("git-lfs smudge -- %f", "git-lfs filter-process");
    read_first_line("large content\n");
    let id = scene.ready("write a.bin changed");
    scene.await_free(&id);
    let landed = scene.studio(["accept", &id, "-m", "Land it"]);
    landed.exits(0).output_lacks("filters were not run");
    assert!(scene.repo.show("main", "a.bin").starts_with("version https://git-lfs"));
    assert_eq!(scene.repo.read("a.bin"), "changed\n");
    assert_eq!(changes(&scene.repo), "");

    // `git lfs install --skip-smudge`
    install("git-lfs smudge --skip -- %f", "git-lfs filter-process --skip");
    read_first_line("version https://git-lfs");

    // Other commands run only if studio's configuration has them, and those of the repository never.
    let marker = scene.env.home().join("marker");
    let planted = format!("touch '{}'; cat", marker.display());
    install(&planted, "git-lfs filter-process");
    read_first_line("version https://git-lfs");
    install("git-lfs smudge -- %f", &planted);
    read_first_line("version https://git-lfs");
    fs::write(&global, user.clone()).unwrap();
    read_first_line("version https://git-lfs");
    assert!(!marker.exists());
}

#[test]
fn pain_25_git_lfs_works_in_sessions_and_landings() {
    let scene = lfs_scene();
    // More than what a snapshot takes of a file that is not filtered.
    let script = "sh cat a.bin kept.bin > seen.txt; write a.bin changed; commit with git-lfs in the session; \
                  sh git checkout -q HEAD~1 -- a.bin && cat a.bin >> seen.txt; write a.bin changed again; \
                  sh head -c 12000000 /dev/zero > new.bin";
    let id = scene.ready(script);
    scene.await_free(&id);
    assert_eq!(
        scene.worktree(&id).read("seen.txt"),
        "large content\nkept content\nlarge content\n"
    );
    let landed = scene.studio(["accept", &id, "-m", "Land it"]);
    landed.exits(0).output_lacks("filters were not run").output_lacks("left out");
    landed.output_lacks("hooks were not run");
    for name in ["a.bin", "new.bin"] {
        assert!(scene.repo.show("main", name).starts_with("version https://git-lfs"), "{name}");
    }
    assert_eq!(scene.repo.read("a.bin"), "changed again\n");
    assert_eq!(fs::metadata(scene.repo.path().join("new.bin")).unwrap().len(), 12_000_000);
    assert_eq!(changes(&scene.repo), "");
    // Every object is in the repository, those of the agent's own commits too.
    assert!(scene.repo.git(["lfs", "fsck"]).contains("OK"));
    scene.studio(["undo"]).exits(0);
    assert_eq!(scene.repo.read("a.bin"), "large content\n");
    assert_eq!(changes(&scene.repo), "");
    let id = scene.exec(["sh cat a.bin; sh git status --porcelain"]);
    scene.await_state(&id, "empty");

    // The hooks of Git LFS have nothing to do at a landing; one that does more is named.
    let hook = scene.repo.path().join(".git/hooks/post-commit");
    let lfs = fs::read_to_string(&hook).unwrap();
    assert!(lfs.contains("git lfs post-commit"));
    fs::write(&hook, lfs + "make notes\n").unwrap();
    let id = scene.ready("write c.txt 1");
    scene.studio(["accept", &id, "-m", "Land it"]).exits(0).output_contains("hooks were not run");
}
