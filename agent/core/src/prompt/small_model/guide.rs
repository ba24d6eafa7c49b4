//! Guides a small model through a task: suggests one clear next step after each result, checks the
//! files that it wrote, and intervenes when it stops too early or repeats itself.

mod block;
mod inspect;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use super::relevant;
use super::task::{TaskFacts, is_data, is_prose, is_test};
use gate::{paths, shell_parse};
use inspect::{WorkspaceFiles, list_files};
use provider::message::ToolCall;
use tools::kind::{Effect, ToolKind};
use tools::output::ToolOutput;
use tools::tool::ToolSpec;

/// The start of a message that tells the model that it is not done.
const REMINDER: &str = "[Not done]";
/// Maximum number of reminders that the task is not done.
const MAX_REMINDERS: usize = 5;
/// Number of consecutive writes without effect after which no further progress is expected.
const MAX_IDLE_WRITES: usize = 2;
/// Maximum size in bytes of a file that is shown again.
const MAX_SHOWN: usize = 4_000;
/// Maximum number of bytes of the task that are repeated.
const MAX_REPEATED: usize = 600;
/// Maximum number of bytes shown of a file that a command wrote.
const MAX_WRITTEN: usize = 600;

/// Guides one user turn.
#[derive(Debug)]
pub(crate) struct TurnGuide {
    task: TaskFacts,
    /// The user's text.
    words: String,
    cwd: PathBuf,
    /// The files at the start of the turn.
    before: WorkspaceFiles,
    /// The texts of the files that the task names.
    texts: Vec<(String, String)>,
    state: Mutex<State>,
}

/// The state of the turn.
#[derive(Debug, Default)]
struct State {
    /// The last failed command that has not succeeded since, and the files at that time.
    failed: Option<Failure>,
    /// Command lines that ran since the last file change, and the files at that time.
    commands_run: Vec<String>,
    files_at_run: WorkspaceFiles,
    /// The last call, if it was a command.
    last: Option<String>,
    /// Number of consecutive writes that would have changed nothing.
    idle_writes: usize,
    /// Files written by tools.
    wrote: HashSet<String>,
    /// Replacements made: file, old text and new text.
    replaced: HashSet<(String, String, String)>,
    /// Files that were already invalid before they were written; their syntax is the user's
    /// concern.
    excused: HashSet<String>,
    /// Files that calls referred to.
    touched: HashSet<String>,
    /// Messages that are given only once.
    given_messages: HashSet<String>,
    reminders: usize,
}

/// A command that failed.
#[derive(Clone, Debug)]
struct Failure {
    line: String,
    output: String,
    files: WorkspaceFiles,
}

impl TurnGuide {
    /// Creates a guide for a task in a directory.
    pub(crate) fn new(words: &str, cwd: &Path) -> TurnGuide {
        let task = TaskFacts::read(words);
        let text = |name: &String| Some((name.clone(), relevant::read_text(&cwd.join(name))?));
        TurnGuide {
            texts: task.files.iter().filter_map(text).collect(),
            task,
            words: words.trim().to_owned(),
            cwd: cwd.to_owned(),
            before: list_files(cwd),
            state: Mutex::default(),
        }
    }

    /// Inspects the result of a call and adds the next step.
    pub(crate) fn add_next_step(
        &self,
        spec: Option<ToolSpec>,
        call: &ToolCall,
        mut outcome: ToolOutput,
    ) -> ToolOutput {
        let mut state = self.state();
        state.touched.insert(call.args.to_string());
        state.last = None;
        state.idle_writes = 0;
        let next = if spec.is_some_and(|spec| spec.kind == ToolKind::RUN) {
            self.after_run(&mut state, call, &outcome)
        } else if spec.is_some_and(|spec| spec.effect == Effect::Writes) {
            self.after_write(&mut state, call, &outcome)
        } else if outcome.ok {
            self.next_step(&state)
        } else {
            "That failed. Find out why and do it differently.".to_owned()
        };
        outcome.hint = Some(next);
        outcome
    }

    fn after_run(&self, state: &mut State, call: &ToolCall, outcome: &ToolOutput) -> String {
        let line = command(call);
        state.last = Some(line.clone());
        self.forget_outdated_runs(state);
        state.commands_run.push(line.clone());
        state.files_at_run = list_files(&self.cwd);
        if outcome.ok && outcome.metadata["exit_code"].as_i64().unwrap_or(0) == 0 {
            state.failed = state.failed.take().filter(|failed| failed.line != line);
            return format!("{}{}", self.redirected_content(&line), self.next_step(state));
        }
        let (output, files) = (outcome.text.clone(), list_files(&self.cwd));
        state.failed = Some(Failure { line, output, files });
        format!("The command failed. {}", self.advice(&outcome.text))
    }

    /// Forgets commands that ran on other file contents, since they prove nothing about the current
    /// ones.
    fn forget_outdated_runs(&self, state: &mut State) {
        if state.files_at_run != list_files(&self.cwd) {
            state.commands_run.clear();
        }
    }

    /// Returns the content of files that a command wrote, which its output does not show.
    fn redirected_content(&self, line: &str) -> String {
        let show = |name: String| {
            let path = paths::resolve(&self.cwd, &name).ok()?;
            let text = relevant::read_text(&path).filter(|_| paths::is_inside(&path, &self.cwd))?;
            let text = base::text::head(text.trim_end(), MAX_WRITTEN);
            Some(format!("{name} now holds:\n```\n{text}\n```\n"))
        };
        let written = shell_parse::parse(line)
            .into_iter()
            .flat_map(|command| command.redirect_targets)
            .next_back();
        written.and_then(show).unwrap_or_default()
    }

    fn after_write(&self, state: &mut State, call: &ToolCall, outcome: &ToolOutput) -> String {
        let Some(name) = file(call) else { return "Say which file.".to_owned() };
        if !outcome.ok {
            let content = self.show(&name);
            return format!("{content}Call write_file with the whole {name}, as it has to be.");
        }
        state.commands_run.clear();
        state.wrote.insert(name.clone());
        if let Some((old, new)) = replacement(call) {
            state.replaced.insert((name.clone(), old.to_owned(), new.to_owned()));
        }
        if let Some(fault) = self.syntax_error(state, &name) {
            return format!(
                "{name} is written, but {fault}\nCall write_file again with the whole {name}, \
                 this time without that mistake."
            );
        }
        if let Some(Failure { line: failed, .. }) = &state.failed {
            return format!("Now run this with shell, to see whether it works:\n{failed}");
        }
        self.next_step(state)
    }

    /// Returns the advice for a failure with this output.
    fn advice(&self, output: &str) -> String {
        let missing = self.missing().find(|name| output.contains(name.as_str()));
        if let Some(name) = missing {
            return format!("{name} does not exist. Create it now with write_file.");
        }
        match self.faulty_file(output) {
            Some(name) => format!(
                "{}Say in `thought` what {name} has to do and does not. Then call write_file with \
                 the whole corrected {name}.",
                self.current_content(&name)
            ),
            None => "Find the cause and correct it; do not repeat the same call.".to_owned(),
        }
    }

    /// Returns the file most likely at fault: one that the task names, preferably one that the
    /// failure mentions too, and not a test.
    fn faulty_file(&self, output: &str) -> Option<String> {
        let is_present = |name: &&String| !is_test(name) && self.cwd.join(name.as_str()).is_file();
        let candidates: Vec<&String> = self.task.files.iter().filter(is_present).collect();
        let mentioned = candidates.iter().find(|name| output.contains(name.as_str()));
        if let Some(name) = mentioned.or(candidates.first()) {
            return Some((*name).clone());
        }
        // `test_a.py` tests `a.py`.
        let of_test = |name: &String| {
            let base = name.replace("test_", "").replace("_test", "").replace(".test", "");
            (is_test(name) && base != *name && self.cwd.join(&base).is_file()).then_some(base)
        };
        self.task.files.iter().find_map(of_test)
    }

    /// Returns the current content of a file that the first message did not show. A small model
    /// copies what it sees last, including its own mistakes.
    fn current_content(&self, name: &str) -> String {
        if self.existed(name) { String::new() } else { self.show(name) }
    }

    fn show(&self, name: &str) -> String {
        let text = relevant::show(&self.cwd, Path::new(name)).filter(|it| it.len() <= MAX_SHOWN);
        text.map_or_else(String::new, |text| format!("\n{}\n", text.trim()))
    }

    fn next_step(&self, state: &State) -> String {
        self.open_step(state).unwrap_or_else(|| self.finish())
    }

    /// Returns the next open step that can be detected, or `None`.
    fn open_step(&self, state: &State) -> Option<String> {
        let missing: Vec<&String> = self.missing().collect();
        let program = missing.iter().find(|name| self.runner(name).is_some());
        if let Some(name) = program {
            return Some(format!("Now create {name} with write_file."));
        }
        if let Some(name) = missing.first() {
            let source = self.task.files.iter().find_map(|name| Some((self.runner(name)?, name)));
            return Some(match source.filter(|_| self.task.mentions_output()) {
                Some((runner, source)) => {
                    format!("Now run this with shell:\n{runner} {source} > {name}")
                }
                None => format!("Now create {name}."),
            });
        }
        if let Some(line) = self.unverified_command(state) {
            return Some(format!("Now run this with shell, to see whether it works:\n{line}"));
        }
        if self.task.mentions_options() && state.commands_run.is_empty() && self.changed(state) {
            let program = self.task.files.iter().find_map(|name| Some((self.runner(name)?, name)));
            if let Some((runner, name)) = program {
                return Some(format!(
                    "Now run {runner} {name} with shell, with the option or argument that the \
                     task speaks of, and look at what it prints."
                ));
            }
        }
        if let Some((name, file)) = self.leftover_reference() {
            return Some(format!(
                "{file} still uses `{name}`, which is gone. Change it in {file}, too, so that it \
                 uses what the task says instead."
            ));
        }
        // To create a file, the model may only need to read the others.
        if self.task.files.iter().any(|name| !self.existed(name)) {
            return None;
        }
        let touched = |name: &&String| state.touched.iter().any(|args| args.contains(*name));
        let code = |name: &&String| !is_test(name) && !is_data(name);
        let name = self.task.files.iter().find(|name| code(name) && !touched(name))?;
        Some(format!(
            "The task also names {name}. If {name} must be written, changed or run, do that now. \
             Otherwise call answer."
        ))
    }

    /// Returns a command that would show whether the task is done and that has not run since the
    /// last write.
    fn unverified_command(&self, state: &State) -> Option<String> {
        if !self.changed(state) {
            return None;
        }
        let tests = self.task.files.iter().filter(|name| is_test(name)).filter_map(|name| {
            let quoted = self.task.commands.iter().any(|line| line.contains(name.as_str()));
            if quoted { None } else { Some(format!("{} {name}", self.runner(name)?)) }
        });
        // A command that only a document should mention proves nothing.
        let code = self.task.files.iter().any(|name| !is_data(name) && !is_prose(name));
        let commands = self.task.commands.iter().filter(|_| code);
        let lines = commands.cloned().chain(tests);
        lines
            .into_iter()
            .find(|line| !state.commands_run.iter().any(|ran| ran.contains(line.as_str())))
    }

    fn finish(&self) -> String {
        let task = base::text::head(&self.words, MAX_REPEATED);
        format!(
            "The task is:\n{task}\n\nIf all of that is done exactly so, call answer. Otherwise do \
             what is missing or wrong."
        )
    }

    /// Whether everything that can be detected is done and the model only rewrites existing
    /// content. Small models do this instead of saying that they are done.
    pub(crate) fn is_done(&self) -> bool {
        let state = self.state();
        state.idle_writes >= MAX_IDLE_WRITES
            && state.failed.is_none()
            && self.changed(&state)
            && self.open_step(&state).is_none()
    }

    /// Returns why the model should continue although it says that it is done. Each reason is given
    /// only once or twice.
    pub(crate) fn open_work(&self) -> Option<String> {
        let mut state = self.state();
        if state.reminders >= MAX_REMINDERS || !self.task.asks_for_change() {
            return None;
        }
        let reason = self.reason(&mut state)?;
        state.reminders += 1;
        Some(reason)
    }

    fn reason(&self, state: &mut State) -> Option<String> {
        if !self.changed(state) {
            let is_first = state.given_messages.insert("nothing".into())
                || state.given_messages.insert("nothing again".into());
            let next = match self.faulty_file("") {
                Some(name) => {
                    format!("{}Call write_file with the whole changed {name}.", self.show(&name))
                }
                None => "Call write_file or shell now.".to_owned(),
            };
            return is_first.then(|| {
                format!("{REMINDER} No file has changed. The task is:\n{}\n\n{next}", self.words)
            });
        }
        let faults =
            self.task.files.iter().filter_map(|name| Some((name, self.syntax_error(state, name)?)));
        for (name, fault) in faults.collect::<Vec<_>>() {
            if state.given_messages.insert(format!("fault {name} {fault}")) {
                return Some(format!(
                    "{REMINDER} {name} is wrong: {fault}\nCall write_file with the whole \
                     corrected {name}."
                ));
            }
        }
        if let Some(Failure { line, output, .. }) = &state.failed {
            let output = base::text::tail(output, MAX_REPEATED);
            let next = self.advice(output);
            return Some(format!("{REMINDER} This command fails:\n{line}\n{output}\n{next}"));
        }
        let step = self.open_step(state)?;
        state.given_messages.insert(step.clone()).then(|| format!("{REMINDER} {step}"))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        base::sync::lock(&self.state)
    }
}

/// Returns the command line of a call.
fn command(call: &ToolCall) -> String {
    call.args["command"].as_str().unwrap_or_default().trim().to_owned()
}

/// Returns the file of a call, as the model wrote it.
fn file(call: &ToolCall) -> Option<String> {
    let keys = ["file_path", "filePath", "path"];
    let path = keys.iter().find_map(|key| call.args[*key].as_str())?;
    Some(path.trim_start_matches("./").to_owned())
}

/// Returns the old and new text of a replacement call.
fn replacement(call: &ToolCall) -> Option<(&str, &str)> {
    Some((call.args["oldString"].as_str()?, call.args["newString"].as_str()?))
}

#[cfg(test)]
mod tests;
