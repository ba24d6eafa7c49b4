//! Tests of g3 as an MCP server, used by a third-party client.

use std::sync::Arc;

use base::process::{AsyncRunning, Stream};
use rmcp::model::{CallToolRequestParams, CallToolResult, JsonObject};
use rmcp::service::RunningService;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::{RoleClient, ServiceExt};
use serde_json::{Value, json};

use crate::agent_env::Stage;

/// A client connected to g3.
struct Other {
    client: Arc<RunningService<RoleClient, ()>>,
    _g3: AsyncRunning,
}

impl Other {
    async fn of<const N: usize>(stage: &Stage, args: [&str; N]) -> Other {
        let job = stage.job(["mcp", "serve"]).args(args).stdin(Stream::Piped);
        let mut g3 = job.spawn_async().unwrap();
        let (stdout, stdin) = (g3.child.stdout.take().unwrap(), g3.child.stdin.take().unwrap());
        let client = ().serve(AsyncRwTransport::new_client(stdout, stdin)).await.unwrap();
        Other { client: Arc::new(client), _g3: g3 }
    }

    async fn call(&self, name: &'static str, args: Value) -> (bool, String) {
        let args: JsonObject = serde_json::from_value(args).unwrap();
        let request = CallToolRequestParams::new(name).with_arguments(args);
        told(&self.client.call_tool(request).await.unwrap())
    }
}

fn told(result: &CallToolResult) -> (bool, String) {
    let text = result.content.iter().filter_map(|block| block.as_text());
    (result.is_error != Some(true), text.map(|text| text.text.as_str()).collect())
}

#[tokio::test]
async fn another_agent_lists_and_calls_our_tools() {
    let stage = Stage::new([]);
    let other = Other::of(&stage, []).await;
    let tools = other.client.list_all_tools().await.unwrap();
    let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_ref()).collect();
    assert!(names.contains(&"shell") && names.contains(&"read_file"), "{names:?}");
    assert!(tools.iter().all(|tool| tool.input_schema["type"] == "object"));
    let wrote = other.call("write_file", json!({"file_path": "a", "content": "plum"})).await;
    assert!(wrote.0, "{wrote:?}");
    assert_eq!(stage.repo.read("a"), "plum");
    assert!(other.call("read_file", json!({"file_path": "a"})).await.1.contains("plum"));
    let missing = other.call("read_file", json!({"file_path": "none"})).await;
    assert!(!missing.0, "{missing:?}");
    let unknown = other.call("fly", json!({})).await;
    assert!(!unknown.0 && unknown.1.contains("unknown tool"), "{unknown:?}");
    let info = other.client.peer_info().unwrap();
    assert!(format!("{info:?}").contains("g3"), "{info:?}");
}

#[tokio::test]
async fn the_gate_denies_and_names_the_rule() {
    let stage = Stage::new([]);
    let other = Other::of(&stage, ["--profile", "core"]).await;
    let names = other.client.list_all_tools().await.unwrap();
    assert!(!names.iter().any(|tool| tool.name == "str_replace"), "the profile is another");
    let denied = other.call("write_file", json!({"file_path": "../x", "content": "x"})).await;
    assert!(!denied.0 && denied.1.contains("[[gate.rules]]"), "{denied:?}");
    assert!(!stage.env.home().join("x").exists());
}

#[tokio::test]
async fn calls_on_one_file_run_in_order() {
    let stage = Stage::new([]);
    let other = Other::of(&stage, []).await;
    stage.repo.write("list", "0\n");
    let calls = (0..12).map(|n| {
        let client = other.client.clone();
        let diff = format!("@@\n {n}\n+{}\n", n + 1);
        let args = json!({"file_path": "list", "diff": diff});
        let args: JsonObject = serde_json::from_value(args).unwrap();
        async move {
            let request = CallToolRequestParams::new("str_replace").with_arguments(args);
            told(&client.call_tool(request).await.unwrap())
        }
    });
    for answer in futures_util::future::join_all(calls).await {
        assert!(answer.0, "{answer:?}");
    }
    let expected: String = (0..=12).map(|n| format!("{n}\n")).collect();
    assert_eq!(stage.repo.read("list"), expected);
}

#[tokio::test]
async fn the_server_exits_when_its_client_disconnects() {
    let stage = Stage::new([]);
    let mut other = Other::of(&stage, []).await;
    let client = Arc::into_inner(other.client).unwrap();
    client.cancel().await.unwrap();
    assert!(other._g3.child.wait().await.unwrap().success());
}
