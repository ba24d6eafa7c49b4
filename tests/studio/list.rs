//! `studio list` at every terminal width.

use std::path::Path;

use testkit::env::CommandRun;

use crate::fixtures::{Scene, studio};

/// Creates sessions in several states, with tasks of several lengths.
fn busy() -> (Scene, Vec<String>) {
    let scene = Scene::new();
    let mut ids = Vec::new();
    ids.push(scene.ready("write hello.txt hi"));
    let long = "write README.md changed; say make the first page tell what the program is for, in \
                words of one syllable";
    ids.push(scene.ready(long));
    let red = scene.exec(["write red.txt 1", "--check", "echo wrong >&2; exit 7"]);
    testkit::env::until("red", || (scene.status(&red)["state"] == "failed").then_some(()));
    ids.push(red);
    let large = scene.exec(["sh head -c 12000000 /dev/zero > 'a big file.bin'"]);
    scene.await_state(&large, "empty");
    ids.push(large);
    ids.iter().for_each(|id| scene.await_free(id));
    scene.repo.commit_file("README.md", "# Ours\n");
    (scene, ids)
}

fn list(scene: &Scene, columns: &str) -> CommandRun {
    let job = scene.env.command(studio(), scene.repo.path()).env("COLUMNS", columns);
    scene.env.run_command(job.args(["list"]))
}

#[test]
fn the_list_fits_every_width() {
    let (scene, _) = busy();
    for columns in ["40", "60", "80", "100", "160"] {
        let ran = list(&scene, columns);
        let width: usize = columns.parse().unwrap();
        for line in ran.ok().lines() {
            assert!(line.chars().count() <= width, "{columns}: {line}");
        }
        if ["40", "80", "160"].contains(&columns) {
            insta::assert_snapshot!(format!("list_{columns}"), ran.ok());
        }
    }
}

#[test]
fn printed_commands_can_be_run() {
    let (scene, ids) = busy();
    for columns in ["40", "80", "160"] {
        let ran = list(&scene, columns);
        let commands: Vec<&str> =
            ran.ok().lines().filter_map(|line| Some(&line[line.find("studio ")?..])).collect();
        assert_eq!(commands.len(), ids.len(), "{columns}:\n{ran}");
        for command in commands {
            let id = command.split(' ').nth(2).unwrap();
            let found = scene.studio(["explain", id, "--json"]).json()["id"].clone();
            assert!(ids.iter().any(|known| *known == found), "{command}");
        }
    }
}

#[test]
fn a_terminal_shows_colours_and_a_summary_of_hidden_sessions() {
    let (scene, _) = busy();
    let on = |variables: &[(&str, &str)]| {
        let mut job = scene.env.command("script", scene.repo.path()).env("SHELL", "/bin/sh");
        job = job.env("TERM", "xterm").env("COLUMNS", "80");
        for (name, value) in variables {
            job = job.env(name, value);
        }
        scene.env.run_command(job.args(["-qec", &format!("{} list", studio()), "/dev/null"]))
    };
    on(&[])
        .exits(0)
        .output_contains("\u{1b}[31mfailed")
        .output_contains("\u{1b}[32mready")
        .output_lacks("more:");
    on(&[("NO_COLOR", "1")]).exits(0).output_lacks("\u{1b}").output_contains("failed");
    let small = on(&[("LINES", "7"), ("NO_COLOR", "1")]);
    small.exits(0).output_contains("failed").output_contains("… 2 more: 1 ready, 1 empty");
    let lines = small.out.lines().count();
    assert!(lines <= 6, "{lines} lines:\n{small}");
}

#[test]
fn accepted_and_discarded_sessions_are_listed_with_all() {
    let scene = Scene::new();
    let landed = scene.ready("write a 1");
    let open = scene.ready("write b 2");
    scene.await_free(&landed);
    scene.studio(["accept", &landed, "-m", "Land"]).exits(0);
    let ids = |ran: CommandRun| -> Vec<String> {
        let sessions = ran.exits(0).json()["sessions"].as_array().unwrap().clone();
        sessions.iter().map(|it| it["id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ids(scene.studio(["list", "--json"])), std::slice::from_ref(&open));
    assert_eq!(ids(scene.studio(["list", "--all", "--json"])), [landed, open]);
    scene
        .studio(["list"])
        .exits(0)
        .output_lacks("undo op1")
        .output_contains("1 accepted or discarded");
    scene
        .studio(["list", "--all"])
        .exits(0)
        .output_contains("accepted")
        .output_contains("studio undo op1");
}

#[test]
fn the_sessions_of_all_repositories_are_listed_from_anywhere() {
    let scene = Scene::new();
    let other = scene.env.repo_at("the other's");
    let bare = scene.env.home().join("bare.git");
    let inner = scene.env.repo_at("my repö/inner");
    scene.repo.git(["clone", "-q", "--bare", ".", bare.to_str().unwrap()]);
    let none = scene.studio_in(scene.env.home(), ["list", "--all-repositories"]);
    none.exits(0).output_contains("no open sessions in any repository");

    let mine = scene.ready("write a 1");
    scene.await_free(&mine);
    scene.studio_in(other.path(), ["run", "write b 1"]).exits(0);
    scene.studio_in(inner.path(), ["run", "write d 1"]).exits(0);
    std::fs::remove_file(inner.path().join(".git/HEAD")).unwrap();
    scene.studio_in(&bare, ["run", "write c 1"]).exits(0);
    let from_home = |args: &[&str]| scene.env.run(studio(), scene.env.home(), args);
    let json = from_home(&["list", "-A", "--json"]).exits(0).json();
    let repositories = json["repositories"].as_array().unwrap();
    let mut found: Vec<_> = repositories
        .iter()
        .map(|it| (it["directory"].as_str().unwrap(), it["sessions"][0]["id"].as_str().unwrap()))
        .collect();
    found.sort_by_key(|(_, id)| *id);
    let path = |path: &Path| path.canonicalize().unwrap().to_str().unwrap().to_owned();
    let expected = [path(scene.repo.path()), path(other.path()), path(&bare)];
    assert_eq!(found.iter().map(|it| it.0).collect::<Vec<_>>(), expected, "{json}");
    for ((_, id), prefix) in found.iter().zip([mine.as_str(), "write-b-1-", "write-c-1-"]) {
        assert!(id.starts_with(prefix), "{json}");
    }

    let list = from_home(&["list", "-A"]);
    let headings: Vec<&str> =
        list.exits(0).out.lines().filter(|line| line.starts_with("cd ")).collect();
    assert_eq!(headings.len(), 3, "{list}");
    for heading in headings {
        let ids = format!("{heading} && {} list --json", studio());
        let ran = scene.env.run("sh", scene.env.home(), ["-c", &ids]);
        assert_eq!(ran.exits(0).json()["sessions"].as_array().unwrap().len(), 1, "{heading}");
    }

    scene.studio(["discard", &mine]).exits(0);
    std::fs::rename(other.path(), scene.env.home().join("moved")).unwrap();
    std::fs::remove_file(bare.join("HEAD")).unwrap();
    let list = from_home(&["list", "--all-repositories"]);
    list.exits(0).output_lacks("write-a").output_lacks("the other").output_contains("bare.git");
    list.output_contains("is not in a git repository");
    from_home(&["list", "-A", "--all"]).exits(0).output_contains("discarded");
}

#[test]
fn json_of_untrusted_text_is_harmless_on_a_terminal() {
    let scene = Scene::new();
    let id = scene.ready("write a 1; say x\u{9b}2J\u{202e}y\u{e0041}");
    let ran = scene.studio(["list", "--json"]);
    let task = ran.exits(0).json()["sessions"][0]["task"].as_str().unwrap().to_owned();
    assert!(task.ends_with("x\u{9b}2J\u{202e}y\u{e0041}"));
    for ran in [ran, scene.studio(["status", &id, "--json"]), scene.studio(["status", &id])] {
        ran.output_lacks("\u{9b}").output_lacks("\u{202e}").output_lacks("\u{e0041}");
    }
}

#[test]
fn a_worktree_whose_git_the_agent_changed_is_marked() {
    let scene = Scene::new();
    let [changed, untouched] = [scene.ready("write a 1"), scene.ready("write b 1")];
    let names = |ran: &CommandRun| ran.err.contains("warning: ");
    assert!(!names(&scene.studio(["list"])));
    scene.worktree(&changed).git(["config", "core.fsmonitor", "/evil"]);
    let shown = list(&scene, "100");
    shown
        .output_contains("ready (!)")
        .output_contains(&format!("warning: {changed}: the agent changed config in its git"));
    shown.output_lacks(&format!("warning: {untouched}"));
    let sessions = scene.studio(["list", "--json"]).json()["sessions"].clone();
    let told: Vec<bool> =
        sessions.as_array().unwrap().iter().map(|it| it["tampered"].is_null()).collect();
    assert_eq!(told.iter().filter(|is_fine| **is_fine).count(), 1, "{sessions}");
}

#[test]
fn a_conflict_with_the_branch_is_marked_and_cached() {
    let (scene, ids) = busy();
    for _ in 0..2 {
        let sessions = scene.studio(["list", "--json"]).json()["sessions"].clone();
        let of = |id: &str| {
            let all = sessions.as_array().unwrap();
            all.iter().find(|it| it["id"] == id).unwrap()["conflicts"].clone()
        };
        assert_eq!(of(&ids[1]), serde_json::json!(["README.md"]));
        assert_eq!(of(&ids[0]), serde_json::json!([]));
    }
    let shown = list(&scene, "100");
    shown.output_contains("ready (!)").output_contains("conflicts with main in README.md").ok();
    assert!(scene.repo.path().join(".git/studio/cache/standing.json").exists());
}

#[test]
fn a_request_whose_answer_does_not_fit_is_answered_in_the_inbox() {
    let scene = Scene::new();
    let script = "ask whether the database is dropped";
    let ids = [0, 1].map(|_| scene.exec(["--agent", "talk", "--ask", script]));
    for id in &ids {
        scene.await_state(id, "waiting");
    }
    let list = scene.studio(["list"]);
    assert_eq!(list.out.matches("studio inbox").count(), 2, "{}", list.out);
    for id in &ids {
        scene.studio(["answer", id, "deny"]).exits(0);
        scene.await_state(id, "ready");
    }
}
