//! `studio` on a terminal: permission requests during `run`, and a shell on its own terminal.

use std::fs::File;
use std::io::{Read, Write};
use std::time::{Duration, Instant};

use base::process::{Pty, Running, Stream, exit_code};

use crate::fixtures::{Scene, studio};

/// A program on a terminal, and the controlling side of the terminal.
struct Terminal {
    program: Running,
    controller: File,
    name: String,
    /// Text that was read and not yet searched.
    rest: String,
}

impl Terminal {
    fn start(scene: &Scene, args: &[&str]) -> Terminal {
        let Pty { controller, terminal } = Pty::open().expect("a terminal can be made");
        let stream =
            || Stream::File(File::from(terminal.try_clone().expect("a descriptor can be copied")));
        let fd = std::os::fd::AsRawFd::as_raw_fd(&terminal);
        let name = std::fs::read_link(format!("/proc/self/fd/{fd}")).expect("it is open");
        let job = scene.env.command(studio(), scene.repo.path()).args(args).env("TERM", "xterm");
        let job = job.stdin(stream()).stdout(stream()).stderr(stream());
        let program = job
            .on_terminal(terminal.try_clone().expect("a descriptor can be copied"))
            .spawn()
            .expect("the program can be started");
        Terminal {
            program,
            controller: File::from(controller),
            name: name.to_string_lossy().into_owned(),
            rest: String::new(),
        }
    }

    /// Reads until this text appears; returns everything up to its end.
    fn until(&mut self, words: &str) -> String {
        let mut bytes = [0; 4096];
        loop {
            if let Some(at) = self.rest.find(words) {
                let rest = self.rest.split_off(at + words.len());
                return std::mem::replace(&mut self.rest, rest);
            }
            let n = self.controller.read(&mut bytes).unwrap_or(0);
            assert!(n > 0, "no `{words}` in:\n{}", self.rest);
            self.rest.push_str(&String::from_utf8_lossy(&bytes[..n]));
        }
    }

    fn types(&mut self, text: &str) {
        self.controller.write_all(text.as_bytes()).expect("the terminal is there");
    }

    /// Waits for the end; returns the exit code.
    fn ends(mut self) -> i32 {
        // The output must be read, or the program blocks.
        let mut controller = self.controller.try_clone().expect("a descriptor can be copied");
        std::thread::spawn(move || std::io::copy(&mut controller, &mut std::io::sink()));
        let until = Instant::now() + Duration::from_secs(60);
        exit_code(self.program.wait_until(Some(until)).expect("it is our child").expect("it ends"))
    }
}

#[test]
fn one_key_answers_a_request_and_the_run_continues() {
    let scene = Scene::new();
    let script = "ask one; ask two; ask three; ask three";
    let mut terminal = Terminal::start(&scene, &["run", "--agent", "talk", script]);
    let shown = terminal.until("[a] always");
    assert!(shown.contains("asks for permission 1 (") && shown.contains("one"), "{shown}");
    terminal.types("xy");
    terminal.until("permission 2 (");
    terminal.until("[a] always");
    terminal.types("n");
    terminal.until("permission 3 (");
    terminal.until("[a] always");
    terminal.types("a");
    terminal.until("allowed for this session");
    terminal.until("ready");
    assert_eq!(terminal.ends(), 0);
    let list = scene.studio(["list", "--json"]).json();
    let id = list["sessions"][0]["id"].as_str().unwrap().to_owned();
    let answers = scene.worktree(&id).read("answers.txt");
    assert_eq!(answers, "one: yes\ntwo: no\nthree: always\nthree: always\n");
}

#[test]
fn a_request_that_is_answered_elsewhere_is_removed() {
    let scene = Scene::new();
    let mut terminal = Terminal::start(&scene, &["run", "--agent", "talk", "ask one; ask two"]);
    terminal.until("permission 1 (");
    let list = scene.studio(["list", "--json"]).json();
    let id = list["sessions"][0]["id"].as_str().unwrap().to_owned();
    scene.studio(["answer", &id, "1", "deny"]).exits(0);
    terminal.until("permission 2 (");
    terminal.until("[a] always");
    terminal.types("y");
    assert_eq!(terminal.ends(), 0);
    assert_eq!(scene.worktree(&id).read("answers.txt"), "one: no\ntwo: yes\n");
}

#[test]
fn a_shell_has_its_own_terminal() {
    let scene = Scene::new();
    let id = scene.ready("write a 1");
    scene.await_free(&id);
    let line = "tty; test -t 0 && echo on a terminal; read -r typed; echo \"got $typed\"; exit 7";
    let mut terminal = Terminal::start(&scene, &["shell", &id, "--", "sh", "-c", line]);
    let shown = terminal.until("on a terminal");
    // Its name among the sandbox's devices, where namespaces are possible.
    assert!(shown.contains("/dev/pts/") || shown.contains("/dev/console"), "{shown}");
    let ours = terminal.name.clone();
    assert!(!shown.lines().any(|line| line.trim() == ours), "it is on our terminal: {shown}");
    terminal.types("words\r");
    terminal.until("got words");
    assert_eq!(terminal.ends(), 7);
}
