//! The operations of the self-test: commands of studio, and of a user who works with git beside it.

use std::fmt;

use serde_json::Value;

use crate::selftest::RandomNumbers;

/// A command of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SelftestOperation {
    pub program: Program,
    pub args: Vec<String>,
    /// The file of the user that the command commits: it is added before the step.
    pub added: Option<String>,
    /// The line that the command adds to the file `shared` of the main checkout.
    pub saved: Option<String>,
}

/// The program of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    /// Studio, which may be killed.
    Studio,
    /// Git, run by the user. It may be refused by a lock.
    Git,
    /// A shell of the user.
    Shell,
}

impl Program {
    /// The name that a user types.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Program::Studio => "studio",
            Program::Git => "git",
            Program::Shell => "sh",
        }
    }
}

impl SelftestOperation {
    fn of(program: Program, args: &[&str]) -> SelftestOperation {
        let args = args.iter().map(|&argument| argument.to_owned()).collect();
        SelftestOperation { program, args, added: None, saved: None }
    }

    pub(crate) fn studio(args: &[&str]) -> SelftestOperation {
        SelftestOperation::of(Program::Studio, args)
    }

    /// The name of the command.
    pub(crate) fn name(&self) -> &str {
        self.args.first().map_or("", String::as_str)
    }
}

impl fmt::Display for SelftestOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.program.name(), self.args.join(" "))
    }
}

/// Sessions in these states can be sent a message, forked, stopped and discarded.
const OPEN: [&str; 5] = ["ready", "empty", "failed", "stopped", "crashed"];

/// Commands that only show something.
const SHOWS: [&[&str]; 8] = [
    &["list", "--all"],
    &["conflicts"],
    &["inbox"],
    &["operations"],
    &["stats"],
    &["compare"],
    &["trace"],
    &["review", "--plain"],
];

/// Ways to save a file: a program that holds it open, and an editor that replaces it.
const SAVES: [&str; 2] = [
    "echo '{line}' >> shared",
    "{ cat shared; echo '{line}'; } > ../saved-{line} && mv ../saved-{line} shared",
];

/// Chooses operations that the sessions allow, and numbers the tasks and files of a round.
#[derive(Debug, Default)]
pub(crate) struct OperationChooser {
    created: u64,
}

impl OperationChooser {
    /// Chooses an operation for the sessions of `studio list --all --json`.
    pub(crate) fn choose(&mut self, list: &Value, random: &mut RandomNumbers) -> SelftestOperation {
        let empty = Vec::new();
        let sessions = list["sessions"].as_array().unwrap_or(&empty);
        let in_state = |states: &[&str]| -> Vec<&str> {
            let is_one = |session: &&Value| {
                session["state"].as_str().is_some_and(|state| states.contains(&state))
            };
            sessions.iter().filter(is_one).filter_map(|session| session["id"].as_str()).collect()
        };
        let choice = random.below(29);
        if !in_state(&["crashed", "stopped"]).is_empty() && choice < 8 {
            return SelftestOperation::studio(&["resume", "--all"]);
        }
        match choice {
            0 => return SelftestOperation::studio(&["doctor"]),
            1..=3 if sessions.len() > 1 => return SelftestOperation::studio(&["undo"]),
            4 => return SelftestOperation::studio(&["gc"]),
            5 => return SelftestOperation::studio(&["accept", "--all"]),
            6..=8 => return self.choose_git(random),
            24 | 25 => return self.save(random),
            26 => return SelftestOperation::studio(random.one_of(&SHOWS).unwrap_or_default()),
            _ => {}
        }
        if let Some(id) = random.one_of(&in_state(&["ready"])) {
            let accept = |flags: &[&str]| {
                let args = [&["accept", id, "-m", "Land a self-test"], flags].concat();
                SelftestOperation::studio(&args)
            };
            match choice {
                9 | 10 => return accept(&[]),
                11 => {
                    let strategy = ["merge", "rebase", "ff"][random.index(3)];
                    return accept(&["--strategy", strategy]);
                }
                12 => return accept(&["--drop-others"]),
                13 => return SelftestOperation::studio(&["check", id, "--check", "true"]),
                14 => return SelftestOperation::studio(&["try", "--once", id]),
                27 => {
                    let hunk = format!("{:x}", random.below(16));
                    return accept(&["--hunks", &hunk]);
                }
                _ => {}
            }
        }
        if let Some(id) = random.one_of(&in_state(&OPEN)) {
            match choice {
                15 | 16 => return SelftestOperation::studio(&["discard", "--yes", id]),
                17 => return SelftestOperation::studio(&["stop", id]),
                18 => return SelftestOperation::studio(&["send", id, &self.task()]),
                19 => return SelftestOperation::studio(&["fork", id, &self.task()]),
                20 => {
                    let task = self.task();
                    return SelftestOperation::studio(&["run", "--on-top-of", id, &task]);
                }
                _ => {}
            }
        }
        let flags: &[&str] = match choice {
            21 => &["--accept"],
            22 => &["--attempts", "2"],
            _ => &[],
        };
        let task = self.task();
        SelftestOperation::studio(&[&["run"], flags, &[&task]].concat())
    }

    fn choose_git(&mut self, random: &mut RandomNumbers) -> SelftestOperation {
        match random.below(4) {
            0 => SelftestOperation::of(Program::Git, &["pack-refs", "--all"]),
            1 => SelftestOperation::of(Program::Git, &["gc", "--quiet"]),
            _ => {
                self.created += 1;
                let file = format!("user-{}", self.created);
                let args = ["commit", "--quiet", "-m", "Commit of the user", "--only", &file];
                let commit = SelftestOperation::of(Program::Git, &args);
                SelftestOperation { added: Some(file), ..commit }
            }
        }
    }

    /// Saves a file that sessions change too, at a random moment.
    fn save(&mut self, random: &mut RandomNumbers) -> SelftestOperation {
        self.created += 1;
        let line = format!("user-{}", self.created);
        let save = SAVES[random.index(SAVES.len())].replace("{line}", &line);
        let script = format!("sleep 0.{:03}; {save}", random.below(400));
        let shell = SelftestOperation::of(Program::Shell, &["-c", &script]);
        SelftestOperation { saved: Some(line), ..shell }
    }

    fn task(&mut self) -> String {
        self.created += 1;
        format!("selftest n{}", self.created)
    }
}
