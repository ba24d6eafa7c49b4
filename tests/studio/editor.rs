//! `accept` on a tmux terminal: with real editors, and with its questions.

use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use base::process::{Command, OutputLimits};
use testkit::env::until;

use crate::fixtures::{Scene, studio};

/// A terminal of 80x24 with a shell in the repository.
struct Terminal<'a> {
    scene: &'a Scene,
    socket: String,
}

impl<'a> Terminal<'a> {
    fn open(scene: &'a Scene) -> Terminal<'a> {
        let socket = scene.env.home().join("run/tmux").display().to_string();
        let terminal = Terminal { scene, socket };
        terminal.tmux(&["new-session", "-d", "-x", "80", "-y", "24", "env PS1='$ ' sh"]);
        until("the prompt", || terminal.screen().contains('$').then_some(()));
        terminal
    }

    fn tmux(&self, args: &[&str]) -> String {
        let job: Command = self.scene.env.command("tmux", self.scene.repo.path());
        let job = job.env("TERM", "xterm-256color").args(["-S", &self.socket, "-f", "/dev/null"]);
        let output = job.args(args).output(OutputLimits::seconds(60)).expect("tmux can be started");
        assert!(output.ok(), "tmux {args:?}: {}", output.error_text());
        output.text()
    }

    fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    fn types(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    fn line(&self, text: &str) {
        self.tmux(&["send-keys", "-l", text]);
        self.types(&["Enter"]);
    }

    fn awaits(&self, words: &str) {
        let end = Instant::now() + Duration::from_secs(30);
        while !self.screen().contains(words) {
            assert!(Instant::now() < end, "waited 30 s for `{words}` on\n{}", self.screen());
        }
    }

    /// Returns the exit code of `accept`.
    fn code(&self) -> String {
        self.line("echo code=$?.");
        until("the exit code", || {
            let screen = self.screen();
            let at = screen.rfind("code=").filter(|at| screen[*at..].contains('.'))?;
            let rest = screen[at..].trim_start_matches("code=");
            let code: String = rest.chars().take_while(char::is_ascii_digit).collect();
            (!code.is_empty()).then_some(code)
        })
    }
}

impl Drop for Terminal<'_> {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

/// Creates a session that can land, without a message of a model.
fn ready(scene: &Scene) -> String {
    let id = scene.ready("write a.txt 1");
    scene.await_free(&id);
    id
}

fn has(program: &str) -> bool {
    let found = base::process::find_program(program).is_some();
    assert!(found, "{program} is missing: ./setup --tests installs it");
    found
}

/// Asserts that an aborted landing left no files.
fn left_nothing(scene: &Scene) {
    let messages = std::fs::read_dir(scene.env.home().join("tmp")).into_iter().flatten().flatten();
    let messages = messages.filter(|it| it.file_name().to_string_lossy().contains("message"));
    assert_eq!(messages.count(), 0, "no message is left");
    let packs = std::fs::read_dir(scene.repo.path().join(".git/objects/pack"));
    let keeps = packs.into_iter().flatten().flatten();
    let keeps = keeps.filter(|it| it.path().extension().is_some_and(|ext| ext == "keep"));
    assert_eq!(keeps.count(), 0, "no pack is kept");
}

#[test]
fn vi_controls_the_terminal_and_the_saved_text_is_the_message() {
    let scene = Scene::new();
    let id = ready(&scene);
    assert!(has("tmux") && has("vi"));
    let terminal = Terminal::open(&scene);
    terminal.line(&format!("EDITOR=vi '{}' accept --edit {id}", studio()));
    terminal.awaits("Write a.txt 1");
    terminal.awaits("studio-message-");
    // Ctrl-C is a key of the editor, which drops what was typed before and says how to leave it.
    terminal.types(&["C-c"]);
    terminal.awaits(":qa");
    terminal.types(&[":", "%", "d", "Enter", "i"]);
    terminal.tmux(&["send-keys", "-l", "Written in vi"]);
    terminal.types(&["Escape"]);
    terminal.line(":wq");
    terminal.awaits("landed on main");
    assert_eq!(terminal.code(), "0");
    assert_eq!(scene.repo.git(["log", "-1", "--format=%s"]), "Written in vi");
    terminal.line("stty -a | grep -q ' icanon' && echo by'_'lines");
    terminal.awaits("by_lines");
    left_nothing(&scene);
}

#[test]
fn nano_controls_the_terminal() {
    let scene = Scene::new();
    let id = ready(&scene);
    assert!(has("tmux") && has("nano"));
    let terminal = Terminal::open(&scene);
    terminal.line(&format!("EDITOR= VISUAL=nano '{}' accept --edit {id}", studio()));
    terminal.awaits("^X Exit");
    terminal.types(&["C-k"]);
    terminal.tmux(&["send-keys", "-l", "Written in nano"]);
    terminal.types(&["Enter"]);
    terminal.types(&["C-o", "Enter"]);
    terminal.awaits("Wrote");
    terminal.types(&["C-x"]);
    terminal.awaits("landed on main");
    assert_eq!(scene.repo.git(["log", "-1", "--format=%s"]), "Written in nano");
    left_nothing(&scene);
}

#[test]
fn the_terminal_is_restored_after_ctrl_c_ends_an_editor() {
    let scene = Scene::new();
    let id = ready(&scene);
    assert!(has("tmux"));
    let editor = scene.env.home().join("editor");
    std::fs::write(&editor, "#!/bin/sh\nstty -echo; echo editing; exec sleep 600\n").unwrap();
    std::fs::set_permissions(&editor, std::fs::Permissions::from_mode(0o755)).unwrap();
    let before = scene.repo.everything();
    let terminal = Terminal::open(&scene);
    let line = format!("GIT_EDITOR='{}' '{}' accept --edit {id}", editor.display(), studio());
    terminal.line(&line);
    terminal.awaits("editing");
    terminal.types(&["C-c"]);
    terminal.awaits("interrupted");
    assert_eq!(terminal.code(), "130");
    terminal.line("stty -a | grep -q ' echo ' && echo with'_'echo");
    terminal.awaits("with_echo");
    left_nothing(&scene);
    assert_eq!(scene.repo.everything(), before);
    scene.studio(["accept", &id, "-m", "Land"]).exits(0);
}

#[test]
fn the_editor_comes_from_the_user_and_not_from_the_repository() {
    let scene = Scene::new();
    let settings = scene.env.home().join(".gitconfig");
    std::fs::write(&settings, "[core]\n\teditor = echo By core.editor >\n").unwrap();
    scene.repo.git(["config", "core.editor", "touch \"$HOME/repository\"; echo No >"]);
    for (variables, subject) in [
        (vec![("EDITOR", ""), ("VISUAL", "")], "By core.editor"),
        (vec![("GIT_EDITOR", "echo By GIT_EDITOR >")], "By GIT_EDITOR"),
        (vec![("EDITOR", "echo By EDITOR >"), ("GIT_CONFIG_GLOBAL", "/dev/null")], "By EDITOR"),
    ] {
        let id = scene.ready(&format!("write {} 1", subject.replace(' ', "-")));
        scene.await_free(&id);
        let mut job = scene.env.command(studio(), scene.repo.path());
        job = job.env("GIT_CONFIG_GLOBAL", &settings);
        for (name, value) in variables {
            job = job.env(name, value);
        }
        scene.env.run_command(job.args(["accept", "--edit", &id])).exits(0);
        assert_eq!(scene.repo.git(["log", "-1", "--format=%s"]), subject);
    }
    assert!(!scene.env.home().join("repository").exists());
}

/// Answers the question of an `accept` with no, and then with yes.
fn land_after_a_question(terminal: &Terminal<'_>, id: &str, question: &str) {
    let scene = terminal.scene;
    let accept = format!("'{}' accept -m 'Asked first' {id}", studio());
    let before = scene.repo.git(["rev-parse", "HEAD"]);
    terminal.line(&accept);
    terminal.awaits(question);
    terminal.awaits("anyway? [y/N]");
    terminal.line("n");
    assert_eq!(terminal.code(), "3");
    assert_eq!(scene.repo.git(["rev-parse", "HEAD"]), before);
    terminal.line("clear");
    terminal.line(&accept);
    terminal.awaits("anyway? [y/N]");
    terminal.line("y");
    terminal.awaits("landed on main");
    assert_eq!(terminal.code(), "0");
    assert_eq!(scene.repo.git(["log", "-1", "--format=%s"]), "Asked first");
}

#[test]
fn work_that_changed_since_its_diff_lands_only_after_a_yes() {
    let scene = Scene::new();
    let id = ready(&scene);
    assert!(has("tmux"));
    let terminal = Terminal::open(&scene);
    terminal.line(&format!("'{}' diff --no-pager {id}", studio()));
    terminal.awaits("+1");
    assert_eq!(terminal.code(), "0");
    terminal.line("clear");
    scene.worktree(&id).write("a.txt", "2\n");
    land_after_a_question(&terminal, &id, "changed since you looked at it");
    assert_eq!(scene.repo.read("a.txt"), "2\n");
}

#[test]
fn a_possible_secret_lands_only_after_a_yes() {
    let scene = Scene::new();
    let token = format!("ghp_{}", "a1B2c3D4e5F6g7H8i9J0".repeat(2));
    let id = scene.ready(&format!("write key.txt {token}"));
    scene.await_free(&id);
    assert!(has("tmux"));
    land_after_a_question(&Terminal::open(&scene), &id, "a GitHub token");
    assert_eq!(scene.repo.read("key.txt"), format!("{token}\n"));
}
