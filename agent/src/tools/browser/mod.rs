//! The browser: one for a session, driven by CSS selectors (`webdriver_…`) or by short names of
//! elements (`execute_browser`).
//!
//! A call finds the browser by a file in the session's directory ([`record`]), so that calls in
//! processes of their own share it; a keeper beside g3 ([`keeper`]) starts and ends it.

pub mod act;
pub mod dom;
pub mod find;
pub mod hub;
pub mod keeper;
pub mod keys;
pub mod page;
pub mod record;
pub mod session;
pub mod tabs;
pub mod target;
pub mod verb;
pub mod wire;

use hub::Hub;
use verb::Verb;

use super::call::Invocation;
use super::kind::Effect;
use super::output::{ErrorKind, ToolError};
use super::services::BrowserService;
use super::tool::{CallScope, Tool, ToolFuture, ToolSpec};
use super::web::door;
use gate::Access;

/// What switches the tools on.
pub const SWITCH: &str = "--webdriver, --chrome-headless or webdriver.enabled";

/// Does one thing with the browser of the session.
pub struct BrowserTool(pub Verb);

impl Tool for BrowserTool {
    fn spec(&self) -> ToolSpec {
        let spec = ToolSpec::new(self.0.name(), Effect::Looks);
        if self.0 == Verb::Act { spec.with_undo_hint("check_command") } else { spec }
    }

    fn scope(&self, call: &Invocation<'_>) -> CallScope {
        CallScope { access: reaches(self.0, call), ..CallScope::keyed("browser") }
    }

    fn call<'a>(&'a self, call: &'a Invocation<'_>) -> ToolFuture<'a> {
        match &call.at.others.browser {
            Some(browser) => browser.run(call),
            None => {
                Box::pin(async { Err(ToolError::failed("no browser can be used in this session")) })
            }
        }
    }
}

/// What a call reaches: the host that it opens, the file that it writes, or the page that it acts
/// on. To look at the page that is there reaches nothing more.
fn reaches(verb: Verb, call: &Invocation<'_>) -> Vec<Access> {
    let names_file = !call.text("path").is_empty();
    let acts = || vec![Access::Act("the page in the browser".to_owned())];
    match verb {
        Verb::Navigate => opened(call, call.text("url")),
        Verb::Act if act::opens(call) => opened(call, &act::url(call).unwrap_or_default()),
        Verb::Act if act::acts(call) => acts(),
        Verb::Click | Verb::Type | Verb::Script => acts(),
        Verb::Screenshot => vec![Access::Write(call.place.clone())],
        Verb::Source if names_file => vec![Access::Write(call.place.clone())],
        Verb::Start
        | Verb::Url
        | Verb::Title
        | Verb::Find
        | Verb::FindAll
        | Verb::Source
        | Verb::Back
        | Verb::Forward
        | Verb::Refresh
        | Verb::Quit
        | Verb::Act => Vec::new(),
    }
}

/// The host of an address; nothing where it is none, which the call itself says. A developer's own
/// machine needs no question.
fn opened(call: &Invocation<'_>, url: &str) -> Vec<Access> {
    let Ok(url) = target::parse(url) else { return Vec::new() };
    let allowed = &call.at.others.web.webfetch.allow_hosts;
    let free = target::is_local(&url) || door::is_allowed(allowed, &url);
    vec![Access::Fetch { host: door::host(&url), free }]
}

impl BrowserService for Hub {
    /// Does what the call wants, or ends early when the user cancels.
    fn run<'a>(&'a self, call: &'a Invocation<'_>) -> ToolFuture<'a> {
        let verb = Verb::of(call.spec().kind);
        let work = async move {
            match verb {
                None => Err(ToolError::failed("this is no call for a browser")),
                Some(Verb::Act) => Ok(act::run(self, call).await),
                Some(verb) => page::run(self, call, verb).await,
            }
        };
        let cancelled = || ToolError::new(ErrorKind::Cancelled, "cancelled by the user");
        Box::pin(
            async move { call.at.cancel.run_until_cancelled(work).await.ok_or_else(cancelled)? },
        )
    }
}
