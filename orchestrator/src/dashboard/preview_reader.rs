//! Reads the journal of the selected session for its preview, as it grows.

use std::time::{Duration, Instant};

use base::id::Id;
use studio_core::inbox::InboxQuestion;
use studio_core::overview::RowKey;
use studio_core::project::Project;
use studio_core::session::journal::JournalTail;
use studio_core::session_view::SessionView;

use crate::dashboard::background::BackgroundTasks;
use crate::dashboard::preview::{PreviewContent, RequestText};
use crate::report::journal::JournalReader;

/// The part of a journal that is read: a preview shows the end of a long one.
const MAX_JOURNAL_BYTES: u64 = 2 << 20;
/// The minimum time between two readings of the diff of a session that is at work.
const DIFF_INTERVAL: Duration = Duration::from_secs(2);

/// The journal of the selected session.
pub(crate) struct PreviewReader {
    key: RowKey,
    tail: JournalTail,
    log: JournalReader,
    /// The version of the session whose diff was requested last, and when.
    requested: Option<(Option<String>, Instant)>,
    is_reading_diff: bool,
}

impl PreviewReader {
    /// Creates a reader for a row, and empties the preview.
    pub(crate) fn open(
        project: &Project,
        key: &RowKey,
        content: &mut PreviewContent,
    ) -> PreviewReader {
        *content = PreviewContent::default();
        let path = project.store.file(&key.id, "journal.jsonl");
        PreviewReader {
            key: key.clone(),
            tail: JournalTail::from_last(path, MAX_JOURNAL_BYTES),
            log: JournalReader::default(),
            requested: None,
            is_reading_diff: false,
        }
    }

    /// Returns the row.
    pub(crate) fn key(&self) -> &RowKey {
        &self.key
    }

    /// Reads new entries.
    pub(crate) fn read(&mut self, view: Option<&SessionView>, content: &mut PreviewContent) {
        // A journal that cannot be read is shown as it was; the list says what is wrong.
        let lines = self.tail.read_new().unwrap_or_default();
        content.timeline.add_lines(&lines);
        content.log.extend(lines.iter().filter_map(|line| self.log.text(line)));
        content.request = self.key.request.and_then(|number| {
            let view = view?;
            let request = view.facts.summary.open_requests.get(&number)?;
            let (agent, worktree) = (&view.record.agent, &view.record.session_repo.worktree);
            let question = InboxQuestion { view, number, request };
            Some(RequestText {
                always_text: request.always_allow_text(),
                never_hint: question.never_hint(),
                head: format!("{} asks for permission {number}:", view.record.id),
                place: format!("{agent}, in {}", worktree.display()),
                description: request.description.clone(),
            })
        });
    }

    /// Requests the diff of the session's current version, unless that was done.
    pub(crate) fn request_diff(&mut self, view: &SessionView, tasks: &BackgroundTasks) {
        let version = view.facts.summary.updated_at.clone();
        let is_requested = match &self.requested {
            None => false,
            Some((requested, _)) if *requested == version => true,
            Some((_, time)) => view.state.is_active() && time.elapsed() < DIFF_INTERVAL,
        };
        if !is_requested && !self.is_reading_diff {
            tasks.diff(&view.record.id);
            self.requested = Some((version, Instant::now()));
            self.is_reading_diff = true;
        }
    }

    /// Takes a diff that was read; returns whether it belongs to the selected session.
    pub(crate) fn take_diff(
        &mut self,
        id: &Id,
        diff: Result<String, String>,
        content: &mut PreviewContent,
    ) -> bool {
        if self.key.id != *id {
            return false;
        }
        self.is_reading_diff = false;
        content.diff = Some(diff);
        true
    }
}
