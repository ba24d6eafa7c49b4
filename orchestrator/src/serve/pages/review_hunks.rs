//! The lines of hunks that come into view, and the comments of changed ones.

use axum::extract::{Path, Query, State};
use maud::html;
use serde::Deserialize;

use std::sync::PoisonError;

use crate::serve::error_answer::PageResult;
use crate::serve::pages::diff_lines::DiffLayout;
use crate::serve::pages::review::{self, SinceQuery};
use crate::serve::server::{PageServer, session_id};

/// The query of the lines.
#[derive(Debug, Deserialize)]
pub(crate) struct HunkQuery {
    /// The work that the page shows.
    head: String,
    /// The ids of the hunks, separated by commas.
    ids: String,
    since: Option<SinceQuery>,
    #[serde(default)]
    view: DiffLayout,
}

/// Returns for each hunk its lines and its comments, as parts of the page.
pub(crate) async fn show(
    State(server): State<PageServer>,
    path: Path<String>,
    Query(query): Query<HunkQuery>,
) -> PageResult {
    let id = session_id(path)?;
    let parts = server.read(move |server, context| {
        let since = query.since.map(SinceQuery::state);
        let review = server.reviews().of_page(context, &id, since, &query.head)?;
        let review = review.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted: Vec<&str> = query.ids.split(',').collect();
        let mut indexes = 0..review.hunks.len();
        let found =
            indexes.by_ref().filter(|at| wanted.contains(&review.hunks[*at].hunk.id.as_str()));
        Ok(html! {
            @for index in found {
                div data-for=(review.hunks[index].hunk.id) {
                    div.lines { (review::lines_of(server.reviews(), &review, index, query.view)) }
                    div.comments { (review::comments_of(&review, index)) }
                }
            }
            span #counts { (review::counts(&review)) }
        })
    });
    Ok(parts.await?)
}
