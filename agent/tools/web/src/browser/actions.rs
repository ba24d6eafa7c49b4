//! `execute_browser`: one tool for all actions, with short refs of elements instead of selectors.

use std::time::Instant;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::manager::BrowserManager;
use super::session::{BrowserSession, CurrentPage, Tabs, stale};
use super::webdriver::{BrowserError, element, id_of};
use super::{dom, page, url_policy};
use tools::call::Invocation;
use tools::output::{ToolError, ToolErrorKind, ToolOutput};

/// An action of `execute_browser`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Action {
    Navigate,
    Click,
    Fill,
    Press,
    ExtractText,
    Snapshot,
    OpenTab,
    CloseTab,
}

/// The names of the actions, for the error about an unknown one.
const ACTIONS: &str = "navigate, click, fill, press, extract_text, snapshot, open_tab, close_tab";
/// Maximum number of nodes in a snapshot.
const NODES: usize = 400;
/// Maximum number of characters of an extracted text: about 800 tokens.
const TEXT: usize = 3_200;

/// The result of an action: its content, the tab, and a sentence to speak.
struct ActionResult {
    content: Value,
    tab: Option<String>,
    voice: String,
    notes: Vec<String>,
}

/// Runs one action. The result always has the metadata object that the tool documents.
pub(crate) async fn run(hub: &BrowserManager, call: &Invocation<'_>) -> ToolOutput {
    let started = Instant::now();
    let done = act(hub, call).await;
    let took = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    match done {
        Ok(ActionResult { content, tab, voice, notes }) => {
            let mut report = json!({
                "status": "success", "content": content, "tab_id": tab, "duration_ms": took,
                "voice_message": voice,
            });
            if !notes.is_empty() {
                report["notes"] = json!(notes);
            }
            ToolOutput::success(voice).with(report)
        }
        Err(trouble) => {
            let status = match trouble.kind {
                ToolErrorKind::Denied => "rejected",
                ToolErrorKind::Cancelled => "cancelled",
                ToolErrorKind::Timeout => "timeout",
                ToolErrorKind::Validation
                | ToolErrorKind::NotFound
                | ToolErrorKind::UnknownTool
                | ToolErrorKind::Failed => "error",
            };
            let report = json!({
                "status": status, "content": null, "tab_id": null, "duration_ms": took,
                "message": trouble.text, "voice_message": "That did not work in the browser.",
            });
            ToolOutput::failed(trouble.kind, trouble.text).with(report)
        }
    }
}

/// Returns the action of a call.
fn action(call: &Invocation<'_>) -> Option<Action> {
    serde_json::from_value(json!(call.text("action").trim().to_lowercase())).ok()
}

/// Returns the URL of a call.
pub(crate) fn url(call: &Invocation<'_>) -> Option<String> {
    let url = ActionParams::of(call).ok()?.text("url")?;
    Some(url).filter(|url| !url.trim().is_empty())
}

/// Returns whether a call opens a URL.
pub(crate) fn opens(call: &Invocation<'_>) -> bool {
    matches!(action(call), Some(Action::Navigate | Action::OpenTab))
}

/// Returns whether a call acts on a page.
pub(crate) fn acts(call: &Invocation<'_>) -> bool {
    matches!(action(call), Some(Action::Click | Action::Fill | Action::Press))
}

/// The parameters of a call: those within `params`, and those next to it.
struct ActionParams(Map<String, Value>);

impl ActionParams {
    fn of(call: &Invocation<'_>) -> Result<ActionParams, ToolError> {
        let mut all: Map<String, Value> = call.decode()?;
        let inner = all.remove("params");
        let mut params = inner.as_ref().and_then(Value::as_object).cloned().unwrap_or_default();
        params.extend(all);
        Ok(ActionParams(params))
    }

    fn text(&self, key: &str) -> Option<String> {
        match self.0.get(key)? {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            Value::Bool(flag) => Some(flag.to_string()),
            Value::Null | Value::Array(_) | Value::Object(_) => None,
        }
    }

    fn needed(&self, key: &str, action: &str) -> Result<String, ToolError> {
        let missing = || ToolError::invalid(format!("{action} needs `{key}` in `params`"));
        self.text(key).ok_or_else(missing)
    }

    fn flag(&self, key: &str) -> bool {
        self.text(key).is_some_and(|text| text == "true" || text == "1")
    }
}

async fn act(hub: &BrowserManager, call: &Invocation<'_>) -> Result<ActionResult, ToolError> {
    let Some(action) = action(call) else {
        let text = format!("invalid action `{}`: use {ACTIONS}", call.text("action"));
        return Err(ToolError::invalid(text));
    };
    let params = ActionParams::of(call)?;
    if opens(call) {
        return go(hub, call, (action, &params)).await;
    }
    let session = hub.find(call.context).await?;
    let none = || {
        ToolError::new(
            ToolErrorKind::NotFound,
            "no tab is open: navigate or open_tab opens one first",
        )
    };
    let session = session.ok_or_else(none)?;
    let mut tabs = Tabs::of(&session);
    let tab = match session.tab().await {
        Ok(tab) => tab,
        Err(error) => return Err(session.tool_error(error).await),
    };
    match tabs.is_empty(&session, &tab).await {
        Ok(false) => {}
        Ok(true) => return Err(none()),
        Err(error) => return Err(session.tool_error(error).await),
    }
    let done = within(call, &session, &mut tabs, (action, &tab, &params)).await;
    let _ = session.place.touch();
    done.map_err(|trouble| session.noted(trouble))
}

/// Opens a URL, in the current tab or in a new one.
async fn go(
    hub: &BrowserManager,
    call: &Invocation<'_>,
    (action, params): (Action, &ActionParams),
) -> Result<ActionResult, ToolError> {
    let url = match url(call) {
        Some(url) => Some(url_policy::parse(&url).map_err(ToolError::invalid)?),
        None if action == Action::OpenTab => None,
        None => return Err(ToolError::invalid("navigate needs `url`")),
    };
    let started = hub.start(call.context, params.flag("visible"), call.permit).await;
    let (session, is_new) = started.map_err(|trouble| {
        let text = format!(
            "{}. Without it, execute_gui works with a browser that is on the screen",
            trouble.text
        );
        ToolError::new(trouble.kind, text)
    })?;
    if params.flag("visible") && !session.record.visible {
        session.note("the browser that runs has no window; webdriver_quit ends it".to_owned());
    }
    let empty = async {
        let tab = session.tab().await?;
        let is_empty = is_new || Tabs::of(&session).is_empty(&session, &tab).await?;
        if action == Action::OpenTab && !is_empty { session.add_tab().await } else { Ok(tab) }
    };
    let tab = match empty.await {
        Ok(tab) => tab,
        Err(error) => return Err(session.tool_error(error).await),
    };
    let here = match &url {
        Some(url) => {
            let opened = page::open(call, &session, url).await;
            opened.map_err(|trouble| session.noted(trouble))?
        }
        None => CurrentPage { url: "about:blank".to_owned(), ..CurrentPage::default() },
    };
    let voice = match (&url, here.title.as_str()) {
        (None, _) => "I opened an empty tab.".to_owned(),
        (Some(_), "") => "I opened the page.".to_owned(),
        (Some(_), title) => format!("I opened the page {title}."),
    };
    let content = json!({ "url": here.url, "title": here.title });
    let _ = session.place.touch();
    Ok(ActionResult { content, tab: Some(tab), voice, notes: session.notes() })
}

/// Runs an action in the current tab.
async fn within(
    call: &Invocation<'_>,
    session: &BrowserSession,
    tabs: &mut Tabs,
    (action, tab, params): (Action, &str, &ActionParams),
) -> Result<ActionResult, ToolError> {
    let named = match params.text("ref") {
        Some(name) => Some((tabs.element(tab, &name)?.to_owned(), name)),
        None if matches!(action, Action::Click | Action::Fill) => {
            let text = "click and fill need `ref` in `params`: one of a snapshot";
            return Err(ToolError::invalid(text));
        }
        None => None,
    };
    let id = named.as_ref().map(|(id, _)| id.as_str());
    let done = match action {
        Action::Click => click(session, id.unwrap_or_default()).await,
        Action::Fill => {
            let value = params.text("text").map_or_else(|| params.needed("value", "fill"), Ok)?;
            let entered = dom::enter(call, session, id.unwrap_or_default(), (&value, true)).await;
            entered.map_err(|trouble| renamed(trouble, named.as_ref()))?;
            Ok((json!("filled"), "I filled in the field.".to_owned()))
        }
        Action::Press => {
            let name = params.needed("key", "press")?;
            let keys = dom::parse(&name).map_err(ToolError::invalid)?;
            press(session, id, &keys).await
        }
        Action::ExtractText => extract(session).await,
        Action::Snapshot => snapshot(session, tabs, tab, params.flag("interactive_only")).await,
        Action::CloseTab => {
            let closed = tabs.close(session, tab).await;
            closed.map(|()| (json!("closed"), "I closed the tab.".to_owned()))
        }
        // `go` has handled these.
        Action::Navigate | Action::OpenTab => Ok((Value::Null, String::new())),
    };
    let (content, voice) = match done {
        Ok(done) => done,
        Err(BrowserError::NoElement(message)) => {
            return Err(renamed(ToolError::new(ToolErrorKind::NotFound, message), named.as_ref()));
        }
        Err(error) => return Err(session.tool_error(error).await),
    };
    if matches!(action, Action::Snapshot | Action::CloseTab) {
        tabs.keep(session).map_err(|error| ToolError::io("the refs cannot be kept", &error))?;
    }
    let tab = session.tab().await.ok().filter(|_| action != Action::CloseTab);
    Ok(ActionResult { content, tab, voice, notes: session.notes() })
}

/// Replaces the error of an element that was named by a ref and no longer exists.
fn renamed(trouble: ToolError, named: Option<&(String, String)>) -> ToolError {
    match named {
        Some((_, name)) if trouble.kind == ToolErrorKind::NotFound => stale(name),
        Some(_) | None => trouble,
    }
}

/// The content, and a sentence to speak.
type SpokenResult = Result<(Value, String), BrowserError>;

async fn click(session: &BrowserSession, id: &str) -> SpokenResult {
    dom::click(session, id).await?;
    let here = session.here().await?;
    Ok((json!({ "url": here.url, "title": here.title }), "I clicked it.".to_owned()))
}

async fn press(session: &BrowserSession, id: Option<&str>, keys: &[char]) -> SpokenResult {
    if let Some(id) = id {
        session.script("arguments[0].focus();", &[element(id)]).await?;
    }
    session.following(session.press(&dom::pressed(keys))).await?;
    let here = session.here().await?;
    Ok((json!({ "url": here.url, "title": here.title }), "I pressed the key.".to_owned()))
}

async fn extract(session: &BrowserSession) -> SpokenResult {
    let here = session.here().await?;
    let text = dom::look(session, "text", [Value::Null, Value::Null]).await?;
    let text = base::text::printable_output(text.as_str().unwrap_or_default());
    let text = match text.char_indices().nth(TEXT) {
        None => text,
        Some((end, _)) => {
            let more = text[end..].chars().count();
            format!("{}\n[{more} more characters are not shown]", &text[..end])
        }
    };
    let content = format!("{}\n\n{text}", base::text::printable(&here.title));
    Ok((json!(content), "Here is the text of the page.".to_owned()))
}

async fn snapshot(
    session: &BrowserSession,
    tabs: &mut Tabs,
    tab: &str,
    interactive: bool,
) -> SpokenResult {
    let mut seen = dom::look(session, "snapshot", [json!(interactive), json!(NODES)]).await?;
    let mut ids = Vec::new();
    let mut nodes = Vec::new();
    for (index, node) in seen["nodes"].as_array_mut().into_iter().flatten().enumerate() {
        let mut report =
            json!({ "ref": format!("e{index}"), "role": node["role"], "name": node["name"] });
        ids.push(id_of(&node["element"]).unwrap_or_default().to_owned());
        let facts = node.as_object_mut().map(std::mem::take).unwrap_or_default();
        for (key, value) in facts.into_iter().filter(|(key, _)| key != "element") {
            report[key] = value;
        }
        nodes.push(report);
    }
    tabs.name(tab, ids);
    let count = nodes.len();
    let mut content =
        json!({ "url": seen["url"], "title": seen["title"], "nodes": nodes, "count": count });
    if let Some(omitted) = seen["left"].as_u64().filter(|omitted| *omitted > 0) {
        content["left_out"] = json!(omitted);
    }
    Ok((content, format!("I see {count} elements on the page.")))
}
