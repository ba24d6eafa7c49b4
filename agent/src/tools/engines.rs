//! The table of engines: what each does to the world, what it reaches, what it touches, and the
//! function that does the work. A new engine is a row here and a face in a profile.

use std::path::PathBuf;

use futures_util::future::BoxFuture;

use super::call::{Call, Trouble};
use super::profile::{Effect, Engine};
use super::{
    Outcome, browser, coverage, desktop, edit, escalate, exec, fs, history, image, lsp, memory,
    plan, rehydrate, research, search, skill, task, todo, wait, web,
};
use crate::gate::{Access, Pass};

/// What comes of a call in the end.
type Done<'a> = BoxFuture<'a, Result<Outcome, Trouble>>;
/// Does the work of a call.
type Work = for<'a, 'c> fn(&'a Call<'c>, Pass) -> Done<'a>;

/// An engine as the dispatcher sees it.
#[derive(Clone, Copy)]
pub struct Row {
    /// What it does to the world.
    pub effect: Effect,
    /// What a call reaches, for the gate.
    pub reaches: fn(&Call<'_>) -> Vec<Access>,
    /// Keys of what a call touches: calls with a common key keep their order.
    pub touches: fn(&Call<'_>) -> Vec<String>,
    /// Files that somebody outside may hold, e.g. an editor.
    pub files: fn(&Call<'_>) -> Vec<PathBuf>,
    /// Does the work.
    pub run: Work,
}

/// The row of an engine.
pub fn row(engine: Engine) -> Row {
    match engine {
        Engine::Run => {
            Row { touches: exec::touches, ..runs(|c, p| Box::pin(exec::run::run(c, p))) }
        }
        Engine::Background => runs(|c, p| Box::pin(exec::background::run(c, p))),
        Engine::Control => orders(|_| key("background"), |c, _| Box::pin(exec::control::run(c))),
        Engine::Read => Row { files: place, ..reads(|c, _| Box::pin(c.blocking(fs::read::run))) },
        Engine::Picture => Row {
            reaches: |c| image::files(c).into_iter().map(Access::Read).collect(),
            touches: |c| names(&image::files(c)),
            ..looks(|c, _| Box::pin(image::run(c)))
        },
        Engine::Coverage => runs(|c, p| Box::pin(coverage::run(c, p))),
        Engine::Write => writes(|c, _| Box::pin(c.blocking(fs::write::run))),
        Engine::Replace => writes(|c, _| Box::pin(c.blocking(edit::replace::run))),
        Engine::Diff => writes(|c, _| Box::pin(c.blocking(edit::diff::run))),
        Engine::Multi => {
            Row { files: edit::multi::files, ..many(|c, _| Box::pin(c.blocking(edit::multi::run))) }
        }
        Engine::Patch => {
            Row { files: edit::patch::files, ..many(|c, _| Box::pin(c.blocking(edit::patch::run))) }
        }
        Engine::Grep => Row { touches: nothing, ..reads(|c, _| Box::pin(search::grep::run(c))) },
        Engine::Glob => Row { touches: nothing, ..reads(|c, _| Box::pin(search::glob::run(c))) },
        Engine::Lsp => Row { files: place, ..reads(|c, _| Box::pin(lsp::run(c))) },
        Engine::Syntax => {
            Row { reaches: search::ast::reaches, ..looks(|c, _| Box::pin(search::ast::run(c))) }
        }
        Engine::TodoRead => orders(|_| key("todo"), |c, _| now(todo::run_read(c))),
        Engine::TodoWrite => orders(|_| key("todo"), |c, _| now(todo::run_write(c))),
        Engine::TodoItems => orders(|_| key("todo"), |c, _| now(todo::run_items(c))),
        Engine::Wait => looks(|c, _| Box::pin(wait::run(c))),
        Engine::History => looks(|c, _| now(history::run(c))),
        Engine::ProposePlan => orders(|_| key("plan"), |c, _| Box::pin(plan::run(c))),
        Engine::Rehydrate => looks(|c, _| now(rehydrate::run(c))),
        Engine::Escalate => looks(|c, _| now(escalate::run(c))),
        Engine::Skill => orders(|_| key("skill"), |c, _| now(skill::run(c))),
        Engine::Research => looks(|c, _| Box::pin(research::run(c))),
        Engine::Task => orders(task::touches, |c, _| Box::pin(task::run(c))),
        Engine::Remember => Row {
            reaches: memory::reaches,
            files: |_| Vec::new(),
            ..writes(|c, _| Box::pin(memory::remember(c)))
        },
        Engine::MemorySearch => orders(|_| key("memory"), |c, _| Box::pin(memory::search(c))),
        Engine::MemoryGet => orders(|_| key("memory"), |c, _| Box::pin(memory::recall(c))),
        Engine::MemorySet => Row {
            reaches: memory::reads,
            ..orders(|_| key("memory"), |c, _| Box::pin(memory::keep(c)))
        },
        Engine::Fetch => asks(web::fetch::reaches, |c, _| Box::pin(web::fetch::run(c))),
        Engine::CodeSearch => asks(web::search::reaches, |c, _| Box::pin(web::search::code(c))),
        Engine::WebSearch => asks(web::search::reaches, |c, _| Box::pin(web::search::pages(c))),
        Engine::Browser(_) => Row {
            reaches: browser::reaches,
            ..orders(|_| key("browser"), |c, p| Box::pin(browser::run(c, p)))
        },
        Engine::Capture => Row {
            reaches: desktop::capture::reaches,
            ..sees(|c, _| Box::pin(desktop::capture::run(c)))
        },
        Engine::Observe => sees(|c, _| Box::pin(desktop::observe::run(c))),
        Engine::FindControl => sees(|c, _| Box::pin(desktop::find::run(c))),
        Engine::Controls => sees(|c, _| Box::pin(desktop::controls::run(c))),
        Engine::Windows => sees(|c, _| Box::pin(desktop::windows::list(c))),
        Engine::Click => acts(|c, _| Box::pin(desktop::input::click(c))),
        Engine::TypeText => acts(|c, _| Box::pin(desktop::input::type_text(c))),
        Engine::Gui => acts(|c, _| Box::pin(desktop::gui::run(c))),
        Engine::ActOn => acts(|c, _| Box::pin(desktop::accessible::run(c))),
        Engine::Maximize => acts(|c, _| Box::pin(desktop::windows::maximize(c))),
        Engine::ComputerUse => acts(|c, _| Box::pin(desktop::cu::run(c))),
    }
}

/// What is done at once.
fn now<'a>(done: Result<Outcome, Trouble>) -> Done<'a> {
    Box::pin(std::future::ready(done))
}

/// Looks at nothing outside of the session.
fn looks(run: Work) -> Row {
    let (reaches, files) = (|_: &Call<'_>| Vec::new(), |_: &Call<'_>| Vec::new());
    Row { effect: Effect::Looks, reaches, touches: nothing, files, run }
}

/// As [`looks`], and such calls keep their order.
fn orders(touches: fn(&Call<'_>) -> Vec<String>, run: Work) -> Row {
    Row { touches, ..looks(run) }
}

/// Asks somebody over the network and changes nothing here.
fn asks(reaches: fn(&Call<'_>) -> Vec<Access>, run: Work) -> Row {
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
    let reaches = |c: &Call<'_>| vec![c.at.others.desk.access(true)];
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
    let reaches = |c: &Call<'_>| (c.row().files)(c).into_iter().map(Access::Write).collect();
    Row { effect: Effect::Writes, reaches, touches: places, ..looks(run) }
}

/// Runs a command line.
fn runs(run: Work) -> Row {
    let touches = |c: &Call<'_>| exec::named_files(c.text("command"), &c.place);
    Row { effect: Effect::Runs, reaches: exec::reaches, touches, ..looks(run) }
}

fn nothing(_: &Call<'_>) -> Vec<String> {
    Vec::new()
}

fn key(name: &str) -> Vec<String> {
    vec![name.to_owned()]
}

fn place(call: &Call<'_>) -> Vec<PathBuf> {
    vec![call.place.clone()]
}

/// The files of a call, or the one place that it names.
fn places(call: &Call<'_>) -> Vec<String> {
    let files = (call.row().files)(call);
    let files = if files.is_empty() { place(call) } else { files };
    names(&files)
}

fn names(files: &[PathBuf]) -> Vec<String> {
    files.iter().map(|file| file.to_string_lossy().into_owned()).collect()
}
