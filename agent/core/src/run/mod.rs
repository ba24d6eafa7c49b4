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
use outcome::{RunOutcome, tell_failure};
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
    pub talk: Conversation,
    model: BoundModel,
    escalation: Option<Escalation>,
    hooks: Arc<Hooks>,
    place: ToolContext,
    /// The limits.
    pub limits: UsageLimits,
    bus: Arc<Bus>,
    coach: Option<Arc<TurnGuide>>,
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
    account: Option<UsageMeter>,
}

/// Default limit of turns in a run: far more than a task needs, but not enough to run unattended
/// all night.
const TURNS: u32 = 400;

impl AgentSession {
    /// Opens the session, its journal and its model. Also reports a failure on the bus.
    pub fn begin(
        settings: &AgentSettings,
        which: &SessionSelector,
        bus: Arc<Bus>,
        asker: Option<Arc<dyn Asker>>,
    ) -> Result<AgentSession> {
        let session = || match which {
            SessionSelector::New(task) => Session::create(&settings.cwd, task),
            SessionSelector::Resume(wanted) => Session::resume(&settings.cwd, wanted.as_deref()),
        };
        AgentSession::open(settings, session, bus.clone(), Ownership::User(asker))
            .map(|work| work.with_first_note(settings, which))
            .inspect(|work| work.tell_start(settings))
            .inspect_err(|failure| tell_failure(&bus, failure))
    }

    /// Opens a child conversation in the directory of a session.
    pub fn child_session(
        settings: &AgentSettings,
        (session, name): (&Session, &str),
        bus: Arc<Bus>,
        asker: Option<Arc<dyn Asker>>,
    ) -> Result<AgentSession> {
        AgentSession::open(settings, || session.within(name), bus, Ownership::User(asker))
    }

    fn open(
        settings: &AgentSettings,
        session: impl FnOnce() -> Result<Session>,
        bus: Arc<Bus>,
        under: Ownership,
    ) -> Result<AgentSession> {
        let config = &settings.config;
        let provider = provider::open(config, &settings.choice)?;
        let facts = provider.facts().clone();
        let gate = Arc::new(under.gate(config)?.with_write_scope(settings.role.fence.clone()));
        let session = Arc::new(session()?);
        let clock = Clock::from_env();
        let (writer, entries) = SessionJournal::open(&session, clock)?;
        let role = settings.role.clone();
        session.is_of(role.name.as_deref(), &entries)?;
        let place = setup::workplace(settings, &session, &facts, gate)?;
        let date = context::begun_on(&entries).unwrap_or_else(|| clock.stamp()[..10].to_owned());
        let mut bound = BoundModel::of(settings, provider, &date, &place.skills);
        let warn = warner(&bus);
        // A small model gets few and simple tools: those of servers would leave no context for the
        // task.
        let wanted = settings.tools && !facts.small && !role.reads_only;
        let around = CommandSandbox::of(&config.sandbox, &place.root);
        let hooks_sandbox = around.clone();
        let start = || {
            let hub = McpHub::start(&config.mcp, (&settings.cwd, around), &session.dir, &warn);
            hub.map(|hub| hub as _)
        };
        let mcp = if wanted { under.servers(start) } else { None };
        let own = under.hooks(settings);
        let id = session.id.as_str();
        let hooks = Hooks::new(&own, id, (&settings.cwd, hooks_sandbox), warn.clone())?;
        if under.is_agent() {
            bound.offered.retain(|spec| !subagent::is_task(settings.profile, &spec.name));
        }
        bound.give(settings, mcp.iter().flat_map(|hub| hub.offered()).collect());
        let others = Services { lsp: under.language_servers(place.others.lsp), ..place.others };
        let place = ToolContext { mcp, outside: under.outside(), others, ..place };
        let window = bound.window(&[]);
        let mut talk = Conversation::new(window, Box::new(writer));
        talk.replay(entries)?;
        setup::recall(&talk, settings.profile, &place);
        let cwd = settings.cwd.clone();
        let (name, model) = (facts.provider.clone(), facts.model.clone());
        let agent = role.name.clone();
        let opened =
            ConversationEntry::Opened { time: clock.stamp(), cwd, provider: name, model, agent };
        talk.opened(opened)?;
        let turns = settings.limits.turns.or(config.agent.max_turns).unwrap_or(TURNS);
        let limits = UsageLimits { turns: Some(turns), ..settings.limits };
        let escalation = Escalation::of(settings, &facts, &date, place.skills.clone());
        let parent = Parent { settings: settings.clone(), session: session.clone() };
        let parent = (!under.is_agent() && !facts.small).then(|| Arc::new(parent));
        let mut work = AgentSession {
            session,
            talk,
            model: bound,
            escalation,
            hooks: Arc::new(hooks),
            place,
            limits,
            bus,
            coach: None,
            options: SessionOptions { role, acd: settings.acd, account: under.account() },
            parent,
            note: None,
        };
        work.restore_permission_mode();
        Ok(work)
    }

    /// Adds the first note to a new session, as far as the context allows.
    fn with_first_note(
        mut self,
        settings: &AgentSettings,
        which: &SessionSelector,
    ) -> AgentSession {
        if let (Some(note), SessionSelector::New(_)) = (&settings.first_note, which) {
            // Half a byte per token leaves most of the context free.
            let room = usize::try_from(self.facts().context / 2).unwrap_or(usize::MAX);
            let note = base::text::head(note, room).trim_end();
            self.tell_with_next(format!("[{note}]"));
        }
        self
    }

    fn tell_start(&self, settings: &AgentSettings) {
        let facts = self.facts();
        self.bus.emit(EventKind::Start {
            session: self.session.id.to_string(),
            provider: facts.provider.clone(),
            model: facts.model.clone(),
            cwd: settings.cwd.display().to_string(),
        });
        let notices = settings.notices.iter().chain(&self.place.skills.notices).cloned();
        notices.chain(setup::notices(settings)).for_each(|text| self.warn(text));
    }

    /// Emits a warning for the user.
    pub fn warn(&self, text: String) {
        self.bus.emit(EventKind::Notice { level: NoticeLevel::Warning, text });
    }

    /// Lets a client (an editor) provide files and terminals.
    pub fn use_outside(&mut self, outside: Arc<dyn ClientIo>) {
        self.place.outside = Some(outside);
    }

    /// Returns the directory in which writes need no permission.
    pub fn root(&self) -> &Path {
        &self.place.root
    }

    /// Returns the file with the project description that is kept through summaries.
    pub fn project_file(&self) -> PathBuf {
        self.session.dir.join("project.md")
    }

    fn prompt_place(&self) -> PromptContext<'_> {
        PromptContext {
            cwd: &self.place.cwd,
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
        let ended = self.part(message, cancel).await;
        self.tell_end(ended)
    }

    /// Retries after a turn that did not finish, with everything that was done in it so far. Adds
    /// nothing to the conversation unless the last message is the model's.
    pub async fn retry(&mut self, cancel: CancellationToken) -> RunOutcome {
        self.model.provider.turn_begins();
        let goes_on = match self.talk.messages().last().map(|message| message.role) {
            Some(message::MessageRole::Assistant) => self.talk.prompt(base::text::GO_ON),
            Some(message::MessageRole::User) => Ok(()),
            None => Err(Failure::failed("nothing to retry")),
        };
        let ended = match goes_on {
            Ok(()) => self.finish(cancel).await,
            Err(failure) => RunOutcome::new(RunStatus::Failed, Some(failure)),
        };
        self.tell_end(ended)
    }

    fn tell_end(&self, ended: RunOutcome) -> RunOutcome {
        if let Some(error) = ended.error() {
            self.bus.emit(error);
        }
        let (turns, usage) = (self.talk.turns(), self.talk.usage());
        let (status, exit) = (ended.status, ended.status.exit());
        self.bus.emit(EventKind::End { status, exit, turns, usage });
        ended
    }

    /// Like [`AgentSession::turn`], for one part of a run that reports its own end.
    pub async fn part(&mut self, message: Message, cancel: CancellationToken) -> RunOutcome {
        let (span, before) = (trace_events::turn(self), (self.talk.turns(), self.talk.usage()));
        let ended = self.untraced(message, cancel).instrument(span.clone()).await;
        trace_events::over(&span, self, &ended, before);
        ended
    }

    async fn untraced(&mut self, message: Message, cancel: CancellationToken) -> RunOutcome {
        self.model.provider.turn_begins();
        self.hear_servers();
        self.place.skills.begin_turn();
        self.place.memory.learnt.begin_turn();
        let acts = self.prompt_place().tools && !self.options.role.reads_only;
        self.coach = (self.facts().small && acts)
            .then(|| Arc::new(TurnGuide::new(&message.words(), &self.place.cwd)));
        let (words, resumed) = (message.words(), !self.talk.messages().is_empty());
        let message = self.with_note(message);
        let message = match self.talk.messages() {
            [] => prompt::first(self.facts(), &self.prompt_place(), message),
            [..] => message,
        };
        let heard = self.hooks.heard(resumed, &words, message);
        let message = match cancel.run_until_cancelled(heard).await {
            Some(Ok(message)) => message,
            Some(Err(failure)) => {
                return self.write_end(RunOutcome::new(RunStatus::NotApproved, Some(failure)));
            }
            None => return self.write_end(RunOutcome::new(RunStatus::Cancelled, None)),
        };
        match self.talk.ask(message) {
            Ok(()) => self.finish(cancel).await,
            Err(failure) => self.write_end(RunOutcome::new(RunStatus::Failed, Some(failure))),
        }
    }

    /// Lets the model answer the conversation, and records the outcome.
    async fn finish(&mut self, cancel: CancellationToken) -> RunOutcome {
        let finish = self.answer(cancel.clone()).await;
        if matches!(finish, Ok(TurnEnd::Done)) {
            self.take_notes(cancel).await;
        }
        let ended = match finish {
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
        self.write_end(ended)
    }

    /// Replaces the conversation by a summary.
    pub async fn compact(&mut self, cancel: CancellationToken) -> Result<()> {
        if self.talk.messages().len() < 2 {
            return Err(Failure::failed("nothing to compact yet"));
        }
        let ended = self.act(AgentAction::Compact, &mut UsageMeter::default(), cancel).await;
        ended.map(drop).map_err(|error| error.failure)
    }

    /// Moves the finished turn into a file, if enabled.
    fn dehydrate(&mut self) -> Result<()> {
        if self.options.acd
            && let Some(detail) = self.talk.dehydrate(Clock::from_env().stamp())?
        {
            self.bus.emit(EventKind::Thinned { detail });
        }
        Ok(())
    }

    /// Returns the error record of this session.
    fn error_record(&self) -> errors::ErrorRecord {
        let (facts, window) = (self.facts(), &self.talk.window);
        errors::ErrorRecord {
            time: Clock::from_env().stamp(),
            session: self.session.id.to_string(),
            provider: facts.provider.clone(),
            model: facts.model.clone(),
            task: self.talk.request().to_owned(),
            turns: self.talk.turns(),
            usage: self.talk.usage(),
            context_used: window.used(),
            context_limit: window.limit(),
            what: String::new(),
            why: None,
            next: Vec::new(),
        }
    }

    /// Records the outcome in the journal.
    fn write_end(&mut self, ended: RunOutcome) -> RunOutcome {
        let word = serde_json::to_value(ended.status).unwrap_or_default();
        let written = self.talk.ended(word.as_str().unwrap_or_default());
        let RunOutcome { status, failure, resume } = ended;
        let failure = failure.or(written.err());
        if let Some(failure) = failure.as_ref().filter(|_| status == RunStatus::Failed)
            && let Err(why) = self.error_record().of(failure, &resume).keep(&self.place.cwd)
        {
            self.warn(format!("the error could not be written down: {why}"));
        }
        RunOutcome { status, failure, resume }
    }
}

/// Returns a callback that emits warnings for the user.
fn warner(bus: &Arc<Bus>) -> Arc<dyn Fn(String) + Send + Sync> {
    let bus = bus.clone();
    Arc::new(move |text| bus.emit(EventKind::Notice { level: NoticeLevel::Warning, text }))
}

/// Returns the directory in which writes need no permission: the git work tree around the working
/// directory, or the working directory itself.
pub fn root_of(cwd: &Path) -> PathBuf {
    base::workspace::root(cwd)
}
