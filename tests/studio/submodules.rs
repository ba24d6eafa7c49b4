//! Submodules: sessions have those of the user's checkout, their commits land, and nothing of them is
//! lost or run.

use std::fs;
use std::path::Path;

use testkit::env::until;
use testkit::repo::Repo;

use crate::fixtures::Scene;

const ALLOW: [&str; 2] = ["-c", "protocol.file.allow=always"];

/// Creates a repository with the submodule `libs/part`, whose origin is gone.
fn scene() -> Scene {
    let scene = Scene::new();
    let part = scene.env.repo_at("part");
    part.commit_file("lib", "1\n");
    let url = part.path().to_str().expect("UTF-8").to_owned();
    let add = ["submodule", "--quiet", "add", "--name", "my part", &url, "libs/part"];
    let args = ALLOW.into_iter().chain(add);
    let added = scene.repo.job().args(args).output(base::process::OutputLimits::seconds(60));
    assert!(added.expect("git can be run").ok());
    scene.repo.git(["commit", "-q", "-m", "part"]);
    fs::remove_dir_all(part.path()).expect("it is there");
    scene
}

fn ended(scene: &Scene, script: &str, state: &str) -> String {
    let id = scene.exec([script]);
    scene.await_state(&id, state);
    scene.await_free(&id);
    id
}

fn module(scene: &Scene) -> Repo {
    Repo::at(&scene.repo.path().join("libs/part"))
}

#[test]
fn a_session_has_the_submodules_of_the_checkout_and_changes_nothing_by_itself() {
    let scene = scene();
    let id = ended(&scene, "sh cat libs/part/lib && git -C libs/part log --oneline", "empty");
    let worktree = scene.worktree(&id);
    assert_eq!(worktree.read("libs/part/lib"), "1\n");
    assert_eq!(worktree.git(["status", "--porcelain"]), "");
    let part = Repo::at(&worktree.path().join("libs/part"));
    assert_eq!(part.git(["rev-list", "--count", "HEAD"]), "2", "with its history");
    assert_eq!(part.git(["status", "--porcelain"]), "");
    assert_eq!(scene.studio(["status", &id, "--json"]).json()["files_changed"], 0);
    scene.studio(["run", "write a 1"]).exits(0).output_lacks("submodules");
    assert_eq!(scene.repo.git(["status", "--porcelain"]), "");
    // Copies, which the agent may write, are not the user's files.
    let objects = scene.repo.path().join(".git/modules/my part/objects");
    let is_single = |path: &Path| {
        use std::os::unix::fs::MetadataExt;
        path.metadata().expect("it is there").nlink() == 1
    };
    let mut directories = vec![objects];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).expect("it is there").flatten() {
            match entry.file_type().expect("known").is_dir() {
                true => directories.push(entry.path()),
                false => assert!(is_single(&entry.path())),
            }
        }
    }
}

#[test]
fn commits_in_a_submodule_land_with_their_objects() {
    let scene = scene();
    scene.configure("checks = [\"grep 2 libs/part/lib\"]");
    let task = "sh cd libs/part && echo 2 > lib && git commit -qam two; write a 1";
    let id = ended(&scene, task, "ready");
    let commit = Repo::at(&scene.worktree(&id).path().join("libs/part")).git(["rev-parse", "HEAD"]);
    scene.studio(["diff", &id]).exits(0).output_contains("libs/part");
    let modules = Repo::at(&scene.repo.path().join(".git/modules/my part"));
    let work = format!("refs/studio/work/{id}/{commit}");
    assert_eq!(modules.git(["rev-parse", &work]), commit, "it came home with the turn");

    let landed = scene.studio(["accept", &id, "-m", "Land it"]);
    landed.exits(0).output_contains("git submodule update libs/part");
    assert_eq!(scene.repo.git(["rev-parse", "main:libs/part"]), commit);
    assert_eq!(scene.repo.git(["status", "--porcelain"]).trim(), "M libs/part");
    assert_eq!(module(&scene).read("lib"), "1\n");
    scene.repo.git(["submodule", "update", "libs/part"]);
    assert_eq!(module(&scene).read("lib"), "2\n");
    assert_eq!(scene.repo.git(["status", "--porcelain"]), "");
    module(&scene).is_sound();

    scene.studio(["undo"]).exits(0);
    scene.repo.git(["submodule", "update", "libs/part"]);
    assert_eq!(
        (module(&scene).read("lib"), scene.repo.git(["status", "--porcelain"])),
        ("1\n".into(), "".into())
    );
    assert_eq!(scene.status(&id)["state"], "ready");
}

#[test]
fn changes_that_no_commit_has_stay_in_the_session_and_are_named() {
    let scene = scene();
    let id = ended(&scene, "write libs/part/lib 2; write a 1", "ready");
    let part = scene.worktree(&id).path().join("libs/part");
    let refused = scene.studio(["accept", &id, "-m", "Land it"]);
    refused.exits(3).output_contains("libs/part: a submodule with changes that are not committed");
    refused.output_contains("commit -a");
    let before = fs::read(part.join("lib")).expect("it is there");

    let dropped = scene.studio(["discard", &id]);
    dropped.exits(0).output_contains("in the trash: libs/part");
    assert!(!part.exists());
    scene.studio(["undo"]).exits(0);
    assert_eq!(fs::read(part.join("lib")).expect("it is back"), before);

    Repo::at(&part).git(["commit", "-qam", "two"]);
    scene.studio(["check", &id]).exits(0);
    scene.studio(["accept", &id, "-m", "Land it"]).exits(0);
    scene.repo.git(["submodule", "update"]);
    assert_eq!(module(&scene).read("lib"), "2\n");
}

#[test]
fn a_commit_in_a_submodule_of_a_discarded_session_is_recoverable() {
    let scene = scene();
    let id = ended(&scene, "sh cd libs/part && echo 2 > lib && git commit -qam two", "ready");
    let commit = Repo::at(&scene.worktree(&id).path().join("libs/part")).git(["rev-parse", "HEAD"]);
    scene.studio(["discard", &id]).exits(0).output_lacks("in the trash");
    let modules = Repo::at(&scene.repo.path().join(".git/modules/my part"));
    modules.git(["gc", "-q", "--prune=now"]);
    assert_eq!(modules.git(["show", &format!("{commit}:lib")]), "2");
    scene.studio(["undo"]).exits(0);
    scene.studio(["accept", &id, "-m", "Land it"]).exits(0);
    assert_eq!(scene.repo.git(["rev-parse", "main:libs/part"]), commit);
}

#[test]
fn a_recreated_worktree_has_its_submodules() {
    let scene = scene();
    let id = ended(&scene, "sh cd libs/part && echo 2 > lib && git commit -qam two", "ready");
    let worktree = scene.worktree(&id);
    fs::remove_dir_all(worktree.path()).expect("it is there");
    scene.studio(["send", &id, "go on; write b 1"]).exits(0);
    until("the second turn", || worktree.path().join("b").exists().then_some(()));
    scene.await_state(&id, "ready");
    scene.await_free(&id);
    assert_eq!(worktree.read("libs/part/lib"), "2\n");
    scene.studio(["accept", &id, "-m", "Land it"]).exits(0);
    scene.repo.git(["submodule", "update"]);
    assert_eq!((module(&scene).read("lib"), scene.repo.read("b")), ("2\n".into(), "1\n".into()));
}

#[test]
fn nothing_that_a_submodule_or_its_session_plants_runs() {
    let scene = scene();
    let mark = scene.env.home().join("planted");
    let script = format!("#!/bin/sh\ntouch '{}'\n", mark.display());
    let plant = |git_dir: &Path| {
        use std::os::unix::fs::PermissionsExt;
        for hook in ["post-checkout", "pre-commit", "reference-transaction"] {
            let hook = git_dir.join("hooks").join(hook);
            fs::create_dir_all(hook.parent().expect("hooks")).expect("ours");
            fs::write(&hook, &script).expect("ours");
            fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).expect("ours");
        }
        let config = git_dir.join("config");
        let mut text = fs::read_to_string(&config).expect("it is there");
        text.push_str(&format!(
            "[core]\n\tfsmonitor = touch '{0}'\n[filter \"x\"]\n\tsmudge = touch '{0}'\n\tclean = touch '{0}'\n",
            mark.display()
        ));
        fs::write(&config, text).expect("ours");
        fs::create_dir_all(git_dir.join("info")).expect("ours");
        fs::write(git_dir.join("info/attributes"), "* filter=x\n").expect("ours");
    };
    let user = scene.repo.path().join(".git/modules/my part");
    plant(&user);
    let id = ended(&scene, "write libs/part/lib 2; write a 1", "ready");
    let private = scene.session_file(&id, "git/modules/my part");
    plant(&private);
    scene.studio(["diff", &id]).exits(0);
    scene.studio(["accept", &id, "-m", "Land it"]).exits(3);
    scene.studio(["status", &id]).exits(0);
    scene.studio(["discard", &id]).exits(0);
    scene.studio(["undo"]).exits(0);
    assert!(!mark.exists(), "nothing ran");
    assert!(!private.join("hooks/post-checkout").exists(), "what git obeys is restored");
    Repo::at(&user).try_git(["status"]);
    module(&scene).try_git(["status"]);
    assert!(mark.exists(), "control: plain git runs it");
}

#[test]
fn a_submodule_that_the_checkout_lacks_or_whose_name_leads_elsewhere_is_left_out() {
    let scene = scene();
    scene.repo.git(["submodule", "--quiet", "deinit", "-f", "libs/part"]);
    fs::remove_dir_all(scene.repo.path().join(".git/modules")).expect("it is there");
    let ran = scene.studio(["run", "write a 1"]);
    ran.exits(0).output_contains("without the files of submodules: libs/part");
    let modules = scene.repo.path().join(".git/modules");
    fs::create_dir_all(&modules).expect("ours");
    std::os::unix::fs::symlink(scene.repo.path().join(".git"), modules.join("my part"))
        .expect("ours");
    let id = ended(&scene, "write b 1", "ready");
    let empty = fs::read_dir(scene.worktree(&id).path().join("libs/part")).expect("it is there");
    assert_eq!(empty.count(), 0);
    scene.studio(["accept", &id, "-m", "Land it"]).exits(0);
}

#[test]
fn a_symlink_that_a_session_plants_does_not_lead_to_the_files_of_the_user() {
    let scene = scene();
    let user = scene.repo.path().join(".git/modules/my part");
    let config = fs::read(user.join("config")).expect("it is there");
    fs::write(user.join("hooks/post-merge"), "the user's").expect("ours");
    let id = ended(&scene, "write a 1", "ready");
    let private = scene.session_file(&id, "git/modules");
    fs::rename(&private, private.with_extension("away")).expect("ours");
    std::os::unix::fs::symlink(scene.repo.path().join(".git/modules"), &private).expect("ours");
    scene.studio(["diff", &id]).exits(0);
    scene.studio(["accept", &id, "-m", "Land it"]).exits(3);
    assert_eq!(fs::read(user.join("config")).expect("it is there"), config);
    assert!(user.join("hooks/post-merge").exists());
}

#[test]
fn a_recreated_worktree_writes_no_submodule_through_a_symlink() {
    let scene = scene();
    let outside = scene.env.home().join("outside");
    fs::create_dir(&outside).expect("the home is writable");
    let link = format!("rm -rf libs/part && ln -s '{}' libs/part", outside.display());
    let task = format!("sh {link} && git add -A && git commit -qm link; write a 1");
    let id = ended(&scene, &task, "ready");
    let worktree = scene.worktree(&id);
    assert!(worktree.path().join("libs/part").is_symlink());
    fs::remove_dir_all(worktree.path()).expect("it is there");
    scene.studio(["send", &id, "go on; write b 1"]).exits(0);
    until("the second turn", || worktree.path().join("b").exists().then_some(()));
    scene.await_free(&id);
    assert_eq!(fs::read_dir(&outside).expect("it is there").count(), 0);
}
