//! `webdriver_…`: controls a browser by CSS selectors.

use std::path::Path;

use serde::Deserialize;
use serde_json::json;

use super::action_kind::BrowserVerb;
use super::manager::BrowserManager;
use super::session::{BrowserSession, CurrentPage};
use super::webdriver::BrowserError;
use super::{dom, url_policy};
use crate::truncate;
use tools::call::Invocation;
use tools::fs::open;
use tools::image;
use tools::output::{ToolError, ToolErrorKind, ToolOutput};

/// Maximum number of elements that are described.
const DESCRIBED: usize = 50;

#[derive(Deserialize)]
struct Args {
    #[serde(default)]
    text: String,
    clear_first: Option<bool>,
    max_length: Option<u64>,
}

/// Runs one operation in the browser.
pub(crate) async fn run(
    hub: &BrowserManager,
    call: &Invocation<'_>,
    verb: BrowserVerb,
) -> Result<ToolOutput, ToolError> {
    if verb == BrowserVerb::Start {
        let (session, is_new) = hub.start(call.context, false, call.permit).await?;
        let (name, visibility) =
            (&session.record.name, if session.record.visible { "visible" } else { "headless" });
        let text = match is_new {
            true => format!(
                "the browser is ready: {name}, {visibility}. webdriver_navigate opens a page"
            ),
            false => format!("the browser runs already: {name}, {visibility}"),
        };
        let metadata = json!({ "browser": name, "visible": session.record.visible, "new": is_new });
        return Ok(ToolOutput::success(text).with(metadata));
    }
    // An invalid URL is rejected before anything else.
    let url = (verb == BrowserVerb::Navigate).then(|| url_policy::parse(call.text("url")));
    let url = url.transpose().map_err(ToolError::invalid)?;
    let Some(session) = hub.find(call.context).await? else {
        if verb == BrowserVerb::Quit {
            return Ok(ToolOutput::success("no browser is running"));
        }
        let text = "no browser is running: call webdriver_start first";
        return Err(ToolError::new(ToolErrorKind::NotFound, text));
    };
    let outcome = match (verb, url) {
        (BrowserVerb::Quit, _) => {
            super::manager::end(&session.place, &session.record).await?;
            Ok(ToolOutput::success("the browser is closed"))
        }
        (BrowserVerb::Navigate, Some(url)) => {
            open(call, &session, &url).await.map(|here| shown_page(&here))
        }
        (verb, _) => with_page(call, &session, verb).await,
    };
    let mut outcome = outcome.map_err(|trouble| session.noted(trouble))?;
    for note in session.notes() {
        outcome.text.push_str(&format!("\n[note: {note}]"));
    }
    let _ = session.place.touch();
    Ok(outcome)
}

/// Opens a URL in the current tab.
pub(crate) async fn open(
    call: &Invocation<'_>,
    session: &BrowserSession,
    url: &reqwest::Url,
) -> Result<CurrentPage, ToolError> {
    url_policy::guard(url, &call.context.services.web.webfetch.allow_hosts).await?;
    let opened = async {
        let before = session.here().await?;
        session.open(url).await?;
        Ok((before, session.here().await?))
    };
    let here = match opened.await {
        Ok((before, here)) if before == here && here.url != url.as_str() => {
            return Err(ToolError::failed(format!(
                "{url} is not a page; if it is a download, it is in {}",
                session.place.path().join("downloads").display()
            )));
        }
        Ok((_, here)) => here,
        Err(BrowserError::Other(message)) => {
            return Err(ToolError::failed(format!("{url} cannot be opened: {message}")));
        }
        Err(error) => return Err(session.tool_error(error).await),
    };
    match here.error {
        Some(reason) => Err(ToolError::failed(format!("{url} cannot be opened: {reason}"))),
        None => Ok(here),
    }
}

/// Formats the current page for a model.
fn shown_page(here: &CurrentPage) -> ToolOutput {
    let CurrentPage { url, title, .. } = here;
    let failed = here.error.as_ref().map(|reason| format!("\nit cannot be opened: {reason}"));
    let text = format!("url: {url}\ntitle: {title}{}", failed.unwrap_or_default());
    ToolOutput::success(base::text::printable(&text)).with(json!({ "url": url, "title": title }))
}

async fn with_page(
    call: &Invocation<'_>,
    session: &BrowserSession,
    verb: BrowserVerb,
) -> Result<ToolOutput, ToolError> {
    let args: Args = call.decode()?;
    let selector = call.text("selector");
    let done = match verb {
        BrowserVerb::Back => went(session, session.back()).await,
        BrowserVerb::Forward => went(session, session.forward()).await,
        BrowserVerb::Refresh => went(session, session.refresh()).await,
        BrowserVerb::Url => session.here().await.map(|here| output(here.url)),
        BrowserVerb::Title => session.here().await.map(|here| output(here.title)),
        BrowserVerb::Find => {
            let id = dom::first(session, selector).await?;
            dom::described(session, &[id]).await.map(|lines| output(lines.concat()))
        }
        BrowserVerb::FindAll => all(session, selector).await,
        BrowserVerb::Click => {
            let id = dom::first(session, selector).await?;
            click(session, selector, &id).await
        }
        BrowserVerb::Type => {
            let id = dom::first(session, selector).await?;
            let how = (args.text.as_str(), args.clear_first.unwrap_or(true));
            dom::enter(call, session, &id, how).await?;
            let count = args.text.chars().count();
            Ok(output(format!("entered {count} characters into `{selector}`")))
        }
        BrowserVerb::Script => {
            let value = session.script(call.text("script"), &[]).await.map(dom::plain);
            value.map(|value| {
                let text =
                    truncate::truncate(call, &format!("{value:#}"), truncate::MOST, "script");
                ToolOutput::success(text).with(json!({ "value": value }))
            })
        }
        BrowserVerb::Source => match session.source().await {
            Ok(source) => return source_output(call, &source, &args),
            Err(error) => Err(error),
        },
        BrowserVerb::Screenshot => match session.screenshot().await {
            Ok(picture) => return screenshot_output(call, picture).await,
            Err(error) => Err(error),
        },
        BrowserVerb::Start | BrowserVerb::Navigate | BrowserVerb::Quit | BrowserVerb::Act => {
            Ok(ToolOutput::default())
        }
    };
    match done {
        Ok(outcome) => Ok(outcome),
        Err(BrowserError::Other(message)) if verb == BrowserVerb::FindAll => {
            Err(ToolError::invalid(format!("invalid CSS selector `{selector}`: {message}")))
        }
        Err(error) => Err(session.tool_error(error).await),
    }
}

fn output(text: String) -> ToolOutput {
    ToolOutput::success(base::text::printable(&text))
}

async fn went(
    session: &BrowserSession,
    moving: impl Future<Output = Result<(), BrowserError>>,
) -> Result<ToolOutput, BrowserError> {
    moving.await?;
    session.here().await.map(|here| shown_page(&here))
}

async fn all(session: &BrowserSession, selector: &str) -> Result<ToolOutput, BrowserError> {
    let ids = session.find_all(selector).await?;
    let lines = dom::described(session, &ids[..ids.len().min(DESCRIBED)]).await?;
    let count = ids.len();
    let mut text = match count {
        0 => format!("no element fits `{selector}`"),
        1 => format!("1 element fits `{selector}`"),
        _ => format!("{count} elements fit `{selector}`"),
    };
    for (index, line) in lines.iter().enumerate() {
        text.push_str(&format!("\n{}: {line}", index + 1));
    }
    if count > DESCRIBED {
        text.push_str(&format!("\n[{} more are not shown]", count - DESCRIBED));
    }
    Ok(output(text).with(json!({ "count": count })))
}

async fn click(
    session: &BrowserSession,
    selector: &str,
    id: &str,
) -> Result<ToolOutput, BrowserError> {
    let before = session.here().await?;
    dom::click(session, id).await?;
    let after = session.here().await?;
    let page = shown_page(&after);
    let text = match before == after {
        true => format!("clicked `{selector}`; the page is the same"),
        false => format!("clicked `{selector}`\n{}", page.text),
    };
    Ok(ToolOutput { text, ..page })
}

fn source_output(
    call: &Invocation<'_>,
    source: &str,
    args: &Args,
) -> Result<ToolOutput, ToolError> {
    let count = source.chars().count();
    if !call.text("path").is_empty() {
        write(&call.path, source.as_bytes()).map_err(|error| {
            ToolError::io(&format!("cannot write {}", call.display_own_path()), &error)
        })?;
        let text = format!("wrote {count} characters to {}", call.display_own_path());
        return Ok(
            ToolOutput::success(text).with(json!({ "path": call.path, "characters": count }))
        );
    }
    let most = match args.max_length.unwrap_or(10_000) {
        0 => usize::MAX,
        most => usize::try_from(most).unwrap_or(usize::MAX),
    };
    let text = truncate::truncate(call, source, most, "source");
    Ok(ToolOutput::success(text).with(json!({ "characters": count })))
}

/// Writes a screenshot, and returns it to the model.
async fn screenshot_output(call: &Invocation<'_>, bytes: Vec<u8>) -> Result<ToolOutput, ToolError> {
    let display_path = call.display_own_path();
    write(&call.path, &bytes)
        .map_err(|error| ToolError::io(&format!("cannot write {display_path}"), &error))?;
    let ready = tokio::task::spawn_blocking(move || image::prepare_png(bytes)).await;
    let ready =
        ready.map_err(|error| ToolError::failed(format!("the picture is damaged: {error}")))?;
    let (picture, about) = ready.map_err(ToolError::failed)?;
    let text = format!("wrote {display_path}: {about}");
    let outcome = ToolOutput::success(text).titled(format!("took {display_path}"));
    Ok(ToolOutput { images: vec![picture], ..outcome.with(json!({ "path": call.path })) })
}

/// Writes a file, and creates its parent directories.
fn write(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    open::replace(path, bytes)
}
