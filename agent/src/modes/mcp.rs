//! `g3 mcp serve`: serves g3's tools to other agents, over the Model Context Protocol on stdin and
//! stdout.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use base::failure::{OrFail, Result};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation,
    ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt};
use serde_json::Value;
use tokio::sync::OwnedMutexGuard;

use agent_core::run::{AgentSettings, root_of};
use agent_core::session::Session;
use gate::Gate;
use provider::ToolDefinition;
use tools::context::ToolContext;
use tools::dispatch;
use tools::exec::confinement::command_confinement;
use tools::output::ToolOutput;
use tools::profile::Profile;
use tools::services::BrowserOwner;
use tools::tool_switches;
use tools::tool_switches::ToolSwitches;
use tools::trace_events;

/// Serves the tools of a profile, in one tool context, to another agent's model.
struct McpHandler {
    profile: Profile,
    place: ToolContext,
    order: CallQueue,
}

/// Serves until stdin ends.
pub(crate) async fn serve(settings: AgentSettings) -> Result<()> {
    let session = Session::create(&settings.cwd, "mcp serve")?;
    let quiet = ToolContext::quiet(settings.toolset.registry(), &settings.cwd, &session.dir);
    // The other agent asks its own user; g3 cannot reach that user.
    let sandbox = &settings.config.sandbox;
    let gate =
        Gate::new(&settings.config.gate, None)?.with_confinement(command_confinement(sandbox));
    let gate = Arc::new(gate);
    let services = settings.toolset.services(&settings.config, BrowserOwner::Session)?;
    let lsp = services.lsp.clone();
    let place = ToolContext { root: root_of(&settings.cwd), gate, services, ..quiet };
    let served = McpHandler { profile: settings.profile, place, order: CallQueue::default() };
    let pipes = (tokio::io::stdin(), tokio::io::stdout());
    let running =
        served.serve(pipes).await.or_fail(|| "the client did not complete the handshake")?;
    let ended = running.waiting().await;
    if let Some(servers) = lsp {
        servers.close().await;
    }
    ended.or_fail(|| "the connection broke")?;
    Ok(())
}

impl ServerHandler for McpHandler {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("g3", env!("CARGO_PKG_VERSION")))
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> std::result::Result<ListToolsResult, ErrorData> {
        let specs = tool_switches::offered_tools(self.profile, ToolSwitches::default());
        Ok(ListToolsResult::with_all_items(specs.into_iter().map(listed).collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> std::result::Result<CallToolResponse, ErrorData> {
        let args = Value::Object(request.arguments.unwrap_or_default());
        let place = ToolContext { cancel: context.ct.clone(), ..self.place.clone() };
        let touched = dispatch::resource_keys(self.profile, &request.name, &args, &place);
        let _turn = self.order.turn(touched).await;
        let specs = tool_switches::offered_tools(self.profile, ToolSwitches::default());
        let offered = specs.iter().any(|spec| spec.name == request.name);
        let id = context.id.to_string();
        let run = dispatch::run(self.profile, &request.name, &args, &place);
        Ok(answered(trace_events::call((&request.name, offered), &id, run).await).into())
    }
}

fn listed(spec: ToolDefinition) -> Tool {
    let schema = spec.parameters.as_object().cloned().unwrap_or_default();
    Tool::new(spec.name, spec.description, Arc::new(schema))
}

fn answered(outcome: ToolOutput) -> CallToolResult {
    let pictures = outcome.images.into_iter();
    let pictures = pictures.map(|image| ContentBlock::image(image.data, image.media_type));
    let content = std::iter::once(ContentBlock::text(outcome.text)).chain(pictures).collect();
    if outcome.ok { CallToolResult::success(content) } else { CallToolResult::error(content) }
}

/// Runs calls that touch the same resource one at a time, in the order of their arrival.
#[derive(Default)]
struct CallQueue {
    keys: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

impl CallQueue {
    /// Waits for earlier calls with the same keys. Keys are locked in sorted order, which rules out
    /// deadlocks.
    async fn turn(&self, mut keys: Vec<String>) -> Vec<OwnedMutexGuard<()>> {
        keys.sort();
        keys.dedup();
        let mut guards = Vec::new();
        for key in keys {
            let lock = {
                let mut all = base::sync::lock(&self.keys);
                // Forget locks that no call holds or waits for.
                all.retain(|_, lock| Arc::strong_count(lock) > 1);
                all.entry(key).or_default().clone()
            };
            guards.push(lock.lock_owned().await);
        }
        guards
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use provider::message::Image;
    use tools::output::ToolErrorKind;

    #[test]
    fn images_are_returned_and_failures_are_marked() {
        let image = Image { media_type: "image/png".into(), data: "aGk=".into() };
        let done = answered(ToolOutput { images: vec![image], ..ToolOutput::success("seen") });
        assert_eq!(done.is_error, Some(false));
        assert_eq!(done.content[0].as_text().unwrap().text, "seen");
        assert_eq!(done.content[1].as_image().unwrap().mime_type, "image/png");
        let failed = answered(ToolOutput::failed(ToolErrorKind::Failed, "no"));
        assert_eq!(failed.is_error, Some(true));
    }

    #[tokio::test]
    async fn calls_that_share_a_key_run_one_at_a_time_and_others_do_not() {
        let order = CallQueue::default();
        let first = order.turn(vec!["a".into(), "b".into()]).await;
        let second = order.turn(vec!["b".into(), "c".into()]);
        assert!(futures_util::FutureExt::now_or_never(second).is_none());
        assert!(futures_util::FutureExt::now_or_never(order.turn(vec!["d".into()])).is_some());
        drop(first);
        assert_eq!(order.turn(vec!["b".into()]).await.len(), 1);
    }
}
