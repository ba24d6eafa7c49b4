//! kill -9 at every durable step: afterwards `doctor` and a second try lead to a clean state, and
//! no work is lost.

use std::collections::BTreeSet;
use std::path::Path;

use base::lock::Lock;
use serde_json::Value;
use testkit::env::{CommandRun, until};
use testkit::repo::{Repo, tree};

use crate::fixtures::{Scene, studio};
use crate::git_command::executable;

const TASK: &str = "write a 1; commit one; write b 2";

/// Runs studio with an additional variable.
fn with(scene: &Scene, key: &str, value: &str, args: &[&str]) -> CommandRun {
    let job = scene.env.command(studio(), scene.repo.path()).args(args).env(key, value);
    scene.env.run_command(job)
}

/// Returns the names of the durable steps of a command, including those of its supervisors.
fn steps(scene: &Scene, args: &[&str]) -> BTreeSet<String> {
    let file = scene.env.home().join("steps");
    let _ = std::fs::remove_file(&file);
    with(scene, "G3_TEST_STEPS", &file.display().to_string(), args).exits(0);
    let text = std::fs::read_to_string(file).expect("there are steps");
    text.lines().map(str::to_owned).collect()
}

fn state(scene: &Scene, id: &str) -> String {
    scene.status(id)["state"].as_str().expect("a state").to_owned()
}

/// Returns the only session in its final state: a crashed one is resumed, a lost one is started
/// again.
fn brought_to_ready(scene: &Scene) -> String {
    scene.studio(["doctor"]);
    let list = scene.studio(["list", "--json"]).json();
    let Some(session) = list["sessions"].as_array().expect("a list").last().cloned() else {
        scene.studio(["run", TASK]).exits(0);
        return brought_to_ready(scene);
    };
    let id = session["id"].as_str().expect("an id").to_owned();
    until("the session to settle", || {
        let now = state(scene, &id);
        if now == "crashed" {
            scene.studio(["resume", &id]).exits(0);
        }
        (now == "ready").then_some(())
    });
    scene.await_free(&id);
    id
}

fn is_clean(scene: &Scene) {
    scene.studio(["doctor"]);
    scene.studio(["doctor"]).exits(0).output_contains("no problems found");
    scene.repo.is_sound();
    assert_eq!(scene.repo.git(["for-each-ref", "refs/studio/landing"]), "");
}

#[test]
fn a_run_killed_at_any_step_can_be_finished() {
    let all = steps(&Scene::new(), &["run", TASK]);
    assert!(all.len() >= 10, "{all:?}");
    for name in all {
        let scene = Scene::new();
        with(&scene, "G3_TEST_KILL_AT", &name, &["run", TASK]);
        let id = brought_to_ready(&scene);
        scene.studio(["accept", &id, "-m", "Add a and b"]).exits(0);
        assert_eq!(
            (scene.repo.read("a"), scene.repo.read("b")),
            ("1\n".into(), "2\n".into()),
            "{name}"
        );
        is_clean(&scene);
        assert_eq!(scene.repo.git(["worktree", "list"]).lines().count(), 1, "{name}");
    }
}

#[test]
fn an_accept_killed_at_any_step_has_landed_or_has_not() {
    let scene = Scene::new();
    let id = scene.ready(TASK);
    scene.await_free(&id);
    for name in steps(&scene, &["accept", &id, "-m", "Add a and b"]) {
        let scene = Scene::new();
        let id = scene.ready(TASK);
        scene.await_free(&id);
        with(&scene, "G3_TEST_KILL_AT", &name, &["accept", &id, "-m", "Add a and b"]);
        scene.studio(["doctor"]);
        if state(&scene, &id) != "accepted" {
            assert_eq!(state(&scene, &id), "ready", "{name}");
            scene.studio(["accept", &id, "-m", "Add a and b"]).exits(0);
        }
        assert_eq!(
            (scene.repo.read("a"), scene.repo.read("b")),
            ("1\n".into(), "2\n".into()),
            "{name}"
        );
        assert_eq!(scene.repo.git(["status", "--porcelain"]), "", "{name}");
        assert_eq!(scene.repo.git(["rev-list", "--count", "main"]), "2", "{name}");
        is_clean(&scene);
    }
}

#[test]
fn an_accept_that_drops_the_other_attempts_killed_at_any_step_loses_none() {
    let prepared = || {
        let scene = Scene::new();
        scene.studio(["run", "--attempts", "3", TASK]).exits(0);
        let list = scene.studio(["list", "--json"]).json();
        let sessions = list["sessions"].as_array().expect("a list").iter();
        let id = |session: &Value| session["id"].as_str().expect("an id").to_owned();
        let ids: Vec<String> = sessions.map(id).collect();
        ids.iter().for_each(|id| scene.await_supervisor(id));
        (scene, ids)
    };
    let accept = |id: &str| ["accept", id, "--drop-others", "-m", "Add a and b"].map(str::to_owned);
    let (scene, ids) = prepared();
    let args = accept(&ids[0]);
    let names = steps(&scene, &args.each_ref().map(String::as_str));
    assert!(names.len() >= 5, "{names:?}");
    for name in names {
        let (scene, ids) = prepared();
        let args = accept(&ids[0]);
        let args = args.each_ref().map(String::as_str);
        let worktrees = || ids.iter().map(|id| tree(scene.worktree(id).path())).collect::<Vec<_>>();
        let states = || ids.iter().map(|id| state(&scene, id)).collect::<Vec<_>>();
        let before = worktrees();
        with(&scene, "G3_TEST_KILL_AT", &name, &args);
        scene.studio(["doctor"]);
        if states() != ["accepted", "discarded", "discarded"] {
            assert_eq!(states(), ["ready"; 3], "{name}");
            assert_eq!(worktrees(), before, "{name}");
            scene.studio(args).exits(0);
        }
        assert_eq!(states(), ["accepted", "discarded", "discarded"], "{name}");
        assert_eq!((scene.repo.read("a"), scene.repo.read("b")), ("1\n".into(), "2\n".into()));
        is_clean(&scene);
        scene.studio(["undo"]).exits(0);
        assert_eq!(states(), ["ready"; 3], "{name}");
        assert_eq!(worktrees(), before, "{name}");
        is_clean(&scene);
    }
}

#[test]
fn a_discard_and_an_undo_killed_at_any_step_lose_nothing() {
    let scene = Scene::new();
    let id = scene.ready(TASK);
    scene.await_free(&id);
    let discard = steps(&scene, &["discard", &id]);
    let undo = steps(&scene, &["undo"]);
    for (verb, name) in
        discard.iter().map(|name| ("discard", name)).chain(undo.iter().map(|name| ("undo", name)))
    {
        let scene = Scene::new();
        let id = scene.ready(TASK);
        scene.await_free(&id);
        let before = tree(scene.worktree(&id).path());
        if verb == "undo" {
            scene.studio(["discard", &id]).exits(0);
        }
        let args = if verb == "undo" { vec!["undo"] } else { vec!["discard", id.as_str()] };
        with(&scene, "G3_TEST_KILL_AT", name, &args);
        scene.studio(["doctor"]);
        if state(&scene, &id) == "discarded" {
            scene.studio(["undo"]).exits(0);
        }
        assert_eq!(state(&scene, &id), "ready", "{verb} {name}");
        assert_eq!(tree(scene.worktree(&id).path()), before, "{verb} {name}");
        is_clean(&scene);
    }
}

/// Returns the states of all sessions, oldest first.
#[test]
fn a_session_is_open_again_only_when_its_undo_is_complete() {
    let scene = Scene::new();
    let id = scene.ready(TASK);
    scene.await_free(&id);
    for (end, ended, recovered) in [
        (vec!["discard", &id], "discarded", "was finished"),
        (vec!["accept", &id, "-m", "x"], "accepted", "was rolled back"),
    ] {
        let ran = scene.env.run(studio(), scene.repo.path(), end);
        ran.exits(0);
        with(&scene, "G3_TEST_KILL_AT", "undo.intended", &["undo"]).exits(137);
        assert_eq!(state(&scene, &id), ended);
        scene.studio(["doctor"]).output_contains(recovered);
        if ended == "accepted" {
            scene.studio(["undo"]).exits(0);
        }
        assert_eq!(state(&scene, &id), "ready");
        assert_eq!(scene.worktree(&id).read("b"), "2\n");
    }
}

fn states(scene: &Scene) -> Vec<String> {
    let list = scene.studio(["list", "--json"]).json();
    let sessions = list["sessions"].as_array().expect("a list");
    sessions.iter().map(|session| session["state"].as_str().expect("a state").to_owned()).collect()
}

fn kill(pid: u64) {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    let signal = rustix::process::Signal::KILL;
    rustix::process::kill_process(pid.expect("a process id"), signal).expect("it is there");
}

#[test]
fn a_queue_outlives_its_run_and_its_supervisor() {
    for with_supervisor in [false, true] {
        let scene = Scene::new();
        let tasks = ["run", "-j", "1", "gate go; write a 1", "write b 1", "write c 1"];
        let mut run = scene.env.start(studio(), scene.repo.path(), tasks);
        let wanted = |now: &[&str]| {
            until(&format!("{now:?}"), || (states(&scene) == now).then_some(()));
        };
        wanted(&["working", "queued", "queued"]);
        kill(run.id().into());
        run.wait_until(None).unwrap();
        wanted(&["working", "queued", "queued"]);
        let list = scene.studio(["list", "--json"]).json();
        let id = |n: usize| list["sessions"][n]["id"].as_str().unwrap().to_owned();
        if with_supervisor {
            let journal = scene.journal(&id(0));
            let spawned = journal.iter().find(|line| line["entry"] == "spawned").unwrap();
            kill(spawned["pid"].as_u64().unwrap());
            wanted(&["crashed", "queued", "queued"]);
            scene
                .studio(["list"])
                .exits(0)
                .output_contains("2 queued and none running: studio resume");
            scene.studio(["stop", &id(0)]).exits(3);
            // One session by name: the slot is free, and the oldest queued session starts first.
            scene.studio(["resume", &id(2)]).exits(0);
            wanted(&["crashed", "ready", "ready"]);
            scene.studio(["resume", "--all"]).exits(0).output_contains(&id(0));
        }
        scene.worktree(&id(0)).write("go", "");
        wanted(&["ready", "ready", "ready"]);
        for (n, file) in ["a", "b", "c"].iter().enumerate() {
            assert_eq!(scene.worktree(&id(n)).read(file), "1\n");
        }
    }
}

#[test]
fn an_idle_queue_is_started_by_resume() {
    let scene = Scene::new();
    let tasks = ["run", "-j", "2", "write a 1", "write b 1"];
    let ran = with(&scene, "G3_TEST_KILL_AT", "run.supervisor", &tasks);
    assert_ne!(ran.code, 0);
    scene
        .studio(["list"])
        .exits(0)
        .output_contains("2 queued and none running: studio resume --all");
    let resumed = scene.studio(["resume", "--all"]);
    resumed.exits(0).output_contains("resumed").output_lacks("no session");
    until("both to be ready", || (states(&scene) == ["ready", "ready"]).then_some(()));
}

#[test]
fn crashed_sessions_of_all_repositories_are_resumed_and_stopped_ones_are_not() {
    let scene = Scene::new();
    let other = scene.env.repo_at("other");
    let everywhere = |args: &[&str]| scene.env.run(studio(), scene.env.home(), args);
    let none = everywhere(&["resume", "--crashed", "-A"]);
    none.exits(0).output_contains("no stopped, crashed or queued sessions in any repository");
    let mut ids = Vec::new();
    for repo in [scene.repo.path(), other.path()] {
        let exec = |task| scene.studio_in(repo, ["exec", task]).ok().trim().to_owned();
        let (crashed, stopped) = (exec("gate go; write a 1"), exec("gate go; write b 1"));
        let state = |id: &str| {
            let status = scene.studio_in(repo, ["status", id, "--json"]).exits(0).json();
            status["state"].as_str().unwrap().to_owned()
        };
        until("both to work", || {
            (state(&crashed) == "working" && state(&stopped) == "working").then_some(())
        });
        scene.studio_in(repo, ["stop", &stopped]).exits(0);
        let journal = repo.join(".git/studio/sessions").join(&crashed).join("journal.jsonl");
        let journal = std::fs::read_to_string(journal).unwrap();
        let entries = journal.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        kill(entries.filter_map(|entry| entry["pid"].as_u64()).next().expect("its supervisor"));
        until("the crash", || (state(&crashed) == "crashed").then_some(()));
        Repo::at(&Repo::at(repo).worktrees().join(&crashed)).write("go", "");
        ids.push((repo.to_owned(), crashed, stopped));
    }
    let resumed = everywhere(&["resume", "--crashed", "--all-repositories", "--json"]);
    let resumed = resumed.exits(0).json();
    for (repo, crashed, stopped) in ids {
        let repo = repo.canonicalize().unwrap();
        let all = resumed["repositories"].as_array().unwrap();
        let here = all.iter().find(|it| it["directory"] == repo.to_str().unwrap()).unwrap();
        assert_eq!(here["resumed"], serde_json::json!([crashed]));
        let state = |id: &str| {
            let status = scene.studio_in(&repo, ["status", id, "--json"]).exits(0).json();
            status["state"].as_str().unwrap().to_owned()
        };
        until("the work to be ready", || (state(&crashed) == "ready").then_some(()));
        assert_eq!(state(&stopped), "stopped");
    }
    scene.studio(["resume", "--all-repositories"]).exits(2).output_contains("--crashed");
}

#[test]
fn a_damaged_session_is_reported_and_blocks_no_other() {
    let damages: [(&str, Option<&str>); 5] = [
        ("session.json", Some("{\"schema\": 1, \"id\": ")),
        ("session.json", Some("\u{0}\u{0}\u{0}")),
        ("session.json", None),
        ("journal.jsonl", Some("no line of it is JSON\n")),
        ("journal.jsonl", None),
    ];
    for (name, text) in damages {
        let scene = Scene::new();
        let bad = scene.ready("write a 1");
        let good = scene.ready("write b 1");
        for id in [&bad, &good] {
            scene.await_free(id);
        }
        let file = scene.session_file(&bad, name);
        match text {
            Some(text) => std::fs::write(&file, text).unwrap(),
            None => std::fs::remove_file(&file).unwrap(),
        }
        let before = tree(scene.session_file(&bad, ".").as_path());
        scene
            .studio(["list"])
            .exits(0)
            .output_contains(&good[..7])
            .output_contains(&format!("`{bad}` cannot be read"));
        let list = scene.studio(["list", "--json"]).exits(0).json();
        assert_eq!(list["sessions"][0]["id"], good.as_str(), "{list}");
        assert_eq!(list["unreadable"][0]["id"], bad.as_str(), "{list}");
        let doctor = scene.studio(["doctor"]);
        doctor
            .exits(1)
            .output_contains(&format!("`{bad}` cannot be read"))
            .output_contains(name)
            .output_lacks("repaired");
        scene
            .studio(["status", &bad])
            .exits(1)
            .output_contains(name)
            .output_contains("studio doctor");
        scene.studio(["accept", &good, "-m", "b"]).exits(0);
        scene.studio(["run", "write c 1"]).exits(0);
        assert_eq!(tree(scene.session_file(&bad, ".").as_path()), before, "{name}");
        assert_eq!(scene.worktree(&bad).read("a"), "1\n");
    }
}

#[test]
fn doctor_removes_incomplete_data_only_while_no_session_runs() {
    let scene = Scene::new();
    let apart = scene.env.home().join("apart");
    scene.configure(&format!("worktree = \"{}/{{id}}\"", apart.display()));
    let (one, other) = (scene.ready("write a 1"), scene.ready("write b 1"));
    [&one, &other].iter().for_each(|id| scene.await_free(id));
    let half =
        [apart.join(format!(".new-{one}")), scene.repo.path().join(".git/studio/scratch/s1")];
    half.iter().for_each(|dir| std::fs::create_dir_all(dir.join("sub")).unwrap());
    make_old(&half[1]);
    let busy = Lock::try_take(&scene.session_file(&other, "lock")).unwrap().expect("it is free");
    scene.studio(["doctor"]).exits(0).output_lacks("removed");
    assert!(half.iter().all(|dir| dir.exists()));
    drop(busy);
    scene
        .studio(["doctor"])
        .exits(0)
        .output_contains("removed the incomplete")
        .output_contains("scratch/s1");
    assert!(half.iter().all(|dir| !dir.exists()));
    scene.studio(["doctor"]).exits(0).output_contains("no problems found");
}

#[test]
fn a_fork_killed_before_its_record_can_be_repeated_and_doctor_removes_its_ref() {
    let scene = Scene::new();
    let id = scene.ready("write a 1");
    scene.await_free(&id);
    let points = scene.env.home().join("points");
    let args = ["fork", &id, "; write b 2", "--detach"];
    let job = scene.env.command(studio(), scene.repo.path()).args(args);
    let job = job.env("G3_TEST_POINTS", &points);
    let job = job.env("G3_TEST_FAULT", "kill@main write session.json:1");
    assert_eq!(scene.env.run_command(job).code, 137);
    let starts = || scene.repo.git(["for-each-ref", "--format=%(refname)", "refs/studio/starts"]);
    let left = starts();
    assert!(left.starts_with("refs/studio/starts/"), "{left}");

    let fork = scene.studio(args).ok().to_owned();
    scene.await_state(&fork, "ready");
    scene.await_free(&fork);
    scene.studio(["doctor"]).output_lacks("refs/studio/starts");
    make_old(&studio_git::refs::file_of(&scene.repo.path().join(".git"), left.trim()));
    scene.studio(["doctor"]).exits(0).output_contains(&format!("removed {}", left.trim()));
    assert_eq!(starts().trim(), format!("refs/studio/starts/{fork}"));
}

#[test]
fn doctor_removes_old_temporary_files_wherever_studio_replaces_files() {
    let scene = Scene::new();
    let id = scene.ready("write a 1");
    scene.await_free(&id);
    let git = scene.repo.path().join(".git");
    let directories = [
        git.join("studio"),
        git.join("studio/cache"),
        scene.session_file(&id, "caches"),
        scene.session_file(&id, "originals"),
        git.join("info"),
        git.join("worktrees").join(&id),
    ];
    let files = |name: &str| directories.clone().map(|directory| directory.join(name));
    for path in files(".tmp-old0001").iter().chain(&files(".tmp-young01")) {
        std::fs::create_dir_all(path.parent().expect("it has one")).expect("it can be made");
        std::fs::write(path, "half").expect("it can be written");
    }
    files(".tmp-old0001").iter().for_each(|path| make_old(path));
    scene.studio(["doctor"]).exits(0).output_contains("removed the temporary");
    assert_eq!(files(".tmp-old0001").map(|path| path.exists()), [false; 6]);
    assert_eq!(files(".tmp-young01").map(|path| path.exists()), [true; 6]);
}

/// Sets the time of a file back, so that it counts as left over.
fn make_old(path: &Path) {
    let file = std::fs::File::open(path).expect("it exists");
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(7200);
    file.set_modified(old).expect("it is ours");
}

#[test]
fn a_busy_session_does_not_prevent_resuming_others() {
    let scene = Scene::new();
    let ids = [1, 2, 3].map(|n| scene.exec([&format!("write a{n} 1; gate go; write b{n} 1")]));
    for id in &ids {
        scene.await_state(id, "working");
        scene.studio(["stop", id]).exits(0);
        scene.worktree(id).write("go", "");
    }
    let _busy = Lock::try_take(&scene.session_file(&ids[0], "lock")).unwrap().expect("it is free");
    scene.studio(["resume", "--all"]).exits(3).output_contains("another process holds its lock");
    for id in &ids[1..] {
        scene.await_state(id, "ready");
    }
}

#[test]
fn a_damaged_line_of_the_operation_log_is_reported_and_blocks_no_other_session() {
    let scene = Scene::new();
    let dropped = scene.ready("write a 1");
    let good = scene.ready("write b 1");
    scene.studio(["discard", &dropped]).exits(0);
    let log = scene.repo.path().join(".git/studio/operations.jsonl");
    let text = std::fs::read_to_string(&log).unwrap();
    std::fs::write(&log, text.replacen("\"discard\"", "\"dis", 1)).unwrap();

    let named = "line 1 of studio/operations.jsonl is damaged";
    scene.studio(["operations"]).exits(0).output_contains(named);
    scene.studio(["doctor"]).exits(1).output_contains(named).output_contains("operations.jsonl");
    scene.studio(["undo", "op1"]).exits(3).output_contains(named);
    scene.studio(["status", &dropped]).exits(1).output_contains(named);
    scene
        .studio(["list"])
        .exits(0)
        .output_contains("write-b")
        .output_contains(&format!("`{dropped}` cannot be read"));
    scene.studio(["accept", &good, "-m", "b"]).exits(0).output_contains("studio undo op2");
    scene.studio(["undo", "op2"]).exits(0);

    let mended = std::fs::read_to_string(&log).unwrap().replacen("\"dis,", "\"discard\",", 1);
    std::fs::write(&log, mended).unwrap();
    scene.studio(["undo", "op1"]).exits(0);
    assert_eq!(scene.worktree(&dropped).read("a"), "1\n", "the line was mended by hand");
}

#[test]
fn locks_of_refs_that_a_killed_studio_left_do_not_stop_the_next_one() {
    let scene = Scene::new();
    let id = scene.ready("write a 1; commit one; write b 2");
    scene.await_free(&id);
    let refs = scene.repo.path().join(".git/refs");
    let locks = [
        refs.join(format!("studio/kept/op1/{id}/branch.lock")),
        refs.join(format!("heads/studio/{id}.lock")),
    ];
    for lock in &locks {
        std::fs::create_dir_all(lock.parent().unwrap()).unwrap();
        std::fs::write(lock, "").unwrap();
    }
    scene.studio(["discard", &id]).exits(0);
    assert_eq!(scene.status(&id)["state"], "discarded");
    assert!(!scene.repo.git(["branch", "--list", "studio/*"]).contains(&id));
    assert!(locks.iter().all(|lock| !lock.exists()));
    scene.studio(["undo"]).exits(0);
    assert_eq!(scene.worktree(&id).read("b"), "2\n");
    // The lock of a branch of the user may be that of a git that waits for a hook.
    let users = refs.join("heads/main.lock");
    std::fs::write(&users, "").unwrap();
    scene.studio(["accept", &id, "-m", "Add a"]).exits(1).output_contains("main.lock");
    assert!(users.exists());
    std::fs::remove_file(&users).unwrap();
    scene.studio(["accept", &id, "-m", "Add a"]).exits(0);
    scene.repo.is_sound();
}

#[test]
fn a_lock_of_a_ref_that_changes_is_not_removed() {
    let scene = Scene::new();
    let id = scene.ready("write a 1");
    scene.await_free(&id);
    let lock = scene.repo.path().join(format!(".git/refs/studio/kept/op1/{id}/branch.lock"));
    std::fs::create_dir_all(lock.parent().unwrap()).unwrap();
    std::fs::write(&lock, "").unwrap();
    let line = "sleep 1; : > \"$1.new\"; mv \"$1.new\" \"$1\"";
    let path = lock.to_str().unwrap();
    let mut other = scene.env.start("sh", scene.repo.path(), ["-c", line, "sh", path]);
    let refused = scene.studio(["discard", &id]);
    refused.exits(1).output_contains(&format!("if no git is running: rm '{path}'"));
    other.wait_until(None).unwrap();
    assert!(lock.exists());
    std::fs::remove_file(&lock).unwrap();
    scene.studio(["doctor"]).exits(0);
    assert_eq!(scene.status(&id)["state"], "discarded");
}

#[test]
fn git_moves_packed_refs_so_that_no_killed_studio_leaves_their_lock() {
    let scene = Scene::new();
    let (bin, home) = (scene.env.home().join("logged"), scene.env.home().display());
    std::fs::create_dir(&bin).unwrap();
    let git = base::process::find_program("git").unwrap();
    let line = format!("echo \"$*\" >> {home}/calls; exec {} \"$@\"", git.display());
    executable(&bin.join("git"), &line);
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let moved_by_git = |is_packed: bool| {
        let id = scene.ready("write a 1");
        scene.await_free(&id);
        if is_packed {
            scene.repo.git(["pack-refs", "--all"]);
        }
        let _ = std::fs::remove_file(scene.env.home().join("calls"));
        with(&scene, "PATH", &path, &["discard", &id]).exits(0);
        assert!(!scene.repo.git(["branch", "--list", "studio/*"]).contains(&id));
        let calls = std::fs::read_to_string(scene.env.home().join("calls")).unwrap_or_default();
        calls.contains("update-ref")
    };
    assert_eq!((moved_by_git(false), moved_by_git(true)), (false, true));
}

#[test]
fn the_next_command_waits_for_a_git_that_outlives_a_killed_studio() {
    let scene = Scene::new();
    let id = scene.ready("write a 1; commit one; write b 2");
    scene.await_free(&id);
    let (bin, home) = (scene.env.home().join("slow"), scene.env.home());
    std::fs::create_dir(&bin).unwrap();
    let git = base::process::find_program("git").unwrap();
    let (git, home) = (git.display(), home.display());
    executable(
        &bin.join("git"),
        &format!(
            "case \"$*\" in *core.fsync*update-ref*) touch {home}/moves; sleep 2;; esac; \
             exec {git} \"$@\""
        ),
    );
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let accept = ["accept", &id, "-m", "Add both"];
    let job = scene.env.command(studio(), scene.repo.path()).args(accept).env("PATH", path);
    let mut run = job.spawn().unwrap();
    let moves = scene.env.home().join("moves");
    until("git to move the branch", || moves.exists().then_some(()));
    kill(u64::from(run.id()));
    run.wait_until(None).unwrap();
    scene.studio(["doctor"]).exits(0).output_contains("interrupted operation `op1` was finished");
    assert_eq!(scene.status(&id)["state"], "accepted");
    assert_eq!((scene.repo.read("a"), scene.repo.read("b")), ("1\n".into(), "2\n".into()));
    assert_eq!(scene.repo.git(["status", "--porcelain"]), "");
    scene.repo.is_sound();
}
