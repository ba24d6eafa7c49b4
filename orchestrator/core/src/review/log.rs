//! The review log of a session, `review.jsonl`: comments and decisions. The session's journal has one
//! writer, the holder of the session's lock, and a review goes on while the agent works; so the log
//! is a file of its own, with its own lock.

use std::collections::BTreeMap;
use std::path::PathBuf;

use base::clock::Clock;
use base::failure::{Failure, OrFail, Result};
use base::files::{Journal, read_lines, step};
use base::id::Id;
use base::lock::Lock;
use serde::{Deserialize, Serialize};
use studio_git::repo::Repository;

use crate::review::hunk::{DiffSide, HunkDecision};

/// Maximum number of bytes of a comment.
const MAX_COMMENT_BYTES: usize = 64 << 10;

/// The lines that a comment is on, as they were when it was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommentAnchor {
    /// The file.
    pub path: String,
    /// Which of its states.
    pub side: DiffSide,
    /// The first line; 0 for the whole file.
    pub first: u32,
    /// The last line.
    pub last: u32,
    /// The text of the lines.
    pub snippet: Vec<String>,
    /// The commit, or tree, with the work.
    pub head: String,
}

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ReviewLine {
    time: String,
    #[serde(flatten)]
    entry: ReviewEntry,
}

/// An event of a review.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "snake_case")]
pub enum ReviewEntry {
    /// A comment was written.
    Commented {
        /// Its number, starting at 1; given by the log.
        n: u32,
        /// The lines.
        #[serde(flatten)]
        anchor: CommentAnchor,
        /// The text.
        text: String,
    },
    /// A comment was changed; it is sent again.
    Edited {
        /// Its number.
        n: u32,
        /// The new text.
        text: String,
    },
    /// A comment was removed.
    Removed {
        /// Its number.
        n: u32,
    },
    /// The user decided about a hunk.
    Decided {
        /// The hunk's id.
        hunk: String,
        /// The decision.
        decision: HunkDecision,
    },
    /// Comments and returned hunks were sent to the agent.
    Sent {
        /// The numbers of the comments.
        comments: Vec<u32>,
        /// The ids of the hunks.
        hunks: Vec<String>,
    },
}

/// A comment as the log has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedComment {
    /// The lines.
    pub anchor: CommentAnchor,
    /// The text.
    pub text: String,
    /// Whether the agent got this text.
    pub is_sent: bool,
}

/// What the log says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoggedReview {
    /// The comments by number.
    pub comments: BTreeMap<u32, LoggedComment>,
    /// The decisions by hunk; and whether a returned hunk was sent.
    pub decisions: BTreeMap<String, (HunkDecision, bool)>,
    last_comment: u32,
}

impl LoggedReview {
    fn add(&mut self, entry: ReviewEntry) {
        match entry {
            ReviewEntry::Commented { n, anchor, text } => {
                self.last_comment = self.last_comment.max(n);
                self.comments.insert(n, LoggedComment { anchor, text, is_sent: false });
            }
            ReviewEntry::Edited { n, text } => {
                if let Some(comment) = self.comments.get_mut(&n) {
                    (comment.text, comment.is_sent) = (text, false);
                }
            }
            ReviewEntry::Removed { n } => drop(self.comments.remove(&n)),
            ReviewEntry::Decided { hunk, decision: HunkDecision::Undecided } => {
                self.decisions.remove(&hunk);
            }
            ReviewEntry::Decided { hunk, decision } => {
                let is_sent = self.decisions.get(&hunk) == Some(&(decision, true));
                self.decisions.insert(hunk, (decision, is_sent));
            }
            ReviewEntry::Sent { comments, hunks } => {
                for n in comments {
                    self.comments.entry(n).and_modify(|comment| comment.is_sent = true);
                }
                for hunk in hunks {
                    self.decisions.entry(hunk).and_modify(|(_, is_sent)| *is_sent = true);
                }
            }
        }
    }
}

/// The log of one session.
#[derive(Clone, Debug)]
pub struct ReviewLog {
    directory: PathBuf,
    clock: Clock,
}

impl ReviewLog {
    /// Returns the log of a session.
    pub fn of(repository: &Repository, id: &Id, clock: Clock) -> ReviewLog {
        ReviewLog { directory: repository.session_dir(id), clock }
    }

    fn path(&self) -> PathBuf {
        self.directory.join("review.jsonl")
    }

    /// Returns the length of the log in bytes, which grows with every change.
    pub fn length(&self) -> u64 {
        std::fs::metadata(self.path()).map_or(0, |metadata| metadata.len())
    }

    /// Reads the log; lines that cannot be read are returned as sentences, and nothing else depends
    /// on them.
    pub fn read(&self) -> Result<(LoggedReview, Vec<String>)> {
        let (lines, unreadable) =
            read_lines::<ReviewLine>(&self.path()).or_fail(|| "cannot read the review")?;
        let mut review = LoggedReview::default();
        lines.into_iter().for_each(|line| review.add(line.entry));
        let notes = unreadable.iter();
        let notes = notes.map(|it| format!("line {} of review.jsonl is {}", it.number, it.reason));
        Ok((review, notes.collect()))
    }

    /// Appends entries and makes them durable; an invalid one refuses all of them. A new comment
    /// gets its number here; returns the number of the last one.
    pub fn append(&self, entries: Vec<ReviewEntry>) -> Result<Option<u32>> {
        let fail = || format!("cannot write {}", self.path().display());
        let lock_path = self.directory.join("review.lock");
        let _lock = Lock::take(&lock_path).or_fail(fail)?;
        let (review, _) = self.read()?;
        let mut number = None;
        let mut last = review.last_comment;
        let mut text = Vec::new();
        for mut entry in entries {
            refuse_invalid(&review, &entry)?;
            if let ReviewEntry::Commented { n, .. } = &mut entry {
                last += 1;
                (*n, number) = (last, Some(last));
            }
            let line = ReviewLine { time: self.clock.stamp(), entry };
            text.push(serde_json::to_string(&line).or_fail(fail)?);
        }
        if text.is_empty() {
            return Ok(None);
        }
        let mut journal = Journal::open(&self.path()).or_fail(fail)?;
        step("review.write");
        // One write: a crash can only tear the last line, and the next writer drops it.
        journal.append_line(text.join("\n").as_bytes()).or_fail(fail)?;
        journal.sync().or_fail(fail)?;
        step("review.saved");
        Ok(number)
    }
}

fn refuse_invalid(review: &LoggedReview, entry: &ReviewEntry) -> Result<()> {
    let text = match entry {
        ReviewEntry::Commented { text, .. } | ReviewEntry::Edited { text, .. } => text,
        ReviewEntry::Removed { .. } | ReviewEntry::Decided { .. } | ReviewEntry::Sent { .. } => "x",
    };
    if text.trim().is_empty() {
        return Err(Failure::usage("the comment is empty"));
    }
    if text.len() > MAX_COMMENT_BYTES {
        return Err(Failure::usage("the comment is longer than 64 KiB"));
    }
    match entry {
        ReviewEntry::Edited { n, .. } | ReviewEntry::Removed { n }
            if !review.comments.contains_key(n) =>
        {
            Err(Failure::not_found(format!("no such comment: {n}"))
                .because("it was removed in the meantime"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log() -> (tempfile::TempDir, ReviewLog) {
        let directory = tempfile::tempdir().unwrap();
        let log = ReviewLog { directory: directory.path().to_owned(), clock: Clock::from_env() };
        (directory, log)
    }

    fn comment(text: &str) -> ReviewEntry {
        let anchor = CommentAnchor {
            path: "a".into(),
            side: DiffSide::New,
            first: 1,
            last: 1,
            snippet: vec!["x".into()],
            head: "h".into(),
        };
        ReviewEntry::Commented { n: 0, anchor, text: text.into() }
    }

    #[test]
    fn comments_are_numbered_edited_and_removed_and_an_edited_one_is_sent_again() {
        let (_directory, log) = log();
        assert_eq!(log.append(vec![comment("one"), comment("two")]).unwrap(), Some(2));
        let hunk = || "aa".to_owned();
        let decided = ReviewEntry::Decided { hunk: hunk(), decision: HunkDecision::Returned };
        log.append(vec![
            decided.clone(),
            ReviewEntry::Sent { comments: vec![1, 2], hunks: vec![hunk()] },
        ])
        .unwrap();
        log.append(vec![ReviewEntry::Removed { n: 2 }]).unwrap();
        log.append(vec![ReviewEntry::Edited { n: 1, text: "uno".into() }, decided]).unwrap();
        let (review, notes) = log.read().unwrap();
        assert!(notes.is_empty());
        assert_eq!(
            (review.comments[&1].text.as_str(), review.comments[&1].is_sent),
            ("uno", false)
        );
        assert_eq!(review.decisions["aa"], (HunkDecision::Returned, true));
        assert!(log.append(vec![ReviewEntry::Removed { n: 2 }]).is_err());
        // A number is not used again.
        assert_eq!(log.append(vec![comment("three")]).unwrap(), Some(3));
        assert!(log.append(vec![comment(" \n")]).is_err());
    }

    #[test]
    fn writers_at_the_same_time_lose_no_line_and_a_torn_line_harms_no_other() {
        let (directory, log) = log();
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let log = &log;
                scope.spawn(move || {
                    for n in 0..20 {
                        log.append(vec![comment(&format!("{writer}/{n}"))]).unwrap();
                    }
                });
            }
        });
        assert_eq!(log.read().unwrap().0.comments.len(), 80);
        let path = directory.path().join("review.jsonl");
        let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
        std::io::Write::write_all(&mut file, b"{\"time\":\"t\",\"entry\":\"rem").unwrap();
        assert_eq!(log.append(vec![comment("last")]).unwrap(), Some(81));
        let (review, notes) = log.read().unwrap();
        assert_eq!((review.comments.len(), notes.len()), (81, 0));
    }
}
