//! Blocks calls that cannot make progress or that change parts that the task does not mention.

use super::{State, TurnGuide, command, file, list_files, replacement};
use crate::prompt::small_model::relevant::has_word;
use crate::prompt::small_model::syntax;
use crate::prompt::small_model::task::{is_data, is_test};
use provider::message::ToolCall;
use tools::fs::overwrite_guard::part_name;
use tools::kind::{Effect, ToolKind};
use tools::output::{ToolErrorKind, ToolOutput};
use tools::tool::ToolSpec;

/// A blocked call.
struct BlockedCall {
    reason: String,
    remedy: Remedy,
}

/// What to do instead.
enum Remedy {
    /// Do what the task says.
    Finish,
    /// Correct what failed; if nothing failed, take the next step.
    GoOn,
    /// Correct what is wrong.
    Correct,
}

fn blocked(remedy: Remedy, reason: impl Into<String>) -> BlockedCall {
    BlockedCall { reason: reason.into(), remedy }
}

impl TurnGuide {
    /// Returns why a call is not run: it would have no effect, or it would modify a test.
    pub(crate) fn block(&self, spec: ToolSpec, call: &ToolCall) -> Option<ToolOutput> {
        let mut state = self.state();
        let BlockedCall { reason, remedy } = if spec.kind == ToolKind::RUN {
            self.blocked_command(&mut state, &command(call))?
        } else if spec.effect == Effect::Writes {
            let name = file(call)?;
            let blocked = self.blocked_replacement(&mut state, &name, call);
            match blocked {
                Some(blocked) => blocked,
                None => self.blocked_write(&mut state, &name, call.args["content"].as_str())?,
            }
        } else {
            return None;
        };
        let next = match remedy {
            Remedy::Finish => self.finish(),
            Remedy::GoOn if state.failed.is_none() => self.next_step(&state),
            Remedy::GoOn | Remedy::Correct => self.advice(&reason),
        };
        Some(ToolOutput { hint: Some(next), ..ToolOutput::not_run(ToolErrorKind::Failed, reason) })
    }

    /// Returns why a command is blocked: its output is known, and nothing has changed since.
    fn blocked_command(&self, state: &mut State, line: &str) -> Option<BlockedCall> {
        let now = list_files(&self.cwd);
        let is_repeat = state.last.as_deref() == Some(line);
        if is_repeat
            && state
                .failed
                .as_ref()
                .is_some_and(|failure| failure.line == line && failure.files == now)
        {
            let reason = "not run: no file was changed since this command failed.";
            return Some(blocked(Remedy::Correct, reason));
        }
        if is_repeat && state.files_at_run == now {
            let reason = "not run: this ran already, and no file was written since.";
            return Some(blocked(Remedy::GoOn, reason));
        }
        // What is to be changed is already shown; the failure output confuses a small model more
        // than it helps.
        let is_expected =
            self.task.asks_for_repair() || self.task.commands.iter().any(|known| known == line);
        let is_early = is_expected && now == self.before && self.faulty_file(line).is_some();
        (is_early && state.given_messages.insert("early".into()))
            .then(|| blocked(Remedy::Correct, "not run: nothing is changed yet."))
    }

    /// Returns why a replacement is blocked: it was made in this turn and is still in effect.
    fn blocked_replacement(
        &self,
        state: &mut State,
        name: &str,
        call: &ToolCall,
    ) -> Option<BlockedCall> {
        let (old, new) = replacement(call)?;
        if !state.replaced.contains(&(name.to_owned(), old.to_owned(), new.to_owned())) {
            return None;
        }
        let current = without_indentation(&base::files::read_text(&self.cwd.join(name)).ok()?);
        let (old, new) = (without_indentation(old), without_indentation(new));
        let is_there = current.contains(&new) && (!current.contains(&old) || new.contains(&old));
        is_there.then(|| {
            let reason = format!("not written: {name} has this change already.");
            self.unchanged(state, name, reason)
        })
    }

    /// Blocks a write that would change nothing.
    fn unchanged(&self, state: &mut State, name: &str, reason: String) -> BlockedCall {
        let Some(fault) = self.syntax_error(state, name) else {
            state.idle_writes += 1;
            return blocked(Remedy::GoOn, reason);
        };
        let before = self.texts.iter().find(|(file, _)| file == name);
        let before = before.map(|(_, text)| {
            format!("\nBefore your change it was:\n```\n{}\n```", text.trim_end())
        });
        blocked(
            Remedy::Correct,
            format!("{reason} It is wrong: {fault}{}", before.unwrap_or_default()),
        )
    }

    /// Returns why a write is blocked: it changes nothing, modifies a test, or copies it.
    fn blocked_write(
        &self,
        state: &mut State,
        name: &str,
        content: Option<&str>,
    ) -> Option<BlockedCall> {
        let is_number = content.is_some_and(|text| text.trim().parse::<f64>().is_ok());
        if self.task.asks_for_count()
            && is_number
            && state.commands_run.is_empty()
            && state.given_messages.insert("count".into())
        {
            let reason = "not written: no command has counted that. Let shell count, and write its \
                       result into the file with >.";
            return Some(blocked(Remedy::Finish, reason));
        }
        let path = self.cwd.join(name);
        let current = base::files::read_text(&path).ok()?;
        if !state.wrote.contains(name) && is_data(name) && syntax::syntax_error(&path).is_some() {
            state.excused.insert(name.to_owned());
        }
        if content.is_some_and(|new| new.trim_end() == current.trim_end()) {
            let reason = format!("not written: {name} holds exactly this already.");
            return Some(self.unchanged(state, name, reason));
        }
        if is_test(name) {
            let reason = format!("not written: {name} is the test, and the test is right.");
            let first =
                self.task.asks_for_repair() && state.given_messages.insert(format!("hold {name}"));
            return first.then(|| blocked(Remedy::Correct, reason));
        }
        if let Some(lost) = content.and_then(|new| self.lost_part(&current, new)) {
            let reason = format!(
                "not written: {name} would lose `{lost}`. Keep it: write the whole file, or call \
                 edit."
            );
            return state
                .given_messages
                .insert(format!("lost {lost}"))
                .then(|| blocked(Remedy::Finish, reason));
        }
        let tests = self.task.files.iter().filter(|name| is_test(name));
        let tests: Vec<String> =
            tests.filter_map(|name| base::files::read_text(&self.cwd.join(name)).ok()).collect();
        let copied_lines = content?.lines().filter(|line| {
            let line = line.trim();
            let checks = line.contains("assert") && !current.contains(line);
            checks && tests.iter().any(|test| test.contains(line))
        });
        let reason = "not written: that copies lines of the test into";
        let has_copies = copied_lines.count() > 0;
        has_copies.then(|| {
            blocked(Remedy::Correct, format!("{reason} {name}, where they change nothing."))
        })
    }

    /// Completes a write: if it contains only new parts of a program and the file has other parts
    /// that the task does not mention, the new parts are appended.
    pub(crate) fn complete_write(&self, kind: ToolKind, call: &ToolCall) -> Option<ToolCall> {
        let name =
            file(call).filter(|_| kind == ToolKind::WRITE && self.task.asks_for_addition())?;
        let new = call.args["content"].as_str()?;
        let current = base::files::read_text(&self.cwd.join(&name)).ok()?;
        let parts = |text: &str| text.lines().filter_map(part_name).map(str::to_owned).collect();
        let (old, added): (Vec<String>, Vec<String>) = (parts(&current), parts(new));
        let is_new = |name: &String| !old.contains(name);
        let is_kept = |name: &String| !has_word(new, name) && !has_word(&self.words, name);
        if old.is_empty()
            || added.is_empty()
            || !old.iter().all(is_kept)
            || !added.iter().all(is_new)
        {
            return None;
        }
        let mut call = call.clone();
        let content = format!("{}\n\n\n{}\n", current.trim_end(), new.trim());
        call.args["content"] = content.into();
        Some(call)
    }

    /// Returns a named part of a program that a write would drop although the task does not mention
    /// it.
    fn lost_part(&self, before: &str, after: &str) -> Option<String> {
        let parts = before.lines().filter_map(part_name);
        let mut lost = parts.filter(|name| !has_word(after, name) && !has_word(&self.words, name));
        lost.next().map(str::to_owned)
    }
}

/// Returns a text without the indentation of its lines, which an edit may have adjusted.
fn without_indentation(text: &str) -> String {
    text.lines().map(str::trim).collect::<Vec<_>>().join("\n")
}
