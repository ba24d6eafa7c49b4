//! `g3 acp`: the Agent Client Protocol, version 1, on stdin and stdout.
//!
//! Several sessions run in one process, each with its own directory and configuration. Long
//! requests run concurrently with the connection, so that a cancel is received while a prompt runs.

pub mod client_io;
pub mod convert;
pub mod state;
pub mod updates;

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{
    AgentCapabilities, CancelNotification, ClientCapabilities, CloseSessionRequest,
    CloseSessionResponse, ConfigOptionUpdate, CurrentModeUpdate, DeleteSessionRequest,
    DeleteSessionResponse, Implementation, InitializeRequest, InitializeResponse,
    ListSessionsRequest, ListSessionsResponse, LoadSessionRequest, LoadSessionResponse,
    McpCapabilities, McpServer, NewSessionRequest, NewSessionResponse, PromptCapabilities,
    PromptRequest, PromptResponse, ResumeSessionRequest, ResumeSessionResponse,
    SessionAdditionalDirectoriesCapabilities, SessionCapabilities, SessionCloseCapabilities,
    SessionConfigOption, SessionConfigOptionValue, SessionDeleteCapabilities, SessionInfoUpdate,
    SessionListCapabilities, SessionModeState, SessionResumeCapabilities, SessionUpdate,
    SetSessionConfigOptionRequest, SetSessionConfigOptionResponse, SetSessionModeRequest,
    SetSessionModeResponse, StopReason,
};
use agent_client_protocol::{
    Agent, Client, Error, Stdio, on_receive_notification, on_receive_request,
};
use base::clock::Clock;
use base::event::RunStatus;
use base::failure::{Failure, OrFail, Result};
use tokio::sync::OwnedMutexGuard;
use tokio_util::sync::CancellationToken;

use super::autonomous::prompted_rounds::PromptedPair;
use super::autonomous::{Listeners, PlayerCoach, RunTerms};
use super::interactive::commands::{self, ConversationFunction, TypedLine};
use super::interrupt::{self, Interrupts};
use agent_core::bus::Bus;
use agent_core::run::outcome::RunOutcome;
use agent_core::run::{AgentSession, AgentSettings, SessionSelector};
use agent_core::session;
use client_io::EditorIo;
use gate::permission_mode::PermissionMode;
use gate::rules::rules_for_tree;
use provider::message::{ContentPart, Message};
use provider::{model_list, off_loop};
use state::{EditorState, SharedState};
use updates::{AcpAsker, EditorUpdates, UpdateSink};

/// Builds the settings for a session's directory.
pub(crate) type SettingsFor = dyn Fn(&Path) -> Result<AgentSettings> + Send + Sync;

/// What the command line determines.
pub(crate) struct AcpService {
    /// The settings of each directory.
    pub settings: Box<SettingsFor>,
    /// The terms of player and coach, if they run the prompts.
    pub rounds: Option<RunTerms>,
    /// Whether g3's own events are sent.
    pub events: bool,
}

/// The sessions of this process.
struct Host {
    service: AcpService,
    open: Mutex<HashMap<String, Arc<OpenSession>>>,
    /// The directories whose sessions this process opened or listed.
    dirs: Mutex<BTreeSet<PathBuf>>,
    /// Locked while a session is opened or closed, by id.
    changing: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
    /// The capabilities of the editor.
    able: Mutex<ClientCapabilities>,
}

/// An open session.
struct OpenSession {
    /// `None` if it could not be opened again with another model.
    work: Arc<tokio::sync::Mutex<Option<AgentSession>>>,
    /// Player and coach, if they run the prompts.
    team: Option<PromptedPair>,
    cancel: Mutex<CancellationToken>,
    settings: Mutex<AgentSettings>,
    connection: Connection,
}

/// What connects a session with the editor.
#[derive(Clone)]
struct Connection {
    updates: EditorUpdates,
    state: SharedState,
    bus: Arc<Bus>,
    asker: Arc<AcpAsker>,
    client_io: Arc<EditorIo>,
}

/// What the editor asks for when it opens a session.
struct Opening {
    cwd: PathBuf,
    selector: SessionSelector,
    servers: Vec<McpServer>,
    /// Further directories in which the tools may read and write.
    dirs: Vec<PathBuf>,
    client: ConnectionTo<Client>,
}

/// A session that is locked for a prompt, and the token that cancels the prompt.
type Entered = (Arc<OpenSession>, OwnedMutexGuard<Option<AgentSession>>, CancellationToken);

/// Serves until stdin ends or a signal arrives.
pub(crate) async fn run(service: AcpService) -> Result<()> {
    let interrupts = Interrupts::listen()?;
    let tokens = interrupts.begin();
    let (open, dirs) = (Mutex::default(), Mutex::default());
    let (changing, able) = (Mutex::default(), Mutex::default());
    let host = Arc::new(Host { service, open, dirs, changing, able });
    let served = tokio::select! {
        served = serve(&host) => served,
        () = tokens.cancel.cancelled() => Err(interrupt::failure()),
    };
    tokio::select! {
        () = host.close_all() => {}
        () = tokens.end.cancelled() => {}
    }
    served
}

/// Handles a request with a method of the host, which runs concurrently with the connection.
macro_rules! handle {
    ($agent:ident, $host:ident, $request:ty => $method:ident) => {{
        let host = $host.clone();
        $agent.on_receive_request(
            async move |request: $request, responder, client: ConnectionTo<Client>| {
                let work = host.clone().$method(request);
                client.spawn(async move {
                    responder.respond_with_result(work.await.map_err(wire_error))
                })
            },
            on_receive_request!(),
        )
    }};
}

/// Like `handle`, for a method that opens a session. What the editor shows besides the conversation
/// follows the response: before it, the editor does not know the session.
macro_rules! handle_opening {
    ($agent:ident, $host:ident, $request:ty => $method:ident) => {{
        let host = $host.clone();
        $agent.on_receive_request(
            async move |request: $request, responder, client: ConnectionTo<Client>| {
                let work = host.clone().$method(request, client.clone());
                client.spawn(async move {
                    let (response, open) = match work.await {
                        Ok((response, open)) => (Ok(response), Some(open)),
                        Err(failure) => (Err(wire_error(failure)), None),
                    };
                    responder.respond_with_result(response)?;
                    open.iter().for_each(|open| open.announce());
                    Ok(())
                })
            },
            on_receive_request!(),
        )
    }};
}

async fn serve(host: &Arc<Host>) -> Result<()> {
    let (init, list, close) = (host.clone(), host.clone(), host.clone());
    let (prompt, cancel) = (host.clone(), host.clone());
    let agent = Agent.v1().name("g3").on_receive_request(
        async move |request: InitializeRequest, responder, _| {
            *base::sync::lock(&init.able) = request.client_capabilities;
            responder.respond(initialized())
        },
        on_receive_request!(),
    );
    let agent = handle_opening!(agent, host, NewSessionRequest => begin);
    let agent = handle_opening!(agent, host, LoadSessionRequest => load);
    let agent = handle_opening!(agent, host, ResumeSessionRequest => resume);
    let agent = handle!(agent, host, DeleteSessionRequest => delete);
    let agent = handle!(agent, host, SetSessionModeRequest => set_mode);
    let agent = handle!(agent, host, SetSessionConfigOptionRequest => set_option);
    agent
        .on_receive_request(
            async move |request: ListSessionsRequest, responder, _| {
                responder.respond_with_result(list.list(&request).map_err(wire_error))
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: CloseSessionRequest, responder, _| {
                tokio::spawn(close.close(&request.session_id.0));
                responder.respond(CloseSessionResponse::new())
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: PromptRequest, responder, client: ConnectionTo<Client>| {
                // Enter before the next message is read, so that a cancel finds the prompt.
                let entered = prompt.enter(&request);
                let answered = async move { answer(entered?, request).await };
                client.spawn(async move {
                    responder.respond_with_result(answered.await.map_err(wire_error))
                })
            },
            on_receive_request!(),
        )
        .on_receive_notification(
            async move |request: CancelNotification, _: ConnectionTo<Client>| {
                cancel.cancel(&request.session_id.0);
                Ok(())
            },
            on_receive_notification!(),
        )
        .connect_to(Stdio::new())
        .await
        .or_fail(|| "the connection to the editor broke")
}

fn initialized() -> InitializeResponse {
    let prompt = PromptCapabilities::new().image(true).embedded_context(true);
    let sessions = SessionCapabilities::new()
        .list(SessionListCapabilities::new())
        .delete(SessionDeleteCapabilities::new())
        .additional_directories(SessionAdditionalDirectoriesCapabilities::new())
        .resume(SessionResumeCapabilities::new())
        .close(SessionCloseCapabilities::new());
    let able = AgentCapabilities::new()
        .load_session(true)
        .session_capabilities(sessions)
        .prompt_capabilities(prompt)
        .mcp_capabilities(McpCapabilities::new().http(true));
    InitializeResponse::new(ProtocolVersion::V1)
        .agent_capabilities(able)
        .agent_info(Implementation::new("g3", env!("CARGO_PKG_VERSION")))
}

/// Converts a failure for the client: the sentence is the message, and exit code and hints are the
/// data.
fn wire_error(failure: Failure) -> Error {
    let message = match &failure.cause {
        Some(reason) => format!("{}: {reason}", failure.what),
        None => failure.what.clone(),
    };
    let data = serde_json::json!({"exit": failure.exit_code(), "try": failure.hints});
    let mut error = Error::internal_error().data(data);
    error.message = message;
    error
}

impl Host {
    async fn begin(
        self: Arc<Host>,
        request: NewSessionRequest,
        client: ConnectionTo<Client>,
    ) -> Result<(NewSessionResponse, Arc<OpenSession>)> {
        let selector = SessionSelector::New("session".to_owned());
        let (cwd, servers, dirs) =
            (request.cwd, request.mcp_servers, request.additional_directories);
        let (id, open) = self.open(Opening { cwd, selector, servers, dirs, client }).await?;
        let (modes, options) = open.shown();
        Ok((NewSessionResponse::new(id).modes(modes).config_options(options), open))
    }

    async fn load(
        self: Arc<Host>,
        request: LoadSessionRequest,
        client: ConnectionTo<Client>,
    ) -> Result<(LoadSessionResponse, Arc<OpenSession>)> {
        let selector = SessionSelector::Resume(Some(request.session_id.0.to_string()));
        let (cwd, servers, dirs) =
            (request.cwd, request.mcp_servers, request.additional_directories);
        let opening = Opening { cwd: cwd.clone(), selector, servers, dirs, client };
        let open = self.reopen(&request.session_id.0, opening).await?;
        if let Ok(work) = open.work.try_lock()
            && let Some(work) = work.as_ref()
        {
            convert::history(work.conversation.messages(), &cwd)
                .into_iter()
                .for_each(|it| open.connection.updates.send(it));
        }
        let (modes, options) = open.shown();
        Ok((LoadSessionResponse::new().modes(modes).config_options(options), open))
    }

    async fn resume(
        self: Arc<Host>,
        request: ResumeSessionRequest,
        client: ConnectionTo<Client>,
    ) -> Result<(ResumeSessionResponse, Arc<OpenSession>)> {
        let selector = SessionSelector::Resume(Some(request.session_id.0.to_string()));
        let (cwd, servers, dirs) =
            (request.cwd, request.mcp_servers, request.additional_directories);
        let opening = Opening { cwd, selector, servers, dirs, client };
        let open = self.reopen(&request.session_id.0, opening).await?;
        let (modes, options) = open.shown();
        Ok((ResumeSessionResponse::new().modes(modes).config_options(options), open))
    }

    /// Reopens a session. If it is open here, it is closed first and its running prompt is
    /// cancelled.
    async fn reopen(self: &Arc<Host>, id: &str, opening: Opening) -> Result<Arc<OpenSession>> {
        let changing = self.changing(id);
        let _changing = changing.lock().await;
        self.close_session(id).await;
        self.open(opening).await.map(|(_, open)| open)
    }

    /// Returns the lock that is held while a session is opened or closed.
    fn changing(&self, id: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut all = base::sync::lock(&self.changing);
        all.retain(|_, one| Arc::strong_count(one) > 1);
        all.entry(id.to_owned()).or_default().clone()
    }

    /// Closes a session: cancels its prompt, waits for its end and frees its lock.
    async fn close_session(&self, id: &str) {
        self.cancel(id);
        let open = self.opened().remove(id);
        if let Some(open) = open {
            open.end().await;
        }
    }

    /// Returns the sessions of a directory, or of every directory that this process knows.
    fn list(&self, request: &ListSessionsRequest) -> Result<ListSessionsResponse> {
        let dirs = match &request.cwd {
            Some(cwd) => BTreeSet::from([cwd.clone()]),
            None => self.dirs().clone(),
        };
        let mut all = Vec::new();
        for dir in dirs {
            all.extend(session::list(&dir)?.into_iter().map(|id| convert::listed(&dir, &id)));
            self.dirs().insert(dir);
        }
        Ok(ListSessionsResponse::new(all))
    }

    /// Deletes a session. One that does not exist is deleted already.
    async fn delete(
        self: Arc<Host>,
        request: DeleteSessionRequest,
    ) -> Result<DeleteSessionResponse> {
        let wanted = &request.session_id.0;
        let changing = self.changing(wanted);
        let _changing = changing.lock().await;
        self.close_session(wanted).await;
        let dirs = self.dirs().clone();
        for dir in dirs {
            if let Some(id) = session::list(&dir)?.iter().find(|id| id.as_str() == &**wanted) {
                session::delete(&dir, id)?;
            }
        }
        Ok(DeleteSessionResponse::new())
    }

    /// Closes a session. It is cancelled immediately; the returned future does the rest.
    fn close(self: &Arc<Host>, id: &str) -> impl Future<Output = ()> + Send + use<> {
        self.cancel(id);
        let changing = self.changing(id);
        // Locked from here on, so that a later request for this session waits.
        let guard = changing.clone().try_lock_owned().ok();
        let open = guard.as_ref().and_then(|_| self.opened().remove(id));
        let (host, id) = (self.clone(), id.to_owned());
        async move {
            match (guard, open) {
                (Some(_held), Some(open)) => open.end().await,
                (Some(_), None) => {}
                (None, _) => {
                    let _held = changing.lock().await;
                    host.close_session(&id).await;
                }
            }
        }
    }

    async fn set_mode(
        self: Arc<Host>,
        request: SetSessionModeRequest,
    ) -> Result<SetSessionModeResponse> {
        let open = self.find(&request.session_id.0)?;
        open.set_mode(&request.mode_id.0).await?;
        let (_, options) = open.shown();
        let options = ConfigOptionUpdate::new(options.unwrap_or_default());
        open.connection.updates.send(SessionUpdate::ConfigOptionUpdate(options));
        Ok(SetSessionModeResponse::new())
    }

    async fn set_option(
        self: Arc<Host>,
        request: SetSessionConfigOptionRequest,
    ) -> Result<SetSessionConfigOptionResponse> {
        let open = self.find(&request.session_id.0)?;
        let SessionConfigOptionValue::ValueId { value } = &request.value else {
            return Err(Failure::usage("this option has no true or false"));
        };
        match &*request.config_id.0 {
            state::MODE => {
                open.set_mode(&value.0).await?;
                let mode = CurrentModeUpdate::new(value.0.clone());
                open.connection.updates.send(SessionUpdate::CurrentModeUpdate(mode));
            }
            state::MODEL if open.team.is_none() => open.set_model(&value.0).await?,
            unknown => {
                return Err(Failure::usage(format!("no such option: `{unknown}`")));
            }
        }
        let (_, options) = open.shown();
        Ok(SetSessionConfigOptionResponse::new(options.unwrap_or_default()))
    }

    fn find(&self, id: &str) -> Result<Arc<OpenSession>> {
        self.opened().get(id).cloned().ok_or_else(|| {
            Failure::not_found(format!("there is no open session `{id}`"))
                .hint("session/new or session/load")
        })
    }

    /// Opens a session outside of the event loop: a key may come from a command, and a model host
    /// may have to be started.
    async fn open(self: &Arc<Host>, opening: Opening) -> Result<(String, Arc<OpenSession>)> {
        let host = self.clone();
        off_loop(move || host.opened_now(opening)).await
    }

    fn opened_now(&self, opening: Opening) -> Result<(String, Arc<OpenSession>)> {
        let Opening { cwd, selector, servers, dirs, client } = opening;
        let cwd: PathBuf = cwd.canonicalize().map_err(|error| {
            Failure::usage(format!("cannot use {}", cwd.display())).because(error)
        })?;
        let mut settings = (self.service.settings)(&cwd)?;
        settings.config.mcp.extend(servers.into_iter().filter_map(convert::server));
        open_directories(&mut settings, &dirs);
        let able = base::sync::lock(&self.able).clone();
        let (updates, state) = (EditorUpdates::new(client.clone()), SharedState::default());
        let (has_events, has_notices) =
            (self.service.events, able.session.as_ref().is_some_and(|it| it.notices.is_some()));
        let sink = UpdateSink {
            updates: updates.clone(),
            state: state.clone(),
            cwd: cwd.clone(),
            has_notices,
            has_events,
            output: HashMap::new(),
        };
        let asker = Arc::new(AcpAsker::new(client.clone(), updates.session(), &able));
        let client_io = Arc::new(EditorIo::new(client, updates.session(), able));
        let bus = Bus::new(Clock::from_env(), vec![Box::new(sink)]);
        asker.set_bus(&bus);
        let pair = self
            .service
            .rounds
            .as_ref()
            .map(|terms| PlayerCoach::of(&settings, terms))
            .transpose()?;
        let player = pair.as_ref().map_or(&settings, |pair| &pair.player);
        let connection = Connection { updates, state, bus, asker, client_io };
        let work = connection.begin(player, &selector, pair.is_none())?;
        let team = pair.map(|pair| {
            let (bus, asker) = (connection.bus.clone(), connection.asker.clone());
            PromptedPair { pair, listeners: Listeners { bus, asker: Some(asker) } }
        });
        let id = work.session.id.to_string();
        let cancel = Mutex::new(CancellationToken::new());
        let work = Arc::new(tokio::sync::Mutex::new(Some(work)));
        let settings = Mutex::new(settings);
        let open = Arc::new(OpenSession { work, team, cancel, settings, connection });
        self.opened().insert(id.clone(), open.clone());
        self.dirs().insert(cwd);
        Ok((id, open))
    }

    fn enter(&self, request: &PromptRequest) -> Result<Entered> {
        let open = self.find(&request.session_id.0)?;
        let work = open.work.clone().try_lock_owned().map_err(|_| {
            Failure::refused("the session is at work").hint("wait for its end, or session/cancel")
        })?;
        let cancel = CancellationToken::new();
        *base::sync::lock(&open.cancel) = cancel.clone();
        Ok((open, work, cancel))
    }

    fn cancel(&self, id: &str) {
        if let Some(open) = self.opened().get(id) {
            base::sync::lock(&open.cancel).cancel();
        }
    }

    /// Shuts all sessions down after the editor has disconnected.
    async fn close_all(&self) {
        let all: Vec<Arc<OpenSession>> = self.opened().drain().map(|(_, open)| open).collect();
        for open in all {
            let work = open.work.try_lock().ok();
            let handle = work.and_then(|mut work| work.as_mut().map(AgentSession::shutdown));
            if let Some(handle) = handle {
                handle.finish().await;
            }
        }
    }

    fn opened(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<OpenSession>>> {
        base::sync::lock(&self.open)
    }

    fn dirs(&self) -> std::sync::MutexGuard<'_, BTreeSet<PathBuf>> {
        base::sync::lock(&self.dirs)
    }
}

/// Lets the tools read and write in further directories of the workspace.
fn open_directories(settings: &mut AgentSettings, dirs: &[PathBuf]) {
    let dirs: Vec<PathBuf> = dirs.iter().filter_map(|dir| dir.canonicalize().ok()).collect();
    if dirs.is_empty() {
        return;
    }
    for dir in &dirs {
        settings.config.gate.rules.extend(rules_for_tree(dir));
        settings.config.sandbox.write.push(dir.clone());
    }
    let names: Vec<String> = dirs.iter().map(|dir| dir.display().to_string()).collect();
    let note = format!("Further directories of this workspace: {}", names.join(", "));
    settings.first_note = Some(match settings.first_note.take() {
        Some(before) => format!("{before}\n{note}"),
        None => note,
    });
}

impl Connection {
    /// Opens the session and its state. With `has_models`, its user can choose the model.
    fn begin(
        &self,
        settings: &AgentSettings,
        selector: &SessionSelector,
        has_models: bool,
    ) -> Result<AgentSession> {
        let asker = Some(self.asker.clone() as _);
        let mut work = AgentSession::begin(settings, selector, self.bus.clone(), asker)?;
        work.set_client_io(self.client_io.clone());
        let state = EditorState::new(&work, settings);
        let state = if has_models { state } else { state.without_models() };
        *base::sync::lock(&self.state) = Some(state);
        Ok(work)
    }
}

impl OpenSession {
    /// Waits for the running prompt to end, and shuts the session down.
    async fn end(self: Arc<OpenSession>) {
        if let Some(mut work) = self.work.lock().await.take() {
            tokio::spawn(work.shutdown().finish());
        }
    }

    /// Returns the modes and the options of the session.
    fn shown(&self) -> (Option<SessionModeState>, Option<Vec<SessionConfigOption>>) {
        let state = base::sync::lock(&self.connection.state);
        state.as_ref().map(|state| (state.modes(), state.options())).unzip()
    }

    /// Sends the commands, and for a session with a conversation its usage.
    fn announce(&self) {
        let updates = &self.connection.updates;
        if self.team.is_none() {
            updates.send(state::available_commands());
        }
        let Ok(work) = self.work.try_lock() else { return };
        let talk = work.as_ref().map(|work| &work.conversation);
        if let Some(talk) = talk.filter(|talk| !talk.messages().is_empty())
            && let Some(state) = base::sync::lock(&self.connection.state).as_ref()
        {
            updates.send(state.usage_update(talk.window.used(), talk.window.limit()));
        }
    }

    /// Sets the permission mode: at once, or after the running turn if plan mode begins or ends.
    async fn set_mode(&self, id: &str) -> Result<()> {
        let Some(mode) = PermissionMode::parse(id) else {
            return Err(Failure::usage(format!("no such mode: `{id}`")).hint("auto, ask, plan"));
        };
        let switch = base::sync::lock(&self.connection.state).as_ref().map(|it| it.mode.clone());
        let cannot = || "cannot keep the mode";
        let is_set = switch.map(|switch| switch.set(mode)).transpose().or_fail(cannot)?;
        if is_set == Some(true) {
            return Ok(());
        }
        let mut work = self.work.lock().await;
        open_work(&mut work)?.set_permission_mode(mode).or_fail(cannot)
    }

    /// Continues with another model after the running turn. On an error, the session keeps the
    /// model that it has.
    async fn set_model(&self, value: &str) -> Result<()> {
        let mut work = self.work.clone().lock_owned().await;
        let before = base::sync::lock(&self.settings).clone();
        let (choice, note) = model_list::find(&before.config, &before.choice, value)?;
        let settings = AgentSettings { choice, ..before.clone() };
        let open = open_work(&mut work)?;
        let selector = SessionSelector::Resume(Some(open.session.id.to_string()));
        let shutdown = open.shutdown();
        // Frees the lock of the session.
        *work = None;
        shutdown.finish().await;
        match self.begin(settings.clone(), selector.clone()).await {
            Ok(opened) => {
                note.into_iter().for_each(|note| opened.warn(note));
                *work = Some(opened);
                *base::sync::lock(&self.settings) = settings;
                Ok(())
            }
            Err(failure) => {
                *work = Some(self.begin(before, selector).await?);
                Err(failure)
            }
        }
    }

    async fn begin(
        &self,
        settings: AgentSettings,
        selector: SessionSelector,
    ) -> Result<AgentSession> {
        let connection = self.connection.clone();
        off_loop(move || connection.begin(&settings, &selector, true)).await
    }

    /// Runs a prompt that is a command about the conversation, or the turn of another one.
    async fn run(
        &self,
        message: Message,
        work: &mut AgentSession,
        cancel: CancellationToken,
    ) -> Result<RunOutcome> {
        let text = message.full_text();
        if let Some(team) = &self.team {
            return Ok(team.prompt(&text, work, &cancel).await);
        }
        let has_image = message.parts.iter().any(|part| matches!(part, ContentPart::Image(_)));
        if text.trim().is_empty() && !has_image {
            return Err(Failure::usage("the prompt is empty"));
        }
        if let Some((run, words)) = command(&message) {
            let answer = run(work, words, cancel).await?;
            return Ok(work.end_with_text(convert::command_answer(answer)));
        }
        if work.conversation.messages().is_empty() {
            let info = SessionInfoUpdate::new()
                .title(convert::title(&text))
                .updated_at(Clock::from_env().stamp());
            self.connection.updates.send(SessionUpdate::SessionInfoUpdate(info));
        }
        Ok(work.turn(message, cancel).await)
    }
}

/// Returns the command about the conversation that a prompt consists of, and the text after it.
fn command(message: &Message) -> Option<(ConversationFunction, Option<String>)> {
    let [ContentPart::Text { text }] = message.parts.as_slice() else { return None };
    match commands::read(text.trim()) {
        TypedLine::Command(command, words) => command.about_conversation().map(|run| (run, words)),
        TypedLine::Words | TypedLine::Exit | TypedLine::Unknown(_) => None,
    }
}

/// Returns the session, unless it could not be opened again with another model.
fn open_work(work: &mut Option<AgentSession>) -> Result<&mut AgentSession> {
    work.as_mut().ok_or_else(|| {
        Failure::failed("the session is closed, because it could not be opened again")
            .hint("session/load")
    })
}

/// Runs a prompt.
async fn answer(
    (open, mut work, cancel): Entered,
    request: PromptRequest,
) -> Result<PromptResponse> {
    let work = open_work(&mut work)?;
    let ended = open.run(convert::message(request.prompt), work, cancel).await?;
    match (ended.status, ended.into_failure()) {
        (RunStatus::Done, _) => Ok(PromptResponse::new(StopReason::EndTurn)),
        (RunStatus::Cancelled, _) => Ok(PromptResponse::new(StopReason::Cancelled)),
        (RunStatus::Limit, _) => Ok(PromptResponse::new(StopReason::MaxTurnRequests)),
        (RunStatus::NotApproved, _) => Ok(PromptResponse::new(StopReason::Refusal)),
        (RunStatus::Failed, failure) => {
            Err(failure.unwrap_or_else(|| Failure::failed("the turn failed")))
        }
    }
}
