//! Tests of skills: the list in the prompt, loading on demand, checks, and skills of a repository.

use std::fs;
use std::path::Path;

use serde_json::json;
use testkit::model_server::reply::ScriptedReply;

use crate::agent_env::{G3, Stage, of_type};
use crate::tools_support::Bench;

fn skill(dir: &Path, front: &str) {
    fs::create_dir_all(dir).unwrap();
    fs::write(dir.join("SKILL.md"), format!("---\n{front}\n---\n# Steps\nPaint it red.\n"))
        .unwrap();
}

#[test]
fn a_model_sees_the_skills_and_loads_one_on_demand() {
    let stage = Stage::new([
        ScriptedReply::call("skill", json!({"name": "paint"})),
        ScriptedReply::call("skill", json!({"name": "paint", "file": "colours/red.md"})),
        ScriptedReply::says("done"),
        ScriptedReply::says("again"),
    ]);
    let dir = stage.repo.path().join("skills/paint");
    skill(&dir, "name: paint\ndescription: Paints <things> & more");
    fs::create_dir(dir.join("colours")).unwrap();
    fs::write(dir.join("colours/red.md"), "red is #f00").unwrap();
    stage.g3(["paint the fence"]).ok();
    stage.g3(["--resume", "--", "and again"]).ok();
    let asked = stage.asked();
    let system = asked[0].system();
    assert!(system.contains("<name>paint</name>"), "{system}");
    assert!(system.contains("<description>Paints &lt;things&gt; &amp; more</description>"));
    assert!(system.contains("<name>code-review</name>"), "what is compiled in is listed as well");
    assert!(!system.contains("Paint it red"), "the text itself is loaded on demand");
    assert!(asked[0].tool_names().contains(&"skill".to_owned()));
    let results = asked[2].tool_results();
    assert!(results[0].1.contains("Paint it red.") && results[0].1.contains("- colours/red.md"));
    assert!(results[0].1.contains(&format!("Base directory: {}", dir.display())));
    assert_eq!(results[1].1, "red is #f00");
    assert!(asked.iter().all(|request| request.system() == system), "byte-stable");
}

#[test]
fn a_built_in_skill_can_be_read_at_its_shown_location() {
    let bench = Bench::new("g3");
    let read = |path: &str| bench.call("read_file", json!({ "file_path": path }));
    read("<embedded:research>/SKILL.md").says("# Research").works();
    read("<embedded:research>/g3-research").says("#!/bin/sh").works();
    read("<embedded:research>/nothing").fails("not_found");
    let file = json!({"name": "research", "file": "g3-research"});
    bench.call("skill", file).says("#!/bin/sh").works();
    let file = json!({"name": "research", "file": "../x"});
    bench.call("skill", file).fails("failed");
}

#[test]
fn a_profile_without_the_tool_does_not_list_skills() {
    let stage = Stage::new([ScriptedReply::says("done")]);
    stage.g3(["--profile", "egirl", "x"]).ok();
    assert!(!stage.asked()[0].system().contains("available_skills"));
}

#[test]
fn skills_are_not_offered_when_disabled() {
    let stage = Stage::new([ScriptedReply::says("done")]);
    stage
        .env
        .config(&format!("{}\n[skills]\nenabled = false\n", stage.model.config_toml("anthropic")));
    stage.g3(["x"]).ok();
    let asked = &stage.asked()[0];
    assert!(!asked.system().contains("available_skills"));
    assert!(!asked.tool_names().contains(&"skill".to_owned()));
}

#[test]
fn a_small_model_gets_skills_only_if_enabled_for_it() {
    let asked = |more: &str| {
        let stage = Stage::new([ScriptedReply::says("done"), ScriptedReply::says("done")]);
        let small = "context_length = 7000\n";
        stage.env.config(&format!("{}{small}{more}", stage.model.config_toml("anthropic")));
        stage.g3(["What is here?"]).ok();
        stage.asked().remove(0)
    };
    let plain = asked("");
    assert!(!plain.system().contains("available_skills"));
    assert!(!plain.tool_names().contains(&"skill".to_owned()));
    let told = asked("\n[skills]\nsmall_models = true\n");
    assert!(told.system().contains("available_skills"));
    assert!(told.tool_names().contains(&"skill".to_owned()));
}

#[test]
fn an_invalid_skill_is_left_out_with_a_notice_naming_file_and_rule() {
    let stage = Stage::new([ScriptedReply::says("done")]);
    skill(&stage.repo.path().join(".g3/skills/paint"), "name: Paint\ndescription: x");
    let ran = stage.g3(["--json", "x"]);
    ran.ok();
    let events = ran.json_lines();
    let notices = of_type(&events, "notice");
    let text = notices[0]["text"].as_str().unwrap();
    assert!(text.contains(".g3/skills/paint/SKILL.md") && text.contains("name-form"), "{text}");
    assert!(!stage.asked()[0].system().contains("Paint"));
}

#[test]
fn other_tools_are_denied_while_a_skill_restricts_them() {
    let stage = Stage::new([
        ScriptedReply::call("skill", json!({"name": "look"})),
        ScriptedReply::call("shell", json!({"command": "touch made"})),
        ScriptedReply::says("refused"),
        ScriptedReply::call("shell", json!({"command": "touch made"})),
        ScriptedReply::says("made"),
    ]);
    let front = "name: look\ndescription: Looks.\nallowed-tools: Read Grep";
    skill(&stage.repo.path().join("skills/look"), front);
    stage.g3(["look around"]).ok();
    assert!(!stage.repo.path().join("made").exists());
    let results = stage.asked()[2].tool_results();
    assert!(results[1].1.contains("refused: while the skill look is active"), "{results:?}");
    stage.g3(["--resume", "--", "now make it"]).ok();
    assert!(stage.repo.path().join("made").exists());
}

#[test]
fn list_and_check_show_skills_and_faults() {
    let bench = Bench::new("g3");
    let g3 = |args: &[&str]| bench.env.run(G3, &bench.dir, args);
    skill(&bench.dir.join("skills/good"), "name: good\ndescription: Is good.\nlicense: MIT");
    g3(&["skills", "check"]).exits(0).output_contains("1 skill checked");
    skill(&bench.dir.join("skills/bad"), "description: x\nname: other\nversion: 1");
    skill(&bench.env.home().join(".g3/skills/good"), "name: good\ndescription: Is the user's.");
    let listed = g3(&["skills", "list", "--json"]).json();
    let names: Vec<&str> =
        listed.as_array().unwrap().iter().map(|s| s["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["code-review", "git-worktrees", "good", "requirements", "research"]);
    assert_eq!(
        (&listed[2]["description"], &listed[2]["license"]),
        (&json!("Is the user's."), &serde_json::Value::Null)
    );
    let told = g3(&["skills", "list"]);
    told.output_contains("the skill `good` of this repository")
        .output_contains("is not used: yours has the same name");
    told.output_contains("Is the user's.").output_contains("bad/SKILL.md is left out");
    let checked = g3(&["skills", "check", "skills"]);
    checked.exits(1).output_contains("skills/bad/SKILL.md:3 name-directory:");
    checked.output_contains("skills/bad/SKILL.md:4 key-unknown:");
    let faults = g3(&["skills", "check", "skills/bad", "--json"]).json();
    assert_eq!((&faults[0]["line"], &faults[0]["rule"]), (&json!(3), &json!("name-directory")));
    g3(&["skills", "check", "skills/good"]).exits(0);
    skill(&bench.dir.join("odd"), "name: odd\ndescription: Use: it");
    let said = g3(&["skills", "check", "odd"]);
    said.exits(1).output_contains("odd/SKILL.md:3 yaml:").output_lacks("line 2");
    g3(&["skills", "check", "nowhere"]).exits(2).output_contains("error:");
    fs::create_dir(bench.dir.join("empty")).unwrap();
    g3(&["skills", "check", "empty"]).exits(2).output_contains("SKILL.md");
}
