//! One run of the loop: the model, its toolbox with all that stands around it, and what is kept.

use std::path::PathBuf;
use std::sync::Arc;

use base::failure::Result;
use tokio_util::sync::CancellationToken;

use super::Work;
use super::hands::Hands;
use super::help::Help;
use super::subagent::Lent;
use super::watch::Watch;
use crate::hooks::toolbox::Hooked;
use crate::limits::Spent;
use crate::role;
use crate::session::inbox::Folder;
use crate::turn::act::Toolbox;
use crate::turn::{self, Agent, Finish, Tell};
use tools::context::{Services, ToolContext};

/// What the agent does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    Drive,
    /// Goes on with a stronger model.
    GoOn,
    Compact,
}

impl Work {
    pub(super) async fn act(
        &mut self,
        act: Act,
        spent: &mut Spent,
        cancel: CancellationToken,
    ) -> Result<Finish> {
        let stronger = self.help.as_ref().filter(|_| act == Act::GoOn).and_then(Help::mind);
        let is_own = stronger.is_none();
        let mind = stronger.unwrap_or(&self.mind);
        let bus = self.bus.clone();
        let tell: Tell = Arc::new(move |what| bus.tell(what));
        let plain = mind.facts().small;
        let offered = self.offered_to(mind);
        let lent = || Lent {
            gate: (*self.place.gate).clone(),
            mcp: self.place.mcp.clone(),
            outside: self.place.outside.clone(),
            lsp: self.place.others.lsp.clone(),
            account: spent.shared(),
        };
        let subagents = self.lead.as_ref().map(|lead| lead.crew(lent(), cancel.clone()));
        let others = Services { subagents, ..self.place.others.clone() };
        let hands = Hands {
            offered: &offered,
            profile: mind.profile,
            place: ToolContext { cancel: cancel.clone(), plain, others, ..self.place.clone() },
            tell: tell.clone(),
            coach: self.coach.clone().filter(|_| is_own),
            help: self.help.as_ref().filter(|_| is_own),
        };
        let (role, profile) = (&self.manner.role, self.mind.profile);
        let places = (self.place.session_dir.as_path(), self.place.root.as_path());
        let watched =
            Watch::new(&hands, (profile, self.place.registry), role.fence.as_ref(), places);
        let hooked = Hooked::new(&watched, &self.hooks, &self.place.gate);
        let inner: &dyn Toolbox = if self.hooks.is_empty() { &watched } else { &hooked };
        let hands = role::Narrowed::new(inner, profile, role);
        let kept = ["todo.g3.md", "project.md", "plan.g3.md"]
            .map(|name| self.place.session_dir.join(name));
        let inbox = Folder(self.place.session_dir.clone());
        let agent = Agent {
            provider: mind.provider.as_ref(),
            toolbox: &hands,
            system: &mind.system,
            session: self.session.id.as_str(),
            limits: self.limits,
            inbox: &inbox,
            keep: &|| kept_texts(&kept),
            tell,
            cancel,
        };
        match act {
            Act::Drive | Act::GoOn => turn::drive(&mut self.talk, &agent, spent).await,
            Act::Compact => {
                turn::between::compact(&mut self.talk, &agent).await.map(|_| Finish::Done)
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
