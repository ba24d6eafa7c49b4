//! An agent over the Agent Client Protocol v1: JSON-RPC on its stdio, without client files or
//! terminals.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v1::schema::{
    CancelNotification, ContentBlock, InitializeRequest, LoadSessionRequest, NewSessionRequest,
    PermissionOption, PromptRequest, RequestPermissionOutcome, RequestPermissionRequest,
    RequestPermissionResponse, SessionId, SessionNotification, StopReason, TextContent,
};
use agent_client_protocol::v1::{ConnectionTo, Responder};
use agent_client_protocol::{Client, JsonRpcNotification, Lines};
use base::clock::Clock;
use base::event::{EventKind, NoticeLevel};
use base::failure::Result;
use base::process::GRACE;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use crate::exec::runner::Process;
use crate::launch::exit_reason::{self, ExitReason};
use crate::launch::message_buffer::MessageBuffer;
use crate::launch::session_settings::SessionSettings;
use crate::launch::update::{SessionUpdates, is_plausible};
use crate::launch::{
    AgentCommand, AgentEvent, Decision, LaunchParams, Launcher, RETRY_DELAYS, RunningAgent,
    cannot_start, permission, wire,
};
use crate::sandbox::SandboxFailure;

/// Timeout of `initialize` and of opening a conversation.
const START_TIMEOUT: Duration = Duration::from_secs(300);
/// How long an agent that writes other output may take to speak the protocol: some start with a
/// banner.
const BANNER_TIMEOUT: Duration = Duration::from_secs(5);

/// How long an agent may take to exit after its input was closed: one that is renewing its login
/// would lose it otherwise.
const EXIT_TIMEOUT: Duration = Duration::from_secs(4);

/// Starts agents of the agents table that speak ACP.
pub(crate) struct AcpLauncher;

impl Launcher for AcpLauncher {
    fn launch(&self, params: LaunchParams) -> BoxFuture<'static, Result<RunningAgent>> {
        Box::pin(async move {
            let command = params.row.command.clone();
            let mut attempts = 1;
            loop {
                let error = match start(params.clone()).await {
                    Ok(agent) => return Ok(agent),
                    Err(error) => error,
                };
                let delay = RETRY_DELAYS.get(attempts - 1).filter(|_| error.has_exited);
                match delay {
                    Some(delay) => tokio::time::sleep(*delay).await,
                    None if attempts > 1 => {
                        let reason = format!("{} ({attempts} attempts)", error.reason);
                        return Err(cannot_start(&command, reason));
                    }
                    None => return Err(cannot_start(&command, error.reason)),
                }
                attempts += 1;
            }
        })
    }
}

/// Starts the agent once.
async fn start(params: LaunchParams) -> std::result::Result<RunningAgent, StartError> {
    let process = params
        .runner
        .start(&params.row.command)
        .map_err(|failure| StartError::new(failure.into_cause().to_string()))?;
    let (commands, rx) = unbounded_channel();
    let (tx, events) = unbounded_channel();
    let (ready, started) = oneshot::channel();
    let runner = params.runner.clone();
    runner.wait_tracked(serve(params, process, Channels { rx, tx, ready: Some(ready) }));
    match tokio::time::timeout(START_TIMEOUT, started).await {
        Ok(Ok(opened)) => {
            let Opened { conversation_id, loaded } = opened?;
            Ok(RunningAgent { conversation_id, loaded, commands, events })
        }
        Ok(Err(_)) => Err(StartError::new("it exited before it answered a request")),
        Err(_) => Err(StartError::new("timed out after 300 s")),
    }
}

/// Why an agent did not start.
struct StartError {
    reason: String,
    /// Whether the program ran and exited with an error, for example because another of its
    /// processes was creating the same database.
    has_exited: bool,
}

impl StartError {
    fn new(reason: impl Into<String>) -> StartError {
        StartError { reason: reason.into(), has_exited: false }
    }
}

/// An event of g3, sent in addition to the protocol's updates.
#[derive(Clone, Debug, Serialize, Deserialize, JsonRpcNotification)]
#[notification(method = "_g3/event")]
struct G3Event {
    #[serde(rename = "sessionId")]
    session_id: Option<String>,
    event: Value,
}

/// The result of opening the conversation.
struct Opened {
    conversation_id: Option<String>,
    loaded: bool,
}

/// The channels of one agent.
struct Channels {
    rx: UnboundedReceiver<AgentCommand>,
    tx: UnboundedSender<AgentEvent>,
    /// Taken when the conversation is open.
    ready: Option<oneshot::Sender<std::result::Result<Opened, StartError>>>,
}

type Cx = ConnectionTo<agent_client_protocol::Agent>;
type OpenPermission = (Responder<RequestPermissionResponse>, Vec<PermissionOption>);

/// The state that the handlers and the command loop share.
struct Shared {
    tx: UnboundedSender<AgentEvent>,
    state: Mutex<ConnectionState>,
    requests: Mutex<PermissionRequests>,
    /// Whether the agent is known to be g3: its own events are used, and the protocol's updates,
    /// which duplicate them, are ignored.
    is_g3: bool,
    /// Whether it runs in the sandbox, which may deny it a file.
    sandboxed: bool,
}

/// The agent's permission requests.
struct PermissionRequests {
    /// The number of the last request of the session, which never uses a number again.
    numbers: Arc<AtomicU32>,
    pending: BTreeMap<u32, OpenPermission>,
}

/// What has been received so far.
struct ConnectionState {
    message: MessageBuffer,
    updates: SessionUpdates,
    /// The first line that is not JSON.
    invalid_line: Option<String>,
    /// Whether history of a loaded conversation is being replayed, which is not reported again.
    replaying: bool,
    turn_error: Option<String>,
    last_error: Option<String>,
}

async fn serve(params: LaunchParams, mut process: Process, mut channels: Channels) {
    let message = MessageBuffer::new(Clock::from_env()).published(params.live.clone());
    let state = ConnectionState {
        message,
        updates: SessionUpdates::default(),
        invalid_line: None,
        replaying: false,
        turn_error: None,
        last_error: None,
    };
    let shared = Arc::new(Shared {
        tx: channels.tx.clone(),
        state: Mutex::new(state),
        requests: Mutex::new(PermissionRequests {
            numbers: params.request_numbers.clone(),
            pending: BTreeMap::new(),
        }),
        is_g3: params.row.sends_events(),
        sandboxed: params.runner.is_confined(),
    });
    let stderr = process.running.child.stderr.take();
    let log = wire::SharedLog::open(&params.log, params.log_bytes);
    let stderr = tokio::spawn(wire::log_stream(stderr, log.clone()));
    let (invalid_line_tx, mut invalid_line_rx) = oneshot::channel();
    let sorter = wire::Sorter::new(invalid_line_tx, log);
    let received_json = sorter.received_json.clone();
    let end = tokio::select! {
        end = run_connection(&params, &mut process, &shared, &mut channels, sorter) => end,
        () = wait_invalid_output(&mut invalid_line_rx, &received_json, &shared) => ExitReason::NotAcp,
    };
    let timeout = if matches!(end, ExitReason::Requested) { EXIT_TIMEOUT } else { GRACE };
    let exited = tokio::time::timeout(timeout, process.running.child.wait()).await;
    let status = exited.ok().and_then(std::result::Result::ok);
    if status.is_none() {
        let _ = process.running.end(GRACE).await;
    }
    let Process { running, lifeline, report } = process;
    drop((running, lifeline));
    let stderr_text = tokio::time::timeout(GRACE, stderr).await;
    let stderr_text = stderr_text.ok().and_then(std::result::Result::ok).unwrap_or_default();
    shared.flush();
    let failure = report.read();
    if let Some(SandboxFailure::Limit(limit)) = failure {
        let _ = channels.tx.send(AgentEvent::LimitReached(limit));
    }
    if let Some(ready) = channels.ready.take() {
        let invalid_line =
            shared.lock().invalid_line.take().or_else(|| invalid_line_rx.try_recv().ok());
        let has_exited = matches!(end, ExitReason::Closed)
            && failure.is_none()
            && status.is_some_and(|status| !status.success());
        let reason = end.start_error(status, failure, &stderr_text, invalid_line, shared.sandboxed);
        let _ = ready.send(Err(StartError { reason, has_exited }));
    } else {
        let _ = channels.tx.send(AgentEvent::Exited(end.exit_message(
            status,
            &stderr_text,
            shared.sandboxed,
        )));
    }
}

/// Returns when a line was not JSON and no JSON followed for some time.
async fn wait_invalid_output(
    invalid_line: &mut oneshot::Receiver<String>,
    received_json: &AtomicBool,
    shared: &Shared,
) {
    let Ok(line) = invalid_line.await else { return std::future::pending().await };
    shared.lock().invalid_line = Some(line);
    tokio::time::sleep(BANNER_TIMEOUT).await;
    if received_json.load(Ordering::Relaxed) {
        std::future::pending().await
    }
}

/// Runs the connection until the agent exits or the command channel closes.
async fn run_connection(
    params: &LaunchParams,
    process: &mut Process,
    shared: &Arc<Shared>,
    channels: &mut Channels,
    sorter: wire::Sorter,
) -> ExitReason {
    let child = &mut process.running.child;
    let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
        return ExitReason::Closed;
    };
    let transport = Lines::new(wire::lines_out(stdin), wire::lines_in(stdout, sorter));
    let (on_update, on_event, on_request) = (shared.clone(), shared.clone(), shared.clone());
    let result = Client
        .v1()
        .on_receive_notification(
            async move |update: SessionNotification, _cx| {
                on_update.on_update(update);
                Ok(())
            },
            agent_client_protocol::on_receive_notification!(),
        )
        .on_receive_notification(
            async move |event: G3Event, _cx| {
                on_event.on_g3_event(event.event);
                Ok(())
            },
            agent_client_protocol::on_receive_notification!(),
        )
        .on_receive_request(
            async move |request: RequestPermissionRequest, responder, _cx| {
                on_request.on_permission_request(request, responder);
                Ok(())
            },
            agent_client_protocol::on_receive_request!(),
        )
        .connect_with(transport, async move |cx: Cx| {
            let (session, loaded) = tokio::select! {
                result = open(&cx, params, shared) => result?,
                () = wait_abandoned(&mut channels.rx) => return Ok(ExitReason::Requested),
            };
            if let Some(ready) = channels.ready.take() {
                let _ =
                    ready.send(Ok(Opened { conversation_id: Some(session.to_string()), loaded }));
            }
            command_loop(&cx, &session, shared, &mut channels.rx).await
        })
        .await;
    result.unwrap_or_else(|error| ExitReason::of(&error))
}

/// Returns when the caller no longer waits for the agent.
async fn wait_abandoned(rx: &mut UnboundedReceiver<AgentCommand>) {
    while !matches!(rx.recv().await, Some(AgentCommand::End) | None) {}
}

/// Initializes the protocol and opens the conversation: the recorded one if the agent can load it.
async fn open(
    cx: &Cx,
    params: &LaunchParams,
    shared: &Shared,
) -> std::result::Result<(SessionId, bool), agent_client_protocol::Error> {
    let request = InitializeRequest::new(ProtocolVersion::V1);
    let response = cx.send_request(request).block_task().await?;
    if let Some(conversation_id) =
        params.conversation_id.clone().filter(|_| response.agent_capabilities.load_session)
    {
        shared.set_replaying(true);
        let request = LoadSessionRequest::new(
            SessionId::new(conversation_id.clone()),
            params.worktree.clone(),
        );
        let loaded = cx.send_request(request).block_task().await;
        shared.set_replaying(false);
        if let Ok(loaded) = loaded {
            let id = SessionId::new(conversation_id);
            let offered = SessionSettings::new(loaded.config_options, loaded.modes);
            offered.apply(cx, &id, &params.row.options).await?;
            return Ok((id, true));
        }
    }
    let request = NewSessionRequest::new(params.worktree.clone());
    let response = cx.send_request(request).block_task().await?;
    let offered = SessionSettings::new(response.config_options, response.modes);
    offered.apply(cx, &response.session_id, &params.row.options).await?;
    Ok((response.session_id, false))
}

/// Sends commands as protocol messages until the channel closes.
async fn command_loop(
    cx: &Cx,
    session: &SessionId,
    shared: &Arc<Shared>,
    rx: &mut UnboundedReceiver<AgentCommand>,
) -> std::result::Result<ExitReason, agent_client_protocol::Error> {
    loop {
        let command = tokio::select! {
            command = rx.recv() => command,
            // Its process ended; `serve` reports how.
            () = cx.incoming_closed() => return Ok(ExitReason::Closed),
        };
        match command {
            Some(AgentCommand::Prompt(text)) => {
                let prompt = PromptRequest::new(
                    session.clone(),
                    vec![ContentBlock::Text(TextContent::new(text))],
                );
                let response = cx.send_request(prompt);
                let shared = shared.clone();
                cx.spawn(async move {
                    let stop_reason =
                        response.block_task().await.map(|response| response.stop_reason);
                    shared.on_turn_end(stop_reason);
                    Ok(())
                })?;
            }
            Some(AgentCommand::Answer { n, decision }) => shared.answer(n, &decision)?,
            Some(AgentCommand::Cancel) => {
                cx.send_notification(CancelNotification::new(session.clone()))?
            }
            Some(AgentCommand::End) | None => return Ok(ExitReason::Requested),
        }
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, ConnectionState> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn set_replaying(&self, replaying: bool) {
        let mut state = self.lock();
        state.replaying = replaying;
        let _ = state.message.take_message();
    }

    fn send_events(&self, events: Vec<Value>) {
        for event in events {
            let _ = self.tx.send(AgentEvent::Event(event));
        }
    }

    fn flush(&self) {
        let mut state = self.lock();
        let state = &mut *state;
        let mut events = state.updates.drain_pending(&mut state.message);
        events.extend(state.message.take_message());
        self.send_events(events);
    }

    fn on_update(&self, update: SessionNotification) {
        let mut state = self.lock();
        if self.is_g3 || state.replaying {
            return;
        }
        let state = &mut *state;
        self.send_events(state.updates.on_update(update.update, &mut state.message));
    }

    fn on_g3_event(&self, event: Value) {
        let mut state = self.lock();
        if !self.is_g3 || state.replaying {
            return;
        }
        match serde_json::from_value::<EventKind>(event.clone()) {
            Ok(EventKind::Error { text, .. }) => state.last_error = Some(text),
            Ok(EventKind::End { status, .. }) => {
                let error = state.last_error.take();
                state.turn_error = exit_reason::g3_error(status, error);
            }
            Ok(EventKind::Usage { usage }) if !is_plausible(&usage) => {
                let text = "ignored an implausible usage that the agent reported".to_owned();
                let events = state
                    .message
                    .push_event(EventKind::Notice { level: NoticeLevel::Warning, text });
                return self.send_events(events);
            }
            Ok(_) | Err(_) => {}
        }
        let events = state.message.push_foreign(event);
        self.send_events(events);
    }

    fn on_permission_request(
        &self,
        mut request: RequestPermissionRequest,
        responder: Responder<RequestPermissionResponse>,
    ) {
        let tool_call = &mut request.tool_call;
        if tool_call.fields.raw_input.is_none() {
            tool_call.fields.raw_input =
                self.lock().updates.args_of(&tool_call.tool_call_id.to_string());
        }
        self.flush();
        self.lock().updates.on_request(&request.tool_call);
        let mut requests = self.lock_requests();
        let number = requests.numbers.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let description = permission::describe(number, &request.tool_call, self.is_g3);
        requests.pending.insert(number, (responder, request.options));
        let _ = self.tx.send(AgentEvent::PermissionRequested(description));
    }

    fn lock_requests(&self) -> std::sync::MutexGuard<'_, PermissionRequests> {
        self.requests.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn answer(
        &self,
        number: u32,
        decision: &Decision,
    ) -> std::result::Result<(), agent_client_protocol::Error> {
        let mut requests = self.lock_requests();
        match requests.pending.remove(&number) {
            Some((responder, options)) => {
                responder.respond(permission::response(&options, decision))
            }
            // Its turn ended before the answer arrived.
            None if number <= requests.numbers.load(Ordering::Relaxed) => Ok(()),
            None => Err(agent_client_protocol::Error::internal_error()
                .data(format!("no such permission request: {number}"))),
        }
    }

    /// Cancels the open requests of a turn that has ended.
    fn cancel_requests(&self) {
        let pending = std::mem::take(&mut self.lock_requests().pending);
        for (responder, _) in pending.into_values() {
            let cancelled = RequestPermissionOutcome::Cancelled;
            let _ = responder.respond(RequestPermissionResponse::new(cancelled));
        }
    }

    fn on_turn_end(
        &self,
        stop_reason: std::result::Result<StopReason, agent_client_protocol::Error>,
    ) {
        self.flush();
        self.cancel_requests();
        let turn_error = self.lock().turn_error.take();
        let error = match stop_reason {
            Ok(reason) => exit_reason::stop_error(reason, turn_error),
            // Its process ended: `serve`, which waits for it, reports how.
            Err(e) if agent_client_protocol::is_incoming_transport_closed(&e) => return,
            Err(e) => Some(turn_error.unwrap_or_else(|| {
                exit_reason::with_sandbox_hint(wire::sentence(&e), self.sandboxed)
            })),
        };
        let _ = self.tx.send(AgentEvent::TurnEnded(error));
    }
}
