//! The journal of a run's rounds, and the next step that follows from it.

use base::event::{RunStatus, Usage};
use planner::verdict::{CheckOutcomes, Disagreement, Verdict, disagreements};
use serde::{Deserialize, Serialize};

use super::checks::CheckOutcome;
use super::evidence::RunBaseline;

/// One line of `rounds.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "note", rename_all = "snake_case")]
pub(crate) enum RoundNote {
    /// The run began.
    Begun {
        /// Time in RFC 3339 format.
        time: String,
        /// The requirements, verbatim.
        requirements: String,
        /// Maximum number of rounds.
        rounds: u32,
        /// The commands that must pass.
        checks: Vec<String>,
        /// The state of the files.
        start: RunBaseline,
    },
    /// The run was resumed.
    Resumed {
        /// Maximum number of rounds.
        rounds: u32,
        /// Whether the player works again, regardless of the last verdict.
        #[serde(default)]
        more: bool,
        /// What the user says to the player.
        #[serde(default)]
        said: Option<String>,
    },
    /// The player's part of a round has ended.
    Played {
        /// Number of the round, from 1.
        round: u32,
        /// Why it ended early.
        why: Option<String>,
        /// Its cost.
        cost: PartCost,
    },
    /// The checks have run.
    Checked {
        /// Number of the round, from 1.
        round: u32,
        /// The results, in the order of the checks.
        results: Vec<CheckOutcome>,
    },
    /// The coach's part has ended.
    Judged {
        /// Number of the round, from 1.
        round: u32,
        /// Its verdict, if it returned a valid one.
        verdict: Option<Verdict>,
        /// Why the verdict is missing.
        why: Option<String>,
        /// Its cost.
        cost: PartCost,
    },
}

/// The cost of a part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct PartCost {
    /// Number of replies of the model.
    pub turns: u32,
    /// Tokens and money.
    pub usage: Usage,
    /// Duration in milliseconds.
    pub ms: u64,
}

impl PartCost {
    /// Adds two costs.
    #[must_use]
    pub(crate) fn plus(self, other: PartCost) -> PartCost {
        PartCost {
            turns: self.turns + other.turns,
            usage: self.usage.plus(other.usage),
            ms: self.ms + other.ms,
        }
    }
}

/// One round so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Round {
    /// The player's part: why it ended early, and its cost.
    pub played: Option<(Option<String>, PartCost)>,
    /// The results of the checks.
    pub checks: Option<Vec<CheckOutcome>>,
    /// The coach's part: its verdict or why it is missing, and its cost.
    pub judged: Option<(Result<Verdict, String>, PartCost)>,
}

impl Round {
    /// Returns the verdict, if there is one.
    pub(crate) fn verdict(&self) -> Option<&Verdict> {
        self.judged.as_ref()?.0.as_ref().ok()
    }

    /// Returns whether the coach approved the round.
    pub(crate) fn is_approved(&self) -> bool {
        self.verdict().is_some_and(|verdict| verdict.approved)
    }

    /// Returns the command lines of the checks that failed.
    pub(crate) fn red(&self) -> Vec<String> {
        let all = self.checks.iter().flatten();
        all.filter(|outcome| !outcome.ok).map(|ran| ran.command.clone()).collect()
    }

    /// Returns where the coach and the checks disagree.
    pub(crate) fn disagreements(&self) -> Vec<Disagreement> {
        let ran = self.checks.iter().flatten().map(|ran| (ran.command.as_str(), ran.ok));
        let checks = CheckOutcomes::of(ran);
        self.verdict().map(|verdict| disagreements(verdict, &checks)).unwrap_or_default()
    }

    /// Returns the cost of both parts.
    pub(crate) fn cost(&self) -> PartCost {
        let played = self.played.as_ref().map(|(_, cost)| *cost).unwrap_or_default();
        played.plus(self.judged.as_ref().map(|(_, cost)| *cost).unwrap_or_default())
    }

    /// Returns whether no model replied in this round, in which case another round would not help.
    fn was_silent(&self) -> bool {
        self.cost().turns == 0
    }
}

/// The rounds of a run, reconstructed from its notes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RoundHistory {
    /// Maximum number of rounds.
    pub most: u32,
    /// The rounds that have begun; the first is round 1.
    pub rounds: Vec<Round>,
    /// Whether the player is to work again and has not done so yet.
    pub more: bool,
    /// What the user has said to the player since its last part.
    pub user_messages: Vec<String>,
}

/// The next step of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextStep {
    /// The player works.
    Play(u32),
    /// g3 runs the checks.
    Check(u32),
    /// The coach judges.
    Judge(u32),
    /// The run is over.
    End(RunStatus),
}

impl RoundHistory {
    /// Reconstructs the rounds from these notes.
    pub(crate) fn of(notes: &[RoundNote]) -> RoundHistory {
        let mut rounds = RoundHistory::default();
        notes.iter().cloned().for_each(|note| rounds.take(note));
        rounds
    }

    /// Applies a note.
    pub(crate) fn take(&mut self, note: RoundNote) {
        match note {
            RoundNote::Begun { rounds, .. } => self.most = rounds,
            RoundNote::Resumed { rounds, more, said } => {
                self.most = rounds;
                self.more |= more;
                self.user_messages.extend(said);
                // A round without a reply is repeated: the cause may be gone.
                self.rounds.pop_if(|round| round.judged.is_some() && round.was_silent());
            }
            RoundNote::Played { round, why, cost } => {
                self.round_mut(round).played = Some((why, cost));
                self.more = false;
                self.user_messages.clear();
            }
            RoundNote::Checked { round, results } => self.round_mut(round).checks = Some(results),
            RoundNote::Judged { round, verdict, why, cost } => {
                let judged = verdict.ok_or_else(|| why.unwrap_or_default());
                self.round_mut(round).judged = Some((judged, cost));
            }
        }
    }

    fn round_mut(&mut self, round: u32) -> &mut Round {
        let index = round.max(1) as usize - 1;
        if self.rounds.len() <= index {
            self.rounds.resize(index + 1, Round::default());
        }
        &mut self.rounds[index]
    }

    /// Returns the next step.
    pub(crate) fn next(&self) -> NextStep {
        let count = self.rounds.len() as u32;
        let Some(last) = self.rounds.last() else { return NextStep::Play(1) };
        match last {
            Round { played: None, .. } => NextStep::Play(count),
            Round { checks: None, .. } => NextStep::Check(count),
            Round { judged: None, .. } => NextStep::Judge(count),
            round if round.is_approved() && !self.more => NextStep::End(RunStatus::Done),
            round if round.was_silent() => NextStep::End(RunStatus::Failed),
            _ if count >= self.most => NextStep::End(RunStatus::NotApproved),
            _ => NextStep::Play(count + 1),
        }
    }

    /// Returns the cost of all rounds.
    pub(crate) fn cost(&self) -> PartCost {
        self.rounds.iter().fold(PartCost::default(), |sum, round| sum.plus(round.cost()))
    }

    /// Returns the player's cost in all rounds.
    pub(crate) fn played(&self) -> PartCost {
        let costs = self.rounds.iter().filter_map(|round| Some(round.played.as_ref()?.1));
        costs.fold(PartCost::default(), PartCost::plus)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use planner::verdict::{RequirementVerdict, VerdictStatus as Met};

    fn cost() -> PartCost {
        PartCost { turns: 1, ..PartCost::default() }
    }

    fn judged(round: u32, approved: bool) -> RoundNote {
        let requirements = vec![RequirementVerdict {
            id: "R1".into(),
            status: Met::Unmet,
            evidence: String::new(),
        }];
        let verdict = Verdict { approved, requirements, feedback: "more".into() };
        RoundNote::Judged { round, verdict: Some(verdict), why: None, cost: cost() }
    }

    fn resumed(rounds: u32) -> RoundNote {
        RoundNote::Resumed { rounds, more: false, said: None }
    }

    fn more(rounds: u32) -> RoundNote {
        RoundNote::Resumed { rounds, more: true, said: Some("do more".into()) }
    }

    #[test]
    fn each_prefix_of_the_notes_has_a_next_step() {
        let begun = RoundNote::Begun {
            time: String::new(),
            requirements: "x".into(),
            rounds: 2,
            checks: Vec::new(),
            start: RunBaseline::List,
        };
        let played = |round| RoundNote::Played { round, why: None, cost: cost() };
        let checked = |round| RoundNote::Checked { round, results: Vec::new() };
        let notes = [
            (begun, NextStep::Play(1)),
            (played(1), NextStep::Check(1)),
            (checked(1), NextStep::Judge(1)),
            (judged(1, false), NextStep::Play(2)),
            (played(2), NextStep::Check(2)),
            (checked(2), NextStep::Judge(2)),
            (judged(2, false), NextStep::End(RunStatus::NotApproved)),
            (resumed(3), NextStep::Play(3)),
            (played(3), NextStep::Check(3)),
            (checked(3), NextStep::Judge(3)),
            (judged(3, true), NextStep::End(RunStatus::Done)),
            (resumed(8), NextStep::End(RunStatus::Done)),
            (more(8), NextStep::Play(4)),
            (resumed(8), NextStep::Play(4)),
            (played(4), NextStep::Check(4)),
            (checked(4), NextStep::Judge(4)),
            (more(9), NextStep::Judge(4)),
            (judged(4, true), NextStep::Play(5)),
        ];
        for n in 1..=notes.len() {
            let so_far: Vec<RoundNote> = notes[..n].iter().map(|(note, _)| note.clone()).collect();
            assert_eq!(RoundHistory::of(&so_far).next(), notes[n - 1].1, "after {n} notes");
        }
    }

    #[test]
    fn user_messages_are_kept_for_the_players_next_part() {
        let mut rounds = RoundHistory::of(&[more(5), judged(1, true), more(6)]);
        assert_eq!(
            (rounds.user_messages.len(), rounds.next()),
            (2, NextStep::Play(1)),
            "never played"
        );
        rounds.take(RoundNote::Played { round: 1, why: None, cost: cost() });
        assert_eq!((rounds.user_messages.len(), rounds.more), (0, false));
    }

    #[test]
    fn a_round_without_a_model_reply_ends_the_run() {
        let mut silent = vec![
            resumed(5),
            RoundNote::Played { round: 1, why: Some("401".into()), cost: PartCost::default() },
            RoundNote::Checked { round: 1, results: Vec::new() },
            RoundNote::Judged {
                round: 1,
                verdict: None,
                why: Some("401".into()),
                cost: PartCost::default(),
            },
        ];
        assert_eq!(RoundHistory::of(&silent).next(), NextStep::End(RunStatus::Failed));
        silent.push(resumed(5));
        assert_eq!(
            RoundHistory::of(&silent).next(),
            NextStep::Play(1),
            "a resumed run repeats the round"
        );
    }
}
