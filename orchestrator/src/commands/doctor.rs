//! `studio doctor`: finds and repairs leftovers of crashes, moves and other programs.

use base::failure::Result;
use base::lock::Lock;
use serde_json::json;

use crate::commands::context::{CommandContext, CommonArgs};
use crate::report;
use studio_core::session::state::SessionState;
use studio_core::session_view::SessionView;
use studio_git::move_worktree::Relocation;
use studio_git::names::WorktreeTemplate;
use studio_git::oplog::{LogEntries, OperationLog};
use studio_git::{
    import, merge, move_worktree, moved_repository, recreate_worktree, refs, transaction, worktree,
};

/// The findings.
#[derive(Default)]
struct Findings {
    /// What was repaired, one sentence each.
    mended: Vec<String>,
    /// What the user must decide, with the command to run.
    open: Vec<String>,
    /// What is good to know.
    notes: Vec<String>,
}

/// The command line of `doctor`.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Args {
    /// Move worktrees out of the main checkout to the place of new worktrees
    #[arg(long)]
    pub move_worktrees: bool,
}

/// Runs the command: 0 if everything is fine or was repaired, 1 if the user must decide something.
pub(crate) fn run(common: &CommonArgs, args: &Args) -> Result<u8> {
    let context = CommandContext::open(common)?;
    let mut found =
        Findings { mended: transaction::recover(&context.repository)?, ..Findings::default() };
    let (views, unreadable) = context.sessions()?;
    for view in &views {
        session(&context, view, &mut found)?;
    }
    for (id, failure) in &unreadable {
        found.open.push(format!(
            "{}; its branch and worktree are kept: repair the file, or move {} away",
            failure.sentence(),
            context.store.dir(id).display(),
        ));
    }
    for line in LogEntries::read(&context.repository)?.unreadable() {
        found.open.push(format!(
            "{}: its operation is not touched; repair or remove the line in {}",
            line.sentence(),
            context.store.root().join("operations.jsonl").display(),
        ));
    }
    inside_the_checkout(&context, &views, args.move_worktrees, &mut found)?;
    leftovers(&context, &mut found)?;
    surroundings(&mut found);
    let started = context.schedule()?;
    found.mended.extend(started.iter().map(|id| format!("started `{id}`, which was waiting")));
    if context.json {
        report::json_line(&json!({
            "schema": 1, "mended": found.mended, "open": found.open, "notes": found.notes,
        }));
    } else {
        found.mended.iter().for_each(|text| report::out(&format!("repaired: {text}")));
        found.open.iter().for_each(|text| report::out(&format!("to do:  {text}")));
        found.notes.iter().for_each(|text| report::out(&format!("note:   {text}")));
        if found.mended.is_empty() && found.open.is_empty() {
            report::out("no problems found");
        }
    }
    Ok(u8::from(!found.open.is_empty()))
}

/// Checks one session.
fn session(context: &CommandContext, view: &SessionView, found: &mut Findings) -> Result<()> {
    let id = &view.record.id;
    let place = &view.record.session_repo;
    if view.state.is_over() {
        return Ok(());
    }
    // The session is in use: nothing there is a leftover.
    let Some(_lock) = context.store.lock(id)? else { return Ok(()) };
    let _shut = match context.store.lock_shell(id) {
        Ok(shut) => shut,
        Err(open) => {
            found.notes.push(format!("skipped `{id}`: {}", open.into_cause()));
            return Ok(());
        }
    };
    if !worktree::is_finished(place) {
        if worktree::admin_dir_of(&context.repository, &place.worktree)?.is_some()
            || place.git_dir.exists()
        {
            worktree::remove_incomplete(&context.repository, place)?;
            found.mended.push(format!("removed the half-made worktree of `{id}`"));
        }
    } else if place.worktree.symlink_metadata().is_err() && place.git_dir.exists() {
        found.open.push(format!(
            "the worktree of `{id}` is missing; its commits and its latest snapshot are safe: studio \
             resume {id} recreates it, studio accept {id} lands them, studio discard {id} discards them"
        ));
    }
    if worktree::is_finished(place) {
        found.mended.extend(moved_repository::repair(&context.repository, place)?);
        if let Err(failure) = import::check_pointer(place) {
            found.open.push(failure.in_full());
        }
    }
    if refs::read(&context.repository.open()?, &merge::ref_name(place))?.is_some() {
        merge::release(&context.repository, place)?;
        found.mended.push(format!("released what `{id}` held for landing"));
    }
    let temporary = context.store.file(id, "tmp");
    let removed = temporary.exists() && std::fs::remove_dir_all(&temporary).is_ok();
    // A shell also leaves temporary files, which is normal.
    if removed && view.state == SessionState::Crashed {
        found.mended.push(format!("removed the temporary files of `{id}`"));
    }
    if view.state == SessionState::Crashed {
        found.open.push(format!("`{id}` crashed; everything is kept: studio resume {id}"));
    }
    Ok(())
}

/// Reports worktrees inside the main checkout, where earlier versions created them: programs that
/// search parent directories find the main checkout's files. They are moved if requested, except
/// those of running sessions.
fn inside_the_checkout(
    context: &CommandContext,
    views: &[SessionView],
    wants_move: bool,
    found: &mut Findings,
) -> Result<()> {
    let repository = &context.repository;
    let template = WorktreeTemplate::parse(&context.config.studio.worktree)?;
    let Some(checkout) = &repository.main_checkout else { return Ok(()) };
    let is_inside = |view: &&SessionView| {
        let worktree = &view.record.session_repo.worktree;
        !view.state.is_over() && worktree.starts_with(checkout) && worktree.is_dir()
    };
    let inside: Vec<&SessionView> = views.iter().filter(is_inside).collect();
    if inside.is_empty() || template.parent(repository).starts_with(checkout) {
        return Ok(());
    }
    if !wants_move {
        let (count, are) = if inside.len() == 1 {
            ("1 worktree".to_owned(), "is")
        } else {
            (format!("{} worktrees", inside.len()), "are")
        };
        found.notes.push(format!(
            "{count} {are} inside the main checkout, so checks find its files: studio doctor \
             --move-worktrees"
        ));
        return Ok(());
    }
    let (mut locks, mut wanted) = (Vec::new(), Vec::new());
    for view in inside {
        let id = &view.record.id;
        match (context.store.lock(id)?, context.store.lock_shell(id)) {
            (Some(lock), Ok(shut)) => {
                locks.push((lock, shut));
                let to = template.worktree(repository, id);
                wanted.push(Relocation {
                    session_repo: view.record.session_repo.clone(),
                    new_worktree: to,
                });
            }
            (None, _) | (_, Err(_)) => {
                found.open.push(format!(
                    "`{id}` is in use; when it is free: studio doctor --move-worktrees"
                ));
            }
        }
    }
    if wanted.is_empty() {
        return Ok(());
    }
    move_worktree::relocate(repository, &wanted, &context.clock.stamp())?;
    for Relocation { session_repo: place, new_worktree: to } in &wanted {
        found.mended.push(format!("moved the worktree of `{}` to {}", place.id, to.display()));
    }
    Ok(())
}

/// Removes incomplete records, scratch directories and `.keep` files, while no import is running.
fn leftovers(context: &CommandContext, found: &mut Findings) -> Result<()> {
    let sessions = context.store.root().join("sessions");
    for entry in std::fs::read_dir(&sessions).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let old = entry.metadata().and_then(|meta| meta.modified()).ok();
        let old = old.and_then(|at| at.elapsed().ok()).is_some_and(|age| age.as_secs() > 60);
        if name.to_string_lossy().starts_with(".new-")
            && old
            && std::fs::remove_dir_all(entry.path()).is_ok()
        {
            found.mended.push(format!("removed the incomplete {}", entry.path().display()));
        }
    }
    // While these are held, no session is started, restored or imported.
    let _starts = studio_core::schedule::lock(&context.repository)?;
    let _log = OperationLog::open(&context.repository)?;
    let (views, unreadable) = context.sessions()?;
    let open = views.iter().filter(|view| !view.state.is_over()).map(|view| &view.record.id);
    let ids = open.chain(unreadable.iter().map(|(id, _)| id));
    let held: Option<Vec<Lock>> = ids.map(|id| context.store.lock(id).ok().flatten()).collect();
    if held.is_some() {
        let places: Vec<_> = views.into_iter().map(|view| view.record.session_repo).collect();
        found.mended.extend(import::remove_leftovers(&context.repository)?);
        found.mended.extend(recreate_worktree::remove_leftovers(&places)?);
    }
    Ok(())
}

/// Checks what studio needs from the machine.
fn surroundings(found: &mut Findings) {
    if base::process::find_program("g3").is_none()
        && !std::path::Path::new(&studio_core::launch::registry::g3_program()).is_absolute()
    {
        found.open.push("`g3` is neither next to studio nor in PATH: install it, or configure an agent in [studio.agents]".to_owned());
    }
    found.notes.extend(base::sandbox::lacking());
}
