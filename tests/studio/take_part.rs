//! Taking part in a session: its live conversation, and its worktree in the editor.

use std::fs;

use testkit::env::until;
use testkit::tmux::TmuxTerminal;

use crate::fixtures::{Scene, studio};

fn attach<'a>(scene: &'a Scene, id: &str) -> TmuxTerminal<'a> {
    TmuxTerminal::start(&scene.env, scene.repo.path(), (80, 24), [studio(), "attach", id])
}

#[test]
fn a_message_is_typed_in_the_live_conversation_and_the_session_outlives_it() {
    let scene = Scene::new();
    let id = scene.exec(["--agent", "talk", "gate go; ask whether; gate end"]);
    scene.await_state(&id, "working");
    let terminal = attach(&scene, &id);
    terminal.shows_all(&["attached to ", "turn 1", "[working] >"]);
    // What arrives does not mix with what is being typed.
    terminal.types("say from x");
    terminal.presses("BSpace").types("me");
    terminal.shows("[working] > say from me");
    fs::write(scene.worktree(&id).path().join("go"), "").unwrap();
    let text = terminal.shows("denied by studio");
    until("the prompt below the new text", || {
        terminal.text().ends_with("[working] > say from me").then_some(())
    });
    assert!(!text.contains("asked say"), "{text}");
    terminal.presses("Enter");
    terminal.shows("you: say from me");
    until("an empty prompt", || terminal.text().ends_with("[working] >").then_some(()));

    terminal.presses("C-d");
    let text = terminal.ends();
    assert!(text.contains("detached; ") && text.contains("studio attach"), "{text}");
    assert_eq!(scene.status(&id)["state"], "working");
    fs::write(scene.worktree(&id).path().join("end"), "").unwrap();
    scene.await_state(&id, "ready");
    scene.studio(["logs", &id]).exits(0).output_contains("from me");

    // A settled session is resumed by a message.
    scene.await_free(&id);
    let terminal = attach(&scene, &id);
    terminal.shows("[ready] >");
    terminal.enters("; write later 1");
    until("the new file", || scene.worktree(&id).path().join("later").exists().then_some(()));
    terminal.shows("you: ; write later 1");
    terminal.enters("/detach");
    terminal.ends();
    scene.await_state(&id, "ready");
}

#[test]
fn the_text_of_a_reply_appears_while_the_agent_writes_it() {
    let scene = Scene::new();
    let words = "alpha beta gamma delta ".repeat(8);
    let script = format!("say {words}; gate go; say omega; gate end; ask x; say Second reply");
    let id = scene.exec(["--agent", "stranger", &script]);
    scene.await_state(&id, "working");
    let terminal = attach(&scene, &id);
    let written = terminal.shows("alpha beta gamma delta");
    assert!(!written.contains("omega"), "{written}");
    let has_text = |line: &serde_json::Value| line["event"]["type"] == "text";
    assert!(!scene.journal(&id).iter().any(has_text), "the message is not complete");
    fs::write(scene.worktree(&id).path().join("go"), "").unwrap();
    fs::write(scene.worktree(&id).path().join("end"), "").unwrap();
    let text = terminal.shows_all(&["omega", "Second reply", "[ready] >"]);
    for part in ["  alpha beta", "omega", "Second reply"] {
        assert_eq!(text.matches(part).count(), 1, "{part} is shown once: {text}");
    }
    terminal.presses("C-d");
    terminal.ends();
}

#[test]
fn permission_requests_are_answered_in_the_conversation() {
    let scene = Scene::new();
    let id = scene.exec(["--agent", "talk", "--ask", "gate go; ask one; ask two; ask three"]);
    scene.await_state(&id, "working");
    let shell = format!("trap : INT; '{}' attach {id}; echo code $?; stty -a", studio());
    let terminal =
        TmuxTerminal::start(&scene.env, scene.repo.path(), (80, 24), ["sh", "-c", &shell]);
    terminal.shows("[working] >");
    terminal.types("yes");
    terminal.shows("> yes");
    fs::write(scene.worktree(&id).path().join("go"), "").unwrap();
    terminal.shows_all(&["asks for permission 1", "[y] allow"]);
    assert_eq!(scene.status(&id)["state"], "waiting", "text typed before it answers nothing");
    terminal.types("n");
    terminal.shows("asks for permission 2");
    // It can be put off, and is answered elsewhere.
    terminal.types("s");
    terminal.shows_all(&[&format!("studio answer {id} 2 allow"), "[waiting] > yes"]);
    scene.studio(["answer", &id, "2", "allow"]).exits(0);
    terminal.shows("asks for permission 3");
    terminal.types("y");
    terminal.shows("[ready] > yes");
    terminal.presses("C-c");
    let text = terminal.ends();
    assert!(
        text.contains("code 0") && text.contains(" icanon ") && text.contains(" echo "),
        "{text}"
    );
    let answers = scene.worktree(&id).read("answers.txt");
    assert_eq!(answers, "one: no\ntwo: yes\nthree: yes\n");
}

#[test]
fn attach_without_a_terminal_names_the_commands_that_need_none() {
    let scene = Scene::new();
    let id = scene.ready("write a 1");
    let refused = scene.studio(["attach", &id]);
    refused.exits(2).output_contains(&format!("studio logs {id} -f"));
    refused.output_contains(&format!("studio send {id}"));
    scene.studio(["discard", &id]).exits(0);
    scene.studio(["attach", &id]).exits(3).output_contains("already discarded");
}

#[test]
fn the_editor_opens_the_worktree() {
    let scene = Scene::new();
    let id = scene.ready("write a 1");
    scene.await_free(&id);
    let open = |visual: &str, editor: &str| {
        let job = scene.env.command(studio(), scene.repo.path()).args(["open", &id]);
        scene.env.run_command(job.env("VISUAL", visual).env("EDITOR", editor))
    };
    open("", "")
        .exits(2)
        .output_contains("no editor is configured")
        .output_contains("[studio] open");
    open("", "sh -c 'pwd > \"$HOME/opened\"; echo \"$1\" >> \"$HOME/opened\"' sh").exits(0);
    let path = scene.worktree(&id).path().canonicalize().unwrap();
    let opened = || fs::read_to_string(scene.env.home().join("opened")).unwrap();
    assert_eq!(opened(), format!("{0}\n{0}\n", path.display()));
    open("exit 7 #", "").exits(7);
    open("no-such-editor", "").exits(127);

    scene.configure("open = ['sh', '-c', 'echo \"$1\" > \"$HOME/opened\"', 'sh', 'at {worktree}']");
    open("", "").exits(0);
    assert_eq!(opened(), format!("at {}\n", path.display()));
    // Nothing lands or goes while it is open.
    scene.configure(&format!("open = ['{}', 'discard', '{id}']", studio()));
    open("", "").exits(3).output_contains("a shell is open in it");
    scene.studio(["discard", &id]).exits(0);
    open("", "").exits(3).output_contains("has no worktree");
}
