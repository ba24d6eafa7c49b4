//! Tests of tools from inside the process: cancellation, streamed output and panics.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use gate::Gate;
use tools::context::ToolContext;
use tools::dispatch::{resource_keys, run};
use tools::output::ToolErrorKind;
use tools::profile::Profile;
use tools::registry::Registry;

static REGISTRY: Registry = Registry::new(&[crate::TOOLS]);

fn place(dir: &tempfile::TempDir) -> ToolContext {
    let root = dir.path().canonicalize().unwrap();
    ToolContext::quiet(&REGISTRY, &root, root.join("session"))
}

#[tokio::test]
async fn a_cancelled_command_is_killed_with_its_group() {
    let dir = tempfile::tempdir().unwrap();
    let (told, heard) = tokio::sync::mpsc::unbounded_channel();
    let on_output = Arc::new(move |text: &str| told.send(text.to_owned()).unwrap_or_default());
    let at = ToolContext { on_output, ..place(&dir) };
    let cancel = at.cancel.clone();
    let mut heard = heard;
    let args = json!({ "command": "sleep 300 & echo $!; wait" });
    let call = run(Profile::G3, "shell", &args, &at);
    let (outcome, pid) = tokio::join!(call, async {
        let pid: u32 = heard.recv().await.unwrap().trim().parse().unwrap();
        cancel.cancel();
        pid
    });
    assert_eq!(outcome.error_kind, Some(ToolErrorKind::Cancelled));
    assert!(
        outcome.text.contains("cancelled by the user") && outcome.text.contains(&pid.to_string())
    );
    let gone = async {
        while base::process::is_alive(pid) {
            tokio::task::yield_now().await;
        }
    };
    let ended = tokio::time::timeout(Duration::from_secs(60), gone).await;
    ended.expect("the child of the command ends");
}

#[tokio::test]
async fn output_is_streamed_and_excessive_output_is_truncated() {
    let dir = tempfile::tempdir().unwrap();
    let heard = Arc::new(Mutex::new(String::new()));
    let listener = heard.clone();
    let on_output = Arc::new(move |text: &str| listener.lock().unwrap().push_str(text));
    let at = ToolContext { on_output, ..place(&dir) };
    let args = json!({ "command": "echo é; seq 1 100000; sleep 1.2; echo still here" });
    assert!(run(Profile::G3, "shell", &args, &at).await.ok);
    let heard = heard.lock().unwrap();
    assert!(heard.starts_with("é\n1\n2\n"), "{heard:.20}");
    assert!(heard.contains("\n[more output follows, of which only some lines are shown]\n"));
    assert!(heard.ends_with("still here\n"), "what comes later is not heard");
    assert!(heard.len() < 200_000);
}

#[tokio::test]
async fn a_panicking_tool_is_a_failed_outcome() {
    let dir = tempfile::tempdir().unwrap();
    let context =
        ToolContext { on_output: Arc::new(|_| panic!("the listener failed")), ..place(&dir) };
    let outcome = run(Profile::G3, "shell", &json!({ "command": "echo x" }), &context).await;
    assert_eq!(outcome.error_kind, Some(ToolErrorKind::Failed));
    assert!(
        outcome.text.contains("Tool execution error")
            && outcome.text.contains("the listener failed")
    );
}

#[tokio::test]
async fn a_call_after_cancellation_does_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let at = place(&dir);
    at.cancel.cancel();
    let args = json!({ "file_path": "a", "content": "x" });
    let outcome = run(Profile::G3, "write_file", &args, &at).await;
    assert_eq!(outcome.error_kind, Some(ToolErrorKind::Cancelled));
    assert!(!at.root.join("a").exists());
}

#[test]
fn calls_that_touch_the_same_file_share_a_key() {
    let dir = tempfile::tempdir().unwrap();
    let at = place(&dir);
    let key = |name: &str, args: Value| resource_keys(Profile::G3, name, &args, &at);
    let write = key("write_file", json!({ "file_path": "src/../a.py", "content": "" }));
    assert_eq!(write, [at.root.join("a.py").to_string_lossy()]);
    assert_eq!(key("read_file", json!({ "path": at.root.join("a.py") })), write);
    assert!(key("shell", json!({ "command": "python ./a.py" })).contains(&write[0]));
    assert!(!key("shell", json!({ "command": "make" })).contains(&write[0]));
    assert_eq!(key("execute_cli", json!({ "command": "ls" })), ["shell"]);
    assert!(key("no_such_tool", json!({})).is_empty());
}

#[tokio::test]
async fn a_panicking_gate_denies_the_call() {
    struct Breaks;
    impl gate::Asker for Breaks {
        fn ask<'a>(
            &'a self,
            _: &'a gate::PermissionQuestion,
        ) -> futures_util::future::BoxFuture<'a, gate::PermissionAnswer> {
            Box::pin(async { panic!("out of order") })
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let gate =
        Gate::new(&base::config::agent::GateConfig::default(), Some(Arc::new(Breaks))).unwrap();
    let at = ToolContext { gate: Arc::new(gate), ..place(&dir) };
    std::fs::write(at.cwd.join("old"), "").unwrap();
    let outcome = run(Profile::Core, "execute_cli", &json!({ "command": "rm old" }), &at).await;
    assert_eq!(outcome.error_kind, Some(ToolErrorKind::Failed));
    assert!(outcome.text.contains("could not judge this call"), "{}", outcome.text);
    assert!(at.cwd.join("old").exists());
}
