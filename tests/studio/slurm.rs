//! Sessions in jobs of a real Slurm with two nodes that share no files with home.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

use base::lock::Lock;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use testkit::env::{poll, until};
use testkit::repo::Repo;

use crate::fixtures::{Scene, studio};
use crate::place_fixtures::{SshHost, kill_keeper};
use crate::slurm_fixtures::SlurmCluster;

/// A scene with a cluster as its place `farm`.
fn scene_with_cluster(more: &str) -> (Scene, SlurmCluster) {
    let mut scene = Scene::new();
    let cluster = SlurmCluster::start(&mut scene, more);
    (scene, cluster)
}

/// A scene with a cluster whose nodes and host share this spool.
fn scene_with_shared_spool(spool: &Path, more: &str) -> (Scene, SlurmCluster) {
    scene_with_cluster(&format!("shared = true\nspool = \"{}\"\n{more}", spool.display()))
}

/// Returns a file in the worktree of a session in a shared spool.
fn shared_file(spool: &Path, id: &str, name: &str) -> PathBuf {
    let entries = fs::read_dir(spool.join("repos")).into_iter().flatten().flatten();
    let worktrees =
        entries.map(|it| it.path()).find(|it| it.extension() == Some("worktrees".as_ref()));
    worktrees.unwrap_or_default().join(id).join(name)
}

/// Waits for what Slurm does in its own time: it looks at nodes and jobs in intervals.
fn until_slowly<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let mut attempts = (0..8).filter_map(|_| poll(&mut condition));
    attempts.next().unwrap_or_else(|| panic!("waited for: {what}"))
}

/// Waits until the agent of a session has written a file on a node, and returns the node.
fn await_file(cluster: &SlurmCluster, id: &str, name: &str) -> usize {
    let node = cluster.node_of(id);
    until_slowly("the agent to write", || {
        cluster.worktree_file(node, id, name).exists().then_some(())
    });
    node
}

/// Returns a session that is ready, without checks of its own.
fn ready(scene: &Scene, script: &str) -> String {
    let id = scene.ready(script);
    scene.await_free(&id);
    id
}

/// Lets this check of merged trees run in jobs.
fn check_in_jobs(scene: &Scene, more: &str, check: &str) {
    let place = format!("[studio.places.farm]\nengine = \"slurm\"\n{more}\n");
    scene.configure(&format!("checks_on = \"farm\"\nchecks = {check:?}\n{place}"));
}

/// Returns whether a process with this command line runs.
fn runs(line: &[u8]) -> bool {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    lines.into_iter().any(|other| other.starts_with(line))
}

mod needs_slurm {
    use super::*;

    #[test]
    #[ignore = "needs slurm"]
    fn a_session_waits_for_a_controller_that_is_away() {
        let (scene, mut cluster) = scene_with_cluster("");
        cluster.kill_controller();
        let id = scene.exec(["--on", "farm", "write a.txt one"]);
        until("the reason", || {
            let why = scene.status(&id)["why"].as_str().unwrap_or_default().to_owned();
            why.contains("Unable to contact slurm controller").then_some(())
        });
        assert_eq!(scene.status(&id)["state"], "queued");
        cluster.start_controller();
        until_slowly("the run to end", || (scene.status(&id)["state"] == "ready").then_some(()));
    }

    #[test]
    #[ignore = "needs slurm"]
    fn a_session_in_a_job_is_ready_and_landed_as_one_here() {
        let (scene, cluster) = scene_with_cluster("");
        let script = "write a.txt one; commit first; write b.txt two; say done; gate go";
        let id = scene.exec(["--on", "farm", "--check", "test -e b.txt", script]);
        let node = await_file(&cluster, &id, "b.txt");
        let status = scene.await_state(&id, "working");
        assert_eq!(status["place"]["host"], format!("node{}", node + 1).as_str());
        assert!(status["place"]["job"].is_string(), "{status}");
        let there = cluster.session_file(node, &id, "journal.jsonl");
        fs::write(cluster.worktree_file(node, &id, "go"), "").unwrap();
        scene.await_state(&id, "ready");
        scene.await_free(&id);
        let here = fs::read_to_string(scene.session_file(&id, "journal.jsonl")).unwrap();
        assert_eq!(here, fs::read_to_string(there).unwrap());
        assert!(!scene.worktree(&id).path().exists(), "it has no worktree here");
        scene.studio(["diff", &id]).output_contains("+one").output_contains("+two");
        scene.studio(["accept", &id, "--message", "Add both"]).exits(0);
        assert_eq!(scene.repo.show("main", "b.txt"), "two");
        scene.repo.git(["fsck", "--strict"]);
        // Home has everything, so the job ends by itself.
        cluster.await_idle();
        let jobs = cluster.run("squeue", &["-h", "-t", "all", "-o", "%T"]);
        assert_eq!(jobs.trim(), "COMPLETED");
    }

    #[test]
    #[ignore = "needs slurm"]
    fn a_lost_node_loses_nothing_that_was_kept() {
        let (scene, mut cluster) = scene_with_cluster("keep_seconds = 1");
        let script = "write a.txt one; gate go; write b.txt two";
        let id = scene.exec(["--agent", "loads", "--on", "farm", script]);
        let lost = await_file(&cluster, &id, "a.txt");
        until_slowly("the work to be kept", || {
            (scene.status(&id)["files_changed"] == 1).then_some(())
        });
        cluster.kill_node(lost);
        let other = until_slowly("the other node", || {
            let status = scene.status(&id);
            let is_elsewhere = status["place"]["host"] == format!("node{}", 2 - lost).as_str();
            (is_elsewhere && status["place"]["attempt"] == 2).then_some(1 - lost)
        });
        assert_eq!(await_file(&cluster, &id, "a.txt"), other);
        fs::write(cluster.worktree_file(other, &id, "go"), "").unwrap();
        scene.await_state(&id, "ready");
        scene.await_free(&id);
        scene.studio(["logs", &id]).output_contains("it continues from the work that is here");
        scene.studio(["accept", &id, "--message", "m"]).exits(0);
        assert_eq!(scene.repo.show("main", "a.txt"), "one");
        scene.repo.git(["fsck", "--strict"]);
    }

    #[test]
    #[ignore = "needs slurm"]
    fn a_session_whose_job_waits_says_why_and_can_be_stopped() {
        let (scene, cluster) = scene_with_cluster("options = [\"--begin=now+1hour\"]");
        let id = scene.exec(["--on", "farm", "write a.txt one"]);
        until("the reason", || {
            let why = scene.status(&id)["why"].as_str().unwrap_or_default().to_owned();
            why.contains("waits: BeginTime").then(|| assert!(!why.contains("free slot"), "{why}"))
        });
        scene.studio(["stop", &id]).exits(0).output_contains("stopped");
        scene.await_free(&id);
        cluster.await_idle();
        assert_eq!(scene.status(&id)["place"]["job"], Value::Null);
        scene.configure("[studio.places.farm]\nengine = \"slurm\"\n");
        scene.studio(["resume", &id]).exits(0);
        scene.await_state(&id, "ready");
    }

    #[test]
    #[ignore = "needs slurm"]
    fn a_session_has_the_gpu_of_its_job_and_waits_for_a_licence() {
        let options = "options = [\"--gres=gpu:1\", \"--licenses=compiler:1\"]";
        let (scene, cluster) = scene_with_cluster(options);
        let script = "sh echo $CUDA_VISIBLE_DEVICES >gpu.txt; say done; gate go";
        let first = scene.exec(["--on", "farm", script]);
        let node = await_file(&cluster, &first, "gpu.txt");
        let second = scene.exec(["--on", "farm", "write b.txt two"]);
        until("the reason", || {
            let why = scene.status(&second)["why"].as_str().unwrap_or_default().to_owned();
            why.contains("waits: Licenses").then_some(())
        });
        assert_eq!(scene.status(&second)["state"], "queued");
        fs::write(cluster.worktree_file(node, &first, "go"), "").unwrap();
        for id in [&first, &second] {
            until_slowly("the run to end", || (scene.status(id)["state"] == "ready").then_some(()));
            scene.await_free(id);
            scene.studio(["accept", id, "--message", "m"]).exits(0);
        }
        assert_eq!(scene.repo.show("main", "gpu.txt"), "0");
    }

    #[test]
    #[ignore = "needs slurm"]
    fn checks_of_merged_trees_run_in_jobs() {
        let (scene, cluster) = scene_with_cluster("");
        let ids = ["a", "b", "c"].map(|name| ready(&scene, &format!("write {name} 1")));
        check_in_jobs(&scene, "", "test ! -e b && pwd | grep -q studio/repos");
        let landed = scene.studio(["accept", "--all"]);
        landed.exits(1).output_contains("fails on the merged tree");
        for (id, state) in ids.iter().zip(["accepted", "ready", "accepted"]) {
            assert_eq!(scene.status(id)["state"], state);
        }
        cluster.await_idle();
        scene.repo.is_sound();
    }

    #[test]
    #[ignore = "needs slurm"]
    fn a_check_whose_job_is_cancelled_refuses_the_landing() {
        let (scene, cluster) = scene_with_cluster("");
        let id = ready(&scene, "write a.txt one");
        check_in_jobs(&scene, "", "sleep 4321");
        let landing = std::thread::scope(|scope| {
            let landing = scope.spawn(|| scene.studio(["accept", &id]));
            until_slowly("the check to run", || runs(b"sleep\x004321").then_some(()));
            let job = cluster.run("squeue", &["-h", "-o", "%i"]);
            cluster.run("scancel", &[job.trim()]);
            landing.join().unwrap()
        });
        landing.exits(1).output_contains("checks did not run at farm");
        landing.output_contains("was cancelled");
        assert_eq!(scene.status(&id)["state"], "ready");
        until("the check to end", || (!runs(b"sleep\x004321")).then_some(()));
    }

    #[test]
    #[ignore = "needs slurm"]
    fn an_interrupted_landing_cancels_the_job_of_its_checks() {
        let (scene, cluster) = scene_with_cluster("");
        let id = ready(&scene, "write a.txt one");
        check_in_jobs(&scene, "options = [\"--begin=now+1hour\"]", "true");
        let mut landing = scene.env.start(studio(), scene.repo.path(), ["accept", &id]);
        until("the job", || (!cluster.run("squeue", &["-h"]).trim().is_empty()).then_some(()));
        base::process::signal_group(landing.id(), Signal::INT);
        let status = landing.wait_until(None).unwrap().expect("it ends");
        assert_eq!(status.code(), Some(130));
        cluster.await_idle();
        assert_eq!(scene.status(&id)["state"], "ready");
    }

    #[test]
    #[ignore = "needs slurm"]
    fn a_cancelled_job_keeps_the_work() {
        let (scene, cluster) = scene_with_cluster("keep_seconds = 1");
        let id = scene.exec(["--agent", "talk", "--on", "farm", "write a.txt one; gate go"]);
        await_file(&cluster, &id, "a.txt");
        let job = job_of(&scene.await_state(&id, "working"));
        cluster.run("scancel", &["--signal=TERM", "--batch", &job]);
        assert_eq!(scene.await_state(&id, "stopped")["why"], "its job was told to end");
        scene.await_free(&id);
        scene.studio(["diff", &id]).output_contains("+one");
        scene.studio(["logs", &id]).output_contains("stop requested: its job was told to end");
        cluster.await_idle();
        // This one ends at once, without a notice.
        let id = scene.exec(["--agent", "talk", "--on", "farm", "write a.txt one; gate go"]);
        until_slowly("the work to be kept", || {
            (scene.status(&id)["files_changed"] == 1).then_some(())
        });
        let job = job_of(&scene.status(&id));
        cluster.run("scancel", &["--signal=KILL", &job]);
        cluster.run("scancel", &[&job]);
        let status = scene.await_state(&id, "crashed");
        let why = status["why"].as_str().unwrap();
        assert!(why.contains("lost at farm: job"), "{why}");
        scene.studio(["diff", &id]).output_contains("+one");
    }

    #[test]
    #[ignore = "needs slurm"]
    fn a_job_at_its_time_limit_keeps_the_work() {
        // It is told to end before that: nothing of this turn was kept until then.
        let options = "options = [\"--time=1\"]\nkeep_seconds = 600";
        let (scene, cluster) = scene_with_cluster(options);
        let id = scene.exec(["--agent", "talk", "--on", "farm", "write a.txt one; gate go"]);
        await_file(&cluster, &id, "a.txt");
        until_slowly("the limit", || (scene.status(&id)["state"] == "stopped").then_some(()));
        scene.await_free(&id);
        scene.studio(["diff", &id]).output_contains("+one");
        assert_eq!(scene.status(&id)["why"], "its job is about to reach its time limit");
    }

    #[test]
    #[ignore = "needs slurm"]
    fn a_job_over_its_memory_limit_keeps_the_work() {
        let options = "options = [\"--mem=1G\"]\nkeep_seconds = 1";
        let (scene, cluster) = scene_with_cluster(options);
        // A variable keeps its memory; that of a constant expression is freed before Slurm looks.
        let hungry = "sh perl -e '($x = q(x)) x= 1500000000, sleep 600'";
        let script = format!("write a.txt one; gate go; {hungry}");
        let id = scene.exec(["--agent", "talk", "--on", "farm", &script]);
        let node = await_file(&cluster, &id, "a.txt");
        until_slowly("the work to be kept", || {
            (scene.status(&id)["files_changed"] == 1).then_some(())
        });
        fs::write(cluster.worktree_file(node, &id, "go"), "").unwrap();
        let status = scene.await_state(&id, "crashed");
        let why = status["why"].as_str().unwrap();
        // Slurm says more only if control groups enforce the limit.
        assert!(why.contains("lost at farm: job") && why.contains("ended (FAILED)"), "{why}");
        scene.studio(["diff", &id]).output_contains("+one");
    }

    #[test]
    #[ignore = "needs slurm"]
    fn a_disk_that_gets_full_there_loses_nothing_that_was_kept() {
        let (scene, cluster) = scene_with_cluster("keep_seconds = 1");
        // The home directory of a node has 1 GiB.
        let script = "write a.txt one; gate go; sh dd if=/dev/zero of=big bs=1M || true; \
                      write b.txt two";
        let id = scene.exec(["--agent", "talk", "--on", "farm", script]);
        let node = await_file(&cluster, &id, "a.txt");
        until_slowly("the work to be kept", || {
            (scene.status(&id)["files_changed"] == 1).then_some(())
        });
        fs::write(cluster.worktree_file(node, &id, "go"), "").unwrap();
        let status = scene.await_end(&id);
        assert_eq!(status["state"], "failed");
        let why = status["why"].as_str().unwrap();
        assert!(why.contains("No space left on device"), "{why}");
        scene.await_free(&id);
        scene.studio(["diff", &id]).output_contains("+one");
        let home = fs::read(scene.session_file(&id, "journal.jsonl")).unwrap();
        let there = fs::read(cluster.session_file(node, &id, "journal.jsonl")).unwrap();
        assert!(home == there, "the journals differ");
    }

    #[test]
    #[ignore = "needs slurm"]
    fn messages_and_broken_connections_lose_and_repeat_nothing() {
        let (scene, cluster) = scene_with_cluster("keep_seconds = 1");
        let id = scene.exec(["--agent", "loads", "--on", "farm", "write a.txt one; gate go1"]);
        let node = await_file(&cluster, &id, "a.txt");
        cut_connections(&scene);
        scene.studio(["send", &id, "write b.txt two; gate go2"]).exits(0);
        fs::write(cluster.worktree_file(node, &id, "go1"), "").unwrap();
        await_file(&cluster, &id, "b.txt");
        cut_connections(&scene);
        fs::write(cluster.worktree_file(node, &id, "go2"), "").unwrap();
        scene.await_state(&id, "ready");
        scene.await_free(&id);
        let sent = |line: &&Value| line["entry"] == "sent";
        assert_eq!(scene.journal(&id).iter().filter(sent).count(), 1);
        cluster.await_idle();
        scene.studio(["send", &id, "write c.txt three"]).exits(0);
        until_slowly("the second job", || (scene.status(&id)["files_changed"] == 5).then_some(()));
        scene.await_state(&id, "ready");
        scene.await_free(&id);
        assert_eq!(scene.status(&id)["place"]["attempt"], 2);
    }

    #[test]
    #[ignore = "needs slurm"]
    fn a_run_ends_well_although_the_controller_is_killed() {
        let (scene, mut cluster) = scene_with_cluster("keep_seconds = 1");
        let script = "write a.txt one; gate go; write b.txt two";
        let id = scene.exec(["--on", "farm", script]);
        let node = await_file(&cluster, &id, "a.txt");
        scene.await_state(&id, "working");
        cluster.kill_controller();
        cut_connections(&scene);
        fs::write(cluster.worktree_file(node, &id, "go"), "").unwrap();
        until("a reason", || {
            let why = scene.status(&id)["why"].as_str().unwrap_or_default().to_owned();
            (!why.is_empty()).then_some(())
        });
        assert_eq!(scene.status(&id)["state"], "working");
        cluster.start_controller();
        // Slurm starts steps again once it has heard of its nodes, which can take most of a minute.
        until_slowly("the run to end", || (scene.status(&id)["state"] == "ready").then_some(()));
        scene.studio(["diff", &id]).output_contains("+two");
    }

    #[test]
    #[ignore = "needs slurm"]
    fn a_run_that_was_given_up_while_the_controller_was_away_is_taken_up_again() {
        let (scene, mut cluster) = scene_with_cluster("keep_seconds = 1\nlost_after_seconds = 2");
        let id = scene.exec(["--on", "farm", "write a.txt one; gate go; write b.txt two"]);
        let node = await_file(&cluster, &id, "a.txt");
        until("the work to be kept", || (scene.status(&id)["files_changed"] == 1).then_some(()));
        let job = scene.status(&id)["place"]["job"].clone();
        cluster.kill_controller();
        cut_connections(&scene);
        until_slowly("the run to be given up", || {
            (scene.status(&id)["state"] == "crashed").then_some(())
        });
        scene.await_free(&id);
        fs::write(cluster.worktree_file(node, &id, "go"), "").unwrap();
        cluster.start_controller();
        // Slurm starts steps again once it has heard of its nodes: until then, it may be given up again.
        until_slowly("the run to end", || match scene.status(&id)["state"].as_str()? {
            "ready" => Some(()),
            "crashed" => {
                scene.studio(["resume", &id]);
                None
            }
            _ => None,
        });
        let place = scene.status(&id)["place"].clone();
        assert_eq!((&place["attempt"], &place["set_aside"]), (&1.into(), &serde_json::Value::Null));
        scene.studio(["diff", &id]).output_contains("+two");
        let jobs = cluster.run("squeue", &["-h", "-t", "all", "-o", "%i"]);
        assert_eq!(jobs.trim(), job.as_str().unwrap());
    }

    #[test]
    #[ignore = "needs slurm"]
    fn a_session_killed_at_any_step_at_home_has_one_job() {
        let (scene, cluster) = scene_with_cluster("keep_seconds = 1");
        kill_at_every_step(scene, &cluster);
    }

    #[test]
    #[ignore = "needs slurm"]
    fn what_a_job_left_is_fetched_if_the_host_finds_it() {
        let spool = tempfile::Builder::new().prefix("sp-").tempdir().unwrap();
        let (scene, cluster) =
            scene_with_cluster(&format!("spool = \"{}\"", spool.path().display()));
        let id = scene.exec(["--on", "farm", "write a.txt one; gate go; write b.txt two"]);
        until_slowly("the agent to write", || {
            shared_file(spool.path(), &id, "a.txt").exists().then_some(())
        });
        let job = job_of(&scene.status(&id));
        kill_keeper(&scene, &id);
        fs::write(shared_file(spool.path(), &id, "go"), "").unwrap();
        let sessions = shared_file(spool.path(), "", "").with_extension("");
        let journal = sessions.join("studio/sessions").join(&id).join("journal.jsonl");
        until_slowly("the run to end", || {
            let text = fs::read_to_string(&journal).unwrap_or_default();
            text.contains("\"entry\":\"exit\"").then_some(())
        });
        cluster.run("scancel", &["--signal=KILL", "--full", &job]);
        cluster.await_idle();
        scene.studio(["doctor"]);
        scene.await_state(&id, "ready");
        scene.await_free(&id);
        scene.studio(["accept", &id, "--message", "m"]).exits(0);
        assert_eq!(scene.repo.show("main", "b.txt"), "two");
    }

    #[test]
    #[ignore = "needs slurm"]
    fn what_a_job_left_on_its_node_is_fetched_by_another_one() {
        let (scene, cluster) = scene_with_cluster("keep_seconds = 1");
        let script = "write a.txt one; gate go; write b.txt two";
        let left = |more: &str, done: &str| {
            let script = format!("{script}{more}");
            let id = scene.exec(["--agent", "talk", "--on", "farm", &script]);
            let node = await_file(&cluster, &id, "a.txt");
            let job = job_of(&scene.await_state(&id, "working"));
            kill_keeper(&scene, &id);
            fs::write(cluster.worktree_file(node, &id, "go"), "").unwrap();
            let journal = cluster.session_file(node, &id, "journal.jsonl");
            until_slowly("the job to get that far", || {
                fs::read_to_string(&journal).unwrap().contains(done).then_some(())
            });
            cluster.run("scancel", &["--signal=KILL", "--full", &job]);
            cluster.run("scancel", &[&job]);
            cluster.await_idle();
            (id, node)
        };

        // Its run ended while home was away, and home came back only after the job.
        let (id, node) = left("", "\"entry\":\"exit\"");
        scene.studio(["doctor"]);
        until_slowly("the run", || (scene.status(&id)["state"] == "ready").then_some(()));
        scene.await_free(&id);
        assert_eq!(
            fs::read(scene.session_file(&id, "journal.jsonl")).unwrap(),
            fs::read(cluster.session_file(node, &id, "journal.jsonl")).unwrap()
        );
        assert_eq!(scene.status(&id)["place"]["job"], Value::Null);
        cluster.await_idle();
        scene.studio(["diff", &id]).output_contains("+two");

        // The job ended in the middle of the run.
        let (id, _) = left("; gate end", "\"files_changed\":3");
        for step in ["place.fetching_named", "place.fetching_submitted"] {
            let doctor = scene.env.command(studio(), scene.repo.path()).args(["doctor"]);
            scene.env.run_command(doctor.env("G3_TEST_KILL_AT", step));
            until_slowly(&format!("the keeper to be killed at {step}"), || {
                let placement = fs::read_to_string(scene.session_file(&id, "placement.json"));
                let is_held = Lock::is_held(&scene.session_file(&id, "lock")).unwrap();
                (placement.unwrap().contains("fetching") && !is_held).then_some(())
            });
        }
        scene.studio(["doctor"]);
        until_slowly("the loss", || (scene.status(&id)["state"] == "crashed").then_some(()));
        scene.await_free(&id);
        scene.studio(["diff", &id]).output_contains("+two");
        cluster.await_idle();

        // Another job has the node: the user need not wait for it.
        let (id, node) = left("; gate end", "\"files_changed\":3");
        cluster.run(
            "scontrol",
            &["update", &format!("nodename=node{}", node + 1), "state=drain", "reason=test"],
        );
        scene.studio(["doctor"]);
        let why = until_slowly("the reason", || {
            let why = scene.status(&id)["why"].as_str().unwrap_or_default().to_owned();
            why.contains("its work is to be fetched from node").then_some(why)
        });
        assert!(why.contains(" waits: "), "{why}");
        assert_eq!(scene.status(&id)["state"], "working");
        scene.studio(["stop", &id]);
        let status = scene.await_state(&id, "crashed");
        assert!(status["why"].as_str().unwrap().contains("lost at farm: "), "{status}");
        scene.await_free(&id);
        cluster.await_idle();
    }

    #[test]
    #[ignore = "needs slurm"]
    fn with_a_shared_spool_a_session_killed_at_any_step_at_home_has_one_job() {
        let spool = tempfile::Builder::new().prefix("sp-").tempdir().unwrap();
        let (scene, cluster) = scene_with_shared_spool(spool.path(), "keep_seconds = 1");
        kill_at_every_step(scene, &cluster);
    }

    #[test]
    #[ignore = "needs slurm"]
    fn slurm_is_told_nothing_about_the_task_and_no_secret() {
        let (mut scene, cluster) = scene_with_cluster("");
        scene.env.set("SOME_API_KEY", "canary-key");
        let id = scene.exec(["--on", "farm", "write a.txt canary-task"]);
        scene.await_state(&id, "ready");
        scene.await_free(&id);
        let job = cluster.run("scontrol", &["show", "job"]);
        for canary in ["canary-key", "canary-task", id.as_str()] {
            assert!(!job.contains(canary), "{canary}: {job}");
            for file in cluster.files() {
                let bytes = fs::read(&file).unwrap_or_default();
                let text = String::from_utf8_lossy(&bytes);
                assert!(!text.contains(canary), "{canary} in {}", file.display());
            }
        }
        assert!(job.contains("studio-"), "a job is there at all: {job}");
    }

    #[test]
    #[ignore = "needs slurm"]
    fn with_a_shared_spool_a_job_needs_home_neither_at_its_start_nor_at_its_end() {
        let spool = tempfile::Builder::new().prefix("sp-").tempdir().unwrap();
        let (scene, cluster) =
            scene_with_shared_spool(spool.path(), "options = [\"--begin=now+1hour\"]");
        let script = "write a.txt one; commit first; write b.txt two";
        let id = scene.exec(["--on", "farm", "--check", "test -e b.txt", script]);
        let job = until("the delivery", || {
            let status = scene.status(&id);
            let is_away = status["place"]["away"] == true;
            let waits = status["why"].as_str().is_some_and(|why| why.contains("BeginTime"));
            (is_away && waits).then(|| job_of(&status))
        });
        assert_eq!(scene.status(&id)["state"], "queued");
        kill_keeper(&scene, &id);
        cluster.run("scontrol", &["update", &format!("JobId={job}"), "StartTime=now"]);
        cluster.await_idle();
        assert!(shared_file(spool.path(), &id, "b.txt").exists(), "the job did not run alone");
        assert_eq!(scene.status(&id)["state"], "queued", "home was not there");
        scene.studio(["doctor"]);
        scene.await_state(&id, "ready");
        scene.await_free(&id);
        scene.studio(["accept", &id, "--message", "Add both"]).exits(0);
        assert_eq!(scene.repo.show("main", "a.txt"), "one");
        assert_eq!(scene.repo.show("main", "b.txt"), "two");
        let left = fs::read_dir(spool.path().join("jobs")).unwrap().flatten();
        let left: Vec<_> = left.map(|it| it.path()).collect();
        assert!(left.iter().all(|it| it.extension() == Some("lock".as_ref())), "{left:?}");
    }

    #[test]
    #[ignore = "needs slurm"]
    fn with_a_shared_spool_a_job_that_waits_is_stopped_and_continued() {
        let spool = tempfile::Builder::new().prefix("sp-").tempdir().unwrap();
        let (scene, cluster) =
            scene_with_shared_spool(spool.path(), "options = [\"--begin=now+1hour\"]");
        let id = scene.exec(["--on", "farm", "write a.txt one"]);
        until("the delivery", || (scene.status(&id)["place"]["away"] == true).then_some(()));
        scene.studio(["stop", &id]).exits(0).output_contains("stopped");
        scene.await_free(&id);
        cluster.await_idle();
        let status = scene.status(&id);
        assert_eq!(
            (&status["state"], &status["place"]["away"]),
            (&"stopped".into(), &false.into())
        );
        let place = format!("engine = \"slurm\"\nshared = true\nspool = {:?}\n", spool.path());
        scene.configure(&format!("[studio.places.farm]\n{place}"));
        scene.studio(["resume", &id]).exits(0);
        scene.await_state(&id, "ready");
        scene.await_free(&id);
        cluster.await_idle();
        let check = scene.studio(["places", "check", "farm"]);
        check.exits(0).output_contains("a spool that the host and the nodes share");
        scene.configure("[studio.places.farm]\nengine = \"slurm\"\nshared = true\n");
        let check = scene.studio(["places", "check", "farm"]);
        check.exits(1).output_contains("does not see the files of a job");
    }

    #[test]
    #[ignore = "needs slurm"]
    fn with_a_shared_spool_a_lost_node_loses_no_commit_although_home_is_away() {
        let spool = tempfile::Builder::new().prefix("sp-").tempdir().unwrap();
        let (scene, mut cluster) = scene_with_shared_spool(spool.path(), "");
        let script = "gate asleep; write a.txt one; commit first; gate go; write b.txt two";
        let id = scene.exec(["--agent", "loads", "--on", "farm", script]);
        let status = scene.await_state(&id, "working");
        let lost = usize::from(status["place"]["host"] == "node2");
        until_slowly("the worktree", || {
            shared_file(spool.path(), &id, "README.md").exists().then_some(())
        });
        kill_keeper(&scene, &id);
        fs::write(shared_file(spool.path(), &id, "asleep"), "").unwrap();
        until_slowly("the commit", || {
            let worktree = Repo::at(&shared_file(spool.path(), &id, ""));
            let log = worktree.git(["log", "--format=%s"]);
            log.contains("first").then_some(())
        });
        cluster.kill_node(lost);
        scene.studio(["doctor"]);
        until_slowly("the other node", || {
            let status = scene.status(&id);
            let is_elsewhere = status["place"]["host"] == format!("node{}", 2 - lost).as_str();
            (is_elsewhere && status["place"]["attempt"] == 2).then_some(())
        });
        until_slowly("the worktree", || {
            shared_file(spool.path(), &id, "a.txt").exists().then_some(())
        });
        fs::write(shared_file(spool.path(), &id, "asleep"), "").unwrap();
        fs::write(shared_file(spool.path(), &id, "go"), "").unwrap();
        scene.await_state(&id, "ready");
        scene.await_free(&id);
        scene.studio(["logs", &id]).output_contains("it continues from the work that is here");
        scene.studio(["accept", &id, "--message", "m"]).exits(0);
        assert_eq!(scene.repo.show("main", "a.txt"), "one");
        scene.repo.git(["fsck", "--strict"]);
    }

    #[test]
    #[ignore = "needs slurm"]
    fn a_cluster_is_reached_over_ssh() {
        let (scene, cluster) = scene_with_cluster("");
        let variable = format!("SLURM_CONF={}", cluster.configuration_file().display());
        let host = SshHost::start_with(&variable);
        host.use_in(&scene, "engine = \"slurm\"\noptions = [\"--mem=300M\"]");
        let id = scene.exec(["--on", "farm", "write a.txt one"]);
        let status = scene.await_state(&id, "ready");
        assert!(status["place"]["host"].as_str().unwrap().starts_with("node"), "{status}");
        scene.await_free(&id);
        scene.studio(["accept", &id, "--message", "m"]).exits(0);
        assert_eq!(scene.repo.show("main", "a.txt"), "one");
        cluster.await_idle();
    }

    #[test]
    #[ignore = "needs slurm"]
    fn a_cluster_is_tried_out() {
        let (scene, cluster) = scene_with_cluster("");
        scene.studio(["places"]).output_contains("farm  slurm");
        let check = scene.studio(["places", "check", "farm"]);
        check.exits(0).output_contains("node").output_contains("git");
        cluster.await_idle();
        scene.configure("[studio.places.farm]\nengine = \"slurm\"\noptions = [\"--mem=900G\"]\n");
        scene.studio(["places", "check", "farm"]).exits(1).output_contains("not available");
        let id = scene.exec(["--on", "farm", "write a.txt one"]);
        let status = scene.await_end(&id);
        assert_eq!(status["state"], "failed");
        assert!(status["why"].as_str().unwrap().contains("not available"), "{status}");
    }
}

/// Kills home's side of a session at each step in turn. Each session has one job and one turn.
fn kill_at_every_step(mut scene: Scene, cluster: &SlurmCluster) {
    for step in ["named", "submitted", "chosen", "delivered", "work", "journal", "ended"]
        .map(|it| format!("place.{it}"))
    {
        scene.env.set("G3_TEST_KILL_AT", &step);
        let id = scene.exec(["--on", "farm", "write a.txt one"]);
        scene.env.set("G3_TEST_KILL_AT", "");
        // The last one may be killed after the line that makes the session ready.
        until_slowly(&format!("{id} to be ready after {step}"), || {
            scene.studio(["doctor"]);
            (scene.is_free(&id) && scene.status(&id)["state"] == "ready").then_some(())
        });
        cluster.await_idle();
        let turns = scene.journal(&id).iter().filter(|it| it["entry"] == "turn").count();
        assert_eq!(turns, 1, "{step}");
        scene.studio(["discard", "--yes", &id]).exits(0);
    }
    let jobs = cluster.run("squeue", &["-h", "-t", "all", "-o", "%T"]);
    assert_eq!(jobs.matches("COMPLETED").count(), 7, "{jobs}");
    assert_eq!(jobs.lines().count(), 7, "{jobs}");
}

fn job_of(status: &Value) -> String {
    status["place"]["job"].as_str().unwrap().to_owned()
}

/// Kills all connections of a scene to nodes.
fn cut_connections(scene: &Scene) {
    let home = scene.env.home().display().to_string();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let read = |name: &str| fs::read(entry.path().join(name)).unwrap_or_default();
        let is_step = read("cmdline").starts_with(b"srun\0");
        if is_step && String::from_utf8_lossy(&read("environ")).contains(&home) {
            let id = entry.file_name().to_str().unwrap().parse().unwrap();
            let _ = kill_process(Pid::from_raw(id).unwrap(), Signal::KILL);
        }
    }
}
