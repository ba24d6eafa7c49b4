//! Runs the turn loop with the session's model and toolbox.

use std::path::PathBuf;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::AgentSession;
use super::escalation::Escalation;
use super::subagent::SharedResources;
use super::toolbox::SessionToolbox;
use super::write_scope_guard::WriteScopeGuard;
use crate::hooks::toolbox::HookedToolbox;
use crate::limits::UsageMeter;
use crate::role;
use crate::session::inbox::InboxDir;
use crate::turn::tool_calls::Toolbox;
use crate::turn::{self, Agent, OnEvent, TurnEnd, TurnResult};
use tools::context::{Services, ToolContext};

/// What the agent does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum AgentAction {
    Drive,
    /// Continues with a stronger model.
    GoOn,
    Compact,
}

impl AgentSession {
    pub(super) async fn act(
        &mut self,
        action: AgentAction,
        meter: &mut UsageMeter,
        cancel: CancellationToken,
    ) -> TurnResult<TurnEnd> {
        let stronger_model = self
            .escalation
            .as_ref()
            .filter(|_| action == AgentAction::GoOn)
            .and_then(Escalation::model);
        let is_own = stronger_model.is_none();
        let model = stronger_model.unwrap_or(&self.model);
        let bus = self.bus.clone();
        let on_event: OnEvent = Arc::new(move |event| bus.emit(event));
        let plain = model.facts().small;
        let offered = self.offered_to(model);
        let resources = || SharedResources {
            gate: (*self.context.gate).clone(),
            mcp: self.context.mcp.clone(),
            client_io: self.context.client_io.clone(),
            lsp: self.context.services.lsp.clone(),
            meter: meter.shared(),
        };
        let subagents = self.parent.as_ref().map(|parent| parent.pool(resources(), cancel.clone()));
        let services = Services { subagents, ..self.context.services.clone() };
        let toolbox = SessionToolbox {
            offered: &offered,
            profile: model.profile,
            context: ToolContext {
                cancel: cancel.clone(),
                plain,
                services,
                ..self.context.clone()
            },
            on_event: on_event.clone(),
            guide: self.guide.clone().filter(|_| is_own),
            escalation: self.escalation.as_ref().filter(|_| is_own),
        };
        let (role, profile) = (&self.options.role, self.model.profile);
        let dirs = (self.context.session_dir.as_path(), self.context.root.as_path());
        let guarded = WriteScopeGuard::new(
            &toolbox,
            (profile, self.context.registry),
            role.write_scope.as_ref(),
            dirs,
        );
        let hooked = HookedToolbox::new(&guarded, &self.hooks, &self.context.gate);
        let inner: &dyn Toolbox = if self.hooks.is_empty() { &guarded } else { &hooked };
        let toolbox = role::RoleToolbox::new(inner, profile, role);
        let verbatim_files = ["todo.g3.md", "project.md", "plan.g3.md"]
            .map(|name| self.context.session_dir.join(name));
        let inbox = InboxDir(self.context.session_dir.clone());
        let agent = Agent {
            provider: model.provider.as_ref(),
            toolbox: &toolbox,
            system: &model.system,
            session: self.session.id.as_str(),
            limits: self.limits,
            inbox: &inbox,
            verbatim_texts: &|| read_texts(&verbatim_files),
            on_event,
            cancel,
        };
        match action {
            AgentAction::Drive | AgentAction::GoOn => {
                turn::run_turn(&mut self.conversation, &agent, meter).await
            }
            AgentAction::Compact => Ok(turn::prepare::compact(&mut self.conversation, &agent)
                .await
                .map(|_| TurnEnd::Done)?),
        }
    }
}

/// Returns the texts that are kept verbatim through a summary.
fn read_texts(files: &[PathBuf]) -> Option<String> {
    let texts: Vec<String> =
        files.iter().filter_map(|file| base::files::read_text(file).ok()).collect();
    (!texts.is_empty()).then(|| texts.join("\n\n"))
}
