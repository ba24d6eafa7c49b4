//! The web tools: fetch pages, search the web, and control a browser.

use browser::BrowserTool;
use browser::action_kind::BrowserVerb;
use tools::tool::Tool;

pub mod body;
pub mod browser;
pub mod fetch;
pub mod html;
pub mod reply;
pub mod search;
pub mod truncate;

/// The tools of this crate.
pub const TOOLS: &[&dyn Tool] = &[
    &fetch::FetchTool,
    &search::CodeSearchTool,
    &search::WebSearchTool,
    &BrowserTool(BrowserVerb::Start),
    &BrowserTool(BrowserVerb::Navigate),
    &BrowserTool(BrowserVerb::Url),
    &BrowserTool(BrowserVerb::Title),
    &BrowserTool(BrowserVerb::Find),
    &BrowserTool(BrowserVerb::FindAll),
    &BrowserTool(BrowserVerb::Click),
    &BrowserTool(BrowserVerb::Type),
    &BrowserTool(BrowserVerb::Script),
    &BrowserTool(BrowserVerb::Source),
    &BrowserTool(BrowserVerb::Screenshot),
    &BrowserTool(BrowserVerb::Back),
    &BrowserTool(BrowserVerb::Forward),
    &BrowserTool(BrowserVerb::Refresh),
    &BrowserTool(BrowserVerb::Quit),
    &BrowserTool(BrowserVerb::Act),
];
