//! Commands about files: show and undo the changes of turns, and send files to the model.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use base::failure::{Failure, OrFail, Result};
use base::text::count;

use super::sessions;
use crate::modes::interactive::session::InteractiveSession;
use crate::ui::diff::{DiffView, draw};
use crate::ui::terminal;
use agent_core::context::turns;
use agent_core::prompt::template;
use agent_core::session::checkpoint::Checkpoints;
use base::text::cut_columns;

/// `/undo`.
pub(crate) fn undo(chat: &mut InteractiveSession, _: Option<String>) -> Result<()> {
    let checkpoints = checkpoints(chat)?;
    let Some(last) = checkpoints.changes()?.pop() else {
        return Err(Failure::failed("no turn changed a tracked or untracked file"));
    };
    let paths = checkpoints.undo(last.turn)?;
    let names = named(&paths);
    chat.say(&format!("turn {}: restored {names}", last.turn));
    let note = format!("[I took back what turn {} did to these files: {names}]", last.turn);
    chat.at_work()?.queue_note(note);
    Ok(())
}

/// `/diff`.
pub(crate) fn diff(chat: &mut InteractiveSession, _: Option<String>) -> Result<()> {
    let checkpoints = checkpoints(chat)?;
    let changes = checkpoints.changes()?;
    let Some(first) = changes.first() else {
        chat.say("no turn of this session changed a tracked or untracked file");
        return Ok(());
    };
    let (_, patch) = checkpoints.difference(&first.before, &checkpoints.take_snapshot()?)?;
    let colours = std::io::stderr().is_terminal() && terminal::has_colours();
    let lines = draw(&patch, DiffView { colours, width: None, most: usize::MAX });
    chat.say(&match lines.is_empty() {
        true => "no changes since the start of this session".to_owned(),
        false => lines.join("\n"),
    });
    Ok(())
}

/// `/rewind [TURN]`.
pub(crate) fn rewind(chat: &mut InteractiveSession, turn: Option<String>) -> Result<()> {
    let journal = chat.at_work()?.session.journal_path();
    let entries = base::files::read_journal(&journal).or_fail(|| "cannot read the journal")?;
    let all = turns::list(&turns::effective(entries).entries);
    let Some(turn) = turn else {
        for (n, turn) in all.iter().enumerate() {
            chat.say(&format!("{:3}  {}", n + 1, cut_columns(&turn.text.replace('\n', " "), 90)));
        }
        chat.say("/rewind TURN    goes back to before that turn");
        return Ok(());
    };
    let turn = sessions::turn_number(&turn)?;
    if turn > all.len() {
        return Err(Failure::usage(format!("no such turn: {turn}"))
            .because(format!("the session has {}", all.len())));
    }
    let paths = checkpoints(chat)?.undo(turn)?;
    chat.at_work()?.conversation.rewind(turn)?;
    chat.leave();
    chat.open("")?;
    let files = if paths.is_empty() { String::new() } else { format!("; {}", named(&paths)) };
    chat.say(&format!("rewound to before turn {turn}{files}"));
    Ok(())
}

fn checkpoints(chat: &mut InteractiveSession) -> Result<Checkpoints> {
    let work = chat.at_work()?;
    Checkpoints::open(&work.session.dir, work.root())
}

fn named(paths: &[PathBuf]) -> String {
    let names: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    names.join(", ")
}

/// `/run FILE`.
pub(crate) async fn run(chat: &mut InteractiveSession, file: Option<String>) -> Result<()> {
    let Some(file) = file else { return Err(Failure::usage("which file?").hint("/run FILE")) };
    let path = resolve(&chat.settings.cwd, &file);
    let text = base::files::read_text(&path).map_err(|error| {
        Failure::usage(format!("cannot read {}", path.display())).because(error)
    })?;
    if text.trim().is_empty() {
        return Err(Failure::usage(format!("{} is empty", path.display())));
    }
    chat.turn(template(&text)).await
}

/// `/project DIRECTORY`.
pub(crate) fn project(chat: &mut InteractiveSession, dir: Option<String>) -> Result<()> {
    let Some(dir) = dir else {
        return Err(Failure::usage("which project?").hint("/project DIRECTORY"));
    };
    let (path, cwd) = (resolve(&chat.settings.cwd, &dir), chat.settings.cwd.clone());
    let files = ["brief.md", "contacts.yaml", "status.md"].map(|name| path.join(name));
    let all = files.into_iter().chain([cwd.join("projects.md")]);
    let matches: Vec<String> = all
        .filter_map(|file| {
            let text = base::files::read_text(&file).ok()?;
            Some(format!("From {}:\n{}", file.display(), text.trim()))
        })
        .collect();
    if !path.is_dir() || matches.is_empty() {
        return Err(Failure::usage(format!("no project files in {}", path.display()))
            .because("expected brief.md, contacts.yaml or status.md"));
    }
    if chat.work.is_none() {
        chat.open("project")?;
    }
    let text = format!("The project {}\n\n{}", path.display(), matches.join("\n\n"));
    let work = chat.at_work()?;
    base::files::replace(&work.project_file(), text.as_bytes())
        .or_fail(|| "cannot keep the project's text")?;
    work.conversation.prompt(text)?;
    let files = count(matches.len(), "file");
    chat.say(&format!("loaded {files} of the project"));
    Ok(())
}

/// `/unproject`.
pub(crate) fn unproject(chat: &mut InteractiveSession, _: Option<String>) -> Result<()> {
    let work = chat.at_work()?;
    let file = work.project_file();
    if !file.exists() {
        return Err(Failure::failed("no project is loaded").hint("/project DIRECTORY"));
    }
    std::fs::remove_file(&file).or_fail(|| "cannot let the project go")?;
    work.conversation.prompt("Ignore the project from now on.")?;
    chat.say("unloaded the project");
    Ok(())
}

/// Resolves a path as typed: `~` is the home directory, and other paths start at the working
/// directory.
fn resolve(cwd: &Path, typed: &str) -> PathBuf {
    let home = base::user_dirs::home_dir();
    match (typed.strip_prefix("~/"), home) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => cwd.join(typed),
    }
}
