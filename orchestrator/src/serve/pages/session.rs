//! The page of a session: its task, what happened, and what the user can do.

use axum::extract::{Path, Query, State};
use base::failure::{OrFail, Result};
use base::id::Id;
use base::text::{count, printable};
use jiff::Timestamp;
use maud::{Markup, html};
use serde::Deserialize;
use studio_core::seen;
use studio_core::session::journal::JournalTail;
use studio_core::session::state::SessionState;
use studio_core::session_view::SessionView;
use studio_core::timeline::{Timeline, TimelineEntry, TimelineKind};

use crate::commands::context::CommandContext;
use crate::serve::error_answer::PageResult;
use crate::serve::pages::board;
use crate::serve::pages::layout::{self, NavigationItem};
use crate::serve::server::{PageServer, session_id};

/// The number of the newest entries that are shown.
const MAX_ENTRIES: usize = 400;
/// Maximum number of bytes of an entry's text; `studio logs` shows all of it.
const MAX_TEXT_BYTES: usize = 20_000;

/// The query of the page.
#[derive(Deserialize)]
pub(crate) struct SessionQuery {
    /// Whether all entries are shown.
    #[serde(default)]
    all: bool,
}

/// Shows a session.
pub(crate) async fn show(
    State(server): State<PageServer>,
    path: Path<String>,
    Query(query): Query<SessionQuery>,
) -> PageResult {
    let id = session_id(path)?;
    let (view, content, offset) = server
        .read(move |server, context| {
            server.feed().refresh();
            let view = context.salvage(context.view(&id)?);
            // What the server compared in the background.
            let compared = server.feed().with(|sessions| {
                let session = sessions.get(&id).and_then(|session| session.view.as_ref().ok());
                session.map(|view| (view.standing.clone(), view.conflicts_with.clone()))
            });
            let mut view = view;
            if let Some((standing, conflicts_with)) = compared {
                (view.standing, view.conflicts_with) = (standing, conflicts_with);
            }
            let path = context.store.file(&id, "journal.jsonl");
            let offset = std::fs::metadata(&path).map_or(0, |meta| meta.len());
            let content = content(context, &view, query.all)?;
            seen::mark(&context.repository, &view);
            Ok((view, content, offset))
        })
        .await?;
    let id = &view.record.id;
    let stream = format!("/api/v1/sessions/{id}/events?after={offset}");
    Ok(layout::page(&server, NavigationItem::Session, id.as_str(), Some(&stream), &content))
}

fn content(context: &CommandContext, view: &SessionView, all: bool) -> Result<Markup> {
    let id = &view.record.id;
    let now = context.clock.now();
    let path = context.store.file(id, "journal.jsonl");
    let lines = JournalTail::from_start(path).read_new().or_fail(|| "cannot read the journal")?;
    let mut timeline = Timeline::default();
    timeline.add_lines(&lines);
    let task = printable(&view.record.task);
    let (title, rest) = task.split_once('\n').unwrap_or((&task, ""));
    Ok(html! {
        div.session-head #session-head {
            h1 { (layout::state(&view.state)) " " (title) }
            @if let Some(reason) = view.reason() { p.reason { (printable(&reason)) } }
            (buttons(view))
        }
        (requests(view))
        (conflicts(view))
        div.session-body #session-body {
            section.timeline #timeline aria-labelledby="timeline-title" {
                h2 #timeline-title { "Timeline" }
                @if !rest.trim().is_empty() {
                    details #whole-task { summary { "The whole task" } pre { (task) } }
                }
                (entries(timeline.entries(), all, now))
                (composer(view))
            }
            aside #facts aria-label="Facts" { (facts(view, now)) (land_form(view)) }
        }
    })
}

/// Returns the buttons that apply in the state.
fn buttons(view: &SessionView) -> Markup {
    let id = &view.record.id;
    let action = |verb, label, done| layout::action(id, verb, label, done, None);
    let discard = |question| layout::action(id, "discard", "Discard", "discarded", question);
    let has_work = view.work().is_some_and(|work| work.is_changed());
    html! {
        div.buttons {
            @if has_work && !view.state.is_over() {
                a.button.primary href=(format!("/sessions/{id}/review")) { "Review" }
            }
            @if view.state.is_active() || view.state == SessionState::Queued {
                (action("stop", "Stop", "stopped"))
                (discard(Some("The agent is running. Stop it and discard its work?")))
            } @else if view.state.is_over() {
                @if let Some(operation) = &view.undo_operation { (board::undo(operation)) }
            } @else if view.state != SessionState::Landing {
                @match &view.state {
                    SessionState::Stopped | SessionState::Crashed | SessionState::Failed { .. } => {
                        (action("resume", "Resume", "resumed"))
                    }
                    _ => {}
                }
                @if has_work { (action("check", "Run checks", "checked")) }
                (discard(None))
            }
        }
    }
}

/// Returns the open permission requests, each in full.
fn requests(view: &SessionView) -> Markup {
    let id = &view.record.id;
    let is_waiting = matches!(view.state, SessionState::Waiting { .. });
    let answer = |number: u32, allow: bool, always: bool, label: &str| {
        html! {
            form.action action=(format!("/api/v1/sessions/{id}/answer")) method="post"
                data-done=(format!("{id}: permission {number} {}", if allow { "allowed" } else { "denied" })) {
                input type="hidden" name="number" value=(number) data-type="number";
                input type="hidden" name="allow" value=(allow) data-type="json";
                input type="hidden" name="always" value=(always) data-type="json";
                button { (label) }
            }
        }
    };
    html! {
        @if is_waiting {
            @for (number, request) in &view.facts.summary.open_requests {
                section.request #(format!("request-{number}")) aria-label=(format!("Permission request {number}")) {
                    h2 { (printable(&view.record.agent)) " asks for permission " (number) }
                    pre tabindex="0" { (printable(&request.description)) }
                    p { "in " code { (printable(&view.record.session_repo.worktree.display().to_string())) } }
                    div.buttons {
                        (answer(*number, true, false, "Allow"))
                        (answer(*number, true, true, &capitalized(request.always_allow_text())))
                        (answer(*number, false, false, "Deny"))
                    }
                }
            }
        }
    }
}

fn capitalized(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

/// Returns what the work conflicts with, and the button that gives it back to the agent.
fn conflicts(view: &SessionView) -> Markup {
    let id = &view.record.id;
    let own = view.standing.as_ref().map(|standing| &standing.conflicts);
    let own = own.filter(|files| !files.is_empty() && !view.state.is_over());
    let others = view.conflicts_with.iter().flatten().filter(|_| !view.state.is_over());
    let others: Vec<_> = others.collect();
    html! {
        @if let Some(files) = own {
            section.conflict #branch-conflicts aria-label="Conflicts with the branch" {
                h2 { "Conflicts with its branch" }
                ul { @for file in files { li { code { (printable(file)) } } } }
                (sides_link(id))
                form.action action=(format!("/api/v1/sessions/{id}/accept")) method="post"
                    data-done=(format!("{id}: landed")) {
                    input type="hidden" name="resolve" value="3" data-type="number";
                    button { "Let the agent resolve them, then land" }
                }
            }
        }
        @if !others.is_empty() {
            section.conflict #session-conflicts aria-label="Conflicts with other sessions" {
                h2 { "Changes the same lines as" }
                ul {
                    @for other in others {
                        li {
                            a href=(layout::session_path(&other.id)) { (other.id) } ": "
                            (printable(&other.files.join(", ")))
                        }
                    }
                }
                (sides_link(id))
            }
        }
    }
}

fn sides_link(id: &Id) -> Markup {
    html! { p { a href=(format!("{}/conflicts", layout::session_path(id))) { "Show the lines of both sides" } } }
}

/// Returns the entries; consecutive tool calls are folded.
fn entries(all_entries: &[TimelineEntry], all: bool, now: Timestamp) -> Markup {
    let skipped = if all { 0 } else { all_entries.len().saturating_sub(MAX_ENTRIES) };
    let shown: Vec<(usize, &TimelineEntry)> =
        all_entries.iter().enumerate().skip(skipped).collect();
    let is_call = |entry: &TimelineEntry| matches!(entry.kind, TimelineKind::Call { .. });
    let groups = shown.chunk_by(|(_, a), (_, b)| is_call(a) && is_call(b));
    html! {
        @if skipped > 0 {
            p { a href="?all=true" { (count(skipped, "earlier entry").replace("entrys", "entries")) } }
        }
        ol.entries data-list {
            @for group in groups {
                @let (index, first) = group[0];
                @if is_call(first) { (calls(index, group)) } @else { (entry(index, first, now)) }
            }
        }
    }
}

fn calls(index: usize, group: &[(usize, &TimelineEntry)]) -> Markup {
    let failed = group.iter().filter(|(_, it)| it.kind == TimelineKind::Call { ok: Some(false) });
    let failed = failed.count();
    let last = group.last().map(|(_, last)| printable(&last.text)).unwrap_or_default();
    html! {
        li.entry.calls #(format!("entry-{index}")) {
            details #(format!("calls-{index}")) {
                summary {
                    (count(group.len(), "tool call"))
                    @if failed > 0 { span.bad { ", " (failed) " failed" } }
                    span.last { (last) }
                }
                ol {
                    @for (number, call) in group {
                        li #(format!("call-{number}")) .(call_class(call.kind)) { (printable(&call.text)) }
                    }
                }
            }
        }
    }
}

fn call_class(kind: TimelineKind) -> &'static str {
    match kind {
        TimelineKind::Call { ok: Some(false) } => "call bad",
        TimelineKind::Call { ok: None } => "call busy",
        _ => "call",
    }
}

fn entry(index: usize, entry: &TimelineEntry, now: Timestamp) -> Markup {
    let (class, who) = match entry.kind {
        TimelineKind::User => ("user", Some("You")),
        TimelineKind::Agent => ("agent", Some("Agent")),
        TimelineKind::Call { .. } => ("call", None),
        TimelineKind::Request => ("ask", Some("Asks for permission")),
        TimelineKind::Answer { allow: true } => ("good", Some("Permission")),
        TimelineKind::Answer { allow: false } => ("bad", Some("Permission")),
        TimelineKind::Check { ok: true } => ("good", Some("Check")),
        TimelineKind::Check { ok: false } => ("bad", Some("Check")),
        TimelineKind::State => ("note", Some("State")),
        TimelineKind::Work => ("note", Some("Work")),
        TimelineKind::Turn | TimelineKind::Note => ("note", None),
        TimelineKind::Error => ("bad", Some("Error")),
    };
    let text = printable(base::text::head(&entry.text, MAX_TEXT_BYTES));
    html! {
        li.entry.(class) #(format!("entry-{index}")) {
            div.who { @if let Some(who) = who { b { (who) } " " } (layout::age(&entry.time, now)) }
            div.said { (text) @if entry.text.len() > MAX_TEXT_BYTES { "…" } }
        }
    }
}

fn composer(view: &SessionView) -> Markup {
    let id = &view.record.id;
    html! {
        @if !view.state.is_over() {
            form.composer action=(format!("/api/v1/sessions/{id}/send")) method="post"
                data-done=(format!("{id}: message sent")) data-reset data-keep #composer {
                label for="message" { "Message to the agent" }
                textarea #message name="text" rows="3" required
                    placeholder="It gets this at the end of its turn; a session that ended is resumed" {}
                button { "Send" }
            }
        }
    }
}

fn facts(view: &SessionView, now: Timestamp) -> Markup {
    let (record, summary) = (&view.record, &view.facts.summary);
    html! {
        dl.facts #fact-list {
            dt { "Session" } dd { code { (record.id) } }
            dt { "Agent" } dd { (printable(&crate::report::table::agent(record))) }
            dt { "Started" } dd { (layout::age(&record.created_at, now)) " ago" }
            @if let Some(branch) = &record.base.branch {
                dt { "Lands on" } dd { code { (printable(branch.as_str())) } }
            }
            dt { "Branch" } dd { code { (printable(record.session_repo.branch.as_str())) } }
            dt { "Worktree" } dd { code { (printable(&record.session_repo.worktree.display().to_string())) } }
            @if let Some(work) = view.work() {
                dt { "Changes" }
                dd {
                    (count(work.files_changed, "file")) ", "
                    (layout::changes(work.insertions, work.deletions, work.dirty))
                }
            }
            @if let Some(usage) = &summary.usage {
                dt { "Tokens" } dd { (usage.input + usage.output) }
                @if usage.cost_usd.is_some() { dt { "Cost" } dd { (layout::cost(usage.cost_usd)) } }
            }
            @for check in summary.checks.iter().flatten() {
                dt { "Check" }
                dd {
                    span.(if check.ok { "good" } else { "bad" }) { (if check.ok { "passed" } else { "failed" }) }
                    " " code { (printable(&check.command)) }
                }
            }
        }
        details #commands { summary { "On the command line" }
            @for command in view.suggested_commands() { pre { (printable(&command)) } }
        }
    }
}

/// Returns the form that lands the session, with the message that is used.
pub(crate) fn land_form(view: &SessionView) -> Markup {
    let id = &view.record.id;
    let message = view.message.as_ref().map(|message| printable(&message.text)).unwrap_or_default();
    html! {
        @if view.state == SessionState::Ready {
            form.land action=(format!("/api/v1/sessions/{id}/accept")) method="post"
                data-done=(format!("{id}: landed")) data-busy="Checking the merged tree and landing …" #land {
                h2 { "Land" }
                label for="commit-message" { "Commit message" }
                textarea #commit-message name="message" rows="5" data-keep
                    placeholder="A model writes it" { (message) }
                button.primary { "Land the session" }
            }
        }
    }
}
