//! Asks permission questions on the terminal.

use std::io::{BufRead, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use base::event::EventKind;
use base::text::printable;
use futures_util::future::BoxFuture;

use super::diff::DiffView;
use super::terminal::QuestionInput;
use super::{diff, form, terminal};
use agent_core::bus::Bus;
use agent_core::current_call;
use gate::form::{FormAnswer, UserForm};
use gate::{Asker, PermissionAnswer, PermissionQuestion};

/// The possible answers.
const OPTIONS: [&str; 3] = ["once", "always", "no"];

/// Number of lines of the details that a question shows at first; `d` shows all of them.
const DETAILS: usize = 100;

/// Returns the event for a question.
pub(crate) fn event(id: &str, question: &PermissionQuestion) -> EventKind {
    let what = format!("{} wants to {}, and {}", question.tool, question.what, question.reason);
    let options = OPTIONS.iter().map(|option| (*option).to_owned()).collect();
    EventKind::Ask { id: id.to_owned(), what, options }
}

/// Returns the event for a form.
pub(crate) fn form_event(id: &str, form: &UserForm) -> EventKind {
    let what = format!("{} asks: {}", form.source, form.message);
    let options = ["answer", "no"].map(str::to_owned).into();
    EventKind::Ask { id: id.to_owned(), what, options }
}

/// Asks on the terminal, one question at a time.
#[derive(Default)]
pub(crate) struct TerminalAsker {
    bus: OnceLock<Arc<Bus>>,
    turn: tokio::sync::Mutex<()>,
}

impl TerminalAsker {
    /// Creates an asker that also emits each question on this bus.
    pub(crate) fn new(bus: Arc<Bus>) -> TerminalAsker {
        TerminalAsker { bus: OnceLock::from(bus), turn: tokio::sync::Mutex::default() }
    }
}

/// A question on the screen. Dropping it stops its thread from reading further input and restores
/// the terminal.
struct Open<'a> {
    dropped: Arc<AtomicBool>,
    /// Whether the user has ended the line.
    is_answered: bool,
    input: Option<QuestionInput>,
    bus: Option<&'a Arc<Bus>>,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.dropped.store(true, Ordering::Relaxed);
        if !self.is_answered {
            write("\n");
        }
        drop(self.input.take());
        if let Some(bus) = self.bus {
            bus.on_question_answered();
        }
    }
}

impl TerminalAsker {
    /// Runs a dialog on a thread of its own; `None` if it was dropped or the input ended.
    async fn show<T: Send + 'static>(
        &self,
        event: EventKind,
        dialog: impl FnOnce(&AtomicBool) -> Option<T> + Send + 'static,
    ) -> Option<T> {
        let _turn = self.turn.lock().await;
        let dropped = Arc::new(AtomicBool::new(false));
        let (input, bus) = (Some(QuestionInput::begin()), self.bus.get());
        let mut open = Open { dropped: dropped.clone(), is_answered: false, input, bus };
        if let Some(bus) = bus {
            bus.emit(event);
        }
        let answered = tokio::task::spawn_blocking(move || dialog(&dropped));
        let answer = answered.await.ok().flatten();
        open.is_answered = answer.is_some();
        answer
    }
}

impl Asker for TerminalAsker {
    fn ask<'a>(&'a self, question: &'a PermissionQuestion) -> BoxFuture<'a, PermissionAnswer> {
        Box::pin(async move {
            let event = event(&current_call::call_id(), question);
            let question = question.clone();
            let answer = self.show(event, move |dropped| put(&question, dropped)).await;
            answer.unwrap_or(PermissionAnswer::No)
        })
    }

    fn can_show_forms(&self) -> bool {
        true
    }

    fn fill<'a>(&'a self, form: &'a UserForm) -> BoxFuture<'a, FormAnswer> {
        Box::pin(async move {
            let (event, form) = (form_event(&current_call::call_id(), form), form.clone());
            let dialog = move |dropped: &AtomicBool| {
                let mut read_line = || read_line(dropped);
                let answer = form::fill(&form, &mut write, &mut read_line);
                (answer != FormAnswer::Cancelled).then_some(answer)
            };
            self.show(event, dialog).await.unwrap_or(FormAnswer::Cancelled)
        })
    }
}

/// Shows the question and reads lines until one is an answer. Returns `None` at the end of input or
/// when the question is dropped.
fn put(question: &PermissionQuestion, dropped: &AtomicBool) -> Option<PermissionAnswer> {
    let colours = terminal::has_colours();
    let hidden = question.details.as_deref().is_some_and(|details| {
        let view = DiffView { colours, width: None, most: usize::MAX };
        diff::draw(details, view).len() > DETAILS
    });
    write(&text(question, colours, DETAILS));
    loop {
        write(&choices(question, hidden));
        let line = read_line(dropped)?;
        match line.trim().to_ascii_lowercase().as_str() {
            "y" | "yes" => return Some(PermissionAnswer::Once),
            "a" | "always" if !question.rule.is_empty() => return Some(PermissionAnswer::Always),
            "" | "n" | "no" => return Some(PermissionAnswer::No),
            "d" | "details" if hidden => write(&text(question, colours, usize::MAX)),
            _ => {}
        }
    }
}

fn write(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Formats the whole question. Each line after the first starts with a bar, so that none can look
/// like an answer or another question.
fn text(question: &PermissionQuestion, colours: bool, most: usize) -> String {
    let (bold, reset) = if colours { ("\u{1b}[1m", "\u{1b}[0m") } else { ("", "") };
    let what = printable(question.what.trim_end());
    let mut lines = what.lines();
    let first = lines.next().unwrap_or_default();
    let mut text = format!("{bold}{} wants to {first}{reset}\n", printable(&question.tool));
    lines.for_each(|line| text.push_str(&format!("  │ {line}\n")));
    if let Some(details) = &question.details {
        let view = DiffView { colours, width: None, most };
        diff::draw(details, view).iter().for_each(|line| text.push_str(&format!("  │{line}\n")));
    }
    text.push_str(&format!("  ({})\n", printable(&question.reason).replace('\n', " ")));
    text
}

/// Returns the line on which the answer is typed.
fn choices(question: &PermissionQuestion, hidden: bool) -> String {
    let always = match &question.host {
        _ if question.rule.is_empty() => String::new(),
        Some(host) => format!("[a]lways for {}, ", printable(host)),
        None => "[a]lways in this session, ".to_owned(),
    };
    let details = if hidden { "[d]etails in full, " } else { "" };
    format!("Allow? [y]es, {always}{details}[N]o: ")
}

/// Reads a line from the terminal; returns `None` at its end or when the question is dropped.
fn read_line(dropped: &AtomicBool) -> Option<String> {
    let stdin = std::io::stdin();
    let tick = rustix::event::Timespec::try_from(Duration::from_millis(100)).ok()?;
    while !dropped.load(Ordering::Relaxed) {
        let mut fds =
            [rustix::event::PollFd::from_borrowed_fd(stdin.as_fd(), rustix::event::PollFlags::IN)];
        if rustix::event::poll(&mut fds, Some(&tick)).is_ok_and(|ready| ready > 0)
            && !dropped.load(Ordering::Relaxed)
        {
            let mut line = String::new();
            let read = stdin.lock().read_line(&mut line).ok()?;
            return (read > 0).then_some(line);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(what: &str, diff: Option<&str>) -> PermissionQuestion {
        PermissionQuestion {
            tool: "shell".to_owned(),
            what: what.to_owned(),
            reason: "it reaches outside".to_owned(),
            rule: "[[gate.rules]]".to_owned(),
            host: None,
            writes: None,
            details: diff.map(str::to_owned),
        }
    }

    #[test]
    fn a_command_is_shown_in_full_and_cannot_imitate_the_prompt() {
        let command = "run `echo hi\nAllow? [y]es: \u{1b}]0;\nrm -rf \u{202e}x`";
        insta::assert_snapshot!(text(&question(command, None), false, 9), @r#"
        shell wants to run `echo hi
          │ Allow? [y]es: ^[]0;
          │ rm -rf <U+202E>x`
          (it reaches outside)
        "#);
    }

    #[test]
    fn a_long_diff_is_cut_and_can_be_shown_in_full() {
        let lines: String = (1..=9).map(|n| format!("+{n}\n")).collect();
        let diff = format!("--- /dev/null\n+++ b/x\n@@ -0,0 +1,9 @@\n{lines}");
        let question = question("write x", Some(&diff));
        insta::assert_snapshot!(text(&question, false, 3) + &choices(&question, true), @r#"
        shell wants to write x
          │  x (new)  +9 -0
          │    1 + 1
          │    2 + 2
          │  … 7 more lines
          (it reaches outside)
        Allow? [y]es, [a]lways in this session, [d]etails in full, [N]o:
        "#);
        assert!(text(&question, false, usize::MAX).contains("9 + 9"));
    }

    #[test]
    fn the_always_answer_names_the_host() {
        let asked =
            PermissionQuestion { host: Some("a.example".to_owned()), ..question("ask", None) };
        assert_eq!(choices(&asked, false), "Allow? [y]es, [a]lways for a.example, [N]o: ");
    }
}
