//! The first steps of a new user: run two agents at once, land one session, discard one, restore
//! it.

use serde_json::json;
use testkit::model_server::reply::ScriptedReply;
use testkit::model_server::script::Script;
use testkit::repo::tree;

use crate::fixtures::Scene;

fn two_tasks() -> Script {
    let write = |name: &str, content: &str| {
        ScriptedReply::call("write_file", json!({"file_path": name, "content": content}))
    };
    Script::by_task([
        (
            "hello".to_owned(),
            vec![write("hello.txt", "hello\n"), ScriptedReply::says("Wrote hello.txt.")],
        ),
        (
            "notes".to_owned(),
            vec![write("NOTES.md", "# Notes\n"), ScriptedReply::says("Wrote NOTES.md.")],
        ),
    ])
    .commit_message("Greet the world\n\nhello.txt holds the greeting.")
}

#[test]
fn two_agents_work_at_once_one_lands_one_is_discarded_and_restored() {
    for wire in ["anthropic", "openai"] {
        let scene = Scene::new(wire, two_tasks());
        let before = scene.repo.rev("main");

        scene.studio(["run", "-j", "2", "say hello", "write notes"]).exits(0);

        assert_eq!(scene.repo.rev("main"), before, "nothing lands by itself");
        assert_eq!(scene.repo.git(["status", "--porcelain"]), "", "nothing shows up");
        let (hello, notes) = (scene.session("hello"), scene.session("notes"));
        for session in [&hello, &notes] {
            assert_eq!(session["state"], "ready", "{session:#}");
            assert_eq!(session["usage"]["output"], 10, "{session:#}");
        }
        let (hello, notes) = (scene.id("hello"), scene.id("notes"));

        let landed = scene.studio(["accept", &hello, "--json"]);
        landed.exits(0);
        assert_eq!(landed.json()["landed"][0]["message_by"], "model", "{landed}");
        assert_eq!(scene.repo.read("hello.txt"), "hello\n");
        assert_eq!(scene.repo.git(["log", "-1", "--format=%s"]), "Greet the world");
        let trailers = scene.repo.git(["log", "-1", "--format=%(trailers)"]);
        assert!(trailers.contains("Task: say hello"), "{trailers}");
        assert!(trailers.contains(&format!("Session: {hello}")), "{trailers}");

        let worktree = scene.repo.worktrees().join(&notes);
        let work = tree(&worktree);
        scene.studio(["discard", &notes]).exits(0);
        assert!(!worktree.exists());
        scene.studio(["undo"]).exits(0);
        assert_eq!(tree(&worktree), work, "byte for byte");
        scene.studio(["accept", &notes]).exits(0);
        assert_eq!(scene.repo.read("NOTES.md"), "# Notes\n");
        assert_eq!(scene.repo.git(["status", "--porcelain"]), "");
        scene.repo.is_sound();
    }
}

#[test]
fn a_landing_can_be_undone_and_the_session_continues() {
    let scene = Scene::new("anthropic", two_tasks());
    scene.studio(["run", "say hello"]).exits(0);
    let id = scene.id("hello");
    let before = scene.repo.rev("main");
    scene.studio(["accept", &id]).exits(0);
    assert_ne!(scene.repo.rev("main"), before);

    scene.studio(["undo"]).exits(0);

    assert_eq!(scene.repo.rev("main"), before);
    assert!(!scene.repo.path().join("hello.txt").exists());
    assert_eq!(scene.session("hello")["state"], "ready");
    scene.studio(["accept", &id]).exits(0);
    assert_eq!(scene.repo.read("hello.txt"), "hello\n");
}

#[test]
fn work_lands_when_the_model_is_down() {
    let scene = Scene::new("anthropic", two_tasks());
    // From the beginning: a message is also written when the session becomes ready.
    let config = scene.model.config_toml("anthropic");
    let config = config.replacen("[providers]\n", "[providers]\ncommit = \"anthropic.down\"\n", 1);
    scene.env.config(&format!(
        "{config}\n[providers.anthropic.down]\nmodel = \"x\"\napi_key = \"k\"\n\
         base_url = \"http://127.0.0.1:9\"\n",
    ));
    scene.studio(["run", "say hello"]).exits(0);
    let id = scene.id("hello");

    let landed = scene.studio(["accept", &id, "--json"]);

    landed.exits(0);
    assert_eq!(landed.json()["landed"][0]["message_by"], "plain", "{landed}");
    let subject = scene.repo.git(["log", "-1", "--format=%s"]);
    assert!(subject.to_lowercase().contains("say hello"), "{subject}");
}

#[test]
fn an_invalid_message_is_replaced_by_a_plain_one() {
    for nonsense in ["", "x".repeat(10_000).as_str()] {
        let scene = Scene::new("openai", two_tasks().commit_message(nonsense));
        scene.studio(["run", "say hello"]).exits(0);
        let landed = scene.studio(["accept", &scene.id("hello"), "--json"]);
        landed.exits(0);
        assert_eq!(landed.json()["landed"][0]["message_by"], "plain", "{landed}");
        let subject = scene.repo.git(["log", "-1", "--format=%s"]);
        assert!(subject.chars().count() <= 72 && !subject.is_empty(), "{subject}");
    }
}

#[test]
fn the_cost_and_the_messages_of_an_agent_are_shown() {
    let scene = Scene::new("anthropic", two_tasks());
    scene.studio(["run", "say hello"]).exits(0);
    let status = scene.studio(["status", &scene.id("hello")]);
    status
        .exits(0)
        .output_contains("Wrote hello.txt.")
        .output_contains("hello.txt")
        .output_contains("studio accept");
}

#[test]
fn a_conflict_is_sent_to_the_agent_and_lands_after_its_resolution() {
    let script = Script::by(|request| match request.assistant_messages() {
        0 => ScriptedReply::call(
            "write_file",
            json!({"file_path": "README.md", "content": "theirs\n"}),
        ),
        2 => {
            let tip = request.last().split("commit ").nth(1).unwrap_or_default()[..40].to_owned();
            let line = format!(
                "git commit -qam mine; git merge {tip}; printf 'both\\n' > README.md; \
                 git commit -qam solved"
            );
            ScriptedReply::call("shell", json!({"command": line}))
        }
        _ => ScriptedReply::says("Done."),
    });
    let scene = Scene::new("anthropic", script.commit_message("Say both"));
    scene.studio(["run", "change the README"]).exits(0);
    scene.repo.commit_file("README.md", "ours\n");
    let id = scene.id("README");
    scene.studio(["accept", &id]).exits(4).output_contains("--resolve");
    assert_eq!(scene.repo.read("README.md"), "ours\n");

    let landed = scene.studio(["accept", &id, "--resolve", "--json"]);

    landed.exits(0);
    assert_eq!(landed.json()["landed"][0]["id"], id.as_str(), "{landed}");
    assert_eq!(scene.repo.read("README.md"), "both\n");
    scene.repo.is_sound();
}

#[test]
fn unsupported_hooks_and_signatures_are_reported() {
    let scene = Scene::new("anthropic", two_tasks());
    let hook = scene.repo.path().join(".git/hooks/pre-commit");
    std::fs::write(&hook, "#!/bin/sh\ntouch $HOME/ran\n").unwrap();
    std::fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    scene.repo.git(["config", "commit.gpgSign", "true"]);
    scene.studio(["run", "say hello"]).exits(0);

    let landed = scene.studio(["accept", &scene.id("hello")]);

    landed.exits(0).output_contains("hooks were not run").output_contains("not signed");
    assert!(!scene.env.home().join("ran").exists());
}
