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
        act: AgentAction,
        spent: &mut UsageMeter,
        cancel: CancellationToken,
    ) -> TurnResult<TurnEnd> {
        let stronger = self
            .escalation
            .as_ref()
            .filter(|_| act == AgentAction::GoOn)
            .and_then(Escalation::model);
        let is_own = stronger.is_none();
        let bound = stronger.unwrap_or(&self.model);
        let bus = self.bus.clone();
        let tell: OnEvent = Arc::new(move |what| bus.emit(what));
        let plain = bound.facts().small;
        let offered = self.offered_to(bound);
        let resources = || SharedResources {
            gate: (*self.place.gate).clone(),
            mcp: self.place.mcp.clone(),
            outside: self.place.outside.clone(),
            lsp: self.place.others.lsp.clone(),
            account: spent.shared(),
        };
        let subagents = self.parent.as_ref().map(|parent| parent.pool(resources(), cancel.clone()));
        let others = Services { subagents, ..self.place.others.clone() };
        let toolbox = SessionToolbox {
            offered: &offered,
            profile: bound.profile,
            place: ToolContext { cancel: cancel.clone(), plain, others, ..self.place.clone() },
            tell: tell.clone(),
            coach: self.coach.clone().filter(|_| is_own),
            escalation: self.escalation.as_ref().filter(|_| is_own),
        };
        let (role, profile) = (&self.options.role, self.model.profile);
        let places = (self.place.session_dir.as_path(), self.place.root.as_path());
        let watched = WriteScopeGuard::new(
            &toolbox,
            (profile, self.place.registry),
            role.fence.as_ref(),
            places,
        );
        let hooked = HookedToolbox::new(&watched, &self.hooks, &self.place.gate);
        let inner: &dyn Toolbox = if self.hooks.is_empty() { &watched } else { &hooked };
        let toolbox = role::RoleToolbox::new(inner, profile, role);
        let kept = ["todo.g3.md", "project.md", "plan.g3.md"]
            .map(|name| self.place.session_dir.join(name));
        let inbox = InboxDir(self.place.session_dir.clone());
        let agent = Agent {
            provider: bound.provider.as_ref(),
            toolbox: &toolbox,
            system: &bound.system,
            session: self.session.id.as_str(),
            limits: self.limits,
            inbox: &inbox,
            keep: &|| kept_texts(&kept),
            on_event: tell,
            cancel,
        };
        match act {
            AgentAction::Drive | AgentAction::GoOn => {
                turn::run_turn(&mut self.talk, &agent, spent).await
            }
            AgentAction::Compact => {
                Ok(turn::prepare::compact(&mut self.talk, &agent).await.map(|_| TurnEnd::Done)?)
            }
        }
    }
}

/// Returns the texts that are kept verbatim through a summary.
fn kept_texts(files: &[PathBuf]) -> Option<String> {
    let texts: Vec<String> =
        files.iter().filter_map(|file| std::fs::read_to_string(file).ok()).collect();
    (!texts.is_empty()).then(|| texts.join("\n\n"))
}
