//! What can be done with a browser: the engines behind `webdriver_…` and `execute_browser`.

use tools::kind::ToolKind;

/// One thing that can be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BrowserVerb {
    /// Starts the browser.
    Start,
    /// Opens an address.
    Navigate,
    /// Tells the address.
    Url,
    /// Tells the title.
    Title,
    /// Finds the first element that fits.
    Find,
    /// Finds all elements that fit.
    FindAll,
    /// Clicks an element.
    Click,
    /// Types into an element.
    Type,
    /// Runs a script in the page.
    Script,
    /// Gives the page as HTML.
    Source,
    /// Takes a picture of the page.
    Screenshot,
    /// Goes back.
    Back,
    /// Goes forward.
    Forward,
    /// Loads the page again.
    Refresh,
    /// Ends the browser.
    Quit,
    /// All of it under one name, with references instead of selectors.
    Act,
}

impl BrowserVerb {
    /// Every verb.
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

    /// The kind of the tool that does it.
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

    /// The verb of a kind of tool.
    pub(crate) fn of(kind: ToolKind) -> Option<BrowserVerb> {
        BrowserVerb::ALL.into_iter().find(|verb| verb.name() == kind.name())
    }
}
