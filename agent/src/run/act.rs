//! One run of the loop: the model, its toolbox with all that stands around it, and what is kept.

use std::path::PathBuf;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::AgentSession;
use super::escalation::Escalation;
use super::subagent::SharedResources;
use super::toolbox::SessionToolbox;
use super::write_scope_guard::WriteScopeGuard;
use crate::hooks::toolbox::Hooked;
use crate::limits::UsageMeter;
use crate::role;
use crate::session::inbox::Folder;
use crate::tools::context::{Services, ToolContext};
use crate::turn::tool_calls::Toolbox;
use crate::turn::{self, Agent, Finish, Tell, TurnResult};

/// What the agent does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    Drive,
    /// Goes on with a stronger model.
    GoOn,
    Compact,
}

impl AgentSession {
    pub(super) async fn act(
        &mut self,
        act: Act,
        spent: &mut UsageMeter,
        cancel: CancellationToken,
    ) -> TurnResult<Finish> {
        let stronger =
            self.escalation.as_ref().filter(|_| act == Act::GoOn).and_then(Escalation::model);
        let is_own = stronger.is_none();
        let bound = stronger.unwrap_or(&self.model);
        let bus = self.bus.clone();
        let tell: Tell = Arc::new(move |what| bus.tell(what));
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
        let hooked = Hooked::new(&watched, &self.hooks, &self.place.gate);
        let inner: &dyn Toolbox = if self.hooks.is_empty() { &watched } else { &hooked };
        let toolbox = role::Narrowed::new(inner, profile, role);
        let kept = ["todo.g3.md", "project.md", "plan.g3.md"]
            .map(|name| self.place.session_dir.join(name));
        let inbox = Folder(self.place.session_dir.clone());
        let agent = Agent {
            provider: bound.provider.as_ref(),
            toolbox: &toolbox,
            system: &bound.system,
            session: self.session.id.as_str(),
            limits: self.limits,
            inbox: &inbox,
            keep: &|| kept_texts(&kept),
            tell,
            cancel,
        };
        match act {
            Act::Drive | Act::GoOn => turn::run_turn(&mut self.talk, &agent, spent).await,
            Act::Compact => {
                Ok(turn::prepare::compact(&mut self.talk, &agent).await.map(|_| Finish::Done)?)
            }
        }
    }
}

/// What outlives a summary, word for word.
fn kept_texts(files: &[PathBuf]) -> Option<String> {
    let texts: Vec<String> =
        files.iter().filter_map(|file| std::fs::read_to_string(file).ok()).collect();
    (!texts.is_empty()).then(|| texts.join("\n\n"))
}
