//! The output of commands as a user sees it, with everything that differs between runs replaced by
//! placeholders: directories, commits, durations.

use regex::Regex;

use crate::env::{CommandRun, TestEnv, built};

/// Commands and their output.
#[derive(Debug)]
pub struct Transcript {
    text: String,
    replaced: Vec<(Regex, String)>,
}

impl Transcript {
    /// Creates an empty transcript for an environment.
    pub fn of(env: &TestEnv) -> Transcript {
        let home = regex::escape(&env.home().display().to_string());
        let target = built("");
        let target = regex::escape(target.display().to_string().trim_end_matches('/'));
        let pattern = |text: &str| Regex::new(text).expect("a pattern of ours");
        let replaced = vec![
            (pattern(r"(?m)^This machine:\n(  .*\n)+"), "[machine]\n".to_owned()),
            (pattern(&home), "[home]".to_owned()),
            (pattern(&target), "[target]".to_owned()),
            (pattern(r"\b[0-9a-f]{40}\b"), "[commit]".to_owned()),
            // The placeholder has the length of its text, so that columns stay aligned.
            (pattern(r"\b[0-9a-f]{12}\b"), "[the-commit]".to_owned()),
            (pattern(r"\bindex [0-9a-f]{7}\.\.[0-9a-f]{7}"), "index [blobs]".to_owned()),
            (pattern(r"\b\d+ ms\b"), "[time] ms".to_owned()),
            (pattern(r"(?m)\b\d+\.\d s$"), "[time] s".to_owned()),
            (pattern(r"\b127\.0\.0\.1:\d{4,5}\b"), "127.0.0.1:[port]".to_owned()),
            // It depends on timing whether a state is observed before the next one.
            (
                pattern(r"(?m)^! \S+: (queued|starting|working|checking|landing: [a-z ]+)\n"),
                String::new(),
            ),
            (pattern(r"\b\d+(\.\d+)? (B|KiB|MiB|bytes)\b"), "[size]".to_owned()),
        ];
        Transcript { text: String::new(), replaced }
    }

    /// Adds a command: stdout, then stderr after `!`, then the exit code unless it is 0.
    pub fn add(&mut self, program: &str, args: &[&str], ran: &CommandRun) {
        let quoted =
            |arg: &&str| if arg.contains(' ') { format!("'{arg}'") } else { (*arg).into() };
        let args: Vec<String> = args.iter().map(quoted).collect();
        self.text.push_str(&format!("$ {program} {}\n{}", args.join(" "), ran.out));
        for line in ran.err.lines() {
            self.text.push_str(&format!("! {line}\n"));
        }
        if ran.code != 0 {
            self.text.push_str(&format!("[exit {}]\n", ran.code));
        }
        self.text.push('\n');
    }

    /// Returns the transcript, with placeholders.
    pub fn text(&self) -> String {
        let replace = |text: String, (pattern, name): &(Regex, String)| {
            pattern.replace_all(&text, name.as_str()).into_owned()
        };
        let text = self.replaced.iter().fold(self.text.clone(), replace);
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        lines.join("\n")
    }

    /// Like [`Transcript::text`], with table columns two spaces apart: for tables whose width
    /// depends on durations.
    pub fn squeezed(&self) -> String {
        let gaps = Regex::new(r"([^\s!])   +").expect("a pattern of ours");
        gaps.replace_all(&self.text(), "$1  ").into_owned()
    }
}
