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
    repaired: Vec<String>,
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
    let mut findings =
        Findings { repaired: transaction::recover(&context.repository)?, ..Findings::default() };
    let (views, unreadable) = context.sessions()?;
    for view in &views {
        check_session(&context, view, &mut findings)?;
    }
    for (id, failure) in &unreadable {
        findings.open.push(format!(
            "{}; its branch and worktree are kept: repair the file, or move {} away",
            failure.sentence(),
            context.store.dir(id).display(),
        ));
    }
    for line in LogEntries::read(&context.repository)?.unreadable() {
        findings.open.push(format!(
            "{}: its operation is not touched; repair or remove the line in {}",
            line.sentence(),
            context.store.root().join("operations.jsonl").display(),
        ));
    }
    check_worktree_locations(&context, &views, args.move_worktrees, &mut findings)?;
    remove_leftovers(&context, &mut findings)?;
    check_environment(&mut findings);
    let started = context.schedule()?;
    findings.repaired.extend(started.iter().map(|id| format!("started `{id}`, which was waiting")));
    if context.json {
        report::json_line(&json!({
            "schema": 1, "mended": findings.repaired, "open": findings.open, "notes": findings.notes,
        }));
    } else {
        findings.repaired.iter().for_each(|text| report::out(&format!("repaired: {text}")));
        findings.open.iter().for_each(|text| report::out(&format!("to do:  {text}")));
        findings.notes.iter().for_each(|text| report::out(&format!("note:   {text}")));
        if findings.repaired.is_empty() && findings.open.is_empty() {
            report::out("no problems found");
        }
    }
    Ok(u8::from(!findings.open.is_empty()))
}

/// Checks one session.
fn check_session(
    context: &CommandContext,
    view: &SessionView,
    findings: &mut Findings,
) -> Result<()> {
    let id = &view.record.id;
    let session_repo = &view.record.session_repo;
    if view.state.is_over() {
        return Ok(());
    }
    // The session is in use: nothing there is a leftover.
    let Some(_lock) = context.store.lock(id)? else { return Ok(()) };
    let _shell_lock = match context.store.lock_shell(id) {
        Ok(shell_lock) => shell_lock,
        Err(error) => {
            findings.notes.push(format!("skipped `{id}`: {}", error.into_cause()));
            return Ok(());
        }
    };
    if !worktree::is_finished(session_repo) {
        if worktree::admin_dir_of(&context.repository, &session_repo.worktree)?.is_some()
            || session_repo.git_dir.exists()
        {
            worktree::remove_incomplete(&context.repository, session_repo)?;
            findings.repaired.push(format!("removed the half-made worktree of `{id}`"));
        }
    } else if session_repo.worktree.symlink_metadata().is_err() && session_repo.git_dir.exists() {
        findings.open.push(format!(
            "the worktree of `{id}` is missing; its commits and its latest snapshot are safe: studio \
             resume {id} recreates it, studio accept {id} lands them, studio discard {id} discards them"
        ));
    }
    if worktree::is_finished(session_repo) {
        findings.repaired.extend(moved_repository::repair(&context.repository, session_repo)?);
        if let Err(failure) = import::check_pointer(session_repo) {
            findings.open.push(failure.full_text());
        }
    }
    if refs::read(&context.repository.open()?, &merge::ref_name(session_repo))?.is_some() {
        merge::release(&context.repository, session_repo)?;
        findings.repaired.push(format!("released what `{id}` held for landing"));
    }
    let temporary = context.store.file(id, "tmp");
    let removed = temporary.exists() && std::fs::remove_dir_all(&temporary).is_ok();
    // A shell also leaves temporary files, which is normal.
    if removed && view.state == SessionState::Crashed {
        findings.repaired.push(format!("removed the temporary files of `{id}`"));
    }
    if view.state == SessionState::Crashed {
        findings.open.push(format!("`{id}` crashed; everything is kept: studio resume {id}"));
    }
    Ok(())
}

/// Reports worktrees inside the main checkout, where earlier versions created them: programs that
/// search parent directories find the main checkout's files. They are moved if requested, except
/// those of running sessions.
fn check_worktree_locations(
    context: &CommandContext,
    views: &[SessionView],
    wants_move: bool,
    findings: &mut Findings,
) -> Result<()> {
    let repository = &context.repository;
    let template = WorktreeTemplate::parse(&context.config.studio.worktree)?;
    let Some(checkout) = &repository.main_checkout else { return Ok(()) };
    let is_misplaced = |view: &&SessionView| {
        let worktree = &view.record.session_repo.worktree;
        !view.state.is_over() && worktree.starts_with(checkout) && worktree.is_dir()
    };
    let misplaced: Vec<&SessionView> = views.iter().filter(is_misplaced).collect();
    if misplaced.is_empty() || template.parent(repository).starts_with(checkout) {
        return Ok(());
    }
    if !wants_move {
        let (count, are) = if misplaced.len() == 1 {
            ("1 worktree".to_owned(), "is")
        } else {
            (format!("{} worktrees", misplaced.len()), "are")
        };
        findings.notes.push(format!(
            "{count} {are} inside the main checkout, so checks find its files: studio doctor \
             --move-worktrees"
        ));
        return Ok(());
    }
    let (mut locks, mut relocations) = (Vec::new(), Vec::new());
    for view in misplaced {
        let id = &view.record.id;
        match (context.store.lock(id)?, context.store.lock_shell(id)) {
            (Some(lock), Ok(shell_lock)) => {
                locks.push((lock, shell_lock));
                let to = template.worktree(repository, id);
                relocations.push(Relocation {
                    session_repo: view.record.session_repo.clone(),
                    new_worktree: to,
                });
            }
            (None, _) | (_, Err(_)) => {
                findings.open.push(format!(
                    "`{id}` is in use; when it is free: studio doctor --move-worktrees"
                ));
            }
        }
    }
    if relocations.is_empty() {
        return Ok(());
    }
    move_worktree::relocate(repository, &relocations, &context.clock.stamp())?;
    for Relocation { session_repo: place, new_worktree: to } in &relocations {
        findings.repaired.push(format!("moved the worktree of `{}` to {}", place.id, to.display()));
    }
    Ok(())
}

/// Removes incomplete records, scratch directories and `.keep` files, while no import is running.
fn remove_leftovers(context: &CommandContext, findings: &mut Findings) -> Result<()> {
    let sessions = context.store.root().join("sessions");
    for entry in std::fs::read_dir(&sessions).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let is_old = entry.metadata().and_then(|meta| meta.modified()).ok();
        let is_old =
            is_old.and_then(|time| time.elapsed().ok()).is_some_and(|age| age.as_secs() > 60);
        if name.to_string_lossy().starts_with(".new-")
            && is_old
            && std::fs::remove_dir_all(entry.path()).is_ok()
        {
            findings.repaired.push(format!("removed the incomplete {}", entry.path().display()));
        }
    }
    // While these are held, no session is started, restored or imported.
    let _schedule_lock = studio_core::schedule::lock(&context.repository)?;
    let _oplog = OperationLog::open(&context.repository)?;
    let (views, unreadable) = context.sessions()?;
    let open = views.iter().filter(|view| !view.state.is_over()).map(|view| &view.record.id);
    let ids = open.chain(unreadable.iter().map(|(id, _)| id));
    let locks: Option<Vec<Lock>> = ids.map(|id| context.store.lock(id).ok().flatten()).collect();
    if locks.is_some() {
        let session_repos: Vec<_> =
            views.into_iter().map(|view| view.record.session_repo).collect();
        findings.repaired.extend(import::remove_leftovers(&context.repository)?);
        findings.repaired.extend(recreate_worktree::remove_leftovers(&session_repos)?);
    }
    Ok(())
}

/// Checks what studio needs from the machine.
fn check_environment(findings: &mut Findings) {
    if base::process::find_program("g3").is_none()
        && !std::path::Path::new(&studio_core::launch::registry::g3_program()).is_absolute()
    {
        findings.open.push("`g3` is neither next to studio nor in PATH: install it, or configure an agent in [studio.agents]".to_owned());
    }
    findings.notes.extend(base::sandbox::missing_features());
}
