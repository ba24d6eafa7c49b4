//! `g3 --planning`: from a wish to a commit, with the real binary, real git and a scripted model.

use serde_json::{Value, json};
use testkit::env::Ran;
use testkit::model_server::reply::Reply;
use testkit::model_server::request::Request;
use testkit::model_server::script::Script;

use crate::autonomous::{is_coach, verdict};
use crate::stage::{Stage, of_type};

const MESSAGE: &str =
    "{{COMMIT_SUMMARY}}\nAdd both doors\n{{COMMIT_DESCRIPTION}}\nThey were missing.\n";

fn refines(request: &Request) -> bool {
    request.tool_names().contains(&"requirements".to_owned())
}

/// A model for every part: it refines into two requirements, makes `one.txt` and `two.txt` in a
/// round each, judges by what is there, and writes summary and message.
fn model() -> Script {
    Script::by(|request| {
        let all = request.text();
        if refines(request) {
            return match request.assistant_messages() {
                0 => Reply::call("grep", json!({"pattern": "door"})),
                1 => Reply::call(
                    "requirements",
                    json!({"text": "- R1: make one.txt\n- make two.txt\n"}),
                ),
                _ => Reply::says("That is all."),
            };
        }
        if request.asks_for_commit_message() {
            return Reply::says(MESSAGE);
        }
        if all.contains("Sum up these requirements") {
            return Reply::says("make two files");
        }
        if is_coach(request) {
            let both = all.contains("A two.txt") || all.contains("code/two.txt");
            return if both {
                verdict(true, &["met", "met"])
            } else {
                verdict(false, &["met", "unmet"])
            };
        }
        let writes = |name: &str| {
            Reply::call("write_file", json!({"file_path": name, "content": format!("{name}\n")}))
        };
        match request.assistant_messages() {
            0 => writes("one.txt"),
            2 => writes("two.txt"),
            _ => Reply::says("It is there."),
        }
    })
}

fn wish(stage: &Stage) {
    stage.repo.write("g3-plan/new_requirements.md", "I want two doors.\n");
}

fn history(stage: &Stage) -> Vec<String> {
    let text = stage.repo.read("g3-plan/planner_history.txt");
    text.lines()
        .filter_map(|line| line.split_once(" - "))
        .map(|(_, what)| what.to_owned())
        .collect()
}

fn plan_files(stage: &Stage) -> Vec<String> {
    let entries = std::fs::read_dir(stage.repo.path().join("g3-plan")).unwrap();
    let mut names: Vec<String> =
        entries.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn committed(stage: &Stage) -> Vec<String> {
    let names = stage.repo.git(["show", "--format=", "--name-only", "-z", "HEAD"]);
    names.split('\0').filter(|it| !it.trim().is_empty()).map(|it| it.trim().to_owned()).collect()
}

fn yes(stage: &Stage) -> Ran {
    stage.g3(["--planning", "--yes"])
}

#[test]
fn a_wish_becomes_a_commit() {
    let stage = Stage::new(model());
    wish(&stage);
    let head = stage.repo.rev("HEAD");
    let ran = stage.g3_with_input(["--planning"], "y\ny\nyes\n\n\nq\n");
    ran.ok();
    ran.says("R1: make one.txt")
        .says("R2: make two.txt")
        .says("Add both doors")
        .says("committed as");
    let names = plan_files(&stage);
    assert_eq!(names.len(), 3, "{names:?}");
    assert!(
        names[0].starts_with("completed_requirements_2")
            && names[1].starts_with("completed_todo_2")
    );
    let archived = stage.repo.read(&format!("g3-plan/{}", names[0]));
    assert!(
        archived
            .starts_with("{{CURRENT REQUIREMENTS}}\n\n- R1: make one.txt\n- R2: make two.txt\n"),
        "{archived}"
    );
    assert!(archived.ends_with("IMPLEMENTATION}}\n\nI want two doors.\n"), "{archived}");
    assert_eq!(
        stage.repo.read(&format!("g3-plan/{}", names[1])),
        "- [x] R1: make one.txt\n- [x] R2: make two.txt\n"
    );
    assert_eq!(
        stage.repo.git(["log", "-1", "--format=%B"]).trim(),
        "Add both doors\n\nThey were missing."
    );
    assert_eq!(stage.repo.rev("HEAD~1"), head);
    assert_eq!(stage.repo.git(["status", "--porcelain"]), "");
    let mut files = committed(&stage);
    files.retain(|name| !name.starts_with("g3-plan/"));
    assert_eq!(files, ["one.txt", "two.txt"]);
    let words: Vec<String> = history(&stage);
    let begins = [
        "REFINING",
        "APPROVED",
        &format!("GIT HEAD ({head})"),
        "START IMPLEMENTING",
        "COMPLETED REQUIREMENTS (completed_requirements_",
        "GIT COMMIT (Add both doors)",
    ];
    assert_eq!(words.len(), begins.len(), "{words:?}");
    for (line, begin) in words.iter().zip(begins) {
        assert!(line.starts_with(begin), "{line}");
    }
    let told = stage.repo.show("HEAD", "g3-plan/planner_history.txt");
    assert!(told.contains("GIT COMMIT (Add both doors)"), "the commit holds its own line");
    stage.repo.is_sound();
}

#[test]
fn whoever_refines_reads_the_code_and_can_change_nothing() {
    let stage = Stage::new(Script::by(|request| {
        assert!(refines(request));
        match request.assistant_messages() {
            0 => Reply::call("write_file", json!({"file_path": "x", "content": "x"})),
            1 => Reply::call("requirements", json!({"text": "{{CURRENT REQUIREMENTS}}\n- a"})),
            2 => Reply::call("requirements", json!({"text": "R1: a\nR1: b"})),
            _ => Reply::status(400),
        }
    }));
    stage.repo.commit_file("src/lib.rs", "pub fn open_door() {}\n");
    wish(&stage);
    let ran = yes(&stage);
    ran.exits(1);
    let asked = stage.asked();
    let tools = asked[0].tool_names();
    assert_eq!(tools, ["read_file", "grep", "glob", "code_search", "requirements"]);
    let told = asked[0].text();
    for words in ["I want two doors.", "src/lib.rs: pub fn open_door()", "Rust: 1 files"] {
        assert!(told.contains(words), "no `{words}` in {told}");
    }
    assert!(asked[1].tool_results()[0].1.contains("write_file"), "{:?}", asked[1].tool_results());
    assert!(asked[2].tool_results().last().unwrap().1.contains("leave out the marks"));
    assert!(asked[3].tool_results().last().unwrap().1.contains("R1"));
    assert!(!stage.repo.path().join("x").exists());
    assert!(stage.repo.read("g3-plan/new_requirements.md").ends_with("I want two doors.\n"));
}

#[test]
fn changes_of_the_user_stay_out_and_stay_as_they_are() {
    let stage = Stage::new(Script::by(|request| {
        if refines(request) {
            return Reply::call("requirements", json!({"text": "- change the doors"}));
        }
        if request.asks_for_commit_message() {
            return Reply::says("Paint the doors blue");
        }
        if is_coach(request) {
            return verdict(true, &["met"]);
        }
        let paints = "sed -i s/green/blue/ both staged 'ünï code' split && git mv old new && rm gone && echo x > app.log && echo K > .env && mkdir -p target && echo o > target/o";
        match request.assistant_messages() {
            0 if !request.tool_names().is_empty() => {
                Reply::call("shell", json!({"command": paints}))
            }
            _ => Reply::says("Done."),
        }
    }));
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
    // The user's: a line of a file that the work changes too, a staged one, one staged and then
    // changed again, one of their own, one untracked.
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
    ran.says("left out: .env: it may hold a secret")
        .says("left out: app.log")
        .says("left out: target/o");
    for name in ["both", "staged", "split"] {
        assert_eq!(repo.show("HEAD", name), ten("blue", "mine"), "{name}");
    }
    assert_eq!(repo.show("HEAD", "ünï code"), ten("blue", "-"));
    assert_eq!(repo.show("HEAD", "foreign"), "theirs\n");
    let mut files = committed(&stage);
    files.retain(|name| !name.starts_with("g3-plan/"));
    files.sort();
    assert_eq!(files, ["both", "gone", "new", "old", "split", "staged", "ünï code"]);
    // What is staged is the user's change alone, on top of the work.
    assert_eq!(repo.git(["show", ":staged"]), ten("blue", "yours"));
    assert_eq!(repo.git(["show", ":split"]), ten("blue", "staged"));
    assert_eq!(repo.git(["show", ":both"]), ten("blue", "mine"));
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
fn what_cannot_be_told_apart_is_left_out() {
    let stage = Stage::new(Script::by(|request| {
        if refines(request) {
            return Reply::call("requirements", json!({"text": "- paint"}));
        }
        if request.asks_for_commit_message() {
            return Reply::says("nonsense");
        }
        if is_coach(request) {
            return verdict(true, &["met"]);
        }
        match request.assistant_messages() {
            0 if !request.tool_names().is_empty() => Reply::call(
                "shell",
                json!({"command": "echo blue | tee clash own fine > /dev/null"}),
            ),
            _ => Reply::says("Done."),
        }
    }));
    stage.repo.commit_file("clash", "green\n");
    stage.repo.write("clash", "red\n");
    stage.repo.write("own", "yours, never added\n");
    wish(&stage);
    let ran = yes(&stage);
    ran.ok();
    ran.says("left out: clash: it held changes of yours").says("left out: own");
    ran.says("no model wrote the commit message");
    assert_eq!(
        (stage.repo.show("HEAD", "clash"), stage.repo.read("clash")),
        ("green\n".into(), "blue\n".into())
    );
    assert_eq!(stage.repo.show("HEAD", "fine"), "blue\n");
    assert_eq!(stage.repo.git(["log", "-1", "--format=%s"]).trim(), "Paint");
    assert_eq!(stage.repo.git(["status", "--porcelain"]), " M clash\n?? own\n");
}

#[test]
fn it_works_in_a_directory_below_the_top_and_in_a_new_repository() {
    for fresh in [false, true] {
        let stage = Stage::new(model());
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
fn without_git_nothing_is_committed() {
    let stage = Stage::new(model());
    wish(&stage);
    let before = (stage.repo.rev("HEAD"), stage.repo.git(["ls-files", "-s"]));
    stage.g3(["--planning", "--yes", "--no-git"]).ok();
    assert_eq!((stage.repo.rev("HEAD"), stage.repo.git(["ls-files", "-s"])), before);
    assert!(history(&stage).last().unwrap().starts_with("COMPLETED"));
    assert_eq!(stage.repo.read("two.txt"), "two.txt\n");
}

#[test]
fn nothing_is_approved_that_the_user_did_not_see() {
    let stage = Stage::new(model());
    stage
        .repo
        .write("g3-plan/current_requirements.md", "{{CURRENT REQUIREMENTS}}\n\n- R1: by hand\n");
    let ran = stage.g3_with_input(["--planning"], "y\ny\ny\nno\nq\n");
    ran.ok();
    ran.says("R1: by hand").says("implement g3-plan/current_requirements.md as it is?");
    assert!(stage.asked().is_empty(), "no model worked on it");
    let bad = stage.g3_with_input(["--planning"], "y\nmaybe\n");
    bad.says("answer yes, no or quit");
}

#[test]
fn not_approved_is_no_success_and_can_go_on() {
    let stage = Stage::new(model());
    wish(&stage);
    let ran = stage.g3(["--planning", "--yes", "--max-turns", "1"]);
    ran.exits(3);
    assert_eq!(
        stage.repo.read("g3-plan/todo.g3.md"),
        "- [x] R1: make one.txt\n- [ ] R2: make two.txt\n"
    );
    assert_eq!(stage.repo.git(["log", "--oneline"]).lines().count(), 1);
    // The user wants it to go on: the same conversation, the rounds that were paid for stay.
    let ran = stage.g3_with_input(["--planning", "--max-turns", "2"], "y\ny\ny\nno\ny\ny\nq\n");
    ran.ok();
    ran.says("round 2 of 3").says("committed as");
    assert_eq!(stage.asked().iter().filter(|it| refines(it)).count(), 3);
    assert!(history(&stage).contains(&"ATTEMPTING RECOVERY".to_owned()));
}

#[test]
fn the_json_tells_the_stages_and_asks_nobody() {
    let stage = Stage::new(model());
    stage.g3(["--planning", "--json"]).exits(2).says("--yes");
    let none = stage.g3(["--planning", "--yes", "--json"]);
    none.exits(2);
    wish(&stage);
    let ran = stage.g3(["--planning", "--yes", "--json"]);
    ran.ok();
    let events = ran.json_lines();
    let plans = of_type(&events, "plan");
    let states: Vec<&str> = plans
        .iter()
        .filter(|it| it["mode"] == "planning")
        .filter_map(|it| it["state"].as_str())
        .collect();
    assert_eq!(
        states,
        ["write", "refine", "approve", "implement", "complete", "archive", "commit", "committed"]
    );
    let commit: &Value = &plans.last().unwrap()["commit"];
    assert_eq!(commit, &json!(stage.repo.rev("HEAD")));
}

#[test]
fn a_plan_killed_at_any_step_is_finished_by_the_next_run() {
    for step in [
        "g3.planning.refined",
        "g3.planning.approved",
        "g3.planning.started",
        "g3.rounds.played",
        "g3.rounds.judged",
        "g3.planning.played",
        "g3.planning.completed",
        "g3.planning.archived",
        "g3.planning.staged",
        "g3.planning.committed",
    ] {
        let mut stage = Stage::new(model());
        wish(&stage);
        let head = stage.repo.rev("HEAD");
        stage.env.set("G3_TEST_KILL_AT", step);
        let killed = yes(&stage);
        assert_ne!(killed.code, 0, "{step}");
        stage.env.set("G3_TEST_KILL_AT", "no step");
        yes(&stage).ok();
        let count = stage.repo.git(["rev-list", "--count", &format!("{head}..HEAD")]);
        let twice = step == "g3.planning.committed";
        assert!(count.trim() == "1" || twice && count.trim() == "2", "{step}: {count} commits");
        assert_eq!(
            (stage.repo.show("HEAD", "one.txt"), stage.repo.show("HEAD", "two.txt")),
            ("one.txt\n".into(), "two.txt\n".into()),
            "{step}"
        );
        let words = history(&stage);
        assert_eq!(
            words.iter().filter(|it| it.starts_with("COMPLETED")).count(),
            1,
            "{step}: {words:?}"
        );
        assert_eq!(plan_files(&stage).len(), 3, "{step}");
        stage.repo.is_sound();
    }
}
