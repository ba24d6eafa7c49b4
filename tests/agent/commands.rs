//! Tests of the commands at the prompt.

use serde_json::{Value, json};
use testkit::model_server::reply::ScriptedReply;
use testkit::model_server::request::ReceivedRequest;
use testkit::model_server::script::Script;

use crate::agent_env::{Stage, journal};

/// Returns the number of images in a request.
fn images(request: &ReceivedRequest) -> usize {
    json!(request.messages()).to_string().matches("\"type\":\"image\"").count()
}

fn writes(name: &str, content: &str) -> ScriptedReply {
    ScriptedReply::call("write_file", json!({"file_path": name, "content": content}))
}

/// Runs two turns: the first writes `a.txt`, the second changes it and creates `new/b.txt` with a
/// command.
fn two_turns(then: impl IntoIterator<Item = ScriptedReply>) -> Stage {
    let line = "mkdir -p new; echo two > new/b.txt; echo two > a.txt; rm old.txt";
    let mut replies = vec![
        writes("a.txt", "one\n"),
        ScriptedReply::says("wrote a"),
        ScriptedReply::call("shell", json!({"command": line})),
        ScriptedReply::says("changed a, made b"),
    ];
    replies.extend(then);
    let stage = Stage::new(replies);
    stage.repo.commit_file("old.txt", "old\n");
    stage
}

#[test]
fn undo_reverts_the_last_turn_and_then_the_one_before() {
    let stage = two_turns([ScriptedReply::says("I see")]);
    stage.repo.write("mine.txt", "typed by the user\n");
    let before = stage.repo.git(["status", "--porcelain"]);
    let ran = stage.g3_with_input([], "write a\nchange it\n/undo\nand now?\n/undo\n/undo\n");
    ran.output_contains("a.txt").output_contains("no turn changed a tracked or untracked file");
    assert_eq!(stage.repo.read("old.txt"), "old\n");
    assert!(!stage.repo.path().join("a.txt").exists());
    assert!(!stage.repo.path().join("new").exists(), "an empty directory is left");
    assert_eq!(stage.repo.read("mine.txt"), "typed by the user\n");
    assert_eq!(stage.repo.git(["status", "--porcelain"]), before, "the user's index was touched");
    let heard = stage.asked().last().unwrap().text();
    assert!(
        heard.contains("I took back what turn 2 did") && heard.contains("new/b.txt"),
        "{heard}"
    );
}

#[test]
fn undo_reverts_one_turn_and_keeps_the_other() {
    let stage = two_turns([]);
    stage.g3_with_input([], "write a\nchange it\n/undo\n").output_contains("turn 2: restored");
    assert_eq!(stage.repo.read("a.txt"), "one\n");
    assert_eq!(stage.repo.read("old.txt"), "old\n");
    assert!(!stage.repo.path().join("new").exists());
}

#[test]
fn undo_changes_nothing_if_the_user_changed_one_of_the_files() {
    let stage = two_turns([]);
    stage.g3_with_input([], "write a\nchange it\n").ok();
    stage.repo.write("a.txt", "mine now\n");
    let ran = stage.g3_with_input([], "/resume write\n/undo\n");
    ran.output_contains("files were changed after the agent wrote them").output_contains("a.txt");
    assert_eq!(stage.repo.read("a.txt"), "mine now\n");
    assert_eq!(stage.repo.read("new/b.txt"), "two\n");
    assert!(!stage.repo.path().join("old.txt").exists());
}

#[test]
fn undo_works_without_a_repository() {
    let stage = two_turns([]);
    std::fs::remove_dir_all(stage.repo.path().join(".git")).unwrap();
    stage.g3_with_input([], "write a\nchange it\n/undo\n").output_contains("turn 2: restored");
    assert_eq!(stage.repo.read("a.txt"), "one\n");
    assert_eq!(stage.repo.read("old.txt"), "old\n");
}

#[test]
fn undo_works_in_every_kind_of_repository() {
    let lacks_a_file = |stage: &Stage| {
        let repo = &stage.repo;
        repo.commit_file("left-out.txt", "x\n");
        repo.git(["sparse-checkout", "set", "--no-cone", "/*", "!left-out.txt"]);
        repo.git(["config", "remote.origin.promisor", "true"]);
        let id = repo.rev("HEAD:left-out.txt");
        let object = format!(".git/objects/{}/{}", &id[..2], &id[2..]);
        std::fs::remove_file(repo.path().join(object)).unwrap();
    };
    let prefers_sha256 = |stage: &Stage| {
        let setting = "[init]\ndefaultObjectFormat = sha256\ndefaultRefFormat = reftable\n";
        std::fs::write(stage.env.home().join(".gitconfig"), setting).unwrap();
    };
    let kinds: [&dyn Fn(&Stage); 5] = [
        &|stage| stage.change_format(&["--object-format=sha256", "--ref-format=reftable"]),
        &prefers_sha256,
        &|stage| drop(stage.repo.git(["update-index", "--split-index"])),
        &|stage| {
            stage.repo.commit_file("out/x", "x\n");
            stage.repo.git(["sparse-checkout", "set", "--cone", "--sparse-index", "new"]);
        },
        &lacks_a_file,
    ];
    for (number, make) in kinds.into_iter().enumerate() {
        let stage = two_turns([]);
        make(&stage);
        let ran = stage.g3_with_input([], "write a\nchange it\n/undo\n");
        ran.output_contains("turn 2: restored");
        assert_eq!(stage.repo.read("a.txt"), "one\n", "kind {number}");
        assert_eq!(stage.repo.read("old.txt"), "old\n", "kind {number}");
        assert_eq!(stage.repo.git(["status", "--porcelain"]), "?? a.txt", "kind {number}");
    }
}

#[test]
fn undo_ignores_gitignored_and_git_internal_files() {
    let stage = Stage::new([
        ScriptedReply::call(
            "shell",
            json!({"command": "echo x > out.log; echo y > kept.txt; git tag t"}),
        ),
        ScriptedReply::says("done"),
    ]);
    stage.repo.commit_file(".gitignore", "*.log\n");
    stage.g3_with_input([], "make files\n/undo\n").output_contains("restored kept.txt\n");
    assert_eq!(stage.repo.read("out.log"), "x\n");
    assert_eq!(stage.repo.git(["tag"]), "t");
    assert!(!stage.repo.path().join("kept.txt").exists());
    stage.repo.is_sound();
}

#[test]
fn rewind_drops_a_turn_with_its_files_permanently() {
    let stage = two_turns([ScriptedReply::says("anew"), ScriptedReply::says("once more")]);
    let input = "write a\nchange it\n/rewind\n/rewind 2\n/rewind 9\nsomething else\n/stats\n";
    let ran = stage.g3_with_input([], input);
    ran.output_contains("  1  write a")
        .output_contains("  2  change it")
        .output_contains("rewound to before turn 2");
    ran.output_contains("no such turn: 9").output_contains("turns    5");
    assert_eq!(stage.repo.read("a.txt"), "one\n");
    let text = stage.asked()[4].text();
    assert!(text.contains("write a") && !text.contains("change it"), "{text}");
    // Rewound turns stay dropped after a restart, and their cost still counts.
    stage.g3_with_input([], "/resume write\ngo on\n").ok();
    let text = stage.asked()[5].text();
    assert!(text.contains("something else") && !text.contains("change it"), "{text}");
}

#[test]
fn turns_are_listed_by_the_users_text() {
    let stage = two_turns([ScriptedReply::says("a plan"), ScriptedReply::says("yes")]);
    let input = "write a\nchange it\n/undo\n/plan think of plums\n/mode auto\n[x]\n/rewind\n";
    let ran = stage.g3_with_input([], input);
    ran.output_contains("  3  think of plums\n").output_contains("  4  [x]\n");
    let heard = stage.asked().last().unwrap().text();
    assert!(heard.contains("I took back") && heard.contains("Plan mode is over"), "{heard}");
    // A session that started with a note is named after the task as well.
    let stage = Stage::new([ScriptedReply::says("a plan")]);
    stage
        .g3_with_input([], "/plan think of plums\n/resume\n")
        .output_contains("  think of plums\n");
}

#[test]
fn a_failed_resume_keeps_the_current_session() {
    let stage = Stage::new([
        ScriptedReply::says("one"),
        ScriptedReply::says("two"),
        ScriptedReply::says("three"),
    ]);
    stage.g3(["the first"]).ok();
    let first = stage.session_dir();
    let id = first.file_name().unwrap().to_str().unwrap().to_owned();
    let _held = base::lock::Lock::take(&first.join("lock")).unwrap();
    let input = format!("the second\n/resume {id}\nare you there\n");
    let ran = stage.g3_with_input([], &input);
    ran.output_contains("is in use by another g3").output_contains("three");
    let heard = stage.asked().last().unwrap().text();
    assert!(heard.contains("the second") && heard.contains("are you there"), "{heard}");
    assert!(!heard.contains("the first"), "{heard}");
}

#[test]
fn messages_before_a_clear_stay_in_the_journal() {
    let stage = Stage::new([ScriptedReply::says("one"), ScriptedReply::says("two")]);
    stage.g3_with_input([], "the word is plum\n/clear\nanother word\n").ok();
    assert!(json!(journal(&stage.session_dir())).to_string().contains("the word is plum"));
    stage
        .g3(["sessions", "export"])
        .output_contains("the word is plum")
        .output_contains("another word");
    stage.g3_with_input([], "/resume the\n/rewind\n").output_contains("  1  the word is plum");
}

#[test]
fn reloaded_instructions_replace_nothing_else() {
    let stage = Stage::new([ScriptedReply::says("one"), ScriptedReply::says("two")]);
    stage.repo.write("AGENTS.md", "Use tabs.");
    stage.repo.write("analysis/memory.md", "The parser lives in parse.rs.");
    stage.repo.write("pro/brief.md", "the goal is plum jam\n");
    let ran = stage.g3_with_input([], "hi\n/project pro\n/readme\nand now?\n");
    ran.output_contains("reloaded");
    let [before, after] = [0, 1].map(|at| stage.asked()[at].system());
    assert_eq!(before, after, "nothing changed on disk");
    assert!(after.contains("Use tabs.") && after.contains("The parser lives in parse.rs."));
    assert!(stage.asked()[1].text().contains("plum jam"), "the project is still known");
    assert!(stage.asked()[1].text().contains("hi"), "and so is the conversation");
}

#[test]
fn a_fork_is_independent() {
    let stage =
        two_turns([ScriptedReply::says("in the copy"), ScriptedReply::says("in the first")]);
    let ran = stage.g3_with_input([], "write a\nchange it\n/fork 2\nanother way\n");
    ran.output_contains("the session before it stays as it was");
    assert_eq!(stage.session_dirs().len(), 2);
    let text = stage.asked()[4].text();
    assert!(text.contains("another way") && !text.contains("change it"), "{text}");
    let all: Vec<Vec<Value>> = stage.session_dirs().iter().map(|dir| journal(dir)).collect();
    let of = |word: &str| all.iter().filter(|j| json!(j).to_string().contains(word)).count();
    assert_eq!((of("another way"), of("change it"), of("write a")), (1, 1, 2));
}

#[test]
fn a_file_is_sent_with_its_variables_expanded() {
    let stage = Stage::new([ScriptedReply::says("noted"), ScriptedReply::says("noted")]);
    stage.repo.write("ask.md", "it is {{today}}, {{unknown}}\n");
    let job = stage.job([]).env("G3_TEST_NOW", "2026-01-02T10:00:00Z");
    let ran = stage.env.run_command(job.input("/run ask.md\n/run nope.md\n/run\nand {{today}}\n"));
    ran.output_contains("cannot read").output_contains("which file?");
    assert!(stage.asked()[0].text().contains("it is 2026-01-02 (Friday), {{unknown}}"));
    assert!(stage.asked()[1].text().contains("and 2026-01-02 (Friday)"));
}

#[test]
fn a_project_file_is_sent_survives_a_summary_and_can_be_removed() {
    let stage = Stage::new([
        ScriptedReply::says("hello"),
        ScriptedReply::says("a summary of it"),
        ScriptedReply::says("yes"),
        ScriptedReply::says("bye"),
    ]);
    stage.repo.write("pro/brief.md", "the goal is plum jam\n");
    let input = "hi\n/project pro\n/compact\nwhat is the goal?\n/unproject\n/unproject\nwell?\n";
    let ran = stage.g3_with_input([], input);
    ran.output_contains("1 file of the project").output_contains("no project is loaded");
    assert!(stage.asked()[2].text().contains("plum jam"));
    assert!(stage.asked()[3].text().contains("Ignore the project"));
}

#[test]
fn large_results_are_moved_immediately_on_request() {
    let big = |n: usize| ScriptedReply::call("shell", json!({"command": format!("seq {n} 3000")}));
    let replies: Vec<ScriptedReply> =
        (1..9).map(big).chain([ScriptedReply::says("x"), ScriptedReply::says("y")]).collect();
    let stage = Stage::new(replies);
    let ran = stage.g3_with_input([], "count\n/thinnify\n/skinnify\n/skinnify\n/dump\nand?\n");
    ran.output_contains("calls to files")
        .output_contains("no large calls to move")
        .output_contains("written to");
    assert!(std::fs::read_dir(stage.session_dir().join("thinned")).unwrap().count() >= 4);
    assert!(stage.asked().last().unwrap().text().contains("were moved to"));
}

#[test]
fn usage_is_reported_per_model() {
    let stage = Stage::new([
        ScriptedReply::says("a").usage(100, 10),
        ScriptedReply::says("b").usage(200, 20),
    ]);
    let ran = stage.g3_with_input([], "hi\n/model other-model\nagain\n/cost\n");
    ran.output_contains("other-model: 1 call, 200 in");
    let shown = stage.g3(["sessions", "show", "--json"]).json();
    assert_eq!(shown["by_model"]["other-model"]["usage"]["input"], 200);
    assert_eq!(shown["by_model"].as_object().unwrap().len(), 2);
    assert_eq!(shown["usage"]["input"], 300);
}

/// A g3 process started by a command works only outside the sandbox.
fn allow_commands(stage: &Stage) {
    let provider = stage.model.config_toml("anthropic");
    let rule = "[[gate.rules]]\ntool = \"shell\"\naction = \"allow\"";
    stage.env.config(&format!("{provider}\n{rule}\n"));
}

#[test]
fn a_message_to_a_running_session_is_delivered_once_before_the_next_request() {
    let line = format!(
        "{} sessions send work 'use plums, not pears'; {} sessions send nobody x || true",
        crate::agent_env::G3,
        crate::agent_env::G3
    );
    let stage = Stage::new(Script::new([
        ScriptedReply::call("shell", json!({"command": line})),
        ScriptedReply::says("with plums"),
    ]));
    allow_commands(&stage);
    let ran = stage.g3(["work on jam"]);
    ran.ok();
    let asked = stage.asked();
    assert_eq!(asked.len(), 2);
    assert!(asked[1].last().contains("use plums"), "{}", asked[1].text());
    let dir = stage.session_dir();
    assert_eq!(std::fs::read_dir(dir.join("inbox")).unwrap().count(), 0);
    let heard = journal(&dir).iter().filter(|entry| entry["entry"] == "steered").count();
    assert_eq!(heard, 1);
}

#[test]
fn a_session_killed_during_delivery_receives_the_message_once() {
    for step in ["g3.journal.steered:1", "g3.journal.reply:2"] {
        let stage = Stage::new(Script::by(|request| {
            if request.text().contains("plums") {
                ScriptedReply::says("with plums")
            } else {
                let line = format!("{} sessions send work 'use plums'", crate::agent_env::G3);
                ScriptedReply::call("shell", json!({"command": line}))
            }
        }));
        allow_commands(&stage);
        let job = stage.job(["work on jam"]).env("G3_TEST_KILL_AT", step);
        stage.env.run_command(job).exits(137);
        stage.g3(["--resume"]).ok();
        let text = stage.asked().last().unwrap().text();
        assert_eq!(
            text.matches("use plums").count() - text.matches("send work").count(),
            1,
            "{step}:\n{text}"
        );
    }
}

#[test]
fn a_session_is_exported_as_a_document() {
    let stage = two_turns([]);
    stage.g3_with_input([], "write a\nchange it\n").ok();
    let document = stage.g3(["sessions", "export"]);
    document
        .output_contains("## User\n\nwrite a")
        .output_contains("Calls `write_file`")
        .output_contains("changed a, made b");
    let object = stage.g3(["sessions", "export", "--format", "json"]).json();
    assert_eq!(object["messages"].as_array().unwrap().len(), 8);
    let journal = stage.g3(["sessions", "export", "--format", "journal"]);
    journal.output_contains("\"entry\":\"opened\"");
    stage.g3(["sessions", "export", "-o", "out.md"]).ok();
    stage.g3(["sessions", "export", "-o", "out.md"]).exits(2).output_contains("does not exist");
    assert!(stage.repo.read("out.md").contains("change it"));
}

#[test]
fn a_fork_is_created_from_the_command_line() {
    let stage = two_turns([ScriptedReply::says("on it")]);
    stage.g3_with_input([], "write a\nchange it\n").ok();
    let id = stage.g3(["sessions", "fork", "--before", "2"]).ok().trim().to_owned();
    stage.g3(["--resume", &id, "go on"]).ok();
    let text = stage.asked()[4].text();
    assert!(text.contains("write a") && !text.contains("change it"), "{text}");
    stage.g3(["sessions", "fork", "--before", "7"]).exits(2).output_contains("no such turn: 7");
}

#[test]
fn a_failed_turn_is_retried_with_its_progress() {
    let stage = Stage::new([
        writes("a.txt", "one\n"),
        ScriptedReply::status(401),
        ScriptedReply::says("wrote it"),
        ScriptedReply::says("bye"),
    ]);
    let ran = stage.g3_with_input([], "/retry\nwrite a\n/retry\n/retry\nthanks\n");
    ran.output_contains("/retry    retries")
        .output_contains("wrote it")
        .output_contains("the last turn did not fail");
    ran.output_lacks("g3 --resume goes on").output_lacks("then g3 --resume");
    let asked = stage.asked();
    assert_eq!(asked.len(), 4, "one try, its error, the retry, and the next words");
    assert_eq!(asked[1].messages().len(), asked[2].messages().len(), "nothing is added");
    assert_eq!(asked[2].tool_results().len(), 1);
}

#[test]
fn a_failed_turn_is_retried_after_a_restart() {
    let stage = Stage::new([ScriptedReply::status(401), ScriptedReply::says("here I am")]);
    stage.g3(["say hi"]).exits(1);
    stage.g3_with_input([], "/resume say\n/retry\n").output_contains("here I am");
    assert_eq!(stage.asked()[1].text().matches("say hi").count(), 1);
}

#[test]
fn models_can_be_listed_selected_and_rejected() {
    let stage = Stage::new([ScriptedReply::says("a")]);
    let more = "\n[providers.openai.other]\napi_key = \"k\"\nmodel = \"gpt-5\"\n";
    let file = stage.env.home().join(".config/g3/config.toml");
    let config = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, config + more).unwrap();
    let input = "hi\n/model\n/model nobody.there x\n/model openai.other gpt-6-nano-x\n/model gpt-5\n/model\n";
    let ran = stage.g3_with_input([], input);
    ran.output_contains("* ")
        .output_contains("  gpt-5  (openai.other)")
        .output_contains("unknown provider `nobody.there`");
    ran.output_contains("model: gpt-5 on openai.other").output_contains("* gpt-5  (openai.other)");
    ran.output_contains("also on openai.other: gpt-6-astra, gpt-6-sol, gpt-6-luna, gpt-5.6, ")
        .output_contains(", gpt-5-mini, ");
}

#[test]
fn mentioned_files_and_images_reach_the_model() {
    let stage = Stage::new([
        ScriptedReply::says("one"),
        ScriptedReply::says("two"),
        ScriptedReply::says("three"),
    ]);
    stage.repo.write("src/a.rs", "fn a() {}\n");
    let picture = image::RgbImage::from_pixel(4, 3, image::Rgb([255, 0, 0]));
    picture.save(stage.repo.path().join("my shot.png")).unwrap();
    let ran = stage.g3_with_input(["--image", "my shot.png"], "fix @src/a.rs\nsee 'my shot.png'\n");
    ran.output_contains("attached src/a.rs: 1 line")
        .output_contains("attached my shot.png: PNG 4x3");
    let asked = stage.asked();
    assert!(asked[0].text().contains("the file src/a.rs (1 line):\nfn a() {}\n"));
    assert_eq!(images(&asked[0]), 1, "the picture of --image");
    assert_eq!(images(&asked[1]), 2, "and the one that was named");
    stage.g3(["sessions", "list"]).output_contains("fix @src/a.rs");
    stage.g3(["--image", "my shot.png", "look"]).ok();
    assert_eq!(images(&stage.asked()[2]), 1);
    stage.g3(["--image", "src/a.rs", "look"]).exits(2).output_contains("cannot attach src/a.rs");
}

#[test]
fn the_changes_of_a_session_are_shown_and_a_new_one_starts() {
    let stage = two_turns([ScriptedReply::says("hello")]);
    let input = "/diff\nwrite a\nchange it\n/diff\n/new\nanother one\n";
    let ran = stage.g3_with_input([], input);
    ran.output_contains("the session is empty")
        .output_contains("  a.txt (new)  +1 -0\n    1 + two\n");
    ran.output_contains("  old.txt (deleted)  +0 -1\n")
        .output_contains("to continue this session: g3 --resume ");
    ran.output_contains("your next message starts a new session");
    assert_eq!(stage.session_dirs().len(), 2);
    assert!(!stage.asked().last().unwrap().text().contains("change it"));
}

#[test]
fn the_last_answer_is_copied() {
    let stage = Stage::new([ScriptedReply::says("one\n**two**"), ScriptedReply::says("three")]);
    let bin = stage.env.home().join("bin");
    std::fs::create_dir(&bin).unwrap();
    let copied = stage.env.home().join("copied");
    let script = format!("#!/bin/sh\ncat > {}\n", copied.display());
    std::fs::write(bin.join("xclip"), script).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(bin.join("xclip"), mode).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let job = stage.job([]).env("PATH", path).env("DISPLAY", ":9");
    let ran = stage.env.run_command(job.input("/copy\nhi\n/copy\n"));
    ran.output_contains("the session is empty").output_contains("copied 2 lines with xclip");
    assert_eq!(std::fs::read_to_string(copied).unwrap(), "one\n**two**");
}
