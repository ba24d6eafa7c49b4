//! Runs a supervisor: receives events of the agent, the control socket and the clock, and carries
//! out the actions that `step` returns.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base::clock::Clock;
use base::config::studio::{AgentProtocol, AgentRow, SessionLimits};
use base::failure::{OrFail, Result};
use base::files::step as durable_step;
use base::text::count;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::exec::runner::SandboxedRunner;
use crate::launch::acp::AcpLauncher;
use crate::launch::command::CommandLauncher;
use crate::launch::requirements;
use crate::launch::{
    AgentCommand, AgentEvent, LaunchParams, Launcher, PermissionRequest, RunningAgent,
};
use crate::session::journal::{JournalEntry, JournalWriter, SessionOutcome};
use crate::session::record::SessionRecord;
use crate::session::store::SessionStore;
use crate::session::summary::Phase;
use crate::supervisor::control::{self, ControlCall};
use crate::supervisor::step::{
    self, ConversationMemory, Input, RunState, SupervisorAction, step as decide,
};
use crate::supervisor::tasks;
use studio_git::repo::Repository;

/// How long an agent may take to end its turn when asked to.
const CANCEL_GRACE: Duration = Duration::from_secs(5);
/// How long agent and checks may take to exit at the end; after that they are killed.
const LEAVING: Duration = Duration::from_secs(20);
/// The interval of scheduler calls and of disk space checks.
const TICK: Duration = Duration::from_secs(30);
/// Default maximum number of bytes of raw output that are kept.
const LOG_BYTES: u64 = 64 << 20;

/// Maximum size of a permission request in bytes; a longer one is not readable for a person and is
/// denied.
const LONGEST_REQUEST: usize = 16 << 10;

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
    pub room: SandboxedRunner,
    /// Runs the checks.
    pub check_room: SandboxedRunner,
    /// Runs the setup.
    pub setup_room: SandboxedRunner,
    /// `sh -c` lines that prepare a new worktree.
    pub setup: Vec<String>,
    /// The configured limits.
    pub limits: SessionLimits,
    /// Returns the base branch if a check fails on its tip as well. It takes as long as the check,
    /// and can be cancelled.
    pub fails_on_base: FailsOnBase,
    /// Called every 30 seconds.
    pub tick: Box<dyn Fn()>,
}

/// Supervises one run from its start to its exit entry. The caller holds the session's lock.
pub(crate) async fn run(config: SupervisorConfig) -> Result<SessionOutcome> {
    let clock = Clock::from_env();
    let store = SessionStore::at(&config.repository.common_dir);
    let id = &config.record.id;
    let journal = store.writer(id, clock)?;
    let memory = match config.row.protocol {
        AgentProtocol::Acp => ConversationMemory::Keeps,
        AgentProtocol::Command => ConversationMemory::Forgets,
    };
    let state = RunState::new(config.record.clone(), store.story(id)?, memory);
    let (asked_in, asked) = mpsc::unbounded_channel();
    let _endpoint = control::serve(&config.repository.common_dir, id, asked_in)
        .or_fail(|| "cannot open the control socket")?;
    let (tx, rx) = mpsc::unbounded_channel();
    // The limit applies to all runs together.
    let worked = Duration::from_millis(state.story.worked_ms);
    let left = |seconds| Duration::from_secs(seconds).saturating_sub(worked);
    let timeout = state.limits().seconds.map(left);
    let mut supervisor = Supervisor {
        log: store.file(id, "agent.log"),
        config,
        journal,
        state,
        tx,
        agent: None,
        began: Instant::now(),
        checks: None,
        starting: None,
        kill_at: None,
    };
    supervisor.hear(Input::Begin { pid: std::process::id() })?;
    let deadline = timeout.map(|time| Instant::now() + time);
    let outcome = supervisor.event_loop(rx, asked, deadline).await?;
    // No process may be left when another command takes the session's lock.
    let SupervisorConfig { room, check_room, setup_room, .. } = &supervisor.config;
    let gone = async { tokio::join!(room.emptied(), check_room.emptied(), setup_room.emptied()) };
    let _ = tokio::time::timeout(LEAVING, gone).await;
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
    began: Instant,
    checks: Option<JoinHandle<()>>,
    starting: Option<JoinHandle<()>>,
    kill_at: Option<Instant>,
}

impl Supervisor {
    /// Receives events and acts on them until the exit entry is written.
    async fn event_loop(
        &mut self,
        mut rx: UnboundedReceiver<InternalEvent>,
        mut asked: UnboundedReceiver<ControlCall>,
        deadline: Option<Instant>,
    ) -> Result<SessionOutcome> {
        let mut tick = tokio::time::interval(TICK);
        tick.tick().await;
        let mut deadline = deadline;
        loop {
            if let Phase::Ended { outcome } = &self.state.story.phase {
                return Ok(outcome.clone());
            }
            tokio::select! {
                Some(event) = rx.recv() => self.internal_event(event)?,
                Some((request, answer)) = asked.recv() => {
                    let said = self.request(request)?;
                    let _ = answer.send(said);
                }
                news = next_news(&mut self.agent) => self.news(news)?,
                () = until(deadline) => {
                    deadline = None;
                    let seconds = self.state.limits().seconds.unwrap_or_default();
                    self.hear(Input::Limit { what: count(seconds, "second") })?;
                }
                () = until(self.kill_at) => {
                    self.kill_at = None;
                    // Dropping the agent ends its process and its sandbox.
                    self.agent = None;
                    self.starting.take().inspect(JoinHandle::abort);
                    self.hear(Input::AgentGone { why: "it did not exit when it was asked to".into() })?;
                }
                _ = tick.tick() => {
                    (self.config.tick)();
                    if let Some(what) = tasks::disk_is_full(&self.config) {
                        self.hear(Input::Limit { what })?;
                    }
                }
            }
        }
    }

    fn hear(&mut self, input: Input) -> Result<()> {
        for action in decide(&mut self.state, input) {
            self.carry_out(action)?;
        }
        Ok(())
    }

    fn internal_event(&mut self, event: InternalEvent) -> Result<()> {
        match event {
            InternalEvent::Heard(input) => self.hear(input),
            InternalEvent::Launched(agent) => {
                let (talk, loaded) = (agent.conversation_id.clone(), agent.loaded);
                self.kill_at = None;
                self.agent = Some(agent);
                self.hear(Input::Launched { talk, loaded })
            }
        }
    }

    fn news(&mut self, news: Option<AgentEvent>) -> Result<()> {
        match news {
            Some(AgentEvent::Event(event)) => self.hear(Input::Event { event }),
            Some(AgentEvent::Asked(request)) => {
                let PermissionRequest { n, what, rule, writes } = request;
                let closed = |path: &PathBuf| !self.config.room.may_write(path);
                let futile = match writes.iter().find(|path| closed(path)) {
                    _ if what.len() > LONGEST_REQUEST => Some(format!(
                        "it is {} bytes long, and no more than {LONGEST_REQUEST} are shown",
                        what.len()
                    )),
                    Some(path) => Some(outside_the_sandbox(path)),
                    None => None,
                };
                let what = match what.len() > LONGEST_REQUEST {
                    true => format!("{}…", base::text::head(&what, LONGEST_REQUEST / 8)),
                    false => what,
                };
                self.hear(Input::Asked(step::PermissionAsk { n, what, rule, futile }))
            }
            Some(AgentEvent::TurnEnded(why)) => self.hear(Input::TurnEnded { why }),
            Some(AgentEvent::Gone(why)) => {
                self.agent = None;
                self.hear(Input::AgentGone { why })
            }
            None => {
                self.agent = None;
                self.hear(Input::AgentGone { why: "the agent ended".into() })
            }
        }
    }

    /// Handles a request from the control socket and returns the response.
    fn request(
        &mut self,
        request: control::ControlRequest,
    ) -> Result<std::result::Result<(), String>> {
        let input = match request {
            control::ControlRequest::Status => return Ok(Ok(())),
            control::ControlRequest::Send { text } => Input::Send { text },
            control::ControlRequest::Stop => Input::Stop,
            control::ControlRequest::Answer { n, allow, always } => match self.open_ask(n) {
                Ok(n) => Input::Answer { n, allow, always },
                Err(why) => return Ok(Err(why)),
            },
        };
        self.hear(input)?;
        self.journal.sync().or_fail(|| "cannot write the journal")?;
        Ok(Ok(()))
    }

    fn open_ask(&self, n: Option<u32>) -> std::result::Result<u32, String> {
        let open: Vec<u32> = self.state.story.asks.keys().copied().collect();
        match (n, open.as_slice()) {
            (Some(n), open) if open.contains(&n) => Ok(n),
            (Some(n), _) => Err(format!("no open permission request {n}")),
            (None, [only]) => Ok(*only),
            (None, []) => Err("no open permission request".to_owned()),
            (None, many) => {
                Err(format!("several permission requests are open; name one: {many:?}"))
            }
        }
    }

    fn carry_out(&mut self, action: SupervisorAction) -> Result<()> {
        match action {
            SupervisorAction::Write(mut entry) => {
                if let JournalEntry::Exit { ms, .. } = &mut entry {
                    *ms = u64::try_from(self.began.elapsed().as_millis()).ok();
                }
                if let JournalEntry::Turn { log_bytes, .. } = &mut entry {
                    *log_bytes = std::fs::metadata(&self.log).ok().map(|log| log.len());
                }
                return self.journal.write(entry).or_fail(|| "cannot write the journal");
            }
            SupervisorAction::MakeWorktree => {
                let tx = self.tx.clone();
                let work = tasks::make_worktree(&self.config);
                tokio::spawn(async move { tx.send(InternalEvent::Heard(work.await)) });
            }
            SupervisorAction::Launch { talk } => self.launch(talk),
            SupervisorAction::Prompt { text, recap } => {
                let text = if recap {
                    tasks::with_diff(&self.config, self.state.story.work.as_ref(), text)
                } else {
                    text
                };
                self.order(AgentCommand::Prompt(requirements::prompt(
                    &self.config.record.part,
                    text,
                )));
            }
            SupervisorAction::Answer { n, decision } => {
                self.order(AgentCommand::Answer { n, decision })
            }
            SupervisorAction::Cancel => {
                self.order(AgentCommand::Cancel);
                self.kill_at = Some(Instant::now() + CANCEL_GRACE);
            }
            SupervisorAction::Import => {
                self.kill_at = None;
                self.journal.sync().or_fail(|| "cannot write the journal")?;
                let tx = self.tx.clone();
                let work = tasks::bring_home(&self.config);
                tokio::spawn(async move { tx.send(InternalEvent::Heard(work.await)) });
            }
            SupervisorAction::Check => {
                let tx = self.tx.clone();
                let work = tasks::check(&self.config, self.state.story.work.as_ref());
                self.checks = Some(tokio::spawn(async move {
                    let _ = tx.send(InternalEvent::Heard(work.await));
                }));
            }
            SupervisorAction::AbandonChecks => {
                if let Some(checks) = self.checks.take() {
                    checks.abort();
                }
            }
            SupervisorAction::Finish => {
                self.order(AgentCommand::End);
                self.agent = None;
                durable_step("supervise.exit");
                return self.journal.sync().or_fail(|| "cannot write the journal");
            }
        }
        Ok(())
    }

    fn order(&self, order: AgentCommand) {
        if let Some(agent) = &self.agent {
            let _ = agent.orders.send(order);
        }
    }

    fn launch(&mut self, talk: Option<String>) {
        let params = LaunchParams {
            id: self.config.record.id.clone(),
            row: self.config.row.clone(),
            worktree: self.config.record.place.worktree.clone(),
            conversation_id: talk,
            log: self.log.clone(),
            log_bytes: self.config.limits.output_bytes.unwrap_or(LOG_BYTES),
            room: self.config.room.clone(),
            asked: self.state.story.last_ask,
        };
        let launcher: Box<dyn Launcher + Send + Sync> = match self.config.row.protocol {
            AgentProtocol::Acp => Box::new(AcpLauncher),
            AgentProtocol::Command => Box::new(CommandLauncher),
        };
        durable_step("supervise.launch");
        let tx = self.tx.clone();
        let starting = tokio::spawn(async move {
            let word = match launcher.launch(params).await {
                Ok(agent) => InternalEvent::Launched(agent),
                Err(failure) => InternalEvent::Heard(Input::CannotStart { why: failure.in_full() }),
            };
            let _ = tx.send(word);
        });
        self.starting = Some(starting);
    }
}

/// Explains why allowing a request does not help if the sandbox closes the path, and what does.
fn outside_the_sandbox(path: &Path) -> String {
    let directory = path.parent().unwrap_or(path).display();
    format!(
        "the sandbox of this session denies writing `{}`; `[sandbox] write = \
         [\"{directory}\"]` in ~/.config/g3/config.toml opens it",
        path.display()
    )
}

/// An event of the supervisor's own tasks.
enum InternalEvent {
    /// An input for `step`.
    Heard(Input),
    /// The agent is running.
    Launched(RunningAgent),
}

/// Returns the next event of the agent; never returns if there is no agent.
async fn next_news(agent: &mut Option<RunningAgent>) -> Option<AgentEvent> {
    match agent {
        Some(agent) => agent.news.recv().await,
        None => std::future::pending().await,
    }
}

async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
