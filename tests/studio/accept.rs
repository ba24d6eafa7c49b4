//! `studio accept`: what lands, what is refused, and the author of the message.

use std::os::unix::fs::PermissionsExt;

use serde_json::Value;
use testkit::env::until;

use crate::fixtures::{Scene, studio};

#[test]
fn accept_lands_one_commit_and_removes_the_session() {
    let scene = Scene::new();
    let id = scene.ready("write hello.txt hi; commit wip; write more.txt later");

    let ran = scene.studio(["accept", &id, "-m", "Say hello\n\nBecause it is polite."]);

    ran.exits(0).output_contains("landed on main").output_contains("studio undo op1");
    assert_eq!(scene.repo.read("hello.txt"), "hi\n");
    assert_eq!(scene.repo.read("more.txt"), "later\n", "uncommitted work lands too");
    let message = scene.repo.git(["log", "-1", "--format=%B"]);
    assert!(message.starts_with("Say hello\n\nBecause it is polite."), "{message}");
    assert!(message.contains(&format!("Session: {id}")), "{message}");
    assert!(message.contains("Co-authored-by: fake <fake@studio.invalid>"), "{message}");
    assert_eq!(scene.repo.git(["worktree", "list"]).lines().count(), 1);
    assert_eq!(scene.repo.git(["status", "--porcelain"]), "");
    assert_eq!(scene.status(&id)["state"], "accepted");
    let receipt: Value =
        serde_json::from_str(&scene.repo.git(["notes", "--ref", "studio", "show"])).unwrap();
    assert_eq!(receipt["session"], id.as_str());
    scene.repo.is_sound();
}

#[test]
fn the_author_comes_from_the_environment_like_in_git() {
    let mut scene = Scene::new();
    scene.env.set("GIT_AUTHOR_NAME", "Grace \"G\" Hopper");
    scene.env.set("GIT_AUTHOR_EMAIL", "grace@example.org");
    let id = scene.ready("write hello.txt hi");
    scene.studio(["accept", &id, "-m", "Say hello"]).exits(0);
    let author = scene.repo.git(["log", "-1", "--format=%an <%ae>"]);
    assert_eq!(author, "Grace \"G\" Hopper <grace@example.org>");
}

#[test]
fn the_json_of_accept_discard_undo_and_operations() {
    let scene = Scene::new();
    let id = scene.ready("write a 1");
    let accepted = scene.studio(["accept", &id, "-m", "Add a", "--json"]).exits(0).json();
    let landed = &accepted["landed"][0];
    assert_eq!((&accepted["schema"], &accepted["operation"]), (&1.into(), &"op1".into()));
    assert_eq!(landed["id"], id.as_str());
    assert_eq!(landed["commit"], scene.repo.rev("main"));
    assert_eq!((&landed["target"], &landed["strategy"]), (&"main".into(), &"squash".into()));
    assert_eq!((&landed["message_by"], &landed["checks"]), (&"user".into(), &Value::Array(vec![])));
    assert_eq!(accepted["refused"], Value::Array(vec![]));
    let again = scene.studio(["accept", &id, "--json"]).exits(3).json();
    assert_eq!((&again["refused"][0]["exit"], &again["operation"]), (&3.into(), &Value::Null));
    let undone = scene.studio(["undo", "--json"]).exits(0).json();
    assert_eq!((&undone["operation"], &undone["undone"]), (&"op2".into(), &"op1".into()));
    let dropped = scene.studio(["discard", &id, "--json"]).exits(0).json();
    assert_eq!(
        (&dropped["operation"], &dropped["discarded"][0]),
        (&"op3".into(), &id.as_str().into())
    );
    let all = scene.studio(["operations", "--json"]).exits(0).json();
    let first = &all["operations"][0];
    assert_eq!((&first["id"], &first["kind"]), (&"op1".into(), &"accept".into()));
    assert_eq!((&first["undone_by"], &first["sessions"][0]), (&"op2".into(), &id.as_str().into()));
}

/// Places a fake `g3` beside a copy of studio, which runs this script.
pub(crate) fn with_g3(scene: &Scene, script: &str) -> std::path::PathBuf {
    let bin = scene.env.home().join("bin");
    std::fs::create_dir_all(&bin).expect("the home is writable");
    std::fs::copy(studio(), bin.join("studio")).expect("the home is writable");
    std::fs::write(bin.join("g3"), format!("#!/bin/sh\n{script}\n")).expect("the home is writable");
    std::fs::set_permissions(bin.join("g3"), std::fs::Permissions::from_mode(0o755))
        .expect("the home is writable");
    bin.join("studio")
}

#[test]
fn a_model_writes_the_message_from_task_and_diff_without_secrets() {
    let scene = Scene::new();
    let id = scene.ready("write conf password=hunter2hunter2; write greeting.txt good day");
    let script =
        "cat > \"$HOME/asked\"; printf 'Greet the user.\\n\\nA friendly program is used more.\\n'";
    let program = with_g3(&scene, script);

    let ran = scene.env.run(&program, scene.repo.path(), ["accept", &id, "--json"]);

    assert_eq!(ran.exits(0).json()["landed"][0]["message_by"], "model");
    let message = scene.repo.git(["log", "-1", "--format=%B"]);
    assert!(message.starts_with("Greet the user\n\nA friendly program"), "{message}");
    let asked = std::fs::read_to_string(scene.env.home().join("asked")).unwrap();
    assert!(asked.contains("commit message") && asked.contains("good day"), "{asked}");
    assert!(!asked.contains("hunter2"), "{asked}");
}

#[test]
fn a_failed_or_invalid_model_message_is_replaced_by_a_plain_one() {
    let scene = Scene::new();
    for (n, script) in
        ["exit 1", "true", "head -c 10000 /dev/zero | tr '\\0' 'x'", "echo '{}'"].iter().enumerate()
    {
        let id = scene.ready(&format!("write f{n} {n}"));
        let program = with_g3(&scene, script);
        let ran = scene.env.run(&program, scene.repo.path(), ["accept", &id]);
        ran.exits(0).output_contains("used a plain commit message");
        let subject = scene.repo.git(["log", "-1", "--format=%s"]);
        assert_eq!(subject, format!("Write f{n} {n}"), "{script}");
    }
}

#[test]
fn a_conflict_is_exit_4_with_the_files_and_changes_nothing() {
    let scene = Scene::new();
    let id = scene.ready("write README.md theirs");
    scene.repo.commit_file("README.md", "ours\n");
    let before = scene.repo.everything();
    let refused = scene.studio(["accept", &id, "--json"]).exits(4).json();
    assert_eq!(refused["refused"][0]["files"][0], "README.md", "{refused}");
    scene.studio(["accept", &id]).exits(4).output_contains("conflict with `main` in README.md");
    assert_eq!(scene.repo.everything(), before);
}

#[test]
fn checks_run_on_the_merged_tree_and_a_failed_one_prevents_landing() {
    let scene = Scene::new();
    let id = scene.exec(["--check", "test ! -e a -o ! -e b", "write a 1"]);
    scene.await_state(&id, "ready");
    scene.await_free(&id);
    scene.repo.commit_file("b", "1");
    let before = scene.repo.everything();
    scene.studio(["accept", &id]).exits(1).output_contains("fails on the merged tree");
    assert_eq!(scene.repo.everything(), before);
    scene.repo.git(["reset", "-q", "--hard", "HEAD~1"]);
    let landed = scene.studio(["accept", &id, "--json", "-m", "Add a"]).exits(0).json();
    assert_eq!(landed["landed"][0]["checks"][0]["ok"], true);
}

#[test]
fn a_landing_that_would_overwrite_user_changes_is_refused_and_others_land() {
    let scene = Scene::new();
    let id = scene.ready("write a theirs; write .env theirs");
    scene.repo.write("a", "mine");
    let before = scene.repo.everything();
    scene.studio(["accept", &id]).exits(3).output_contains("a");
    assert_eq!(scene.repo.everything(), before);
    std::fs::remove_file(scene.repo.path().join("a")).unwrap();
    scene.repo.write("README.md", "my own words");
    scene.studio(["accept", &id, "-m", "Add a"]).exits(0);
    assert_eq!(scene.repo.read("README.md"), "my own words");
    assert_eq!(scene.repo.git(["status", "--porcelain"]).trim(), "M README.md");
}

#[test]
fn a_running_session_is_not_landed_and_states_are_respected() {
    let scene = Scene::new();
    let id = scene.exec(["write a 1; gate go; write b 2"]);
    scene.await_state(&id, "working");
    scene
        .studio(["accept", &id])
        .exits(3)
        .output_contains("is working")
        .output_contains("studio stop");
    scene.studio(["stop", &id]).exits(0);
    scene.studio(["accept", &id]).exits(3).output_contains("is stopped").output_contains("--force");
    scene
        .studio(["accept", &id, "--force", "--dry-run"])
        .exits(0)
        .output_contains("would land on main");
    assert_eq!(scene.status(&id)["state"], "stopped");
    scene.studio(["accept", &id, "--force", "-m", "Add a"]).exits(0);
    assert_eq!(scene.repo.read("a"), "1\n");
}

#[test]
fn a_landing_and_an_undo_that_fail_at_a_lock_of_git_change_nothing() {
    let scene = Scene::new();
    let id = scene.ready("write README.md new; write a 1");
    scene.await_free(&id);
    let accept = ["accept", &id, "-m", "Land it"];
    for lock in ["HEAD.lock", "refs/heads/main.lock"] {
        let lock = scene.repo.path().join(".git").join(lock);
        let fails = |args: Vec<&str>, state: &str| {
            std::fs::write(&lock, "").unwrap();
            let before = (scene.repo.read("README.md"), scene.repo.git(["rev-parse", "main"]));
            let ran = scene.env.run(studio(), scene.repo.path(), args);
            ran.exits(1).output_contains("File exists");
            assert_eq!(scene.status(&id)["state"], state);
            assert_eq!(
                before,
                (scene.repo.read("README.md"), scene.repo.git(["rev-parse", "main"]))
            );
            assert_eq!(scene.repo.git(["status", "--porcelain"]), "");
            std::fs::remove_file(&lock).unwrap();
        };
        fails(accept.to_vec(), "ready");
        scene.studio(accept).exits(0);
        fails(vec!["undo"], "accepted");
        scene.studio(["undo"]).exits(0);
        assert_eq!(scene.status(&id)["state"], "ready");
    }
    scene.repo.is_sound();
}

#[test]
fn only_one_of_two_concurrent_accepts_lands() {
    let scene = Scene::new();
    let id = scene.ready("write a 1");
    scene.await_free(&id);
    let args = ["accept", id.as_str(), "-m", "Add a"];
    let mut both = [0, 1].map(|_| scene.env.start(studio(), scene.repo.path(), args));
    let codes = both.each_mut().map(|run| {
        let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
        base::process::exit_code(run.wait_until(Some(end)).unwrap().expect("it ends"))
    });
    assert!(codes == [0, 3] || codes == [3, 0], "{codes:?}");
    assert_eq!(scene.repo.git(["rev-list", "--count", "main"]), "2");
}

#[test]
fn a_detached_base_needs_a_target() {
    let scene = Scene::new();
    scene.repo.git(["checkout", "-q", "--detach"]);
    let id = scene.ready("write a 1");
    scene.studio(["accept", &id]).exits(2).output_contains("--onto BRANCH");
    scene.studio(["accept", &id, "--onto", "main", "-m", "Add a"]).exits(0);
    assert_eq!(scene.repo.show("main", "a"), "1");
}

#[test]
fn run_with_accept_lands_ready_sessions() {
    let scene = Scene::new();
    scene.studio(["run", "--accept", "write a 1"]).exits(0).output_contains("accepted");
    assert_eq!(scene.repo.read("a"), "1\n");
}

#[test]
fn unusual_agents_are_landed_or_refused_with_a_reason() {
    let scene = Scene::new();
    let switched = scene.ready("write a 1; switch other; commit on another branch");
    let noted = scene.studio(["status", &switched]);
    noted.output_contains("the agent is on `other`");
    scene.studio(["accept", &switched, "-m", "Add a"]).exits(0);
    assert_eq!(scene.repo.read("a"), "1\n");

    let rewired = scene.exec(["--sandbox", "off", "write b 1; reconfig /tmp/hooks; commit b"]);
    scene.await_state(&rewired, "ready");
    scene.studio(["accept", &rewired, "-m", "Add b"]).exits(0);
    assert_eq!(scene.repo.read("b"), "1\n");

    let repointed = scene.exec(["--sandbox", "off", "write c 1; repoint /nowhere/.git"]);
    let failed = scene.await_state(&repointed, "failed");
    assert!(failed["why"].as_str().unwrap().contains("was changed"), "{failed}");
    scene.studio(["discard", &repointed]).exits(0);

    let vanished = scene.exec(["--sandbox", "off", "write d 1; commit d; vanish"]);
    let failed = scene.await_state(&vanished, "failed");
    assert!(failed["why"].as_str().unwrap().contains("was changed"), "{failed}");
    scene.studio(["discard", &vanished]).exits(0);
    scene.studio(["undo"]).exits(0);
    let commits = scene.session_file(&vanished, "git");
    assert_eq!(testkit::repo::Repo::at(&commits).show("HEAD", "d"), "1", "commits are safe");
    scene.repo.is_sound();
}

#[test]
fn a_run_that_cannot_land_reports_why_and_is_refused() {
    let scene = Scene::new();
    scene.repo.write("a", "mine");

    scene.studio(["run", "--accept", "write a 1"]).exits(3).output_contains("did not land");

    assert_eq!(scene.repo.read("a"), "mine");
}

#[test]
fn concurrent_landings_wait_for_each_other() {
    let scene = Scene::new();
    let tasks = ["write f0 0", "write f1 1", "write f2 2", "write f3 3", "write f4 4"];
    let [a, b, c, d, e] = tasks;

    scene.studio(["run", "--accept", "-j", "5", a, b, c, d, e]).exits(0);

    for n in 0..5 {
        assert_eq!(scene.repo.read(&format!("f{n}")), format!("{n}\n"));
    }
    scene.repo.is_sound();
}

#[test]
fn filtered_files_land_byte_for_byte_without_running_filters() {
    let scene = Scene::new();
    let (repo, marker) = (&scene.repo, scene.env.home().join("marker"));
    repo.commit_file("kept.bin", "pointer of kept\n");
    repo.commit_file("a.bin", "pointer of a\n");
    repo.commit_file(".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n");
    for driver in ["clean", "smudge"] {
        let line = format!("touch '{}'; cat", marker.display());
        repo.git(["config", &format!("filter.lfs.{driver}"), &line]);
    }
    repo.git(["config", "filter.lfs.required", "true"]);
    let script = "write a.bin real content; sh printf 'x\\000\\r\\n\\377y' > new.bin; \
                  sh echo '*.txt filter=lfs' >> .gitattributes; write b.txt b";
    let id = scene.ready(script);
    scene.await_free(&id);
    let work = scene.worktree(&id);
    assert_eq!(work.read("kept.bin"), "pointer of kept\n");
    let written = std::fs::read(work.path().join("new.bin")).unwrap();
    assert_eq!(written, b"x\0\r\n\xffy");

    let ran = scene.studio(["accept", &id, "-m", "Add"]);

    ran.exits(0).output_contains("git filters were not run: a.bin b.txt new.bin");
    assert!(!marker.exists(), "nothing that attributes name was run");
    assert_eq!(std::fs::read(repo.path().join("new.bin")).unwrap(), written);
    assert_eq!(repo.read("a.bin"), "real content\n");
    assert_eq!(repo.git(["cat-file", "-s", "main:new.bin"]), "6");
    scene.studio(["undo"]).exits(0);
    assert_eq!(
        (repo.read("a.bin"), repo.read("kept.bin")),
        ("pointer of a\n".into(), "pointer of kept\n".into())
    );
    assert!(!repo.path().join("new.bin").exists() && !marker.exists());
    repo.is_sound();
}

#[test]
fn setup_runs_before_the_checks_of_the_merged_tree() {
    let scene = Scene::new();
    scene.repo.commit_file(".gitignore", "deps/\n.env\nlocal\n");
    scene.repo.write(".worktreeinclude", ".env\nlocal\n");
    scene.repo.write(".env", "1\n");
    scene.configure(
        "setup = \"mkdir -p deps && cat .env > deps/made\"\nchecks = [\"grep -q $(cat want) deps/made\", \"test $(cat want) = 2 -o -e local\"]",
    );
    scene.repo.write("local", "x");
    scene.repo.commit_file("want", "1\n");
    let first = scene.ready("write a 1");
    scene.await_free(&first);
    scene.studio(["accept", &first, "-m", "Add a"]).exits(0);

    scene.repo.commit_file("want", "2\n");
    scene.repo.write(".env", "2\n");
    std::fs::remove_file(scene.repo.path().join("local")).unwrap();
    let second = scene.ready("write b 1");
    scene.await_free(&second);
    scene.studio(["accept", &second, "-m", "Add b"]).exits(0);

    let check = scene.repo.worktrees().join(".checks/1");
    assert_eq!(std::fs::read_to_string(check.join(".env")).unwrap(), "2\n", "copied again");
    assert!(!check.join("local").exists(), "what is gone does not stay");
    scene.configure("setup = \"test ! -e c\"\nchecks = \"true\"");
    let third = scene.ready("write c 1");
    scene.await_free(&third);
    scene
        .studio(["accept", &third])
        .exits(1)
        .output_contains("setup `test ! -e c` fails on the merged tree");
}

#[test]
fn a_landing_reports_that_it_waits_and_does_not_wait_for_an_editor() {
    let scene = Scene::new();
    let ids = [1, 2, 3].map(|n| scene.ready(&format!("write f{n} {n}")));
    ids.iter().for_each(|id| scene.await_free(id));
    let lock = scene.repo.path().join(".git/studio/landing.lock");
    let held = base::lock::Lock::try_take(&lock).unwrap().expect("nobody lands");
    scene.studio(["accept", "--dry-run", &ids[0]]).exits(0).output_contains("would land");
    let mut waits = scene.env.start(studio(), scene.repo.path(), ["accept", "-m", "1", &ids[0]]);
    let mut said = [0; 11];
    std::io::Read::read_exact(waits.child.stderr.as_mut().unwrap(), &mut said).unwrap();
    assert_eq!(&said, b"waiting for");
    drop(held);
    assert!(waits.wait_until(None).unwrap().expect("it ends").success());

    let editor =
        "echo >> \"$HOME/edits\"; until test -e \"$HOME/saved\"; do sleep 0.01; done; true";
    let job = scene.env.command(studio(), scene.repo.path()).env("EDITOR", editor);
    let mut edits = job.args(["accept", "--edit", &ids[1]]).spawn().unwrap();
    until("the editor", || scene.env.home().join("edits").exists().then_some(()));
    scene.studio(["accept", "-m", "3", &ids[2]]).exits(0).output_lacks("waiting for");
    std::fs::write(scene.env.home().join("saved"), "").unwrap();
    assert!(edits.wait_until(None).unwrap().expect("it ends").success());

    assert_eq!(scene.repo.read("f2"), "2\n");
    let asked = std::fs::read_to_string(scene.env.home().join("edits")).unwrap();
    assert_eq!(asked, "\n", "the message is edited once, also when the target moved");
}

#[test]
fn a_possible_secret_lands_only_if_it_is_allowed() {
    let scene = Scene::new();
    let id = scene.ready("write a 1");
    scene.await_free(&id);
    // Assembled here, so that no scanner reports this file as a leak.
    let token = format!("ghp_{}", "a1B2c3D4e5F6g7H8i9J0".repeat(2));
    scene.worktree(&id).write("conf.txt", format!("# settings\ntoken = {token}\n"));
    let before = scene.repo.rev("main");
    for args in [["accept", &id, "-m", "x"], ["accept", &id, "--dry-run", "--yes"]] {
        let refused = scene.studio(args);
        refused
            .exits(3)
            .output_contains("conf.txt:2: looks like a GitHub token")
            .output_contains("--allow-secrets");
        refused.output_lacks(&token);
    }
    assert_eq!(scene.repo.rev("main"), before);
    scene
        .studio(["accept", &id, "-m", "x", "--allow-secrets"])
        .exits(0)
        .output_contains("conf.txt:2");
    let note = scene.repo.git(["notes", "--ref=studio", "show", "main"]);
    assert!(note.contains("secrets_allowed") && note.contains("conf.txt"), "{note}");
}

#[test]
fn work_that_changed_since_the_last_look_lands_only_on_request() {
    let scene = Scene::new();
    let shown = |id: &str, tree: &str| {
        let repository = studio_git::repo::Repository::discover(scene.repo.path()).unwrap();
        let id = base::id::Id::parse(id).unwrap();
        studio_core::session::last_shown::record(&repository, &id, tree).unwrap();
    };
    let changed = "changed since you looked at it";
    let id = scene.ready("write a 1");
    scene.await_free(&id);
    shown(&id, &scene.repo.rev("main^{tree}"));
    let before = scene.repo.rev("main");
    scene.studio(["accept", &id, "-m", "x"]).exits(3).output_contains(changed);
    let refused = scene.studio(["accept", &id, "-m", "x", "--json"]).exits(3).json();
    let confirm = &refused["refused"][0]["confirm"];
    assert_eq!(confirm["flag"], "--yes", "{refused}");
    let match_tree = format!("--match-tree={}", confirm["tree"].as_str().unwrap());
    // What the user confirms is what lands.
    scene.worktree(&id).write("a", "2");
    let other = scene.studio(["accept", &id, "-m", "x", "--yes", &match_tree]);
    other.exits(3).output_contains("its work is the tree");
    assert_eq!(scene.repo.rev("main"), before);
    scene.worktree(&id).write("a", "1\n");
    scene
        .studio(["accept", &id, "-m", "x", "--yes", &match_tree])
        .exits(0)
        .output_contains(changed);
    let id = scene.ready("write b 1");
    scene.await_free(&id);
    let snapshot = scene.repo.git(["for-each-ref", "--format=%(refname)", "refs/studio/snapshots"]);
    let snapshot = snapshot.lines().find(|name| name.contains(&id)).unwrap().to_owned();
    shown(&id, &scene.repo.rev(&format!("{snapshot}^{{tree}}")));
    scene.studio(["accept", &id, "-m", "x"]).exits(0).output_lacks(changed);
}
