//! Tests of the policy `core-exact`: its decision table, including false positives.

use std::sync::LazyLock;

use base::config::agent::GateConfig as Config;
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn evaluator() -> Evaluator {
    Evaluator::new(&Config::default()).unwrap()
}

fn command(line: &str) -> Judgement {
    evaluator().judge(COMMAND, &json!({ "command": line }), false)
}

#[track_caller]
fn goes(line: &str, route: Route, reason: &str, asks: bool) {
    let judged = command(line);
    let told = (judged.route, judged.reason.as_str(), judged.require_confirmation);
    assert_eq!(told, (route, reason, asks), "{line:?}");
}

#[test]
fn every_tool_has_its_route() {
    for (tools, reason, asks) in [
        ("execute_gui", "gui_requires_host", false),
        ("execute_computer_use", "gemini_computer_use_native", false),
        (
            "observe_screen get_ui_context maximize_active_window wait get_action_history \
             execute_accessible window_list window_focus resize_window clipboard_read \
             clipboard_write",
            "display_requires_host",
            false,
        ),
        ("execute_browser", "browser_requires_host", false),
        ("execute_skill", "skill_workflow_execution", false),
        ("load_skill", "skill_instructions_load", false),
        ("create_skill edit_skill", "skill_authoring", true),
        ("read_file edit_file find_files", "file_operation", false),
        ("read_pdf read_image read_excel write_excel", "file_operation", false),
        ("process_info system_info", "system_info", false),
        ("download_file", "safe", false),
        (
            "save_dialog open_dialog launch_app open_file close_app app_menu install_app \
             copy_between_apps fill_form extract_text set_env_var change_setting \
             find_and_replace_in_files",
            "workflow_operation",
            false,
        ),
    ] {
        for tool in tools.split_whitespace() {
            let judged = evaluator().judge(tool, &json!({}), false);
            let told = (judged.route, judged.reason.as_str(), judged.require_confirmation);
            assert_eq!(told, (Route::Host, reason, asks), "{tool}");
        }
    }
    let unknown = evaluator().judge("launch_rocket", &json!({"command": "ls"}), false);
    assert_eq!((unknown.route, unknown.reason.as_str()), (Route::Sandbox, "unknown_tool"));
    assert!(!unknown.voice_message.is_empty() && !unknown.require_confirmation);
    let all: std::collections::BTreeSet<&str> = rows::names().collect();
    assert_eq!(all.len(), rows::names().count(), "duplicate tool name");
}

#[test]
fn the_users_decision_takes_precedence() {
    for (tool, args) in [
        (COMMAND, json!({"command": "rm -rf /"})),
        ("read_file", json!({"file_path": "/etc/shadow"})),
        ("launch_rocket", json!({})),
    ] {
        let judged = evaluator().judge(tool, &args, true);
        let told = (judged.route, judged.reason.as_str(), judged.require_confirmation);
        assert_eq!(told, (Route::Host, "user_override", false), "{tool}");
    }
}

#[test]
fn a_restricted_path_sends_a_file_tool_to_the_sandbox() {
    for args in [json!({"file_path": "/etc/shadow"}), json!({"path": "/root/.ssh/id"})] {
        let judged = evaluator().judge("read_file", &args, false);
        assert_eq!(judged.route, Route::Sandbox, "{args}");
        assert!(judged.reason.starts_with("restricted_path: /"), "{judged:?}");
    }
    let both = json!({"file_path": "/home/a", "path": "/etc/shadow"});
    assert_eq!(evaluator().judge("edit_file", &both, false).reason, "file_operation");
    // Only the three file tools check their path.
    let image = evaluator().judge("read_image", &json!({"file_path": "/root/x.png"}), false);
    assert_eq!(image.reason, "file_operation");
}

#[test]
fn forbidden_comes_before_restricted_and_that_before_destructive() {
    for (line, forbidden) in [
        ("rm -rf /", "rm -rf /"),
        ("rm -rf /any/absolute", "rm -rf /"),
        ("RM -RF /etc/shadow", "rm -rf /"),
        ("true && rm -rf /x", "rm -rf /"),
        ("mkfs.ext4 /dev/sda1", "mkfs"),
        ("sudo dd if=/dev/zero of=/dev/sda", "dd if="),
        ("format c: /q", "format C:"),
        (r"DEL /F /S /Q c:\", r"del /f /s /q C:\"),
    ] {
        goes(line, Route::Sandbox, &format!("forbidden_command: {forbidden}"), false);
    }
    for (line, path) in [
        ("cat /etc/shadow", "/etc/shadow"),
        ("rm /etc/passwd", "/etc/passwd"),
        ("ls /root", "/root"),
        ("ls /rooted", "/root"),
        (r"dir C:\Windows\System32", r"C:\Windows"),
        ("cat /etc/pass''wd", "/etc/passwd"),
        ("add if=/etc/shadow", "/etc/shadow"),
    ] {
        goes(line, Route::Sandbox, &format!("restricted_path: {path}"), false);
    }
    goes("add if=x", Route::Host, "safe", false);
    // An additional space makes a different text, and paths are case-sensitive.
    goes("rm  -rf  /x", Route::Host, "destructive_command", true);
    goes("cat /ETC/SHADOW", Route::Host, "safe", false);
    goes("", Route::Host, "empty_command", true);
    assert_eq!(evaluator().judge(COMMAND, &json!({}), false).reason, "empty_command");
    assert_eq!(evaluator().judge(COMMAND, &json!({"command": 7}), false).reason, "empty_command");
}

#[test]
fn destructive_commands_ask() {
    for line in [
        "rm file.txt",
        "r'm' file.txt",
        "find . -delete",
        "git clean -ffdx",
        "unlink x",
        "> file",
        "true; >file",
        "/usr/bin/rm file.txt",
        r"C:\tools\DEL.exe x",
        "sudo rm a",
        "sudo env nohup nice time doas kill 1",
        "sudo env nohup nice time doas /bin/kill 1",
        "echo hello && rm a",
        "ls | xargs mv -t b",
        "sleep 1; shutdown now",
        "sleep 9 & pkill x",
        "echo $(rm a)",
        "echo `kill 1`",
        "psql -c 'drop table users'",
        "mysql -e 'TRUNCATE logs'",
        "DROP DATABASE x",
        "powershell -Command \"Remove-Item x\"",
        "powershell -EncodedCommand ZQBjAGgAbwA=",
        "pwsh.exe -NoProfile -e ZQBj",
        "powershell -ec ZQBj",
        "iex (iwr x)",
        "Format-Volume D",
        // Known false positives.
        "docker run --rm alpine true",
        "cargo build --message-format=json",
        "docker ps --format x",
        "git mv a b",
        "grep kill log",
        "echo 'do not rm this'",
    ] {
        goes(line, Route::Host, "destructive_command", true);
        assert!(command(line).voice_message.ends_with('?'), "{line}");
    }
    for line in [
        "docker ps",
        "ls -la",
        "echo hello",
        "git status",
        "grep -rn needle src",
        "remove x",
        "formatted",
        "cargo test",
        "echo -e hi",
        "ssh -e none host",
        " ",
        "sudo",
        "firmware",
        "powershell -Execution x",
        "drop the table",
    ] {
        goes(line, Route::Host, "safe", false);
    }
}

#[test]
fn the_users_lists_replace_the_built_in_ones_except_the_fixed_words() {
    let texts = |texts: &[&str]| Some(texts.iter().map(|it| (*it).to_owned()).collect());
    let config = Config {
        forbidden: texts(&["git push --force", ""]),
        restricted: texts(&["/srv/secret"]),
        destructive: texts(&["deploy", "SCALE DOWN"]),
        ..Config::default()
    };
    let own = Evaluator::new(&config).unwrap();
    let reason = |line: &str| own.judge(COMMAND, &json!({ "command": line }), false).reason;
    assert_eq!(reason("GIT push --force-with-lease"), "forbidden_command: git push --force");
    assert_eq!(reason("ls /srv/secret/x"), "restricted_path: /srv/secret");
    assert_eq!(reason("./deploy"), "destructive_command");
    assert_eq!(reason("kubectl scale down"), "destructive_command");
    for line in ["rm -rf /tmp/x", "cat /etc/shadow", "mkfs x"] {
        assert_eq!(reason(line), "safe", "{line}");
    }
    for floor in rows::ALWAYS_DESTRUCTIVE {
        assert_eq!(reason(&format!("x {floor} y")), "destructive_command", "{floor}");
    }
    let none = Config { destructive: texts(&[]), ..Config::default() };
    let none = Evaluator::new(&none).unwrap();
    let judged = none.judge(COMMAND, &json!({"command": "Set-Content x"}), false);
    assert_eq!(judged.reason, "destructive_command");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    /// Every command always gets the same decision, and it is consistent with its route.
    #[test]
    fn evaluation_is_deterministic(
        line in "(rm|dd|mkfs|sudo|echo|/etc/|/root|kill|if=|-rf| |;|&|\\||`|\\$\\(|\\)|/|é|[a-z]{1,3}|\\PC){0,10}"
    ) {
        static JUDGE: LazyLock<Evaluator> = LazyLock::new(evaluator);
        let judged = JUDGE.judge(COMMAND, &json!({ "command": line }), false);
        // A second evaluator that has seen other commands before: there is no state.
        prop_assert_eq!(&judged, &another(&line));
        let asks = ["destructive_command", "empty_command"].contains(&judged.reason.as_str());
        prop_assert_eq!(judged.require_confirmation, asks);
        let sandboxed =
            ["forbidden_command: ", "restricted_path: "].iter().any(|it| judged.reason.starts_with(it));
        prop_assert_eq!(judged.route == Route::Sandbox, sandboxed);
    }
}

fn another(line: &str) -> Judgement {
    static ANOTHER: LazyLock<Evaluator> = LazyLock::new(evaluator);
    ANOTHER.judge("launch_rocket", &json!({ "command": line }), false);
    ANOTHER.judge(COMMAND, &json!({ "command": format!("rm {line}") }), true);
    ANOTHER.judge(COMMAND, &json!({ "command": line }), false)
}
