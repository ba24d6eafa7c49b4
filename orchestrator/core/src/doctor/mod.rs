//! Finds and repairs leftovers of crashes, moves and other programs, and says what this machine
//! supports. It has no terminal in it.

mod git_locks;
mod machine;
mod orphans;
mod processes;
mod temporary_files;

use base::failure::Result;
use base::lock::Lock;
use serde_json::{Value, json};
use studio_git::gc::{self, RetentionPolicy};
use studio_git::move_worktree::Relocation;
use studio_git::names::WorktreeTemplate;
use studio_git::oplog::{LogEntries, OperationLog};
use studio_git::{
    import, merge, move_worktree, moved_repository, pool, recreate_worktree, refs, transaction,
    worktree,
};

pub use crate::doctor::machine::Capability;
use crate::project::Project;
use crate::session::state::SessionState;
use crate::session_view::SessionView;
use crate::standing;

/// The findings.
#[derive(Default)]
pub struct Findings {
    /// What was repaired, one sentence each.
    pub repaired: Vec<String>,
    /// What the user must decide, with the command to run.
    pub open: Vec<String>,
    /// What is good to know.
    pub notes: Vec<String>,
    /// What git and the kernel support.
    pub machine: Vec<Capability>,
}

/// What is repaired only if the user wants it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Repairs {
    /// Move worktrees out of the main checkout.
    pub move_worktrees: bool,
    /// Discard worktrees and branches that belong to no session.
    pub discard_orphans: bool,
}

impl Findings {
    /// Returns the findings as JSON.
    pub fn json(&self) -> Value {
        json!({
            "schema": 1, "mended": self.repaired, "open": self.open, "notes": self.notes,
            "machine": self.machine,
        })
    }
}

/// Examines a repository and repairs what can be repaired without a decision of the user.
pub fn examine(project: &Project, repairs: Repairs) -> Result<Findings> {
    let mut findings =
        Findings { repaired: transaction::recover(&project.repository)?, ..Findings::default() };
    let (mut views, unreadable) = project.sessions()?;
    for view in &views {
        check_session(project, view, &mut findings)?;
    }
    standing::compare(&project.repository, &project.store, &mut views);
    findings.open.extend(standing::landed_elsewhere(&views));
    for (id, failure) in &unreadable {
        findings.open.push(format!(
            "{}; its branch and worktree are kept: repair the file, or move {} away",
            failure.sentence(),
            project.store.dir(id).display(),
        ));
    }
    for line in LogEntries::read(&project.repository)?.unreadable() {
        findings.open.push(format!(
            "{}: its operation is not touched; repair or remove the line in {}",
            line.sentence(),
            project.store.root().join("operations.jsonl").display(),
        ));
    }
    check_worktree_locations(project, &views, repairs.move_worktrees, &mut findings)?;
    orphans::check(project, repairs.discard_orphans, &mut findings)?;
    findings.open.extend(git_locks::of_repository(&project.repository));
    findings.repaired.extend(pool::repair(&project.repository)?);
    remove_leftovers(project, &mut findings)?;
    check_trash(project, &mut findings)?;
    check_environment(&mut findings);
    findings.machine = machine::capabilities(project);
    let started = project.schedule()?;
    findings.repaired.extend(started.iter().map(|id| format!("started `{id}`, which was waiting")));
    Ok(findings)
}

/// Checks one session.
fn check_session(project: &Project, view: &SessionView, findings: &mut Findings) -> Result<()> {
    let id = &view.record.id;
    let session_repo = &view.record.session_repo;
    if view.state.is_over() {
        return Ok(());
    }
    // The session is in use: nothing there is a leftover.
    let Some(_lock) = project.store.lock(id)? else { return Ok(()) };
    let _shell_lock = match project.store.lock_shell(id) {
        Ok(shell_lock) => shell_lock,
        Err(error) => {
            findings.notes.push(format!("skipped `{id}`: {}", error.into_cause()));
            return Ok(());
        }
    };
    if !worktree::is_finished(session_repo) {
        if worktree::admin_dir_of(&project.repository, &session_repo.worktree)?.is_some()
            || session_repo.git_dir.exists()
        {
            worktree::remove_incomplete(&project.repository, session_repo)?;
            findings.repaired.push(format!("removed the half-made worktree of `{id}`"));
        }
    } else if session_repo.worktree.symlink_metadata().is_err()
        && session_repo.git_dir.exists()
        // The files of one at a place are there.
        && view.record.run_mode.place.is_none()
    {
        findings.open.push(format!(
            "the worktree of `{id}` is missing; its commits and its latest snapshot are safe: studio \
             resume {id} recreates it, studio accept {id} lands them, studio discard {id} discards them"
        ));
    }
    if worktree::is_finished(session_repo) {
        findings.repaired.extend(moved_repository::repair(&project.repository, session_repo)?);
        if let Err(failure) = import::check_pointer(session_repo) {
            findings.open.push(failure.full_text());
        }
    }
    if refs::read(&*project.repository.open()?, &merge::ref_name(session_repo))?.is_some() {
        merge::release(&project.repository, session_repo)?;
        findings.repaired.push(format!("released what `{id}` held for landing"));
    }
    findings.repaired.extend(git_locks::remove_from_session(session_repo));
    let temporary = project.store.file(id, "tmp");
    let ended = processes::end_leaked(&temporary).into_iter();
    findings.repaired.extend(ended.map(|text| format!("{text}, left over from `{id}`")));
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
    project: &Project,
    views: &[SessionView],
    wants_move: bool,
    findings: &mut Findings,
) -> Result<()> {
    let repository = &project.repository;
    let template = WorktreeTemplate::parse(&project.config.studio.worktree)?;
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
        match (project.store.lock(id)?, project.store.lock_shell(id)) {
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
    move_worktree::relocate(repository, &relocations, &project.clock.stamp())?;
    for Relocation { session_repo: place, new_worktree: to } in &relocations {
        findings.repaired.push(format!("moved the worktree of `{}` to {}", place.id, to.display()));
    }
    Ok(())
}

/// Removes incomplete records, scratch directories and `.keep` files, while no import is running.
fn remove_leftovers(project: &Project, findings: &mut Findings) -> Result<()> {
    let sessions = project.store.root().join("sessions");
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
    let _schedule_lock = crate::schedule::lock(&project.repository)?;
    let _oplog = OperationLog::open(&project.repository)?;
    let (views, unreadable) = project.sessions()?;
    findings.repaired.extend(temporary_files::remove(project, &views));
    let open = views.iter().filter(|view| !view.state.is_over()).map(|view| &view.record.id);
    let ids = open.chain(unreadable.iter().map(|(id, _)| id));
    let locks: Option<Vec<Lock>> = ids.map(|id| project.store.lock(id).ok().flatten()).collect();
    // A queue and the checks in the background hold no session's lock.
    let is_merging = ["queue.lock", "recheck.lock"]
        .iter()
        .any(|name| Lock::is_held(&project.store.root().join(name)).unwrap_or(true));
    if locks.is_some() && !is_merging {
        let session_repos: Vec<_> =
            views.into_iter().map(|view| view.record.session_repo).collect();
        findings.repaired.extend(import::remove_leftovers(&project.repository)?);
        findings.repaired.extend(recreate_worktree::remove_leftovers(&session_repos)?);
    }
    Ok(())
}

/// Reports old trash, which only `gc` deletes.
fn check_trash(project: &Project, findings: &mut Findings) -> Result<()> {
    let policy = RetentionPolicy::default();
    let expired = gc::preview(&project.repository, policy, project.clock.now())?;
    if !expired.operations.is_empty() {
        let (count, days) = (expired.operations.len(), policy.days);
        let operations = if count == 1 { "operation" } else { "operations" };
        findings.notes.push(format!(
            "the trash holds {} MiB of {count} {operations} older than {days} days or beyond {} GB: \
             studio gc",
            expired.bytes.div_ceil(1 << 20),
            policy.bytes / 1_000_000_000,
        ));
    }
    Ok(())
}

/// Checks that the default agent is installed.
fn check_environment(findings: &mut Findings) {
    if base::process::find_program("g3").is_none()
        && !std::path::Path::new(&crate::launch::registry::g3_program()).is_absolute()
    {
        findings.open.push("`g3` is neither next to studio nor in PATH: install it, or configure an agent in [studio.agents]".to_owned());
    }
}
