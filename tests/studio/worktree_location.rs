//! The location of worktrees: beside the main checkout, at a configured path, or where earlier
//! versions put them; and the caches of sessions.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use base::process::OutputLimits;
use testkit::env::{CommandRun, until};
use testkit::repo::Repo;

use crate::fixtures::{Scene, studio};

const INSIDE: &str = "worktree = \".worktrees/{id}\"";

/// Creates a scene whose sessions are inside the main checkout, as in earlier versions.
fn inside() -> Scene {
    let scene = Scene::new();
    scene.configure(INSIDE);
    scene
}

fn old_place(scene: &Scene, id: &str) -> Repo {
    Repo::at(&scene.repo.path().join(".worktrees").join(id))
}

#[test]
fn sessions_inside_the_main_checkout_continue_land_and_are_restored() {
    let scene = inside();
    scene
        .studio(["run", "write a 1"])
        .exits(0)
        .output_contains("the worktrees are inside the main checkout");
    let first = scene.studio(["list", "--json"]).json()["sessions"][0]["id"].clone();
    let first = first.as_str().expect("an id").to_owned();
    let second = scene.ready("write b 2");
    let third = scene.ready("write c 3");
    [&first, &second, &third].iter().for_each(|id| scene.await_free(id));
    assert_eq!(scene.repo.git(["status", "--porcelain"]), "");
    scene.configure("");

    scene.studio(["accept", &first, "-m", "Add a"]).exits(0);
    scene.studio(["discard", &second, "--yes"]).exits(0);
    assert!(!old_place(&scene, &second).path().exists());
    scene.studio(["undo"]).exits(0);
    assert_eq!(old_place(&scene, &second).read("b"), "2\n");
    scene.studio(["send", &second, "go on; write d 4"]).exits(0);
    until("the second turn", || old_place(&scene, &second).path().join("d").exists().then_some(()));
    scene.await_state(&second, "ready");
    scene.await_free(&second);
    fs::remove_dir_all(old_place(&scene, &third).path()).expect("it is there");
    scene.studio(["resume", &third]);
    scene.studio(["send", &third, "go on; write e 5"]);
    until("it is made again", || old_place(&scene, &third).path().join("c").exists().then_some(()));
    scene.studio(["accept", &second, "-m", "Add b"]).exits(0);
    assert_eq!((scene.repo.read("b"), scene.repo.read("d")), ("2\n".into(), "4\n".into()));
    assert_eq!(scene.repo.git(["status", "--porcelain"]), "");
}

#[test]
fn doctor_offers_to_move_worktrees_and_moves_those_not_in_use() {
    let scene = inside();
    scene.repo.commit_file(".gitignore", "cache/\n");
    let idle = scene.ready("write a 1; write cache/big warm; sh git add a");
    scene.await_free(&idle);
    let busy = scene.exec(["write b 1; gate go"]);
    scene.await_state(&busy, "working");
    until("its file", || old_place(&scene, &busy).path().join("b").exists().then_some(()));
    scene.configure("");
    scene.studio(["doctor"]).exits(0).output_contains("2 worktrees are inside the main checkout");
    assert!(old_place(&scene, &idle).path().exists(), "nothing is moved without the user's word");

    let moved = scene.studio(["doctor", "--move-worktrees"]);

    moved.exits(1).output_contains(&format!("moved the worktree of `{idle}`"));
    moved.output_contains(&format!("`{busy}` is in use"));
    assert!(!old_place(&scene, &idle).path().exists());
    let work = scene.worktree(&idle);
    assert_eq!(work.git(["status", "--porcelain"]), "A  a");
    assert_eq!(work.read("cache/big"), "warm\n");
    let listed = scene.repo.git(["worktree", "list", "--porcelain"]);
    assert!(listed.contains(work.path().to_str().expect("UTF-8")), "{listed}");
    old_place(&scene, &busy).write("go", "");
    scene.await_state(&busy, "ready");
    scene.await_free(&busy);
    scene.studio(["doctor", "--move-worktrees"]).exits(0).output_contains("moved the worktree");
    scene.studio(["doctor", "--move-worktrees"]).exits(0).output_contains("no problems found");
    scene.studio(["operations"]).exits(0).output_contains("move");
    scene.studio(["undo"]).exits(5).output_contains("nothing to undo");

    scene.studio(["send", &idle, "go on; write c 1"]).exits(0);
    until("the second turn", || work.path().join("c").exists().then_some(()));
    scene.await_state(&idle, "ready");
    scene.await_free(&idle);
    scene.studio(["accept", &idle, "-m", "Add a"]).exits(0);
    scene.studio(["undo"]).exits(0);
    assert_eq!(work.read("cache/big"), "warm\n", "it is back where it was moved to");
    scene.studio(["discard", &idle, &busy, "--yes"]).exits(0);
    scene.repo.is_sound();
}

#[test]
fn worktrees_are_in_the_users_state_directory_if_the_parent_is_read_only() {
    let env = testkit::env::TestEnv::new();
    let parent = env.home().join("shared");
    fs::create_dir(&parent).expect("the home is writable");
    let repo = Repo::make(&parent.join("repo"));
    // Root may write everywhere, so another user runs it, from paths that this user may read.
    let copied = |program: &Path| {
        let copy = env.home().join(program.file_name().expect("a program"));
        fs::copy(program, &copy).expect("the home is writable");
        copy
    };
    let is_root = rustix::process::geteuid().is_root();
    let (studio, fake) = match is_root {
        true => (copied(Path::new(studio())), copied(&testkit::env::built("fake-agent"))),
        false => (studio().into(), testkit::env::built("fake-agent")),
    };
    env.config(&format!(
        "[studio]\nagent = \"fake\"\nchecks = \"test -e a\"\n[studio.agents.fake]\n\
         protocol = \"command\"\ncommand = [\"{}\", \"{{prompt}}\"]\n",
        fake.display()
    ));
    fs::set_permissions(&parent, fs::Permissions::from_mode(0o555)).expect("it is ours");
    if is_root {
        let home = env.home().display().to_string();
        let job = env.command("chown", env.home()).args(["-R", "65534:65534", &home]);
        assert!(job.output(OutputLimits::seconds(30)).expect("chown runs").ok());
    }
    let run = |args: &[&str]| -> CommandRun {
        let job = match is_root {
            true => env
                .command("setpriv", repo.path())
                .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
                .arg(&studio),
            false => env.command(&studio, repo.path()),
        };
        env.run_command(job.args(args))
    };
    let note = "the directory of the main checkout cannot be written";
    run(&["run", "write a 1"]).exits(0).output_contains(note);
    run(&["run", "write a 2"]).exits(0).output_lacks(note);
    let list = run(&["list", "--json"]).json();
    let first = list["sessions"][0].clone();
    let state = env.home().join(".local/state/studio/worktrees");
    assert!(
        first["worktree"].as_str().expect("a path").starts_with(state.to_str().expect("UTF-8"))
    );
    run(&["accept", first["id"].as_str().expect("an id"), "-m", "Add a"]).exits(0);
    run(&["undo"]).exits(0);
}

#[test]
fn a_missing_path_dependency_is_reported_with_a_working_template() {
    let scene = Scene::new();
    let sibling = scene.env.home().join("sibling");
    fs::create_dir(&sibling).expect("the home is writable");
    scene.repo.commit_file("Cargo.toml", "[dependencies]\nsibling = { path = \"../sibling\" }\n");
    scene.configure("checks = \"test -d ../sibling\"");
    let id = scene.exec(["write a 1"]);
    let failed = until("the check", || {
        let status = scene.status(&id);
        (status["state"] == "failed").then_some(status)
    });
    let why = failed["why"].as_str().expect("a reason");
    assert!(
        why.contains("`../sibling` in Cargo.toml") && why.contains("{parent}/{repo}-{id}"),
        "{why}"
    );
    scene.await_free(&id);

    let beside = "worktree = \"{parent}/{repo}-{id}\"\n";
    let closed = format!("{beside}checks = \"test -d ../sibling\"");
    scene.configure(&closed);
    let id = scene.exec(["write a 1"]);
    let why = scene.await_state(&id, "failed")["why"].as_str().expect("a reason").to_owned();
    let sibling = sibling.canonicalize().expect("it exists");
    let line = format!("[sandbox] read = [\"{}\"]", sibling.display());
    assert!(why.contains(&line), "{why}");
    scene.await_free(&id);
    scene.studio(["discard", &id, "--yes"]).exits(0);

    scene.configure(&format!("{closed}\n[sandbox]\nread = [\"{}\"]", sibling.display()));
    let id = scene.ready("write a 1");
    scene.await_free(&id);
    let worktree = scene.status(&id)["worktree"].as_str().expect("a path").to_owned();
    assert_eq!(worktree, format!("{}-{id}", scene.repo.path().display()));
    scene.studio(["accept", &id, "-m", "Add a"]).exits(0);
    scene.studio(["undo"]).exits(0);
    scene.studio(["discard", &id, "--yes"]).exits(0);
    let other = scene.env.repo_at("other");
    let trash: Vec<_> = fs::read_dir(scene.env.home().join(".studio-trash"))
        .expect("the trash is beside the worktrees")
        .collect();
    assert_eq!(trash.len(), 1, "each repository has its own");
    assert!(!other.worktrees().exists());
}

#[test]
fn run_reports_what_a_session_lacks_from_the_main_checkout() {
    let scene = Scene::new();
    scene.studio(["run", "write a 1"]).exits(0).output_lacks("uncommitted");
    let lib = scene.env.repo_at("lib");
    let url = lib.path().to_str().expect("UTF-8").to_owned();
    let add = ["-c", "protocol.file.allow=always", "submodule", "add", "-q", &url, "vendor/lib"];
    scene.repo.git(add);
    scene.repo.git(["commit", "-q", "-m", "lib"]);
    scene.repo.write("README.md", "changed\n");
    scene.repo.write("notes", "mine\n");
    let ran = scene.studio(["run", "write b 1"]);
    ran.exits(0).output_contains("without 2 uncommitted changes: README.md, notes");
    ran.output_lacks("submodules");
    scene.studio(["run", "--base", "HEAD~1", "write c 1"]).exits(0).output_lacks("uncommitted");
    let linked = scene.env.home().join("linked");
    scene.repo.git(["worktree", "add", "-q", "-b", "linked", linked.to_str().expect("UTF-8")]);
    let from_linked = scene.studio_in(&linked, ["run", "write d 1"]);
    from_linked.exits(0).output_lacks("uncommitted");
    fs::write(linked.join("only-here"), "mine\n").expect("the checkout can be written");
    let from_linked = scene.studio_in(&linked, ["run", "write e 1"]);
    from_linked.exits(0).output_contains("without 1 uncommitted change: only-here");
    assert!(!Repo::at(&linked).worktrees().exists(), "they are beside the main checkout");
}

#[test]
fn run_reports_every_kind_of_uncommitted_change() {
    let scene = Scene::new();
    scene.repo.write(".gitignore", "ignored\n");
    scene.repo.write("dir/file", "one\n");
    scene.repo.git(["add", "-A"]);
    scene.repo.git(["commit", "-q", "-m", "files"]);
    let mut count = 0;
    let mut run = || {
        count += 1;
        scene.studio(["run", &format!("write a{count} 1")])
    };
    run().exits(0).output_lacks("uncommitted");
    scene.repo.write("ignored", "mine\n");
    run().exits(0).output_lacks("uncommitted");
    fs::remove_file(scene.repo.path().join("ignored")).expect("it was written");
    let changes: [&dyn Fn(); 3] = [
        &|| scene.repo.write("dir/file", "two\n"),
        &|| scene.repo.write("dir/new", "mine\n"),
        // Only the commit differs from the index.
        &|| {
            scene.repo.write("dir/file", "two\n");
            scene.repo.git(["commit", "-q", "-a", "-m", "two"]);
            scene.repo.git(["reset", "-q", "--soft", "HEAD~1"]);
        },
    ];
    for change in changes {
        change();
        run().exits(0).output_contains("without 1 uncommitted change: dir/");
        scene.repo.git(["reset", "-q", "--hard"]);
        scene.repo.git(["clean", "-q", "-d", "-f"]);
        run().exits(0).output_lacks("uncommitted");
    }
}

/// Writes files that build tools would run or obey to every cache.
const PLANT: &str = r#"
for v in CARGO_HOME npm_config_cache XDG_CACHE_HOME PIP_CACHE_DIR GOCACHE GOMODCACHE; do
    eval d=\$$v
    mkdir -p "$d/bin" && echo evil > "$d/planted" && echo evil > "$d/config.toml" &&
        echo evil > "$d/bin/cargo" || exit 1
done
"#;

/// Fails if one of these files exists.
const LOOK: &str = r#"
for v in CARGO_HOME npm_config_cache XDG_CACHE_HOME PIP_CACHE_DIR GOCACHE GOMODCACHE; do
    eval d=\$$v
    test -d "$d" || exit 2
    for f in planted config.toml bin/cargo; do
        test ! -e "$d/$f" || exit 3
    done
done
"#;

#[test]
fn files_planted_in_a_build_cache_reach_neither_checks_nor_other_sessions() {
    let scene = Scene::new();
    scene.repo.commit_file("plant.sh", PLANT);
    scene.repo.commit_file("look.sh", LOOK);
    scene.configure("checks = [\"sh look.sh && sh plant.sh\"]");
    // The agent plants files, and its check searches for them and plants others; the landing's
    // check does the same.
    let first = scene.ready("sh sh plant.sh && touch planted; write a 1");
    scene.await_free(&first);
    assert!(scene.worktree(&first).path().join("planted").exists(), "the agent could plant");
    scene.studio(["accept", "--dry-run", &first]).exits(0);
    scene.studio(["send", &first, "go on; sh sh plant.sh; write b 1"]).exits(0);
    until("the second turn", || scene.worktree(&first).path().join("b").exists().then_some(()));
    scene.await_state(&first, "ready");
    scene.await_free(&first);
    let second = scene.ready("sh sh look.sh && touch clean; write c 1");
    scene.await_free(&second);
    assert!(scene.worktree(&second).path().join("clean").exists(), "another agent finds nothing");
    scene.studio(["accept", &second, "-m", "Add c"]).exits(0);
    scene.studio(["accept", &first, "-m", "Add a"]).exits(0);

    assert!(scene.session_file(&first, "caches/agent/cargo/planted").exists());
    scene.studio(["gc"]).exits(0).output_contains("unused build cache");
    assert!(!scene.session_file(&first, "caches").exists());
    scene.studio(["undo"]).exits(0);
    scene.studio(["send", &first, "go on; write d 1"]).exits(0);
    until("a turn with new caches", || {
        scene.worktree(&first).path().join("d").exists().then_some(())
    });
    scene.await_state(&first, "ready");
}

#[test]
fn the_setup_fills_the_caches_of_the_agent_and_of_each_check() {
    let scene = Scene::new();
    scene.repo.commit_file(
        "check.sh",
        "cd \"$CARGO_HOME\" && echo x >> downloaded && test \"$(wc -l < downloaded)\" -eq 2\n",
    );
    scene.configure("setup = 'echo 1 > \"$CARGO_HOME/downloaded\"'\nchecks = \"sh check.sh\"");
    let id = scene.ready("sh cp \"$CARGO_HOME/downloaded\" found; write a 1");
    scene.await_free(&id);
    assert_eq!(scene.worktree(&id).read("found"), "1\n");
    scene.studio(["accept", "--dry-run", &id]).exits(0);
    scene.studio(["send", &id, "go on; write b 1"]).exits(0);
    until("the second turn", || scene.worktree(&id).path().join("b").exists().then_some(()));
    scene.await_state(&id, "ready");
}
