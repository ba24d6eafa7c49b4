//! A coach's verdict: what makes it valid. Free text around it is never considered.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::requirement::Requirement;

/// The coach's verdict on one requirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VerdictStatus {
    /// The requirement is met, with evidence.
    Met,
    /// The requirement is not met.
    Unmet,
    /// The coach could not determine it.
    Unknown,
}

impl VerdictStatus {
    /// Returns its name in a verdict.
    pub fn word(self) -> &'static str {
        match self {
            VerdictStatus::Met => "met",
            VerdictStatus::Unmet => "unmet",
            VerdictStatus::Unknown => "unknown",
        }
    }
}

/// A judged requirement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequirementVerdict {
    /// The requirement's id.
    pub id: String,
    /// The status.
    pub status: VerdictStatus,
    /// The evidence: a file and line, a test, a check.
    #[serde(default)]
    pub evidence: String,
}

/// A verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// Whether the work is approved.
    pub approved: bool,
    /// Every requirement, each once.
    pub requirements: Vec<RequirementVerdict>,
    /// The remaining work, for the player.
    #[serde(default)]
    pub feedback: String,
}

/// The basis for validating a verdict.
#[derive(Clone, Copy, Debug)]
pub struct VerdictBasis<'a> {
    /// The requirements.
    pub requirements: &'a [Requirement],
    /// The command lines of the checks that failed.
    pub failed_checks: &'a [String],
}

/// Returns all errors of a verdict, one sentence each; empty if it is valid.
pub fn validate(verdict: &Verdict, basis: &VerdictBasis<'_>) -> Vec<String> {
    let mut times: BTreeMap<&str, usize> = BTreeMap::new();
    for entry in &verdict.requirements {
        *times.entry(&entry.id).or_default() += 1;
    }
    let mut faults = Vec::new();
    for requirement in basis.requirements {
        match times.remove(requirement.id.as_str()) {
            Some(1) => {}
            Some(n) => faults.push(format!("`{}` is listed {n} times", requirement.id)),
            None => faults.push(format!("`{}` is missing", requirement.id)),
        }
    }
    faults.extend(times.keys().map(|id| format!("no such requirement: `{id}`")));
    for entry in &verdict.requirements {
        if entry.status == VerdictStatus::Met && entry.evidence.trim().is_empty() {
            faults.push(format!("`{}` was judged met without evidence", entry.id));
        }
    }
    let unmet: Vec<&str> = unmet(verdict).map(|entry| entry.id.as_str()).collect();
    if verdict.approved && !unmet.is_empty() {
        faults.push(format!("approved although requirements are not met: {}", unmet.join(", ")));
    }
    if verdict.approved && !basis.failed_checks.is_empty() {
        faults
            .push(format!("approved although a check failed: {}", basis.failed_checks.join("; ")));
    }
    if !verdict.approved && verdict.feedback.trim().is_empty() {
        faults.push("not approved, but the feedback is empty".to_owned());
    }
    faults
}

/// Returns the requirements that are not met.
pub fn unmet(verdict: &Verdict) -> impl Iterator<Item = &RequirementVerdict> {
    verdict.requirements.iter().filter(|entry| entry.status != VerdictStatus::Met)
}

/// The results of the checks of the judged work, as command lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckOutcomes {
    /// Those that passed.
    pub passed: Vec<String>,
    /// Those that failed.
    pub failed: Vec<String>,
}

impl CheckOutcomes {
    /// Collects command lines, each with whether it passed.
    pub fn of<'a>(all: impl IntoIterator<Item = (&'a str, bool)>) -> CheckOutcomes {
        let mut checks = CheckOutcomes::default();
        for (line, ok) in all {
            let lines = if ok { &mut checks.passed } else { &mut checks.failed };
            lines.push(line.to_owned());
        }
        checks
    }

    /// Returns whether at least one check ran, and none failed.
    fn all_passed(&self) -> bool {
        self.failed.is_empty() && !self.passed.is_empty()
    }
}

/// A contradiction between a coach and the checks. It proves neither wrong: a person should look at
/// it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disagreement {
    /// The requirement; `None` for the verdict as a whole.
    #[serde(default)]
    pub id: Option<String>,
    /// The disagreement, in one sentence.
    pub text: String,
}

/// Returns the contradictions between a verdict and the checks; empty if there are none.
pub fn disagreements(verdict: &Verdict, checks: &CheckOutcomes) -> Vec<Disagreement> {
    let mut disagreements = Vec::new();
    for entry in &verdict.requirements {
        let id = &entry.id;
        let mut report = |text| disagreements.push(Disagreement { id: Some(id.clone()), text });
        match entry.status {
            VerdictStatus::Met => {
                for line in checks.failed.iter().filter(|line| names(&entry.evidence, line)) {
                    report(format!("`{id}` was judged met by `{line}`, which failed"));
                }
            }
            VerdictStatus::Unmet if checks.all_passed() => {
                report(format!("`{id}` was judged unmet, but every check passed"));
            }
            VerdictStatus::Unknown if checks.all_passed() => {
                report(format!("`{id}` was judged unknown, but every check passed"));
            }
            VerdictStatus::Unmet | VerdictStatus::Unknown => {}
        }
    }
    if !verdict.approved && checks.all_passed() && unmet(verdict).next().is_none() {
        let text =
            "not approved, although every requirement is met and every check passed".to_owned();
        disagreements.push(Disagreement { id: None, text });
    }
    disagreements
}

/// Returns whether a text names a command line: in full, or without its flags if at least two words
/// remain.
fn names(text: &str, line: &str) -> bool {
    let text = one_spaced(text.split_whitespace());
    let without_flags: Vec<&str> =
        line.split_whitespace().filter(|word| !word.starts_with('-')).collect();
    let command = one_spaced(line.split_whitespace());
    contains_command(&text, &command)
        || (without_flags.len() > 1 && contains_command(&text, &one_spaced(without_flags)))
}

fn one_spaced<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    words.into_iter().collect::<Vec<_>>().join(" ")
}

/// Returns whether a text occurs in another one without an adjacent letter, digit, `-`, `_` or `/`.
fn contains_command(text: &str, command: &str) -> bool {
    let joins = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '/');
    !command.is_empty()
        && text.match_indices(command).any(|(index, _)| {
            let before = text[..index].chars().next_back();
            let after = text[index + command.len()..].chars().next();
            !before.is_some_and(joins) && !after.is_some_and(joins)
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requirement::read;

    fn verdict(approved: bool, judged: &[(&str, VerdictStatus, &str)]) -> Verdict {
        let judged = judged.iter().map(|(id, status, evidence)| RequirementVerdict {
            id: (*id).to_owned(),
            status: *status,
            evidence: (*evidence).to_owned(),
        });
        let feedback = if approved { "" } else { "write it" }.to_owned();
        Verdict { approved, requirements: judged.collect(), feedback }
    }

    fn errors_of(verdict: &Verdict, red: &[&str]) -> String {
        let requirements = read("- a\n- b").unwrap();
        let red: Vec<String> = red.iter().map(|line| (*line).to_owned()).collect();
        validate(verdict, &VerdictBasis { requirements: &requirements, failed_checks: &red })
            .join("; ")
    }

    #[test]
    fn a_complete_verdict_is_valid() {
        use VerdictStatus::{Met, Unknown, Unmet};
        assert_eq!(errors_of(&verdict(true, &[("R1", Met, "t"), ("R2", Met, "t")]), &[]), "");
        assert_eq!(
            errors_of(&verdict(false, &[("R2", Unmet, ""), ("R1", Unknown, "")]), &["x"]),
            ""
        );
    }

    #[test]
    fn every_error_of_a_verdict_is_reported() {
        use VerdictStatus::{Met, Unmet};
        let errors = errors_of(
            &verdict(true, &[("R1", Met, " "), ("R1", Unmet, ""), ("R9", Met, "t")]),
            &["cargo test"],
        );
        for words in [
            "`R1` is listed 2 times",
            "`R2` is missing",
            "no such requirement: `R9`",
            "`R1` was judged met without evidence",
            "requirements are not met: R1",
            "a check failed: cargo test",
        ] {
            assert!(errors.contains(words), "no `{words}` in: {errors}");
        }
        let silent = Verdict { feedback: String::new(), ..verdict(false, &[]) };
        assert!(errors_of(&silent, &[]).contains("the feedback is empty"));
    }

    #[test]
    fn only_the_three_statuses_are_accepted() {
        let json =
            serde_json::json!({"approved": true, "requirements": [{"id": "R1", "status": "MET"}]});
        assert!(serde_json::from_value::<Verdict>(json).is_err());
        let json = serde_json::json!({"approved": "true", "requirements": []});
        assert!(serde_json::from_value::<Verdict>(json).is_err());
    }

    fn disagreement_texts(verdict: &Verdict, green: &[&str], red: &[&str]) -> Vec<String> {
        let lines = green.iter().map(|line| (*line, true)).chain(red.iter().map(|it| (*it, false)));
        let found = disagreements(verdict, &CheckOutcomes::of(lines));
        found.into_iter().map(|it| format!("{:?} {}", it.id, it.text)).collect()
    }

    #[test]
    fn agreement_reports_no_disagreement() {
        use VerdictStatus::{Met, Unmet};
        let approved = verdict(true, &[("R1", Met, "make test passes"), ("R2", Met, "a.rs:3")]);
        assert!(disagreement_texts(&approved, &["make test"], &[]).is_empty());
        assert!(disagreement_texts(&approved, &[], &[]).is_empty());
        let open = verdict(false, &[("R1", Unmet, ""), ("R2", Met, "make tests, a.rs")]);
        assert!(
            disagreement_texts(&open, &["make lint"], &["make test"]).is_empty(),
            "others are red"
        );
        assert!(disagreement_texts(&open, &[], &[]).is_empty(), "no check ran");
    }

    #[test]
    fn each_disagreement_has_its_sentence() {
        use VerdictStatus::{Met, Unknown, Unmet};
        let met = verdict(false, &[("R1", Met, "seen: `cargo  test\n-q shop`"), ("R2", Met, "b")]);
        let errors = disagreement_texts(&met, &["make"], &["cargo test -q shop"]);
        assert_eq!(
            errors,
            ["Some(\"R1\") `R1` was judged met by `cargo test -q shop`, which failed"]
        );
        let short = verdict(false, &[("R1", Met, "cargo test shop is green"), ("R2", Met, "b")]);
        assert_eq!(disagreement_texts(&short, &[], &["cargo test -q shop"]).len(), 1);
        let open = verdict(false, &[("R1", Unmet, ""), ("R2", Unknown, "")]);
        let errors = disagreement_texts(&open, &["make"], &[]);
        assert_eq!(
            errors,
            [
                "Some(\"R1\") `R1` was judged unmet, but every check passed",
                "Some(\"R2\") `R2` was judged unknown, but every check passed",
            ]
        );
        let unapproved = verdict(false, &[("R1", Met, "a"), ("R2", Met, "b")]);
        let errors = disagreement_texts(&unapproved, &["make"], &[]);
        assert_eq!(
            errors,
            ["None not approved, although every requirement is met and every check passed"]
        );
    }

    proptest::proptest! {
        /// A valid approving verdict never disagrees with the checks that it was validated against.
        #[test]
        fn an_approved_verdict_disagrees_with_no_check(
            evidence in proptest::collection::vec("[a-z -]{1,12}", 2),
            green in proptest::collection::vec("[a-z -]{1,8}", 0..3),
            red in proptest::collection::vec("[a-z -]{1,8}", 0..3),
        ) {
            use VerdictStatus::Met;
            let approved = verdict(true, &[("R1", Met, &evidence[0]), ("R2", Met, &evidence[1])]);
            let requirements = read("- a\n- b").unwrap();
            let basis = VerdictBasis { requirements: &requirements, failed_checks: &red };
            let counts = validate(&approved, &basis);
            if counts.is_empty() {
                let found = disagreements(&approved, &CheckOutcomes { passed: green, failed: red });
                proptest::prop_assert!(found.is_empty());
            }
        }
    }
}
