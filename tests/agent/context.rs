//! Tests of dehydrated turns: what the model is sent, what it gets back, and what persists.

use std::sync::Mutex;

use serde_json::json;
use testkit::model_server::reply::ScriptedReply;
use testkit::model_server::script::Script;

use crate::agent_env::{G3, Stage, journal, of_type};

/// A model that reads a large file, says so, and then answers request by request.
fn reads_then(then: Vec<ScriptedReply>) -> Script {
    let mut replies = vec![
        ScriptedReply::call("read_file", json!({"file_path": "big.txt"})),
        ScriptedReply::says("read it"),
    ];
    replies.extend(then);
    Script::new(replies)
}

fn stage_with_a_large_file(script: Script) -> Stage {
    let stage = Stage::new(script);
    let line = |n: usize| format!("line {n} of the large file\n");
    stage.repo.write("big.txt", (1..400).map(line).collect::<String>());
    stage
}

/// Returns the fragment id in a placeholder sent to the model.
fn fragment_id(text: &str) -> String {
    let after = text.split("fragment ").nth(1).expect("a stub");
    after.chars().take_while(char::is_ascii_hexdigit).collect()
}

#[test]
fn a_finished_turn_is_dehydrated_and_the_model_can_rehydrate_it() {
    let script = {
        let step = Mutex::new(0);
        Script::by(move |request| {
            let mut step = step.lock().unwrap();
            *step += 1;
            match *step {
                1 => ScriptedReply::call("read_file", json!({"file_path": "big.txt"})),
                3 => {
                    let id = fragment_id(&request.text());
                    ScriptedReply::call("rehydrate", json!({"fragment_id": id}))
                }
                2 => ScriptedReply::says("read it"),
                _ => ScriptedReply::says("now I know"),
            }
        })
    };
    let stage = stage_with_a_large_file(script);
    stage.g3_with_input(["--acd"], "look at big.txt\nwhat was in line 7?\n/stats\n").ok();
    let asked = stage.asked();
    assert!(asked.iter().all(|request| request.tool_names().contains(&"rehydrate".to_owned())));
    let (second, last) = (asked[2].text(), asked[3].text());
    assert!(!second.contains("line 7 of"), "the result is still there:\n{second}");
    for kept in ["look at big.txt", "1 read_file", "read it", "what was in line 7?"] {
        assert!(second.contains(kept), "`{kept}` is lost:\n{second}");
    }
    assert!(last.contains("line 7 of the large file") && last.contains("line 399 of"), "{last}");
}

#[test]
fn without_the_flag_nothing_is_dehydrated_and_the_tool_is_not_offered() {
    let stage = stage_with_a_large_file(reads_then(vec![ScriptedReply::says("line 7")]));
    stage.g3_with_input([], "look at big.txt\nwhat was in line 7?\n").ok();
    assert!(stage.asked()[2].text().contains("line 7 of"));
    assert!(!stage.asked()[0].tool_names().contains(&"rehydrate".to_owned()));
    assert!(!stage.session_dir().join("fragments").exists());
}

#[test]
fn a_short_turn_is_not_dehydrated() {
    let stage = Stage::new([ScriptedReply::says("hello"), ScriptedReply::says("still here")]);
    stage.g3_with_input(["--acd"], "hi\nagain\n").ok();
    assert!(stage.asked()[1].text().contains("hello"));
    assert!(!stage.session_dir().join("fragments").exists());
}

#[test]
fn the_user_lists_fragments_and_restores_one_permanently() {
    let stage = stage_with_a_large_file(reads_then(vec![
        ScriptedReply::says("one"),
        ScriptedReply::says("two"),
    ]));
    let first = stage.g3_with_input(["--acd"], "look at big.txt\n/fragments\n");
    first.ok();
    first.output_contains("look at big.txt").output_contains("1 tool call (1 read_file)");
    let entries = journal(&stage.session_dir());
    let id = entries.iter().find_map(|entry| entry["fragment"].as_str()).unwrap().to_owned();
    let again = |lines: &str| stage.g3_with_input([], &format!("/resume look\n{lines}"));
    let ran = again(&format!("/rehydrate {id}\nnow what?\n/rehydrate {id}\n/rehydrate ../x\n"));
    ran.output_contains("no longer fits").output_contains("invalid fragment id");
    let text = stage.asked()[2].text();
    assert!(text.contains("line 7 of") && text.contains("read it"), "{text}");
    assert!(!text.contains("set aside as fragment"), "{text}");
    // The restored turn is still there after a restart.
    again("and now?\n").ok();
    assert!(stage.asked()[3].text().contains("line 7 of"));
}

#[test]
fn dehydrated_turns_survive_a_kill_at_every_step() {
    let steps = ["g3.session.aside", "g3.journal.dehydrated", "g3.journal.ended"];
    for step in steps {
        let stage = stage_with_a_large_file(reads_then(vec![ScriptedReply::says("the end")]));
        let job = stage.env.command(G3, stage.repo.path()).args(["--acd", "look at big.txt"]);
        stage.env.run_command(job.env("G3_TEST_KILL_AT", step)).exits(137);
        stage.g3(["--resume", "--acd", "what was in line 7?"]).ok();
        let text = stage.asked().last().unwrap().text();
        let whole = text.contains("line 7 of");
        assert_ne!(whole, text.contains("set aside as fragment"), "killed at {step}:\n{text}");
        assert!(text.contains("look at big.txt") && text.contains("read it"), "{step}:\n{text}");
    }
}

#[test]
fn an_event_reports_dehydrated_turns() {
    let stage = stage_with_a_large_file(reads_then(Vec::new()));
    let events = stage.g3(["--acd", "--json", "look at big.txt"]).json_lines();
    let thinned = of_type(&events, "thinned");
    assert_eq!(thinned.len(), 1, "{events:?}");
    assert_eq!(thinned[0]["messages"], 4);
    let before = thinned[0]["before"].as_u64().unwrap();
    assert!(before >= thinned[0]["after"].as_u64().unwrap());
}
