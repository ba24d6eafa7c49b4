//! `studio inbox`: what needs the user, over all sessions.

use testkit::env::until;
use testkit::tmux::TmuxTerminal;

use crate::fixtures::{Scene, studio};

/// Starts a session and waits until its agent asks.
fn asking(scene: &Scene, script: &str) -> String {
    let id = scene.exec(["--agent", "talk", "--ask", script]);
    scene.await_state(&id, "waiting");
    id
}

fn ids(sessions: &serde_json::Value) -> Vec<&str> {
    let sessions = sessions.as_array().into_iter().flatten();
    sessions.filter_map(|session| session["id"].as_str()).collect()
}

#[test]
fn questions_are_listed_oldest_first_with_the_commands_that_answer_them() {
    let scene = Scene::new();
    scene.studio(["inbox"]).exits(0).output_contains("nothing needs you");
    let first = asking(&scene, "ask one");
    let second = asking(&scene, "ask two");

    let listed = scene.studio(["inbox", "--json"]).json();
    assert_eq!(ids(&listed["questions"]), [&first, &second]);
    assert_eq!(listed["questions"][0]["description"], "one");
    let page = scene.studio(["inbox"]);
    page.exits(0).output_contains(&format!("{first} asked ")).output_contains("\n  one\n");
    let command = listed["questions"][1]["answers"][1].as_str().unwrap();
    assert!(page.out.contains(command), "{}", page.out);

    let words: Vec<&str> = command.split(' ').collect();
    assert_eq!(words, ["studio", "answer", &second, "1", "deny"]);
    scene.studio(["answer", &second, "1", "deny"]).exits(0);
    scene.await_state(&second, "ready");
    let listed = scene.studio(["inbox", "--json"]).json();
    assert_eq!(ids(&listed["questions"]), [&first]);
    assert_eq!(ids(&listed["unseen"]), [&second]);
}

#[test]
fn what_needs_the_user_is_shown_for_all_repositories_with_commands_that_work() {
    let scene = Scene::new();
    let everywhere = |args: &[&str]| scene.env.run(studio(), scene.env.home(), args);
    everywhere(&["inbox", "-A"]).exits(0).output_contains("nothing needs you in any repository");
    let other = scene.env.repo_at("the other's");
    let mine = asking(&scene, "ask one");
    let ran = scene.studio_in(other.path(), ["exec", "--agent", "talk", "--ask", "ask two"]);
    let theirs = ran.ok().trim().to_owned();
    until("both questions", || {
        let listed = everywhere(&["inbox", "--all-repositories", "--json"]).exits(0).json();
        let repositories = listed["repositories"].as_array()?.clone();
        let questions: Vec<&str> =
            repositories.iter().flat_map(|repository| ids(&repository["questions"])).collect();
        let is_asked = |id: &String| questions.contains(&id.as_str());
        (is_asked(&mine) && is_asked(&theirs)).then_some(())
    });
    let page = everywhere(&["inbox", "-A"]);
    let mut directory = None;
    let mut answered = 0;
    for line in page.exits(0).out.lines() {
        if line.starts_with("cd ") {
            directory = Some(line.to_owned());
        }
        let Some(at) = line.find("studio answer ").filter(|_| line.ends_with(" allow")) else {
            continue;
        };
        let cd = directory.clone().expect("the directory comes first");
        let answer = line[at..].replacen("studio", studio(), 1);
        scene.env.run("sh", scene.env.home(), ["-c", &format!("{cd} && {answer}")]).exits(0);
        answered += 1;
    }
    assert_eq!(answered, 2, "{page}");
    scene.await_state(&mine, "ready");
}

#[test]
fn a_settled_session_is_new_until_the_user_looks_at_it() {
    let scene = Scene::new();
    let ready = scene.ready("write a 1");
    let failed = scene.exec(["exit 3"]);
    scene.await_state(&failed, "failed");
    let listed = || scene.studio(["inbox", "--json"]).json();
    assert_eq!(ids(&listed()["unseen"]), [&ready, &failed]);

    // A script does not look at it.
    scene.studio(["status", &ready, "--json"]).exits(0);
    assert_eq!(ids(&listed()["unseen"]), [&ready, &failed]);
    scene.studio(["diff", &ready]).exits(0);
    scene.studio(["logs", &failed]).exits(0);
    assert_eq!(ids(&listed()["seen"]), [&ready, &failed]);
    scene.studio(["inbox"]).exits(0).output_contains("Seen:").output_lacks("New:");

    // It settles again.
    scene.await_free(&ready);
    scene.studio(["send", &ready, "write b 1"]).exits(0);
    scene.await_state(&ready, "ready");
    assert_eq!(ids(&listed()["unseen"]), [&ready]);
    scene.studio(["status", &ready]).exits(0);
    assert_eq!(ids(&listed()["unseen"]), [""; 0]);
    scene.await_free(&ready);
    scene.studio(["accept", &ready, "-m", "Add a"]).exits(0);
    assert_eq!(ids(&listed()["seen"]), [&failed]);
}

#[test]
fn questions_are_answered_in_place_on_a_terminal() {
    let scene = Scene::new();
    let first = asking(&scene, "ask one; ask two");
    let second = asking(&scene, "ask three");
    let terminal =
        TmuxTerminal::start(&scene.env, scene.repo.path(), (80, 24), [studio(), "inbox"]);
    terminal.shows(&format!("{first} asks for permission 1"));
    terminal.types("s");
    terminal.shows(&format!("{second} asks for permission 1"));
    // Answered elsewhere: the next question appears by itself.
    let third = asking(&scene, "ask four");
    scene.studio(["answer", &second, "deny"]).exits(0);
    terminal.shows(&format!("{third} asks for permission 1"));
    terminal.types("y");
    terminal.shows(&format!("{third}: permission 1 allowed"));
    scene.await_state(&third, "ready");
    terminal.ends();

    let answers = |id: &str| scene.worktree(id).read("answers.txt");
    assert_eq!((answers(&second), answers(&third)), ("three: no\n".into(), "four: yes\n".into()));
    scene.studio(["answer", &first, "allow"]).exits(0);
}

#[test]
fn quitting_the_inbox_answers_nothing_and_restores_the_terminal() {
    let scene = Scene::new();
    let id = asking(&scene, "ask one");
    let shell = format!("trap : INT; '{}' inbox; echo code $?; stty -a", studio());
    for (quit, code) in [("q", "code 0"), ("C-c", "code 130")] {
        let terminal =
            TmuxTerminal::start(&scene.env, scene.repo.path(), (80, 24), ["sh", "-c", &shell]);
        terminal.shows("[q] quit");
        terminal.presses(quit);
        let text = terminal.ends();
        assert!(text.contains(code) && !text.contains("-icanon"), "{text}");
        assert!(text.contains(" echo ") && !text.contains("-echo "), "{text}");
        assert_eq!(scene.status(&id)["state"], "waiting");
    }
    scene.studio(["answer", &id, "deny"]).exits(0);
}
