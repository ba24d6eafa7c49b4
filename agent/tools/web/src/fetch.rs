//! `webfetch`: fetches a web page as Markdown, text or HTML, or an image.

use std::time::Duration;

use reqwest::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, LOCATION, USER_AGENT};
use reqwest::{Response, StatusCode, Url};
use serde::Deserialize;
use serde_json::json;

use super::body::{self, PageFormat};
use super::truncate;
use gate::Access;
use provider::http::innermost;
use tools::call::Invocation;
use tools::kind::Effect;
use tools::output::{ToolError, ToolErrorKind, ToolOutput};
use tools::profile::OutputStyle;
use tools::tool::{CallScope, Tool, ToolFuture, ToolSpec};
use tools::web::guarded_client::{self, GuardedClient, SystemResolver};

#[derive(Deserialize)]
struct Args {
    format: Option<PageFormat>,
    timeout: Option<f64>,
}

/// Timeout in seconds: default and maximum.
const SECONDS: f64 = 30.0;
const MOST_SECONDS: f64 = 120.0;
/// Maximum number of redirects.
const REDIRECTS: usize = 10;
/// Maximum size of a page in bytes.
const MOST_BYTES: usize = 5 << 20;

/// The two user agents: one that starts like a browser's, which many sites require, and a plain one
/// for sites that demand a proof from clients that look like a browser.
const LIKE_BROWSERS: &str = concat!("Mozilla/5.0 (compatible; g3/", env!("CARGO_PKG_VERSION"), ")");
const PLAINLY: &str = concat!("g3/", env!("CARGO_PKG_VERSION"));

/// A fetched page, or a redirect to another host.
enum FetchedPage {
    Page { response: Response, url: Url },
    Elsewhere { from: Url, to: Url },
}

impl FetchedPage {
    /// Returns whether the site demands a proof that the client is a browser.
    fn is_challenge(&self) -> bool {
        let FetchedPage::Page { response, .. } = self else { return false };
        let word = response.headers().get("cf-mitigated").map(|value| value.as_bytes());
        response.status() == StatusCode::FORBIDDEN && word == Some(b"challenge")
    }
}

/// Returns the access to the host of a call; nothing for an invalid URL, which [`run`] reports.
fn reaches(call: &Invocation<'_>) -> Vec<Access> {
    let Ok(url) = target(call) else { return Vec::new() };
    vec![guarded_client::access(&call.context.services.web.webfetch.allow_hosts, &url)]
}

/// The `webfetch` tool.
pub(crate) struct FetchTool;

impl Tool for FetchTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new("web.fetch", Effect::Looks)
    }

    fn scope(&self, call: &Invocation<'_>) -> CallScope {
        CallScope::with_access(reaches(call))
    }

    fn call<'a>(&'a self, call: &'a Invocation<'_>) -> ToolFuture<'a> {
        Box::pin(run(call))
    }
}

/// Fetches a page.
async fn run(call: &Invocation<'_>) -> Result<ToolOutput, ToolError> {
    let Args { format, timeout } = call.decode()?;
    let url = target(call)?;
    let form = format.unwrap_or(match call.profile_tool.style {
        OutputStyle::ToolsApi => PageFormat::Text,
        OutputStyle::G3 | OutputStyle::Egirl | OutputStyle::Core => PageFormat::Markdown,
    });
    let seconds =
        timeout.filter(|time| time.is_finite()).unwrap_or(SECONDS).clamp(1.0, MOST_SECONDS);
    let work = tokio::time::timeout(Duration::from_secs_f64(seconds), fetch(call, &url, form));
    match call.context.cancel.run_until_cancelled(work).await {
        Some(Ok(done)) => done,
        Some(Err(_)) => Err(ToolError::new(
            ToolErrorKind::Timeout,
            format!("{url} was not there after {seconds} s; `timeout` may be up to 120"),
        )),
        None => Err(ToolError::new(ToolErrorKind::Cancelled, "cancelled by the user")),
    }
}

/// Returns the URL of a call. The Tools API uses https for every public name.
fn target(call: &Invocation<'_>) -> Result<Url, ToolError> {
    let text = call.text("url").trim();
    let bad = |reason: &str| ToolError::invalid(format!("webfetch: `{text}` {reason}"));
    let mut url = Url::parse(text).map_err(|error| bad(&format!("is not an address: {error}")))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(bad("must begin with http:// or https://"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(bad("contains a user name or a password, which is not sent"));
    }
    url.set_fragment(None);
    let host = guarded_client::host(&url);
    let is_name = host.parse::<std::net::IpAddr>().is_err() && host.contains('.');
    let is_local = host == "localhost" || host.ends_with(".localhost");
    if call.profile_tool.style == OutputStyle::ToolsApi
        && url.scheme() == "http"
        && url.port().is_none()
        && is_name
        && !is_local
        && !guarded_client::is_allowed(&call.context.services.web.webfetch.allow_hosts, &url)
    {
        let _ = url.set_scheme("https");
    }
    Ok(url)
}

async fn fetch(
    call: &Invocation<'_>,
    url: &Url,
    form: PageFormat,
) -> Result<ToolOutput, ToolError> {
    let allowed = &call.context.services.web.webfetch.allow_hosts;
    let client = GuardedClient::new(allowed, &SystemResolver, &call.context.gate);
    let mut fetched = follow(&client, url.clone(), form, LIKE_BROWSERS).await?;
    if fetched.is_challenge() {
        fetched = follow(&client, url.clone(), form, PLAINLY).await?;
    }
    let challenge = fetched.is_challenge();
    let (response, url) = match fetched {
        FetchedPage::Page { response, url } => (response, url),
        FetchedPage::Elsewhere { from, to } => {
            let text = format!(
                "{from} redirects to another host:\n{to}\nCall webfetch with \
                 that address if it is what you look for."
            );
            let metadata = json!({ "url": from.as_str(), "redirect": to.as_str() });
            return Ok(ToolOutput::success(text).titled(format!("sent on to {to}")).with(metadata));
        }
    };
    let status = response.status();
    let header = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let content_type = header.unwrap_or_default().to_owned();
    if challenge {
        let text = format!("{url} answers 403: it lets only browsers in that prove to be such");
        return Err(ToolError::failed(text));
    }
    if !status.is_success() {
        return Err(refused(&url, status));
    }
    body::check_readable(&content_type)
        .map_err(|error| ToolError::failed(format!("{url} {error}")))?;
    let bytes = read(response, &url).await?;
    let count = bytes.len();
    let metadata = json!({
        "url": url.as_str(), "status": status.as_u16(), "content_type": content_type, "bytes": count,
    });
    let page = url.clone();
    let made = tokio::task::spawn_blocking(move || body::render(bytes, &content_type, &page, form));
    let made =
        made.await.map_err(|error| ToolError::failed(format!("{url} cannot be read: {error}")))?;
    let made = made.map_err(|error| ToolError::failed(format!("{url} {error}")))?;
    let text = truncate::truncate(call, &made.text, truncate::MOST, "page");
    let title = if made.title.is_empty() { url.to_string() } else { made.title };
    Ok(ToolOutput { images: made.images, ..ToolOutput::success(text) }.titled(title).with(metadata))
}

/// Sends a request, and follows redirects on the same host. Each URL is checked again.
async fn follow(
    client: &GuardedClient<'_>,
    mut url: Url,
    form: PageFormat,
    name: &str,
) -> Result<FetchedPage, ToolError> {
    for _ in 0..=REDIRECTS {
        let way = client.open(&url).await?;
        let request = way.client.get(url.clone()).header(ACCEPT, form.accepts());
        let request = request.header(USER_AGENT, name);
        let response = request.send().await.map_err(|error| unanswered(&url, &error))?;
        let asked = response.remote_addr().map(|address| address.ip());
        if !way.addresses.is_empty()
            && asked.is_some_and(|address| !way.addresses.contains(&address))
        {
            return Err(ToolError::new(ToolErrorKind::Denied, "denied: another address answered"));
        }
        let to = match sent_on(&response, &url)? {
            None => return Ok(FetchedPage::Page { response, url }),
            Some(to) => to,
        };
        if guarded_client::host(&to) != guarded_client::host(&url) {
            return Ok(FetchedPage::Elsewhere { from: url, to });
        }
        url = to;
    }
    Err(ToolError::failed(format!("too many redirects ({REDIRECTS}): {url}")))
}

/// Returns the target of a redirect.
fn sent_on(response: &Response, url: &Url) -> Result<Option<Url>, ToolError> {
    let is_redirect = matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308);
    let Some(place) = response.headers().get(LOCATION).filter(|_| is_redirect) else {
        return Ok(None);
    };
    let place = String::from_utf8_lossy(place.as_bytes());
    let bad = || ToolError::failed(format!("{url} redirects to `{place}`, which is not a page"));
    let mut to = url.join(&place).map_err(|_| bad())?;
    if !matches!(to.scheme(), "http" | "https") || !to.username().is_empty() {
        return Err(bad());
    }
    to.set_fragment(None);
    Ok(Some(to))
}

/// Reads the whole body; fails if it is too large.
async fn read(mut response: Response, url: &Url) -> Result<Vec<u8>, ToolError> {
    let too_long = |length: u64| {
        ToolError::failed(format!(
            "{url} is too large: {length} bytes or more, at most 5 MiB are read"
        ))
    };
    let length = response.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    if let Some(length) = length.and_then(|text| text.parse::<u64>().ok())
        && length > MOST_BYTES as u64
    {
        return Err(too_long(length));
    }
    let mut bytes = Vec::new();
    while let Some(more) = response.chunk().await.map_err(|error| unanswered(url, &error))? {
        bytes.extend_from_slice(&more);
        if bytes.len() > MOST_BYTES {
            return Err(too_long(bytes.len() as u64));
        }
    }
    Ok(bytes)
}

fn refused(url: &Url, status: StatusCode) -> ToolError {
    let reason = status.canonical_reason().unwrap_or("no reason is given");
    let kind = match status {
        StatusCode::NOT_FOUND | StatusCode::GONE => ToolErrorKind::NotFound,
        _ => ToolErrorKind::Failed,
    };
    ToolError::new(kind, format!("{url} answers {}: {reason}", status.as_u16()))
}

fn unanswered(url: &Url, error: &reqwest::Error) -> ToolError {
    ToolError::failed(format!("{url} does not answer: {}", innermost(error)))
}
