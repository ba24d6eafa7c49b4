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
    guide: TurnGuide,
}

fn workspace(task: &str, files: &[(&str, &str)]) -> TestWorkspace {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(dir.path().join(name), text).unwrap();
    }
    let guide = TurnGuide::new(task, dir.path());
    TestWorkspace { dir, guide }
}

fn call(name: &str, args: Value) -> ToolCall {
    ToolCall { id: "c".into(), name: name.into(), args, malformed: None }
}

impl TestWorkspace {
    /// Writes a file as the tool does. Returns the hint, or why the call was blocked.
    fn write(&self, name: &str, text: &str) -> String {
        let call = call("write_file", json!({ "file_path": name, "content": text }));
        if let Some(held) = self.guide.block(WRITE, &call) {
            return format!("{} {}", held.text, held.hint.unwrap());
        }
        fs::write(self.dir.path().join(name), text).unwrap();
        self.guide.add_next_step(Some(WRITE), &call, ToolOutput::success("ok")).hint.unwrap()
    }

    /// Edits a file as the tool does. Returns the hint, or why the call was blocked.
    fn edit(&self, name: &str, old: &str, new: &str) -> String {
        let args = json!({ "filePath": name, "oldString": old, "newString": new });
        let call = call("edit", args);
        if let Some(held) = self.guide.block(REPLACE, &call) {
            return format!("{} {}", held.text, held.hint.unwrap());
        }
        let path = self.dir.path().join(name);
        let here = fs::read_to_string(&path).unwrap();
        let outcome = match here.contains(old) {
            true => {
                fs::write(&path, here.replacen(old, new, 1)).unwrap();
                ToolOutput::success("edited")
            }
            false => ToolOutput::failed(ToolErrorKind::Failed, "`oldString` is not found"),
        };
        self.guide.add_next_step(Some(REPLACE), &call, outcome).hint.unwrap()
    }

    /// Reports a command with this exit code and output.
    fn run(&self, line: &str, code: i32, said: &str) -> String {
        let call = call("shell", json!({ "command": line }));
        if let Some(held) = self.guide.block(RUN, &call) {
            return format!("{} {}", held.text, held.hint.unwrap());
        }
        let outcome = if code == 0 {
            ToolOutput::success(said)
        } else {
            ToolOutput::failed(ToolErrorKind::Failed, said)
        };
        let outcome = outcome.with(json!({ "exit_code": code }));
        self.guide.add_next_step(Some(RUN), &call, outcome).hint.unwrap()
    }
}

const SUM: (&str, &str) = ("sum.py", "def add(a, b):\n    return a - b\n");
const TEST: (&str, &str) = ("test_sum.py", "from sum import add\nassert add(1, 2) == 3\n");

#[test]
fn a_task_that_asks_for_a_change_is_not_done_without_one() {
    let workspace = workspace("Fix sum.py.", &[SUM]);
    let first = workspace.guide.open_work().unwrap();
    assert!(first.starts_with(REMINDER) && first.contains("whole changed sum.py"), "{first}");
    assert!(workspace.guide.open_work().is_some());
    assert_eq!(workspace.guide.open_work(), None, "in the end the model has the last word");
}

#[test]
fn a_question_is_done_when_it_is_answered() {
    let workspace = workspace("What does sum.py do?", &[SUM]);
    assert_eq!(workspace.guide.open_work(), None);
}

#[test]
fn after_a_failure_the_faulty_file_is_named_and_a_change_is_required() {
    let workspace = workspace("test_sum.py fails. Fix sum.py.", &[SUM, TEST]);
    let early = workspace.run("python3 test_sum.py", 1, "");
    assert!(early.starts_with("not run: nothing is changed yet."), "{early}");
    let hint = workspace.run("python3 test_sum.py", 1, "AssertionError");
    assert!(hint.contains("whole corrected sum.py"), "{hint}");
    let again = workspace.run("python3 test_sum.py", 1, "AssertionError");
    assert!(again.starts_with("not run: no file was changed"), "{again}");
    let open = workspace.guide.open_work().unwrap();
    assert!(open.contains("No file has changed"), "{open}");
    let hint = workspace.write("sum.py", "def add(a, b):\n    return a + b\n");
    assert!(hint.ends_with("python3 test_sum.py"), "{hint}");
    assert!(
        workspace
            .guide
            .open_work()
            .unwrap()
            .contains("This command fails:\npython3 test_sum.py\nAssertionError")
    );
    let hint = workspace.run("python3 test_sum.py", 0, "");
    assert!(hint.contains("call answer"), "{hint}");
    assert_eq!(workspace.guide.open_work(), None);
}

#[test]
fn writes_without_effect_or_to_the_test_only_are_blocked() {
    let workspace = workspace("test_sum.py fails. Fix sum.py.", &[SUM, TEST]);
    assert!(workspace.write(SUM.0, SUM.1).contains("holds exactly this already"));
    let copied = format!("{}assert add(1, 2) == 3\n", SUM.1);
    assert!(workspace.write(SUM.0, &copied).contains("copies lines of the test"));
    let bent = "from sum import add\nassert add(1, 2) == -1\n";
    assert!(workspace.write(TEST.0, bent).contains("the test is right"));
    assert!(!workspace.write(TEST.0, bent).contains("not written"), "who insists may");
}

#[test]
fn a_syntax_error_is_reported_immediately_and_before_the_end() {
    let workspace = workspace("Create conf.json with the key a (1).", &[]);
    let hint = workspace.write("conf.json", "a: 1\n");
    assert!(hint.contains("not valid JSON"), "{hint}");
    assert!(workspace.guide.open_work().unwrap().contains("not valid JSON"));
    assert!(workspace.write("conf.json", "{\"a\": 1}\n").contains("call answer"));
    assert_eq!(workspace.guide.open_work(), None);
}

#[test]
fn missing_files_come_next_and_output_goes_to_the_named_file() {
    let workspace = workspace("Write hi.py, run it and store its output in hi.txt.", &[]);
    assert!(workspace.guide.open_work().unwrap().contains("No file has changed"));
    let hint = workspace.write("hi.py", "print('hi')\n");
    assert!(hint.ends_with("python3 hi.py > hi.txt"), "{hint}");
    assert!(workspace.guide.open_work().unwrap().contains("python3 hi.py > hi.txt"));
    fs::write(workspace.dir.path().join("hi.txt"), "hi\n").unwrap();
    let hint = workspace.run("python3 hi.py > hi.txt", 0, "");
    assert!(hint.starts_with("hi.txt now holds:\n```\nhi\n```"), "{hint}");
    assert_eq!(workspace.guide.open_work(), None);
}

#[test]
fn commands_and_tests_of_the_task_must_run_before_the_end() {
    let workspace = workspace("Fix sum.py, so that `python3 sum.py 1` works.", &[SUM]);
    let hint = workspace.write("sum.py", "def add(a, b):\n    return a + b\n");
    assert!(hint.ends_with("python3 sum.py 1"), "{hint}");
    assert!(workspace.guide.open_work().unwrap().contains("python3 sum.py 1"));
    assert_eq!(workspace.guide.open_work(), None, "it is said once");
}

#[test]
fn a_part_that_the_task_does_not_mention_is_not_dropped() {
    let half = ("maths.py", "def half(n):\n    return n // 2\n");
    let adding = workspace("Write a function is_even(n) in maths.py.", &[half]);
    let only = "def is_even(n):\n    return n % 2 == 0\n";
    let write = |text: &str| call("write_file", json!({"file_path": "maths.py", "content": text}));
    let whole = adding.guide.complete_write(ToolKind::WRITE, &write(only)).unwrap();
    let wanted = format!("{}\n\n{only}", half.1);
    assert_eq!(whole.args["content"], json!(wanted), "what is new is added");
    assert_eq!(adding.guide.complete_write(ToolKind::WRITE, &write(&wanted)), None);
    let twice = "def twice(n):\n    return n\n\ndef is_even(n):\n    return n % 2 == 0\n";
    let two = workspace("Write is_even in maths.py.", &[("maths.py", twice)]);
    assert!(two.write("maths.py", only).contains("would lose `twice`"));
    assert!(!adding.write("maths.py", &format!("{}\n{only}", half.1)).contains("not written"));
    let files = [("shapes.py", "class Box:\n    pass\n")];
    let renamed = workspace("Rename Box in shapes.py.", &files);
    assert!(!renamed.write("shapes.py", "class Case:\n    pass\n").contains("not written"));
}

#[test]
fn a_command_that_ran_runs_again_only_after_a_change() {
    let workspace = workspace("Create hello.py.", &[]);
    workspace.write("hello.py", "print(1)\n");
    assert!(workspace.run("python3 hello.py", 0, "1").contains("call answer"));
    let again = workspace.run("python3 hello.py", 0, "1");
    assert!(again.starts_with("not run: this ran already") && again.contains("call answer"));
    workspace.write("hello.py", "print(2)\n");
    assert!(!workspace.run("python3 hello.py", 0, "2").contains("not run"));
}

#[test]
fn an_uncounted_number_is_blocked_once() {
    let workspace =
        workspace("How many lines has a.txt? Write the number into n.txt.", &[("a.txt", "x\n")]);
    assert!(workspace.write("n.txt", "7\n").contains("no command has counted"));
    assert!(!workspace.write("n.txt", "7\n").contains("not written"));
}

#[test]
fn other_files_that_the_task_names_are_requested() {
    let files = [("shapes.py", "class Box:\n    pass\n"), ("app.py", "from shapes import Box\n")];
    let workspace = workspace("Rename Box in `shapes.py` and app.py.", &files);
    let hint = workspace.write("shapes.py", "class Case:\n    pass\n");
    assert!(hint.starts_with("app.py still uses `Box`, which is gone."), "{hint}");
    assert!(workspace.guide.open_work().unwrap().contains("app.py still uses `Box`"));
    assert!(workspace.write("app.py", "from shapes import Case\n").contains("call answer"));
    let files = [("shapes.py", "W = 1\n"), ("app.py", "import shapes\n")];
    let workspace = self::workspace("Set W to 2 in shapes.py for app.py.", &files);
    let hint = workspace.write("shapes.py", "W = 2\n");
    assert!(hint.starts_with("The task also names app.py."), "{hint}");
}

#[test]
fn files_deleted_on_purpose_are_not_requested() {
    let workspace =
        workspace("Delete old.py. Rename sum.py to add.py.", &[("old.py", "x = 1\n"), SUM]);
    fs::remove_file(workspace.dir.path().join("old.py")).unwrap();
    assert!(workspace.run("rm old.py", 0, "").contains("Now create add.py"));
    fs::rename(workspace.dir.path().join("sum.py"), workspace.dir.path().join("add.py")).unwrap();
    let hint = workspace.run("mv sum.py add.py", 0, "");
    assert!(!hint.contains("create") && !hint.contains("old.py is"), "{hint}");
    for _ in 0..3 {
        let open = workspace.guide.open_work().unwrap_or_default();
        assert!(!open.contains("create") && !open.contains("is wrong"), "{open}");
    }
}

#[test]
fn a_command_may_run_again_after_another_command_or_a_change() {
    let workspace = workspace("test_sum.py fails. Fix sum.py.", &[SUM, TEST]);
    workspace.run("python3 test_sum.py", 1, "");
    let fails = |line: &str| workspace.run(line, 1, "AssertionError");
    assert!(!fails("python3 test_sum.py").contains("not run"));
    assert!(fails("python3 test_sum.py").starts_with("not run"));
    fs::write(workspace.dir.path().join("sum.py"), "def add(a, b):\n    return b - a\n").unwrap();
    assert!(!fails("python3 test_sum.py").contains("not run"), "sed may have changed it");
    workspace.run("pip install x", 0, "");
    assert!(!fails("python3 test_sum.py").contains("not run"), "much else may have changed it");
}

#[test]
fn command_output_files_are_shown_only_inside_the_project() {
    let workspace = workspace("Say something.", &[("kept.txt", "kept\n")]);
    for line in ["echo x >/dev/stderr", "ls 2>/dev/null", "echo '>kept.txt'", "x > ../kept.txt"] {
        assert!(!workspace.run(line, 0, "").contains("now holds"), "{line}");
    }
    rustix::fs::mkfifoat(rustix::fs::CWD, workspace.dir.path().join("pipe"), 0o600.into()).unwrap();
    assert!(!workspace.run("x > pipe", 0, "").contains("now holds"));
    assert!(workspace.run("x 2>&1 > kept.txt", 0, "").contains("kept.txt now holds:\n```\nkept\n"));
}

#[test]
fn a_hidden_or_ignored_file_is_a_change() {
    let workspace = workspace("Add node_modules to .gitignore.", &[("a.py", "x = 1\n")]);
    fs::write(workspace.dir.path().join(".gitignore"), "node_modules\n").unwrap();
    assert_eq!(workspace.guide.open_work(), None);
    let other = self::workspace;
    let ignored = other("Write KEY=1 into key.env.", &[(".gitignore", "*.env\n")]);
    ignored.write("key.env", "KEY=1\n");
    assert_eq!(ignored.guide.open_work(), None);
}

#[test]
fn a_rewritten_file_replaces_the_old_content() {
    let app = ("app.py", "def main():\n    pass\n");
    let workspace = workspace("Rewrite app.py as a server: add a page.", &[app]);
    let args = json!({ "file_path": "app.py", "content": "def index():\n    return 'hi'\n" });
    assert_eq!(workspace.guide.complete_write(ToolKind::WRITE, &call("write_file", args)), None);
}

#[test]
fn existing_data_files_are_not_checked_for_syntax() {
    let workspace = workspace(
        "Set strict in conf.json.",
        &[("conf.json", "{ // why\n  \"strict\": false\n}\n")],
    );
    let hint = workspace.write("conf.json", "{ // why\n  \"strict\": true\n}\n");
    assert!(!hint.contains("not valid JSON"), "{hint}");
    assert_eq!(workspace.guide.open_work(), None);
}

#[test]
fn a_command_mentioned_by_a_document_is_not_required() {
    let guide = ("README.md", "Run `npm install`.\n");
    let workspace =
        workspace("README.md says `npm install`. It must say `pip install x`. Fix it.", &[guide]);
    let hint = workspace.write("README.md", "Run `pip install x`.\n");
    assert!(!hint.contains("with shell"), "{hint}");
}

#[test]
fn repeating_a_mistake_shows_the_original_content() {
    let count = ("count.sh", "n=3\nwhile [ $n -gt 0 ]; do\n  n=$((n + 1))\ndone\n");
    let workspace = workspace("count.sh never ends. Fix it.", &[count]);
    assert!(
        workspace.write("count.sh", "n=3; do\ndone\n").contains("this time without that mistake")
    );
    let again = workspace.write("count.sh", "n=3; do\ndone\n");
    assert!(again.contains("holds exactly this already. It is wrong: "), "{again}");
    assert!(again.contains("Before your change it was:\n```\nn=3\nwhile"), "{again}");
}

#[test]
fn rewriting_existing_content_ends_the_turn_when_nothing_is_open() {
    let workspace = workspace("Create NOTES.md with one sentence on what sum.py does.", &[SUM]);
    let hint = workspace.write("NOTES.md", "It adds.\n");
    assert!(hint.contains("call answer") && !hint.contains("also names"), "{hint}");
    assert!(
        workspace.write(SUM.0, SUM.1).contains("exactly this already")
            && !workspace.guide.is_done()
    );
    workspace.write(SUM.0, SUM.1);
    assert!(workspace.guide.is_done());
    workspace.run("python3 sum.py", 1, "Traceback");
    assert!(!workspace.guide.is_done());
    let early = self::workspace("Fix sum.py.", &[SUM]);
    for _ in 0..3 {
        early.write(SUM.0, SUM.1);
    }
    assert!(!early.guide.is_done(), "nothing was changed");
}

#[test]
fn a_repeated_edit_after_passing_checks_ends_the_turn() {
    let workspace = workspace("test_sum.py fails. Fix sum.py.", &[SUM, TEST]);
    let edit = || workspace.edit("sum.py", "a - b", "a + b");
    edit();
    workspace.run("python3 test_sum.py", 0, "");
    assert!(edit().starts_with("not written: sum.py has this change already."));
    assert!(!workspace.guide.is_done(), "once may be a slip");
    edit();
    assert!(workspace.guide.is_done());
}

#[test]
fn a_repeated_edit_without_passing_checks_does_not_end_the_turn() {
    let workspace = workspace("test_sum.py fails. Fix sum.py.", &[SUM, TEST]);
    let edit = || workspace.edit("sum.py", "a - b", "a * b");
    edit();
    for _ in 0..4 {
        assert!(edit().contains("python3 test_sum.py"), "the check is still to be run");
        assert!(!workspace.guide.is_done());
    }
    workspace.run("python3 test_sum.py", 1, "AssertionError");
    for _ in 0..4 {
        edit();
        assert!(!workspace.guide.is_done());
    }
    // A reverted edit may be made again, and so may another edit.
    workspace.write("sum.py", SUM.1);
    assert!(!edit().starts_with("not written"));
    assert!(!workspace.edit("sum.py", "a * b", "a + b").starts_with("not written"));
}

#[test]
fn an_inserted_line_is_not_inserted_twice() {
    let workspace = workspace("Add a line to notes.txt.", &[("notes.txt", "one\n")]);
    workspace.edit("notes.txt", "one\n", "one\ntwo\n");
    workspace.edit("notes.txt", "one\n", "one\ntwo\n");
    assert_eq!(fs::read_to_string(workspace.dir.path().join("notes.txt")).unwrap(), "one\ntwo\n");
}
