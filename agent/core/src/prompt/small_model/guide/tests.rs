//! Tests of the guide on a real directory, with calls as a small model makes them.

use std::fs;

use serde_json::{Value, json};

use super::*;
use tools::output::ToolErrorKind;
use tools::tool::ToolSpec;

const RUN: ToolSpec = ToolSpec::new("exec.run", Effect::Runs);
const WRITE: ToolSpec = ToolSpec::new("fs.write", Effect::Writes);
const REPLACE: ToolSpec = ToolSpec::new("edit.replace", Effect::Writes);

struct TestWorkspace {
    dir: tempfile::TempDir,
    coach: TurnGuide,
}

fn room(task: &str, files: &[(&str, &str)]) -> TestWorkspace {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(dir.path().join(name), text).unwrap();
    }
    let coach = TurnGuide::new(task, dir.path());
    TestWorkspace { dir, coach }
}

fn call(name: &str, args: Value) -> ToolCall {
    ToolCall { id: "c".into(), name: name.into(), args, malformed: None }
}

impl TestWorkspace {
    /// Writes a file as the tool does. Returns the hint, or why the call was blocked.
    fn write(&self, name: &str, text: &str) -> String {
        let call = call("write_file", json!({ "file_path": name, "content": text }));
        if let Some(held) = self.coach.hold(WRITE, &call) {
            return format!("{} {}", held.text, held.next.unwrap());
        }
        fs::write(self.dir.path().join(name), text).unwrap();
        self.coach.lead(Some(WRITE), &call, ToolOutput::done("ok")).next.unwrap()
    }

    /// Edits a file as the tool does. Returns the hint, or why the call was blocked.
    fn edit(&self, name: &str, old: &str, new: &str) -> String {
        let args = json!({ "filePath": name, "oldString": old, "newString": new });
        let call = call("edit", args);
        if let Some(held) = self.coach.hold(REPLACE, &call) {
            return format!("{} {}", held.text, held.next.unwrap());
        }
        let path = self.dir.path().join(name);
        let here = fs::read_to_string(&path).unwrap();
        let outcome = match here.contains(old) {
            true => {
                fs::write(&path, here.replacen(old, new, 1)).unwrap();
                ToolOutput::done("edited")
            }
            false => ToolOutput::failed(ToolErrorKind::Failed, "`oldString` is not found"),
        };
        self.coach.lead(Some(REPLACE), &call, outcome).next.unwrap()
    }

    /// Reports a command with this exit code and output.
    fn run(&self, line: &str, code: i32, said: &str) -> String {
        let call = call("shell", json!({ "command": line }));
        if let Some(held) = self.coach.hold(RUN, &call) {
            return format!("{} {}", held.text, held.next.unwrap());
        }
        let outcome = if code == 0 {
            ToolOutput::done(said)
        } else {
            ToolOutput::failed(ToolErrorKind::Failed, said)
        };
        let outcome = outcome.with(json!({ "exit_code": code }));
        self.coach.lead(Some(RUN), &call, outcome).next.unwrap()
    }
}

const SUM: (&str, &str) = ("sum.py", "def add(a, b):\n    return a - b\n");
const TEST: (&str, &str) = ("test_sum.py", "from sum import add\nassert add(1, 2) == 3\n");

#[test]
fn a_task_that_asks_for_a_change_is_not_done_without_one() {
    let room = room("Fix sum.py.", &[SUM]);
    let first = room.coach.still_open().unwrap();
    assert!(first.starts_with(REMINDER) && first.contains("whole changed sum.py"), "{first}");
    assert!(room.coach.still_open().is_some());
    assert_eq!(room.coach.still_open(), None, "in the end the model has the last word");
}

#[test]
fn a_question_is_done_when_it_is_answered() {
    let room = room("What does sum.py do?", &[SUM]);
    assert_eq!(room.coach.still_open(), None);
}

#[test]
fn after_a_failure_the_faulty_file_is_named_and_a_change_is_required() {
    let room = room("test_sum.py fails. Fix sum.py.", &[SUM, TEST]);
    let early = room.run("python3 test_sum.py", 1, "");
    assert!(early.starts_with("not run: nothing is changed yet."), "{early}");
    let hint = room.run("python3 test_sum.py", 1, "AssertionError");
    assert!(hint.contains("whole corrected sum.py"), "{hint}");
    let again = room.run("python3 test_sum.py", 1, "AssertionError");
    assert!(again.starts_with("not run: no file was changed"), "{again}");
    let open = room.coach.still_open().unwrap();
    assert!(open.contains("No file has changed"), "{open}");
    let hint = room.write("sum.py", "def add(a, b):\n    return a + b\n");
    assert!(hint.ends_with("python3 test_sum.py"), "{hint}");
    assert!(
        room.coach
            .still_open()
            .unwrap()
            .contains("This command fails:\npython3 test_sum.py\nAssertionError")
    );
    let hint = room.run("python3 test_sum.py", 0, "");
    assert!(hint.contains("call answer"), "{hint}");
    assert_eq!(room.coach.still_open(), None);
}

#[test]
fn writes_without_effect_or_to_the_test_only_are_blocked() {
    let room = room("test_sum.py fails. Fix sum.py.", &[SUM, TEST]);
    assert!(room.write(SUM.0, SUM.1).contains("holds exactly this already"));
    let copied = format!("{}assert add(1, 2) == 3\n", SUM.1);
    assert!(room.write(SUM.0, &copied).contains("copies lines of the test"));
    let bent = "from sum import add\nassert add(1, 2) == -1\n";
    assert!(room.write(TEST.0, bent).contains("the test is right"));
    assert!(!room.write(TEST.0, bent).contains("not written"), "who insists may");
}

#[test]
fn a_syntax_error_is_reported_immediately_and_before_the_end() {
    let room = room("Create conf.json with the key a (1).", &[]);
    let hint = room.write("conf.json", "a: 1\n");
    assert!(hint.contains("not valid JSON"), "{hint}");
    assert!(room.coach.still_open().unwrap().contains("not valid JSON"));
    assert!(room.write("conf.json", "{\"a\": 1}\n").contains("call answer"));
    assert_eq!(room.coach.still_open(), None);
}

#[test]
fn missing_files_come_next_and_output_goes_to_the_named_file() {
    let room = room("Write hi.py, run it and store its output in hi.txt.", &[]);
    assert!(room.coach.still_open().unwrap().contains("No file has changed"));
    let hint = room.write("hi.py", "print('hi')\n");
    assert!(hint.ends_with("python3 hi.py > hi.txt"), "{hint}");
    assert!(room.coach.still_open().unwrap().contains("python3 hi.py > hi.txt"));
    fs::write(room.dir.path().join("hi.txt"), "hi\n").unwrap();
    let hint = room.run("python3 hi.py > hi.txt", 0, "");
    assert!(hint.starts_with("hi.txt now holds:\n```\nhi\n```"), "{hint}");
    assert_eq!(room.coach.still_open(), None);
}

#[test]
fn commands_and_tests_of_the_task_must_run_before_the_end() {
    let room = room("Fix sum.py, so that `python3 sum.py 1` works.", &[SUM]);
    let hint = room.write("sum.py", "def add(a, b):\n    return a + b\n");
    assert!(hint.ends_with("python3 sum.py 1"), "{hint}");
    assert!(room.coach.still_open().unwrap().contains("python3 sum.py 1"));
    assert_eq!(room.coach.still_open(), None, "it is said once");
}

#[test]
fn a_part_that_the_task_does_not_mention_is_not_dropped() {
    let half = ("maths.py", "def half(n):\n    return n // 2\n");
    let adding = room("Write a function is_even(n) in maths.py.", &[half]);
    let only = "def is_even(n):\n    return n % 2 == 0\n";
    let write = |text: &str| call("write_file", json!({"file_path": "maths.py", "content": text}));
    let whole = adding.coach.completed(ToolKind::WRITE, &write(only)).unwrap();
    let wanted = format!("{}\n\n{only}", half.1);
    assert_eq!(whole.args["content"], json!(wanted), "what is new is added");
    assert_eq!(adding.coach.completed(ToolKind::WRITE, &write(&wanted)), None);
    let twice = "def twice(n):\n    return n\n\ndef is_even(n):\n    return n % 2 == 0\n";
    let two = room("Write is_even in maths.py.", &[("maths.py", twice)]);
    assert!(two.write("maths.py", only).contains("would lose `twice`"));
    assert!(!adding.write("maths.py", &format!("{}\n{only}", half.1)).contains("not written"));
    let files = [("shapes.py", "class Box:\n    pass\n")];
    let renamed = room("Rename Box in shapes.py.", &files);
    assert!(!renamed.write("shapes.py", "class Case:\n    pass\n").contains("not written"));
}

#[test]
fn a_command_that_ran_runs_again_only_after_a_change() {
    let room = room("Create hello.py.", &[]);
    room.write("hello.py", "print(1)\n");
    assert!(room.run("python3 hello.py", 0, "1").contains("call answer"));
    let again = room.run("python3 hello.py", 0, "1");
    assert!(again.starts_with("not run: this ran already") && again.contains("call answer"));
    room.write("hello.py", "print(2)\n");
    assert!(!room.run("python3 hello.py", 0, "2").contains("not run"));
}

#[test]
fn an_uncounted_number_is_blocked_once() {
    let room = room("How many lines has a.txt? Write the number into n.txt.", &[("a.txt", "x\n")]);
    assert!(room.write("n.txt", "7\n").contains("no command has counted"));
    assert!(!room.write("n.txt", "7\n").contains("not written"));
}

#[test]
fn other_files_that_the_task_names_are_requested() {
    let files = [("shapes.py", "class Box:\n    pass\n"), ("app.py", "from shapes import Box\n")];
    let room = room("Rename Box in `shapes.py` and app.py.", &files);
    let hint = room.write("shapes.py", "class Case:\n    pass\n");
    assert!(hint.starts_with("app.py still uses `Box`, which is gone."), "{hint}");
    assert!(room.coach.still_open().unwrap().contains("app.py still uses `Box`"));
    assert!(room.write("app.py", "from shapes import Case\n").contains("call answer"));
    let files = [("shapes.py", "W = 1\n"), ("app.py", "import shapes\n")];
    let room = self::room("Set W to 2 in shapes.py for app.py.", &files);
    let hint = room.write("shapes.py", "W = 2\n");
    assert!(hint.starts_with("The task also names app.py."), "{hint}");
}

#[test]
fn files_deleted_on_purpose_are_not_requested() {
    let room = room("Delete old.py. Rename sum.py to add.py.", &[("old.py", "x = 1\n"), SUM]);
    fs::remove_file(room.dir.path().join("old.py")).unwrap();
    assert!(room.run("rm old.py", 0, "").contains("Now create add.py"));
    fs::rename(room.dir.path().join("sum.py"), room.dir.path().join("add.py")).unwrap();
    let hint = room.run("mv sum.py add.py", 0, "");
    assert!(!hint.contains("create") && !hint.contains("old.py is"), "{hint}");
    for _ in 0..3 {
        let open = room.coach.still_open().unwrap_or_default();
        assert!(!open.contains("create") && !open.contains("is wrong"), "{open}");
    }
}

#[test]
fn a_command_may_run_again_after_another_command_or_a_change() {
    let room = room("test_sum.py fails. Fix sum.py.", &[SUM, TEST]);
    room.run("python3 test_sum.py", 1, "");
    let fails = |line: &str| room.run(line, 1, "AssertionError");
    assert!(!fails("python3 test_sum.py").contains("not run"));
    assert!(fails("python3 test_sum.py").starts_with("not run"));
    fs::write(room.dir.path().join("sum.py"), "def add(a, b):\n    return b - a\n").unwrap();
    assert!(!fails("python3 test_sum.py").contains("not run"), "sed may have changed it");
    room.run("pip install x", 0, "");
    assert!(!fails("python3 test_sum.py").contains("not run"), "much else may have changed it");
}

#[test]
fn command_output_files_are_shown_only_inside_the_project() {
    let room = room("Say something.", &[("kept.txt", "kept\n")]);
    for line in ["echo x >/dev/stderr", "ls 2>/dev/null", "echo '>kept.txt'", "x > ../kept.txt"] {
        assert!(!room.run(line, 0, "").contains("now holds"), "{line}");
    }
    rustix::fs::mkfifoat(rustix::fs::CWD, room.dir.path().join("pipe"), 0o600.into()).unwrap();
    assert!(!room.run("x > pipe", 0, "").contains("now holds"));
    assert!(room.run("x 2>&1 > kept.txt", 0, "").contains("kept.txt now holds:\n```\nkept\n"));
}

#[test]
fn a_hidden_or_ignored_file_is_a_change() {
    let room = room("Add node_modules to .gitignore.", &[("a.py", "x = 1\n")]);
    fs::write(room.dir.path().join(".gitignore"), "node_modules\n").unwrap();
    assert_eq!(room.coach.still_open(), None);
    let other = self::room;
    let ignored = other("Write KEY=1 into key.env.", &[(".gitignore", "*.env\n")]);
    ignored.write("key.env", "KEY=1\n");
    assert_eq!(ignored.coach.still_open(), None);
}

#[test]
fn a_rewritten_file_replaces_the_old_content() {
    let app = ("app.py", "def main():\n    pass\n");
    let room = room("Rewrite app.py as a server: add a page.", &[app]);
    let args = json!({ "file_path": "app.py", "content": "def index():\n    return 'hi'\n" });
    assert_eq!(room.coach.completed(ToolKind::WRITE, &call("write_file", args)), None);
}

#[test]
fn existing_data_files_are_not_checked_for_syntax() {
    let room =
        room("Set strict in conf.json.", &[("conf.json", "{ // why\n  \"strict\": false\n}\n")]);
    let hint = room.write("conf.json", "{ // why\n  \"strict\": true\n}\n");
    assert!(!hint.contains("not valid JSON"), "{hint}");
    assert_eq!(room.coach.still_open(), None);
}

#[test]
fn a_command_mentioned_by_a_document_is_not_required() {
    let guide = ("README.md", "Run `npm install`.\n");
    let room = room("README.md says `npm install`. It must say `pip install x`. Fix it.", &[guide]);
    let hint = room.write("README.md", "Run `pip install x`.\n");
    assert!(!hint.contains("with shell"), "{hint}");
}

#[test]
fn repeating_a_mistake_shows_the_original_content() {
    let count = ("count.sh", "n=3\nwhile [ $n -gt 0 ]; do\n  n=$((n + 1))\ndone\n");
    let room = room("count.sh never ends. Fix it.", &[count]);
    assert!(room.write("count.sh", "n=3; do\ndone\n").contains("this time without that mistake"));
    let again = room.write("count.sh", "n=3; do\ndone\n");
    assert!(again.contains("holds exactly this already. It is wrong: "), "{again}");
    assert!(again.contains("Before your change it was:\n```\nn=3\nwhile"), "{again}");
}

#[test]
fn rewriting_existing_content_ends_the_turn_when_nothing_is_open() {
    let room = room("Create NOTES.md with one sentence on what sum.py does.", &[SUM]);
    let hint = room.write("NOTES.md", "It adds.\n");
    assert!(hint.contains("call answer") && !hint.contains("also names"), "{hint}");
    assert!(room.write(SUM.0, SUM.1).contains("exactly this already") && !room.coach.is_done());
    room.write(SUM.0, SUM.1);
    assert!(room.coach.is_done());
    room.run("python3 sum.py", 1, "Traceback");
    assert!(!room.coach.is_done());
    let early = self::room("Fix sum.py.", &[SUM]);
    for _ in 0..3 {
        early.write(SUM.0, SUM.1);
    }
    assert!(!early.coach.is_done(), "nothing was changed");
}

#[test]
fn a_repeated_edit_after_passing_checks_ends_the_turn() {
    let room = room("test_sum.py fails. Fix sum.py.", &[SUM, TEST]);
    let edit = || room.edit("sum.py", "a - b", "a + b");
    edit();
    room.run("python3 test_sum.py", 0, "");
    assert!(edit().starts_with("not written: sum.py has this change already."));
    assert!(!room.coach.is_done(), "once may be a slip");
    edit();
    assert!(room.coach.is_done());
}

#[test]
fn a_repeated_edit_without_passing_checks_does_not_end_the_turn() {
    let room = room("test_sum.py fails. Fix sum.py.", &[SUM, TEST]);
    let edit = || room.edit("sum.py", "a - b", "a * b");
    edit();
    for _ in 0..4 {
        assert!(edit().contains("python3 test_sum.py"), "the check is still to be run");
        assert!(!room.coach.is_done());
    }
    room.run("python3 test_sum.py", 1, "AssertionError");
    for _ in 0..4 {
        edit();
        assert!(!room.coach.is_done());
    }
    // A reverted edit may be made again, and so may another edit.
    room.write("sum.py", SUM.1);
    assert!(!edit().starts_with("not written"));
    assert!(!room.edit("sum.py", "a * b", "a + b").starts_with("not written"));
}

#[test]
fn an_inserted_line_is_not_inserted_twice() {
    let room = room("Add a line to notes.txt.", &[("notes.txt", "one\n")]);
    room.edit("notes.txt", "one\n", "one\ntwo\n");
    room.edit("notes.txt", "one\n", "one\ntwo\n");
    assert_eq!(fs::read_to_string(room.dir.path().join("notes.txt")).unwrap(), "one\ntwo\n");
}
