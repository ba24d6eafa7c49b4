//! What can be done with a browser: the engines behind `webdriver_…` and `execute_browser`.

use crate::tools::kind::ToolKind;

/// One thing that can be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
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

impl Verb {
    /// Every verb.
    pub const ALL: [Verb; 16] = [
        Verb::Start,
        Verb::Navigate,
        Verb::Url,
        Verb::Title,
        Verb::Find,
        Verb::FindAll,
        Verb::Click,
        Verb::Type,
        Verb::Script,
        Verb::Source,
        Verb::Screenshot,
        Verb::Back,
        Verb::Forward,
        Verb::Refresh,
        Verb::Quit,
        Verb::Act,
    ];

    /// The kind of the tool that does it.
    pub const fn name(self) -> &'static str {
        match self {
            Verb::Start => "browser.start",
            Verb::Navigate => "browser.navigate",
            Verb::Url => "browser.url",
            Verb::Title => "browser.title",
            Verb::Find => "browser.find",
            Verb::FindAll => "browser.find_all",
            Verb::Click => "browser.click",
            Verb::Type => "browser.type",
            Verb::Script => "browser.script",
            Verb::Source => "browser.source",
            Verb::Screenshot => "browser.screenshot",
            Verb::Back => "browser.back",
            Verb::Forward => "browser.forward",
            Verb::Refresh => "browser.refresh",
            Verb::Quit => "browser.quit",
            Verb::Act => "browser.act",
        }
    }

    /// The verb of a kind of tool.
    pub fn of(kind: ToolKind) -> Option<Verb> {
        Verb::ALL.into_iter().find(|verb| verb.name() == kind.name())
    }
}
