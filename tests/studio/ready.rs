//! The isolation of checks: they see only the session's files and nothing of the main checkout,
//! however far they search parent directories. With real node, cargo and pytest.

use std::fs;
use std::path::Path;

use testkit::env::{CommandRun, until};

use crate::fixtures::Scene;

/// Starts a session with a check and waits for its end; returns its id and state.
fn checked(scene: &Scene, check: &str, task: &str) -> (String, String) {
    let id = scene.exec(["--check", check, task]);
    let state = until("the session to settle", || {
        let state = scene.status(&id)["state"].as_str().unwrap_or_default().to_owned();
        ["ready", "failed", "empty"].contains(&state.as_str()).then_some(state)
    });
    scene.await_free(&id);
    (id, state)
}

/// Lands a session without a check after a check was configured.
fn landed_under(scene: &Scene, check: &str, task: &str) -> CommandRun {
    let id = scene.ready(task);
    scene.await_free(&id);
    scene.configure(&format!("checks = [{check:?}]"));
    scene.studio(["accept", &id, "-m", "Land it"])
}

/// Creates a package that needs version 1.0.0, which only the main checkout has installed.
fn node_package(scene: &Scene) {
    scene.repo.commit_file(".gitignore", "node_modules/\n");
    scene.repo.commit_file(
        "check.js",
        "const has = require('dep/package.json').version;\n\
         const wants = require('./package.json').dependencies.dep;\n\
         if (has !== wants) process.exit(3);\n",
    );
    scene.repo.commit_file("package.json", "{\"dependencies\": {\"dep\": \"1.0.0\"}}\n");
    scene.repo.commit_file(
        "install.sh",
        "mkdir -p node_modules/dep\ncp dep.json node_modules/dep/package.json\n",
    );
    scene.repo.commit_file("dep.json", "{\"version\": \"1.0.0\"}\n");
    scene.repo.write("node_modules/dep/package.json", "{\"version\": \"1.0.0\"}\n");
    let here = scene.env.run("node", scene.repo.path(), ["check.js"]);
    here.exits(0);
}

#[test]
fn a_dependency_of_the_main_checkout_only_is_not_found() {
    let mut scene = Scene::new();
    node_package(&scene);
    let modules = scene.repo.path().join("node_modules");
    scene.env.set("NODE_PATH", modules.display());
    let (_, state) = checked(&scene, "node check.js", "write new 1");
    assert_eq!(state, "failed", "the session has no node_modules");
    let ran = landed_under(&scene, "node check.js", "write other 1");
    ran.exits(1)
        .output_contains("check `node check.js` fails on the merged tree")
        .output_contains("Cannot find module");
    // Both checks find what the setup installs.
    scene.configure("setup = \"sh install.sh\"");
    let (id, state) = checked(&scene, "node check.js", "write new 1");
    assert_eq!(state, "ready", "{}", scene.studio(["logs", &id]));
    scene.studio(["accept", &id, "-m", "Land it"]).exits(0);
}

#[test]
fn a_configuration_of_the_main_checkout_does_not_affect_cargo() {
    let mut scene = Scene::new();
    let toolchain = Path::new(env!("CARGO")).parent().expect("cargo lies in a directory");
    let path = std::env::var("PATH").unwrap_or_default();
    scene.env.set("PATH", format!("{}:{path}", toolchain.display()));
    scene.repo.commit_file(
        "Cargo.toml",
        "[package]\nname = \"p\"\nversion = \"0.1.0\"\nedition = \"2021\"\n",
    );
    scene.repo.commit_file("src/lib.rs", "pub const NEEDED: &str = env!(\"NEEDED\");\n");
    scene.repo.commit_file(".gitignore", "target/\n.cargo/\nCargo.lock\n");
    scene.repo.write(".cargo/config.toml", "[env]\nNEEDED = \"1\"\n");
    let check = "cargo check -q --offline";
    scene.env.run("cargo", scene.repo.path(), ["check", "-q", "--offline"]).exits(0);
    let (_, state) = checked(&scene, check, "write new 1");
    assert_eq!(state, "failed", "the variable is set in the main checkout only");
    landed_under(&scene, check, "write other 1").exits(1).output_contains("NEEDED");

    scene.configure("");
    scene.repo.write(".cargo/config.toml", "[build]\nrustc-wrapper = \"/bin/false\"\n");
    scene.env.run("cargo", scene.repo.path(), ["check", "-q", "--offline"]).exits(101);
    let (id, state) = checked(&scene, check, "write src/lib.rs pub fn needed() {}");
    assert_eq!(state, "ready", "{}", scene.studio(["logs", &id]));
    scene.studio(["accept", &id, "-m", "Land it"]).exits(0);
}

#[test]
fn a_pytest_ini_of_the_main_checkout_does_not_affect_a_session() {
    let scene = Scene::new();
    let python = "/usr/bin/python3";
    let has = scene.env.run(python, scene.repo.path(), ["-m", "pytest", "--version"]);
    assert_eq!(has.code, 0, "there is no pytest for {python}: ./setup --tests installs it");
    scene.repo.commit_file(".gitignore", "pytest.ini\n__pycache__/\n.pytest_cache/\n");
    scene.repo.commit_file("test_it.py", "def test_it():\n    assert True\n");
    scene.repo.write("pytest.ini", "[pytest]\naddopts = --no-such-option\n");
    let check = "/usr/bin/python3 -m pytest -q";
    scene.env.run(python, scene.repo.path(), ["-m", "pytest", "-q"]).exits(4);
    let (id, state) = checked(&scene, check, "write new 1");
    assert_eq!(state, "ready", "{}", scene.studio(["logs", &id]));
    scene.studio(["accept", &id, "-m", "Land it"]).exits(0);
}

#[test]
fn the_main_checkout_is_unreadable_unless_the_user_opens_it() {
    let mut scene = Scene::new();
    let main = scene.repo.path().canonicalize().expect("it is there");
    scene.repo.write("tools/hello", "#!/bin/sh\necho hello\n");
    fs::set_permissions(
        main.join("tools/hello"),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .expect("it is ours");
    let path = std::env::var("PATH").unwrap_or_default();
    scene.env.set("PATH", format!("{}:{path}", main.join("tools").display()));
    scene.repo.git(["worktree", "add", "-q", "-b", "linked", "../linked"]);
    let linked = main.with_file_name("linked");
    let other = scene.ready("write theirs 1");
    let other = scene.worktree(&other);
    let all = [main.join("README.md"), linked.join("README.md"), other.path().join("theirs")];
    for file in &all {
        let (_, state) = checked(&scene, &format!("cat '{}'", file.display()), "write new 1");
        assert_eq!(state, "failed", "{} was read", file.display());
    }
    let (_, state) = checked(&scene, "! command -v hello", "write new 1");
    assert_eq!(state, "ready", "a program of the main checkout is not in the PATH");

    // The agent's own program may be in the main checkout.
    let fake = main.join("bin/agent");
    fs::create_dir(main.join("bin")).expect("it is ours");
    fs::copy(testkit::env::built("fake-agent"), &fake).expect("it is ours");
    scene.env.config(&format!(
        "[studio]\nagent = \"fake\"\n[sandbox]\nread = [{:?}]\n\
         [studio.agents.fake]\nprotocol = \"command\"\ncommand = [{:?}, \"{{prompt}}\"]\n",
        main.join("tools").display().to_string(),
        fake.display().to_string(),
    ));
    let (id, state) = checked(&scene, "hello", "write new 1");
    assert_eq!(state, "ready", "{}", scene.studio(["logs", &id]));
    let check = format!("cat '{}'", all[0].display());
    assert_eq!(checked(&scene, &check, "write new 1").1, "failed");
}

#[test]
fn files_left_by_one_dry_run_do_not_affect_the_checks_of_another_landing() {
    let scene = Scene::new();
    scene.repo.commit_file(".gitignore", "node_modules/\n.venv/\n");
    scene.repo.commit_file("gate.sh", "test ! -e bad && test ! -d .venv\n");
    scene.repo.commit_file("check.sh", "exec sh gate.sh\n");
    let canary = scene.env.home().join("profile");
    fs::write(&canary, "theirs\n").expect("the home is writable");
    // Its own check passes, and leaves files to attack the next one.
    let attack = format!(
        "mkdir -p .venv node_modules/dep && echo 'exit 0' > gate.sh && \
         git update-index --skip-worktree gate.sh && d=$(git rev-parse --git-dir) && \
         {{ test ! -e $d/refs/heads/studio-check || ln -sf '{0}' $d/refs/heads/studio-check; }} && \
         mv $d/index '{1}' 2>/dev/null; true",
        canary.display(),
        scene.env.home().join("index").display(),
    );
    scene.configure("checks = [\"sh check.sh\"]");
    scene.repo.write("attack.sh", attack);
    scene.repo.git(["add", "attack.sh"]);
    scene.repo.git(["commit", "-q", "-m", "attack"]);
    let evil = scene.exec(["sh printf 'sh gate.sh && sh attack.sh' > check.sh"]);
    scene.await_state(&evil, "ready");
    scene.await_free(&evil);
    scene.studio(["accept", "--dry-run", &evil]).exits(0);
    scene.studio(["discard", &evil, "--yes"]).exits(0);

    scene.configure("");
    let red = scene.ready("write bad 1");
    scene.await_free(&red);
    scene.configure("checks = [\"sh check.sh\"]");
    scene
        .studio(["accept", &red, "-m", "Bad"])
        .exits(1)
        .output_contains("fails on the merged tree");
    let green = scene.ready("write good 1");
    scene.await_free(&green);
    scene.studio(["accept", &green, "-m", "Good"]).exits(0);
    assert_eq!(fs::read_to_string(&canary).expect("it is there"), "theirs\n");
}
