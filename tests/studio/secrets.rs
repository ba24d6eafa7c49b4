//! Secrets: what is about to land, and what is shown of the configuration.

use crate::fixtures::Scene;

#[test]
fn secrets_land_with_a_note_where_the_user_configured_or_marked_it() {
    let scene = Scene::new();
    let token = format!("ghp_{}", "a1B2c3D4e5F6g7H8i9J0".repeat(2));
    let random = "q7Zk2LmX9vTb4RwY8nHd3JcP6sGf1QaE";
    let with_work = |config: &str, path: &str, line: &str| {
        scene.configure(config);
        let id = scene.ready(&format!("write {path}.txt 1"));
        scene.await_free(&id);
        scene.worktree(&id).write(path, format!("{line}\n"));
        scene.studio(["accept", &id, "-m", "x"])
    };
    let line = format!("token = {token}");
    // The control: the same work is refused by default, and a random password is found as well.
    with_work("", "a.conf", &line).exits(3).output_lacks(&token);
    with_work("", "b.conf", &format!("DB_PASSWORD={random}"))
        .exits(3)
        .output_contains("b.conf:1: looks like a random value of a secret name")
        .output_lacks(random);
    with_work("secrets = \"warn\"", "c.conf", &line)
        .exits(0)
        .output_contains("c.conf:1: looks like a GitHub token")
        .output_lacks(&token);
    with_work("secrets_allowed = [\"fixtures/**\"]", "fixtures/d.conf", &line)
        .exits(0)
        .output_contains("fixtures/d.conf:1: looks like a GitHub token (marked as allowed)");
    with_work("", "e.conf", &format!("{line} # studio:allow-secret"))
        .exits(0)
        .output_contains("e.conf:1: looks like a GitHub token (marked as allowed)");
    let note = scene.repo.git(["notes", "--ref=studio", "show", "main"]);
    assert!(note.contains("\"marked\": true") && !note.contains(&token), "{note}");
}

#[test]
fn the_configuration_is_shown_without_the_secrets_of_agents() {
    let scene = Scene::new();
    let secret = "q7Zk2LmX9vTb4RwY";
    scene.configure(&format!(
        "[studio.agents.own]\ncommand = [\"true\"]\n\
         env = [\"MY_API_KEY={secret}\", \"DB=postgres://ada:{secret}@db/x\", \"COLOR=red\", \"PATH\"]\n"
    ));
    for args in [["config", "show", "--origin"], ["config", "show", "--json"]] {
        let shown = scene.studio(args);
        shown.exits(0).output_lacks(secret);
        for part in ["MY_API_KEY=•••", "DB=•••", "COLOR=red", "PATH"] {
            shown.output_contains(part);
        }
    }
}
