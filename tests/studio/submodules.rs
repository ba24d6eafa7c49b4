//! Submodules at any depth: sessions have those of the user's checkout, their commits land, and
//! nothing of them is lost or run.

use std::fs;
use std::path::Path;

use studio_git::session_repo::protected_paths;
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

/// Creates a repository with the submodule `libs/part`, which has the submodule `deep/leaf`. Their
/// origins are gone.
fn nested_scene() -> Scene {
    let scene = Scene::new();
    let (part, leaf) = (scene.env.repo_at("part"), scene.env.repo_at("leaf"));
    leaf.commit_file("leaf", "1\n");
    part.commit_file("lib", "1\n");
    add_submodule(&part, &leaf, "a leaf", "deep/leaf");
    add_submodule(&scene.repo, &part, "my part", "libs/part");
    let update = ["submodule", "--quiet", "update", "--init", "--recursive"];
    run_git(&scene.repo, &ALLOW.into_iter().chain(update).collect::<Vec<_>>());
    for origin in [part, leaf] {
        fs::remove_dir_all(origin.path()).expect("it is there");
    }
    scene
}

fn add_submodule(repo: &Repo, origin: &Repo, name: &str, path: &str) {
    let url = origin.path().to_str().expect("UTF-8");
    let add = ["submodule", "--quiet", "add", "--name", name, url, path];
    run_git(repo, &ALLOW.into_iter().chain(add).collect::<Vec<_>>());
    repo.git(["commit", "-q", "-m", "add a submodule"]);
}

fn run_git(repo: &Repo, args: &[&str]) {
    let ran = repo.job().args(args).output(base::process::OutputLimits::seconds(60));
    assert!(ran.expect("git can be run").ok());
}

fn update_recursively(scene: &Scene) {
    scene.repo.git(["submodule", "--quiet", "update", "--recursive"]);
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
fn pain_25_commits_in_a_submodule_land_with_their_objects() {
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

/// Plants hooks, filters and a file system monitor in a git directory; each one makes a file.
fn plant(git_dir: &Path, mark: &Path) {
    use std::os::unix::fs::PermissionsExt;
    for hook in ["post-checkout", "pre-commit", "reference-transaction"] {
        let hook = git_dir.join("hooks").join(hook);
        fs::create_dir_all(hook.parent().expect("hooks")).expect("ours");
        fs::write(&hook, format!("#!/bin/sh\ntouch '{}'\n", mark.display())).expect("ours");
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
}

#[test]
fn nothing_that_a_submodule_or_its_session_plants_runs() {
    let scenes = [
        (scene(), "libs/part", "modules/my part"),
        (nested_scene(), "libs/part/deep/leaf", "modules/my part/modules/a leaf"),
    ];
    for (scene, path, git_dir) in scenes {
        let mark = scene.env.home().join("planted");
        let user = scene.repo.path().join(".git").join(git_dir);
        plant(&user, &mark);
        let id = ended(&scene, &format!("write {path}/new 2; write a 1"), "ready");
        let private = scene.session_file(&id, "git").join(git_dir);
        plant(&private, &mark);
        scene.studio(["diff", &id]).exits(0);
        scene.studio(["accept", &id, "-m", "Land it"]).exits(3);
        scene.studio(["status", &id]).exits(0);
        scene.studio(["discard", &id]).exits(0);
        scene.studio(["undo"]).exits(0);
        assert!(!mark.exists(), "nothing ran");
        assert!(!private.join("hooks/post-checkout").exists(), "what git obeys is restored");
        let worktree = scene.worktree(&id);
        let fixed = protected_paths(worktree.path(), &scene.session_file(&id, "git"));
        for fixed_path in [private.join("config"), worktree.path().join(path).join(".git")] {
            assert!(fixed.contains(&fixed_path), "agents cannot write {}", fixed_path.display());
        }
        Repo::at(&user).try_git(["status"]);
        Repo::at(&scene.repo.path().join(path)).try_git(["status"]);
        assert!(mark.exists(), "control: plain git runs it");
    }
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

/// Commits in the submodule of the submodule, in that one, and a file.
const TWO_LEVELS: &str = "sh cd libs/part/deep/leaf && echo 2 > leaf && git commit -qam two && \
                          cd ../.. && echo 2 > lib && git commit -qam two; write a 1";

#[test]
fn a_session_has_the_submodules_of_submodules() {
    let scene = nested_scene();
    let task = "sh cat libs/part/deep/leaf/leaf && git -C libs/part/deep/leaf log --oneline";
    let id = ended(&scene, task, "empty");
    let worktree = scene.worktree(&id);
    assert_eq!(worktree.read("libs/part/deep/leaf/leaf"), "1\n");
    for path in ["", "libs/part", "libs/part/deep/leaf"] {
        let repo = Repo::at(&worktree.path().join(path));
        assert_eq!(repo.git(["status", "--porcelain"]), "", "{path}");
    }
    scene.studio(["run", "write a 1"]).exits(0).output_lacks("submodules");
    fs::remove_dir_all(scene.repo.path().join(".git/modules/my part/modules")).expect("ours");
    let ran = scene.studio(["run", "write b 1"]);
    ran.exits(0).output_contains("without the files of submodules: libs/part/deep/leaf");
    ran.output_contains("git submodule update --init --recursive");
}

#[test]
fn commits_of_both_levels_land_and_an_undo_restores_both() {
    let scene = nested_scene();
    scene.configure("checks = [\"grep 2 libs/part/lib libs/part/deep/leaf/leaf\"]");
    let id = ended(&scene, TWO_LEVELS, "ready");
    let leaf = Repo::at(&scene.worktree(&id).path().join("libs/part/deep/leaf"));
    let leaf_commit = leaf.git(["rev-parse", "HEAD"]);
    let module = scene.repo.path().join(".git/modules/my part");
    let leaf_module = Repo::at(&module.join("modules/a leaf"));
    let work = format!("refs/studio/work/{id}/{leaf_commit}");
    assert_eq!(leaf_module.git(["rev-parse", &work]), leaf_commit, "it came home with the turn");

    let landed = scene.studio(["accept", &id, "-m", "Land it"]);
    landed.exits(0).output_contains("git submodule update --recursive libs/part");
    let recorded = Repo::at(&module).git([
        "rev-parse",
        &format!("{}:deep/leaf", scene.repo.git(["rev-parse", "main:libs/part"])),
    ]);
    assert_eq!(recorded, leaf_commit);
    let files = || {
        update_recursively(&scene);
        let status = scene.repo.git(["status", "--porcelain"]);
        let read = |path: &str| scene.repo.read(path);
        (read("libs/part/lib"), read("libs/part/deep/leaf/leaf"), status)
    };
    assert_eq!(files(), ("2\n".into(), "2\n".into(), "".into()));

    scene.studio(["undo"]).exits(0);
    assert_eq!(files(), ("1\n".into(), "1\n".into(), "".into()));
    assert_eq!(scene.status(&id)["state"], "ready");
    assert_eq!(leaf.git(["rev-parse", "HEAD"]), leaf_commit);
    assert_eq!(leaf.git(["status", "--porcelain"]), "");
}

#[test]
fn work_in_a_submodule_of_a_submodule_that_no_commit_has_is_named_and_not_lost() {
    let scene = nested_scene();
    let id = ended(&scene, "write libs/part/deep/leaf/leaf 2; write a 1", "ready");
    let part = scene.worktree(&id).path().join("libs/part");
    let leaf = part.join("deep/leaf");
    let refused = |path: &str| {
        let refused = scene.studio(["accept", &id, "-m", "Land it"]);
        refused.exits(3).output_contains(&format!("{path}: a submodule with changes"));
    };
    refused("libs/part/deep/leaf");
    scene.studio(["discard", &id]).exits(0).output_contains("in the trash: libs/part/deep/leaf");
    assert!(!part.exists());
    scene.studio(["undo"]).exits(0);
    assert_eq!(fs::read(leaf.join("leaf")).expect("it is back"), b"2\n");

    // A commit that the submodule above does not record would not land.
    Repo::at(&leaf).git(["commit", "-qam", "two"]);
    refused("libs/part");
    Repo::at(&part).git(["commit", "-qam", "two"]);
    scene.studio(["check", &id]).exits(0);
    scene.studio(["accept", &id, "-m", "Land it"]).exits(0);
    update_recursively(&scene);
    assert_eq!(scene.repo.read("libs/part/deep/leaf/leaf"), "2\n");
}

#[test]
fn a_recreated_worktree_has_the_submodules_of_submodules() {
    let scene = nested_scene();
    let id = ended(&scene, TWO_LEVELS, "ready");
    let worktree = scene.worktree(&id);
    fs::remove_dir_all(worktree.path()).expect("it is there");
    scene.studio(["send", &id, "go on; write b 1"]).exits(0);
    until("the second turn", || worktree.path().join("b").exists().then_some(()));
    scene.await_state(&id, "ready");
    scene.await_free(&id);
    assert_eq!(worktree.read("libs/part/deep/leaf/leaf"), "2\n");
    scene.studio(["accept", &id, "-m", "Land it"]).exits(0);
    update_recursively(&scene);
    assert_eq!(scene.repo.read("libs/part/deep/leaf/leaf"), "2\n");
}

#[test]
fn a_symlink_in_a_submodule_does_not_lead_to_the_nested_one_of_the_user() {
    let scene = nested_scene();
    let user = scene.repo.path().join(".git/modules/my part/modules");
    let config = fs::read(user.join("a leaf/config")).expect("it is there");
    fs::write(user.join("a leaf/hooks/post-merge"), "the user's").expect("ours");
    let id = ended(&scene, TWO_LEVELS, "ready");
    let private = scene.session_file(&id, "git/modules/my part/modules");
    fs::rename(&private, private.with_extension("away")).expect("ours");
    std::os::unix::fs::symlink(&user, &private).expect("ours");
    scene.studio(["diff", &id]).exits(0);
    scene.studio(["accept", &id, "-m", "Land it"]).exits(3);
    assert_eq!(fs::read(user.join("a leaf/config")).expect("it is there"), config);
    assert!(user.join("a leaf/hooks/post-merge").exists());
}

/// Deletes what no ref has, and returns whether a commit is left.
fn survives(module: &Repo, commit: &str) -> bool {
    module.git(["reflog", "expire", "--expire=now", "--all"]);
    module.git(["gc", "-q", "--prune=now"]);
    module.try_git(["cat-file", "-e", commit]).0 == 0
}

#[test]
fn gc_drops_the_commits_of_discarded_sessions_from_the_submodules() {
    let scene = nested_scene();
    let id = ended(&scene, TWO_LEVELS, "ready");
    let part = scene.worktree(&id).path().join("libs/part");
    let commit_of = |path: &Path| Repo::at(path).git(["rev-parse", "HEAD"]);
    let commits = [commit_of(&part), commit_of(&part.join("deep/leaf"))];
    let module = scene.repo.path().join(".git/modules/my part");
    let modules = [Repo::at(&module), Repo::at(&module.join("modules/a leaf"))];
    let all_survive =
        || modules.iter().zip(&commits).all(|(module, commit)| survives(module, commit));
    scene.studio(["gc", "--older", "0"]).exits(0);
    assert!(all_survive(), "the session is there");
    scene.studio(["discard", &id]).exits(0);
    scene.studio(["gc"]).exits(0);
    assert!(all_survive(), "the discard can be undone");
    scene.studio(["undo"]).exits(0);
    scene.studio(["gc", "--older", "0"]).exits(0);
    assert!(all_survive(), "the session is there again");
    scene.studio(["discard", &id]).exits(0);
    scene.studio(["gc", "--older", "0"]).exits(0);
    for (module, commit) in modules.iter().zip(&commits) {
        assert_eq!(module.git(["for-each-ref", "refs/studio"]), "");
        assert!(!survives(module, commit));
    }
}

#[test]
fn gc_keeps_landed_commits_of_submodules_until_the_user_has_them_elsewhere() {
    let scene = nested_scene();
    let id = ended(&scene, TWO_LEVELS, "ready");
    scene.studio(["accept", &id, "-m", "Land it"]).exits(0);
    scene.studio(["gc", "--older", "0"]).exits(0);
    let module = scene.repo.path().join(".git/modules/my part");
    let modules = [Repo::at(&module), Repo::at(&module.join("modules/a leaf"))];
    let landed = scene.repo.git(["rev-parse", "main:libs/part"]);
    let commits = [landed.clone(), modules[0].git(["rev-parse", &format!("{landed}:deep/leaf")])];
    for (module, commit) in modules.iter().zip(&commits) {
        assert!(survives(module, commit), "it is not pushed");
        module.git(["update-ref", "refs/remotes/origin/main", commit]);
    }
    scene.studio(["gc", "--older", "0"]).exits(0);
    for (module, commit) in modules.iter().zip(&commits) {
        assert_eq!(module.git(["for-each-ref", "refs/studio"]), "");
        assert!(survives(module, commit));
    }
}
