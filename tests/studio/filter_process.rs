//! Long-running filters: one process converts many files, and one that misbehaves or is in the middle
//! of a conversion when studio is killed harms nothing.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::PathBuf;

use rustix::process::{Pid, Signal};
use testkit::env::{built, until};

use crate::filters::{ROT13, changes, configuration};
use crate::fixtures::{Scene, studio};

/// A repository with a user who trusts a long-running filter.
struct Filtered {
    scene: Scene,
    /// Where the filter logs, and reads how it misbehaves.
    state: PathBuf,
}

impl Filtered {
    fn new() -> Filtered {
        let scene = Scene::new();
        let state = scene.env.home().join("filter");
        fs::create_dir(&state).unwrap();
        let filtered = Filtered { scene, state };
        filtered.configure("required = true\ntimeout_seconds = 60");
        let repo = &filtered.scene.repo;
        for command in ["clean", "smudge"] {
            repo.git(["config", &format!("filter.rot.{command}"), ROT13]);
        }
        repo.commit_file(".gitattributes", "*.rot filter=rot\n");
        for name in ["a.rot", "b.rot", "c.rot"] {
            repo.commit_file(name, "hello\n");
        }
        repo.commit_file("large.rot", "x".repeat(300_000));
        filtered
    }

    fn configure(&self, more: &str) {
        let program = built("filter-process");
        let line = format!("'{}' '{}'", program.display(), self.state.display());
        self.scene.configure(&format!("[studio.filters.rot]\nprocess = {line:?}\n{more}"));
    }

    fn set_mode(&self, mode: &str) {
        fs::write(self.state.join("mode"), mode).unwrap();
    }

    /// Returns the lines of the log, and empties it.
    fn log(&self) -> Vec<String> {
        let text = fs::read_to_string(self.state.join("log")).unwrap_or_default();
        let _ = fs::remove_file(self.state.join("log"));
        text.lines().map(str::to_owned).collect()
    }

    /// Expects that a worktree that lacks files lands no deletions.
    fn refuses_to_land(&self, id: &str) {
        let landing = self.scene.studio(["accept", id, "--force", "-m", "Land it"]);
        landing.exits(3).output_contains("has no complete worktree");
        for command in [["check", id], ["pr", id]] {
            assert_ne!(self.scene.studio(command).code, 0, "{command:?}");
        }
        self.scene.studio(["diff", id]).exits(3).output_contains("has no changes yet");
        self.scene.repo.is_sound();
    }

    /// Waits until the filter hangs in a conversion; returns its process id.
    fn await_hanging(&self) -> u32 {
        until("the filter to hang", || {
            let log = fs::read_to_string(self.state.join("log")).unwrap_or_default();
            log.lines().find_map(|line| line.strip_prefix("hangs ")?.parse().ok())
        })
    }
}

fn kill(id: u32) {
    let id = Pid::from_raw(id.cast_signed()).unwrap();
    rustix::process::kill_process(id, Signal::KILL).unwrap();
}

#[test]
fn one_process_converts_all_files_of_a_worktree_a_snapshot_and_a_landing() {
    let filtered = Filtered::new();
    let scene = &filtered.scene;
    let starts = |log: &[String]| log.iter().filter(|line| *line == "start").count();
    let script = "sh cat a.rot > seen.txt; write a.rot world; write d.rot there; write e.rot too";
    let id = scene.ready(script);
    scene.await_free(&id);
    scene.await_supervisor(&id);
    let log = filtered.log();
    for line in ["smudge a.rot", "smudge large.rot", "clean a.rot", "clean d.rot", "clean e.rot"] {
        assert!(log.iter().any(|it| it == line), "{line}: {log:?}");
    }
    // One for the worktree, and one for each snapshot.
    assert!(starts(&log) < log.len() / 2 && starts(&log) <= 4, "{log:?}");
    let worktree = scene.worktree(&id);
    assert_eq!(worktree.read("large.rot"), "x".repeat(300_000));
    assert_eq!(worktree.read("seen.txt"), "hello\n");
    scene.studio(["accept", &id, "-m", "Land it"]).exits(0).output_lacks("filters were not run");
    assert_eq!(scene.repo.show("main", "a.rot"), "jbeyq");
    assert_eq!(scene.repo.show("main", "d.rot"), "gurer");
    assert_eq!(
        (scene.repo.read("a.rot"), scene.repo.read("e.rot")),
        ("world\n".into(), "too\n".into())
    );
    assert_eq!(changes(&scene.repo), "");
    scene.studio(["undo"]).exits(0);
    assert_eq!(scene.repo.read("a.rot"), "hello\n");
    assert_eq!(changes(&scene.repo), "");
}

#[test]
fn a_process_that_misbehaves_is_an_error_with_its_last_words_and_changes_nothing() {
    let filtered = Filtered::new();
    let scene = &filtered.scene;
    let id = scene.ready("write a.rot world");
    scene.await_free(&id);
    scene.await_supervisor(&id);
    let before = scene.repo.everything();
    for (mode, reason) in [
        ("die", "exit code 7: the key is missing"),
        ("garbage", "its output is not in packets"),
        ("endless list", "its answer has too many lines"),
        ("error", "it answered `status=error`: no such key"),
        ("abort", "it answered `status=abort`: no such key"),
        ("withdraw", "it answered `status=error`"),
        ("greeting", "its output is not in packets"),
        ("clean-only", "it does not offer `smudge`"),
    ] {
        filtered.set_mode(mode);
        let refused = scene.studio(["accept", &id, "-m", "Land it"]);
        refused.exits(1).output_contains("filter `rot` failed on ").output_contains(reason);
        assert_eq!(scene.repo.everything(), before, "{mode}");
    }
    filtered.set_mode("hang");
    filtered.configure("required = true\ntimeout_seconds = 1");
    let _ = filtered.log();
    let refused = scene.studio(["accept", &id, "-m", "Land it"]);
    refused.exits(1).output_contains("timed out after 1 s");
    // Its parent is gone; another process collects it.
    let hanging = filtered.await_hanging();
    until("the filter to end", || (!base::process::is_alive(hanging)).then_some(()));
    filtered.set_mode("");
    scene.studio(["doctor"]);
    assert_eq!((scene.repo.read("a.rot"), scene.repo.everything()), ("hello\n".into(), before));
    // Much output on stderr blocks nothing.
    filtered.set_mode("noise");
    scene.studio(["accept", &id, "-m", "Land it"]).exits(0);
    assert_eq!(scene.repo.read("a.rot"), "world\n");
    scene.repo.is_sound();
}

#[test]
fn content_stays_as_it_is_if_a_process_that_is_not_required_offers_less() {
    let filtered = Filtered::new();
    let scene = &filtered.scene;
    filtered.configure("");
    filtered.set_mode("clean-only");
    let id = scene.ready("sh cat a.rot > seen.txt; write b.rot there");
    scene.await_free(&id);
    assert_eq!(scene.worktree(&id).read("seen.txt"), "uryyb\n");
    scene.studio(["diff", &id]).exits(0).output_contains("gurer");
}

#[test]
fn a_run_killed_in_the_middle_of_a_smudge_can_be_resumed_and_no_filter_lives_on() {
    let filtered = Filtered::new();
    let scene = &filtered.scene;
    filtered.set_mode("hang");
    let id = scene.exec(["write a.rot world"]);
    let filter = filtered.await_hanging();
    assert!(base::process::is_alive(filter));
    kill(u32::try_from(scene.supervisor(&id)).unwrap());
    until("the filter to end", || (!base::process::is_alive(filter)).then_some(()));
    filtered.set_mode("");
    until("the session to be ready", || {
        scene.studio(["doctor"]);
        match scene.status(&id)["state"].as_str().unwrap() {
            "ready" => Some(()),
            "crashed" => {
                scene.studio(["resume", &id]).exits(0);
                None
            }
            _ => None,
        }
    });
    scene.await_free(&id);
    assert_eq!(scene.worktree(&id).read("b.rot"), "hello\n");
    scene.studio(["accept", &id, "-m", "Land it"]).exits(0);
    assert_eq!(
        (scene.repo.read("a.rot"), scene.repo.show("main", "a.rot")),
        ("world\n".into(), "jbeyq".into())
    );
    assert_eq!(changes(&scene.repo), "");
    scene.repo.is_sound();
}

#[test]
fn stop_and_a_time_limit_end_a_smudge_and_resume_makes_the_worktree_again() {
    let filtered = Filtered::new();
    let scene = &filtered.scene;
    filtered.set_mode("hang");
    let id = scene.exec(["write a.rot world"]);
    let filter = filtered.await_hanging();
    scene.studio(["stop", &id]).exits(0).output_contains("stopped");
    until("the filter to end", || (!base::process::is_alive(filter)).then_some(()));
    filtered.refuses_to_land(&id);
    scene.studio(["doctor"]);
    filtered.refuses_to_land(&id);
    let _ = filtered.log();
    let limited = scene.exec(["write b.rot world", "--timeout", "3"]);
    let filter = filtered.await_hanging();
    scene.await_state(&limited, "failed");
    scene.await_free(&limited);
    until("the filter to end", || (!base::process::is_alive(filter)).then_some(()));
    scene.studio(["status", &limited]).output_contains("it reached its limit of 3 seconds");
    scene.studio(["discard", &limited]).exits(0);

    filtered.set_mode("");
    scene.studio(["resume", &id]).exits(0);
    scene.await_state(&id, "ready");
    scene.await_free(&id);
    assert_eq!(scene.worktree(&id).read("b.rot"), "hello\n");
    scene.studio(["accept", &id, "-m", "Land it"]).exits(0);
    assert_eq!(scene.repo.show("main", "a.rot"), "jbeyq");
    assert_eq!(changes(&scene.repo), "");
    scene.studio(["undo", "op1"]).exits(0).output_contains("is restored");
    assert_eq!(scene.status(&limited)["state"], "failed");
    scene.repo.is_sound();
}

#[test]
fn an_accept_killed_in_the_middle_of_a_smudge_is_repaired_and_no_filter_lives_on() {
    let filtered = Filtered::new();
    let scene = &filtered.scene;
    let id = scene.ready("write a.rot world; write new.rot there; write z.txt text");
    scene.await_free(&id);
    scene.await_supervisor(&id);
    // One that has converted some files, and hangs at the next.
    for step in ["filter.smudged:1", "filter.smudged:2"] {
        let job = scene.env.command(studio(), scene.repo.path());
        let job = job.args(["accept", &id, "-m", "Land it"]);
        scene.env.run_command(job.env("G3_TEST_KILL_AT", step)).exits(137);
        scene.studio(["doctor"]);
        assert_eq!(scene.status(&id)["state"], "ready", "{step}");
        assert_eq!(
            (scene.repo.read("a.rot"), changes(&scene.repo)),
            ("hello\n".into(), String::new())
        );
        assert!(!scene.repo.path().join("new.rot").exists());
    }
    let _ = filtered.log();
    filtered.set_mode("hang");
    let mut accept = scene.env.start(studio(), scene.repo.path(), ["accept", &id, "-m", "Land it"]);
    let filter = filtered.await_hanging();
    kill(accept.id());
    let _ = accept.child.wait();
    until("the filter to end", || (!base::process::is_alive(filter)).then_some(()));
    filtered.set_mode("");
    scene.studio(["doctor"]);
    assert_eq!((scene.repo.read("a.rot"), changes(&scene.repo)), ("hello\n".into(), String::new()));
    scene.studio(["accept", &id, "-m", "Land it"]).exits(0);
    assert_eq!(
        (scene.repo.read("a.rot"), scene.repo.read("new.rot")),
        ("world\n".into(), "there\n".into())
    );
    assert_eq!(changes(&scene.repo), "");
    scene.studio(["doctor"]);
    scene.studio(["doctor"]).exits(0).output_contains("no problems found");
    scene.repo.is_sound();
}

/// A filter that is one process for each file hangs too.
#[test]
fn a_command_for_one_file_does_not_outlive_studio() {
    let filtered = Filtered::new();
    let scene = &filtered.scene;
    let pid = filtered.state.join("pid");
    let line = format!("echo $$ > '{}'; sleep 1000; {ROT13}", pid.display());
    scene.configure(&configuration(&line, "required = true"));
    let id = scene.exec(["write a.rot world"]);
    let shell =
        until("the filter to start", || fs::read_to_string(&pid).ok()?.trim().parse::<u32>().ok());
    let is_alive = || base::process::is_alive(shell);
    assert!(is_alive());
    kill(u32::try_from(scene.supervisor(&id)).unwrap());
    until("the filter to end", || (!is_alive()).then_some(()));
    scene.configure(&configuration(ROT13, "required = true"));
    scene.studio(["doctor"]);
}
