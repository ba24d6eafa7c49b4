//! Tests of escalation: a local model asks for help, and a stronger one answers for the rest of the
//! turn.

use serde_json::{Value, json};
use testkit::env::{CommandRun, TestEnv};
use testkit::model_server::ModelServer;
use testkit::model_server::reply::ScriptedReply;
use testkit::model_server::script::Script;
use testkit::repo::Repo;

use crate::agent_env::{G3, of_type};

/// A small model on one server, a strong one on another.
struct Pair {
    env: TestEnv,
    repo: Repo,
    small: ModelServer,
    strong: ModelServer,
}

impl Pair {
    fn new(small: impl Into<Script>, strong: impl Into<Script>, more: &str) -> Pair {
        let env = TestEnv::new();
        let (small, strong) = (ModelServer::start(small), ModelServer::start(strong));
        let pair = Pair { repo: env.repo(), env, small, strong };
        pair.configure(&format!("escalation = \"anthropic.strong\"\n{more}"));
        pair
    }

    /// `more` starts with keys of `[providers]`.
    fn configure(&self, more: &str) {
        self.env.config(&format!(
            "[providers]\ndefault_provider = \"openai.small\"\n{more}\n\
             [providers.openai.small]\nmodel = \"tiny-1.5b\"\nbase_url = \"{}\"\n\n\
             [providers.anthropic.strong]\nmodel = \"claude-strong\"\nbase_url = \"{}\"\n\
             api_key = \"k\"\n",
            self.small.openai_url(),
            self.strong.url()
        ));
    }

    fn g3<const N: usize>(&self, args: [&str; N]) -> CommandRun {
        self.env.run(G3, self.repo.path(), args)
    }
}

fn asks_for_help() -> ScriptedReply {
    ScriptedReply::says("Hm.").calls("suggest_escalation", json!({"reason": "I do not know Rust"}))
}

fn text(events: &[Value]) -> String {
    of_type(events, "text").iter().filter_map(|event| event["text"].as_str()).collect()
}

fn notices(events: &[Value]) -> String {
    let all = of_type(events, "notice").into_iter();
    all.filter_map(|event| event["text"].as_str()).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_strong_model_answers_the_rest_of_the_turn_and_the_small_one_the_next_turn() {
    let write = json!({"file_path": "a.txt", "content": "done"});
    let strong = [ScriptedReply::call("write_file", write), ScriptedReply::says("I wrote it.")];
    let pair = Pair::new([asks_for_help(), ScriptedReply::says("You are welcome.")], strong, "");
    let ran = pair.g3(["--json", "What is in a.txt?"]);
    ran.ok();
    let events = ran.json_lines();
    assert_eq!(text(&events), "Hm.I wrote it.");
    assert!(notices(&events).contains("tiny-1.5b asks for help (I do not know Rust)"));
    assert!(notices(&events).contains("claude-strong on anthropic.strong continues this turn"));
    assert_eq!(std::fs::read_to_string(pair.repo.path().join("a.txt")).unwrap().trim(), "done");

    // With the conversation so far, and with the prompt of a strong model.
    let asked = pair.strong.requests();
    assert!(asked[0].first_user().contains("What is in a.txt?"));
    assert_eq!(
        asked[0].tool_results()[0].1,
        "a stronger model should continue: I do not know Rust"
    );
    assert!(pair.small.requests()[0].tool_names().contains(&"suggest_escalation".to_owned()));
    assert!(!asked[0].tool_names().contains(&"suggest_escalation".to_owned()));
    assert!(asked[0].tool_names().len() > pair.small.requests()[0].tool_names().len());
    assert!(asked[0].system().contains("You are g3, a coding agent"));

    pair.g3(["--json", "--resume", "--max-turns", "1", "thanks"]);
    assert_eq!((pair.small.requests().len(), pair.strong.requests().len()), (2, 2));
}

#[test]
fn without_a_stronger_model_the_tool_is_not_offered() {
    let pair = Pair::new([asks_for_help(), ScriptedReply::says("Well.")], [], "");
    pair.configure("");
    let ran = pair.g3(["--json", "--max-turns", "2", "What is Rust?"]);
    let asked = pair.small.requests();
    assert!(!asked[0].tool_names().contains(&"suggest_escalation".to_owned()));
    assert!(asked[1].last().contains("no other model is configured"), "{}", asked[1].last());
    assert_eq!(of_type(&ran.json_lines(), "tool_end")[0]["ok"], false);
    assert!(pair.strong.requests().is_empty());
}

#[test]
fn a_strong_model_is_not_offered_escalation() {
    let pair = Pair::new([], ScriptedReply::says("hi"), "");
    pair.g3(["--json", "--provider", "anthropic.strong", "go"]).ok();
    let names = pair.strong.requests()[0].tool_names();
    assert!(!names.contains(&"suggest_escalation".to_owned()), "{names:?}");
}

#[test]
fn a_tool_may_trigger_escalation() {
    let edit = json!({"path": "README.md", "old_text": "not there", "new_text": "x"});
    let small = ScriptedReply::call("edit_file", edit);
    let pair = Pair::new(small, ScriptedReply::says("I see."), "");
    let ran = pair.g3(["--json", "--profile", "egirl", "Edit README.md"]);
    ran.ok();
    assert_eq!(text(&ran.json_lines()), "I see.");
    assert!(notices(&ran.json_lines()).contains("the context may be incorrect"));
}

#[test]
fn failed_escalation_is_reported_to_the_model() {
    let small = [asks_for_help(), ScriptedReply::says("Then I try myself.")];
    let pair = Pair::new(small, [], "");
    let config = pair.env.home().join(".config/g3/config.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    pair.env.config(&text.replace("api_key = \"k\"\n", ""));
    pair.g3(["--json", "--max-turns", "2", "What is Rust?"]);
    let last = pair.small.requests()[1].last();
    assert!(last.contains("no API key for `anthropic.strong`"), "{last}");
    assert!(last.contains("continue with the task yourself"), "{last}");
}

#[test]
fn both_models_share_the_limits_of_the_run() {
    let call = |n: u32| ScriptedReply::call("shell", json!({"command": format!("echo {n}")}));
    let small = [call(1), asks_for_help()];
    let pair = Pair::new(small, [call(2), call(3), call(4), ScriptedReply::says("no")], "");
    let ran = pair.g3(["--json", "--max-turns", "4", "What is Rust?"]);
    ran.exits(3).output_contains("the limit of 4 turns is reached");
    assert_eq!((pair.small.requests().len(), pair.strong.requests().len()), (2, 2));
}

#[test]
fn tool_exec_reports_the_escalation_reason_in_its_json() {
    let env = TestEnv::new();
    let run = |args: &str| {
        let call = ["tool", "exec", "--json", "--name", "suggest_escalation", "--args", args];
        env.run(G3, env.home(), call)
    };
    let ran = run("{\"reason\": \"too hard\"}");
    ran.ok();
    assert_eq!((&ran.json()["ok"], &ran.json()["escalate"]), (&json!(true), &json!("too hard")));
    assert_eq!(run("{\"reason\": \" \"}").exits(2).json()["escalate"], Value::Null);
}

#[test]
fn the_escalation_provider_must_exist() {
    let pair = Pair::new([], [], "");
    pair.configure("escalation = \"anthropic.weak\"");
    pair.g3(["--json", "go"]).exits(2).output_contains("no such provider: `anthropic.weak`");
}
