//! The routes of the server, who may use them, and what every answer has.

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Query, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use base::failure::Failure;
use serde::Deserialize;

use crate::report;
use crate::serve::access::{AccessDenial, LOGIN_PATH, REPORT_PATH};
use crate::serve::error_answer::ErrorAnswer;
use crate::serve::server::PageServer;
use crate::serve::{api, events, file_events, pages, public_link};

/// What pages may do: nothing but load the style sheet and the script of this server, and talk to it.
/// In particular, no script and no style in a page runs.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; \
    report-uri /csp-report";
/// Headers of every answer.
const HEADERS: [(&str, &str); 7] = [
    ("content-security-policy", POLICY),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cache-control", "no-store"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("x-frame-options", "DENY"),
];
/// Maximum number of bytes of a request.
const MAX_BODY_BYTES: usize = 4 << 20;
/// Maximum number of bytes of a report of a browser that is shown.
const MAX_REPORT_BYTES: usize = 2000;

/// Returns the routes.
pub(crate) fn router(server: PageServer) -> Router {
    Router::new()
        .route("/", get(pages::board::show))
        .route("/new", get(pages::new_task::show))
        .route("/plan", get(pages::plan::show))
        .route("/plan/edit/{text}", get(pages::plan_edit::show))
        .route("/queue", get(pages::queue::show))
        .route("/operations", get(pages::operations::show))
        .route("/sessions/{id}", get(pages::session::show))
        .route("/sessions/{id}/conflicts", get(pages::conflict_sides::show))
        .route("/sessions/{id}/review", get(pages::review::show))
        .route("/sessions/{id}/review/hunks", get(pages::review_hunks::show))
        .route("/style.css", get(|| asset("text/css", include_str!("assets/style.css"))))
        .route("/page.js", get(|| asset("text/javascript", include_str!("assets/page.js"))))
        .route("/favicon.ico", get(|| async { StatusCode::NO_CONTENT }))
        .route(LOGIN_PATH, get(login))
        .route(REPORT_PATH, post(report_violation))
        .route("/api/v1/events", get(events::sessions))
        .route("/api/v1/sessions/{id}/events", get(events::journal))
        .route("/api/v1/plan/events", get(file_events::plan))
        .route("/api/v1/queue/events", get(file_events::queue))
        .merge(api::router())
        .fallback(|headers: HeaderMap| async move {
            ErrorAnswer::new(Failure::not_found("no such page"), &headers)
        })
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(middleware::from_fn_with_state(server.clone(), guard))
        .with_state(server)
}

/// Answers allowed requests only, and adds the headers.
async fn guard(State(server): State<PageServer>, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let checked = server.access().check(request.method(), path, request.headers());
    let mut response = match checked {
        Ok(()) => next.run(request).await,
        Err(denial) => denied(denial, path.starts_with("/api/")),
    };
    for (name, value) in HEADERS {
        let name = HeaderName::from_static(name);
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

fn denied(denial: AccessDenial, is_api: bool) -> Response {
    let (status, failure) = match denial {
        AccessDenial::Host => (
            StatusCode::MISDIRECTED_REQUEST,
            Failure::refused("this name is not an address of the server"),
        ),
        AccessDenial::Origin => {
            (StatusCode::FORBIDDEN, Failure::refused("the request comes from another page"))
        }
        AccessDenial::Cookie => (
            StatusCode::UNAUTHORIZED,
            Failure::refused("this browser may not see the page")
                .because("the cookie is missing, or belongs to a server that has ended")
                .hint("open the link that `studio serve` prints"),
        ),
    };
    ErrorAnswer { failure, is_api, status: Some(status) }.into_response()
}

/// The query of the link.
#[derive(Deserialize)]
struct LoginQuery {
    #[serde(default)]
    token: String,
}

async fn login(
    State(server): State<PageServer>,
    Query(query): Query<LoginQuery>,
    headers: HeaderMap,
) -> Response {
    let access = server.access();
    match access.use_token(&query.token, &headers) {
        Ok(Some(cookie)) => {
            report::say(&format!(
                "a browser has used the link; for another one: {}",
                access.link()
            ));
            access.public_link().iter().for_each(|link| public_link::show(link, report::say));
            // Not a redirect: after a click in another page, a browser would not send the cookie.
            let page = pages::layout::login(server.title());
            ([(header::SET_COOKIE, cookie)], page).into_response()
        }
        Ok(None) => {
            let failure = Failure::refused("this link was used, or is wrong")
                .hint("open the newest link that `studio serve` prints");
            let status = Some(StatusCode::FORBIDDEN);
            ErrorAnswer { failure, is_api: false, status }.into_response()
        }
        Err(error) => {
            let failure = Failure::failed("cannot draw a random token").because(error);
            ErrorAnswer { failure, is_api: false, status: None }.into_response()
        }
    }
}

/// Shows what the browser blocked: something in a page tried to run.
async fn report_violation(body: Bytes) -> StatusCode {
    let text = String::from_utf8_lossy(&body);
    let text = base::text::head(&text, MAX_REPORT_BYTES).replace('\n', " ");
    report::say(&format!("warning: a browser blocked a part of a page: {text}"));
    StatusCode::NO_CONTENT
}

async fn asset(kind: &'static str, text: &'static str) -> Response {
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}
