//! `studio sdlc` with the real g3: each stage is its persona, and all of them land in order.

use serde_json::json;
use testkit::model_server::reply::ScriptedReply;
use testkit::model_server::script::Script;

use crate::fixtures::Scene;

const PERSONAS: [&str; 7] =
    ["euler", "breaker", "hopper", "fowler", "carmack", "lamport", "huffman"];

#[test]
fn seven_personas_work_on_the_commits_and_their_work_lands_in_order() {
    let script = Script::by(move |request| {
        let system = request.system();
        let is = |persona: &str| system.contains(&format!("You are {persona}."));
        let persona = PERSONAS.into_iter().find(|it| is(it)).unwrap_or("unknown");
        let file = match persona {
            "euler" => "analysis/deps/graph.json",
            "breaker" => "analysis/breaker/2026-01-02.md",
            "lamport" => "docs/use.md",
            // The others find nothing to do.
            _ => return ScriptedReply::says(format!("{persona} has nothing to do.")),
        };
        match request.assistant_messages() {
            0 => ScriptedReply::call("write_file", json!({"file_path": file, "content": "x\n"})),
            _ => ScriptedReply::says("Done."),
        }
    });
    let scene = Scene::new("anthropic", script.commit_message("Do a part of the pipeline"));
    let head = scene.repo.rev("main");

    let ran = scene.studio(["sdlc", "run", "--json"]);
    ran.exits(0);
    let summary = ran.json_lines().pop().expect("a summary");
    let stages = summary["pipeline"]["stages"].as_array().expect("stages").clone();
    let told = |index: usize| (stages[index]["stage"].clone(), stages[index]["state"].clone());
    for (index, persona) in PERSONAS.iter().enumerate() {
        let works = ["euler", "breaker", "lamport"].contains(persona);
        let state = if works { "ready" } else { "empty" };
        assert_eq!(told(index), (json!(persona), json!(state)), "{ran}");
    }
    let first = scene.questions().remove(0);
    assert!(first.text().contains(&format!("`git log {head}`")), "{}", first.text());

    let accept = summary["pipeline"]["next"][0].as_str().expect("a command").to_owned();
    scene.studio(accept.split(' ').skip(1)).exits(0);
    let files = scene.repo.git(["log", "--format=", "--name-only", "--reverse", "main~3..main"]);
    assert_eq!(files, "analysis/deps/graph.json\nanalysis/breaker/2026-01-02.md\ndocs/use.md");
}
