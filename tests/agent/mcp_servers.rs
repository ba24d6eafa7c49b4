//! Tests of server definitions (the configuration, a trusted repository, a URL), and of `g3 mcp`.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};
use testkit::model_server::ModelServer;
use testkit::model_server::reply::ScriptedReply;
use testkit::model_server::request::ReceivedRequest;
use testkit::model_server::script::Script;

use crate::agent_env::Stage;
use crate::mcp_support::{command, configure, result, stage};

fn repository(stage: &Stage, args: &[&str]) {
    let all = command(args);
    let (program, args) = (all[0].clone(), all.as_array().unwrap()[1..].to_vec());
    let text = json!({"mcpServers": {"theirs": {"command": program, "args": args}}});
    stage.repo.write(".mcp.json", text.to_string());
}

#[test]
fn a_repository_configures_servers_only_if_this_content_is_trusted() {
    let stage = Stage::new([
        ScriptedReply::says("one"),
        ScriptedReply::says("two"),
        ScriptedReply::says("three"),
    ]);
    let marker = stage.repo.path().join("marker");
    repository(&stage, &["--pids", "marker"]);
    stage.g3(["work"]).output_contains(".mcp.json is ignored").output_contains("g3 trust").ok();
    assert!(!stage.asked()[0].tool_names().contains(&"mcp_call".into()));
    stage.g3(["mcp", "test", "theirs"]).exits(2);
    assert!(!marker.exists(), "it was started");

    stage.g3(["trust"]).output_contains("mcpServers").output_contains("trusted").ok();
    stage.g3(["work"]).output_lacks("ignored").ok();
    assert!(stage.asked()[1].tool_names().contains(&"mcp_call".into()));
    stage.g3(["mcp", "test", "theirs"]).output_contains("mcp__theirs__echo").ok();
    assert!(marker.exists());

    std::fs::remove_file(&marker).unwrap();
    repository(&stage, &["--pids", "marker", "--many", "1"]);
    stage.g3(["work"]).output_contains(".mcp.json is ignored").ok();
    assert!(!stage.asked()[2].tool_names().contains(&"mcp_call".into()));
    assert!(!marker.exists(), "a changed definition is a new one");
    stage.g3(["trust"]).ok();
    stage.g3(["trust", "revoke"]).output_contains("no longer trusted").ok();
    stage
        .g3(["mcp", "list"])
        .output_contains("no MCP servers")
        .output_contains(".mcp.json is ignored")
        .ok();
}

#[test]
fn an_untrusted_g3_toml_configures_no_servers_and_keeps_the_users_own() {
    let stage = stage([ScriptedReply::says("one")], [], "");
    let text = "[mcp.kit]\ncommand = [\"touch\", \"marker\"]\n[mcp.more]\nurl = \"http://x/\"\n";
    stage.repo.write("g3.toml", text);
    let ran = stage.g3(["work"]);
    ran.output_contains("`mcp.kit.command` in ").output_contains("`mcp.more.url` in ").ok();
    assert!(!stage.repo.path().join("marker").exists());
    repository(&stage, &[]);
    std::fs::remove_file(stage.repo.path().join("g3.toml")).unwrap();
    let own = stage.repo.read(".mcp.json").replace("theirs", "kit");
    stage.repo.write(".mcp.json", &own);
    stage.g3(["trust"]).ok();
    stage.g3(["mcp", "list"]).output_contains("the configuration has [mcp.kit]").ok();
}

#[test]
fn g3_mcp_lists_and_tests_servers() {
    let stage = stage([], [], "[mcp.off]\nurl = \"https://example.invalid/mcp\"\nenabled = false");
    let all = stage.g3(["mcp", "list", "--json"]).json();
    assert_eq!((&all[0]["name"], &all[0]["state"]), (&json!("kit"), &json!("not started yet")));
    assert_eq!((&all[1]["name"], &all[1]["state"]), (&json!("off"), &json!("off")));
    let tested = stage.g3(["mcp", "test", "kit", "--json"]).json();
    assert_eq!((&tested["ok"], &tested["error"]), (&json!(true), &Value::Null));
    let tools = tested["tools"].as_array().unwrap();
    let echo = tools.iter().find(|tool| tool["tool"] == "echo").unwrap();
    assert_eq!(echo["name"], "mcp__kit__echo");
    assert_eq!(echo["parameters"]["required"], json!(["text"]));
    stage.g3(["mcp", "list"]).output_contains("known, 15 tools").ok();
    configure(&stage, &["--broken"], "");
    let broken = stage.g3(["mcp", "test", "kit", "--json"]);
    assert!(broken.exits(1).json()["error"].as_str().unwrap().contains("code 7"));
    stage.g3(["mcp", "test", "kit"]).exits(1).output_contains("there is no configuration for me");
    stage.g3(["mcp", "test", "nope"]).exits(2).output_contains("use one of: kit");
    configure(&stage, &[], "url = \"http://x\"");
    stage.g3(["mcp", "list"]).exits(2).output_contains("both `command` and `url`");
}

/// An MCP server over HTTP that answers each message with one JSON object, if a token is sent.
fn over_http(request: &ReceivedRequest) -> ScriptedReply {
    let Some(method) = request.body["method"].as_str() else { return ScriptedReply::status(405) };
    if request.header("authorization") != Some("Bearer t0") {
        return ScriptedReply::status(401).header("www-authenticate", "Bearer realm=\"x\"");
    }
    let result = match method {
        "initialize" => json!({
            "protocolVersion": request.body["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "web", "version": "1"},
        }),
        "tools/list" => json!({"tools": [
            {"name": "add", "description": "Adds.", "inputSchema": {"type": "object"}},
        ]}),
        "tools/call" => json!({"content": [{"type": "text", "text": "4"}]}),
        _ => return answer(202, String::new()),
    };
    let id = &request.body["id"];
    answer(200, json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string())
}

/// Like [`over_http`], for protocol 2026-07-28 only, as the TypeScript SDK answers.
fn stateless_over_http(request: &ReceivedRequest) -> ScriptedReply {
    let (body, id) = (&request.body, &request.body["id"]);
    let refuse = |status: u16, code: i32| {
        let error =
            json!({"code": code, "message": "refused", "data": {"supported": ["2026-07-28"]}});
        answer(status, json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string())
    };
    if request.header("mcp-protocol-version") != Some("2026-07-28") {
        return refuse(400, -32_022);
    }
    let version = &body["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"];
    if request.header("mcp-method") != body["method"].as_str() || version != "2026-07-28" {
        return refuse(400, -32_001);
    }
    let mut result = match body["method"].as_str().unwrap_or_default() {
        "server/discover" => json!({
            "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}},
            "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "web", "version": "1"}},
        }),
        "tools/list" => json!({"tools": [
            {"name": "add", "description": "Adds.", "inputSchema": {"type": "object"}},
        ]}),
        "tools/call" => json!({"content": [{"type": "text", "text": "4"}]}),
        _ => return refuse(404, -32_601),
    };
    result["resultType"] = json!("complete");
    result["ttlMs"] = json!(0);
    result["cacheScope"] = json!("private");
    answer(200, json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string())
}

fn answer(status: u16, body: String) -> ScriptedReply {
    ScriptedReply::status(status).body("application/json", body)
}

fn configure_web(stage: &Stage, web: &ModelServer, lines: &str) {
    let model = stage.model.config_toml("anthropic");
    stage.env.config(&format!("{model}\n[mcp.web]\nurl = \"{}/mcp\"\n{lines}\n", web.url()));
}

#[test]
fn a_server_at_a_url_is_used_with_its_token() {
    let web = ModelServer::start(Script::by(over_http));
    let stage =
        Stage::new([ScriptedReply::call("mcp__web__add", json!({})), ScriptedReply::says("done")]);
    configure_web(&stage, &web, "");
    let refused = stage.g3(["mcp", "test", "web"]);
    refused.exits(1).output_contains("requires a login").output_contains("bearer_token_command");
    let lines =
        "calls = \"allow\"\nbearer_token_command = \"echo t0\"\nheaders = { X-Own = \"o\" }";
    configure_web(&stage, &web, lines);
    stage.g3(["mcp", "test", "web"]).output_contains("mcp__web__add").ok();
    stage.g3(["add"]).ok();
    assert_eq!(result(&stage, 1), "4");
    assert!(web.requests().iter().any(|request| request.header("x-own") == Some("o")));
    configure_web(&stage, &web, "bearer_token_command = \"echo no >&2; exit 4\"");
    stage.g3(["mcp", "test", "web"]).exits(1).output_contains("failed: it ended with code 4: no");
}

#[test]
fn a_rejected_token_is_fetched_again() {
    let picky = |request: &ReceivedRequest| {
        let mut request = request.clone();
        let token = request.header("authorization").unwrap_or_default().to_owned();
        let enough = request.body["method"] != "tools/call" || token == "Bearer t1";
        let known = enough && ["Bearer t0", "Bearer t1"].contains(&token.as_str());
        let shown = if known { "Bearer t0" } else { "none" };
        request.headers.insert("authorization".into(), shown.into());
        over_http(&request)
    };
    let web = ModelServer::start(Script::by(picky));
    let add = || ScriptedReply::call("mcp__web__add", json!({}));
    let renew = ScriptedReply::call("shell", json!({"command": "echo t1 > token"}));
    let stage = Stage::new([renew, add(), add(), ScriptedReply::says("done")]);
    stage.repo.write("token", "t0");
    let token = stage.repo.path().join("token");
    let lines = format!("calls = \"allow\"\nbearer_token_command = [\"cat\", {token:?}]");
    configure_web(&stage, &web, &lines);
    stage.g3(["mcp", "test", "web"]).ok();
    stage.g3(["add"]).ok();
    assert_eq!(result(&stage, 3), "4", "{}", result(&stage, 2));
}

#[test]
fn a_server_at_a_url_without_a_handshake_is_used() {
    let web = ModelServer::start(Script::by(stateless_over_http));
    let add = || ScriptedReply::call("mcp__web__add", json!({}));
    let stage = Stage::new([add(), add(), ScriptedReply::says("done")]);
    configure_web(&stage, &web, "calls = \"allow\"");
    stage.g3(["mcp", "test", "web"]).output_contains("mcp__web__add").ok();
    stage.g3(["add"]).ok();
    assert_eq!(result(&stage, 1), "4");
    assert_eq!(result(&stage, 2), "4");
}

/// An authorization server and an MCP server that accepts its tokens.
fn with_login(request: &ReceivedRequest) -> ScriptedReply {
    let host = format!("http://{}", request.header("host").unwrap_or_default());
    let path = request.path.split('?').next().unwrap_or_default();
    let json = |value: Value| answer(200, value.to_string());
    match path {
        "/.well-known/oauth-protected-resource/mcp" => json(json!({
            "resource": format!("{host}/mcp"), "authorization_servers": [host],
        })),
        "/.well-known/oauth-authorization-server" => json(json!({
            "issuer": host,
            "authorization_endpoint": format!("{host}/authorize"),
            "token_endpoint": format!("{host}/token"),
            "registration_endpoint": format!("{host}/register"),
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
        })),
        "/register" => answer(
            201,
            json!({
                "client_id": "c0", "redirect_uris": request.body["redirect_uris"],
            })
            .to_string(),
        ),
        "/token" => {
            let form = String::from_utf8_lossy(&request.raw).into_owned();
            if form.contains("refresh_token=r0") {
                return json(json!({"access_token": "t0", "token_type": "Bearer"}));
            }
            if !(form.contains("code=the-code") && form.contains("code_verifier=")) {
                return answer(400, json!({"error": "invalid_grant"}).to_string());
            }
            // The token that this server accepts can only be obtained by renewal.
            json(json!({"access_token": "old", "token_type": "Bearer", "expires_in": 1,
                        "refresh_token": "r0"}))
        }
        "/mcp" => over_http(request),
        _ => ScriptedReply::status(404),
    }
}

/// Acts as the browser: follows the redirect with a code.
fn come_back(address: &str) {
    let part = |name: &str| {
        let begin = address.split(&format!("{name}=")).nth(1).expect("it is in the address");
        begin.split('&').next().unwrap().to_owned()
    };
    let redirect = part("redirect_uri").replace("%3A", ":").replace("%2F", "/");
    let (host, path) = redirect.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut stream = std::net::TcpStream::connect(host).unwrap();
    let state = part("state");
    write!(stream, "GET /{path}?code=the-code&state={state} HTTP/1.1\r\nhost: {host}\r\n\r\n")
        .unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    assert!(page.contains("close this page"), "{page}");
}

#[test]
fn a_browser_login_is_stored_used_and_renewed() {
    let web = ModelServer::start(Script::by(with_login));
    let stage = Stage::new([]);
    configure_web(&stage, &web, "");
    stage.g3(["mcp", "test", "web"]).exits(1).output_contains("g3 mcp login");
    let mut login = stage.start(["mcp", "login", "web"]);
    let mut lines = BufReader::new(login.child.stdout.take().unwrap()).lines();
    let address = lines.by_ref().map(Result::unwrap).find(|line| line.contains("/authorize?"));
    come_back(&address.expect("the address is printed"));
    assert_eq!(lines.next().unwrap().unwrap(), "logged in to `web`");
    assert!(login.wait_until(None).unwrap().unwrap().success());
    let kept = std::fs::read_dir(stage.env.home().join(".config/g3/mcp-logins")).unwrap();
    let kept = kept.map(|file| file.unwrap().path()).next().unwrap();
    assert_eq!(std::fs::metadata(&kept).unwrap().permissions().mode() & 0o777, 0o600);
    stage.g3(["mcp", "test", "web"]).output_contains("mcp__web__add").output_lacks("t0").ok();
    stage.g3(["mcp", "logout", "web"]).output_contains("removed").ok();
    assert!(!kept.exists());
    stage.g3(["mcp", "test", "web"]).exits(1).output_contains("requires a login");
}

#[test]
fn plain_http_is_local_only_and_a_closed_port_is_reported() {
    let stage = Stage::new([]);
    let test = |url: &str| {
        let model = stage.model.config_toml("anthropic");
        stage.env.config(&format!("{model}\n[mcp.web]\nurl = \"{url}\"\n"));
        stage.g3(["mcp", "test", "web"])
    };
    test("http://192.0.2.1/mcp")
        .exits(1)
        .output_contains("plain http")
        .output_contains("allow_http");
    test("ftp://localhost/").exits(1).output_contains("neither https nor http");
    test("http://127.0.0.1:9/mcp").exits(1).output_contains("no connection");
    assert!(!stage.env.home().join(".g3/mcp").exists(), "what failed is not remembered");
}

/// Like [`with_login`], for a client that was registered by hand: `mine`, with the secret `s0`.
fn with_registered_client(request: &ReceivedRequest) -> ScriptedReply {
    let form = String::from_utf8_lossy(&request.raw).into_owned();
    let has_secret = form.contains("client_id=mine") && form.contains("client_secret=s0")
        || request.header("authorization") == Some("Basic bWluZTpzMA==");
    match request.path.split('?').next().unwrap_or_default() {
        "/register" => ScriptedReply::status(403),
        "/token" if !has_secret => answer(401, json!({"error": "invalid_client"}).to_string()),
        _ => with_login(request),
    }
}

#[test]
fn a_client_that_was_registered_by_hand_logs_in() {
    let web = ModelServer::start(Script::by(with_registered_client));
    let mut stage = Stage::new([]);
    stage.env.set("KIT_SECRET", "s0");
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    configure_web(&stage, &web, "");
    stage.g3(["mcp", "login", "web"]).exits(1).output_contains("client_id");
    let lines = format!(
        "client_id = \"mine\"\nclient_secret = \"${{KIT_SECRET}}\"\ncallback_port = {port}\n\
         scopes = [\"read\", \"write\"]"
    );
    configure_web(&stage, &web, &lines);
    let mut login = stage.start(["mcp", "login", "web"]);
    let mut lines = BufReader::new(login.child.stdout.take().unwrap()).lines();
    let address = lines.by_ref().map(Result::unwrap).find(|line| line.contains("/authorize?"));
    let address = address.expect("the address is printed");
    for part in [
        "client_id=mine".to_owned(),
        format!("redirect_uri=http%3A%2F%2Flocalhost%3A{port}%2Fcallback"),
        "scope=read+write".to_owned(),
    ] {
        assert!(address.contains(&part), "{part}: {address}");
    }
    come_back(&address);
    assert_eq!(lines.next().unwrap().unwrap(), "logged in to `web`");
    assert!(login.wait_until(None).unwrap().unwrap().success());
    // The token has expired: it is renewed, with the secret.
    stage.g3(["mcp", "test", "web"]).output_contains("mcp__web__add").ok();
}
