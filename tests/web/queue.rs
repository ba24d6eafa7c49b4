//! The landing queue: started on its page and in a terminal, watched in every window.

use serde_json::json;
use testkit::env::until;

use crate::api;
use crate::browser::Browser;
use crate::fixtures::Scene;
use crate::server::PageServer;

/// What would run if the page did not escape the line of a check.
const HOSTILE_CHECK: &str = "true '<img src=x onerror=window.ran=1>'";

/// True in the worktrees of sessions, which have a branch; check worktrees have a detached HEAD.
const IN_SESSION: &str = "git symbolic-ref -q HEAD >/dev/null";

/// Configures a check that waits for a file unless a condition of the shell is true. Returns the
/// function that lets it go on.
fn gate(scene: &Scene, condition: &str) -> impl Fn() {
    let directory = scene.env.home().join("gate");
    std::fs::create_dir(&directory).expect("the home is writable");
    let open = directory.join("open");
    let wait = format!("while [ ! -e {} ]; do sleep 0.05; done", open.display());
    let line = format!("{condition} || {wait}");
    let checks = format!("checks = [{line:?}, {HOSTILE_CHECK:?}]");
    scene.configure(&format!("{checks}\n[sandbox]\nwrite = [{:?}]", directory.display()));
    move || std::fs::write(&open, "").expect("the home is writable")
}

fn state_of(id: &str) -> String {
    format!("document.querySelector('#queued-{id} .state')?.innerText")
}

#[test]
fn the_queue_is_started_on_its_page_and_followed_in_every_window() {
    let scene = Scene::new();
    let open = gate(&scene, IN_SESSION);
    let good = scene.ready("write a 1");
    let clashing = [scene.ready("write same 1"), scene.ready("write same 2")];
    let mut server = PageServer::start(&scene);
    let first = Browser::open(&scene, &server, &[]);
    server.log_in_again();
    let second = Browser::open(&scene, &server, &[]);
    for browser in [&first, &second] {
        browser.goto("/queue").until_text("no queue has run yet").until_text(&good);
    }
    first.click("#land-all");
    for browser in [&first, &second] {
        browser.until_text("the queue has been running");
        browser.until_text("checking `git symbolic-ref").until_text(HOSTILE_CHECK);
        browser.until_text("0 of 3 sessions are settled");
        assert_eq!(browser.script("return !!document.querySelector('#land-all')"), json!(false));
    }
    first.picture("queue");
    open();
    for browser in [&first, &second] {
        browser.until(&format!("{} == 'landed'", state_of(&good)));
        browser.until_text("refused: ").until_text("conflict").until_text("the last queue began");
        assert_eq!(browser.script("return window.ran ?? 0"), json!(0));
    }
    let states = clashing.each_ref().map(|id| first.script(&format!("return {}", state_of(id))));
    assert!(states.contains(&json!("landed")) && states.contains(&json!("refused")), "{states:?}");
    second.click("main a[href='/operations']");
    second.until_text("accept");
}

#[test]
fn a_queue_of_a_terminal_is_shown_and_a_killed_one_is_not_shown_as_running() {
    let scene = Scene::new();
    let open = gate(&scene, IN_SESSION);
    let id = scene.ready("write a 1");
    let mut server = PageServer::start(&scene);
    let browser = Browser::open(&scene, &server, &[]);
    server.log_in_again().log_in();
    browser.goto("/queue").until_text(&id);
    let args = ["accept", "--all"];
    let mut running = scene.env.start(crate::fixtures::studio(), scene.repo.path(), args);
    browser.until_text("checking `git symbolic-ref");
    let process = rustix::process::Pid::from_raw(running.id().cast_signed()).expect("a process");
    rustix::process::kill_process(process, rustix::process::Signal::KILL).expect("it runs");
    until("the queue to end", || running.wait_until(None).ok().flatten());
    browser.until_text("was killed").until(&format!("{} == 'waiting'", state_of(&id)));
    let answer = server.get("/api/v1/queue").is(200).json();
    assert_eq!((&answer["state"], &answer["ready"]), (&json!("interrupted"), &json!([id])));
    let document = server.get("/api/v1/openapi.json").is(200).json();
    api::check_answer(&document, "get", "/api/v1/queue", &answer);
    open();
    browser.click("#land-all");
    browser.until(&format!("{} == 'landed'", state_of(&id)));
    assert_eq!(scene.repo.read("a"), "1\n");
}

#[test]
fn the_queue_shows_its_order_before_and_a_failed_check_while_it_runs() {
    let scene = Scene::new();
    scene.configure("checks = \"test ! -e alone || test ! -e two\"");
    // It conflicts with two others, and comes last; the one without conflicts comes first.
    let hub = scene.ready("write one 1; write two 1");
    let [first, second] = [scene.ready("write one 2"), scene.ready("write two 2")];
    let alone = scene.ready("write alone 1");
    [&hub, &first, &second, &alone].into_iter().for_each(|id| scene.await_free(id));
    let server = PageServer::start(&scene);
    let browser = Browser::open(&scene, &server, &[]);
    browser.goto("/queue").until("document.querySelectorAll('#ready li').length == 4");
    let order = "[...document.querySelectorAll('#ready li')].map((it) => it.innerText).join()";
    let order = browser.script(&format!("return {order}"));
    let expected = [&alone, &first, &second, &hub].map(String::as_str).join(",");
    assert_eq!(order, json!(expected));
    browser.click("#land-all");
    for id in [&alone, &first] {
        browser.until(&format!("{} == 'landed'", state_of(id)));
    }
    for (id, reason) in [(&second, "test ! -e alone || test ! -e two"), (&hub, "conflict")] {
        browser.until(&format!("{} == 'refused'", state_of(id)));
        let line = format!("document.getElementById('queued-{id}').innerText");
        browser.until(&format!("{line}.includes('{reason}')"));
    }
    let order = "[...document.querySelectorAll('.queue li a')].map((it) => it.innerText).join()";
    assert_eq!(browser.script(&format!("return {order}")), json!(expected));
}

#[test]
fn a_queue_that_is_killed_between_two_landings_goes_on_from_its_page() {
    let scene = Scene::new();
    // The merged tree with both files waits.
    let open = gate(&scene, "[ ! -e b ] || [ ! -e c ]");
    let ids = [scene.ready("write b 1"), scene.ready("write c 1")];
    ids.iter().for_each(|id| scene.await_free(id));
    let server = PageServer::start(&scene);
    let browser = Browser::open(&scene, &server, &[]);
    browser.goto("/queue").until_text(&ids[1]);
    let args = ["accept", "--all"];
    let mut running = scene.env.start(crate::fixtures::studio(), scene.repo.path(), args);
    browser.until(&format!("{} == 'landed'", state_of(&ids[0])));
    let process = rustix::process::Pid::from_raw(running.id().cast_signed()).expect("a process");
    rustix::process::kill_process(process, rustix::process::Signal::KILL).expect("it runs");
    until("the queue to end", || running.wait_until(None).ok().flatten());
    browser.until_text("was killed");
    browser.until(&format!("{} == 'landed'", state_of(&ids[0])));
    browser.until(&format!("{} == 'waiting'", state_of(&ids[1])));
    open();
    browser.click("#land-all").until(&format!("{} == 'landed'", state_of(&ids[1])));
    assert_eq!((scene.repo.read("b"), scene.repo.read("c")), ("1\n".to_owned(), "1\n".to_owned()));
    scene.repo.is_sound();
}
