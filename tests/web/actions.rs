//! What a user does on the pages beside the usual way: `--open`, all answers to permission requests,
//! checks, the fields of new tasks, the last turn, the next session, undo, stop and resume.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};
use testkit::env::until;

use crate::browser::Browser;
use crate::fixtures::Scene;
use crate::server::PageServer;

/// Returns the sessions of `studio list --all --json`, when there are this many.
fn sessions(scene: &Scene, count: usize) -> Vec<Value> {
    until(&format!("{count} sessions"), || {
        let list = scene.studio(["list", "--all", "--json"]).json();
        let sessions = list["sessions"].as_array()?.clone();
        (sessions.len() == count).then_some(sessions)
    })
}

#[test]
fn open_gives_the_link_to_the_program_that_opens_urls() {
    let mut scene = Scene::new();
    let programs = scene.env.home().join("programs");
    std::fs::create_dir(&programs).unwrap();
    let opener = programs.join("xdg-open");
    std::fs::write(&opener, "#!/bin/sh\nprintf '%s' \"$1\" > \"$HOME/opened\"\n").unwrap();
    std::fs::set_permissions(&opener, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = std::env::var("PATH").unwrap();
    scene.env.set("PATH", format!("{}:{path}", programs.display()));
    let mut server = PageServer::start_with(&scene, &["--open"]);
    let opened = scene.env.home().join("opened");
    server.link = until("the link to be opened", || {
        std::fs::read_to_string(&opened).ok().filter(|link| *link == server.link)
    });
    Browser::open(&scene, &server, &[]).until_text("No sessions yet");
}

#[test]
fn a_permission_is_denied_or_allowed_for_the_rest_of_the_session() {
    let scene = Scene::new();
    let id = scene.exec(["--agent", "talk", "--ask", "ask push; ask push; ask other; write a 1"]);
    scene.await_state(&id, "waiting");
    let server = PageServer::start(&scene);
    let browser = Browser::open(&scene, &server, &[]);
    browser.goto(&format!("/sessions/{id}")).until("document.getElementById('request-1')");
    browser.until_text("Always allow this in this session");
    browser.click("#request-1 form:nth-of-type(2) button").until_text("permission 1 allowed");
    // The second request is the same as the first: the next open one is the third.
    browser.until("document.getElementById('request-3')");
    let open = "[...document.querySelectorAll('.request')].map((it) => it.id)";
    assert_eq!(browser.script(&format!("return {open}")), json!(["request-3"]));
    browser.click("#request-3 form:nth-of-type(3) button").until_text("permission 3 denied");
    browser.until("document.querySelector('h1 .state').innerText == 'ready'");
    let answers = scene.worktree(&id).read("answers.txt");
    assert_eq!(answers, "push: always\npush: always\nother: no\n");
    assert_eq!(scene.worktree(&id).read("a"), "1\n");
}

#[test]
fn checks_run_again_from_the_page() {
    let scene = Scene::new();
    let id = scene.exec(["--agent", "talk", "--check", "test ! -e ../../fails", "write a 1"]);
    scene.await_state(&id, "ready");
    scene.await_supervisor(&id);
    let server = PageServer::start(&scene);
    let browser = Browser::open(&scene, &server, &[]);
    browser.goto(&format!("/sessions/{id}")).until("document.querySelector('#fact-list .good')");
    let before = scene.journal(&id).iter().filter(|line| line["entry"] == "checked").count();
    browser.click(&format!("#check-{id}")).until_text(&format!("{id}: checked"));
    until("the checks to be recorded", || {
        let after = scene.journal(&id).iter().filter(|line| line["entry"] == "checked").count();
        (after > before).then_some(())
    });
    browser.until("document.querySelector('#fact-list .good')?.innerText == 'passed'");
}

#[test]
fn new_tasks_have_agent_attempts_start_and_checks() {
    let scene = Scene::new();
    let first = scene.repo.git(["rev-parse", "HEAD"]).trim().to_owned();
    scene.repo.git(["tag", "start"]);
    scene.repo.commit_file("later.txt", "later\n");
    let server = PageServer::start(&scene);
    let browser = Browser::open(&scene, &server, &[]);
    browser.goto("/new").fill("#tasks", "write a 1");
    browser.fill("#agent", "talk").fill("#attempts", "2").fill("#base", "start");
    browser.fill("#checks", "test -e a\ntest ! -e later.txt");
    browser.click(".start button").until("location.pathname == '/'");
    for session in sessions(&scene, 2) {
        let id = session["id"].as_str().unwrap();
        let status = scene.await_state(id, "ready");
        assert_eq!(status["agent"], "talk");
        assert_eq!(status["base"]["commit"], json!(first), "{status}");
        let checks = status["checks"].as_array().unwrap();
        let checks: Vec<_> = checks.iter().map(|it| (&it["command"], &it["ok"])).collect();
        let passed = json!(true);
        let (one, two) = (json!("test -e a"), json!("test ! -e later.txt"));
        assert_eq!(checks, [(&one, &passed), (&two, &passed)]);
    }
}

#[test]
fn a_persona_is_sent_and_an_invalid_value_keeps_what_was_typed() {
    let scene = Scene::new();
    scene.scripted_g3();
    let server = PageServer::start(&scene);
    let browser = Browser::open(&scene, &server, &[]);
    browser.goto("/new").fill("#tasks", "write a 1").fill("#agent", "fake");
    browser.fill("#persona", "scout").fill("#base", "no-such-branch").fill("#checks", "true");
    let value = |id: &str| browser.script(&format!("return document.getElementById('{id}').value"));
    let typed = || ["tasks", "agent", "persona", "base", "checks"].map(value);
    let before = typed();
    browser.click(".start button").until("document.querySelector('.toast.bad')");
    assert_eq!((browser.script("return location.pathname"), typed()), (json!("/new"), before));
    // The form can be sent again after its values are corrected, one after the other.
    let clear = |id: &str| browser.script(&format!("document.getElementById('{id}').value = ''"));
    clear("base");
    browser.click(".start button").until_text("agent `fake` has no persona `scout`");
    assert_eq!(scene.studio(["list", "--all", "--json"]).json()["sessions"], json!([]));
    clear("agent");
    browser.fill("#agent", "g3").click(".start button").until("location.pathname == '/'");
    let session = sessions(&scene, 1).remove(0);
    assert_eq!((&session["agent"], &session["persona"]), (&json!("g3"), &json!("scout")));
    scene.await_state(session["id"].as_str().unwrap(), "ready");
}

#[test]
fn the_review_has_the_last_turn_and_leads_to_the_next_session() {
    let scene = Scene::new();
    let id = scene.exec(["--agent", "loads", "write a 1"]);
    scene.await_state(&id, "ready");
    scene.await_free(&id);
    scene.studio(["send", &id, "write b 2"]).exits(0);
    until("the second file", || {
        let status = scene.status(&id);
        (status["state"] == "ready" && status["files_changed"] == 2).then_some(())
    });
    scene.await_supervisor(&id);
    let other = scene.ready("write c 3");
    scene.await_supervisor(&other);
    let server = PageServer::start(&scene);
    let browser = Browser::open(&scene, &server, &[]);
    let names = "[...document.querySelectorAll('.hunk h2')].map((it) => it.innerText).sort()";
    let names = || browser.script(&format!("return {names}"));
    browser.goto(&format!("/sessions/{id}/review"));
    browser.until("document.querySelectorAll('.hunk').length == 2");
    assert_eq!(names(), json!(["a", "b"]));
    browser.click(".views a[href*='since=turn']").until("location.search.includes('since=turn')");
    browser.until("document.querySelector(\".views a[aria-current]\")?.innerText == 'last turn'");
    assert_eq!(names(), json!(["b"]));
    browser.press("n").until(&format!("location.pathname == '/sessions/{other}/review'"));
    browser.until("document.querySelector('.hunk')");
    assert_eq!(names(), json!(["c"]));
    // After the newest session comes the oldest.
    browser.click("#next").until(&format!("location.pathname == '/sessions/{id}/review'"));
}

#[test]
fn a_landing_is_undone_from_the_message_on_the_next_page() {
    let scene = Scene::new();
    let id = scene.ready("write a 1");
    scene.await_supervisor(&id);
    let head = scene.repo.git(["rev-parse", "main"]);
    let server = PageServer::start(&scene);
    let browser = Browser::open(&scene, &server, &[]);
    browser.goto(&format!("/sessions/{id}/review")).until("document.querySelector('.hunk table')");
    // Keys that follow each other fast: the hunk is accepted before it lands.
    browser.press("al").until(&format!("location.pathname == '/sessions/{id}'"));
    browser.until_text("landed on main as");
    assert_ne!(scene.repo.git(["rev-parse", "main"]), head);
    browser.until("document.querySelector('.toast button')?.innerText == 'Undo'");
    browser.click(".toast button").until_text("is undone");
    assert_eq!(scene.repo.git(["rev-parse", "main"]), head);
    scene.await_state(&id, "ready");
    browser.until("document.querySelector('h1 .state').innerText == 'ready'");
}

#[test]
fn a_session_is_stopped_and_resumed_from_the_board() {
    let scene = Scene::new();
    let id = scene.exec(["--agent", "talk", "gate open; write a 1"]);
    scene.await_state(&id, "working");
    let server = PageServer::start(&scene);
    let browser = Browser::open(&scene, &server, &[]);
    let state = format!("document.querySelector('#row-{id} .state')?.innerText");
    browser.until(&format!("{state} == 'working'")).click(&format!("#stop-{id}"));
    browser.until(&format!("{state} == 'stopped'"));
    scene.await_state(&id, "stopped");
    scene.await_free(&id);
    browser.until(&format!("document.getElementById('resume-{id}')"));
    browser.click(&format!("#resume-{id}")).until(&format!("{state} == 'working'"));
    scene.worktree(&id).write("open", "");
    browser.until(&format!("{state} == 'ready'"));
    assert_eq!(scene.worktree(&id).read("a"), "1\n");
}

#[test]
fn lines_that_another_session_changes_are_marked_in_the_review() {
    let scene = Scene::new();
    scene.repo.commit_file("f.txt", "one\ntwo\nthree\nfour\nfive\n");
    let id = scene.ready("sh sed -i s/two/zwei/ f.txt; sh sed -i s/five/cinq/ f.txt");
    let other = scene.ready("sh sed -i s/two/deux/ f.txt");
    let server = PageServer::start(&scene);
    let browser = Browser::open(&scene, &server, &[]);
    browser.goto(&format!("/sessions/{id}/review")).until("document.querySelector('.shared')");
    let marked = browser.script(
        "return [...document.querySelectorAll('tr:has(.shared)')].map((it) => [it.className, \
         it.querySelector('.code').innerText, it.querySelector('.shared').title])",
    );
    let title = format!("also changed by {other}");
    assert_eq!(marked, json!([["removed", "two", title], ["added", "zwei", title]]));
}
