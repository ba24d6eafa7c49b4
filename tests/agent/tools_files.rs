//! Tests of reading and writing files.

use std::os::unix::fs::{PermissionsExt, symlink};

use serde_json::json;

use crate::tools_support::Bench;

#[test]
fn a_file_is_read_with_its_size_and_lines() {
    let mut bench = Bench::new("g3");
    bench.write("a.txt", "aé\nb\n");
    let read = |args| bench.call("read_file", args);
    assert_eq!(read(json!({ "file_path": "a.txt" })).works(), "[a.txt: 6 bytes, 2 lines]\naé\nb\n");
    let part = read(json!({ "file_path": "a.txt", "start": 1, "end": 3 }));
    assert_eq!(part.works(), "[a.txt: 6 bytes, 2 lines; characters 1 to 3 of 5]\né\n");
    let rest = read(json!({ "file_path": "a.txt", "start": 3, "end": 99 }));
    rest.says("characters 3 to 5 of 5]\nb\n").works();
    read(json!({ "file_path": "a.txt", "start": 6 })).says("past the end").fails("validation");
    read(json!({ "file_path": "a.txt", "start": 3, "end": 2 }))
        .says("past `end`")
        .fails("validation");
    bench.env.set("HOME", bench.at(""));
    let home = bench.call("read_file", json!({ "file_path": "~/a.txt" }));
    home.says("aé").works();
}

#[test]
fn binary_files_are_rejected_with_a_hint() {
    let bench = Bench::new("g3");
    bench.write("dir/x", "");
    bench.write("bin", b"ELF\0\0");
    bench.write("pic.png", b"\x89PNG\r\n\x1a\n\0");
    bench.write("wide", b"\xff\xfea\0");
    bench.write("latin", b"caf\xe9 ok");
    let read = |path: &str| bench.call("read_file", json!({ "file_path": path }));
    read("dir").says("it is a directory").says("`ls`").fails("failed");
    read("bin").says("binary file").says("xxd").fails("failed");
    read("pic.png").says("an image").fails("failed");
    read("wide").says("iconv").fails("failed");
    read("gone").says("cannot read gone").fails("not_found");
    read("latin").says("caf\u{fffd} ok").says("not valid UTF-8").works();
    read("").says("empty").fails("validation");
}

#[test]
fn a_long_file_is_truncated_and_says_where_to_continue() {
    let bench = Bench::new("g3");
    let long: String = (0..9000).map(|n| format!("line {n} é\n")).collect();
    bench.write("long.txt", &long);
    let called = bench.call("read_file", json!({ "file_path": "long.txt" }));
    let text = called.says("[truncated: ").works();
    let next: usize =
        text.rsplit_once("`start`: ").unwrap().1.trim_end_matches(']').parse().unwrap();
    let rest = bench
        .call("read_file", json!({ "file_path": "long.txt", "start": next, "end": next + 20 }));
    let expected: String = long.chars().skip(next).take(20).collect();
    rest.says(&expected).works();
}

#[test]
fn lines_are_numbered_only_if_a_range_is_requested() {
    let bench = Bench::new("egirl");
    bench.write("a.txt", "one\ntwo\nthree\n");
    let read = |args| bench.call("read_file", args);
    assert_eq!(read(json!({ "path": "a.txt" })).works(), "one\ntwo\nthree\n");
    let lines = |start, end| read(json!({ "path": "a.txt", "start_line": start, "end_line": end }));
    assert_eq!(lines(json!(2), json!(3)).works(), "2: two\n3: three");
    assert_eq!(lines(json!(2), json!(null)).works(), "2: two\n3: three");
    assert_eq!(lines(json!(null), json!(1)).works(), "1: one");
    assert_eq!(lines(json!(3), json!(99)).works(), "3: three");
    assert_eq!(lines(json!(3), json!(2)).works(), "");
    lines(json!(9), json!(null)).says("3 lines").works();
    read(json!({ "path": "gone" })).says("Failed to read file").fails("not_found");
    read(json!({ "path": "." })).says("Failed to read file").fails("failed");
}

#[test]
fn writing_creates_directories_and_reports_the_size() {
    let mut bench = Bench::new("g3");
    let written =
        bench.call("write_file", json!({ "file_path": "new/dir/a.txt", "content": "é\nb" }));
    assert_eq!(written.works(), "wrote 4 bytes, 2 lines to new/dir/a.txt");
    assert_eq!(bench.read("new/dir/a.txt"), "é\nb");
    bench.call("write_file", json!({ "file_path": "new/dir/a.txt", "content": "" })).works();
    assert_eq!(bench.read("new/dir/a.txt"), "");
    bench.call("write_file", json!({ "file_path": "new", "content": "" })).fails("failed");

    bench.profile = "egirl";
    let args = json!({ "path": "x/y", "content": "é", "create_directories": false });
    bench.call("write_file", args).says("Failed to write file").fails("not_found");
    bench.call("write_file", json!({ "path": "x/y", "content": "é" })).says("1 characters").works();

    bench.profile = "tools-api";
    let content = (0..20).map(|n| format!("{n}\n")).collect::<String>();
    let written = bench.call("write", json!({ "filePath": bench.at("z"), "content": content }));
    written.says("Successfully wrote 50 bytes").works();
    assert_eq!(written.metadata["bytes"], 50);
    assert_eq!(written.metadata["preview"], "0\n1\n2\n3\n4\n5\n6\n7\n8\n9");
    let outside = bench.call("write", json!({ "filePath": "../out.txt", "content": "" }));
    outside.says("outside").fails("denied");
}

#[test]
fn a_link_to_the_outside_is_not_written_through() {
    let bench = Bench::new("g3");
    let outside = bench.env.home().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("a"), "safe").unwrap();
    symlink(&outside, bench.dir.join("door")).unwrap();
    symlink(outside.join("a"), bench.dir.join("file")).unwrap();
    symlink(outside.join("new"), bench.dir.join("dangling")).unwrap();
    bench.write("real/b", "b");
    symlink("real", bench.dir.join("inside")).unwrap();
    let write =
        |path: &str| bench.call("write_file", json!({ "file_path": path, "content": "evil" }));
    for path in ["door/a", "door/new", "file", "dangling", "../outside/a"] {
        write(path).says("outside the working directory").fails("denied");
    }
    assert_eq!(std::fs::read_to_string(outside.join("a")).unwrap(), "safe");
    assert!(!outside.join("new").exists());
    bench.call("read_file", json!({ "file_path": "file" })).fails("denied");
    write("inside/b").works();
    assert_eq!(bench.read("real/b"), "evil");
    write(".git/hooks/pre-commit").says("belongs to git").fails("denied");
}

#[test]
fn a_rewritten_file_keeps_its_mode() {
    let bench = Bench::new("g3");
    bench.write("run.sh", "old");
    let path = bench.dir.join("run.sh");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    bench.call("write_file", json!({ "file_path": "run.sh", "content": "new" })).works();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o755);
}

#[test]
fn a_file_changed_since_it_was_read_is_not_overwritten() {
    let bench = Bench::new("g3");
    bench.write("a.txt", "mine\n");
    let write = |content: &str| {
        bench.call("write_file", json!({ "file_path": "a.txt", "content": content }))
    };
    write("never read, so free\n").works();
    bench.write("a.txt", "theirs\n");
    let told = write("x");
    told.says("has changed since this session last read it").fails("failed");
    told.says("-never read, so free\n").says("+theirs\n");
    assert_eq!(bench.read("a.txt"), "theirs\n");
    // The change was shown, so the next attempt is not blind.
    write("y").works();
    assert_eq!(bench.read("a.txt"), "y");
    bench.write("a.txt", "z");
    bench.call("read_file", json!({ "file_path": "a.txt" })).works();
    write("read, so free").works();
}

/// Returns calls of all edit tools that change the line `two` of `a.txt` to `TWO`.
fn changes_of_two() -> Vec<(&'static str, &'static str, serde_json::Value)> {
    let patch = "*** Begin Patch\n*** Update File: a.txt\n@@\n-two\n+TWO\n*** End Patch";
    let one = json!({ "filePath": "a.txt", "oldString": "two", "newString": "TWO" });
    vec![
        ("g3", "str_replace", json!({ "file_path": "a.txt", "diff": "@@\n-two\n+TWO\n" })),
        ("g3", "multiedit", json!({ "edits": [one] })),
        ("g3", "patch", json!({ "patch_text": patch })),
        ("egirl", "edit_file", json!({ "path": "a.txt", "old_text": "two", "new_text": "TWO" })),
        ("tools-api", "edit", one.clone()),
        ("tools-api", "multiedit", json!({ "edits": [one] })),
        ("tools-api", "patch", json!({ "patch_text": patch })),
    ]
}

#[test]
fn an_exact_edit_keeps_other_changes() {
    for (profile, name, args) in changes_of_two() {
        let bench = Bench::new(profile);
        bench.write("a.txt", "one\ntwo\n");
        bench.call(name, args.clone()).works();
        // As by a formatter, `git checkout` or an editor.
        bench.write("a.txt", "ONE\ntwo\nthree\n");
        let told = bench.call(name, args);
        told.says("had changed since this session last read it").says("+three").works();
        assert_eq!(bench.read("a.txt"), "ONE\nTWO\nthree\n", "{profile} {name}");
    }
}

#[test]
fn a_rejected_change_can_be_retried() {
    for (profile, name, args) in changes_of_two() {
        let bench = Bench::new(profile);
        bench.write("a.txt", "one\ntwo\n");
        bench.call(name, args.clone()).works();
        bench.write("a.txt", "one\nzwei\n");
        let missed = bench.call(name, args.clone());
        missed.says("+zwei").fails("failed");
        // The model now knows the content.
        let text = args.to_string().replace("two", "zwei");
        bench.call_text(name, &text).works();
        assert_eq!(bench.read("a.txt"), "one\nTWO\n", "{profile} {name}");
    }
}

#[test]
fn a_file_can_be_overwritten_after_its_change_was_shown_in_every_profile() {
    let writes = [
        ("g3", "write_file", json!({ "file_path": "a.txt", "content": "mine\n" })),
        ("egirl", "write_file", json!({ "path": "a.txt", "content": "mine\n" })),
        ("tools-api", "write", json!({ "filePath": "a.txt", "content": "mine\n" })),
        (
            "tools-api",
            "patch",
            json!({ "patch_text": "*** Begin Patch\n*** Add File: a.txt\n+mine\n*** End Patch" }),
        ),
    ];
    for (profile, name, args) in writes {
        let bench = Bench::new(profile);
        bench.call(name, args.clone()).works();
        bench.write("a.txt", "theirs\n");
        bench.call(name, args.clone()).says("+theirs").fails("failed");
        bench.call(name, args).works();
        assert_eq!(bench.read("a.txt"), "mine\n", "{profile} {name}");
    }
}

#[test]
fn a_search_that_shows_a_file_counts_as_reading_it() {
    let bench = Bench::new("tools-api");
    let write = json!({ "filePath": "a.txt", "content": "mine\n" });
    bench.call("write", write.clone()).works();
    bench.write("a.txt", "theirs\n");
    bench.call("grep", json!({ "pattern": "theirs", "path": "a.txt" })).works();
    bench.call("write", write).works();
}

#[test]
fn the_state_of_tools_stays_out_of_git() {
    let env = testkit::env::TestEnv::new();
    let repo = env.repo();
    let args =
        ["tool", "exec", "--name", "shell", "--args", r#"{"command":"git status --porcelain"}"#];
    let ran = env.run(crate::tools_support::G3, repo.path(), args);
    ran.exits(0).output_contains("[no output]");
    assert!(!repo.path().join(".g3").exists(), "nothing of it is in the working directory");
    assert!(env.g3_state(repo.path()).join("sessions/tool-exec").is_dir());
}
