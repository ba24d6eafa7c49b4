//! Tests of `g3 plan refine` and `g3 plan split`, the steps of a plan for `studio plan`.

use planner::task::from_toml;
use serde_json::{Value, json};
use testkit::model_server::reply::ScriptedReply;
use testkit::model_server::script::Script;

use crate::agent_env::Stage;

const REQUIREMENTS: &str = "# Doors\n\n- R1: a front door\n- R2: a back door\n- R3: a bell\n";

fn row(id: &str, requirements: &[&str], after: &[&str]) -> Value {
    json!({"id": id, "text": format!("build {id}"), "requirements": requirements, "after": after,
           "checks": [format!("test -f {id}")], "paths": [format!("{id}/**")]})
}

fn tasks(rows: &[Value]) -> ScriptedReply {
    ScriptedReply::call("tasks", json!({"tasks": rows}))
}

#[test]
fn a_request_on_stdin_becomes_requirements_on_stdout_without_side_effects() {
    let stage = Stage::new(Script::new([
        ScriptedReply::call("write_file", json!({"file_path": "x", "content": "x"})),
        ScriptedReply::call("requirements", json!({"text": "- R1: {{CURRENT REQUIREMENTS}}"})),
        ScriptedReply::call("requirements", json!({"text": "There is a door."})),
        ScriptedReply::call("requirements", json!({"text": "- R1: a door with a bell"})),
        ScriptedReply::call("requirements", json!({"text": "- R1: a door\n- a bell"})),
        ScriptedReply::says("That is all."),
    ]));
    let before = stage.repo.git(["status", "--porcelain"]);
    let ran = stage.g3_with_input(["plan", "refine"], "I want:\n\n- a door\n- a bell\n");
    ran.exits(0);
    assert_eq!(ran.out, "- R1: a door\n- a bell\n");
    assert_eq!(stage.repo.git(["status", "--porcelain"]), before);
    assert!(stage.asked()[0].text().contains("- a door\n- a bell"));
    let told = stage.asked()[4].text();
    for words in ["omit the marks", "`text` is not a list", "has 2 items and this has 1"] {
        assert!(told.contains(words), "no `{words}` in {told}");
    }
}

#[test]
fn a_model_without_a_result_is_asked_again_without_tools() {
    let stage = Stage::new(Script::by(|request| match request.tool_names().len() {
        1 if request.assistant_messages() == 0 => {
            ScriptedReply::call("requirements", json!({"text": "- R1: a door"}))
        }
        1 => ScriptedReply::says("That is all."),
        _ => ScriptedReply::call("read_file", json!({"file_path": "README.md"})),
    }));
    let ran = stage.g3_with_input(["plan", "refine"], "I want a door.\n");
    ran.exits(0);
    assert_eq!(ran.out, "- R1: a door\n");
}

#[test]
fn requirements_become_tasks_that_studio_reads() {
    let stage = Stage::new(Script::new([
        ScriptedReply::call("read_file", json!({"file_path": "README.md"})),
        tasks(&[row("front", &["R1"], &[]), row("rest", &["R2", "R3"], &["front"])]),
        ScriptedReply::says("Done."),
    ]));
    let ran = stage.g3_with_input(["plan", "split"], REQUIREMENTS);
    ran.exits(0);
    let tasks = from_toml(&ran.out).unwrap();
    assert_eq!((tasks[0].id.as_str(), tasks[1].after.as_slice()), ("front", &["front".into()][..]));
    assert_eq!(tasks[1].requirements, ["R2", "R3"]);
    assert_eq!((tasks[0].checks.len(), tasks[0].paths.len()), (1, 1));
}

#[test]
fn a_model_is_told_all_errors_in_its_tasks() {
    let stage = Stage::new(Script::new([
        tasks(&[
            row("a", &["R1"], &["b"]),
            row("b", &["R9"], &["a", "c"]),
            row("d", &[], &[]),
            row("a", &["R2"], &[]),
        ]),
        ScriptedReply::call("tasks", json!({"tasks": [{"id": "a"}]})),
        tasks(&[row("all", &["R1", "R2", "R3"], &[])]),
        ScriptedReply::says("Done."),
    ]));
    let ran = stage.g3_with_input(["plan", "split"], REQUIREMENTS);
    ran.exits(0);
    let (first, second) = (stage.asked()[1].text(), stage.asked()[2].text());
    for words in [
        "duplicate task id",
        "depends on `c`",
        "circular dependency",
        "names unknown requirement R9",
        "task `d` covers no requirement",
        "no task covers R3",
    ] {
        assert!(first.contains(words), "no `{words}` in {first}");
    }
    assert!(second.contains("missing field `text`"), "{second}");
    assert_eq!(from_toml(&ran.out).unwrap().len(), 1);
}

#[test]
fn only_requirements_without_a_task_are_split() {
    let stage = Stage::new(Script::new([
        tasks(&[row("front", &["R3"], &[])]),
        tasks(&[row("bell", &["R3"], &["front"])]),
        ScriptedReply::says("Done."),
    ]));
    let there = "[[task]]\nid = 'front'\ntext = 'x'\nrequirements = ['R1', 'R2']\n";
    stage.repo.write("tasks.toml", there);
    let ran = stage.g3_with_input(["plan", "split", "--tasks", "tasks.toml"], REQUIREMENTS);
    ran.exits(0);
    assert!(stage.asked()[0].text().contains("what none of them serves: R3."));
    assert!(stage.asked()[1].text().contains("duplicate task id `front`"));
    let new = from_toml(&ran.out.replace("after = [\"front\"]\n", "")).unwrap();
    assert_eq!((new.len(), new[0].id.as_str()), (1, "bell"));
}

#[test]
fn unusable_input_is_reported_and_nothing_is_printed() {
    let stage = Stage::new(Script::by(|_| ScriptedReply::says("I would rather not.")));
    let refused = stage.g3_with_input(["plan", "refine"], "a door");
    refused.exits(1).output_contains("the model returned no requirements");
    assert_eq!(refused.out, "");
    let asked = stage.asked().len();
    let empty = stage.g3_with_input(["plan", "refine"], " \n");
    empty.exits(2).output_contains("stdin is empty: expected a feature request");
    let none = stage.g3_with_input(["plan", "split"], "");
    none.exits(2).output_contains("the requirements are empty");
    stage.repo.write("bad.toml", "[[task]]\nid = 'a'\n");
    let bad = stage.g3_with_input(["plan", "split", "--tasks", "bad.toml"], REQUIREMENTS);
    bad.exits(2).output_contains("bad.toml:1: missing field `text`");
    assert_eq!(stage.asked().len(), asked, "no model is asked");
}

fn verdict(id: &str, status: &str, evidence: &str) -> Value {
    json!({"id": id, "status": status, "evidence": evidence})
}

fn findings(verdicts: &[Value], tasks: &[Value]) -> ScriptedReply {
    ScriptedReply::call("findings", json!({"requirements": verdicts, "tasks": tasks}))
}

#[test]
fn requirements_are_compared_with_the_code_and_what_is_missing_becomes_tasks() {
    let stage = Stage::new(Script::new([
        ScriptedReply::call("read_file", json!({"file_path": "README.md"})),
        findings(
            &[verdict("R1", "met", ""), verdict("R2", "unmet", " "), verdict("R3", "met", "x:1")],
            &[row("front", &["R3"], &[]), row("other", &["R9"], &[])],
        ),
        findings(
            &[
                verdict("R1", "met", "a.rs:3"),
                verdict("R2", "unmet", "the back door is missing"),
                verdict("R3", "unknown", "the bell cannot be heard by reading"),
            ],
            &[row("back", &["R2"], &["front"])],
        ),
        findings(
            &[
                verdict("R1", "unknown", "only a visitor can tell"),
                verdict("R2", "unmet", "the back door is missing"),
                verdict("R3", "unmet", "the bell is missing"),
            ],
            &[row("back", &["R2", "R3"], &["front"])],
        ),
        ScriptedReply::says("That is all."),
    ]));
    let there = "[[task]]\nid = 'front'\ntext = 'x'\nrequirements = ['R1', 'R2', 'R3']\n";
    stage.repo.write("tasks.toml", there);
    let args = ["plan", "converge", "--json", "--tasks", "tasks.toml", "--unmet", "R3=make fails"];
    let ran = stage.g3_with_input(args, REQUIREMENTS);
    ran.exits(0);
    let asked = stage.asked();
    assert!(asked[0].text().contains("measured to be unmet:\n\n- R3: make fails"), "{ran}");
    let errors = asked[2].text();
    for words in [
        "duplicate task id `front`",
        "names unknown requirement R9",
        "`R1` was judged met without evidence",
        "R2 was judged unmet without saying what is missing",
        "R3 was judged met, but it is unmet: make fails",
    ] {
        assert!(errors.contains(words), "no `{words}` in {errors}");
    }
    let error = asked[3].text();
    assert!(error.contains("R3 was judged unknown, but it is unmet: make fails"), "{error}");
    let report: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(report["requirements"][1]["status"], "unmet");
    let new = report["text"].as_str().unwrap().replace("after = [\"front\"]\n", "");
    assert_eq!(from_toml(&new).unwrap()[0].id, "back");
}

#[test]
fn an_unmet_requirement_needs_a_task_and_a_met_one_has_none() {
    let met = || [verdict("R1", "met", "a"), verdict("R2", "met", "b"), verdict("R3", "met", "c")];
    let stage = Stage::new(Script::new([
        findings(
            &[
                verdict("R1", "unmet", "no door"),
                verdict("R2", "met", "b"),
                verdict("R3", "met", "c"),
            ],
            &[row("back", &["R2"], &[])],
        ),
        findings(&met(), &[]),
        ScriptedReply::says("That is all."),
    ]));
    let ran = stage.g3_with_input(["plan", "converge"], REQUIREMENTS);
    ran.exits(0);
    let errors = stage.asked()[1].text();
    assert!(errors.contains("no new task covers R1, which is unmet"), "{errors}");
    assert!(errors.contains("a new task covers R2, which was judged met"), "{errors}");
    assert_eq!(ran.out, "# R1 met: a\n# R2 met: b\n# R3 met: c\n");
    let unknown = stage.g3_with_input(["plan", "converge", "--unmet", "R7=x"], REQUIREMENTS);
    unknown.exits(2).output_contains("no such requirement: `R7`");
}
