//! `studio mcp serve`, used by a third-party client over both revisions of the protocol's
//! lifecycle.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::{Arc, Mutex};

use base::process::{AsyncRunning, Stream};
use rmcp::model::{
    CallToolRequestParams, ClientCapabilities, ClientConfig, ElicitRequestParams, ElicitResult,
    ElicitationAction, ElicitationCapability, Implementation, JsonObject, ProtocolVersion,
};
use rmcp::service::{ClientLifecycleMode, ClientServiceExt, RequestContext, RunningService};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::{ClientHandler, ErrorData, RoleClient};
use serde_json::{Value, json};

use crate::fixtures::{Scene, studio};

/// An editor whose user gives this answer to every question; without one it cannot ask.
#[derive(Clone, Default)]
struct Editor {
    answer: Option<bool>,
    questions: Arc<Mutex<Vec<String>>>,
}

impl ClientHandler for Editor {
    fn get_info(&self) -> ClientConfig {
        let mut capabilities = ClientCapabilities::default();
        capabilities.elicitation = self.answer.map(|_| ElicitationCapability::new());
        ClientConfig::new(capabilities, Implementation::new("editor", "1"))
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let ElicitRequestParams::FormElicitationParams { message, .. } = request else {
            panic!("a form is expected");
        };
        self.questions.lock().unwrap().push(message);
        let content = json!({"approval": self.answer.unwrap_or_default()});
        Ok(ElicitResult::new(ElicitationAction::Accept).with_content(content))
    }
}

/// A client connected to studio.
struct Client {
    service: RunningService<RoleClient, Editor>,
    studio: AsyncRunning,
}

impl Client {
    async fn connect(scene: &Scene, editor: Editor, lifecycle: ClientLifecycleMode) -> Client {
        let command = scene.env.command(studio(), scene.repo.path()).args(["mcp", "serve"]);
        let mut studio = command.stdin(Stream::Piped).spawn_async().unwrap();
        let (stdout, stdin) = (studio.child.stdout.take(), studio.child.stdin.take());
        let transport = AsyncRwTransport::new_client(stdout.unwrap(), stdin.unwrap());
        let service = editor.serve_with_lifecycle(transport, lifecycle).await.unwrap();
        Client { service, studio }
    }

    /// Returns whether a call succeeded, and its text.
    async fn call(&self, name: &'static str, arguments: Value) -> (bool, String) {
        let arguments: JsonObject = serde_json::from_value(arguments).unwrap();
        let request = CallToolRequestParams::new(name).with_arguments(arguments);
        let result = self.service.call_tool(request).await.unwrap();
        let text = result.content.iter().filter_map(|block| block.as_text());
        (result.is_error != Some(true), text.map(|text| text.text.as_str()).collect())
    }

    /// Makes a call that must succeed, and returns its JSON.
    async fn json(&self, name: &'static str, arguments: Value) -> Value {
        let (is_ok, text) = self.call(name, arguments).await;
        assert!(is_ok, "{name}: {text}");
        serde_json::from_str(&text).unwrap()
    }
}

fn lifecycles() -> [ClientLifecycleMode; 2] {
    let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
    [ClientLifecycleMode::Initialize, ClientLifecycleMode::Discover { preferred_versions }]
}

#[tokio::test]
async fn another_agent_starts_directs_and_lands_sessions_after_the_user_agreed() {
    for lifecycle in lifecycles() {
        let scene = Scene::new();
        let editor = Editor { answer: Some(true), ..Editor::default() };
        let client = Client::connect(&scene, editor.clone(), lifecycle).await;
        let tools = client.service.list_all_tools().await.unwrap();
        let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_ref()).collect();
        for name in ["list", "status", "run", "send", "diff", "accept"] {
            assert!(names.contains(&name), "{names:?}");
        }
        assert!(!names.contains(&"answer"), "only the user answers permission requests");

        let started = client
            .json("run", json!({"tasks": ["write a 1"], "agent": "loads", "checks": ["true"]}))
            .await;
        let id = started["id"].as_str().unwrap().to_owned();
        scene.await_state(&id, "ready");
        scene.await_free(&id);
        assert_eq!(client.json("status", json!({"id": id})).await["state"], "ready");
        let diff = client.json("diff", json!({"id": id, "paths": ["a"]})).await;
        assert!(diff["patch"].as_str().unwrap().contains("+1"), "{diff}");
        assert_eq!(client.json("send", json!({"id": id, "text": "write b 2"})).await["sent"], true);
        scene.await_state(&id, "ready");
        scene.await_free(&id);
        let listed = client.json("list", json!({})).await;
        assert_eq!(listed["sessions"][0]["files_changed"], 2, "{listed}");

        let landed = client.json("accept", json!({"id": id, "message": "Add a and b"})).await;
        assert_eq!(landed["landed"][0]["id"], id.as_str(), "{landed}");
        assert_eq!(scene.repo.git(["log", "-1", "--format=%s"]).trim(), "Add a and b");
        let questions = editor.questions.lock().unwrap().clone();
        assert_eq!(questions.len(), 1, "{questions:?}");
        let expected = format!("Land session {id} on main?\nTask: write a 1\nState: ready: ");
        assert!(questions[0].starts_with(&expected), "{questions:?}");
        assert!(questions[0].contains("2 files +2 -0"), "{questions:?}");
    }
}

#[tokio::test]
async fn nothing_lands_or_is_discarded_without_the_users_consent() {
    for lifecycle in lifecycles() {
        let scene = Scene::new();
        let id = scene.ready("write a 1");
        scene.await_free(&id);
        let before = scene.repo.git(["rev-parse", "main"]);
        for (answer, expected) in [
            (Some(false), "the user did not agree".to_owned()),
            (
                None,
                format!("this client cannot ask the user; the user can run: studio accept {id}"),
            ),
        ] {
            let editor = Editor { answer, ..Editor::default() };
            let client = Client::connect(&scene, editor, lifecycle.clone()).await;
            assert_eq!(client.call("accept", json!({"id": id})).await, (false, expected));
            assert!(!client.call("discard", json!({"id": id})).await.0);
        }
        assert_eq!(scene.repo.git(["rev-parse", "main"]), before);
        assert_eq!(scene.status(&id)["state"], "ready");
    }
}

#[tokio::test]
async fn errors_are_the_commands_own() {
    let scene = Scene::new();
    let [lifecycle, _] = lifecycles();
    let mut client = Client::connect(&scene, Editor::default(), lifecycle).await;
    let (is_ok, text) = client.call("status", json!({"id": "nothing"})).await;
    assert!(!is_ok && text.contains("no sessions in this repository"), "{text}");
    let (is_ok, text) = client.call("run", json!({"tasks": ["x"], "agent": "none"})).await;
    assert!(!is_ok && text.contains("none"), "{text}");
    let (is_ok, text) = client.call("run", json!({})).await;
    assert_eq!((is_ok, text.as_str()), (false, "missing argument `tasks`"));
    let unknown = CallToolRequestParams::new("fly");
    assert!(client.service.call_tool(unknown).await.is_err());
    client.service.cancel().await.unwrap();
    assert!(client.studio.child.wait().await.unwrap().success(), "it ends with its client");

    let outside = scene.env.home().to_owned();
    scene.studio_in(&outside, ["mcp", "serve"]).exits(5).output_contains("not in a git repository");
}
