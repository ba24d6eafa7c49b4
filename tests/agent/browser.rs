//! Tests of the browser tools, called in separate processes, with a real browser.

use std::path::PathBuf;

use base64::Engine as _;
use serde_json::{Value, json};
use testkit::env::until;

use crate::browser_support::{Ends, allow, need_a_browser, record, shop, until_gone};
use crate::tools_support::{Bench, Called};
use crate::web_support::Site;

/// A bench whose browser stops with the test.
struct BrowserScene {
    _ends: Ends,
    bench: Bench,
    site: Site,
    session: PathBuf,
}

impl BrowserScene {
    fn new(profile: &'static str) -> BrowserScene {
        let mut bench = Bench::new(profile);
        bench.env.set("G3_BROWSER_IDLE", 100);
        let session = bench.session();
        BrowserScene { bench, site: shop(), _ends: Ends(session.clone()), session }
    }

    fn call(&self, name: &str, args: Value) -> Called {
        self.bench.call(name, args)
    }

    /// Calls `execute_browser` and returns its result.
    fn act(&self, action: &str, params: Value) -> Value {
        self.acted(json!({ "action": action, "params": params }))
    }

    fn acted(&self, args: Value) -> Value {
        let called = self.call("execute_browser", args.clone());
        let told: Value = serde_json::from_str(&called.text).unwrap();
        assert_eq!(told, called.metadata);
        assert_eq!(called.ok, told["status"] == "success", "{args}: {called:?}");
        for key in ["status", "content", "tab_id", "duration_ms", "voice_message"] {
            assert!(told.get(key).is_some(), "no {key} in {told}");
        }
        told
    }

    fn paths(&self) -> Vec<String> {
        self.site.asked().into_iter().map(|asked| asked.path).collect()
    }

    /// Returns the ref of the element of this name in the last snapshot.
    fn named(seen: &Value, name: &str) -> String {
        let nodes = seen["content"]["nodes"].as_array().unwrap();
        let found = nodes.iter().find(|node| node["name"] == name);
        found.unwrap_or_else(|| panic!("no {name} in {seen}"))["ref"].as_str().unwrap().to_owned()
    }
}

#[test]
fn a_browser_is_controlled_by_selectors_across_calls() {
    let desk = BrowserScene::new("g3");
    let call = |name: &str, args: Value| desk.call(name, args);
    let none = json!({});
    call("webdriver_get_url", none.clone()).says("call webdriver_start first").fails("not_found");
    call("webdriver_quit", none.clone()).says("no browser is running").works();
    call("webdriver_start", none.clone()).says("headless").works();
    let first = record(&desk.session).unwrap();
    call("webdriver_start", none.clone()).says("runs already").works();
    assert_eq!(record(&desk.session).unwrap(), first, "there is one browser");

    let url = desk.site.url("/");
    call("webdriver_navigate", json!({ "url": url })).says("title: Shop").says(&url).works();
    assert_eq!(call("webdriver_get_title", none.clone()).works(), "Shop");
    assert_eq!(call("webdriver_get_url", none.clone()).works(), url);
    call("webdriver_find_element", json!({ "selector": "#name" }))
        .says("<input id=\"name\" name=\"name\"> textbox value=\"old\"")
        .works();
    call("webdriver_find_element", json!({ "selector": "#nothing" }))
        .says("no element fits `#nothing`")
        .fails("not_found");
    call("webdriver_find_element", json!({ "selector": "[[" })).fails("validation");
    let all = call("webdriver_find_elements", json!({ "selector": "button" }));
    all.says("4 elements fit").says("button \"Buy now\"").says("(cannot be seen)").works();

    let name = |args: Value| call("webdriver_send_keys", args);
    let value = || {
        call(
            "webdriver_execute_script",
            json!({ "script": "return window['name'] + document.getElementById('name').value" }),
        )
    };
    name(json!({ "selector": "#name", "text": "Zo", "clear_first": true }))
        .says("2 characters")
        .works();
    name(json!({ "selector": "#name", "text": "ë", "clear_first": false })).works();
    assert_eq!(value().works(), "\"Zoë\"");
    name(json!({ "selector": "select", "text": "blue" })).works();
    name(json!({ "selector": "select", "text": "green" }))
        .says("only: \"red\", \"blue\"")
        .fails("validation");
    call("webdriver_click", json!({ "selector": "[name=fast]" }))
        .says("the page is the same")
        .works();
    call("webdriver_click", json!({ "selector": "#buy" })).works();
    // On a busy machine, the form is submitted only after the click has returned.
    until("the page after the form", || {
        let title = json!({ "script": "return document.title" });
        call("webdriver_execute_script", title).text.contains("Bought").then_some(())
    });
    assert!(desk.paths().contains(&"/bought?name=Zo%C3%AB&colour=b&fast=1".to_owned()));

    call("webdriver_back", none.clone()).says("title: Shop").works();
    call("webdriver_forward", none.clone()).says("title: Bought").works();
    let bought = || desk.paths().iter().filter(|path| path.starts_with("/bought")).count();
    let asked = bought();
    call("webdriver_refresh", none.clone()).says("title: Bought").works();
    assert_eq!(bought(), asked + 1);
    call("webdriver_quit", none.clone()).works();
    until_gone(&desk.session, &first);
    call("webdriver_get_url", none).fails("not_found");
}

#[test]
fn scripts_return_json_and_pages_are_truncated_with_a_note() {
    let desk = BrowserScene::new("g3");
    desk.call("webdriver_start", json!({})).works();
    desk.call("webdriver_navigate", json!({ "url": desk.site.url("/long") })).works();
    let script = |text: &str| desk.call("webdriver_execute_script", json!({ "script": text }));
    let told = script("return { a: [1, 'ä', document.body], b: null }");
    assert_eq!(
        serde_json::from_str::<Value>(told.works()).unwrap(),
        json!({ "a": [1, "ä", "[element]"], "b": null })
    );
    assert_eq!(script("return Promise.resolve(7)").works(), "7");
    assert_eq!(script("document.title = 'Mine'").works(), "null");
    script("throw new Error('no such thing')").says("no such thing").fails("failed");
    assert_eq!(desk.call("webdriver_get_title", json!({})).works(), "Mine");

    let source = |args: Value| desk.call("webdriver_get_page_source", args);
    let cut = source(json!({}));
    let shown = cut.says("more characters are not shown").works();
    assert_eq!(shown.chars().take(10_000).filter(|c| *c == 'ä').count(), 1);
    assert_eq!(shown.lines().next_back().unwrap().chars().next(), Some('['));
    let whole = source(json!({ "max_length": 0 }));
    assert!(whole.works().ends_with("</html>") && !whole.text.contains("not shown"));
    source(json!({ "save_to_file": "kept/page.html" })).says("wrote").works();
    assert_eq!(desk.bench.read("kept/page.html"), whole.text);
    source(json!({ "save_to_file": "../out.html" })).fails("denied");

    let taken = desk.call("webdriver_screenshot", json!({ "path": "shots/a.png" }));
    taken.says("shots/a.png").works();
    let bytes = std::fs::read(desk.bench.at("shots/a.png")).unwrap();
    assert!(bytes.starts_with(b"\x89PNG\r\n\x1a\n"));
    let picture = image::load_from_memory(&bytes).unwrap();
    assert!(picture.width() >= 1000 && picture.height() >= 500);
    let sent = &taken.images[0];
    let data = base64::engine::general_purpose::STANDARD.decode(sent["data"].as_str().unwrap());
    assert_eq!((sent["media_type"].as_str().unwrap(), data.unwrap()), ("image/png", bytes));
    desk.call("webdriver_screenshot", json!({ "path": "../out.png" })).fails("denied");
}

#[test]
fn refs_persist_across_calls_and_stale_ones_are_rejected() {
    let desk = BrowserScene::new("core");
    let failed = |told: &Value, words: &str| {
        assert_eq!(told["status"], "error");
        assert!(told["message"].as_str().unwrap().contains(words), "{told}");
    };
    failed(&desk.act("snapshot", json!({})), "no tab is open");
    let opened = desk.acted(json!({ "action": "navigate", "url": desk.site.url("/") }));
    assert_eq!(opened["content"], json!({ "url": desk.site.url("/"), "title": "Shop" }));
    let tab = opened["tab_id"].clone();

    let seen = desk.act("snapshot", json!({}));
    let (content, nodes) = (&seen["content"], seen["content"]["nodes"].as_array().unwrap());
    assert_eq!(
        (content["title"].as_str(), content["count"].as_u64()),
        (Some("Shop"), Some(nodes.len() as u64))
    );
    assert_eq!(nodes[0], json!({ "ref": "e0", "role": "heading", "name": "Hello", "level": 1 }));
    let has =
        |role: &str, name: &str| nodes.iter().any(|it| it["role"] == role && it["name"] == name);
    assert!(has("navigation", "Pages") && has("textbox", "Name") && has("combobox", "Colour"));
    assert!(has("paragraph", "nothing yet") && has("button", "Buy now") && has("button", "Gift"));
    assert!(!has("button", "Hidden"), "what cannot be seen is not there");
    let seen = desk.act("snapshot", json!({ "interactive_only": true }));
    let few = seen["content"]["nodes"].as_array().unwrap();
    assert!(few.len() < nodes.len() && few.iter().all(|it| it["role"] != "paragraph"));

    let name = BrowserScene::named(&seen, "Name");
    desk.act("fill", json!({ "ref": name, "value": "Zoë" }));
    desk.act("click", json!({ "ref": format!("[{}]", BrowserScene::named(&seen, "Fast")) }));
    failed(&desk.act("click", json!({ "ref": "e99" })), "take a new snapshot");
    failed(&desk.act("click", json!({})), "need `ref`");
    failed(&desk.act("fill", json!({ "ref": name })), "needs `value`");
    failed(&desk.act("press", json!({ "key": "Hyper" })), "unknown key `Hyper`");
    let buy = BrowserScene::named(&seen, "Buy now");
    failed(&desk.act("fill", json!({ "ref": buy, "value": "x" })), "takes no text: click it");
    let away = BrowserScene::named(&seen, "Go away");
    assert_eq!(desk.act("click", json!({ "ref": away }))["status"], "success");
    failed(&desk.act("click", json!({ "ref": away })), "stale");
    desk.act("press", json!({ "ref": name, "key": "Enter" }));
    // The key press returns before the browser has loaded the page of the form.
    let sent = "/bought?name=Zo%C3%AB&colour=r&fast=1".to_owned();
    until("the form to be sent", || desk.paths().contains(&sent).then_some(()));
    until("the reference to be stale", || {
        let filled = desk.act("fill", json!({ "ref": name, "value": "x" }));
        filled.to_string().contains("stale").then_some(())
    });
    assert_eq!(desk.act("extract_text", json!({}))["content"], "Bought\n\nThank you");

    let second = desk.acted(json!({ "action": "open_tab", "url": desk.site.url("/long") }));
    assert_ne!(second["tab_id"], tab);
    let text = desk.act("extract_text", json!({}));
    let text = text["content"].as_str().unwrap();
    assert!(text.chars().count() < 3_300 && text.ends_with("more characters are not shown]"));
    desk.act("close_tab", json!({}));
    let back = desk.act("extract_text", json!({}));
    assert_eq!((&back["content"], &back["tab_id"]), (&json!("Bought\n\nThank you"), &tab));
    desk.act("close_tab", json!({}));
    failed(&desk.act("extract_text", json!({})), "no tab is open");
    let opened = desk.acted(json!({ "action": "navigate", "url": desk.site.url("/two") }));
    assert_eq!(opened["content"]["title"], "Two");
    // Both interfaces control the same browser.
    desk.call("webdriver_find_element", json!({ "selector": "p" })).says("The second page").works();
}

#[test]
fn dialogs_are_dismissed_new_tabs_are_followed_and_both_are_reported() {
    let desk = BrowserScene::new("g3");
    let click = |selector: &str| desk.call("webdriver_click", json!({ "selector": selector }));
    desk.call("webdriver_start", json!({})).works();
    desk.call("webdriver_navigate", json!({ "url": desk.site.url("/") })).works();
    click("#ask").says("a dialog opened and was dismissed: \"Are you sure?\"").works();
    desk.call("webdriver_find_element", json!({ "selector": "#out" })).says("\"false\"").works();
    click("#new").says("another tab opened").says("title: Two").works();
    let closes = json!({ "script": "window.close()" });
    desk.call("webdriver_execute_script", closes).works();
    desk.call("webdriver_get_title", json!({})).says("Shop").works();

    // A download is not a page; the file is stored with the session.
    let download = json!({ "url": desk.site.url("/file") });
    let told = desk.call("webdriver_navigate", download);
    told.says("is not a page").says("browser/downloads").fails("failed");
    let file = desk.session.join("browser/downloads/a.bin");
    assert_eq!(until("the download", || std::fs::read(&file).ok()), b"abc");
    desk.call("webdriver_get_title", json!({})).says("Shop").works();

    // A file input accepts only files of the working directory.
    let upload =
        |path: &str| desk.call("webdriver_send_keys", json!({ "selector": "#file", "text": path }));
    desk.bench.write("mine.txt", "x");
    std::fs::write(desk.bench.env.home().join("secret"), "x").unwrap();
    upload("mine.txt").works();
    let name = json!({ "script": "return document.getElementById('file').files[0].name" });
    assert_eq!(desk.call("webdriver_execute_script", name).works(), "\"mine.txt\"");
    upload("../secret").says("outside the working directory").fails("denied");
    upload("~/secret").fails("denied");
    upload("gone.txt").says("no such file").fails("validation");
}

#[test]
fn only_web_pages_are_opened_and_other_urls_do_not_ask() {
    let desk = BrowserScene::new("g3");
    for url in [
        "file:///etc/passwd",
        "javascript:alert(1)",
        "data:text/html,x",
        "chrome://version",
        "about:blank",
        "ftp://a/b",
        "",
        "http://u:p@localhost/",
    ] {
        desk.call("webdriver_navigate", json!({ "url": url })).fails("validation");
        for action in ["navigate", "open_tab"].iter().filter(|_| !url.is_empty()) {
            let args = json!({ "action": action, "url": url });
            desk.call("execute_browser", args).fails("validation");
            let args = json!({ "action": action, "params": { "url": url } });
            desk.call("execute_browser", args).fails("validation");
        }
    }
    assert!(!desk.session.join("browser").exists(), "no browser was started for that");
    let navigate = |url: &str| desk.call("webdriver_navigate", json!({ "url": url }));
    navigate("example.test").says("host = \"example.test\"").fails("denied");
    let inner = json!({ "action": "navigate", "params": { "url": "example.test" } });
    desk.call("execute_browser", inner).says("host").fails("denied");
    allow(&desk.bench.env, "*");
    desk.call("webdriver_start", json!({})).works();
    // A rule about hosts does not allow cloud metadata services.
    for url in ["http://169.254.169.254/latest", "http://[::ffff:a9fe:a9fe]/", "http://2852039166/"]
    {
        navigate(url).says("on the link").fails("denied");
    }
    navigate(&desk.site.url("/away")).says("cannot be opened").fails("failed");
    let bare = desk.site.url("/").replace("http://127.0.0.1", "localhost");
    navigate(&bare).says("url: http://localhost").works();
    desk.call("webdriver_click", json!({ "selector": "#passwd" })).works();
    assert!(!desk.call("webdriver_get_page_source", json!({})).works().contains("root:"));
    desk.call("webdriver_click", json!({ "selector": "#meta" })).says("cannot be opened").works();
}

#[test]
fn missing_programs_are_reported_with_a_hint() {
    let mut bench = Bench::new("core");
    let navigate = json!({ "action": "navigate", "url": "localhost:1" });
    bench.env.set("PATH", "/nonexistent");
    let none = bench.call("execute_browser", navigate.clone());
    none.says("apt-get install chromium").says("execute_gui").says("\"status\":\"error\"");
    none.fails("not_found");
    bench.call("webdriver_start", json!({})).says("chromedriver").fails("not_found");
    bench.env.config("[webdriver]\nchrome_binary = \"/nonexistent/chrome\"\n");
    bench.call("webdriver_start", json!({})).says("names /nonexistent/chrome").fails("not_found");
    bench.env.config("[webdriver]\nbrowser = \"chrome\"\n");
    bench.call("webdriver_start", json!({})).says("no display").fails("failed");
    bench.env.config("[webdriver]\nbrowser = \"safari\"\n");
    bench.call("webdriver_start", json!({})).fails("failed");
    assert!(!bench.session().join("browser/record.json").exists());
}

#[test]
fn collision_find_element_of_the_browser_has_a_name_of_its_own() {
    need_a_browser();
    let desk = BrowserScene::new("all");
    desk.call("webdriver_start", json!({})).works();
    desk.call("webdriver_navigate", json!({ "url": desk.site.url("/two") })).works();
    desk.call("webdriver_find_element", json!({ "selector": "p" })).says("The second page").works();
}

#[test]
fn collision_extract_text_is_an_action_and_not_a_tool() {
    let bench = Bench::new("all");
    bench.call("extract_text", json!({})).fails("unknown_tool");
    let told = bench.call("execute_browser", json!({ "action": "extract_text" }));
    told.says("no tab is open").fails("not_found");
    bench
        .call("execute_browser", json!({ "action": "dance" }))
        .says("extract_text")
        .fails("validation");
}
