//! Puts the parts together: the only place where concrete parts of more than one seam meet.

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
use tools::exec::confinement::CommandBox;
use tools::profile::Profile;
use tools::services::Toolset;

/// What was typed and configured, for one session.
#[derive(Clone, Debug)]
pub struct AgentSettings {
    /// The tools of this program.
    pub toolset: &'static dyn Toolset,
    /// The working directory, absolute.
    pub cwd: PathBuf,
    /// The configuration for it.
    pub config: Config,
    /// What the user should know about the configuration.
    pub notices: Vec<String>,
    /// `--provider TYPE[.NAME]`, `--model NAME`, `--fallback-model NAME`.
    pub choice: ProviderChoice,
    /// Which names tools have.
    pub profile: Profile,
    /// When to stop, as typed.
    pub limits: UsageLimits,
    /// Whether tools are offered.
    pub tools: bool,
    /// Whether finished turns are moved into files.
    pub acd: bool,
    /// Where the notes of the workspace are, and who takes them.
    pub notes: notes::Notes,
    /// Who works.
    pub role: AgentRole,
    /// Where others who can work are found.
    pub personas: PersonaDirs,
    /// What the model is told with the first words of a new session.
    pub first_note: Option<String>,
}

/// Which session to work in.
#[derive(Clone, Debug)]
pub enum SessionSelector {
    /// A new one, named after this task.
    New(String),
    /// One that exists: by id or beginning of an id, or the latest.
    Resume(Option<String>),
}

/// A session at work.
pub struct AgentSession {
    /// The session.
    pub session: Arc<Session>,
    /// The conversation.
    pub talk: Conversation,
    model: BoundModel,
    escalation: Option<Escalation>,
    hooks: Arc<Hooks>,
    place: ToolContext,
    /// When to stop.
    pub limits: UsageLimits,
    bus: Arc<Bus>,
    coach: Option<Arc<TurnGuide>>,
    options: SessionOptions,
    parent: Option<Arc<Parent>>,
    /// What the model is told with the user's next words.
    note: Option<String>,
}

/// What holds for all turns of a session.
struct SessionOptions {
    role: AgentRole,
    /// Whether finished turns are moved into files.
    acd: bool,
    /// Whose account it uses up, when it works for another session.
    account: Option<UsageMeter>,
}

/// Turns of one run when nothing else is said: far more than a task needs, far less than a night.
const TURNS: u32 = 400;

impl AgentSession {
    /// Opens the session, its journal and its model; a failure is told to the bus as well.
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

    /// Opens a conversation that is part of a session's run, beside the session's own.
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
        // Few and plain tools for a small model: those of servers would leave no room for the task.
        let wanted = settings.tools && !facts.small && !role.reads_only;
        let around = CommandBox::of(&config.sandbox, &place.root);
        let hooks_box = around.clone();
        let start = || {
            let hub = McpHub::start(&config.mcp, (&settings.cwd, around), &session.dir, &warn);
            hub.map(|hub| hub as _)
        };
        let mcp = if wanted { under.servers(start) } else { None };
        let own = under.hooks(settings);
        let id = session.id.as_str();
        let hooks = Hooks::new(&own, id, (&settings.cwd, hooks_box), warn.clone())?;
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

    /// A new session tells the model what there is to know first, as far as there is room for it.
    fn with_first_note(
        mut self,
        settings: &AgentSettings,
        which: &SessionSelector,
    ) -> AgentSession {
        if let (Some(note), SessionSelector::New(_)) = (&settings.first_note, which) {
            // Half a byte for each token leaves most of the context free.
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

    /// Something that the user should know.
    pub fn warn(&self, text: String) {
        self.bus.emit(EventKind::Notice { level: NoticeLevel::Warning, text });
    }

    /// Files and terminals are held by somebody outside as well.
    pub fn use_outside(&mut self, outside: Arc<dyn ClientIo>) {
        self.place.outside = Some(outside);
    }

    /// Where writes need no question.
    pub fn root(&self) -> &Path {
        &self.place.root
    }

    /// What the model was told about a project, kept through summaries.
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

    /// The model's facts.
    pub fn facts(&self) -> &ProviderFacts {
        self.model.facts()
    }

    /// One turn of the user: the message, and all that the agent does about it.
    pub async fn turn(&mut self, message: Message, cancel: CancellationToken) -> RunOutcome {
        let ended = self.part(message, cancel).await;
        self.tell_end(ended)
    }

    /// Asks the model again after a turn that did not come to its end, with all that was done in
    /// it so far. Nothing is added to the conversation unless the model had the last word.
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

    /// As [`AgentSession::turn`], within a run that has more parts and tells its end by itself.
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

    /// Lets the model answer what stands in the conversation, and writes down how that ended.
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

    /// Replaces the conversation by a summary now.
    pub async fn compact(&mut self, cancel: CancellationToken) -> Result<()> {
        if self.talk.messages().len() < 2 {
            return Err(Failure::failed("nothing to compact yet"));
        }
        let ended = self.act(AgentAction::Compact, &mut UsageMeter::default(), cancel).await;
        ended.map(drop).map_err(|error| error.failure)
    }

    /// Moves the turn that is over into a file.
    fn dehydrate(&mut self) -> Result<()> {
        if self.options.acd
            && let Some(detail) = self.talk.dehydrate(Clock::from_env().stamp())?
        {
            self.bus.emit(EventKind::Thinned { detail });
        }
        Ok(())
    }

    /// What can be said of this session when it fails.
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

    /// Writes down how it ended.
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

/// Tells the user what they should know.
fn warner(bus: &Arc<Bus>) -> Arc<dyn Fn(String) + Send + Sync> {
    let bus = bus.clone();
    Arc::new(move |text| bus.emit(EventKind::Notice { level: NoticeLevel::Warning, text }))
}

/// Where writes need no question: the git work tree around the working directory, or only that.
pub fn root_of(cwd: &Path) -> PathBuf {
    base::workspace::root(cwd)
}
