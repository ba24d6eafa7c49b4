//! A connection over which a place sends a session home.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::time::{Duration, Instant};

use base::clock::Clock;
use base::failure::{Failure, OrFail, Result};
use base::files;
use base::process::{AsyncRunning, OutputLimits, Stream};
use serde::Serialize;
use studio_git::lfs_objects;
use studio_git::replica::{self, WorkRefs};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStderr, ChildStdout};

use crate::notification::Notifier;
use crate::place::frames::{self, PlaceFrame};
use crate::place::host::{Host, HostError};
use crate::place::keeper::{Keeper, json_line};
use crate::place::protocol::Order;
use crate::place::protocol::{Delivered, FollowQuery};
use crate::session::journal::{JournalEntry, JournalLine};
use crate::session::summary::JournalSummary;

/// A place that sends nothing for this long is gone.
pub(super) const SILENCE: Duration = Duration::from_secs(20);
/// How often the time of the last contact is saved.
const CONTACT_INTERVAL: Duration = Duration::from_secs(15);
/// The interval of scheduler calls.
const TICK_INTERVAL: Duration = Duration::from_secs(30);
/// Maximum length of a line of the journal, in bytes.
const MAX_LINE_BYTES: usize = 16 << 20;
/// Timeout of a delivery, in seconds.
const DELIVER_SECONDS: u64 = 1800;

/// How a connection ended.
pub(crate) enum FollowEnd {
    /// The run has ended, and everything is here.
    Ended,
    /// The place has a later delivery.
    Superseded,
    /// The connection broke, for this reason.
    Broken(String),
}

/// A connection.
pub(crate) struct PlaceLink<'a> {
    keeper: &'a Keeper,
    host: Host,
    notifier: &'a Notifier,
    process: AsyncRunning,
    output: BufReader<ChildStdout>,
    errors: ChildStderr,
    journal: files::Journal,
    /// The work that home has.
    work: WorkRefs,
    summary: JournalSummary,
    saved_contact: Option<Instant>,
    is_heard: bool,
    /// Whether a part of the agent's message has arrived.
    has_message: bool,
}

impl<'a> PlaceLink<'a> {
    /// Starts to follow the session at a host from where home's journal ends. If its job is over, nothing
    /// runs it there.
    pub(crate) async fn open(
        keeper: &'a Keeper,
        host: &Host,
        is_over: bool,
        notifier: &'a Notifier,
    ) -> Result<PlaceLink<'a>> {
        let (store, id) = (&keeper.store, &keeper.record.id);
        let fail = || "cannot follow the session at its place";
        // Drops a line that a killed keeper did not write completely.
        let journal = files::Journal::open(&keeper.journal()).or_fail(fail)?;
        let work = replica::work_refs(&keeper.repository, &keeper.record.session_repo)?;
        let work = work.unwrap_or_default();
        let query = FollowQuery {
            query: keeper.query(),
            attempt: keeper.placement().attempt,
            at: journal.length().or_fail(fail)?,
            work: work.clone(),
            is_over,
        };
        let command = host.node("follow").stdin(Stream::Piped);
        let mut process = command.spawn_async().or_fail(fail)?;
        let missing = || io::Error::other("a stream of the connection is missing");
        let mut input = process.child.stdin.take().ok_or_else(missing).or_fail(fail)?;
        // If it fails, the connection ends, and that is what is reported.
        let _ = input.write_all(&json_line(&query)).await;
        drop(input);
        let output = process.child.stdout.take().ok_or_else(missing).or_fail(fail)?;
        let errors = process.child.stderr.take().ok_or_else(missing).or_fail(fail)?;
        Ok(PlaceLink {
            keeper,
            host: host.clone(),
            notifier,
            process,
            output: BufReader::new(output),
            errors,
            journal,
            work,
            summary: store.summary(id)?,
            saved_contact: None,
            is_heard: false,
            has_message: false,
        })
    }

    /// Returns whether the place sent anything.
    pub(crate) fn was_heard(&self) -> bool {
        self.is_heard
    }

    /// Takes everything that the place sends until the connection ends.
    pub(crate) async fn run(&mut self, on_tick: impl Fn()) -> Result<FollowEnd> {
        let mut last_tick = Instant::now();
        loop {
            let frame = match tokio::time::timeout(SILENCE, frames::read(&mut self.output)).await {
                Ok(Ok(Some(frame))) => frame,
                Ok(Ok(None)) => return Ok(FollowEnd::Broken(self.end_reason().await)),
                Ok(Err(error)) => return Ok(self.broken(&error.to_string())),
                Err(_) => {
                    let seconds = SILENCE.as_secs();
                    return Ok(self.broken(&format!("it sent nothing for {seconds} s")));
                }
            };
            match self.take(frame).await {
                Ok(None) => {}
                Ok(Some(end)) => return Ok(end),
                Err(Refusal::Broken(reason)) => return Ok(self.broken(&reason)),
                Err(Refusal::AtHome(failure)) => return Err(failure),
            }
            self.note_contact()?;
            if last_tick.elapsed() > TICK_INTERVAL {
                last_tick = Instant::now();
                on_tick();
            }
        }
    }

    async fn take(&mut self, frame: PlaceFrame) -> std::result::Result<Option<FollowEnd>, Refusal> {
        match frame {
            PlaceFrame::Work { work, bytes } => {
                self.refuse_full_disk(bytes)?;
                let pack = frames::read_file(&mut self.output, bytes).await?;
                let (keeper, taken) = (self.keeper.clone(), work.clone());
                let take = move || {
                    let session_repo = &keeper.record.session_repo;
                    replica::take(&keeper.repository, session_repo, &taken, Some(pack))
                };
                let result = tokio::task::spawn_blocking(take).await;
                let result = result.map_err(io::Error::other)?;
                result.map_err(|failure| Refusal::Broken(failure.full_text()))?;
                self.work = work;
                files::step("place.work");
            }
            PlaceFrame::LfsFile(file) => {
                self.refuse_full_disk(file.bytes)?;
                let content = frames::read_file(&mut self.output, file.bytes).await?;
                let repository = self.keeper.repository.clone();
                let store = move || lfs_objects::store(&repository, &file, content);
                tokio::task::spawn_blocking(store).await.map_err(io::Error::other)??;
            }
            PlaceFrame::Journal { at, bytes } => {
                let lines = frames::read_bytes(&mut self.output, bytes).await?;
                self.append(at, &lines)?;
            }
            PlaceFrame::Message(part) => {
                self.keeper.live.add(part, !std::mem::replace(&mut self.has_message, true));
            }
            PlaceFrame::Checked { .. } => {
                return Err(Refusal::Broken("it sent an outcome of checks".to_owned()));
            }
            PlaceFrame::Alive => {}
            PlaceFrame::Ended => return Ok(Some(FollowEnd::Ended)),
            PlaceFrame::Superseded => return Ok(Some(FollowEnd::Superseded)),
        }
        Ok(None)
    }

    /// Appends lines to home's journal, as they are, if they continue it.
    fn append(&mut self, at: u64, lines: &[u8]) -> std::result::Result<(), Refusal> {
        let at_home = |error: io::Error| {
            Refusal::AtHome(Failure::failed("cannot write the journal").because(error))
        };
        let length = self.journal.length().map_err(at_home)?;
        if at != length {
            let what = format!("it sent the journal from byte {at}, and byte {length} is next");
            return Err(Refusal::Broken(what));
        }
        let Some(lines) = lines.strip_suffix(b"\n") else {
            return Err(Refusal::Broken("it sent an incomplete line of the journal".to_owned()));
        };
        let mut requests = Vec::new();
        for line in lines.split(|byte| *byte == b'\n') {
            let parsed = self.parse(line)?;
            self.journal.append_line(line).map_err(at_home)?;
            if let JournalEntry::Asked { n, .. } = &parsed.entry {
                requests.push(*n);
            }
            self.summary.add_line(&parsed);
        }
        self.journal.sync().map_err(at_home)?;
        files::step("place.journal");
        for number in requests {
            if let Some(request) = self.summary.open_requests.get(&number)
                && self.keeper.record.run_mode.attended
            {
                let reason = format!("permission {number}: {}", request.description);
                self.notifier.notify("waiting", &reason);
            }
        }
        Ok(())
    }

    /// Reads a line of the journal. Work that it names must be here.
    fn parse(&self, line: &[u8]) -> std::result::Result<JournalLine, Refusal> {
        if line.len() > MAX_LINE_BYTES {
            return Err(Refusal::Broken(
                "it sent a line of the journal that is too long".to_owned(),
            ));
        }
        let parsed: JournalLine = serde_json::from_slice(line).map_err(|error| {
            Refusal::Broken(format!("it sent a line of the journal that cannot be read: {error}"))
        })?;
        if let JournalEntry::Work(work) = &parsed.entry {
            let known = self.work.commits();
            let is_known = |commit: &str| {
                known.iter().any(|known| known == commit)
                    || replica::has_commit(&self.keeper.repository, commit)
            };
            let commits = work.base.iter().chain([&work.head]).chain(&work.snapshot);
            if let Some(missing) = commits.into_iter().find(|commit| !is_known(commit)) {
                let missing = base::text::printable(missing);
                return Err(Refusal::Broken(format!("it did not send the commit {missing}")));
            }
        }
        Ok(parsed)
    }

    /// Refuses a pack for which the disk has no room.
    fn refuse_full_disk(&self, bytes: u64) -> std::result::Result<(), Refusal> {
        let floor = self.keeper.record.limits.disk_floor_bytes.unwrap_or_default();
        match crate::admission::missing_disk(&self.keeper.repository.common_dir, bytes, floor) {
            Some(why) => {
                Err(Refusal::Broken(format!("the disk here has no room for its work: {why}")))
            }
            None => Ok(()),
        }
    }

    /// Saves that the place was heard of.
    fn note_contact(&mut self) -> Result<()> {
        self.is_heard = true;
        if self.saved_contact.is_some_and(|time| time.elapsed() < CONTACT_INTERVAL) {
            return Ok(());
        }
        self.saved_contact = Some(Instant::now());
        self.keeper.update(|placement| {
            placement.heard_at = Some(Clock::from_env().stamp());
            placement.problem = None;
        })
    }

    fn broken(&self, reason: &str) -> FollowEnd {
        FollowEnd::Broken(format!("{}: {}", self.host.name, base::text::printable(reason)))
    }

    /// Returns why the connection ended.
    async fn end_reason(&mut self) -> String {
        let mut text = Vec::new();
        let mut errors = (&mut self.errors).take(4096);
        let read = errors.read_to_end(&mut text);
        let _ = tokio::time::timeout(Duration::from_secs(1), read).await;
        let status = self.process.child.wait().await;
        let text = base::text::printable(String::from_utf8_lossy(&text).trim());
        let reason = match (text.is_empty(), status) {
            (false, _) => text,
            (true, Ok(status)) => format!("the connection ended: {status}"),
            (true, Err(error)) => error.to_string(),
        };
        format!("{}: {reason}", self.host.name)
    }
}

/// Why what a place sent is not taken.
enum Refusal {
    /// The connection is given up, and a new one tries again.
    Broken(String),
    /// Home cannot go on.
    AtHome(Failure),
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Refusal {
        Refusal::Broken(error.to_string())
    }
}

/// Returns the input of a command at a place: an order, a journal and a pack.
pub(super) fn order_input(order: &impl Serialize, journal: &[u8], mut pack: File) -> Result<File> {
    let fail = base::files::cannot_make_temporary;
    let mut input = tempfile::tempfile().or_fail(fail)?;
    let mut write = || -> io::Result<()> {
        input.write_all(&json_line(order))?;
        input.write_all(journal)?;
        pack.rewind()?;
        io::copy(&mut pack, &mut input)?;
        input.rewind()
    };
    write().or_fail(fail)?;
    Ok(input)
}

/// Sends a session to a host.
pub(crate) fn send_order(
    host: &Host,
    order: &Order,
    journal: &[u8],
    pack: File,
) -> std::result::Result<Delivered, HostError> {
    let stream = order_input(order, journal, pack).map_err(HostError::Failed)?;
    let command = host.node("deliver").stdin(Stream::File(stream));
    let output = host.checked(command.output(OutputLimits::seconds(DELIVER_SECONDS)))?;
    host.answer(&output)
}
