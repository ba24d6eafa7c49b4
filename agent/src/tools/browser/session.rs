//! One browser during one call: commands to it, dialogs and tabs that come in between, and what
//! the page is now.

use std::sync::Mutex;

use base::lock::Lock;
use reqwest::Method;
use serde_json::{Value, json};

use super::record::{Place, Record};
use super::wire::{Fault, Wire};
use crate::tools::output::{ErrorKind, ToolError};

/// How many dialogs in a row are dismissed before a command.
const DIALOGS: usize = 5;
/// What tells where the browser is. A page that could not be loaded has an address of its own.
const WHERE: &str = "const failed = location.protocol === 'chrome-error:'; return { \
    url: location.href, title: document.title, time: performance.timeOrigin, error: failed ? \
    (document.querySelector('.error-code') || document.body).innerText.trim() : null };";

/// A browser, for one call: no other call is at work with it meanwhile.
pub struct Session {
    /// Where its files are.
    pub place: Place,
    /// What it is.
    pub record: Record,
    wire: Wire,
    notes: Mutex<Vec<String>>,
    _turn: Lock,
}

/// What is shown now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Here {
    /// The address.
    pub url: String,
    /// The page's title.
    pub title: String,
    /// Why the page could not be loaded.
    pub error: Option<String>,
    /// When it came: a page that is loaded again is another one.
    pub time: f64,
}

impl Session {
    /// A session of this browser.
    pub fn new(wire: Wire, place: Place, record: Record, turn: Lock) -> Session {
        Session { place, record, wire, notes: Mutex::default(), _turn: turn }
    }

    /// Asks for something.
    pub async fn look(&self, path: &str) -> Result<Value, Fault> {
        self.command(Method::GET, path, None).await
    }

    /// Has something done.
    pub async fn order(&self, path: &str, body: Value) -> Result<Value, Fault> {
        self.command(Method::POST, path, Some(body)).await
    }

    /// Runs a script in the page, and gives what it returns.
    pub async fn script(&self, script: &str, args: Value) -> Result<Value, Fault> {
        self.order("/execute/sync", json!({ "script": script, "args": args })).await
    }

    /// One command. A dialog in its way is dismissed and told; where the tab was closed, the last
    /// that is left becomes the current one.
    async fn command(&self, how: Method, path: &str, body: Option<Value>) -> Result<Value, Fault> {
        for _ in 0..DIALOGS {
            match self.wire.ask(how.clone(), path, body.clone()).await {
                Err(Fault::Dialog(text)) => {
                    self.note(format!("a dialog opened and was dismissed: {text:?}"));
                }
                Err(Fault::NoWindow) => {
                    let tabs = self.tabs_of(self.wire.look("/window/handles").await?);
                    let gone = || Fault::Gone("it has no tab any more".to_owned());
                    let last = tabs.last().ok_or_else(gone)?;
                    self.wire.order("/window", json!({ "handle": last })).await?;
                    self.note("the tab was closed; another one is the current one".to_owned());
                }
                other => return other,
            }
        }
        Err(Fault::Other("the page opens one dialog after the other".to_owned()))
    }

    /// The ids of its tabs.
    pub async fn tabs(&self) -> Result<Vec<String>, Fault> {
        Ok(self.tabs_of(self.look("/window/handles").await?))
    }

    fn tabs_of(&self, handles: Value) -> Vec<String> {
        serde_json::from_value(handles).unwrap_or_default()
    }

    /// The id of the current tab.
    pub async fn tab(&self) -> Result<String, Fault> {
        Ok(self.look("/window").await?.as_str().unwrap_or_default().to_owned())
    }

    /// Makes another tab the current one.
    pub async fn switch(&self, tab: &str) -> Result<(), Fault> {
        self.order("/window", json!({ "handle": tab })).await.map(drop)
    }

    /// Opens an empty tab, which is the current one then.
    pub async fn add_tab(&self) -> Result<String, Fault> {
        let made = self.order("/window/new", json!({ "type": "tab" })).await?;
        let tab = made["handle"].as_str().unwrap_or_default().to_owned();
        self.switch(&tab).await?;
        Ok(tab)
    }

    /// Closes the current tab.
    pub async fn close_tab(&self) -> Result<(), Fault> {
        self.command(Method::DELETE, "/window", None).await.map(drop)
    }

    /// Does something after which a tab may be there that was not: then it is the current one.
    pub async fn following<T>(
        &self,
        work: impl Future<Output = Result<T, Fault>>,
    ) -> Result<T, Fault> {
        let before = self.tabs().await?;
        let done = work.await?;
        let after = self.tabs().await?;
        if let Some(new) = after.iter().rfind(|tab| !before.contains(tab)) {
            self.switch(new).await?;
            self.note("another tab opened and is the current one".to_owned());
        }
        Ok(done)
    }

    /// Where it is.
    pub async fn here(&self) -> Result<Here, Fault> {
        let told = self.script(WHERE, json!([])).await?;
        let text = |key: &str| told[key].as_str().unwrap_or_default().to_owned();
        let error = told["error"].as_str().map(|why| why.lines().next().unwrap_or(why).to_owned());
        let url = match &error {
            // The address that was asked for.
            Some(_) => self.look("/url").await?.as_str().unwrap_or_default().to_owned(),
            None => text("url"),
        };
        let time = told["time"].as_f64().unwrap_or_default();
        Ok(Here { url, title: text("title"), error, time })
    }

    /// Something that is told beside the result.
    pub fn note(&self, text: String) {
        self.notes.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(text);
    }

    /// What is to be told beside the result.
    pub fn notes(&self) -> Vec<String> {
        std::mem::take(&mut self.notes.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }

    /// A trouble with what is to be told beside it.
    pub fn noted(&self, mut trouble: ToolError) -> ToolError {
        for note in self.notes() {
            trouble.text.push_str(&format!("\n[note: {note}]"));
        }
        trouble
    }

    /// What the model reads of a fault. A browser that is gone is ended, so that the next start
    /// works.
    pub async fn told(&self, fault: Fault) -> ToolError {
        match fault {
            Fault::NoElement(why) => ToolError::new(ErrorKind::NotFound, why),
            Fault::Late => ToolError::new(
                ErrorKind::Timeout,
                "it took longer than 30 s and was given up; what is on the page can still be read",
            ),
            Fault::Gone(why) => {
                let ended = super::hub::end(&self.place, &self.record).await;
                let rest = ended.err().map(|it| format!("; {}", it.text)).unwrap_or_default();
                let why = why.lines().next().unwrap_or_default().to_owned();
                ToolError::failed(format!(
                    "the browser crashed or was closed, its pages are gone ({why}{rest}); the next \
                     start opens a new one"
                ))
            }
            Fault::NoWindow => ToolError::failed("the tab was closed"),
            Fault::Dialog(text) | Fault::Other(text) => ToolError::failed(text),
        }
    }
}
