//! The page that edits a text of the plan, and its saving. A text that changed in the meantime is not
//! replaced: the page shows it below the user's own.

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use base::failure::Failure;
use maud::html;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::commands::context::CommandContext;
use crate::commands::plan::edit::{self, PlanText};
use crate::serve::error_answer::{ErrorAnswer, PageResult, json_answer};
use crate::serve::file_events::FilePage;
use crate::serve::pages::layout::{self, NavigationItem};
use crate::serve::server::PageServer;

/// A changed text.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PlanTextRequest {
    /// Which text.
    file: PlanText,
    /// The digest of the text that the user changed.
    digest: String,
    /// The new text.
    text: String,
}

/// Shows the text in a form.
pub(crate) async fn show(State(server): State<PageServer>, Path(name): Path<String>) -> PageResult {
    let mut all = [PlanText::Requirements, PlanText::Tasks].into_iter();
    let which = all.find(|which| which.name() == name);
    let which = which.ok_or_else(|| Failure::not_found("no such text of a plan"))?;
    let read = move |server: &PageServer, context: &CommandContext| {
        let stream = FilePage::Plan.stream_path(server, context)?;
        Ok((stream, edit::read(context, which)?))
    };
    let (stream, (text, digest)) = server.read(read).await?;
    let title = format!("Edit the {}", which.name());
    let content = html! {
        h1 { (title) }
        p { code { (which.path()) } " · " a href="/plan" { "Back to the plan" } }
        form #plan-edit action="/api/v1/plan/text" method="post" data-done=(format!("{} saved", which.path()))
            data-next="/plan" data-keep {
            input type="hidden" name="file" value=(which.name());
            input type="hidden" name="digest" value=(digest);
            label for="plan-text" { "The text" }
            // A browser drops the first line break.
            textarea #plan-text name="text" rows="24" autocomplete="off" spellcheck="false" required {
                "\n" (text)
            }
            p.buttons { button.primary #plan-save { "Save" } a href="/plan" { "Cancel" } }
        }
        section.conflict #plan-changed data-digest=(digest) hidden aria-labelledby="plan-changed-title" {
            h2 #plan-changed-title { "The text changed since you opened it" }
            p { "Your text above is kept. This is the current one:" }
            pre tabindex="0" { (base::text::printable(&text)) }
            p { button #plan-replace type="button" { "Save mine in its place" } }
        }
    };
    Ok(layout::page(&server, NavigationItem::Plan, &title, Some(&stream), &content))
}

/// Saves a text.
pub(crate) async fn save(State(server): State<PageServer>, body: Bytes) -> Response {
    let result = async {
        let request: PlanTextRequest = serde_json::from_slice(&body)
            .map_err(|error| Failure::usage("invalid request").because(error))?;
        let save = move |_: &PageServer, context: &CommandContext| {
            edit::save(context, request.file, &request.digest, &request.text)
        };
        server.read(save).await
    };
    match result.await {
        Ok(report) => json_answer(StatusCode::OK, &json!(report)),
        Err(failure) => ErrorAnswer::api(failure).into_response(),
    }
}
