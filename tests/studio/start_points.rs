//! Where sessions start: at another session's work, an existing branch, a pull request, or the
//! uncommitted work of a worktree.

use std::collections::BTreeMap;
use std::fs;

use testkit::env::built;
use testkit::model_server::ModelServer;
use testkit::model_server::reply::ScriptedReply;
use testkit::repo::Repo;

use crate::fixtures::{Scene, studio};

/// Returns the files of a worktree, without its `.git`.
fn files(repo: &Repo) -> BTreeMap<String, String> {
    let mut files = repo.files();
    files.remove(".git");
    files
}

#[test]
fn a_fork_starts_with_the_work_of_its_origin_which_does_not_change() {
    let scene = Scene::new();
    scene.repo.commit_file("file", "old\n");
    let id = scene.ready("write a 1; write file changed; write new u");
    let origin = scene.worktree(&id);
    origin.git(["add", "a"]);
    origin.git(["commit", "-q", "-m", "one"]);
    origin.write("staged", "s\n");
    origin.git(["add", "staged"]);
    let before = (files(&origin), origin.git(["status", "--porcelain"]), origin.rev("HEAD"));

    let fork = scene.studio(["fork", &id, "; write b 2", "--detach"]).ok().to_owned();
    scene.await_state(&fork, "ready");
    let copy = scene.worktree(&fork);
    assert_eq!(copy.read("b"), "2\n");
    fs::remove_file(copy.path().join("b")).unwrap();
    assert_eq!(files(&copy), before.0);
    assert_eq!(copy.git(["status", "--porcelain"]), before.1);
    assert_eq!(copy.rev("HEAD"), before.2);
    copy.write("b", "2\n");

    // Everything that would land is shown and lands.
    scene.studio(["diff", &fork, "--name-only"]).exits(0).output_contains("a\n");
    scene.await_free(&fork);
    scene.studio(["accept", &fork, "-m", "Land the fork"]).exits(0);
    assert_eq!(
        (scene.repo.read("a"), scene.repo.read("b"), scene.repo.read("file")),
        ("1\n".into(), "2\n".into(), "changed\n".into())
    );
    assert_eq!((files(&origin), origin.git(["status", "--porcelain"]), origin.rev("HEAD")), before);
    assert_eq!(scene.status(&id)["state"], "ready");
    scene.repo.is_sound();
}

#[test]
fn a_fork_outlives_its_origin_and_the_garbage_collection_of_the_repository() {
    let scene = Scene::new();
    let id = scene.ready("write a 1; write b 2");
    scene.await_free(&id);
    scene.worktree(&id).git(["add", "a"]);
    scene.worktree(&id).git(["commit", "-q", "-m", "one"]);
    // It waits for a slot, so it has no worktree yet.
    let busy = scene.exec(["-j", "1", "--agent", "talk", "gate go"]);
    scene.await_state(&busy, "working");
    let fork = scene.studio(["fork", &id, "; write c 3", "--detach"]).ok().to_owned();
    scene.studio(["discard", &id]).exits(0);
    fs::remove_dir_all(scene.repo.path().join(".git/studio/trash")).unwrap();
    let refs = scene.repo.git(["for-each-ref", "--format=%(refname)", "refs/studio"]);
    for name in refs.lines().filter(|name| name.contains(&id)) {
        scene.repo.git(["update-ref", "-d", name]);
    }
    scene.repo.git(["reflog", "expire", "--expire=now", "--all"]);
    scene.repo.git(["gc", "-q", "--prune=now"]);
    fs::write(scene.worktree(&busy).path().join("go"), "").unwrap();
    scene.studio(["resume", "--all"]);
    scene.await_state(&fork, "ready");
    let work = scene.worktree(&fork);
    assert_eq!(
        (work.read("a"), work.read("b"), work.read("c")),
        ("1\n".into(), "2\n".into(), "3\n".into())
    );
    scene.repo.is_sound();
}

#[test]
fn a_fork_killed_at_any_step_leaves_a_session_or_none() {
    let started = || {
        let scene = Scene::new();
        let id = scene.ready("write a 1");
        scene.await_free(&id);
        (scene, id)
    };
    let run = |scene: &Scene, key: &str, value: &str, id: &str| {
        let job = scene.env.command(studio(), scene.repo.path());
        scene.env.run_command(job.args(["fork", id, "; write b 2"]).env(key, value))
    };
    let (scene, id) = started();
    let file = scene.env.home().join("steps");
    run(&scene, "G3_TEST_STEPS", &file.display().to_string(), &id).exits(0);
    let steps = fs::read_to_string(file).unwrap();
    let steps: std::collections::BTreeSet<&str> = steps.lines().collect();
    assert!(steps.contains("run.recorded") && steps.contains("create.files"), "{steps:?}");
    for step in steps {
        let (scene, id) = started();
        run(&scene, "G3_TEST_KILL_AT", step, &id);
        scene.studio(["doctor"]);
        let list = scene.studio(["list", "--json"]).json();
        let sessions = list["sessions"].as_array().unwrap().clone();
        let fork = sessions.iter().map(|it| it["id"].as_str().unwrap()).find(|it| *it != id);
        let Some(fork) = fork else { continue };
        testkit::env::until("the fork to settle", || {
            let state = scene.status(fork)["state"].clone();
            if state == "crashed" {
                scene.studio(["resume", fork]).exits(0);
            }
            (state == "ready").then_some(())
        });
        let work = scene.worktree(fork);
        assert_eq!((work.read("a"), work.read("b")), ("1\n".into(), "2\n".into()), "{step}");
    }
}

#[test]
fn g3_continues_a_copy_of_the_conversation_and_other_agents_get_a_recap() {
    let server = ModelServer::start(vec![
        ScriptedReply::says("the parser is in src"),
        ScriptedReply::says("as I said, in src"),
        ScriptedReply::says("another answer"),
    ]);
    let scene = Scene::new();
    assert!(built("g3").exists());
    scene.env.config(&server.config_toml("anthropic"));
    let id = scene.exec(["where is the parser?"]);
    scene.await_state(&id, "empty");
    scene.await_free(&id);
    let fork = scene.studio(["fork", &id, "say it again", "--detach"]).ok().to_owned();
    scene.await_state(&fork, "empty");
    let request = server.wait_for_requests(2)[1].body.to_string();
    assert!(request.contains("where is the parser?") && request.contains("say it again"));
    assert!(request.contains("the parser is in src") && !request.contains("You have worked"));
    scene.await_free(&fork);
    // The conversation of the origin has nothing of the fork.
    scene.studio(["send", &id, "and the lexer?"]).exits(0);
    let request = server.wait_for_requests(3)[2].body.to_string();
    assert!(request.contains("the parser is in src") && !request.contains("say it again"));

    let scene = Scene::new();
    let id = scene.exec(["--agent", "talk", "say I am done; write a 1"]);
    scene.await_state(&id, "ready");
    let fork = scene.studio(["fork", &id, "--detach"]).ok().to_owned();
    scene.await_state(&fork, "ready");
    let turn = scene.journal(&fork).into_iter().find(|line| line["entry"] == "turn").unwrap();
    let prompt = turn["text"].as_str().unwrap();
    assert!(
        prompt.contains("You have worked on this task") && prompt.contains("I am done"),
        "{prompt}"
    );
    scene.studio(["fork", &id, " "]).exits(2).output_contains("the task is empty");
}

#[test]
fn an_existing_branch_is_continued_and_work_lands_there() {
    let scene = Scene::new();
    scene.repo.git(["branch", "feature"]);
    let id = scene.exec(["--branch", "feature", "write a 1"]);
    let status = scene.await_state(&id, "ready");
    assert_eq!(status["base"]["branch"], "feature");
    scene.await_free(&id);
    scene.studio(["accept", &id, "-m", "Add a"]).exits(0);
    assert_eq!(scene.repo.show("feature", "a"), "1");
    assert!(!scene.repo.path().join("a").exists());

    let refused = |args: &[&str]| {
        let job = scene.env.command(studio(), scene.repo.path()).arg("run").args(args);
        scene.env.run_command(job.arg("write a 1"))
    };
    refused(&["--branch", "nothing"]).exits(5).output_contains("no such branch: `nothing`");
    refused(&["--branch", "main", "--base", "main"]).exits(2);
    let other = scene.exec(["--agent", "talk", "gate go"]);
    scene.await_state(&other, "working");
    let branch = format!("studio/{other}");
    let failure = refused(&["--branch", &branch]);
    failure.exits(3).output_contains(&format!("studio fork {other}"));
    scene.studio(["stop", &other]).exits(0);
}

/// Adds a remote repository with a branch and pull requests of both services.
fn with_remote(scene: &Scene) -> Repo {
    let path = scene.env.home().join("remote.git");
    let bare = path.to_str().expect("a path").to_owned();
    scene.repo.git(["clone", "-q", "--bare", ".", &bare]);
    scene.repo.git(["remote", "add", "origin", &bare]);
    let remote = Repo::at(&path);
    let commit = |message: &str, name: &str, parent: &str| {
        let blob = scene.repo.path().join("blob");
        fs::write(&blob, format!("{name}\n")).expect("the repository is writable");
        scene.repo.git(["checkout", "-q", "--detach", parent]);
        scene.repo.commit_file(name, format!("{name}\n"));
        fs::remove_file(blob).expect("the file is there");
        let head = scene.repo.rev("HEAD");
        scene.repo.git(["push", "-q", "origin", &format!("{head}:{message}")]);
        head
    };
    let topic = commit("refs/heads/topic", "topic", "main");
    commit("refs/pull/7/head", "seven", "main");
    commit("refs/merge-requests/8/head", "eight", &topic);
    scene.repo.git(["checkout", "-q", "main"]);
    scene.repo.git(["fetch", "-q", "origin"]);
    scene.repo.git(["reflog", "expire", "--expire=now", "--all"]);
    scene.repo.git(["gc", "-q", "--prune=now"]);
    remote
}

#[test]
fn a_branch_of_a_remote_is_created_and_a_pull_request_is_fetched() {
    let scene = Scene::new();
    let remote = with_remote(&scene);
    let id = scene.exec(["--branch", "topic", "write a 1"]);
    scene.await_state(&id, "ready");
    assert_eq!(scene.worktree(&id).read("topic"), "topic\n");
    assert_eq!(scene.repo.git(["rev-parse", "--abbrev-ref", "topic@{upstream}"]), "origin/topic");

    let id = scene.exec(["--pr", "7", "write b 1"]);
    let status = scene.await_state(&id, "ready");
    assert_eq!(status["base"]["branch"], "pr-7");
    assert_eq!(scene.worktree(&id).read("seven"), "seven\n");
    assert_eq!(status["files_changed"], 1, "the pull request itself is not the session's work");
    scene.await_free(&id);
    scene.studio(["accept", &id, "-m", "Improve seven"]).exits(0);
    assert_eq!(scene.repo.show("pr-7", "b"), "1");
    // It continues what landed there, and a merge request of GitLab is found too.
    let id = scene.exec(["--pr", "7", "write c 1"]);
    scene.await_state(&id, "ready");
    assert_eq!(scene.worktree(&id).read("b"), "1\n");
    let id = scene.exec(["--pr", "8", "--remote", "origin", "write d 1"]);
    scene.await_state(&id, "ready");
    assert_eq!(scene.worktree(&id).read("eight"), "eight\n");

    let run = |args: &[&str]| {
        let job = scene.env.command(studio(), scene.repo.path()).args(["run", "write x 1"]);
        scene.env.run_command(job.args(args))
    };
    run(&["--pr", "9"]).exits(1).output_contains("cannot fetch pull request 9 from `origin`");
    run(&["--pr", "7", "--remote", "fork"]).exits(5).output_contains("no such remote: `fork`");
    // The pull request was rewritten, while the branch here has a commit of its own.
    remote.git(["update-ref", "refs/pull/7/head", "refs/pull/7/head~1"]);
    scene.repo.git(["checkout", "-q", "--detach", "main"]);
    scene.repo.commit_file("rewritten", "r\n");
    scene.repo.git(["push", "-q", "--force", "origin", "HEAD:refs/pull/7/head"]);
    scene.repo.git(["checkout", "-q", "main"]);
    run(&["--pr", "7"]).exits(3).output_contains("have diverged").output_contains("--branch pr-7");
}

#[test]
fn the_uncommitted_work_of_a_worktree_is_taken_over_and_stays() {
    let scene = Scene::new();
    scene.repo.commit_file("file", "old\n");
    scene.repo.write(".gitignore", "*.log\n");
    let linked = Repo::at(&scene.env.home().join("linked"));
    scene.repo.git(["worktree", "add", "-q", "-b", "side", linked.path().to_str().unwrap()]);
    linked.commit_file("mine", "m\n");
    linked.write(".gitignore", "*.log\n");
    linked.write("file", "changed\n");
    linked.write("staged", "s\n");
    linked.git(["add", "staged"]);
    linked.write("debug.log", "l\n");
    let before =
        (files(&linked), fs::read(scene.repo.path().join(".git/worktrees/linked/index")).unwrap());

    let id = scene.exec(["--worktree", linked.path().to_str().unwrap(), "write a 1"]);
    let status = scene.await_state(&id, "ready");
    assert_eq!(status["base"]["branch"], "side");
    let work = scene.worktree(&id);
    assert_eq!(
        (work.read("file"), work.read("mine"), work.read("a")),
        ("changed\n".into(), "m\n".into(), "1\n".into())
    );
    assert!(!work.path().join("debug.log").exists());
    assert_eq!(work.git(["diff", "--cached", "--name-only"]), "staged");
    let after =
        (files(&linked), fs::read(scene.repo.path().join(".git/worktrees/linked/index")).unwrap());
    assert_eq!(after, before);

    // Landing there names the files that the user still has uncommitted.
    scene.await_free(&id);
    scene.studio(["accept", &id, "-m", "Land"]).exits(3).output_contains("file: changed");
    let run = |path: &str| scene.studio(["run", "--worktree", path, "write a 1"]);
    run(work.path().to_str().unwrap()).exits(2).output_contains(&format!("studio fork {id}"));
    run("/").exits(5);
    let foreign = scene.env.repo_at("foreign");
    run(foreign.path().to_str().unwrap()).exits(2).output_contains("in another repository");
}
