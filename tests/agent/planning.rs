//! Tests of `g3 --planning`: from a request to a commit, with the real binary, real git and a
//! scripted model.

use serde_json::{Value, json};
use testkit::env::CommandRun;
use testkit::model_server::reply::ScriptedReply;
use testkit::model_server::request::ReceivedRequest;
use testkit::model_server::script::Script;

use crate::agent_env::{Stage, of_type};
use crate::autonomous::{is_coach, verdict};

const MESSAGE: &str =
    "{{COMMIT_SUMMARY}}\nAdd both doors\n{{COMMIT_DESCRIPTION}}\nThey were missing.\n";

/// Creates a stage whose user is known to git.
pub fn known(script: Script) -> Stage {
    let stage = Stage::new(script);
    stage.repo.git(["config", "user.name", "Grace"]);
    stage.repo.git(["config", "user.email", "grace@example.org"]);
    stage
}

pub fn refines(request: &ReceivedRequest) -> bool {
    request.tool_names().contains(&"requirements".to_owned())
}

/// A model for every phase: it refines into two requirements, creates `one.txt` and `two.txt` in a
/// round each, judges by the existing files, and writes the summary and the message.
pub fn model() -> Script {
    Script::by(|request| {
        let all = request.text();
        if refines(request) {
            return match request.assistant_messages() {
                0 => ScriptedReply::call("grep", json!({"pattern": "door"})),
                1 => ScriptedReply::call(
                    "requirements",
                    json!({"text": "- R1: make one.txt\n- make two.txt\n"}),
                ),
                _ => ScriptedReply::says("That is all."),
            };
        }
        if request.asks_for_commit_message() {
            return ScriptedReply::says(MESSAGE);
        }
        if all.contains("Sum up these requirements") {
            return ScriptedReply::says("make two files");
        }
        if is_coach(request) {
            let both = all.contains("A two.txt") || all.contains("code/two.txt");
            return if both {
                verdict(true, &["met", "met"])
            } else {
                verdict(false, &["met", "unmet"])
            };
        }
        let writes = |name: &str| {
            ScriptedReply::call(
                "write_file",
                json!({"file_path": name, "content": format!("{name}\n")}),
            )
        };
        match request.assistant_messages() {
            0 => writes("one.txt"),
            2 => writes("two.txt"),
            _ => ScriptedReply::says("It is there."),
        }
    })
}

pub fn wish(stage: &Stage) {
    stage.repo.write("g3-plan/new_requirements.md", "I want two doors.\n");
}

pub fn history(stage: &Stage) -> Vec<String> {
    let text = stage.repo.read("g3-plan/planner_history.txt");
    text.lines()
        .filter_map(|line| line.split_once(" - "))
        .map(|(_, what)| what.to_owned())
        .collect()
}

fn plan_files(stage: &Stage) -> Vec<String> {
    let entries = std::fs::read_dir(stage.repo.path().join("g3-plan")).unwrap();
    let mut names: Vec<String> =
        entries.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

pub fn committed(stage: &Stage) -> Vec<String> {
    let names = stage.repo.git(["show", "--format=", "--name-only", "--no-renames", "-z", "HEAD"]);
    names.split('\0').filter(|it| !it.trim().is_empty()).map(|it| it.trim().to_owned()).collect()
}

/// Returns the content of a file in a commit, or in the index (an empty revision).
pub fn has(stage: &Stage, revision: &str, name: &str) -> String {
    stage.repo.show(revision, name) + "\n"
}

pub fn yes(stage: &Stage) -> CommandRun {
    stage.g3(["--planning", "--yes"])
}

#[test]
fn a_plan_directory_that_is_a_link_is_rejected() {
    let stage = known(model());
    let elsewhere = stage.env.home().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, stage.repo.path().join("g3-plan")).unwrap();
    yes(&stage).exits(2).output_contains("g3-plan is a symbolic link");
    assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 0, "nothing is written there");
}

#[test]
fn a_request_becomes_a_commit() {
    let stage = known(model());
    wish(&stage);
    let head = stage.repo.rev("HEAD");
    let ran = stage.g3_with_input(["--planning"], "y\ny\nyes\n\n\nq\n");
    ran.ok();
    ran.output_contains("R1: make one.txt")
        .output_contains("R2: make two.txt")
        .output_contains("Add both doors")
        .output_contains("committed as");
    let names = plan_files(&stage);
    assert_eq!(names.len(), 3, "{names:?}");
    assert!(
        names[0].starts_with("completed_requirements_2")
            && names[1].starts_with("completed_todo_2")
    );
    let archived = stage.repo.read(&format!("g3-plan/{}", names[0]));
    assert!(
        archived
            .starts_with("{{CURRENT REQUIREMENTS}}\n\n- R1: make one.txt\n- R2: make two.txt\n"),
        "{archived}"
    );
    assert!(archived.ends_with("IMPLEMENTATION}}\n\nI want two doors.\n"), "{archived}");
    assert_eq!(
        stage.repo.read(&format!("g3-plan/{}", names[1])),
        "- [x] R1: make one.txt\n- [x] R2: make two.txt\n"
    );
    assert_eq!(
        stage.repo.git(["log", "-1", "--format=%B"]).trim(),
        "Add both doors\n\nThey were missing."
    );
    assert_eq!(stage.repo.rev("HEAD~1"), head);
    assert_eq!(stage.repo.git(["status", "--porcelain"]), "");
    let mut files = committed(&stage);
    files.retain(|name| !name.starts_with("g3-plan/"));
    assert_eq!(files, ["one.txt", "two.txt"]);
    let words: Vec<String> = history(&stage);
    let begins = [
        "REFINING",
        "APPROVED",
        &format!("GIT HEAD ({head})"),
        "START IMPLEMENTING",
        "COMPLETED REQUIREMENTS (completed_requirements_",
        "GIT COMMIT (Add both doors)",
    ];
    assert_eq!(words.len(), begins.len(), "{words:?}");
    for (line, begin) in words.iter().zip(begins) {
        assert!(line.starts_with(begin), "{line}");
    }
    let told = stage.repo.show("HEAD", "g3-plan/planner_history.txt");
    assert!(told.contains("GIT COMMIT (Add both doors)"), "the commit holds its own line");
    stage.repo.is_sound();
}

#[test]
fn refinement_reads_the_code_and_changes_nothing() {
    let stage = known(Script::by(|request| {
        assert!(refines(request));
        match request.assistant_messages() {
            0 => ScriptedReply::call("write_file", json!({"file_path": "x", "content": "x"})),
            1 => ScriptedReply::call(
                "requirements",
                json!({"text": "{{CURRENT REQUIREMENTS}}\n- a"}),
            ),
            2 => ScriptedReply::call("requirements", json!({"text": "R1: a\nR1: b"})),
            _ => ScriptedReply::status(400),
        }
    }));
    stage.repo.commit_file("src/lib.rs", "pub fn open_door() {}\n");
    wish(&stage);
    let ran = yes(&stage);
    ran.exits(1);
    let asked = stage.asked();
    let tools = asked[0].tool_names();
    assert_eq!(tools, ["read_file", "read_image", "grep", "glob", "code_search", "requirements"]);
    let told = asked[0].text();
    for words in ["I want two doors.", "src/lib.rs: pub fn open_door()", "Rust: 1 files"] {
        assert!(told.contains(words), "no `{words}` in {told}");
    }
    assert!(asked[1].tool_results()[0].1.contains("write_file"), "{:?}", asked[1].tool_results());
    assert!(asked[2].tool_results().last().unwrap().1.contains("omit the marks"));
    assert!(asked[3].tool_results().last().unwrap().1.contains("R1"));
    assert!(!stage.repo.path().join("x").exists());
    assert!(stage.repo.read("g3-plan/new_requirements.md").ends_with("I want two doors.\n"));
}

#[test]
fn only_plans_shown_to_the_user_are_approved() {
    let stage = known(model());
    stage
        .repo
        .write("g3-plan/current_requirements.md", "{{CURRENT REQUIREMENTS}}\n\n- R1: by hand\n");
    let ran = stage.g3_with_input(["--planning"], "y\ny\ny\nno\nq\n");
    ran.ok();
    ran.output_contains("R1: by hand")
        .output_contains("implement g3-plan/current_requirements.md as it is?");
    assert!(stage.asked().is_empty(), "no model worked on it");
    let bad = stage.g3_with_input(["--planning"], "y\nmaybe\n");
    bad.output_contains("answer yes, no or quit");
}

#[test]
fn an_unapproved_plan_is_not_a_success_and_can_be_resumed() {
    let stage = known(model());
    wish(&stage);
    let ran = stage.g3(["--planning", "--yes", "--max-turns", "1"]);
    ran.exits(3);
    assert_eq!(
        stage.repo.read("g3-plan/todo.g3.md"),
        "- [x] R1: make one.txt\n- [ ] R2: make two.txt\n"
    );
    assert_eq!(stage.repo.git(["log", "--oneline"]).lines().count(), 1);
    // The user continues: the same conversation, and the completed rounds are kept.
    let ran = stage.g3_with_input(["--planning", "--max-turns", "2"], "y\ny\ny\nno\ny\ny\nq\n");
    ran.ok();
    ran.output_contains("round 2 of 3").output_contains("committed as");
    assert_eq!(stage.asked().iter().filter(|it| refines(it)).count(), 2);
    assert!(history(&stage).contains(&"ATTEMPTING RECOVERY".to_owned()));
}

#[test]
fn json_output_reports_the_stages_and_asks_nothing() {
    let stage = known(model());
    stage.g3(["--planning", "--json"]).exits(2).output_contains("--yes");
    let none = stage.g3(["--planning", "--yes", "--json"]);
    none.exits(2);
    wish(&stage);
    let ran = stage.g3(["--planning", "--yes", "--json"]);
    ran.ok();
    let events = ran.json_lines();
    let plans = of_type(&events, "plan");
    let states: Vec<&str> = plans
        .iter()
        .filter(|it| it["mode"] == "planning")
        .filter_map(|it| it["state"].as_str())
        .collect();
    assert_eq!(
        states,
        ["refine", "approve", "implement", "complete", "archive", "commit", "committed"]
    );
    let commit: &Value = &plans.last().unwrap()["commit"];
    assert_eq!(commit, &json!(stage.repo.rev("HEAD")));
}

#[test]
fn a_plan_killed_at_any_step_is_completed_by_the_next_run() {
    for step in [
        "g3.planning.refined",
        "g3.planning.approved",
        "g3.planning.started",
        "g3.rounds.played",
        "g3.rounds.judged",
        "g3.planning.played",
        "g3.planning.completed",
        "g3.planning.archived",
        "g3.planning.staged",
        "g3.planning.committed",
    ] {
        let mut stage = known(model());
        wish(&stage);
        let head = stage.repo.rev("HEAD");
        stage.env.set("G3_TEST_KILL_AT", step);
        let killed = yes(&stage);
        assert_ne!(killed.code, 0, "{step}");
        stage.env.set("G3_TEST_KILL_AT", "no step");
        yes(&stage).ok();
        let count = stage.repo.git(["rev-list", "--count", &format!("{head}..HEAD")]);
        let twice = step == "g3.planning.committed";
        assert!(count.trim() == "1" || twice && count.trim() == "2", "{step}: {count} commits");
        assert_eq!(
            (has(&stage, "HEAD", "one.txt"), has(&stage, "HEAD", "two.txt")),
            ("one.txt\n".into(), "two.txt\n".into()),
            "{step}"
        );
        let words = history(&stage);
        assert_eq!(
            words.iter().filter(|it| it.starts_with("COMPLETED")).count(),
            1,
            "{step}: {words:?}"
        );
        assert_eq!(plan_files(&stage).len(), 3, "{step}");
        stage.repo.is_sound();
    }
}
