//! What people read: g3 word for word.

use serde_json::json;
use testkit::model_server::reply::Reply;
use testkit::transcript::Transcript;

use crate::stage::Stage;

#[test]
fn a_task_a_failure_and_a_look_back() {
    let stage = Stage::new([
        Reply::says("I look first.").calls("shell", json!({"command": "ls; exit 3"})),
        Reply::call("write_file", json!({"file_path": "hello.txt", "content": "hi\n"})),
        Reply::says("**Done**: `hello.txt` says hi."),
        Reply::status(401),
    ]);
    let mut transcript = Transcript::of(&stage.env);
    for args in [&["say hi"][..], &["again"], &["--resume", "nope", "x"], &["sessions", "list"]] {
        transcript.add("g3", args, &stage.g3(args));
    }
    insta::assert_snapshot!(transcript.text());
}

#[test]
fn tools_without_a_model() {
    let stage = Stage::new([]);
    let mut transcript = Transcript::of(&stage.env);
    for args in [
        &["tool", "list"][..],
        &[
            "tool",
            "exec",
            "--name",
            "shell",
            "--args",
            r#"{"command": "echo out; echo err >&2; exit 4"}"#,
        ],
        &["tool", "exec", "--name", "read_file", "--args", r#"{"file_path": "README.md"}"#],
        &["tool", "exec", "--name", "read_file", "--args", r#"{"file_path": "/etc/hostname"}"#],
        &["tool", "exec", "--name", "write_file", "--args", r#"{"file_path": "a.txt"}"#],
        &[
            "tool",
            "exec",
            "--name",
            "str_replace",
            "--args",
            r#"{"file_path": "README.md", "diff": "nope"}"#,
        ],
        &["tool", "exec", "--name", "reed_file", "--args", "{}"],
    ] {
        transcript.add("g3", args, &stage.g3(args));
    }
    insta::assert_snapshot!(transcript.text());
}
