//! Returns the content of a turn that was moved into a file.

use serde::Deserialize;
use serde_json::json;

use crate::fragment::Fragment;
use tools::call::Invocation;
use tools::kind::Effect;
use tools::output::{ToolError, ToolOutput};
use tools::tool::{Tool, ToolFuture, ToolSpec};

/// Size of a page in bytes; about 9,000 tokens.
const PAGE: usize = 32_000;

#[derive(Deserialize)]
struct Args {
    fragment_id: String,
    page: Option<usize>,
}

/// The tool that returns a turn that was moved into a file.
pub(crate) struct RehydrateTool;

impl Tool for RehydrateTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new("context.rehydrate", Effect::Looks)
    }

    fn call<'a>(&'a self, call: &'a Invocation<'_>) -> ToolFuture<'a> {
        Box::pin(std::future::ready(run(call)))
    }
}

/// Returns a page of the turn, verbatim.
fn run(call: &Invocation<'_>) -> Result<ToolOutput, ToolError> {
    let Args { fragment_id, page } = call.decode()?;
    let fragment = Fragment::read(&call.context.session_dir, &fragment_id)
        .map_err(|e| ToolError::io(&format!("no such fragment: `{fragment_id}`"), &e))?;
    let text = fragment.transcript();
    let pages = pages(&text);
    let page = page.unwrap_or(1);
    let Some(page_text) = page.checked_sub(1).and_then(|index| pages.get(index)) else {
        let reason = format!("no such page: {page}; fragment {fragment_id} has {}", pages.len());
        return Err(ToolError::invalid(reason));
    };
    let before = fragment.preceding_fragment_id.as_deref();
    let before = before.map_or_else(String::new, |id| format!("; the one before it is {id}"));
    let head = format!(
        "[fragment {fragment_id}: {} messages with {}, page {page} of {}{before}]",
        fragment.message_count,
        fragment.calls(),
        pages.len()
    );
    let metadata = json!({
        "fragment_id": fragment.fragment_id,
        "messages": fragment.message_count,
        "page": page,
        "pages": pages.len(),
        "preceding_fragment_id": fragment.preceding_fragment_id,
    });
    let mut outcome = ToolOutput::success(format!("{head}\n{page_text}")).with(metadata);
    if page == 1 {
        outcome.images = fragment.images();
    }
    Ok(outcome)
}

/// Splits the text into pages at character boundaries.
fn pages(text: &str) -> Vec<&str> {
    let mut pages = Vec::new();
    let mut rest = text;
    while rest.len() > PAGE {
        let page = base::text::head(rest, PAGE);
        pages.push(page);
        rest = &rest[page.len()..];
    }
    pages.push(rest);
    pages
}
