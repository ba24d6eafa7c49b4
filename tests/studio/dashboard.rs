//! The dashboard: `studio` on a terminal, with real sessions and every key.

use std::os::unix::fs::PermissionsExt;

use base::process::is_alive;
use testkit::env::until;
use testkit::tmux::TmuxTerminal;

use crate::fixtures::{Scene, studio};

const SMALL: (u16, u16) = (80, 24);
const LARGE: (u16, u16) = (200, 60);

/// Starts the dashboard.
fn open(scene: &Scene, size: (u16, u16)) -> TmuxTerminal<'_> {
    let terminal = TmuxTerminal::start(&scene.env, scene.repo.path(), size, [studio()]);
    terminal.shows("? help  q quit");
    terminal
}

/// Starts a session and waits until its agent asks.
fn asking(scene: &Scene, script: &str) -> String {
    let id = scene.exec(["--agent", "talk", "--ask", script]);
    scene.await_state(&id, "waiting");
    id
}

/// Returns the line of a session in the list, without the ages.
fn line(text: &str, prefix: &str) -> String {
    let found = text.lines().find(|line| line.contains(prefix));
    found.unwrap_or_else(|| panic!("no `{prefix}` on the screen:\n{text}")).to_owned()
}

/// Returns the session that a task started.
fn session_of(scene: &Scene, task: &str) -> Option<String> {
    let list = scene.studio(["list", "--all", "--json"]).json();
    let sessions = list["sessions"].as_array()?;
    let session = sessions.iter().find(|it| it["task"] == task)?;
    session["id"].as_str().map(str::to_owned)
}

#[test]
fn sessions_are_grouped_and_questions_answered_in_place() {
    let scene = Scene::new();
    let first = asking(&scene, "ask rm -rf one; ask two");
    let second = asking(&scene, "ask three");
    let ready = scene.ready("write a 1");
    for size in [SMALL, LARGE] {
        let terminal = open(&scene, size);
        let text = terminal.shows_all(&["NEEDS YOU 2", "READY 1"]);
        // The oldest request is selected, and shown as it is.
        assert!(line(&text, "rm -rf one").starts_with('>'), "{text}");
        assert!(text.contains(&format!("{first} asks for permission 1")), "{text}");
        let order = ["NEEDS YOU", "rm -rf one", "asks       ", "three", "READY", &ready[..4]];
        let mut rest = text.as_str();
        for word in order {
            let at = rest.find(word).unwrap_or_else(|| panic!("`{word}` in order in\n{text}"));
            rest = &rest[at + word.len()..];
        }
        terminal.presses("q").ends();
    }
    let terminal = open(&scene, SMALL);
    terminal.shows("1: rm -rf one");
    terminal.types("y");
    terminal.shows(&format!("{first}: permission 1 allowed"));
    // The next question of the same session is in its place, the oldest remaining one above it.
    terminal.shows("asks for permission");
    until("the second request", || {
        let status = scene.status(&first);
        (status["why"].as_str()?.contains("two")).then_some(())
    });
    scene.studio(["answer", &first, "deny"]).exits(0);
    scene.await_state(&first, "ready");
    terminal.shows_all(&["NEEDS YOU 1", "READY 2"]);
    terminal.presses("g");
    terminal.shows(&format!("{second} asks for permission 1"));
    terminal.types("a");
    terminal.shows(&format!("{second}: permission 1 allowed for this session"));
    scene.await_state(&second, "ready");
    terminal.presses("q").ends();
    let answers = |id: &str| scene.worktree(id).read("answers.txt");
    assert_eq!(answers(&first), "rm -rf one: yes\ntwo: no\n");
    assert_eq!(answers(&second), "three: always\n");
}

#[test]
fn a_request_answers_only_to_keys_typed_after_it_was_shown_to_its_end() {
    let scene = Scene::new();
    let long: Vec<String> = (0..60).map(|n| format!("word-{n:02}-of-the-command")).collect();
    let id = asking(&scene, &format!("ask {} last-word", long.join(" ")));
    let terminal = open(&scene, SMALL);
    terminal.shows("more lines: PgDn");
    terminal.types("y");
    terminal.shows("read the request to its end first");
    assert_eq!(scene.status(&id)["state"], "waiting");
    // Keys that are pressed before the screen follows may scroll past the end.
    until("the end of the request", || {
        let text = terminal.text();
        if text.contains("last-word") && text.contains("y allow   n deny") {
            return Some(());
        }
        terminal.presses(if text.contains("more lines: PgDn") { "PageDown" } else { "PageUp" });
        None
    });
    terminal.types("n");
    terminal.shows(&format!("{id}: permission 1 denied"));
    scene.await_state(&id, "ready");
    terminal.presses("q").ends();

    // Pasted text presses no keys, and control characters of an agent do not reach the terminal.
    let id = asking(&scene, "ask evil \u{1b}]0;title\u{7} \u{202e}name");
    let terminal = open(&scene, SMALL);
    terminal.shows("evil ^[]0;title^G <U+202E>name");
    terminal.pastes("y");
    terminal.types("?");
    terminal.shows("Keys of the dashboard");
    terminal.presses("Escape").shows("q quit");
    assert_eq!(scene.status(&id)["state"], "waiting");
    scene.studio(["answer", &id, "deny"]).exits(0);
}

#[test]
fn a_message_is_sent_and_a_session_stopped_and_resumed() {
    let scene = Scene::new();
    let id = scene.exec(["--agent", "talk", "gate open; write a 1"]);
    scene.await_state(&id, "working");
    let terminal = open(&scene, SMALL);
    terminal.shows("WORKING 1");
    terminal.types("s").shows(&format!("message to {id}:"));
    terminal.types("go on; write said --json").presses("Enter");
    terminal.shows(&format!("{id}: message sent"));
    terminal.types("x").shows(&format!("{id} stopped"));
    scene.await_state(&id, "stopped");
    scene.await_free(&id);
    terminal.shows("NEEDS YOU 1");
    scene.worktree(&id).write("open", "");
    terminal.types("r").shows(&format!("{id} resumed"));
    terminal.shows("READY 1");

    assert_eq!(scene.worktree(&id).read("said"), "--json\n");
    // What does not apply says so.
    terminal.types("x").shows("x does not apply");
    terminal.presses("q").ends();
}

#[test]
fn work_that_changed_since_the_last_look_lands_only_after_a_second_key() {
    let scene = Scene::new();
    let id = scene.ready("write a 1");
    scene.await_free(&id);
    // The last look was at another state.
    let repository = studio_git::repo::Repository::discover(scene.repo.path()).unwrap();
    let (session, tree) = (base::id::Id::parse(&id).unwrap(), scene.repo.rev("main^{tree}"));
    studio_core::session::last_shown::record(&repository, &session, &tree).unwrap();
    let terminal = open(&scene, SMALL);
    terminal.shows("READY 1");
    let before = scene.repo.rev("main");
    terminal.types("A").shows("changed since you looked at it: A lands it");
    // A `y` may be the answer to a request that was shown before.
    terminal.types("y").shows("nothing was landed");
    assert_eq!(scene.repo.rev("main"), before);
    terminal.types("A").shows("changed since you looked at it: A lands it");
    terminal.types("A").shows("landed on main as");
    assert_eq!(scene.repo.git(["show", "main:a"]), "1");
}

#[test]
fn sessions_are_accepted_discarded_and_restored() {
    let scene = Scene::new();
    let landed = scene.ready("write a 1");
    let dropped = scene.ready("write b 1");
    scene.await_free(&landed);
    scene.await_free(&dropped);
    let terminal = open(&scene, SMALL);
    let text = terminal.shows("READY 2");
    assert!(line(&text, "+1 -0*").starts_with('>'), "{text}");
    terminal.types("A").shows("landed on main as");
    terminal.shows_all(&["READY 1", "DONE 1", "accepted"]);
    assert_eq!(scene.status(&landed)["state"], "accepted");
    assert_eq!(scene.repo.git(["show", "main:a"]), "1");

    terminal.presses("g").types("X").shows(&format!("discard {dropped}? [y/N]"));
    terminal.types("n").shows("nothing was changed");
    terminal.types("X").shows("[y/N]");
    terminal.types("y").shows(&format!("{dropped} discarded"));
    terminal.shows("DONE 2");
    assert_eq!(scene.status(&dropped)["state"], "discarded");
    // Its row offers its own operation.
    terminal.types("u").shows_all(&["undo op", "[y/N]"]);
    terminal.types("y").shows("is undone");
    terminal.shows_all(&["READY 1", "DONE 1"]);
    assert_eq!(scene.status(&dropped)["state"], "ready");
    // A refusal says what, why and what to try.
    scene.repo.write("b", "mine\n");
    terminal.presses("g").types("A");
    terminal.shows_all(&["error: your changes", "overwritten", "any key close"]);
    terminal.presses("Escape").shows("q quit");
    terminal.presses("q").ends();
}

#[test]
fn a_new_task_is_written_in_the_editor() {
    let scene = Scene::new();
    let editor = scene.env.home().join("run/editor");
    std::fs::write(&editor, "#!/bin/sh\nprintf '%s\\n' '# A title' 'write new 1' | cat - \"$1\" > \"$1.n\" && mv \"$1.n\" \"$1\"\n").unwrap();
    std::fs::set_permissions(&editor, std::fs::Permissions::from_mode(0o700)).unwrap();
    let line = format!("EDITOR='{}' '{}'", editor.display(), studio());
    let shell = ["sh", "-c", &line];
    let terminal = TmuxTerminal::start(&scene.env, scene.repo.path(), SMALL, shell);
    terminal.shows("no sessions yet: t starts one");
    terminal.types("t").shows("started ");
    let text = terminal.shows("READY 1");
    assert!(text.contains("write new 1"), "{text}");
    let id = session_of(&scene, "# A title\nwrite new 1").expect("the session exists");
    assert_eq!(scene.worktree(&id).read("new"), "1\n");
    terminal.presses("q").ends();
}

#[test]
fn previews_filter_and_help_are_shown_and_look_marks_the_session() {
    let scene = Scene::new();
    let first = scene.ready("write first.txt hello");
    let second = scene.ready("write second.txt hello");
    for size in [SMALL, LARGE] {
        let terminal = open(&scene, size);
        terminal.shows_all(&["READY 2", "[1 timeline]", "you: write first.txt hello"]);
        terminal.types("2").shows_all(&["[2 diff]", "+++ b/first.txt", "+hello"]);
        terminal.presses("Tab").shows_all(&["[3 log]", "turn 1"]);
        terminal.types("j").shows(&format!(" {second} "));
        terminal.types("/second").shows("filter: second");
        let text = terminal.shows("READY 1");
        assert!(!text.contains("first.txt"), "{text}");
        terminal.presses("Enter").shows("(Esc shows all)");
        terminal.presses("Escape").shows("READY 2");
        terminal.types("?").shows_all(&["Keys of the dashboard", "allow the request"]);
        terminal.presses("Escape").shows("q quit");
        terminal.presses("Enter");
        until("the preview to cover the list", || {
            let text = terminal.text();
            (text.contains("[3 log]") && !text.contains("READY")).then_some(())
        });
        terminal.presses("q").ends();
    }
    let inbox = scene.studio(["inbox", "--json"]).json();
    assert!(inbox["seen"].to_string().contains(&first), "{inbox}");
}

#[test]
fn the_terminal_is_restored_after_every_end_and_other_programs_can_use_it() {
    let scene = Scene::new();
    let id = scene.ready("write a 1");
    let line = format!("trap : INT TERM; '{}'; echo code $?; stty -a", studio());
    let start = || TmuxTerminal::start(&scene.env, scene.repo.path(), SMALL, ["sh", "-c", &line]);
    let is_restored = |text: &str, code: &str| {
        assert!(text.contains(code) && !text.contains("-icanon"), "{text}");
        assert!(!text.contains("READY") && !text.contains("-echo "), "{text}");
    };
    for (key, code) in [("q", "code 0"), ("C-c", "code 130")] {
        let terminal = start();
        terminal.shows("READY 1");
        terminal.presses(key);
        is_restored(&terminal.ends(), code);
    }
    let terminal = start();
    terminal.shows("READY 1");
    terminal.signals_foreground("TERM");
    is_restored(&terminal.ends(), "code 130");

    // A shell in the session, and back.
    let terminal = open(&scene, SMALL);
    terminal.types("!");
    until("the prompt of the shell", || {
        let text = terminal.text();
        (text.contains(&id) && !text.contains("READY")).then_some(())
    });
    terminal.enters("echo in \"$(basename \"$PWD\")\"");
    terminal.shows(&format!("in {id}"));
    // The interrupt is for the program, which runs.
    terminal.enters("sh -c 'echo begun$((1+1)); exec sleep 600'").shows("begun2");
    terminal.presses("C-c").shows("^C");
    terminal.enters("exit");
    terminal.shows("READY 1");
    terminal.presses("q").ends();
}

#[test]
fn a_closed_terminal_ends_the_dashboard_and_the_program_on_it() {
    let scene = Scene::new();
    let id = scene.ready("write a 1");
    scene.await_free(&id);
    for with_shell in [false, true] {
        let terminal = open(&scene, SMALL);
        if with_shell {
            terminal.types("!");
            until("the prompt of the shell", || {
                let text = terminal.text();
                (text.contains(&id) && !text.contains("READY")).then_some(())
            });
        }
        let processes = terminal.process_ids();
        assert_eq!(processes.len(), 1 + usize::from(with_shell), "{processes:?}");
        drop(terminal);
        until("its processes to end", || (!processes.iter().any(|id| is_alive(*id))).then_some(()));
    }
}

#[test]
fn small_terminals_and_changes_of_size_are_drawn() {
    let scene = Scene::new();
    let id = asking(&scene, "ask rm -rf /tmp/数据库");
    let terminal = open(&scene, (40, 10));
    terminal.shows("NEEDS YOU 1");
    // The request is not visible, so it cannot be answered.
    terminal.types("y").shows("read the request");
    terminal.presses("Enter").shows("  rm -rf /tmp/数据库");
    terminal.resizes(LARGE);
    terminal.presses("Escape").shows_all(&["NEEDS YOU 1", "│"]);
    terminal.resizes((20, 5));
    terminal.resizes(SMALL);
    terminal.shows_all(&["NEEDS YOU 1", "[1 timeline]"]);
    terminal.types("n").shows(&format!("{id}: permission 1 denied"));
    terminal.presses("q").ends();
}

#[test]
fn without_a_usable_terminal_the_list_is_printed() {
    let scene = Scene::new();
    let id = scene.ready("write a 1");
    scene.studio([""; 0]).exits(0).output_contains(&id[..5]);
    let line = format!("TERM=dumb '{}'", studio());
    let shell = ["sh", "-c", &line];
    let terminal = TmuxTerminal::start(&scene.env, scene.repo.path(), SMALL, shell);
    let text = terminal.ends();
    assert!(text.contains("NEXT") && !text.contains("q quit"), "{text}");
}

#[test]
fn the_list_is_kept_up_to_date_until_it_is_interrupted() {
    let scene = Scene::new();
    let first = scene.ready("write a 1");
    let out = scene.env.home().join("run/list.txt");
    let line = format!("'{}' list --watch > '{}'; echo code $?", studio(), out.display());
    let pipe = TmuxTerminal::start(
        &scene.env,
        scene.repo.path(),
        SMALL,
        ["sh", "-c", &format!("trap : INT; {line}")],
    );
    let printed = || std::fs::read_to_string(&out).unwrap_or_default();
    until("the first table", || printed().contains(&first[..5]).then_some(()));
    let terminal =
        TmuxTerminal::start(&scene.env, scene.repo.path(), SMALL, [studio(), "list", "--watch"]);
    terminal.shows(&first[..5]);
    let id = asking(&scene, "ask something");
    terminal.shows("permission 1: something");
    until("the table with the question", || printed().contains("permission 1").then_some(()));
    scene.studio(["answer", &id, "deny"]).exits(0);
    scene.await_state(&id, "ready");
    until("the table without it", || {
        let text = printed();
        let last = text.rsplit("\n\n").next()?;
        (!last.contains("permission 1") && last.contains(&id[..3])).then_some(())
    });
    terminal.presses("C-c").ends();
    pipe.presses("C-c");
    assert!(pipe.ends().contains("code 130"));
}
