//! A review as a text file for editors and screen readers: the hunks with marks and comments, written
//! and parsed back.

use std::fmt::Write as _;

use base::failure::{Failure, Result};
use base::text::printable;
use studio_git::hunks::{DiffLine, LineOrigin};

use crate::review::hunk::{HunkDecision, file_name, file_note};
use crate::review::log::ReviewEntry;
use crate::review::placement::CommentPlacement;
use crate::review::{Review, ReviewComment};

/// The explanation at the start of the file.
const HELP: &str = "\
# To decide about a hunk, change the first word of its line to `accept`, `return` or `undecided`.
# To comment, write lines that begin with `> ` below a line of the diff; below the `@@` line the
# comment is on the whole hunk. An empty line separates two comments.
# `>3 text` is comment 3: change its text to edit it, or remove all of its text to delete it.
# Lines that begin with `#` are ignored. What you leave out stays as it is.
";

/// Writes the whole review.
pub fn render(review: &Review) -> String {
    let mut text = String::new();
    let id = &review.view.record.id;
    let task = printable(&review.view.record.task).replace('\n', " ");
    let _ = writeln!(text, "# Review of {id}: {}", base::text::head(&task, 200));
    text.push_str(HELP);
    let mut shown = Vec::new();
    for (index, hunk) in review.hunks.iter().enumerate() {
        let file = &review.files[hunk.file];
        let name = printable(&file_name(file));
        let _ = writeln!(text, "\n{} {} {name}", word(hunk.decision), hunk.hunk.id);
        let _ = writeln!(text, "# {}", printable(&summary(review, index)));
        if let Some(note) = file_note(file) {
            let _ = writeln!(text, "# {}", printable(&note));
        }
        let comments = || review.comments.iter().filter(|comment| comment.hunk == Some(index));
        let at_start = |comment: &&ReviewComment| place(comment, &hunk.hunk.lines).is_none();
        let _ = writeln!(text, "{}", printable(&hunk.hunk.header()));
        for comment in comments().filter(at_start) {
            write_comment(&mut text, comment);
            shown.push(comment.number);
        }
        for (line_index, line) in hunk.hunk.lines.iter().enumerate() {
            let _ = writeln!(text, "{}{}", mark(line), printable(&line.text));
            let here =
                |comment: &&ReviewComment| place(comment, &hunk.hunk.lines) == Some(line_index);
            for comment in comments().filter(here) {
                write_comment(&mut text, comment);
                shown.push(comment.number);
            }
        }
    }
    let others = review.comments.iter().filter(|comment| !shown.contains(&comment.number));
    let others: Vec<&ReviewComment> = others.collect();
    if !others.is_empty() {
        text.push_str("\n# Comments on files that are not shown:\n");
        others.iter().for_each(|comment| write_comment(&mut text, comment));
    }
    text
}

/// Returns risk and reasons of a hunk in one line.
pub fn summary(review: &Review, index: usize) -> String {
    let hunk = &review.hunks[index];
    let mut parts: Vec<String> = Vec::new();
    parts.extend(hunk.mechanical.map(|it| it.text().to_owned()));
    parts.extend(hunk.risk.reasons.iter().map(|reason| reason.text.clone()));
    let mut text =
        format!("hunk {} of {}, risk {}", index + 1, review.hunks.len(), hunk.risk.score);
    if !parts.is_empty() {
        let _ = write!(text, ": {}", parts.join("; "));
    }
    if hunk.is_sent {
        text.push_str("; sent to the agent");
    }
    text
}

fn word(decision: HunkDecision) -> &'static str {
    match decision {
        HunkDecision::Undecided => "undecided",
        HunkDecision::Accepted => "accept",
        HunkDecision::Returned => "return",
    }
}

fn mark(line: &DiffLine) -> char {
    match line.origin {
        LineOrigin::Context => ' ',
        LineOrigin::Removed => '-',
        LineOrigin::Added => '+',
    }
}

/// Returns the index of the line below which a comment is shown; `None` for the start of the hunk.
pub fn place(comment: &ReviewComment, lines: &[DiffLine]) -> Option<usize> {
    let last = comment.last_line().filter(|last| *last > 0)?;
    let number = |line: &DiffLine| match comment.anchor.side {
        crate::review::hunk::DiffSide::Old => line.old,
        crate::review::hunk::DiffSide::New => line.new,
    };
    lines.iter().rposition(|line| number(line) == Some(last))
}

fn write_comment(text: &mut String, comment: &ReviewComment) {
    let mut facts = Vec::new();
    match comment.placement {
        CommentPlacement::Current => {}
        CommentPlacement::Moved { first } => facts.push(format!("its lines moved to {first}")),
        CommentPlacement::Stale => {
            let anchor = &comment.anchor;
            facts.push(format!("stale: {}:{} has changed", printable(&anchor.path), anchor.first));
        }
    }
    if comment.is_sent {
        facts.push("sent".to_owned());
    }
    if !facts.is_empty() {
        let _ = writeln!(text, "# comment {}: {}", comment.number, facts.join("; "));
    }
    for (index, line) in printable(&comment.text).lines().enumerate() {
        let number = if index == 0 { comment.number.to_string() } else { String::new() };
        let _ = writeln!(text, ">{number} {line}");
    }
    text.push('\n');
}

/// The position of the parser.
struct ParseState<'r> {
    review: &'r Review,
    entries: Vec<ReviewEntry>,
    /// The current hunk, and the number of its lines that were passed.
    hunk: Option<(usize, usize)>,
    /// The comment that is being read: its number if it exists, its text, and where it starts.
    comment: Option<(Option<u32>, Vec<String>, usize)>,
}

/// Parses a changed file; returns what to record. An error names the line.
pub fn parse(review: &Review, text: &str) -> Result<Vec<ReviewEntry>> {
    let mut state = ParseState { review, entries: Vec::new(), hunk: None, comment: None };
    for (index, line) in text.lines().enumerate() {
        state.read_line(index + 1, line)?;
    }
    state.end_comment()?;
    Ok(state.entries)
}

fn error(number: usize, what: impl Into<String>) -> Failure {
    Failure::usage(format!("line {number}: {}", what.into()))
}

impl ParseState<'_> {
    fn read_line(&mut self, number: usize, line: &str) -> Result<()> {
        if let Some(rest) = line.strip_prefix('>') {
            return self.read_comment(number, rest);
        }
        self.end_comment()?;
        match line.chars().next() {
            None | Some('#' | '@') => Ok(()),
            Some(' ' | '+' | '-') => self.read_diff_line(number, line),
            Some(_) => self.read_decision(number, line),
        }
    }

    fn read_decision(&mut self, number: usize, line: &str) -> Result<()> {
        let mut words = line.split_whitespace();
        let decision = match words.next() {
            Some("accept" | "accepted" | "a") => HunkDecision::Accepted,
            Some("return" | "returned" | "r") => HunkDecision::Returned,
            Some("undecided" | "u") => HunkDecision::Undecided,
            Some(_) | None => {
                let start = printable(base::text::head(line, 40));
                return Err(error(number, format!("cannot read `{start}`")).hint(
                    "a line begins with accept, return, undecided, `>` for a comment, `#`, or is \
                     a line of the diff",
                ));
            }
        };
        let Some(id) = words.next() else {
            return Err(error(number, "the id of the hunk is missing"));
        };
        let index = self.review.hunks.iter().position(|hunk| hunk.hunk.id == id);
        let Some(index) = index else {
            return Err(error(number, format!("no such hunk: `{}`", printable(id)))
                .because("it landed already, or the work has changed since it was shown"));
        };
        self.hunk = Some((index, 0));
        if self.review.hunks[index].decision != decision {
            let hunk = id.to_owned();
            self.entries.push(ReviewEntry::Decided { hunk, decision });
        }
        Ok(())
    }

    /// Finds a line of the diff among those that follow in the hunk: lines may be left out.
    fn read_diff_line(&mut self, number: usize, line: &str) -> Result<()> {
        // Editors may remove white space at the end of lines.
        if line.trim().is_empty() {
            return Ok(());
        }
        let Some((index, passed)) = self.hunk else {
            return Err(error(number, "a line of a diff before the first hunk"));
        };
        let lines = &self.review.hunks[index].hunk.lines;
        let is_same = |it: &DiffLine| {
            format!("{}{}", mark(it), printable(&it.text)).trim_end() == line.trim_end()
        };
        match lines[passed..].iter().position(is_same) {
            Some(found) => {
                self.hunk = Some((index, passed + found + 1));
                Ok(())
            }
            None => Err(error(number, "this line differs from the diff")
                .because("only decisions and comments can be changed")
                .hint("change the file in the session's worktree, or write a comment")),
        }
    }

    fn read_comment(&mut self, number: usize, rest: &str) -> Result<()> {
        let digits = rest.chars().take_while(char::is_ascii_digit).count();
        let (known, text) = rest.split_at(digits);
        let text = text.strip_prefix(' ').unwrap_or(text).to_owned();
        if known.is_empty() {
            match &mut self.comment {
                Some((_, lines, _)) => lines.push(text),
                None => self.comment = Some((None, vec![text], number)),
            }
            return Ok(());
        }
        self.end_comment()?;
        let known = known.parse().map_err(|_| error(number, "invalid number of a comment"))?;
        self.comment = Some((Some(known), vec![text], number));
        Ok(())
    }

    fn end_comment(&mut self) -> Result<()> {
        let Some((known, lines, number)) = self.comment.take() else { return Ok(()) };
        let text = lines.join("\n").trim_end().to_owned();
        match known {
            Some(n) => self.change_comment(n, text, number),
            None => self.add_comment(text, number),
        }
    }

    fn change_comment(&mut self, n: u32, text: String, number: usize) -> Result<()> {
        let Some(comment) = self.review.comments.iter().find(|comment| comment.number == n) else {
            return Err(error(number, format!("no such comment: {n}"))
                .hint("begin a new comment with `> `"));
        };
        if text.trim().is_empty() {
            self.entries.push(ReviewEntry::Removed { n });
        } else if printable(&comment.text).trim_end() != text {
            self.entries.push(ReviewEntry::Edited { n, text });
        }
        Ok(())
    }

    fn add_comment(&mut self, text: String, number: usize) -> Result<()> {
        let Some((index, passed)) = self.hunk else {
            return Err(error(number, "a comment before the first hunk")
                .hint("write it below a line of the diff"));
        };
        if text.trim().is_empty() {
            return Err(error(number, "the comment is empty"));
        }
        let lines = self.review.hunks[index].hunk.lines.len();
        let range = match passed {
            0 => 0..=lines.saturating_sub(1),
            passed => passed - 1..=passed - 1,
        };
        let anchor = self.review.anchor(index, range);
        // The same file may be applied twice.
        let is_known = self.review.comments.iter().any(|comment| {
            let place = |it: &crate::review::log::CommentAnchor| {
                (it.path.clone(), it.side, it.first, it.last)
            };
            comment.text == text && place(&comment.anchor) == place(&anchor)
        });
        if !is_known {
            self.entries.push(ReviewEntry::Commented { n: 0, anchor, text });
        }
        Ok(())
    }
}
