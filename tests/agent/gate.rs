//! Tests of the gate: its decisions, the sandbox, and questions.

use std::fs;
use std::net::TcpListener;

use serde_json::{Value, json};
use testkit::model_server::reply::ScriptedReply;

use crate::agent_env::Stage;
use crate::editor::Editor;
use crate::tools_support::{Bench, Called, G3};

const EXACT: &str = "[gate]\npolicy = \"core-exact\"\n";
/// Allows every command permanently.
const ALL: &str = "[[gate.rules]]\ntool = \"execute_cli\"\naction = \"allow\"\n";

fn run(bench: &Bench, line: &str) -> Called {
    bench.call("execute_cli", json!({ "command": line }))
}

/// Returns the output of `g3 tool check --json`.
fn check(bench: &Bench, more: &[&str], line: &str) -> Value {
    let call = json!({ "command": line }).to_string();
    let args = ["tool", "check", "--name", "execute_cli", "--json", "--args", &call];
    let args = [&args[..], &["--profile", "core"], more].concat();
    bench.env.run(G3, &bench.dir, args).json()
}

#[test]
fn a_check_reports_the_decision_and_runs_nothing() {
    let bench = Bench::new("core");
    let exact = |line: &str| check(&bench, &["--policy", "core-exact"], line);
    let told = exact("touch made && rm -rf /");
    assert_eq!(
        told,
        json!({
            "route": "sandbox",
            "reason": "forbidden_command: rm -rf /",
            "voice_message": told["voice_message"],
            "require_confirmation": false,
        })
    );
    assert!(!told["voice_message"].as_str().unwrap().is_empty());
    assert_eq!(exact("")["reason"], "empty_command");
    assert_eq!(exact("rm x")["require_confirmation"], true);
    let forced = check(&bench, &["--policy", "core-exact", "--force-host"], "rm -rf /");
    assert_eq!((&forced["route"], &forced["reason"]), (&json!("host"), &json!("user_override")));
    let denied = check(&bench, &[], "rm -rf /");
    assert_eq!(denied["route"], "deny", "{denied}");
    let asks = check(&bench, &[], "rm x");
    assert_eq!((&asks["route"], &asks["require_confirmation"]), (&json!("box"), &json!(true)));
    let outside = check(&bench, &[], "touch ../x");
    assert_eq!(
        (&outside["route"], &outside["require_confirmation"]),
        (&json!("host"), &json!(true))
    );
    assert_eq!(check(&bench, &[], "ls")["reason"], "safe");
    assert_eq!(fs::read_dir(&bench.dir).unwrap().count(), 0, "nothing was made, not even state");
    bench.env.config(EXACT);
    assert_eq!(check(&bench, &[], "git mv a b")["reason"], "destructive_command");
    let known = ["tool", "check", "--name", "create_skill", "--policy", "core-exact"];
    let known = bench.env.run(G3, &bench.dir, known);
    assert!(known.ok().contains("skill_authoring (asks first)"));
    let unknown = ["tool", "check", "--name", "shelll", "--policy", "default"];
    assert_eq!(bench.env.run(G3, &bench.dir, unknown).code, 2);
}

#[test]
fn divergence_20_only_core_exact_has_false_positives() {
    let bench = Bench::new("core");
    for line in [
        "docker run --rm alpine true",
        "cargo build --message-format=json",
        "git mv a b",
        "grep kill log",
        "echo 'do not rm this'",
    ] {
        let exact = check(&bench, &["--policy", "core-exact"], line);
        assert_eq!(exact["require_confirmation"], true, "{line}");
        let own = check(&bench, &["--policy", "default"], line);
        assert_eq!(own["require_confirmation"], false, "{line}");
    }
}

#[test]
fn divergence_19_forbidden_commands_do_no_harm_in_the_sandbox() {
    let bench = Bench::new("core");
    bench.env.config(&format!("{EXACT}{ALL}"));
    let outside = bench.env.home().join("outside");
    fs::write(&outside, "whole").unwrap();
    bench.write("inside", "whole");
    let out = outside.display();
    let told =
        run(&bench, &format!("dd if=/dev/zero of='{out}' bs=1 count=9; dd if=/dev/zero of=inside"));
    assert_eq!(told.metadata["sandboxed"], true, "{told:?}");
    assert_eq!(told.metadata["status"], "error");
    assert_eq!(
        (fs::read_to_string(&outside).unwrap(), bench.read("inside")),
        ("whole".into(), "whole".into())
    );
    // A safe variant of the dangerous command: the same words, on a directory of the test.
    let tree = bench.env.home().join("tree");
    fs::create_dir_all(tree.join("deep")).unwrap();
    fs::write(tree.join("deep/file"), "whole").unwrap();
    let told = run(&bench, &format!("rm -rf {}", tree.display()));
    assert_eq!(told.metadata["sandboxed"], true, "{told:?}");
    assert!(tree.join("deep/file").exists());
    let told = run(
        &bench,
        ": /etc/passwd; echo x > \"$TMPDIR/x\" && cat \"$TMPDIR/x\" inside; kill -9 $PPID",
    );
    assert_eq!(told.metadata["stdout"], "x\nwhole", "{told:?}");
    let left = fs::read_dir(bench.env.home().join("tmp")).unwrap().count();
    assert_eq!(left, 0, "its scratch directory is gone");
    // The same lines on this machine, without routing to the sandbox.
    bench.env.config(ALL);
    assert_eq!(run(&bench, "dd if=/dev/zero of=inside bs=1 count=2").metadata["status"], "success");
    assert_eq!(bench.read("inside"), "\0\0");
}

#[test]
fn the_sandbox_has_no_network_and_resource_limits() {
    let bench = Bench::new("core");
    bench.env.config(&format!("{EXACT}{ALL}"));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let knock = format!("exec 3<>/dev/tcp/127.0.0.1/{port} && echo in");
    let told = run(&bench, &format!(": /etc/passwd; {knock}"));
    assert_eq!(told.metadata["sandboxed"], true, "{told:?}");
    assert!(!told.text.contains("in\\n"), "{told:?}");
    assert!(listener.accept().is_err(), "a connection was made");
    assert_eq!(run(&bench, &knock).metadata["stdout"], "in\n", "and it can be reached");
    assert!(listener.accept().is_ok());
    // No process escapes, and there are never more than a hundred.
    let told = run(&bench, ": /etc/passwd; (setsid sleep 600 &); sleep 0.1; ulimit -c -u -d -t");
    let told = told.metadata["stderr"].as_str().unwrap().to_owned()
        + told.metadata["stdout"].as_str().unwrap();
    assert!(told.contains("not permitted") && told.contains("262144"), "{told}");
    let bomb = run(&bench, ": /etc/passwd; f() { f | f & }; f; sleep 0.5");
    assert!(bomb.text.contains("Resource temporarily unavailable"), "{bomb:?}");
}

#[test]
fn divergence_19_without_a_complete_sandbox_nothing_runs() {
    let bench = Bench::new("core");
    bench.env.config(&format!("{EXACT}{ALL}"));
    let called = |line: &'static str| {
        // The kernel stacks at most sixteen rule sets, and this leaves no room for more.
        let all = base::sandbox::SandboxRules {
            read: vec!["/".into()],
            write: vec!["/".into()],
            ..Default::default()
        };
        std::thread::scope(|scope| {
            let full = scope.spawn(|| {
                while base::sandbox::enter(&all).is_ok() {}
                run(&bench, line)
            });
            full.join().unwrap()
        })
    };
    let told = called("dd if=/dev/zero of=inside bs=1 count=2");
    told.says("no sandbox to run it in").fails("failed");
    assert!(!bench.has("inside"));
    called("echo x > inside").works();
    assert!(bench.has("inside"), "everything else runs there");
}

#[test]
fn divergence_23_the_rule_named_in_a_denial_allows_the_sandbox_and_nothing_else() {
    let bench = Bench::new("core");
    bench.env.config(EXACT);
    let line = "dd if=/dev/zero of=inside bs=1 count=2";
    let denied = run(&bench, line);
    denied.says("forbidden_command: dd if=").says("no terminal to ask on").fails("denied");
    assert_eq!(denied.metadata["status"], "rejected");
    let said = denied.metadata["description"].as_str().unwrap();
    let rule = said.split_once('\n').unwrap().1;
    bench.env.config(&format!("{EXACT}{rule}\n"));
    assert_eq!(run(&bench, line).metadata["sandboxed"], true);
    assert!(!bench.has("inside"));
}

/// Runs one call, about which the editor is asked. Returns what the model received.
fn asked(line: &str, option: &str) -> (Stage, Value) {
    let call = ScriptedReply::call("execute_cli", json!({ "command": line }));
    let stage = Stage::new([call, ScriptedReply::says("done")]);
    let provider = stage.model.config_toml("anthropic");
    stage.env.config(&format!("{EXACT}[agent]\nprofile = \"core\"\n{provider}"));
    stage.repo.write("old", "whole");
    let mut editor = Editor::open(&stage);
    let session = editor.new_session(stage.repo.path());
    let id = editor.prompt(&session, "do it");
    let asks = editor.wait("question", |m| m["method"] == "session/request_permission");
    let title = asks["params"]["toolCall"]["title"].as_str().unwrap();
    assert!(title.contains("_command"), "{title}");
    editor.send(json!({"jsonrpc": "2.0", "id": asks["id"], "result":
        {"outcome": {"outcome": "selected", "optionId": option}}}));
    assert_eq!(editor.answer(id)["result"]["stopReason"], "end_turn");
    let result = serde_json::from_str(&stage.asked()[1].tool_results()[0].1).unwrap();
    (stage, result)
}

#[test]
fn allowed_destructive_commands_run_here_and_forbidden_ones_in_the_sandbox() {
    let (stage, result) = asked("rm old", "once");
    assert_eq!((&result["status"], result.get("sandboxed")), (&json!("success"), None));
    assert!(!stage.repo.path().join("old").exists());
    let (stage, result) = asked("rm old", "no");
    assert_eq!(result["status"], "rejected", "{result}");
    assert!(stage.repo.path().join("old").exists());
    let (stage, result) = asked("dd if=/dev/zero of=old", "once");
    assert_eq!((&result["status"], &result["sandboxed"]), (&json!("error"), &json!(true)));
    assert_eq!(stage.repo.read("old"), "whole");
    let (stage, result) = asked("dd if=/dev/zero of=old", "no");
    assert_eq!(result["status"], "rejected", "{result}");
    assert_eq!(stage.repo.read("old"), "whole");
}

#[test]
fn an_invalid_configuration_stops_g3_and_is_not_changed() {
    let bench = Bench::new("core");
    for (wrong, said) in [
        ("[gate]\npolicy = \"strict\"\n", "core-exact"),
        ("[gate]\nforbiden = []\n", "gate.forbidden"),
        ("[gate]\n\npolicy = \"core\n", "line 3"),
        ("[gate]\nforbidden = \"rm\"\n", "gate.forbidden"),
    ] {
        bench.env.config(wrong);
        let args = ["tool", "check", "--name", "execute_cli", "--args", "{\"command\": \"ls\"}"];
        let ran = bench.env.run(G3, &bench.dir, args);
        assert_eq!(ran.code, 2, "{wrong}");
        assert!(ran.err.contains(said) && ran.err.contains("config.toml"), "{}", ran.err);
        let file = bench.env.home().join(".config/g3/config.toml");
        assert_eq!(fs::read_to_string(file).unwrap(), wrong);
    }
}
