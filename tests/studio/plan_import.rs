//! `studio plan --from`: plans of other tools.

use crate::fixtures::Scene;

const SPEC: &str = "# Feature Specification: Greeting\n\n### User Story 1 - Greet (Priority: P1)\n\n\
                    1. **Given** a name, **When** it is called, **Then** it greets.\n\n\
                    - **FR-001**: It MUST be quick\n";
const TASKS: &str = "# Tasks\n\n- [x] T001 Set up\n- [ ] T002 [US1] write a 1\n";

fn scene() -> Scene {
    let scene = Scene::new();
    scene.repo.write("specs/001-greeting/spec.md", SPEC);
    scene.repo.write("specs/001-greeting/tasks.md", TASKS);
    scene
}

#[test]
fn an_imported_plan_is_approved_and_landed_like_any_other() {
    let scene = scene();
    let asked = scene.studio(["plan", "--from", "."]);
    asked
        .exits(3)
        .output_contains("R1: US1: Greet")
        .output_contains("R2: FR-001: It MUST be quick");
    let ran = scene.studio(["plan", "--from", "specs/001-greeting", "--yes"]);
    ran.exits(0).output_contains("T002").output_contains("remaining-requirements");
    assert_eq!(scene.repo.read("a"), "1\n");
    let sessions = scene.studio(["list", "--all", "--json"]).json();
    assert_eq!(sessions["sessions"].as_array().map(Vec::len), Some(2), "T001 was done: {sessions}");
    let tasks = scene.repo.read("g3-plan/tasks.toml");
    assert!(tasks.contains("id = \"T001\"") && tasks.contains("done = true"), "{tasks}");
    assert_eq!(scene.repo.read("specs/001-greeting/tasks.md"), TASKS);
}

#[test]
fn errors_of_an_import_name_the_line_and_write_nothing() {
    let scene = scene();
    scene.repo.write("specs/001-greeting/tasks.md", "- [ ] T001 a\n- [y] T002 b\n");
    let ran = scene.studio(["plan", "--from", "specs/001-greeting"]);
    ran.exits(2).output_contains("tasks.md:2: invalid checkbox `[y]` of task T002");
    assert!(!scene.repo.path().join("g3-plan").exists());
    scene.repo.write("specs/002-other/spec.md", SPEC);
    scene.repo.write("specs/002-other/tasks.md", TASKS);
    let several = scene.studio(["plan", "--from", "."]);
    several.exits(2).output_contains("has several plans").output_contains("specs/002-other");
    scene.studio(["plan", "--from", "g3-nothing"]).exits(5).output_contains("cannot read");
}

#[test]
fn the_users_own_tasks_are_not_replaced() {
    let scene = scene();
    scene.repo.write("g3-plan/tasks.toml", "[[task]]\ntext = 'mine'\n");
    let ran = scene.studio(["plan", "--from", "specs/001-greeting"]);
    ran.exits(3).output_contains("g3-plan/tasks.toml exists");
    assert_eq!(scene.repo.read("g3-plan/tasks.toml"), "[[task]]\ntext = 'mine'\n");
}

#[test]
fn lists_of_task_master_are_imported_by_tag() {
    let scene = Scene::new();
    let list = |text: &str| {
        format!("{{\"tasks\": [{{\"id\": 1, \"title\": \"{text}\", \"dependencies\": []}}]}}")
    };
    let text = format!("{{\"one\": {}, \"two\": {}}}", list("write a 1"), list("write b 1"));
    scene.repo.write(".taskmaster/tasks/tasks.json", &text);
    scene
        .studio(["plan", "--from", "."])
        .exits(2)
        .output_contains("several tags, name one: one, two");
    scene.studio(["plan", "--from", ".", "--tag", "two", "--yes"]).exits(0);
    assert_eq!(scene.repo.read("b"), "1\n");
}
