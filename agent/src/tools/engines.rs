//! The table of engines: what each does to the world, what it reaches, what it touches, and the
//! function that does the work. A new engine is a row here and a face in a profile.

use std::path::PathBuf;

use futures_util::future::BoxFuture;

use super::call::{Invocation, ToolError};
use super::profile::{Effect, ToolKind};
use super::{
    ToolOutput, browser, coverage, desktop, edit, escalate, exec, fs, history, image, lsp, memory,
    plan, rehydrate, research, search, skill, task, todo, wait, web,
};
use crate::gate::{Access, Pass};

/// What comes of a call in the end.
type Done<'a> = BoxFuture<'a, Result<ToolOutput, ToolError>>;
/// Does the work of a call.
type Work = for<'a, 'c> fn(&'a Invocation<'c>, Pass) -> Done<'a>;

/// An engine as the dispatcher sees it.
#[derive(Clone, Copy)]
pub struct Row {
    /// What it does to the world.
    pub effect: Effect,
    /// What a call reaches, for the gate.
    pub reaches: fn(&Invocation<'_>) -> Vec<Access>,
    /// Keys of what a call touches: calls with a common key keep their order.
    pub touches: fn(&Invocation<'_>) -> Vec<String>,
    /// Files that somebody outside may hold, e.g. an editor.
    pub files: fn(&Invocation<'_>) -> Vec<PathBuf>,
    /// Does the work.
    pub run: Work,
}

/// The row of an engine.
pub fn row(engine: ToolKind) -> Row {
    match engine {
        ToolKind::Run => {
            Row { touches: exec::touches, ..runs(|c, p| Box::pin(exec::run::run(c, p))) }
        }
        ToolKind::Background => runs(|c, p| Box::pin(exec::background::run(c, p))),
        ToolKind::Control => orders(|_| key("background"), |c, _| Box::pin(exec::control::run(c))),
        ToolKind::Read => Row { files: place, ..reads(|c, _| Box::pin(c.blocking(fs::read::run))) },
        ToolKind::Picture => Row {
            reaches: |c| image::files(c).into_iter().map(Access::Read).collect(),
            touches: |c| names(&image::files(c)),
            ..looks(|c, _| Box::pin(image::run(c)))
        },
        ToolKind::Coverage => runs(|c, p| Box::pin(coverage::run(c, p))),
        ToolKind::Write => writes(|c, _| Box::pin(c.blocking(fs::write::run))),
        ToolKind::Replace => writes(|c, _| Box::pin(c.blocking(edit::replace::run))),
        ToolKind::Diff => writes(|c, _| Box::pin(c.blocking(edit::diff::run))),
        ToolKind::Multi => {
            Row { files: edit::multi::files, ..many(|c, _| Box::pin(c.blocking(edit::multi::run))) }
        }
        ToolKind::Patch => {
            Row { files: edit::patch::files, ..many(|c, _| Box::pin(c.blocking(edit::patch::run))) }
        }
        ToolKind::Grep => Row { touches: nothing, ..reads(|c, _| Box::pin(search::grep::run(c))) },
        ToolKind::Glob => Row { touches: nothing, ..reads(|c, _| Box::pin(search::glob::run(c))) },
        ToolKind::Lsp => Row { files: place, ..reads(|c, _| Box::pin(lsp::run(c))) },
        ToolKind::Syntax => {
            Row { reaches: search::ast::reaches, ..looks(|c, _| Box::pin(search::ast::run(c))) }
        }
        ToolKind::TodoRead => orders(|_| key("todo"), |c, _| now(todo::run_read(c))),
        ToolKind::TodoWrite => orders(|_| key("todo"), |c, _| now(todo::run_write(c))),
        ToolKind::TodoItems => orders(|_| key("todo"), |c, _| now(todo::run_items(c))),
        ToolKind::Wait => looks(|c, _| Box::pin(wait::run(c))),
        ToolKind::History => looks(|c, _| now(history::run(c))),
        ToolKind::ProposePlan => orders(|_| key("plan"), |c, _| Box::pin(plan::run(c))),
        ToolKind::Rehydrate => looks(|c, _| now(rehydrate::run(c))),
        ToolKind::Escalate => looks(|c, _| now(escalate::run(c))),
        ToolKind::Skill => orders(|_| key("skill"), |c, _| now(skill::run(c))),
        ToolKind::Research => looks(|c, _| Box::pin(research::run(c))),
        ToolKind::Task => orders(task::touches, |c, _| Box::pin(task::run(c))),
        ToolKind::Remember => Row {
            reaches: memory::reaches,
            files: |_| Vec::new(),
            ..writes(|c, _| Box::pin(memory::remember(c)))
        },
        ToolKind::MemorySearch => orders(|_| key("memory"), |c, _| Box::pin(memory::search(c))),
        ToolKind::MemoryGet => orders(|_| key("memory"), |c, _| Box::pin(memory::recall(c))),
        ToolKind::MemorySet => Row {
            reaches: memory::reads,
            ..orders(|_| key("memory"), |c, _| Box::pin(memory::keep(c)))
        },
        ToolKind::Fetch => asks(web::fetch::reaches, |c, _| Box::pin(web::fetch::run(c))),
        ToolKind::CodeSearch => asks(web::search::reaches, |c, _| Box::pin(web::search::code(c))),
        ToolKind::WebSearch => asks(web::search::reaches, |c, _| Box::pin(web::search::pages(c))),
        ToolKind::Browser(_) => Row {
            reaches: browser::reaches,
            ..orders(|_| key("browser"), |c, p| Box::pin(browser::run(c, p)))
        },
        ToolKind::Capture => Row {
            reaches: desktop::capture::reaches,
            ..sees(|c, _| Box::pin(desktop::capture::run(c)))
        },
        ToolKind::Observe => sees(|c, _| Box::pin(desktop::observe::run(c))),
        ToolKind::FindControl => sees(|c, _| Box::pin(desktop::find::run(c))),
        ToolKind::Controls => sees(|c, _| Box::pin(desktop::controls::run(c))),
        ToolKind::Windows => sees(|c, _| Box::pin(desktop::windows::list(c))),
        ToolKind::Click => acts(|c, _| Box::pin(desktop::input::click(c))),
        ToolKind::TypeText => acts(|c, _| Box::pin(desktop::input::type_text(c))),
        ToolKind::Gui => acts(|c, _| Box::pin(desktop::gui::run(c))),
        ToolKind::ActOn => acts(|c, _| Box::pin(desktop::accessible::run(c))),
        ToolKind::Maximize => acts(|c, _| Box::pin(desktop::windows::maximize(c))),
        ToolKind::ComputerUse => acts(|c, _| Box::pin(desktop::cu::run(c))),
    }
}

/// What is done at once.
fn now<'a>(done: Result<ToolOutput, ToolError>) -> Done<'a> {
    Box::pin(std::future::ready(done))
}

/// Looks at nothing outside of the session.
fn looks(run: Work) -> Row {
    let (reaches, files) = (|_: &Invocation<'_>| Vec::new(), |_: &Invocation<'_>| Vec::new());
    Row { effect: Effect::Looks, reaches, touches: nothing, files, run }
}

/// As [`looks`], and such calls keep their order.
fn orders(touches: fn(&Invocation<'_>) -> Vec<String>, run: Work) -> Row {
    Row { touches, ..looks(run) }
}

/// Asks somebody over the network and changes nothing here.
fn asks(reaches: fn(&Invocation<'_>) -> Vec<Access>, run: Work) -> Row {
    Row { reaches, ..looks(run) }
}

/// Looks at the screen.
fn sees(run: Work) -> Row {
    Row {
        reaches: |c| vec![c.at.others.desk.access(false)],
        touches: |_| key("screen"),
        ..looks(run)
    }
}

/// Acts on the screen.
fn acts(run: Work) -> Row {
    let reaches = |c: &Invocation<'_>| vec![c.at.others.desk.access(true)];
    Row { effect: Effect::Acts, reaches, ..sees(run) }
}

/// Reads the place that the call names.
fn reads(run: Work) -> Row {
    Row { reaches: |c| vec![Access::Read(c.place.clone())], touches: places, ..looks(run) }
}

/// Writes the file that the call names.
fn writes(run: Work) -> Row {
    Row { files: place, ..many(run) }
}

/// Writes the files of its row.
fn many(run: Work) -> Row {
    let reaches = |c: &Invocation<'_>| (c.row().files)(c).into_iter().map(Access::Write).collect();
    Row { effect: Effect::Writes, reaches, touches: places, ..looks(run) }
}

/// Runs a command line.
fn runs(run: Work) -> Row {
    let touches = |c: &Invocation<'_>| exec::named_files(c.text("command"), &c.place);
    Row { effect: Effect::Runs, reaches: exec::reaches, touches, ..looks(run) }
}

fn nothing(_: &Invocation<'_>) -> Vec<String> {
    Vec::new()
}

fn key(name: &str) -> Vec<String> {
    vec![name.to_owned()]
}

fn place(call: &Invocation<'_>) -> Vec<PathBuf> {
    vec![call.place.clone()]
}

/// The files of a call, or the one place that it names.
fn places(call: &Invocation<'_>) -> Vec<String> {
    let files = (call.row().files)(call);
    let files = if files.is_empty() { place(call) } else { files };
    names(&files)
}

fn names(files: &[PathBuf]) -> Vec<String> {
    files.iter().map(|file| file.to_string_lossy().into_owned()).collect()
}
