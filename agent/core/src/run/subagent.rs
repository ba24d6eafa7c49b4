//! Agents that work for a session: each has a conversation, a todo list and a place in the
//! session's directory of its own, and shares the gate, the limits and the servers.

use std::sync::Arc;

use base::clock::Clock;
use base::config::Config;
use base::config::hooks::{Hook, HookEvent};
use base::event::{Event, EventKind, RunStatus};
use base::failure::{Failure, Result};
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::notes::Notes;
use super::outcome::RunOutcome;
use super::{AgentSession, AgentSettings};
use crate::bus::{Bus, EventSink};
use crate::call_line::call_line;
use crate::limits::UsageMeter;
use crate::role::AgentRole;
use crate::session::Session;
use gate::{Asker, Gate};
use provider::message::{Message, MessageRole as Speaker, SideUsage};
use provider::off_loop;
use tools::client_io::ClientIo;
use tools::dispatch;
use tools::exec::confinement::confining;
use tools::kind::ToolKind;
use tools::output::{ToolErrorKind, ToolOutput};
use tools::profile::Profile;
use tools::services::Subagents;
use tools::services::{LanguageServers, McpServers, SubagentRequest};

/// What stands below every order.
const REPORT: &str = "\n\n[You do this for another agent. It reads only your last message: say there \
what you found or did, with file names, and what is left. Nobody answers questions.]";

/// What a session lends to whoever works for it.
pub(crate) struct SharedResources {
    /// Its gate: what the user answered holds for both.
    pub gate: Gate,
    /// Its servers.
    pub mcp: Option<Arc<dyn McpServers>>,
    /// Its language servers.
    pub lsp: Option<Arc<dyn LanguageServers>>,
    /// Its editor.
    pub outside: Option<Arc<dyn ClientIo>>,
    /// Its account.
    pub account: UsageMeter,
}

/// A session that can let others work.
pub(crate) struct Parent {
    pub(super) settings: AgentSettings,
    pub(super) session: Arc<Session>,
}

/// Whoever works for a session during one turn of the user.
pub(crate) struct SubagentPool {
    parent: Arc<Parent>,
    resources: SharedResources,
    cancel: CancellationToken,
}

/// For whom a session works.
pub(crate) enum Ownership {
    /// For the user, who may be asked.
    User(Option<Arc<dyn Asker>>),
    /// For another session.
    Agent(Box<SharedResources>),
}

impl Ownership {
    /// Whether it works for another session.
    pub(crate) fn is_agent(&self) -> bool {
        matches!(self, Ownership::Agent(_))
    }

    /// The gate for its calls.
    pub(crate) fn gate(&self, config: &Config) -> Result<Gate> {
        match self {
            Ownership::User(asker) => {
                let gate = Gate::new(&config.gate, asker.clone())?;
                Ok(gate.confining(confining(&config.sandbox)))
            }
            Ownership::Agent(resources) => Ok(resources.gate.clone()),
        }
    }

    /// The user's hooks that it has: those around a session and its prompts are not for a part of
    /// it, and whoever only judges works for the harness.
    pub(crate) fn hooks(&self, settings: &AgentSettings) -> Vec<Hook> {
        let around_calls =
            |it: &Hook| matches!(it.event, HookEvent::BeforeTool | HookEvent::AfterTool);
        let mut hooks = settings.config.hooks.clone();
        hooks.retain(|hook| !self.is_agent() || around_calls(hook));
        hooks.retain(|_| settings.role.own.is_none());
        hooks
    }

    /// Its servers.
    pub(crate) fn servers(
        &self,
        start: impl FnOnce() -> Option<Arc<dyn McpServers>>,
    ) -> Option<Arc<dyn McpServers>> {
        match self {
            Ownership::User(_) => start(),
            Ownership::Agent(resources) => resources.mcp.clone(),
        }
    }

    /// The language servers: one set for all who work in a session.
    pub(crate) fn language_servers(
        &self,
        own: Option<Arc<dyn LanguageServers>>,
    ) -> Option<Arc<dyn LanguageServers>> {
        match self {
            Ownership::User(_) => own,
            Ownership::Agent(resources) => resources.lsp.clone(),
        }
    }

    /// Its editor, where that is known from the beginning.
    pub(crate) fn outside(&self) -> Option<Arc<dyn ClientIo>> {
        match self {
            Ownership::User(_) => None,
            Ownership::Agent(resources) => resources.outside.clone(),
        }
    }

    /// The account that it uses up, where that is another's.
    pub(crate) fn account(&self) -> Option<UsageMeter> {
        match self {
            Ownership::User(_) => None,
            Ownership::Agent(resources) => Some(resources.account.shared()),
        }
    }
}

/// Whether this is the tool by which agents are asked to work.
pub(crate) fn is_task(profile: Profile, name: &str) -> bool {
    dispatch::kind(profile, name, &Value::Null) == Some(ToolKind::TASK)
}

impl SharedResources {
    fn again(&self) -> SharedResources {
        let (gate, account) = (self.gate.clone(), self.account.shared());
        let (mcp, lsp) = (self.mcp.clone(), self.lsp.clone());
        SharedResources { gate, mcp, lsp, outside: self.outside.clone(), account }
    }
}

impl Parent {
    /// Those who work for it until the turn ends or the user cancels.
    pub(crate) fn pool(
        self: &Arc<Parent>,
        resources: SharedResources,
        cancel: CancellationToken,
    ) -> Arc<dyn Subagents> {
        Arc::new(SubagentPool { parent: self.clone(), resources, cancel })
    }

    /// Who is to work, and what the user should know of that.
    fn role(&self, order: &SubagentRequest) -> Result<(AgentRole, Vec<String>)> {
        let own = &self.settings.role;
        let (role, notices) = match (&order.agent, &own.name) {
            (None, _) => (AgentRole { own: None, ..own.clone() }, Vec::new()),
            (Some(_), Some(we)) => {
                return Err(Failure::usage(format!("`{we}` lets only agents like itself work"))
                    .hint("leave `agent` out"));
            }
            (Some(name), None) => {
                let places = &self.settings.personas;
                let (persona, notices) = places.find(name.trim())?;
                (places.role(&persona)?, notices)
            }
        };
        Ok((AgentRole { reads_only: role.reads_only || order.reads_only, ..role }, notices))
    }
}

impl Subagents for SubagentPool {
    fn work(&self, order: SubagentRequest) -> BoxFuture<'_, ToolOutput> {
        Box::pin(async move {
            self.one(order).await.unwrap_or_else(|failure| {
                let text = format!("the agent could not work: {}", failure.sentence());
                ToolOutput::failed(ToolErrorKind::Failed, text)
            })
        })
    }
}

impl SubagentPool {
    async fn one(&self, order: SubagentRequest) -> Result<ToolOutput> {
        let (role, notices) = self.parent.role(&order)?;
        notices.iter().for_each(|notice| (order.hear)(&format!("{notice}\n")));
        let ours = &self.parent.settings;
        let notes = Notes { auto: Some(false), ..ours.notes.clone() };
        let settings = AgentSettings { role, notes, notices: Vec::new(), ..ours.clone() };
        let bus = Bus::new(Clock::from_env(), vec![Box::new(Echo(order.hear))]);
        let (parent, under) =
            (self.parent.clone(), Ownership::Agent(Box::new(self.resources.again())));
        let open =
            move || AgentSession::open(&settings, || parent.session.one_more("task"), bus, under);
        let mut work = off_loop(open).await?;
        // The time of the turn is over when the turn is cancelled.
        work.limits.time = None;
        let message = Message::text(Speaker::User, format!("{}{REPORT}", order.prompt));
        let ended = work.part(message, self.cancel.clone()).await;
        Ok(work.report(ended))
    }
}

impl AgentSession {
    /// What came of its work, for whoever asked for it.
    fn report(&self, ended: RunOutcome) -> ToolOutput {
        let last = self.talk.messages().iter().rev().find(|it| it.role == Speaker::Assistant);
        let words = last.map(Message::words).unwrap_or_default();
        let why = ended.failure.map(|failure| failure.sentence());
        let outcome = match ended.status {
            RunStatus::Done => ToolOutput::done(words),
            RunStatus::Cancelled => {
                ToolOutput::failed(ToolErrorKind::Cancelled, "cancelled by the user")
            }
            RunStatus::Failed | RunStatus::Limit | RunStatus::NotApproved => {
                let why = why.unwrap_or_default();
                let text =
                    format!("the agent did not get to its end: {why}\nIts last words: {words}");
                ToolOutput::failed(ToolErrorKind::Failed, text)
            }
        };
        let (turns, usage) = (self.talk.turns(), self.talk.usage());
        let bill = SideUsage { model: Some(self.facts().model.clone()), calls: turns, usage };
        let agent = self.options.role.name.as_deref();
        let told = json!({ "agent": agent, "turns": turns, "session": self.session.dir });
        ToolOutput { bill: Some(bill), ..outcome.with(told) }
    }
}

/// Shows what an agent does as the output of the call that it works for.
struct Echo(Arc<dyn Fn(&str) + Send + Sync>);

impl EventSink for Echo {
    fn hear(&mut self, event: &Event) {
        let line = if let EventKind::ToolStart { name, args, .. } = &event.what {
            call_line(name, args)
        } else if let EventKind::Notice { text, .. } | EventKind::Retry { why: text, .. } =
            &event.what
        {
            text.clone()
        } else {
            return;
        };
        (self.0)(&format!("{line}\n"));
    }
}
