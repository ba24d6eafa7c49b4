//! The types of the answers of the API, for its description. The commands make the JSON; a test
//! compares their real answers with the schemas of these types.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

/// Defines types of answers: they have exactly these fields.
macro_rules! answer_types {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Serialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct $name {
            $($(#[$field_doc])* pub $field: $type,)*
        }
    )*};
}

answer_types! {
    /// Why a request failed.
    FailureAnswer {
        /// The version of the form.
        schema: u32,
        /// The failure.
        error: FailureDetails,
    }
    /// A failure.
    FailureDetails {
        /// What failed.
        what: String,
        /// Why.
        why: Option<String>,
        /// Commands to try.
        r#try: Vec<String>,
        /// The exit code of the command.
        exit: u8,
    }
    /// The sessions of a repository.
    SessionListAnswer {
        /// The version of the form.
        schema: u32,
        /// The sessions.
        sessions: Vec<SessionObject>,
        /// Sessions that cannot be read.
        unreadable: Vec<UnreadableSession>,
    }
    /// Started sessions.
    StartedAnswer {
        /// The version of the form.
        schema: u32,
        /// The sessions.
        sessions: Vec<SessionObject>,
    }
    /// A session that cannot be read.
    UnreadableSession {
        /// Its id.
        id: String,
        /// Why.
        why: String,
    }
    /// A session.
    SessionObject {
        /// The id.
        id: String,
        /// The task.
        task: String,
        /// The state.
        state: String,
        /// The reason of the state.
        why: Option<String>,
        /// When it continues by itself.
        waiting_until: Option<String>,
        /// The agent.
        agent: String,
        /// The persona.
        persona: Option<String>,
        /// The branch of its work.
        branch: String,
        /// Where it started.
        base: SessionBase,
        /// The commit with its work.
        head: Option<String>,
        /// The directory of its work.
        worktree: String,
        /// The place where it runs; null if that is here.
        place: Option<PlaceObject>,
        /// When it was created.
        created_at: String,
        /// When it changed last.
        updated_at: Option<String>,
        /// The number of commits.
        commits: Option<u64>,
        /// The number of changed files.
        files_changed: Option<u64>,
        /// The number of added lines.
        insertions: Option<u64>,
        /// The number of removed lines.
        deletions: Option<u64>,
        /// Whether changes are not committed.
        dirty: Option<bool>,
        /// The files that conflict with its branch.
        conflicts: Option<Vec<String>>,
        /// The open sessions that change the same lines.
        conflicts_with: Option<Vec<ConflictObject>>,
        /// How the branch has its work already.
        landed_elsewhere: Option<Value>,
        /// The results of its checks.
        checks: Option<Vec<CheckObject>>,
        /// What its coach said.
        coach: Option<Value>,
        /// Tokens and cost.
        usage: Option<UsageObject>,
        /// The number of the attempt.
        attempt: u32,
        /// The group of attempts.
        group: Option<String>,
        /// The sessions that it waits for.
        after: Vec<String>,
        /// What plain git would obey in its worktree.
        tampered: Option<String>,
        /// The checkout in which it is tried.
        tried_in: Option<String>,
        /// The commit message that a model wrote.
        message: Option<String>,
        /// The most likely commands.
        next: Vec<String>,
    }
    /// Where a session of a place is.
    PlaceObject {
        /// The name of the place.
        name: String,
        /// Its host, or the node of its job.
        host: String,
        /// The job of the cluster.
        job: Option<String>,
        /// The number of the delivery.
        attempt: u32,
        /// Whether the session is there now.
        away: bool,
        /// When the place was last heard of.
        heard_at: Option<String>,
        /// Why it is not connected.
        problem: Option<String>,
        /// Why its run is lost.
        lost: Option<String>,
        /// Where the place has an earlier state that may not be here.
        set_aside: Option<String>,
    }
    /// Where a session started.
    SessionBase {
        /// The branch.
        branch: Option<String>,
        /// The commit.
        commit: String,
    }
    /// A session that changes the same lines.
    ConflictObject {
        /// Its id.
        id: String,
        /// The files.
        files: Vec<String>,
    }
    /// The result of a check.
    CheckObject {
        /// The command line.
        command: String,
        /// Whether it passed.
        ok: bool,
        /// Its exit code.
        exit: Option<i64>,
        /// Its duration in milliseconds.
        ms: u64,
        /// The branch on which it fails as well.
        fails_on: Option<String>,
        /// Whether it passed only when it was repeated.
        flaky: Option<bool>,
    }
    /// Tokens and cost.
    UsageObject {
        /// Tokens of requests.
        input: u64,
        /// Tokens of replies.
        output: u64,
        /// Tokens read from a cache.
        cache_read: u64,
        /// Tokens written to a cache.
        cache_write: u64,
        /// US dollars.
        cost_usd: Option<f64>,
    }
    /// A changed file that decides what a check says.
    CheckFileObject {
        /// The path.
        path: String,
        /// Why it decides.
        reason: String,
    }
    /// The changes of a session as a patch.
    DiffAnswer {
        /// The version of the form.
        schema: u32,
        /// The session.
        id: String,
        /// The commit that it is compared with.
        base: String,
        /// The changed files that decide what the checks say.
        check_files: Vec<CheckFileObject>,
        /// The patch.
        patch: String,
    }
    /// Reviews.
    ReviewsAnswer {
        /// The version of the form.
        schema: u32,
        /// One review.
        reviews: Vec<ReviewObject>,
    }
    /// The review of a session.
    ReviewObject {
        /// The version of the form.
        schema: u32,
        /// The session.
        id: String,
        /// Its state.
        state: String,
        /// Its task.
        task: String,
        /// The commit that the work is compared with.
        base: String,
        /// The commit, or the tree, with the work.
        head: String,
        /// The number of hunks that are older than the state in `since`.
        older_hunks: u64,
        /// The hunks, those that need most attention first.
        hunks: Vec<HunkObject>,
        /// The comments.
        comments: Vec<CommentObject>,
        /// The changed files that decide what the checks say.
        check_files: Vec<CheckFileObject>,
        /// Notes.
        notes: Vec<String>,
    }
    /// A hunk.
    HunkObject {
        /// Its id.
        id: String,
        /// The file.
        path: String,
        /// Its path before.
        old_path: Option<String>,
        /// Its name for display.
        name: String,
        /// What its lines do not show.
        note: Option<String>,
        /// The mode before.
        old_mode: Option<String>,
        /// The mode after.
        new_mode: Option<String>,
        /// Whether the file is binary.
        binary: bool,
        /// The line that starts the hunk in a patch.
        header: String,
        /// How much attention it needs.
        risk: u32,
        /// Why.
        reasons: Vec<RiskReasonObject>,
        /// Why it needs none.
        mechanical: Option<String>,
        /// `undecided`, `accepted` or `returned`.
        decision: String,
        /// Whether the agent got it.
        sent: bool,
        /// The lines.
        lines: Vec<LineObject>,
    }
    /// Why a hunk needs attention.
    RiskReasonObject {
        /// The rule.
        rule: String,
        /// The text.
        text: String,
    }
    /// A line of a hunk.
    LineObject {
        /// `context`, `removed` or `added`.
        origin: String,
        /// The number before.
        old: Option<u32>,
        /// The number after.
        new: Option<u32>,
        /// The text.
        text: String,
    }
    /// A comment.
    CommentObject {
        /// Its number.
        number: u32,
        /// The file.
        path: String,
        /// `old` or `new`.
        side: String,
        /// The first line.
        first: u32,
        /// The last line.
        last: u32,
        /// The lines as they were.
        snippet: Vec<String>,
        /// The work as it was.
        head: String,
        /// The text.
        text: String,
        /// Whether the agent got it.
        sent: bool,
        /// Where its lines are now.
        placement: Value,
        /// The hunk that shows it.
        hunk: Option<String>,
    }
    /// What a review has after a change.
    ReviewStateAnswer {
        /// The version of the form.
        schema: u32,
        /// The session.
        id: String,
        /// The number of the new comment.
        comment: Option<u32>,
        /// The number of accepted hunks.
        accepted: usize,
        /// The number of returned hunks.
        returned: usize,
        /// The number of hunks without a decision.
        undecided: usize,
        /// The number of comments.
        comments: usize,
        /// The number of comments and returned hunks that the agent has not got.
        unsent: usize,
    }
    /// A message that was sent.
    SentAnswer {
        /// The version of the form.
        schema: u32,
        /// The session.
        id: String,
        /// Whether there was something to send.
        sent: bool,
    }
    /// An answered permission request.
    AnswerAnswer {
        /// The version of the form.
        schema: u32,
        /// The session.
        id: String,
        /// Whether it is allowed.
        allow: bool,
        /// Whether that applies to further requests.
        always: bool,
        /// The host of the request.
        host: Option<String>,
    }
    /// Stopped sessions.
    StoppedAnswer {
        /// The version of the form.
        schema: u32,
        /// The sessions.
        sessions: Vec<SessionObject>,
    }
    /// Resumed sessions.
    ResumedAnswer {
        /// The version of the form.
        schema: u32,
        /// Their ids.
        resumed: Vec<String>,
    }
    /// The checks of a session.
    CheckAnswer {
        /// The version of the form.
        schema: u32,
        /// The session.
        id: String,
        /// Its state.
        state: String,
        /// The reason of the state.
        why: Option<String>,
        /// The results.
        checks: Vec<CheckObject>,
    }
    /// Landings.
    LandingAnswer {
        /// The version of the form.
        schema: u32,
        /// The operation that undoes them.
        operation: Option<String>,
        /// What landed.
        landed: Vec<Value>,
        /// What did not, and why.
        refused: Vec<RefusedObject>,
        /// A failure that concerns no session alone.
        error: Option<FailureDetails>,
    }
    /// A session that did not land.
    RefusedObject {
        /// The session.
        id: String,
        /// Why.
        why: String,
        /// The exit code of the command.
        exit: u8,
        /// The conflicting files.
        files: Vec<String>,
        /// The conflicting files that merge by syntax.
        merges_by_syntax: Vec<Value>,
        /// What lands it after the user confirmed it.
        confirm: Option<Value>,
        /// The session with which it fails.
        fails_with: Option<Value>,
    }
    /// Discarded sessions.
    DiscardedAnswer {
        /// The version of the form.
        schema: u32,
        /// The operation that undoes it.
        operation: String,
        /// Their ids.
        discarded: Vec<String>,
    }
    /// What needs the user.
    InboxAnswer {
        /// The version of the form.
        schema: u32,
        /// The open permission requests.
        questions: Vec<Value>,
        /// Sessions without an event for a long time.
        quiet: Vec<SessionObject>,
        /// Sessions whose agent is stuck.
        stalled: Vec<SessionObject>,
        /// Sessions that wait for a rate limit.
        parked: Vec<SessionObject>,
        /// Settled sessions that the user has not seen.
        unseen: Vec<SessionObject>,
        /// Settled sessions that the user has seen.
        seen: Vec<SessionObject>,
        /// Pairs of sessions that change the same lines.
        conflicts: Vec<Value>,
    }
    /// The operations.
    OperationsAnswer {
        /// The version of the form.
        schema: u32,
        /// The operations.
        operations: Vec<OperationObject>,
        /// Lines of the log that cannot be read.
        unreadable: Option<Vec<String>>,
    }
    /// An operation.
    OperationObject {
        /// Its id.
        id: String,
        /// `accept`, `discard`, `try` or `undo`.
        kind: String,
        /// Its sessions.
        sessions: Vec<String>,
        /// When.
        time: String,
        /// The operation that undid it.
        undone_by: Option<String>,
    }
    /// An undone operation.
    UndoneAnswer {
        /// The version of the form.
        schema: u32,
        /// The operation that undid it.
        operation: String,
        /// The undone operation.
        undone: String,
    }
}

/// One session in full, with its leases.
#[derive(Serialize, JsonSchema)]
pub(crate) struct SessionAnswer {
    /// The session.
    #[serde(flatten)]
    pub session: SessionObject,
    /// Its ports and names.
    pub leases: Value,
}
