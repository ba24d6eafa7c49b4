//! The `plan` events of autonomous mode: the rounds of player and coach.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{EventKind, RunStatus, Usage};

/// The `mode` of these events.
const MODE: &str = "autonomous";

/// An event of player and coach.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum RoundsEvent {
    /// The run starts or resumes.
    Begun {
        /// Maximum number of rounds.
        #[serde(default)]
        rounds: u32,
        /// Whether the run was resumed.
        #[serde(default)]
        resumed: bool,
        /// The requirements that are judged.
        #[serde(default)]
        requirements: Vec<RequirementText>,
        /// The checks that must pass.
        #[serde(default)]
        checks: Vec<String>,
    },
    /// The player starts.
    Playing(RoundPart),
    /// The checks start.
    Checking(RoundPart),
    /// The coach starts.
    Judging(RoundPart),
    /// A round ended.
    Judged {
        /// Maximum number of rounds.
        #[serde(default)]
        rounds: u32,
        /// The round.
        #[serde(flatten)]
        round: RoundReport,
    },
    /// The run ended.
    Ended {
        /// The result.
        status: Option<RunStatus>,
        /// Maximum number of rounds.
        #[serde(default)]
        rounds: u32,
        /// All rounds.
        #[serde(default)]
        report: Vec<RoundReport>,
        /// The total cost.
        #[serde(default)]
        cost: RoundCost,
    },
}

/// A requirement and its id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequirementText {
    /// The id.
    pub id: String,
    /// The text.
    pub text: String,
}

/// The phase of a round that starts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoundPart {
    /// The number of the round, starting at 1.
    pub round: u32,
    /// Maximum number of rounds.
    pub rounds: u32,
    /// The model that works; `None` for the checks.
    pub model: Option<String>,
}

/// One round.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RoundReport {
    /// The number of the round, starting at 1.
    pub round: u32,
    /// What the coach decided.
    pub verdict: RoundOutcome,
    /// Why the verdict is missing.
    pub why: Option<String>,
    /// The judged requirements.
    pub requirements: Option<Vec<JudgedRequirement>>,
    /// The remaining work.
    pub feedback: Option<String>,
    /// Where coach and checks disagree.
    pub disagreements: Vec<RoundDisagreement>,
    /// The checks that ran.
    pub checks: Vec<RoundCheck>,
    /// The cost of the round.
    pub cost: RoundCost,
}

/// The coach's verdict on a round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum RoundOutcome {
    /// The work is approved.
    #[serde(rename = "approved")]
    Approved,
    /// The work is not approved.
    #[serde(rename = "not approved")]
    NotApproved,
    /// The coach gave no valid verdict.
    #[serde(rename = "no verdict")]
    NoVerdict,
    /// The round ended before the coach started.
    #[default]
    #[serde(rename = "not reached")]
    NotReached,
}

impl RoundOutcome {
    /// Returns its name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            RoundOutcome::Approved => "approved",
            RoundOutcome::NotApproved => "not approved",
            RoundOutcome::NoVerdict => "no verdict",
            RoundOutcome::NotReached => "not reached",
        }
    }
}

/// A judged requirement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JudgedRequirement {
    /// The id.
    pub id: String,
    /// The status.
    pub status: RequirementStatus,
    /// The evidence.
    #[serde(default)]
    pub evidence: String,
}

/// The status of a requirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequirementStatus {
    /// It is met.
    Met,
    /// It is not met.
    Unmet,
    /// The coach could not determine it.
    Unknown,
}

impl RequirementStatus {
    /// Returns its name on the wire.
    pub fn word(self) -> &'static str {
        match self {
            RequirementStatus::Met => "met",
            RequirementStatus::Unmet => "unmet",
            RequirementStatus::Unknown => "unknown",
        }
    }
}

/// A disagreement between coach and checks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RoundDisagreement {
    /// The requirement; `None` for the verdict as a whole.
    pub id: Option<String>,
    /// The disagreement, in one sentence.
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
    /// The duration in milliseconds.
    pub ms: u64,
}

/// The cost of one or more rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RoundCost {
    /// The number of model replies.
    pub turns: u32,
    /// The duration in milliseconds.
    pub ms: u64,
    /// Tokens and cost.
    pub usage: Usage,
}

impl RoundsEvent {
    /// Parses a `plan` event; `None` for those of other modes and for unknown ones.
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
    fn a_report_survives_serialization() {
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
    fn unknown_events_are_not_parsed() {
        let parse = |text: &str| RoundsEvent::parse(&serde_json::from_str(text).unwrap());
        assert_eq!(parse(r#"{"mode":"planning","state":"ended"}"#), None);
        assert_eq!(parse(r#"{"mode":"autonomous","state":"later","round":1}"#), None);
        assert_eq!(parse("{}"), None);
    }
}
