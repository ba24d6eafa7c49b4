//! Assembles a session from its parts: model, tools, gate, conversation and journal.

mod actions;
pub mod escalation;
pub mod model;
pub mod notes;
pub mod outcome;
pub mod permission_mode;
mod server_changes;
pub mod setup;
pub mod shutdown;
pub mod subagent;
pub mod toolbox;
mod trace_events;
mod write_scope_guard;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::clock::Clock;
use base::config::Config;
use base::event::{EventKind, NoticeLevel, RunStatus};
use base::failure::{Failure, Result};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::bus::Bus;
use crate::context::{self, Conversation, ConversationEntry};
use crate::hooks::Hooks;
use crate::limits::{UsageLimits, UsageMeter};
use crate::persona::PersonaDirs;
use crate::prompt::small_model::guide::TurnGuide;
use crate::prompt::{self, PromptContext};
use crate::role::AgentRole;
use crate::session::journal::SessionJournal;
use crate::session::{Session, errors};
use crate::turn::{TurnEnd, TurnError};
use actions::AgentAction;
use escalation::Escalation;
use gate::Asker;
use mcp_client::McpHub;
use model::BoundModel;
use outcome::{RunOutcome, report_failure};
use provider::message::{self, Message};
use provider::{self, ProviderChoice, ProviderFacts};
use subagent::{Ownership, Parent};
use tools::client_io::ClientIo;
use tools::context::{Services, ToolContext};
use tools::exec::confinement::CommandSandbox;
use tools::profile::Profile;
use tools::services::Toolset;

/// The settings of a session, from the command line and the configuration.
#[derive(Clone, Debug)]
pub struct AgentSettings {
    /// The tools of this program.
    pub toolset: &'static dyn Toolset,
    /// The working directory, absolute.
    pub cwd: PathBuf,
    /// The configuration for it.
    pub config: Config,
    /// Notices about the configuration for the user.
    pub notices: Vec<String>,
    /// `--provider TYPE[.NAME]`, `--model NAME`, `--fallback-model NAME`.
    pub choice: ProviderChoice,
    /// The tool profile.
    pub profile: Profile,
    /// The limits given on the command line.
    pub limits: UsageLimits,
    /// Whether tools are offered.
    pub tools: bool,
    /// Whether finished turns are moved into files.
    pub acd: bool,
    /// The workspace notes: their file and whether they are taken automatically.
    pub notes: notes::Notes,
    /// The agent's role.
    pub role: AgentRole,
    /// Where the personas of subagents are found.
    pub personas: PersonaDirs,
    /// A note for the model, added to the first message of a new session.
    pub first_note: Option<String>,
}

/// Selects the session to work in.
#[derive(Clone, Debug)]
pub enum SessionSelector {
    /// A new session for this task.
    New(String),
    /// An existing session: by id or id prefix, or the latest one.
    Resume(Option<String>),
}

/// A running session.
pub struct AgentSession {
    /// The session.
    pub session: Arc<Session>,
    /// The conversation.
    pub conversation: Conversation,
    model: BoundModel,
    escalation: Option<Escalation>,
    hooks: Arc<Hooks>,
    context: ToolContext,
    /// The limits.
    pub limits: UsageLimits,
    bus: Arc<Bus>,
    guide: Option<Arc<TurnGuide>>,
    options: SessionOptions,
    parent: Option<Arc<Parent>>,
    /// A note for the model, added to the next user message.
    note: Option<String>,
}

/// Options that apply to all turns of a session.
struct SessionOptions {
    role: AgentRole,
    /// Whether finished turns are moved into files.
    acd: bool,
    /// The usage meter of the parent session, for a subagent.
    meter: Option<UsageMeter>,
}

/// Default limit of turns in a run: far more than a task needs, but not enough to run unattended
/// all night.
const DEFAULT_MAX_TURNS: u32 = 400;

impl AgentSession {
    /// Opens the session, its journal and its model. Also reports a failure on the bus.
    pub fn begin(
        settings: &AgentSettings,
        selector: &SessionSelector,
        bus: Arc<Bus>,
        asker: Option<Arc<dyn Asker>>,
    ) -> Result<AgentSession> {
        let session = || match selector {
            SessionSelector::New(task) => Session::create(&settings.cwd, task),
            SessionSelector::Resume(id) => Session::resume(&settings.cwd, id.as_deref()),
        };
        AgentSession::open(settings, session, bus.clone(), Ownership::User(asker))
            .map(|agent_session| agent_session.with_first_note(settings, selector))
            .inspect(|agent_session| agent_session.emit_start(settings))
            .inspect_err(|failure| report_failure(&bus, failure))
    }

    /// Opens a child conversation in the directory of a session.
    pub fn child_session(
        settings: &AgentSettings,
        (session, name): (&Session, &str),
        bus: Arc<Bus>,
        asker: Option<Arc<dyn Asker>>,
    ) -> Result<AgentSession> {
        AgentSession::open(settings, || session.open_child(name), bus, Ownership::User(asker))
    }

    fn open(
        settings: &AgentSettings,
        session: impl FnOnce() -> Result<Session>,
        bus: Arc<Bus>,
        owner: Ownership,
    ) -> Result<AgentSession> {
        let config = &settings.config;
        let provider = provider::open(config, &settings.choice)?;
        let facts = provider.facts().clone();
        let gate =
            Arc::new(owner.gate(config)?.with_write_scope(settings.role.write_scope.clone()));
        let session = Arc::new(session()?);
        let clock = Clock::from_env();
        let (writer, entries) = SessionJournal::open(&session, clock)?;
        let role = settings.role.clone();
        session.check_agent(role.name.as_deref(), &entries)?;
        let context = setup::tool_context(settings, &session, &facts, gate)?;
        let date = context::start_date(&entries).unwrap_or_else(|| clock.stamp()[..10].to_owned());
        let mut bound_model = BoundModel::new(settings, provider, &date, &context.skills);
        let warn = warning_callback(&bus);
        // A small model gets few and simple tools: those of servers would leave no context for the
        // task.
        let use_servers = settings.tools && !facts.small && !role.reads_only;
        let sandbox = CommandSandbox::of(&config.sandbox, &context.root);
        let hooks_sandbox = sandbox.clone();
        let start = || {
            let place = (&*settings.cwd, sandbox);
            let hub = McpHub::start(&config.mcp, place, &session.dir, &context.gate, &warn);
            hub.map(|hub| hub as _)
        };
        let mcp = if use_servers { owner.servers(start) } else { None };
        let hook_configs = owner.hooks(settings);
        let id = session.id.as_str();
        let hooks = Hooks::new(&hook_configs, id, (&settings.cwd, hooks_sandbox), warn.clone())?;
        if owner.is_agent() {
            bound_model.offered.retain(|spec| !subagent::is_task(settings.profile, &spec.name));
        }
        bound_model.add_tools(settings, mcp.iter().flat_map(|hub| hub.offered_tools()).collect());
        let services =
            Services { lsp: owner.language_servers(context.services.lsp), ..context.services };
        let context = ToolContext { mcp, client_io: owner.client_io(), services, ..context };
        let window = bound_model.window(&[]);
        let mut conversation = Conversation::new(window, Box::new(writer));
        conversation.replay(entries)?;
        setup::mark_known(&conversation, settings.profile, &context);
        let cwd = settings.cwd.clone();
        let (name, model) = (facts.provider.clone(), facts.model.clone());
        let agent = role.name.clone();
        let entry =
            ConversationEntry::Opened { time: clock.stamp(), cwd, provider: name, model, agent };
        conversation.add_opened(entry)?;
        let turns = settings.limits.turns.or(config.agent.max_turns).unwrap_or(DEFAULT_MAX_TURNS);
        let limits = UsageLimits { turns: Some(turns), ..settings.limits };
        let escalation = Escalation::new(settings, &facts, &date, context.skills.clone());
        let parent = Parent { settings: settings.clone(), session: session.clone() };
        let parent = (!owner.is_agent() && !facts.small).then(|| Arc::new(parent));
        let mut agent_session = AgentSession {
            session,
            conversation,
            model: bound_model,
            escalation,
            hooks: Arc::new(hooks),
            context,
            limits,
            bus,
            guide: None,
            options: SessionOptions { role, acd: settings.acd, meter: owner.meter() },
            parent,
            note: None,
        };
        agent_session.restore_permission_mode();
        Ok(agent_session)
    }

    /// Adds the first note to a new session, as far as the context allows.
    fn with_first_note(
        mut self,
        settings: &AgentSettings,
        selector: &SessionSelector,
    ) -> AgentSession {
        if let (Some(note), SessionSelector::New(_)) = (&settings.first_note, selector) {
            // Half a byte per token leaves most of the context free.
            let max_bytes = usize::try_from(self.facts().context / 2).unwrap_or(usize::MAX);
            let note = base::text::head(note, max_bytes).trim_end();
            self.queue_note(format!("[{note}]"));
        }
        self
    }

    fn emit_start(&self, settings: &AgentSettings) {
        let facts = self.facts();
        self.bus.emit(EventKind::Start {
            session: self.session.id.to_string(),
            provider: facts.provider.clone(),
            model: facts.model.clone(),
            cwd: settings.cwd.display().to_string(),
        });
        let notices = settings.notices.iter().chain(&self.context.skills.notices).cloned();
        notices.chain(setup::notices(settings)).for_each(|text| self.warn(text));
    }

    /// Emits a warning for the user.
    pub fn warn(&self, text: String) {
        self.bus.emit(EventKind::Notice { level: NoticeLevel::Warning, text });
    }

    /// Lets a client (an editor) provide files and terminals.
    pub fn set_client_io(&mut self, client_io: Arc<dyn ClientIo>) {
        self.context.client_io = Some(client_io);
    }

    /// Returns the directory in which writes need no permission.
    pub fn root(&self) -> &Path {
        &self.context.root
    }

    /// Returns the file with the project description that is kept through summaries.
    pub fn project_file(&self) -> PathBuf {
        self.session.dir.join("project.md")
    }

    fn prompt_context(&self) -> PromptContext<'_> {
        PromptContext {
            cwd: &self.context.cwd,
            date: "",
            tools: !self.model.offered.is_empty(),
            skills: None,
            notes: None,
            identity: &self.options.role.identity,
        }
    }

    /// Returns the model's facts.
    pub fn facts(&self) -> &ProviderFacts {
        self.model.facts()
    }

    /// Runs one user turn: the message and everything that the agent does about it.
    pub async fn turn(&mut self, message: Message, cancel: CancellationToken) -> RunOutcome {
        let outcome = self.run_part(message, cancel).await;
        self.emit_end(outcome)
    }

    /// Retries after a turn that did not finish, with everything that was done in it so far. Adds
    /// nothing to the conversation unless the last message is the model's.
    pub async fn retry(&mut self, cancel: CancellationToken) -> RunOutcome {
        self.model.provider.turn_begins();
        let result = match self.conversation.messages().last().map(|message| message.role) {
            Some(message::MessageRole::Assistant) => {
                self.conversation.prompt(base::text::CONTINUE_PROMPT)
            }
            Some(message::MessageRole::User) => Ok(()),
            None => Err(Failure::failed("nothing to retry")),
        };
        let outcome = match result {
            Ok(()) => self.finish(cancel).await,
            Err(failure) => RunOutcome::new(RunStatus::Failed, Some(failure)),
        };
        self.emit_end(outcome)
    }

    /// Ends a turn in which g3 itself answered the user. The model does not see the text.
    pub fn end_with_text(&self, text: String) -> RunOutcome {
        self.bus.emit(EventKind::Text { text });
        self.emit_end(RunOutcome::new(RunStatus::Done, None))
    }

    fn emit_end(&self, outcome: RunOutcome) -> RunOutcome {
        if let Some(error) = outcome.error_event() {
            self.bus.emit(error);
        }
        let (turns, usage) = (self.conversation.turns(), self.conversation.usage());
        let (status, exit) = (outcome.status, outcome.status.exit());
        self.bus.emit(EventKind::End { status, exit, turns, usage });
        outcome
    }

    /// Like [`AgentSession::turn`], for one part of a run that reports its own end.
    pub async fn run_part(&mut self, message: Message, cancel: CancellationToken) -> RunOutcome {
        let (span, before) =
            (trace_events::turn(self), (self.conversation.turns(), self.conversation.usage()));
        let outcome = self.run_untraced(message, cancel).instrument(span.clone()).await;
        trace_events::record_end(&span, self, &outcome, before);
        outcome
    }

    async fn run_untraced(&mut self, message: Message, cancel: CancellationToken) -> RunOutcome {
        self.model.provider.turn_begins();
        self.apply_server_changes();
        self.context.skills.begin_turn();
        self.context.memory.novelty.begin_turn();
        let can_act = self.prompt_context().tools && !self.options.role.reads_only;
        self.guide = (self.facts().small && can_act)
            .then(|| Arc::new(TurnGuide::new(&message.full_text(), &self.context.cwd)));
        let (text, resumed) = (message.full_text(), !self.conversation.messages().is_empty());
        let message = self.with_note(message);
        let message = match self.conversation.messages() {
            [] => prompt::first(self.facts(), &self.prompt_context(), message),
            [..] => message,
        };
        let hooked = self.hooks.on_user_message(resumed, &text, message);
        let message = match cancel.run_until_cancelled(hooked).await {
            Some(Ok(message)) => message,
            Some(Err(failure)) => {
                return self.record_end(RunOutcome::new(RunStatus::NotApproved, Some(failure)));
            }
            None => return self.record_end(RunOutcome::new(RunStatus::Cancelled, None)),
        };
        match self.conversation.add_request(message) {
            Ok(()) => self.finish(cancel).await,
            Err(failure) => self.record_end(RunOutcome::new(RunStatus::Failed, Some(failure))),
        }
    }

    /// Lets the model answer the conversation, and records the outcome.
    async fn finish(&mut self, cancel: CancellationToken) -> RunOutcome {
        let end = self.answer(cancel.clone()).await;
        if matches!(end, Ok(TurnEnd::Done)) {
            self.take_notes(cancel).await;
        }
        let outcome = match end {
            Ok(TurnEnd::Done | TurnEnd::HandedOver) => match self.dehydrate() {
                Ok(()) => RunOutcome::new(RunStatus::Done, None),
                Err(failure) => RunOutcome::new(RunStatus::Failed, Some(failure)),
            },
            Ok(TurnEnd::Cancelled) => RunOutcome::new(RunStatus::Cancelled, None),
            Ok(TurnEnd::Limit(limit)) => {
                trace_events::limit(limit);
                let failure = Failure::refused(format!("stopped: {limit}"));
                let resume = vec![format!("g3 --resume {}    resumes it", self.session.id)];
                RunOutcome { status: RunStatus::Limit, failure: Some(failure), resume }
            }
            Err(TurnError { failure, resume }) => {
                RunOutcome { status: RunStatus::Failed, failure: Some(failure), resume }
            }
        };
        self.record_end(outcome)
    }

    /// Replaces the conversation by a summary.
    pub async fn compact(&mut self, cancel: CancellationToken) -> Result<()> {
        if self.conversation.messages().len() < 2 {
            return Err(Failure::failed("nothing to compact yet"));
        }
        let result = self.act(AgentAction::Compact, &mut UsageMeter::default(), cancel).await;
        result.map(drop).map_err(|error| error.failure)
    }

    /// Moves the finished turn into a file, if enabled.
    fn dehydrate(&mut self) -> Result<()> {
        if self.options.acd
            && let Some(detail) = self.conversation.dehydrate(Clock::from_env().stamp())?
        {
            self.bus.emit(EventKind::Thinned { detail });
        }
        Ok(())
    }

    /// Returns the error record of this session.
    fn error_record(&self) -> errors::ErrorRecord {
        let (facts, window) = (self.facts(), &self.conversation.window);
        errors::ErrorRecord {
            time: Clock::from_env().stamp(),
            session: self.session.id.to_string(),
            provider: facts.provider.clone(),
            model: facts.model.clone(),
            task: self.conversation.request().to_owned(),
            turns: self.conversation.turns(),
            usage: self.conversation.usage(),
            context_used: window.used(),
            context_limit: window.limit(),
            what: String::new(),
            why: None,
            next: Vec::new(),
        }
    }

    /// Records the outcome in the journal.
    fn record_end(&mut self, outcome: RunOutcome) -> RunOutcome {
        let status_word = serde_json::to_value(outcome.status).unwrap_or_default();
        let result = self.conversation.add_ended(status_word.as_str().unwrap_or_default());
        let RunOutcome { status, failure, resume } = outcome;
        let failure = failure.or(result.err());
        if let Some(failure) = failure.as_ref().filter(|_| status == RunStatus::Failed)
            && let Err(error) =
                self.error_record().with_failure(failure, &resume).store(&self.context.cwd)
        {
            self.warn(format!("the error could not be written down: {error}"));
        }
        RunOutcome { status, failure, resume }
    }
}

/// Returns a callback that emits warnings for the user.
fn warning_callback(bus: &Arc<Bus>) -> Arc<dyn Fn(String) + Send + Sync> {
    let bus = bus.clone();
    Arc::new(move |text| bus.emit(EventKind::Notice { level: NoticeLevel::Warning, text }))
}

/// Returns the directory in which writes need no permission: the git work tree around the working
/// directory, or the working directory itself.
pub fn root_of(cwd: &Path) -> PathBuf {
    base::workspace::root(cwd)
}
