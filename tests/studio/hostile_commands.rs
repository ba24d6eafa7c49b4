//! Every studio command in a repository, and on a session, that plant commands for git.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use base::process::{Command, OutputLimits};
use serde_json::json;
use testkit::repo::Repo;

use crate::fixtures::{Scene, studio};
use crate::git_command::{ATTRIBUTES, Attributes, Planted, executable};

/// A repository with every planted command, in the way of its attributes.
fn planted(attributes: Attributes) -> (Scene, Planted) {
    let mut scene = Scene::new();
    // The user's own editor; that of the repository is not used.
    scene.env.set("EDITOR", "true");
    for name in ["a.txt", "b.conv", "c.eq", "d.proc"] {
        scene.repo.commit_file(name, "one\n");
    }
    scene.repo.git(["branch", "left"]);
    if matches!(attributes, Attributes::Committed) {
        scene.repo.commit_file(".gitattributes", ATTRIBUTES);
    }
    scene.configure("checks = \"true\"\nopen = [\"true\", \"{worktree}\"]");
    let markers = scene.env.home().join("markers");
    fs::create_dir(&markers).unwrap();
    let planted = Planted::in_repository(Repo::at(scene.repo.path()), markers);
    planted.plant(attributes);
    let line = |name: &str| planted.line(name, "true");
    let included = scene.env.home().join("included");
    let more = [
        ("core.pager", line("pager")),
        ("core.sshCommand", line("ssh")),
        ("core.askPass", planted.script("askpass")),
        ("core.gitProxy", planted.script("proxy")),
        ("credential.helper", format!("!{}", line("credential"))),
        ("sequence.editor", line("sequence")),
        ("alias.status", format!("!{}", line("alias"))),
        ("gpg.ssh.program", planted.script("gpg-ssh")),
        ("trailer.x.command", line("trailer")),
        ("trailer.x.key", "Task".to_owned()),
        ("interactive.diffFilter", line("filter")),
        ("pager.diff", line("pager-diff")),
        ("difftool.evil.cmd", line("difftool")),
        ("diff.tool", "evil".to_owned()),
        ("include.path", included.display().to_string()),
    ];
    more.iter().for_each(|(key, value)| drop(scene.repo.git(["config", key, value])));
    fs::write(&included, format!("[core]\n\tfsmonitor = {:?}\n", line("included"))).unwrap();
    // The files of a bare repository in a directory of the work, with their own configuration.
    scene.repo.write("bare/HEAD", "ref: refs/heads/main\n");
    let config = format!("[core]\n\tbare = true\n\tfsmonitor = {:?}\n", line("bare"));
    scene.repo.write("bare/config", config);
    fs::create_dir_all(scene.repo.path().join("bare/objects")).unwrap();
    fs::create_dir_all(scene.repo.path().join("bare/refs")).unwrap();
    (scene, planted)
}

/// Runs a command and fails if it ran a planted one.
fn quiet(planted: &Planted, scene: &Scene, directory: &Path, args: &[&str]) -> String {
    let ran = scene.env.run(studio(), directory, args);
    assert_eq!(planted.found(), BTreeSet::new(), "studio {args:?}: {ran}");
    ran.to_string()
}

/// Commands that need no session.
const COMMANDS: [&str; 12] = [
    "list",
    "inbox",
    "stats",
    "doctor",
    "gc",
    "trace",
    "verify",
    "man",
    "config show",
    "list --json",
    "list --all",
    "agents",
];

/// Commands on a session, whose id comes after the first word.
const SESSION_COMMANDS: [&str; 20] = [
    "status",
    "status --json",
    "explain",
    "logs",
    "diff",
    "diff --stat",
    "diff --name-only",
    "diff --word-diff",
    "diff --json",
    "diff --color=always",
    "diff --since turn",
    "diff --tool=evil",
    "review --plain",
    "review --json",
    "review --edit",
    "check",
    "open",
    "attach",
    "shell",
    "edit --check true",
];

#[test]
fn no_studio_command_runs_what_a_repository_plants() {
    for attributes in [Attributes::Committed, Attributes::InfoFile] {
        let (scene, planted) = planted(attributes);
        let id = ready(&scene);
        look(&scene, &planted, &id);
        land(&scene, &planted, &id);
        run_plain_git(&scene, &planted);
    }
}

#[test]
fn no_studio_command_runs_what_a_session_plants() {
    let (scene, planted) = planted(Attributes::Committed);
    let id = ready(&scene);
    // An agent without a sandbox: a nested repository, its own configuration, another pointer.
    let worktree = scene.worktree(&id);
    let nested = Repo::make(&worktree.path().join("nested"));
    nested.git(["config", "core.fsmonitor", &planted.line("nested", "false")]);
    look_at_session(&scene, &planted, &id);
    // The control of each: plain git in the worktree runs it.
    let control = |name: &str| {
        worktree.job().arg("status").output(OutputLimits::seconds(60)).unwrap();
        assert!(planted.found().contains(name), "no {name} in {:?}", planted.found());
        planted.forget();
    };
    worktree.git(["config", "core.fsmonitor", &planted.line("session", "false")]);
    worktree.git(["config", "filter.evil.clean", &planted.line("session-clean", "cat")]);
    control("session");
    look_at_session(&scene, &planted, &id);
    let pointer = worktree.read(".git");
    worktree.write(".git", format!("gitdir: {}\n", nested.path().join(".git").display()));
    control("nested");
    look_at_session(&scene, &planted, &id);
    worktree.write(".git", pointer);
    fs::remove_dir_all(nested.path()).unwrap();
    let landed = quiet(&planted, &scene, scene.repo.path(), &["accept", &id, "-m", "x"]);
    assert!(landed.contains("landed on main"), "{landed}");
}

/// A ready session with changes in each file that has a driver.
fn ready(scene: &Scene) -> String {
    let changes = "write a.txt two; write b.conv two; write c.eq two; write d.proc two";
    let id = scene.ready(&format!("{changes}; write new.txt 1"));
    scene.await_free(&id);
    id
}

/// Runs every command that lands nothing.
fn look(scene: &Scene, planted: &Planted, id: &str) {
    let bare = scene.repo.path().join("bare");
    let run = |args: &[&str]| quiet(planted, scene, scene.repo.path(), args);
    for command in COMMANDS {
        run(&command.split(' ').collect::<Vec<_>>());
    }
    for directory in [bare.as_path(), scene.worktree(id).path()] {
        quiet(planted, scene, directory, &["list"]);
        quiet(planted, scene, directory, &["status", id]);
    }
    look_at_session(scene, planted, id);
    let calls = ["list", "status", "diff"].map(|name| {
        let arguments = if name == "list" { json!({}) } else { json!({"id": id}) };
        let params = json!({"name": name, "arguments": arguments});
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}).to_string()
    });
    serve_mcp(scene, &calls);
    assert_eq!(planted.found(), BTreeSet::new(), "mcp serve");
}

/// Runs every command on a session that does not end it.
fn look_at_session(scene: &Scene, planted: &Planted, id: &str) {
    let run = |args: &[&str]| quiet(planted, scene, scene.repo.path(), args);
    for command in ["list", "doctor"] {
        run(&[command]);
    }
    for command in SESSION_COMMANDS {
        let mut args: Vec<&str> = command.split(' ').collect();
        args.insert(1, id);
        run(&args);
    }
    run(&["try", id, "--once"]);
    run(&["try", "--end"]);
}

/// Starts sessions from existing work, and lands, discards and restores one.
fn land(scene: &Scene, planted: &Planted, id: &str) {
    let run = |args: &[&str]| quiet(planted, scene, scene.repo.path(), args);
    run(&["run", "--detach", "--branch", "left", "write a.txt left"]);
    run(&["fork", id, "write new.txt 2", "--detach"]);
    run(&["stop", "--all"]);
    assert_eq!(planted.found(), BTreeSet::new());
    let dry_run = run(&["accept", id, "--dry-run"]);
    assert!(dry_run.contains("would land"), "{dry_run}");
    // A conflict in a file with a merge driver.
    let before = scene.repo.rev("main");
    let git = base::git::Git::at(scene.repo.path().join(".git")).with_work_tree(scene.repo.path());
    let theirs = git.run(&["hash-object", "-w", "--no-filters", "bare/config"]).unwrap();
    git.run(&["update-index", "--cacheinfo", &format!("100644,{theirs},a.txt")]).unwrap();
    let tree = git.run(&["write-tree"]).unwrap();
    let names =
        ["AUTHOR", "COMMITTER"].map(|who| ["NAME", "EMAIL"].map(|it| format!("{who}_{it}")));
    let job = git.command(["commit-tree", "-p", "main", "-m", "theirs", &tree]);
    let job = names.iter().flatten().fold(job, |job, name| job.env(format!("GIT_{name}"), "a@b"));
    let commit = job.output(OutputLimits::seconds(60)).unwrap().text();
    git.run(&["update-ref", "refs/heads/main", &commit]).unwrap();
    let conflict = run(&["accept", id, "-m", "x"]);
    assert!(conflict.contains("conflict with `main` in a.txt"), "{conflict}");
    git.run(&["update-ref", "refs/heads/main", &before]).unwrap();
    git.run(&["read-tree", "main"]).unwrap();
    for strategy in ["merge", "rebase", "squash"] {
        let landed = run(&["accept", id, "-m", "x", "--strategy", strategy]);
        assert!(landed.contains("landed on main"), "{strategy}: {landed}");
        let undone = run(&["undo"]);
        assert!(undone.contains("is no longer landed"), "{undone}");
    }
    run(&["discard", id, "--yes"]);
    run(&["undo"]);
    run(&["gc", "--all"]);
    assert_eq!(scene.status(id)["state"], "ready");
}

/// The positive control: plain git runs what is planted.
fn run_plain_git(scene: &Scene, planted: &Planted) {
    // The process filter does not speak the protocol, which ends calls before the rest is reached.
    for end in ["with", "without"] {
        planted.stale();
        scene.repo.write("a.txt", format!("control {end}\n"));
        for args in [
            &["diff", "left"][..],
            &["worktree", "add", "-q", &format!("../control-{end}"), "left"],
            &["commit", "-qam", "control"],
        ] {
            scene.repo.job().args(args).output(OutputLimits::seconds(60)).unwrap();
        }
        scene.repo.try_git(["config", "--unset", "filter.proc.process"]);
    }
    let found = planted.found();
    for expected in ["clean", "included", "hook-post-checkout", "diff-command", "process"] {
        assert!(found.contains(expected), "no {expected} in {found:?}");
    }
}

/// Calls tools of `studio mcp serve`.
fn serve_mcp(scene: &Scene, calls: &[String]) {
    let initialize = json!({
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        },
    });
    let initialized = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    let input = format!("{initialize}\n{initialized}\n{}\n", calls.join("\n"));
    scene.repo.write("../requests", input);
    let line = format!("'{}' mcp serve < ../requests", studio());
    let ran = scene.env.run("sh", scene.repo.path(), ["-c", &line]);
    ran.output_contains("serverInfo");
}

/// What an agent without a sandbox can put in the place of a file.
const TRICKS: [&str; 4] = ["fifo", "sparse", "long", "directory"];

fn trick(kind: &str, path: &Path) {
    let _ = fs::remove_file(path).or_else(|_| fs::remove_dir_all(path));
    match kind {
        "fifo" => {
            let made = Command::new("mkfifo", "/").arg(path);
            assert!(made.output(OutputLimits::seconds(10)).unwrap().ok());
        }
        "sparse" => fs::File::create(path).unwrap().set_len(4 << 30).unwrap(),
        "long" => fs::write(path, format!("gitdir: /{}\n", "n".repeat(4000))).unwrap(),
        _ => fs::create_dir(path).unwrap(),
    }
}

#[test]
fn no_file_of_a_session_blocks_a_command_or_takes_the_memory() {
    let scene = Scene::new();
    let id = scene.ready("write a 1");
    let other = scene.ready("write b 1");
    scene.await_free(&id);
    scene.await_free(&other);
    let git_dir = scene.session_file(&id, "git");
    let pointer = scene.worktree(&id).path().join(".git");
    let names = [
        "HEAD",
        "config",
        "index",
        "commondir",
        "gitdir",
        "config.worktree",
        "packed-refs",
        "shallow",
        "info/exclude",
        "info/attributes",
        "objects/info/alternates",
    ];
    let files = names.map(|name| git_dir.join(name));
    // The sparse file has 4 GiB; a program that reads it whole exceeds this limit.
    let bounded = |args: &str| {
        let line = format!("ulimit -v 3000000; timeout 60 '{}' {args}", studio());
        scene.env.run("sh", scene.repo.path(), ["-c", &line])
    };
    bounded(&format!("status {id}")).exits(0);
    for path in files.iter().chain([&pointer]) {
        let saved = fs::read(path).ok();
        for kind in TRICKS {
            trick(kind, path);
            for command in ["status", "diff --stat", "accept --dry-run"] {
                let (verb, flags) = command.split_once(' ').unwrap_or((command, ""));
                let ran = bounded(&format!("{verb} {id} {flags}"));
                let text = ran.to_string();
                assert!(
                    ["[exit 0]", "[exit 1]", "[exit 2]", "[exit 3]"]
                        .iter()
                        .any(|code| text.contains(code)),
                    "{kind} at {}: {command}: {text}",
                    path.display()
                );
            }
            bounded("list --json").exits(0).output_contains(&other);
        }
        let _ = fs::remove_file(path).or_else(|_| fs::remove_dir_all(path));
        if let Some(content) = saved {
            fs::write(path, content).unwrap();
        }
    }
    // Nothing is lost, and the other session was never affected.
    bounded(&format!("accept {other} -m x")).exits(0);
    bounded(&format!("accept {id} -m y")).exits(0);
    assert_eq!((scene.repo.read("a").as_str(), scene.repo.read("b").as_str()), ("1\n", "1\n"));
}

#[test]
fn a_repositorys_own_hook_runs_for_the_user_only() {
    let scene = Scene::new();
    let marker = scene.env.home().join("hook");
    let hook = scene.repo.path().join(".git/hooks/pre-commit");
    executable(&hook, &format!("touch '{}'", marker.display()));
    scene.repo.git(["config", "commit.gpgSign", "true"]);
    let id = scene.ready("write a 1");
    scene.await_free(&id);
    scene
        .studio(["accept", &id, "-m", "x"])
        .exits(0)
        .output_contains("hooks were not run")
        .output_contains("not signed");
    assert!(!marker.exists());
    scene.repo.git(["config", "commit.gpgSign", "false"]);
    scene.repo.write("c", "1");
    scene.repo.git(["add", "c"]);
    scene.repo.git(["commit", "-q", "-m", "by hand"]);
    assert!(marker.exists(), "the hook works");
}
