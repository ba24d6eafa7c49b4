//! Accessibility: axe-core finds nothing to mend in any page.

use base::process::{Command, OutputLimits};
use serde_json::Value;
use testkit::env::until;

use crate::browser::Browser;
use crate::fixtures::Scene;
use crate::server::PageServer;

/// The rules of a page, read by axe-core after `axe.min.js` was run.
const AXE_RUN: &str = "const done = arguments[arguments.length - 1]; \
    axe.run(document, {resultTypes: ['violations']}).then( \
        (results) => done(results.violations.flatMap((rule) => rule.nodes.map( \
            (node) => `${rule.id}: ${node.target} ${node.failureSummary}`))), \
        (error) => done([`axe-core failed: ${error}`]));";

/// Returns the script of axe-core.
fn axe_core() -> String {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/axe-core");
    let output = Command::new(script, "/").output(OutputLimits::seconds(60));
    let path = output.expect("the script is there").text();
    std::fs::read_to_string(path.trim()).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns what axe-core finds in the open page.
fn violations(browser: &Browser, axe: &str) -> Vec<String> {
    browser.script(axe);
    let found = browser.script_async(AXE_RUN);
    let Value::Array(found) = found else { panic!("not a list: {found}") };
    found.iter().map(|it| it.as_str().unwrap_or_default().to_owned()).collect()
}

/// A repository with a plan, and a session in each common state.
struct States {
    scene: Scene,
    ready: String,
    failed: String,
    waiting: String,
    working: String,
    stopped: String,
}

fn states() -> States {
    let scene = Scene::new();
    scene.repo.commit_file("code.rs", "/// One.\nfn one(a: u32) -> u32 {\n    a.max(1)\n}\n");
    scene.repo.write(
        "g3-plan/current_requirements.md",
        "{{CURRENT REQUIREMENTS}}\n\n- R1: an a\n- R2: a b\n",
    );
    let task = |id: &str, requirement: &str, after: &str| {
        format!(
            "[[task]]\nid = \"{id}\"\ntext = \"write {id} 1\"\nrequirements = [\"{requirement}\"]\nafter = [{after}]\nchecks = [\"test -d .\"]\n\n"
        )
    };
    scene
        .repo
        .write("g3-plan/tasks.toml", task("first", "R1", "") + &task("second", "R2", "\"first\""));
    let accepted = scene.ready("write landed 1");
    scene.await_supervisor(&accepted);
    scene.studio(["accept", &accepted, "-m", "Land it"]).exits(0);
    let discarded = scene.ready("write gone 1");
    scene.await_supervisor(&discarded);
    scene.studio(["discard", &discarded, "--yes"]).exits(0);
    let change = "sh printf '/// One.\\nfn one(a: u32) -> u32 {\\n    a.max(2) // \"why\" not\\n}\\n' > code.rs; \
        write notes.txt some words; sh mkdir -p src; write src/more.rs const-A; say I raised the limit.";
    let ready = scene.exec(["--agent", "talk", "--check", "true", change]);
    scene.await_state(&ready, "ready");
    scene.await_supervisor(&ready);
    let conflicting = scene.ready("write notes.txt other words");
    scene.await_supervisor(&conflicting);
    let failed = scene.exec(["--agent", "talk", "--check", "false", "write d 1"]);
    scene.await_state(&failed, "failed");
    let waiting = scene.exec(["--agent", "talk", "--ask", "ask rm -rf target"]);
    scene.await_state(&waiting, "waiting");
    let working = scene.exec(["--agent", "talk", "gate open; write b 1"]);
    scene.await_state(&working, "working");
    let stopped = scene.exec(["--agent", "talk", "gate open; write c 1"]);
    scene.await_state(&stopped, "working");
    scene.studio(["stop", &stopped]).exits(0);
    scene.await_state(&stopped, "stopped");
    States { scene, ready, failed, waiting, working, stopped }
}

mod needs_axe_core {
    use super::*;

    #[test]
    #[ignore = "needs axe-core"]
    fn axe_core_finds_nothing_in_any_page_in_light_and_dark_narrow_and_wide() {
        let axe = axe_core();
        let States { scene, ready, failed, waiting, working, stopped } = states();
        let server = PageServer::start(&scene);
        let browser = Browser::open(&scene, &server, &[]);
        let review = format!("/sessions/{ready}/review");
        // A decision and comments have their own colours.
        browser.goto(&review).until("document.querySelectorAll('.hunk table').length == 3");
        browser.press("a");
        browser.until("document.querySelector('.hunk').dataset.decision == 'accepted'");
        browser.press("c").press("why?").press_control_enter();
        browser.until("document.querySelector('.comment .said')");
        let rows = ready_rows(&[&ready, &failed, &waiting, &working, &stopped]);
        let drawn = "document.querySelector('.hunk table')".to_owned();
        let heading = "document.querySelector('h1')".to_owned();
        let pages = [
            ("/".to_owned(), rows),
            ("/?q=done".to_owned(), "document.querySelector('.row')".to_owned()),
            ("/?q=no-such-words".to_owned(), "document.querySelector('.empty')".to_owned()),
            ("/new".to_owned(), "document.getElementById('tasks')".to_owned()),
            (format!("/sessions/{ready}"), "document.getElementById('land')".to_owned()),
            (format!("/sessions/{failed}"), heading.clone()),
            (format!("/sessions/{waiting}"), "document.querySelector('.request')".to_owned()),
            (format!("/sessions/{working}"), heading.clone()),
            (format!("/sessions/{stopped}"), heading.clone()),
            (review.clone(), drawn),
            (format!("{review}?view=split"), "document.querySelector('table.split')".to_owned()),
            ("/plan".to_owned(), "document.querySelector('.graph-box')".to_owned()),
            ("/plan/edit/tasks".to_owned(), "document.getElementById('plan-text')".to_owned()),
            (format!("/sessions/{ready}/conflicts"), "document.querySelector('.sides')".to_owned()),
            ("/queue".to_owned(), "document.getElementById('land-all')".to_owned()),
            ("/operations".to_owned(), "document.querySelector('.operations li')".to_owned()),
            ("/no-such-page".to_owned(), "document.querySelector('.failure')".to_owned()),
        ];
        let mut found = Vec::new();
        for scheme in ["light", "dark"] {
            browser.prefer_colours(scheme);
            for width in [360, 1400] {
                browser.resize_page(width, 900);
                let mut examine = |name: &str| {
                    for violation in violations(&browser, &axe) {
                        found.push(format!("{name}, {scheme}, {width} px: {violation}"));
                    }
                };
                for (path, is_drawn) in &pages {
                    browser.goto(path).until(is_drawn);
                    examine(path);
                }
                browser.goto(&review).until("document.querySelector('.hunk table')");
                browser.press("?").until("document.getElementById('help').open");
                examine("keys");
                browser.click("#help button").press("j").press("c");
                browser.until("document.querySelector('.new-comment textarea')");
                examine("a new comment");
            }
        }
        assert!(found.is_empty(), "{} violations:\n{}", found.len(), found.join("\n"));
        // Control: errors that are planted in a page are found.
        browser.goto("/");
        browser.script("const it = document.createElement('img'); it.src = '/style.css'; document.body.append(it)");
        browser.script("document.querySelector('.row-facts').style.color = 'var(--line)'");
        until("the planted errors to be found", || {
            let found = violations(&browser, &axe);
            let has = |rule: &str| found.iter().any(|it| it.starts_with(rule));
            (has("image-alt") && has("color-contrast")).then_some(())
        });
    }
}

/// Returns a script that says whether the board has all of these sessions.
fn ready_rows(ids: &[&str]) -> String {
    let row = |id: &&str| format!("document.querySelector('[id^=\"row-{id}\"]')");
    ids.iter().map(row).collect::<Vec<_>>().join(" && ")
}
