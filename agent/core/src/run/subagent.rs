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
use tools::exec::confinement::command_confinement;
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
    pub client_io: Option<Arc<dyn ClientIo>>,
    /// The usage meter.
    pub meter: UsageMeter,
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
                Ok(gate.with_confinement(command_confinement(&config.sandbox)))
            }
            Ownership::Agent(resources) => Ok(resources.gate.clone()),
        }
    }

    /// Returns the hooks that apply to it. A subagent has no hooks for sessions and prompts, and a
    /// reviewer works for the harness and has none.
    pub(crate) fn hooks(&self, settings: &AgentSettings) -> Vec<Hook> {
        let is_tool_hook =
            |hook: &Hook| matches!(hook.event, HookEvent::BeforeTool | HookEvent::AfterTool);
        let mut hooks = settings.config.hooks.clone();
        hooks.retain(|hook| !self.is_agent() || is_tool_hook(hook));
        hooks.retain(|_| settings.role.tool.is_none());
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
        own_servers: Option<Arc<dyn LanguageServers>>,
    ) -> Option<Arc<dyn LanguageServers>> {
        match self {
            Ownership::User(_) => own_servers,
            Ownership::Agent(resources) => resources.lsp.clone(),
        }
    }

    /// Returns the editor, if it is known from the start.
    pub(crate) fn client_io(&self) -> Option<Arc<dyn ClientIo>> {
        match self {
            Ownership::User(_) => None,
            Ownership::Agent(resources) => resources.client_io.clone(),
        }
    }

    /// Returns the usage meter of the parent, for a subagent.
    pub(crate) fn meter(&self) -> Option<UsageMeter> {
        match self {
            Ownership::User(_) => None,
            Ownership::Agent(resources) => Some(resources.meter.shared()),
        }
    }
}

/// Whether this is the tool that starts subagents.
pub(crate) fn is_task(profile: Profile, name: &str) -> bool {
    dispatch::kind(profile, name, &Value::Null) == Some(ToolKind::TASK)
}

impl SharedResources {
    fn share(&self) -> SharedResources {
        let (gate, meter) = (self.gate.clone(), self.meter.shared());
        let (mcp, lsp) = (self.mcp.clone(), self.lsp.clone());
        SharedResources { gate, mcp, lsp, client_io: self.client_io.clone(), meter }
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
    fn role(&self, request: &SubagentRequest) -> Result<(AgentRole, Vec<String>)> {
        let parent_role = &self.settings.role;
        let (role, notices) = match (&request.agent, &parent_role.name) {
            (None, _) => (AgentRole { tool: None, ..parent_role.clone() }, Vec::new()),
            (Some(_), Some(name)) => {
                return Err(Failure::usage(format!("`{name}` lets only agents like itself work"))
                    .hint("leave `agent` out"));
            }
            (Some(name), None) => {
                let personas = &self.settings.personas;
                let (persona, notices) = personas.find(name.trim())?;
                (personas.role(&persona)?, notices)
            }
        };
        Ok((AgentRole { reads_only: role.reads_only || request.reads_only, ..role }, notices))
    }
}

impl Subagents for SubagentPool {
    fn run(&self, request: SubagentRequest) -> BoxFuture<'_, ToolOutput> {
        Box::pin(async move {
            self.run_subagent(request).await.unwrap_or_else(|failure| {
                let text = format!("the agent could not work: {}", failure.sentence());
                ToolOutput::failed(ToolErrorKind::Failed, text)
            })
        })
    }
}

impl SubagentPool {
    async fn run_subagent(&self, request: SubagentRequest) -> Result<ToolOutput> {
        let (role, notices) = self.parent.role(&request)?;
        notices.iter().for_each(|notice| (request.on_output)(&format!("{notice}\n")));
        let parent_settings = &self.parent.settings;
        let notes = Notes { auto: Some(false), ..parent_settings.notes.clone() };
        let settings =
            AgentSettings { role, notes, notices: Vec::new(), ..parent_settings.clone() };
        let bus = Bus::new(Clock::from_env(), vec![Box::new(Echo(request.on_output))]);
        let (parent, owner) =
            (self.parent.clone(), Ownership::Agent(Box::new(self.resources.share())));
        let open = move || {
            AgentSession::open(&settings, || parent.session.open_numbered_child("task"), bus, owner)
        };
        let mut agent_session = off_loop(open).await?;
        // The time limit of the turn applies through its cancellation.
        agent_session.limits.time = None;
        let message = Message::text(Speaker::User, format!("{}{REPORT}", request.prompt));
        let outcome = agent_session.run_part(message, self.cancel.clone()).await;
        Ok(agent_session.report(outcome))
    }
}

impl AgentSession {
    /// Returns the report on its work for the calling agent.
    fn report(&self, outcome: RunOutcome) -> ToolOutput {
        let last_message = self
            .conversation
            .messages()
            .iter()
            .rev()
            .find(|message| message.role == Speaker::Assistant);
        let text = last_message.map(Message::full_text).unwrap_or_default();
        let reason = outcome.failure.map(|failure| failure.sentence());
        let outcome = match outcome.status {
            RunStatus::Done => ToolOutput::success(text),
            RunStatus::Cancelled => {
                ToolOutput::failed(ToolErrorKind::Cancelled, "cancelled by the user")
            }
            RunStatus::Failed | RunStatus::Limit | RunStatus::NotApproved => {
                let reason = reason.unwrap_or_default();
                let text =
                    format!("the agent did not get to its end: {reason}\nIts last words: {text}");
                ToolOutput::failed(ToolErrorKind::Failed, text)
            }
        };
        let (turns, usage) = (self.conversation.turns(), self.conversation.usage());
        let side_usage = SideUsage { model: Some(self.facts().model.clone()), calls: turns, usage };
        let agent = self.options.role.name.as_deref();
        let metadata = json!({ "agent": agent, "turns": turns, "session": self.session.dir });
        ToolOutput { side_usage: Some(side_usage), ..outcome.with(metadata) }
    }
}

/// Shows the actions of a subagent as output of the call that started it.
struct Echo(Arc<dyn Fn(&str) + Send + Sync>);

impl EventSink for Echo {
    fn on_event(&mut self, event: &Event) {
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
