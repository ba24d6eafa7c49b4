//! Sends home what happens in a session: files in Git LFS that its work names, its work, then the lines of
//! its journal that name it.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use base::failure::{OrFail, Result};
use studio_git::{lfs_objects, replica};

use crate::place::frames::{self, MAX_JOURNAL_BYTES, PlaceFrame};
use crate::place::node::spool::{self, Spool};
use crate::place::protocol::FollowQuery;
use crate::project::pause;
use crate::session::store::SessionStore;
use crate::session::summary::Phase;
use crate::supervisor::control::MessageParts;
use crate::supervisor::spawn;

/// The interval in which refs are looked at although the journal is unchanged.
const REFS_INTERVAL: Duration = Duration::from_secs(2);
/// The longest silence.
const ALIVE_INTERVAL: Duration = Duration::from_secs(5);

/// Starts the run if it waits, and sends everything until it has ended.
pub(super) fn follow(spool: &Spool, known: &FollowQuery, output: &mut impl Write) -> Result<()> {
    let (repository, id) = (spool.repository(&known.query)?, &known.query.id);
    let store = SessionStore::new(&repository.common_dir);
    let record = store.load(id)?.relocated(&repository)?;
    let journal = store.file(id, "journal.jsonl");
    let fail = || "cannot send the session home";
    let (mut at, mut sent) = (known.at, known.work.clone());
    let (mut last_frame, mut last_refs) = (Instant::now(), None::<Instant>);
    let (mut is_started, mut message) = (false, None::<MessageParts>);
    loop {
        if spool::attempt(&store, id) != Some(known.attempt) {
            return frames::write(output, &PlaceFrame::Superseded, &[]).or_fail(fail);
        }
        // Before the journal is read: if a run ends after that, its last lines are read below.
        let is_running = store.is_locked(id);
        message = message.filter(|_| is_running);
        if message.is_none() && is_running {
            message = MessageParts::open(&repository.common_dir, id);
        }
        if let Some(parts) = &mut message {
            match parts.read() {
                Some(parts) => {
                    for part in parts {
                        let frame = PlaceFrame::Message(part);
                        frames::write(output, &frame, &[]).or_fail(fail)?;
                        last_frame = Instant::now();
                    }
                }
                None => message = None,
            }
        }
        let lines = complete_lines(&journal, at).or_fail(fail)?;
        if !lines.is_empty() || last_refs.is_none_or(|time| time.elapsed() > REFS_INTERVAL) {
            last_refs = Some(Instant::now());
            if let Some(work) = replica::work_refs(&repository, &record.session_repo)?
                && work != sent
            {
                let existing: Vec<String> =
                    sent.commits().into_iter().chain([record.base.commit.clone()]).collect();
                for file in lfs_objects::added(&repository, &work.commits(), &existing)? {
                    let content = lfs_objects::open(&repository, &file).or_fail(fail)?;
                    frames::write_file(output, &PlaceFrame::LfsFile(file), content)
                        .or_fail(fail)?;
                }
                let pack = replica::pack(&repository, &work.commits(), &existing)?;
                let bytes = pack.metadata().or_fail(fail)?.len();
                let frame = PlaceFrame::Work { work: work.clone(), bytes };
                frames::write_file(output, &frame, pack).or_fail(fail)?;
                (sent, last_frame) = (work, Instant::now());
            }
        }
        if !lines.is_empty() {
            let frame = PlaceFrame::Journal { at, bytes: lines.len() as u64 };
            frames::write(output, &frame, &lines).or_fail(fail)?;
            at += lines.len() as u64;
            last_frame = Instant::now();
            continue;
        }
        if !is_running {
            if store.summary(id)?.phase != Phase::Queued || is_started || known.is_over {
                return frames::write(output, &PlaceFrame::Ended, &[]).or_fail(fail);
            }
            // A job runs it itself.
            if known.query.job.is_none()
                && let Some(lock) = store.lock(id)?
            {
                spawn::spawn(&repository.common_dir, id, lock)?;
                is_started = true;
            }
        }
        if last_frame.elapsed() > ALIVE_INTERVAL {
            frames::write(output, &PlaceFrame::Alive, &[]).or_fail(fail)?;
            last_frame = Instant::now();
        }
        pause();
    }
}

/// Returns the complete lines of a journal from an offset on.
fn complete_lines(path: &std::path::Path, at: u64) -> io::Result<Vec<u8>> {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::open(path)?;
    let length = file.metadata()?.len();
    let bytes = length.saturating_sub(at).min(MAX_JOURNAL_BYTES);
    let mut lines = vec![0; usize::try_from(bytes).map_err(io::Error::other)?];
    file.read_exact_at(&mut lines, at)?;
    let complete = lines.iter().rposition(|byte| *byte == b'\n').map_or(0, |index| index + 1);
    lines.truncate(complete);
    Ok(lines)
}
