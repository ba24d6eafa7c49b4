//! The review of a session: its hunks, those that need most attention first. The page has the head of
//! each hunk; the script asks for the lines of those that come into view.

use std::sync::PoisonError;

use axum::extract::{Path, Query, State};
use base::failure::Result;
use base::id::Id;
use base::text::{count, printable};
use maud::{Markup, html};
use serde::Deserialize;
use studio_core::overview::{Overview, SessionGroup};
use studio_core::review::hunk::{HunkDecision, file_name, file_note};
use studio_core::review::since::EarlierState;
use studio_core::review::{Review, ReviewComment};

use crate::commands::context::CommandContext;
use crate::serve::error_answer::PageResult;
use crate::serve::pages::diff_lines::{self, DiffLayout};
use crate::serve::pages::layout::{self, NavigationItem};
use crate::serve::review_cache::ReviewCache;
use crate::serve::server::{PageServer, session_id};

/// The number of lines that the page has from the start.
const FIRST_LINES: usize = 200;

/// An earlier state of the work, in a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SinceQuery {
    /// The user's last look.
    Last,
    /// Before the agent's last turn.
    Turn,
}

impl SinceQuery {
    /// Returns the state.
    pub(crate) fn state(self) -> EarlierState {
        match self {
            SinceQuery::Last => EarlierState::LastLook,
            SinceQuery::Turn => EarlierState::LastTurn,
        }
    }

    fn name(self) -> &'static str {
        match self {
            SinceQuery::Last => "last",
            SinceQuery::Turn => "turn",
        }
    }
}

/// The query of a review.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct ReviewQuery {
    since: Option<SinceQuery>,
    #[serde(default)]
    view: DiffLayout,
}

impl ReviewQuery {
    fn text(self, view: DiffLayout, since: Option<SinceQuery>) -> String {
        let since = since.map(|since| format!("&since={}", since.name())).unwrap_or_default();
        format!("?view={}{since}", view.name())
    }
}

/// Shows the review of a session.
pub(crate) async fn show(
    State(server): State<PageServer>,
    path: Path<String>,
    Query(query): Query<ReviewQuery>,
) -> PageResult {
    let id = session_id(path)?;
    let name = id.to_string();
    let stream = server.feed().stream_path();
    let content = server.read(move |server, context| content(server, context, &id, query)).await?;
    let title = format!("Review of {name}");
    Ok(layout::page(&server, NavigationItem::Session, &title, Some(&stream), &content))
}

fn content(
    server: &PageServer,
    context: &CommandContext,
    id: &Id,
    query: ReviewQuery,
) -> Result<Markup> {
    let review = server.reviews().open(context, id, query.since.map(SinceQuery::state))?;
    let review = review.lock().unwrap_or_else(PoisonError::into_inner);
    let next = next_session(server, id);
    let toggle = match query.view {
        DiffLayout::Unified => (DiffLayout::Split, "Side by side"),
        DiffLayout::Split => (DiffLayout::Unified, "Unified"),
    };
    let since = |since: Option<SinceQuery>, text: &str| {
        let current = (query.since == since).then_some("true");
        html! { a href=(query.text(query.view, since)) aria-current=[current] { (text) } }
    };
    let mut lines_left = FIRST_LINES;
    Ok(html! {
        div #review data-id=(id) data-head=(review.head) data-keep
            data-query=(query.text(query.view, query.since)) data-next=[next.as_ref().map(|id| format!("/sessions/{id}/review"))] {
            div.session-head {
                h1 {
                    a href=(layout::session_path(id)) { (printable(first_line(&review.view.record.task))) }
                }
                p.review-bar {
                    (layout::state(&review.view.state)) " "
                    span #counts { (counts(&review)) }
                    span.views {
                        (since(None, "all")) (since(Some(SinceQuery::Last), "since my last look"))
                        (since(Some(SinceQuery::Turn), "last turn"))
                        a href=(query.text(toggle.0, query.since)) #toggle-view { (toggle.1) }
                        button type="button" #help-button { "Keys" }
                    }
                }
                @if review.older_hunks > 0 { p.reason { (count(review.older_hunks, "older hunk")) " not shown" } }
                @for note in &review.notes { p.warning { (printable(note)) } }
            }
            @if review.hunks.is_empty() { p.empty { "Nothing to review." } }
            @for index in 0..review.hunks.len() {
                (hunk(server.reviews(), &review, index, query.view, &mut lines_left))
            }
            (lost_comments(&review))
            div.buttons.review-end { (end_buttons(&review, next.as_ref())) }
        }
        (help())
    })
}

/// Returns the next session that is ready, after this one in the order of the board.
fn next_session(server: &PageServer, id: &Id) -> Option<Id> {
    server.feed().with(|sessions| {
        let mut rows = Overview::of(&sessions.oldest_first()).rows;
        rows.retain(|row| row.group == SessionGroup::Ready || row.key.id == *id);
        let at = rows.iter().rposition(|row| row.key.id == *id)?;
        let next = rows.get(at + 1).or_else(|| rows.first())?;
        (next.key.id != *id).then(|| next.key.id.clone())
    })
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// Returns how many hunks and comments there are.
pub(crate) fn counts(review: &Review) -> Markup {
    let unsent = review.unsent_comments().count() + review.unsent_returned().count();
    html! {
        (count(review.hunks.len(), "hunk"))
        ", " span.good { (review.count(HunkDecision::Accepted)) " accepted" }
        ", " span.bad { (review.count(HunkDecision::Returned)) " returned" }
        ", " (count(review.comments.len(), "comment"))
        @if unsent > 0 { ", " b { (unsent) " not sent" } }
    }
}

fn hunk(
    reviews: &ReviewCache,
    review: &Review,
    index: usize,
    view: DiffLayout,
    lines_left: &mut usize,
) -> Markup {
    let it = &review.hunks[index];
    let file = &review.files[it.file];
    let (added, removed) = it.hunk.line_counts();
    let lines = it.hunk.lines.len();
    let has_lines = it.mechanical.is_none() && lines <= *lines_left;
    if has_lines {
        *lines_left -= lines;
    }
    let name = printable(&file_name(file));
    html! {
        section.hunk #(format!("hunk-{}", it.hunk.id)) data-hunk=(it.hunk.id) data-lines=(lines)
            data-decision=(it.decision.name()) data-folded[it.mechanical.is_some()]
            data-loaded[has_lines] tabindex="-1" aria-label=(name) {
            header {
                h2 { (name) }
                @if it.risk.score > 0 { span.risk title="how much attention it needs" { "risk " (it.risk.score) } }
                @if let Some(mechanical) = it.mechanical { span.mechanical { (mechanical.name().replace('_', " ")) } }
                span.changes { span.plus { "+" (added) } " " span.minus { "−" (removed) } }
                span.decision { (it.decision.name()) }
                @if let Some(note) = file_note(file) { span.note { (printable(&note)) } }
                span.hunk-buttons {
                    button type="button" data-key="a" aria-pressed=(it.decision == HunkDecision::Accepted) { "Accept" }
                    button type="button" data-key="r" aria-pressed=(it.decision == HunkDecision::Returned) { "Return" }
                    button type="button" data-key="c" { "Comment" }
                    button type="button" data-key="f" aria-expanded=(it.mechanical.is_none()) { "Fold" }
                }
                @if !it.risk.reasons.is_empty() {
                    ul.reasons {
                        @for reason in &it.risk.reasons {
                            li.(if reason.rule == "same_lines" { "conflict" } else { "reason" }) { (printable(&reason.text)) }
                        }
                    }
                }
            }
            div.lines tabindex="0" role="region" aria-label=(format!("Lines of {name}")) {
                @if has_lines { (lines_of(reviews, review, index, view)) }
            }
            div.comments { (comments_of(review, index)) }
        }
    }
}

/// Returns the lines of a hunk.
pub(crate) fn lines_of(
    reviews: &ReviewCache,
    review: &Review,
    index: usize,
    view: DiffLayout,
) -> Markup {
    let it = &review.hunks[index];
    let path = &review.files[it.file].path;
    html! {
        @if !it.hunk.lines.is_empty() {
            div.hunk-header { (printable(&it.hunk.header())) }
            (diff_lines::table(reviews.highlighter(), path, (&it.hunk.lines, &it.shared_lines), view))
        }
    }
}

/// Returns the comments of a hunk.
pub(crate) fn comments_of(review: &Review, index: usize) -> Markup {
    let comments = review.comments.iter().filter(|comment| comment.hunk == Some(index));
    html! { @for it in comments { (comment(it)) } }
}

fn comment(it: &ReviewComment) -> Markup {
    let place = match it.line() {
        None => format!("line {}, which has changed", it.anchor.first),
        Some(0) => "file".to_owned(),
        Some(line) => format!("line {line}"),
    };
    html! {
        div.comment #(format!("comment-{}", it.number)) {
            p.who {
                b { "Comment " (it.number) } " " (printable(&place))
                @if it.is_sent { " · sent" }
                button type="button" data-remove=(it.number) { "Remove" span.hidden { " comment " (it.number) } }
            }
            div.said { (printable(&it.text)) }
        }
    }
}

fn lost_comments(review: &Review) -> Markup {
    let lost: Vec<_> = review.comments.iter().filter(|comment| comment.hunk.is_none()).collect();
    html! {
        @if !lost.is_empty() {
            section aria-label="Comments on files that are not shown" {
                h2 { "Comments on files that are not shown" }
                @for it in lost { (comment(it)) }
            }
        }
    }
}

fn end_buttons(review: &Review, next: Option<&Id>) -> Markup {
    let id = &review.view.record.id;
    let action = |verb: &str, label: &str, done: &str, busy: Option<&str>| {
        html! {
            form.action action=(format!("/api/v1/sessions/{id}/{verb}")) method="post"
                data-done=(format!("{id}: {done}")) data-busy=[busy] data-then="next" {
                button #(verb.replace('/', "-")) { (label) }
            }
        }
    };
    let busy = Some("Checking the merged tree and landing …");
    html! {
        (action("review/send", "Send comments and returned hunks", "review sent", None))
        (action("review/land", "Land the accepted hunks", "landed", busy))
        @if let Some(next) = next { a.button #next href=(format!("/sessions/{next}/review")) { "Next session" } }
    }
}

fn help() -> Markup {
    let keys = [
        ("j k", "next and previous hunk"),
        ("a", "accept the hunk, and go to the next one"),
        ("r", "return the hunk to the agent, and go to the next one"),
        ("c", "comment on the hunk, or on the line under the pointer"),
        ("f", "fold or unfold the hunk"),
        ("v", "side by side or unified"),
        ("s", "send comments and returned hunks"),
        ("l", "land the accepted hunks"),
        ("n", "next session"),
        ("?", "this help"),
    ];
    html! {
        dialog #help aria-labelledby="help-title" {
            h2 #help-title { "Keys" }
            dl.keys { @for (key, text) in keys { dt { kbd { (key) } } dd { (text) } } }
            div.buttons { button type="button" value="close" { "Close" } }
        }
    }
}
