//! `studio sdlc`: which commits its stages work on, how it continues, and what lands. The agents are
//! scripts, one for each stage.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::PathBuf;

use serde_json::{Value, json};
use testkit::env::{CommandRun, built, until};

use crate::fixtures::{Scene, studio};

/// A repository whose g3 plays the script of its persona.
struct Pipeline {
    scene: Scene,
    scripts: PathBuf,
}

impl Pipeline {
    /// Creates a repository with two commits; no stage changes anything.
    fn new() -> Pipeline {
        Pipeline::with_settings("")
    }

    /// Like `new`, with additional lines for `[studio]`.
    fn with_settings(settings: &str) -> Pipeline {
        let scene = Scene::new();
        let scripts = scene.env.home().join("stages");
        std::fs::create_dir(&scripts).unwrap();
        let fake = built("fake-agent");
        let line = format!("exec {} \"$(cat {}/$3)\"", fake.display(), scripts.display());
        // g3 gets its persona as `--agent NAME` after its task.
        scene.configure(&format!(
            "{settings}\n[providers.anthropic.main]\napi_key = \"not a real one\"\n\
             [studio.agents.g3]\nprotocol = \"command\"\nread = [{scripts:?}]\n\
             command = [\"sh\", \"-c\", {line:?}, \"sh\", \"{{prompt}}\"]\n"
        ));
        scene.repo.commit_file("code", "1\n");
        let pipeline = Pipeline { scene, scripts };
        for persona in PERSONAS {
            pipeline.set(persona, "say nothing to do");
        }
        pipeline
    }

    /// Sets the script of a stage.
    fn set(&self, persona: &str, script: &str) {
        std::fs::write(self.scripts.join(persona), script).unwrap();
    }

    fn run<const N: usize>(&self, args: [&str; N]) -> CommandRun {
        let mut all = vec!["sdlc", "run"];
        all.extend(args);
        self.scene.env.run(studio(), self.scene.repo.path(), all)
    }

    /// Returns the pipeline of `sdlc status --json`.
    fn status(&self) -> Value {
        self.scene.studio(["sdlc", "status", "--json"]).exits(0).json()["pipeline"].clone()
    }

    /// Returns the state of each stage.
    fn states(&self) -> Vec<String> {
        let stages = self.status()["stages"].as_array().unwrap().clone();
        stages.iter().map(|stage| stage["state"].as_str().unwrap().to_owned()).collect()
    }

    /// Returns the session of a stage.
    fn id(&self, persona: &str) -> String {
        let index = PERSONAS.iter().position(|it| *it == persona).unwrap();
        self.status()["stages"][index]["session"].as_str().unwrap().to_owned()
    }

    /// Returns the task of the session of a stage.
    fn task(&self, persona: &str) -> String {
        self.scene.status(&self.id(persona))["task"].as_str().unwrap().to_owned()
    }

    fn sessions(&self) -> Vec<Value> {
        let list = self.scene.studio(["list", "--all", "--json"]).json();
        list["sessions"].as_array().unwrap().clone()
    }

    /// Runs the command that `sdlc status` suggests first.
    fn follow_suggestion(&self) -> CommandRun {
        let command = self.status()["next"][0].as_str().unwrap().to_owned();
        let words = command.strip_prefix("studio ").unwrap().split(' ');
        self.scene.env.run(studio(), self.scene.repo.path(), words)
    }

    /// Waits until the agent of a stage works.
    fn await_stage(&self, persona: &str) -> String {
        let index = PERSONAS.iter().position(|it| *it == persona).unwrap();
        until(&format!("{persona} works"), || {
            let stage = self.status()["stages"][index].clone();
            let works = stage["state"] == "working";
            works.then(|| stage["session"].as_str().unwrap().to_owned())
        })
    }

    /// Returns the number of turns of the session of a stage.
    fn turns(&self, persona: &str) -> usize {
        let journal = self.scene.journal(&self.id(persona));
        journal.iter().filter(|line| line["entry"] == "turn").count()
    }
}

const PERSONAS: [&str; 7] =
    ["euler", "breaker", "hopper", "fowler", "carmack", "lamport", "huffman"];

#[test]
fn stages_work_on_top_of_each_other_and_land_as_one_commit_each() {
    let pipeline = Pipeline::new();
    let repo = &pipeline.scene.repo;
    let start = repo.rev("main");
    pipeline.set("euler", "write graph 1; commit the graph; write graph 2; commit another");
    // What a stage does not commit belongs to it, and not to the next stage.
    pipeline.set("hopper", "write tests/a 1");
    pipeline.set("carmack", "sh cat graph tests/a > code");
    pipeline.set("huffman", "write notes 1; commit notes");
    pipeline
        .run([])
        .exits(0)
        .output_contains("2 commits of main")
        .output_contains("next: studio accept euler-");
    assert_eq!(pipeline.states(), ["ready", "empty", "ready", "empty", "ready", "empty", "ready"]);
    let stages = pipeline.status()["stages"].clone();
    for stage in [0, 2, 4, 6] {
        assert_eq!(stages[stage]["files_changed"], 1, "{stages:#}");
    }
    assert_eq!(repo.rev("main"), start, "nothing lands by itself");
    for persona in ["euler", "hopper", "carmack", "huffman"] {
        pipeline.scene.await_supervisor(&pipeline.id(persona));
    }
    pipeline.follow_suggestion().exits(0);
    let commits = repo.git(["rev-list", "--reverse", &format!("{start}..main")]);
    let files: Vec<String> =
        commits.lines().map(|it| repo.git(["show", "--name-only", "--format=", it])).collect();
    assert_eq!(files, ["graph", "tests/a", "code", "notes"]);
    assert_eq!(repo.read("code"), "2\n1\n");
    let author = repo.git(["log", "-1", "--format=%(trailers:key=Session,valueonly)", "main~3"]);
    assert!(author.starts_with("euler-"), "{author}");
    repo.is_sound();
    // Undoing works as for any other session.
    pipeline.scene.studio(["undo"]).exits(0);
    assert_eq!(repo.rev("main~3"), start);
}

#[test]
fn a_stack_lands_in_a_queue_and_by_every_strategy() {
    for args in [
        &["accept", "--all"][..],
        &["accept", "--all", "--strategy", "merge"],
        &["accept", "--all", "--strategy", "rebase"],
    ] {
        let pipeline = Pipeline::new();
        let repo = &pipeline.scene.repo;
        pipeline.set("euler", "write a 1; commit one; write a 2; commit two; write b 1");
        pipeline.set("fowler", "sh cat a b > c; commit three; write b 2");
        pipeline.run([]).exits(0);
        for persona in ["euler", "fowler"] {
            pipeline.scene.await_supervisor(&pipeline.id(persona));
        }
        pipeline.scene.env.run(studio(), repo.path(), args).exits(0);
        assert_eq!((repo.read("b"), repo.read("c")), ("2\n".into(), "2\n1\n".into()), "{args:?}");
        repo.is_sound();
        // Landed commits of the pipeline are not in the range of the next run.
        pipeline.run([]).exits(0).output_contains("no new commits on `main`");
        assert_eq!(pipeline.sessions().len(), 7);
    }
}

#[test]
fn each_task_names_the_range_its_commits_and_the_earlier_stages() {
    let pipeline = Pipeline::new();
    let repo = &pipeline.scene.repo;
    let from = repo.rev("main");
    for number in 0..25 {
        repo.write(&format!("many/{number}"), "x\n");
    }
    repo.git(["add", "-A"]);
    repo.git(["commit", "-q", "-m", "Add many \u{1b}[31mfiles", "-m", "With a body."]);
    repo.commit_file("last", "1\n2\n");
    let to = repo.rev("main");
    pipeline.set("euler", "write graph 1");
    pipeline.run(["--from", &from]).exits(0);
    let (first, second) = (pipeline.task("euler"), pipeline.task("breaker"));
    assert!(first.starts_with("euler: update the graph of dependencies ("), "{first}");
    for text in [&first, &second] {
        assert!(
            text.contains(&format!(
                "2 commits of the branch `main` changed: `git log {from}..{to}`"
            )),
            "{text}"
        );
        assert!(text.contains(&format!("`git diff {from} {to}`")), "{text}");
        let list = format!("{} add last (1 file, +2 -0)\n    last\n", &to[..12]);
        assert!(text.contains(&list), "{text}");
        assert!(text.contains("(25 files, +25 -0)\n    many/0\n"), "{text}");
        assert!(text.contains("    … and 5 more\n"), "{text}");
        assert!(!text.contains('\u{1b}') && !text.contains("code"), "{text}");
    }
    assert!(!first.contains("earlier stages"), "{first}");
    assert!(second.contains(&format!("earlier stages (euler): `git log {to}..HEAD`")), "{second}");
    // The agent can follow both.
    let worktree = pipeline.scene.worktree(&pipeline.id("breaker"));
    assert_eq!(worktree.git(["rev-list", "--count", &format!("{from}..{to}")]), "2");
    assert_eq!(worktree.git(["diff", "--name-only", &to, "HEAD"]), "graph");
    assert_eq!(worktree.git(["status", "--porcelain"]), "");
}

#[test]
fn the_list_of_commits_in_a_task_is_bounded() {
    let pipeline = Pipeline::new();
    let repo = &pipeline.scene.repo;
    for commit in 0..8 {
        for file in 0..20 {
            repo.write(&format!("{commit}/{file}-{}", "x".repeat(180)), "");
        }
        repo.git(["add", "-A"]);
        repo.git(["commit", "-q", "-m", &format!("Commit {commit}")]);
    }
    pipeline.run(["-c", "8"]).exits(0);
    let task = pipeline.task("euler");
    assert!(task.len() < 24 << 10, "{} bytes", task.len());
    assert!(task.contains("8 commits") && task.ends_with("… and 3 earlier\n"), "{task}");
}

#[test]
fn a_failed_stage_is_retried_and_the_stages_before_it_are_kept() {
    let pipeline = Pipeline::new();
    pipeline.set("euler", "write graph 1");
    pipeline.set("hopper", "exit 1");
    let ran = pipeline.run([]);
    ran.exits(1).output_contains("hopper: failed: ").output_contains("next: studio sdlc run");
    assert_eq!(pipeline.states()[..4], ["ready", "empty", "failed", "pending"]);
    let hopper = pipeline.id("hopper");
    pipeline.run([]).exits(1);
    assert_eq!((pipeline.turns("hopper"), pipeline.id("hopper")), (2, hopper.clone()));
    // A discarded session is replaced.
    pipeline.scene.studio(["discard", "--yes", &hopper]).exits(0);
    pipeline.set("hopper", "write tests/a 1");
    pipeline.run([]).exits(0);
    assert_eq!(pipeline.states(), ["ready", "empty", "ready", "empty", "empty", "empty", "empty"]);
    assert_ne!(pipeline.id("hopper"), hopper);
    assert_eq!((pipeline.turns("euler"), pipeline.sessions().len()), (1, 8));
}

#[test]
fn settings_apply_to_the_whole_run_and_a_failed_check_goes_to_its_agent() {
    let pipeline = Pipeline::new();
    pipeline.set("euler", "write a 1");
    pipeline
        .run(["--check", "echo not there; test -f a", "--max-turns", "2"])
        .exits(2)
        .output_contains("--max-turns");
    assert_eq!(pipeline.status(), Value::Null, "what is refused is not recorded");
    pipeline.set("hopper", "sh rm a");
    let checks = "test -f a || { echo a is not there; exit 1; }";
    pipeline.run(["--check", checks, "--timeout", "600"]).exits(1);
    let session = pipeline.scene.status(&pipeline.id("hopper"));
    assert_eq!(session["checks"][0]["ok"], false);
    pipeline.set("hopper", "write a 2");
    pipeline.set("lamport", "write docs/a 1");
    pipeline.run([]).exits(0);
    let journal = pipeline.scene.journal(&pipeline.id("hopper"));
    let prompt = journal.iter().rev().find_map(|line| line["prompt"].as_str()).unwrap();
    assert!(prompt.contains("a is not there"), "{prompt}");
    let lamport = pipeline.scene.status(&pipeline.id("lamport"));
    assert_eq!(lamport["checks"][0]["command"], checks);
    let record =
        std::fs::read(pipeline.scene.session_file(&pipeline.id("lamport"), "session.json"));
    let record: Value = serde_json::from_slice(&record.unwrap()).unwrap();
    assert_eq!(record["limits"]["seconds"], 600);
}

#[test]
fn a_pipeline_killed_at_any_step_can_be_continued() {
    for step in
        ["sdlc.saved:1", "run.supervisor:1", "run.supervisor:2", "run.supervisor:7", "sdlc.saved:2"]
    {
        let pipeline = Pipeline::new();
        pipeline.set("euler", "write graph 1");
        pipeline.set("huffman", "sh cat graph > notes");
        let scene = &pipeline.scene;
        let job = scene.env.command(studio(), scene.repo.path()).args(["sdlc", "run"]);
        let killed = scene.env.run_command(job.env("G3_TEST_KILL_AT", step));
        // The supervisor of the stage before may have started a session itself.
        let may_survive = ["run.supervisor:2", "run.supervisor:7"].contains(&step);
        assert!(killed.code != 0 || may_survive, "{step}: {killed}");
        if killed.code != 0 {
            pipeline.run([]).exits(0);
        }
        assert_eq!(
            pipeline.states(),
            ["ready", "empty", "empty", "empty", "empty", "empty", "ready"],
            "{step}"
        );
        assert_eq!(pipeline.sessions().len(), 7, "{step}");
        assert_eq!(scene.worktree(&pipeline.id("huffman")).read("notes"), "1\n");
        pipeline.run([]).exits(0).output_contains("no new commits");
    }
}

#[test]
fn a_stage_outlives_the_killed_command_and_the_next_one_goes_on() {
    let pipeline = Pipeline::new();
    pipeline.set("breaker", "write report 1; gate go");
    let scene = &pipeline.scene;
    let mut first = scene.env.start(studio(), scene.repo.path(), ["sdlc", "run"]);
    let id = pipeline.await_stage("breaker");
    let busy = pipeline.run([]);
    busy.exits(3).output_contains("`studio sdlc run` is already running");
    scene.studio(["sdlc", "reset"]).exits(3).output_contains("already running");
    let status = pipeline.status();
    assert_eq!((&status["running"], &status["complete"]), (&json!(true), &json!(false)));
    assert_eq!(
        status["next"],
        json!([format!("studio logs {id} -f"), format!("studio stop {id}")])
    );
    first.child.kill().unwrap();
    until("it is gone", || first.child.try_wait().unwrap());
    let status = pipeline.status();
    assert_eq!((&status["running"], &status["next"]), (&json!(false), &json!(["studio sdlc run"])));
    // Another range would belong to another run.
    pipeline.run(["-c", "1"]).exits(3).output_contains("the pipeline is not complete");
    let mut second = scene.env.start(studio(), scene.repo.path(), ["sdlc", "run"]);
    until("it waits", || (pipeline.status()["running"] == true).then_some(()));
    scene.worktree(&id).write("go", "");
    assert!(until("it ends", || second.child.try_wait().unwrap()).success());
    assert_eq!((pipeline.id("breaker"), pipeline.turns("breaker")), (id, 1));
    assert_eq!(pipeline.sessions().len(), 7);
}

#[test]
fn ctrl_c_stops_the_stage_and_the_next_command_resumes_it() {
    let pipeline = Pipeline::new();
    pipeline.set("euler", "write graph 1; gate go");
    let scene = &pipeline.scene;
    let mut first = scene.env.start(studio(), scene.repo.path(), ["sdlc", "run"]);
    let id = pipeline.await_stage("euler");
    let pid = rustix::process::Pid::from_child(&first.child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let ended = until("it ends", || first.child.try_wait().unwrap());
    assert_eq!((ended.code(), pipeline.states()[0].as_str()), (Some(130), "stopped"));
    scene.worktree(&id).write("go", "");
    pipeline.run([]).exits(0);
    assert_eq!((pipeline.id("euler"), pipeline.states()[0].as_str()), (id, "ready"));
}

#[test]
fn new_commits_start_a_new_run_and_without_any_it_says_so() {
    let pipeline = Pipeline::new();
    let repo = &pipeline.scene.repo;
    pipeline.set("euler", "write graph 1");
    pipeline.run([]).exits(0);
    let (first, end) = (pipeline.status()["id"].clone(), repo.rev("main"));
    let cursors = pipeline.scene.studio(["sdlc", "status", "--json"]).json()["cursors"].clone();
    assert_eq!(cursors, json!({"main": end}));
    let idle = pipeline.run([]);
    idle.exits(0).output_contains(&format!("no new commits on `main` after {}", &end[..12]));
    idle.output_contains(&format!("next: studio accept {}", pipeline.id("euler")));
    let idle = pipeline.run(["--json"]).exits(0).json();
    assert_eq!((&idle["type"], &idle["pipeline"]["id"]), (&json!("summary"), &first));
    assert_eq!(idle["pipeline"]["running"], false);
    pipeline.scene.await_supervisor(&pipeline.id("euler"));
    pipeline.follow_suggestion().exits(0);
    pipeline.run([]).exits(0).output_contains("no new commits on `main`");
    repo.commit_file("more", "1\n");
    pipeline.run([]).exits(0).output_contains("1 commit of main");
    let status = pipeline.status();
    assert_ne!(status["id"], first);
    assert_eq!((&status["from"], &status["commits"]), (&json!(end), &json!(1)));
    assert_eq!(pipeline.sessions().len(), 14);
    let task = pipeline.task("breaker");
    assert!(task.contains(" add more (") && !task.contains("    graph\n"), "{task}");
}

#[test]
fn a_run_that_did_not_complete_moves_no_cursor() {
    let pipeline = Pipeline::new();
    let repo = &pipeline.scene.repo;
    pipeline.set("euler", "write graph 1");
    pipeline.set("breaker", "exit 1");
    pipeline.run([]).exits(1);
    repo.commit_file("more", "1\n");
    let cursors = pipeline.scene.studio(["sdlc", "status", "--json"]).json()["cursors"].clone();
    assert_eq!(cursors, json!({}));
    pipeline.set("breaker", "say nothing to do");
    let to = pipeline.status()["to"].clone();
    pipeline.run([]).exits(0).output_contains("2 commits of main");
    assert_eq!(pipeline.status()["to"], to, "the range of a run does not change");
    pipeline.run([]).exits(0).output_contains("1 commit of main");
    assert_eq!(pipeline.status()["from"], to);
}

#[test]
fn the_range_is_the_last_commits_or_those_after_a_revision() {
    let pipeline = Pipeline::new();
    let repo = &pipeline.scene.repo;
    repo.git(["tag", "v1"]);
    for number in 0..12 {
        repo.commit_file(&format!("sub/{number}"), "1\n");
    }
    // Commits of a merged branch come with the merge.
    repo.git(["switch", "-q", "-c", "side", "HEAD~1"]);
    repo.commit_file("side", "1\n");
    repo.commit_file("side2", "1\n");
    repo.git(["switch", "-q", "main"]);
    repo.git(["merge", "-q", "--no-ff", "-m", "Merge side", "side"]);
    let range = |args: &[&str]| {
        pipeline.scene.studio(["sdlc", "reset"]).exits(0);
        // Also in a subdirectory.
        let directory = repo.path().join("sub");
        let words = ["sdlc", "run"].iter().chain(args);
        pipeline.scene.env.run(studio(), &directory, words).exits(0);
        let status = pipeline.status();
        (status["from"].clone(), status["commits"].as_u64().unwrap())
    };
    assert_eq!(range(&[]), (json!(repo.rev("main~10")), 10));
    assert_eq!(range(&["-c", "3"]), (json!(repo.rev("main~3")), 3));
    assert!(pipeline.task("euler").contains(" Merge side (2 files, +2 -0)\n    side\n"));
    assert_eq!(range(&["--from", "v1"]), (json!(repo.rev("v1")), 13));
    assert_eq!(range(&["--commits", "100"]), (Value::Null, 15), "all of the history");
    assert!(pipeline.task("euler").contains(&format!("`git log {}`", repo.rev("main"))));
    pipeline.run(["-c", "2"]).exits(0).output_contains("2 commits of main");
    pipeline.run(["-c", "1", "--from", "v1"]).exits(2);
    pipeline.run(["--from", "nowhere"]).exits(5).output_contains("nowhere");
    pipeline.run(["--from", "main"]).exits(0).output_contains("no new commits");
    repo.git(["switch", "-q", "--detach"]);
    pipeline.run(["-c", "1"]).exits(3).output_contains("the pipeline needs a branch");
}

#[test]
fn each_branch_has_its_own_cursor_and_a_run_stays_on_its_branch() {
    let pipeline = Pipeline::new();
    let repo = &pipeline.scene.repo;
    pipeline.run([]).exits(0);
    repo.git(["switch", "-q", "-c", "other"]);
    repo.commit_file("other", "1\n");
    pipeline.set("euler", "write graph 1");
    pipeline.set("breaker", "exit 1");
    pipeline.run(["-c", "1"]).exits(1).output_contains("1 commit of other");
    repo.git(["switch", "-q", "main"]);
    pipeline.set("breaker", "write report 1");
    pipeline.run([]).exits(0).output_contains("1 commit of other");
    for persona in ["euler", "breaker"] {
        pipeline.scene.await_supervisor(&pipeline.id(persona));
    }
    pipeline.follow_suggestion().exits(0);
    assert_eq!(repo.show("other", "report"), "1");
    pipeline.run([]).exits(0).output_contains("no new commits on `main`");
    let cursors = pipeline.scene.studio(["sdlc", "status", "--json"]).json()["cursors"].clone();
    assert_eq!(cursors, json!({"main": repo.rev("main"), "other": repo.rev("other~2")}));
}

#[test]
fn after_the_branch_was_rewritten_its_last_commits_count() {
    let pipeline = Pipeline::new();
    let repo = &pipeline.scene.repo;
    repo.commit_file("more", "1\n");
    pipeline.run([]).exits(0);
    repo.git(["reset", "-q", "--hard", "HEAD~1"]);
    repo.commit_file("instead", "1\n");
    pipeline.run([]).exits(0).output_contains("1 commit of main");
    let file = repo.path().join(".git/studio/sdlc.json");
    let mut state: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    state["cursors"]["main"] = json!("1234567890123456789012345678901234567890");
    std::fs::write(&file, state.to_string()).unwrap();
    let ran = pipeline.run([]);
    ran.exits(0).output_contains("does not exist any more").output_contains("3 commits of main");
}

#[test]
fn a_reset_forgets_the_pipeline_and_keeps_its_sessions() {
    let pipeline = Pipeline::new();
    let scene = &pipeline.scene;
    scene.studio(["sdlc", "status"]).exits(0).output_contains("no pipeline");
    scene.studio(["sdlc", "reset"]).exits(0).output_contains("no pipeline");
    pipeline.set("euler", "write graph 1");
    pipeline.run([]).exits(0);
    let (id, end) = (pipeline.id("euler"), scene.repo.rev("main"));
    let said = scene.studio(["sdlc", "reset"]);
    said.exits(0).output_contains("its sessions are kept");
    said.output_contains(&format!("studio sdlc run --from {end}"));
    assert_eq!(pipeline.status(), Value::Null);
    assert_eq!(scene.status(&id)["state"], "ready");
    assert_eq!(pipeline.sessions().len(), 7);
    pipeline.run(["--from", &end]).exits(0).output_contains("no new commits");
    pipeline.set("euler", "exit 1");
    pipeline.run([]).exits(1).output_contains("2 commits of main");
    // A file that cannot be read is reported, and can be forgotten.
    std::fs::write(scene.repo.path().join(".git/studio/sdlc.json"), "{").unwrap();
    let broken = pipeline.run([]);
    broken.exits(1).output_contains("cannot read").output_contains("studio sdlc reset");
    let reset = scene.studio(["sdlc", "reset", "--json"]).exits(0).json();
    assert_eq!(reset, json!({"schema": 1, "reset": true, "cursors": {}}));
    scene.studio(["accept", &id, "-m", "Add the graph"]).exits(0);
    assert_eq!(scene.repo.read("graph"), "1\n");
}

#[test]
fn a_detached_pipeline_continues_in_the_background() {
    let pipeline = Pipeline::new();
    pipeline.set("euler", "write graph 1; gate go");
    pipeline.set("huffman", "write notes 1");
    let id = pipeline.run(["--detach"]).ok().to_owned();
    assert!(id.starts_with("euler-"), "{id}");
    until("it runs", || (pipeline.status()["running"] == true).then_some(()));
    pipeline.run([]).exits(3).output_contains("already running");
    pipeline.await_stage("euler");
    pipeline.scene.worktree(&id).write("go", "");
    until("it is complete", || (pipeline.status()["complete"] == true).then_some(()));
    assert_eq!(pipeline.states()[6], "ready");
    assert_eq!(pipeline.id("euler"), id);
}

#[test]
fn with_accept_each_stage_lands_when_it_is_ready() {
    let pipeline = Pipeline::new();
    let repo = &pipeline.scene.repo;
    let start = repo.rev("main");
    pipeline.set("euler", "write graph 2; commit graph");
    pipeline.set("carmack", "sh cat graph > code");
    pipeline.run(["--accept"]).exits(0);
    assert_eq!(
        pipeline.states(),
        ["accepted", "empty", "empty", "empty", "accepted", "empty", "empty"]
    );
    assert_eq!(pipeline.status()["stages"][0]["commit"], json!(repo.rev("main~1")));
    assert_eq!((repo.read("code"), repo.rev("main~2")), ("2\n".into(), start));
    assert!(pipeline.task("carmack").contains("earlier stages (euler)"));
    pipeline.run([]).exits(0).output_contains("no new commits");
}

#[test]
fn stages_that_land_during_the_run_are_not_repeated() {
    let pipeline = Pipeline::new();
    let repo = &pipeline.scene.repo;
    pipeline.set("euler", "write graph 1");
    pipeline.set("breaker", "exit 1");
    pipeline.run([]).exits(1);
    let euler = pipeline.id("euler");
    pipeline.scene.await_supervisor(&euler);
    pipeline.scene.studio(["accept", &euler, "-m", "Add the graph"]).exits(0);
    pipeline.set("breaker", "write report 1");
    pipeline.set("hopper", "sh cat graph report > tests");
    pipeline.run([]).exits(0);
    assert_eq!(pipeline.states()[..3], ["accepted", "ready", "ready"]);
    for persona in ["breaker", "hopper"] {
        pipeline.scene.await_supervisor(&pipeline.id(persona));
    }
    pipeline.follow_suggestion().exits(0);
    assert_eq!(repo.read("tests"), "1\n1\n");
    assert_eq!(repo.git(["show", "--name-only", "--format=", "main"]), "tests");
}

#[test]
fn the_status_shows_each_stage_with_its_session() {
    let pipeline = Pipeline::new();
    pipeline.set("euler", "write graph 1");
    pipeline.set("hopper", "exit 1");
    pipeline.run([]).exits(1);
    let shown = pipeline.scene.studio(["sdlc", "status"]);
    let tail = |id: String| format!("-{}", base::id::tail(&id));
    let text = ["euler", "breaker", "hopper"].iter().fold(shown.to_string(), |text, persona| {
        text.replace(&tail(pipeline.id(persona)), "-7k3f")
    });
    let text = text.replace(&pipeline.scene.repo.rev("main")[..12], "TO");
    insta::assert_snapshot!(text, @r"
    2 commits of main: TO
     STAGE    STATE    CHANGES        COST  SESSION
     euler    ready    1 file +1 -0*  -     euler-update-the-graph-7k3f
     breaker  empty    0 files +0 -0  -     breaker-look-for-bugs-7k3f
     hopper   failed   0 files +0 -0  -     hopper-add-missing-7k3f
     fowler   pending
     carmack  pending
     lamport  pending
     huffman  pending
    ---- stderr
    next: studio sdlc run
    [exit 0]
    ");
    let status = pipeline.status();
    assert_eq!(
        status["stages"][6],
        json!({
            "stage": "huffman", "session": null, "state": "pending", "why": null,
            "files_changed": null, "insertions": null, "deletions": null, "cost_usd": null,
            "commit": null,
        })
    );
    let euler = &status["stages"][0];
    assert_eq!((&euler["insertions"], &euler["state"]), (&json!(1), &json!("ready")));
    assert_eq!(status["stages"][2]["state"], "failed");
}
