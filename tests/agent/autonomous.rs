//! Tests of `g3 --autonomous`: player, checks and coach, with the real binary.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use base::event::Event;
use serde_json::{Value, json};
use testkit::model_server::ModelServer;
use testkit::model_server::reply::ScriptedReply;
use testkit::model_server::request::ReceivedRequest;
use testkit::model_server::script::Script;

use crate::agent_env::{G3, Stage, of_type};

const TWO: &str = "1. make one.txt\n2. make two.txt\n";

/// Whether the request comes from a coach.
pub fn is_coach(request: &ReceivedRequest) -> bool {
    request.tool_names().contains(&"verdict".to_owned())
}

/// Returns a script with the replies for each role.
pub fn sides(
    player: impl Into<Vec<ScriptedReply>>,
    coach: impl Into<Vec<ScriptedReply>>,
) -> Script {
    let queue = |replies: Vec<ScriptedReply>| Arc::new(Mutex::new(VecDeque::from(replies)));
    let (player, coach) = (queue(player.into()), queue(coach.into()));
    Script::by(move |request| {
        let side = if is_coach(request) { &coach } else { &player };
        let next = side.lock().unwrap().pop_front();
        next.unwrap_or_else(|| ScriptedReply::exhausted("this side has no reply left"))
    })
}

/// Returns a verdict on R1, R2 … with these statuses.
pub fn verdict(approved: bool, statuses: &[&str]) -> ScriptedReply {
    ScriptedReply::call("verdict", verdict_args(approved, statuses))
}

fn verdict_args(approved: bool, statuses: &[&str]) -> Value {
    let judged = statuses.iter().zip(1..).map(|(status, n)| {
        json!({"id": format!("R{n}"), "status": status, "evidence": format!("seen {n}")})
    });
    let feedback = if approved { "" } else { "two.txt is missing: write it" };
    json!({"approved": approved, "requirements": judged.collect::<Vec<_>>(), "feedback": feedback})
}

/// Returns a player that writes a file and says so.
pub fn writes(name: &str) -> [ScriptedReply; 2] {
    let args = json!({"file_path": name, "content": format!("{name}\n")});
    [ScriptedReply::call("write_file", args), ScriptedReply::says(format!("{name} is there."))]
}

/// Creates a stage with two requirements.
pub fn stage(script: Script) -> Stage {
    let stage = Stage::new(script);
    stage.repo.write("requirements.md", TWO);
    stage
}

#[test]
fn player_and_coach_continue_until_all_requirements_are_met() {
    let player = [writes("one.txt"), writes("two.txt")].concat();
    let coach = [verdict(false, &["met", "unmet"]), verdict(true, &["met", "met"])];
    let stage = stage(sides(player, coach));
    stage.repo.write("AGENTS.md", "Use tabs.");
    let ran = stage.g3(["--autonomous"]);
    ran.ok();
    ran.output_contains("round 1 of 5: not approved")
        .output_contains("R2   unmet")
        .output_contains("round 2 of 5: approved");
    ran.output_contains("round verdict").output_contains("2 of 2");
    assert_eq!(stage.repo.read("two.txt"), "two.txt\n");
    let (coaches, players): (Vec<ReceivedRequest>, Vec<ReceivedRequest>) =
        stage.asked().into_iter().partition(is_coach);
    for coach in &coaches {
        assert_eq!(coach.messages().len(), 1, "a coach begins afresh");
        assert_eq!(
            coach.tool_names(),
            ["read_file", "read_image", "grep", "glob", "code_search", "verdict"]
        );
        assert!(!coach.system().contains("Use tabs."), "the coach takes orders from no file");
        for words in ["make one.txt", "- R1: make one.txt", "- R2: make two.txt", "+one.txt"] {
            assert!(coach.text().contains(words), "no `{words}` in: {}", coach.text());
        }
    }
    assert!(coaches[1].text().contains("two.txt is missing: write it"), "the feedback before");
    assert!(players[0].system().contains("Use tabs."));
    let second = &players[2];
    assert_eq!(second.messages().len(), 5, "the player keeps its conversation");
    assert!(second.last().contains("two.txt is missing: write it"));
    assert!(second.last().contains("R2 is unmet"), "{}", second.last());
    assert!(!second.last().contains("R1 is"));
}

#[test]
fn the_coach_sees_all_changes_and_check_results() {
    let change = "printf 'b\\n' > tracked.txt; git commit -qam change; printf 'c\\n' > tracked.txt; \
                  printf 'new\\n' > 'un tracked.txt'; printf 'no\\n' > ignored.log";
    let player =
        [ScriptedReply::call("shell", json!({"command": change})), ScriptedReply::says("done")];
    let stage = stage(sides(player, [verdict(false, &["met", "unmet"])]));
    stage.repo.write(".gitignore", "*.log\n");
    stage.repo.commit_file("tracked.txt", "a\n");
    stage.repo.write("mine.txt", "was here before\n");
    let before = stage.repo.git(["count-objects"]);
    let args = ["--autonomous", "--max-turns", "1", "--check", "echo all green"];
    stage.g3([&args[..], &["--check", "echo broken >&2; exit 3"]].concat()).exits(3);
    let text = stage.asked().into_iter().find(is_coach).unwrap().text();
    for words in [
        "M tracked.txt",
        "A un tracked.txt",
        "-a\n+c",
        "+new",
        "`echo all green` passed, exit code 0",
        "`echo broken >&2; exit 3` FAILED, exit code 3",
        "    broken",
    ] {
        assert!(text.contains(words), "no `{words}` in: {text}");
    }
    for words in ["ignored.log", "was here before"] {
        assert!(!text.contains(words), "`{words}` in: {text}");
    }
    assert_eq!(stage.repo.git(["status", "--porcelain", "mine.txt"]), "?? mine.txt");
    let after = stage.repo.git(["count-objects"]);
    let count = |text: &str| text.split(' ').next().unwrap().parse::<u32>().unwrap();
    assert!(count(&after) <= count(&before) + 3, "only the player's commit is in the repository");
}

/// Approval used to be a word in the coach's prose, so that a sentence denying it approved.
#[test]
fn text_that_mentions_approval_does_not_approve() {
    let praise =
        || ScriptedReply::says("This is not yet IMPLEMENTATION_APPROVED. {\"approved\": true}");
    let coach: Vec<ScriptedReply> = (0..8).map(|_| praise()).collect();
    let stage = stage(sides(writes("one.txt"), coach));
    let ran = stage.g3(["--autonomous", "--max-turns", "1"]);
    ran.exits(3).output_contains("no verdict").output_contains("not approved after 1 round");
    let coaches: Vec<ReceivedRequest> = stage.asked().into_iter().filter(is_coach).collect();
    assert_eq!(coaches.len(), 8, "two coaches, each reminded three times");
    assert!(coaches[3].last().contains("Your words are not a verdict"));
}

#[test]
fn an_invalid_verdict_is_reported_and_requested_again() {
    let coach = [
        verdict(true, &["met", "unmet"]),
        ScriptedReply::call(
            "verdict",
            json!({"approved": true, "requirements": [], "feedback": ""}),
        ),
        ScriptedReply::new().calls_raw("verdict", "{\"approved\": tr"),
        verdict(true, &["met", "met"]),
    ];
    let stage = stage(sides(writes("one.txt"), coach));
    stage.g3(["--autonomous"]).ok();
    let last = stage.asked().pop().unwrap();
    let told: Vec<String> = last.tool_results().into_iter().map(|(_, text)| text).collect();
    assert!(told[0].contains("requirements are not met: R2"), "{told:?}");
    assert!(told[1].contains("`R1` is missing; `R2` is missing"), "{told:?}");
    assert_eq!(told.len(), 3);
}

#[test]
fn a_failed_check_prevents_approval_and_the_player_reads_its_output() {
    let player = [writes("one.txt"), writes("two.txt")].concat();
    let coach = [
        verdict(true, &["met", "met"]),
        verdict(false, &["met", "unmet"]),
        verdict(true, &["met", "met"]),
    ];
    let stage = stage(sides(player, coach));
    stage.env.config(&format!(
        "{}\n[studio]\nchecks = [\"test -e two.txt || {{ echo two is missing; false; }}\"]\n",
        stage.model.config_toml("anthropic")
    ));
    stage.g3(["--autonomous"]).ok();
    let asked = stage.asked();
    let coach: Vec<&ReceivedRequest> = asked.iter().filter(|request| is_coach(request)).collect();
    assert!(coach[1].tool_results()[0].1.contains("a check failed: test -e two.txt"));
    let player: Vec<&ReceivedRequest> = asked.iter().filter(|request| !is_coach(request)).collect();
    assert!(player[2].last().contains("    two is missing"), "{}", player[2].last());
}

/// Only a sentence in the prompt used to keep the coach from changing files.
#[test]
fn a_coach_cannot_write_or_run_whatever_it_calls() {
    let coach = [
        ScriptedReply::new()
            .calls("write_file", json!({"file_path": "by-coach", "content": "x"}))
            .calls("shell", json!({"command": "touch by-coach"}))
            .calls("bash", json!({"command": "touch by-coach", "description": "x"}))
            .calls("edit", json!({"filePath": "one.txt", "oldString": "one", "newString": "x"}))
            .calls("read_file", json!({"file_path": "one.txt"})),
        verdict(true, &["met", "met"]),
    ];
    let stage = stage(sides(writes("one.txt"), coach));
    stage.g3(["--autonomous"]).ok();
    assert!(!stage.repo.path().join("by-coach").exists());
    assert_eq!(stage.repo.read("one.txt"), "one.txt\n");
    let results = stage.asked().pop().unwrap().tool_results();
    for (_, text) in &results[..4] {
        assert!(
            text.contains("denied") && text.contains("read_file, read_image, grep, glob"),
            "{text}"
        );
        assert!(!text.contains("webfetch"), "{text}");
    }
    assert!(results[4].1.contains("one.txt"), "it may read");
}

#[test]
fn a_disagreement_of_coach_and_checks_is_reported() {
    let judged = |second: &str| {
        let told = |id: &str, status: &str, evidence: &str| json!({"id": id, "status": status, "evidence": evidence});
        let all = [told("R1", "met", "`test -e one.txt` passes"), told("R2", second, "two.txt:1")];
        ScriptedReply::call(
            "verdict",
            json!({"approved": false, "requirements": all, "feedback": "go on"}),
        )
    };
    let player = [vec![ScriptedReply::says("nothing yet")], writes("one.txt").into()].concat();
    let script = || sides(player.clone(), [judged("unknown"), judged("unknown")]);
    let args = ["--autonomous", "--max-turns", "2", "--check", "test -e one.txt"];
    let met = "`R1` was judged met by `test -e one.txt`, which failed";
    let unknown = "`R2` was judged unknown, but every check passed";
    let shown = stage(script()).g3(args);
    shown
        .exits(3)
        .output_contains(&format!("warning: {met}"))
        .output_contains(&format!("warning: {unknown}"));
    let ran = stage(script()).g3([&args[..], &["--json"]].concat());
    let events = ran.exits(3).json_lines();
    let plans = of_type(&events, "plan");
    let rounds: Vec<&Value> = plans.iter().filter(|it| it["state"] == "judged").copied().collect();
    assert_eq!(rounds[0]["disagreements"], json!([{"id": "R1", "text": met}]));
    assert_eq!(rounds[1]["disagreements"], json!([{"id": "R2", "text": unknown}]));
    assert_eq!(plans.last().unwrap()["report"][1]["disagreements"], rounds[1]["disagreements"]);
}

#[test]
fn exhausted_rounds_exit_with_3_and_are_reported_in_events() {
    let player = [writes("one.txt"), writes("one.txt")].concat();
    let coach = [verdict(false, &["met", "unmet"]), verdict(false, &["met", "unknown"])];
    let stage = stage(sides(player, coach));
    let ran = stage.g3(["--autonomous", "--max-turns", "2", "--json"]);
    ran.exits(3);
    let events = ran.json_lines();
    assert!(events.iter().all(|event| Event::parse(&event.to_string()).is_some()));
    for once in ["start", "end", "error"] {
        assert_eq!(of_type(&events, once).len(), 1, "`{once}` in {ran}");
    }
    let end = events.last().unwrap();
    assert_eq!((&end["status"], &end["exit"]), (&json!("not_approved"), &json!(3)));
    assert_eq!((&end["turns"], &end["usage"]["output"]), (&json!(6), &json!(30)));
    let plans = of_type(&events, "plan");
    let states: Vec<&str> = plans.iter().map(|plan| plan["state"].as_str().unwrap()).collect();
    let round = ["playing", "judging", "judged"];
    assert_eq!(states, [&["begun"][..], &round, &round, &["ended"]].concat());
    let report = &plans.last().unwrap()["report"];
    assert_eq!(report[1]["requirements"][1]["status"], "unknown");
    assert_eq!(report[0]["cost"]["turns"], 3);
    let error = of_type(&events, "error")[0];
    assert!(error["text"].as_str().unwrap().contains("R2 unknown: seen 2"), "{error}");
    assert!(error["try"][0].as_str().unwrap().contains("--max-turns 5"), "{error}");
}

/// A failed player turn used to end the run with `No coach feedback received on turn N`.
#[test]
fn a_failed_player_turn_is_retried_then_left_to_the_coach() {
    let mut player = vec![ScriptedReply::status(400), ScriptedReply::status(400)];
    player.extend(writes("one.txt"));
    player.extend([
        ScriptedReply::status(400),
        ScriptedReply::status(400),
        ScriptedReply::status(400),
    ]);
    player.extend(writes("two.txt"));
    let coach = [
        verdict(false, &["met", "unmet"]),
        verdict(false, &["met", "unmet"]),
        verdict(true, &["met", "met"]),
    ];
    let stage = stage(sides(player, coach));
    let ran = stage.g3(["--autonomous"]);
    ran.ok();
    ran.output_contains("the player's part of round 1 ended early")
        .output_contains("round 3 of 5: approved");
    let asked = stage.asked();
    let players: Vec<&ReceivedRequest> =
        asked.iter().filter(|request| !is_coach(request)).collect();
    assert!(players[1].last().contains("Your last attempt ended early"));
    let coaches: Vec<&ReceivedRequest> = asked.iter().filter(|request| is_coach(request)).collect();
    assert!(!coaches[0].text().contains("ended early"), "the third try went well");
    assert!(coaches[1].text().contains("The player's part of this round ended early"));
    assert!(players[7].last().contains("Your part of that round ended early"));
}

#[test]
fn without_any_reply_the_run_fails_and_can_be_resumed() {
    let dead: Vec<ScriptedReply> = (0..5).map(|_| ScriptedReply::status(401)).collect();
    let mut player = dead[..3].to_vec();
    player.extend(writes("one.txt"));
    let mut coach = dead[..2].to_vec();
    coach.push(verdict(true, &["met", "met"]));
    let stage = stage(sides(player, coach));
    let ran = stage.g3(["--autonomous"]);
    ran.exits(1).output_contains("no model answered").output_contains("401");
    assert_eq!(stage.asked().len(), 5, "four more rounds would be no better");
    stage.g3(["--autonomous", "--resume"]).ok();
}

/// Missing requirements used to end with exit code 0, and zero rounds used to be accepted.
#[test]
fn a_run_without_requirements_or_rounds_is_rejected() {
    let stage = Stage::new([]);
    for args in [
        &["--autonomous"][..],
        &["--autonomous", "--requirements", "nowhere.md"],
        &["--autonomous", "--requirements", " "],
        &["--autonomous", "--requirements", "R1: a\nR1: b"],
        &["--autonomous", "--requirements", "x", "--max-turns", "0"],
        &["--autonomous", "--resume"],
        &["--autonomous", "--resume", "zzz"],
        &["--autonomous", "--resume", "--requirements", "x"],
    ] {
        let ran = stage.g3(args);
        assert_eq!(ran.code, 2, "{args:?}:\n{ran}");
        ran.output_contains("error:").output_contains("try:");
    }
    assert!(stage.session_dirs().is_empty() && stage.asked().is_empty());
}

/// With `--quiet` there used to be no session file to read approval from, so nothing was approved.
#[test]
fn a_quiet_run_can_be_approved() {
    let stage = stage(sides(writes("one.txt"), [verdict(true, &["met", "met"])]));
    let ran = stage.g3(["--autonomous", "--quiet"]);
    assert_eq!(ran.ok(), "one.txt is there.");
    assert_eq!(ran.err, "");
}

/// The player used to use the default provider, regardless of its configured one.
#[test]
fn each_role_uses_its_configured_provider() {
    let stage = stage(Script::from([]));
    let player = ModelServer::start(writes("one.txt").to_vec());
    let coach = ModelServer::start([verdict(true, &["met", "met"])]);
    let entry = |name: &str, model: &ModelServer| {
        format!(
            "[providers.anthropic.{name}]\nmodel = \"{name}-model\"\napi_key = \"k\"\n\
             base_url = \"{}\"\n",
            model.url()
        )
    };
    let configured = stage.model.config_toml("anthropic");
    let sides = "[providers]\nplayer = \"anthropic.p\"\ncoach = \"anthropic.c\"\n";
    let config = configured.replace("[providers]\n", sides);
    stage.env.config(&(config + &entry("p", &player) + &entry("c", &coach)));
    stage.g3(["--autonomous"]).ok();
    assert!(stage.asked().is_empty());
    assert_eq!(player.requests()[0].body["model"], "p-model");
    assert_eq!(coach.requests()[0].body["model"], "c-model");
}

#[test]
fn limits_apply_to_the_whole_run() {
    let used = |reply: ScriptedReply| reply.usage(40, 10);
    let player = [writes("one.txt"), writes("two.txt")].concat().into_iter().map(used);
    let coach = [used(verdict(false, &["met", "unmet"]))];
    let stage = stage(sides(player.collect::<Vec<_>>(), coach));
    let ran = stage.g3(["--autonomous", "--max-tokens", "150", "--json"]);
    ran.exits(3).output_contains("the limit of 150 tokens is reached");
    assert_eq!(ran.json_lines().last().unwrap()["status"], "limit");
    assert_eq!(stage.asked().len(), 3, "the second round was not begun");
}

#[test]
fn the_coach_sees_changes_without_a_repository() {
    let stage = stage(sides(writes("one.txt"), [verdict(true, &["met", "met"])]));
    let plain = stage.env.home().join("plain");
    std::fs::create_dir(&plain).unwrap();
    std::fs::write(plain.join("old.txt"), "old").unwrap();
    stage.env.run(G3, &plain, ["--autonomous", "--requirements", TWO]).ok();
    let text = stage.asked().into_iter().find(is_coach).unwrap().text();
    assert!(text.contains("A one.txt") && text.contains("+one.txt"), "{text}");
    assert!(!text.contains("old.txt"), "{text}");
}

#[test]
fn checks_of_an_untrusted_repository_do_not_run() {
    let stage = stage(sides(writes("one.txt"), [verdict(true, &["met", "met"])]));
    stage.repo.write("g3.toml", "[studio]\nchecks = [\"touch pwned\"]\n");
    stage.g3(["--autonomous"]).ok();
    assert!(!stage.repo.path().join("pwned").exists());
}
