//! The review page: hunks by risk, decisions and comments by keyboard, one turn for the agent, and the
//! landing of accepted hunks.

use serde_json::json;

use crate::browser::Browser;
use crate::fixtures::Scene;
use crate::server::PageServer;

/// Returns the review as the command line has it.
fn review(scene: &Scene, id: &str) -> serde_json::Value {
    scene.studio(["review", id, "--json"]).exits(0).json()["reviews"][0].clone()
}

#[test]
fn a_review_is_done_from_the_keyboard_and_goes_to_the_agent_as_one_turn() {
    let scene = Scene::new();
    scene.repo.commit_file("code.rs", "fn one(a: u32) -> u32 {\n    a.max(1)\n}\n");
    let script = "sh printf 'fn one(a: u32) -> u32 {\\n    a.max(2)\\n}\\n' > code.rs; write b.txt 2; write c.txt 3";
    let id = scene.exec(["--agent", "talk", script]);
    scene.await_state(&id, "ready");
    scene.await_supervisor(&id);
    let server = PageServer::start(&scene);
    let browser = Browser::open(&scene, &server, &[]);
    browser
        .goto(&format!("/sessions/{id}/review"))
        .until("document.querySelectorAll('.hunk table').length == 3");
    // The order of the hunks is that of the command line.
    let expected: Vec<String> = review(&scene, &id)["hunks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|hunk| hunk["id"].as_str().unwrap().to_owned())
        .collect();
    let shown = browser
        .script("return [...document.querySelectorAll('.hunk')].map((it) => it.dataset.hunk)");
    assert_eq!(shown, json!(expected));
    browser.until("document.querySelector('.hunk tr.added mark')?.innerText == '2'");
    browser.until("document.querySelector('.hunk .keyword')?.innerText == 'fn'");
    // The first hunk is the current one, and a decision moves to the next.
    browser.until("document.querySelector('.hunk').getAttribute('aria-current') == 'true'");
    browser.press("a");
    browser.until("document.querySelector('.hunk').dataset.decision == 'accepted'");
    browser.press("r");
    browser.until("document.querySelectorAll('.hunk')[1].dataset.decision == 'returned'");
    browser.press("c").press("write answer yes").press_control_enter();
    browser.until("document.querySelectorAll('.hunk')[2].querySelector('.comment')?.innerText.includes('write answer yes')");
    browser.press("f").until("document.querySelectorAll('.hunk')[2].hasAttribute('data-folded')");
    browser.press("f").press("k");
    browser.until("document.querySelectorAll('.hunk')[1].getAttribute('aria-current') == 'true'");
    browser.press("?").until("document.getElementById('help').open");
    browser.click("#help button").until("!document.getElementById('help').open");
    browser.picture("review");
    let state = review(&scene, &id);
    assert_eq!(state["hunks"][0]["decision"], "accepted");
    assert_eq!(state["hunks"][1]["decision"], "returned");
    assert_eq!(state["comments"][0]["text"], "write answer yes");
    // Side by side.
    browser.press("v").until("document.querySelector('table.split')").picture("review-split");
    // The accepted hunk lands alone; the rest stays.
    browser.press("l").until_text("landed on main as");
    browser.until("document.querySelectorAll('.hunk').length == 2");
    assert_eq!(scene.repo.show("main", "code.rs"), "fn one(a: u32) -> u32 {\n    a.max(2)\n}");
    let (code, _, _) = scene.repo.try_git(["show", "main:b.txt"]);
    assert_ne!(code, 0);
    browser.press("s").until_text("review sent");
    let sent: Vec<_> =
        scene.journal(&id).into_iter().filter(|line| line["entry"] == "queued").collect();
    let prompt = sent.last().unwrap()["prompt"].as_str().unwrap();
    assert!(prompt.contains("1 comment") && prompt.contains("1 hunk returned"), "{prompt}");
    assert!(prompt.contains("write answer yes"), "{prompt}");
}

#[test]
fn only_new_hunks_are_shown_since_the_last_look() {
    let scene = Scene::new();
    let id = scene.exec(["--agent", "talk", "write a 1"]);
    scene.await_state(&id, "ready");
    scene.await_supervisor(&id);
    let server = PageServer::start(&scene);
    let browser = Browser::open(&scene, &server, &[]);
    let path = format!("/sessions/{id}/review");
    browser.goto(&path).until("document.querySelectorAll('.hunk').length == 1");
    let look = || {
        scene.session_file(&id, "seen.json").exists()
            || scene.studio(["review", &id, "--since", "last", "--json"]).code == 0
    };
    testkit::env::until("the look to be recorded", || look().then_some(()));
    scene.studio(["send", &id, "go on; write b 2"]).exits(0);
    // The page says that it is old, and keeps what is being read.
    browser.until_text("The work has changed");
    testkit::env::until("the second file", || {
        let status = scene.status(&id);
        (status["state"] == "ready" && status["files_changed"] == 2).then_some(())
    });
    browser.goto(&format!("{path}?since=last")).until_text("1 older hunk");
    let names = browser
        .script("return [...document.querySelectorAll('.hunk h2')].map((it) => it.innerText)");
    assert_eq!(names, json!(["b"]));
}

#[test]
fn of_20000_lines_in_300_files_only_those_in_view_are_drawn() {
    let scene = Scene::new();
    let id = scene
        .ready("sh seq 300 | xargs -I F sh -c 'seq -f \"line %g of F\" 67 > fF.txt'; write last 1");
    scene.await_supervisor(&id);
    let server = PageServer::start(&scene);
    let browser = Browser::open(&scene, &server, &[]);
    browser.goto(&format!("/sessions/{id}/review"));
    browser.until("document.querySelectorAll('.hunk').length == 301");
    browser.until("document.querySelector('.hunk table tr')");
    let count =
        || browser.script("return document.querySelectorAll('.hunk tr').length").as_u64().unwrap();
    assert!(count() < 5000, "{} lines are drawn at once", count());
    browser.script("document.querySelectorAll('.hunk')[3].scrollIntoView()");
    browser.until("document.querySelectorAll('.hunk')[3].querySelector('table')");
    browser.script("document.querySelectorAll('.hunk')[250].scrollIntoView()");
    browser.until("document.querySelectorAll('.hunk')[250].querySelector('table')");
    assert!(count() < 8000, "{} lines are drawn", count());
}
