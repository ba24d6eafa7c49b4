//! The families of tools in g3, and the services behind them.

use std::sync::Arc;

use base::config::Config;
use base::failure::{OrFail, Result};
use desktop_tools::DesktopHelper;
use futures_util::future::BoxFuture;
use lsp_tools::pool::LspPool as LanguageServerHub;
use tools::context::Services;
use tools::registry::Registry;
use tools::services::{BrowserOwner, BrowserService, Toolset};
use web_tools::browser::daemon;
use web_tools::browser::manager::BrowserManager as BrowserHub;

/// The tools of g3. Each family has a line here.
static REGISTRY: Registry = Registry::new(&[
    standard_tools::TOOLS,
    agent_core::session_tools::TOOLS,
    syntax_tools::TOOLS,
    lsp_tools::TOOLS,
    web_tools::TOOLS,
    desktop_tools::TOOLS,
]);

/// The tools of g3 with all their services.
#[derive(Debug)]
pub(crate) struct EveryTool;

impl Toolset for EveryTool {
    fn registry(&self) -> &'static Registry {
        &REGISTRY
    }

    fn services(&self, config: &Config, owner: BrowserOwner) -> Result<Services> {
        let browser: Arc<dyn BrowserService> = match owner {
            BrowserOwner::Session => BrowserHub::of_session(&config.webdriver),
            BrowserOwner::Calls => BrowserHub::of_calls(&config.webdriver),
        };
        Ok(Services {
            web: Arc::new(config.tools.clone()),
            sandbox: Arc::new(config.session_sandbox()),
            lsp: Some(LanguageServerHub::new(config)?),
            browser: Some(browser),
            desktop: Some(Arc::new(DesktopHelper)),
            ..Services::default()
        })
    }

    fn keep_browser<'a>(
        &'a self,
        order: &'a str,
        say: &'a (dyn Fn(&str) + Sync),
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let order = serde_json::from_str(order).or_fail(|| "this is no order for a browser")?;
            let say = |report: &daemon::DaemonReport| say(&daemon::line(report));
            daemon::run(order, say).await.or_fail(|| "the browser cannot be kept")
        })
    }
}

#[cfg(test)]
mod tests {
    use tools::profile::{Profile, tools};

    use super::*;

    #[test]
    fn every_tool_of_every_profile_is_registered() {
        for face in tools(Profile::All) {
            assert!(REGISTRY.tool(face.kind).is_some(), "{} has no tool", face.name);
        }
    }
}
