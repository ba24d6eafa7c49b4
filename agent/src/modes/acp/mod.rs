//! `g3 acp`: the Agent Client Protocol, version 1, on stdin and stdout.
//!
//! Several sessions run in one process, each with its own directory and configuration. Long
//! requests run concurrently with the connection, so that a cancel is received while a prompt runs.

pub mod client_io;
pub mod convert;
pub mod updates;

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{
    AgentCapabilities, CancelNotification, ClientCapabilities, CloseSessionRequest,
    CloseSessionResponse, Implementation, InitializeRequest, InitializeResponse,
    ListSessionsRequest, ListSessionsResponse, LoadSessionRequest, LoadSessionResponse,
    McpCapabilities, McpServer, NewSessionRequest, NewSessionResponse, PromptCapabilities,
    PromptRequest, PromptResponse, ResumeSessionRequest, ResumeSessionResponse,
    SessionCapabilities, SessionCloseCapabilities, SessionListCapabilities, SessionMode,
    SessionModeState, SessionResumeCapabilities, SetSessionModeRequest, SetSessionModeResponse,
    StopReason,
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
use super::interrupt::{self, Interrupts};
use agent_core::bus::Bus;
use agent_core::run::{AgentSession, AgentSettings, SessionSelector};
use agent_core::session;
use client_io::EditorIo;
use gate::permission_mode::PermissionMode;
use provider::off_loop;
use updates::{AcpAsker, UpdateSink};

/// Builds the settings for a session's directory.
pub(crate) type SettingsFor = dyn Fn(&Path) -> Result<AgentSettings> + Send + Sync;

/// The sessions of this process.
struct Host {
    settings: Box<SettingsFor>,
    /// The terms of player and coach, if they run the prompts.
    rounds: Option<RunTerms>,
    open: Mutex<HashMap<String, Arc<OpenSession>>>,
    /// Locked while a session is opened or closed, by id.
    changing: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
    /// The capabilities of the editor.
    able: Mutex<ClientCapabilities>,
}

/// An open session.
struct OpenSession {
    cwd: PathBuf,
    work: Arc<tokio::sync::Mutex<AgentSession>>,
    /// Player and coach, if they run the prompts.
    team: Option<PromptedPair>,
    cancel: Mutex<CancellationToken>,
}

/// A session that is locked for a prompt, and the token that cancels the prompt.
type Entered = (Arc<OpenSession>, OwnedMutexGuard<AgentSession>, CancellationToken);

/// Serves until stdin ends or a signal arrives. With `rounds`, player and coach run the prompts.
pub(crate) async fn run(settings: Box<SettingsFor>, rounds: Option<RunTerms>) -> Result<()> {
    let interrupts = Interrupts::listen()?;
    let tokens = interrupts.begin();
    let (open, changing, able) = (Mutex::default(), Mutex::default(), Mutex::default());
    let host = Arc::new(Host { settings, rounds, open, changing, able });
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

/// Responds with the result of some work, which runs concurrently with the connection.
macro_rules! beside {
    ($client:ident, $responder:ident, $work:ident) => {
        $client
            .spawn(async move { $responder.respond_with_result($work.await.map_err(wire_error)) })
    };
}

async fn serve(host: &Arc<Host>) -> Result<()> {
    let (new, load, prompt, cancel) = (host.clone(), host.clone(), host.clone(), host.clone());
    let (list, resume, close, mode) = (host.clone(), host.clone(), host.clone(), host.clone());
    let init = host.clone();
    Agent
        .v1()
        .name("g3")
        .on_receive_request(
            async move |request: InitializeRequest, responder, _| {
                *base::sync::lock(&init.able) = request.client_capabilities;
                responder.respond(initialized())
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: NewSessionRequest, responder, client: ConnectionTo<Client>| {
                let result = new.clone().begin(request, client.clone());
                beside!(client, responder, result)
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: LoadSessionRequest, responder, client: ConnectionTo<Client>| {
                let loaded = load.clone().load(request, client.clone());
                beside!(client, responder, loaded)
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: ResumeSessionRequest, responder, client: ConnectionTo<Client>| {
                let resumed = resume.clone().resume(request, client.clone());
                beside!(client, responder, resumed)
            },
            on_receive_request!(),
        )
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
            async move |request: SetSessionModeRequest, responder, client: ConnectionTo<Client>| {
                let set = mode.clone().set_mode(request);
                beside!(client, responder, set)
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: PromptRequest, responder, client: ConnectionTo<Client>| {
                // Enter before the next message is read, so that a cancel finds the prompt.
                let entered = prompt.enter(&request);
                let answered = async move { answer(entered?, request).await };
                beside!(client, responder, answered)
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
    ) -> Result<NewSessionResponse> {
        let selector = SessionSelector::New("session".to_owned());
        let (id, open) = self.open(request.cwd, selector, client, request.mcp_servers).await?;
        Ok(NewSessionResponse::new(id).modes(modes(&open)))
    }

    async fn load(
        self: Arc<Host>,
        request: LoadSessionRequest,
        client: ConnectionTo<Client>,
    ) -> Result<LoadSessionResponse> {
        let (wanted, cx) = (&request.session_id.0, client.clone());
        let (id, open) = self.reopen(wanted, &request.cwd, cx, request.mcp_servers).await?;
        if let Ok(work) = open.work.try_lock() {
            let updates = UpdateSink::new(&id, client, request.cwd);
            convert::history(work.conversation.messages())
                .into_iter()
                .for_each(|it| updates.send(it));
        }
        Ok(LoadSessionResponse::new().modes(modes(&open)))
    }

    async fn resume(
        self: Arc<Host>,
        request: ResumeSessionRequest,
        client: ConnectionTo<Client>,
    ) -> Result<ResumeSessionResponse> {
        let wanted = &request.session_id.0;
        let (_, open) = self.reopen(wanted, &request.cwd, client, request.mcp_servers).await?;
        Ok(ResumeSessionResponse::new().modes(modes(&open)))
    }

    /// Reopens a session. If it is open here, it is closed first and its running prompt is
    /// cancelled.
    async fn reopen(
        self: &Arc<Host>,
        id: &str,
        cwd: &Path,
        client: ConnectionTo<Client>,
        servers: Vec<McpServer>,
    ) -> Result<(String, Arc<OpenSession>)> {
        let changing = self.changing(id);
        let _changing = changing.lock().await;
        self.close_session(id).await;
        let selector = SessionSelector::Resume(Some(id.to_owned()));
        self.open(cwd.to_owned(), selector, client, servers).await
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

    /// Returns the sessions of a directory, or of every directory with an open session.
    fn list(&self, request: &ListSessionsRequest) -> Result<ListSessionsResponse> {
        let dirs = match &request.cwd {
            Some(cwd) => vec![cwd.clone()],
            None => {
                let open = self.opened();
                let dirs: BTreeSet<PathBuf> = open.values().map(|open| open.cwd.clone()).collect();
                dirs.into_iter().collect()
            }
        };
        let mut all = Vec::new();
        for dir in dirs {
            all.extend(session::list(&dir)?.into_iter().map(|id| convert::listed(&dir, &id)));
        }
        Ok(ListSessionsResponse::new(all))
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
        let id = &request.mode_id.0;
        let Some(mode) = PermissionMode::parse(id) else {
            return Err(Failure::usage(format!("no such mode: `{id}`")).hint("auto, ask, plan"));
        };
        let open = self.find(&request.session_id.0)?;
        let mut work = open.work.lock().await;
        work.set_permission_mode(mode).or_fail(|| "cannot keep the mode")?;
        Ok(SetSessionModeResponse::new())
    }

    fn find(&self, id: &str) -> Result<Arc<OpenSession>> {
        self.opened().get(id).cloned().ok_or_else(|| {
            Failure::not_found(format!("there is no open session `{id}`"))
                .hint("session/new or session/load")
        })
    }

    /// Opens a session outside of the event loop: a key may come from a command, and a model host
    /// may have to be started.
    async fn open(
        self: &Arc<Host>,
        cwd: PathBuf,
        selector: SessionSelector,
        client: ConnectionTo<Client>,
        servers: Vec<McpServer>,
    ) -> Result<(String, Arc<OpenSession>)> {
        let host = self.clone();
        off_loop(move || host.opened_now(&cwd, &selector, client, servers)).await
    }

    fn opened_now(
        &self,
        cwd: &Path,
        selector: &SessionSelector,
        client: ConnectionTo<Client>,
        servers: Vec<McpServer>,
    ) -> Result<(String, Arc<OpenSession>)> {
        let cwd: PathBuf = cwd.canonicalize().map_err(|error| {
            Failure::usage(format!("cannot use {}", cwd.display())).because(error)
        })?;
        let mut settings = (self.settings)(&cwd)?;
        settings.config.mcp.extend(servers.into_iter().filter_map(convert::server));
        let sink = UpdateSink::unnamed(client.clone(), cwd.clone());
        let able = base::sync::lock(&self.able).clone();
        let client_io = EditorIo::new(client.clone(), sink.session(), able);
        let editor = Arc::new(AcpAsker::new(client, sink.session()));
        let bus = Bus::new(Clock::from_env(), vec![Box::new(sink)]);
        editor.set_bus(&bus);
        let pair =
            self.rounds.as_ref().map(|terms| PlayerCoach::of(&settings, terms)).transpose()?;
        let player = pair.as_ref().map_or(&settings, |pair| &pair.player);
        let mut work = AgentSession::begin(player, selector, bus.clone(), Some(editor.clone()))?;
        work.set_client_io(Arc::new(client_io));
        let team = pair
            .map(|pair| PromptedPair { pair, listeners: Listeners { bus, asker: Some(editor) } });
        let id = work.session.id.to_string();
        let cancel = Mutex::new(CancellationToken::new());
        let work = Arc::new(tokio::sync::Mutex::new(work));
        let open = Arc::new(OpenSession { cwd, work, team, cancel });
        self.opened().insert(id.clone(), open.clone());
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
            let handle = open.work.try_lock().ok().map(|mut work| work.shutdown());
            if let Some(handle) = handle {
                handle.finish().await;
            }
        }
    }

    fn opened(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<OpenSession>>> {
        base::sync::lock(&self.open)
    }
}

impl OpenSession {
    /// Waits for the running prompt to end, and shuts the session down.
    async fn end(self: Arc<OpenSession>) {
        let handle = self.work.lock().await.shutdown();
        tokio::spawn(handle.finish());
    }
}

/// Returns the modes of a session, and the current one.
fn modes(open: &OpenSession) -> Option<SessionModeState> {
    let now = open.work.try_lock().ok()?.permission_mode();
    let mode = |mode: PermissionMode| {
        SessionMode::new(mode.id(), mode.id()).description(mode.description().to_owned())
    };
    Some(SessionModeState::new(now.id(), PermissionMode::ALL.into_iter().map(mode).collect()))
}

/// Runs a prompt.
async fn answer(
    (open, mut work, cancel): Entered,
    request: PromptRequest,
) -> Result<PromptResponse> {
    let message = convert::message(request.prompt);
    let ended = match &open.team {
        Some(team) => team.prompt(&message.full_text(), &mut work, &cancel).await,
        None => work.turn(message, cancel).await,
    };
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
