//! Tests a reply with thousands of calls: all are reported and answered, some run, and the run
//! continues.

use std::collections::HashMap;

use serde_json::json;
use testkit::model_server::reply::ScriptedReply;

use crate::agent_env::{Stage, of_type};
use crate::provider_support::WIRES;

const MADE: usize = 5_000;

#[test]
fn a_reply_with_thousands_of_calls_is_reported_in_full_and_run_in_part() {
    for wire in WIRES {
        let one = |reply: ScriptedReply, n: usize| {
            reply.calls("glob", json!({"pattern": format!("{n}")}))
        };
        let many = (0..MADE).fold(ScriptedReply::new(), one);
        let stage = Stage::new([many, ScriptedReply::says("that was too much")]);
        stage.env.config(&format!("{}context_length = 1000000\n", stage.model.config_toml(wire)));
        let ran = stage.g3(["--json", "go"]);
        ran.ok();
        let events = ran.json_lines();
        assert_eq!(of_type(&events, "tool_start").len(), MADE, "{wire}");
        let mut ends: HashMap<String, u32> = HashMap::new();
        for end in of_type(&events, "tool_end") {
            *ends.entry(end["id"].to_string()).or_default() += 1;
        }
        assert!(ends.len() == MADE && ends.values().all(|count| *count == 1), "{wire}");
        let not_run = |text: &str| text.starts_with("not run: the reply made 5000 calls");
        let ended = of_type(&events, "tool_end");
        let refused = ended.iter().filter(|end| end["text"].as_str().is_some_and(not_run)).count();
        assert_eq!(refused, MADE - 128, "{wire}");
        let asked = stage.asked();
        assert_eq!(asked.len(), 2, "{wire}");
        let results = asked[1].tool_results();
        assert_eq!(results.len(), 1_024, "{wire}");
        assert_eq!(results.iter().filter(|(_, text)| not_run(text)).count(), 1_024 - 128, "{wire}");
    }
}
