//! Runs a supervisor: receives events of the agent, the control socket and the clock, and carries
//! out the actions that `step` returns.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base::clock::Clock;
use base::config::studio::{AgentProtocol, AgentRow, SessionLimits};
use base::failure::{Failure, OrFail, Result};
use base::files::step as durable_step;
use base::text::count;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::exec::network::NetworkRequest;
use crate::exec::runner::SandboxedRunner;
use crate::launch::acp::AcpLauncher;
use crate::launch::command::CommandLauncher;
use crate::launch::live_message::LiveMessages;
use crate::launch::requirements;
use crate::launch::{
    AgentCommand, AgentEvent, Decision, LaunchParams, Launcher, PermissionRequest, RunningAgent,
};
use crate::notification::Notifier;
use crate::pool_process::PoolFiller;
use crate::radar::SessionConflict;
use crate::rate_limit::Account;
use crate::run_budget;
use crate::session::journal::{JournalEntry, JournalWriter, SessionOutcome};
use crate::session::record::SessionRecord;
use crate::session::store::SessionStore;
use crate::session::summary::Phase;
use crate::supervisor::account_watch::AccountWatch;
use crate::supervisor::control::{self, ControlCall, ControlChannels};
use crate::supervisor::keep::WorkKeeper;
use crate::supervisor::network::{self, NetworkQuestions};
use crate::supervisor::stall::{StallChange, StallDetector};
use crate::supervisor::step::{
    self, ConversationMemory, Input, RunState, SupervisorAction, step as decide,
};
use crate::supervisor::tasks;
use studio_git::repo::Repository;

/// How long an agent may take to end its turn when asked to.
const CANCEL_GRACE: Duration = Duration::from_secs(5);
/// How long agent and checks may take to exit at the end; after that they are killed.
const EXIT_TIMEOUT: Duration = Duration::from_secs(20);
/// The interval of checks that the session was not deleted.
const DELETION_INTERVAL: Duration = Duration::from_secs(3);
/// The interval of scheduler calls and of disk space checks.
const TICK_INTERVAL: Duration = Duration::from_secs(30);
/// Default maximum number of bytes of raw output that are kept.
const DEFAULT_LOG_BYTES: u64 = 64 << 20;

/// Maximum size of a permission request in bytes; a longer one is not readable for a person and is
/// denied.
const MAX_REQUEST_BYTES: usize = 16 << 10;

const CANNOT_WRITE_JOURNAL: &str = "cannot write the journal";

/// Returns the base branch if the check also fails without the session's work.
pub(crate) type FailsOnBase = Arc<dyn Fn(&str, CancellationToken) -> Option<String> + Send + Sync>;

/// The parameters of a supervisor.
pub(crate) struct SupervisorConfig {
    /// The repository.
    pub repository: Repository,
    /// The session.
    pub record: SessionRecord,
    /// The entry of its agent.
    pub row: AgentRow,
    /// Runs the agent.
    pub runner: SandboxedRunner,
    /// Runs the checks, if there are any.
    pub check_runner: Option<SandboxedRunner>,
    /// Runs the lines of the setup, if there are any.
    pub setup_runner: Option<SandboxedRunner>,
    /// Prepares worktrees for later sessions.
    pub pool_filler: PoolFiller,
    /// The directories that a new worktree gets from the main checkout; by lock file when absent.
    pub caches: Option<Vec<PathBuf>>,
    /// `sh -c` lines that prepare a new worktree.
    pub setup: Vec<String>,
    /// The configured limits.
    pub limits: SessionLimits,
    /// Returns the base branch if a check fails on its tip as well. It takes as long as the check,
    /// and can be cancelled.
    pub fails_on_base: FailsOnBase,
    /// Whether the agent is told which sessions change the same lines.
    pub conflict_notes: bool,
    /// Notifies the user.
    pub notifier: Notifier,
    /// The account with which the agent asks its model.
    pub account: Account,
    /// The cost that a run reserves for a session without a budget of its own.
    pub expected_usd: f64,
    /// Called every 30 seconds.
    pub on_tick: Box<dyn Fn()>,
}

impl SupervisorConfig {
    fn runners(&self) -> impl Iterator<Item = &SandboxedRunner> {
        [Some(&self.runner), self.check_runner.as_ref(), self.setup_runner.as_ref()]
            .into_iter()
            .flatten()
    }
}

/// Supervises one run from its start to its exit entry. The caller holds the session's lock.
pub(crate) async fn run(config: SupervisorConfig) -> Result<SessionOutcome> {
    let clock = Clock::from_env();
    let store = SessionStore::new(&config.repository.common_dir);
    let id = &config.record.id;
    let journal = store.writer(id, clock)?;
    let memory = match config.row.protocol {
        AgentProtocol::Acp => ConversationMemory::Persistent,
        AgentProtocol::Command if config.row.resume.is_empty() => ConversationMemory::PerTurn,
        AgentProtocol::Command => ConversationMemory::Continued,
    };
    let state = RunState::new(config.record.clone(), store.summary(id)?, memory)
        .with_conflict_notes(config.conflict_notes);
    let (network, mut network_rx) =
        NetworkQuestions::new(config.runners(), state.summary.last_request);
    let (requests_tx, requests_rx) = mpsc::unbounded_channel();
    let live = LiveMessages::default();
    let channels = ControlChannels { requests: requests_tx, live: live.clone() };
    let _endpoint = control::serve(&config.repository.common_dir, id, channels)
        .or_fail(|| "cannot open the control socket")?;
    let (tx, rx) = mpsc::unbounded_channel();
    // The limit applies to all runs together.
    let elapsed = Duration::from_millis(state.summary.worked_ms);
    let remaining = |seconds| Duration::from_secs(seconds).saturating_sub(elapsed);
    let timeout = state.limits().seconds.map(remaining);
    let account = AccountWatch::start(config.account.clone(), id.as_str(), clock);
    let log = store.file(id, "agent.log");
    let stall = StallDetector::new(config.limits.stall_seconds, log.clone());
    let work_keeper = WorkKeeper::new(&config.record);
    let mut supervisor = Supervisor {
        log,
        config,
        journal,
        state,
        tx,
        agent: None,
        network,
        live,
        network_noted: false,
        started: Instant::now(),
        setup_cancel: CancellationToken::new(),
        checks: None,
        launch_task: None,
        kill_at: None,
        // A limit that the clock cannot count to is never reached.
        deadline: timeout.and_then(|time| Instant::now().checked_add(time)),
        account,
        stall,
        parked_since: None,
        parked: Duration::ZERO,
        work_keeper,
    };
    supervisor.handle_input(Input::Begin { pid: std::process::id() })?;
    let outcome = supervisor.event_loop(rx, requests_rx, &mut network_rx).await?;
    // No process may be left when another command takes the session's lock.
    let all_ended = async {
        for runner in supervisor.config.runners() {
            runner.wait_all().await;
        }
    };
    let _ = tokio::time::timeout(EXIT_TIMEOUT, all_ended).await;
    Ok(outcome)
}

/// A running supervisor.
struct Supervisor {
    config: SupervisorConfig,
    journal: JournalWriter,
    state: RunState,
    log: PathBuf,
    tx: UnboundedSender<InternalEvent>,
    agent: Option<RunningAgent>,
    network: NetworkQuestions,
    live: LiveMessages,
    network_noted: bool,
    started: Instant,
    setup_cancel: CancellationToken,
    checks: Option<JoinHandle<()>>,
    launch_task: Option<JoinHandle<()>>,
    kill_at: Option<Instant>,
    /// When the time limit is reached.
    deadline: Option<Instant>,
    account: AccountWatch,
    stall: StallDetector,
    /// Since when the session is parked.
    parked_since: Option<Instant>,
    /// How long it was parked before.
    parked: Duration,
    work_keeper: WorkKeeper,
}

impl Supervisor {
    /// Receives events and acts on them until the exit entry is written.
    async fn event_loop(
        &mut self,
        mut rx: UnboundedReceiver<InternalEvent>,
        mut requests_rx: UnboundedReceiver<ControlCall>,
        network_rx: &mut UnboundedReceiver<NetworkRequest>,
    ) -> Result<SessionOutcome> {
        let mut tick = tokio::time::interval(TICK_INTERVAL);
        tick.tick().await;
        let mut deletion_check = tokio::time::interval(DELETION_INTERVAL);
        loop {
            if let Phase::Ended { outcome } = &self.state.summary.phase {
                return Ok(outcome.clone());
            }
            let stall_deadline = self.stall_deadline();
            tokio::select! {
                Some(event) = rx.recv() => self.on_internal_event(event)?,
                Some((request, reply_tx)) = requests_rx.recv() => {
                    let reply = self.on_request(request)?;
                    let _ = reply_tx.send(reply);
                }
                event = next_agent_event(&mut self.agent) => self.on_agent_event(event)?,
                Some(request) = network_rx.recv() => self.on_network_request(request)?,
                () = self.account.changed() => {
                    let input = self.account.check(self.state.is_parked());
                    self.handle_optional(input)?;
                }
                () = sleep_until(stall_deadline) => {
                    let input = self.stall.check().map(|why| Input::Stalled { why });
                    self.handle_optional(input)?;
                }
                () = sleep_until(self.deadline.filter(|_| self.parked_since.is_none())) => {
                    self.deadline = None;
                    let seconds = self.state.limits().seconds.unwrap_or_default();
                    self.handle_input(Input::Limit { limit: count(seconds, "second") })?;
                }
                () = sleep_until(self.kill_at) => {
                    self.kill_at = None;
                    // Dropping the agent ends its process and its sandbox.
                    self.agent = None;
                    self.launch_task.take().inspect(JoinHandle::abort);
                    self.handle_input(Input::AgentExited { reason: "it did not exit when it was asked to".into() })?;
                }
                _ = deletion_check.tick() => {
                    let directory = self.log.parent();
                    if directory.is_some_and(|directory| !directory.is_dir()) {
                        return Err(Failure::failed("the session's directory was deleted"));
                    }
                }
                () = self.work_keeper.due(), if self.state.summary.in_turn => {
                    self.work_keeper.start(tasks::collect_work(&self.config), self.tx.clone());
                }
                _ = tick.tick() => {
                    (self.config.on_tick)();
                    if let Some(limit) = tasks::low_disk_space(&self.config) {
                        self.handle_input(Input::Limit { limit })?;
                    }
                }
            }
        }
    }

    fn handle_input(&mut self, input: Input) -> Result<()> {
        for action in decide(&mut self.state, input) {
            self.execute(action)?;
        }
        self.count_parking();
        Ok(())
    }

    /// Returns the limit if the sessions of the run have used up their total budget.
    fn total_budget_limit(&self) -> Option<Input> {
        let SupervisorConfig { repository, record, expected_usd, .. } = &self.config;
        let store = SessionStore::new(&repository.common_dir);
        let (limits, summary) = (self.state.limits(), &self.state.summary);
        let total = run_budget::used_up(&store, record, &limits, summary, *expected_usd)?;
        Some(Input::Limit { limit: format!("a total budget of ${total:.2} for its run") })
    }

    /// Returns when the agent counts as stuck, if it is expected to send events.
    fn stall_deadline(&self) -> Option<Instant> {
        self.stall.deadline().filter(|_| self.state.expects_events())
    }

    /// Returns what an event says about a stall.
    fn stall_change(&mut self, event: &serde_json::Value) -> Option<Input> {
        match self.stall.on_event(event) {
            StallChange::Began(why) => Some(Input::Stalled { why }),
            StallChange::Progress => self.state.is_stalled().then_some(Input::StallEnded),
            StallChange::Unchanged => None,
        }
    }

    fn handle_optional(&mut self, input: Option<Input>) -> Result<()> {
        input.map_or(Ok(()), |input| self.handle_input(input))
    }

    /// Time during which the session is parked does not count.
    fn count_parking(&mut self) {
        match (self.state.is_parked(), self.parked_since) {
            (true, None) => self.parked_since = Some(Instant::now()),
            (false, Some(since)) => {
                self.parked_since = None;
                self.parked += since.elapsed();
                self.deadline =
                    self.deadline.and_then(|deadline| deadline.checked_add(since.elapsed()));
            }
            (true, Some(_)) | (false, None) => {}
        }
    }

    /// Returns how long the run has worked.
    fn worked(&self) -> Duration {
        let parked = self.parked_since.map_or(Duration::ZERO, |since| since.elapsed());
        self.started.elapsed().saturating_sub(self.parked + parked)
    }

    fn on_internal_event(&mut self, event: InternalEvent) -> Result<()> {
        match event {
            InternalEvent::Input(input) => self.handle_input(input),
            InternalEvent::Launched(agent) => {
                let (conversation_id, loaded) = (agent.conversation_id.clone(), agent.loaded);
                self.kill_at = None;
                self.agent = Some(agent);
                self.note_missing_network()?;
                let limit = self.account.check_before_prompt();
                self.handle_optional(limit)?;
                self.handle_input(Input::Launched { conversation_id, loaded })
            }
        }
    }

    /// Notes once what the kernel cannot enforce of the network, which is known after the first
    /// process started.
    fn note_missing_network(&mut self) -> Result<()> {
        match self.config.runner.missing_network() {
            Some(text) if !std::mem::replace(&mut self.network_noted, true) => {
                self.handle_input(Input::Note { text })
            }
            Some(_) | None => Ok(()),
        }
    }

    fn on_agent_event(&mut self, event: Option<AgentEvent>) -> Result<()> {
        self.note_missing_network()?;
        match event {
            Some(AgentEvent::Event(event)) => {
                let limit = self.account.on_event(&event);
                let stall = self.stall_change(&event);
                self.handle_optional(stall)?;
                let is_usage = event["type"] == "usage";
                self.handle_input(Input::Event { event })?;
                let budget = is_usage.then(|| self.total_budget_limit()).flatten();
                self.handle_optional(budget)?;
                self.handle_optional(limit)
            }
            Some(AgentEvent::ConversationStarted(id)) => {
                self.handle_input(Input::ConversationStarted { id })
            }
            Some(AgentEvent::ConversationLost) => self.handle_input(Input::ConversationLost),
            Some(AgentEvent::PermissionRequested(request)) => {
                let PermissionRequest { number, description, rule, writes } = request;
                let is_closed = |path: &PathBuf| !self.config.runner.may_write(path);
                let futile_reason = match writes.iter().find(|path| is_closed(path)) {
                    _ if description.len() > MAX_REQUEST_BYTES => Some(format!(
                        "it is {} bytes long, and no more than {MAX_REQUEST_BYTES} are shown",
                        description.len()
                    )),
                    Some(path) => Some(sandbox_denial(path)),
                    None => None,
                };
                let description = match description.len() > MAX_REQUEST_BYTES {
                    true => format!("{}…", base::text::head(&description, MAX_REQUEST_BYTES / 8)),
                    false => description,
                };
                self.handle_input(Input::PermissionRequested(step::PermissionAsk {
                    number,
                    description,
                    rule,
                    host: None,
                    futile_reason,
                }))
            }
            Some(AgentEvent::LimitReached(limit)) => {
                self.handle_input(Input::SandboxLimit { limit })
            }
            Some(AgentEvent::TurnEnded(reason)) => {
                let last_message = self.state.summary.last_message.as_deref();
                let limit = self.account.on_turn_end(reason.as_deref(), last_message);
                let reason = match (&limit, reason) {
                    // The last message of the agent is the error.
                    (Some(Input::RateLimited { why, .. }), None) => Some(why.clone()),
                    (_, reason) => reason.map(|reason| self.with_network_hint(reason)),
                };
                self.handle_optional(limit)?;
                self.handle_input(Input::TurnEnded { reason })
            }
            Some(AgentEvent::Exited(reason)) => {
                self.agent = None;
                if self.state.summary.in_turn {
                    let limit = self.account.on_turn_end(Some(&reason), None);
                    self.handle_optional(limit)?;
                }
                let reason = self.with_network_hint(reason);
                self.handle_input(Input::AgentExited { reason })
            }
            None => {
                self.agent = None;
                self.handle_input(Input::AgentExited { reason: "the agent ended".into() })
            }
        }
    }

    /// Handles a request from the control socket and returns the response.
    fn on_request(
        &mut self,
        request: control::ControlRequest,
    ) -> Result<std::result::Result<(), String>> {
        let input = match request {
            // The socket answers the second one itself.
            control::ControlRequest::Status | control::ControlRequest::Follow => return Ok(Ok(())),
            control::ControlRequest::Send { text } => Input::Send { text },
            control::ControlRequest::Stop => Input::Stop { why: None },
            control::ControlRequest::StopBecause { why } => Input::Stop { why: Some(why) },
            control::ControlRequest::SameLines { id, files } => {
                Input::SameLines { conflicts: vec![SessionConflict { id, files }] }
            }
            control::ControlRequest::Answer { n, allow, always } => match self.find_open_request(n)
            {
                Ok(n) => Input::Answer { n, allow, always },
                Err(error) => return Ok(Err(error)),
            },
        };
        self.handle_input(input)?;
        self.journal.sync().or_fail(|| CANNOT_WRITE_JOURNAL)?;
        Ok(Ok(()))
    }

    fn find_open_request(&self, n: Option<u32>) -> std::result::Result<u32, String> {
        let open_numbers: Vec<u32> = self.state.summary.open_requests.keys().copied().collect();
        match (n, open_numbers.as_slice()) {
            (Some(n), numbers) if numbers.contains(&n) => Ok(n),
            (Some(n), _) => Err(format!("no open permission request {n}")),
            (None, [number]) => Ok(*number),
            (None, []) => Err("no open permission request".to_owned()),
            (None, numbers) => {
                Err(format!("several permission requests are open; name one: {numbers:?}"))
            }
        }
    }

    fn execute(&mut self, action: SupervisorAction) -> Result<()> {
        match action {
            SupervisorAction::Write(mut entry) => {
                if let JournalEntry::Exit { ms, .. } = &mut entry {
                    *ms = u64::try_from(self.worked().as_millis()).ok();
                }
                if let JournalEntry::Turn { log_bytes, .. } = &mut entry {
                    *log_bytes = std::fs::metadata(&self.log).ok().map(|log| log.len());
                }
                return self.journal.write(entry).or_fail(|| CANNOT_WRITE_JOURNAL);
            }
            SupervisorAction::NotifyRequest { reason } => {
                self.config.notifier.notify("waiting", &reason);
            }
            SupervisorAction::MakeWorktree => self.make_worktree(),
            SupervisorAction::CancelSetup => self.setup_cancel.cancel(),
            SupervisorAction::Launch { conversation_id } => self.launch(conversation_id),
            SupervisorAction::Prompt { text, recap } => {
                self.stall.restart();
                let text = if recap {
                    tasks::append_diff(&self.config, self.state.summary.work.as_ref(), text)
                } else {
                    text
                };
                self.send_command(AgentCommand::Prompt(requirements::prompt(
                    &self.config.record.plan_ref,
                    text,
                )));
            }
            SupervisorAction::Answer { n, decision } => self.answer(n, decision),
            SupervisorAction::Cancel => {
                self.send_command(AgentCommand::Cancel);
                self.kill_at = Some(Instant::now() + CANCEL_GRACE);
            }
            SupervisorAction::Import => {
                self.kill_at = None;
                return self.import();
            }
            SupervisorAction::Compare => {
                durable_step("supervise.compare");
                let tx = self.tx.clone();
                let task = tasks::compare(&self.config);
                tokio::spawn(async move {
                    let input = Input::Compared { conflicts: task.await };
                    tx.send(InternalEvent::Input(input))
                });
            }
            SupervisorAction::Check => {
                let tx = self.tx.clone();
                let task = tasks::check(&self.config, self.state.summary.work.as_ref());
                self.checks = Some(tokio::spawn(async move {
                    let _ = tx.send(InternalEvent::Input(task.await));
                }));
            }
            SupervisorAction::CancelChecks => {
                if let Some(checks) = self.checks.take() {
                    checks.abort();
                }
            }
            SupervisorAction::Finish => {
                self.setup_cancel.cancel();
                self.send_command(AgentCommand::End);
                self.agent = None;
                durable_step("supervise.exit");
                return self.journal.sync().or_fail(|| CANNOT_WRITE_JOURNAL);
            }
        }
        Ok(())
    }

    /// Makes the worktree, and starts the agent's sandbox, which needs it last of all.
    fn make_worktree(&self) {
        let runner = self.config.runner.clone();
        tokio::task::spawn_blocking(move || runner.start_ahead());
        let (tx, setup_tx) = (self.tx.clone(), self.tx.clone());
        let on_setup = move |line: &str| {
            let input = Input::SetupStarted { line: line.to_owned() };
            let _ = setup_tx.send(InternalEvent::Input(input));
        };
        let task = tasks::make_worktree(&self.config, self.setup_cancel.clone(), on_setup);
        let comparison = tasks::compare(&self.config);
        tokio::spawn(async move {
            // Other sessions may have changed the same lines while no supervisor ran.
            let conflicts = comparison.await;
            for input in [Input::SameLines { conflicts }, task.await] {
                let _ = tx.send(InternalEvent::Input(input));
            }
        });
    }

    /// Collects the work, after a collection within the turn has ended. At its end the entries of the
    /// turn are durable.
    fn import(&mut self) -> Result<()> {
        let written = self.journal.start_sync().or_fail(|| CANNOT_WRITE_JOURNAL)?;
        let (tx, task) = (self.tx.clone(), tasks::collect_work(&self.config));
        let keeping = self.work_keeper.take_running();
        tokio::spawn(async move {
            if let Some(keeping) = keeping {
                let _ = keeping.await;
            }
            let collected = task.await;
            let written = tokio::task::spawn_blocking(move || written.wait()).await;
            let written = written.unwrap_or_else(|error| Err(error.into()));
            let input = written.or_fail(|| CANNOT_WRITE_JOURNAL).map_or_else(
                |failure| Input::CannotImport { reason: failure.full_text() },
                |()| collected,
            );
            tx.send(InternalEvent::Input(input))
        });
        Ok(())
    }

    /// Passes the answer to a request on to the network or the agent.
    fn answer(&mut self, n: u32, decision: Decision) {
        // The agent was waiting, and is expected to send events from now on.
        self.stall.end_wait();
        if !self.network.answer(n, &decision) {
            self.send_command(AgentCommand::Answer { n, decision });
        }
    }

    /// Asks about a host that the allow list does not contain, as about a permission of the agent.
    fn on_network_request(&mut self, request: NetworkRequest) -> Result<()> {
        let input = match request {
            NetworkRequest::Unlisted { target, reply } => {
                let is_attended = self.state.is_attended();
                Input::PermissionRequested(self.network.ask(&target, reply, is_attended))
            }
            NetworkRequest::Denied(denial) => Input::Note { text: network::denial_text(&denial) },
        };
        self.handle_input(input)
    }

    /// Adds what the network of the sandbox may have to do with the end of an agent.
    fn with_network_hint(&self, reason: String) -> String {
        match self.config.runner.network_hint(&reason) {
            Some(hint) => format!("{reason}; {hint}"),
            None => reason,
        }
    }

    fn send_command(&self, command: AgentCommand) {
        if let Some(agent) = &self.agent {
            let _ = agent.commands.send(command);
        }
    }

    fn launch(&mut self, conversation_id: Option<String>) {
        let params = LaunchParams {
            id: self.config.record.id.clone(),
            row: self.config.row.clone(),
            worktree: self.config.record.session_repo.worktree.clone(),
            conversation_id,
            conversation_usage: self.state.summary.conversation_usage,
            log: self.log.clone(),
            log_bytes: self.config.limits.output_bytes.unwrap_or(DEFAULT_LOG_BYTES),
            runner: self.config.runner.clone(),
            live: self.live.clone(),
            request_numbers: self.network.numbers(),
        };
        let launcher: Box<dyn Launcher + Send + Sync> = match self.config.row.protocol {
            AgentProtocol::Acp => Box::new(AcpLauncher),
            AgentProtocol::Command => Box::new(CommandLauncher),
        };
        durable_step("supervise.launch");
        let tx = self.tx.clone();
        let starting = tokio::spawn(async move {
            let event = match launcher.launch(params).await {
                Ok(agent) => InternalEvent::Launched(agent),
                Err(failure) => {
                    InternalEvent::Input(Input::CannotStart { reason: failure.full_text() })
                }
            };
            let _ = tx.send(event);
        });
        self.launch_task = Some(starting);
    }
}

/// Explains why allowing a request does not help if the sandbox closes the path, and what does.
fn sandbox_denial(path: &Path) -> String {
    let directory = path.parent().unwrap_or(path).display();
    format!(
        "the sandbox of this session denies writing `{}`; `[sandbox] write = \
         [\"{directory}\"]` in ~/.config/g3/config.toml opens it",
        path.display()
    )
}

/// An event of the supervisor's own tasks.
pub(super) enum InternalEvent {
    /// An input for `step`.
    Input(Input),
    /// The agent is running.
    Launched(RunningAgent),
}

/// Returns the next event of the agent; never returns if there is no agent.
async fn next_agent_event(agent: &mut Option<RunningAgent>) -> Option<AgentEvent> {
    match agent {
        Some(agent) => agent.events.recv().await,
        None => std::future::pending().await,
    }
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
