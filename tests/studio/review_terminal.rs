//! `studio review` on a terminal: many sessions in one sitting, by keyboard alone.

use testkit::env::until;
use testkit::tmux::TmuxTerminal;

use crate::fixtures::{Scene, studio};

/// Pain 24: review is the bottleneck, and comments to the agent are missing or lost. Twelve branches
/// are reviewed in one sitting; every comment and every returned hunk arrives.
#[test]
fn pain_24_twelve_branches_are_reviewed_in_one_sitting_and_no_comment_is_lost() {
    let scene = Scene::new();
    let ids: Vec<String> = (1..=12)
        .map(|n| scene.exec(["--agent", "loads", &format!("write a{n} one; write b{n} one")]))
        .collect();
    for id in &ids {
        scene.await_state(id, "ready");
        scene.await_free(id);
    }
    let start = |ids: &[String]| {
        let mut command = vec![studio().to_owned(), "review".to_owned()];
        command.extend_from_slice(ids);
        TmuxTerminal::start(&scene.env, scene.repo.path(), (80, 24), command)
    };
    let mut terminal = start(&[]);
    for (index, id) in ids.iter().enumerate() {
        let number = index + 1;
        if number == 5 {
            // Half of the day is over: what was decided and written is kept.
            terminal.shows_all(&["5 of 12", id]);
            terminal.types("jr").types("kc").enters("write c5 kept");
            terminal.shows("comment 1 saved");
            terminal.types("q").ends();
            terminal = start(&ids[index..]);
            terminal.shows_all(&["1 of 8", id, "[returned]", "# write c5 kept"]);
            terminal.types("S");
            continue;
        }
        terminal.shows_all(&[&format!("{} of ", if number < 5 { number } else { number - 4 }), id]);
        match number % 3 {
            0 => {
                terminal.types("c").enters(&format!("write c{number} done"));
                terminal.shows("comment 1 saved");
                terminal.types("S");
            }
            1 => drop(terminal.types("A")),
            _ => {
                terminal.types("a").shows("1 accepted");
                terminal.types("L").shows("the rest stays");
                terminal.types("r").shows("1 returned");
                terminal.types("S");
            }
        }
    }
    let text = terminal.ends();
    assert!(text.contains("4 landed, 6 sent"), "{text}");

    for (index, id) in ids.iter().enumerate() {
        let number = index + 1;
        let read = |name: &str| std::fs::read_to_string(scene.repo.path().join(name)).ok();
        let one = Some("one\n".to_owned());
        match number % 3 {
            1 => {
                assert_eq!(scene.status(id)["state"], "accepted", "{number}");
                assert_eq!(
                    (read(&format!("a{number}")), read(&format!("b{number}"))),
                    (one.clone(), one)
                );
            }
            2 if number != 5 => {
                assert_eq!((read(&format!("a{number}")), read(&format!("b{number}"))), (one, None));
                let turn = last_turn(&scene, id);
                assert!(turn.contains(&format!("Returned change in b{number}")), "{turn}");
            }
            _ => {
                scene.await_state(id, "ready");
                let done = if number == 5 { "kept\n" } else { "done\n" };
                assert_eq!(scene.worktree(id).read(&format!("c{number}")), done);
            }
        }
    }
    let turn = last_turn(&scene, &ids[4]);
    assert!(turn.contains("Returned change in b5") && turn.contains("Comment on a5"), "{turn}");
    assert_eq!(scene.repo.git(["status", "--porcelain"]), "");
}

/// Returns the text of the second turn, which the review sent.
fn last_turn(scene: &Scene, id: &str) -> String {
    until("the turn to start", || {
        let turns = scene.journal(id).into_iter().filter(|entry| entry["entry"] == "turn");
        let turns: Vec<_> = turns.collect();
        (turns.len() == 2).then(|| turns[1]["text"].as_str().expect("a text").to_owned())
    })
}

#[test]
fn the_terminal_is_restored_after_quitting_and_after_a_signal() {
    let scene = Scene::new();
    let id = scene.ready("write a one");
    scene.await_free(&id);
    let shell = format!("echo shell $$; '{}' review {id}; echo code $?; stty -a", studio());
    for (quit, code) in [("q", "code 0"), ("C-c", "code 0"), ("TERM", "code 130")] {
        let terminal =
            TmuxTerminal::start(&scene.env, scene.repo.path(), (80, 24), ["sh", "-c", &shell]);
        terminal.shows("q quit");
        match quit {
            "TERM" => {
                let command = format!(
                    "for p in /proc/[0-9]*; do if tr '\\0' ' ' < $p/cmdline 2>/dev/null | \
                     grep -q '^{} review {id}'; then kill -TERM ${{p#/proc/}}; fi; done",
                    studio()
                );
                scene.env.run("sh", scene.repo.path(), ["-c", &command]);
            }
            key => drop(terminal.presses(key)),
        }
        let text = terminal.ends();
        assert!(text.contains(code) && !text.contains("-icanon"), "{quit}: {text}");
        assert!(text.contains(" echo ") && !text.contains("-echo "), "{quit}: {text}");
        assert!(!text.contains("q quit"), "the usual screen is back: {text}");
    }
}
