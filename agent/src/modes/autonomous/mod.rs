//! `g3 --autonomous`: a player works, the harness checks, a coach judges, round by round, until
//! all requirements are met or the rounds are used up.

mod begin;
mod checks;
mod coach;
mod evidence;
mod owned;
mod pair;
mod parts;
mod past;
pub mod prompted;
mod purse;
mod record;
mod report;
pub mod requirements;
mod words;

use std::sync::Arc;

use base::event::{Status, What};
use base::failure::{Failure, Kind, OrFail, Result};
use base::files::{self, Journal};
use tokio_util::sync::CancellationToken;

use super::interrupt::{Interrupts, Tokens};
use crate::limits::Limit;
use crate::run::outcome::{RunOutcome, tell_failure};
use crate::run::{AgentSession, SessionSelector, Settings};
use crate::session;
use crate::ui::Bus;
use gate::Asker;

use begin::Again;
pub use begin::Heard;
use evidence::{Place, Start};
pub use pair::{Pair, Terms};
use past::Found;
pub use past::{Past, latest};
pub use purse::Purse;
use record::{Note, Rounds, Step};
use words::Contract;

/// What is to be run.
#[derive(Clone, Debug)]
pub struct Order {
    /// What was typed and configured.
    pub settings: Settings,
    /// A new run, or one that goes on.
    pub how: How,
    /// Rounds at most; five unless said.
    pub rounds: Option<u32>,
    /// Commands that must pass, besides the configured ones.
    pub checks: Vec<String>,
}

/// Whether a run is new.
#[derive(Clone, Debug)]
pub enum How {
    /// A new run on these requirements.
    New(String),
    /// The run of this session, or the latest one.
    Resume(Option<String>),
}

/// A run at work.
struct Run<'w> {
    contract: Contract,
    rounds: Rounds,
    journal: Journal,
    place: Place,
    start: Start,
    purse: Purse,
    /// The player, in the one conversation that it keeps.
    work: &'w mut AgentSession,
    /// How a coach is set up.
    coach: Settings,
    /// Bytes of evidence that a coach can take.
    room: usize,
    bus: Arc<Bus>,
    asker: Option<Arc<dyn Asker>>,
}

/// How a run ended.
enum End {
    /// As the rounds say.
    Rounds(Status),
    /// A limit of the whole run was reached.
    Limit(Limit),
    /// The user cancelled.
    Cancelled,
}

/// Runs alone in this process: the first Ctrl-C cancels, the second ends it.
pub async fn alone(order: &Order, bus: Arc<Bus>, asker: Option<Arc<dyn Asker>>) -> Result<Status> {
    let interrupts = Interrupts::listen()?;
    run(order, bus, asker, &interrupts.begin()).await
}

/// Runs to the end; the failure has been told as an event already.
pub async fn run(
    order: &Order,
    bus: Arc<Bus>,
    asker: Option<Arc<dyn Asker>>,
    tokens: &Tokens,
) -> Result<Status> {
    let told = |failure: &Failure| tell_failure(&bus, failure);
    let Plan { pair, which, contract, again } = plan(order).inspect_err(told)?;
    let mut work = AgentSession::begin(&pair.player, &which, bus.clone(), asker.clone())?;
    if again.is_none() {
        owned::remember(&work.session.dir, &contract.checks).inspect_err(told)?;
    }
    let heard = Heard { bus: bus.clone(), asker };
    let begun = begin::open(&pair, contract, again, &mut work, heard).await;
    let mut run = begun.inspect_err(told)?;
    let ended = tokio::select! {
        ended = run.go(&tokens.cancel) => ended,
        () = tokens.end.cancelled() => {
            let failure = Failure::new(Kind::Interrupted, "interrupted");
            tell_failure(&bus, &failure);
            return Err(failure);
        }
    };
    let ended = run.finish(ended);
    work.shutdown().finish().await;
    ended.failure.map_or(Ok(ended.status), Err)
}

/// All that is known before the session is opened.
struct Plan {
    pair: Pair,
    which: SessionSelector,
    contract: Contract,
    again: Option<Again>,
}

fn plan(order: &Order) -> Result<Plan> {
    let terms = Terms { rounds: order.rounds, checks: order.checks.clone() };
    let pair = Pair::of(&order.settings, &terms)?;
    match &order.how {
        How::New(text) => {
            let contract = pair.contract(text.clone(), &[])?;
            let named = contract.requirements.iter().take(1).map(|it| it.text.as_str()).collect();
            Ok(Plan { pair, which: SessionSelector::New(named), contract, again: None })
        }
        How::Resume(wanted) => {
            let cwd = &order.settings.cwd;
            let (id, found) = Found::meant(cwd, wanted.as_deref())?;
            let dir = session::sessions_dir(cwd).join(&id);
            owned::refuse_strangers(&dir, &found.checks, &pair.checks)?;
            let contract = pair.contract(found.text.clone(), &found.checks)?;
            let rounds = pair.rounds.unwrap_or(found.rounds.most);
            let note = Note::Resumed { rounds, more: false, said: None };
            let again = Some(Again { found, note });
            Ok(Plan { pair, which: SessionSelector::Resume(Some(id)), contract, again })
        }
    }
}

impl Run<'_> {
    async fn go(&mut self, cancel: &CancellationToken) -> Result<End> {
        loop {
            if cancel.is_cancelled() {
                return Ok(End::Cancelled);
            }
            let end = match self.rounds.next() {
                Step::Play(n) => self.play(n, cancel).await?,
                Step::Check(n) => self.check(n, cancel).await?,
                Step::Judge(n) => self.judge(n, cancel).await?,
                Step::End(status) => return Ok(End::Rounds(status)),
            };
            if let Some(end) = end {
                return Ok(end);
            }
        }
    }

    /// Writes a note down, then lets it take effect.
    fn note(&mut self, note: Note) -> Result<()> {
        files::step(match &note {
            Note::Begun { .. } => "g3.rounds.begun",
            Note::Resumed { .. } => "g3.rounds.resumed",
            Note::Played { .. } => "g3.rounds.played",
            Note::Checked { .. } => "g3.rounds.checked",
            Note::Judged { .. } => "g3.rounds.judged",
        });
        let written = self.journal.append(&note).and_then(|()| self.journal.sync());
        written.or_fail(|| "cannot write the journal of the rounds")?;
        self.rounds.take(note);
        Ok(())
    }

    /// Tells how it ended.
    fn finish(&self, ended: Result<End>) -> RunOutcome {
        let (status, failure) = match ended {
            Err(failure) => (Status::Failed, Some(failure)),
            Ok(End::Cancelled) => (Status::Cancelled, None),
            Ok(End::Limit(limit)) => {
                (Status::Limit, Some(Failure::refused(format!("stopped: {limit}"))))
            }
            Ok(End::Rounds(status)) => (status, self.shortfall(status)),
        };
        let again = format!("g3 --autonomous --resume {}", self.work.session.id);
        let failure = failure.map(|failure| match status {
            Status::NotApproved => {
                failure.next(format!("{again} --max-turns {}", self.rounds.most + 3))
            }
            Status::Done | Status::Failed | Status::Limit | Status::Cancelled => {
                failure.next(format!("{again} goes on where it stopped"))
            }
        });
        let ended = RunOutcome::new(status, failure);
        if let Some(error) = ended.error() {
            self.bus.tell(error);
        }
        self.bus.tell(report::ended(status, &self.rounds));
        let cost = self.cost();
        let (exit, turns, usage) = (status.exit(), cost.turns, cost.usage);
        self.bus.tell(What::End { status, exit, turns, usage });
        ended
    }

    /// What kept a run from being approved.
    fn shortfall(&self, status: Status) -> Option<Failure> {
        let last = self.rounds.rounds.last();
        let judged = last.and_then(|round| round.judged.as_ref()).map(|(judged, _)| judged);
        let why = match judged {
            Some(Ok(verdict)) => {
                let open = planner::verdict::open(verdict);
                let lines: Vec<String> = open
                    .map(|it| words::status_line(&it.id, it.status, &it.evidence))
                    .chain(last.into_iter().flat_map(|round| round.red()).map(|it| it + " failed"))
                    .collect();
                if lines.is_empty() { verdict.feedback.clone() } else { lines.join("\n") }
            }
            Some(Err(why)) => why.clone(),
            None => String::new(),
        };
        match status {
            Status::Done | Status::Cancelled => None,
            Status::NotApproved | Status::Limit => {
                let rounds = self.rounds.rounds.len();
                let word = if rounds == 1 { "round" } else { "rounds" };
                Some(Failure::refused(format!("not approved after {rounds} {word}")).because(why))
            }
            Status::Failed => Some(Failure::failed("no model answered").because(why)),
        }
    }
}
