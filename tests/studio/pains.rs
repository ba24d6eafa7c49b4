//! Frequent complaints of users of such tools, by number.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::Value;
use testkit::env::{built, processes_in, until};

use crate::fixtures::{OpenCounter, Scene};

fn ids(sessions: &Value) -> Vec<&str> {
    let sessions = sessions.as_array().into_iter().flatten();
    sessions.filter_map(|session| session["id"].as_str()).collect()
}

/// A conflict between two agents is known while both work, not only when the second one lands.
#[test]
fn pain_10_conflicts_between_agents_are_known_while_they_work() {
    let scene = Scene::new();
    scene.repo.commit_file("text", "1\n2\n3\n4\n5\n6\n7\n");
    let exec = |line: &str, word: &str| {
        scene.exec(["--agent", "loads", &format!("sh sed -i 's/^{line}$/{word}/' text")])
    };
    let working: Vec<String> = [("2", "two"), ("2", "zwei"), ("6", "six")]
        .map(|(line, word)| {
            let id = exec(line, word);
            scene.await_state(&id, "ready");
            scene.studio(["send", &id, "gate go"]).exits(0);
            scene.await_state(&id, "working");
            id
        })
        .to_vec();
    let found = scene.studio(["conflicts", "--json"]).json();
    let pairs = found["pairs"].as_array().unwrap();
    assert_eq!(pairs.len(), 1, "{found}");
    assert_eq!(pairs[0]["sessions"], serde_json::json!([working[0], working[1]]));
    assert_eq!(pairs[0]["files"][0]["path"], "text");
    let order = found["order"].as_array().unwrap();
    assert_eq!(ids(&found["order"]), [&working[2], &working[0], &working[1]]);
    assert_eq!(order[2]["conflicts_with"], serde_json::json!([working[0]]));
    for (id, other) in [(0, 1), (1, 0)].map(|(a, b): (usize, usize)| (&working[a], &working[b])) {
        scene
            .studio(["logs", id])
            .exits(0)
            .output_contains(&format!("{other} changes the same lines"));
        assert_eq!(scene.status(id)["state"], "working", "nothing was interrupted");
    }
    scene.studio(["logs", &working[2]]).exits(0).output_lacks("the same lines");
    working.iter().for_each(|id| scene.worktree(id).write("go", ""));
    working.iter().for_each(|id| drop(scene.await_state(id, "ready")));
}

/// What a session, the trash and the rest use on the disk is shown, and the oldest trash goes first.
#[test]
fn pain_4_disk_use_is_shown_and_limited() {
    let scene = Scene::new();
    let big = |name: &str| {
        let id = scene.ready("write a 1");
        let content = name.repeat(1 << 20);
        std::fs::write(scene.worktree(&id).path().join("big"), content).expect("writable");
        id
    };
    let ids = [big("x"), big("y"), big("z")];
    let disk = || scene.studio(["list", "--disk", "--json"]).exits(0).json();
    let before = disk();
    assert_eq!(before["sessions"].as_array().map(Vec::len), Some(3), "{before}");
    for session in before["sessions"].as_array().into_iter().flatten() {
        assert!(session["worktree"].as_u64() >= Some(1 << 20), "{session}");
        assert!(session["total"].as_u64() > session["worktree"].as_u64(), "{session}");
    }
    assert_eq!(before["trash"], 0);
    let page = scene.studio(["list", "--disk"]);
    page.exits(0).output_contains(&ids[0]).output_contains("MiB").output_contains("in the trash");
    for id in &ids {
        scene.studio(["discard", id, "--yes"]).exits(0);
    }
    let after = disk();
    assert!(after["trash"].as_u64() >= Some(3 << 20), "{after}");
    assert_eq!(after["sessions"], serde_json::json!([]));
    let freed = scene.studio(["gc", "--max-size", "2500K", "--json"]).exits(0).json();
    assert_eq!(freed["deleted"].as_array().map(Vec::len), Some(1), "{freed}");
    assert!(disk()["trash"].as_u64() <= Some(2500 << 10));
    scene.studio(["undo"]).exits(0);
    assert_eq!(scene.worktree(&ids[2]).read("big").len(), 1 << 20, "the newest is still there");
}

/// Sessions at the same time have ports, a database name and a Compose project of their own; what a
/// session leased is free again after its end.
#[test]
fn pains_8_and_9_sessions_share_no_port_and_no_name() {
    let scene = Scene::new();
    let shell = "[studio.agents.shell]\nprotocol = \"command\"\n\
                 command = [\"sh\", \"-c\", \"{prompt}\"]\n";
    scene.configure(&format!("checks = 'test -n \"$STUDIO_PORT\"'\nports = 3\n{shell}"));
    let print =
        "echo $STUDIO_PORT $STUDIO_PORT_COUNT $STUDIO_DATABASE $COMPOSE_PROJECT_NAME > mine";
    let start = || scene.exec(["--agent", "shell", print]);
    let ids = [start(), start(), start()];
    let mut seen = std::collections::BTreeSet::new();
    for id in &ids {
        let leases = scene.await_state(id, "ready")["leases"].clone();
        let (ports, names) = (&leases["ports"], [&leases["database"], &leases["compose_project"]]);
        let first = ports["first"].as_u64().expect("a port");
        assert_eq!(ports["count"], 3);
        assert!((first..first + 3).all(|port| seen.insert(port.to_string())), "{ports}");
        let [database, project] = names.map(|name| name.as_str().expect("a name"));
        assert!([database, project].into_iter().all(|name| seen.insert(name.to_owned())));
        assert_eq!(scene.worktree(id).read("mine"), format!("{first} 3 {database} {project}\n"));
        let shell = scene.studio(["shell", id, "--", "sh", "-c", "echo $STUDIO_PORT"]);
        shell.output_contains(&first.to_string());
    }
    let first_of = |id: &str| scene.status(id)["leases"]["ports"]["first"].clone();
    let freed = first_of(&ids[1]);
    scene.studio(["discard", &ids[1], "--yes"]).exits(0);
    assert_eq!(first_of(&ids[1]), Value::Null);
    // Something that still listens keeps its port.
    let port = u16::try_from(freed.as_u64().expect("a port")).expect("a port");
    let listener = std::net::TcpListener::bind(("127.0.0.1", port + 2)).expect("it was free");
    let next = start();
    scene.await_state(&next, "ready");
    assert!(first_of(&next) != freed && !seen.contains(&first_of(&next).to_string()));
    drop(listener);
    let next = start();
    scene.await_state(&next, "ready");
    assert_eq!(first_of(&next), freed);
}

#[test]
fn a_session_reads_few_leases_of_others() {
    let scene = Scene::new();
    scene.configure("checks = 'test -n \"$STUDIO_PORT\"'\nsetup = \"true\"");
    let first = scene.ready("write a 1");
    scene.await_supervisor(&first);
    let port = scene.status(&first)["leases"]["ports"]["first"].as_u64().expect("a port");
    let leases = scene.env.home().join(".local/state/studio/leases");
    for other in 29_000..29_300 {
        let lease = leases.join(format!("{port}.json"));
        std::fs::copy(lease, leases.join(format!("{other}.json"))).expect("a lease");
    }
    let opened = OpenCounter::of(&leases);
    let second = scene.ready("write b 1");
    scene.await_supervisor(&second);
    assert!(scene.status(&second)["leases"]["ports"]["first"].as_u64() > Some(port));
    let count = opened.count();
    assert!((2..100).contains(&count), "{count}");
}

/// A session that waits is never shown as working, nor the reverse, in any view.
#[test]
fn pain_14_every_view_shows_the_same_true_state() {
    let scene = Scene::new();
    let id = scene.exec(["--agent", "talk", "--ask", "ask one; gate go"]);
    let views = |expected: &str| {
        assert_eq!(scene.status(&id)["state"], expected);
        let listed = scene.studio(["list", "--json"]).json();
        assert_eq!(listed["sessions"][0]["state"], expected, "{listed}");
        scene.studio(["list"]).exits(0).output_contains(expected);
        assert_eq!(scene.studio(["explain", &id, "--json"]).json()["state"], expected);
        let inbox = scene.studio(["inbox", "--json"]).json();
        let asks = ids(&inbox["questions"]);
        assert_eq!(asks.contains(&id.as_str()), expected == "waiting", "{inbox}");
        assert_eq!(ids(&inbox["unseen"]).contains(&id.as_str()), expected == "ready", "{inbox}");
    };
    scene.await_state(&id, "waiting");
    views("waiting");
    scene.studio(["answer", &id, "1", "allow"]).exits(0);
    scene.await_state(&id, "working");
    views("working");
    scene.worktree(&id).write("go", "");
    scene.await_state(&id, "ready");
    views("ready");
}

/// An agent that reports nothing for a long time is named, not only by a state that says `working`.
#[test]
fn pain_15_a_stuck_agent_is_named_and_stopped_without_loss() {
    let mut scene = Scene::new();
    let stuck = scene.exec(["--agent", "talk", "write a 1; hang"]);
    scene.await_state(&stuck, "working");
    let asking = scene.exec(["--agent", "talk", "--ask", "ask one"]);
    scene.await_state(&asking, "waiting");
    let quiet = |scene: &Scene| scene.studio(["inbox", "--json"]).json()["quiet"].clone();
    assert_eq!(ids(&quiet(&scene)), [""; 0]);

    scene.env.set("G3_TEST_NOW", "2026-01-02T10:10:00Z");
    assert_eq!(ids(&quiet(&scene)), [&stuck], "the other one waits for the user");
    let page = scene.studio(["inbox"]);
    page.exits(0)
        .output_contains("No event for 10 minutes or more:")
        .output_contains("write a 1; hang");
    scene.studio(["stop", &stuck]).exits(0);
    scene.await_state(&stuck, "stopped");
    assert_eq!(ids(&quiet(&scene)), [""; 0]);
    assert_eq!(scene.worktree(&stuck).read("a"), "1\n");
}

/// The user's checkout keeps every byte that is not landed, whatever a queue does.
#[test]
fn pain_02_a_queue_touches_no_file_that_the_user_has_changed() {
    let scene = Scene::new();
    scene.repo.commit_file("shared", "a\n");
    let [in_the_way, free] = ["write shared theirs", "write new 1"].map(|task| scene.ready(task));
    scene.repo.write("shared", "mine, not committed\n");
    scene.repo.write("untracked", "mine\n");
    let outcome = scene.studio(["accept", "--all", "--json"]).exits(3).json();
    assert_eq!(ids(&outcome["landed"]), [&free]);
    assert_eq!(ids(&outcome["refused"]), [&in_the_way]);
    assert_eq!(scene.repo.read("shared"), "mine, not committed\n");
    assert_eq!(scene.repo.git(["status", "--porcelain"]).trim(), "M shared\n?? untracked");
    scene.repo.is_sound();
}

/// The target is not called `main`, and is checked out in a worktree of the user, not in the main
/// checkout.
#[test]
fn pain_11_sessions_land_on_a_branch_that_is_checked_out_elsewhere() {
    let scene = Scene::new();
    let place = scene.env.home().join("elsewhere");
    scene.repo.git(["worktree", "add", "-q", "-b", "develop", &place.display().to_string()]);
    let elsewhere = testkit::repo::Repo::at(&place);
    elsewhere.commit_file("only-there", "1\n");
    let before = scene.repo.rev("main");
    let sessions = ["write a 1", "write b 1"].map(|task| {
        let id = scene.exec(["--branch", "develop", task]);
        scene.await_state(&id, "ready");
        id
    });
    let outcome = scene.studio(["accept", "--all", "--json"]).exits(0).json();
    assert_eq!(ids(&outcome["landed"]), sessions.each_ref().map(String::as_str));
    assert_eq!((elsewhere.read("a"), elsewhere.read("b")), ("1\n".into(), "1\n".into()));
    assert_eq!(elsewhere.git(["status", "--porcelain"]), "");
    assert_eq!(
        (scene.repo.rev("main"), scene.repo.git(["status", "--porcelain"])),
        (before, String::new())
    );
}

/// A queue that dies, and two queues at once, land each session exactly once.
#[test]
fn pain_12_a_queue_neither_loses_nor_repeats_work() {
    let scene = Scene::new();
    for n in 0..4 {
        scene.ready(&format!("write f{n} {n}"));
    }
    let command = scene.env.command(crate::fixtures::studio(), scene.repo.path());
    let command = command.args(["accept", "--all"]).env("G3_TEST_KILL_AT", "accept.outcome:2");
    assert_eq!(scene.env.run_command(command).code, 137);
    std::thread::scope(|scope| {
        let runs = [1, 2].map(|_| scope.spawn(|| scene.studio(["accept", "--all"])));
        runs.map(|run| run.join().expect("it does not panic").exits(0).code)
    });
    for n in 0..4 {
        assert_eq!(scene.repo.read(&format!("f{n}")), format!("{n}\n"));
    }
    assert_eq!(scene.repo.git(["rev-list", "--count", "main"]).trim(), "5");
    let trailers = scene.repo.git(["log", "--format=%(trailers:key=Session,valueonly)"]);
    let mut sessions: Vec<&str> = trailers.lines().filter(|line| !line.is_empty()).collect();
    sessions.sort_unstable();
    sessions.dedup();
    assert_eq!(sessions.len(), 4, "{trailers}");
}

/// What an agent says does not count: an agent that did nothing, and one whose checks fail, are not
/// ready, and work that passed alone is checked again on the merged tree.
#[test]
fn pain_13_done_means_that_the_checks_of_the_merged_tree_passed() {
    let scene = Scene::new();
    scene.configure("checks = \"! [ -e left ] || ! [ -e right ]\"");
    let idle = scene.exec(["say All done"]);
    scene.await_state(&idle, "empty");
    let broken = scene.exec(["write left 1; write right 1; say All tests pass"]);
    scene.await_state(&broken, "failed");
    let [left, right] = ["write left 1", "write right 1"].map(|task| scene.ready(task));
    let outcome = scene.studio(["accept", "--all", "--json"]).exits(1).json();
    assert_eq!(ids(&outcome["landed"]), [&left]);
    assert_eq!(ids(&outcome["refused"]), [&right]);
    assert_eq!(outcome["refused"][0]["fails_with"], left.as_str());
    assert_eq!(scene.repo.git(["rev-list", "--count", "main"]).trim(), "2");
}

/// Many sessions that start, commit and land at the same time do not fail on a lock of git.
#[test]
fn pain_17_parallel_sessions_do_not_race_for_locks_of_git() {
    let scene = Scene::new();
    let tasks: Vec<String> = (0..8).map(|n| format!("write f{n} {n}; commit f{n}")).collect();
    let command = scene.env.command(crate::fixtures::studio(), scene.repo.path());
    let command = command.args(["run", "-j", "8"]).args(&tasks);
    scene.env.run_command(command).exits(0);
    std::thread::scope(|scope| {
        let more = scope.spawn(|| scene.studio(["run", "write g0 1; commit g", "write g1 1"]));
        scene.studio(["accept", "--all"]).exits(0).output_lacks("lock");
        more.join().expect("it does not panic").exits(0);
    });
    scene.studio(["accept", "--all"]).exits(0).output_lacks("lock");
    assert_eq!(scene.repo.git(["rev-list", "--count", "main"]).trim(), "11");
    scene.repo.is_sound();
}

/// A stuck agent becomes `waiting` by itself; the user is told once, and a message goes on from
/// there.
#[test]
fn pain_15_a_stuck_agent_waits_for_the_user_and_a_message_continues_it() {
    let scene = Scene::new();
    let told = scene.env.home().join("told");
    let line =
        format!("notify = [\"sh\", \"-c\", \"echo $STUDIO_REASON >> {}\"]\n", told.display());
    scene.configure(&format!("{line}limits.stall_seconds = 1\n"));
    let stuck = scene.exec(["--agent", "talk", "write a 1; hang"]);
    let status = scene.await_state(&stuck, "waiting");
    assert_eq!(status["why"], "stalled: no event for 1 s", "{status}");
    let inbox = scene.studio(["inbox", "--json"]).json();
    assert_eq!(ids(&inbox["stalled"]), [&stuck], "{inbox}");
    until("the notification", || {
        let text = std::fs::read_to_string(&told).unwrap_or_default();
        text.contains("stalled: no event for 1 s").then_some(())
    });
    scene.studio(["send", &stuck, "write b 2"]).exits(0);
    scene.await_state(&stuck, "ready");
    assert_eq!(scene.worktree(&stuck).read("b"), "2\n");
    let text = std::fs::read_to_string(&told).unwrap_or_default();
    assert_eq!(text.matches("stalled").count(), 1, "{text}");
}

/// The same call again and again is a stall as well.
#[test]
fn pain_15_an_agent_that_repeats_one_call_is_named() {
    let scene = Scene::new();
    let call = r#"event {"seq":1,"time":"t","type":"tool_start","id":"c","name":"shell","args":{"command":"make"}}; event {"seq":1,"time":"t","type":"tool_end","id":"c","name":"shell","ok":false,"text":"error","ms":1}; "#;
    let id = scene.exec(["--agent", "talk", &format!("{}hang", call.repeat(10))]);
    let status = scene.await_state(&id, "waiting");
    let why = "stalled: `shell` was called 10 times with the same arguments and result";
    assert_eq!(status["why"], why);
    scene.studio(["stop", &id]).exits(0);
    scene.await_state(&id, "stopped");
}

/// A run as a whole has a budget: a session starts only if its reservation fits into the rest, and
/// what is used up stops the others in order.
#[test]
fn pain_21_the_total_budget_of_a_run_is_never_exceeded_by_a_start() {
    let scene = Scene::new();
    let usage = |usd: &str| {
        format!(
            r#"event {{"seq":1,"time":"t","type":"usage","input":1,"output":1,"cache_read":0,"cache_write":0,"cost_usd":{usd}}}"#
        )
    };
    let task = format!("- write a 1; {}\n", usage("0.4"));
    scene.repo.write("tasks.md", task.repeat(4));
    let flags =
        ["run", "--agent", "talk", "--jobs", "4", "--budget", "0.5", "--total-budget", "1.2"];
    let ran = scene.env.run(
        crate::fixtures::studio(),
        scene.repo.path(),
        flags.into_iter().chain(["--tasks", "tasks.md"]),
    );
    ran.exits(0).output_contains("of the total budget of $1.20 is left");
    let sessions = scene.studio(["list", "--json"]).json()["sessions"].clone();
    let all = sessions.as_array().expect("a list");
    let spent: f64 = all.iter().filter_map(|it| it["usage"]["cost_usd"].as_f64()).sum();
    assert!(spent <= 1.2, "{sessions:#}");
    let queued: Vec<&Value> = all.iter().filter(|it| it["state"] == "queued").collect();
    assert_eq!(queued.len(), 2, "two have spent 0.80, and the third needs 0.50: {sessions:#}");
    assert_eq!(queued[0]["why"], "$0.40 of the total budget of $1.20 is left, and it needs $0.50");
    let id = queued[0]["id"].as_str().unwrap_or_default().to_owned();
    assert_eq!(queued[0]["next"][0], format!("studio resume {id} --total-budget USD"));
    scene.studio(["resume", &id, "--total-budget", "2"]).exits(0);
    scene.await_state(&id, "ready");
}

#[test]
fn pain_21_a_used_up_budget_stops_the_running_session_in_order() {
    let scene = Scene::new();
    let usage = r#"event {"seq":1,"time":"t","type":"usage","input":1,"output":1,"cache_read":0,"cache_write":0,"cost_usd":0.7}"#;
    let script = format!("write a 1; {usage}; {usage}; hang");
    let id = scene.exec(["--agent", "talk", "--total-budget", "1.2", &script]);
    let status = scene.await_state(&id, "failed");
    assert_eq!(status["why"], "it reached its limit of a total budget of $1.20 for its run");
    assert_eq!(scene.worktree(&id).read("a"), "1\n");
}

/// Of twenty sessions on one account, the first that is limited parks the others: those that are
/// not started yet ask nothing.
#[test]
fn pain_22_a_rate_limit_causes_no_storm_of_requests() {
    let scene = Scene::new();
    let task = "- write asked 1; fail Too many requests, retry after 3600 s\n";
    scene.repo.write("tasks.md", task.repeat(20));
    scene.exec(["--agent", "talk", "--jobs", "3", "--tasks", "tasks.md"]);
    let sessions = || scene.studio(["list", "--json"]).json()["sessions"].clone();
    let count = |sessions: &Value, state: &str| {
        let all = sessions.as_array().into_iter().flatten();
        all.filter(|session| session["state"] == state).count()
    };
    until("the account to be parked", || {
        let sessions = sessions();
        let (waiting, queued) = (count(&sessions, "waiting"), count(&sessions, "queued"));
        (waiting > 0 && waiting + queued == 20).then_some(())
    });
    scene.studio(["resume", "--all"]).exits(0);
    let sessions = sessions();
    let all = sessions.as_array().expect("a list");
    let asked = |id: &str| scene.repo.worktrees().join(id).join("asked").exists();
    let asked = all.iter().filter(|session| asked(session["id"].as_str().unwrap_or_default()));
    assert!(asked.count() <= 3, "{sessions:#}");
    assert!(count(&sessions, "queued") >= 17, "{sessions:#}");
    assert!(all.iter().all(|session| session["why"] == "rate limit until 11:00"), "{sessions:#}");
}

/// More tasks than job slots, with dependencies, are a queue that ends.
#[test]
fn pain_23_a_queue_with_a_limit_and_dependencies_runs_to_its_end() {
    let scene = Scene::new();
    let list = "- write a 1\n- write b 1\n- write c 1\n  after: t1, t2\n";
    scene.repo.write("tasks.md", list);
    let ran = scene.studio(["run", "--jobs", "1", "--accept", "--tasks", "tasks.md"]);
    ran.exits(0);
    let names = scene.repo.git(["log", "--format=%H"]);
    assert_eq!(names.lines().count(), 4, "{names}");
    assert_eq!(scene.repo.read("c"), "1\n");
}

/// A session has the ignored files that it needs, and the ignored files that it makes are not lost
/// when it lands or is dropped.
#[test]
fn pain_06_a_session_has_the_ignored_files_that_it_needs_and_loses_none() {
    let scene = Scene::new();
    scene.repo.commit_file(".gitignore", "local.ini\nnode_modules/\nout/\n");
    scene.repo.commit_file("package-lock.json", "{}\n");
    scene.repo.commit_file(".worktreeinclude", "local.ini\n");
    scene.repo.write("local.ini", "port = 1\n");
    scene.repo.write("node_modules/x/index.js", "1\n");
    let script =
        "sh cat local.ini node_modules/x/index.js > seen; sh mkdir out && echo report > out/r";
    for command in ["discard", "accept"] {
        let id = scene.ready(script);
        scene.await_free(&id);
        let worktree = scene.worktree(&id);
        assert_eq!(worktree.read("seen"), "port = 1\n1\n");
        match command {
            "discard" => scene.studio(["discard", "--yes", &id]).exits(0),
            _ => scene.studio(["accept", &id, "-m", "Add it"]).exits(0),
        };
        assert!(!worktree.path().join("out/r").exists());
        scene.studio(["undo"]).exits(0);
        assert_eq!(worktree.read("out/r"), "report\n", "ignored output comes back");
        scene.studio(["discard", "--yes", &id]).exits(0);
    }
}

/// After a reboot nothing runs and the runtime directory is empty: every session is there with its
/// work, its state says so, and one command resumes all of them.
#[test]
fn pain_16_sessions_survive_a_reboot_with_their_work() {
    let scene = Scene::new();
    let working =
        ["write a 1; gate go; write b 2", "write c 1; gate go; write d 2"].map(|script| {
            let id = scene.exec([script]);
            let first = if script.contains("write a") { "a" } else { "c" };
            until("the first file", || {
                scene.worktree(&id).path().join(first).exists().then_some(())
            });
            id
        });
    let done = scene.ready("write e 1");
    scene.await_free(&done);
    scene.await_supervisor(&done);
    for id in &working {
        let pid = i32::try_from(scene.supervisor(id)).unwrap();
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    }
    working.iter().for_each(|id| drop(scene.await_state(id, "crashed")));
    let runtime = scene.env.home().join("run");
    for entry in std::fs::read_dir(&runtime).into_iter().flatten().flatten() {
        let _ = std::fs::remove_dir_all(entry.path());
        let _ = std::fs::remove_file(entry.path());
    }
    assert_eq!(scene.status(&done)["state"], "ready");
    assert_eq!(scene.worktree(&working[0]).read("a"), "1\n");
    working.iter().for_each(|id| scene.worktree(id).write("go", ""));
    scene.studio(["resume", "--all"]).exits(0);
    for (id, file) in working.iter().zip(["b", "d"]) {
        scene.await_state(id, "ready");
        assert_eq!(scene.worktree(id).read(file), "2\n");
    }
    working.iter().for_each(|id| scene.await_free(id));
    let landed = scene.studio(["accept", "--all", "--json"]).exits(0).json();
    assert_eq!(landed["landed"].as_array().map(Vec::len), Some(3), "{landed}");
}

/// Nothing that an agent started outlives the removal of its session, not even what left its process
/// group and its terminal.
#[test]
fn pain_19_no_process_outlives_the_removal_of_its_session() {
    let scene = Scene::new();
    let script =
        "daemon pid; sh (setsid sh -c 'exec sleep 1000' </dev/null >/dev/null 2>&1 &); hang";
    let id = scene.exec([script]);
    let worktree = scene.worktree(&id).path().to_owned();
    until("the daemons", || (processes_in(&worktree).len() >= 2).then_some(()));
    let pids = processes_in(&worktree);
    scene.studio(["discard", "--yes", &id]).exits(0);
    until("all of them to end", || {
        (!pids.iter().any(|it| base::process::is_alive(it.id))).then_some(())
    });
    assert_eq!(scene.studio(["doctor", "--json"]).json()["mended"], serde_json::json!([]));
}

/// What the user accepted once applies in every worktree: no session asks again.
#[test]
fn pain_20_what_is_trusted_once_is_trusted_in_every_worktree() {
    let scene = Scene::new();
    scene.repo.commit_file("g3.toml", "[studio]\nchecks = \"test -e a\"\n");
    let unknown = scene.studio(["run", "--dry-run", "write a 1"]);
    unknown.output_contains("`studio.checks`").output_contains("g3 trust");
    scene.env.run(built("g3"), scene.repo.path(), ["trust"]).exits(0);
    let ids = [1, 2, 3].map(|n| scene.ready(&format!("write a {n}")));
    for id in &ids {
        let status = scene.status(id);
        assert_eq!(status["checks"][0]["command"], "test -e a", "{status}");
        scene.studio(["logs", id]).exits(0).output_lacks("not trusted");
    }
    scene.studio(["inbox"]).exits(0).output_lacks("asks for permission");
}
