//! The operations of a browser, behind `webdriver_…` and `execute_browser`.

use tools::kind::ToolKind;

/// An operation of a browser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BrowserVerb {
    /// Starts the browser.
    Start,
    /// Opens a URL.
    Navigate,
    /// Returns the URL.
    Url,
    /// Returns the title.
    Title,
    /// Finds the first matching element.
    Find,
    /// Finds all matching elements.
    FindAll,
    /// Clicks an element.
    Click,
    /// Types into an element.
    Type,
    /// Runs a script in the page.
    Script,
    /// Returns the page as HTML.
    Source,
    /// Takes a screenshot of the page.
    Screenshot,
    /// Goes back in the history.
    Back,
    /// Goes forward in the history.
    Forward,
    /// Reloads the page.
    Refresh,
    /// Ends the browser.
    Quit,
    /// All actions under one name, with refs instead of selectors.
    Act,
}

impl BrowserVerb {
    /// All operations.
    const ALL: [BrowserVerb; 16] = [
        BrowserVerb::Start,
        BrowserVerb::Navigate,
        BrowserVerb::Url,
        BrowserVerb::Title,
        BrowserVerb::Find,
        BrowserVerb::FindAll,
        BrowserVerb::Click,
        BrowserVerb::Type,
        BrowserVerb::Script,
        BrowserVerb::Source,
        BrowserVerb::Screenshot,
        BrowserVerb::Back,
        BrowserVerb::Forward,
        BrowserVerb::Refresh,
        BrowserVerb::Quit,
        BrowserVerb::Act,
    ];

    /// Returns the kind of the tool that runs it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            BrowserVerb::Start => "browser.start",
            BrowserVerb::Navigate => "browser.navigate",
            BrowserVerb::Url => "browser.url",
            BrowserVerb::Title => "browser.title",
            BrowserVerb::Find => "browser.find",
            BrowserVerb::FindAll => "browser.find_all",
            BrowserVerb::Click => "browser.click",
            BrowserVerb::Type => "browser.type",
            BrowserVerb::Script => "browser.script",
            BrowserVerb::Source => "browser.source",
            BrowserVerb::Screenshot => "browser.screenshot",
            BrowserVerb::Back => "browser.back",
            BrowserVerb::Forward => "browser.forward",
            BrowserVerb::Refresh => "browser.refresh",
            BrowserVerb::Quit => "browser.quit",
            BrowserVerb::Act => "browser.act",
        }
    }

    /// Returns the operation of a kind of tool.
    pub(crate) fn of(kind: ToolKind) -> Option<BrowserVerb> {
        BrowserVerb::ALL.into_iter().find(|verb| verb.name() == kind.name())
    }
}
