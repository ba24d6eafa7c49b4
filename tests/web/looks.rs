//! How the pages look: they fit narrow and wide windows, and follow the colours of the system.

use crate::browser::Browser;
use crate::fixtures::Scene;
use crate::server::PageServer;

#[test]
fn pages_fit_narrow_and_wide_windows_in_light_and_dark() {
    let scene = Scene::new();
    scene.repo.commit_file(
        "src/limit.rs",
        "/// The limit.\npub fn limit(a: u32) -> u32 {\n    a.max(1)\n}\n",
    );
    let long =
        "document-the-longest-word-of-all-words-that-has-no-space-at-all-and-goes-on ".repeat(3);
    let id = scene.exec([
        "--agent",
        "talk",
        "--check",
        "true",
        &format!(
            "sh printf '/// The limit.\\npub fn limit(a: u32) -> u32 {{\\n    a.max(2) // why not\\n}}\\n' > src/limit.rs; write notes.txt {long}; say I raised the limit."
        ),
    ]);
    scene.await_state(&id, "ready");
    scene.await_supervisor(&id);
    let asking = scene.exec(["--agent", "talk", "--ask", "ask rm -rf target"]);
    scene.await_state(&asking, "waiting");
    let other = scene.ready("write notes.txt the same file");
    scene.await_supervisor(&other);
    let mut server = PageServer::start(&scene);
    for (name, flags) in [("light", &[][..]), ("dark", &["--force-dark-mode"][..])] {
        let browser = Browser::open(&scene, &server, flags);
        server.log_in_again();
        let is_dark = browser.script("return matchMedia('(prefers-color-scheme: dark)').matches");
        assert_eq!(is_dark, name == "dark");
        for (width, height) in [(360, 740), (1280, 900), (2560, 1300)] {
            browser.resize(width, height);
            for (page, path) in [
                ("board", "/".to_owned()),
                ("new", "/new".to_owned()),
                ("session", format!("/sessions/{id}")),
                ("request", format!("/sessions/{asking}")),
                ("review", format!("/sessions/{id}/review")),
                ("conflicts", format!("/sessions/{id}/conflicts")),
                ("queue", "/queue".to_owned()),
                ("operations", "/operations".to_owned()),
            ] {
                browser.goto(&path).until("document.querySelector('h1')");
                if page == "review" {
                    browser.until("document.querySelectorAll('.hunk table').length == 2");
                    browser.press("j");
                }
                browser.picture(&format!("{page}-{name}-{width}"));
                let size = "[document.documentElement.scrollWidth, innerWidth]";
                let size = browser.script(&format!("return {size}"));
                assert!(size[0].as_u64() <= size[1].as_u64(), "{page} at {width}: {size}");
            }
        }
    }
}
