//! The real g3 in the real studio, over ACP, with a scripted model: from the task to the landed
//! commit.

use serde_json::json;
use testkit::env::{TestEnv, built};
use testkit::model_server::ModelServer;
use testkit::model_server::reply::ScriptedReply;

#[test]
fn g3_works_in_a_worktree_and_its_work_lands_with_a_model_written_message() {
    assert!(built("g3").exists());
    let env = TestEnv::new();
    let repo = env.repo_at("a repö");
    let server = ModelServer::start([
        ScriptedReply::call("write_file", json!({"file_path": "hello.txt", "content": "hi\n"})),
        ScriptedReply::says("I wrote the file."),
        ScriptedReply::says("Greet the reader\n\nA repository should say hello."),
    ]);
    env.config(&server.config_toml("anthropic"));
    let studio = env!("CARGO_BIN_EXE_studio");

    let task = "create hello.txt with a greeting";
    let ran = env.run(studio, repo.path(), ["run", "--check", "test -f hello.txt", task]);

    ran.exits(0).output_contains("ready");
    let status = env.run(studio, repo.path(), ["status", "--json"]).json();
    assert_eq!(status["agent"], "g3");
    assert!(status["usage"]["output"].as_u64().unwrap_or(0) > 0, "{status}");
    let stats = env.run(studio, repo.path(), ["stats", "--json"]).json();
    assert_eq!(stats["models"][0]["name"], "scripted", "{stats}");
    let logs = env.run(studio, repo.path(), ["logs"]);
    logs.exits(0).output_contains("write_file").output_contains("I wrote the file.");
    let id = status["id"].as_str().unwrap_or_default();
    let landed = env.run(studio, repo.path(), ["accept", id, "--json"]).exits(0).json();
    assert_eq!(landed["landed"][0]["message_by"], "model", "{landed}");
    assert_eq!(repo.read("hello.txt"), "hi\n");
    let message = repo.git(["log", "-1", "--format=%B"]);
    assert!(message.starts_with("Greet the reader\n\nA repository should say hello."), "{message}");
    assert!(message.contains("Co-authored-by: g3"), "{message}");
    let asked = server.requests();
    let body = String::from_utf8_lossy(&asked[2].raw).into_owned();
    assert!(body.contains("commit message") && body.contains(task), "{body}");
}
