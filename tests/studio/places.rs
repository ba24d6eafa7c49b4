//! Sessions on another machine, over a real sshd on loopback: every verb, broken connections, lost
//! hosts.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;

use base::config::Config;
use base::id::Id;
use serde_json::Value;
use studio_core::live_sessions::LiveSessions;
use studio_core::project::Project;
use studio_git::repo::Repository;
use testkit::env::until;
use testkit::tmux::TmuxTerminal;

use crate::filters::{changes, lfs_scene};
use crate::fixtures::{Scene, studio};
use crate::place_fixtures::{SshHost, Wire, kill_keeper};

/// Asserts that home's journal is that of the place, byte for byte.
fn assert_equal_journals(scene: &Scene, host: &SshHost, id: &str) {
    let here = fs::read_to_string(scene.session_file(id, "journal.jsonl")).unwrap();
    let there = fs::read_to_string(host.session_file(id, "journal.jsonl")).unwrap();
    assert_eq!(here, there);
}

#[test]
fn a_repository_with_submodules_is_refused_by_every_command_that_chooses_a_place() {
    let scene = Scene::new();
    scene.configure("[studio.places.farm]\nhost = \"farm.invalid\"");
    scene.repo.commit_file(".gitmodules", "\n");
    let id = scene.ready("write a 1");
    scene.await_free(&id);
    for refused in [
        scene.studio(["run", "--on", "farm", "x"]),
        scene.studio(["fork", &id, "--on", "farm"]),
        scene.studio(["resume", &id, "--on", "farm"]),
    ] {
        refused.exits(2).output_contains("submodules, which are not copied to places");
    }
    assert!(scene.status(&id)["place"].is_null());
}

mod needs_sshd {
    use super::*;

    #[test]
    #[ignore = "needs sshd"]
    fn a_session_at_a_place_is_ready_reviewed_and_landed_as_one_here() {
        let (scene, host) = (Scene::new(), SshHost::start());
        host.use_in(&scene, "");
        let script = "write a.txt one; commit first; write b.txt two; say done";
        let id = scene.exec(["--on", "farm", "--check", "test -e b.txt", script]);
        let status = scene.await_state(&id, "ready");
        assert_eq!(status["place"]["name"], "farm");
        assert_eq!(status["files_changed"], 2);
        assert_eq!(status["dirty"], true);
        scene.await_free(&id);
        let ssh_host = status["place"]["host"].as_str().expect("a host");
        let place = format!("farm (host {ssh_host})");
        scene.studio(["status", &id]).output_contains(&place);
        assert_equal_journals(&scene, &host, &id);
        assert!(!scene.worktree(&id).path().exists(), "it has no worktree here");
        scene.studio(["doctor"]).output_lacks("is missing");
        scene.studio(["diff", &id]).output_contains("+one").output_contains("+two");
        scene.studio(["logs", &id]).output_contains("done");
        scene.studio(["list"]).output_contains("ready at farm");
        scene.studio(["accept", &id, "--message", "Add both"]).exits(0);
        assert_eq!(scene.repo.show("main", "a.txt"), "one");
        assert_eq!(scene.repo.show("main", "b.txt"), "two");
        scene.studio(["undo"]).exits(0);
        scene.await_state(&id, "ready");
        scene.studio(["discard", &id]).exits(0);
        scene.studio(["undo"]).exits(0);
        scene.studio(["diff", &id]).output_contains("+two");
        scene.repo.git(["fsck", "--strict"]);
    }

    #[test]
    #[ignore = "needs sshd"]
    fn a_message_resumes_it_at_its_place() {
        let (scene, host) = (Scene::new(), SshHost::start());
        host.use_in(&scene, "");
        let id = scene.exec(["--agent", "loads", "--on", "farm", "write a.txt one"]);
        scene.await_state(&id, "ready");
        scene.studio(["send", &id, "write b.txt two"]).exits(0);
        until("the second turn", || (scene.status(&id)["files_changed"] == 2).then_some(()));
        scene.await_state(&id, "ready");
        scene.await_free(&id);
        assert_equal_journals(&scene, &host, &id);
        assert_eq!(scene.status(&id)["place"]["attempt"], 2);
        let sent = |line: &&Value| line["entry"] == "turn";
        assert_eq!(scene.journal(&id).iter().filter(sent).count(), 2, "each message once");
        assert_eq!(scene.status(&id)["place"]["set_aside"], Value::Null);
    }

    #[test]
    #[ignore = "needs sshd"]
    fn connections_that_break_lose_and_repeat_nothing() {
        let (scene, host) = (Scene::new(), SshHost::start());
        host.use_in(&scene, "keep_seconds = 1");
        let script = "write a.txt one; commit first; gate go1; write b.txt two; commit second; gate go2; \
                      write c.txt three; say done";
        let id = scene.exec(["--on", "farm", script]);
        for gate in ["go1", "go2"] {
            scene.await_state(&id, "working");
            until("the agent to wait", || {
                host.repositories().first()?;
                let name = if gate == "go1" { "a.txt" } else { "b.txt" };
                host.worktree_file(&id, name).exists().then_some(())
            });
            host.cut_connections();
            fs::write(host.worktree_file(&id, gate), "").unwrap();
            host.cut_connections();
        }
        scene.await_state(&id, "ready");
        scene.await_free(&id);
        assert_equal_journals(&scene, &host, &id);
        let branch = format!("refs/heads/studio/{id}");
        let there = testkit::repo::Repo::at(&host.repositories()[0]);
        for name in [branch, format!("refs/studio/snapshots/{id}/1")] {
            let show = ["for-each-ref", "--format=%(objectname)", &name];
            assert_eq!(scene.repo.git(show), there.git(show), "{name}");
        }
        scene.repo.git(["fsck", "--strict"]);
        scene.studio(["accept", &id, "--message", "All"]).exits(0);
        assert_eq!(scene.repo.show("main", "c.txt"), "three");
    }

    #[test]
    #[ignore = "needs sshd"]
    fn the_conversation_is_live_across_a_broken_connection() {
        let (scene, host) = (Scene::new(), SshHost::start());
        host.use_in(&scene, "");
        let words = "alpha beta gamma delta ".repeat(8);
        let script =
            format!("say {words}; gate go; say omega {words}; gate end; ask x; say Second reply");
        let id = scene.exec(["--agent", "stranger", "--on", "farm", &script]);
        scene.await_state(&id, "working");
        let arguments = [studio(), "attach", id.as_str()];
        let terminal = TmuxTerminal::start(&scene.env, scene.repo.path(), (80, 24), arguments);
        let written = terminal.shows("alpha beta gamma delta");
        assert!(!written.contains("omega"), "{written}");
        let has_text = |line: &Value| line["event"]["type"] == "text";
        assert!(!scene.journal(&id).iter().any(has_text), "the message is not complete");
        host.cut_connections();
        fs::write(host.worktree_file(&id, "go"), "").unwrap();
        terminal.shows("omega");
        assert!(!scene.journal(&id).iter().any(has_text), "the message is not complete");
        fs::write(host.worktree_file(&id, "end"), "").unwrap();
        let text = terminal.shows_all(&["Second reply", "[ready] >"]);
        for part in ["omega", "asks 1: x", "Second reply"] {
            assert_eq!(text.matches(part).count(), 1, "{part} is shown once: {text}");
        }
        // What is typed there resumes it there.
        scene.await_free(&id);
        terminal.enters("say third");
        terminal.shows("you: say third");
        scene.await_state(&id, "ready");
        terminal.presses("C-d");
        terminal.ends();
        scene.await_free(&id);
        assert_equal_journals(&scene, &host, &id);
    }

    #[test]
    #[ignore = "needs sshd"]
    fn a_connection_that_carries_nothing_is_given_up() {
        let (scene, host) = (Scene::new(), SshHost::start());
        let wire = Wire::to(host.port());
        host.connect_through(&wire);
        host.use_in(&scene, "");
        let secret = format!("canary{}", base::random::hex::<8>().unwrap());
        let script = format!("write a.txt {secret}; gate go; write b.txt two");
        let id = scene.exec(["--on", "farm", &script]);
        scene.await_state(&id, "working");
        until("the agent to wait", || {
            host.repositories().first()?;
            host.worktree_file(&id, "a.txt").exists().then_some(())
        });
        // Neither end learns that the connection is gone.
        wire.cut_silently();
        fs::write(host.worktree_file(&id, "go"), "").unwrap();
        scene.await_state(&id, "ready");
        scene.await_free(&id);
        assert_equal_journals(&scene, &host, &id);
        scene.studio(["accept", &id, "--message", "m"]).exits(0);
        assert_eq!(scene.repo.show("main", "b.txt"), "two");
        assert_eq!(scene.repo.show("main", "a.txt"), secret);
        // Neither the task, the work nor a name can be read on the way.
        let seen = wire.seen();
        assert!(seen.starts_with(b"SSH-2.0-") && seen.len() > 10_000);
        for text in [secret.as_str(), &id, "a.txt", "journal"] {
            let bytes = text.as_bytes();
            assert!(!seen.windows(bytes.len()).any(|part| part == bytes), "{text} in clear");
        }
    }

    #[test]
    #[ignore = "needs sshd"]
    fn a_session_goes_on_while_home_is_killed() {
        let (scene, host) = (Scene::new(), SshHost::start());
        host.use_in(&scene, "");
        let id = scene.exec(["--on", "farm", "write a.txt one; gate go; write b.txt two"]);
        scene.await_state(&id, "working");
        until("the agent to wait", || host.worktree_file(&id, "a.txt").exists().then_some(()));
        scene.studio(["shell", &id, "--", "ls"]).exits(3).output_contains("is at farm");
        kill_keeper(&scene, &id);
        assert_eq!(scene.status(&id)["state"], "working", "the place goes on");
        fs::write(host.worktree_file(&id, "go"), "").unwrap();
        until("the run to end there", || {
            let journal = fs::read_to_string(host.session_file(&id, "journal.jsonl")).unwrap();
            journal.contains("\"exit\"").then_some(())
        });
        // Every command that may start sessions connects again.
        scene.studio(["doctor"]);
        scene.await_state(&id, "ready");
        scene.await_free(&id);
        assert_equal_journals(&scene, &host, &id);
    }

    #[test]
    #[ignore = "needs sshd"]
    fn a_session_killed_at_any_step_here_or_there_is_finished() {
        let mut host = SshHost::start();
        let (here, there) = (host.path("here"), host.path("there"));
        let script =
            "write a.txt one; sh git add a.txt; sh git commit -qm c || true; write b.txt two";
        let task = ["exec", "--agent", "loads", "--on", "farm", script];
        host.set_variables(&format!("G3_TEST_STEPS={}", there.display()));
        let scene = Scene::new();
        host.use_in(&scene, "keep_seconds = 1");
        let steps = scene.env.command(studio(), scene.repo.path()).args(task);
        let id = scene.env.run_command(steps.env("G3_TEST_STEPS", &here)).ok().to_owned();
        scene.await_state(&id, "ready");
        let names = |path: &std::path::Path| -> BTreeSet<String> {
            let own = ["place.", "deliver.", "replica."];
            let is_own = |name: &&str| own.iter().any(|start| name.starts_with(start));
            let text = fs::read_to_string(path).unwrap();
            text.lines().filter(is_own).map(str::to_owned).collect()
        };
        let (here, there) = (names(&here), names(&there));
        assert!(here.contains("place.journal") && there.contains("deliver.session"));
        let here = here.into_iter().map(|name| (name, String::new()));
        let there = there.into_iter().map(|name| (String::new(), name));
        for (here, there) in here.chain(there) {
            let scene = Scene::new();
            host.set_variables(&format!("G3_TEST_KILL_AT={there}"));
            host.use_in(&scene, "keep_seconds = 1");
            let command = scene.env.command(studio(), scene.repo.path()).args(task);
            scene.env.run_command(command.env("G3_TEST_KILL_AT", &here));
            if !there.is_empty() {
                let is_killed = |status: &Value| {
                    let why = status["why"].as_str().unwrap_or_default();
                    status["state"] != "queued" || why.contains("was killed")
                };
                let reached = || scene.status_of_last().is_some_and(|status| is_killed(&status));
                testkit::env::poll(|| reached().then_some(()));
                host.set_variables("");
            }
            let id = brought_to_ready(&scene, &task);
            let step = format!("{here}{there}");
            let there = host.newest_session_file(&id, "journal.jsonl");
            let journals = [scene.session_file(&id, "journal.jsonl"), there];
            let [journal, remote] = journals.map(|path| fs::read_to_string(path).unwrap());
            assert_eq!(journal, remote, "{step}");
            scene.studio(["accept", &id, "--message", "m"]).exits(0);
            assert_eq!(scene.repo.show("main", "a.txt"), "one", "{step}");
            assert_eq!(scene.repo.show("main", "b.txt"), "two", "{step}");
            scene.repo.git(["fsck", "--strict"]);
        }
    }

    #[test]
    #[ignore = "needs sshd"]
    fn a_session_that_is_ready_when_home_is_killed_is_taken_back() {
        let (scene, host) = (Scene::new(), SshHost::start());
        host.use_in(&scene, "");
        let repository = Repository::discover(scene.repo.path()).unwrap();
        let project = Project::new(repository, Config::default());
        let mut live = LiveSessions::read(&project).unwrap();
        let run = |script: &str| {
            let task = ["exec", "--agent", "fake", "--on", "farm", script];
            let command = scene.env.command(studio(), scene.repo.path()).args(task);
            let id = scene.env.run_command(command.env("G3_TEST_KILL_AT", "place.ended"));
            let id = id.ok().to_owned();
            let status = scene.await_state(&id, "ready");
            assert_eq!(status["place"]["away"], true);
            let locked = || project.store.is_locked(&Id::parse(&id).unwrap());
            until("home to be killed", || (!locked()).then_some(()));
            id
        };
        let is_away = |live: &LiveSessions, id: &str| {
            let view = live.views().find(|view| view.record.id.as_str() == id);
            view.unwrap().is_away()
        };
        let id = run("write a.txt one");
        assert!(live.refresh(&project).unwrap() && is_away(&live, &id));
        assert!(!live.refresh(&project).unwrap(), "nothing changed");
        // Every command that may start sessions takes it back.
        scene.studio(["doctor"]);
        scene.await_free(&id);
        assert_eq!(scene.status(&id)["place"]["away"], false);
        assert!(live.refresh(&project).unwrap() && !is_away(&live, &id));
        assert_equal_journals(&scene, &host, &id);
        scene.studio(["accept", &id, "-m", "Add it"]).exits(0);
        assert_eq!(scene.repo.show("main", "a.txt"), "one");

        // So do the commands that continue it.
        for verb in ["resume", "send"] {
            let id = run("write a.txt two");
            match verb {
                "send" => scene.studio(["send", &id, "write a.txt three"]).exits(0),
                _ => scene.studio(["resume", &id]).exits(0),
            };
            until("the second run", || (scene.status(&id)["place"]["attempt"] == 2).then_some(()));
            scene.await_state(&id, "ready");
            scene.await_free(&id);
            assert_equal_journals(&scene, &host, &id);
            scene.studio(["discard", &id]).exits(0);
        }
    }

    #[test]
    #[ignore = "needs sshd"]
    fn a_killed_supervisor_there_is_a_crash_and_its_work_is_kept() {
        let (scene, host) = (Scene::new(), SshHost::start());
        host.use_in(&scene, "keep_seconds = 1");
        let id = scene.exec(["--agent", "loads", "--on", "farm", "write a.txt one; gate go"]);
        scene.await_state(&id, "working");
        until("the work to be kept", || (scene.status(&id)["files_changed"] == 1).then_some(()));
        host.kill_session(&id);
        let status = scene.await_state(&id, "crashed");
        let why = status["why"].as_str().unwrap();
        assert!(why.contains("lost at farm: its supervisor exited unexpectedly there"), "{why}");
        scene.studio(["diff", &id]).output_contains("+one");
        scene.await_free(&id);
        fs::write(host.worktree_file(&id, "go"), "").unwrap();
        scene.studio(["resume", &id]).exits(0);
        scene.await_state(&id, "ready");
        assert_eq!(scene.status(&id)["place"]["attempt"], 2);
    }

    #[test]
    #[ignore = "needs sshd"]
    fn what_was_kept_of_a_lost_host_continues_on_another_one() {
        let (scene, mut lost, other) = (Scene::new(), SshHost::start(), SshHost::start());
        let farm = lost.configuration("farm", "keep_seconds = 1\nlost_after_seconds = 2");
        scene.configure(&format!("{farm}{}", other.configuration("barn", "")));
        let script = "write a.txt one; gate go; write b.txt two";
        let id = scene.exec(["--agent", "loads", "--on", "farm", script]);
        scene.await_state(&id, "working");
        until("the work to be kept", || (scene.status(&id)["files_changed"] == 1).then_some(()));
        lost.stop_server();
        lost.kill_all();
        until("a reason", || {
            let why = scene.status(&id)["why"].as_str().unwrap_or_default().to_owned();
            why.contains("no connection").then_some(())
        });
        scene.await_state(&id, "crashed");
        scene.studio(["diff", &id]).output_contains("+one");
        scene.await_free(&id);
        scene.studio(["resume", &id, "--on", "barn"]).exits(0);
        until("the worktree", || {
            other.repositories().first()?;
            other.worktree_file(&id, "a.txt").exists().then_some(())
        });
        scene.await_state(&id, "working");
        let status = scene.status(&id);
        assert_eq!(
            (&status["place"]["name"], &status["place"]["attempt"]),
            (&"barn".into(), &2.into())
        );
        fs::write(other.worktree_file(&id, "go"), "").unwrap();
        scene.await_state(&id, "ready");
        scene.await_free(&id);
        // The lost host comes back, with a delivery that home does not know of any more.
        lost.restart();
        assert_equal_journals(&scene, &other, &id);
        scene.studio(["resume", &id, "--on", "farm"]);
        scene.await_state(&id, "ready");
    }

    #[test]
    #[ignore = "needs sshd"]
    fn sessions_that_start_together_are_spread_over_the_hosts_of_a_place() {
        let (scene, mut first, second) = (Scene::new(), SshHost::start(), SshHost::start());
        // One configuration of ssh with both hosts.
        let text = fs::read_to_string(second.path("ssh_config")).unwrap();
        let other = text.replace("Host farm", "Host barn");
        let mut file = fs::OpenOptions::new().append(true).open(first.path("ssh_config")).unwrap();
        file.write_all(other.as_bytes()).unwrap();
        scene.configure(&format!(
            "[studio.places.farm]\nhosts = [\"farm\", \"barn\"]\nssh_config = {:?}\n",
            first.path("ssh_config")
        ));
        let tasks = ["write a 1", "write b 1", "write c 1", "write d 1"];
        let [a, b, c, d] = tasks;
        scene.studio(["run", "--on", "farm", a, b, c, d]).exits(0);
        let sessions = scene.studio(["list", "--json"]).json()["sessions"].clone();
        let on = |host: &str| {
            let sessions = sessions.as_array().unwrap().iter();
            sessions.filter(|session| session["place"]["host"] == host).count()
        };
        assert_eq!((on("farm"), on("barn")), (2, 2));
        // The next start asks only hosts that have just answered.
        let path = scene.repo.path().join(".git/studio/cache/place-farm.json");
        let text = fs::read_to_string(&path).unwrap();
        let mut answers: Vec<Value> = serde_json::from_str(&text).unwrap();
        answers.retain(|answer| answer["name"] == "barn");
        assert_eq!(answers.len(), 1, "{text}");
        fs::write(&path, serde_json::to_string(&answers).unwrap()).unwrap();
        let id = scene.exec(["--on", "farm", "write e 1"]);
        scene.await_state(&id, "ready");
        assert_eq!(scene.status(&id)["place"]["host"], "barn");
        // If none of these can be reached, all are asked.
        scene.await_free(&id);
        answers[0]["name"] = "farm".into();
        fs::write(&path, serde_json::to_string(&answers).unwrap()).unwrap();
        first.stop_server();
        let id = scene.exec(["--on", "farm", "write f 1"]);
        scene.await_state(&id, "ready");
        assert_eq!(scene.status(&id)["place"]["host"], "barn");
    }

    #[test]
    #[ignore = "needs sshd"]
    fn it_continues_here_with_all_of_its_work() {
        let (scene, host) = (Scene::new(), SshHost::start());
        host.use_in(&scene, "");
        let id = scene.exec([
            "--agent",
            "loads",
            "--on",
            "farm",
            "write a.txt one; sh git add a.txt; sh git commit -qm c || true; write b.txt two",
        ]);
        scene.await_state(&id, "ready");
        scene.await_free(&id);
        scene.studio(["stop", &id]).exits(3);
        scene.studio(["check", &id, "--check", "test -e b.txt"]).exits(0);
        scene.studio(["shell", &id, "--", "cat", "b.txt"]).exits(0).output_contains("two");
        scene.studio(["resume", &id, "--on", "here"]);
        scene.await_state(&id, "ready");
        scene.await_free(&id);
        assert_eq!(scene.worktree(&id).read("b.txt"), "two\n");
        assert_eq!(scene.status(&id)["place"], Value::Null);
        scene.studio(["resume", &id, "--on", "farm"]);
        scene.await_state(&id, "ready");
        scene.await_free(&id);
        assert!(
            !scene.worktree(&id).path().exists(),
            "its worktree was moved away, with all files"
        );
        scene.studio(["accept", &id, "--message", "m"]).exits(0);
        assert_eq!(scene.repo.show("main", "b.txt"), "two");
    }

    #[test]
    #[ignore = "needs sshd"]
    fn it_starts_with_the_work_of_another_session_or_of_a_worktree() {
        let (scene, host) = (Scene::new(), SshHost::start());
        host.use_in(&scene, "");
        let lower = scene.ready("write lower.txt l; commit lower; write open.txt o");
        scene.await_free(&lower);
        let script = "sh cat lower.txt open.txt > both.txt; write upper.txt u";
        let upper = scene.exec(["--on", "farm", "--on-top-of", &lower, script]);
        let status = scene.await_state(&upper, "ready");
        assert_eq!(status["place"]["name"], "farm");
        scene.await_free(&upper);
        let diff = scene.studio(["diff", &upper]);
        diff.output_contains("+u").output_contains("both.txt").output_lacks("lower.txt");

        scene.repo.write("README.md", "staged\n");
        scene.repo.git(["add", "README.md"]);
        scene.repo.write("README.md", "changed after staging\n");
        scene.repo.write("new.txt", "untracked\n");
        let script = "sh git diff --cached > cached.txt; write more.txt m";
        let own = scene.exec(["--on", "farm", "--worktree", ".", script]);
        scene.await_state(&own, "ready");
        scene.await_free(&own);
        let diff = scene.studio(["diff", &own]);
        diff.output_contains("+changed after staging").output_contains("+untracked");
        diff.output_contains("++staged").output_contains("+m");
        assert_eq!(scene.repo.read("README.md"), "changed after staging\n");
        scene.repo.git(["reset", "-q", "--hard"]);
        fs::remove_file(scene.repo.path().join("new.txt")).unwrap();

        scene.studio(["accept", &lower, &upper, "--message", "m"]).exits(0);
        assert_eq!(scene.repo.show("main", "both.txt"), "l\no");
        assert_eq!(scene.repo.show("main", "upper.txt"), "u");
        scene.studio(["accept", &own, "--message", "own"]).exits(0);
        assert_eq!(scene.repo.show("main", "new.txt"), "untracked");
        scene.repo.git(["fsck", "--strict"]);
    }

    #[test]
    #[ignore = "needs sshd"]
    fn files_in_git_lfs_are_there_and_come_home() {
        let (scene, host) = (lfs_scene(), SshHost::start());
        host.use_in(&scene, "[studio.filters]\nlfs = \"git-lfs\"\n");
        let script = "sh cat a.bin kept.bin > seen.txt; write a.bin changed; \
                      commit with git-lfs at the place; write a.bin changed again; \
                      sh head -c 3000000 /dev/zero > new.bin; gate end";
        let id = scene.exec(["--on", "farm", "--check", "grep -q again a.bin", script]);
        scene.await_state(&id, "working");
        until("the last file", || host.worktree_file(&id, "new.bin").exists().then_some(()));
        host.cut_connections();
        fs::write(host.worktree_file(&id, "end"), "").unwrap();
        scene.await_state(&id, "ready");
        scene.await_free(&id);
        assert_equal_journals(&scene, &host, &id);
        // The place is not needed any more.
        drop(host);
        scene
            .studio(["diff", &id])
            .output_contains("+large content")
            .output_contains("+kept content");
        let landed = scene.studio(["accept", &id, "-m", "Land it"]);
        landed.exits(0).output_lacks("filters were not run").output_lacks("left out");
        assert_eq!(scene.repo.read("a.bin"), "changed again\n");
        assert_eq!(fs::metadata(scene.repo.path().join("new.bin")).unwrap().len(), 3_000_000);
        assert_eq!(changes(&scene.repo), "");
        // Every object is in the repository, those of the agent's own commits too.
        assert!(scene.repo.git(["lfs", "fsck"]).contains("OK"));
    }

    #[test]
    #[ignore = "needs sshd"]
    fn a_fork_runs_where_it_is_told_or_where_the_forked_session_does() {
        let (scene, host) = (Scene::new(), SshHost::start());
        host.use_in(&scene, "");
        let local = scene.ready("write a.txt one; commit first; write b.txt two");
        let there = ["fork", &local, "--on", "farm", "; sh cat b.txt > c.txt", "--detach"];
        let there = scene.studio(there).ok().to_owned();
        let status = scene.await_state(&there, "ready");
        assert_eq!(status["place"]["name"], "farm");
        scene.await_free(&there);
        let again = scene.studio(["fork", &there, "; write d.txt d", "--detach"]).ok().to_owned();
        let here = ["fork", &there, "--on", "here", "; write e.txt e", "--detach"];
        let here = scene.studio(here).ok().to_owned();
        let (again_status, here_status) =
            (scene.await_state(&again, "ready"), scene.await_state(&here, "ready"));
        assert_eq!(again_status["place"]["name"], "farm");
        assert!(here_status["place"].is_null(), "{here_status}");
        for id in [&again, &here] {
            scene.await_free(id);
            let diff = scene.studio(["diff", id]);
            diff.output_contains("+one").output_contains("c.txt").output_contains("+two");
        }
        scene.studio(["fork", &local, "--on", "barn"]).exits(2).output_contains("no such place");
        scene.studio(["accept", &again, "--message", "m"]).exits(0);
        assert_eq!(scene.repo.show("main", "c.txt"), "two");
    }

    #[test]
    #[ignore = "needs sshd"]
    fn stop_and_answer_reach_it_once() {
        let (scene, host) = (Scene::new(), SshHost::start());
        host.use_in(&scene, "");
        let id = scene.exec([
            "--agent",
            "talk",
            "--ask",
            "--on",
            "farm",
            "ask rm x; write a.txt one; gate go",
        ]);
        scene.await_state(&id, "waiting");
        host.cut_connections();
        scene.studio(["answer", &id, "1", "allow"]).exits(0);
        scene.await_state(&id, "working");
        scene.studio(["stop", &id]).exits(0);
        scene.await_state(&id, "stopped");
        scene.await_free(&id);
        assert_equal_journals(&scene, &host, &id);
        let count =
            |entry: &str| scene.journal(&id).iter().filter(|it| it["entry"] == entry).count();
        assert_eq!((count("answered"), count("stop_requested")), (1, 1));
    }

    #[test]
    #[ignore = "needs sshd"]
    fn a_place_says_what_is_missing() {
        let scene = Scene::new();
        let no_git = SshHost::start_with("PATH=/nowhere");
        let full = SshHost::start_with("G3_TEST_FREE_DISK=1000");
        let late = SshHost::start_with("G3_TEST_NOW=2026-01-02T11:00:00Z");
        let places = [(&no_git, "none"), (&full, "full"), (&late, "late")];
        let text: String = places.iter().map(|(host, name)| host.configuration(name, "")).collect();
        scene.configure(&text);
        scene.studio(["places"]).output_contains("late  ssh  farm");
        scene.studio(["places", "check", "late"]).exits(0).output_contains("3600 seconds ahead");
        scene
            .studio(["places", "check", "full"])
            .exits(0)
            .output_contains("only 1000 bytes of free disk");
        let check = scene.studio(["places", "check", "none"]);
        check.exits(1).output_contains("missing");
        for (name, words) in [("full", "the disk of the place is full"), ("none", "cannot")] {
            let id = scene.exec(["--on", name, "write a.txt one"]);
            let status = scene.await_end(&id);
            assert_eq!(status["state"], "failed", "{name}");
            let why = status["why"].as_str().unwrap();
            assert!(why.contains(words), "{why}");
        }
        let id = scene.exec(["--on", "late", "write a.txt one"]);
        scene.await_state(&id, "ready");
    }

    #[test]
    #[ignore = "needs sshd"]
    fn a_host_that_ends_processes_at_logout_is_told() {
        let programs = tempfile::tempdir().unwrap();
        let scene = Scene::new();
        let host = SshHost::start_with(&format!(
            "PATH={}:/usr/local/bin:/usr/bin:/bin",
            programs.path().display()
        ));
        host.use_in(&scene, "");
        // This machine has no systemd: a program in its place answers.
        for (answer, ends) in [("b true", true), ("b false", false)] {
            let busctl = programs.path().join("busctl");
            let lines = format!("{answer}\nas 1 \"daemon\"\nas 0\n");
            fs::write(&busctl, format!("#!/bin/sh\nprintf '%s' '{lines}'\n")).unwrap();
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            fs::set_permissions(&busctl, mode).unwrap();
            let check = scene.studio(["places", "check", "farm"]);
            check.exits(0);
            match ends {
                true => check.output_contains("KillUserProcesses").output_contains("logind.conf"),
                false => check.output_lacks("KillUserProcesses"),
            };
        }
    }

    #[test]
    #[ignore = "needs sshd"]
    fn a_place_without_the_program_of_a_filter_is_told() {
        let programs = tempfile::tempdir().unwrap();
        let git = base::process::find_program("git").unwrap();
        let others = fs::read_dir("/usr/bin").unwrap().flatten().map(|entry| entry.path());
        for program in others.filter(|it| !it.ends_with("git-lfs") && !it.ends_with("git")) {
            let link = programs.path().join(program.file_name().unwrap());
            std::os::unix::fs::symlink(program, link).unwrap();
        }
        std::os::unix::fs::symlink(git, programs.path().join("git")).unwrap();
        let scene = Scene::new();
        let host = SshHost::start_with(&format!("PATH={}", programs.path().display()));
        host.use_in(&scene, "");
        let check = || scene.studio(["places", "check", "farm"]);
        check().exits(0).output_lacks("git-lfs");
        host.use_in(&scene, "[studio.filters]\nlfs = \"git-lfs\"\n");
        check().exits(1).output_contains("git-lfs, which a filter of `[studio.filters]` runs");
        let host = SshHost::start();
        host.use_in(&scene, "[studio.filters]\nlfs = \"git-lfs\"\n");
        check().exits(0).output_contains("git-lfs");
    }

    #[test]
    #[ignore = "needs sshd"]
    fn a_host_with_an_older_c_library_is_told() {
        let (scene, host) = (Scene::new(), SshHost::start());
        // A program that needs a version of the C library that does not exist.
        let mut program = fs::read("/usr/bin/true").unwrap();
        let versions: Vec<usize> = program
            .windows(6)
            .enumerate()
            .filter_map(|(at, name)| (name == b"GLIBC_").then_some(at + 6))
            .collect();
        for at in versions {
            program[at] = b'9';
        }
        fs::write(host.path("studio"), program).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(host.path("studio"), mode).unwrap();
        host.use_in(&scene, &format!("binary = {:?}", host.path("studio")));
        let check = scene.studio(["places", "check", "farm"]);
        check.exits(1).output_contains("version `GLIBC_9").output_contains("build studio for that");
        let id = scene.exec(["--on", "farm", "write a.txt one"]);
        let status = scene.await_end(&id);
        assert_eq!(status["state"], "failed");
        let why = status["why"].as_str().unwrap();
        assert!(why.contains("studio cannot be run on farm: ") && why.contains("GLIBC_9"), "{why}");
    }

    #[test]
    #[ignore = "needs sshd"]
    fn a_host_with_another_key_is_refused() {
        let (scene, host) = (Scene::new(), SshHost::start());
        host.use_in(&scene, "lost_after_seconds = 1");
        let known = fs::read_to_string(host.path("known_hosts")).unwrap();
        let (name, _) = known.split_once(' ').unwrap();
        let other = fs::read_to_string(host.path("id.pub")).unwrap();
        fs::write(host.path("known_hosts"), format!("{name} {other}")).unwrap();
        let check = scene.studio(["places", "check", "farm"]);
        check.exits(1).output_contains("ost key verification failed");
        let id = scene.exec(["--on", "farm", "write a.txt one"]);
        let why = until("a reason", || {
            let why = scene.status(&id)["why"].as_str().unwrap_or_default().to_owned();
            why.contains("no connection").then_some(why)
        });
        assert!(why.contains("ost key"), "{why}");
        assert!(host.repositories().is_empty());
    }

    #[test]
    #[ignore = "needs sshd"]
    fn nothing_secret_leaves_this_machine() {
        const CANARY: &str = "canary-7c21f0";
        let (mut scene, host) = (Scene::new(), SshHost::start());
        scene.env.set("OPENAI_API_KEY", CANARY);
        scene.env.set("MY_TOKEN", CANARY);
        let more = format!(
            "{}[studio.agents.keyed]\nprotocol = \"command\"\ncommand = [{:?}, \"{{prompt}}\"]\n\
             env = [\"MY_TOKEN\", \"OTHER={CANARY}\"]\n\
             [providers.openai.main]\napi_key = \"{CANARY}\"\n",
            host.configuration("farm", ""),
            testkit::env::built("fake-agent"),
        );
        scene.configure(&more);
        scene.repo.write(".worktreeinclude", ".env\n");
        scene.repo.write(".env", CANARY);
        scene.repo.commit_file(".gitignore", ".env\n.worktreeinclude\n");
        scene
            .studio(["run", "--on", "farm", "--detach", "gate end"])
            .exits(0)
            .output_contains("files of `.worktreeinclude` stay on this machine")
            .output_contains(".env");
        let script = "sh env > environment; write a.txt one; gate go";
        let id = scene.exec(["--agent", "keyed", "--on", "farm", script]);
        scene.await_state(&id, "working");
        until("the agent to wait", || host.worktree_file(&id, "a.txt").exists().then_some(()));
        let arguments = fs::read_dir("/proc").unwrap().flatten();
        let arguments = arguments.filter_map(|it| fs::read(it.path().join("cmdline")).ok());
        for line in arguments {
            let line = String::from_utf8_lossy(&line).into_owned();
            assert!(!line.contains(CANARY), "{line}");
            assert!(!line.contains("__node") || !line.contains("environment"), "the task: {line}");
        }
        fs::write(host.worktree_file(&id, "go"), "").unwrap();
        scene.await_state(&id, "ready");
        let found = scene.env.run("grep", host.path("").as_path(), ["-rlaF", CANARY, "."]);
        assert_eq!(found.out, "", "{found}");
    }

    #[test]
    #[ignore = "needs sshd"]
    fn nothing_that_a_host_sends_harms_home() {
        let (scene, host) = (Scene::new(), SshHost::start());
        let before = scene.repo.git(["for-each-ref"]);
        let zero = "0".repeat(40);
        let answers = [
            "echo hello".to_owned(),
            "head -c 3000000 /dev/zero".to_owned(),
            r#"echo '{"frame":"journal","at":0,"bytes":18446744073709551615}'"#.to_owned(),
            r#"echo '{"frame":"journal","at":9999,"bytes":2}'; echo x"#.to_owned(),
            r#"printf '{"frame":"journal","at":AT,"bytes":3}\n{}\n'"#.to_owned(),
            format!(r#"echo '{{"frame":"work","work":{{"head":"{zero}","snapshots":[]}},"bytes":4}}'; printf PACK"#),
            r#"echo '{"frame":"work","work":{"head":"../../x","snapshots":[]},"bytes":0}'"#.to_owned(),
            r#"echo '{"frame":"work","work":{"head":"x","snapshots":[]},"bytes":9000000000000000}'"#.to_owned(),
            r#"echo '{"frame":"superseded"}'"#.to_owned(),
        ];
        for (number, answer) in answers.iter().enumerate() {
            let program = host.path(&format!("liar{number}"));
            let text = format!(
                "#!/bin/sh\ncase $2 in\nhello) echo '{{\"protocol\":1,\"git\":\"2.47\"}}';;\n\
                 deliver) cat >/dev/null; echo '{{\"set_aside\":null}}';;\nfollow) {answer};;\nesac\n"
            );
            fs::write(&program, text).unwrap();
            fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755))
                .unwrap();
            host.use_in(&scene, &format!("binary = {program:?}\nlost_after_seconds = 0"));
            let id = scene.exec(["--on", "farm", "write a.txt one"]);
            let status = scene.await_end(&id);
            assert_eq!(status["state"], "failed", "{answer}");
            scene.await_free(&id);
            let entries: Vec<Value> =
                scene.journal(&id).iter().map(|line| line["entry"].clone()).collect();
            assert_eq!(entries, ["queued", "spawned", "exit"], "{answer}");
            scene.studio(["discard", &id]).exits(0);
        }
        let after = scene.repo.git([
            "for-each-ref",
            "--exclude=refs/studio",
            "--exclude=refs/heads/studio",
        ]);
        assert_eq!(before, after);
        scene.repo.git(["fsck", "--strict"]);
    }
}

/// Returns the only session when it is ready: a crashed or failed one is resumed, a lost one is started
/// again.
fn brought_to_ready(scene: &Scene, task: &[&str]) -> String {
    until("the session to be ready", || {
        scene.studio(["doctor"]);
        let Some(status) = scene.status_of_last() else {
            scene.env.run(studio(), scene.repo.path(), task).exits(0);
            return None;
        };
        let id = status["id"].as_str()?.to_owned();
        match status["state"].as_str()? {
            "crashed" | "failed" => drop(scene.studio(["resume", &id])),
            // Home may be killed after the line that makes it ready.
            "ready" if scene.is_free(&id) => return Some(id),
            _ => {}
        }
        None
    })
}

#[test]
fn a_repository_neither_defines_nor_chooses_places() {
    let scene = Scene::new();
    scene.repo.write(
        "g3.toml",
        "[studio]\non = \"evil\"\n[studio.places.evil]\nhost = \"evil.example\"\n",
    );
    scene.repo.git(["add", "-A"]);
    scene.repo.git(["commit", "-qm", "places"]);
    let list = scene.studio(["places"]);
    list.exits(0).output_contains("only your own configuration names places");
    list.output_contains("only your own configuration chooses places").output_lacks("evil.example");
    let id = scene.ready("write a.txt one");
    assert_eq!(scene.status(&id)["place"], Value::Null);
    scene.studio(["run", "--on", "evil", "x"]).exits(2).output_contains("no such place: `evil`");
}

#[test]
fn a_place_that_cannot_be_used_is_refused_before_anything_starts() {
    let scene = Scene::new();
    scene.configure(
        "[studio.places.farm]\nhost = \"-oProxyCommand=id\"\n[studio.places.barn]\nhost = \"b\"\n",
    );
    scene.studio(["run", "--on", "farm", "x"]).exits(2).output_contains("cannot be used");
    scene.studio(["run", "--on", "bran", "x"]).exits(2).output_contains("studio places barn");
    scene.repo.write(".gitmodules", "[submodule \"a\"]\n\tpath = a\n\turl = ./a\n");
    scene.repo.git(["add", "-A"]);
    scene.repo.git(["commit", "-qm", "a submodule"]);
    scene.studio(["run", "--on", "barn", "x"]).exits(2).output_contains("submodules");
    assert_eq!(scene.studio(["list", "--json"]).json()["sessions"].as_array().unwrap().len(), 0);
}
