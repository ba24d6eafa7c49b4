//! Conflicts of a session: the lines of both sides, whatever they contain.

use serde_json::json;

use crate::browser::Browser;
use crate::fixtures::{RESOLVES, Scene};
use crate::server::PageServer;

/// What would run if the page did not escape it.
const SCRIPT: &str = "<img src=x onerror=window.ran=1>";

#[test]
fn a_conflict_goes_to_the_agent_with_one_button_and_then_lands() {
    let scene = Scene::new();
    let id = scene.ready(RESOLVES);
    scene.await_free(&id);
    scene.repo.commit_file("shared", "of the branch\n");
    let server = PageServer::start(&scene);
    let browser = Browser::open(&scene, &server, &[]);
    browser.goto(&format!("/sessions/{id}")).until_text("Conflicts with its branch");
    browser.click("#branch-conflicts button").until_text("landed on main as");
    assert_eq!(scene.repo.read("shared"), "resolved\n");
    let turns = scene.journal(&id).iter().filter(|line| line["entry"] == "turn").count();
    assert_eq!(turns, 2, "the task and one turn");
    browser.until("!document.getElementById('branch-conflicts')");
}

#[test]
fn an_agent_that_cannot_resolve_a_conflict_keeps_its_work_and_the_page_says_so() {
    let scene = Scene::new();
    let id = scene.ready("write shared mine");
    scene.await_free(&id);
    scene.repo.commit_file("shared", "theirs\n");
    let server = PageServer::start(&scene);
    let browser = Browser::open(&scene, &server, &[]);
    browser.goto(&format!("/sessions/{id}")).until_text("Conflicts with its branch");
    browser.click("#branch-conflicts button").until("document.querySelector('.toast.bad')");
    scene.await_state(&id, "ready");
    assert_eq!(scene.worktree(&id).read("shared"), "mine\n");
    assert_eq!(scene.repo.read("shared"), "theirs\n");
    browser.until("document.getElementById('branch-conflicts')");
}

#[test]
fn the_lines_of_both_sides_of_a_conflict_are_shown() {
    let scene = Scene::new();
    let first = scene.ready(&format!("write same {SCRIPT}"));
    let second = scene.ready("write same theirs");
    let alone = scene.ready("write other 1");
    [&first, &second, &alone].into_iter().for_each(|id| scene.await_free(id));
    let server = PageServer::start(&scene);
    let browser = Browser::open(&scene, &server, &[]);
    browser.goto(&format!("/sessions/{first}")).until_text("Changes the same lines as");
    browser.click("#session-conflicts a[href$='/conflicts']");
    browser.until_text(&format!("{first} and {second}"));
    let side = |class: &str| {
        let lines = format!("[...document.querySelectorAll('.sides .{class}')]");
        browser.script(&format!("return {lines}.map((it) => it.textContent.trim()).join()"))
    };
    assert_eq!((side("ours"), side("theirs")), (json!(SCRIPT), json!("theirs")));
    assert_eq!(browser.script("return window.ran ?? 0"), json!(0));
    browser.goto(&format!("/sessions/{alone}/conflicts")).until_text("conflicts with no other");
    // The branch gets the same lines: now the branch is the other side.
    scene.repo.commit_file("same", "of the branch\n");
    browser.goto(&format!("/sessions/{second}/conflicts"));
    browser.until_text(&format!("{second} and main")).until_text("of the branch");
    browser.goto("/sessions/no-such-abcd/conflicts").until_text("no such session");
}
