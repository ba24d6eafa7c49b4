//! The script of the fake agent: steps separated by `;` or newlines, each a verb and its arguments.
//! Steps without a known verb are ignored, so that any prompt is a script.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use base::process::{Command, OutputLimits, Stream};

/// The environment in which a script runs: a terminal or a conversation.
pub trait ScriptStage {
    /// Outputs a message.
    fn say(&mut self, text: &str);
    /// Requests permission.
    fn ask(&mut self, what: &str) -> bool;
    /// Returns whether the turn was cancelled.
    fn is_cancelled(&mut self) -> bool;
}

/// Runs a script; the exit code is 0 unless a step sets another one.
pub fn play(script: &str, stage: &mut dyn ScriptStage) -> ExitCode {
    for step in script.split(['\n', ';']) {
        if stage.is_cancelled() {
            return ExitCode::from(130);
        }
        if let Some(code) = act(step.trim(), stage) {
            return ExitCode::from(code);
        }
    }
    ExitCode::SUCCESS
}

/// Runs one step; returns an exit code if it is the last.
fn act(step: &str, stage: &mut dyn ScriptStage) -> Option<u8> {
    let (verb, rest) = step.split_once(' ').unwrap_or((step, ""));
    match verb {
        "write" => {
            let (path, text) = rest.split_once(' ').unwrap_or((rest, ""));
            write(path, &format!("{text}\n"));
        }
        "commit" => {
            git(&["add", "-A"]);
            git(&["commit", "-q", "-m", rest]);
        }
        "switch" => git(&["switch", "-q", "-c", rest]),
        "sh" => {
            let done =
                Command::new("sh", ".").args(["-c", rest]).output(OutputLimits::seconds(120));
            let done = done.expect("a shell can be started");
            stage.say(&done.text());
        }
        "gate" => wait(stage, || Path::new(rest).exists()),
        "hang" => wait(stage, || false),
        "ask" => {
            let word = if stage.ask(rest) { "allowed" } else { "denied" };
            write("answer.txt", word);
        }
        "say" => stage.say(rest),
        "outcry" => {
            let mut out = std::io::stdout().lock();
            let _ = writeln!(out, "{rest}").and_then(|()| out.flush());
        }
        "flood" => flood(rest.parse().expect("a number of bytes")),
        "daemon" => daemon(rest),
        "vanish" => fs::remove_dir_all(".").or_else(|_| empty(".")).expect("it can be removed"),
        "repoint" => write(".git", &format!("gitdir: {rest}\n")),
        "reconfig" => git(&["config", "core.hooksPath", rest]),
        "exit" => return rest.parse().ok(),
        _ => {}
    }
    None
}

fn write(path: &str, text: &str) {
    if let Some(parent) = Path::new(path).parent() {
        let _ = fs::create_dir_all(parent);
    }
    fs::write(path, text).unwrap_or_else(|e| panic!("{path}: {e}"));
}

fn git(args: &[&str]) {
    let done =
        Command::new("git", ".").args(args).output(OutputLimits::seconds(120)).expect("git runs");
    assert!(done.ok(), "git {args:?}: {}", done.error_text());
}

fn empty(dir: &str) -> std::io::Result<()> {
    for entry in fs::read_dir(dir)?.flatten() {
        let path = entry.path();
        if path.is_dir() { fs::remove_dir_all(path)? } else { fs::remove_file(path)? }
    }
    Ok(())
}

/// Waits for a condition, at most two minutes, and not longer than the turn.
fn wait(stage: &mut dyn ScriptStage, condition: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(120);
    while !condition() && !stage.is_cancelled() && Instant::now() < end {
        let moment = rustix::event::Timespec { tv_sec: 0, tv_nsec: 5_000_000 };
        let _ = rustix::event::poll(&mut [], Some(&moment));
    }
}

fn flood(bytes: usize) {
    let line = [b'x'; 1023];
    let mut out = std::io::stdout().lock();
    for _ in 0..bytes / 1024 {
        let _ = out.write_all(&line).and_then(|()| out.write_all(b"\n"));
    }
}

/// Starts a process that leaves the group and the session, and outlives its parent.
fn daemon(pid_file: &str) {
    let line = format!("setsid sh -c 'echo $$ > {pid_file}; exec sleep 600' & wait");
    let pid = Command::new("sh", ".")
        .args(["-c", &line])
        .stdout(Stream::Null)
        .stderr(Stream::Null)
        .detached()
        .spawn_forget();
    pid.expect("a shell can be started");
    let end = Instant::now() + Duration::from_secs(30);
    while fs::read_to_string(pid_file).unwrap_or_default().trim().is_empty() {
        assert!(Instant::now() < end, "the daemon did not start");
        std::thread::yield_now();
    }
}
