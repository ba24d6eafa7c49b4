//! What `execute_browser` keeps between calls: the elements of the last look at a page by short
//! names, and whether the tab that is there is one that somebody opened.

use std::collections::BTreeMap;
use std::io;

use serde::{Deserialize, Serialize};

use super::session::BrowserSession;
use super::webdriver::BrowserError;
use tools::output::ToolError;

/// The file of it, in the directory of the browser.
const FILE: &str = "refs.json";

/// Names and tabs of a browser.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Tabs {
    /// The browser that this is about.
    session: String,
    /// The tab whose elements are named.
    tab: String,
    /// Name -> element.
    refs: BTreeMap<String, String>,
    /// The tab that was opened because a browser must have one.
    empty: Option<String>,
}

impl Tabs {
    /// What is kept of this browser.
    pub(crate) fn of(session: &BrowserSession) -> Tabs {
        let bytes = std::fs::read(session.place.path().join(FILE)).unwrap_or_default();
        let kept: Tabs = serde_json::from_slice(&bytes).unwrap_or_default();
        if kept.session == session.record.session { kept } else { Tabs::default() }
    }

    /// Keeps it.
    pub(crate) fn keep(&mut self, session: &BrowserSession) -> io::Result<()> {
        self.session.clone_from(&session.record.session);
        base::files::replace_json(&session.place.path().join(FILE), self)
    }

    /// Names the elements of a tab, in their order; the names before are forgotten.
    pub(crate) fn name(&mut self, tab: &str, elements: impl IntoIterator<Item = String>) {
        let named = elements.into_iter().enumerate().map(|(n, id)| (format!("e{n}"), id));
        self.refs = named.collect();
        tab.clone_into(&mut self.tab);
    }

    /// The element of a name in a tab.
    pub(crate) fn element(&self, tab: &str, name: &str) -> Result<&str, ToolError> {
        // Models write [e3] and @e3 as well.
        let bare = name.trim().trim_matches(|c: char| !c.is_ascii_alphanumeric());
        let found = self.refs.get(bare);
        match found {
            Some(id) if self.tab == tab => Ok(id),
            Some(_) => Err(stale(bare)),
            None => Err(ToolError::invalid(format!(
                "no ref `{name}` in the last snapshot: take a new snapshot and use its refs"
            ))),
        }
    }

    /// Whether a tab is nobody's: nothing was opened in it since the last one was closed.
    pub(crate) async fn is_empty(
        &self,
        session: &BrowserSession,
        tab: &str,
    ) -> Result<bool, BrowserError> {
        Ok(self.empty.as_deref() == Some(tab) && session.here().await?.url == "about:blank")
    }

    /// Closes the current tab. A browser without a tab would end, so the last one is exchanged.
    pub(crate) async fn close(
        &mut self,
        session: &BrowserSession,
        tab: &str,
    ) -> Result<(), BrowserError> {
        let mut left = session.tabs().await?;
        left.retain(|other| other != tab);
        let next = match left.pop() {
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

/// What is said of an element that is there no more.
pub(crate) fn stale(name: &str) -> ToolError {
    ToolError::invalid(format!(
        "the ref `{name}` is stale: the page changed since the snapshot. Take a new snapshot and use \
         its refs"
    ))
}
