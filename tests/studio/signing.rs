//! Signed landings: with a real SSH key and real GnuPG, verified by git, and with the user's own
//! programs only.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use base::process::{Command, OutputLimits};

use crate::fixtures::Scene;
use crate::git_command::executable;

/// A repository whose user has this git configuration, and signs landings.
fn scene(git_config: &str) -> Scene {
    scene_of_format(&[], git_config)
}

/// Like [`scene`], with these arguments of `git init`.
fn scene_of_format(format: &[&str], git_config: &str) -> Scene {
    let mut scene = Scene::of_format(format);
    let file = scene.env.home().join(".gitconfig");
    fs::write(&file, format!("[user]\nname = Ada\nemail = ada@example.org\n{git_config}")).unwrap();
    scene.env.set("GIT_CONFIG_GLOBAL", file.display());
    scene.configure("sign = true");
    scene
}

/// Runs a program of the user in its home directory.
fn run(scene: &Scene, program: &str, args: &[&str]) -> String {
    let ran = scene.env.run(program, scene.env.home(), args);
    ran.exits(0);
    ran.out
}

/// Creates an SSH key without a passphrase; returns its file and the list of allowed signers.
fn ssh_key(scene: &Scene) -> (PathBuf, PathBuf) {
    let home = scene.env.home();
    let (key, signers) = (home.join("key"), home.join("signers"));
    let file = key.display().to_string();
    run(scene, "ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-C", "ada", "-f", &file]);
    let public = fs::read_to_string(key.with_extension("pub")).unwrap();
    fs::write(&signers, format!("ada@example.org {public}")).unwrap();
    (key, signers)
}

/// The configuration of a user who signs with the SSH key of [`ssh_key`].
const SSH: &str = "[gpg]\nformat = ssh\n[user]\nsigningkey = ~/key\n";

/// Returns whether git verifies the signature of a commit.
fn is_verified(scene: &Scene, signers: &std::path::Path, commit: &str) -> bool {
    let setting = format!("gpg.ssh.allowedSignersFile={}", signers.display());
    // A repository of these tests may name another program.
    let program = "gpg.ssh.program=ssh-keygen";
    let (code, _, _) = scene.repo.try_git(["-c", &setting, "-c", program, "verify-commit", commit]);
    code == 0
}

#[test]
fn commits_with_sha_256_ids_are_signed() {
    let scene = scene_of_format(&["--object-format=sha256"], SSH);
    let (_, signers) = ssh_key(&scene);
    let id = scene.ready("write a 1");
    scene.await_free(&id);
    scene.studio(["accept", &id, "-m", "Add a"]).exits(0).output_lacks("not signed");
    assert!(is_verified(&scene, &signers, "main"));
    assert!(scene.repo.git(["cat-file", "commit", "main"]).contains("gpgsig-sha256 "));
}

#[test]
fn landings_are_signed_with_the_users_ssh_key_by_every_strategy() {
    let scene = scene(SSH);
    let (_, signers) = ssh_key(&scene);
    let work = "write a 1; commit one; write b 2; commit two; write c 3";
    for (strategy, commits) in [("squash", 1), ("merge", 2), ("rebase", 3)] {
        let id = scene.ready(work);
        let before = scene.repo.rev("main");
        let landed = scene.studio(["accept", &id, "--strategy", strategy, "-m", "Land it"]);
        landed.exits(0).output_lacks("not signed");
        // The commits of studio's making: those of the agent's branch stay as they are.
        let range = format!("{before}..main");
        let own = match strategy {
            "merge" => vec![scene.repo.rev("main"), scene.repo.rev("main^2")],
            _ => scene.repo.git(["rev-list", &range]).lines().map(str::to_owned).collect(),
        };
        assert_eq!(own.len(), commits, "{strategy}: {landed}");
        for commit in &own {
            assert!(is_verified(&scene, &signers, commit), "{strategy}: {commit}");
        }
        scene.repo.is_sound();
        assert!(scene.repo.git(["notes", "--ref=studio", "show", "main"]).contains(&id));
        scene.studio(["undo"]).exits(0);
        assert_eq!(scene.repo.rev("main"), before);
        assert_eq!(scene.status(&id)["state"], "ready");
        scene.studio(["discard", &id, "--yes"]).exits(0);
    }
    // The control: without `sign` the same landing is not signed, and no note is due.
    scene.configure("");
    let id = scene.ready("write a 1");
    scene.studio(["accept", &id, "-m", "Land it"]).exits(0).output_lacks("not signed");
    assert!(!is_verified(&scene, &signers, "main"));
}

#[test]
fn commits_of_an_agent_are_not_fast_forwarded_unsigned() {
    let scene = scene(SSH);
    ssh_key(&scene);
    let id = scene.ready("write a 1; commit one");
    let before = scene.repo.everything();
    let refused = scene.studio(["accept", &id, "--strategy", "ff"]);
    refused.exits(3).output_contains("1 unsigned commit").output_contains("--strategy rebase");
    assert_eq!(scene.repo.everything(), before);
    scene.configure("");
    scene.studio(["accept", &id, "--strategy", "ff"]).exits(0);
}

#[test]
fn a_landing_that_cannot_be_signed_changes_nothing() {
    let scene = scene(SSH);
    let id = scene.ready("write a 1");
    scene.await_free(&id);
    let before = scene.repo.everything();
    let refused = scene.studio(["accept", &id, "-m", "x"]);
    refused.exits(3).output_contains("cannot sign the commit").output_contains("ssh-add");
    assert_eq!(scene.repo.everything(), before);
    assert_eq!(scene.status(&id)["state"], "ready");
    // A key with a passphrase that no agent has: the program does not wait for a terminal.
    let file = scene.env.home().join("key").display().to_string();
    run(&scene, "ssh-keygen", &["-q", "-t", "ed25519", "-N", "secret", "-f", &file]);
    scene.studio(["accept", &id, "-m", "x"]).exits(3).output_contains("cannot sign the commit");
    let config = scene.env.home().join(".gitconfig");
    fs::write(&config, "[gpg]\nformat = ssh\n").unwrap();
    let unset = scene.studio(["accept", &id, "-m", "x"]);
    unset.exits(2).output_contains("user.signingkey is not set");
    fs::write(&config, "[gpg]\nformat = wax\n").unwrap();
    scene.studio(["accept", &id, "-m", "x"]).exits(2).output_contains("invalid gpg.format: `wax`");
    assert_eq!(scene.repo.everything(), before);
}

#[test]
fn an_edited_message_is_kept_if_the_commit_cannot_be_signed() {
    let scene = scene(SSH);
    let id = scene.ready("write a 1");
    let job = scene.env.command(crate::fixtures::studio(), scene.repo.path());
    let job = job.env("GIT_EDITOR", "echo Typed by the user >").args(["accept", "--edit", &id]);
    scene.env.run_command(job).exits(3).output_contains("edited-message");
    let kept = fs::read_to_string(scene.session_file(&id, "edited-message")).unwrap();
    assert_eq!(kept.trim(), "Typed by the user");
}

#[test]
fn programs_of_the_repository_sign_nothing() {
    let mut scene = scene(SSH);
    let (_, signers) = ssh_key(&scene);
    let marker = scene.env.home().join("ran");
    let evil = scene.env.home().join("evil");
    let line = format!("echo ran >> '{}'; exit 1", marker.display());
    executable(&evil, &line);
    let included = scene.env.home().join("included");
    fs::write(&included, format!("[gpg \"ssh\"]\nprogram = {}\n", evil.display())).unwrap();
    let evil_path = evil.display().to_string();
    for (key, value) in [
        ("gpg.program", evil_path.as_str()),
        ("gpg.ssh.program", &evil_path),
        ("gpg.format", "openpgp"),
        ("user.signingkey", "/nonexistent"),
        ("include.path", &included.display().to_string()),
    ] {
        scene.repo.git(["config", key, value]);
    }
    fs::write(scene.repo.path().join(".git/info/exclude"), "bin/\n").unwrap();
    // A program of the main checkout and of the session, first in the search path.
    let id = scene.ready("write a 1");
    scene.await_free(&id);
    let bins = [scene.repo.path().join("bin"), scene.worktree(&id).path().join("bin")];
    let mut path = std::env::var("PATH").unwrap();
    for bin in &bins {
        fs::create_dir_all(bin).unwrap();
        executable(&bin.join("ssh-keygen"), &line);
        path = format!("{}:{path}", bin.display());
    }
    scene.env.set("PATH", &path);
    scene.studio(["accept", &id, "-m", "x"]).exits(0);
    assert!(!marker.exists(), "a program of the repository ran");
    assert!(is_verified(&scene, &signers, "main"));
    // The control: git itself runs it.
    scene.repo.try_git(["commit", "-S", "--allow-empty", "-m", "control"]);
    assert!(marker.exists());
}

#[test]
fn conditional_includes_of_the_user_apply() {
    let scene = scene("");
    let (_, signers) = ssh_key(&scene);
    let home = scene.env.home().canonicalize().unwrap();
    let global = format!("[includeIf \"gitdir:{}/\"]\npath = work\n", home.display());
    fs::write(home.join(".gitconfig"), global).unwrap();
    fs::write(home.join("work"), format!("{SSH}name = Ada\nemail = ada@example.org\n")).unwrap();
    let id = scene.ready("write a 1");
    scene.studio(["accept", &id, "-m", "x"]).exits(0);
    assert!(is_verified(&scene, &signers, "main"));
}

#[test]
fn landings_are_signed_with_gnupg() {
    let mut scene = scene("");
    // A short path: the agent's socket is in it.
    let home = tempfile::Builder::new().prefix("gpg").tempdir_in("/tmp").unwrap();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o700)).unwrap();
    scene.env.set("GNUPGHOME", home.path().display());
    let user = "Ada <ada@example.org>";
    let unsigned = scene.ready("write a 1");
    let refused = scene.studio(["accept", &unsigned, "-m", "x"]);
    refused.exits(3).output_contains("gpg --list-secret-keys");
    let args = ["--batch", "--passphrase", "", "--quick-generate-key", user, "ed25519", "sign"];
    run(&scene, "gpg", &args);
    scene.studio(["accept", &unsigned, "-m", "Land it"]).exits(0);
    let verify = Command::new("git", scene.repo.path()).env("GNUPGHOME", home.path());
    let verified =
        verify.args(["verify-commit", "main"]).output(OutputLimits::seconds(60)).unwrap();
    assert!(verified.ok(), "{}", verified.error_text());
    let end = scene.env.run("gpgconf", scene.env.home(), ["--kill", "all"]);
    end.exits(0);
}
