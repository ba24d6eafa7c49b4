//! `studio run --requirements`: parsing, errors, and the output before the start.

use serde_json::json;

use crate::fixtures::{Scene, studio};

const FILE: &str = "# Two files\n- make one.txt\n- R7: make two.txt\n";

fn run(scene: &Scene, more: &[&str]) -> testkit::env::CommandRun {
    let args = ["run", "--agent", "g3", "--requirements", "r.md"];
    scene.env.run(studio(), scene.repo.path(), args.iter().chain(more))
}

#[test]
fn a_dry_run_shows_agents_and_requirements() {
    let scene = Scene::new();
    scene.configure_g3();
    scene.repo.write("r.md", FILE);
    let ran = run(&scene, &["--dry-run"]);
    ran.exits(0)
        .output_contains("would start: Two files (agent g3")
        .output_contains("player and coach for R1, R7");
    let line = run(&scene, &["--dry-run", "--json", "one", "another"]).json_lines();
    let tasks: Vec<_> = line.iter().map(|line| line["task"].clone()).collect();
    assert_eq!(tasks, ["one", "another"]);
    for line in &line {
        assert_eq!(line["requirements"], json!(["R1", "R7"]));
        assert_eq!(line["contract"], "# Two files\n- R1: make one.txt\n- R7: make two.txt");
    }
}

#[test]
fn errors_in_the_file_name_their_line_and_start_no_session() {
    let scene = Scene::new();
    let missing = run(&scene, &[]);
    missing.exits(2).output_contains("cannot read the requirements in r.md");
    for (bytes, why) in [
        (&b" \n"[..], "it is empty"),
        (b"- R1: a\n\n- R2: b\n- R1: c\n", "r.md:4: the id R1 is used twice"),
        (b"- R1: a\n- \xff\n", "r.md:2: it is not UTF-8"),
        (b"{{CURRENT REQUIREMENTS}}\n\n{{ORIGINAL USER REQUIREMENTS -- THIS SECTION WILL BE IGNORED BY THE IMPLEMENTATION}}\na wish\n", "nothing below {{CURRENT REQUIREMENTS}}"),
    ] {
        std::fs::write(scene.repo.path().join("r.md"), bytes).expect("the repository is writable");
        run(&scene, &[]).exits(2).output_contains(why).output_contains("try:");
    }
    assert_eq!(scene.studio(["list", "--json"]).json()["sessions"], json!([]));
}

#[test]
fn agents_without_player_and_coach_are_refused() {
    let scene = Scene::new();
    scene.repo.write("r.md", FILE);
    scene.repo.write("t.md", "- a task\n");
    run(&scene, &["--tasks", "t.md"]).exits(2).output_contains("name their own requirements");
    run(&scene, &["--persona", "scout"]).exits(2).output_contains("personas of their own");
    let fake = scene.studio(["run", "--requirements", "r.md"]);
    fake.exits(2)
        .output_contains("agent `fake` cannot be used with --requirements")
        .output_contains("modes of g3");
    scene.configure("[studio.agents.g3]\nprotocol = \"command\"\ncommand = [\"g3\", \"{prompt}\"]");
    run(&scene, &[]).exits(2).output_contains("protocol `command`");
    assert_eq!(scene.studio(["list", "--json"]).json()["sessions"], json!([]));
}
