//! `studio diff`: the current worktree, as a patch for `git apply` and as a display for people.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use testkit::env::{CommandRun, until};
use testkit::repo::Repo;

use crate::fixtures::{Scene, studio};

/// Runs `studio` on a terminal of 80 columns.
fn on_a_terminal(scene: &Scene, args: &str, variables: &[(&str, &str)]) -> CommandRun {
    let mut job = scene.env.command("script", scene.repo.path()).env("TERM", "xterm-256color");
    job = job.env("SHELL", "/bin/sh").env("COLUMNS", "80");
    for (name, value) in variables {
        job = job.env(name, value);
    }
    let line = format!("{} {args}", studio());
    scene.env.run_command(job.args(["-qec", &line, "/dev/null"]))
}

/// Creates a session whose worktree was changed by hand after its agent ended.
fn changed(scene: &Scene, change: impl Fn(&Repo)) -> (String, Repo) {
    let id = scene.ready("write made.txt x");
    scene.await_free(&id);
    let worktree = scene.worktree(&id);
    std::fs::remove_file(worktree.path().join("made.txt")).expect("the agent made it");
    change(&worktree);
    (id, worktree)
}

/// Applies the output of `diff` to a clean checkout of the base, and compares it with the worktree.
fn applies(scene: &Scene, change: impl Fn(&Repo)) -> String {
    let base = scene.repo.rev("HEAD");
    let (id, worktree) = changed(scene, change);
    let line = format!("exec '{}' diff {id} > \"$HOME/patch\"", studio());
    scene.env.run("sh", scene.repo.path(), ["-c", &line]).exits(0);
    let clean = scene.env.home().join("clean");
    let at = clean.display().to_string();
    scene.repo.git(["worktree", "add", "--detach", "-q", &at, &base]);
    let clean = Repo::at(&clean);
    let patch = scene.env.home().join("patch");
    clean.git(["apply", "--whitespace=nowarn", &patch.display().to_string()]);
    for repo in [&clean, &worktree] {
        repo.git(["add", "-A"]);
    }
    let staged = clean.git(["write-tree"]);
    assert_eq!(staged, worktree.git(["write-tree"]), "the patch makes the same files");
    assert_ne!(staged, clean.rev("HEAD^{tree}"), "the patch is not empty");
    String::from_utf8_lossy(&std::fs::read(&patch).expect("it was written")).into_owned()
}

#[test]
fn changed_line_endings_can_be_applied() {
    let scene = Scene::new();
    scene.repo.commit_file("dos.txt", "one\ntwo\n");
    let patch = applies(&scene, |it| it.write("dos.txt", "one\r\ntwo\r\n"));
    assert!(patch.contains("-one\n") && patch.contains("+one\r\n"), "{patch}");
}

#[test]
fn binary_files_include_their_data() {
    let scene = Scene::new();
    scene.repo.commit_file("a.bin", b"\0\x01\x02old".as_slice());
    let patch = applies(&scene, |it| {
        it.write("a.bin", b"\0\x01\xff\r\n\x1bnew".as_slice());
        it.write("new.bin", b"\0\xfe\xff".as_slice());
    });
    assert!(patch.contains("GIT binary patch"), "{patch}");
}

#[test]
fn modes_renames_deletions_and_links_can_be_applied() {
    let scene = Scene::new();
    let text: String = (0..40).map(|n| format!("line {n}\n")).collect();
    scene.repo.commit_file("old name.txt", &text);
    scene.repo.commit_file("run.sh", "echo\n");
    scene.repo.commit_file("gone.txt", "gone\n");
    let patch = applies(&scene, |it| {
        let at = |name: &str| it.path().join(name);
        std::fs::rename(at("old name.txt"), at("nëw name.txt")).unwrap();
        std::fs::set_permissions(at("run.sh"), std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::remove_file(at("gone.txt")).unwrap();
        std::os::unix::fs::symlink("run.sh", at("link")).unwrap();
    });
    for words in ["rename from", "new mode 100755", "deleted file mode", "new file mode 120000"] {
        assert!(patch.contains(words), "no `{words}` in\n{patch}");
    }
}

#[test]
fn files_without_a_final_newline_and_with_binary_bytes_can_be_applied() {
    let scene = Scene::new();
    scene.repo.commit_file("end.txt", "one\ntwo\n");
    let patch = applies(&scene, |it| {
        it.write("end.txt", "one\ntwo");
        it.write("latin.txt", b"gr\xfcn\x1b]0;x\n".as_slice());
    });
    assert!(patch.contains("\\ No newline at end of file"), "{patch}");
}

#[test]
fn the_worktree_is_shown_during_the_first_turn() {
    let scene = Scene::new();
    let id = scene.exec(["write new.txt hello; write README.md other; gate go"]);
    until("the agent to write", || {
        let patch = scene.studio(["diff", &id]);
        (patch.code == 0 && patch.out.contains("+other")).then_some(())
    });
    let before = scene.repo.git(["for-each-ref"]);
    scene.studio(["diff", &id]).exits(0).output_contains("+hello").output_contains("+other");
    scene.studio(["status", &id]).exits(0).output_contains("2 files").output_contains("working");
    assert_eq!(scene.repo.git(["for-each-ref"]), before, "a look writes no ref");
    scene.worktree(&id).write("go", "");
    scene.await_state(&id, "ready");
}

#[test]
fn merged_work_of_the_branch_is_not_part_of_the_session() {
    let scene = Scene::new();
    let id = scene.ready("write own.txt x; commit own");
    scene.await_free(&id);
    let many: String = (0..500).map(|n| format!("{n}\n")).collect();
    scene.repo.commit_file("of-main.txt", many);
    let tip = scene.repo.rev("main");
    let worktree = scene.worktree(&id);
    worktree.git(["merge", "-q", "-m", "Merge main", &tip]);
    let shown = scene.studio(["diff", &id]).exits(0).out.clone();
    assert!(shown.contains("own.txt") && !shown.contains("of-main.txt"), "{shown}");
    scene.studio(["diff", &id, "--name-only"]).exits(0);
    let names = scene.studio(["diff", &id, "--name-only"]).out;
    assert_eq!(names, "own.txt\n");
    scene.studio(["check", &id]).exits(0);
    let status = scene.status(&id);
    assert_eq!((&status["files_changed"], &status["insertions"]), (&1.into(), &1.into()));
}

#[test]
fn only_the_named_files_are_shown_relative_to_the_current_directory() {
    let scene = Scene::new();
    let id = scene.ready("write src/a.txt 1; write src/b.txt 2; write c.txt 3");
    let names = |directory: &Path, args: [&str; 4]| {
        scene
            .studio_in(directory, ["diff", &id, args[0], args[1], args[2], args[3]])
            .ok()
            .to_owned()
    };
    let top = scene.repo.path().to_owned();
    assert_eq!(names(&top, ["--name-only", "--", "src", "nope"]), "src/a.txt\nsrc/b.txt");
    let worktree = scene.worktree(&id);
    let inside = worktree.path().join("src");
    assert_eq!(names(&inside, ["--name-only", "--", "b.txt", "../c.txt"]), "c.txt\nsrc/b.txt");
    scene.studio(["diff", &id, "--", "../x"]).exits(2).output_contains("outside the repository");
    scene.studio(["diff", &id, "--stat", "--", "c.txt"]).exits(0).output_contains(" c.txt | 1 +\n");
    scene.studio(["diff", &id, "--word-diff", "--", "c.txt"]).exits(0).output_contains("{+3+}");
}

#[test]
fn an_added_line_is_not_counted_as_deleted() {
    let scene = Scene::new();
    scene.repo.commit_file("a.txt", "one\ntwo\nthree\nfour\n");
    let (id, _) = changed(&scene, |it| it.write("a.txt", "one\ntwo\nthree\nfour\nfive\n"));
    scene.studio(["diff", &id, "--stat"]).exits(0).output_contains(" a.txt | 1 +\n");
}

#[test]
fn a_terminal_shows_every_character_in_the_users_pager() {
    let scene = Scene::new();
    scene.repo.commit_file("a.txt", "one\n");
    let (id, _) = changed(&scene, |it| {
        it.write("a.txt", "one\r\n");
        it.write("evil.txt", "a\u{1b}]hidden\nb\u{202e}c\u{1b}[8md\u{e0041}\n");
    });
    let shown = on_a_terminal(&scene, &format!("diff {id} --no-pager"), &[]);
    let text = shown.out.replace("\r\n", "\n").replace('\u{1b}', "ESC");
    insta::assert_snapshot!(text.trim_end(), @r"
    ESC[1mdiff --git a/a.txt b/a.txtESC[m
    ESC[1mindex 5626abf..052d31e 100644ESC[m
    ESC[1m--- a/a.txtESC[m
    ESC[1m+++ b/a.txtESC[m
    ESC[36m@@ -1 +1 @@ESC[m
    ESC[31m-oneESC[m
    ESC[32m+one^MESC[m
    ESC[1mdiff --git a/evil.txt b/evil.txtESC[m
    ESC[1mnew file mode 100644ESC[m
    ESC[1mindex 0000000..45134b5ESC[m
    ESC[1m--- /dev/nullESC[m
    ESC[1m+++ b/evil.txtESC[m
    ESC[36m@@ -0,0 +1,2 @@ESC[m
    ESC[32m+a^[]hiddenESC[m
    ESC[32m+b<U+202E>c^[[8md<U+E0041>ESC[m
    ");
    let mut settings = scene.env.home().join(".gitconfig");
    std::fs::write(&settings, "[core]\n\tpager = sed s/^/paged:/\n").unwrap();
    settings = settings.canonicalize().unwrap();
    let global = settings.to_str().unwrap();
    let paged = on_a_terminal(&scene, &format!("diff {id}"), &[("GIT_CONFIG_GLOBAL", global)]);
    paged.exits(0).output_contains("paged:\u{1b}[1mdiff --git");
    let chosen = [("GIT_CONFIG_GLOBAL", global), ("GIT_PAGER", "sed s/^/mine:/")];
    on_a_terminal(&scene, &format!("diff {id} --stat"), &chosen)
        .exits(0)
        .output_contains("mine: a.txt");
    let plain = on_a_terminal(&scene, &format!("diff {id} --color=never --no-pager"), &[]);
    plain.exits(0).output_contains("+one^M").output_lacks("\u{1b}");
    // The repository's configuration must be ignored.
    scene.repo.git(["config", "core.pager", "touch pager-ran; cat"]);
    on_a_terminal(&scene, &format!("diff {id}"), &[("PAGER", "cat")])
        .exits(0)
        .output_contains("diff --git");
    assert!(!scene.repo.path().join("pager-ran").exists());
}

#[test]
fn colours_can_be_forced_in_a_pipe() {
    let scene = Scene::new();
    let id = scene.ready("write a.txt one");
    scene.studio(["diff", &id]).exits(0).output_lacks("\u{1b}");
    scene
        .studio(["diff", &id, "--color=always"])
        .exits(0)
        .output_contains("\u{1b}[32m+one\u{1b}[m");
    let words = scene.studio(["diff", &id, "--word-diff", "--color=always"]);
    words.exits(0).output_contains("\u{1b}[32mone\u{1b}[m");
}

#[test]
fn the_users_difftool_gets_both_sides() {
    let scene = Scene::new();
    scene.repo.commit_file("a.txt", "old\n");
    let (id, _) = changed(&scene, |it| {
        it.write("a.txt", "new\n");
        it.write("b/c.txt", "more\n");
    });
    let settings = scene.env.home().join(".gitconfig");
    std::fs::write(
        &settings,
        "[diff]\n\ttool = mine\n[difftool \"mine\"]\n\tcmd = cat \"$LOCAL\" \"$REMOTE\" >> \"$HOME/seen\"\n",
    )
    .unwrap();
    let job = scene.env.command(studio(), scene.repo.path()).env("GIT_CONFIG_GLOBAL", &settings);
    scene.env.run_command(job.args(["diff", &id, "--tool"])).exits(0);
    let seen = std::fs::read_to_string(scene.env.home().join("seen")).unwrap();
    assert!(seen.contains("old\nnew\n") && seen.contains("more\n"), "{seen}");
    let left = std::fs::read_dir(scene.env.home().join("tmp")).unwrap().count();
    assert_eq!(left, 0, "the copies are gone");
}

#[test]
fn programs_that_the_repository_names_do_not_run() {
    let scene = Scene::new();
    scene.repo.commit_file(".gitattributes", "*.txt diff=evil\n");
    scene.repo.commit_file("a.txt", "one\n");
    let evil = "touch \"$HOME/ran\"; cat";
    for key in ["diff.evil.command", "diff.evil.textconv", "diff.external", "pager.diff"] {
        scene.repo.git(["config", key, evil]);
    }
    let (id, _) = changed(&scene, |it| it.write("a.txt", "two\n"));
    scene.studio(["diff", &id]).exits(0).output_contains("-one\n+two\n");
    on_a_terminal(&scene, &format!("diff {id}"), &[("PAGER", "cat")])
        .exits(0)
        .output_contains("+two");
    assert!(!scene.env.home().join("ran").exists());
}

#[test]
fn a_large_diff_needs_little_memory() {
    let scene = Scene::new();
    let (id, worktree) = changed(&scene, |_| {});
    let line = "0123456789abcdef ".repeat(64) + "\n";
    let file = line.repeat(8 * 1024);
    for n in 0..6 {
        worktree.write(&format!("big-{n}.txt"), &file);
    }
    // 54 MB of text; the address space of studio and of each program that it starts is limited to 1
    // GB.
    let run = format!("ulimit -v 1000000; exec '{}' diff {id} --color=always | wc -c", studio());
    let ran = scene.env.run("sh", scene.repo.path(), ["-c", &run]);
    let bytes: usize = ran.ok().trim().parse().unwrap();
    assert!(bytes > 50 << 20, "{bytes}");
}

#[test]
fn json_contains_the_patch_without_terminal_control_characters() {
    let scene = Scene::new();
    let (id, _) = changed(&scene, |it| it.write("a.txt", "x\u{9b}2J\u{202e}y\u{e0041}\u{1b}é\n"));
    let ran = scene.studio(["diff", &id, "--json"]);
    let value = ran.exits(0).json();
    assert!(value["patch"].as_str().unwrap().contains("+x\u{9b}2J\u{202e}y\u{e0041}\u{1b}é\n"));
    assert_eq!((&value["schema"], &value["id"]), (&1.into(), &id.as_str().into()));
    ran.output_lacks("\u{9b}")
        .output_lacks("\u{202e}")
        .output_lacks("\u{e0041}")
        .output_lacks("\u{1b}");
}

#[test]
fn accept_reports_work_that_changed_since_the_displayed_diff() {
    let scene = Scene::new();
    let note = "changed since you looked at it";
    let (same, _) = changed(&scene, |it| it.write("a.txt", "shown\n"));
    on_a_terminal(&scene, &format!("diff {same} --no-pager"), &[]).exits(0);
    scene.studio(["accept", &same, "-m", "x", "--force"]).exits(0).output_lacks(note);
    let (other, worktree) = changed(&scene, |it| it.write("b.txt", "shown\n"));
    on_a_terminal(&scene, &format!("diff {other} --no-pager"), &[]).exits(0);
    on_a_terminal(&scene, &format!("diff {other} --stat"), &[]).exits(0);
    worktree.write("b.txt", "another\n");
    scene.studio(["accept", &other, "-m", "x", "--force"]).exits(3).output_contains(note);
    // The next look shows it.
    on_a_terminal(&scene, &format!("diff {other} --no-pager"), &[]).exits(0);
    scene.studio(["accept", &other, "-m", "x", "--force"]).exits(0).output_lacks(note);
}

#[test]
fn status_warns_of_a_worktree_whose_git_the_agent_changed() {
    let scene = Scene::new();
    let id = scene.ready("write a 1");
    scene.await_free(&id);
    scene.studio(["status", &id]).exits(0).output_lacks("warning");
    scene.worktree(&id).git(["config", "core.fsmonitor", "/evil"]);
    let warned = scene.studio(["status", &id]);
    warned.exits(0).output_contains("warning: the agent changed config in its git");
}
