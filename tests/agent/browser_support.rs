//! A test site on loopback and a real browser that shows it.

use std::path::{Path, PathBuf};

use base::process::{find_program, signal_group};
use serde_json::Value;
use testkit::env::{TestEnv, until};

use crate::web_support::{Site, answer};

/// The start page of the site.
const SHOP: &str = r#"<!doctype html><title>Shop</title><meta charset="utf-8"><h1>Hello</h1>
<nav aria-label="Pages"><a id="two" href="/two">Second</a> <a id="new" href="/two" target="_blank">New tab</a>
<a id="passwd" href="file:///etc/passwd">Users</a> <a id="meta" href="http://169.254.169.254/x">Meta</a></nav>
<form action="/bought"><label>Name <input id="name" name="name" value="old"></label>
<select name="colour" aria-label="Colour"><option value="r">red</option><option value="b">blue</option></select>
<input type="file" id="file" aria-label="Picture"><input type="checkbox" name="fast" value="1" aria-label="Fast">
<div role="button" tabindex="0" aria-disabled="true">Gift</div><div style="display:none"><button>Hidden</button></div>
<button id="buy">Buy <b>now</b></button></form><p id="out">nothing yet</p>
<button id="ask" onclick="out.textContent = confirm('Are you sure?')">Ask</button>
<button id="gone" onclick="this.remove()">Go away</button>"#;

/// Creates the site.
pub fn shop() -> Site {
    need_a_browser();
    let site = Site::new();
    let html = "text/html; charset=utf-8";
    site.page("/", html, SHOP);
    site.page("/two", html, "<title>Two</title><p>The second page</p>");
    for query in
        ["name=Zo%C3%AB&colour=r", "name=Zo%C3%AB&colour=b&fast=1", "name=Zo%C3%AB&colour=r&fast=1"]
    {
        site.page(&format!("/bought?{query}"), html, "<title>Bought</title><p>Thank you</p>");
    }
    let words = "word ".repeat(2_000);
    site.page("/long", html, format!("<title>Long</title><p>ä {words}</p>"));
    site.page("/favicon.ico", "image/x-icon", "");
    site.has(
        "/file",
        answer(
            "200 OK",
            &[
                "content-type: application/octet-stream",
                "content-disposition: attachment; filename=a.bin",
            ],
            "abc",
        ),
    );
    site.sends("/away", "302 Found", "http://169.254.169.254/latest");
    site
}

/// Fails without a browser.
pub fn need_a_browser() {
    let chrome = ["chromium", "chromium-browser", "google-chrome"]
        .iter()
        .any(|it| find_program(it).is_some());
    assert!(
        chrome && find_program("chromedriver").is_some(),
        "this test drives a real browser: install chromium and chromium-driver (./setup --tests does)"
    );
}

/// Returns the record of a session's browser.
pub fn record(session_dir: &Path) -> Option<Value> {
    let text = std::fs::read(session_dir.join("browser/record.json")).ok()?;
    serde_json::from_slice(&text).ok()
}

/// Whether a process is running; zombies do not count.
pub fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

/// The processes of a browser: its daemon, its driver, itself.
pub fn processes(record: &Value) -> [u32; 3] {
    ["daemon_pid", "driver_pid", "browser_pid"]
        .map(|key| u32::try_from(record[key].as_u64().unwrap()).unwrap())
}

/// Waits until no process of a browser is running and its profile is gone.
pub fn until_gone(session_dir: &Path, record: &Value) {
    let profile = session_dir.join("browser/profile");
    until("the browser to end", || {
        let all = processes(record).into_iter().all(|pid| !runs(pid));
        (all && !profile.exists()).then_some(())
    });
}

/// Stops the browser of a failed test, since browsers outlive the calls that start them.
pub struct Ends(pub PathBuf);

impl Drop for Ends {
    fn drop(&mut self) {
        if let Some(record) = record(&self.0) {
            signal_group(processes(&record)[0], rustix::process::Signal::TERM);
        }
    }
}

/// Writes a configuration that allows pages of another host.
pub fn allow(env: &TestEnv, host: &str) {
    env.config(&format!(
        "[[gate.rules]]\nhost = \"{host}\"\naction = \"allow\"\n[webdriver]\nenabled = true\n"
    ));
}
