//! The commit message of a landing, written before it where possible: when the session is ready.

use std::time::{Duration, Instant};

use base::failure::{OrFail, Result};
use base::id::Id;
use base::lock::Lock;

use crate::commit_message::{self, MessageWriter, Subject, TIMEOUT, WrittenMessage};
use crate::launch::registry::g3_program;
use crate::project::{Project, pause};
use crate::session::prepared_message::PreparedMessage;
use crate::session::record::SessionRecord;
use crate::session::state::SessionState;
use studio_git::diff;
use studio_git::merge::Candidate;

/// Held while the message of a session is being written.
const WRITER_LOCK: &str = "message.lock";
/// How often the writer of a message looks whether it is still needed.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How long a landing waits for a message that is being written, in addition to its timeout.
const WAIT_MARGIN: Duration = Duration::from_secs(5);

/// A change that a message describes.
struct Change<'a> {
    from: &'a str,
    to: &'a str,
    id: String,
}

impl<'a> Change<'a> {
    fn new(project: &Project, from: &'a str, to: &'a str) -> Result<Change<'a>> {
        let id = diff::change_id(&project.repository, from, to)?;
        Ok(Change { from, to, id })
    }
}

/// Writes the message of a ready session, unless it has one for its current work. The caller does
/// not hold the session's lock: the session can land or continue at the same time. Messages of one
/// repository are written one after another, because a local model serves one request at a time.
pub(crate) fn prepare(project: &Project, id: &Id) -> Result<()> {
    let Some((record, work, base)) = ready_work(project, id)? else { return Ok(()) };
    let change = Change::new(project, &base, &work)?;
    if stored(project, &record, &change.id).is_some() {
        return Ok(());
    }
    let Some(timeout) = remaining_time(project, &record)? else { return Ok(()) };
    let is_needed = || -> Result<bool> {
        Ok(ready_work(project, id)?.is_some_and(|(_, current, _)| current == work))
    };
    let turn_path = project.repository.studio_dir()?.join("messages.lock");
    let fail = || format!("cannot lock {}", turn_path.display());
    let mut checked = Instant::now();
    let _turn = loop {
        if let Some(turn) = Lock::try_take(&turn_path).or_fail(fail)? {
            break turn;
        }
        pause();
        if checked.elapsed() > CHECK_INTERVAL {
            checked = Instant::now();
            if !is_needed()? {
                return Ok(());
            }
        }
    };
    // A landing may be writing it, or have written it.
    let Some(_writer) = try_lock(project, id)? else { return Ok(()) };
    if !is_needed()? || stored(project, &record, &change.id).is_some() {
        return Ok(());
    }
    let until_unneeded = async {
        loop {
            tokio::time::sleep(CHECK_INTERVAL).await;
            if !is_needed().unwrap_or(false) {
                return;
            }
        }
    };
    let runtime = base::runtime::current_thread().or_fail(|| "cannot start the runtime")?;
    let written = runtime.block_on(async {
        tokio::select! {
            written = write(project, &record, &change, timeout) => written.map(Some),
            () = until_unneeded => Ok(None),
        }
    })?;
    if let Some(written) = written {
        store(project, &record, &change, &work, &written);
    }
    Ok(())
}

/// Returns the message for merged work: the stored one if it describes the same change, else a new
/// one.
pub(crate) fn for_candidate(
    project: &Project,
    record: &SessionRecord,
    candidate: &Candidate,
) -> Result<WrittenMessage> {
    let change = Change::new(project, &candidate.target_tip, &candidate.merged_commit)?;
    if let Some(message) = stored(project, record, &change.id) {
        return Ok(message);
    }
    let _step = project.console.step(&record.id, "writing the commit message");
    let end = Instant::now() + TIMEOUT + WAIT_MARGIN;
    let _writer = loop {
        let lock = try_lock(project, &record.id)?;
        if lock.is_some() || Instant::now() > end {
            break lock;
        }
        project.interrupt.check()?;
        pause();
    };
    if let Some(message) = stored(project, record, &change.id) {
        return Ok(message);
    }
    let runtime = base::runtime::current_thread().or_fail(|| "cannot start the runtime")?;
    let written =
        runtime.block_on(project.interrupt.or(write(project, record, &change, TIMEOUT)))??;
    store(project, record, &change, &candidate.work, &written);
    Ok(written)
}

/// Returns the text of a message for the changes between two commits: the stored one if it describes
/// them, else a new one.
pub(crate) fn text_between(
    project: &Project,
    record: &SessionRecord,
    from: &str,
    to: &str,
) -> Result<String> {
    let change = Change::new(project, from, to)?;
    if let Some(message) = stored(project, record, &change.id) {
        return Ok(message.message.text);
    }
    let _step = project.console.step(&record.id, "writing the message");
    let runtime = base::runtime::current_thread().or_fail(|| "cannot start the runtime")?;
    let written =
        runtime.block_on(project.interrupt.or(write(project, record, &change, TIMEOUT)))??;
    Ok(written.message.text)
}

/// Returns the record of a ready session, the commit with its work, and the commit to compare with.
fn ready_work(project: &Project, id: &Id) -> Result<Option<(SessionRecord, String, String)>> {
    let view = project.view(id)?;
    if view.state != SessionState::Ready && view.state != SessionState::Landing {
        return Ok(None);
    }
    let Some(work) = view.work() else { return Ok(None) };
    let (base, commit) = (work.base.clone(), work.commit().to_owned());
    let base = base.unwrap_or_else(|| view.record.base.commit.clone());
    Ok(Some((*view.record, commit, base)))
}

/// Returns how long the model may take: a session does not exceed its time limit by its message.
fn remaining_time(project: &Project, record: &SessionRecord) -> Result<Option<Duration>> {
    let Some(seconds) = record.limits.seconds else { return Ok(Some(TIMEOUT)) };
    let worked = Duration::from_millis(project.store.summary(&record.id)?.worked_ms);
    let remaining = Duration::from_secs(seconds).saturating_sub(worked).min(TIMEOUT);
    Ok(Some(remaining).filter(|remaining| !remaining.is_zero()))
}

fn try_lock(project: &Project, id: &Id) -> Result<Option<Lock>> {
    let path = project.store.file(id, WRITER_LOCK);
    Lock::try_take(&path).or_fail(|| format!("cannot lock {}", path.display()))
}

fn stored(project: &Project, record: &SessionRecord, change: &str) -> Option<WrittenMessage> {
    let message = PreparedMessage::read(&project.store, &record.id)?;
    (message.change == change).then(|| commit_message::from_model(record, &message.text))
}

fn store(
    project: &Project,
    record: &SessionRecord,
    change: &Change<'_>,
    work: &str,
    written: &WrittenMessage,
) {
    if written.author != "model" {
        return;
    }
    let (work, text) = (work.to_owned(), written.message.text.clone());
    let message = PreparedMessage { work, change: change.id.clone(), text };
    message.store(&project.store, &record.id);
}

/// Asks a model for the message of a change; returns a plain one if the model fails.
async fn write(
    project: &Project,
    record: &SessionRecord,
    change: &Change<'_>,
    timeout: Duration,
) -> Result<WrittenMessage> {
    let repository = &project.repository;
    let patch = diff::patch(repository, change.from, change.to)?;
    let stats = diff::stats(repository, change.from, change.to)?;
    let stat = format!(
        "{}\n{} files, +{} -{}",
        stats.paths.join("\n"),
        stats.files,
        stats.insertions,
        stats.deletions
    );
    let mut command = vec![g3_program(), "complete".to_owned()];
    if let Some(provider) = &project.config.providers.commit {
        command.extend(["--provider".to_owned(), provider.clone()]);
    }
    let writer = MessageWriter { command, timeout };
    let subject = Subject { record, stat: &stat, patch: &patch };
    let directory = repository.main_checkout.as_ref().unwrap_or(&repository.common_dir);
    Ok(writer.write(&subject, directory).await)
}
