//! Subagents of a session: each has its own conversation, todo list and subdirectory of the
//! session's directory, and shares the gate, the limits and the servers.

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

/// The text appended to every task.
const REPORT: &str = "\n\n[You do this for another agent. It reads only your last message: say there \
what you found or did, with file names, and what is left. Questions are not answered.]";

/// The resources that a session shares with its subagents.
pub(crate) struct SharedResources {
    /// The gate: the user's answers apply to both.
    pub gate: Gate,
    /// The MCP servers.
    pub mcp: Option<Arc<dyn McpServers>>,
    /// The language servers.
    pub lsp: Option<Arc<dyn LanguageServers>>,
    /// The editor.
    pub outside: Option<Arc<dyn ClientIo>>,
    /// The usage meter.
    pub account: UsageMeter,
}

/// A session that can start subagents.
pub(crate) struct Parent {
    pub(super) settings: AgentSettings,
    pub(super) session: Arc<Session>,
}

/// The subagents of a session during one user turn.
pub(crate) struct SubagentPool {
    parent: Arc<Parent>,
    resources: SharedResources,
    cancel: CancellationToken,
}

/// The owner of a session.
pub(crate) enum Ownership {
    /// The user, who may be asked for permission.
    User(Option<Arc<dyn Asker>>),
    /// Another session.
    Agent(Box<SharedResources>),
}

impl Ownership {
    /// Whether the owner is another session.
    pub(crate) fn is_agent(&self) -> bool {
        matches!(self, Ownership::Agent(_))
    }

    /// Returns the gate for its calls.
    pub(crate) fn gate(&self, config: &Config) -> Result<Gate> {
        match self {
            Ownership::User(asker) => {
                let gate = Gate::new(&config.gate, asker.clone())?;
                Ok(gate.confining(confining(&config.sandbox)))
            }
            Ownership::Agent(resources) => Ok(resources.gate.clone()),
        }
    }

    /// Returns the hooks that apply to it. A subagent has no hooks for sessions and prompts, and a
    /// reviewer works for the harness and has none.
    pub(crate) fn hooks(&self, settings: &AgentSettings) -> Vec<Hook> {
        let around_calls =
            |it: &Hook| matches!(it.event, HookEvent::BeforeTool | HookEvent::AfterTool);
        let mut hooks = settings.config.hooks.clone();
        hooks.retain(|hook| !self.is_agent() || around_calls(hook));
        hooks.retain(|_| settings.role.own.is_none());
        hooks
    }

    /// Returns the MCP servers.
    pub(crate) fn servers(
        &self,
        start: impl FnOnce() -> Option<Arc<dyn McpServers>>,
    ) -> Option<Arc<dyn McpServers>> {
        match self {
            Ownership::User(_) => start(),
            Ownership::Agent(resources) => resources.mcp.clone(),
        }
    }

    /// Returns the language servers, which all agents of a session share.
    pub(crate) fn language_servers(
        &self,
        own: Option<Arc<dyn LanguageServers>>,
    ) -> Option<Arc<dyn LanguageServers>> {
        match self {
            Ownership::User(_) => own,
            Ownership::Agent(resources) => resources.lsp.clone(),
        }
    }

    /// Returns the editor, if it is known from the start.
    pub(crate) fn outside(&self) -> Option<Arc<dyn ClientIo>> {
        match self {
            Ownership::User(_) => None,
            Ownership::Agent(resources) => resources.outside.clone(),
        }
    }

    /// Returns the usage meter of the parent, for a subagent.
    pub(crate) fn account(&self) -> Option<UsageMeter> {
        match self {
            Ownership::User(_) => None,
            Ownership::Agent(resources) => Some(resources.account.shared()),
        }
    }
}

/// Whether this is the tool that starts subagents.
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
    /// Creates a pool that lives until the turn ends or the user cancels.
    pub(crate) fn pool(
        self: &Arc<Parent>,
        resources: SharedResources,
        cancel: CancellationToken,
    ) -> Arc<dyn Subagents> {
        Arc::new(SubagentPool { parent: self.clone(), resources, cancel })
    }

    /// Returns the role of the subagent, with notices for the user.
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
        // The time limit of the turn applies through its cancellation.
        work.limits.time = None;
        let message = Message::text(Speaker::User, format!("{}{REPORT}", order.prompt));
        let ended = work.part(message, self.cancel.clone()).await;
        Ok(work.report(ended))
    }
}

impl AgentSession {
    /// Returns the report on its work for the calling agent.
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

/// Shows the actions of a subagent as output of the call that started it.
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
