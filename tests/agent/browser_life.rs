//! Tests of the lifetime of browsers: they live as long as needed, and leave nothing behind.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use base::process::signal_group;
use base::sandbox::home::home_rules;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use testkit::env::until;
use testkit::model_server::gate::ReplyGate;
use testkit::model_server::reply::ScriptedReply;

use crate::agent_env::Stage;
use crate::browser_support::{Ends, processes, record, runs, shop, until_gone};
use crate::tools_support::{Bench, G3};

fn kill(pid: u32) {
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), Signal::KILL).unwrap();
}

#[test]
fn an_agent_uses_every_browser_tool_and_nothing_remains() {
    let site = shop();
    let call = |name: &str, args| ScriptedReply::call(format!("webdriver_{name}"), args);
    let none = || json!({});
    let stage = Stage::new([
        call("start", none()),
        call("navigate", json!({ "url": site.url("/") })),
        call("get_url", none()).calls("webdriver_get_title", none()),
        call("find_element", json!({ "selector": "h1" }))
            .calls("webdriver_find_elements", json!({ "selector": "a" })),
        call("send_keys", json!({ "selector": "#name", "text": "Zoë" }))
            .calls("webdriver_click", json!({ "selector": "#buy" })),
        call("execute_script", json!({ "script": "return 6 * 7" })),
        call("get_page_source", json!({ "save_to_file": "page.html" })),
        call("screenshot", json!({ "path": "shot.png" })),
        call("back", none()).calls("webdriver_forward", none()).calls("webdriver_refresh", none()),
        call("quit", none()),
        call("start", none()),
        ScriptedReply::says("It works."),
    ]);
    assert_eq!(stage.g3(["--chrome-headless", "try the shop"]).ok(), "It works.");
    let paths: Vec<String> = site.asked().into_iter().map(|asked| asked.path).collect();
    let bought = paths.iter().filter(|path| path.starts_with("/bought?name=Zo%C3%AB")).count();
    assert!(bought >= 2, "the form was sent, and the page reloaded: {paths:?}");
    assert!(fs::read_to_string(stage.repo.path().join("page.html")).unwrap().contains("Thank you"));
    let shot = fs::read(stage.repo.path().join("shot.png")).unwrap();
    assert!(image::load_from_memory(&shot).unwrap().width() > 1000);
    let asked = stage.asked();
    let results = |at: usize| asked[at].tool_results();
    assert!(results(3).iter().any(|(_, text)| text == "Shop"), "calls keep their order");
    assert!(results(6).last().unwrap().1.starts_with("42"));
    let content = &asked[8].messages().last().unwrap()["content"][0]["content"];
    assert_eq!(content[1]["source"]["media_type"], "image/png", "the model sees it: {content}");
    for asked in &asked {
        assert!(asked.tool_names().contains(&"webdriver_quit".to_owned()));
    }
    // The model did not close the last browser: it stopped with the session.
    let dir = stage.session_dir();
    until("the profile to go", || (!dir.join("browser/profile").exists()).then_some(()));
    assert!(record(&dir).is_none());
}

#[test]
fn an_agent_uses_execute_browser_and_nothing_remains() {
    let site = shop();
    let act = |action: &str, more: serde_json::Value| {
        let mut args = json!({ "action": action });
        args.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        ScriptedReply::call("execute_browser", args)
    };
    let with = |params| json!({ "params": params });
    let stage = Stage::new([
        act("navigate", json!({ "url": site.url("/") })),
        act("snapshot", with(json!({ "interactive_only": true }))),
        // Two calls in one reply run in order.
        act("fill", with(json!({ "ref": "e4", "value": "Zoë" }))).calls(
            "execute_browser",
            json!({ "action": "press", "params": { "ref": "e4", "key": "Enter" } }),
        ),
        act("extract_text", json!({})),
        act("open_tab", json!({ "url": site.url("/") })),
        act("snapshot", json!({})),
        act("click", with(json!({ "ref": "e2" }))),
        act("close_tab", json!({})),
        ScriptedReply::says("Bought."),
    ]);
    assert_eq!(stage.g3(["--profile", "core", "--chrome-headless", "buy"]).ok(), "Bought.");
    let paths: Vec<String> = site.asked().into_iter().map(|asked| asked.path).collect();
    assert!(paths.contains(&"/bought?name=Zo%C3%AB&colour=r".to_owned()), "{paths:?}");
    assert!(paths.contains(&"/two".to_owned()), "the link was clicked: {paths:?}");
    let asked = stage.asked();
    assert!(asked[0].tool_names().contains(&"execute_browser".to_owned()));
    assert!(asked[4].last().contains("Thank you"));
}

#[test]
fn kill_9_of_g3_leaves_no_browser() {
    let site = shop();
    let gate = ReplyGate::new();
    let stage = Stage::new([
        ScriptedReply::call("webdriver_start", json!({})),
        ScriptedReply::call("webdriver_navigate", json!({ "url": site.url("/") })),
        ScriptedReply::says("never").gate(&gate),
    ]);
    let mut g3 = stage.start(["--chrome-headless", "look"]);
    gate.wait_until_reached(1);
    let dir = stage.session_dir();
    let browser = record(&dir).unwrap();
    assert!(processes(&browser).into_iter().all(runs));
    kill(g3.id());
    g3.child.wait().unwrap();
    until_gone(&dir, &browser);
    gate.open_all();
}

#[test]
fn an_idle_browser_stops_and_a_crash_is_reported() {
    let mut bench = Bench::new("g3");
    let session = bench.session();
    let _ends = Ends(session.clone());
    let site = shop();
    bench.env.set("G3_BROWSER_IDLE", 100);
    let start = |bench: &Bench| {
        bench.call("webdriver_start", json!({})).says("is ready").works();
        record(&session).unwrap()
    };
    let browser = start(&bench);
    kill(processes(&browser)[2]);
    let navigate = json!({ "url": site.url("/") });
    bench.call("webdriver_navigate", navigate.clone()).says("crashed").fails("failed");
    until_gone(&session, &browser);

    // A killed keeper takes all processes with it; the next start removes its profile.
    let browser = start(&bench);
    signal_group(processes(&browser)[0], Signal::KILL);
    until("the browser to end", || (!processes(&browser).into_iter().any(runs)).then_some(()));
    bench.call("webdriver_get_url", json!({})).says("no browser is running").fails("not_found");

    bench.env.set("G3_BROWSER_IDLE", 1);
    let browser = start(&bench);
    until_gone(&session, &browser);
    bench.call("webdriver_get_url", json!({})).fails("not_found");
}

#[test]
fn the_driver_gives_no_access_outside_the_command_sandbox() {
    let mut bench = Bench::new("g3");
    let session = bench.session();
    let _ends = Ends(session.clone());
    let site = shop();
    // As studio configures it for an agent in its sandbox; the path of its temporary directory is
    // long.
    let config = bench.env.home().join(".config/g3");
    bench.env.config("[webdriver]\nenabled = true\n");
    let temp = bench.env.home().join("t".repeat(100));
    fs::create_dir(&temp).unwrap();
    let mut rules = home_rules(bench.env.home(), std::slice::from_ref(&config));
    rules.read.push(Path::new(G3).parent().unwrap().to_owned());
    rules.write.extend([bench.dir.clone(), temp.clone()]);
    let file = bench.env.home().join("rules.json");
    fs::write(&file, serde_json::to_string(&rules).unwrap()).unwrap();
    bench.env.set("STUDIO_COMMAND_RULES", file.display());
    bench.env.set("TMPDIR", temp.display());
    bench.env.set("G3_BROWSER_IDLE", 100);
    bench.call("webdriver_start", json!({})).works();
    bench.call("webdriver_navigate", json!({ "url": site.url("/") })).says("Shop").works();
    assert_eq!(fs::read_dir(&temp).unwrap().count(), 0, "its temporary files lie with its profile");

    // A process that finds the driver can have it start any program, but in the same sandbox.
    let thief = bench.dir.join("thief");
    let (stolen, tried) = (bench.dir.join("stolen"), bench.dir.join("tried"));
    let line = format!(
        "cp {}/config.toml {}; touch {}",
        config.display(),
        stolen.display(),
        tried.display()
    );
    fs::write(&thief, format!("#!/bin/sh\n{line}\n")).unwrap();
    fs::set_permissions(&thief, fs::Permissions::from_mode(0o755)).unwrap();
    let wish =
        json!({ "capabilities": { "alwaysMatch": { "goog:chromeOptions": { "binary": thief } } } });
    let driver = record(&session).unwrap()["driver"].as_str().unwrap().to_owned();
    post(&format!("{driver}session"), &wish.to_string());
    until("the thief to try", || tried.exists().then_some(()));
    assert!(!stolen.exists(), "the configuration was read");
}

/// Posts JSON and waits for the response.
fn post(address: &str, body: &str) {
    let (host, path) = address.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    let head = format!("POST /{path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n");
    write!(stream, "{head}content-length: {}\r\n\r\n{body}", body.len()).unwrap();
    stream.read_exact(&mut [0; 12]).unwrap();
}

#[test]
fn browser_tools_are_offered_only_if_enabled() {
    let has = |stage: &Stage| {
        stage.asked()[0].tool_names().iter().any(|name| name.starts_with("webdriver_"))
    };
    let stage = Stage::new([ScriptedReply::says("Hi.")]);
    stage.g3(["hello"]).ok();
    assert!(!has(&stage));
    let stage = Stage::new([ScriptedReply::says("Hi.")]);
    stage.env.config(&(stage.model.config_toml("anthropic") + "\n[webdriver]\nenabled = true\n"));
    stage.g3(["hello"]).ok();
    assert!(has(&stage));
    let both = stage.g3(["--webdriver", "--chrome-headless", "hello"]);
    both.exits(2);
    stage
        .g3(["--chat", "--webdriver", "hello"])
        .exits(2)
        .output_contains("cannot be used with --chat");
}
