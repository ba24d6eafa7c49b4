//! `studio stats`: sessions, landings, tokens and cost, by agent, by model and over time.

use serde_json::{Value, json};

use crate::fixtures::Scene;

/// A script of an agent with events that reports a model and a usage.
fn metered(file: &str, model: &str) -> String {
    let start = format!(
        r#"event {{"seq":1,"time":"t","type":"start","session":"s","provider":"p","model":"{model}","cwd":"/"}}"#
    );
    let usage = r#"event {"seq":2,"time":"t","type":"usage","input":700,"output":40,"cache_read":5,"cache_write":0,"cost_usd":0.5}"#;
    let turn = r#"event {"seq":3,"time":"t","type":"turn","n":1}"#;
    format!("write {file} 1; {start}; {usage}; {turn}")
}

fn ready(scene: &Scene, agent: &str, script: &str) -> String {
    let id = scene.exec(["--agent", agent, script]);
    scene.await_state(&id, "ready");
    scene.await_free(&id);
    id
}

fn names(groups: &Value) -> Vec<(&str, u64)> {
    let groups = groups.as_array().into_iter().flatten();
    let name = |group: &Value, key: &str| group[key].is_string().then(|| key.to_owned());
    groups
        .map(|group| {
            let key = name(group, "name").unwrap_or_else(|| "date".to_owned());
            (group[&key].as_str().unwrap_or_default(), group["sessions"].as_u64().unwrap_or(0))
        })
        .collect()
}

#[test]
fn sessions_are_counted_by_agent_by_model_and_by_day() {
    let mut scene = Scene::new();
    scene.studio(["stats"]).exits(0).output_contains("no sessions to count");
    scene.env.set("G3_TEST_NOW", "2026-01-02T10:00:00Z");
    let landed = ready(&scene, "talk", &metered("a", "large"));
    let dropped = ready(&scene, "talk", &metered("b", "small"));
    scene.env.set("G3_TEST_NOW", "2026-01-09T10:00:00Z");
    let open = ready(&scene, "fake", "write c 1");
    scene.studio(["accept", &landed, "-m", "Add a"]).exits(0);
    scene.studio(["discard", &dropped]).exits(0);

    let stats = scene.studio(["stats", "--json"]).exits(0).json();
    assert_eq!(stats["schema"], 1);
    let totals = &stats["totals"];
    assert_eq!(
        [&totals["sessions"], &totals["landed"], &totals["discarded"], &totals["open"]],
        [3, 1, 1, 1],
        "{stats}"
    );
    assert_eq!([&totals["insertions"], &totals["deletions"]], [1, 0], "of what landed: {stats}");
    assert_eq!(totals["usage"]["input"], 1400);
    assert_eq!(totals["usage"]["cost_usd"], 1.0);
    assert_eq!(totals["replies"], 2);
    assert_eq!(names(&stats["agents"]), [("talk", 2), ("fake", 1)]);
    assert_eq!(names(&stats["models"]), [("large", 1), ("small", 1), ("unknown", 1)]);
    assert_eq!(names(&stats["days"]), [("2026-01-02", 2), ("2026-01-09", 1)]);
    assert_eq!(stats["agents"][1]["usage"], json!(null), "a command reports no usage");

    let page = scene.studio(["stats"]);
    page.exits(0)
        .output_contains("3 sessions, 1 landed, 1 discarded, 1 open, +1 -0 lines landed")
        .output_contains("1490 tokens, $1.00")
        .output_contains("1       █░")
        .output_contains("2026-01-05");
    let recent = scene.studio(["stats", "--days", "3", "--json"]).exits(0).json();
    assert_eq!(names(&recent["agents"]), [("fake", 1)]);
    assert_eq!(recent["totals"]["landed"], 0, "{open} is open");
    scene.studio(["stats", "--days", "-1"]).exits(2);
}
