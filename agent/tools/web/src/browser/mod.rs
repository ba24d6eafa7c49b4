//! The browser: one per session, controlled by CSS selectors (`webdriver_…`) or by short refs of
//! elements (`execute_browser`).
//!
//! A call finds the browser through a file in the session's directory, so that calls in separate
//! processes share it; a daemon ([`daemon`]) starts and ends it.

pub mod action_kind;
pub mod actions;
pub mod daemon;
pub mod dom;
pub mod manager;
pub mod page;
pub mod programs;
pub mod session;
pub mod url_policy;
pub mod webdriver;

use action_kind::BrowserVerb;
use manager::BrowserManager;

use gate::Access;
use tools::call::Invocation;
use tools::kind::Effect;
use tools::output::{ToolError, ToolErrorKind};
use tools::services::BrowserService;
use tools::tool::{CallScope, Tool, ToolFuture, ToolSpec};
use tools::web::guarded_client;

/// A tool that runs one operation in the session's browser.
pub(crate) struct BrowserTool(pub BrowserVerb);

impl Tool for BrowserTool {
    fn spec(&self) -> ToolSpec {
        let spec = ToolSpec::new(self.0.name(), Effect::Looks);
        if self.0 == BrowserVerb::Act { spec.with_undo_hint("check_command") } else { spec }
    }

    fn scope(&self, call: &Invocation<'_>) -> CallScope {
        CallScope { access: reaches(self.0, call), ..CallScope::keyed("browser") }
    }

    fn call<'a>(&'a self, call: &'a Invocation<'_>) -> ToolFuture<'a> {
        match &call.context.services.browser {
            Some(browser) => browser.run(call),
            None => {
                Box::pin(async { Err(ToolError::failed("no browser can be used in this session")) })
            }
        }
    }
}

/// Returns what a call accesses: the host that it opens, the file that it writes, or the page that
/// it acts on. Reading the current page needs no access.
fn reaches(verb: BrowserVerb, call: &Invocation<'_>) -> Vec<Access> {
    let names_file = !call.text("path").is_empty();
    let acts = || vec![Access::Act("the page in the browser".to_owned())];
    match verb {
        BrowserVerb::Navigate => opened(call, call.text("url")),
        BrowserVerb::Act if actions::opens(call) => {
            opened(call, &actions::url(call).unwrap_or_default())
        }
        BrowserVerb::Act if actions::acts(call) => acts(),
        BrowserVerb::Click | BrowserVerb::Type | BrowserVerb::Script => acts(),
        BrowserVerb::Screenshot => vec![Access::Write(call.path.clone())],
        BrowserVerb::Source if names_file => vec![Access::Write(call.path.clone())],
        BrowserVerb::Start
        | BrowserVerb::Url
        | BrowserVerb::Title
        | BrowserVerb::Find
        | BrowserVerb::FindAll
        | BrowserVerb::Source
        | BrowserVerb::Back
        | BrowserVerb::Forward
        | BrowserVerb::Refresh
        | BrowserVerb::Quit
        | BrowserVerb::Act => Vec::new(),
    }
}

/// Returns the access to the host of a URL; nothing for an invalid URL, which the call itself
/// reports. The local machine needs no question.
fn opened(call: &Invocation<'_>, url: &str) -> Vec<Access> {
    let Ok(url) = url_policy::parse(url) else { return Vec::new() };
    let allowed = &call.context.services.web.webfetch.allow_hosts;
    let free = url_policy::is_local(&url) || guarded_client::is_allowed(allowed, &url);
    vec![Access::Fetch { host: guarded_client::host(&url), allowed: free }]
}

impl BrowserService for BrowserManager {
    /// Runs the operation of the call, or stops early when the user cancels.
    fn run<'a>(&'a self, call: &'a Invocation<'_>) -> ToolFuture<'a> {
        let verb = BrowserVerb::of(call.spec().kind);
        let work = async move {
            match verb {
                None => Err(ToolError::failed("invalid browser call")),
                Some(BrowserVerb::Act) => Ok(actions::run(self, call).await),
                Some(verb) => page::run(self, call, verb).await,
            }
        };
        let cancelled = || ToolError::new(ToolErrorKind::Cancelled, "cancelled by the user");
        Box::pin(async move {
            call.context.cancel.run_until_cancelled(work).await.ok_or_else(cancelled)?
        })
    }
}
