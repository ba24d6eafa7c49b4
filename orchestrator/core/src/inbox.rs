//! The inbox: what needs the user, over all sessions of a repository. It has no terminal in it.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use studio_git::repo::Repository;

use crate::radar::ConflictingPair;
use crate::seen;
use crate::session::state::SessionState;
use crate::session::summary::OpenRequest;
use crate::session_view::SessionView;

/// How long a session may work without an event before the inbox shows it: longer than most builds
/// and test runs.
const QUIET_AFTER: SignedDuration = SignedDuration::from_mins(10);

/// What needs the user, the oldest first in each list.
#[derive(Debug, Default)]
pub struct UserInbox<'v> {
    /// Open permission requests.
    pub questions: Vec<InboxQuestion<'v>>,
    /// Working sessions without an event for a long time: their agents may be stuck.
    pub quiet: Vec<&'v SessionView>,
    /// Sessions whose agents are stuck.
    pub stalled: Vec<&'v SessionView>,
    /// Sessions that wait for the end of a rate limit, and continue by themselves.
    pub parked: Vec<&'v SessionView>,
    /// Settled sessions that the user has not looked at since they settled.
    pub unseen: Vec<&'v SessionView>,
    /// The other settled sessions that are neither accepted nor discarded.
    pub seen: Vec<&'v SessionView>,
    /// The pairs of sessions that change the same lines: information, which needs no answer.
    pub conflicts: Vec<ConflictingPair>,
}

/// An open permission request.
#[derive(Clone, Copy, Debug)]
pub struct InboxQuestion<'v> {
    /// Its session.
    pub view: &'v SessionView,
    /// Its number in the session.
    pub number: u32,
    /// The request.
    pub request: &'v OpenRequest,
}

impl InboxQuestion<'_> {
    /// Returns the command that gives this answer: `allow` or `deny`.
    pub fn command(&self, answer: &str) -> String {
        format!("studio answer {} {} {answer}", self.view.record.id, self.number)
    }

    /// Returns how to deny a host in all sessions, if the request is a connection.
    pub fn never_hint(&self) -> Option<String> {
        self.request.host.as_ref()?;
        Some(format!("never ask about this host again: {} --always", self.command("deny")))
    }
}

impl<'v> UserInbox<'v> {
    /// Sorts the sessions of a repository.
    pub fn of(repository: &Repository, views: &'v [SessionView], now: Timestamp) -> UserInbox<'v> {
        let mut inbox = UserInbox { questions: questions(views).collect(), ..UserInbox::default() };
        inbox.questions.sort_by_key(|question| question.request.asked_at.clone());
        inbox.quiet = views.iter().filter(|view| is_quiet(view, now)).collect();
        inbox.quiet.sort_by_key(|view| view.facts.summary.updated_at.clone());
        inbox.stalled = views.iter().filter(|view| view.is_stalled()).collect();
        inbox.parked = views.iter().filter(|view| view.waiting_until().is_some()).collect();
        inbox.parked.sort_by_key(|view| view.waiting_until());
        let mut settled: Vec<&SessionView> =
            views.iter().filter(|view| view.state.is_settled() && !view.state.is_over()).collect();
        settled.sort_by_key(|view| seen::settled_at(view));
        (inbox.seen, inbox.unseen) =
            settled.into_iter().partition(|view| seen::is_seen(repository, view));
        inbox.conflicts = conflicts(views);
        inbox
    }

    /// Whether nothing needs the user.
    pub fn is_empty(&self) -> bool {
        self.questions.is_empty()
            && self.quiet.is_empty()
            && self.stalled.is_empty()
            && self.parked.is_empty()
            && self.unseen.is_empty()
            && self.seen.is_empty()
    }

    /// Returns the inbox as JSON; sessions are as in `studio list --json`.
    pub fn json(&self) -> Value {
        let sessions =
            |views: &[&SessionView]| views.iter().map(|view| view.json()).collect::<Vec<_>>();
        let question = |question: &InboxQuestion<'_>| {
            json!({
                "id": question.view.record.id, "number": question.number,
                "description": question.request.description, "asked_at": question.request.asked_at,
                "worktree": question.view.record.session_repo.worktree,
                "answers": [question.command("allow"), question.command("deny")],
            })
        };
        let pair = |pair: &ConflictingPair| json!({"sessions": pair.ids, "files": pair.files});
        json!({
            "schema": 1,
            "questions": self.questions.iter().map(question).collect::<Vec<_>>(),
            "quiet": sessions(&self.quiet),
            "stalled": sessions(&self.stalled),
            "parked": sessions(&self.parked),
            "unseen": sessions(&self.unseen),
            "seen": sessions(&self.seen),
            "conflicts": self.conflicts.iter().map(pair).collect::<Vec<_>>(),
        })
    }
}

/// Returns the pairs of sessions that change the same lines, each once.
fn conflicts(views: &[SessionView]) -> Vec<ConflictingPair> {
    let pairs_of = |view: &SessionView| {
        let id = view.record.id.clone();
        let others = view.conflicts_with.clone().unwrap_or_default().into_iter();
        let others = others.filter(move |other| id < other.id);
        let id = view.record.id.clone();
        others.map(move |other| ConflictingPair { ids: [id.clone(), other.id], files: other.files })
    };
    views.iter().flat_map(pairs_of).collect()
}

/// Returns whether a session works and its agent has reported nothing for a long time. A session
/// that waits for the user or for its provider is not quiet.
pub fn is_quiet(view: &SessionView, now: Timestamp) -> bool {
    let is_working = matches!(view.state, SessionState::Starting | SessionState::Working);
    let last_event = view.facts.summary.updated_at.as_ref();
    let last_event = last_event.and_then(|time| time.parse::<Timestamp>().ok());
    is_working && last_event.is_some_and(|time| now.duration_since(time) >= QUIET_AFTER)
}

/// Returns the open permission requests of sessions, in the order of the sessions.
pub fn questions<'v>(
    views: impl IntoIterator<Item = &'v SessionView>,
) -> impl Iterator<Item = InboxQuestion<'v>> {
    views.into_iter().flat_map(|view| {
        let requests = view.facts.summary.open_requests.iter();
        requests.map(move |(number, request)| InboxQuestion { view, number: *number, request })
    })
}
