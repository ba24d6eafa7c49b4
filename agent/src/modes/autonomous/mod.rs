//! `g3 --autonomous`: in each round a player works, g3 runs the checks and a coach judges, until
//! all requirements are met or the rounds are used up.

mod budget;
mod checks;
mod coach;
mod evidence;
mod phases;
mod player_coach;
pub mod prompted_rounds;
mod prompts;
mod report;
pub mod requirements;
mod round_log;
mod start;

use std::sync::Arc;

use base::event::{EventKind, RunStatus};
use base::failure::{Failure, FailureKind, OrFail, Result};
use base::files::{self, Journal};
use tokio_util::sync::CancellationToken;

use super::interrupt::{CancelTokens, Interrupts};
use agent_core::bus::Bus;
use agent_core::limits::Limit;
use agent_core::run::outcome::{RunOutcome, report_failure};
use agent_core::run::{AgentSession, AgentSettings, SessionSelector};
use agent_core::session;
use gate::Asker;

pub(crate) use budget::RoundBudget;
use evidence::{EvidencePaths, RunBaseline};
pub(crate) use player_coach::{PlayerCoach, RunTerms};
use prompts::Contract;
use round_log::{NextStep, RoundHistory, RoundNote};
pub(crate) use start::Listeners;
pub(crate) use start::{PreviousRun, latest};
use start::{ResumableRun, ResumedRun};

/// The request for an autonomous run.
#[derive(Clone, Debug)]
pub(crate) struct RunRequest {
    /// The settings of the command line and the configuration.
    pub settings: AgentSettings,
    /// Whether the run is new or resumed.
    pub origin: RunOrigin,
    /// Maximum number of rounds; five by default.
    pub rounds: Option<u32>,
    /// Commands that must pass, in addition to the configured ones.
    pub checks: Vec<String>,
}

/// The origin of a run.
#[derive(Clone, Debug)]
pub(crate) enum RunOrigin {
    /// A new run with these requirements.
    New(String),
    /// The run of this session, or the latest one.
    Resume(Option<String>),
}

/// A run in progress.
struct Run<'w> {
    contract: Contract,
    rounds: RoundHistory,
    journal: Journal,
    place: EvidencePaths,
    start: RunBaseline,
    budget: RoundBudget,
    /// The player's session, which it keeps over all rounds.
    work: &'w mut AgentSession,
    /// The settings of a coach.
    coach: AgentSettings,
    /// Maximum number of bytes of evidence for a coach.
    room: usize,
    bus: Arc<Bus>,
    asker: Option<Arc<dyn Asker>>,
}

/// How a run ended.
enum End {
    /// With the status of the rounds.
    Rounds(RunStatus),
    /// A limit of the whole run was reached.
    Limit(Limit),
    /// The user cancelled.
    Cancelled,
}

/// Runs as the only run of this process: the first Ctrl-C cancels it, the second one ends it.
pub(crate) async fn alone(
    request: &RunRequest,
    bus: Arc<Bus>,
    asker: Option<Arc<dyn Asker>>,
) -> Result<RunStatus> {
    let interrupts = Interrupts::listen()?;
    run(request, bus, asker, &interrupts.begin()).await
}

/// Runs to the end. A failure has already been emitted as an event.
pub(crate) async fn run(
    request: &RunRequest,
    bus: Arc<Bus>,
    asker: Option<Arc<dyn Asker>>,
    tokens: &CancelTokens,
) -> Result<RunStatus> {
    let emit_failure = |failure: &Failure| report_failure(&bus, failure);
    let Plan { pair, selector, contract, resumed_run } = plan(request).inspect_err(emit_failure)?;
    let mut work = AgentSession::begin(&pair.player, &selector, bus.clone(), asker.clone())?;
    if resumed_run.is_none() {
        checks::remember(&work.session.dir, &contract.checks).inspect_err(emit_failure)?;
    }
    let listeners = Listeners { bus: bus.clone(), asker };
    let result = start::open(&pair, contract, resumed_run, &mut work, listeners).await;
    let mut run = result.inspect_err(emit_failure)?;
    let ended = tokio::select! {
        ended = run.go(&tokens.cancel) => ended,
        () = tokens.end.cancelled() => {
            let failure = Failure::new(FailureKind::Interrupted, "interrupted");
            report_failure(&bus, &failure);
            return Err(failure);
        }
    };
    let ended = run.finish(ended);
    work.shutdown().finish().await;
    ended.failure.map_or(Ok(ended.status), Err)
}

/// Everything that is known before the session is opened.
struct Plan {
    pair: PlayerCoach,
    selector: SessionSelector,
    contract: Contract,
    resumed_run: Option<ResumedRun>,
}

fn plan(request: &RunRequest) -> Result<Plan> {
    let terms = RunTerms { rounds: request.rounds, checks: request.checks.clone() };
    let pair = PlayerCoach::of(&request.settings, &terms)?;
    match &request.origin {
        RunOrigin::New(text) => {
            let contract = pair.contract(text.clone(), &[])?;
            let named = contract.requirements.iter().take(1).map(|it| it.text.as_str()).collect();
            Ok(Plan { pair, selector: SessionSelector::New(named), contract, resumed_run: None })
        }
        RunOrigin::Resume(wanted) => {
            let cwd = &request.settings.cwd;
            let (id, run) = ResumableRun::meant(cwd, wanted.as_deref())?;
            let dir = session::sessions_dir(cwd).join(&id);
            checks::refuse_unknown(&dir, &run.checks, &pair.checks)?;
            let contract = pair.contract(run.text.clone(), &run.checks)?;
            let rounds = pair.rounds.unwrap_or(run.rounds.most);
            let note = RoundNote::Resumed { rounds, more: false, said: None };
            let resumed_run = Some(ResumedRun { run, note });
            Ok(Plan { pair, selector: SessionSelector::Resume(Some(id)), contract, resumed_run })
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
                NextStep::Play(n) => self.play(n, cancel).await?,
                NextStep::Check(n) => self.check(n, cancel).await?,
                NextStep::Judge(n) => self.judge(n, cancel).await?,
                NextStep::End(status) => return Ok(End::Rounds(status)),
            };
            if let Some(end) = end {
                return Ok(end);
            }
        }
    }

    /// Writes a note to the journal, then applies it.
    fn note(&mut self, note: RoundNote) -> Result<()> {
        files::step(match &note {
            RoundNote::Begun { .. } => "g3.rounds.begun",
            RoundNote::Resumed { .. } => "g3.rounds.resumed",
            RoundNote::Played { .. } => "g3.rounds.played",
            RoundNote::Checked { .. } => "g3.rounds.checked",
            RoundNote::Judged { .. } => "g3.rounds.judged",
        });
        let written = self.journal.append(&note).and_then(|()| self.journal.sync());
        written.or_fail(|| "cannot write the journal of the rounds")?;
        self.rounds.take(note);
        Ok(())
    }

    /// Emits how the run ended.
    fn finish(&self, ended: Result<End>) -> RunOutcome {
        let (status, failure) = match ended {
            Err(failure) => (RunStatus::Failed, Some(failure)),
            Ok(End::Cancelled) => (RunStatus::Cancelled, None),
            Ok(End::Limit(limit)) => {
                (RunStatus::Limit, Some(Failure::refused(format!("stopped: {limit}"))))
            }
            Ok(End::Rounds(status)) => (status, self.shortfall(status)),
        };
        let again = format!("g3 --autonomous --resume {}", self.work.session.id);
        let failure = failure.map(|failure| match status {
            RunStatus::NotApproved => {
                failure.hint(format!("{again} --max-turns {}", self.rounds.most + 3))
            }
            RunStatus::Done | RunStatus::Failed | RunStatus::Limit | RunStatus::Cancelled => {
                failure.hint(format!("{again}    resumes it"))
            }
        });
        let ended = RunOutcome::new(status, failure);
        if let Some(error) = ended.error_event() {
            self.bus.emit(error);
        }
        self.bus.emit(report::ended(status, &self.rounds));
        let cost = self.cost();
        let (exit, turns, usage) = (status.exit(), cost.turns, cost.usage);
        self.bus.emit(EventKind::End { status, exit, turns, usage });
        ended
    }

    /// Returns why a run was not approved.
    fn shortfall(&self, status: RunStatus) -> Option<Failure> {
        let last = self.rounds.rounds.last();
        let judged = last.and_then(|round| round.judged.as_ref()).map(|(judged, _)| judged);
        let reason = match judged {
            Some(Ok(verdict)) => {
                let open = planner::verdict::unmet(verdict);
                let lines: Vec<String> = open
                    .map(|it| prompts::status_line(&it.id, it.status, &it.evidence))
                    .chain(last.into_iter().flat_map(|round| round.red()).map(|it| it + " failed"))
                    .collect();
                if lines.is_empty() { verdict.feedback.clone() } else { lines.join("\n") }
            }
            Some(Err(reason)) => reason.clone(),
            None => String::new(),
        };
        match status {
            RunStatus::Done | RunStatus::Cancelled => None,
            RunStatus::NotApproved | RunStatus::Limit => {
                let rounds = self.rounds.rounds.len();
                let word = if rounds == 1 { "round" } else { "rounds" };
                Some(
                    Failure::refused(format!("not approved after {rounds} {word}")).because(reason),
                )
            }
            RunStatus::Failed => Some(Failure::failed("no model answered").because(reason)),
        }
    }
}
