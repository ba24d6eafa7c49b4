//! `studio run`: worktrees, states, checks, JSON.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use base::process::find_program;
use testkit::env::until;
use testkit::repo::Repo;

use crate::fixtures::{Scene, studio};

#[test]
fn a_run_creates_a_worktree_and_ends_ready() {
    let scene = Scene::new();
    let before = scene.repo.git(["status", "--porcelain"]);

    let ran = scene.studio(["run", "write hello.txt hi; commit add hello"]);

    ran.exits(0).output_contains("ready").output_contains("studio diff");
    let list = scene.studio(["list", "--json"]).json();
    let session = &list["sessions"][0];
    assert_eq!(session["state"], "ready", "{session}");
    assert_eq!(session["commits"], 1);
    assert_eq!(session["files_changed"], 1);
    assert_eq!(session["dirty"], false);
    let id = session["id"].as_str().unwrap();
    assert_eq!(scene.repo.show(&format!("studio/{id}"), "hello.txt"), "hi");
    assert_eq!(scene.repo.git(["status", "--porcelain"]), before, "nothing shows up");
    scene.repo.is_sound();
}

#[test]
fn checks_determine_whether_a_session_is_ready_or_failed() {
    let scene = Scene::new();
    let good = scene.studio(["run", "--check", "test -f a", "write a 1"]);
    good.exits(0).output_contains("its check passed");
    let bad = scene.studio(["run", "--check", "echo seen; exit 3", "write a 1"]);
    bad.exits(1).output_contains("check `echo seen; exit 3` failed with exit code 3");
    let status = scene.studio(["status", "@latest", "--json"]).json();
    assert_eq!(status["checks"][0]["exit"], 3, "{status}");
}

#[test]
fn an_agent_that_changes_nothing_is_empty_and_one_that_fails_is_failed() {
    let scene = Scene::new();
    scene.studio(["run", "say nothing to do"]).exits(0).output_contains("changed nothing");
    scene
        .studio(["run", "write a 1; exit 4"])
        .exits(1)
        .output_contains("the agent exited with code 4");
}

/// Writes a `git` that lists its calls in a file before it runs the real one.
fn listing_git(scene: &mut Scene) -> PathBuf {
    let (bin, calls) = (scene.env.home().join("bin"), scene.env.home().join("calls"));
    fs::create_dir_all(&bin).expect("writable");
    let path = std::env::var("PATH").expect("set");
    let git = find_program("git").expect("installed");
    let (list, git) = (calls.display(), git.display());
    fs::write(bin.join("git"), format!("#!/bin/sh\necho \"$*\" >> '{list}'\nexec {git} \"$@\"\n"))
        .expect("writable");
    fs::set_permissions(bin.join("git"), fs::Permissions::from_mode(0o755)).expect("writable");
    scene.env.set("PATH", format!("{}:{path}", bin.display()));
    calls
}

#[test]
fn sessions_pin_what_they_borrow_without_git_although_another_one_has_the_same() {
    for has_other_branch in [false, true] {
        let mut scene = Scene::new();
        if has_other_branch {
            scene.repo.git(["switch", "-qc", "other"]);
            scene.repo.git(["commit", "-q", "--allow-empty", "-m", "elsewhere"]);
            scene.repo.git(["switch", "-q", "main"]);
        }
        let calls = listing_git(&mut scene);
        let ids = ["say one", "say two"].map(|task| {
            let id = scene.exec([task]);
            scene.await_state(&id, "empty");
            id
        });
        let calls = fs::read_to_string(calls).unwrap();
        assert!(calls.contains("version"), "{calls}");
        assert!(!calls.contains("index-pack"), "{calls}");
        let pin = |id: &str| scene.repo.git(["rev-parse", &format!("refs/studio/pins/{id}")]);
        if has_other_branch {
            assert_ne!(pin(&ids[0]), pin(&ids[1]), "each has its own");
            scene.repo.git(["merge-base", "--is-ancestor", "other", pin(&ids[1]).trim()]);
        } else {
            let base = scene.repo.git(["rev-parse", "main"]);
            assert!(ids.iter().all(|id| pin(id) == base), "nothing else is borrowed");
        }
        scene.studio(["discard", &ids[0], "--yes"]).exits(0);
        scene.studio(["gc", "--older", "0"]).exits(0);
        scene.repo.git(["gc", "-q", "--prune=now"]);
        scene.repo.is_sound();
        assert_eq!(scene.worktree(&ids[1]).git(["status", "--porcelain"]), "");
    }
}

#[test]
fn the_json_of_a_session_has_every_field() {
    let scene = Scene::new();
    let id = scene.ready("write a 1");
    let status = scene.status(&id);
    let fields: Vec<&str> = status.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(
        fields,
        [
            "id",
            "task",
            "state",
            "why",
            "waiting_until",
            "agent",
            "persona",
            "branch",
            "base",
            "head",
            "worktree",
            "place",
            "created_at",
            "updated_at",
            "commits",
            "files_changed",
            "insertions",
            "deletions",
            "dirty",
            "conflicts",
            "conflicts_with",
            "landed_elsewhere",
            "checks",
            "coach",
            "usage",
            "attempt",
            "group",
            "after",
            "tampered",
            "tried_in",
            "message",
            "next",
            "leases"
        ]
    );
    assert_eq!(status["base"]["branch"], "main");
    assert_eq!(status["dirty"], true);
    assert_eq!(status["persona"], serde_json::Value::Null);
    assert_eq!(status["conflicts"], serde_json::json!([]));
    assert_eq!(status["conflicts_with"], serde_json::json!([]));
    scene.repo.commit_file("a", "2");
    let status = scene.studio(["status", &id, "--json"]).json();
    assert_eq!(status["conflicts"], serde_json::json!(["a"]), "{status}");
    scene.studio(["status", &id]).exits(0).output_contains("1 commit behind main");
}

#[test]
fn run_with_json_reports_each_state_and_a_summary() {
    let scene = Scene::new();
    let lines = scene.studio(["run", "--json", "--events", "say hello; write a 1"]).json_lines();
    let states: Vec<&str> = lines.iter().filter_map(|line| line["state"].as_str()).collect();
    assert_eq!(states.last(), Some(&"ready"), "{lines:?}");
    let said = lines.iter().find(|line| line["type"] == "event").expect("an event");
    assert_eq!(said["event"]["text"], "hello\n");
    let summary = lines.last().unwrap();
    assert_eq!(
        (&summary["type"], &summary["sessions"][0]["state"]),
        (&"summary".into(), &"ready".into())
    );
}

#[test]
fn twenty_concurrent_runs_all_end_ready() {
    let scene = Scene::new();
    let mut running: Vec<_> = (0..20)
        .map(|n| {
            let task = format!("write f{n} {n}; commit c{n}");
            scene.env.start(studio(), scene.repo.path(), ["run", &task])
        })
        .collect();
    for run in &mut running {
        let end = std::time::Instant::now() + std::time::Duration::from_secs(240);
        let status = run.wait_until(Some(end)).unwrap().expect("it ends");
        assert!(status.success(), "{status}");
    }
    let list = scene.studio(["list", "--json"]).json();
    let states: Vec<_> = list["sessions"].as_array().unwrap().iter().map(|s| &s["state"]).collect();
    assert_eq!(states, vec!["ready"; 20]);
    assert_eq!(scene.repo.git(["worktree", "list"]).lines().count(), 21);
    scene.repo.is_sound();
}

#[test]
fn a_run_works_from_a_sub_directory_a_linked_worktree_and_a_bare_repository() {
    let scene = Scene::new();
    scene.repo.write("deep/er/file", "x");
    let deep = scene.repo.path().join("deep/er");
    scene.studio_in(&deep, ["run", "write a 1"]).exits(0);
    scene.repo.git(["worktree", "add", "-q", "../linked", "-b", "side"]);
    let linked = scene.env.home().join("linked");
    scene.studio_in(&linked, ["run", "write b 1"]).exits(0);
    let status = scene.studio(["status", "@latest", "--json"]).json();
    assert!(scene.repo.worktrees().read_dir().unwrap().count() == 2, "{status}");

    scene.repo.git(["clone", "-q", "--bare", ".", "../bare.git"]);
    let bare = scene.env.home().join("bare.git");
    scene.studio_in(&bare, ["run", "write c 1; commit c"]).exits(0);
    assert!(scene.env.home().join("bare.git.worktrees").is_dir());
    Repo::at(&bare).is_sound();
}

#[test]
fn a_queue_respects_its_number_of_jobs() {
    let scene = Scene::new();
    let first = scene.exec(["-j", "1", "gate go; write a 1"]);
    scene.await_state(&first, "working");
    let second = scene.exec(["-j", "1", "write b 1"]);
    assert_eq!(scene.status(&second)["state"], "queued");
    scene.studio(["stop", &second]).exits(0).output_contains("stopped");
    let third = scene.exec(["-j", "1", "write c 1"]);
    scene.worktree(&first).write("go", "");
    scene.await_state(&first, "ready");
    scene.await_state(&third, "ready");
}

#[test]
fn a_task_may_be_a_megabyte_long_or_start_with_dashes() {
    let scene = Scene::new();
    let long = format!("write a 1\n{}", "word ".repeat(200_000));
    let job = scene.env.command(studio(), scene.repo.path()).args(["run", "--agent", "talk", "-"]);
    let ran = scene.env.run_command(job.input(long.clone()));
    ran.exits(0);
    let status = scene.studio(["status", "@latest", "--json"]).json();
    assert_eq!(status["task"].as_str().unwrap().len(), long.trim_end().len());
    scene.studio(["run", "--", "--flag is wrong; write b 1"]).exits(0);

    let task = |agent: &str| {
        let job =
            scene.env.command(studio(), scene.repo.path()).args(["run", "--agent", agent, "-"]);
        scene.env.run_command(job.input(long.clone()))
    };
    task("fake")
        .exits(2)
        .output_contains("one argument holds 128 KiB at most")
        .output_contains("on stdin");
    assert_eq!(scene.studio(["list", "--json"]).json()["sessions"].as_array().unwrap().len(), 2);
    scene.configure("[studio.agents.reads]\nprotocol = 'command'\ncommand = ['dd', 'of=task.txt']");
    task("reads").exits(0);
    let id = scene.studio(["status", "@latest", "--json"]).json()["id"].clone();
    assert_eq!(scene.worktree(id.as_str().unwrap()).read("task.txt"), long.trim_end());
}

#[test]
fn a_failed_write_to_stdout_is_an_error_and_a_closed_pipe_is_not() {
    let scene = Scene::new();
    scene.ready("write a 1");
    let line = |text: &str| {
        let studio = format!("studio() {{ '{}' \"$@\"; }}; {text}", studio());
        scene.env.run("bash", scene.repo.path(), ["-c", &studio])
    };
    line("studio list > /dev/full")
        .exits(1)
        .output_contains("cannot write to stdout")
        .output_contains("No space left");
    line("studio list --json > /dev/full").exits(1);
    line("set -o pipefail; { studio list; studio logs; } | true").exits(0).output_lacks("error");
}

#[test]
fn errors_have_an_exit_code_and_a_hint() {
    let scene = Scene::new();
    scene.studio(["run"]).exits(2).output_contains("no task is given");
    scene.studio(["run", "  "]).exits(2).output_contains("the task is empty");
    scene.studio(["run", "--no-such-flag", "x"]).exits(2);
    scene
        .studio(["run", "--agent", "nobody", "x"])
        .exits(2)
        .output_contains("no such agent: `nobody`");
    for budget in ["nan", "inf", "-1", "much"] {
        let budget = format!("--budget={budget}");
        scene.studio(["run", &budget, "x"]).exits(2).output_contains("--budget");
    }
    scene.studio(["run", "--base", "nowhere", "x"]).exits(5).output_contains("nowhere");
    scene.studio(["status", "nothing"]).exits(5).output_contains("no sessions");
    scene.configure("chekcs = ['true']");
    scene.studio(["list"]).exits(2).output_contains("chekcs").output_contains("checks");
    let outside = scene.env.home().join("tmp");
    scene.studio_in(&outside, ["list"]).exits(5).output_contains("not in a git repository");
    let list = scene.env.command(studio(), &outside).args(["list"]).env("GIT_DIR", "../.git");
    scene.env.run_command(list).exits(5).output_contains("studio does not read GIT_DIR");
    let empty = Repo::empty(&scene.env.home().join("empty"));
    scene.configure("");
    let none = scene.studio_in(empty.path(), ["run", "x"]);
    none.exits(3).output_contains("the branch `main` has no commit yet").output_lacks("--base");
    scene.repo.git(["checkout", "-q", "--orphan", "fresh"]);
    let none = scene.studio(["run", "x"]);
    none.exits(3).output_contains("the branch `fresh` has no commit yet");
    none.output_contains("studio run --base BRANCH");
    scene.repo.git(["checkout", "-q", "-f", "main"]);
    let job =
        scene.env.command(studio(), scene.repo.path()).args(["list"]).env("PATH", "/nonexistent");
    scene.env.run_command(job).exits(2).output_contains("git");
}

#[test]
fn a_dry_run_reports_the_errors_of_a_run_and_creates_nothing() {
    let scene = Scene::new();
    scene
        .studio(["run", "--dry-run", "--check", "true", "x"])
        .exits(0)
        .output_contains("would start: x");
    for (line, why) in [
        ("worktree = '/srv/same-for-all'", "{id}"),
        ("branch = 'no id in it'", "{id}"),
        ("limits = { budget_usd = nan }", "budget_usd"),
    ] {
        scene.configure(line);
        let dry = scene.studio(["run", "--dry-run", "x"]);
        let wet = scene.studio(["run", "x"]);
        dry.exits(2).output_contains(why);
        assert_eq!((dry.code, dry.err), (wet.code, wet.err));
    }
    scene.configure("");
    scene.repo.git(["branch", "studio"]);
    let dry = scene.studio(["run", "--dry-run", "x"]);
    assert_eq!(dry.code, scene.studio(["run", "x"]).code, "{dry}");
    assert_ne!(dry.code, 0, "{dry}");
    scene.studio(["list", "--json"]).output_contains("\"sessions\":[]");
}

#[test]
fn a_name_replaces_the_words_of_the_task_in_the_id_and_the_branch() {
    let scene = Scene::new();
    let run = scene.studio(["run", "--name", "Login page", "write a 1", "write b 2", "--json"]);
    let end = run.exits(0).json_lines().pop().unwrap();
    let ids: Vec<&str> =
        end["sessions"].as_array().unwrap().iter().map(|it| it["id"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), 2, "{end}");
    assert_ne!(ids[0], ids[1]);
    for id in ids {
        assert!(id.starts_with("login-page-"), "{id}");
        assert_eq!(scene.repo.rev(&format!("studio/{id}")).len(), scene.repo.rev("main").len());
    }
    scene.studio(["run", "--name", "", "write a 1"]).exits(2);
    scene.repo.write("tasks.md", "- write a 1\n");
    scene.studio(["run", "--name", "x", "--tasks", "tasks.md"]).exits(2);
}

#[test]
fn a_session_keeps_its_configuration_file() {
    let scene = Scene::new();
    let usual = scene.env.home().join(".config/g3/config.toml");
    let other = scene.env.home().join("other.toml");
    std::fs::rename(usual, &other).unwrap();
    let other = other.display().to_string();
    scene.studio(["run", "write a 1"]).exits(2);
    scene.studio(["run", "--config", &other, "write a 1"]).exits(0).output_contains("ready");
    scene
        .studio(["config", "show", "--origin", "--config", &other])
        .exits(0)
        .output_contains("studio.agent");
}

#[test]
fn the_state_does_not_depend_on_the_cache() {
    let scene = Scene::new();
    scene.ready("write a 1");
    scene.studio(["run", "say nothing"]).exits(0);
    let before = scene.studio(["list", "--json"]);
    for session in before.json()["sessions"].as_array().unwrap() {
        let cache = scene.session_file(session["id"].as_str().unwrap(), "status.json");
        std::fs::remove_file(cache).expect("there is a cache");
    }
    assert_eq!(scene.studio(["list", "--json"]), before);
}

/// A script for an agent in place of g3 that records its command line.
const AS_G3: &str = "sh tr '\\0' ' ' < /proc/$PPID/cmdline > args";

#[test]
fn a_persona_is_passed_to_g3_and_recorded() {
    let scene = Scene::new();
    scene.scripted_g3();
    let id = scene.exec(["--agent", "g3", "--persona", "scout", AS_G3]);
    let status = scene.await_state(&id, "ready");
    assert_eq!((&status["agent"], &status["persona"]), (&"g3".into(), &"scout".into()));
    assert!(scene.worktree(&id).read("args").trim().ends_with("acp-load --agent scout"));
    let list = scene.studio(["list", "--json"]).json();
    assert_eq!(list["sessions"][0]["persona"], "scout");
    scene.studio(["list"]).output_contains("g3 as scout");
    scene.studio(["status", &id]).output_contains("g3 as scout");

    scene.await_free(&id);
    scene.worktree(&id).write("args", "");
    scene.studio(["send", &id, AS_G3]).exits(0);
    until("the second turn", || scene.worktree(&id).read("args").contains("scout").then_some(()));
    scene.await_state(&id, "ready");
    assert_eq!(scene.status(&id)["persona"], "scout");
}

#[test]
fn each_task_of_a_file_has_its_persona_with_the_flag_as_default() {
    let scene = Scene::new();
    scene.configure_g3();
    let tasks = "[[task]]\ntext = 'one'\npersona = 'hopper'\n[[task]]\ntext = 'two'\n";
    scene.repo.write("t.toml", tasks);
    let args = ["run", "--dry-run", "--json", "--tasks", "t.toml", "--agent", "g3"];
    let ran =
        scene.env.run(studio(), scene.repo.path(), args.iter().chain(&["--persona", "scout"]));
    let personas: Vec<_> = ran.json_lines().iter().map(|line| line["persona"].clone()).collect();
    assert_eq!(personas, ["hopper", "scout"]);
}

#[test]
fn a_persona_for_another_agent_or_with_an_invalid_name_is_refused() {
    let scene = Scene::new();
    scene
        .studio(["run", "--persona", "scout", "write a 1"])
        .exits(2)
        .output_contains("agent `fake` has no persona `scout`")
        .output_contains("personas are roles of g3");
    for name in ["--yolo", "a b", "../x", ""] {
        let ran = scene.studio(["run", "--agent", "g3", &format!("--persona={name}"), "x"]);
        ran.exits(2).output_contains("invalid persona name");
    }
    assert_eq!(scene.studio(["list", "--json"]).json()["sessions"], serde_json::json!([]));
}
