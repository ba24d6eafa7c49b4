//! Decisions and comments of a review, recorded as `studio review` records them.

use std::sync::PoisonError;

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use base::failure::{Failure, Result};
use base::id::Id;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use studio_core::review::Review;
use studio_core::review::hunk::HunkDecision;
use studio_core::review::log::ReviewEntry;

use crate::commands::context::CommandContext;
use crate::commands::review;
use crate::serve::answers::ReviewStateAnswer;
use crate::serve::error_answer::{ErrorAnswer, json_answer};
use crate::serve::server::{PageServer, session_id};

/// Decisions and comments.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RecordRequest {
    /// The work that the user saw: `head` of the review.
    head: String,
    /// Decisions about hunks.
    #[serde(default)]
    decisions: Vec<DecisionRequest>,
    /// A new comment.
    comment: Option<CommentRequest>,
    /// The number of a comment that is removed.
    remove: Option<u32>,
    /// Whether the user has seen all of it.
    #[serde(default)]
    looked: bool,
}

/// A decision about a hunk.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct DecisionRequest {
    /// The hunk's id.
    hunk: String,
    /// The decision.
    decision: DecisionName,
}

/// The decisions.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum DecisionName {
    /// None.
    Undecided,
    /// It may land.
    Accepted,
    /// The agent gets it back.
    Returned,
}

impl DecisionName {
    fn decision(self) -> HunkDecision {
        match self {
            DecisionName::Undecided => HunkDecision::Undecided,
            DecisionName::Accepted => HunkDecision::Accepted,
            DecisionName::Returned => HunkDecision::Returned,
        }
    }
}

/// A comment.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CommentRequest {
    /// The hunk's id.
    hunk: String,
    /// The index of a line of the hunk; the whole hunk if absent.
    line: Option<usize>,
    /// The text.
    text: String,
}

/// Records a request.
pub(crate) async fn record(
    State(server): State<PageServer>,
    path: Path<String>,
    body: Bytes,
) -> Response {
    let result = async {
        let id = session_id(path)?;
        let request: RecordRequest = serde_json::from_slice(&body)
            .map_err(|error| Failure::usage("invalid request").because(error))?;
        server.read(move |server, context| record_in(server, context, &id, request)).await
    };
    match result.await {
        Ok(state) => json_answer(StatusCode::OK, &json!(state)),
        Err(failure) => ErrorAnswer::api(failure).into_response(),
    }
}

fn record_in(
    server: &PageServer,
    context: &CommandContext,
    id: &Id,
    request: RecordRequest,
) -> Result<ReviewStateAnswer> {
    let shared = server.reviews().of_page(context, id, None, &request.head)?;
    let mut review = shared.lock().unwrap_or_else(PoisonError::into_inner);
    let mut entries = Vec::new();
    for decision in request.decisions {
        index_of(&review, &decision.hunk)?;
        let (hunk, decision) = (decision.hunk, decision.decision.decision());
        entries.push(ReviewEntry::Decided { hunk, decision });
    }
    if let Some(comment) = request.comment {
        let index = index_of(&review, &comment.hunk)?;
        let last = review.hunks[index].hunk.lines.len().saturating_sub(1);
        let line = comment.line.map_or(last, |line| line.min(last));
        let first = comment.line.map_or(0, |_| line);
        let anchor = review.anchor(index, first..=line);
        entries.push(ReviewEntry::Commented { n: 0, anchor, text: comment.text });
    }
    entries.extend(request.remove.map(|n| ReviewEntry::Removed { n }));
    let comment = review.record(entries)?;
    if request.looked {
        review::record_look(context, &review);
    }
    Ok(ReviewStateAnswer {
        schema: 1,
        id: id.to_string(),
        comment,
        accepted: review.count(HunkDecision::Accepted),
        returned: review.count(HunkDecision::Returned),
        undecided: review.count(HunkDecision::Undecided),
        comments: review.comments.len(),
        unsent: review.unsent_comments().count() + review.unsent_returned().count(),
    })
}

fn index_of(review: &Review, hunk: &str) -> Result<usize> {
    review
        .hunks
        .iter()
        .position(|it| it.hunk.id == hunk)
        .ok_or_else(|| Failure::not_found(format!("no such hunk: {}", base::text::printable(hunk))))
}
