//! Tests of `webfetch` with sites on loopback.

use std::io::Read;
use std::time::{Duration, Instant};

use base::process::signal_group;
use rustix::process::Signal;
use serde_json::json;
use testkit::env::until;
use testkit::model_server::reply::ScriptedReply;

use crate::agent_env::Stage;
use crate::tools_support::{Bench, Called, G3};
use crate::web_support::{Site, answer};

const PAGE: &str = "<html><head><title>A page</title><script>x</script></head><body><h1>Plums</h1>\
    <p>They are <b>blue</b> &amp; <a href='/more'>more</a>.</p></body></html>";

/// Creates a bench of a profile whose user allows a site.
fn bench(profile: &'static str) -> (Bench, Site) {
    let (bench, site) = (Bench::new(profile), Site::new());
    site.allow(&bench.env, "");
    (bench, site)
}

fn fetch(bench: &Bench, url: &str) -> Called {
    bench.call("webfetch", json!({ "url": url }))
}

#[test]
fn a_page_is_converted_to_markdown_or_text_or_kept_as_html() {
    let (bench, site) = bench("g3");
    site.page("/", "text/html; charset=utf-8", PAGE);
    let as_form =
        |format: &str| bench.call("webfetch", json!({ "url": site.url("/"), "format": format }));
    let more = site.url("/more");
    assert_eq!(
        as_form("markdown").works(),
        format!("# Plums\n\nThey are **blue** & [more]({more}).")
    );
    assert_eq!(as_form("text").works(), "Plums\n\nThey are blue & more.");
    assert_eq!(as_form("html").works(), PAGE);
    as_form("pdf").fails("validation");
    let left_out = fetch(&bench, &site.url("/#part"));
    assert!(left_out.works().starts_with("# Plums"));
    assert_eq!(left_out.metadata["bytes"], PAGE.len());
    let accepts: Vec<String> =
        site.asked().iter().map(|asked| asked.headers["accept"].clone()).collect();
    assert!(accepts[0].starts_with("text/markdown") && accepts[2].starts_with("text/html"));
    assert_eq!(site.asked()[3].path, "/");
}

#[test]
fn the_tools_api_returns_text_by_default() {
    let (bench, site) = bench("tools-api");
    site.page("/", "text/html", PAGE);
    assert_eq!(fetch(&bench, &site.url("/")).works(), "Plums\n\nThey are blue & more.");
}

#[test]
fn divergence_22_ip_addresses_and_localhost_are_not_upgraded_to_https() {
    let (bench, site) = bench("tools-api");
    site.page("/", "text/plain", "plain http");
    fetch(&bench, &site.url("/")).says("plain http").works();
    let port = site.address.port();
    bench.env.config("[tools.webfetch]\nallow_hosts = [\"localhost\"]\n");
    fetch(&bench, &format!("http://localhost:{port}/")).says("plain http").works();
    // A public name is upgraded, and only by this profile. This name does not exist.
    bench.env.config("[[gate.rules]]\ntool = \"webfetch\"\naction = \"allow\"\n");
    let asks = |profile, url: &str| {
        let args = json!({ "url": url }).to_string();
        let call = ["tool", "exec", "--profile", profile, "--name", "webfetch", "--args", &args];
        bench.env.run(G3, &bench.dir, call)
    };
    asks("tools-api", "http://a.invalid/").output_contains("host of https://a.invalid/").exits(1);
    asks("tools-api", "http://a.invalid:8000/")
        .output_contains("host of http://a.invalid:8000/")
        .exits(1);
    asks("g3", "http://a.invalid/").output_contains("host of http://a.invalid/").exits(1);
    bench.env.config("[tools.webfetch]\nallow_hosts = [\"a.invalid\"]\n");
    asks("tools-api", "http://a.invalid/").output_contains("host of http://a.invalid/").exits(1);
}

#[test]
fn divergence_27_private_addresses_are_fetched_only_if_the_user_allows_them() {
    let (bench, site) = (Bench::new("g3"), Site::new());
    site.page("/", "text/plain", "inside");
    let port = site.address.port();
    bench.env.config("[[gate.rules]]\ntool = \"webfetch\"\naction = \"allow\"\n");
    for host in ["127.0.0.1", "localhost", "0x7f000001", "[::1]", "[::ffff:127.0.0.1]", "127.1"] {
        let called = fetch(&bench, &format!("http://{host}:{port}/"));
        called.says("[tools.webfetch]").says("allow_hosts = ").fails("denied");
    }
    for host in
        ["169.254.169.254", "10.0.0.1", "192.168.1.1", "100.64.0.1", "224.0.0.1", "[fe80::1]"]
    {
        fetch(&bench, &format!("http://{host}/latest")).says("only the public web").fails("denied");
    }
    // Neither a repository nor a proxy can widen it.
    bench.write("g3.toml", format!("[tools.webfetch]\nallow_hosts = [\"127.0.0.1:{port}\"]\n"));
    fetch(&bench, &site.url("/")).fails("denied");
    assert!(site.asked().is_empty(), "{:?}", site.asked());
    site.allow(&bench.env, "");
    fetch(&bench, &site.url("/")).says("inside").works();
}

#[test]
fn the_connection_bypasses_proxies() {
    let (mut bench, site) = bench("g3");
    let proxy = Site::new();
    site.page("/", "text/plain", "direct");
    for name in ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "https_proxy"] {
        bench.env.set(name, proxy.url("").as_str());
    }
    fetch(&bench, &site.url("/")).says("direct").works();
    assert!(proxy.asked().is_empty());
}

#[test]
fn the_gate_asks_about_hosts_that_are_not_allowed() {
    let bench = Bench::new("g3");
    let denied = fetch(&bench, "https://docs.example.org/x");
    let rule =
        "[[gate.rules]]\ntool = \"webfetch\"\nhost = \"docs.example.org\"\naction = \"allow\"";
    denied.says("no terminal to ask on").says(rule).fails("denied");
    bench.call("codesearch", json!({"query": "x"})).says("host = \"mcp.exa.ai\"").fails("denied");

    let site = Site::new();
    site.page("/", "text/plain", "reached");
    let rules = |host: &str, action: &str| {
        let rule = format!("[[gate.rules]]\nhost = \"{host}\"\naction = \"{action}\"\n");
        site.allow(&bench.env, &rule);
        fetch(&bench, &site.url("/"))
    };
    rules("127.0.0.*", "deny").says("a rule says so").fails("denied");
    rules("127.0.0.1", "ask").fails("denied");
    rules("*.example.org", "deny").says("reached").works();
    assert_eq!(site.asked().len(), 1);
    // A host in upper case, or with a trailing dot, is the same host.
    bench.env.config("[[gate.rules]]\nhost = \"*.Example.ORG\"\naction = \"deny\"\n");
    fetch(&bench, "http://DOCS.example.org./").says("a rule says so").fails("denied");
}

#[test]
fn redirects_are_followed_on_the_same_host_and_reported_for_others() {
    let (bench, site) = bench("g3");
    site.page("/end", "text/plain", "there");
    site.sends("/a", "302 Found", "/b");
    site.sends("/b", "308 Permanent Redirect", &site.url("/end"));
    fetch(&bench, &site.url("/a")).says("there").works();
    site.sends("/other", "301 Moved Permanently", "https://other.example/x?y=1");
    let other = fetch(&bench, &site.url("/other"));
    other.says("https://other.example/x?y=1").says("another host").works();
    assert_eq!(other.metadata["redirect"], "https://other.example/x?y=1");
    site.sends("/round", "302 Found", "/round");
    fetch(&bench, &site.url("/round")).says("too many redirects (10)").fails("failed");
    assert_eq!(site.asked().iter().filter(|asked| asked.path == "/round").count(), 11);
    site.sends("/file", "302 Found", "file:///etc/passwd");
    fetch(&bench, &site.url("/file")).says("which is not a page").fails("failed");
}

#[test]
fn a_redirect_to_a_private_address_is_checked_like_the_first() {
    let (bench, site) = bench("g3");
    let inner = Site::new();
    inner.page("/", "text/plain", "secret");
    // The same host with another port, which the user did not allow.
    site.sends("/in", "302 Found", &inner.url("/"));
    fetch(&bench, &site.url("/in")).says("this machine").fails("denied");
    site.sends("/meta", "302 Found", "http://169.254.169.254/latest");
    fetch(&bench, &site.url("/meta")).says("another host").works();
    assert!(inner.asked().is_empty());
}

#[test]
fn unsupported_content_is_rejected_with_its_reason() {
    let (bench, site) = bench("g3");
    for (url, words) in [
        ("ftp://a.example/x", "must begin with http:// or https://"),
        ("file:///etc/passwd", "must begin with"),
        ("no address", "is not an address"),
        ("http://me:word@a.example/", "contains a user name"),
    ] {
        fetch(&bench, url).says(words).fails("validation");
    }
    bench.call("webfetch", json!({})).says("missing required parameter `url`").fails("validation");
    site.has("/gone", answer("404 Not Found", &[], "no"));
    fetch(&bench, &site.url("/gone")).says("answers 404: Not Found").fails("not_found");
    site.has("/broken", answer("503 Service Unavailable", &[], "no"));
    fetch(&bench, &site.url("/broken")).says("answers 503: Service Unavailable").fails("failed");
    site.page("/a.pdf", "application/pdf", "%PDF");
    fetch(&bench, &site.url("/a.pdf")).says("is application/pdf").fails("failed");
    site.page("/a.bin", "application/octet-stream", b"a\0b");
    fetch(&bench, &site.url("/a.bin")).says("is application/octet-stream").fails("failed");
}

#[test]
fn a_body_that_is_too_large_is_not_read_to_its_end() {
    let (bench, site) = bench("g3");
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n";
    site.has("/said", format!("{head}content-length: 6000000\r\n\r\n").into_bytes());
    fetch(&bench, &site.url("/said")).says("too large: 6000000 bytes").fails("failed");
    let mut endless = format!("{head}connection: close\r\n\r\n").into_bytes();
    endless.resize(endless.len() + (6 << 20), b'x');
    site.has("/endless", endless);
    fetch(&bench, &site.url("/endless")).says("at most 5 MiB").fails("failed");
}

#[test]
fn a_long_page_is_truncated_and_saved_in_full() {
    let (bench, site) = bench("g3");
    let long = "ü\u{1b}[31m1".repeat(30_000);
    site.page("/", "text/plain; charset=utf-8", &long);
    let called = fetch(&bench, &site.url("/"));
    let (shown, note) = called.works().split_once("\n[").unwrap();
    assert_eq!(shown.chars().count(), 50_000);
    assert!(note.starts_with("10000 more characters are not shown; all of it is in "), "{note}");
    let file = note.split(" is in ").nth(1).unwrap().trim_end_matches(']');
    assert_eq!(std::fs::read_to_string(file).unwrap(), "ü1".repeat(30_000));
}

#[test]
fn encodings_and_content_types_are_respected() {
    let (bench, site) = bench("g3");
    site.page("/latin", "text/html; charset=iso-8859-1", b"<p>gr\xfcn</p>");
    fetch(&bench, &site.url("/latin")).says("grün").works();
    site.page("/json", "application/json", "{\"b\":1,\"a\":[2]}");
    assert_eq!(
        fetch(&bench, &site.url("/json")).works(),
        "{\n  \"b\": 1,\n  \"a\": [\n    2\n  ]\n}"
    );
    site.page("/code", "text/x-rust", "fn main() {\n\tgo();\n}");
    assert_eq!(fetch(&bench, &site.url("/code")).works(), "fn main() {\n\tgo();\n}");
}

#[test]
fn an_unresponsive_site_times_out() {
    let (bench, site) = bench("g3");
    let late = bench.call("webfetch", json!({ "url": site.url("/silent"), "timeout": 0.01 }));
    late.says("was not there after 1 s").fails("timeout");
}

#[test]
fn a_scripted_agent_fetches_and_sees_an_image() {
    let site = Site::new();
    let picture = b"\x89PNG\r\n\x1a\nnot much of one";
    site.page("/a.png", "image/png", picture);
    site.page("/", "text/html", PAGE);
    let stage = Stage::new([
        ScriptedReply::call("webfetch", json!({ "url": site.url("/") })),
        ScriptedReply::call("webfetch", json!({ "url": site.url("/a.png") })),
        ScriptedReply::says("done"),
    ]);
    site.allow(&stage.env, &stage.model.config_toml("anthropic"));
    stage.g3(["look it up"]).ok();
    let paths: Vec<String> = site.asked().into_iter().map(|asked| asked.path).collect();
    assert_eq!(paths, ["/", "/a.png"]);
    let asked = stage.asked();
    assert!(asked[1].tool_results()[0].1.contains("# Plums"));
    let sent = asked[2].body.to_string();
    assert!(
        sent.contains("\"media_type\":\"image/png\"") && sent.contains("iVBORw0KGgpub3Q"),
        "{sent}"
    );
}

#[test]
fn plan_mode_may_fetch() {
    let site = Site::new();
    site.page("/", "text/plain", "of use for a plan");
    let call = ScriptedReply::call("webfetch", json!({ "url": site.url("/") }));
    let stage = Stage::new([call, ScriptedReply::says("I know enough")]);
    site.allow(&stage.env, &stage.model.config_toml("anthropic"));
    stage.g3_with_input([], "/plan look around\n").ok();
    assert!(stage.asked()[1].tool_results()[0].1.contains("of use for a plan"));
}

#[test]
fn an_interrupt_cancels_a_fetch() {
    let (bench, site) = bench("g3");
    let args = json!({ "url": site.url("/silent"), "timeout": 120 }).to_string();
    let call = ["tool", "exec", "--name", "webfetch", "--args", &args, "--json"];
    let mut running = bench.env.start(G3, &bench.dir, call);
    until("the site to be asked", || site.asked().pop());
    signal_group(running.id(), Signal::INT);
    let ended = running.wait_until(Some(Instant::now() + Duration::from_secs(20))).unwrap();
    assert_eq!(ended.expect("it has ended").code(), Some(1));
    let mut said = String::new();
    running.child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains("\"error_kind\":\"cancelled\""), "{said}");
}

#[test]
fn a_site_that_challenges_browsers_is_retried_with_our_own_user_agent() {
    let (bench, site) = bench("g3");
    let challenge = || answer("403 Forbidden", &["cf-mitigated: challenge"], "prove yourself");
    site.has("/guarded Mozilla", challenge());
    site.page("/guarded", "text/plain", "the page");
    assert!(fetch(&bench, &site.url("/guarded")).works().contains("the page"));
    site.has("/shut", challenge());
    fetch(&bench, &site.url("/shut")).says("lets only browsers in").fails("failed");
    // For any other rejection, another user agent makes no difference.
    site.has("/no", answer("403 Forbidden", &[], "no"));
    fetch(&bench, &site.url("/no")).says("403: Forbidden").fails("failed");
    let asked: Vec<(String, bool)> = site
        .asked()
        .into_iter()
        .map(|it| (it.path.clone(), it.headers["user-agent"].starts_with("g3/")))
        .collect();
    let each = [
        ("/guarded", false),
        ("/guarded", true),
        ("/shut", false),
        ("/shut", true),
        ("/no", false),
    ];
    assert_eq!(asked, each.map(|(path, plain)| (path.to_owned(), plain)));
}
