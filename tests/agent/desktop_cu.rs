//! Tests of `execute_computer_use`: a scripted planner whose steps a real program receives.

use serde_json::{Value, json};
use testkit::desktop::{Desktop, DesktopProgram};
use testkit::env::TestEnv;
use testkit::model_server::ModelServer;
use testkit::model_server::reply::ScriptedReply;
use testkit::model_server::script::Script;

use crate::agent_env::Stage;
use crate::desktop_support::{control, lead};
use crate::tools_support::{Bench, Called};

/// A desktop, a program, and a planner with one of two wire formats.
struct Planned {
    bench: Bench,
    planner: ModelServer,
    program: DesktopProgram,
    _desktop: Desktop,
}

/// Returns the configuration of a planner on this server.
fn configured(planner: &ModelServer, wire: &str, model: &str) -> String {
    let (kind, url) = match wire {
        "gemini" => ("gemini", planner.url()),
        _ => ("openai", planner.openai_url()),
    };
    format!(
        "{}\n[providers.{kind}.planner]\nmodel = \"{model}\"\napi_key = \"k\"\nbase_url = \"{url}\"\n",
        control(&format!("computer_use_provider = \"{kind}.planner\""))
    )
}

impl Planned {
    fn new(wire: &str, script: impl FnOnce(&DesktopProgram) -> Script) -> Planned {
        let desktop = Desktop::start();
        let program = desktop.program("Fixture");
        let planner = ModelServer::start(script(&program));
        let mut bench = Bench::new("core");
        lead(&mut bench.env, &desktop);
        bench.env.set("G3_TEST_RETRY_MS", 1);
        bench.env.config(&configured(&planner, wire, "scripted"));
        Planned { bench, planner, program, _desktop: desktop }
    }

    fn does(&self, instruction: &str) -> Called {
        self.bench.call("execute_computer_use", json!({ "instruction": instruction }))
    }
}

/// Returns a point of the screen in the planner's coordinates; accurate within a pixel or two.
fn grid(program: &DesktopProgram, name: &str) -> Value {
    let (x, y) = program.place(name).middle();
    // The image is the screen: 1280 x 800. Rounded up, so that truncation gives the point.
    json!({ "x": (x * 1000 + 1279) / 1280, "y": (y * 1000 + 799) / 800 })
}

fn with(mut args: Value, more: Value) -> Value {
    args.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    args
}

fn steps(called: &Called) -> Vec<Value> {
    called.metadata["steps"].as_array().unwrap().clone()
}

#[test]
fn a_planner_with_either_wire_format_works_until_it_finishes() {
    for wire in ["gemini", "chat"] {
        let planned = Planned::new(wire, |program| {
            let typed = with(grid(program, "Name"), json!({ "text": "Grüße" }));
            Script::new([
                ScriptedReply::says("I click first.").calls("click_at", grid(program, "Press_me")),
                ScriptedReply::new()
                    .calls("type_text_at", typed)
                    .calls("key_combination", json!({ "keys": "Control+S" })),
                ScriptedReply::says("It is done."),
            ])
        });
        let called = planned.does("press the button, then greet");
        called.says("It is done.").works();
        assert_eq!(called.metadata["status"], "done", "{wire}");
        assert_eq!(steps(&called).len(), 3);
        for line in ["clicked Press me", "text Grüße", "entered Grüße", "key ctrl+s"] {
            planned.program.saw(line);
        }
        let asked = planned.planner.requests();
        assert_eq!(asked.len(), 3);
        assert!(asked[0].first_user().contains("press the button, then greet"));
        for request in &asked {
            assert!(String::from_utf8_lossy(&request.raw).contains("image/jpeg"), "it sees");
        }
        for name in ["click_at", "drag_and_drop", "navigate", "ask_confirmation"] {
            assert!(asked[0].tool_names().contains(&name.to_owned()), "{name}");
        }
        // Two calls, two results, each with the URL.
        let told = asked[2].text();
        assert_eq!(told.matches("current_url").count(), 3, "{wire}: {told}");
        // Its actions are recorded in the history.
        let history = planned.bench.call("get_action_history", json!({})).metadata;
        let tools: Vec<&str> =
            history.as_array().unwrap().iter().map(|it| it["tool"].as_str().unwrap()).collect();
        assert_eq!(tools.iter().filter(|tool| **tool == "execute_gui").count(), 7, "{tools:?}");
        assert_eq!(tools.last(), Some(&"execute_computer_use"));
    }
}

#[test]
fn blocked_and_unknown_actions_are_reported_and_the_rest_continues() {
    let planned = Planned::new("gemini", |program| {
        Script::new([
            ScriptedReply::new()
                .calls("key_combination", json!({ "keys": "Alt + F4" }))
                .calls("key_combination", json!({ "keys": "win+r" }))
                .calls("teleport", json!({}))
                .calls("click_at", json!({ "x": 5000, "y": 1 }))
                .calls("navigate", json!({ "url": "file:///etc/passwd" }))
                .calls("click_at", grid(program, "Press_me")),
            ScriptedReply::says("enough"),
        ])
    });
    let called = planned.does("try everything");
    called.works();
    planned.program.saw("clicked Press me");
    let log = planned.program.log();
    assert!(!log.contains("closed") && !log.contains("key "), "{log}");
    let told: Vec<String> = steps(&called)
        .iter()
        .map(|step| step["not_done"].as_str().unwrap_or_default().to_owned())
        .collect();
    for (at, why) in
        ["is blocked", "is blocked", "does nothing here", "from 0 to 999", "only http", ""]
            .iter()
            .enumerate()
    {
        assert!(told[at].contains(why), "{at}: {told:?}");
    }
    let answers = planned.planner.requests()[1].text();
    assert!(answers.contains("is blocked") && answers.contains("does nothing here"), "{answers}");
}

#[test]
fn the_url_of_a_navigation_is_reported_in_later_results() {
    let planned = Planned::new("chat", |_| {
        Script::new([
            ScriptedReply::call("navigate", json!({ "url": "https.example.org/a" })),
            ScriptedReply::call("wait_5_seconds", json!({})),
            ScriptedReply::says("there"),
        ])
    });
    let called = planned.does("go there");
    called.works();
    assert_eq!(called.metadata["current_url"], "https://example.org/a");
    // The program is not a browser, but it receives the keys.
    planned.program.saw("key ctrl+l");
    let asked = planned.planner.requests();
    assert!(asked[2].text().matches("https://example.org/a").count() >= 2);
}

#[test]
fn a_step_that_needs_confirmation_is_not_executed() {
    for call in [
        (
            "click_at",
            json!({ "x": 1, "y": 1, "safety_decision": {
            "decision": "require_confirmation", "explanation": "this buys something" } }),
        ),
        ("ask_confirmation", json!({ "explanation": "this buys something" })),
    ] {
        let planned =
            Planned::new("gemini", |_| Script::new([ScriptedReply::call(call.0, call.1)]));
        let called = planned.does("buy it");
        called.says("this buys something").works();
        assert_eq!(called.metadata["status"], "confirmation_required");
        assert!(steps(&called).is_empty());
        assert!(!planned.program.log().contains("pressed"));
    }
}

#[test]
fn at_most_fifteen_steps_run_and_no_result_is_orphaned() {
    let planned = Planned::new("gemini", |_| {
        Script::by(|_| ScriptedReply::call("hover_at", json!({ "x": 500, "y": 500 })))
    });
    let called = planned.does("never stop");
    called.says("15 steps").fails("failed");
    assert_eq!((&called.metadata["status"], steps(&called).len()), (&json!("error"), 15));
    let asked = planned.planner.requests();
    assert_eq!(asked.len(), 15);
    let last = asked[14].messages();
    assert!(last.len() <= 30, "{}", last.len());
    assert!(asked[14].first_user().contains("never stop"));
}

#[test]
fn rate_limits_are_retried_and_a_lost_conversation_restarts() {
    let planned = Planned::new("gemini", |program| {
        Script::new([
            ScriptedReply::status(429),
            ScriptedReply::status(429),
            ScriptedReply::call("click_at", grid(program, "Press_me")),
            ScriptedReply::status(404),
            ScriptedReply::says("done"),
        ])
    });
    let called = planned.does("press it");
    called.works();
    planned.program.saw("clicked Press me");
    let asked = planned.planner.requests();
    assert_eq!(asked.len(), 5);
    assert_eq!(
        (asked[3].messages().len(), asked[4].messages().len()),
        (3, 1),
        "the conversation was restarted"
    );
    assert!(asked[4].first_user().contains("press it"));
    let limited = Planned::new("chat", |_| Script::by(|_| ScriptedReply::status(429)));
    limited.does("press it").says("the planner cannot be asked").fails("failed");
    assert_eq!(limited.planner.requests().len(), 3, "three tries");
}

#[test]
fn without_a_planner_or_its_key_the_error_says_what_to_configure() {
    let bench = Bench::new("core");
    bench.env.config(&control(""));
    let told = bench.call("execute_computer_use", json!({ "instruction": "x" }));
    told.says("computer_use_provider").fails("failed");
    bench.env.config(&control("computer_use_provider = \"gemini\""));
    let told = bench.call("execute_computer_use", json!({ "instruction": "x" }));
    told.says("GEMINI_API_KEY").fails("failed");
    bench.call("execute_computer_use", json!({ "instruction": " " })).fails("validation");
}

#[test]
fn every_step_passes_through_the_gate() {
    let desktop = Desktop::start();
    let program = desktop.program("Fixture");
    let planner = ModelServer::start([
        ScriptedReply::call("click_at", grid(&program, "Press_me")),
        ScriptedReply::says("done"),
    ]);
    let rule = "[[gate.rules]]\ntool = \"execute_gui\"\naction = \"deny\"\n";
    let mut bench = Bench::new("core");
    lead(&mut bench.env, &desktop);
    bench.env.config(&format!("{}\n{rule}", configured(&planner, "gemini", "scripted")));
    let called = bench.call("execute_computer_use", json!({ "instruction": "press" }));
    called.says("a rule says so").fails("denied");
    assert_eq!(called.metadata["status"], "rejected");
    assert!(!program.log().contains("clicked"));
}

#[test]
fn gemini_models_use_built_in_functions_and_get_images_in_responses() {
    let desktop = Desktop::start();
    let program = desktop.program("Fixture");
    let planner = ModelServer::start([
        ScriptedReply::call("click_at", grid(&program, "Press_me")),
        ScriptedReply::says("done"),
    ]);
    let mut bench = Bench::new("core");
    lead(&mut bench.env, &desktop);
    let model = "gemini-2.5-computer-use-preview-10-2025";
    bench.env.config(&configured(&planner, "gemini", model));
    bench.call("execute_computer_use", json!({ "instruction": "press" })).works();
    program.saw("clicked Press me");
    let asked = planner.requests();
    assert!(asked[0].path.contains(model), "{}", asked[0].path);
    let tools = &asked[0].body["tools"];
    assert_eq!(tools[0], json!({ "computerUse": { "environment": "ENVIRONMENT_BROWSER" } }));
    assert_eq!(asked[0].tool_names(), ["ask_confirmation"], "the rest is its own");
    let answer = &asked[1].messages()[2]["parts"][0]["functionResponse"];
    assert_eq!(answer["name"], "click_at");
    assert_eq!(answer["response"]["url"], "about:blank");
    assert_eq!(answer["parts"][0]["inlineData"]["mimeType"], "image/jpeg");
}

#[test]
fn an_agent_delegates_to_a_planner_and_its_cost_is_counted() {
    let desktop = Desktop::start();
    let program = desktop.program("Fixture");
    let planner = ModelServer::start([
        ScriptedReply::call("click_at", grid(&program, "Press_me")),
        ScriptedReply::says("The button is pressed."),
    ]);
    let model = ModelServer::start([
        ScriptedReply::call("execute_computer_use", json!({ "instruction": "press the button" })),
        ScriptedReply::says("done"),
    ]);
    let mut env = TestEnv::new();
    lead(&mut env, &desktop);
    let section = configured(&planner, "gemini", "scripted");
    env.config(&format!("{}\n{section}", model.config_toml("anthropic")));
    let repo = env.repo();
    let stage = Stage { env, repo, model };
    stage.g3(["press the button"]).ok();
    program.saw("clicked Press me");
    let results = stage.asked()[1].tool_results();
    assert!(results[0].1.contains("The button is pressed."), "{results:?}");
}
