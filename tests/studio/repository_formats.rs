//! Repositories in the formats of git 3.0: refs in reftables, and ids by SHA-256.

use crate::fixtures::{Scene, studio};
use crate::git_command::executable;

/// The formats, as arguments of `git init`.
const FORMATS: [[&str; 2]; 3] = [
    ["--ref-format=reftable", "--object-format=sha1"],
    ["--ref-format=files", "--object-format=sha256"],
    ["--ref-format=reftable", "--object-format=sha256"],
];

/// Returns the branches that git's list of worktrees names.
fn listed_branches(scene: &Scene) -> Vec<String> {
    let list = scene.repo.git(["worktree", "list", "--porcelain"]);
    let branches = list.lines().filter_map(|line| line.strip_prefix("branch refs/heads/"));
    branches.map(str::to_owned).collect()
}

#[test]
fn git_knows_the_worktrees_of_sessions_and_their_branches() {
    for format in FORMATS {
        let scene = Scene::of_format(&format);
        let (id, other) = (scene.ready("write a 1; commit one"), scene.ready("write b 1"));
        scene.await_free(&other);
        let branch = |id: &str| format!("studio/{id}");
        let mut expected = vec!["main".to_owned(), branch(&id), branch(&other)];
        assert_eq!(listed_branches(&scene), expected, "{format:?}");
        let (code, _, error) = scene.repo.try_git(["branch", "-D", &branch(&id)]);
        assert_eq!(code, 1, "{error}");
        scene.repo.git(["gc", "-q", "--prune=now"]);
        scene.repo.is_sound();

        scene.studio(["discard", &other]).exits(0);
        expected.pop();
        assert_eq!(listed_branches(&scene), expected);
        scene.studio(["undo"]).exits(0);
        expected.push(branch(&other));
        assert_eq!(listed_branches(&scene), expected);
        assert_eq!(scene.worktree(&other).read("b"), "1\n");

        scene.studio(["accept", &id, "-m", "Add a"]).exits(0);
        assert_eq!(scene.repo.read("a"), "1\n");
        assert!(scene.repo.git(["notes", "--ref=studio", "show", "main"]).contains(&id));
        scene.studio(["undo"]).exits(0);
        assert!(!scene.repo.path().join("a").exists());
        assert_eq!(scene.repo.git(["status", "--porcelain"]), "");
        scene.studio(["doctor"]).exits(0);
    }
}

#[test]
fn a_base_has_any_name_that_git_understands() {
    for format in FORMATS {
        let scene = Scene::of_format(&format);
        let repo = &scene.repo;
        let first = repo.rev("main");
        repo.git(["tag", "-a", "-m", "annotated", "v1"]);
        repo.git(["branch", "team/side"]);
        repo.git(["update-ref", "refs/remotes/origin/far", "main"]);
        repo.commit_file("second", "2\n");
        let short = &first[..9];
        for name in ["HEAD~1", "main^", "v1", "team/side", "origin/far", "main@{1}", short, &first]
        {
            let id = scene.exec(["write a 1", "--base", name]);
            assert_eq!(scene.await_end(&id)["base"]["commit"], first.as_str(), "{format:?} {name}");
        }
        for name in ["nowhere", "HEAD~9", "v1:README.md", &"1".repeat(first.len())] {
            let run = scene.studio(["exec", "write a 1", "--base", name]);
            run.exits(5).output_contains("no such branch, tag or commit");
        }
        repo.git(["checkout", "-q", "--detach", "HEAD~1"]);
        let id = scene.exec(["write a 1"]);
        assert_eq!(scene.await_end(&id)["base"]["commit"], first.as_str());
    }
}

#[test]
fn a_landing_is_refused_while_the_user_is_in_the_middle_of_something() {
    for format in FORMATS {
        let scene = Scene::of_format(&format);
        let repo = &scene.repo;
        repo.git(["checkout", "-q", "-b", "side"]);
        repo.commit_file("README.md", "side\n");
        repo.git(["checkout", "-q", "main"]);
        repo.commit_file("README.md", "main\n");
        let id = scene.ready("write a 1");
        scene.await_free(&id);
        for command in ["cherry-pick", "merge"] {
            assert_eq!(repo.try_git([command, "side"]).0, 1, "{format:?}: a conflict");
            let refused = scene.studio(["accept", &id, "-m", "Add a"]);
            refused.exits(3).output_contains("is not finished");
            repo.git([command, "--abort"]);
        }
        scene.studio(["accept", &id, "-m", "Add a"]).exits(0);
        assert_eq!(repo.read("a"), "1\n");
    }
}

#[test]
fn work_lands_in_the_users_linked_worktrees() {
    for format in FORMATS {
        let scene = Scene::of_format(&format);
        let path = scene.env.home().join("linked");
        let linked = path.to_str().expect("it works in a test");
        scene.repo.git(["worktree", "add", "-q", "-b", "other", linked]);
        let id = scene.studio_in(&path, ["exec", "write README.md changed"]).ok().to_owned();
        scene.await_state(&id, "ready");
        scene.await_free(&id);
        scene.studio_in(&path, ["accept", &id, "-m", "Change it"]).exits(0);
        let readme = || std::fs::read_to_string(path.join("README.md")).expect("it can be read");
        assert_eq!(readme(), "changed\n", "{format:?}");
        assert_eq!(scene.repo.read("README.md"), "# A repository\n");
        assert_eq!(scene.repo.git(["-C", linked, "status", "--porcelain"]), "");
        scene.studio_in(&path, ["undo"]).exits(0);
        assert_eq!(readme(), "# A repository\n");
        assert_eq!(scene.repo.git(["-C", linked, "status", "--porcelain"]), "");
    }
}

#[test]
fn many_sessions_change_refs_at_once() {
    for format in FORMATS {
        let scene = Scene::of_format(&format);
        let ids: Vec<String> =
            (0..8).map(|n| scene.exec([&format!("write f{n} {n}; commit it")])).collect();
        for id in &ids {
            scene.await_state(id, "ready");
        }
        scene.studio(["accept", "--all"]).exits(0);
        for n in 0..8 {
            assert_eq!(scene.repo.read(&format!("f{n}")), format!("{n}\n"), "{format:?}");
        }
        scene.repo.is_sound();
    }
}

#[test]
fn a_git_that_does_not_read_reftables_is_refused_before_an_agent_starts() {
    let scene = Scene::of_format(&FORMATS[0]);
    let bin = scene.env.home().join("old");
    std::fs::create_dir(&bin).expect("it works in a test");
    executable(&bin.join("git"), "echo git version 2.44.1");
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").expect("it is set"));
    for words in [&["exec", "write a 1"][..], &["list"]] {
        let job = scene.env.command(studio(), scene.repo.path()).args(words).env("PATH", &path);
        let run = scene.env.run_command(job);
        run.exits(2).output_contains("git 2.44 does not read the refs of this repository");
        run.output_contains("install git 2.45 or later");
    }
    assert!(!scene.repo.worktrees().exists(), "no session was made");
}

#[test]
fn a_lock_that_a_killed_git_left_changes_nothing_and_is_reported() {
    let scene = Scene::of_format(&FORMATS[0]);
    let id = scene.ready("write a 1");
    scene.await_free(&id);
    let before = scene.repo.everything();
    let lock = scene.repo.path().join(".git/reftable/tables.list.lock");
    std::fs::write(&lock, "").expect("it works in a test");
    let refused = scene.studio(["accept", &id, "-m", "Add a"]);
    let way_out = format!("if no git is running: rm '{}'", lock.display());
    refused.exits(1).output_contains("cannot lock references").output_contains(&way_out);
    assert_eq!(scene.repo.everything(), before);
    assert_eq!(scene.status(&id)["state"], "ready");
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
    let file = std::fs::File::options().write(true).open(&lock).expect("it can be opened");
    file.set_modified(old).expect("it works in a test");
    scene.studio(["doctor"]).output_contains("tables.list.lock is older than");
    std::fs::remove_file(&lock).expect("it works in a test");

    // The same in an operation that a kill interrupted.
    let mut args: Vec<std::ffi::OsString> = vec!["G3_TEST_KILL_AT=discard.renamed".into()];
    args.push(studio().into());
    args.extend(["discard", &id].map(Into::into));
    scene.env.run("/usr/bin/env", scene.repo.path(), args).exits(137);
    std::fs::write(&lock, "").expect("it works in a test");
    scene.studio(["doctor"]).exits(1).output_contains(&way_out);
    std::fs::remove_file(&lock).expect("it works in a test");
    scene.studio(["doctor"]).output_contains("` was finished");
    assert_eq!(scene.status(&id)["state"], "discarded");
    scene.studio(["undo"]).exits(0);
    scene.studio(["accept", &id, "-m", "Add a"]).exits(0);
}

#[test]
fn a_git_that_is_killed_before_or_after_it_moves_refs_fails_nothing() {
    let scene = Scene::of_format(&FORMATS[0]);
    let (bin, home) = (scene.env.home().join("killed"), scene.env.home().display());
    std::fs::create_dir(&bin).expect("it works in a test");
    let git = base::process::find_program("git").expect("git is installed");
    executable(
        &bin.join("git"),
        &format!(
            "case \"$*\" in *update-ref*--stdin*) \
             if rm {home}/killed/before 2>&-; then {git} \"$@\"; else : > {home}/killed/before; fi; \
             echo >> {home}/killed/log; kill -9 $$;; esac; exec {git} \"$@\"",
            git = git.display()
        ),
    );
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").expect("it is set"));
    let studio_with_it = |args: &[&str]| {
        let job = scene.env.command(studio(), scene.repo.path()).args(args);
        scene.env.run_command(job.env("PATH", &path)).exits(0);
    };
    studio_with_it(&["run", "write a 1; commit it; write b 2"]);
    let list = scene.studio(["list", "--json"]).json();
    let id = list["sessions"][0]["id"].as_str().expect("an id").to_owned();
    assert_eq!(scene.status(&id)["state"], "ready", "{list}");
    studio_with_it(&["accept", &id, "-m", "Add both"]);
    assert_eq!(scene.repo.read("b"), "2\n");
    studio_with_it(&["undo"]);
    let log = std::fs::read_to_string(bin.join("log")).expect("git was killed");
    assert!(log.lines().count() > 4, "{log}");
    scene.repo.is_sound();
}
