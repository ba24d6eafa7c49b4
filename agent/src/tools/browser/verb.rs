//! What can be done with a browser: the engines behind `webdriver_…` and `execute_browser`.

use serde::{Deserialize, Serialize};

/// One thing that can be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum Verb {
    /// Starts the browser.
    #[serde(rename = "browser.start")]
    Start,
    /// Opens an address.
    #[serde(rename = "browser.navigate")]
    Navigate,
    /// Tells the address.
    #[serde(rename = "browser.url")]
    Url,
    /// Tells the title.
    #[serde(rename = "browser.title")]
    Title,
    /// Finds the first element that fits.
    #[serde(rename = "browser.find")]
    Find,
    /// Finds all elements that fit.
    #[serde(rename = "browser.find_all")]
    FindAll,
    /// Clicks an element.
    #[serde(rename = "browser.click")]
    Click,
    /// Types into an element.
    #[serde(rename = "browser.type")]
    Type,
    /// Runs a script in the page.
    #[serde(rename = "browser.script")]
    Script,
    /// Gives the page as HTML.
    #[serde(rename = "browser.source")]
    Source,
    /// Takes a picture of the page.
    #[serde(rename = "browser.screenshot")]
    Screenshot,
    /// Goes back.
    #[serde(rename = "browser.back")]
    Back,
    /// Goes forward.
    #[serde(rename = "browser.forward")]
    Forward,
    /// Loads the page again.
    #[serde(rename = "browser.refresh")]
    Refresh,
    /// Ends the browser.
    #[serde(rename = "browser.quit")]
    Quit,
    /// All of it under one name, with references instead of selectors.
    #[serde(rename = "browser.act")]
    Act,
}
