//! Tests of finding files by name and by content, and of the todo list.

use std::fs::{self, File};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use crate::tools_support::{Bench, Called};

/// Creates files with increasing modification times in the order of the list.
fn aged(bench: &Bench, files: &[(&str, &str)]) {
    for (age, (path, content)) in files.iter().enumerate() {
        bench.write(path, content);
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + age as u64);
        File::options().write(true).open(bench.dir.join(path)).unwrap().set_modified(time).unwrap();
    }
}

fn grep(bench: &Bench, args: Value) -> Called {
    bench.call("grep", args)
}

#[test]
fn matches_have_path_and_line_newest_file_first() {
    let bench = Bench::new("tools-api");
    aged(
        &bench,
        &[
            ("old.rs", "fn a() {}\nfn b() {}\n"),
            ("sub/new.rs", "x\r\nfn c() {}\r\n"),
            ("note.md", "fn d()\n"),
            (".hidden", "fn e()\n"),
            ("ignored.rs", "fn f()\n"),
            (".gitignore", "ignored.rs\n"),
            ("bin", "fn g()\0\n"),
        ],
    );
    let found = grep(&bench, json!({ "pattern": r"fn \w\(\)( \{\})?$", "include": "*.{rs,txt}" }));
    assert_eq!(found.works(), "sub/new.rs:2:fn c() {}\nold.rs:1:fn a() {}\nold.rs:2:fn b() {}");
    assert_eq!(found.metadata["count"], 3);
    let all = grep(&bench, json!({ "pattern": "fn" })).text;
    assert!(!all.contains("hidden") && !all.contains("ignored") && !all.contains("bin:"), "{all}");
    let below = grep(&bench, json!({ "pattern": "fn", "include": "sub/**/*.rs" }));
    assert_eq!(below.works(), "sub/new.rs:2:fn c() {}");
    let one = grep(&bench, json!({ "pattern": "fn", "path": "old.rs" }));
    assert_eq!(one.metadata["count"], 2);
    let none = grep(&bench, json!({ "pattern": "nothing" }));
    assert_eq!((none.works(), &none.metadata["count"]), ("", &json!(0)));
    grep(&bench, json!({ "pattern": "(" })).says("not a regular expression").fails("validation");
    grep(&bench, json!({ "pattern": "a", "path": "gone" }))
        .says("does not exist")
        .fails("validation");
    grep(&bench, json!({ "pattern": "a", "path": "/etc" })).says("outside").fails("denied");
    let bench = Bench { profile: "g3", ..bench };
    assert_eq!(grep(&bench, json!({ "pattern": "nothing" })).works(), "no matches");
}

#[test]
fn truncation_is_reported_at_the_end() {
    let bench = Bench::new("tools-api");
    bench.write("many", "x\n".repeat(150));
    bench.write("wide", format!("y{}\n", "é".repeat(3000)));
    let many = grep(&bench, json!({ "pattern": "x" }));
    assert_eq!(many.metadata["count"], 100);
    assert!(many.text.ends_with("of which 100 are shown: many]"), "{}", many.text);
    let wide = grep(&bench, json!({ "pattern": "^y" }));
    assert!(wide.text.chars().count() < 2100 && wide.text.ends_with("… [line cut]"));
    for n in 0..12 {
        bench.write(&format!("f{n}"), "z\n".repeat(100));
    }
    let most = grep(&bench, json!({ "pattern": "z" }));
    most.says("[truncated: 1000 of 1200 matches are shown").works();
}

#[test]
fn files_are_found_by_pattern() {
    let mut bench = Bench::new("tools-api");
    aged(
        &bench,
        &[
            ("a.rs", ""),
            ("sub/b.rs", ""),
            ("sub/deep/c.rs", ""),
            ("d.txt", ""),
            ("ignored.rs", ""),
            (".gitignore", "ignored.rs\n"),
            (".github/w.yml", ""),
        ],
    );
    let glob = |args: Value| bench.call("glob", args);
    let paths = |names: &[&str]| names.iter().map(|n| bench.at(n)).collect::<Vec<_>>().join("\n");
    let all = glob(json!({ "pattern": "**/*.rs" }));
    assert_eq!(all.works(), paths(&["sub/deep/c.rs", "sub/b.rs", "a.rs"]));
    assert_eq!(all.metadata["count"], 3);
    assert_eq!(
        glob(json!({ "pattern": "*.rs", "path": "sub" })).text,
        paths(&["sub/deep/c.rs", "sub/b.rs"])
    );
    assert_eq!(glob(json!({ "pattern": "sub/*.rs" })).text, paths(&["sub/b.rs"]));
    assert_eq!(glob(json!({ "pattern": "*.{txt,md}" })).text, paths(&["d.txt"]));
    assert_eq!(glob(json!({ "pattern": ".github/**" })).text, paths(&[".github/w.yml"]));
    glob(json!({ "pattern": "*.nope" })).says("No files found").works();
    glob(json!({ "pattern": "[" })).says("not a glob").fails("validation");
    glob(json!({ "pattern": "*", "path": "gone" })).says("does not exist").fails("validation");

    bench.profile = "egirl";
    let glob = |pattern: &str, dir: &str| {
        bench.call("glob_files", json!({ "pattern": pattern, "dir": dir }))
    };
    assert_eq!(glob("**/*.rs", ".").works(), "a.rs\nignored.rs\nsub/b.rs\nsub/deep/c.rs");
    assert_eq!(glob("*.rs", "sub").works(), "b.rs");
    glob("*.nope", ".").says("No files found").works();
}

#[test]
fn all_profiles_share_one_todo_list() {
    let mut bench = Bench::new("g3");
    bench.call("todo_read", json!({})).says("No todo items found").works();
    let text = "# Plan\n- [ ] one\n  - [x] two\nwords\n";
    bench.call("todo_write", json!({ "content": text })).says("1 of 2").works();
    assert_eq!(bench.call("todo_read", json!({})).works(), text);
    assert_eq!(fs::read_to_string(bench.session().join("todo.g3.md")).unwrap(), text);
    bench
        .call("todo_write", json!({ "content": "x".repeat(50_001) }))
        .says("50000")
        .fails("validation");

    bench.profile = "tools-api";
    bench.call("todoread", json!({})).says("[ ] [medium] one").says("[x] [medium] two").works();
    let todos = json!([
        { "id": "a", "content": "first", "status": "in_progress", "priority": "high" },
        { "id": "b", "content": "second", "status": "odd", "priority": "odd" },
        { "content": "third", "status": "cancelled", "priority": "low" },
    ]);
    let written = bench.call("todowrite", json!({ "todos": todos }));
    written
        .says("Tasks (1/3)")
        .says("[>] [high] first (a)")
        .says("[ ] [medium] second (b)")
        .works();
    assert_eq!(
        (&written.metadata["total"], &written.metadata["cancelled"]),
        (&json!(3), &json!(1))
    );
    let doubled = json!([{ "id": "a", "content": "x" }, { "id": "a", "content": "y" }]);
    bench.call("todowrite", json!({ "todos": doubled })).says("id `a`").fails("validation");
    bench
        .call("todowrite", json!({ "todos": [{ "id": "a" }] }))
        .says("`content`")
        .fails("validation");

    bench.profile = "g3";
    let text = bench.call("todo_read", json!({})).text;
    assert_eq!(text, "- [>] first\n- [ ] second\n- [-] third\n");
    fs::write(bench.session().join("todo.g3.md"), "- [x] by hand\n").unwrap();

    bench.profile = "tools-api";
    bench.call("todoread", json!({})).says("[x] [medium] by hand").works();
    bench.call("todowrite", json!({})).works();
    bench.call("todoread", json!({})).says("No todo items found").works();
}
