//! Tests of what `g3 --planning` commits, and what it does not change.

use serde_json::json;
use testkit::model_server::reply::ScriptedReply;
use testkit::model_server::script::Script;

use crate::agent_env::Stage;
use crate::autonomous::{is_coach, verdict};
use crate::planning::{committed, has, history, known, model, refines, wish, yes};

#[test]
fn the_users_changes_are_neither_committed_nor_changed() {
    commits_the_work_alone(&[]);
}

#[test]
fn the_users_changes_stay_in_a_repository_of_git_3() {
    commits_the_work_alone(&["--object-format=sha256", "--ref-format=reftable"]);
}

fn commits_the_work_alone(format: &[&str]) {
    let stage = known(Script::by(|request| {
        if refines(request) {
            return ScriptedReply::call("requirements", json!({"text": "- change the doors"}));
        }
        if request.asks_for_commit_message() {
            return ScriptedReply::says("Paint the doors blue");
        }
        if is_coach(request) {
            return verdict(true, &["met"]);
        }
        let paints = "sed -i s/green/blue/ both staged 'ünï code' split && git mv old new && rm gone && echo x > app.log && echo K > .env && mkdir -p target && echo o > target/o";
        match request.assistant_messages() {
            0 if !request.tool_names().is_empty() => {
                ScriptedReply::call("shell", json!({"command": paints}))
            }
            _ => ScriptedReply::says("Done."),
        }
    }));
    stage.change_format(format);
    let repo = &stage.repo;
    let ten = |first: &str, last: &str| format!("{first}\n2\n3\n4\n5\n6\n7\n8\n9\n{last}\n");
    for (name, text) in [
        ("both", ten("green", "mine")),
        ("staged", ten("green", "mine")),
        ("split", ten("green", "mine")),
        ("ünï code", ten("green", "-")),
        ("old", ten("a", "b")),
        ("gone", "x\n".into()),
        ("foreign", "theirs\n".into()),
        ("clash", "green\n".into()),
    ] {
        repo.commit_file(name, text);
    }
    // The user's changes: a line of a file that the run changes too, a staged file, one staged and
    // then changed again, a separate one, an untracked one.
    repo.write("both", ten("green", "yours"));
    repo.write("staged", ten("green", "yours"));
    repo.git(["add", "staged"]);
    repo.write("split", ten("green", "staged"));
    repo.git(["add", "split"]);
    repo.write("split", ten("green", "unstaged"));
    repo.write("foreign", "yours\n");
    repo.write("note.txt", "yours\n");
    wish(&stage);
    let ran = yes(&stage);
    ran.ok();
    ran.output_contains("left out: .env: it may hold a secret")
        .output_contains("left out: app.log")
        .output_contains("left out: target/o");
    for name in ["both", "staged", "split"] {
        assert_eq!(has(&stage, "HEAD", name), ten("blue", "mine"), "{name}");
    }
    assert_eq!(has(&stage, "HEAD", "ünï code"), ten("blue", "-"));
    assert_eq!(has(&stage, "HEAD", "foreign"), "theirs\n");
    let mut files = committed(&stage);
    files.retain(|name| !name.starts_with("g3-plan/"));
    files.sort();
    assert_eq!(files, ["both", "gone", "new", "old", "split", "staged", "ünï code"]);
    let listed = format!("{} files:", committed(&stage).len());
    ran.output_contains(&listed);
    // Only the user's change is staged, on top of the committed work.
    assert_eq!(has(&stage, "", "staged"), ten("blue", "yours"));
    assert_eq!(has(&stage, "", "split"), ten("blue", "staged"));
    assert_eq!(has(&stage, "", "both"), ten("blue", "mine"));
    assert_eq!(repo.read("split"), ten("blue", "unstaged"));
    let status = repo.git(["-c", "core.quotePath=false", "status", "--porcelain"]);
    let mut lines: Vec<&str> = status.lines().collect();
    lines.sort_unstable();
    assert_eq!(
        lines,
        [
            " M both",
            " M foreign",
            "?? .env",
            "?? app.log",
            "?? note.txt",
            "?? target/",
            "M  staged",
            "MM split"
        ]
    );
    repo.is_sound();
}

#[test]
fn inseparable_changes_are_left_out() {
    let stage = known(Script::by(|request| {
        if refines(request) {
            return ScriptedReply::call("requirements", json!({"text": "- paint"}));
        }
        if request.asks_for_commit_message() {
            return ScriptedReply::says("nonsense");
        }
        if is_coach(request) {
            return verdict(true, &["met"]);
        }
        match request.assistant_messages() {
            0 if !request.tool_names().is_empty() => ScriptedReply::call(
                "shell",
                json!({"command": "echo blue | tee clash own fine > /dev/null"}),
            ),
            _ => ScriptedReply::says("Done."),
        }
    }));
    stage.repo.commit_file("clash", "green\n");
    stage.repo.write("clash", "red\n");
    stage.repo.write("own", "yours, never added\n");
    wish(&stage);
    let ran = yes(&stage);
    ran.ok();
    ran.output_contains("left out: clash: it also contains your own changes")
        .output_contains("left out: own");
    ran.output_contains("used a plain commit message");
    assert_eq!(
        (has(&stage, "HEAD", "clash"), stage.repo.read("clash")),
        ("green\n".into(), "blue\n".into())
    );
    assert_eq!(has(&stage, "HEAD", "fine"), "blue\n");
    assert_eq!(stage.repo.git(["log", "-1", "--format=%s"]).trim(), "Paint");
    assert_eq!(stage.repo.git(["status", "--porcelain"]), " M clash\n?? own");
}

#[test]
fn it_works_in_a_directory_below_the_top_and_in_a_new_repository() {
    for fresh in [false, true] {
        let stage = known(model());
        if fresh {
            std::fs::remove_dir_all(stage.repo.path().join(".git")).unwrap();
            stage.repo.git(["init", "-q", "-b", "trunk"]);
            stage.repo.git(["config", "user.name", "U"]);
            stage.repo.git(["config", "user.email", "u@x"]);
        }
        stage.repo.write("code/g3-plan/new_requirements.md", "doors\n");
        stage.g3(["--planning", "--yes", "--codepath", "code"]).ok();
        let files = committed(&stage);
        assert!(files.contains(&"code/one.txt".to_owned()), "{files:?}");
        assert!(files.iter().any(|it| it.starts_with("code/g3-plan/completed_todo_")), "{files:?}");
        assert!(!files.contains(&"README.md".to_owned()) || !fresh, "{files:?}");
        stage.repo.is_sound();
    }
}

#[test]
fn a_missing_git_identity_is_reported_before_any_work() {
    let stage = Stage::new(model());
    wish(&stage);
    yes(&stage)
        .exits(1)
        .output_contains("git does not know who you are")
        .output_contains("git config user.name");
    assert!(stage.asked().is_empty());
    std::fs::remove_dir_all(stage.repo.path().join(".git")).unwrap();
    yes(&stage).exits(2).output_contains("not in a git repository").output_contains("--no-git");
}

#[test]
fn without_git_nothing_is_committed() {
    let stage = known(model());
    wish(&stage);
    let before = (stage.repo.rev("HEAD"), stage.repo.git(["ls-files", "-s"]));
    stage.g3(["--planning", "--yes", "--no-git"]).ok();
    assert_eq!((stage.repo.rev("HEAD"), stage.repo.git(["ls-files", "-s"])), before);
    assert!(history(&stage).last().unwrap().starts_with("COMPLETED"));
    assert_eq!(stage.repo.read("two.txt"), "two.txt\n");
}
