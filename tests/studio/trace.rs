//! `studio trace`: verdicts, disagreements and costs of landed work, and its reports.

use serde_json::{Value, json};

use crate::coach::run;
use crate::fixtures::Scene;

const WISHES: &str =
    "{{CURRENT REQUIREMENTS}}\n\n- R1: a *log*\n- R2: two | lines <b>\n- R3: a moon\n";

const USAGE: &str = r#"event {"seq":1,"time":"t","type":"usage","input":1000,"output":50,"cache_read":0,"cache_write":0,"cost_usd":0.25}"#;

/// Creates two landed sessions: one for R1 and R2, whose coach judges R2 unmet, and one for R2.
fn landed() -> Scene {
    let scene = Scene::new();
    scene.configure("checks = [\"test -e log\"]");
    scene.repo.commit_file("g3-plan/current_requirements.md", WISHES);
    let first = run(&[("R1", "met", "log:1 `x`\u{1b}[2J"), ("R2", "unmet", "one | line")], true);
    let second = run(&[("R2", "met", "log:2")], true);
    let tasks = format!(
        "[[task]]\nid = 'first'\nagent = 'talk'\nrequirements = ['R1', 'R2']\n\
         text = '''write log 1; {USAGE}; {first}'''\n\
         [[task]]\nid = 'second'\nagent = 'talk'\nafter = ['first']\nrequirements = ['R2']\n\
         text = '''sh echo 2 >> log; {USAGE}; {second}'''\n"
    );
    scene.repo.write("t.toml", &tasks);
    scene.studio(["run", "--tasks", "t.toml", "--accept"]).exits(0);
    scene
}

#[test]
fn each_requirement_has_its_verdict_and_its_cost() {
    let scene = landed();
    let traced = scene.studio(["trace", "--json"]).exits(1).json();
    let all = &traced["requirements"];
    assert_eq!(traced["schema"], 1);
    let word = |n: usize| (&all[n]["state"], &all[n]["coach"]["status"]);
    assert_eq!(word(0), (&json!("shown"), &json!("met")));
    assert_eq!(word(1), (&json!("shown"), &json!("met")));
    assert_eq!(word(2), (&json!("not landed"), &Value::Null));
    assert_eq!(all[1]["coach"]["evidence"], "log:2", "the later landing counts");
    assert_eq!(all[1]["coach"]["commit"], scene.repo.rev("main"));
    assert_eq!(all[1]["coach"]["newest"], true);
    let apart = "`R2` was judged unmet, but every check passed";
    assert_eq!(all[1]["disagreements"], json!([{"id": "R2", "text": apart}]));
    assert_eq!(all[0]["disagreements"], json!([]));
    let shared = |n: usize, m: usize| &all[n]["sessions"][m]["shared_with"];
    assert_eq!((shared(0, 0), shared(1, 0)), (&json!(["R2"]), &json!(["R1"])));
    assert_eq!(shared(1, 1), &json!([]));
    assert_eq!((&all[0]["turns"], &all[1]["turns"]), (&json!(3), &json!(6)));
    assert_eq!(all[1]["usage"]["cost_usd"], 0.5);
    let totals = &traced["totals"];
    assert_eq!((&totals["sessions"], &totals["turns"]), (&json!(2), &json!(6)));
    assert_eq!(
        (&totals["usage"]["input"], &totals["usage"]["cost_usd"]),
        (&json!(2000), &json!(0.5))
    );
}

#[test]
fn a_table_a_page_and_a_report_are_printed() {
    let scene = landed();
    let table = scene.studio(["trace"]);
    table.exits(1).output_contains("COACH").output_contains("warning: `R2` was judged unmet");
    table.output_contains("All: 2 sessions, 6 turns, 2000 in, 100 out, $0.5000");
    let page = scene.studio(["trace", "R1"]);
    page.exits(0).output_contains("coach: met: log:1 `x`").output_lacks("\u{1b}");
    page.output_contains("1 round, 3 turns, 1000 in, 50 out, $0.2500, shared with R2");
    let report = scene.studio(["trace", "--markdown"]);
    report.exits(1).output_contains("| requirement | state | coach | commits | checks | took |");
    let (one, two) = (scene.repo.rev("main~1"), scene.repo.rev("main"));
    report.output_contains(&format!(
        "| R2 | shown | met | `{}` `{}` | 1 passed | 6 turns, \\$0.50, shared with R1 |",
        &one[..12],
        &two[..12]
    ));
    report.output_contains("| R3 | not landed | - |  | none | \\- |");
    report.output_contains("### R1\n\na \\*log\\*\n\n- State: shown\n- Commit");
    report.output_contains("two \\| lines \\<b\\>").output_contains("  - passed: `test -e log`");
    report.output_contains("- Coach: met. log:1 \\`x\\`^\\[\\[2J\n").output_lacks("\u{1b}");
    report.output_contains("- Warning: \\`R2\\` was judged unmet, but every check passed");
    scene
        .studio(["trace", "--markdown", "--json"])
        .exits(2)
        .output_contains("cannot be used with --json");
    scene.repo.git(["commit", "-q", "--allow-empty", "-m", "By hand\n\nRequirement: R1"]);
    let traced = scene.studio(["trace", "--json"]).exits(1).json();
    assert_eq!(traced["requirements"][0]["coach"]["newest"], false, "more has landed since");
    scene.studio(["trace", "R1"]).exits(0).output_contains("coach: met (earlier): log:1");
}

#[test]
fn a_verdict_on_an_earlier_state_is_not_used() {
    let scene = Scene::new();
    scene.configure("checks = [\"test -e log\"]");
    scene.repo.commit_file("wishes.md", "- R1: a log\n");
    let first = run(&[("R1", "met", "log:1")], true);
    let tasks = format!(
        "[[task]]\nagent = 'talk'\nrequirements = ['R1']\ntext = '''write log 1; {first}'''\n"
    );
    scene.repo.write("t.toml", &tasks);
    scene.studio(["run", "--tasks", "t.toml"]).exits(0);
    let id = scene.studio(["list", "--json"]).json()["sessions"][0]["id"].clone();
    let id = id.as_str().expect("an id");
    scene.await_free(id);
    scene.worktree(id).write("log", "other\n");
    scene.studio(["accept", id, "-m", "Land"]).exits(0);
    let traced = scene.studio(["trace", "--file", "wishes.md", "--json"]).exits(0).json();
    let one = &traced["requirements"][0];
    assert_eq!((&one["coach"], &one["judged_earlier"]), (&Value::Null, &json!(true)));
    let page = scene.studio(["trace", "R1", "--file", "wishes.md"]);
    page.exits(0).output_contains("the coach judged an earlier state").output_lacks("coach: ");
}
