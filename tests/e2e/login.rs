//! A login that expires while agents in studio use it: it is renewed in the sandbox, for all of
//! them.

use serde_json::{Value, json};
use testkit::env::{CommandRun, TestEnv, built, until};
use testkit::model_server::gate::ReplyGate;
use testkit::model_server::reply::ScriptedReply;
use testkit::model_server::script::Script;
use testkit::repo::Repo;
use testkit::workspace::TestDir;

const STUDIO: &str = env!("CARGO_BIN_EXE_studio");

/// A user who is logged in to a workspace, and a repository.
struct LoginScene {
    env: TestEnv,
    repo: Repo,
    work: TestDir,
}

impl LoginScene {
    /// Creates a login whose tokens live for this many seconds; each task is one shell line.
    fn signed_in<const N: usize>(life: u64, tasks: [(&str, &str); N]) -> LoginScene {
        let replies = |line: &str| {
            vec![
                ScriptedReply::call("shell", json!({"command": line})),
                ScriptedReply::says("Done."),
            ]
        };
        let tasks = tasks.map(|(task, line)| (task.to_owned(), replies(line)));
        let work = TestDir::with(life, Script::by_task(tasks).commit_message("Do the work"));
        let env = TestEnv::new().with("G3_TEST_RETRY_MS", 1);
        env.config(&work.config_toml());
        work.sign_in(&env, &built("g3"));
        let repo = env.repo();
        LoginScene { env, repo, work }
    }

    fn studio<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> CommandRun {
        self.env.run(STUDIO, self.repo.path(), args)
    }

    fn sessions(&self) -> Vec<Value> {
        self.studio(["list", "--all", "--json"]).json()["sessions"]
            .as_array()
            .expect("a list")
            .clone()
    }

    /// Makes a request outside the sandbox, for which the login must be valid.
    fn ask_outside(&self) {
        let job = self.env.command(built("g3"), self.repo.path()).args(["complete"]);
        let ran = self.env.run_command(job.input("a commit message, please"));
        assert_eq!(ran.ok(), "Do the work");
    }
}

#[test]
fn a_login_is_renewed_in_the_sandbox_for_all_processes() {
    let reach = "echo work > a; cat ~/.g3/oauth/*; ls -A ~/.g3/oauth; echo x >> ~/.g3/oauth/x; \
                 cat ~/.config/g3/config.toml; cat /proc/$PPID/environ > b && echo own-memory; \
                 sleep 60 & kill $! && echo tidy";
    let desk = LoginScene::signed_in(30, [("reach for it", reach)]);

    desk.studio(["run", "reach for it"]).exits(0);

    // The message of the commit is asked for as well, after the session became ready.
    assert!(desk.work.renewals() >= 2, "such a token is renewed before each question");
    assert_eq!(desk.sessions()[0]["state"], "ready");
    let results: Vec<_> =
        desk.work.questions().iter().flat_map(|question| question.tool_results()).collect();
    let (_, seen) = results.last().expect("the shell's result");
    assert!(seen.contains("tidy") && seen.contains("denied"), "{seen}");
    for secret in ["access-", "refresh-", ".json", "use_oauth", "own-memory"] {
        assert!(!seen.contains(secret), "a command in the box saw the login: {seen}");
    }
    assert!(!desk.env.home().join(".g3/oauth/x").exists(), "it was written to");
    let renewed = desk.work.renewals();
    desk.ask_outside();
    assert!(desk.work.renewals() > renewed);
    let id = desk.sessions()[0]["id"].as_str().expect("an id").to_owned();
    desk.studio(["accept", &id]).exits(0);
    assert_eq!(desk.repo.git(["log", "-1", "--format=%s"]), "Do the work");
}

#[test]
fn sessions_that_renew_at_once_share_one_renewal() {
    let tasks = ["one", "two", "three"];
    let desk = LoginScene::signed_in(30, tasks.map(|task| (task, "echo work > a")));
    desk.work.tokens_live(3600);

    desk.studio(["run", "-j", "3", "one", "two", "three"]).exits(0);

    assert_eq!(desk.work.renewals(), 1);
    assert!(desk.sessions().iter().all(|session| session["state"] == "ready"));
    desk.ask_outside();
    assert_eq!(desk.work.renewals(), 1);
}

#[test]
fn a_session_that_is_stopped_during_a_renewal_keeps_the_login() {
    let desk = LoginScene::signed_in(30, [("work", "echo work > a")]);
    let gate = ReplyGate::new();
    desk.work.hold_renewals(&gate);
    desk.work.tokens_live(3600);
    let id = desk.studio(["exec", "work"]).ok().to_owned();
    gate.wait_until_reached(1);

    let stop = desk.env.start(STUDIO, desk.repo.path(), ["stop", &id]);
    let journal = desk.repo.path().join(".git/studio/sessions").join(&id).join("journal.jsonl");
    until("the agent is told to leave", || {
        let text = std::fs::read_to_string(&journal).ok()?;
        text.contains("\"entry\":\"exit\"").then_some(())
    });
    // The service has revoked the old token; its response is still on the way.
    gate.open_all();

    until("the new login is kept", || {
        let kept = std::fs::read_dir(desk.env.home().join(".g3/oauth")).ok()?;
        let mut logins = kept.filter_map(|entry| std::fs::read_to_string(entry.ok()?.path()).ok());
        logins.any(|login| desk.work.good_tokens().iter().all(|t| login.contains(t))).then_some(())
    });
    drop(stop);
    assert_eq!(desk.work.renewals(), 1);
    desk.ask_outside();
    assert_eq!(desk.work.renewals(), 1);
}
