//! A coach's verdict: what it must hold to count. Words around it never do.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::requirement::Requirement;

/// What a coach says about one requirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It is done, and there is evidence for it.
    Met,
    /// It is not done.
    Unmet,
    /// The coach could not find out.
    Unknown,
}

impl Status {
    /// As it stands in a verdict.
    pub fn word(self) -> &'static str {
        match self {
            Status::Met => "met",
            Status::Unmet => "unmet",
            Status::Unknown => "unknown",
        }
    }
}

/// One requirement as judged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Judged {
    /// The requirement's id.
    pub id: String,
    /// What became of it.
    pub status: Status,
    /// What shows it: a file and line, a test, a check.
    #[serde(default)]
    pub evidence: String,
}

/// A verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// Whether the work is done.
    pub approved: bool,
    /// Every requirement, each once.
    pub requirements: Vec<Judged>,
    /// What the player has to do next.
    #[serde(default)]
    pub feedback: String,
}

/// What a verdict is measured by.
#[derive(Clone, Copy, Debug)]
pub struct Measure<'a> {
    /// The requirements.
    pub requirements: &'a [Requirement],
    /// The checks that failed, as their command lines.
    pub red: &'a [String],
}

/// Everything that is wrong with a verdict, one sentence each; empty when it counts.
pub fn faults(verdict: &Verdict, by: &Measure<'_>) -> Vec<String> {
    let mut times: BTreeMap<&str, usize> = BTreeMap::new();
    for judged in &verdict.requirements {
        *times.entry(&judged.id).or_default() += 1;
    }
    let mut faults = Vec::new();
    for requirement in by.requirements {
        match times.remove(requirement.id.as_str()) {
            Some(1) => {}
            Some(n) => faults.push(format!("`{}` stands there {n} times", requirement.id)),
            None => faults.push(format!("`{}` is missing", requirement.id)),
        }
    }
    faults.extend(times.keys().map(|id| format!("there is no requirement `{id}`")));
    for judged in &verdict.requirements {
        if judged.status == Status::Met && judged.evidence.trim().is_empty() {
            faults.push(format!("`{}` is said to be met without evidence", judged.id));
        }
    }
    let open: Vec<&str> = open(verdict).map(|judged| judged.id.as_str()).collect();
    if verdict.approved && !open.is_empty() {
        faults.push(format!("approved although not all is met: {}", open.join(", ")));
    }
    if verdict.approved && !by.red.is_empty() {
        faults.push(format!("approved although a check failed: {}", by.red.join("; ")));
    }
    if !verdict.approved && verdict.feedback.trim().is_empty() {
        faults.push("not approved, and no feedback says what is to be done".to_owned());
    }
    faults
}

/// The requirements that are not met.
pub fn open(verdict: &Verdict) -> impl Iterator<Item = &Judged> {
    verdict.requirements.iter().filter(|judged| judged.status != Status::Met)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requirement::read;

    fn verdict(approved: bool, judged: &[(&str, Status, &str)]) -> Verdict {
        let judged = judged.iter().map(|(id, status, evidence)| Judged {
            id: (*id).to_owned(),
            status: *status,
            evidence: (*evidence).to_owned(),
        });
        let feedback = if approved { "" } else { "write it" }.to_owned();
        Verdict { approved, requirements: judged.collect(), feedback }
    }

    fn wrong(verdict: &Verdict, red: &[&str]) -> String {
        let requirements = read("- a\n- b").unwrap();
        let red: Vec<String> = red.iter().map(|line| (*line).to_owned()).collect();
        faults(verdict, &Measure { requirements: &requirements, red: &red }).join("; ")
    }

    #[test]
    fn a_whole_verdict_counts() {
        use Status::{Met, Unknown, Unmet};
        assert_eq!(wrong(&verdict(true, &[("R1", Met, "t"), ("R2", Met, "t")]), &[]), "");
        assert_eq!(wrong(&verdict(false, &[("R2", Unmet, ""), ("R1", Unknown, "")]), &["x"]), "");
    }

    #[test]
    fn every_fault_is_named() {
        use Status::{Met, Unmet};
        let said = wrong(
            &verdict(true, &[("R1", Met, " "), ("R1", Unmet, ""), ("R9", Met, "t")]),
            &["cargo test"],
        );
        for words in [
            "`R1` stands there 2 times",
            "`R2` is missing",
            "no requirement `R9`",
            "`R1` is said to be met without evidence",
            "not all is met: R1",
            "a check failed: cargo test",
        ] {
            assert!(said.contains(words), "no `{words}` in: {said}");
        }
        let silent = Verdict { feedback: String::new(), ..verdict(false, &[]) };
        assert!(wrong(&silent, &[]).contains("no feedback"));
    }

    #[test]
    fn only_the_three_statuses_are_read() {
        let json =
            serde_json::json!({"approved": true, "requirements": [{"id": "R1", "status": "MET"}]});
        assert!(serde_json::from_value::<Verdict>(json).is_err());
        let json = serde_json::json!({"approved": "true", "requirements": []});
        assert!(serde_json::from_value::<Verdict>(json).is_err());
    }
}
