//! Permission requests of the real g3 in studio, and errors before any session starts.

use serde_json::json;
use testkit::env::until;
use testkit::model_server::reply::ScriptedReply;
use testkit::model_server::script::Script;

use crate::fixtures::Scene;

/// A model that writes two files outside the worktree in one reply, then reports that it is done.
fn writes_outside(scene: &std::path::Path) -> Script {
    let file = |name: &str| scene.join("outside").join(name).display().to_string();
    let (one, two) = (file("one.txt"), file("two.txt"));
    Script::by(move |request| match request.assistant_messages() {
        0 => ScriptedReply::new()
            .calls("write_file", json!({"file_path": one, "content": "1\n"}))
            .calls("write_file", json!({"file_path": two, "content": "2\n"})),
        _ => ScriptedReply::says("Done."),
    })
}

/// Returns the tool results that the model received.
fn results(scene: &Scene) -> Vec<String> {
    let asked = scene.questions();
    let last = asked.last().expect("the model was asked");
    last.tool_results().into_iter().map(|(_, text)| text).collect()
}

#[test]
fn a_write_that_the_sandbox_denies_is_reported_with_the_line_that_opens_it() {
    let outside = tempfile::tempdir().unwrap();
    std::fs::create_dir(outside.path().join("outside")).unwrap();
    let scene = Scene::new("anthropic", writes_outside(outside.path()));
    scene.studio(["run", "write outside"]).exits(0);
    for said in results(&scene) {
        assert!(said.contains("denied: write /") && said.contains("[sandbox] write"), "{said}");
        assert!(!said.contains("by the user"), "{said}");
    }
    let session = scene.session("write outside");
    assert_eq!(session["state"], "empty");
    let why = session["why"].as_str().unwrap();
    assert!(why.contains("2 requests were denied") && why.contains("[sandbox] write"), "{why}");
}

#[test]
fn an_unattended_request_is_denied_with_a_hint_and_an_attended_one_allowed() {
    let outside = tempfile::tempdir().unwrap();
    let directory = outside.path().join("outside");
    std::fs::create_dir(&directory).unwrap();
    let scene = Scene::new("anthropic", writes_outside(outside.path()));
    let opened = format!("\n[sandbox]\nwrite = [\"{}\"]\n", directory.display());
    scene.env.config(&(scene.model.config_toml("anthropic") + &opened));
    scene.studio(["run", "write outside"]).exits(0);
    let id = scene.id("write outside");
    for said in results(&scene) {
        assert!(
            said.contains(&format!("`studio resume {id} --ask` keeps requests open")),
            "{said}"
        );
        assert!(said.contains("[[gate.rules]]") && !said.contains("by the user"), "{said}");
    }
    assert!(!directory.join("one.txt").exists());

    let ids = scene.studio(["exec", "--ask", "write outside again"]);
    let id = ids.ok().to_owned();
    for n in ["1", "2"] {
        until("a request", || {
            let status = scene.studio(["status", &id]);
            status.out.contains(&format!("request {n}")).then_some(())
        });
        scene.studio(["answer", &id, n, "allow"]).exits(0);
    }
    until("the end", || (scene.session("write outside again")["state"] == "empty").then_some(()));
    assert!(directory.join("one.txt").exists() && directory.join("two.txt").exists());
}

#[test]
fn no_session_starts_without_a_key_or_a_model() {
    let scene = Scene::new("anthropic", Script::new([]));
    scene
        .env
        .config("[providers]\ndefault_provider = \"anthropic.main\"\n[providers.anthropic.main]\n");
    let ran = scene.studio(["run", "one", "two", "three"]);
    ran.exits(2).output_contains("ANTHROPIC_API_KEY");
    assert_eq!(ran.err.matches("error:").count(), 1, "{ran}");
    scene.env.config("");
    let ran = scene.studio(["run", "one", "two", "three"]);
    ran.exits(2).output_contains("is not on this machine");
    assert!(scene.sessions().is_empty());
}

#[test]
fn model_and_profile_flags_are_passed_to_g3() {
    let script = Script::by(|request| match request.assistant_messages() {
        0 => ScriptedReply::new().calls("shell", json!({"command": "echo x > f"})),
        _ => ScriptedReply::says("Done."),
    });
    let scene = Scene::new("anthropic", script);
    let args = ["run", "--model", "another-model", "--profile", "core", "write f"];
    scene.studio(args).exits(0);
    let asked = scene.model.requests();
    let body = String::from_utf8_lossy(&asked[0].raw).into_owned();
    assert!(body.contains("another-model"), "{body}");
    scene
        .studio(["run", "--profile", "nope", "x"])
        .exits(2)
        .output_contains("no such profile: `nope`");
}
