//! The web: pages that are fetched, and services that search it.

use browser::BrowserTool;
use browser::verb::Verb;
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
    &BrowserTool(Verb::Start),
    &BrowserTool(Verb::Navigate),
    &BrowserTool(Verb::Url),
    &BrowserTool(Verb::Title),
    &BrowserTool(Verb::Find),
    &BrowserTool(Verb::FindAll),
    &BrowserTool(Verb::Click),
    &BrowserTool(Verb::Type),
    &BrowserTool(Verb::Script),
    &BrowserTool(Verb::Source),
    &BrowserTool(Verb::Screenshot),
    &BrowserTool(Verb::Back),
    &BrowserTool(Verb::Forward),
    &BrowserTool(Verb::Refresh),
    &BrowserTool(Verb::Quit),
    &BrowserTool(Verb::Act),
];
