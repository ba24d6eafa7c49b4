//! Tests of g3 on a terminal as a person uses it: a tmux pty, wide and narrow.

use serde_json::json;
use testkit::env::in_process_namespace;
use testkit::model_server::reply::ScriptedReply;
use testkit::tmux::TmuxTerminal;

use crate::agent_env::{G3, Stage};
use crate::mcp_support;

/// The default terminal size.
const USUAL: (u16, u16) = (80, 24);
const NARROW: (u16, u16) = (40, 24);

fn g3<'a, const N: usize>(stage: &'a Stage, size: (u16, u16), args: [&str; N]) -> TmuxTerminal<'a> {
    let command = [G3].into_iter().chain(args);
    TmuxTerminal::start(&stage.env, stage.repo.path(), size, command)
}

/// Returns a command that prints these lines, and ends when the test creates the file `go`.
fn waits(lines: &str) -> serde_json::Value {
    let wait = "until [ -e go ]; do sleep 0.02; done";
    json!({"command": format!("printf '{lines}\\n'; {wait}; echo the last line")})
}

fn go(stage: &Stage) {
    stage.repo.write("go", "");
}

/// Returns the terminal's content without durations and without lines of other programs.
fn steady(text: &str) -> String {
    let lines = text.lines().map(|line| {
        let words = line.trim_end();
        let is_time = words.trim().strip_suffix(" s").is_some_and(|n| n.parse::<f64>().is_ok());
        if is_time { "" } else { words }
    });
    let kept: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
    kept.join("\n")
}

#[test]
fn the_last_lines_of_a_command_are_shown_during_and_after_it() {
    let stage = Stage::new([
        ScriptedReply::call(
            "shell",
            waits(r"line 1\nline 2\nline 3\nline 4\nline 5\nline 6\nline 7"),
        ),
        ScriptedReply::says("Done."),
    ]);
    let terminal = g3(&stage, USUAL, ["run it"]);
    let live = terminal.shows_all(&["\n  line 3", "\n  line 7", "shell printf"]);
    assert!(!live.contains("\n  line 2"), "more than the last lines are shown:\n{live}");
    go(&stage);
    let text = terminal.ends();
    assert!(text.contains("… 4 earlier lines\n  line 5\n"), "{text}");
    assert!(text.contains("  the last line\n  [exit code 0]\n"), "{text}");
    assert!(text.contains("Done.") && !text.contains("thinking"), "{text}");
}

#[test]
fn tool_exec_streams_output() {
    let stage = Stage::new([]);
    let args = waits("begun").to_string();
    let terminal = g3(&stage, NARROW, ["tool", "exec", "--name", "shell", "--args", &args]);
    terminal.shows_all(&["  begun", "shell printf"]);
    go(&stage);
    let text = terminal.ends();
    assert_eq!(text, "begun\nthe last line\n[exit code 0]", "what was live is gone");
}

#[test]
fn an_edit_is_shown_as_a_diff() {
    let lines: String = (1..=9).map(|n| format!("line {n} of a file with words\n")).collect();
    let diff = "@@ -4,3 +4,3 @@\n line 4 of a file with words\n-line 5 of a file with words\n+line five of a file with words\n line 6 of a file with words\n";
    for size in [USUAL, NARROW] {
        let stage = Stage::new([
            ScriptedReply::call("str_replace", json!({"file_path": "a.txt", "diff": diff})),
            ScriptedReply::call(
                "write_file",
                json!({"file_path": "new.txt", "content": "hi\n\tthere\n"}),
            ),
            ScriptedReply::says("Done."),
        ]);
        stage.repo.write("a.txt", &lines);
        let text = g3(&stage, size, ["edit"]).ends();
        insta::assert_snapshot!(format!("edit_{}", size.0), steady(&text));
    }
}

#[test]
fn a_diff_is_colored_and_has_signs_without_colors() {
    for (variable, colours) in [("", true), ("1", false)] {
        let mut stage = Stage::new([
            ScriptedReply::says("# Plan\n")
                .calls("write_file", json!({"file_path": "a.txt", "content": "new\n"})),
            ScriptedReply::says("Done."),
        ]);
        stage.env.set("NO_COLOR", variable);
        stage.repo.write("a.txt", "old\n");
        let terminal = g3(&stage, USUAL, ["edit"]);
        let text = terminal.ends();
        assert!(text.contains("    1 - old\n    1 + new\n"), "{text}");
        let painted = terminal.painted();
        assert_eq!(painted.contains("\u{1b}[32m    1 + new"), colours, "{painted:?}");
        assert_eq!(painted.contains("\u{1b}[31m-1\n    1 - old"), colours, "{painted:?}");
        assert_eq!(painted.contains("\u{1b}[3"), colours, "{painted:?}");
    }
}

#[test]
fn a_question_about_a_write_shows_the_diff_and_accepts_an_answer() {
    for (answer, written) in [("y", true), ("n", false), ("", false)] {
        let stage = Stage::new([
            ScriptedReply::call(
                "write_file",
                json!({"file_path": "../outside.txt", "content": "b\u{202e}\nc\n"}),
            ),
            ScriptedReply::says("Done."),
        ]);
        let outside = stage.env.home().join("outside.txt");
        std::fs::write(&outside, "a\nc\n").unwrap();
        let terminal = g3(&stage, USUAL, ["write outside"]);
        let asked = terminal.shows("Allow? [y]es, [a]lways in this session, [N]o:");
        assert!(asked.contains("write_file wants to write "), "{asked}");
        assert!(asked.contains("  │    1 - a\n  │    1 + b<U+202E>\n"), "{asked}");
        assert_eq!(std::fs::read_to_string(&outside).unwrap(), "a\nc\n", "nothing is written yet");
        terminal.enters("what?").enters(answer);
        let text = terminal.ends();
        assert_eq!(
            text.matches("Allow?").count(),
            2,
            "an invalid answer repeats the question:\n{text}"
        );
        let now = std::fs::read_to_string(&outside).unwrap();
        assert_eq!(now == "b\u{202e}\nc\n", written, "{answer:?}:\n{text}");
    }
}

#[test]
fn always_applies_to_the_rest_of_the_session() {
    let write = |text: &str| {
        ScriptedReply::call("write_file", json!({"file_path": "../o.txt", "content": text}))
    };
    let stage = Stage::new([write("1"), write("2"), ScriptedReply::says("Done.")]);
    let terminal = g3(&stage, NARROW, ["write twice"]);
    terminal.shows("[N]o:");
    terminal.enters("a");
    let text = terminal.ends();
    assert_eq!(text.matches("[y]es").count(), 1, "{text}");
    assert_eq!(std::fs::read_to_string(stage.env.home().join("o.txt")).unwrap(), "2");
}

#[test]
fn text_typed_before_a_question_does_not_answer_it() {
    let stage = Stage::new([
        ScriptedReply::call("shell", waits("begun")),
        ScriptedReply::call("write_file", json!({"file_path": "../outside.txt", "content": "x"})),
        ScriptedReply::says("The end."),
        ScriptedReply::says("Yes?"),
    ]);
    let terminal = g3(&stage, USUAL, []);
    terminal.shows("g3>");
    terminal.enters("write outside").shows("  begun");
    terminal.enters("y");
    go(&stage);
    terminal.shows("Allow?");
    terminal.enters("n").shows("The end.");
    // The text remains at the prompt as typed.
    terminal.shows("g3> y");
    assert!(!stage.env.home().join("outside.txt").exists());
}

#[test]
fn text_typed_during_a_turn_appears_only_at_the_prompt() {
    let stage = Stage::new([
        ScriptedReply::call("shell", waits("begun")),
        ScriptedReply::says("The answer."),
        ScriptedReply::says("Another answer."),
    ]);
    let terminal = g3(&stage, USUAL, []);
    terminal.shows("g3>");
    terminal.enters("begin").shows("  begun");
    terminal.types("and then th");
    go(&stage);
    let text = terminal.shows("g3> and then th");
    assert_eq!(text.matches("and then th").count(), 1, "{text}");
    assert!(text.contains("\nThe answer.\n"), "{text}");
    terminal.enters("is").shows("Another answer.");
    assert!(stage.asked().last().unwrap().text().contains("and then this"));
}

#[test]
fn text_is_wrapped_and_tables_are_aligned_to_the_terminal_width() {
    let words = "I looked at **every file** of the project and found what follows:\n\n\
        - the parser, which is a rather long file, reads `tokens`\n\
        - the printer\n\n\
        | File | What it does | Lines |\n|---|---|--:|\n\
        | `parse.rs` | reads the text and says where it is wrong | 1200 |\n\
        | print.rs | writes it | 80 |\n\nThat is all.\n";
    for size in [USUAL, NARROW] {
        let stage = Stage::new([ScriptedReply::says(words).in_chunks_of(7)]);
        let text = g3(&stage, size, ["look"]).ends();
        insta::assert_snapshot!(format!("answer_{}", size.0), text);
    }
}

#[test]
fn a_resumed_session_shows_its_end_and_exit_says_how_to_resume() {
    let stage = Stage::new([
        ScriptedReply::says("One."),
        ScriptedReply::says("I look.").calls("shell", json!({"command": "ls"})),
        ScriptedReply::says("There is **one** file, as far as I can see from here."),
        ScriptedReply::says("Three."),
    ]);
    let terminal = g3(&stage, USUAL, []);
    terminal.shows("g3>");
    terminal.enters("first").shows("One.");
    terminal.enters("how many files are there?").shows("from here.");
    terminal.enters("/exit");
    let text = terminal.ends();
    let id = stage.session_dir().file_name().unwrap().to_str().unwrap().to_owned();
    assert!(text.ends_with(&format!("to continue this session: g3 --resume {id}")), "{text}");

    let terminal = g3(&stage, NARROW, ["--resume"]);
    let text = terminal.shows("g3>");
    let version = format!("g3 {} ·", env!("CARGO_PKG_VERSION"));
    insta::assert_snapshot!("resumed_40", text.replace(&version, "g3 [version] ·"));
    terminal.enters("and now?").shows("Three.");
}

#[test]
fn the_banner_shows_model_directory_and_session() {
    let stage = Stage::new([]);
    let text = g3(&stage, USUAL, []).shows("g3>");
    let version = format!("g3 {} ·", env!("CARGO_PKG_VERSION"));
    insta::assert_snapshot!("banner_80", text.replace(&version, "g3 [version] ·"));
}

#[test]
fn paths_after_an_at_sign_are_completed() {
    let stage = Stage::new([ScriptedReply::says("Seen.")]);
    stage.repo.write("src/a_long_name.rs", "fn a() {}\n");
    let terminal = g3(&stage, USUAL, []);
    terminal.shows("g3>");
    terminal.types("look at @long_n").presses("Tab").shows("@src/a_long_name.rs");
    terminal.presses("Enter").shows("Seen.");
    assert!(terminal.text().contains("attached src/a_long_name.rs: 1 line"), "{}", terminal.text());
    assert!(stage.asked()[0].text().contains("fn a() {}"));
}

#[test]
fn a_denied_write_leaves_nothing_behind() {
    let patch = "*** Begin Patch\n*** Add File: ../new/dir/b.txt\n+b\n*** End Patch";
    let stage = Stage::new([
        ScriptedReply::call(
            "write_file",
            json!({"file_path": "../new/dir/a.txt", "content": "a\n"}),
        ),
        ScriptedReply::call("patch", json!({"patch_text": patch})),
        ScriptedReply::says("Done."),
    ]);
    let terminal = g3(&stage, USUAL, ["write outside"]);
    terminal.shows("    1 + a");
    terminal.enters("n").shows("    1 + b");
    terminal.enters("n");
    let text = terminal.ends();
    assert!(text.contains("Done."), "{text}");
    assert!(!stage.env.home().join("new").exists(), "a directory was made for a preview");
    assert!(!stage.session_dir().join("undo").exists(), "a write that was never made is kept");
}

#[test]
fn an_interrupt_at_a_question_denies_and_the_prompt_continues() {
    let stage = Stage::new([
        ScriptedReply::call("write_file", json!({"file_path": "../outside.txt", "content": "x"})),
        ScriptedReply::says("Here I am."),
    ]);
    let terminal = g3(&stage, USUAL, []);
    terminal.shows("g3>");
    terminal.enters("write outside").shows("[N]o:");
    terminal.presses("C-c").shows("interrupted");
    terminal.enters("are you there?").shows("Here I am.");
    let text = terminal.text();
    assert_eq!(text.matches("are you there?").count(), 1, "{text}");
    assert!(!stage.env.home().join("outside.txt").exists());
}

#[test]
fn an_interrupt_restores_the_terminal() {
    let stage = Stage::new([ScriptedReply::call("shell", waits("begun"))]);
    let line = format!("trap : INT; {G3} 'begin'; stty -a");
    let terminal = TmuxTerminal::start(&stage.env, stage.repo.path(), USUAL, ["sh", "-c", &line]);
    terminal.shows("  begun");
    let text = terminal.presses("C-c").ends();
    assert!(text.contains("interrupted"), "{text}");
    let echoes = text.split_whitespace().any(|word| word == "echo");
    assert!(echoes && !text.contains("-echo "), "the terminal does not echo any more:\n{text}");
}

#[test]
fn a_question_shows_a_long_command_in_full_on_a_narrow_terminal() {
    let names: Vec<String> = (1..=30).map(|n| format!("file{n:02}")).collect();
    let command = format!("cd .. &&\ntouch {}", names.join(" "));
    let stage = Stage::new([
        ScriptedReply::call("shell", json!({"command": command})),
        ScriptedReply::says("Done."),
    ]);
    std::fs::create_dir_all(stage.env.home().join(".config/g3")).unwrap();
    let rule = "\n[[gate.rules]]\ntool = \"shell\"\naction = \"ask\"\n";
    let file = stage.env.home().join(".config/g3/config.toml");
    let config = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, config + rule).unwrap();
    let terminal = g3(&stage, NARROW, ["touch many"]);
    let asked = terminal.shows("[N]o:").replace('\n', "");
    assert!(names.iter().all(|name| asked.contains(name.as_str())), "{asked}");
    terminal.enters("n");
    terminal.ends();
    assert!(!stage.env.home().join("file01").exists());
}

#[test]
fn a_question_about_a_servers_tool_shows_its_arguments() {
    let replies =
        [mcp_support::call("echo", json!({"text": "plum\u{202e}"})), ScriptedReply::says("Done.")];
    let stage = mcp_support::stage(replies, [], "");
    let terminal = g3(&stage, USUAL, ["say plum"]);
    let asked = terminal.shows("[N]o:");
    assert!(asked.contains("run on the MCP server `kit`"), "{asked}");
    assert!(asked.contains("\"text\": \"plum<U+202E>\""), "{asked}");
    terminal.enters("n");
    assert!(terminal.ends().contains("denied by the user"));
}

#[test]
fn nothing_is_drawn_over_a_question_while_another_call_runs() {
    let command = "until [ -e go ]; do sleep 0.02; done; echo the last line; touch ended";
    let stage = Stage::new([
        ScriptedReply::call("shell", json!({"command": command}))
            .calls("write_file", json!({"file_path": "../outside.txt", "content": "x"})),
        ScriptedReply::says("Done."),
    ]);
    let terminal = g3(&stage, USUAL, ["do both"]);
    terminal.shows("[N]o:");
    go(&stage);
    testkit::env::until("the command's end", || {
        stage.repo.path().join("ended").exists().then_some(())
    });
    let text = terminal.types("y").shows("[N]o: y");
    assert!(text.ends_with("[N]o: y"), "something is drawn over the question:\n{text}");
    let text = terminal.presses("Enter").ends();
    assert!(text.contains("the last line") && text.contains("Done."), "{text}");
    assert!(stage.env.home().join("outside.txt").exists());
}

/// These tests need namespaces (unshare -r).
mod needs_mount_namespace {
    use super::*;

    #[test]
    #[ignore = "needs namespaces of its own (unshare -r)"]
    fn the_terminal_is_used_in_a_namespace_without_its_foreground_group() {
        let stage = Stage::new([
            ScriptedReply::call("shell", waits("begun")),
            ScriptedReply::says("I am here."),
        ]);
        let command = in_process_namespace().into_iter().chain([G3, "begin"]);
        let terminal = TmuxTerminal::start(&stage.env, stage.repo.path(), USUAL, command);
        terminal.shows("  begun");
        go(&stage);
        let text = terminal.ends();
        assert!(text.contains("I am here.") && !text.contains("panicked"), "{text}");
    }
}
