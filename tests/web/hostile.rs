//! Hostile text: tasks, file names, lines, messages and words of agents are shown and never run.

use crate::browser::Browser;
use crate::fixtures::Scene;
use crate::server::PageServer;

/// What would run if a page did not escape it.
const SCRIPT: &str = "<img src=x onerror=window.ran=1><script>window.ran=1</script>";

#[test]
fn no_text_of_a_session_runs_in_a_page() {
    let scene = Scene::new();
    let steps = format!(
        "say {SCRIPT}; write \"onmouseover=window.ran=1//.html {SCRIPT}; \
         sh printf '%s' '{SCRIPT}' > '<img src=x onerror=window.ran=1>.js'; \
         commit {SCRIPT}; write other 1"
    );
    let id =
        scene.exec(["--agent", "talk", "--check", &format!("echo '{SCRIPT}' >&2; false"), &steps]);
    let failed = testkit::env::until("the session to fail", || {
        let status = scene.status(&id);
        (status["state"] == "failed").then_some(status)
    });
    assert!(failed["task"].as_str().unwrap().contains(SCRIPT));
    let server = PageServer::start(&scene);
    let browser = Browser::open(&scene, &server, &[]);
    let session = format!("/sessions/{id}");
    let pages = [
        "/".to_owned(),
        format!("/?q={}", SCRIPT.replace('<', "%3C").replace('>', "%3E").replace(' ', "+")),
        session.clone(),
        format!("{session}?all=true"),
        format!("{session}/review"),
        format!("{session}/review?view=split"),
        "/operations".to_owned(),
        "/sessions/%3Cscript%3Ealert(1)%3C%2Fscript%3E".to_owned(),
    ];
    for page in &pages {
        browser.goto(page);
        browser.until("document.readyState == 'complete'");
        let found = browser.script(
            "return [window.ran ?? 0, document.querySelectorAll('main img, main script, main [onerror], main [onmouseover]').length, window.blocked.length]",
        );
        assert_eq!(found, serde_json::json!([0, 0, 0]), "{page}");
    }
    // It was shown: the test would miss nothing otherwise.
    browser.goto(&session).until_text(SCRIPT);
    browser
        .goto(&format!("{session}/review"))
        .until("document.querySelectorAll('.hunk table').length >= 3");
    browser.until_text("<img src=x onerror=window.ran=1>.js");
    browser.until_text(SCRIPT);
    // A toast has the text of a failure.
    browser.script(&format!("toast({SCRIPT:?}, true)"));
    browser.until_text(SCRIPT);
    assert_eq!(browser.script("return window.ran ?? 0"), 0);
    let (code, text) = server.interrupt();
    assert_eq!(code, 0);
    assert!(!text.contains("blocked"), "{text}");
}

#[test]
fn a_script_that_is_in_a_page_is_blocked_and_reported() {
    let scene = Scene::new();
    let server = PageServer::start(&scene);
    let browser = Browser::open(&scene, &server, &[]);
    browser.goto("/");
    browser.script(
        "const it = document.createElement('script'); it.textContent = 'window.ran = 1'; document.body.append(it);\
         const image = document.createElement('img'); image.setAttribute('onerror', 'window.ran = 1'); image.src = '/no-such-page'; document.body.append(image);",
    );
    browser.until("window.blocked.length >= 2");
    assert_eq!(browser.script("return window.ran ?? 0"), 0);
    let reports = testkit::env::poll(|| Some(())).map(|()| server.interrupt().1).unwrap();
    assert!(reports.contains("a browser blocked a part of a page"), "{reports}");
}
