//! Shell completions: commands, flags, and the values that this repository has.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use testkit::env::CommandRun;

use crate::fixtures::{Scene, studio};

/// Completes the last of these words in a real bash, as the Tab key does.
fn complete(scene: &Scene, words: &[&str]) -> Vec<String> {
    let directory = std::path::Path::new(studio()).parent().unwrap().display();
    let script = "PATH=\"$1:$PATH\"; shift\n\
        source <(studio completions bash) || exit 1\n\
        COMP_WORDS=(\"$@\") COMP_CWORD=$(($# - 1)) COMP_TYPE=9\n\
        _clap_complete_studio studio \"${COMP_WORDS[COMP_CWORD]}\" x 2>&1\n\
        printf '%s\\n' \"${COMPREPLY[@]}\"";
    let directory = directory.to_string();
    let args = ["-c", script, "bash", &directory, "studio"];
    let args = args.into_iter().chain(words.iter().copied());
    let run: CommandRun = scene.env.run("bash", scene.repo.path(), args);
    run.exits(0);
    run.out.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

#[test]
fn bash_completes_sessions_agents_personas_and_branches() {
    let scene = Scene::new();
    let id = scene.ready("write a 1");
    let discarded = scene.ready("write b 2");
    scene.await_free(&discarded);
    scene.studio(["discard", &discarded]).exits(0);
    scene.repo.git(["branch", "feature"]);
    for command in ["logs", "accept", "status", "diff", "send", "shell", "check", "stop"] {
        assert_eq!(complete(&scene, &[command, "write"]), [id.as_str()], "{command}");
    }
    assert!(complete(&scene, &["answer", ""]).contains(&"allow".to_owned()));
    assert_eq!(complete(&scene, &["run", "--agent", "stra"]), ["stranger"]);
    assert_eq!(complete(&scene, &["run", "--agent", "fake,code"]), ["fake,codex"]);
    assert_eq!(complete(&scene, &["accept", "--onto", "fea"]), ["feature"]);
    assert_eq!(complete(&scene, &["run", "--base", "fea"]), ["feature"]);
    assert_eq!(complete(&scene, &["run", "--persona", "carm"]), ["carmack"]);
    assert_eq!(complete(&scene, &["undo", "op"]), ["op1"]);
    assert_eq!(complete(&scene, &["comple"]), ["completions"]);
    assert_eq!(complete(&scene, &["run", "--dry"]), ["--dry-run"]);
}

#[test]
fn a_failed_completion_is_silent() {
    let scene = Scene::new();
    scene.env.config("this is not TOML");
    assert_eq!(complete(&scene, &["run", "--agent", "code"]), ["codex"]);
    let outside = scene.env.home().join("tmp");
    let call = scene
        .env
        .command(studio(), &outside)
        .env("STUDIO_COMPLETE", "bash")
        .env("_CLAP_COMPLETE_INDEX", "2")
        .args(["--", "studio", "logs", "x"]);
    let ran = scene.env.run_command(call);
    assert_eq!((ran.out.trim(), ran.err.as_str()), ("", ""));
    let unknown = scene.env.command(studio(), &outside).env("STUDIO_COMPLETE", "tcsh");
    let ran = scene.env.run_command(unknown.args(["--", "studio", "logs"]));
    assert_eq!((ran.out.as_str(), ran.err.as_str()), ("", ""));
}

#[test]
fn every_shell_has_a_script_and_hidden_commands_are_not_offered() {
    let scene = Scene::new();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        scene.studio(["completions", shell]).exits(0).output_contains("STUDIO_COMPLETE");
    }
    let offered = complete(&scene, &[""]);
    assert!(offered.contains(&"accept".to_owned()), "{offered:?}");
    assert!(offered.iter().all(|word| !word.starts_with("__")), "{offered:?}");
    assert!(complete(&scene, &["__"]).is_empty());
}
