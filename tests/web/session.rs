//! The page of a session: what happened, words for the agent, permissions, and every action.

use crate::browser::Browser;
use crate::fixtures::Scene;
use crate::server::PageServer;

#[test]
fn a_session_is_led_from_its_page() {
    let scene = Scene::new();
    let id = scene.exec(["--agent", "talk", "--ask", "ask rm -rf one; gate open; write a 1"]);
    scene.await_state(&id, "waiting");
    let server = PageServer::start(&scene);
    let browser = Browser::open(&scene, &server, &[]);
    browser.goto(&format!("/sessions/{id}")).until_text("asks for permission 1");
    browser.until("document.querySelector('.request pre').innerText.includes('rm -rf one')");
    // A message that is being written survives what happens around it.
    browser.fill("#message", "go on; write said yes");
    browser.click(".request form:nth-of-type(1) button");
    browser.until_text("permission 1 allowed");
    browser.until("!document.querySelector('.request')");
    let kept = browser.script("return document.getElementById('message').value");
    assert_eq!(kept, "go on; write said yes");
    browser.click("#message").press_control_enter().until_text("message sent");
    browser.picture("session");
    browser.click(&format!("#stop-{id}")).until_text("stopped");
    scene.await_state(&id, "stopped");
    scene.await_free(&id);
    browser.until(&format!("document.getElementById('resume-{id}')"));
    scene.worktree(&id).write("open", "");
    browser.click(&format!("#resume-{id}")).until_text("resumed");
    // The script of the agent starts again: it asks again.
    browser.until("document.querySelector('.request')");
    browser
        .click(".request form:nth-of-type(1) button")
        .until("!document.querySelector('.request')");
    testkit::env::until("the message to be carried out", || {
        (scene.status(&id)["state"] == "ready" && scene.worktree(&id).path().join("said").exists())
            .then_some(())
    });
    assert_eq!(scene.worktree(&id).read("said"), "yes\n");
    scene.await_supervisor(&id);
    browser.until("document.querySelector('.state').innerText == 'ready'");
    // A discard is undone from the message about it.
    browser.click(&format!("#discard-{id}")).until_text("discarded");
    scene.await_state(&id, "discarded");
    browser.until("document.querySelector('.toast:last-child button')?.innerText == 'Undo'");
    browser.click(".toast:last-child button").until_text("is undone");
    scene.await_state(&id, "ready");
    // The work lands with an own message, and the receipt says where.
    browser.goto(&format!("/sessions/{id}")).until("document.getElementById('land')");
    browser.script("document.getElementById('commit-message').value = ''");
    browser.fill("#commit-message", "Add two files");
    browser.click("#land button").until_text("landed on main as");
    assert_eq!(scene.repo.git(["log", "-1", "--format=%s", "main"]).trim(), "Add two files");
    browser.goto("/operations").until_text("accept").picture("operations");
    browser.click("li:first-child form button").until_text("is undone");
    scene.await_state(&id, "ready");
}

#[test]
fn a_page_continues_after_the_server_was_killed_and_started_again() {
    let scene = Scene::new();
    let id = scene.exec(["--agent", "talk", "gate open; write a 1"]);
    scene.await_state(&id, "working");
    let server = PageServer::start(&scene);
    let port = server.port();
    let browser = Browser::open(&scene, &server, &[]);
    browser.goto(&format!("/sessions/{id}")).until_text("working");
    server.kill();
    browser.until_text("The server does not answer");
    // While no server runs, the session goes on.
    scene.worktree(&id).write("open", "");
    scene.await_state(&id, "ready");
    let server = PageServer::start_at(&scene, port);
    // The cookie of the old server is worth nothing; another window opens the new link.
    let answer = server.raw("GET", "/", &[("Host", &server.host.clone())], "");
    assert_eq!(answer.status, 401);
    browser.log_in_in_another_window(&server);
    browser.until("document.querySelector('h1 .state')?.innerText == 'ready'");
}
