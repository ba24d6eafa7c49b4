//! What all pages have: the frame, states, times, and forms that run a command.

use base::failure::Failure;
use base::id::Id;
use base::text::printable;
use jiff::Timestamp;
use maud::{DOCTYPE, Markup, html};
use studio_core::session::journal::CheckResult;
use studio_core::session::state::SessionState;

use crate::report::table;
use crate::serve::server::PageServer;

/// A page of the navigation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NavigationItem {
    Board,
    New,
    Plan,
    Queue,
    Operations,
    /// A page of a session.
    Session,
}

/// Returns a whole page. `stream` are the events after which it is read again.
pub(crate) fn page(
    server: &PageServer,
    section: NavigationItem,
    title: &str,
    stream: Option<&str>,
    content: &Markup,
) -> Markup {
    let link = |target: NavigationItem, path: &str, text: &str| {
        html! { a href=(path) aria-current=[(target == section).then_some("page")] { (text) } }
    };
    html! {
        (DOCTYPE)
        html lang="en" {
            (head(&format!("{} · {}", printable(title), printable(server.title()))))
            body {
                a.skip href="#main" { "Skip to the content" }
                header.top {
                    a.repository href="/" { (printable(server.title())) }
                    nav aria-label="Pages" {
                        (link(NavigationItem::Board, "/", "Sessions"))
                        (link(NavigationItem::New, "/new", "New tasks"))
                        (link(NavigationItem::Plan, "/plan", "Plan"))
                        (link(NavigationItem::Queue, "/queue", "Landing"))
                        (link(NavigationItem::Operations, "/operations", "Operations"))
                    }
                    span #connection role="status" {}
                }
                main #main tabindex="-1" data-stream=[stream] { (content) }
                div #toasts role="status" aria-live="polite" {}
                dialog #question aria-labelledby="question-text" {
                    p #question-text {}
                    div.buttons {
                        button type="button" value="yes" { "Continue" }
                        button type="button" value="no" { "Cancel" }
                    }
                }
            }
        }
    }
}

fn head(title: &str) -> Markup {
    html! {
        head {
            meta charset="utf-8";
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta name="color-scheme" content="light dark";
            title { (title) }
            link rel="stylesheet" href="/style.css";
            script src="/page.js" defer {}
        }
    }
}

/// Returns the page after the link of the terminal, which leads on to the board.
pub(crate) fn login(title: &str) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="refresh" content="0;url=/";
                title { (printable(title)) }
                link rel="stylesheet" href="/style.css";
            }
            body { main { p { a href="/" { "Sessions of " (printable(title)) } } } }
        }
    }
}

/// Returns the page of a failure.
pub(crate) fn failure(failure: &Failure) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            (head("studio"))
            body {
                main #main.failure {
                    h1 { (printable(&failure.what)) }
                    @if let Some(reason) = failure.reason() { p { (printable(&reason)) } }
                    @for hint in &failure.hints { p { code { (printable(hint)) } } }
                    p { a href="/" { "All sessions" } }
                }
            }
        }
    }
}

/// Returns the name of a state as a mark; its color is never the only difference.
pub(crate) fn state(state: &SessionState) -> Markup {
    html! { span.state.(state_kind(state)) { (state.name()) } }
}

/// Returns the class of a state.
pub(crate) fn state_kind(state: &SessionState) -> &'static str {
    match state {
        SessionState::Failed { .. } | SessionState::Crashed => "bad",
        SessionState::Waiting { .. } => "ask",
        SessionState::Ready | SessionState::Accepted => "good",
        SessionState::Starting
        | SessionState::Working
        | SessionState::Checking
        | SessionState::Landing => "busy",
        SessionState::Queued
        | SessionState::Stopped
        | SessionState::Empty
        | SessionState::Discarded => "rest",
    }
}

/// Returns the age of a time.
pub(crate) fn age(since: &str, now: Timestamp) -> Markup {
    html! { time datetime=(since) title=(since) { (table::age(since, now)) } }
}

/// Returns lines that were added and removed.
pub(crate) fn changes(insertions: u64, deletions: u64, is_dirty: bool) -> Markup {
    html! {
        span.changes {
            span.plus { "+" (insertions) } " " span.minus { "−" (deletions) }
            @if is_dirty { span title="some changes are not committed" { "*" } }
        }
    }
}

/// Returns how many checks passed.
pub(crate) fn checks(results: Option<&[CheckResult]>) -> Markup {
    let Some(results) = results.filter(|results| !results.is_empty()) else { return html! {} };
    let passed = results.iter().filter(|result| result.ok).count();
    let kind = if passed == results.len() { "good" } else { "bad" };
    html! { span.checks.(kind) { (passed) "/" (results.len()) " checks" } }
}

/// Returns a cost.
pub(crate) fn cost(usd: Option<f64>) -> Markup {
    html! { @if let Some(usd) = usd { span.cost { (format!("${usd:.2}")) } } }
}

/// Returns a form with one button that runs a command for a session. `done` says what happened then;
/// `confirm` is a question that is asked first.
pub(crate) fn action(
    id: &Id,
    verb: &str,
    label: &str,
    done: &str,
    confirm: Option<&str>,
) -> Markup {
    html! {
        form.action action=(format!("/api/v1/sessions/{id}/{verb}")) method="post"
            data-done=(format!("{id}: {done}")) data-confirm=[confirm] {
            button #(format!("{verb}-{id}")) { (label) span.hidden { " " (id) } }
        }
    }
}

/// Returns the path of a session's page.
pub(crate) fn session_path(id: &Id) -> String {
    format!("/sessions/{id}")
}
