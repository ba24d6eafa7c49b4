//! When studio passes a connection to the local model to g3, and how it starts the model host.

use testkit::env::{built, until};

use crate::fixtures::{Scene, studio};

/// Creates a scene whose g3 is the fake agent, with two local models: only the environment selects
/// one.
fn scene() -> Scene {
    let scene = Scene::new();
    let model = scene.env.home().join("model.gguf");
    std::fs::write(&model, "no model").expect("the home is writable");
    let fake = built("fake-agent");
    scene.env.config(&format!(
        "[studio.agents.g3]\nprotocol = \"command\"\ncommand = [\"{}\", \"{{prompt}}\"]\n\
         [providers.embedded.a]\nmodel_path = \"{model}\"\n\
         [providers.embedded.b]\nmodel_path = \"{model}\"\n",
        fake.display(),
        model = model.display(),
    ));
    scene
}

#[test]
fn a_session_gets_the_local_model_only_if_its_g3_uses_it() {
    for (variables, handed_down) in [
        (&[][..], true),
        (&[("ANTHROPIC_API_KEY", "")], true),
        (&[("OPENAI_API_KEY", " ")], true),
        (&[("GEMINI_API_KEY", "key")], false),
        (&[("DATABRICKS_HOST", "https://example.com")], true),
        (&[("ANTHROPIC_API_KEY", "key")], false),
        (&[("ANTHROPIC_API_KEY", ""), ("OPENAI_API_KEY", "key")], false),
    ] {
        let mut scene = scene();
        for (name, value) in variables {
            scene.env.set(name, value);
        }
        let id = scene.ready("sh echo \"<$G3_MODEL_HOST_FD>\" > fd");
        let seen = scene.worktree(&id).read("fd");
        assert_eq!(seen.trim() != "<>", handed_down, "{variables:?}: {seen}");
    }
}

#[test]
fn a_started_host_gets_the_idle_time_of_the_environment() {
    let mut scene = scene();
    scene.env.set("G3_MODEL_IDLE", 7);
    let bin = scene.env.home().join("bin");
    std::fs::create_dir(&bin).unwrap();
    std::fs::copy(studio(), bin.join("studio")).unwrap();
    let host = bin.join("g3-model");
    std::fs::write(&host, "#!/bin/sh\necho \"$@\" > \"$HOME/host-args\"\n").unwrap();
    std::fs::set_permissions(&host, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let ask = "sh echo '{\"id\": 1, \"ask\": \"status\"}' >&$G3_MODEL_HOST_FD";
    let task = format!("write a 1; {ask}; gate go");
    let id = scene.env.run(bin.join("studio"), scene.repo.path(), ["exec", &task]).ok().to_owned();
    let told = until("the host to be started", || {
        std::fs::read_to_string(scene.env.home().join("host-args")).ok().filter(|t| !t.is_empty())
    });
    assert!(told.contains("--idle 7"), "{told}");
    scene.worktree(&id).write("go", "");
    scene.await_state(&id, "ready");
}
