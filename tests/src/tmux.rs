//! A terminal for tests: tmux, with its own server.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use base::process::Command;

use crate::env::{TestEnv, poll};

/// The settings of tmux.
const SETTINGS: &str = "set -g remain-on-exit on\nset -g status off\nset -g history-limit 5000\n\
                        set -g default-terminal screen-256color\nset -s escape-time 0\n";

/// A program in a terminal. It is ended on drop.
#[derive(Debug)]
pub struct TmuxTerminal<'a> {
    env: &'a TestEnv,
    socket: PathBuf,
}

impl<'a> TmuxTerminal<'a> {
    /// Starts a program in a terminal of this size.
    pub fn start<S: AsRef<OsStr>>(
        env: &'a TestEnv,
        directory: &Path,
        (columns, rows): (u16, u16),
        command: impl IntoIterator<Item = S>,
    ) -> TmuxTerminal<'a> {
        let folder = tempfile::Builder::new().prefix("tmux-").tempdir_in(env.home().join("run"));
        let folder = folder.expect("the home is writable").keep();
        let settings = folder.join("tmux.conf");
        std::fs::write(&settings, SETTINGS).expect("the home is writable");
        let terminal = TmuxTerminal { env, socket: folder.join("socket") };
        let quoted =
            |word: S| format!("'{}'", word.as_ref().to_string_lossy().replace('\'', r"'\''"));
        let line: Vec<String> = command.into_iter().map(quoted).collect();
        let (columns, rows) = (columns.to_string(), rows.to_string());
        let job = terminal.job(directory).arg("-f").arg(&settings);
        let job = job.args(["new-session", "-d", "-x", &columns, "-y", &rows]);
        // The pane remains, so that the last screen can be read.
        env.run_command(job.arg(format!("exec {}", line.join(" ")))).ok();
        terminal
    }

    fn job(&self, directory: &Path) -> Command {
        self.env.command("tmux", directory).arg("-u").arg("-S").arg(&self.socket)
    }

    fn tmux<const N: usize>(&self, args: [&str; N]) -> String {
        self.env.run_command(self.job(self.env.home()).args(args)).ok().to_owned()
    }

    /// Types a text.
    pub fn types(&self, text: &str) -> &TmuxTerminal<'a> {
        self.tmux(["send-keys", "-l", text]);
        self
    }

    /// Presses a key, by its name in tmux (`Enter`, `C-c`, `Tab`).
    pub fn presses(&self, key: &str) -> &TmuxTerminal<'a> {
        self.tmux(["send-keys", key]);
        self
    }

    /// Types a line.
    pub fn enters(&self, line: &str) -> &TmuxTerminal<'a> {
        self.types(line).presses("Enter")
    }

    /// Pastes a text, marked as pasted if the program asked for that.
    pub fn pastes(&self, text: &str) -> &TmuxTerminal<'a> {
        self.tmux(["set-buffer", text]);
        self.tmux(["paste-buffer", "-p"]);
        self
    }

    /// Changes the size of the terminal.
    pub fn resizes(&self, (columns, rows): (u16, u16)) -> &TmuxTerminal<'a> {
        let (columns, rows) = (columns.to_string(), rows.to_string());
        self.tmux(["resize-window", "-x", &columns, "-y", &rows]);
        self
    }

    /// Sends a signal to the programs in the foreground of the terminal.
    pub fn signals_foreground(&self, signal: &str) -> &TmuxTerminal<'a> {
        let terminal = self.tmux(["display-message", "-p", "#{pane_tty}"]);
        let script = format!(
            "ps -o pid=,stat= -t '{}' | awk '$2 ~ /\\+/ {{print $1}}' | xargs kill -{signal}",
            terminal.trim()
        );
        let job = self.env.command("sh", self.env.home()).args(["-c", &script]);
        self.env.run_command(job).ok();
        self
    }

    /// Returns the ids of the processes on the terminal.
    pub fn process_ids(&self) -> Vec<u32> {
        let terminal = self.tmux(["display-message", "-p", "#{pane_tty}"]);
        let job = self.env.command("ps", self.env.home());
        let listed = self.env.run_command(job.args(["-o", "pid=", "-t", terminal.trim()]));
        listed.ok().split_whitespace().filter_map(|id| id.parse().ok()).collect()
    }

    /// Returns the content of the terminal, including what scrolled out of it.
    pub fn text(&self) -> String {
        self.tmux(["capture-pane", "-p", "-S", "-"]).trim_end().to_owned()
    }

    /// Like [`TmuxTerminal::text`], with escape sequences for colours.
    pub fn painted(&self) -> String {
        self.tmux(["capture-pane", "-p", "-e", "-S", "-"]).trim_end().to_owned()
    }

    /// Waits until the terminal shows this text; returns the content.
    #[track_caller]
    pub fn shows(&self, words: &str) -> String {
        self.shows_all(&[words])
    }

    /// Waits until the terminal shows all of these texts at once; returns the content.
    #[track_caller]
    pub fn shows_all(&self, words: &[&str]) -> String {
        let mut last = String::new();
        let found = poll(|| {
            last = self.text();
            words.iter().all(|words| last.contains(words)).then_some(())
        });
        assert!(found.is_some(), "waited 30 s for {words:?} on the terminal, which shows:\n{last}");
        last
    }

    /// Waits until the program ended; returns the content of the terminal.
    #[track_caller]
    pub fn ends(&self) -> String {
        let is_dead = || self.tmux(["display-message", "-p", "#{pane_dead}"]).trim() == "1";
        let ended = poll(|| is_dead().then_some(()));
        let text = self.text();
        assert!(ended.is_some(), "the program does not end; the terminal shows:\n{text}");
        let text = text.rsplit_once("\nPane is dead").map_or(text.as_str(), |(text, _)| text);
        text.trim_end().to_owned()
    }
}

impl Drop for TmuxTerminal<'_> {
    fn drop(&mut self) {
        let job = self.job(self.env.home()).arg("kill-server");
        let _ = self.env.run_command(job);
    }
}
