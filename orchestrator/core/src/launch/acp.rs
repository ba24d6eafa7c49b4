//! An agent over the Agent Client Protocol v1: JSON-RPC on its stdio, without client files or
//! terminals.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
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
use crate::launch::update::{SessionUpdates, is_plausible};
use crate::launch::{
    AgentCommand, AgentEvent, Decision, LaunchParams, Launcher, RunningAgent, cannot_start,
    permission, wire,
};

/// Timeout of `initialize` and of opening a conversation.
const START: Duration = Duration::from_secs(120);
/// How long an agent that writes other output may take to speak the protocol: some start with a
/// banner.
const BANNER: Duration = Duration::from_secs(5);

/// How long an agent may take to exit after its input was closed: one that is renewing its login
/// would lose it otherwise.
const LEAVE: Duration = Duration::from_secs(4);

/// Starts agents of the agents table that speak ACP.
pub(crate) struct AcpLauncher;

impl Launcher for AcpLauncher {
    fn launch(&self, params: LaunchParams) -> BoxFuture<'static, Result<RunningAgent>> {
        Box::pin(async move {
            let command = params.row.command.clone();
            let process = params
                .room
                .start(&command)
                .map_err(|failure| cannot_start(&command, failure.into_cause()))?;
            let (orders, rx) = unbounded_channel();
            let (tx, news) = unbounded_channel();
            let (ready, started) = oneshot::channel();
            let room = params.room.clone();
            room.wait_tracked(serve(params, process, Channels { rx, tx, ready: Some(ready) }));
            match tokio::time::timeout(START, started).await {
                Ok(Ok(Ok(Opened { conversation_id, loaded }))) => {
                    Ok(RunningAgent { conversation_id, loaded, orders, news })
                }
                Ok(Ok(Err(why))) => Err(cannot_start(&command, why)),
                Ok(Err(_)) => Err(cannot_start(&command, "it exited before it answered a request")),
                Err(_) => Err(cannot_start(&command, "timed out after 120 s")),
            }
        })
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
    ready: Option<oneshot::Sender<std::result::Result<Opened, String>>>,
}

type Cx = ConnectionTo<agent_client_protocol::Agent>;
type OpenPermission = (Responder<RequestPermissionResponse>, Vec<PermissionOption>);

/// The state that the handlers and the command loop share.
struct Shared {
    tx: UnboundedSender<AgentEvent>,
    state: Mutex<ConnectionState>,
    asks: Mutex<Asks>,
    /// Whether the agent is known to be g3: its own events are used, and the protocol's updates,
    /// which duplicate them, are ignored.
    is_g3: bool,
    /// Whether it runs in the sandbox, which may deny it a file.
    sandboxed: bool,
}

/// The agent's permission requests.
struct Asks {
    /// The last number; a session never reuses numbers.
    last: u32,
    open: BTreeMap<u32, OpenPermission>,
}

/// What has been received so far.
struct ConnectionState {
    message: MessageBuffer,
    updates: SessionUpdates,
    /// The first line that is not JSON.
    strange: Option<String>,
    /// Whether history of a loaded conversation is being replayed, which is not reported again.
    replay: bool,
    failed: Option<String>,
    last_error: Option<String>,
}

async fn serve(params: LaunchParams, mut process: Process, mut channels: Channels) {
    let message = MessageBuffer::new(Clock::from_env());
    let state = ConnectionState {
        message,
        updates: SessionUpdates::default(),
        strange: None,
        replay: false,
        failed: None,
        last_error: None,
    };
    let shared = Arc::new(Shared {
        tx: channels.tx.clone(),
        state: Mutex::new(state),
        asks: Mutex::new(Asks { last: params.asked, open: BTreeMap::new() }),
        is_g3: params.row.sends_events(),
        sandboxed: params.room.is_confined(),
    });
    let stderr = process.running.child.stderr.take();
    let log = wire::SharedLog::open(&params.log, params.log_bytes);
    let stderr = tokio::spawn(wire::log_stream(stderr, log.clone()));
    let (strange, mut first) = oneshot::channel();
    let sorter = wire::Sorter::new(strange, log);
    let spoke = sorter.spoke.clone();
    let end = tokio::select! {
        end = converse(&params, &mut process, &shared, &mut channels, sorter) => end,
        () = speaks_no_acp(&mut first, &spoke, &shared) => ExitReason::Strange,
    };
    let patience = if matches!(end, ExitReason::Told) { LEAVE } else { GRACE };
    let ended = tokio::time::timeout(patience, process.running.child.wait()).await;
    let status = ended.ok().and_then(std::result::Result::ok);
    if status.is_none() {
        let _ = process.running.end(GRACE).await;
    }
    let Process { running, lifeline, report } = process;
    drop((running, lifeline));
    let said = tokio::time::timeout(GRACE, stderr).await;
    let said = said.ok().and_then(std::result::Result::ok).unwrap_or_default();
    shared.flush();
    if let Some(ready) = channels.ready.take() {
        let line = shared.lock().strange.take().or_else(|| first.try_recv().ok());
        let _ = ready.send(Err(end.before_it_opened(
            status,
            report.read(),
            &said,
            line,
            shared.sandboxed,
        )));
    } else {
        let _ = channels.tx.send(AgentEvent::Gone(end.why(status, &said, shared.sandboxed)));
    }
}

/// Returns when a line was not JSON and no JSON followed for some time.
async fn speaks_no_acp(first: &mut oneshot::Receiver<String>, spoke: &AtomicBool, shared: &Shared) {
    let Ok(line) = first.await else { return std::future::pending().await };
    shared.lock().strange = Some(line);
    tokio::time::sleep(BANNER).await;
    if spoke.load(Ordering::Relaxed) {
        std::future::pending().await
    }
}

/// Runs the connection until the agent exits or the command channel closes.
async fn converse(
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
    let (updates, events, requests) = (shared.clone(), shared.clone(), shared.clone());
    let ended = Client
        .v1()
        .on_receive_notification(
            async move |update: SessionNotification, _cx| {
                updates.update(update);
                Ok(())
            },
            agent_client_protocol::on_receive_notification!(),
        )
        .on_receive_notification(
            async move |event: G3Event, _cx| {
                events.own_event(event.event);
                Ok(())
            },
            agent_client_protocol::on_receive_notification!(),
        )
        .on_receive_request(
            async move |request: RequestPermissionRequest, responder, _cx| {
                requests.asked(request, responder);
                Ok(())
            },
            agent_client_protocol::on_receive_request!(),
        )
        .connect_with(transport, async move |cx: Cx| {
            let (session, loaded) = tokio::select! {
                opened = open(&cx, params, shared) => opened?,
                () = given_up(&mut channels.rx) => return Ok(ExitReason::Told),
            };
            if let Some(ready) = channels.ready.take() {
                let _ =
                    ready.send(Ok(Opened { conversation_id: Some(session.to_string()), loaded }));
            }
            command_loop(&cx, &session, shared, &mut channels.rx).await
        })
        .await;
    ended.unwrap_or_else(|error| ExitReason::of(&error))
}

/// Returns when the caller no longer waits for the agent.
async fn given_up(rx: &mut UnboundedReceiver<AgentCommand>) {
    while !matches!(rx.recv().await, Some(AgentCommand::End) | None) {}
}

/// Initializes the protocol and opens the conversation: the recorded one if the agent can load it.
async fn open(
    cx: &Cx,
    params: &LaunchParams,
    shared: &Shared,
) -> std::result::Result<(SessionId, bool), agent_client_protocol::Error> {
    let hello = InitializeRequest::new(ProtocolVersion::V1);
    let hello = cx.send_request(hello).block_task().await?;
    if let Some(conversation_id) =
        params.conversation_id.clone().filter(|_| hello.agent_capabilities.load_session)
    {
        shared.replay(true);
        let load = LoadSessionRequest::new(
            SessionId::new(conversation_id.clone()),
            params.worktree.clone(),
        );
        let loaded = cx.send_request(load).block_task().await;
        shared.replay(false);
        if loaded.is_ok() {
            return Ok((SessionId::new(conversation_id), true));
        }
    }
    let new = NewSessionRequest::new(params.worktree.clone());
    let opened = cx.send_request(new).block_task().await?;
    Ok((opened.session_id, false))
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
                let answer = cx.send_request(prompt);
                let shared = shared.clone();
                cx.spawn(async move {
                    let stop = answer.block_task().await.map(|response| response.stop_reason);
                    shared.turn_ended(stop);
                    Ok(())
                })?;
            }
            Some(AgentCommand::Answer { n, decision }) => shared.answer(n, &decision)?,
            Some(AgentCommand::Cancel) => {
                cx.send_notification(CancelNotification::new(session.clone()))?
            }
            Some(AgentCommand::End) | None => return Ok(ExitReason::Told),
        }
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, ConnectionState> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn replay(&self, on: bool) {
        let mut state = self.lock();
        state.replay = on;
        let _ = state.message.message();
    }

    fn tell(&self, events: Vec<Value>) {
        for event in events {
            let _ = self.tx.send(AgentEvent::Event(event));
        }
    }

    fn flush(&self) {
        let mut state = self.lock();
        let state = &mut *state;
        let mut all = state.updates.rest(&mut state.message);
        all.extend(state.message.message());
        self.tell(all);
    }

    fn update(&self, update: SessionNotification) {
        let mut state = self.lock();
        if self.is_g3 || state.replay {
            return;
        }
        let state = &mut *state;
        self.tell(state.updates.hear(update.update, &mut state.message));
    }

    fn own_event(&self, event: Value) {
        let mut state = self.lock();
        if !self.is_g3 || state.replay {
            return;
        }
        match serde_json::from_value::<EventKind>(event.clone()) {
            Ok(EventKind::Error { text, .. }) => state.last_error = Some(text),
            Ok(EventKind::End { status, .. }) => {
                let error = state.last_error.take();
                state.failed = exit_reason::of_g3(status, error);
            }
            Ok(EventKind::Usage { usage }) if !is_plausible(&usage) => {
                let text = "ignored an implausible usage that the agent reported".to_owned();
                let events =
                    state.message.event(EventKind::Notice { level: NoticeLevel::Warning, text });
                return self.tell(events);
            }
            Ok(_) | Err(_) => {}
        }
        let events = state.message.foreign(event);
        self.tell(events);
    }

    fn asked(
        &self,
        mut request: RequestPermissionRequest,
        responder: Responder<RequestPermissionResponse>,
    ) {
        let call = &mut request.tool_call;
        if call.fields.raw_input.is_none() {
            call.fields.raw_input = self.lock().updates.args_of(&call.tool_call_id.to_string());
        }
        self.flush();
        let mut asks = self.asks();
        asks.last = asks.last.saturating_add(1);
        let n = asks.last;
        let described = permission::describe(n, &request.tool_call, self.is_g3);
        asks.open.insert(n, (responder, request.options));
        let _ = self.tx.send(AgentEvent::Asked(described));
    }

    fn asks(&self) -> std::sync::MutexGuard<'_, Asks> {
        self.asks.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn answer(
        &self,
        n: u32,
        decision: &Decision,
    ) -> std::result::Result<(), agent_client_protocol::Error> {
        let mut asks = self.asks();
        match asks.open.remove(&n) {
            Some((responder, options)) => {
                responder.respond(permission::response(&options, decision))
            }
            // Its turn ended before the answer arrived.
            None if n <= asks.last => Ok(()),
            None => Err(agent_client_protocol::Error::internal_error()
                .data(format!("no such permission request: {n}"))),
        }
    }

    /// Cancels the open requests of a turn that has ended.
    fn forget_asks(&self) {
        let open = std::mem::take(&mut self.asks().open);
        for (responder, _) in open.into_values() {
            let cancelled = RequestPermissionOutcome::Cancelled;
            let _ = responder.respond(RequestPermissionResponse::new(cancelled));
        }
    }

    fn turn_ended(&self, stop: std::result::Result<StopReason, agent_client_protocol::Error>) {
        self.flush();
        self.forget_asks();
        let failed = self.lock().failed.take();
        let why = match stop {
            Ok(reason) => exit_reason::why_stopped(reason, failed),
            // Its process ended: `serve`, which waits for it, reports how.
            Err(e) if agent_client_protocol::is_incoming_transport_closed(&e) => return,
            Err(e) => Some(
                failed
                    .unwrap_or_else(|| exit_reason::explained(wire::sentence(&e), self.sandboxed)),
            ),
        };
        let _ = self.tx.send(AgentEvent::TurnEnded(why));
    }
}
