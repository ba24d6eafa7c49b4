//! Reviews: the hunks of a session by risk, the user's decisions and comments, and what of it is
//! sent to the agent. It has no terminal in it.

pub mod hunk;
pub mod log;
pub mod mechanical;
pub mod overlap;
pub mod placement;
pub mod prompt;
pub mod risk;
pub mod since;
pub mod syntax;
pub mod text_format;
pub mod words;

use std::collections::BTreeMap;

use base::failure::{OrFail, Result};
use serde_json::{Value, json};
use studio_git::checkout::FileEntry;
use studio_git::hunks::{self, FilePatch, LineOrigin};
use studio_git::patch::Comparison;

use crate::check_files::{self, CheckFile};
use crate::project::Project;
use crate::review::hunk::{DiffSide, HunkDecision, ReviewHunk, file_name, line_place, path_text};
use crate::review::log::{CommentAnchor, LoggedReview, ReviewEntry, ReviewLog};
use crate::review::mechanical::has_generated_marker;
use crate::review::overlap::Overlaps;
use crate::review::placement::{CommentPlacement, locate};
use crate::review::risk::{HunkContext, TestedModules, assess};
use crate::review::since::EarlierState;
use crate::session_changes;
use crate::session_view::SessionView;

/// A comment in a review.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReviewComment {
    /// Its number in the session.
    pub number: u32,
    /// The lines as they were when it was written.
    pub anchor: CommentAnchor,
    /// The text.
    pub text: String,
    /// Whether the agent got it.
    pub is_sent: bool,
    /// Where its lines are now.
    pub placement: CommentPlacement,
    /// The index of the hunk that shows it.
    pub hunk: Option<usize>,
}

impl ReviewComment {
    /// Returns the number of its first line now; `None` if it is stale.
    pub fn line(&self) -> Option<u32> {
        match self.placement {
            CommentPlacement::Current => Some(self.anchor.first),
            CommentPlacement::Moved { first } => Some(first),
            CommentPlacement::Stale => None,
        }
    }

    /// Returns the number of its last line now; `None` if it is stale.
    pub fn last_line(&self) -> Option<u32> {
        self.line().map(|first| first + self.anchor.last.saturating_sub(self.anchor.first))
    }
}

/// The review of one session.
pub struct Review {
    /// The session.
    pub view: SessionView,
    /// The commit that the work is compared with.
    pub base: String,
    /// The commit, or the tree, with the work.
    pub head: String,
    /// The changed files, by path.
    pub files: Vec<FilePatch>,
    /// The hunks, those that need most attention first.
    pub hunks: Vec<ReviewHunk>,
    /// The comments, by number.
    pub comments: Vec<ReviewComment>,
    /// The changed files that decide what the checks say.
    pub check_files: Vec<CheckFile>,
    /// Notes for the user, one sentence each.
    pub notes: Vec<String>,
    /// The number of hunks that are not shown because they are older than the earlier state.
    pub older_hunks: usize,
    log: ReviewLog,
    log_length: u64,
    /// The lines of the files that have comments.
    contents: BTreeMap<(String, DiffSide), Option<Vec<String>>>,
    comparison: Comparison,
}

/// Opens the review of a session. `others` are the sessions that its changes are compared with.
pub fn open(
    project: &Project,
    view: &SessionView,
    others: &[SessionView],
    since: Option<EarlierState>,
) -> Result<Review> {
    let earlier = since.map(|state| since::resolve(project, view, state)).transpose()?.flatten();
    let changes = session_changes::load(project, view)?;
    let comparison = &changes.comparison;
    let repo = comparison.open()?;
    let files = hunks::read(&repo, &comparison.from, &comparison.to)?;
    let older: Vec<String> = match &earlier {
        Some(earlier) => {
            let before = hunks::read(&repo, &comparison.from, earlier)?;
            before.into_iter().flat_map(|file| file.hunks).map(|hunk| hunk.id).collect()
        }
        None => Vec::new(),
    };
    let others: Vec<SessionView> =
        others.iter().filter(|other| other.record.id != view.record.id).cloned().collect();
    let overlaps = Overlaps::of(&project.repository, view, &files, &others);
    let tests = TestedModules::of(&files);
    let lines = check_files::lines(project, &view.record);
    let check_files = check_files::changed(&repo, &comparison.from, &comparison.to, &lines)?;
    let mut hunks = Vec::new();
    for (index, file) in files.iter().enumerate() {
        let is_marked = is_marked(&repo, file);
        for hunk in &file.hunks {
            let context = HunkContext {
                file,
                hunk,
                check_files: &check_files,
                tests: &tests,
                overlaps: &overlaps,
            };
            let risk = assess(&context);
            // A change that decides what the checks say is never folded.
            let decides = risk.reasons.iter().any(|reason| reason.rule == "check_file");
            let mechanical = mechanical::classify(file, hunk, is_marked).filter(|_| !decides);
            hunks.push(ReviewHunk {
                file: index,
                hunk: hunk.clone(),
                risk,
                mechanical,
                shared_lines: overlaps.shared_lines(file, hunk),
                decision: HunkDecision::Undecided,
                is_sent: false,
            });
        }
    }
    let all = hunks.len();
    hunks.retain(|hunk| !older.contains(&hunk.hunk.id));
    hunks.sort_by_key(|hunk| {
        (
            hunk.mechanical.is_some(),
            std::cmp::Reverse(hunk.risk.score),
            hunk.file,
            hunk.hunk.new.start,
        )
    });
    let log = ReviewLog::of(&project.repository, &view.record.id, project.clock);
    let notes = changes.notes.into_iter().chain(check_files::sentence(&check_files)).collect();
    let mut review = Review {
        view: view.clone(),
        base: comparison.from.clone(),
        head: comparison.to.clone(),
        older_hunks: all - hunks.len(),
        files,
        hunks,
        comments: Vec::new(),
        check_files,
        notes,
        log,
        log_length: 0,
        contents: BTreeMap::new(),
        comparison: changes.comparison,
    };
    review.reload()?;
    Ok(review)
}

/// Returns whether a file said before the change that it is generated.
fn is_marked(repo: &git2::Repository, file: &FilePatch) -> bool {
    let blob = file.old.and_then(|old| repo.find_blob(old.id).ok());
    blob.is_some_and(|blob| has_generated_marker(blob.content()))
}

impl Review {
    /// Reads comments and decisions again: another process may have added some.
    pub fn reload(&mut self) -> Result<()> {
        self.log_length = self.log.length();
        let (logged, notes) = self.log.read()?;
        self.notes.retain(|note| !note.contains("review.jsonl"));
        self.notes.extend(notes);
        self.read_contents(&logged)?;
        self.apply(logged);
        Ok(())
    }

    /// Like [`Review::reload`], if the log has changed; returns whether it has.
    pub fn reload_changed(&mut self) -> Result<bool> {
        let is_changed = self.log.length() != self.log_length;
        if is_changed {
            self.reload()?;
        }
        Ok(is_changed)
    }

    fn apply(&mut self, logged: LoggedReview) {
        for hunk in &mut self.hunks {
            let decided = logged.decisions.get(&hunk.hunk.id).copied();
            (hunk.decision, hunk.is_sent) = decided.unwrap_or_default();
        }
        self.comments = logged
            .comments
            .into_iter()
            .map(|(number, comment)| {
                let anchor = comment.anchor;
                let key = (self.current_path(&anchor), anchor.side);
                let content = self.contents.get(&key).and_then(Option::as_deref);
                let placement = locate(content, anchor.first, &anchor.snippet);
                let (text, is_sent) = (comment.text, comment.is_sent);
                ReviewComment { number, anchor, text, is_sent, placement, hunk: None }
            })
            .collect();
        for index in 0..self.comments.len() {
            self.comments[index].hunk = self.hunk_of(&self.comments[index]);
        }
    }

    /// Returns the path of a comment's file now, which may have been renamed.
    fn current_path(&self, anchor: &CommentAnchor) -> String {
        let is_known = |file: &FilePatch| path_text(&file.path) == anchor.path;
        if anchor.side == DiffSide::Old || self.files.iter().any(is_known) {
            return anchor.path.clone();
        }
        let renamed = self.files.iter().find(|file| {
            file.is_renamed()
                && file.old_path.as_deref().map(path_text).as_ref() == Some(&anchor.path)
        });
        renamed.map_or_else(|| anchor.path.clone(), |file| path_text(&file.path))
    }

    /// Returns the hunk that shows a comment: the one with its lines, else the first of its file.
    fn hunk_of(&self, comment: &ReviewComment) -> Option<usize> {
        let path = self.current_path(&comment.anchor);
        let in_file = |hunk: &ReviewHunk| {
            let file = &self.files[hunk.file];
            path_text(&file.path) == path
                || file.old_path.as_deref().map(path_text).as_ref() == Some(&path)
        };
        let mut hunks = self.hunks.iter().enumerate().filter(|(_, hunk)| in_file(hunk));
        let line = comment.last_line();
        let shows = |hunk: &ReviewHunk| {
            hunk.hunk.lines.iter().any(|it| {
                let number = match comment.anchor.side {
                    DiffSide::Old => it.old,
                    DiffSide::New => it.new,
                };
                number.is_some() && number == line
            })
        };
        let first = hunks.clone().next().map(|(index, _)| index);
        hunks.find(|(_, hunk)| shows(hunk)).map(|(index, _)| index).or(first)
    }

    /// Reads the files of comments that were not read before.
    fn read_contents(&mut self, logged: &LoggedReview) -> Result<()> {
        let keys = logged.comments.values();
        let keys = keys.map(|comment| (self.current_path(&comment.anchor), comment.anchor.side));
        let missing: Vec<_> = keys.filter(|key| !self.contents.contains_key(key)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let repo = self.comparison.open()?;
        let tree = |id: &str| -> Result<git2::Tree<'_>> {
            let fail = || "cannot read the files of the review";
            let object = repo.find_object(studio_git::refs::oid(id)?, None).or_fail(fail)?;
            object.peel_to_tree().or_fail(fail)
        };
        let (old, new) = (tree(&self.base)?, tree(&self.head)?);
        for (path, side) in missing {
            let tree = if side == DiffSide::Old { &old } else { &new };
            let entry = tree.get_path(std::path::Path::new(&path)).ok();
            let blob = entry.and_then(|entry| repo.find_blob(entry.id()).ok());
            let lines = blob.map(|blob| text_lines(blob.content()));
            self.contents.insert((path, side), lines);
        }
        Ok(())
    }

    /// Records a decision about a hunk.
    pub fn decide(&mut self, index: usize, decision: HunkDecision) -> Result<()> {
        let Some(hunk) = self.hunks.get(index) else { return Ok(()) };
        let entry = ReviewEntry::Decided { hunk: hunk.hunk.id.clone(), decision };
        self.record(vec![entry]).map(|_| ())
    }

    /// Records entries and shows their effect; returns the number of the last new comment.
    pub fn record(&mut self, entries: Vec<ReviewEntry>) -> Result<Option<u32>> {
        let number = self.log.append(entries)?;
        self.reload()?;
        Ok(number)
    }

    /// Returns the anchor of a comment on lines of a hunk, given by their indexes; on the whole
    /// file if the hunk has no lines. The last line decides the side.
    pub fn anchor(&self, index: usize, lines: std::ops::RangeInclusive<usize>) -> CommentAnchor {
        let hunk = &self.hunks[index];
        let file = &self.files[hunk.file];
        let chosen = hunk.hunk.lines.get(*lines.start()..=*lines.end()).unwrap_or_default();
        let (side, last) = chosen.last().map_or((DiffSide::New, 0), line_place);
        let side = if file.new.is_none() { DiffSide::Old } else { side };
        let number =
            |line: &hunks::DiffLine| if side == DiffSide::Old { line.old } else { line.new };
        let on_side: Vec<&hunks::DiffLine> =
            chosen.iter().filter(|line| number(line).is_some()).collect();
        let path = match side {
            DiffSide::Old => file.old_path.as_ref().unwrap_or(&file.path),
            DiffSide::New => &file.path,
        };
        CommentAnchor {
            path: path_text(path),
            side,
            first: on_side.first().and_then(|line| number(line)).unwrap_or(last),
            last,
            snippet: on_side.iter().map(|line| line.text.clone()).collect(),
            head: self.head.clone(),
        }
    }

    /// Returns the comments that the agent has not got.
    pub fn unsent_comments(&self) -> impl Iterator<Item = &ReviewComment> {
        self.comments.iter().filter(|comment| !comment.is_sent)
    }

    /// Returns the returned hunks that the agent has not got.
    pub fn unsent_returned(&self) -> impl Iterator<Item = &ReviewHunk> {
        self.hunks.iter().filter(|it| it.decision == HunkDecision::Returned && !it.is_sent)
    }

    /// Returns the ids of the accepted hunks.
    pub fn accepted(&self) -> Vec<String> {
        let accepted = self.hunks.iter().filter(|it| it.decision == HunkDecision::Accepted);
        accepted.map(|hunk| hunk.hunk.id.clone()).collect()
    }

    /// Returns the number of hunks with a decision.
    pub fn count(&self, decision: HunkDecision) -> usize {
        self.hunks.iter().filter(|hunk| hunk.decision == decision).count()
    }

    /// Records that the agent got all comments and returned hunks.
    pub fn record_sent(&mut self) -> Result<()> {
        let comments = self.unsent_comments().map(|comment| comment.number).collect();
        let hunks = self.unsent_returned().map(|hunk| hunk.hunk.id.clone()).collect();
        self.record(vec![ReviewEntry::Sent { comments, hunks }]).map(|_| ())
    }

    /// Returns the review as JSON.
    pub fn json(&self) -> Value {
        let mode = |entry: Option<FileEntry>| entry.map(|entry| format!("{:o}", entry.mode));
        let hunk = |it: &ReviewHunk| {
            let file = &self.files[it.file];
            let line = |line: &hunks::DiffLine| {
                let origin = match line.origin {
                    LineOrigin::Context => "context",
                    LineOrigin::Removed => "removed",
                    LineOrigin::Added => "added",
                };
                json!({"origin": origin, "old": line.old, "new": line.new, "text": line.text})
            };
            let reason =
                |reason: &risk::RiskReason| json!({"rule": reason.rule, "text": reason.text});
            json!({
                "id": it.hunk.id, "path": path_text(&file.path),
                "old_path": file.old_path.as_deref().map(path_text),
                "name": file_name(file), "note": hunk::file_note(file),
                "old_mode": mode(file.old), "new_mode": mode(file.new), "binary": file.binary,
                "header": it.hunk.header(),
                "risk": it.risk.score, "reasons": it.risk.reasons.iter().map(reason).collect::<Vec<_>>(),
                "mechanical": it.mechanical.map(mechanical::MechanicalChange::name),
                "decision": it.decision.name(), "sent": it.is_sent,
                "lines": it.hunk.lines.iter().map(line).collect::<Vec<_>>(),
            })
        };
        let comment = |it: &ReviewComment| {
            json!({
                "number": it.number, "path": it.anchor.path, "side": it.anchor.side.name(),
                "first": it.anchor.first, "last": it.anchor.last, "snippet": it.anchor.snippet,
                "head": it.anchor.head, "text": it.text, "sent": it.is_sent,
                "placement": it.placement,
                "hunk": it.hunk.map(|hunk| &self.hunks[hunk].hunk.id),
            })
        };
        json!({
            "schema": 1, "id": self.view.record.id, "state": self.view.state.name(),
            "task": self.view.record.task, "base": self.base, "head": self.head,
            "older_hunks": self.older_hunks,
            "hunks": self.hunks.iter().map(hunk).collect::<Vec<_>>(),
            "comments": self.comments.iter().map(comment).collect::<Vec<_>>(),
            "check_files": self.check_files,
            "notes": self.notes,
        })
    }
}

/// Returns the lines of a file as a review has them.
pub fn text_lines(content: &[u8]) -> Vec<String> {
    let mut lines: Vec<String> = content
        .split(|byte| *byte == b'\n')
        .map(|line| String::from_utf8_lossy(line).into_owned())
        .collect();
    if lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines
}
