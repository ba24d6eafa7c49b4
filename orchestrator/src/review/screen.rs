//! The state of a review on the screen, and what keys do to it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use base::failure::Result;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use studio_core::review::hunk::HunkDecision;
use studio_core::review::log::ReviewEntry;
use studio_core::review::syntax::{SyntaxHighlighter, SyntaxSpans};
use studio_core::review::{Review, words};
use studio_git::hunks::LineOrigin;

use crate::review::keys::{self, ReviewCommand};
use crate::review::rows::{ReviewRow, RowLayout, rows};

/// The minimum number of columns for both sides beside each other.
pub const SIDE_BY_SIDE_COLUMNS: u16 = 100;
/// The rows of the screen that are not for hunks: header and footer.
const FRAME_ROWS: u16 = 3;
/// The columns by which long lines are moved.
const COLUMN_STEP: usize = 20;

/// What the command must do for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReviewRequest {
    /// End the review.
    Quit,
    /// Show another session: this many further.
    Session(isize),
    /// Send comments and returned hunks.
    Send,
    /// Land the accepted hunks.
    LandAccepted,
    /// Land the whole session.
    LandSession,
    /// Open the editor for a comment.
    Editor(CommentTarget),
}

/// What a comment text is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommentTarget {
    /// A new comment on lines of a hunk.
    New {
        /// The index of the hunk.
        hunk: usize,
        /// The first and the last line.
        lines: (usize, usize),
    },
    /// An existing comment.
    Existing {
        /// Its number.
        number: u32,
        /// Its text.
        text: String,
    },
}

/// What the keys mean at the moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ReviewMode {
    /// Moving and deciding.
    #[default]
    Browse,
    /// A comment is being written in the last row.
    Comment {
        /// What it is for.
        target: CommentTarget,
        /// The text.
        text: String,
    },
    /// The help is shown, from this line on.
    Help(usize),
    /// A question waits for `y`.
    Confirm {
        /// The question.
        question: String,
        /// What to do.
        request: ReviewRequest,
    },
}

/// Colours and changed words of a hunk.
#[derive(Debug, Default)]
pub struct HunkMarks {
    /// The syntax of each line, if the language is known.
    pub syntax: Option<Vec<SyntaxSpans>>,
    /// The changed words of lines.
    pub words: BTreeMap<usize, Vec<Range<usize>>>,
}

/// The state of the screen.
pub struct ReviewScreen {
    /// The review of the session.
    pub review: Review,
    /// The number of the session, starting at 1, and the number of sessions.
    pub position: (usize, usize),
    /// All rows.
    pub rows: Vec<ReviewRow>,
    /// The row of the cursor.
    pub cursor: usize,
    /// The first visible row.
    pub scroll: usize,
    /// The first visible column of long lines.
    pub column: usize,
    /// The row where the selection starts.
    pub selection: Option<usize>,
    /// What the keys mean.
    pub mode: ReviewMode,
    /// The last message.
    pub message: String,
    /// Whether colours may be used.
    pub colours: bool,
    /// Whether both sides are beside each other.
    pub side_by_side: bool,
    /// Colours of the hunks that were visible.
    pub marks: BTreeMap<usize, HunkMarks>,
    folded: BTreeSet<String>,
    size: (u16, u16),
}

impl ReviewScreen {
    /// Shows a review; mechanical hunks are folded.
    pub fn new(
        review: Review,
        position: (usize, usize),
        size: (u16, u16),
        colours: bool,
    ) -> ReviewScreen {
        let mechanical = review.hunks.iter().filter(|hunk| hunk.mechanical.is_some());
        let folded = mechanical.map(|hunk| hunk.hunk.id.clone()).collect();
        let message = review.notes.first().cloned().unwrap_or_default();
        let mut screen = ReviewScreen {
            review,
            position,
            rows: Vec::new(),
            cursor: 0,
            scroll: 0,
            column: 0,
            selection: None,
            mode: ReviewMode::Browse,
            message,
            colours,
            side_by_side: false,
            marks: BTreeMap::new(),
            folded,
            size,
        };
        screen.rebuild();
        // The first hunk without a decision, as it was left.
        if let Some(hunk) = screen.next_undecided(0) {
            screen.show_hunk(hunk);
        }
        screen
    }

    /// Adapts to the size of the terminal.
    pub fn resize(&mut self, size: (u16, u16)) {
        self.size = size;
        if size.0 < SIDE_BY_SIDE_COLUMNS {
            self.side_by_side = false;
        }
        self.rebuild();
    }

    /// Makes the rows again, and keeps the cursor at its line.
    pub fn rebuild(&mut self) {
        let place = self.rows.get(self.cursor).cloned();
        let layout =
            RowLayout { columns: usize::from(self.size.0), side_by_side: self.side_by_side };
        self.rows = rows(&self.review, &self.folded, layout);
        self.selection = None;
        if let Some(place) = place {
            let same = self.rows.iter().position(|row| *row == place);
            let same_line = || {
                self.rows
                    .iter()
                    .position(|row| row.hunk() == place.hunk() && row.line() == place.line())
            };
            let same_hunk = || self.rows.iter().position(|row| row.hunk() == place.hunk());
            let last = self.rows.len().saturating_sub(1);
            let found = same.or_else(same_line).or_else(same_hunk);
            self.cursor = found.unwrap_or(self.cursor.min(last));
        }
        self.cursor = self.cursor.min(self.rows.len().saturating_sub(1));
        self.keep_cursor_visible();
    }

    /// Returns the number of rows for hunks.
    pub fn height(&self) -> usize {
        usize::from(self.size.1.saturating_sub(FRAME_ROWS)).max(1)
    }

    /// Returns the rows on the screen.
    pub fn visible(&self) -> Range<usize> {
        self.scroll..(self.scroll + self.height()).min(self.rows.len())
    }

    /// Returns the hunk at the cursor.
    pub fn current_hunk(&self) -> Option<usize> {
        let row = self.rows.get(self.cursor)?;
        row.hunk().or_else(|| self.rows.get(self.cursor + 1)?.hunk())
    }

    /// Computes colours and changed words of the visible hunks.
    pub fn mark_visible(&mut self, highlighter: Option<&SyntaxHighlighter>) {
        let visible: BTreeSet<usize> =
            self.rows[self.visible()].iter().filter_map(ReviewRow::hunk).collect();
        for index in visible {
            let has_syntax = self.marks.get(&index).is_some_and(|marks| marks.syntax.is_some());
            let is_known = self.marks.contains_key(&index);
            if has_syntax || is_known && highlighter.is_none() {
                continue;
            }
            let marks = self.marks_of(index, highlighter);
            self.marks.insert(index, marks);
        }
    }

    fn marks_of(&self, index: usize, highlighter: Option<&SyntaxHighlighter>) -> HunkMarks {
        let hunk = &self.review.hunks[index];
        let lines = &hunk.hunk.lines;
        let mut marks = HunkMarks::default();
        for (removed, added) in words::replaced_lines(lines) {
            if let Some(changes) = words::changes(&lines[removed].text, &lines[added].text) {
                marks.words.insert(removed, changes.removed);
                marks.words.insert(added, changes.added);
            }
        }
        let Some(highlighter) = highlighter else { return marks };
        let path = &self.review.files[hunk.file].path;
        // Each side is a text of its own.
        let mut spans: Vec<SyntaxSpans> = vec![Vec::new(); lines.len()];
        let mut is_known = true;
        for left_out in [LineOrigin::Added, LineOrigin::Removed] {
            let side: Vec<usize> =
                (0..lines.len()).filter(|line| lines[*line].origin != left_out).collect();
            let texts = side.iter().map(|line| lines[*line].text.as_str());
            match highlighter.spans(path, texts) {
                Some(found) => {
                    side.into_iter().zip(found).for_each(|(line, found)| spans[line] = found)
                }
                None => is_known = false,
            }
        }
        marks.syntax = Some(if is_known { spans } else { Vec::new() });
        marks
    }

    /// Handles a key; returns what the command must do.
    pub fn press(&mut self, event: KeyEvent) -> Result<Option<ReviewRequest>> {
        match std::mem::take(&mut self.mode) {
            ReviewMode::Browse => match keys::command(event) {
                Some(command) => {
                    self.message.clear();
                    self.run(command)
                }
                None => Ok(None),
            },
            ReviewMode::Comment { target, text } => {
                self.type_comment(event, target, text).map(|()| None)
            }
            ReviewMode::Help(first) => {
                match keys::command(event) {
                    Some(ReviewCommand::Down | ReviewCommand::NextHunk) => {
                        self.mode = ReviewMode::Help(first + 1)
                    }
                    Some(ReviewCommand::Up | ReviewCommand::PreviousHunk) => {
                        self.mode = ReviewMode::Help(first.saturating_sub(1));
                    }
                    Some(ReviewCommand::PageDown) => {
                        self.mode = ReviewMode::Help(first + self.height())
                    }
                    _ => {}
                }
                Ok(None)
            }
            ReviewMode::Confirm { request, .. } => {
                Ok(matches!(event.code, KeyCode::Char('y' | 'Y')).then_some(request))
            }
        }
    }

    fn run(&mut self, command: ReviewCommand) -> Result<Option<ReviewRequest>> {
        use ReviewCommand as C;
        let page = self.height().saturating_sub(1).max(1);
        match command {
            C::NextHunk => self.move_to(|screen, at| screen.hunk_after(at, 1)),
            C::PreviousHunk => self.move_to(|screen, at| screen.hunk_after(at, -1)),
            C::NextFile => self.move_to(|screen, at| screen.file_after(at, 1)),
            C::PreviousFile => self.move_to(|screen, at| screen.file_after(at, -1)),
            C::Down => self.move_cursor(1),
            C::Up => self.move_cursor(-1),
            C::PageDown => self.move_cursor(page.cast_signed()),
            C::PageUp => self.move_cursor(-page.cast_signed()),
            C::First => self.move_cursor(isize::MIN),
            C::Last => self.move_cursor(isize::MAX),
            C::Left => self.column = self.column.saturating_sub(COLUMN_STEP),
            C::Right => self.column += COLUMN_STEP,
            C::Accept => self.decide(HunkDecision::Accepted)?,
            C::Return => self.decide(HunkDecision::Returned)?,
            C::Undecide => self.decide(HunkDecision::Undecided)?,
            C::Select => {
                self.selection = if self.selection.is_some() { None } else { Some(self.cursor) };
            }
            C::Comment => self.begin_comment(),
            C::CommentInEditor => return Ok(self.new_target().map(ReviewRequest::Editor)),
            C::EditComment => return Ok(self.edit_comment()),
            C::DeleteComment => self.delete_comment()?,
            C::Fold => self.fold(),
            C::SideBySide => self.toggle_sides(),
            C::NextSession => return Ok(self.session(1)),
            C::PreviousSession => return Ok(self.session(-1)),
            C::Send => {
                if self.review.unsent_comments().count() + self.review.unsent_returned().count() > 0
                {
                    return Ok(Some(ReviewRequest::Send));
                }
                self.message = "nothing to send: comment (c) or return hunks (r) first".to_owned();
            }
            C::LandAccepted if self.review.accepted().is_empty() => {
                self.message = "no hunk is accepted: accept hunks (a) first".to_owned();
            }
            C::LandAccepted => return Ok(Some(ReviewRequest::LandAccepted)),
            C::LandSession => return Ok(self.land_session()),
            C::Help => self.mode = ReviewMode::Help(0),
            C::Quit => return Ok(Some(ReviewRequest::Quit)),
        }
        Ok(None)
    }

    fn session(&mut self, step: isize) -> Option<ReviewRequest> {
        let (number, sessions) = self.position;
        match number.checked_add_signed(step).filter(|number| (1..=sessions).contains(number)) {
            Some(_) => Some(ReviewRequest::Session(step)),
            None => {
                let which = if step > 0 { "last" } else { "first" };
                self.message = format!("this is the {which} session");
                None
            }
        }
    }

    /// Lands the session; asks first if the user has returned or commented something.
    fn land_session(&mut self) -> Option<ReviewRequest> {
        let returned = self.review.count(HunkDecision::Returned);
        let comments = self.review.unsent_comments().count();
        if returned + comments == 0 {
            return Some(ReviewRequest::LandSession);
        }
        let returned = base::text::count(returned, "returned hunk");
        let comments = base::text::count(comments, "unsent comment");
        let question = format!("{returned}, {comments}: land all anyway? [y/N]");
        self.mode = ReviewMode::Confirm { question, request: ReviewRequest::LandSession };
        None
    }

    fn move_cursor(&mut self, by: isize) {
        let last = self.rows.len().saturating_sub(1);
        self.cursor = self.cursor.saturating_add_signed(by).min(last);
        self.keep_cursor_visible();
    }

    fn keep_cursor_visible(&mut self) {
        let height = self.height();
        self.scroll = self.scroll.min(self.cursor).max((self.cursor + 1).saturating_sub(height));
        self.scroll = self.scroll.min(self.rows.len().saturating_sub(height));
    }

    fn move_to(&mut self, target: impl Fn(&ReviewScreen, usize) -> Option<usize>) {
        let found = self.current_hunk().and_then(|hunk| target(self, hunk));
        match found {
            Some(hunk) => self.show_hunk(hunk),
            None => self.message = "no further hunk".to_owned(),
        }
    }

    fn hunk_after(&self, hunk: usize, step: isize) -> Option<usize> {
        hunk.checked_add_signed(step).filter(|hunk| *hunk < self.review.hunks.len())
    }

    fn file_after(&self, hunk: usize, step: isize) -> Option<usize> {
        let file = self.review.hunks[hunk].file;
        let mut next = self.hunk_after(hunk, step)?;
        while self.review.hunks[next].file == file {
            next = self.hunk_after(next, step)?;
        }
        Some(next)
    }

    /// Moves to a hunk and shows as much of it as fits.
    fn show_hunk(&mut self, hunk: usize) {
        let first = self.rows.iter().position(|row| row.hunk() == Some(hunk));
        let Some(first) = first else { return };
        self.cursor = first;
        let length = self.rows[first..].iter().take_while(|row| row.hunk() == Some(hunk)).count();
        let height = self.height();
        if first < self.scroll || first + length > self.scroll + height {
            self.scroll = first.min(self.rows.len().saturating_sub(height));
        }
        self.keep_cursor_visible();
    }

    fn next_undecided(&self, from: usize) -> Option<usize> {
        let is_open = |hunk: &usize| {
            let hunk = &self.review.hunks[*hunk];
            hunk.decision == HunkDecision::Undecided
        };
        (from..self.review.hunks.len()).find(is_open)
    }

    fn decide(&mut self, decision: HunkDecision) -> Result<()> {
        let Some(hunk) = self.current_hunk() else { return Ok(()) };
        self.review.decide(hunk, decision)?;
        self.rebuild();
        if decision != HunkDecision::Undecided {
            match self.hunk_after(hunk, 1) {
                Some(next) => self.show_hunk(next),
                None => self.message = self.next_step(),
            }
        }
        Ok(())
    }

    /// Returns what can be done after the last hunk.
    fn next_step(&self) -> String {
        if let Some(open) = self.next_undecided(0) {
            return format!("last hunk; hunk {} has no decision", open + 1);
        }
        match (self.review.count(HunkDecision::Returned), self.review.accepted().len()) {
            (0, _) => "all hunks are accepted: A lands the session".to_owned(),
            (_, 0) => "all hunks are returned: S sends them".to_owned(),
            (_, _) => "last hunk: L lands the accepted ones, S sends the returned ones".to_owned(),
        }
    }

    fn new_target(&mut self) -> Option<CommentTarget> {
        let hunk = self.current_hunk()?;
        let last = self.review.hunks[hunk].hunk.lines.len().saturating_sub(1);
        let line = |row: usize| {
            let row = self.rows.get(row).filter(|row| row.hunk() == Some(hunk))?;
            row.line()
        };
        let lines = match (self.selection.and_then(line), line(self.cursor)) {
            (Some(from), Some(to)) => (from.min(to), from.max(to)),
            (_, Some(line)) => (line, line),
            (_, None) => (0, last),
        };
        Some(CommentTarget::New { hunk, lines })
    }

    fn begin_comment(&mut self) {
        if let Some(target) = self.new_target() {
            self.mode = ReviewMode::Comment { target, text: String::new() };
        }
    }

    /// Returns the comment at the cursor: the one shown there, or the first below the line.
    fn comment_at_cursor(&self) -> Option<usize> {
        match self.rows.get(self.cursor)? {
            ReviewRow::Comment(comment, ..) => Some(*comment),
            _ => match self.rows.get(self.cursor + 1)? {
                ReviewRow::Comment(comment, ..) => Some(*comment),
                _ => None,
            },
        }
    }

    fn edit_comment(&mut self) -> Option<ReviewRequest> {
        let Some(comment) = self.comment_at_cursor() else {
            self.message = "no comment on this line".to_owned();
            return None;
        };
        let comment = &self.review.comments[comment];
        let (number, text) = (comment.number, comment.text.clone());
        let target = CommentTarget::Existing { number, text: text.clone() };
        if text.contains('\n') {
            return Some(ReviewRequest::Editor(target));
        }
        self.mode = ReviewMode::Comment { target, text };
        None
    }

    fn delete_comment(&mut self) -> Result<()> {
        let Some(comment) = self.comment_at_cursor() else {
            self.message = "no comment on this line".to_owned();
            return Ok(());
        };
        let n = self.review.comments[comment].number;
        self.review.record(vec![ReviewEntry::Removed { n }])?;
        self.message = format!("comment {n} deleted");
        self.rebuild();
        Ok(())
    }

    fn type_comment(
        &mut self,
        event: KeyEvent,
        target: CommentTarget,
        mut text: String,
    ) -> Result<()> {
        let is_control = event.modifiers.contains(KeyModifiers::CONTROL);
        match event.code {
            KeyCode::Esc => return Ok(()),
            KeyCode::Char('c') if is_control => return Ok(()),
            KeyCode::Enter => return self.save_comment(&target, &text),
            KeyCode::Char('u') if is_control => text.clear(),
            KeyCode::Char('w') if is_control => {
                let kept = text.trim_end().rfind(' ').map_or(0, |space| space + 1);
                text.truncate(kept);
            }
            KeyCode::Backspace => drop(text.pop()),
            KeyCode::Char(c) if !is_control => text.push(c),
            _ => {}
        }
        self.mode = ReviewMode::Comment { target, text };
        Ok(())
    }

    /// Saves a comment; an empty text changes nothing.
    pub fn save_comment(&mut self, target: &CommentTarget, text: &str) -> Result<()> {
        let text = text.trim_end().to_owned();
        if text.trim().is_empty() {
            self.message = "empty comment, nothing changed".to_owned();
            return Ok(());
        }
        let entry = match target {
            CommentTarget::New { hunk, lines } => {
                let anchor = self.review.anchor(*hunk, lines.0..=lines.1);
                ReviewEntry::Commented { n: 0, anchor, text }
            }
            CommentTarget::Existing { number, .. } => ReviewEntry::Edited { n: *number, text },
        };
        let number = self.review.record(vec![entry])?;
        self.message = number.map_or("comment saved".to_owned(), |n| format!("comment {n} saved"));
        self.rebuild();
        Ok(())
    }

    fn fold(&mut self) {
        let Some(hunk) = self.current_hunk() else { return };
        let id = self.review.hunks[hunk].hunk.id.clone();
        if !self.folded.remove(&id) {
            self.folded.insert(id);
        }
        self.rebuild();
        self.show_hunk(hunk);
    }

    /// Returns whether a hunk is folded.
    pub fn is_folded(&self, hunk: usize) -> bool {
        self.folded.contains(&self.review.hunks[hunk].hunk.id)
    }

    fn toggle_sides(&mut self) {
        if self.size.0 < SIDE_BY_SIDE_COLUMNS {
            self.message = format!("side by side needs {SIDE_BY_SIDE_COLUMNS} columns");
            return;
        }
        self.side_by_side = !self.side_by_side;
        self.rebuild();
    }
}
