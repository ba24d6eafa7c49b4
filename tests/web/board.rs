//! The board: sessions by state, live, with a filter, and new tasks.

use serde_json::json;
use testkit::env::until;

use crate::browser::Browser;
use crate::fixtures::Scene;
use crate::server::PageServer;

#[test]
fn the_board_shows_first_who_needs_somebody_and_follows_changes_in_every_window() {
    let scene = Scene::new();
    let ready = scene.ready("write a 1");
    let asking = scene.exec(["--agent", "talk", "--ask", "ask rm -rf one"]);
    scene.await_state(&asking, "waiting");
    let working = scene.exec(["--agent", "talk", "gate open; write b 1"]);
    scene.await_state(&working, "working");
    let mut server = PageServer::start(&scene);
    server.log_in();
    let page = server.get("/").is(200).body;
    let at = |id: &str| page.find(&format!("row-{id}")).unwrap_or_else(|| panic!("{id}: {page}"));
    assert!(at(&asking) < at(&working) && at(&working) < at(&ready), "{page}");
    // The links of two browsers: the first was used.
    let mut second = PageServer::start(&scene);
    let first = Browser::open(&scene, &second, &[]);
    second.log_in_again();
    let other = Browser::open(&scene, &second, &[]);
    for browser in [&first, &other] {
        browser.goto("/").until_text("rm -rf one");
        assert!(browser.text().contains("needs you") || browser.text().contains("NEEDS YOU"));
    }
    first.picture("board");
    // The element stays: nothing is drawn again that did not change.
    other.script(&format!("document.getElementById('row-{ready}').mine = 'yes'"));
    first.click(&format!("#row-{working} button"));
    first.until_text("stopped");
    scene.await_state(&working, "stopped");
    other.until(&format!("document.querySelector('#row-{working} .state').innerText == 'stopped'"));
    scene.studio(["answer", &asking, "allow"]).exits(0);
    for browser in [&first, &other] {
        browser.until(&format!(
            "document.querySelector('#row-{asking} .state')?.innerText == 'ready'"
        ));
    }
    let kept = other.script(&format!("return document.getElementById('row-{ready}').mine"));
    assert_eq!(kept, json!("yes"));
    // The filter is the one of the dashboard, and its address can be kept.
    other.fill("#q", "write b");
    other.until(&format!("!document.getElementById('row-{ready}')"));
    assert!(other.text().contains("write b 1"));
    assert!(other.script("return location.search").as_str().unwrap().contains("write%20b"));
    other.goto("/?q=nothing-has-this").until_text("No session matches");
}

#[test]
fn several_tasks_start_at_once_from_the_keyboard() {
    let scene = Scene::new();
    let server = PageServer::start(&scene);
    let browser = Browser::open(&scene, &server, &[]);
    browser.goto("/new");
    // The focus is in the text of the tasks.
    browser.press("write a 1; sh true\n---\nwrite b 2\n").picture("new-tasks");
    browser.fill("#checks", "test -d .");
    browser.click("#tasks").press_control_enter();
    browser.until("location.pathname == '/'");
    let ids = until("two sessions", || {
        let list = scene.studio(["list", "--json"]).json();
        let sessions = list["sessions"].as_array()?.clone();
        (sessions.len() == 2).then_some(sessions)
    });
    for session in ids {
        let id = session["id"].as_str().unwrap();
        let status = scene.await_state(id, "ready");
        assert_eq!(status["checks"][0]["command"], "test -d .");
    }
    browser.until("document.querySelectorAll('.state.good').length == 2");
}
