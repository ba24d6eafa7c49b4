//! `studio sandbox`: any program in the sandbox of a session's checks.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;

use crate::fixtures::{Scene, studio};

#[test]
fn any_program_runs_in_the_sandbox_of_a_check() {
    let scene = Scene::new();
    let home = scene.env.home().canonicalize().unwrap();
    fs::create_dir(home.join(".ssh")).unwrap();
    fs::create_dir(home.join("out")).unwrap();
    fs::write(home.join(".ssh/id"), "canary").unwrap();
    let id = scene.ready("sh printf can%s ary > other.txt");
    let other = scene.worktree(&id).path().join("other.txt");
    let line = format!(
        "cat ~/.ssh/id; touch ~/out/m; cat '{}'; touch here; touch \"$TMPDIR/x\" && echo temp; \
         git log --format=%s; exit 7",
        other.display()
    );
    let line = line.as_str();
    let sandboxed = scene.studio(["sandbox", "--", "sh", "-c", line]);
    sandboxed
        .exits(7)
        .output_lacks("canary")
        .output_contains("temp")
        .output_contains("add README.md");
    assert!(scene.repo.path().join("here").exists() && !home.join("out/m").exists());
    let out = home.join("out").display().to_string();
    scene.studio(["sandbox", "--write", &out, "--", "sh", "-c", line]).exits(7);
    assert!(home.join("out/m").exists(), "--write opens it");
    let ssh = home.join(".ssh").display().to_string();
    let opened = scene.studio(["sandbox", "--read", &ssh, "--", "cat", &format!("{ssh}/id")]);
    opened.exits(0).output_contains("canary");
    // The control: the same line outside.
    let outside = scene.env.run("sh", scene.repo.path(), ["-c", line]);
    outside.exits(7).output_contains("canary");
}

#[test]
fn what_git_runs_and_obeys_cannot_be_changed() {
    if !base::sandbox::namespaces_are_possible() {
        return;
    }
    let scene = Scene::new();
    let line = "git config core.hooksPath /tmp/x; echo x > .git/hooks/pre-commit";
    scene.studio(["sandbox", "--", "sh", "-c", line]).output_contains("");
    let git = scene.repo.path().join(".git");
    assert!(!git.join("hooks/pre-commit").exists());
    assert!(!fs::read_to_string(git.join("config")).unwrap().contains("hooksPath"));
    scene.env.run("sh", scene.repo.path(), ["-c", line]);
    assert!(git.join("hooks/pre-commit").exists(), "the control");
}

/// Lines that make plain git run `touch ../ran` in the repository, which has a linked working tree,
/// submodules, and `extensions.worktreeConfig`.
const PLANTS: &[&str] = &[
    "cp evil e/config; echo \"$PWD/e\" > .git/commondir",
    "cp evil .git/config.worktree",
    "cat evil >> .git/modules/libs/foo/config",
    "mv .git/modules/libs .git/modules/old && cp -r .git/modules/old .git/modules/libs; \
     cat evil >> .git/modules/libs/foo/config",
    "cp -r .git/modules/part p; cat evil >> p/config; echo \"$PWD/p\" > .git/modules/part/commondir",
    "cp -r .git/worktrees e/; cp evil e/config; echo \"$PWD/e\" > .git/worktrees/w/commondir",
    "mv .git/worktrees .git/old; cp -r .git/old .git/worktrees; cp -r .git/old e/worktrees; \
     cp evil e/config; echo \"$PWD/e\" > .git/worktrees/w/commondir",
    "mv .git old; cp -r old .git; cat evil >> .git/config",
];

fn configure_identity(scene: &Scene) {
    for (key, value) in [("user.name", "Ada"), ("user.email", "ada@example.com")] {
        scene.env.run("git", scene.env.home(), ["config", "--global", key, value]).exits(0);
    }
}

fn repository_with_parts(scene: &Scene) {
    configure_identity(scene);
    let line = "git init -q ../part && git -C ../part commit -q --allow-empty -m p && \
                for at in part libs/foo; do git -c protocol.file.allow=always submodule --quiet add \
                ../part $at; done && git commit -qm parts && git worktree add -q ../w && \
                git config extensions.worktreeConfig true && mkdir e && \
                cp -r .git/objects .git/refs .git/HEAD e/ && printf '[core]\n\tbare = false\n\t\
                repositoryformatversion = 1\n\tfsmonitor = touch %s/ran\n' \"$HOME\" > evil";
    scene.env.run("sh", scene.repo.path(), ["-c", line]).exits(0);
}

fn has_run_planted(scene: &Scene) -> bool {
    let (repo, home) = (scene.repo.path(), scene.env.home());
    scene.env.run("git", repo, ["status"]);
    scene.env.run("git", &home.join("w"), ["status"]);
    home.join("ran").exists()
}

#[test]
fn plain_git_runs_nothing_that_a_program_planted() {
    if !base::sandbox::namespaces_are_possible() {
        return;
    }
    for line in PLANTS {
        let scene = Scene::new();
        repository_with_parts(&scene);
        scene.studio(["sandbox", "--", "sh", "-c", line]);
        assert!(!has_run_planted(&scene), "{line}");
        scene.studio(["sandbox", "--", "git", "commit", "-q", "--allow-empty", "-m", "x"]).exits(0);
        // The control.
        scene.env.run("sh", scene.repo.path(), ["-c", line]);
        assert!(has_run_planted(&scene), "the control: {line}");
    }
}

#[test]
fn a_git_directory_behind_a_link_stays_what_it_was() {
    let scene = Scene::new();
    scene.env.run("sh", scene.repo.path(), ["-c", "mv .git .real && ln -s .real .git"]).exits(0);
    let line = "git config core.fsmonitor x; rm .git; git init -q; git config core.fsmonitor x";
    let run = scene.studio(["sandbox", "--", "sh", "-c", line]);
    run.output_contains("was moved aside");
    let link = fs::read_link(scene.repo.path().join(".git")).unwrap();
    assert_eq!(link.to_str(), Some(".real"));
    let settings = fs::read_to_string(scene.repo.path().join(".real/config")).unwrap();
    assert!(!settings.contains("fsmonitor"), "{settings}");
}

#[test]
fn a_login_in_the_configuration_is_hidden_and_git_works() {
    if !base::sandbox::namespaces_are_possible() {
        return;
    }
    let scene = Scene::new();
    configure_identity(&scene);
    scene.repo.git(["config", "remote.o.url", "https://me:canary@example.com/a.git"]);
    scene.repo.git(["worktree", "add", "-q", "../linked"]);
    let linked = scene.env.home().join("linked");
    for directory in [scene.repo.path(), linked.as_path()] {
        let line = "git config remote.o.url; cat \"$(git rev-parse --git-common-dir)/config\"; \
                    echo x > x && git add x && git commit -qm sandboxed && git log -1 --format=%an";
        let run = scene.studio_in(directory, ["sandbox", "--", "sh", "-c", line]);
        run.exits(0).output_contains("https://example.com/a.git").output_lacks("canary");
        run.output_contains("Ada");
    }
    assert!(scene.repo.git(["config", "remote.o.url"]).contains("canary"));
}

#[test]
fn the_home_directory_is_not_opened_as_a_working_directory() {
    let scene = Scene::new();
    for directory in [scene.env.home(), std::path::Path::new("/")] {
        let refused = scene.studio_in(directory, ["sandbox", "--", "true"]);
        refused.exits(3).output_contains("would open your home directory");
    }
}

#[test]
fn it_works_outside_of_a_repository_and_reports_failures() {
    let scene = Scene::new();
    let dir = scene.env.home().join("plain");
    fs::create_dir(&dir).unwrap();
    scene.studio_in(&dir, ["sandbox", "--", "sh", "-c", "touch made"]).exits(0);
    assert!(dir.join("made").exists());
    scene.studio_in(&dir, ["sandbox", "--", "no-such-program"]).exits(127);
    scene.studio_in(&dir, ["sandbox"]).exits(2);
    let missing = scene.studio_in(&dir, ["sandbox", "--write", "nowhere", "--", "true"]);
    missing.exits(2).output_contains("no such path");
    scene.env.config("[studio.limits]\nprocesses = 30\n");
    let many = "for i in $(seq 60); do sleep 300 & done; sleep 60";
    let limited = scene.studio_in(&dir, ["sandbox", "--", "sh", "-c", many]);
    limited.exits(137).output_contains("reached their limit of 30 processes and threads");
    scene.env.config("[sandbox]\nenabled = false\n");
    let refused = scene.env.run(studio(), &dir, ["sandbox", "--", "true"]);
    assert_ne!(refused.code, 0);
    refused.output_contains("the sandbox is disabled");
}
