//! The three phases of a round: the player works, g3 runs the checks, the coach judges.

use std::time::{Duration, Instant};

use base::event::{EventKind, NoticeLevel, RunStatus};
use base::failure::{OrFail, Result};
use planner::verdict::Verdict;
use tokio_util::sync::CancellationToken;

use super::budget::beyond;
use super::checks::{self, CheckRunner};
use super::coach::VerdictTool;
use super::prompts::{self, CoachCase};
use super::round_log::{PartCost, Round, RoundNote};
use super::{End, Run, report};
use agent_core::limits::UsageLimits;
use agent_core::run::{AgentSession, root_of};
use provider::message::{Message, MessageRole};
use provider::off_loop;
use tools::exec::confinement::CommandSandbox;

/// Maximum number of attempts of the player in a round.
const PLAYER_TRIES: u32 = 3;
/// Maximum number of coaches in a round, each with a new conversation.
const COACH_TRIES: u32 = 2;
/// Timeout of a check in seconds, unless configured.
const CHECK_SECONDS: u64 = 3_600;

/// The result of one coach: its verdict or why it is missing, and its cost.
type CoachResult = (std::result::Result<Verdict, String>, PartCost);

impl Run<'_> {
    /// Runs the player's part. A failed attempt is repeated with the reason; after the last one,
    /// the coach judges the result.
    pub(crate) async fn play(&mut self, n: u32, cancel: &CancellationToken) -> Result<Option<End>> {
        let of = (n, self.rounds.most);
        self.bus.emit(report::playing(of.0, of.1, &self.work.facts().model));
        let before = n.checked_sub(2).and_then(|index| self.rounds.rounds.get(index as usize));
        let prompt = prompts::play(&self.contract, of, before);
        let asked = self.work.conversation.request();
        let goes_on = asked.contains(&prompt) || asked.starts_with(&prompts::interrupted(n));
        let mut message = if goes_on { prompts::interrupted(n) } else { prompt };
        message.push_str(&prompts::user_messages(&self.rounds.user_messages));
        let since = Instant::now();
        let mut reason = None;
        for _ in 0..PLAYER_TRIES {
            let limits = match self.budget.remaining(self.cost().usage) {
                Ok(limits) => limits,
                Err(limit) => return Ok(Some(End::Limit(limit))),
            };
            self.work.limits = UsageLimits { turns: self.work.limits.turns, ..limits };
            let message_now = Message::text(MessageRole::User, std::mem::take(&mut message));
            let ended = self.work.run_part(message_now, cancel.child_token()).await;
            reason = match ended.status {
                RunStatus::Done => None,
                RunStatus::Cancelled => return Ok(Some(End::Cancelled)),
                RunStatus::Failed | RunStatus::Limit | RunStatus::NotApproved => {
                    let failure = ended.failure.map(|failure| failure.sentence());
                    Some(failure.unwrap_or_else(|| "unknown reason".to_owned()))
                }
            };
            let Some(reason) = &reason else { break };
            self.warn(format!("the player's part of round {n} ended early: {reason}"));
            message = prompts::retry_prompt(reason);
        }
        let cost = self.since_played(since);
        self.note(RoundNote::Played { round: n, why: reason, cost })?;
        Ok(None)
    }

    /// Runs the checks.
    pub(crate) async fn check(
        &mut self,
        n: u32,
        cancel: &CancellationToken,
    ) -> Result<Option<End>> {
        if !self.contract.checks.is_empty() {
            self.bus.emit(report::checking(n, self.rounds.most));
        }
        let logs = self.work.session.dir.join(format!("checks/round-{n}"));
        let seconds = self.coach.config.studio.limits.check_seconds.unwrap_or(CHECK_SECONDS);
        let most = Duration::from_secs(seconds);
        let sandbox = CommandSandbox::of(&self.coach.config.sandbox, &root_of(&self.place.cwd));
        let runner =
            CheckRunner { cwd: &self.place.cwd, logs: &logs, most, sandbox: Some(&sandbox) };
        let result = checks::run(&self.contract.checks, &runner, cancel).await;
        match result.or_fail(|| "cannot run the checks")? {
            Some(results) => self.note(RoundNote::Checked { round: n, results }).map(|()| None),
            None => Ok(Some(End::Cancelled)),
        }
    }

    /// Runs the coach's part. If a coach returns no verdict, another one is asked, which is shown
    /// less.
    pub(crate) async fn judge(
        &mut self,
        n: u32,
        cancel: &CancellationToken,
    ) -> Result<Option<End>> {
        let mut judged: CoachResult = (Err(String::new()), PartCost::default());
        for attempt in 0..COACH_TRIES {
            let spent = self.cost().usage.plus(judged.1.usage);
            let limits = match self.budget.remaining(spent) {
                Ok(limits) => limits,
                Err(limit) => return Ok(Some(End::Limit(limit))),
            };
            let room = self.room >> attempt;
            let Some((verdict, cost)) = self.one_coach(n, room, limits, cancel).await? else {
                return Ok(Some(End::Cancelled));
            };
            judged = (verdict, judged.1.plus(cost));
            match &judged.0 {
                Ok(_) => break,
                Err(error) => self.warn(format!("no verdict in round {n}: {error}")),
            }
        }
        let (verdict, cost) = judged;
        let (verdict, reason) = match verdict {
            Ok(verdict) => (Some(verdict), None),
            Err(error) => (None, Some(error)),
        };
        self.note(RoundNote::Judged { round: n, verdict, why: reason, cost })?;
        let round = self.round(n);
        self.bus.emit(report::judged((n, self.rounds.most), &round));
        Ok(None)
    }

    /// Asks one coach in a conversation of its own. Returns `None` if the user cancelled.
    async fn one_coach(
        &mut self,
        n: u32,
        room: usize,
        limits: UsageLimits,
        cancel: &CancellationToken,
    ) -> Result<Option<CoachResult>> {
        let changes = self.place.since(&self.start, room / 2).await?;
        let (of, now) = ((n, self.rounds.most), self.round(n));
        let before = n.checked_sub(2).and_then(|index| self.rounds.rounds.get(index as usize));
        let case = CoachCase { round: of, now: &now, before, changes: &changes, room };
        let message = prompts::judge(&self.contract, &case);
        let tool = VerdictTool::new(self.contract.requirements.clone(), now.red());
        let mut settings = self.coach.clone();
        settings.role.tool = Some(tool.clone());
        let (name, session) = (self.free_name(n), self.work.session.clone());
        let (bus, asker) = (self.bus.clone(), self.asker.clone());
        let open = move || AgentSession::child_session(&settings, (&session, &name), bus, asker);
        let mut work = off_loop(open).await?;
        work.limits = UsageLimits { turns: work.limits.turns, ..limits };
        self.bus.emit(report::judging(of.0, of.1, &work.facts().model));
        let since = Instant::now();
        let ended =
            work.run_part(Message::text(MessageRole::User, message), cancel.child_token()).await;
        if ended.status == RunStatus::Cancelled {
            return Ok(None);
        }
        let (turns, usage) = (work.conversation.turns(), work.conversation.usage());
        let cost = PartCost { turns, usage, ms: millis(since) };
        let verdict = tool.taken().map_err(|error| match ended.failure {
            Some(failure) => failure.sentence(),
            None => error,
        });
        Ok(Some((verdict, cost)))
    }

    /// Returns a name that no earlier coach has: each starts a new conversation, even after a
    /// crash.
    fn free_name(&self, n: u32) -> String {
        let names = (1..).map(|k| match k {
            1 => format!("coach-{n}"),
            k => format!("coach-{n}-{k}"),
        });
        let mut free = names.filter(|name| !self.work.session.dir.join(name).exists());
        free.next().unwrap_or_default()
    }

    fn round(&self, n: u32) -> Round {
        self.rounds.rounds.get(n as usize - 1).cloned().unwrap_or_default()
    }

    /// Returns the player's usage since its last recorded part, including parts that a crash
    /// interrupted.
    fn since_played(&self, since: Instant) -> PartCost {
        let (known, talk) = (self.rounds.played(), &self.work.conversation);
        let usage = beyond(talk.usage(), known.usage);
        PartCost { turns: talk.turns().saturating_sub(known.turns), usage, ms: millis(since) }
    }

    /// Returns the usage of the run so far.
    pub(crate) fn cost(&self) -> PartCost {
        self.rounds.cost().plus(self.since_played(Instant::now()))
    }

    fn warn(&self, text: String) {
        self.bus.emit(EventKind::Notice { level: NoticeLevel::Warning, text });
    }
}

fn millis(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}
