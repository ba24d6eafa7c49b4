//! `studio review`: hunks by risk, decisions, comments, and what is sent to the agent.

use serde_json::Value;

use crate::fixtures::Scene;

fn review(scene: &Scene, id: &str) -> Value {
    scene.studio(["review", id, "--json"]).exits(0).json()["reviews"][0].clone()
}

/// Applies a text to the review of a session.
fn apply(scene: &Scene, id: &str, text: &str) -> testkit::env::CommandRun {
    scene.repo.write("../review.txt", text);
    scene.studio(["review", id, "--apply", "../review.txt"])
}

/// Returns the id of the first hunk of a file.
fn hunk(review: &Value, path: &str) -> String {
    let hunks = review["hunks"].as_array().expect("hunks");
    let hunk = hunks.iter().find(|hunk| hunk["path"] == path).expect("the file has a hunk");
    hunk["id"].as_str().expect("an id").to_owned()
}

#[test]
fn comments_and_returned_hunks_are_sent_as_one_turn_and_follow_their_lines() {
    let scene = Scene::new();
    let id = scene.ready("write a one; sh printf '1\\n2\\n3\\n' > b; write c x");
    scene.await_free(&id);
    let first = review(&scene, &id);
    let (a, b, c) = (hunk(&first, "a"), hunk(&first, "b"), hunk(&first, "c"));
    // The message is the script of the fake agent: its lines are steps.
    let marks = format!(
        "return {a}\naccept {c}\nundecided {b}\n+1\n> sh printf '0\\n1\\n2\\n' > b\n+3\n> write d done\n"
    );
    apply(&scene, &id, &marks)
        .exits(0)
        .output_contains("1 accepted, 1 returned, 1 undecided, 2 comments");
    // The same file again changes nothing.
    apply(&scene, &id, &marks).exits(0).output_contains("2 comments");

    scene.studio(["review", &id, "--send"]).exits(0).output_contains("sent 2 comments and 1 hunk");
    scene.await_state(&id, "ready");
    scene.await_free(&id);
    let turns: Vec<Value> =
        scene.journal(&id).into_iter().filter(|entry| entry["entry"] == "turn").collect();
    assert_eq!(turns.len(), 2);
    let text = turns[1]["text"].as_str().expect("a text");
    for words in
        ["Comment on b, line 1\n\n> 1\n\nsh printf", "line 3", "Returned change in a", "+one"]
    {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(!text.contains("+x"), "accepted hunks are not sent: {text}");

    // The agent moved one line and removed the other.
    let after = review(&scene, &id);
    let comments = after["comments"].as_array().expect("comments");
    assert_eq!(comments[0]["placement"], serde_json::json!({"state": "moved", "first": 2}));
    assert_eq!(comments[1]["placement"], serde_json::json!({"state": "stale"}));
    assert!(comments.iter().all(|comment| comment["sent"] == true));
    let returned = after["hunks"].as_array().unwrap().iter().find(|it| it["id"] == a).unwrap();
    assert_eq!(
        (returned["decision"].as_str(), returned["sent"].as_bool()),
        (Some("returned"), Some(true))
    );
    scene.studio(["review", &id, "--send"]).exits(0).output_contains("no new comments");

    // A stale comment that is edited is sent again.
    apply(&scene, &id, ">2 write e again\n>1\n").exits(0).output_contains("1 comment");
    scene.studio(["review", &id, "--send"]).exits(0).output_contains("sent 1 comment and 0 hunks");
    scene.await_state(&id, "ready");
    assert_eq!(scene.worktree(&id).read("e"), "again\n");
    let turn = scene.journal(&id).into_iter().rfind(|entry| entry["entry"] == "turn").unwrap();
    assert!(turn["text"].as_str().unwrap().contains("(These lines have changed since"), "{turn}");
}

#[test]
fn what_cannot_be_applied_is_named_by_its_line_and_changes_nothing() {
    let scene = Scene::new();
    let id = scene.ready("write a one");
    scene.await_free(&id);
    let before = review(&scene, &id);
    let a = hunk(&before, "a");
    for (text, error) in [
        ("# fine\naccept beef\n".to_owned(), "line 2: no such hunk: `beef`"),
        (format!("accept {a}\n+two\n"), "line 2: this line differs from the diff"),
        (format!("accept {a}\nhello\n"), "line 2: cannot read `hello`"),
        ("> hello\n".to_owned(), "line 1: a comment before the first hunk"),
        (format!("accept {a}\n>7 hello\n"), "line 2: no such comment: 7"),
        ("accept\n".to_owned(), "line 1: the id of the hunk is missing"),
    ] {
        apply(&scene, &id, &text).exits(2).output_contains(error);
        assert_eq!(review(&scene, &id), before);
    }
}

#[test]
fn hunks_are_ordered_by_risk_and_mechanical_ones_are_folded_at_the_end() {
    let scene = Scene::new();
    scene.repo.commit_file("Cargo.lock", "a\n");
    scene.repo.commit_file("gen.c", "/* @generated */\na\n");
    scene.repo.commit_file("fmt.c", "int a(int b) {return b}\n");
    scene.repo.commit_file("moved.c", "int only = 1\nint moved = 2\n");
    scene.repo.commit_file("notes.md", "notes\n");
    let other = scene.ready("write notes.md other");
    let id = scene.ready(
        "sh echo b >> Cargo.lock && echo 'int b' >> gen.c && mv moved.c here.c; \
         sh printf 'int a(int b) {\\n    return b\\n}\\n' > fmt.c; write notes.md mine; \
         write src/login.rs pub fn check() {}; write fake.c /* @generated */; write Makefile all:",
    );
    let review = review(&scene, &id);
    let hunks = review["hunks"].as_array().expect("hunks");
    let order: Vec<(&str, Option<&str>)> = hunks
        .iter()
        .map(|hunk| (hunk["path"].as_str().expect("a path"), hunk["mechanical"].as_str()))
        .collect();
    assert_eq!(
        order,
        [
            ("Makefile", None),
            ("src/login.rs", None),
            ("notes.md", None),
            // A marker that the change itself adds does not hide it.
            ("fake.c", None),
            ("fmt.c", Some("formatting")),
            ("gen.c", Some("generated")),
            ("here.c", Some("rename")),
            ("Cargo.lock", Some("lock_file")),
        ]
    );
    let rules = |index: usize| -> Vec<&str> {
        let reasons = hunks[index]["reasons"].as_array().expect("reasons").iter();
        reasons.map(|reason| reason["rule"].as_str().expect("a rule")).collect()
    };
    assert_eq!(rules(0), ["check_file", "build"]);
    assert_eq!(rules(1), ["authentication", "public_api", "no_test"]);
    assert_eq!(rules(2), ["same_lines"]);
    let text = hunks[2]["reasons"][0]["text"].as_str().expect("a text");
    assert!(text.contains(&other), "{text}");

    let page = scene.studio(["review", &id, "--plain"]);
    page.exits(0).output_contains("lock file\nfolded: +1 -0").output_lacks("+int b");
    scene.studio(["review", &id, "--plain", "--all"]).exits(0).output_contains("+int b");
}

#[test]
fn only_what_is_new_since_the_last_turn_or_look_is_shown() {
    let scene = Scene::new();
    let id = scene.exec(["--agent", "loads", "write a one; write b one"]);
    scene.await_state(&id, "ready");
    scene.await_free(&id);
    scene.studio(["review", &id, "--since", "last"]).exits(5).output_contains("was not shown yet");
    let look = |args: &str| {
        let line = format!("{} {args} {id}", crate::fixtures::studio());
        let job = scene.env.command("script", scene.repo.path()).env("SHELL", "/bin/sh");
        let job = job.env("TERM", "xterm").env("GIT_PAGER", "cat");
        scene.env.run_command(job.args(["-qec", &line, "/dev/null"]))
    };
    look("diff").exits(0).output_contains("+one");
    scene.studio(["send", &id, "write b two"]).exits(0);
    scene.await_state(&id, "ready");
    scene.await_free(&id);
    for since in ["turn", "last"] {
        let page = scene.studio(["review", &id, "--since", since, "--plain"]);
        page.exits(0).output_contains("+two").output_lacks("+one").output_contains("1 older hunk");
        let diff = scene.studio(["diff", &id, "--since", since]);
        diff.exits(0).output_contains("-one\n+two").output_lacks("a/a");
    }
    scene.studio(["send", &id, "say done"]).exits(0);
    scene.await_state(&id, "ready");
    let page = scene.studio(["review", &id, "--since", "turn"]);
    page.exits(0).output_contains("0 hunks").output_contains("2 older hunks");
}

#[test]
fn the_editor_gets_the_review_as_a_file_and_an_unreadable_one_is_kept() {
    let scene = Scene::new();
    let id = scene.ready("write a one");
    scene.await_free(&id);
    let with_editor = |script: &str| {
        let job = scene.env.command(crate::fixtures::studio(), scene.repo.path());
        let job = job.env("GIT_EDITOR", format!("sh -c '{script}' sh"));
        scene.env.run_command(job.args(["review", &id, "--edit"]))
    };
    with_editor("sed -i s/^undecided/accept/ \"$1\"; echo \"> Why one?\" >> \"$1\"").exits(0);
    let now = review(&scene, &id);
    assert_eq!(now["hunks"][0]["decision"], "accepted");
    assert_eq!(
        (now["comments"][0]["text"].as_str(), now["comments"][0]["first"].as_u64()),
        (Some("Why one?"), Some(1))
    );
    // The comment is shown in place, and can be edited there.
    with_editor("sed -i \"s/^>1 Why one/>1 Why not two/\" \"$1\"").exits(0);
    assert_eq!(review(&scene, &id)["comments"][0]["text"], "Why not two?");

    let failed = with_editor("echo \"> kept\" >> \"$1\"; echo broken >> \"$1\"");
    failed.exits(2).output_contains("cannot read `broken`");
    let path = failed.err.split('\'').nth(1).expect("the file is named").to_owned();
    assert_eq!(review(&scene, &id)["comments"].as_array().unwrap().len(), 1);
    let text = std::fs::read_to_string(&path).expect("the file is kept").replace("broken\n", "");
    std::fs::write(&path, text).unwrap();
    scene.studio(["review", &id, "--apply", &path]).exits(0);
    assert_eq!(review(&scene, &id)["comments"][1]["text"], "kept");
}

#[test]
fn a_review_killed_at_any_step_loses_no_comment() {
    for (step, is_saved) in [("review.write", false), ("review.saved", true), ("review.sent", true)]
    {
        let scene = Scene::new();
        let id = scene.exec(["--agent", "loads", "write a one"]);
        scene.await_state(&id, "ready");
        scene.await_free(&id);
        let a = hunk(&review(&scene, &id), "a");
        let marks = format!("return {a}\n+one\n> write c done\n");
        scene.repo.write("../review.txt", &marks);
        let run = || {
            let job = scene.env.command(crate::fixtures::studio(), scene.repo.path());
            let job = job.args(["review", &id, "--apply", "../review.txt", "--send"]);
            scene.env.run_command(job.env("G3_TEST_KILL_AT", step)).exits(137);
        };
        run();
        let now = review(&scene, &id);
        let saved = now["comments"].as_array().expect("comments").len() == 1;
        assert_eq!(saved, is_saved, "{step}");
        assert_eq!(now["hunks"][0]["decision"] == "returned", is_saved, "{step}");
        // Again: nothing is there twice, and the agent gets it.
        if step == "review.sent" {
            scene.await_state(&id, "ready");
            scene.await_free(&id);
        }
        scene.studio(["review", &id, "--apply", "../review.txt", "--send"]).exits(0);
        scene.await_state(&id, "ready");
        let now = review(&scene, &id);
        assert_eq!(now["comments"].as_array().expect("comments").len(), 1, "{step}");
        assert_eq!(now["comments"][0]["sent"], true, "{step}");
        assert_eq!(scene.worktree(&id).read("c"), "done\n", "{step}");
    }
}
