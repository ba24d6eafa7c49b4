//! Forking a session: a new session that starts from another one's current work, and continues its
//! conversation where the agent can.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use base::failure::{Failure, OrFail, Result};
use studio_git::repo::Base;
use studio_git::safe_open::SafeDir;
use studio_git::snapshot::SnapshotLimits;
use studio_git::start_point::{self, CapturedWork, StartPoint};

use crate::project::Project;
use crate::session::collect;
use crate::session::record::SessionOrigin;
use crate::session::spec::{SessionSpec, SessionStart};
use crate::session_view::SessionView;

/// Maximum size in bytes of a file of a conversation that is copied.
const MAX_CONVERSATION_FILE: u64 = 1 << 30;
/// The directory of g3's state in the directory of a session.
const STATE_DIRECTORY: &str = "agent-state/sessions";

/// Fills in the specification of a session that forks another: start, origin, and whatever was not
/// given: task, agent, persona, model, profile and checks.
pub fn fork(project: &Project, source: &SessionView, spec: &mut SessionSpec) -> Result<()> {
    let record = &source.record;
    let captured = capture(project, source)?;
    let same_agent = spec.agent.as_ref().is_none_or(|agent| *agent == record.agent);
    if same_agent {
        spec.agent = Some(record.agent.clone());
        spec.persona = spec.persona.take().or_else(|| record.persona.clone());
        spec.model = spec.model.take().or_else(|| record.model.clone());
        spec.profile = spec.profile.take().or_else(|| record.profile.clone());
    }
    let message = (!spec.task.trim().is_empty()).then(|| spec.task.clone());
    if message.is_none() {
        spec.task.clone_from(&record.task);
    }
    spec.checks.extend(record.checks.iter().cloned());
    let conversation = source.facts.summary.conversation_id.clone();
    let conversation_id = conversation.filter(|id| {
        let directory = project.store.file(&record.id, STATE_DIRECTORY).join(id);
        let is_here = spec.run_mode.place.is_none();
        same_agent && is_here && is_name(id) && directory.is_dir()
    });
    spec.start = Some(SessionStart {
        base: record.base.clone(),
        head: captured.head.clone(),
        work: Some(Arc::new(captured)),
        origin: Some(SessionOrigin {
            id: record.id.clone(),
            task: record.task.clone(),
            last_message: source.facts.summary.last_message.clone(),
            message,
            conversation_id,
        }),
    });
    Ok(())
}

/// Returns the start of a session on top of another one: at its current work, and with its branch as
/// the base.
pub fn start_on_top_of(project: &Project, lower: &SessionView) -> Result<SessionStart> {
    if lower.state.is_over() {
        return Err(Project::already_ended(lower));
    }
    let captured = capture(project, lower)?;
    let branch = Some(lower.record.session_repo.branch.clone());
    let base = Base { branch, commit: captured.head.clone() };
    let head = captured.head.clone();
    Ok(SessionStart { base, head, work: Some(Arc::new(captured)), origin: None })
}

/// Returns the start of a session on top of one that has ended, at its collected work: what is
/// uncommitted there counts as the work of that session only.
pub fn start_on_collected_work(lower: &SessionView) -> Option<SessionStart> {
    let commit = lower.work()?.commit().to_owned();
    let branch = Some(lower.record.session_repo.branch.clone());
    let start = StartPoint { work: commit.clone(), staged: None };
    Some(SessionStart {
        base: Base { branch, commit: commit.clone() },
        head: commit.clone(),
        // It keeps the commit until the session has a branch.
        work: Some(Arc::new(CapturedWork::of_commits(commit, start))),
        origin: None,
    })
}

/// Brings the source's work into the repository; without a worktree, the work that was collected
/// last.
fn capture(project: &Project, source: &SessionView) -> Result<CapturedWork> {
    let (repository, record) = (&project.repository, &source.record);
    if let Some((imported, content)) = collect::read_current(repository, record)? {
        let now = project.clock.now();
        let session_repo = &record.session_repo;
        return start_point::capture_session(
            repository,
            session_repo,
            &imported.head,
            &content,
            now,
        );
    }
    match source.work() {
        Some(work) => Ok(CapturedWork::of_commits(
            work.head.clone(),
            StartPoint { work: work.commit().to_owned(), staged: None },
        )),
        None => Err(Failure::refused(format!("session `{}` has no work yet", record.id))
            .because(format!("it is {}", source.state.name()))
            .hint(format!("studio status {}", record.id))),
    }
}

/// Reads the uncommitted work of a worktree of the user as the start of a session.
pub fn start_from_worktree(project: &Project, path: &Path) -> Result<SessionStart> {
    let limits = SnapshotLimits::default();
    let now = project.clock.now();
    let (base, captured) = start_point::capture_checkout(&project.repository, path, &limits, now)?;
    Ok(SessionStart {
        head: base.commit.clone(),
        base,
        work: Some(Arc::new(captured)),
        origin: None,
    })
}

/// Copies the conversation of a forked session into the directory of the new one. Without it the
/// agent gets a recap.
pub(crate) fn clone_conversation(
    project: &Project,
    id: &base::id::Id,
    origin: &SessionOrigin,
) -> Result<()> {
    let Some(conversation) = &origin.conversation_id else { return Ok(()) };
    let source = project.store.file(&origin.id, STATE_DIRECTORY).join(conversation);
    let target = project.store.file(id, STATE_DIRECTORY).join(conversation);
    let copy = || copy_directory(&SafeDir::open(&source)?, &target);
    copy().or_fail(|| format!("cannot copy the conversation of `{}`", origin.id))
}

/// Copies the regular files of a directory that an agent can write; symlinks are not followed.
fn copy_directory(source: &SafeDir, target: &Path) -> io::Result<()> {
    fs::create_dir_all(target)?;
    for name in source.names()? {
        let path = target.join(&name);
        let directory = name.to_str().map(|name| source.open_existing(name));
        match directory {
            Some(Ok(Some(directory))) => copy_directory(&directory, &path)?,
            Some(Ok(None) | Err(_)) | None => {
                source.copy(&name, MAX_CONVERSATION_FILE, &path)?;
            }
        }
    }
    Ok(())
}

/// Returns whether a text is one file name.
fn is_name(text: &str) -> bool {
    !text.is_empty() && text != "." && text != ".." && !text.contains(['/', '\0'])
}
