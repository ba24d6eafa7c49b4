//! A supervisor at work: hears the agent, the control socket and the clock, and carries out what
//! `step` decides.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base::clock::Clock;
use base::config::studio::{AgentRow, Protocol, SessionLimits};
use base::failure::{OrFail, Result};
use base::files::step as durable_step;
use base::text::count;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::launch::acp::Acp;
use crate::launch::command::Command;
use crate::launch::contract;
use crate::launch::{Agent, Launcher, News, Order, Request, Seat};
use crate::room::Room;
use crate::session::facts::Phase;
use crate::session::journal::{Entry, Outcome, Writer};
use crate::session::record::Record;
use crate::session::store::Store;
use crate::supervise::control::{self, Asked};
use crate::supervise::deeds;
use crate::supervise::step::{self, Do, Input, Life, Memory, step as decide};
use studio_git::repo::Repository;

/// How long an agent may take to end its turn when it is asked to.
const CANCEL_GRACE: Duration = Duration::from_secs(5);
/// How long agent and checks may take to be gone at the end; what is left is killed.
const LEAVING: Duration = Duration::from_secs(20);
/// How often the scheduler is called and the disk looked at.
const TICK: Duration = Duration::from_secs(30);
/// Bytes of raw output that are kept unless the configuration says otherwise.
const LOG_BYTES: u64 = 64 << 20;

/// Bytes of a permission request; a longer one cannot be read by a person and is denied.
const LONGEST_REQUEST: usize = 16 << 10;

/// Tells whether a check fails without the session's work too.
pub type FailsOnBase = Arc<dyn Fn(&str, CancellationToken) -> Option<String> + Send + Sync>;

/// What a supervisor is in charge of, and what it needs to know.
pub struct Charge {
    /// The repository.
    pub repository: Repository,
    /// The session.
    pub record: Record,
    /// How to speak with its agent.
    pub row: AgentRow,
    /// Where the agent runs.
    pub room: Room,
    /// Where checks run.
    pub check_room: Room,
    /// Where setup runs.
    pub setup_room: Room,
    /// `sh -c` lines that prepare a fresh worktree.
    pub setup: Vec<String>,
    /// The configured limits.
    pub limits: SessionLimits,
    /// The base branch, where a check fails on its tip as well. It takes as long as the check, and
    /// ends when it is cancelled.
    pub fails_on_base: FailsOnBase,
    /// Called every half minute.
    pub tick: Box<dyn Fn()>,
}

/// Supervises one run from its begin to its exit line. The caller holds the session's lock.
pub async fn run(charge: Charge) -> Result<Outcome> {
    let clock = Clock::from_env();
    let store = Store::at(&charge.repository.common_dir);
    let id = &charge.record.id;
    let journal = store.writer(id, clock)?;
    let memory = match charge.row.protocol {
        Protocol::Acp => Memory::Keeps,
        Protocol::Command => Memory::Forgets,
    };
    let life = Life::new(charge.record.clone(), store.story(id)?, memory);
    let (asked_in, asked) = mpsc::unbounded_channel();
    let _endpoint = control::serve(&charge.repository.common_dir, id, asked_in)
        .or_fail(|| "cannot open the control socket")?;
    let (tell, told) = mpsc::unbounded_channel();
    // The limit is of all runs together.
    let worked = Duration::from_millis(life.story.worked_ms);
    let left = |seconds| Duration::from_secs(seconds).saturating_sub(worked);
    let timeout = life.limits().seconds.map(left);
    let mut desk = Desk {
        log: store.file(id, "agent.log"),
        charge,
        journal,
        life,
        tell,
        agent: None,
        began: Instant::now(),
        checks: None,
        starting: None,
        kill_at: None,
    };
    desk.hear(Input::Begin { pid: std::process::id() })?;
    let deadline = timeout.map(|time| Instant::now() + time);
    let outcome = desk.attend(told, asked, deadline).await?;
    // Whoever gets the session's lock next must find nobody at work there.
    let Charge { room, check_room, setup_room, .. } = &desk.charge;
    let gone = async { tokio::join!(room.emptied(), check_room.emptied(), setup_room.emptied()) };
    let _ = tokio::time::timeout(LEAVING, gone).await;
    Ok(outcome)
}

/// Everything that a running supervisor holds.
struct Desk {
    charge: Charge,
    journal: Writer,
    life: Life,
    log: PathBuf,
    tell: UnboundedSender<Word>,
    agent: Option<Agent>,
    began: Instant,
    checks: Option<JoinHandle<()>>,
    starting: Option<JoinHandle<()>>,
    kill_at: Option<Instant>,
}

impl Desk {
    /// Waits for news and acts on it until the exit line is written.
    async fn attend(
        &mut self,
        mut told: UnboundedReceiver<Word>,
        mut asked: UnboundedReceiver<Asked>,
        deadline: Option<Instant>,
    ) -> Result<Outcome> {
        let mut tick = tokio::time::interval(TICK);
        tick.tick().await;
        let mut deadline = deadline;
        loop {
            if let Phase::Ended { outcome } = &self.life.story.phase {
                return Ok(outcome.clone());
            }
            tokio::select! {
                Some(word) = told.recv() => self.word(word)?,
                Some((request, answer)) = asked.recv() => {
                    let said = self.request(request)?;
                    let _ = answer.send(said);
                }
                news = next_news(&mut self.agent) => self.news(news)?,
                () = until(deadline) => {
                    deadline = None;
                    let seconds = self.life.limits().seconds.unwrap_or_default();
                    self.hear(Input::Limit { what: count(seconds, "second") })?;
                }
                () = until(self.kill_at) => {
                    self.kill_at = None;
                    // Dropping the agent ends its process and its box.
                    self.agent = None;
                    self.starting.take().inspect(JoinHandle::abort);
                    self.hear(Input::AgentGone { why: "it did not end when it was asked to".into() })?;
                }
                _ = tick.tick() => {
                    (self.charge.tick)();
                    if let Some(what) = deeds::disk_is_full(&self.charge) {
                        self.hear(Input::Limit { what })?;
                    }
                }
            }
        }
    }

    fn hear(&mut self, input: Input) -> Result<()> {
        for deed in decide(&mut self.life, input) {
            self.carry_out(deed)?;
        }
        Ok(())
    }

    fn word(&mut self, word: Word) -> Result<()> {
        match word {
            Word::Heard(input) => self.hear(input),
            Word::Launched(agent) => {
                let (talk, loaded) = (agent.talk.clone(), agent.loaded);
                self.kill_at = None;
                self.agent = Some(agent);
                self.hear(Input::Launched { talk, loaded })
            }
        }
    }

    fn news(&mut self, news: Option<News>) -> Result<()> {
        match news {
            Some(News::Event(event)) => self.hear(Input::Event { event }),
            Some(News::Asked(request)) => {
                let Request { n, what, rule, writes } = request;
                let closed = |path: &PathBuf| !self.charge.room.may_write(path);
                let futile = match writes.iter().find(|path| closed(path)) {
                    _ if what.len() > LONGEST_REQUEST => Some(format!(
                        "it is {} bytes long, and no more than {LONGEST_REQUEST} are shown",
                        what.len()
                    )),
                    Some(path) => Some(outside_the_box(path)),
                    None => None,
                };
                let what = match what.len() > LONGEST_REQUEST {
                    true => format!("{}…", base::text::head(&what, LONGEST_REQUEST / 8)),
                    false => what,
                };
                self.hear(Input::Asked(step::Asked { n, what, rule, futile }))
            }
            Some(News::TurnEnded(why)) => self.hear(Input::TurnEnded { why }),
            Some(News::Gone(why)) => {
                self.agent = None;
                self.hear(Input::AgentGone { why })
            }
            None => {
                self.agent = None;
                self.hear(Input::AgentGone { why: "the agent ended".into() })
            }
        }
    }

    /// A request from the control socket, and the answer to it.
    fn request(&mut self, request: control::Request) -> Result<std::result::Result<(), String>> {
        let input = match request {
            control::Request::Status => return Ok(Ok(())),
            control::Request::Send { text } => Input::Send { text },
            control::Request::Stop => Input::Stop,
            control::Request::Answer { n, allow, always } => match self.open_ask(n) {
                Ok(n) => Input::Answer { n, allow, always },
                Err(why) => return Ok(Err(why)),
            },
        };
        self.hear(input)?;
        self.journal.sync().or_fail(|| "cannot write the journal")?;
        Ok(Ok(()))
    }

    fn open_ask(&self, n: Option<u32>) -> std::result::Result<u32, String> {
        let open: Vec<u32> = self.life.story.asks.keys().copied().collect();
        match (n, open.as_slice()) {
            (Some(n), open) if open.contains(&n) => Ok(n),
            (Some(n), _) => Err(format!("there is no open request {n}")),
            (None, [only]) => Ok(*only),
            (None, []) => Err("there is no open request".to_owned()),
            (None, many) => Err(format!("several requests are open, so say which: {many:?}")),
        }
    }

    fn carry_out(&mut self, deed: Do) -> Result<()> {
        match deed {
            Do::Write(mut entry) => {
                if let Entry::Exit { ms, .. } = &mut entry {
                    *ms = u64::try_from(self.began.elapsed().as_millis()).ok();
                }
                if let Entry::Turn { log_bytes, .. } = &mut entry {
                    *log_bytes = std::fs::metadata(&self.log).ok().map(|log| log.len());
                }
                return self.journal.write(entry).or_fail(|| "cannot write the journal");
            }
            Do::MakeWorktree => {
                let tell = self.tell.clone();
                let work = deeds::make_worktree(&self.charge);
                tokio::spawn(async move { tell.send(Word::Heard(work.await)) });
            }
            Do::Launch { talk } => self.launch(talk),
            Do::Prompt { text, recap } => {
                let text = if recap {
                    deeds::with_diff(&self.charge, self.life.story.work.as_ref(), text)
                } else {
                    text
                };
                self.order(Order::Prompt(contract::prompt(&self.charge.record.part, text)));
            }
            Do::Answer { n, decision } => self.order(Order::Answer { n, decision }),
            Do::Cancel => {
                self.order(Order::Cancel);
                self.kill_at = Some(Instant::now() + CANCEL_GRACE);
            }
            Do::Import => {
                self.kill_at = None;
                self.journal.sync().or_fail(|| "cannot write the journal")?;
                let tell = self.tell.clone();
                let work = deeds::bring_home(&self.charge);
                tokio::spawn(async move { tell.send(Word::Heard(work.await)) });
            }
            Do::Check => {
                let tell = self.tell.clone();
                let work = deeds::check(&self.charge, self.life.story.work.as_ref());
                self.checks = Some(tokio::spawn(async move {
                    let _ = tell.send(Word::Heard(work.await));
                }));
            }
            Do::AbandonChecks => {
                if let Some(checks) = self.checks.take() {
                    checks.abort();
                }
            }
            Do::Finish => {
                self.order(Order::End);
                self.agent = None;
                durable_step("supervise.exit");
                return self.journal.sync().or_fail(|| "cannot write the journal");
            }
        }
        Ok(())
    }

    fn order(&self, order: Order) {
        if let Some(agent) = &self.agent {
            let _ = agent.orders.send(order);
        }
    }

    fn launch(&mut self, talk: Option<String>) {
        let seat = Seat {
            id: self.charge.record.id.clone(),
            row: self.charge.row.clone(),
            worktree: self.charge.record.place.worktree.clone(),
            talk,
            log: self.log.clone(),
            log_bytes: self.charge.limits.output_bytes.unwrap_or(LOG_BYTES),
            room: self.charge.room.clone(),
            asked: self.life.story.last_ask,
        };
        let launcher: Box<dyn Launcher + Send + Sync> = match self.charge.row.protocol {
            Protocol::Acp => Box::new(Acp),
            Protocol::Command => Box::new(Command),
        };
        durable_step("supervise.launch");
        let tell = self.tell.clone();
        let starting = tokio::spawn(async move {
            let word = match launcher.launch(seat).await {
                Ok(agent) => Word::Launched(agent),
                Err(failure) => Word::Heard(Input::CannotStart { why: failure.in_full() }),
            };
            let _ = tell.send(word);
        });
        self.starting = Some(starting);
    }
}

/// Why a yes does not help where the box closes a path, and what does.
fn outside_the_box(path: &Path) -> String {
    let directory = path.parent().unwrap_or(path).display();
    format!(
        "the box of this session does not let anything write `{}`; `[sandbox] write = \
         [\"{directory}\"]` in ~/.config/g3/config.toml opens it",
        path.display()
    )
}

/// What the supervisor's own tasks tell it.
enum Word {
    /// News for `step`.
    Heard(Input),
    /// The agent runs.
    Launched(Agent),
}

/// The next piece of news; never, when no agent runs.
async fn next_news(agent: &mut Option<Agent>) -> Option<News> {
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
