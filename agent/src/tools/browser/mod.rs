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

use verb::Verb;

use super::call::{Call, Trouble};
use super::profile::Engine;
use super::web::door;
use super::{ErrorKind, Outcome};
use crate::gate::{Access, Pass};

/// What switches the tools on.
pub const SWITCH: &str = "--webdriver, --chrome-headless or webdriver.enabled";

/// What a call reaches: the host that it opens, the file that it writes, or the page that it acts
/// on. To look at the page that is there reaches nothing more.
pub fn reaches(call: &Call<'_>) -> Vec<Access> {
    let Engine::Browser(verb) = call.face.engine else { return Vec::new() };
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
fn opened(call: &Call<'_>, url: &str) -> Vec<Access> {
    let Ok(url) = target::parse(url) else { return Vec::new() };
    let allowed = &call.at.others.web.webfetch.allow_hosts;
    let free = target::is_local(&url) || door::is_allowed(allowed, &url);
    vec![Access::Fetch { host: door::host(&url), free }]
}

/// Does what the call wants, or ends early when the user cancels.
pub async fn run(call: &Call<'_>, pass: Pass) -> Result<Outcome, Trouble> {
    let Engine::Browser(verb) = call.face.engine else {
        return Err(Trouble::failed("invalid browser call"));
    };
    let work = async {
        match verb {
            Verb::Act => Ok(act::run(call, pass).await),
            verb => page::run(call, verb, pass).await,
        }
    };
    let cancelled = || Trouble::new(ErrorKind::Cancelled, "cancelled by the user");
    call.at.cancel.run_until_cancelled(work).await.ok_or_else(cancelled)?
}
