//! What player and coach report of their rounds: the `plan` events of autonomous mode.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{EventKind, RunStatus, Usage};

/// The `mode` of such an event.
const MODE: &str = "autonomous";

/// A report of player and coach.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum RoundsEvent {
    /// The run begins, or goes on.
    Begun {
        /// Rounds at most.
        #[serde(default)]
        rounds: u32,
        /// Whether it goes on.
        #[serde(default)]
        resumed: bool,
        /// What is judged.
        #[serde(default)]
        requirements: Vec<RequirementText>,
        /// Commands that must pass.
        #[serde(default)]
        checks: Vec<String>,
    },
    /// The player works.
    Playing(RoundPart),
    /// The checks run.
    Checking(RoundPart),
    /// The coach judges.
    Judging(RoundPart),
    /// A round is over.
    Judged {
        /// Rounds at most.
        #[serde(default)]
        rounds: u32,
        /// The round.
        #[serde(flatten)]
        round: RoundReport,
    },
    /// The run is over.
    Ended {
        /// How.
        status: Option<RunStatus>,
        /// Rounds at most.
        #[serde(default)]
        rounds: u32,
        /// Every round.
        #[serde(default)]
        report: Vec<RoundReport>,
        /// What all of them took.
        #[serde(default)]
        cost: RoundCost,
    },
}

/// A requirement and its id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequirementText {
    /// The id.
    pub id: String,
    /// Its words.
    pub text: String,
}

/// The part of a round that begins.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoundPart {
    /// Counts from 1.
    pub round: u32,
    /// Rounds at most.
    pub rounds: u32,
    /// The model that works; none for the checks.
    pub model: Option<String>,
}

/// One round.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RoundReport {
    /// Counts from 1.
    pub round: u32,
    /// What the coach decided.
    pub verdict: RoundOutcome,
    /// Why the verdict is missing.
    pub why: Option<String>,
    /// Each requirement as judged.
    pub requirements: Option<Vec<JudgedRequirement>>,
    /// What is left to do.
    pub feedback: Option<String>,
    /// Where coach and checks disagree.
    pub disagreements: Vec<RoundDisagreement>,
    /// The checks that ran.
    pub checks: Vec<RoundCheck>,
    /// What the round took.
    pub cost: RoundCost,
}

/// What the coach decided about a round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum RoundOutcome {
    /// The work is approved.
    #[serde(rename = "approved")]
    Approved,
    /// It is not.
    #[serde(rename = "not approved")]
    NotApproved,
    /// The coach gave no verdict that counts.
    #[serde(rename = "no verdict")]
    NoVerdict,
    /// The round ended before the coach's part.
    #[default]
    #[serde(rename = "not reached")]
    NotReached,
}

impl RoundOutcome {
    /// Returns the words for it on the wire.
    pub fn words(self) -> &'static str {
        match self {
            RoundOutcome::Approved => "approved",
            RoundOutcome::NotApproved => "not approved",
            RoundOutcome::NoVerdict => "no verdict",
            RoundOutcome::NotReached => "not reached",
        }
    }
}

/// A requirement as judged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JudgedRequirement {
    /// The id.
    pub id: String,
    /// What became of it.
    pub status: RequirementStatus,
    /// What shows it.
    #[serde(default)]
    pub evidence: String,
}

/// What became of a requirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequirementStatus {
    /// It is done.
    Met,
    /// It is not done.
    Unmet,
    /// The coach could not find out.
    Unknown,
}

impl RequirementStatus {
    /// Returns the word for it on the wire.
    pub fn word(self) -> &'static str {
        match self {
            RequirementStatus::Met => "met",
            RequirementStatus::Unmet => "unmet",
            RequirementStatus::Unknown => "unknown",
        }
    }
}

/// A place where coach and checks disagree.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RoundDisagreement {
    /// The requirement; none where it is about the verdict as a whole.
    pub id: Option<String>,
    /// One sentence.
    pub text: String,
}

/// A check that ran.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RoundCheck {
    /// The command line.
    pub command: String,
    /// Whether it passed.
    pub ok: bool,
    /// Its exit code.
    pub exit: i32,
    /// Milliseconds.
    pub ms: u64,
}

/// What rounds took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RoundCost {
    /// Replies of the models.
    pub turns: u32,
    /// Milliseconds.
    pub ms: u64,
    /// Tokens and money.
    pub usage: Usage,
}

impl RoundsEvent {
    /// Reads a `plan` event; `None` for those of other modes, and for what this version does not
    /// know.
    pub fn parse(plan: &Value) -> Option<RoundsEvent> {
        if plan["mode"] != MODE {
            return None;
        }
        RoundsEvent::deserialize(plan).ok()
    }
}

impl From<RoundsEvent> for EventKind {
    fn from(event: RoundsEvent) -> EventKind {
        let mut plan = serde_json::to_value(event).unwrap_or_default();
        plan["mode"] = MODE.into();
        EventKind::Plan { plan }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_comes_back_from_the_wire_as_it_was() {
        let round = RoundReport {
            round: 2,
            verdict: RoundOutcome::NotApproved,
            requirements: Some(vec![JudgedRequirement {
                id: "R1".into(),
                status: RequirementStatus::Unmet,
                evidence: "a.rs:3".into(),
            }]),
            checks: vec![RoundCheck { command: "make".into(), ..RoundCheck::default() }],
            ..RoundReport::default()
        };
        let part = RoundPart { round: 2, rounds: 5, model: None };
        let all = [
            RoundsEvent::Playing(part),
            RoundsEvent::Judged { rounds: 5, round: round.clone() },
            RoundsEvent::Ended {
                status: Some(RunStatus::Done),
                rounds: 5,
                report: vec![round],
                cost: RoundCost { turns: 3, ..RoundCost::default() },
            },
        ];
        for event in all {
            let EventKind::Plan { plan } = EventKind::from(event.clone()) else {
                panic!("{event:?}")
            };
            assert_eq!(plan["mode"], "autonomous");
            assert_eq!(RoundsEvent::parse(&plan), Some(event));
        }
    }

    #[test]
    fn what_is_not_known_is_nothing() {
        let parse = |text: &str| RoundsEvent::parse(&serde_json::from_str(text).unwrap());
        assert_eq!(parse(r#"{"mode":"planning","state":"ended"}"#), None);
        assert_eq!(parse(r#"{"mode":"autonomous","state":"later","round":1}"#), None);
        assert_eq!(parse("{}"), None);
    }
}
