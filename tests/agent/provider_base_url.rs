//! Tests of base URLs from the environment variables that the providers' SDKs read.

use testkit::env::TestEnv;
use testkit::model_server::ModelServer;
use testkit::model_server::reply::ScriptedReply;

use crate::agent_env::G3;

/// A model server, and an environment with a repository that is configured only by variables.
struct Gateway {
    server: ModelServer,
    env: TestEnv,
}

impl Gateway {
    fn new(variable: &str, path: &str, key: Option<&str>) -> Gateway {
        let server = ModelServer::start(vec![ScriptedReply::says("through the gateway"); 3]);
        let mut env = TestEnv::new().with(variable, format!("{}{path}", server.url()));
        if let Some(key) = key {
            env.set(key, "key-of-the-environment");
        }
        Gateway { server, env }
    }

    fn g3<const N: usize>(&self, args: [&str; N]) -> testkit::env::CommandRun {
        self.env.run(G3, self.env.home(), args)
    }
}

#[test]
fn each_sdk_variable_sets_the_base_url_and_the_key_is_sent_there() {
    for (variable, path, key, header, asked) in [
        ("ANTHROPIC_BASE_URL", "", "ANTHROPIC_API_KEY", "x-api-key", "/v1/messages"),
        ("OPENAI_BASE_URL", "/v1", "OPENAI_API_KEY", "authorization", "/v1/chat/completions"),
        ("OPENAI_API_BASE", "/v1/", "OPENAI_API_KEY", "authorization", "/v1/chat/completions"),
        ("GEMINI_BASE_URL", "", "GEMINI_API_KEY", "x-goog-api-key", "/v1beta/models/m:"),
        ("GOOGLE_GEMINI_BASE_URL", "/", "GEMINI_API_KEY", "x-goog-api-key", "/v1beta/models/m:"),
    ] {
        let gateway = Gateway::new(variable, path, Some(key));
        assert_eq!(gateway.g3(["--model", "m", "hi"]).ok(), "through the gateway", "{variable}");
        let request = &gateway.server.requests()[0];
        assert!(request.path.starts_with(asked), "{variable}: {}", request.path);
        let sent = request.header(header).unwrap_or_default();
        assert!(sent.ends_with("key-of-the-environment"), "{variable}: {sent}");
    }
}

#[test]
fn a_server_without_a_key_needs_only_its_base_url() {
    let gateway = Gateway::new("OPENAI_BASE_URL", "/v1", None);
    assert_eq!(gateway.g3(["--model", "m", "hi"]).ok(), "through the gateway");
    assert_eq!(gateway.server.requests()[0].header("authorization"), None);
    let refused = gateway.g3(["hi"]);
    refused.exits(2).output_contains("`openai` names no model").output_contains("--model");
}

#[test]
fn openai_itself_is_asked_over_responses_also_behind_the_proxy_of_studio() {
    let mut gateway = Gateway::new("OPENAI_BASE_URL", "/v1", None);
    let service = format!("{}/v1 https://api.openai.com/v1\n", gateway.server.url());
    gateway.env.set("STUDIO_MODEL_SERVICES", service);
    assert_eq!(gateway.g3(["--model", "m", "hi"]).ok(), "through the gateway");
    gateway.env.config("[providers.openai.own]\nmodel = \"m\"\nwire = \"chat\"\n");
    assert_eq!(gateway.g3(["hi"]).ok(), "through the gateway");
    let paths = gateway.server.requests().into_iter().map(|request| request.path);
    assert_eq!(paths.collect::<Vec<_>>(), ["/v1/responses", "/v1/chat/completions"]);
}

#[test]
fn a_configured_base_url_overrides_the_variable() {
    let own = ModelServer::start([ScriptedReply::says("from the configured server")]);
    let gateway = Gateway::new("OPENAI_BASE_URL", "/v1", Some("OPENAI_API_KEY"));
    gateway.env.config(&format!(
        "[providers.openai.own]\nmodel = \"m\"\nbase_url = \"{}\"\n\n\
         [providers.openai.open]\nmodel = \"m\"\n",
        own.openai_url()
    ));
    let ran = gateway.g3(["--provider", "openai.own", "hi"]);
    assert_eq!(ran.ok(), "from the configured server");
    assert_eq!(own.requests()[0].header("authorization"), None, "no key goes to another server");
    let ran = gateway.g3(["--provider", "openai.open", "hi"]);
    assert_eq!(ran.ok(), "through the gateway");

    let shown = gateway.g3(["config", "show", "--origin"]);
    let line = |key: &str| {
        let key = format!("{key} = ");
        let found = shown.out.lines().find(|line| line.starts_with(&key));
        found.unwrap_or_else(|| panic!("{key}: {shown}")).to_owned()
    };
    let from = "# environment OPENAI_BASE_URL";
    assert!(line("providers.openai.open.base_url").ends_with(from), "{shown}");
    assert!(!line("providers.openai.own.base_url").contains("environment"), "{shown}");
    shown.output_lacks("providers.openai.base_url");
}

#[test]
fn without_an_entry_the_variable_is_shown_for_the_type() {
    let gateway = Gateway::new("ANTHROPIC_BASE_URL", "", Some("ANTHROPIC_API_KEY"));
    let url = gateway.server.url();
    let line =
        format!("providers.anthropic.base_url = \"{url}\"  # environment ANTHROPIC_BASE_URL");
    gateway.g3(["config", "show", "--origin"]).output_contains(&line);
}

#[test]
fn a_repository_cannot_set_a_base_url() {
    let gateway = Gateway::new("OPENAI_BASE_URL", "/v1", Some("OPENAI_API_KEY"));
    let theirs = ModelServer::start([ScriptedReply::says("stolen")]);
    let repo = gateway.env.repo();
    let url = theirs.openai_url();
    let file = format!("[providers.openai.x]\nmodel = \"m\"\nbase_url = \"{url}\"\n");
    std::fs::write(repo.path().join("g3.toml"), file).unwrap();
    std::fs::write(repo.path().join(".env"), format!("OPENAI_BASE_URL={url}\n")).unwrap();
    let ran = gateway.env.run(G3, repo.path(), ["--model", "m", "hi"]);
    assert_eq!(ran.ok(), "through the gateway");
    ran.output_contains("`providers.openai.x.base_url`").output_contains("is ignored");
    assert_eq!(theirs.requests().len(), 0);
}

#[test]
fn an_invalid_base_url_is_rejected_with_the_name_of_its_variable() {
    let env = TestEnv::new()
        .with("OPENAI_BASE_URL", "http://gateway.example/v1")
        .with("OPENAI_API_KEY", "k");
    let ran = env.run(G3, env.home(), ["--model", "m", "hi"]);
    ran.exits(2)
        .output_contains("http://gateway.example/v1")
        .output_contains("OPENAI_BASE_URL")
        .output_contains("allow_http");
}
