//! The journal of a session: `session.jsonl`, one entry per line, appended before anything is
//! shown.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread::JoinHandle;

use base::clock::Clock;
use base::failure::{OrFail, Result};
use base::files::{self, Journal};

use super::Session;
use super::snapshot::SessionSnapshot;
use crate::context::{ConversationEntry, ConversationLog};

/// Writes the journal. Flushing to disk happens on a separate thread, so that the next model
/// request does not wait for it.
pub(crate) struct SessionJournal {
    dir: PathBuf,
    journal: Journal,
    snapshot: SessionSnapshot,
    clock: Clock,
    /// Whether something was written since the last flush.
    dirty: bool,
    flusher: Option<(mpsc::Sender<SessionSnapshot>, JoinHandle<()>)>,
}

impl SessionJournal {
    /// Opens a session's journal and returns the existing entries.
    pub(crate) fn open(
        session: &Session,
        clock: Clock,
    ) -> Result<(SessionJournal, Vec<ConversationEntry>)> {
        let path = session.journal_path();
        let failed = || format!("cannot open {}", path.display());
        let entries: Vec<ConversationEntry> = files::read_journal(&path).or_fail(failed)?;
        let journal = Journal::open(&path).or_fail(failed)?;
        let mut snapshot = SessionSnapshot::new(session.id.as_str());
        entries.iter().for_each(|entry| snapshot.apply(entry, None));
        let flusher = Some(start_flusher(session.dir.clone()));
        let dir = session.dir.clone();
        Ok((SessionJournal { dir, journal, snapshot, clock, dirty: false, flusher }, entries))
    }
}

impl ConversationLog for SessionJournal {
    fn append(&mut self, entry: &ConversationEntry) -> io::Result<()> {
        files::step(step_name(entry));
        self.journal.append(entry)?;
        self.snapshot.apply(entry, Some(self.clock.stamp()));
        self.dirty = true;
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.dirty = false;
        if let Some((tx, _)) = &self.flusher {
            // A dead flusher means a full disk; the next write reports it.
            let _ = tx.send(self.snapshot.clone());
        }
        Ok(())
    }

    fn write_file(&mut self, folder: &str, name: &str, text: &str) -> io::Result<PathBuf> {
        // Call ids come from providers, so they are not safe as file names.
        let sanitize = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
        let (stem, extension) = name.rsplit_once('.').unwrap_or((name, "txt"));
        let stem: String = stem.chars().map(sanitize).take(80).collect();
        let dir = self.dir.join(folder);
        fs::create_dir_all(&dir)?;
        let path = dir.join(format!("{stem}.{extension}"));
        files::step("g3.session.aside");
        files::replace(&path, text.as_bytes())?;
        Ok(path)
    }
}

impl Drop for SessionJournal {
    fn drop(&mut self) {
        if let Some((tx, thread)) = self.flusher.take() {
            if self.dirty {
                let _ = tx.send(self.snapshot.clone());
            }
            drop(tx);
            let _ = thread.join();
        }
    }
}

fn start_flusher(dir: PathBuf) -> (mpsc::Sender<SessionSnapshot>, JoinHandle<()>) {
    let (tx, rx) = mpsc::channel::<SessionSnapshot>();
    let thread = std::thread::spawn(move || {
        while let Ok(mut snapshot) = rx.recv() {
            while let Ok(newer) = rx.try_recv() {
                snapshot = newer;
            }
            if flush(&dir, &snapshot).is_err() {
                return;
            }
        }
    });
    (tx, thread)
}

fn flush(dir: &std::path::Path, snapshot: &SessionSnapshot) -> io::Result<()> {
    fs::File::open(dir.join("session.jsonl"))?.sync_data()?;
    files::step("g3.session.snapshot");
    files::replace_json(&dir.join("session.json"), snapshot)
}

fn step_name(entry: &ConversationEntry) -> &'static str {
    match entry {
        ConversationEntry::Opened { .. } => "g3.journal.opened",
        ConversationEntry::Request { .. } => "g3.journal.request",
        ConversationEntry::Prompt { .. } => "g3.journal.prompt",
        ConversationEntry::Steered { .. } => "g3.journal.steered",
        ConversationEntry::Reply { .. } => "g3.journal.reply",
        ConversationEntry::Result { .. } => "g3.journal.result",
        ConversationEntry::Thinned { .. } => "g3.journal.thinned",
        ConversationEntry::Compacted { .. } => "g3.journal.compacted",
        ConversationEntry::Dehydrated { .. } => "g3.journal.dehydrated",
        ConversationEntry::Rehydrated { .. } => "g3.journal.rehydrated",
        ConversationEntry::Rewound { .. } => "g3.journal.rewound",
        ConversationEntry::Noted { .. } => "g3.journal.noted",
        ConversationEntry::Cleared => "g3.journal.cleared",
        ConversationEntry::Ended { .. } => "g3.journal.ended",
    }
}
