//! Failures as answers, and JSON.

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base::failure::{Failure, FailureKind};
use maud::Markup;
use serde_json::json;

use crate::serve::pages::layout;

/// A failure as an answer: for the API as JSON, else as a page.
pub(crate) struct ErrorAnswer {
    /// What failed.
    pub failure: Failure,
    /// Whether the answer is JSON.
    pub is_api: bool,
    /// The status; that of the kind of failure if absent.
    pub status: Option<StatusCode>,
}

impl ErrorAnswer {
    /// Creates a page; a script that asks for JSON gets that.
    pub(crate) fn new(failure: Failure, headers: &HeaderMap) -> ErrorAnswer {
        let accept = headers.get(header::ACCEPT).and_then(|it| it.to_str().ok());
        let is_api = accept.is_some_and(|accept| accept.contains("application/json"));
        ErrorAnswer { failure, is_api, status: None }
    }

    /// Creates JSON.
    pub(crate) fn api(failure: Failure) -> ErrorAnswer {
        ErrorAnswer { failure, is_api: true, status: None }
    }

    fn status(&self) -> StatusCode {
        self.status.unwrap_or_else(|| status_of(&self.failure))
    }
}

/// A failure of a page.
impl From<Failure> for ErrorAnswer {
    fn from(failure: Failure) -> ErrorAnswer {
        ErrorAnswer { failure, is_api: false, status: None }
    }
}

/// Returns the status that says what kind of failure it is.
fn status_of(failure: &Failure) -> StatusCode {
    match failure.kind {
        FailureKind::Usage => StatusCode::BAD_REQUEST,
        FailureKind::NotFound => StatusCode::NOT_FOUND,
        FailureKind::Refused | FailureKind::Conflict => StatusCode::CONFLICT,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

impl IntoResponse for ErrorAnswer {
    fn into_response(self) -> Response {
        let status = self.status();
        if self.is_api {
            return json_answer(status, &json!({"schema": 1, "error": self.failure.to_json()}));
        }
        (status, layout::failure(&self.failure)).into_response()
    }
}

/// Returns JSON as an answer.
pub(crate) fn json_answer(status: StatusCode, value: &serde_json::Value) -> Response {
    let text = base::text::json_escaped(&value.to_string());
    (status, [(header::CONTENT_TYPE, "application/json")], Body::from(text)).into_response()
}

/// The result of a page.
pub(crate) type PageResult = std::result::Result<Markup, ErrorAnswer>;
