//! The browser during one call: runs commands, handles the dialogs and tabs that open in between,
//! and stores the refs of elements.

use super::daemon::{BrowserDir, BrowserRecord};
use super::webdriver::{self, BrowserError};
use base::lock::Lock;
use fantoccini::actions::KeyActions;
use fantoccini::elements::Element;
use fantoccini::error::CmdError;
use fantoccini::wd::WindowHandle;
use fantoccini::{Client, Locator};
use reqwest::Url;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io;
use std::sync::Mutex;
use tools::output::{ToolError, ToolErrorKind};

/// Maximum number of dialogs in a row that are dismissed before a command.
const DIALOGS: usize = 5;
/// Script that returns the current page. A page that could not be loaded has a URL of its own.
const WHERE: &str = "const failed = location.protocol === 'chrome-error:'; return { \
    url: location.href, title: document.title, time: performance.timeOrigin, error: failed ? \
    (document.querySelector('.error-code') || document.body).innerText.trim() : null };";

/// A browser that is locked for one call.
pub(crate) struct BrowserSession {
    /// The directory of its files.
    pub place: BrowserDir,
    /// Its record.
    pub record: BrowserRecord,
    client: Client,
    notes: Mutex<Vec<String>>,
    _turn: Lock,
}

/// The current page.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct CurrentPage {
    /// Its URL.
    pub url: String,
    /// Its title.
    pub title: String,
    /// Why the page could not be loaded.
    pub error: Option<String>,
    /// When it was loaded: a reloaded page is a different one.
    pub time: f64,
}

impl BrowserSession {
    /// Connects to the session of this browser.
    pub(crate) async fn connect(
        place: BrowserDir,
        record: BrowserRecord,
        turn: Lock,
    ) -> Result<BrowserSession, BrowserError> {
        let client = webdriver::connect(&record.driver, &record.session).await?;
        Ok(BrowserSession { place, record, client, notes: Mutex::default(), _turn: turn })
    }

    /// Runs a command. A dialog that blocks it is dismissed and noted. If the tab was closed, the
    /// last of the other tabs becomes the current one.
    async fn run<T, Running>(&self, command: impl Fn(Client) -> Running) -> Result<T, BrowserError>
    where
        Running: Future<Output = Result<T, CmdError>>,
    {
        for _ in 0..DIALOGS {
            match webdriver::run(command(self.client.clone())).await {
                Err(BrowserError::Dialog(text)) => {
                    self.note(format!("a dialog opened and was dismissed: {text:?}"));
                }
                Err(BrowserError::NoWindow) => {
                    let tabs = webdriver::run(self.client.windows()).await?;
                    let gone = || BrowserError::Gone("it has no tab any more".to_owned());
                    let last = tabs.into_iter().next_back().ok_or_else(gone)?;
                    webdriver::run(self.client.switch_to_window(last)).await?;
                    self.note("the tab was closed; another one is the current one".to_owned());
                }
                other => return other,
            }
        }
        Err(BrowserError::Other("the page opens one dialog after the other".to_owned()))
    }

    /// Opens a URL in the current tab.
    pub(crate) async fn open(&self, url: &Url) -> Result<(), BrowserError> {
        self.run(move |client| async move { client.goto(url.as_str()).await }).await
    }

    /// Goes back in the history of the tab.
    pub(crate) async fn back(&self) -> Result<(), BrowserError> {
        self.run(|client| async move { client.back().await }).await
    }

    /// Goes forward in the history of the tab.
    pub(crate) async fn forward(&self) -> Result<(), BrowserError> {
        self.run(|client| async move { client.forward().await }).await
    }

    /// Reloads the page.
    pub(crate) async fn refresh(&self) -> Result<(), BrowserError> {
        self.run(|client| async move { client.refresh().await }).await
    }

    /// Returns the page as HTML.
    pub(crate) async fn source(&self) -> Result<String, BrowserError> {
        self.run(|client| async move { client.source().await }).await
    }

    /// Returns a screenshot of the page as PNG.
    pub(crate) async fn screenshot(&self) -> Result<Vec<u8>, BrowserError> {
        self.run(|client| async move { client.screenshot().await }).await
    }

    /// Runs a script in the page, and returns its result.
    pub(crate) async fn script(&self, script: &str, args: &[Value]) -> Result<Value, BrowserError> {
        self.run(move |client| async move { client.execute(script, args.to_vec()).await }).await
    }

    /// Returns the references of the elements that match a CSS selector.
    pub(crate) async fn find_all(&self, selector: &str) -> Result<Vec<String>, BrowserError> {
        let elements = self
            .run(move |client| async move { client.find_all(Locator::Css(selector)).await })
            .await?;
        Ok(elements.iter().map(|element| element.element_id().into()).collect())
    }

    /// Clicks an element, which is scrolled into view first.
    pub(crate) async fn click(&self, id: &str) -> Result<(), BrowserError> {
        self.run(move |client| async move { element_of(client, id).click().await }).await
    }

    /// Clears a field.
    pub(crate) async fn clear(&self, id: &str) -> Result<(), BrowserError> {
        self.run(move |client| async move { element_of(client, id).clear().await }).await
    }

    /// Types into an element, or sets the files of a file field.
    pub(crate) async fn send_keys(&self, id: &str, text: &str) -> Result<(), BrowserError> {
        self.run(move |client| async move { element_of(client, id).send_keys(text).await }).await
    }

    /// Presses keys on the focused element.
    pub(crate) async fn press(&self, keys: &KeyActions) -> Result<(), BrowserError> {
        self.run(move |client| async move { client.perform_actions(keys.clone()).await }).await
    }

    /// Returns the ids of the tabs.
    pub(crate) async fn tabs(&self) -> Result<Vec<String>, BrowserError> {
        Ok(self
            .run(|client| async move { client.windows().await })
            .await?
            .into_iter()
            .map(String::from)
            .collect())
    }

    /// Returns the id of the current tab.
    pub(crate) async fn tab(&self) -> Result<String, BrowserError> {
        self.run(|client| async move { client.window().await }).await.map(String::from)
    }

    /// Switches to another tab.
    pub(crate) async fn switch(&self, tab: &str) -> Result<(), BrowserError> {
        let tab = WindowHandle::try_from(tab).map_err(|_| BrowserError::NoWindow)?;
        self.run(|client| {
            let tab = tab.clone();
            async move { client.switch_to_window(tab).await }
        })
        .await
    }

    /// Opens an empty tab and switches to it.
    pub(crate) async fn add_tab(&self) -> Result<String, BrowserError> {
        let window = self.run(move |client| async move { client.new_window(true).await }).await?;
        let tab = String::from(window.handle);
        self.switch(&tab).await?;
        Ok(tab)
    }

    /// Closes the current tab.
    pub(crate) async fn close_tab(&self) -> Result<(), BrowserError> {
        self.run(|client| async move { client.close_window().await }).await
    }

    /// Runs an action, and switches to the new tab if it opened one.
    pub(crate) async fn following<T>(
        &self,
        work: impl Future<Output = Result<T, BrowserError>>,
    ) -> Result<T, BrowserError> {
        let before = self.tabs().await?;
        let done = work.await?;
        let after = self.tabs().await?;
        if let Some(new) = after.iter().rfind(|tab| !before.contains(tab)) {
            self.switch(new).await?;
            self.note("another tab opened and is the current one".to_owned());
        }
        Ok(done)
    }

    /// Returns the current page.
    pub(crate) async fn here(&self) -> Result<CurrentPage, BrowserError> {
        let reported = self.script(WHERE, &[]).await?;
        let text = |key: &str| reported[key].as_str().unwrap_or_default().to_owned();
        let error = reported["error"].as_str();
        let error = error.map(|reason| reason.lines().next().unwrap_or(reason).to_owned());
        let url = match &error {
            // The URL that was requested.
            Some(_) => {
                self.run(|client| async move { client.current_url().await }).await?.to_string()
            }
            None => text("url"),
        };
        let time = reported["time"].as_f64().unwrap_or_default();
        Ok(CurrentPage { url, title: text("title"), error, time })
    }

    /// Adds a note to the result.
    pub(crate) fn note(&self, text: String) {
        self.notes.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(text);
    }

    /// Takes the notes for the result.
    pub(crate) fn notes(&self) -> Vec<String> {
        std::mem::take(&mut self.notes.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }

    /// Appends the notes to an error.
    pub(crate) fn noted(&self, mut trouble: ToolError) -> ToolError {
        for note in self.notes() {
            trouble.text.push_str(&format!("\n[note: {note}]"));
        }
        trouble
    }

    /// Converts an error for the model. A browser that crashed is ended, so that the next start
    /// works.
    pub(crate) async fn tool_error(&self, error: BrowserError) -> ToolError {
        match error {
            BrowserError::NoElement(message) => ToolError::new(ToolErrorKind::NotFound, message),
            BrowserError::Timeout => ToolError::new(
                ToolErrorKind::Timeout,
                "it took longer than 30 s and was given up; what is on the page can still be read",
            ),
            BrowserError::Gone(message) => {
                let ended = super::manager::end(&self.place, &self.record).await;
                let rest = ended.err().map(|it| format!("; {}", it.text)).unwrap_or_default();
                let reason = message.lines().next().unwrap_or_default().to_owned();
                ToolError::failed(format!(
                    "the browser crashed or was closed, its pages are gone ({reason}{rest}); the next \
                     start opens a new one"
                ))
            }
            BrowserError::NoWindow => ToolError::failed("the tab was closed"),
            BrowserError::Dialog(text) | BrowserError::Other(text) => ToolError::failed(text),
        }
    }
}

/// Returns the element of a reference.
fn element_of(client: Client, id: &str) -> Element {
    Element::from_element_id(client, id.to_owned().into())
}

/// Name of the file of the refs in the browser's directory.
const FILE: &str = "refs.json";

/// The refs of a browser's elements, and its empty tab.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Tabs {
    /// The WebDriver session that they belong to.
    session: String,
    /// The tab of the elements.
    tab: String,
    /// Ref -> element.
    refs: BTreeMap<String, String>,
    /// The tab that was opened only because a browser must have one.
    empty: Option<String>,
}

impl Tabs {
    /// Reads the refs of this browser.
    pub(crate) fn of(session: &BrowserSession) -> Tabs {
        let bytes = std::fs::read(session.place.path().join(FILE)).unwrap_or_default();
        let kept: Tabs = serde_json::from_slice(&bytes).unwrap_or_default();
        if kept.session == session.record.session { kept } else { Tabs::default() }
    }

    /// Writes the refs.
    pub(crate) fn keep(&mut self, session: &BrowserSession) -> io::Result<()> {
        self.session.clone_from(&session.record.session);
        base::files::replace_json(&session.place.path().join(FILE), self)
    }

    /// Assigns refs to the elements of a tab, in their order; earlier refs are discarded.
    pub(crate) fn name(&mut self, tab: &str, elements: impl IntoIterator<Item = String>) {
        let named = elements.into_iter().enumerate().map(|(n, id)| (format!("e{n}"), id));
        self.refs = named.collect();
        tab.clone_into(&mut self.tab);
    }

    /// Returns the element of a ref in a tab.
    pub(crate) fn element(&self, tab: &str, name: &str) -> Result<&str, ToolError> {
        // Models also write [e3] and @e3.
        let bare = name.trim().trim_matches(|c: char| !c.is_ascii_alphanumeric());
        let element = self.refs.get(bare);
        match element {
            Some(id) if self.tab == tab => Ok(id),
            Some(_) => Err(stale(bare)),
            None => Err(ToolError::invalid(format!(
                "no ref `{name}` in the last snapshot: take a new snapshot and use its refs"
            ))),
        }
    }

    /// Returns whether a tab is empty: nothing was opened in it after the last tab was closed.
    pub(crate) async fn is_empty(
        &self,
        session: &BrowserSession,
        tab: &str,
    ) -> Result<bool, BrowserError> {
        Ok(self.empty.as_deref() == Some(tab) && session.here().await?.url == "about:blank")
    }

    /// Closes the current tab. A browser without a tab would exit, so the last one is replaced.
    pub(crate) async fn close(
        &mut self,
        session: &BrowserSession,
        tab: &str,
    ) -> Result<(), BrowserError> {
        let mut remaining = session.tabs().await?;
        remaining.retain(|other| other != tab);
        let next = match remaining.pop() {
            Some(next) => next,
            None => {
                let next = session.add_tab().await?;
                session.switch(tab).await?;
                self.empty = Some(next.clone());
                next
            }
        };
        session.close_tab().await?;
        session.switch(&next).await
    }
}

/// Returns the error for the ref of an element that no longer exists.
pub(crate) fn stale(name: &str) -> ToolError {
    ToolError::invalid(format!(
        "the ref `{name}` is stale: the page changed since the snapshot. Take a new snapshot and use \
         its refs"
    ))
}
